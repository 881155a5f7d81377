// The user's command, changed so that something fits.
#include "advice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "entries.hpp"
#include "tawpipe/report/formatters.hpp"

namespace tawpipe::sim {

FlagChanges changes_for(const Problem& asked, const FittingLayout& fitting) {
  FlagChanges changes;
  const auto change_if = [&](bool differs, const char* flag, std::string value) {
    if (differs) changes.emplace_back(flag, std::move(value));
  };
  const auto change_count = [&](const char* flag, std::int64_t before, std::int64_t now) {
    change_if(before != now, flag, std::to_string(now));
  };
  change_count("--tensor-parallel", asked.mesh.tensor, fitting.mesh.tensor);
  change_count("--context-parallel", asked.mesh.context, fitting.mesh.context);
  const auto experts = [](const Mesh& mesh) { return mesh.whole_experts ? mesh.expert_parts() : 1; };
  change_count("--expert-parallel", experts(asked.mesh), experts(fitting.mesh));
  change_count("--data-parallel", asked.mesh.data, fitting.mesh.data);
  const bool other_layers = fitting.recompute_layers != asked.model->recompute_layers;
  change_if(asked.recomputes.empty() && (fitting.recompute != asked.recompute || other_layers), "--recompute",
            std::string{name(fitting.recompute)});
  change_if(fitting.sharding != asked.sharding, "--shard-states", std::string{name(fitting.sharding)});
  if (asked.microbatch_sizes.size() == 1) {
    change_count("--microbatch", asked.microbatch_sizes[0], fitting.summary.microbatch_size);
  }
  change_count("--loss-chunk", asked.model->loss_chunk, fitting.loss_chunk);
  change_if(!(fitting.offload == asked.offload), "--offload", name(fitting.offload));
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
