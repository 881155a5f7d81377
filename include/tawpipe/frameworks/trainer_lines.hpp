// Lines that the Hugging Face Trainer, and programs like it, print around any way to distribute a job: the
// model's configuration, the batch, progress and the summary at the end.
// Not: a job from them (trainer_log.hpp).
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
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/huggingface_config.hpp"

namespace tawpipe::inline v0 {

/// The block "***** Running training *****"; 0: not there.
/// Source: huggingface/transformers, trainer.py (4.0 to 5.0), and examples/pytorch/*_no_trainer.py.
struct TrainerBatch {
  std::int64_t microbatch = 0;    ///< of a device
  std::int64_t global = 0;        ///< of an iteration
  std::int64_t accumulation = 0;  ///< microbatches
  std::int64_t steps = 0;

  /// Devices with parts of the batch of their own; 0: not known.
  std::int64_t devices() const {
    const std::int64_t one = microbatch * std::max<std::int64_t>(1, accumulation);
    return one > 0 && global % one == 0 ? global / one : 0;
  }
};
/// @param log  without colours
inline TrainerBatch trainer_batch(std::string_view log) {
  TrainerBatch batch;
  for (const std::string_view line : split(log, '\n')) {
    for (const auto& [name, value] : {std::pair{"Instantaneous batch size per device =", &batch.microbatch},
                                      {"Total train batch size (w. parallel, distributed & accumulation) =", &batch.global},
                                      {"Gradient Accumulation steps =", &batch.accumulation},
                                      {"Total optimization steps =", &batch.steps}}) {
      if (const std::int64_t count = detail::count_after(line, name); count > 0) *value = count;
    }
  }
  return batch;
}

namespace detail {

/// The number of a key of a dict: `'train_runtime': 123.4` or `'train_runtime': '123.4'`.
inline std::optional<double> value_of_key(std::string_view line, std::string_view key) {
  const std::size_t at = line.find(concat("'", key, "': "));
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = line.substr(at + key.size() + 4);
  if (rest.starts_with('\'')) rest.remove_prefix(1);
  return number_after(rest, "");
}

/// Seconds of a step by the bars of progress over that many steps: " 10/203 [00:12<16:46,  5.01s/it".
inline std::vector<double> seconds_by_bars(std::string_view log, std::int64_t steps) {
  std::vector<double> seconds;
  for (const bool inverse : {false, true}) {
    const std::string_view unit = inverse ? "it/s" : "s/it";
    for (std::size_t at = log.find(unit); at != log.npos; at = log.find(unit, at + 1)) {
      const std::size_t begin = log.substr(0, at).find_last_not_of("0123456789.");
      if (begin == log.npos) continue;
      const std::size_t bracket = log.rfind('[', at);
      const std::size_t slash = bracket == log.npos ? log.npos : log.rfind('/', bracket);
      if (slash == log.npos || at - bracket > 60 || bracket - slash > 16) continue;
      const auto all = to_number<std::int64_t>(trimmed(log.substr(slash + 1, bracket - slash - 1)));
      const auto speed = to_number<double>(log.substr(begin + 1, at - begin - 1));
      if (all == steps && speed && *speed > 0) seconds.push_back(inverse ? 1 / *speed : *speed);
    }
  }
  return seconds;
}

}  // namespace detail

/// The middle of the times that bars of progress show; with less than three of them, the time of the whole run over
/// its steps. @param log  without colours
inline LoggedRun measured_by_trainer(std::string_view log, const TrainerBatch& batch) {
  LoggedRun run;
  double whole = 0;
  for (const std::string_view line : split(log, '\n')) {
    if (const auto seconds = detail::value_of_key(line, "train_runtime"); seconds && *seconds > 0 && batch.steps > 0)
      whole = *seconds / static_cast<double>(batch.steps);
    if (const auto speed = detail::value_of_key(line, "train_steps_per_second"); speed && *speed > 0 && whole == 0)
      whole = 1 / *speed;
    for (const char* name : {"memory/max_mem_allocated(gib)", "memory/max_allocated (GiB)"}) {  // of axolotl
      if (const auto memory = detail::value_of_key(line, name); memory && *memory > 0 && *memory < 1e5)
        run.allocated_bytes = std::max(run.allocated_bytes, static_cast<std::int64_t>(*memory * 1024 * 1024 * 1024));
    }
  }
  std::vector<double> bars = batch.steps > 0 ? detail::seconds_by_bars(log, batch.steps) : std::vector<double>{};
  constexpr std::size_t enough = 3;
  run.step_seconds = bars.size() >= enough || whole == 0 ? detail::middle_of(std::move(bars)) : whole;
  return run;
}

/// The model's configuration that transformers prints: `Model config LlamaConfig {`.
/// @throws InputError  as parse_huggingface_config()
inline std::optional<Transformer> logged_model(std::string_view text, std::string_view source) {
  const std::string log = detail::without_colors(text);
  constexpr std::string_view before = "Model config ";
  const std::size_t at = log.find(before);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view rest = std::string_view{log}.substr(at + before.size(), 80);
  const auto object = detail::logged_object(log, concat(before, rest.substr(0, rest.find_first_of(" {\n"))));
  if (!object) return std::nullopt;
  const JsonDocument document{object->text, source};
  std::string name{"model"};
  for (const char* key : {"model_type", "_name_or_path"}) {
    const auto found = document.json().find(key);
    if (found == document.json().end() || !found->is_string()) continue;
    const std::string said = found->get<std::string>();
    if (!said.empty()) name = said.substr(std::min(said.find_last_of('/') + 1, said.size()));
  }
  return timed_model(parse_huggingface_config(object->text, source, name));
}

/// Adds to a job what these lines say of it and its own do not: the model, recomputation, the time of a step.
inline void take_trainer_lines(FrameworkJob& job, std::string_view text, std::string_view source, const GivenJob& given) {
  const std::string log = detail::without_colors(text);
  if (!job.model && !given.model) {
    if (const std::optional<Transformer> model = logged_model(log, source)) {
      const std::optional<HuggingFaceConfig> known = find_published_model(model->name);
      if (known && detail::same_sizes(timed_model(*known), *model))
        job.model_name = model->name;
      else
        job.model = job.dtype ? with_dtype(*model, *job.dtype) : *model;
    }
  }
  if (!job.recompute) {
    const bool on = log.find("gradient_checkpointing=True") != std::string::npos ||
                    log.find("Gradient checkpointing enabled") != std::string::npos;  // LLaMA-Factory
    if (on)
      job.recompute = Recompute::full;
    else if (log.find("gradient_checkpointing=False") != std::string::npos)
      job.recompute = Recompute::none;
  }
  const LoggedRun run = measured_by_trainer(log, trainer_batch(log));
  if (job.measured.step_seconds == 0) job.measured.step_seconds = run.step_seconds;
  if (job.measured.allocated_bytes == 0) job.measured.allocated_bytes = run.allocated_bytes;
}

}  // namespace tawpipe
