// Tests of cost/measured.hpp: times of passes and messages from measured ones.
// Not: how they are found (unit/analysis/calibrate_test.cpp).
#include "tawpipe/cost/measured.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/clusters.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

using namespace tawpipe::literals;
using doctest::Approx;
using tawpipe::Bytes;
using tawpipe::MeasuredCost;
using tawpipe::MeasuredPass;
using tawpipe::Op;
using tawpipe::Path;
using tawpipe::Rank;
using tawpipe::Schedule;
using tawpipe::StageId;
using tawpipe::Task;

namespace {

/// Three stages: embedding and 2 layers; 3 layers; 1 layer and head. Ranks 0 and 1 share a node, as
/// do 2 and 3.
Schedule three_stages(const std::vector<Task>& tasks = {}) {
  const tawpipe::Workload workload = support::transformer(6, 4);
  tawpipe::ScheduleBuilder builder{"test", workload, 4, {"compute"}};
  builder.stages({workload.stage(0, 2, true, false), workload.stage(2, 3, false, false), workload.stage(5, 1, false, true)});
  builder.group({Rank{0}, Rank{1}});
  builder.group({Rank{0}, Rank{1}, Rank{2}, Rank{3}});
  for (const Task& task : tasks) builder.add(task, {});
  return builder.build();
}

/// Messages: 10 us and 0.5 GB/s inside a node, 100 us and 0.1 GB/s between nodes.
MeasuredCost measured() {
  MeasuredCost cost;
  cost.forward = {.layer = 1e-3, .embedding = 2e-4, .head = 5e-4};
  cost.update = {.once = 1e-5, .byte = 1e-9};
  cost.intra_node = {.latency = 1e-5, .byte = 2e-9};
  cost.inter_node = {.latency = 1e-4, .byte = 1e-8};
  return cost;
}

double seconds_of(const MeasuredCost& cost, Op op, int stage, std::int64_t bytes = 0) {
  const Schedule schedule = three_stages({{.op = op, .rank = Rank{0}, .stage = StageId{stage}, .bytes = Bytes{bytes}}});
  return tawpipe::to_seconds(cost.compute_time(schedule, tawpipe::TaskId{0}, support::cluster(4, 2)));
}

Path path_of(const Task& task) { return measured().path(three_stages(), task, support::cluster(4, 2)); }

/// Seconds a byte of the whole message takes by itself: links of 1 GB/s in tests, so a rate of x
/// uses x * weight of 1e9.
double seconds_per_byte(const Path& path) {
  double largest = 0;
  for (const auto& load : path.loads) largest = std::max(largest, load.weight / 1e9);
  return largest * path.fraction;
}

}  // namespace

TEST_CASE("a pass takes its layers, and the embedding and head where the stage has them") {
  const MeasuredCost cost = measured();
  CHECK(seconds_of(cost, Op::forward, 0) == Approx(2 * 1e-3 + 2e-4));
  CHECK(seconds_of(cost, Op::forward, 1) == Approx(3 * 1e-3));
  CHECK(seconds_of(cost, Op::forward, 2) == Approx(1e-3 + 5e-4));
  CHECK(seconds_of(cost, Op::idle, 1) == Approx(3 * 1e-3));
  CHECK(seconds_of(cost, Op::update, 0, 1'000'000) == Approx(1e-5 + 1e-3));
}

TEST_CASE("a backward that was not measured is the sum of its parts") {
  MeasuredCost cost = measured();
  CHECK_THROWS_WITH_AS(seconds_of(cost, Op::backward, 1),
                       "the measured cost has no time for backward; measure a schedule that has one", tawpipe::InputError);
  cost.backward_input = {.layer = 1e-3, .embedding = 0, .head = 3e-4};
  CHECK_THROWS_AS(seconds_of(cost, Op::backward, 1), tawpipe::InputError);
  cost.backward_weight = {.layer = 4e-3, .embedding = 1e-4, .head = 0};
  CHECK(seconds_of(cost, Op::backward, 0) == Approx(2 * 5e-3 + 1e-4));
  CHECK(seconds_of(cost, Op::backward, 2) == Approx(5e-3 + 3e-4));
}

