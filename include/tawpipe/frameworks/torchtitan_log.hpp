// What torchtitan prints: the configuration of a run, the command that started it or the lines of its start,
// with the time of its steps and its memory.
// Not: what the settings mean for a plan (torchtitan.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/frameworks/detail/log_text.hpp"
#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/frameworks/json_settings.hpp"
#include "tawpipe/frameworks/torchtitan_command.hpp"

namespace tawpipe::inline v0 {

/// Whether a text is a log of torchtitan.
inline bool is_torchtitan_log(std::string_view text) {
  if (text.find("[titan] ") != std::string_view::npos) return true;
  const std::size_t at = text.find("tps: ");  // without its logger's format
  if (at == std::string_view::npos) return false;
  const std::size_t end = text.rfind('\n', at);
  const std::string_view line = text.substr(end == std::string_view::npos ? 0 : end + 1, at - (end + 1));
  return line.find("step: ") != std::string_view::npos && line.find("GiB(") != std::string_view::npos;
}

namespace detail {

/// Collects the settings that a log of torchtitan says, the surest last.
class TorchtitanLog {
 public:
  TorchtitanLog(std::string_view text, std::string_view source, const GivenJob& given)
      : log_{without_colors(text)}, given_{given} {
    found_.source = source;
  }

  /// @throws SettingError  naming all that is missing
  SettingsText read() {
    const std::optional<LoggedObject> object = configuration();
    const std::string command = object ? std::string{} : echoed();
    take_lines();
    if (object) take_object(*object);
    if (!command.empty()) take_command(command);
    ask_for_the_rest(object.has_value() || !command.empty());
    return std::move(found_);
  }

 private:
  void add(std::string_view name, std::string value) {
    found_.settings.push_back({std::string{name}, {std::move(value)}, line_});
  }
  bool says(std::string_view name) const {
    return std::any_of(found_.settings.begin(), found_.settings.end(), [&](const Setting& one) { return one.name == name; });
  }
  /// Source: pytorch/torchtitan, config/job_config.py, maybe_log (0.2.2; 0.1: "args"), and trainer.py (August 2026).
  std::optional<LoggedObject> configuration() const {
    std::optional<LoggedObject> found = logged_object(log_, "Running with configs:");
    return found ? found : logged_object(log_, "Running with args:");
  }
  /// The command that `set -x` of run_train.sh prints; "" if there is none with settings.
  std::string echoed() {
    int line = 0;
    for (const std::string_view each : split(log_, '\n')) {
      ++line;
      const std::size_t at = each.find("+ torchrun");
      if (at == std::string_view::npos) continue;
      const std::string_view command = each.substr(at + 2);
      const bool set = command.find("--config ") != command.npos || command.find("--parallelism.") != command.npos ||
                       command.find("--training.") != command.npos || command.find("--model.") != command.npos;
      if (!set || !is_torchtitan_script(command)) continue;
      line_ = line;
      return std::string{command};
    }
    return {};
  }

