// The user's command, changed so that something fits.
#include "advice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "entries.hpp"
#include "tawpipe/report/formatters.hpp"

namespace tawpipe::sim {

FlagChanges changes_for(const Problem& asked, const FittingLayout& fitting) {
  FlagChanges changes;
  for (const char* const name : {"tensor-parallel", "context-parallel", "expert-parallel", "data-parallel", "recompute",
                                 "shard-states", "microbatch", "loss-chunk", "offload"}) {
    const JobField& field = job_field(name);
    if (field.value.of_model && !asked.model) continue;
    const std::string before = field.value.print(field, asked);
    std::string now = field.value.print(field, fitting.problem);
    if (before != now && before != "auto") changes.emplace_back(concat("--", name), std::move(now));
  }
  if (!fitting.all_run) {
    changes.emplace_back("--schedules", entry_label(fitting.choice));
    changes.emplace_back("--option", "");  // the entry has them
  }
  return changes;
}

std::string changed_command(const std::vector<std::string>& arguments, const FlagChanges& changes) {
  std::string text = "tawpipe";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string flag = arguments[i].substr(0, arguments[i].find('='));
    const bool changed = std::any_of(changes.begin(), changes.end(), [&](const auto& change) { return change.first == flag; });
    if (!changed) {
      text += " " + shell_word(arguments[i]);
    } else if (flag == arguments[i]) {
      ++i;  // its value
    }
  }
  for (const auto& [flag, value] : changes) {
    if (!value.empty()) text += concat(" ", flag, " ", shell_word(value));
  }
  return one_line(text);
}

std::string fitting_text(const Request& request, const Problem& asked, const FittingLayout& fitting) {
  const FlagChanges changes = changes_for(asked, fitting);
  std::vector<std::string> told;
  for (const auto& [flag, value] : changes) {
    if (!value.empty() && flag != "--schedules") told.push_back(concat(flag, " ", value));
  }
  return fmt::format("{} fits with {}, in {} a device:\n  {}", entry_label(fitting.choice), join(told, " "),
                     format_memory(fitting.summary.fullest()), changed_command(request.arguments, changes));
}

}  // namespace tawpipe::sim
