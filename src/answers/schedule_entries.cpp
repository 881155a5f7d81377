// Schedules as they are listed.
#include "tawpipe/answers/schedule_entries.hpp"

#include <algorithm>

#include "schedules.hpp"
#include "tawpipe/answers/job_question.hpp"

namespace tawpipe::inline v0::answers {

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

std::string entry_label(const ScheduleChoice& entry) {
  std::string label = entry.schedule;
  for (const auto& [key, value] : entry.options) label += concat(":", key, "=", value);
  return label;
}

}  // namespace tawpipe::answers
