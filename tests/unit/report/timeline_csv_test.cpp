// The timeline's CSV: exact text, round trips, and what the reader refuses.
// Not: files on a disk.
#include "tawpipe/timeline/timeline_csv.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include "support/hand_built.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

namespace timeline_csv_test {

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

TimePoint at(std::int64_t picoseconds) { return TimePoint{Duration{picoseconds}}; }

Schedule small_schedule() {
  ScheduleBuilder builder = support::compute_and_pass();
  builder.add({.op = Op::all_reduce,
               .payload = Payload::edge_gradients,
               .rank = Rank{0},
               .group = builder.group({Rank{0}, Rank{1}}),
               .bytes = 7_B},
              {});
  return builder.build();
}

Timeline small_timeline() {
  return {{at(0), at(601'000'000), at(700'000'000)}, {at(601'000'000), at(601'500'000), at(12'700'000'000'001)}};
}

const std::string header = "task,op,payload,rank,peer,group,lane,stage,microbatch,bytes,start_s,end_s\n";
const std::string forward = "0,forward,nothing,0,,,0,0,0,0,0.000000000000,0.000601000000\n";
const std::string pass = "1,pass,activations,0,1,,1,,0,25000000,0.000601000000,0.000601500000\n";
const std::string all_reduce = "2,all_reduce,edge_gradients,0,,0,0,,,7,0.000700000000,12.700000000001\n";

template <class... Arguments>
std::string error_of(const Arguments&... arguments) {
  try {
    parse_timeline_csv(arguments...);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

/// The error of a file with this one row.
std::string row_error(const std::string& row) { return error_of(header + row, "t.csv"); }

}  // namespace

TEST_CASE("a row a task, times exact to the picosecond") {
  CHECK(timeline_csv(small_schedule(), small_timeline()) == header + forward + pass + all_reduce);
}

TEST_CASE("what is written reads back the same") {
  const Schedule schedule = small_schedule();
  const std::string text = timeline_csv(schedule, small_timeline());
  CHECK(parse_timeline_csv(text, schedule) == small_timeline());
  const RecordedTimeline recorded = parse_timeline_csv(text);
  CHECK(recorded.timeline == small_timeline());
  REQUIRE(recorded.tasks.size() == 3);
  CHECK(recorded.tasks[1].op == Op::pass);
  CHECK(recorded.tasks[1].payload == Payload::activations);
  CHECK(recorded.tasks[1].rank == Rank{0});
  CHECK(recorded.tasks[1].peer == Rank{1});
  CHECK(recorded.tasks[1].group == none<GroupId>);
  CHECK(recorded.tasks[1].lane == LaneId{1});
  CHECK(recorded.tasks[1].stage == none<StageId>);
  CHECK(recorded.tasks[1].microbatch == 0);
  CHECK(recorded.tasks[1].bytes == 25_MB);
  CHECK(recorded.tasks[2].group == GroupId{0});
  CHECK(recorded.tasks[2].microbatch == -1);
}

TEST_CASE("any time survives the round trip") {
  ScheduleBuilder builder{"long", Workload::abstract(1, 1), 1, {"compute"}};
  std::mt19937_64 random{1};
  Timeline timeline;
  const auto add = [&](std::int64_t start, std::int64_t end) {
    builder.add({.op = Op::update, .rank = Rank{0}}, {});
    timeline.start.push_back(at(start));
    timeline.end.push_back(at(end));
  };
  for (int i = 0; i < 2000; ++i) {
    const auto a = static_cast<std::int64_t>(random() >> (1 + i % 60));
    const auto b = static_cast<std::int64_t>(random() >> (1 + i % 60));
    add(std::min(a, b), std::max(a, b));
  }
  add(Duration::max().value(), Duration::max().value());
  add(-Duration::max().value(), -1);
  const Schedule schedule = builder.build();
  const std::string text = timeline_csv(schedule, timeline);
  CHECK(parse_timeline_csv(text, schedule) == timeline);
  CHECK(text.ends_with(",-9223372.036854775807,-0.000000000001\n"));

  std::string joined;
  int pieces = 0;
  write_timeline_csv(schedule, timeline, [&](std::string_view piece) {
    joined += piece;
    ++pieces;
  });
  CHECK(pieces > 1);
  CHECK(joined == text);
}

TEST_CASE("an empty timeline is its header") {
  CHECK(parse_timeline_csv(header).tasks.empty());
  CHECK(parse_timeline_csv(header.substr(0, header.size() - 1)).tasks.empty());
}

TEST_CASE("line ends of Windows and a missing last one are accepted") {
  std::string text = header + forward;
  text.pop_back();
  CHECK(parse_timeline_csv(text).tasks.size() == 1);
  text.insert(header.size() - 1, "\r");
  CHECK(parse_timeline_csv(text + "\r\n").tasks.size() == 1);
}

TEST_CASE("the header must be there") {
  const std::string expected =
      "t.csv, line 1: the first line must be task,op,payload,rank,peer,group,lane,stage,microbatch,bytes,start_s,end_s";
  CHECK(error_of("", "t.csv") == expected);
  CHECK(error_of("\n", "t.csv") == expected);
  CHECK(error_of(forward, "t.csv") == expected);
}

TEST_CASE("an error names line and column") {
  CHECK(error_of(header + forward + "x,pass\n", "t.csv") == "t.csv, line 3: 2 columns instead of 12");
  CHECK(row_error("\n") == "t.csv, line 2: 1 columns instead of 12");
  CHECK(row_error("0,forward,nothing,0,,,0,0,0,0,0.000000000000,0.000601000000,\n") == "t.csv, line 2: 13 columns instead of 12");
  CHECK(error_of(header + forward + forward, "t.csv") ==
        "t.csv, line 3, column 1 (task): this row must be task 1; each task has one row, in order");
  CHECK(row_error("0,forwards,nothing,0,,,0,0,0,0,0.000000000000,0.000601000000\n") ==
        "t.csv, line 2, column 2 (op): 'forwards' is no op; known: forward, backward, backward_input, backward_weight, update, "
        "idle, pass, exchange, broadcast, reduce, all_gather, reduce_scatter, all_reduce, all_to_all, copy_to_host, "
        "copy_from_host");
  CHECK(row_error("0,forward,,0,,,0,0,0,0,0.000000000000,0.000601000000\n") ==
        "t.csv, line 2, column 3 (payload): '' is no payload; known: nothing, weights, gradients, activations, "
        "activation_gradients, edge_gradients, scalar, optimizer_states");
  CHECK(row_error("0,forward,nothing,,,,0,0,0,0,0.000000000000,0.000601000000\n") ==
        "t.csv, line 2, column 4 (rank): '' is not a whole number from 0 to 2147483647");
  CHECK(row_error("0,forward,nothing,0,-1,,0,0,0,0,0.000000000000,0.000601000000\n") ==
        "t.csv, line 2, column 5 (peer): '-1' is not a whole number from 0 to 2147483647");
  CHECK(row_error("0,forward,nothing,0,,,256,0,0,0,0.000000000000,0.000601000000\n") ==
        "t.csv, line 2, column 7 (lane): '256' is not a whole number from 0 to 255");
  CHECK(row_error("0,forward,nothing,0,,,0,00,0,0,0.000000000000,0.000601000000\n") ==
        "t.csv, line 2, column 8 (stage): '00' is not a whole number from 0 to 2147483647");
  CHECK(row_error("0,forward,nothing,0,,,0,0,2147483648,0,0.000000000000,0.000601000000\n") ==
        "t.csv, line 2, column 9 (microbatch): '2147483648' is not a whole number from 0 to 2147483647");
  CHECK(row_error("0,forward,nothing,0,,,0,0,0,1e6,0.000000000000,0.000601000000\n") ==
        "t.csv, line 2, column 10 (bytes): '1e6' is not a whole number from 0 to 9223372036854775807");
  CHECK(row_error("0,forward,nothing,0,,,0,0,0,0,0.000601000000,0.000600000000\n") ==
        "t.csv, line 2, column 12 (end_s): the task ends before it starts, at 0.000601000000");
}

TEST_CASE("a time that is not exact is refused") {
  for (const std::string bad :
       {"", "0", "0.5", ".000000000000", "00.000000000000", "0.0000000000000", "0.00000000000", "0,000000000000",
        "0.00000000000x", "-0.000000000000", "+0.000000000000", "--1.000000000000", "1e-3", "nan", "9223372.036854775808",
        "9223373.000000000000", "99999999999999999999.000000000000", " 0.000000000000", "0.-00000000001"}) {
    CAPTURE(bad);
    const std::string error = row_error("0,forward,nothing,0,,,0,0,0,0," + bad + ",0.000601000000\n");
    if (bad == "0,000000000000") {
      CHECK(error == "t.csv, line 2: 13 columns instead of 12");
    } else {
      CHECK(error == "t.csv, line 2, column 11 (start_s): '" + bad +
                         "' is not a time; write seconds with 12 digits after the point, such as 0.000601000000");
    }
  }
}

TEST_CASE("a file cut short anywhere but behind a row is refused") {
  const std::string text = header + forward + pass;
  for (std::size_t size = 0; size < text.size(); ++size) {
    CAPTURE(size);
    // After the header's text and after a row's last digit or line end, the file is whole.
    const bool whole = size == header.size() - 1 || size == header.size() || size == header.size() + forward.size() - 1 ||
                       size == header.size() + forward.size() || size == text.size() - 1;
    CHECK((error_of(text.substr(0, size), "t.csv") == "no error") == whole);
  }
}

TEST_CASE("an error is one line, whatever the file holds") {
  std::mt19937 random{7};
  const std::string text = header + forward + pass + all_reduce;
  for (int i = 0; i < 3000; ++i) {
    std::string broken = text;
    for (int change = 0; change < 3; ++change) broken[random() % broken.size()] = static_cast<char>(random() % 256);
    const std::string error = error_of(broken, "t.csv");
    CHECK(error.find_first_of("\r\n") == std::string::npos);
    CHECK(error.size() < 300);
  }
  const std::string long_name = "0," + std::string(1000, 'x') + ",nothing,0,,,0,0,0,0,0.000000000000,0.000601000000\n";
  CHECK(row_error(long_name).starts_with("t.csv, line 2, column 2 (op): '" + std::string(60, 'x') + "...' is no op"));
}

TEST_CASE("another schedule's file is refused at the first difference") {
  const Schedule schedule = small_schedule();
  CHECK(error_of(header + forward, schedule, "t.csv") == "t.csv has 1 tasks, but schedule small has 3");
  CHECK(error_of(header + forward + pass + all_reduce + "3,update,nothing,0,,,0,,,0,0.000000000000,0.000000000000\n", schedule,
                 "t.csv") == "t.csv has 4 tasks, but schedule small has 3");
  std::string text = header + forward + pass + all_reduce;
  text.replace(text.find("25000000"), 8, "26000000");
  CHECK(error_of(text, schedule, "t.csv") ==
        "t.csv, line 3, column 10 (bytes): '26000000', but task 1 of schedule small has '25000000'");
}

TEST_CASE("a timeline of another size cannot be written") {
  CHECK_THROWS_WITH_AS(timeline_csv(small_schedule(), {}), "the timeline has 0 tasks, but the schedule has 3", InputError);
}

}  // namespace timeline_csv_test
