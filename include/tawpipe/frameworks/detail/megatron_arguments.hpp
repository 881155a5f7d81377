// Arguments of Megatron-LM by their names in Python, as its flags: a log and YAML have them.
// Not: the texts that have them (megatron_log.hpp, megatron_yaml.hpp).
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/megatron_flags.hpp"
#include "tawpipe/frameworks/setting.hpp"

namespace tawpipe::inline v0::detail {

/// `tensor_model_parallel_size`, with the words of its value: "True" or "true" and the like for a switch.
struct MegatronArgument {
  std::string name;
  std::vector<std::string> words;
  int line = 0;
  std::string unknown = {};  ///< as Setting::unknown
  bool is(std::string_view some) const { return words.size() == 1 && among(words.front(), some); }
  bool is_off() const { return words.empty() || is("False false None null"); }
};
using MegatronArguments = std::vector<MegatronArgument>;

/// Flags whose argument has another name; those that turn something off, which then is False.
/// Source: NVIDIA/Megatron-LM, megatron/training/arguments.py (core 0.15), dest=.
inline constexpr std::pair<std::string_view, std::string_view> renamed_arguments[] = {
    {"virtual_pipeline_model_parallel_size", "--num-virtual-stages-per-pipeline-rank"},
    {"fp8", "--fp8-format"},
    {"fp4", "--fp4-format"}};
inline constexpr std::pair<std::string_view, std::string_view> negated_arguments[] = {
    {"add_bias_linear", "--disable-bias-linear"},
    {"gradient_accumulation_fusion", "--no-gradient-accumulation-fusion"},
    {"bias_swiglu_fusion", "--no-bias-swiglu-fusion"},
    {"bias_gelu_fusion", "--no-bias-gelu-fusion"},
    {"bias_dropout_fusion", "--no-bias-dropout-fusion"},
    {"apply_rope_fusion", "--no-rope-fusion"},
    {"check_for_nan_in_loss_and_grad", "--no-check-for-nan-in-loss-and-grad"}};

/// Arguments that have a value, their default, though what they belong to is off.
inline bool belongs_to_nothing(std::string_view name, const MegatronArguments& all) {
  const auto off = [&](std::string_view of) {
    return std::none_of(all.begin(), all.end(),
                        [&](const MegatronArgument& one) { return one.name == of && !one.is_off() && !one.is("0"); });
  };
  if (among(name, "recompute_method recompute_num_layers")) {
    return std::none_of(all.begin(), all.end(),
                        [](const MegatronArgument& one) { return one.name == "recompute_granularity" && one.is("full"); });
  }
  if (name == "recompute_modules") return off("recompute_granularity");
  if (among(name, "q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim")) return off("multi_latent_attention");
  if (name.starts_with("moe_")) return off("num_experts");
  if (name == "num_query_groups") return off("group_query_attention");
  return name == "data_parallel_sharding_strategy" && off("use_megatron_fsdp") && off("use_custom_fsdp");
}

/// Adds the arguments to `found` as flags; those that are off or None are left out.
/// @param complete  whether all arguments are there, most with their default: those that belong to
/// nothing are left out, and so are names that are no flag
/// @return  of names that are no flag, where `complete`, those that are switched on
inline std::vector<std::string> take_megatron_arguments(const MegatronArguments& all, SettingsText& found, bool complete) {
  const SettingsTable<MegatronFlags>& table = megatron_table();
  std::vector<std::string> unknown;
  for (const MegatronArgument& argument : all) {
    std::string flag = concat("--", argument.name);
    std::replace(flag.begin(), flag.end(), '_', '-');
    for (const auto& [name, renamed] : renamed_arguments) flag = argument.name == name ? renamed : flag;
    bool off = argument.is_off();
    bool is_switch = argument.is("True true");
    for (const auto& [name, negative] : negated_arguments) {
      if (argument.name != name) continue;
      flag = negative;
      is_switch = argument.is("False false 0");
      off = !is_switch;
    }
    if (off || (complete && belongs_to_nothing(argument.name, all))) continue;
    const auto named = [&](const auto& one) { return one.name == flag; };
    const auto field = std::find_if(table.fields.begin(), table.fields.end(), named);
    const bool is_field = field != table.fields.end();
    const bool skipped = among(flag, table.skipped) || among(flag, table.skipped_switches);
    if (complete && !is_field && !skipped && std::none_of(table.foreign.begin(), table.foreign.end(), named)) {
      if (is_switch) unknown.push_back(argument.name);
      continue;
    }
    Setting setting{flag, is_switch ? std::vector<std::string>{} : argument.words, argument.line, argument.unknown};
    if (is_field && std::holds_alternative<bool MegatronFlags::*>(field->member)) {
      if (argument.is("0")) continue;
      if (argument.is("1")) setting.values.clear();
    }
    if (is_field && field->list) {  // "[mlp layernorm]" and "mlp layernorm" are lists too
      std::vector<std::string> words;
      for (std::string value : setting.values) {
        std::erase_if(value, [](char c) { return c == '[' || c == ']' || c == ','; });
        for (const std::string_view word : split(value, ' ')) {
          if (!word.empty()) words.emplace_back(word);
        }
      }
      setting.values = std::move(words);
    }
    const bool text = is_field && !field->list && std::holds_alternative<std::string MegatronFlags::*>(field->member);
    if (text && setting.values.size() > 1) setting.values = {concat("[", join(setting.values, ","), "]")};  // a list of Python
    found.settings.push_back(std::move(setting));
  }
  return unknown;
}

}  // namespace tawpipe::v0::detail
