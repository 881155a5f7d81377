// Pictures of timelines: the paper's figure read back from its SVG, marks of messages, what is
// refused.
// Not: the command that writes them (cli/), nor charts (chart_test.cpp).
#include "tawpipe/report/gantt.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

Cluster three_nodes() {
  return ClusterBuilder{}
      .device({.name = "test", .memory = 1_GiB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
      .nodes(3)
      .devices_per_node(2)
      .intra_node({100_GBps, 3_us})
      .inter_node({1_GBps, 30_us})
      .build();
}

/// The cells of a picture as its SVG has them: (rank, op, stage, microbatch) and start and end in
/// whole units of a forward.
std::map<std::tuple<int, std::string, int, int>, std::pair<int, int>> cells_of(const std::string& svg) {
  std::map<std::tuple<int, std::string, int, int>, std::pair<int, int>> cells;
  std::istringstream lines{svg};
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find("data-of=\"");
    if (at == std::string::npos) continue;
    std::map<std::string, std::string> values;
    std::istringstream words{line.substr(at + 9, line.find('"', at + 9) - at - 9)};
    for (std::string word; words >> word;) values[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    const auto number = [&](const char* key) { return std::stoi(values.at(key)); };
    REQUIRE(values.at("start").find('.') == std::string::npos);
    REQUIRE(values.at("end").find('.') == std::string::npos);
    const bool added =
        cells
            .try_emplace({number("rank"), values.at("op"), number("stage"), number("microbatch")}, number("start"), number("end"))
            .second;
    REQUIRE(added);
  }
  return cells;
}

}  // namespace

TEST_CASE("the paper's figure of 6 devices in 3 nodes, read back from the picture") {
  const Cluster cluster = three_nodes();
  const Schedule schedule =
      schedules::tawpipe(Workload::abstract(6, 6), cluster.groups_by_node(), {.order = schedules::Order::paper});
  const FixedCost cost{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 0_s};
  const Timeline timeline = simulate(schedule, cluster, cost);
  const Drawing drawing = gantt(schedule, timeline, {.cluster = &cluster});
  const auto cells = cells_of(svg(drawing));
  // Arithmetic: groups start 0, 1 and 2 units late; forwards of W_0 ... W_5, then backwards of two
  // units of W_5 ... W_0, which begin at 6, 8 and 9; the whole takes 3 * 6 + 1 + 2 = 21 units.
  const int first[] = {0, 1, 2};
  const int backwards[] = {6, 8, 9};
  int last = 0;
  std::set<int> microbatches;
  for (int rank = 0; rank < 6; ++rank) {
    int found = 0;
    int microbatch = -1;
    for (const auto& [cell, span] : cells) {
      const auto& [on, op, stage, of] = cell;
      if (on != rank || (op != "forward" && op != "backward")) continue;
      ++found;
      microbatch = microbatch < 0 ? of : microbatch;
      CHECK(of == microbatch);
      const int begin = op == "forward" ? first[rank / 2] + stage : backwards[rank / 2] + 2 * (5 - stage);
      CHECK(span == std::pair{begin, begin + (op == "forward" ? 1 : 2)});
      last = std::max(last, span.second);
    }
    CHECK(found == 12);
    microbatches.insert(microbatch);
  }
  CHECK(last == 21);
  CHECK(microbatches == std::set<int>{0, 1, 2, 3, 4, 5});
  // Each of 6 rows names its device; weights and gradients are in the key.
  const std::string text = svg(drawing);
  for (const char* word : {">P0<", ">P5<", ">n2<", ">forward<", ">backward<", ">weights<", ">gradients<"}) {
    CHECK(text.find(word) != std::string::npos);
  }
}

TEST_CASE("messages are marks below the row: bars that take time, or a shape for each end") {
  ScheduleBuilder builder{"two <ranks>", Workload::abstract(2, 1), 2, {"compute", "link"}};
  builder.add({.op = Op::forward, .rank = Rank{0}, .stage = StageId{0}, .microbatch = 3}, {});
  builder.add({.op = Op::pass,
               .payload = Payload::activations,
               .lane = LaneId{1},
               .peer_lane = LaneId{1},
               .rank = Rank{0},
               .peer = Rank{1}},
              {});
  const Schedule schedule = builder.build();
  const auto at = [](std::int64_t seconds) { return TimePoint{Duration{seconds * 1'000'000'000'000}}; };
  const auto count = [](const Drawing& drawing, Shape::Kind kind, std::string_view color) {
    return std::count_if(drawing.shapes.begin(), drawing.shapes.end(),
                         [&](const Shape& shape) { return shape.kind == kind && shape.color == color; });
  };
  const std::string_view blue = traits(Payload::activations).page_color;
  const Drawing taking_time = gantt(schedule, {{at(0), at(1)}, {at(1), at(2)}});
  CHECK(count(taking_time, Shape::Kind::box, blue) == 3);  // one in the key
  CHECK(count(taking_time, Shape::Kind::area, blue) == 0);
  const Drawing at_once = gantt(schedule, {{at(0), at(1)}, {at(1), at(1)}});
  CHECK(count(at_once, Shape::Kind::area, blue) == 2);
  const std::string text = svg(at_once);
  CHECK(text.find("<title>two &lt;ranks&gt;</title>") != std::string::npos);
  CHECK(text.find(">3</text>") != std::string::npos);
  CHECK(text == svg(gantt(schedule, {{at(0), at(1)}, {at(1), at(1)}})));
  CHECK_THROWS_WITH_AS(gantt(schedule, {{at(0), at(1)}, {at(1), at(1)}}, {.max_tasks = 1}),
                       doctest::Contains("a picture of 2 tasks shows nothing; the most is 1"), InputError);
  CHECK_THROWS_WITH_AS(gantt(schedule, {}), doctest::Contains("the timeline has 0 tasks"), InputError);
}

TEST_CASE("a cell's times are exact") {
  const auto text = [](std::int64_t picoseconds) { return detail::exact_seconds(TimePoint{Duration{picoseconds}}); };
  CHECK(text(0) == "0");
  CHECK(text(21'000'000'000'000) == "21");
  CHECK(text(1) == "0.000000000001");
  CHECK(text(-1'500'000'000'000) == "-1.5");
}

TEST_CASE("an empty schedule is an empty picture") {
  ScheduleBuilder builder{"none", Workload::abstract(1, 1), 1, {"compute"}};
  CHECK(svg(gantt(builder.build(), {})).ends_with("</svg>\n"));
}
