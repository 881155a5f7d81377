// Megatron-LM's flags of attention within windows, of sinks and of what comes with them in gpt-oss
// (biases, bounded functions, scaled positions): what they say of a model's layers.
// Not: the flags of equal layers (detail/megatron_reading.hpp), nor how these are written
// (detail/megatron_kinds_written.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/detail/layer_pattern.hpp"
#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/frameworks/megatron_flags.hpp"
#include "tawpipe/model/transformer_fields.hpp"

namespace tawpipe::inline v0::detail {

inline constexpr std::string_view window_flag = "--window-size";
inline constexpr std::string_view window_layers_flag = "--window-attn-skip-freq";
inline constexpr std::string_view softmax_flag = "--softmax-type";
inline constexpr std::string_view clamp_flag = "--activation-func-clamp-value";

/// Tokens that a token attends to within the window, with itself; 0: there is none. The flag has the
/// tokens before and after; the causal mask leaves none after.
/// Source: Transformer Engine, pytorch/attention/dot_product_attention: window_size; NVIDIA/Megatron-LM,
/// megatron/training/arguments.py: tuple_type.
inline int megatron_window(const ReadSettings<MegatronFlags>& read) {
  const std::string& text = read.values.window;
  if (text.empty()) return 0;
  std::string plain;
  for (const char c : text) plain += std::string_view{"()[],"}.find(c) == std::string_view::npos ? c : ' ';
  std::vector<int> sides;
  bool numbers = true;
  for (const std::string_view word : split(plain, ' ')) {
    if (word.empty()) continue;
    const std::optional<int> number = to_number<int>(word);
    numbers = numbers && number && *number >= -1 && *number < max_sequences;
    sides.push_back(number.value_or(0));
  }
  if (!numbers || sides.size() != 2) {
    read.fail(window_flag, concat("is the number of tokens before a token and the number after it, such as 127,0 (-1: all), not ",
                                  quote(text.substr(0, 60))));
  }
  return sides.front() + 1;
}

/// Whether the attention of each layer is within the window.
/// Source: NVIDIA/Megatron-LM, megatron/core/transformer/utils.py: is_layer_window_attention; of each N
/// layers the last has full attention, or a list has 1 for each layer with the window.
inline std::vector<char> megatron_window_layers(const ReadSettings<MegatronFlags>& read) {
  const MegatronFlags& flags = read.values;
  const auto layers = static_cast<std::size_t>(flags.layers);
  std::vector<char> within(layers, 1);
  const std::string_view text = trimmed(flags.window_layers);
  if (text.empty()) return within;
  if (const std::optional<int> each = to_number<int>(text)) {
    if (*each < 1) read.fail(window_layers_flag, concat(*each, " is not a number of layers; give 1 or more, or a list"));
    for (std::size_t layer = 0; layer < layers; ++layer) within[layer] = (layer + 1) % static_cast<std::size_t>(*each) != 0;
    return within;
  }
  const std::optional<std::vector<int>> pattern = layer_pattern(text);
  if (!pattern) {
    read.fail(
        window_layers_flag,
        concat("is a number of layers, of each so many the last has full attention, or a list with 1 for each layer within the "
               "window and 0 for others, such as ([1]*5+[0]*1)*4, not ",
               quote(flags.window_layers.substr(0, 60))));
  }
  if (pattern->size() != layers)
    read.fail(window_layers_flag, concat("the list has ", pattern->size(), " layers, and the model has ", layers));
  for (std::size_t layer = 0; layer < layers; ++layer) within[layer] = (*pattern)[layer] != 0;
  return within;
}

/// Whether experts' functions are bounded. Source: NVIDIA/Megatron-LM,
/// megatron/core/transformer/transformer_config.py: activation_func_clamp_value.
inline bool has_megatron_bounds(const MegatronFlags& flags) {
  return !flags.clamp.empty() && flags.experts > 0 && (flags.swiglu || flags.quick_geglu);
}

/// How a decoder of several kinds runs, as `of` does.
inline void take_runs(Transformer& model, const Transformer& of) {
  model.dtype = of.dtype;
  for (const auto& field : ModelFields<Transformer>::rows) {
    const std::int64_t value = field.get(of);
    if (field.group == FieldGroup::runs && field.key != "head_dim" && value >= 0) field.set(model, value);
  }
}

/// Gives the model its windows: all layers the same, or kinds of layers where these differ, or have
/// sinks or bounded functions. Layers of kinds have the biases that Megatron-LM has by default.
/// @pre the model without them is valid and complete
inline void read_megatron_kinds(const ReadSettings<MegatronFlags>& read, Transformer& model) {
  const MegatronFlags& flags = read.values;
  const bool fused = flags.fused_attention();
  const int window = megatron_window(read);
  const std::vector<char> said = megatron_window_layers(read);
  // Attention that is not fused computes all scores, and masks those out of the window.
  const bool some = window > 0 && fused;
  const auto count = some ? std::count(said.begin(), said.end(), 1) : 0;
  const bool sinks = flags.softmax != "vanilla";
  const auto fail_if = [&](bool fails, std::string_view flag, std::string_view why) {
    if (fails) read.fail(flag, why);
  };
  fail_if(count > 0 && flags.latent, window_flag, "windows of latent attention are not modelled; leave it out");
  fail_if(sinks && flags.latent, softmax_flag, "sinks of latent attention are not modelled; give vanilla");
  fail_if(sinks && !fused, softmax_flag, "sinks are known with fused attention only; give vanilla, or fused attention");
  const bool bounded = has_megatron_bounds(flags) && !flags.latent;
  const bool all = count == std::ssize(said);
  if (!sinks && !bounded && (count == 0 || all)) {
    model.window = all && count > 0 ? window : 0;
    return;
  }
  const bool biases = !flags.no_bias;
  fail_if(biases && flags.experts > 0 && flags.shared_ffn > 0, "--moe-shared-expert-intermediate-size",
          "a shared expert has no biases, with which Megatron-LM stops; give --disable-bias-linear");
  Model decoder = model.decoder();
  const std::vector<LayerKind> equal = std::exchange(decoder.kinds, {});
  for (std::size_t layer = 0; layer < decoder.pattern.size(); ++layer) {
    LayerKind kind = equal[decoder.pattern[layer]];
    const bool within = some && said[layer] != 0;
    Attention& attention = std::get<Attention>(kind.sublayers[0]);
    attention.turned = attention.turned < 0 ? attention.head_dim : attention.turned;
    attention.scaled = flags.has_scaled_positions();
    attention.window = within ? window : 0;
    attention.sinks = sinks;
    attention.qkv_bias = attention.qkv_bias || (biases && !flags.latent);
    attention.output_bias = biases;
    if (auto* const experts = std::get_if<Mixture>(&kind.sublayers[1])) {
      experts->bias = experts->router_bias = biases;
      experts->bounded = bounded;
      kind.name = within ? "window, mixture" : "full, mixture";
    } else {
      std::get<Mlp>(kind.sublayers[1]).bias = biases;
      kind.name = within ? "window, dense" : "full, dense";
    }
    const auto found = std::find(decoder.kinds.begin(), decoder.kinds.end(), kind);
    decoder.pattern[layer] = static_cast<std::uint8_t>(found - decoder.kinds.begin());
    if (found == decoder.kinds.end()) decoder.kinds.push_back(std::move(kind));
  }
  std::fill(decoder.mtp.begin(), decoder.mtp.end(), decoder.pattern.back());
  try {
    Transformer kinds = Transformer::of(decoder);
    take_runs(kinds, model);
    kinds.check();
    model = std::move(kinds);
  } catch (const InputError& error) {
    read.fail(sinks ? softmax_flag : count > 0 ? window_flag : clamp_flag, error.what());
  }
}

/// Whether any layer of the model has attention within a window, or sinks.
struct SpecialAttention {
  bool windows = false;
  bool sinks = false;
};
inline SpecialAttention special_attention(const Transformer& model) {
  SpecialAttention found{.windows = !model.has_kinds() && model.window > 0};
  for (const LayerKind& kind : model.kinds) {
    for (const LayerKind::Sublayer& sublayer : kind.sublayers) {
      const auto* const attention = std::get_if<Attention>(&sublayer);
      if (attention == nullptr) continue;
      found.windows = found.windows || attention->window > 0;
      found.sinks = found.sinks || attention->sinks;
    }
  }
  return found;
}

/// Why context-parallel ranks cannot exchange keys so; empty: they can.
/// Source: Transformer Engine 2.8, pytorch/attention/dot_product_attention/context_parallel.py:
/// attn_forward_func_with_cp.
inline std::string why_not_exchanged(const Transformer& model, int context, ContextExchange exchange) {
  if (context == 1) return {};
  const SpecialAttention has = special_attention(model);
  if (has.sinks && exchange != ContextExchange::all_to_all) return "Transformer Engine exchanges heads where attention has sinks";
  if (has.windows && exchange != ContextExchange::all_to_all && exchange != ContextExchange::all_gather)
    return "Transformer Engine has no ring of attention within a window";
  return {};
}

/// Whether experts of the model have biases.
inline bool has_expert_biases(const Transformer& model) {
  return std::any_of(model.kinds.begin(), model.kinds.end(), [](const LayerKind& kind) {
    const auto* const experts = kind.sublayers.size() == 2 ? std::get_if<Mixture>(&kind.sublayers[1]) : nullptr;
    return experts != nullptr && experts->bias;
  });
}

/// Refuses what Megatron-LM stops at, and notes what of windows, sinks and functions is simulated otherwise.
/// @pre the job has its mesh, model and exchange
inline void check_megatron_kinds(ReadSettings<MegatronFlags>& read, const FrameworkJob& job) {
  const MegatronFlags& flags = read.values;
  if (!job.model) return;
  const bool offset = flags.glu_offset.find_first_not_of("0.") != std::string::npos;
  if (offset && flags.swiglu && !flags.unfused_swiglu)
    read.fail("--glu-linear-offset", "is of --quick-geglu; with --swiglu Megatron-LM stops");
  if (const std::string why = why_not_exchanged(*job.model, flags.context, job.context_exchange); !why.empty())
    read.fail("--cp-comm-type", concat(why, "; give ", special_attention(*job.model).sinks ? "a2a" : "all_gather or a2a",
                                       ", not ", flags.context_exchange));
  if (!flags.window.empty() && !flags.fused_attention() && megatron_window(read) > 0)
    read.note(window_flag, "attention that is not fused computes all scores, also those out of the window; simulated so");
  if (!flags.clamp.empty() && flags.latent && has_megatron_bounds(flags))
    read.note(clamp_flag, "simulated without bounds, in layers of latent attention");
  if (flags.softmax == "off-by-one") read.note(softmax_flag, "is off-by-one; simulated as learnable, with a number a head");
  if (flags.has_scaled_positions() && !job.model->has_kinds() && !flags.latent)
    read.note("--position-embedding-type", "simulated as rope, in one kernel");
  if (job.model->has_kinds() && flags.expert_groups > 1)
    read.note("--moe-router-num-groups", "simulated without groups, in layers of several kinds");
  if (!has_expert_biases(*job.model)) return;
  if (flags.tensor > 1 && !job.mesh.whole_experts) {
    read.fail("--tensor-model-parallel-size",
              "experts with biases are not split by tensor parallelism, where Megatron-LM stops; give --disable-bias-linear, or "
              "--expert-tensor-parallel-size 1 with --expert-model-parallel-size");
  }
  if (!flags.unfused_dropout)
    read.note("--no-bias-dropout-fusion", "is not set, without which grouped experts with biases stop; simulated as if it were");
}

}  // namespace tawpipe::v0::detail
