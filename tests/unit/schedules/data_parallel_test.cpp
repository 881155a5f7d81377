// Tests of schedules/data_parallel.hpp: which collectives DDP, ZeRO-1 and ZeRO-2 make, and what
// they hide.
// Not: bytes, memory and contents (properties/sharded_test.cpp).
#include "tawpipe/schedules/data_parallel.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "support/unit_computations.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace tawpipe::literals;
using support::count;
using support::makespan;
using tawpipe::BufferKind;
using tawpipe::DeviceGroups;
using tawpipe::Op;
using tawpipe::Schedule;
using tawpipe::Workload;
using tawpipe::schedules::data_parallel;
using tawpipe::schedules::zero1;
using tawpipe::schedules::zero2;

TEST_CASE("DDP sums each unit once an iteration, however many microbatches") {
  for (const std::int64_t microbatches : {4, 8, 9}) {
    const Schedule flat = data_parallel(Workload::abstract(4, microbatches), DeviceGroups::even(4, 2));
    CHECK(count(flat, Op::all_reduce) == 4);
    CHECK(count(flat, Op::all_gather) + count(flat, Op::reduce_scatter) == 0);
  }
  // two levels: of 4 units, in 2 nodes a reduce-scatter and an all-gather, in 2 rails an all-reduce
  const Schedule levels = data_parallel(Workload::abstract(4, 4), DeviceGroups::even(4, 2), {.two_level = true});
  CHECK(count(levels, Op::reduce_scatter) == 4 * 2);
  CHECK(count(levels, Op::all_reduce) == 4 * 2);
  CHECK(count(levels, Op::all_gather) == 4 * 2);
}

TEST_CASE("DDP's sums run beside the last backward") {
  // 4 units, 2 rounds: 8 forwards and 8 backwards take 24 s; of 4 sums of 1 s only the last shows
  const Workload work = Workload::abstract(4, 8);
  CHECK(makespan(data_parallel(work, DeviceGroups::even(4, 1)), 1_s) == 25_s);
  // of 3 s: the first sum starts after 8 + 8 + 2 s and all four run one after another
  CHECK(makespan(data_parallel(work, DeviceGroups::even(4, 1)), 3_s) == 30_s);
  CHECK(makespan(data_parallel(work, DeviceGroups::even(4, 1), {.overlap = false}), 1_s) == 28_s);
}

TEST_CASE("ZeRO-1 scatters and gathers each unit once an iteration, ZeRO-2 scatters it in each round") {
  const Workload work = Workload::abstract(4, 8);
  const DeviceGroups nodes = DeviceGroups::even(4, 2);
  CHECK(count(zero1(work, nodes), Op::reduce_scatter) == 4);
  CHECK(count(zero1(work, nodes), Op::all_gather) == 4);
  CHECK(count(zero2(work, nodes), Op::reduce_scatter) == 2 * 4);
  CHECK(count(zero2(work, nodes), Op::all_gather) == 4);
  CHECK(count(zero1(work, nodes), Op::update) == 4 * 4);
  // DDP's 25 s and four gathers after the updates
  CHECK(makespan(zero1(work, nodes), 1_s) == 29_s);
  CHECK(makespan(zero2(work, nodes), 1_s) == 29_s);
}

TEST_CASE("a gather of new weights waits for every rank's update, which wait for the last gradient") {
  const Schedule schedule = zero1(Workload::abstract(3, 3), DeviceGroups::even(3, 1));
  const tawpipe::FixedCost cost{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 5_s};
  const auto timeline = tawpipe::simulate(schedule, support::cluster(3), cost);
  tawpipe::TimePoint last_sum;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    if (schedule.tasks()[t].op == Op::reduce_scatter) last_sum = std::max(last_sum, timeline.end[t]);
  }
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    if (schedule.tasks()[t].op == Op::update) CHECK(timeline.start[t] >= last_sum);
    if (schedule.tasks()[t].op == Op::all_gather) CHECK(timeline.start[t] >= last_sum);
  }
}

TEST_CASE("a tied matrix is held once, with the final norm, and summed once") {
  const Workload work = support::transformer(2, 2, true);
  const Schedule schedule = data_parallel(work, DeviceGroups::even(2, 1));
  std::int64_t weights = 0;
  for (const auto& buffer : schedule.buffers()) {
    if (buffer.kind() == BufferKind::weights && buffer.rank == tawpipe::Rank{0}) weights += buffer.bytes.value();
  }
  CHECK(weights == 2 * work.model().parameters());
  std::int64_t summed = 0;
  for (const auto& task : schedule.tasks()) summed += task.op == Op::all_reduce ? task.bytes.value() : 0;
  CHECK(summed == 2 * work.model().parameters());
}

TEST_CASE("on one rank data parallelism is forwards, backwards and updates") {
  for (const auto make : {data_parallel, zero1, zero2}) {
    const Schedule schedule = make(Workload::abstract(1, 3), DeviceGroups::even(1, 1), {});
    CHECK(schedule.tasks().size() == 3 * 2 + 1);
  }
}

TEST_CASE("data parallelism records its options") {
  const std::vector<std::pair<std::string, std::string>> expected{{"collectives", "two-level"}, {"overlap", "off"}};
  CHECK(zero2(Workload::abstract(2, 2), DeviceGroups::even(2, 2), {.two_level = true, .overlap = false}).options() == expected);
  CHECK(zero2(Workload::abstract(2, 2), DeviceGroups::even(2, 2)).name() == "zero2");
}
