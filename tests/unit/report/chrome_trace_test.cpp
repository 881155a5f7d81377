// The trace: exact text of a small schedule, valid JSON, and pieces.
// Not: what a viewer makes of it.
#include "tawpipe/report/chrome_trace.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "support/hand_built.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

/// Rank 0 computes, passes to rank 1, and both reduce.
ScheduleBuilder small_builder(std::vector<std::string> lanes = {"compute", "out", "in"}) {
  ScheduleBuilder builder = support::compute_and_pass(std::move(lanes));
  builder.add({.op = Op::reduce,
               .payload = Payload::gradients,
               .rank = Rank{1},
               .group = builder.group({Rank{0}, Rank{1}}),
               .stage = StageId{1},
               .bytes = 7_B},
              {});
  return builder;
}

Timeline small_timeline() {
  const auto at = [](std::int64_t picoseconds) { return TimePoint{Duration{picoseconds}}; };
  return {{at(0), at(601'000'000), at(700'000'000)}, {at(601'000'000), at(601'500'000), at(700'000'001)}};
}

Cluster two_nodes() {
  return ClusterBuilder{}
      .device({.name = "test", .memory = 1_GiB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
      .nodes(2)
      .devices_per_node(1)
      .intra_node({100_GBps, 3_us})
      .inter_node({1_GBps, 30_us})
      .build();
}

}  // namespace

TEST_CASE("a small trace, letter by letter") {
  const Cluster cluster = two_nodes();
  auto builder = small_builder();
  builder.option("order", "eager");
  builder.option("overlap", "on");
  const std::string text = chrome_trace(builder.build(), small_timeline(), {.cluster = &cluster, .counters = false});
  CHECK(text ==
        R"trace({"displayTimeUnit":"ns","otherData":{"schedule":"small","options":"order=eager overlap=on"},"traceEvents":[
{"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0 (node 0)"}},
{"ph":"M","name":"process_sort_index","pid":0,"args":{"sort_index":0}},
{"ph":"M","name":"thread_name","pid":0,"tid":0,"args":{"name":"compute"}},
{"ph":"M","name":"thread_sort_index","pid":0,"tid":0,"args":{"sort_index":0}},
{"ph":"M","name":"thread_name","pid":0,"tid":1,"args":{"name":"out"}},
{"ph":"M","name":"thread_sort_index","pid":0,"tid":1,"args":{"sort_index":1}},
{"ph":"M","name":"process_name","pid":1,"args":{"name":"rank 1 (node 1)"}},
{"ph":"M","name":"process_sort_index","pid":1,"args":{"sort_index":1}},
{"ph":"M","name":"thread_name","pid":1,"tid":0,"args":{"name":"compute"}},
{"ph":"M","name":"thread_sort_index","pid":1,"tid":0,"args":{"sort_index":0}},
{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"in"}},
{"ph":"M","name":"thread_sort_index","pid":1,"tid":2,"args":{"sort_index":2}},
{"ph":"X","name":"forward s0 m0","cat":"compute","cname":"rail_response","pid":0,"tid":0,"ts":0,"dur":601,"args":{"task":0,"op":"forward","stage":0,"microbatch":0}},
{"ph":"X","name":"pass activations m0","cat":"communication","cname":"thread_state_iowait","pid":0,"tid":1,"ts":601,"dur":0.5,"args":{"task":1,"op":"pass","payload":"activations","microbatch":0,"bytes":25000000,"from":0,"to":1}},
{"ph":"X","name":"pass activations m0","cat":"communication","cname":"thread_state_iowait","pid":1,"tid":2,"ts":601,"dur":0.5,"args":{"task":1,"op":"pass","payload":"activations","microbatch":0,"bytes":25000000,"from":0,"to":1}},
{"ph":"s","id":1,"name":"pass activations","cat":"pass","pid":0,"tid":1,"ts":601},
{"ph":"f","id":1,"name":"pass activations","cat":"pass","bp":"e","pid":1,"tid":2,"ts":601},
{"ph":"X","name":"reduce gradients s1","cat":"communication","cname":"rail_animation","pid":0,"tid":0,"ts":700,"dur":0.000001,"args":{"task":2,"op":"reduce","payload":"gradients","stage":1,"bytes":7,"group":0,"root":1}},
{"ph":"X","name":"reduce gradients s1","cat":"communication","cname":"rail_animation","pid":1,"tid":0,"ts":700,"dur":0.000001,"args":{"task":2,"op":"reduce","payload":"gradients","stage":1,"bytes":7,"group":0,"root":1}},
{"ph":"s","id":2,"name":"reduce gradients","cat":"reduce","pid":0,"tid":0,"ts":700},
{"ph":"f","id":2,"name":"reduce gradients","cat":"reduce","bp":"e","pid":1,"tid":0,"ts":700}
]}
)trace");
  const auto json = nlohmann::json::parse(text);
  CHECK(json["traceEvents"].size() == 12 + 9);
}

