// torchtitan's command line: `-m torchtitan.train --module llama3 --config llama3_8b
// --parallelism.tensor_parallel_degree 2`, as settings of its TOML, which it had before.
// Not: what they mean (torchtitan.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_name.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/frameworks/shell_settings.hpp"
#include "tawpipe/frameworks/torchtitan_table.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// What a function of a model's config_registry.py sets.
/// Source: pytorch/torchtitan main (August 2026), torchtitan/models/llama3, qwen3 and deepseek_v3.
struct TorchtitanConfig {
  std::string_view name;
  std::string_view module;
  std::string_view flavor;
  std::int64_t sequences;  ///< num_tokens_per_microbatch_per_dp_rank / max_context_length
  std::int64_t tokens;     ///< max_context_length
  std::string_view recompute;
  int tensor;
  int expert = 1;
  bool float8 = false;  ///< layers compiled, their GEMMs in 8 bits, collectives of tensor parallelism overlapped
};
inline constexpr TorchtitanConfig torchtitan_configs[] = {
    {"llama3_8b", "llama3", "8B", 1, 8192, "selective", 1},
    {"llama3_70b", "llama3", "70B", 8, 8192, "full", 8},
    {"llama3_405b", "llama3", "405B", 2, 8192, "full", 8, 1, true},
    {"qwen3_0_6b", "qwen3", "0.6B", 4, 4096, "selective", 1},
    {"qwen3_1_7b", "qwen3", "1.7B", 4, 4096, "selective", 1},
    {"qwen3_14b", "qwen3", "14B", 4, 4096, "full", 1},
    {"qwen3_30b_a3b", "qwen3", "30B-A3B", 2, 4096, "full", 1},
    {"qwen3_32b", "qwen3", "32B", 2, 4096, "full", 1},
    {"deepseek_v3_16b", "deepseek_v3", "16B", 4, 4096, "selective", 1, 8},
    {"deepseek_v3_671b", "deepseek_v3", "671B", 4, 4096, "selective", 1, 2}};

/// The table of the TOML with names as on the command line.
inline const SettingsTable<TorchtitanSettings>& torchtitan_flags() {
  static std::deque<std::string> names;
  static const SettingsTable<TorchtitanSettings> table = [] {
    using S = TorchtitanSettings;
    const auto flag = [](std::string_view name) { return std::string_view{names.emplace_back(concat("--", name))}; };
    SettingsTable<S> flags = torchtitan_table();
    flags.kind = "torchtitan flag";
    for (auto& field : flags.fields) field.name = flag(field.name);
    for (auto& foreign : flags.foreign) foreign.name = flag(foreign.name);
    for (auto& [old, now] : flags.renamed) std::tie(old, now) = std::pair{flag(old), flag(now)};
    for (const char* name :
         {"--module", "--config", "--training.num_tokens_per_microbatch_per_dp_rank", "--training.num_tokens_per_train_step",
          "--training.max_context_length", "--parallelism.num_pp_microbatches"})
      flags.fields.push_back({name, &S::components, {}, true});
    std::string skipped;
    for (const std::string_view name : split(flags.skipped, ' ')) skipped += concat(skipped.empty() ? "--" : " --", name);
    flags.skipped = names.emplace_back(std::move(skipped));
    return flags;
  }();
  return table;
}

}  // namespace detail

/// Whether a script starts torchtitan.
inline bool is_torchtitan_script(std::string_view text) {
  return text.find("torchtitan.train") != std::string_view::npos || text.find("torchtitan/train.py") != std::string_view::npos ||
         (text.find("run_train.sh") != std::string_view::npos && text.find("--parallelism.") != std::string_view::npos);
}

