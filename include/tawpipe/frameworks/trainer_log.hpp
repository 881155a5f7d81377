// Jobs from logs of the Hugging Face Trainer and of programs on Accelerate, that DeepSpeed does not run.
// Not: lines that they share with others (trainer_lines.hpp), nor DeepSpeed's configuration (deepspeed_log.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/frameworks/frameworks.hpp"
#include "tawpipe/frameworks/trainer_lines.hpp"
#include "tawpipe/frameworks/yaml_job.hpp"

namespace tawpipe::inline v0 {

/// Whether a text is a log of the Trainer or of a program like its examples.
inline bool is_trainer_log(std::string_view text) {
  if (is_megatron_log(text) || is_torchtitan_log(text) || is_deepspeed_log(text)) return false;
  return text.find("***** Running training *****") != std::string_view::npos ||
         text.find("'train_steps_per_second'") != std::string_view::npos ||
         (text.find("Distributed environment: ") != std::string_view::npos &&
          text.find("Num processes: ") != std::string_view::npos);
}

namespace detail {

/// Collects the settings that such a log says, by their names in the programs' files.
class TrainerLog {
 public:
  using S = TrainerSettings;
  TrainerLog(std::string_view text, std::string_view source, int devices, const GivenJob& given)
      : log_{without_colors(text)}, devices_{devices}, given_{given}, batch_{trainer_batch(log_)}, source_{source} {
    found_.source = source;
  }

  /// @throws SettingError  naming what is missing, or what was trained if not all parameters
  YamlJob read() {
    if (log_.find("trainable params: ") != log_.npos && log_.find("trainable%: 100") == log_.npos)
      throw SettingError(one_line(concat(found_.source, ": ", out_of_scope("lora"))));
    const bool accelerate = log_.find("Distributed environment: ") != log_.npos;
    if (given_.microbatch == 0) given_.microbatch = batch_.microbatch;
    if (given_.global_batch == 0) given_.global_batch = batch_.global;
    const TrainerKind kind = accelerate ? TrainerKind::accelerate : TrainerKind::transformers;
    accelerate ? take_state() : take_arguments();
    if (given_.microbatch < 1 || given_.global_batch < 1) {
      throw SettingError(one_line(concat(found_.source,
                                         " does not say the batch (\"Instantaneous batch size per device\", \"Total "
                                         "train batch size\"); give --microbatch and --global-batch")));
    }
    std::vector<std::string> assumed = std::move(found_.notes);
    found_.notes.clear();
    TrainerJob trainer = trainer_job(kind, std::move(found_), std::move(zero_), devices_, given_);
    FrameworkJob& job = trainer.job;
    for (const std::string& note : assumed) job.notes.push_back(note);
    take_trainer_lines(job, log_, source_, given_);
    return {accelerate ? YamlKind::accelerate : YamlKind::transformers,
            trainer.deepspeed ? Framework::deepspeed : Framework::torchtitan, std::move(job)};
  }

 private:
  void add(std::string_view name, std::string value, int line) {
    found_.settings.push_back({std::string{name}, {std::move(value)}, line});
  }
  void assume(std::string_view what) { found_.notes.push_back(one_line(concat(source_, " does not say ", what))); }

  /// Accelerate's state, as its examples print it.
  /// Source: huggingface/accelerate, state.py, PartialState.__repr__ and AcceleratorState.__repr__ (0.12 to 1.12).
  void take_state() {
    int line = 0;
    for (const std::string_view each : split(log_, '\n')) {
      ++line;
      const auto after = [&](std::string_view name) {
        const std::size_t at = each.find(name);
        return at == each.npos ? std::string_view{} : trimmed(each.substr(at + name.size()));
      };
      if (std::string_view type = after("Distributed environment: "); !type.empty() && !has("distributed_type")) {
        type = type.substr(0, type.find(' '));
        add("distributed_type", std::string{type.substr(std::min(type.size(), type.rfind('.') + 1))}, line);
      }
      if (const std::string_view type = after("Mixed precision type: "); !type.empty() && !has("mixed_precision"))
        add("mixed_precision", std::string{type}, line);
      if (const std::int64_t processes = count_after(each, "Num processes: "); processes > 0 && !has("num_processes"))
        add("num_processes", std::to_string(processes), line);
      if (const std::string_view config = after("ds_config: "); config.starts_with('{') && zero_.settings.empty()) {
        zero_ = json_settings(json_of_python(config), source_);
        std::erase_if(zero_.settings, [](const Setting& one) { return one.values == std::vector<std::string>{"null"}; });
        for (Setting& setting : zero_.settings) setting.line = line;
      }
    }
    const Setting* const type = find("distributed_type");
    if (type != nullptr && type->values[0] == "DEEPSPEED" && zero_.settings.empty())
      assume("DeepSpeed's configuration; simulated as ZeRO-2");
    if (type != nullptr && type->values[0] == "FSDP") assume("how FSDP shards; simulated as full shards");
    if (!has("mixed_precision") && zero_.settings.empty()) {
      add("mixed_precision", "bf16", 0);
      assume("its numbers; simulated in bfloat16");
    }
  }