  /// Lines of a start. Source: pytorch/torchtitan, distributed/parallel_dims.py, train.py, pipeline_parallel.py,
  /// activation_checkpoint.py (0.1 to 0.2.2), trainer.py (August 2026).
  void take_lines() {
    const int command = std::exchange(line_, 0);
    for (const std::string_view line : split(log_, '\n')) {
      ++line_;
      if (line.find("mesh with parallelism: ") != line.npos) take_mesh(line);
      if (line.find("-D device mesh with [") != line.npos) take_old_mesh(line);
      if (const std::size_t at = line.find("Model "); at != line.npos && line.find(" total parameters") != line.npos)
        take_model(line.substr(at + std::string_view{"Model "}.size()));
      if (line.find("Trainer is initialized with") != line.npos || line.find("Training starts at step") != line.npos)
        take_batch(line);
      if (const std::size_t at = line.find("Using pipeline schedule "); at != line.npos) {
        const std::string_view rest = line.substr(at + std::string_view{"Using pipeline schedule "}.size());
        add("parallelism.pipeline_parallel_schedule", std::string{rest.substr(0, rest.find(' '))});
        pipeline_microbatches_ = count_after(line, " with ");
      }
      if (line.find("activation checkpointing to the model") != line.npos) take_recomputation(line);
      if (line.find("with torch.compile") != line.npos && line.find("Compiling") != line.npos) add("compile.enable", "true");
      if (line.find("Applied CPU Offloading") != line.npos) add("training.enable_cpu_offload", "true");
    }
    if (!has_recomputation_) add("activation_checkpoint.mode", "none");
    line_ = command;
  }
  void take_mesh(std::string_view line) {
    for (const auto& [word, name] : {std::pair{"pp=", "parallelism.pipeline_parallel_degree"},
                                     {"dp_replicate=", "parallelism.data_parallel_replicate_degree"},
                                     {"dp_shard=", "parallelism.data_parallel_shard_degree"},
                                     {"cp=", "parallelism.context_parallel_degree"},
                                     {" tp=", "parallelism.tensor_parallel_degree"},
                                     {" ep=", "parallelism.expert_parallel_degree"},
                                     {"etp=", "parallelism.expert_tensor_parallel_degree"}}) {
      if (const std::int64_t degree = count_after(line, word); degree > 0) add(name, std::to_string(degree));
    }
    has_mesh_ = true;
  }
  /// "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]".
  void take_old_mesh(std::string_view line) {
    std::vector<std::string> names;
    std::vector<std::string> sizes;
    std::string word;
    constexpr std::string_view before = "device mesh with ";
    for (const char c : line.substr(line.find(before) + before.size())) {
      const bool part = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
      if (part) word += c;
      if (part || word.empty()) continue;
      (word[0] >= '0' && word[0] <= '9' ? sizes : names).push_back(std::exchange(word, {}));
    }
    if (names.size() != sizes.size()) return;
    for (std::size_t i = 0; i < names.size(); ++i) {
      for (const auto& [axis, name] : {std::pair{"pp", "parallelism.pipeline_parallel_degree"},
                                       {"dp_replicate", "parallelism.data_parallel_replicate_degree"},
                                       {"dp_shard", "parallelism.data_parallel_shard_degree"},
                                       {"dp", "parallelism.data_parallel_shard_degree"},
                                       {"cp", "parallelism.context_parallel_degree"},
                                       {"tp", "parallelism.tensor_parallel_degree"}}) {
        if (names[i] == axis) add(name, sizes[i]);
      }
    }
    has_mesh_ = true;
  }
  /// "llama3 8B size: 8,030,261,248 total parameters".
  void take_model(std::string_view rest) {
    const std::string_view both = trimmed(rest.substr(0, rest.find("size:")));
    const std::size_t space = both.find(' ');
    if (space == both.npos) return;
    add("model.name", std::string{both.substr(0, space)});
    add("model.flavor", std::string{trimmed(both.substr(space))});
  }
  void take_batch(std::string_view line) {
    std::int64_t sequence = count_after(line, "sequence length ");
    std::int64_t local = count_after(line, "local batch size ");
    std::int64_t global = count_after(line, "global batch size ");
    if (const std::int64_t context = count_after(line, "maximum context length "); context > 0) {
      sequence = context;
      local = count_after(line, "initialized with ") / context;
      global = count_after(line, "tokens per DP rank, ") / context;
    }
    if (sequence < 1 || local < 1) return;
    add("training.seq_len", std::to_string(sequence));
    add("training.local_batch_size", std::to_string(local));
    if (global > 0) add("training.global_batch_size", std::to_string(global));
    local_ = local;
  }
  /// "Applied full activation checkpointing", "Applied SelectiveAC activation checkpointing".
  void take_recomputation(std::string_view line) {
    const std::size_t at = line.find("Applied ");
    if (at == line.npos) return;
    std::string_view mode = line.substr(at + std::string_view{"Applied "}.size());
    mode = mode.substr(0, mode.find(' '));
    for (const auto& [word, name] :
         {std::pair{"FullAC", "full"}, {"SelectiveAC", "selective"}, {"MemoryBudgetAC", "memory_budget"}}) {
      if (mode != word) continue;
      mode = name;
      add("activation_checkpoint.selective_ac_option", "op");
    }
    add("activation_checkpoint.mode", std::string{mode});
    has_recomputation_ = true;
  }

  void take_object(const LoggedObject& object) {
    line_ = object.line;
    SettingsText json = json_settings(object.text, found_.source);
    std::vector<Setting> given;
    for (Setting& setting : json.settings) {
      setting.line += object.line - 1;
      if (setting.values.empty() || setting.values[0] == "null" || setting.values[0].empty()) continue;
      if (setting.name == "model_spec.name") setting.name = "model.name";
      if (setting.name == "model_spec.flavor") setting.name = "model.flavor";
      if (setting.name.starts_with("model_spec.")) continue;
      given.push_back(std::move(setting));
      given.back().name.insert(0, "--");
    }
    found_.launch_line = object.line;
    take_torchtitan_flags(found_, std::move(given));
    // Names that this release has are known there; of others most have their default.
    const SettingsTable<TorchtitanSettings>& table = torchtitan_table();
    std::erase_if(found_.settings, [&](const Setting& one) {
      const auto named = [&](const auto& known) { return known.name == one.name; };
      return std::none_of(table.fields.begin(), table.fields.end(), named) &&
             std::none_of(table.foreign.begin(), table.foreign.end(), named) &&
             std::none_of(table.renamed.begin(), table.renamed.end(), [&](const auto& known) { return known.first == one.name; });
    });
    has_mesh_ = true;
  }
  void take_command(const std::string& command) {
    const int line = line_;
    SettingsText said = torchtitan_command_settings(command, found_.source, {});
    for (Setting& setting : said.settings) {
      setting.line = line;
      found_.settings.push_back(std::move(setting));
    }
    has_mesh_ = true;
  }