TEST_CASE("a lone message has the latency and bandwidth of its kind of link") {
  const Path inside = path_of({.op = Op::pass, .rank = Rank{0}, .peer = Rank{1}});
  CHECK(inside.latency == 10_us);
  CHECK(seconds_per_byte(inside) == Approx(2e-9));
  const Path between = path_of({.op = Op::pass, .rank = Rank{1}, .peer = Rank{2}});
  CHECK(between.latency == 100_us);
  CHECK(seconds_per_byte(between) == Approx(1e-8));
  const Path both = path_of({.op = Op::exchange, .rank = Rank{1}, .peer = Rank{2}});
  CHECK(both.latency == 100_us);
  CHECK(both.loads.size() == 2 * between.loads.size());
}

TEST_CASE("a collective is as fast as its slowest edge") {
  // A ring of 2: each edge carries half of the buffer, one step.
  const Path inside = path_of({.op = Op::all_gather, .rank = Rank{0}, .group = tawpipe::GroupId{0}});
  CHECK(inside.latency == 10_us);
  CHECK(seconds_per_byte(inside) == Approx(2e-9 / 2));
  // A ring of 4: 3/4 of the buffer over each edge, two of them between nodes; 3 steps of (10 + 100)
  // / 2 us.
  const Path all = path_of({.op = Op::all_gather, .rank = Rank{0}, .group = tawpipe::GroupId{1}});
  CHECK(all.latency == 165_us);
  CHECK(seconds_per_byte(all) == Approx(1e-8 * 3 / 4));
}

TEST_CASE("a link without a time a byte carries any size in its latency") {
  MeasuredCost cost = measured();
  cost.inter_node->byte = 0;
  const Path path = cost.path(three_stages(), {.op = Op::pass, .rank = Rank{1}, .peer = Rank{2}}, support::cluster(4, 2));
  CHECK(path.loads.empty());
  CHECK(path.latency == 100_us);
}

TEST_CASE("messages of a kind that was not measured are refused") {
  MeasuredCost cost = measured();
  cost.inter_node.reset();
  CHECK_THROWS_WITH_AS(cost.path(three_stages(), {.op = Op::pass, .rank = Rank{1}, .peer = Rank{2}}, support::cluster(4, 2)),
                       "the measured cost has no messages between nodes; measure a schedule that sends some",
                       tawpipe::InputError);
}

TEST_CASE("times hold for the work that they were measured with, of any number of layers") {
  MeasuredCost cost = measured();
  cost.check_work(support::transformer(6, 4));  // work not known
  cost.work = tawpipe::MeasuredWork::of(support::transformer(6, 4));
  cost.check_work(support::transformer(12, 8));
  cost.work->sequence = 8;
  CHECK_THROWS_WITH_AS(cost.check_work(support::transformer(6, 4)),
                       "the times were measured with a sequence length of 8, not 4; measure them again for it",
                       tawpipe::InputError);
  CHECK_THROWS_AS(cost.check_work(tawpipe::Workload::abstract(2, 2)), tawpipe::InputError);
  cost.work = tawpipe::MeasuredWork::of(support::transformer(6, 4));
  ++cost.work->layer_parameters;  // other heads, or no gate
  CHECK_THROWS_WITH_AS(cost.check_work(support::transformer(6, 4)), doctest::Contains("layers of this many parameters"),
                       tawpipe::InputError);
  cost.work->layer_parameters = 0;  // a file that does not say it
  cost.check_work(support::transformer(6, 4));
}

TEST_CASE("times hold on the devices that they were measured on, and no layer takes none") {
  MeasuredCost cost = measured();
  const tawpipe::Workload work = support::transformer(6, 4);
  const tawpipe::Cluster cluster = support::cluster(4, 2);
  cost.check(work, cluster);  // device not known
  cost.device = "device";
  cost.check(work, cluster);
  cost.device = "H100-80G";
  cost.source = "cost.json";
  CHECK_THROWS_WITH_AS(
      cost.check(work, cluster),
      "the times of cost.json were measured on H100-80G, and cluster 'cluster' has device; measure them again there",
      tawpipe::InputError);
  cost.device.clear();
  cost.forward->layer = 0;
  CHECK_THROWS_WITH_AS(cost.check(work, cluster), doctest::Contains("a forward of a layer that takes no time"),
                       tawpipe::InputError);
}