TEST_CASE("a copy to or from host memory is one slice of its rank's lane, without an arrow") {
  ScheduleBuilder builder{"offload", Workload::abstract(1, 1), 1, {"compute", "copy"}};
  for (const Op op : {Op::copy_to_host, Op::copy_from_host}) {
    builder.add({.op = op, .payload = Payload::activations, .lane = LaneId{1}, .rank = Rank{0}, .microbatch = 0, .bytes = 8_B},
                {});
  }
  const auto at = [](std::int64_t picoseconds) { return TimePoint{Duration{picoseconds}}; };
  const std::string text = chrome_trace(builder.build(), {{at(0), at(2'000'000)}, {at(1'000'000), at(5'000'000)}});
  CHECK(
      text.substr(text.find("{\"ph\":\"X\"")) ==
      R"trace({"ph":"X","name":"copy_to_host activations m0","cat":"communication","cname":"cq_build_passed","pid":0,"tid":1,"ts":0,"dur":1,"args":{"task":0,"op":"copy_to_host","payload":"activations","microbatch":0,"bytes":8}},
{"ph":"X","name":"copy_from_host activations m0","cat":"communication","cname":"cq_build_attempt_passed","pid":0,"tid":1,"ts":2,"dur":3,"args":{"task":1,"op":"copy_from_host","payload":"activations","microbatch":0,"bytes":8}}
]}
)trace");
}

TEST_CASE("events come in order of time, and an arrow goes through every member of a collective") {
  ScheduleBuilder builder{"three", Workload::abstract(3, 3), 3, {"compute", "link"}};
  const GroupId all = builder.group({Rank{0}, Rank{1}, Rank{2}});
  const auto collective = [&](Op op, Rank root) {
    builder.add({.op = op, .payload = Payload::weights, .lane = LaneId{1}, .rank = root, .group = all, .bytes = 8_B}, {});
  };
  collective(Op::broadcast, Rank{1});
  collective(Op::reduce, Rank{1});
  collective(Op::all_gather, Rank{0});
  builder.add({.op = Op::forward, .rank = Rank{2}, .stage = StageId{0}, .microbatch = 0}, {});
  const auto at = [](std::int64_t picoseconds) { return TimePoint{Duration{picoseconds}}; };
  const auto json = nlohmann::json::parse(
      chrome_trace(builder.build(), {{at(300), at(200), at(100), at(0)}, {at(400), at(300), at(200), at(50)}}));
  double last = -1;
  std::map<int, std::string> arrows;  // by task: phase and rank, in order
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "M") continue;
    CHECK(event["ts"].get<double>() >= last);
    last = event["ts"].get<double>();
    if (event.contains("id")) arrows[event["id"]] += event["ph"].get<std::string>() + std::to_string(event["pid"].get<int>());
  }
  CHECK(arrows == std::map<int, std::string>{{0, "s1t2f0"}, {1, "s2t0f1"}, {2, "s0t1f2"}});
}

TEST_CASE("counters say what each rank holds and what each node sends") {
  const Cluster cluster = two_nodes();
  ScheduleBuilder builder{"held", Workload::abstract(2, 2), 2, {"compute", "link"}};
  const BufferId kept = builder.persistent(0, Content{ContentKind::workspace}, 100_B);
  const BufferId sent = builder.transient(1, Content{ContentKind::workspace}, 1000_B);
  builder.add({.op = Op::pass, .payload = Payload::activations, .rank = Rank{0}, .peer = Rank{1}, .bytes = 1000_B},
              {{kept, Access::read}, {sent, Access::write}});
  const Schedule schedule = builder.build();
  const auto at = [](std::int64_t picoseconds) { return TimePoint{Duration{picoseconds}}; };
  const Timeline timeline{{at(0)}, {at(4'000'000)}};
  const auto json = nlohmann::json::parse(chrome_trace(schedule, timeline, {.cluster = &cluster}));
  std::map<std::string, std::vector<double>> counted;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "C") continue;
    double sum = 0;
    for (const auto& [kind, value] : event["args"].items()) sum += value.get<double>();
    counted[std::to_string(event["pid"].get<int>()) + " " + event["name"].get<std::string>()].push_back(sum);
  }
  // 1,000 bytes in 4 us, then none
  CHECK(counted == std::map<std::string, std::vector<double>>{
                       {"0 memory", {100}}, {"1 memory", {1000}}, {"2 leaves the node, bytes/s", {250e6, 0}}});
  CHECK(chrome_trace(schedule, timeline, {.cluster = &cluster, .counters = false}).find("\"C\"") == std::string::npos);
}

