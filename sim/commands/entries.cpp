// Parsing of --schedules.
#include "entries.hpp"

#include <algorithm>

#include "papers/published_tawpipe.hpp"

namespace tawpipe::sim {

namespace {

/// "1f1b:overlap=on" with the options given for all, as far as the schedule has them.
ScheduleChoice parse_entry(const std::string& text, const ScheduleOptions& for_all, bool automatic) {
  ScheduleChoice entry{.schedule = {}, .automatic = automatic};
  std::size_t begin = text.find(':');
  entry.schedule = text.substr(0, begin);
  const ScheduleInfo& info = shipped().info(entry.schedule);
  for (const auto& [key, value] : for_all) {
    if (std::any_of(info.options.begin(), info.options.end(),
                    [&, name = key](const auto& option) { return option.name == name; })) {
      entry.options[key] = value;
    }
  }
  while (begin != std::string::npos) {
    const std::size_t end = text.find(':', begin + 1);
    for (auto& [key, value] : parse_options({text.substr(begin + 1, end == std::string::npos ? end : end - begin - 1)})) {
      entry.options[key] = value;
    }
    begin = end;
  }
  shipped().check(entry.schedule, entry.options);
  return entry;
}

}  // namespace

std::vector<ScheduleChoice> parse_entries(const std::vector<std::string>& schedules, const ScheduleOptions& for_all,
                                          bool automatic) {
  std::vector<ScheduleChoice> all;
  for (const auto& text : schedules) {
    if (text == "all") {
      for (const auto& info : shipped().schedules()) all.push_back(parse_entry(info.name, for_all, automatic));
    } else {
      all.push_back(parse_entry(text, for_all, automatic));
    }
  }
  for (const auto& [key, value] : for_all) {
    const bool used = std::any_of(all.begin(), all.end(),
                                  [&, name = key](const ScheduleChoice& entry) { return entry.options.contains(name); });
    if (!used)
      throw InputError(concat("none of the schedules compared has an option ", quote(key), "; see tawpipe list schedules"));
  }
  return all;
}

std::vector<ScheduleChoice> compared_entries(const Request& request, const std::vector<std::string>& schedules, bool automatic) {
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

std::string entry_label(const ScheduleChoice& entry) {
  std::string label = entry.schedule;
  for (const auto& [key, value] : entry.options) label += concat(":", key, "=", value);
  return label;
}

}  // namespace tawpipe::sim