/// Flags of a command as settings of the TOML, after those of the configuration that they name.
/// @param found  whose settings these are added to, with the line of the command
/// @throws SettingError  for a configuration that is not known
inline void take_torchtitan_flags(SettingsText& found, std::vector<Setting> given) {
  const auto add = [&](std::string_view name, std::string value, int line) {
    found.settings.push_back({std::string{name}, {std::move(value)}, line});
  };
  const auto value_of = [&](std::string_view name) -> const Setting* {
    const auto at = std::find_if(given.rbegin(), given.rend(), [&](const Setting& one) { return one.name == name; });
    return at == given.rend() || at->values.size() != 1 || !at->unknown.empty() ? nullptr : &*at;
  };
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;
  if (const Setting* named = value_of("--config")) {
    const std::string& name = named->values[0];
    std::vector<std::string> known;
    for (const detail::TorchtitanConfig& config : detail::torchtitan_configs) {
      known.emplace_back(config.name);
      if (config.name != name) continue;
      if (const Setting* module = value_of("--module"); module != nullptr && module->values[0] != config.module)
        found.fail(module->line, concat("--module: ", name, " is a configuration of ", config.module));
      add("model.name", std::string{config.module}, named->line);
      add("model.flavor", std::string{config.flavor}, named->line);
      add("activation_checkpoint.mode", std::string{config.recompute}, named->line);
      add("activation_checkpoint.selective_ac_option", "op", named->line);
      add("parallelism.tensor_parallel_degree", std::to_string(config.tensor), named->line);
      add("parallelism.expert_parallel_degree", std::to_string(config.expert), named->line);
      if (config.float8) {
        add("compile.enable", "true", named->line);
        add("parallelism.enable_async_tensor_parallel", "true", named->line);
        add("model.converters", "quantize.linear.float8", named->line);
        add("quantize.linear.float8.filter_fqns", "output", named->line);
      }
      sequences = config.sequences;
      tokens = config.tokens;
    }
    if (tokens == 0) found.fail(named->line, concat("--config: ", unknown_name("configuration", name.substr(0, 60), known)));
  }
  const auto number = [&](std::string_view name) -> std::int64_t {
    const Setting* at = value_of(name);
    return at == nullptr ? 0 : to_number<std::int64_t>(at->values[0]).value_or(0);
  };
  const std::int64_t context = number("--training.max_context_length");
  const std::int64_t microbatch = number("--training.num_tokens_per_microbatch_per_dp_rank");
  if (microbatch > 0)
    sequences = std::max<std::int64_t>(1, microbatch / std::max<std::int64_t>(1, context > 0 ? context : tokens));
  if (context > 0) tokens = context;
  if (tokens > 0) add("training.seq_len", std::to_string(tokens), found.launch_line);
  const std::int64_t parts = std::max<std::int64_t>(1, number("--parallelism.num_pp_microbatches"));
  if (sequences > 0) add("training.local_batch_size", std::to_string(saturating_multiply(sequences, parts)), found.launch_line);
  if (sequences > 0 && parts > 1)
    add("parallelism.pipeline_parallel_microbatch_size", std::to_string(sequences), found.launch_line);
  if (const std::int64_t all = number("--training.num_tokens_per_train_step"); all > 0 && tokens > 0)
    add("training.global_batch_size", std::to_string(all / tokens), found.launch_line);
  for (Setting& setting : given) {
    if (!setting.name.starts_with("--") || setting.name.find('.') == std::string::npos) continue;
    if (detail::among(setting.name,
                      "--training.num_tokens_per_microbatch_per_dp_rank --training.num_tokens_per_train_step "
                      "--training.max_context_length --parallelism.num_pp_microbatches"))
      continue;
    setting.name.erase(0, 2);
    if (setting.values.empty()) setting.values.emplace_back("true");
    for (std::string& value : setting.values) {
      if (value == "True" || value == "False") value[0] = static_cast<char>(value[0] - 'A' + 'a');
    }
    found.settings.push_back(std::move(setting));
  }
}

/// The flags of a script's command, as settings of the TOML, after those of the configuration that it
/// names. @throws InputError  as shell_settings, or for a configuration that is not known
inline SettingsText torchtitan_command_settings(std::string_view text, std::string_view source, const ScriptInputs& inputs) {
  SettingsText found = shell_settings(detail::torchtitan_flags(), text, source, inputs);
  take_torchtitan_flags(found, std::exchange(found.settings, {}));
  return found;
}

}  // namespace tawpipe
