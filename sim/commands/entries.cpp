// What `compare` compares.
#include "entries.hpp"

#include "papers/published_tawpipe.hpp"

namespace tawpipe::sim {

std::vector<ScheduleChoice> compared_entries(const JobQuestion& request, const std::vector<std::string>& schedules,
                                             bool automatic) {
  static const std::vector<std::string> usual{"tawpipe", "weipipe", "fsdp", "1f1b", "gpipe"};
  // Where devices have experts of their own, weights stay.
  static const std::vector<std::string> staying{"1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-v"};
  const std::vector<std::string>& by_default = request.count("expert-parallel") > 1 ? staying : usual;
  return parse_entries(schedules.empty() ? by_default : schedules, parse_options(request.options), automatic);
}

std::vector<Problem> compared_problems(const Problem& problem, std::vector<ScheduleChoice>& entries, bool baselines) {
  std::vector<Problem> problems(entries.size(), problem);
  for (std::size_t i = 0; baselines && i < entries.size(); ++i) {
    if (!entries[i].options.empty()) continue;
    for (const published::TawpipeVariant& variant : published::tawpipe_variants()) {
      if (variant.name != entries[i].schedule) continue;
      entries[i].options = parse_options(variant.options);
      if (!problem.model || !problem.microbatch_sizes.empty()) continue;
      problems[i].microbatch_sizes = published::tawpipe_microbatches(variant, *problem.model, problem.sequence,
                                                                     problem.global_batch, problem.cluster.ranks());
    }
  }
  return problems;
}

}  // namespace tawpipe::sim