  /// The arguments of the Trainer, one a line, where the program prints them: `bf16=True,`.
  /// Source: huggingface/transformers, training_args.py, TrainingArguments.__str__.
  void take_arguments() {
    const SettingsTable<S>& table = trainer_table(TrainerKind::transformers);
    int line = 0;
    for (const std::string_view each : split(log_, '\n')) {
      ++line;
      const std::size_t equals = each.find('=');
      if (equals == each.npos) continue;
      const std::size_t begin = each.substr(0, equals).find_last_not_of("abcdefghijklmnopqrstuvwxyz_0123456789");
      const std::string_view name =
          each.substr(begin == each.npos ? 0 : begin + 1, equals - (begin == each.npos ? 0 : begin + 1));
      std::string_view value = trimmed(each.substr(equals + 1));
      if (!value.ends_with(',') || has(name)) continue;
      value.remove_suffix(1);
      if (name == "fsdp_config" && value.starts_with('{')) {
        for (Setting& setting : json_settings(json_of_python(value), source_).settings) {
          if (setting.values.size() == 1 && setting.values[0] != "null")
            add(concat("fsdp_config.", setting.name), setting.values[0], line);
        }
        continue;
      }
      const auto field =
          std::find_if(table.fields.begin(), table.fields.end(), [&](const auto& one) { return one.name == name; });
      if (field == table.fields.end() || value == "None" || value == "[]" || value == "''") continue;
      Setting setting{std::string{name}, words(value), line};
      if (!setting.values.empty()) found_.settings.push_back(std::move(setting));
    }
    const bool printed = has("per_device_train_batch_size");
    for (const auto& [name, value] : {std::pair{"per_device_train_batch_size", given_.microbatch},
                                      {"gradient_accumulation_steps", accumulation()},
                                      {"world_size", batch_.devices()}}) {
      if (value > 0 && !has(name)) add(name, std::to_string(value), 0);
    }
    if (const Setting* file = find("deepspeed")) {
      found_.fail(file->line, concat("deepspeed: the log has not what ", one_line(file->values[0]),
                                     " says; give that file to --today, and a step's time with --step-time"));
    }
    std::erase_if(found_.settings,
                  [](const Setting& one) { return one.name.starts_with("fsdp_config.") && one.values[0].empty(); });
    if (printed) return;
    add("bf16", "true", 0);
    assume("how it is distributed, nor its numbers (the Trainer's arguments are not printed); simulated as DDP in bfloat16");
  }
  std::int64_t accumulation() const {
    if (batch_.accumulation > 0) return batch_.accumulation;
    const std::int64_t one = given_.microbatch * devices_;
    return one > 0 ? std::max<std::int64_t>(1, given_.global_batch / one) : 0;
  }
  /// `True`, `<OptimizerNames.ADAMW_TORCH: 'adamw_torch'>`, `[<FSDPOption.FULL_SHARD: 'full_shard'>]`.
  static std::vector<std::string> words(std::string_view value) {
    if (value == "True") return {"true"};
    if (value == "False") return {"false"};
    std::vector<std::string> quoted;
    for (std::size_t at = value.find('\''); at != value.npos; at = value.find('\'', at + 1)) {
      const std::size_t end = value.find('\'', at + 1);
      if (end == value.npos) break;
      quoted.emplace_back(value.substr(at + 1, end - at - 1));
      at = end;
    }
    if (!quoted.empty()) return quoted;
    const std::size_t member = value.find_first_of("<[") == 0 ? value.npos : value.rfind('.');
    const bool is_name = member != value.npos && value.find_first_of("0123456789/") == value.npos;  // OptimizerNames.ADAMW_TORCH
    std::string word{is_name ? value.substr(member + 1) : value};
    if (is_name)
      std::transform(word.begin(), word.end(), word.begin(),
                     [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return {word};
  }
  const Setting* find(std::string_view name) const {
    for (const Setting& one : found_.settings) {
      if (one.name == name) return &one;
    }
    return nullptr;
  }
  bool has(std::string_view name) const { return find(name) != nullptr; }

  std::string log_;
  int devices_;
  GivenJob given_;
  TrainerBatch batch_;
  std::string source_;
  SettingsText found_ = {};
  SettingsText zero_ = {};
};

}  // namespace detail

/// The job that such a log describes, on that many devices. What it does not say is taken from `given`.
/// @pre is_trainer_log(text)
/// @throws InputError  naming what the log does not say, or setting and line
inline YamlJob trainer_log_job(std::string_view text, std::string_view source, int devices, const GivenJob& given = {}) {
  return detail::TrainerLog{text, source, devices, given}.read();
}

}  // namespace tawpipe
