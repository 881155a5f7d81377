// Several shipped schedules on one problem, with options as text: what `tawpipe compare` does.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tawpipe/tawpipe.hpp"
#include "tawpipe/topology/clusters.hpp"  // named clusters need Boost.Graph, so they are not in tawpipe.hpp

int main() {
  const auto cluster = tawpipe::clusters::named("a800x24-10gbe");
  const auto model = tawpipe::models::named("llama-48x1024");
  const tawpipe::Workload work{model, {.sequence = 16384, .microbatch_size = 4, .global_batch = 1536}, tawpipe::Recompute::full};
  struct Entry {
    std::string schedule;
    tawpipe::ScheduleOptions options;
  };
  const std::vector<Entry> entries{{"tawpipe", {}}, {"tawpipe", {{"order", "paper"}}}, {"weipipe", {}},
                                   {"fsdp", {}},    {"fsdp", {{"prefetch", "1"}}},     {"1f1b", {{"overlap", "on"}}},
                                   {"gpipe", {}}};
  const tawpipe::Registry schedules = tawpipe::shipped_schedules();
  const tawpipe::RooflineCost cost{.utilization = model.utilization};
  std::vector<tawpipe::Summary> results;
  for (const auto& [name, options] : entries) {
    const auto schedule = schedules.build(name, {.workload = work, .nodes = cluster.groups_by_node(), .options = options});
    results.push_back(tawpipe::summarize(schedule, cluster, tawpipe::simulate(schedule, cluster, cost)));
  }
  std::stable_sort(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.makespan < b.makespan; });

  std::printf("tokens/s a device  bubble  out of memory  schedule\n");
  for (const auto& summary : results) {
    std::string options;
    for (const auto& [key, value] : summary.options) options += " " + key + "=" + value;
    std::printf("%17.0f  %5.1f%%  %-13s  %s%s\n", summary.tokens_per_device_per_second, 100 * summary.bubble.ratio,
                summary.out_of_memory.empty() ? "no" : "yes", summary.schedule.c_str(), options.c_str());
  }
}
