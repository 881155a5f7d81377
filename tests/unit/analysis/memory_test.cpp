// Peak memory of a schedule worked out by hand. Without a model each share, gradient and activation
// counts 1 MB.
#include "tawpipe/analysis/memory.hpp"

#include <doctest/doctest.h>

#include "support/two_ranks.hpp"

using namespace tawpipe;

namespace {

constexpr std::int64_t mb = 1'000'000;

std::int64_t of(const PeakMemory& peak, BufferKind kind) { return peak.by_kind[static_cast<std::size_t>(kind)].value(); }

}  // namespace

TEST_CASE("weights and gradients are held throughout, activations from forward to backward") {
  const test::TwoRanks two;
  const auto peaks = peak_memory(two.schedule, two.timeline);
  CHECK(of(peaks[0], BufferKind::weights) == mb);
  CHECK(of(peaks[0], BufferKind::gradients) == mb);
  // Rank 0, while its forward runs: the saved activation and the output that is sent.
  CHECK(of(peaks[0], BufferKind::activations) == 2 * mb);
  CHECK(peaks[0].total == Bytes{4 * mb});
}

TEST_CASE("GPipe keeps every microbatch's activation") {
  const test::TwoRanks two;
  for (const int m : {1, 4, 7}) {
    const Schedule schedule = schedules::gpipe(Workload::abstract(2, m), 2);
    const FixedCost cost{
        .forward = seconds(1), .backward_input = seconds(1), .backward_weight = seconds(1), .transfer = Duration{}};
    const auto peaks = peak_memory(schedule, simulate(schedule, two.cluster, cost));
    // m saved on the first rank, and one output on its way out at the end of the last forward.
    CHECK(of(peaks[0], BufferKind::activations) == (m + 1) * mb);
  }
}

TEST_CASE("a rank is out of memory when its peak exceeds its device") {
  const test::TwoRanks two;
  CHECK(out_of_memory(peak_memory(two.schedule, two.timeline), two.cluster).empty());  // 4 MB of 100 MB
  const Schedule many = schedules::gpipe(Workload::abstract(2, 200), 2);
  const FixedCost cost{
      .forward = seconds(1), .backward_input = seconds(1), .backward_weight = seconds(1), .transfer = Duration{}};
  const auto ranks = out_of_memory(peak_memory(many, simulate(many, two.cluster, cost)), two.cluster);
  CHECK(ranks.size() == 2);
  // 4 MB of 100 MB fit into 4 %, not into less.
  CHECK(out_of_memory(peak_memory(two.schedule, two.timeline), two.cluster, 0.04).empty());
  CHECK_FALSE(out_of_memory(peak_memory(two.schedule, two.timeline), two.cluster, 0.039).empty());
  CHECK(usable_part(Bytes{1000}, 1) == Bytes{1000});
  CHECK(usable_part(Bytes{1000}, usable_memory_share) == Bytes{850});
}
