// What a pipeline holds of states that its replicas share, against the frameworks' formulas.
// Not: the messages (compose_test.cpp).
#include <doctest/doctest.h>

#include <array>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace tawpipe;

namespace whole_stages_test {

namespace {

constexpr int replicas = 2;
constexpr int stages = 2;

/// The peak of each rank of the first replica, for a pipeline in two replicas.
std::array<PeakMemory, stages> peaks_of(const char* name, StateSharding sharding, Reshard reshard) {
  const Workload replica = support::transformer(8, 8);
  const Schedule logical = build_schedule(name, {.workload = replica, .nodes = DeviceGroups{{stages}}, .options = {}});
  const Mesh mesh = Mesh{.data = replicas}.over(stages * replicas);
  const Schedule schedule =
      compose(logical, support::transformer(8, 8 * replicas), mesh, {.sharding = sharding, .reshard = reshard});
  const auto peaks = peak_memory(schedule, simulate(schedule, support::cluster(stages * replicas), RooflineCost{}));
  std::array<PeakMemory, stages> found;
  for (int rank = stages * replicas; rank-- > 0;)
    found[static_cast<std::size_t>(mesh.place(Rank{rank}).pipeline)] = peaks[static_cast<std::size_t>(rank)];
  return found;
}

std::int64_t of_kind(const PeakMemory& peak, BufferKind kind) { return peak.by_kind[static_cast<std::size_t>(kind)].value(); }

}  // namespace

TEST_CASE("around a pipeline a stage's weights and unsummed gradients are held whole, as by FSDP2 in PyTorch's pipelines") {
  const Workload replica = support::transformer(8, 8);
  const ParameterBytes bytes = replica.parameter_bytes();
  for (const char* name : {"gpipe", "1f1b", "zb-h1"}) {
    CAPTURE(name);
    const auto peaks = peaks_of(name, StateSharding::parameters, Reshard::automatic);
    for (std::size_t s = 0; s < stages; ++s) {
      CAPTURE(s);
      const StageWork stage = replica.split(stages)[s];
      const std::int64_t parameters = stage.parameters + stage.edge_parameters;
      // kept: (w + g + o) / R of the stage; whole: w + g
      CHECK(of_kind(peaks[s], BufferKind::weights) == parameters * bytes.weight / replicas);
      CHECK(of_kind(peaks[s], BufferKind::gradients) == parameters * bytes.gradient / replicas);
      CHECK(of_kind(peaks[s], BufferKind::optimizer) == parameters * bytes.optimizer / replicas);
      CHECK(of_kind(peaks[s], BufferKind::transfer) == parameters * (bytes.weight + bytes.gradient));
    }
  }
}

TEST_CASE("gathered for each microbatch, at most two of each are held") {
  const Workload replica = support::transformer(8, 8);
  const ParameterBytes bytes = replica.parameter_bytes();
  for (const char* name : {"gpipe", "1f1b"}) {
    CAPTURE(name);
    const auto peaks = peaks_of(name, StateSharding::parameters, Reshard::microbatch);
    for (std::size_t s = 0; s < stages; ++s) {
      const StageWork stage = replica.split(stages)[s];
      CHECK(of_kind(peaks[s], BufferKind::transfer) <=
            2 * (stage.parameters + stage.edge_parameters) * (bytes.weight + bytes.gradient));
    }
  }
}

}  // namespace whole_stages_test
