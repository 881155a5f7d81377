// Your own cost model: any type with compute_time() and path(). Here one device is slower.
#include <cstdio>

#include "tawpipe/tawpipe.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"

namespace {

/// A roofline, but everything that one rank computes takes `factor` times as long.
struct Straggler {
  tawpipe::RooflineCost usual;
  tawpipe::Rank slow;
  double factor = 1;

  tawpipe::Duration compute_time(const tawpipe::Schedule& schedule, tawpipe::TaskId id, const tawpipe::Cluster& cluster) const {
    const auto time = usual.compute_time(schedule, id, cluster);
    return schedule.task(id).rank == slow ? tawpipe::seconds(tawpipe::to_seconds(time) * factor) : time;
  }

  /// Messages are as usual: latency, then the bytes over shared links.
  tawpipe::Path path(const tawpipe::Schedule& schedule, const tawpipe::Task& task, const tawpipe::Cluster& cluster) const {
    return usual.path(schedule, task, cluster);
  }
};
static_assert(tawpipe::CostModel<Straggler>);

}  // namespace

int main() {
  const auto cluster = tawpipe::cluster_from_dimensions("2x4");
  const tawpipe::Workload work{tawpipe::models::named("llama-2-7b"),
                               {.sequence = 4096, .microbatch_size = 1, .global_batch = 64},
                               tawpipe::Recompute::full};

  const tawpipe::Registry schedules = tawpipe::shipped_schedules();

  std::printf("rank 3 slower by   1f1b     fsdp     tawpipe\n");
  for (const double factor : {1.0, 1.25, 1.5, 2.0}) {
    const Straggler cost{.usual = {}, .slow = tawpipe::Rank{3}, .factor = factor};
    std::printf("%-16.2f", factor);
    for (const char* name : {"1f1b", "fsdp", "tawpipe"}) {
      const auto schedule = schedules.build(name, {.workload = work, .nodes = cluster.groups_by_node(), .options = {}});
      std::printf("  %5.2f s", tawpipe::to_seconds(tawpipe::simulate(schedule, cluster, cost).makespan()));
    }
    std::printf("\n");
  }
}