TEST_CASE("without a cluster ranks have no node, without arrows no flow") {
  const auto json = nlohmann::json::parse(chrome_trace(small_builder().build(), small_timeline(), {.arrows = false}));
  CHECK(json["traceEvents"][0]["args"]["name"] == "rank 0");
  CHECK_FALSE(json["otherData"].contains("options"));
  for (const auto& event : json["traceEvents"]) CHECK((event["ph"] == "M" || event["ph"] == "X"));
}

TEST_CASE("a pass that takes no time has no arrow") {
  Timeline timeline = small_timeline();
  timeline.end[1] = timeline.start[1];
  CHECK(chrome_trace(small_builder().build(), timeline).find(R"("ph":"s","id":1)") == std::string::npos);
}

TEST_CASE("times are exact decimals of a microsecond") {
  const auto first_time = [](std::int64_t picoseconds) {
    ScheduleBuilder builder{"one", Workload::abstract(1, 1), 1, {"compute"}};
    builder.add({.op = Op::update, .rank = Rank{0}}, {});
    const TimePoint time{Duration{picoseconds}};
    const std::string text = chrome_trace(builder.build(), {{time}, {time}});
    const auto begin = text.find(R"("ts":)") + 5;
    return text.substr(begin, text.find(',', begin) - begin);
  };
  CHECK(first_time(0) == "0");
  CHECK(first_time(1) == "0.000001");
  CHECK(first_time(1'500'000) == "1.5");
  CHECK(first_time(1'020'300) == "1.0203");
  CHECK(first_time(-500'000) == "-0.5");
  CHECK(first_time(Duration::max().value()) == "9223372036854.775807");
}

TEST_CASE("any name gives valid JSON") {
  const std::string odd = "a\"b\\c\nd\te\x01\xff流";
  const auto json = nlohmann::json::parse(chrome_trace(small_builder({odd, "out", "in"}).build(), small_timeline()));
  CHECK(json["traceEvents"][2]["args"]["name"] == "a\"b\\c\nd\te\x01\xEF\xBF\xBD流");
}

TEST_CASE("an empty schedule is a valid trace") {
  ScheduleBuilder builder{"none", Workload::abstract(1, 1), 1, {"compute"}};
  const auto json = nlohmann::json::parse(chrome_trace(builder.build(), {}));
  CHECK(json["traceEvents"].size() == 2);
}

TEST_CASE("a long trace comes in pieces that join to the whole") {
  ScheduleBuilder builder{"long", Workload::abstract(1, 1), 1, {"compute"}};
  Timeline timeline;
  for (int i = 0; i < 2000; ++i) {
    builder.add({.op = Op::forward, .rank = Rank{0}, .stage = StageId{0}, .microbatch = i}, {});
    timeline.start.push_back(TimePoint{Duration{i}});
    timeline.end.push_back(TimePoint{Duration{i + 1}});
  }
  const Schedule schedule = builder.build();
  std::string joined;
  std::size_t largest = 0;
  write_chrome_trace(schedule, timeline, [&](std::string_view text) {
    largest = std::max(largest, text.size());
    joined += text;
  });
  CHECK(joined.size() > 250'000);
  CHECK(largest < 65'536);
  CHECK(joined == chrome_trace(schedule, timeline));
  CHECK(nlohmann::json::parse(joined)["traceEvents"].size() == 4 + 2000);
}

TEST_CASE("a timeline or cluster of another size is refused") {
  const Schedule schedule = small_builder().build();
  CHECK_THROWS_WITH_AS(chrome_trace(schedule, {}), "the timeline has 0 tasks, but the schedule has 3", InputError);
  const Cluster small = ClusterBuilder{}
                            .name("tiny")
                            .device({.name = "test", .memory = 1_GiB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
                            .nodes(1)
                            .devices_per_node(1)
                            .intra_node({100_GBps, 3_us})
                            .build();
  CHECK_THROWS_WITH_AS(chrome_trace(schedule, small_timeline(), {.cluster = &small}),
                       "the schedule needs 2 ranks and cluster 'tiny' has 1 devices", InputError);
}
