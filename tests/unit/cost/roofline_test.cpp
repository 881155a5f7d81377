// Tests of cost/roofline.hpp: computation by peak and memory bandwidth, messages by their routes.
// Not: what sharing does to them (unit/simulate/).
#include "tawpipe/cost/roofline.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "support/clusters.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

using namespace tawpipe::literals;
using doctest::Approx;
using tawpipe::Bytes;
using tawpipe::Cluster;
using tawpipe::Flops;
using tawpipe::GroupId;
using tawpipe::Op;
using tawpipe::Path;
using tawpipe::Rank;
using tawpipe::RooflineCost;
using tawpipe::Schedule;
using tawpipe::StageId;
using tawpipe::Task;

namespace {

/// One stage: 1e12 operations forward, 3e12 + 2e12 backward, 0.5e12 again; 8e8 and 1.6e9 bytes of
/// traffic.
Schedule one_stage(int ranks, const std::vector<Task>& tasks = {}) {
  tawpipe::ScheduleBuilder builder{"test", tawpipe::Workload::abstract(1, 1), ranks, {"compute"}};
  tawpipe::StageWork work;
  work.forward = Flops{1e12};
  work.backward_input = Flops{3e12};
  work.backward_weight = Flops{2e12};
  work.recompute = Flops{0.5e12};
  work.forward_traffic = Bytes{800'000'000};
  work.backward_traffic = Bytes{1'600'000'000};
  builder.stages({work});
  std::vector<Rank> all;
  for (int r = 0; r < ranks; ++r) all.push_back(Rank{r});
  builder.group(all);
  for (const Task& task : tasks) builder.add(task, {});
  return builder.build();
}

/// Devices of 1 TFLOPS and 1 GB/s of memory.
const RooflineCost cost{.utilization = 0.5, .memory_utilization = 0.8, .overhead = 10_us};

double seconds_of(Op op, Bytes bytes = {}) {
  const Schedule schedule = one_stage(1, {{.op = op, .rank = Rank{0}, .stage = StageId{0}, .bytes = bytes}});
  return tawpipe::to_seconds(cost.compute_time(schedule, tawpipe::TaskId{0}, support::cluster(1)));
}

Path path_of(const Task& task, const Cluster& cluster) { return cost.path(one_stage(cluster.ranks()), task, cluster); }

double weight_sum(const Path& path) {
  double sum = 0;
  for (const auto& load : path.loads) sum += load.weight;
  return sum;
}

}  // namespace

TEST_CASE("a computation takes its operations at a share of peak and then its traffic at a share of bandwidth") {
  CHECK(seconds_of(Op::forward) == Approx(2 + 1));                        // 1e12 / 0.5e12, 8e8 / 8e8
  CHECK(seconds_of(Op::backward) == Approx(11 + 2));                      // (3 + 2 + 0.5) / 0.5, 1.6e9 / 8e8
  CHECK(seconds_of(Op::backward_input) == Approx(7 + 2));                 // (3 + 0.5) / 0.5
  CHECK(seconds_of(Op::backward_weight) == Approx(4));                    // 2 / 0.5, no traffic
  CHECK(seconds_of(Op::idle) == Approx(3));                               // as a forward
  CHECK(seconds_of(Op::update, Bytes{400'000'000}) == Approx(1));         // 4e8 bytes read and written at 8e8
  CHECK(seconds_of(Op::forward, Bytes{400'000'000}) == Approx(3 + 0.5));  // and copies of states
}

TEST_CASE("a message inside a node crosses two ports, after the overhead and one latency") {
  const Path path = path_of({.op = Op::pass, .rank = Rank{0}, .peer = Rank{1}}, support::cluster(4, 2));
  CHECK(path.latency == 11_us);
  CHECK(path.fraction == 1);
  REQUIRE(path.loads.size() == 2);
  CHECK(path.loads[0].weight == 1);
}

TEST_CASE("a message between nodes crosses the two adapters") {
  const Cluster cluster = support::cluster(4, 2);
  const Path path = path_of({.op = Op::pass, .rank = Rank{1}, .peer = Rank{3}}, cluster);
  CHECK(path.latency == 11_us);
  REQUIRE(path.loads.size() == 2);
  CHECK(cluster.link(path.loads[0].link).end == tawpipe::LinkEnd::adapter_out);
  CHECK(cluster.link(path.loads[1].link).end == tawpipe::LinkEnd::adapter_in);
}

TEST_CASE("an exchange loads the links of both ways") {
  const Path path = path_of({.op = Op::exchange, .rank = Rank{0}, .peer = Rank{1}}, support::cluster(2));
  CHECK(path.loads.size() == 4);
  CHECK(path.fraction == 1);
}

TEST_CASE("a ring over nodes crosses each node's adapter once each way") {
  const Cluster cluster = support::cluster(6, 2);
  const Path path = path_of({.op = Op::all_gather, .rank = Rank{0}, .group = GroupId{0}}, cluster);
  // edges 0-1-2 | 3-4-5 |: 4 inside with two ports each, 2 between with two adapters each: 12
  // links, each once
  CHECK(path.loads.size() == 12);
  CHECK(weight_sum(path) == 12);
  CHECK(path.fraction == Approx(5.0 / 6));
  CHECK(path.latency == 10_us + 5_us);  // 5 hops of 1 us
}

TEST_CASE("a group that leaves a node several times loads its adapter as often") {
  // ranks 0 and 1 on one node, 2 and 3 on the other; the ring 0, 2, 1, 3 crosses with every edge
  tawpipe::ScheduleBuilder builder{"test", tawpipe::Workload::abstract(1, 1), 4, {"compute"}};
  const GroupId group = builder.group({Rank{0}, Rank{2}, Rank{1}, Rank{3}});
  const Path path = cost.path(builder.build(), {.op = Op::all_gather, .rank = Rank{0}, .group = group}, support::cluster(4, 2));
  CHECK(path.loads.size() == 4);
  for (const auto& load : path.loads) CHECK(load.weight == 2);
}

TEST_CASE("a group of one takes the overhead alone") {
  const Path path = path_of({.op = Op::all_reduce, .rank = Rank{0}, .group = GroupId{0}}, support::cluster(1));
  CHECK(path.loads.empty());
  CHECK(path.latency == 10_us);
}

TEST_CASE("the tree is taken where it is asked for") {
  RooflineCost with_tree = cost;
  with_tree.all_reduce = tawpipe::Algorithm::tree;
  const Cluster cluster = support::cluster(4, 2);
  const Task task{.op = Op::all_reduce, .rank = Rank{0}, .group = GroupId{0}};
  CHECK(with_tree.path(one_stage(4), task, cluster).fraction == 1);
  CHECK(cost.path(one_stage(4), task, cluster).fraction == Approx(1.5));
}
