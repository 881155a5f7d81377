// The summary of a long iteration from two short ones.
#include "tawpipe/analysis/extrapolate.hpp"

#include <doctest/doctest.h>

#include <numeric>

#include "support/clusters.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/schedules/gpipe.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace tawpipe;

namespace {

constexpr int devices = 2;

template <class Build>
Summary of(Build&& build, std::int64_t microbatches) {
  const Transformer model{.name = "m", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 4, .intermediate = 128, .vocab = 100};
  const Workload work{model, Batch{.sequence = 32, .microbatch_size = 1, .global_batch = microbatches}, Recompute::none};
  const Cluster cluster = support::cluster(devices);
  const Schedule schedule = build(work);
  return summarize(schedule, cluster, simulate(schedule, cluster, RooflineCost{.utilization = 0.5}));
}

template <class Build>
void check_extrapolated(Build&& build) {
  const Summary found = extrapolate(of(build, 4), of(build, 8), 40);
  const Summary all = of(build, 40);
  CHECK(found.makespan / all.makespan == doctest::Approx(1).epsilon(1e-9));
  CHECK(found.tasks == all.tasks);
  CHECK(found.microbatches == 40);
  CHECK(found.global_batch == 40);
  CHECK(found.tokens_per_device_per_second == doctest::Approx(all.tokens_per_device_per_second));
  CHECK(found.mfu == doctest::Approx(all.mfu));
  CHECK(found.flops_per_device.value() == doctest::Approx(all.flops_per_device.value()));
  CHECK(found.bubble.ratio == doctest::Approx(all.bubble.ratio));
  CHECK(found.bubble.span_rate() == doctest::Approx(all.bubble.span_rate()));
  CHECK(found.communication.busy_s == doctest::Approx(all.communication.busy_s));
  CHECK(found.communication.exposed_s == doctest::Approx(all.communication.exposed_s).epsilon(0.01));
  CHECK(found.traffic.intra_node_bytes == all.traffic.intra_node_bytes);
  CHECK(found.traffic.rank_sent_bytes == all.traffic.rank_sent_bytes);
  CHECK(found.traffic.tasks == all.traffic.tasks);
  for (std::size_t rank = 0; rank < devices; ++rank) {
    CHECK(found.bubble.busy[rank] / all.bubble.busy[rank] == doctest::Approx(1));
    CHECK(found.peak_memory[rank].total == all.peak_memory[rank].total);
    CHECK(found.peak_memory[rank].by_kind == all.peak_memory[rank].by_kind);
  }
  CHECK(found.out_of_memory == all.out_of_memory);
}

}  // namespace

TEST_CASE("a pipeline in its steady state is extrapolated exactly") {
  check_extrapolated([](const Workload& work) { return schedules::one_f_one_b(work, devices, {}); });
}

TEST_CASE("memory grows with the microbatches where the schedule keeps all of them") {
  check_extrapolated([](const Workload& work) { return schedules::gpipe(work, devices, {}); });
}

TEST_CASE("a rank that runs out of memory only with all microbatches is named") {
  const auto build = [](const Workload& work) { return schedules::gpipe(work, devices, {}); };
  Summary few = of(build, 4);
  Summary more = of(build, 8);
  for (Summary* const summary : {&few, &more}) summary->device_memory.assign(devices, more.fullest() + Bytes{1});
  CHECK(extrapolate(few, more, 8).fits());
  CHECK(extrapolate(few, more, 40).out_of_memory.size() == devices);
}
