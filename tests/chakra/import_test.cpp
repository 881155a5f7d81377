// Tests of report/chakra_import.hpp: traces of others as schedules and as calls, and what is wrong
// in a trace.
// Not: traces that tawpipe wrote (round_trip_test.cpp).
#include "tawpipe/report/chakra_import.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/search/known_times.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"
#include "tawpipe/verify/prove.hpp"

using namespace tawpipe;

namespace chakra_import_test {

ChakraNode node(std::uint64_t id, ChakraType type, std::vector<std::uint64_t> after = {}) {
  ChakraNode made;
  made.id = id;
  made.type = static_cast<std::int32_t>(type);
  made.data_deps = std::move(after);
  return made;
}
ChakraNode compute(std::uint64_t id, std::uint64_t us, std::vector<std::uint64_t> after = {}) {
  ChakraNode made = node(id, ChakraType::compute, std::move(after));
  made.duration_us = us;
  return made;
}
ChakraNode send(std::uint64_t id, int to, std::vector<std::uint64_t> after = {}, int tag = 0) {
  ChakraNode made = node(id, ChakraType::send, std::move(after));
  made.set(ChakraKey::comm_dst, to);
  made.set(ChakraKey::comm_tag, tag);
  made.set(ChakraKey::comm_size, 1000);
  return made;
}
ChakraNode receive(std::uint64_t id, int from, std::vector<std::uint64_t> after = {}, int tag = 0) {
  ChakraNode made = node(id, ChakraType::receive, std::move(after));
  made.set(ChakraKey::comm_src, from);
  made.set(ChakraKey::comm_tag, tag);
  made.set(ChakraKey::comm_size, 1000);
  return made;
}
ChakraNode collective(std::uint64_t id, ChakraCollective kind, const std::string& group, std::vector<std::uint64_t> after = {}) {
  ChakraNode made = node(id, ChakraType::collective, std::move(after));
  made.set(ChakraKey::comm_type, static_cast<std::int64_t>(kind));
  made.set(ChakraKey::comm_size, 4000);
  if (!group.empty()) made.set(ChakraKey::pg_name, group);
  return made;
}

ChakraTrace trace_of(std::vector<std::vector<ChakraNode>> ranks) {
  ChakraTrace trace;
  for (std::size_t r = 0; r < ranks.size(); ++r) trace.ranks.push_back({"t." + std::to_string(r) + ".et", std::move(ranks[r])});
  trace.groups = {{"1", {0, 1}}, {"2", {1, 0}}};
  return trace;
}

std::string fault(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}
std::string fault(const ChakraTrace& trace) {
  return fault([&] { import_chakra(trace); });
}

TEST_CASE("computations, messages and collectives become tasks that wait as the trace says") {
  // Rank 0: 0 (5 us) -> 1 send -> 4 all_gather; rank 1: 7 receive -> 8 (2 us) -> 9 all_gather. Node
  // 3 does nothing.
  const ChakraTrace trace = trace_of(
      {{compute(0, 5), send(1, 1, {0}), node(3, ChakraType::metadata, {1}), collective(4, ChakraCollective::all_gather, "", {3})},
       {receive(7, 0), compute(8, 2, {7}), collective(9, ChakraCollective::all_gather, "0", {8})}});
  const ImportedTrace made = import_chakra(trace);
  const Schedule& schedule = made.schedule;
  REQUIRE(schedule.tasks().size() == 4);
  const auto task = [&](int t) { return schedule.tasks()[static_cast<std::size_t>(t)]; };
  CHECK(task(0).op == Op::forward);
  CHECK(made.times[0] == 5_us);
  CHECK(task(1).op == Op::pass);
  CHECK(task(1).rank == Rank{0});
  CHECK(task(1).peer == Rank{1});
  CHECK(task(1).bytes == Bytes{1000});
  CHECK(task(2).op == Op::forward);
  CHECK(task(3).op == Op::all_gather);  // node 4 meets node 9, which waits for node 8
  CHECK(task(3).bytes == Bytes{8000});  // the whole, of two parts
  const auto waits = schedule.dependencies(TaskId{3});
  CHECK(std::vector<TaskId>{waits.begin(), waits.end()} == std::vector{TaskId{1}, TaskId{2}});
  CHECK(schedule.group(task(3).group).size() == 2);
  CHECK(prove(chakra_calls(trace)).is_right());
}

TEST_CASE("operations without a duration are timed by the cost model") {
  ChakraNode work = node(1, ChakraType::compute);
  work.set(ChakraKey::num_ops, 1'000'000'000'000);
  ChakraNode other = node(2, ChakraType::compute, {1});
  other.set(ChakraKey::num_ops, 2'000'000'000'000);
  const ImportedTrace made = import_chakra(trace_of({{work, other, compute(3, 10, {2})}}));
  CHECK(made.times[0].value() < 0);
  CHECK(made.times[2] == 10_us);
  const Cluster cluster = cluster_from_dimensions("1x2");
  const Cost cost = RooflineCost{.utilization = 0.5};
  const Timeline timeline = simulate(made.schedule, cluster, KnownTimes{cost, made.times});
  const double first = 1e12 / (cluster.device(Rank{0}).peak.value() * 0.5);
  CHECK(to_seconds(timeline.makespan()) == doctest::Approx(3 * first + 10e-6).epsilon(1e-9));
}

TEST_CASE("messages with tags meet whatever order they stand in") {
  const ChakraTrace trace = trace_of({{send(1, 1, {}, 5), send(2, 1, {1}, 6)}, {receive(1, 0, {}, 6), receive(2, 0, {}, 5)}});
  const ImportedTrace made = import_chakra(trace);
  CHECK(made.schedule.tasks().size() == 2);
  CHECK(prove(chakra_calls(trace)).is_right());
}

TEST_CASE("process groups come from the file, from PyTorch's record, or are all ranks") {
  ChakraTrace trace =
      trace_of({{collective(1, ChakraCollective::all_reduce, "7")}, {collective(1, ChakraCollective::all_reduce, "7")}});
  CHECK(fault(trace).find("process group '7'") != std::string::npos);
  ChakraNode record = node(9, ChakraType::metadata);
  record.inputs = R"("[{"pg_name": "7", "pg_desc": "x", "backend_config": "cuda:nccl", "ranks": [1, 0]}]")";
  trace.ranks[0].nodes.push_back(record);
  const ImportedTrace made = import_chakra(trace);
  CHECK(made.schedule.group(GroupId{0}).front() == Rank{1});
}

TEST_CASE("a trace that cannot end is found, with the cycle") {
  // Each receives before it sends.
  const ChakraTrace trace = trace_of({{receive(1, 1), send(2, 1, {1})}, {receive(1, 0), send(2, 0, {1})}});
  CHECK(fault(trace).find("each of these waits for the next") != std::string::npos);
  const HangVerdict verdict = prove(chakra_calls(trace));
  CHECK(!verdict.ends);
  CHECK(verdict.circle.size() >= 2);
  // Two groups of the same ranks, in crossed order.
  const auto gather = ChakraCollective::all_gather;
  const ChakraTrace crossed = trace_of({{collective(1, gather, "1"), collective(2, gather, "2", {1})},
                                        {collective(1, gather, "2"), collective(2, gather, "1", {1})}});
  CHECK(fault(crossed).find("waits for the next") != std::string::npos);
  CHECK(!prove(chakra_calls(crossed)).ends);
}

TEST_CASE("what is wrong in a trace is named with file and node") {
  const auto says = [](const ChakraTrace& trace, const std::string& words) {
    const std::string text = fault(trace);
    CHECK_MESSAGE(text.find(words) != std::string::npos, text);
  };
  says(ChakraTrace{}, "at least one rank");
  says(trace_of({{compute(1, 1, {2}), compute(2, 1, {1})}}), "t.0.et: node 1: nodes wait for each other: 1 on 2 on 1");
  says(trace_of({{compute(1, 1, {1})}}), "wait for each other: 1 on 1");
  says(trace_of({{compute(1, 1, {4})}}), "waits for node 4, which the file does not have");
  says(trace_of({{compute(1, 1), compute(1, 1)}}), "its id twice");
  says(trace_of({{send(1, 7)}, {}}), "comm_dst 7 is not a rank; there are files of ranks 0 to 1");
  says(trace_of({{send(1, 0)}, {}}), "from a rank to itself");
  says(trace_of({{send(1, 1)}, {}}), "rank 1 receives no such message (rank 0 to 1, tag 0)");
  says(trace_of({{send(1, 1)}, {receive(1, 0, {}, 3)}}), "no such message");
  says(trace_of({{node(1, ChakraType::send)}, {}}), "it has no comm_dst");
  says(trace_of({{node(1, static_cast<ChakraType>(9))}}), "its type 9 is none that is simulated");
  says(trace_of({{node(1, static_cast<ChakraType>(-3))}}), "its type -3");
  says(trace_of({{node(1, ChakraType::collective)}}), "it has no comm_type");
  says(trace_of({{collective(1, static_cast<ChakraCollective>(12), "")}}), "comm_type 12 is none of Chakra's collectives");
  says(trace_of({{collective(1, ChakraCollective::gather, "")}}), "gather and scatter");
  says(trace_of({{collective(1, ChakraCollective::all_reduce, "1")}, {}}), "rank 1 makes 0 collectives on process group '1'");
  says(trace_of({{collective(1, ChakraCollective::all_reduce, "1")}, {collective(1, ChakraCollective::all_to_all, "1")}}),
       "differ in comm_type");
  ChakraTrace outside = trace_of({{}, {}, {collective(1, ChakraCollective::all_reduce, "1")}});
  says(outside, "rank 2 is not in its process group '1'");
  outside.groups["1"] = {2, 5};
  says(outside, "names a rank twice, or one that has no file (0 to 2)");
  ChakraNode sized = receive(1, 0);
  sized.attributes.back().number = 999;
  says(trace_of({{send(1, 1)}, {sized}}), "receives 999 bytes and rank 0 sends 1000");
  sized.attributes.back().number = -1;
  says(trace_of({{send(1, 1)}, {sized}}), "comm_size is below 0");
  ChakraNode part = collective(1, ChakraCollective::all_reduce, "");
  part.set(ChakraKey::involved_dim, std::string{"101"});
  says(trace_of({{part}}), "some dimensions of a network");
  ChakraNode ours = compute(1, 1);
  ours.set(ChakraKey::op, std::string{"all_reduce"});
  says(trace_of({{ours}}), "is not what its type says");
  ChakraNode stage = compute(1, 1);
  stage.set(ChakraKey::stage, 1 << 30);
  says(trace_of({{stage}}), "tawpipe_stage");
  ChakraNode half = send(1, 1);
  half.set(ChakraKey::op, std::string{"exchange"});
  half.set(ChakraKey::task, 4);
  says(trace_of({{half}, {receive(1, 0)}}), "the message back of this exchange is missing");
  CHECK(fault([] { parse_chakra_groups("{\"1\": []}", "g.json"); }).find("g.json") != std::string::npos);
  CHECK(fault([] { parse_chakra_groups("[1]", "g.json"); }).find("g.json") != std::string::npos);
}

}  // namespace chakra_import_test