  void ask_for_the_rest(bool configured) {
    if (!has_mesh_) {
      throw SettingError(one_line(concat(found_.source,
                                         " says neither its configuration nor its mesh; give the command or the TOML of the run "
                                         "to --today, and a step's time with --step-time (torchtitan prints its configuration "
                                         "with --debug.print_config)")));
    }
    if (!configured) {
      std::vector<std::string> missing;
      if (!says("model.name") && !given_.model) missing.emplace_back("the model (--model)");
      if (!says("training.seq_len")) {
        if (given_.sequence < 1) missing.emplace_back("the sequence length (--sequence)");
        if (given_.microbatch < 1) missing.emplace_back("the sequences of a device at a time (--microbatch)");
        if (given_.global_batch < 1) missing.emplace_back("those of an iteration (--global-batch)");
        add("training.seq_len", std::to_string(given_.sequence));
        add("training.local_batch_size", std::to_string(given_.microbatch));
        add("training.global_batch_size", std::to_string(given_.global_batch));
      }
      if (!missing.empty())
        throw SettingError(
            one_line(concat(found_.source, " has no printed configuration, and does not say ", join(missing, ", "))));
      found_.notes.push_back(concat(found_.source,
                                    " has no printed configuration (--debug.print_config); what its lines do not say is "
                                    "simulated as torchtitan's defaults"));
    }
    if (pipeline_microbatches_ > 0 && local_ % pipeline_microbatches_ == 0 &&
        !says("parallelism.pipeline_parallel_microbatch_size"))
      add("parallelism.pipeline_parallel_microbatch_size", std::to_string(local_ / pipeline_microbatches_));
  }

  std::string log_;
  const GivenJob& given_;
  SettingsText found_ = {};
  int line_ = 0;
  bool has_mesh_ = false;
  bool has_recomputation_ = false;
  std::int64_t local_ = 0;
  std::int64_t pipeline_microbatches_ = 0;
};

}  // namespace detail

/// The settings of a log by their names in the TOML: of its printed configuration, of the command that it
/// echoes, otherwise of the lines of its start. @pre is_torchtitan_log(text)
/// @throws SettingError  naming all that it does not say, and what would
inline SettingsText torchtitan_log_settings(std::string_view text, std::string_view source, const GivenJob& given = {}) {
  return detail::TorchtitanLog{text, source, given}.read();
}

/// The middle of the times of its steps but the first, and the most memory that the allocator reserved.
/// @param tokens   of an iteration: the log has a device's tokens a second
/// @param devices  of the run
/// Source: pytorch/torchtitan, components/metrics.py, MetricsProcessor.log.
inline LoggedRun measured_by_torchtitan(std::string_view text, double tokens, int devices) {
  const std::string log = detail::without_colors(text);
  LoggedRun run;
  std::vector<double> steps;
  double first = -1;
  for (const std::string_view line : split(log, '\n')) {
    const std::optional<double> step = detail::number_after(line, "step:");
    if (!step || line.find("validate step") != line.npos) continue;
    std::optional<double> speed = detail::number_after(line, "tps: ");
    if (!speed) speed = detail::number_after(line, "wps: ");  // until 0.1
    if (!speed || *speed <= 0) continue;
    if (const auto memory = detail::number_after(line, "memory:"); memory && *memory > 0 && *memory < 1e5)
      run.reserved_bytes = std::max(run.reserved_bytes, static_cast<std::int64_t>(*memory * 1024 * 1024 * 1024));
    if (first < 0) first = *step;
    if (*step == first && !steps.empty()) continue;  // of another process
    steps.push_back(tokens / (*speed * devices));
  }
  if (steps.size() > 1) steps.erase(steps.begin());  // it compiles, connects and allocates
  run.step_seconds = detail::middle_of(std::move(steps));
  return run;
}

}  // namespace tawpipe
