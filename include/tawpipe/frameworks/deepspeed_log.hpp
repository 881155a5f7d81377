// What DeepSpeed prints: the configuration of its engine, the time of steps and its memory.
// Not: what the settings mean for a plan (deepspeed.hpp), nor what the Hugging Face Trainer prints around it
// (trainer_log.hpp).
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

namespace tawpipe::inline v0 {

namespace detail {

/// `  name .... value` of the engine's arguments; "" if the line is none of that name.
inline std::string_view deepspeed_argument(std::string_view line, std::string_view name) {
  const std::size_t print = line.find(":print]");  // of its config.py
  if (print == std::string_view::npos) return {};
  std::string_view rest = trimmed(line.substr(print + std::string_view{":print]"}.size()));
  if (!rest.starts_with(name) || rest.size() <= name.size() || rest[name.size()] != ' ') return {};
  rest = trimmed(rest.substr(name.size()));
  return trimmed(rest.substr(std::min(rest.find_first_not_of('.'), rest.size())));
}
inline std::string deepspeed_argument_of(std::string_view log, std::string_view name) {
  for (const std::string_view line : split(log, '\n')) {
    if (const std::string_view value = deepspeed_argument(line, name); !value.empty()) return std::string{value};
  }
  return {};
}

}  // namespace detail

/// Whether a text has the configuration that DeepSpeed's engine prints.
inline bool is_deepspeed_log(std::string_view text) {
  return text.find("DeepSpeedEngine configuration:") != std::string_view::npos ||
         (text.find(":print]   json = {") != std::string_view::npos && text.find("train_micro_batch_size_per_gpu") != text.npos);
}

/// The engine's configuration as of its JSON, in which numbers above 1,000 have exponents; without the JSON, as
/// of a log that was cut, of the arguments around it. @pre is_deepspeed_log(text)
/// @throws SettingError  if it has neither
/// Source: deepspeedai/DeepSpeed, runtime/config.py, print, and config_utils.py, ScientificNotationEncoder (0.18).
inline SettingsText deepspeed_log_settings(std::string_view text, std::string_view source) {
  SettingsText found{.source = std::string{source}, .settings = {}, .launched_by = "world_size"};
  const std::string log = detail::without_colors(text);
  if (const auto object = detail::logged_object(log, "json = ")) {
    found.settings = json_settings(object->text, source).settings;
    for (Setting& setting : found.settings) {
      setting.line += object->line - 1;
      for (std::string& value : setting.values) {
        if (value.find("e+") == std::string::npos) continue;
        const std::optional<double> number = to_number<double>(value);
        if (number && *number < 1e15) value = std::to_string(static_cast<std::int64_t>(*number));
      }
    }
    found.launch_line = object->line;
  } else {
    for (const auto& [argument, name] : {std::pair{"train_batch_size", "train_batch_size"},
                                         {"train_micro_batch_size_per_gpu", "train_micro_batch_size_per_gpu"},
                                         {"gradient_accumulation_steps", "gradient_accumulation_steps"},
                                         {"zero_optimization_stage", "zero_optimization.stage"},
                                         {"bfloat16_enabled", "bf16.enabled"},
                                         {"fp16_enabled", "fp16.enabled"},
                                         {"optimizer_name", "optimizer.type"}}) {
      std::string value = detail::deepspeed_argument_of(log, argument);
      if (value == "True" || value == "False") value[0] = static_cast<char>(value[0] - 'A' + 'a');
      if (!value.empty() && value != "None" && value != "auto") found.settings.push_back({name, {std::move(value)}, 1});
    }
    if (found.settings.empty()) throw SettingError(one_line(concat(source, ": the engine's configuration is cut off")));
    found.notes.push_back(one_line(
        concat(source, ": the JSON of the configuration is cut off; simulated as its arguments say, without any offload")));
  }
  found.processes = to_number<std::int64_t>(detail::deepspeed_argument_of(log, "world_size")).value_or(0);
  return found;
}

/// The middle of the times of its steps but the first, and the most memory that tensors took.
/// @param sequences  of an iteration: the log has samples a second
/// Source: deepspeedai/DeepSpeed, utils/timer.py, ThroughputTimer, and runtime/engine.py, wall_clock_breakdown;
/// runtime/pipe/engine.py, train_batch (0.18).
inline LoggedRun measured_by_deepspeed(std::string_view text, double sequences) {
  const std::string log = detail::without_colors(text);
  LoggedRun run;
  std::vector<double> steps;
  std::vector<double> parts;  // of wall_clock_breakdown, where nothing else is there
  for (const std::string_view line : split(log, '\n')) {
    if (const auto speed = detail::number_after(line, "CurrSamplesPerSec="); speed && *speed > 0)
      steps.push_back(sequences / *speed);
    if (const auto time = detail::number_after(line, "iter time (s): "); time && *time > 0) steps.push_back(*time);
    if (const auto memory = detail::number_after(line, "MaxMemAllocated="); memory && *memory > 0 && *memory < 1e5)
      run.allocated_bytes = std::max(run.allocated_bytes, static_cast<std::int64_t>(*memory * 1024 * 1024 * 1024));
    if (line.find("time (ms) |") == line.npos) continue;
    for (const auto& [forward, backward] : {std::pair{" fwd: ", " bwd: "}, {" forward: ", " backward: "}}) {
      const auto before = detail::number_after(line, forward);
      const auto after = detail::number_after(line, backward);
      const auto step = detail::number_after(line, " step: ");
      if (before && after && step) parts.push_back((*before + *after + *step) * 1e-3);
    }
  }
  if (steps.empty()) steps = std::move(parts);
  if (steps.size() > 1) steps.erase(steps.begin());  // it compiles, connects and allocates
  run.step_seconds = detail::middle_of(std::move(steps));
  return run;
}

}  // namespace tawpipe
