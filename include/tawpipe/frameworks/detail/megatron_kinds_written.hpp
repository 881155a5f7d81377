// What Megatron-LM's flags say of decoders of several kinds of layers, and of windows in all of them: why a
// decoder cannot be written, and how it is.
// Not: reading them (detail/megatron_kinds.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/detail/megatron_experts.hpp"
#include "tawpipe/frameworks/detail/megatron_kinds.hpp"
#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/frameworks/megatron_flags.hpp"

namespace tawpipe::inline v0::detail {

/// What of a kind of layers no flag says; empty: flags say all of it.
inline std::string unsaid_of_kind(const LayerKind& kind) {
  for (const LayerKind::Sublayer& sublayer : kind.sublayers) {
    if (std::holds_alternative<DeltaNet>(sublayer)) return "layers of gated delta nets for pretrain_gpt.py";
    if (std::holds_alternative<Mamba2>(sublayer)) return "layers of Mamba-2 for pretrain_gpt.py";
  }
  const auto* const attention = kind.sublayers.size() == 2 ? std::get_if<Attention>(&kind.sublayers[0]) : nullptr;
  if (attention == nullptr || std::holds_alternative<Attention>(kind.sublayers[1]))
    return "layers of other parts than an attention and an MLP";
  if (kind.norms != NormPlace::before) return "norms at other places than before attention and MLP";
  if (kind.norm_bias) return "norms with a bias in layers of several kinds";
  if (attention->key_value_rank > 0) return "latent attention in layers of several kinds";
  if (attention->chunk > 0) return "attention within chunks";
  if (attention->index_heads > 0) return "attention to keys that an index picks";
  if (attention->gate) return "the gate of attention's result";
  if (attention->value_dim > 0 && attention->value_dim != attention->head_dim) return "values of a size of their own";
  if (attention->turned >= 0 && attention->turned != attention->head_dim) return "positions that turn a part of each head";
  if (attention->qk_norm == QkNorm::width) return "norms of all queries and of all keys";
  if (const auto* const experts = std::get_if<Mixture>(&kind.sublayers[1])) {
    if (experts->shared_gate) return "the gate of a shared expert";
    if (experts->latent > 0) return "experts of a vector of another width";
    if (experts->bias && experts->shared_width > 0) return "a shared expert beside experts with biases";
    if (experts->function == MlpFunction::squared_relu) return "squared ReLU in layers of several kinds";
    if (experts->bias != attention->output_bias || experts->router_bias != experts->bias) return "biases of some products";
  } else if (const Mlp& mlp = std::get<Mlp>(kind.sublayers[1]); mlp.function == MlpFunction::squared_relu) {
    return "squared ReLU in layers of several kinds";
  } else if (mlp.bias != attention->output_bias) {
    return "biases of some products";
  }
  return attention->output_bias && !attention->qkv_bias ? "biases of some products" : "";
}

/// What of a model of several kinds no flag says; empty: flags say all of it.
inline std::string unsaid_of_kinds(const Transformer& model) {
  for (const std::uint8_t kind : model.pattern) {
    if (std::string unsaid = unsaid_of_kind(model.kinds[kind]); !unsaid.empty()) return unsaid;
  }
  Attention equal = std::get<Attention>(model.kinds[model.pattern.front()].sublayers[0]);
  const int dense = dense_first_of(model);
  int window = 0;
  const LayerKind::Sublayer& first = model.kinds[model.pattern.front()].sublayers[1];
  const LayerKind::Sublayer& last = model.kinds[model.pattern.back()].sublayers[1];
  for (std::size_t layer = 0; layer < model.pattern.size(); ++layer) {
    const LayerKind& kind = model.kinds[model.pattern[layer]];
    Attention attention = std::get<Attention>(kind.sublayers[0]);
    if (attention.window > 0 && window > 0 && attention.window != window) return "windows of several sizes";
    window = std::max(window, attention.window);
    attention.window = equal.window = 0;
    if (attention != equal) return "attention that differs in more than its window";
    if (kind.sublayers[1] != (std::cmp_less(layer, dense) ? first : last))
      return "MLPs of several sizes other than of first layers without experts";
  }
  if (model.positions > 0) return "learned positions in layers of several kinds";
  if (model.norm_bias) return "a final norm with a bias in layers of several kinds";
  if (std::any_of(model.mtp.begin(), model.mtp.end(), [&](std::uint8_t kind) { return kind != model.pattern.back(); }))
    return "layers that predict further tokens and are other than the last";
  return {};
}

/// Why Megatron-LM cannot run the job's windows and kinds of layers.
inline void need_for_megatron_kinds(Reasons& reasons, const FrameworkJob& job) {
  if (!job.model) return;
  std::string exchange = why_not_exchanged(*job.model, job.mesh.context, job.context_exchange);
  reasons.add_if(!exchange.empty(), concat(exchange, " (--context-exchange)"));
  if (!job.model->has_kinds()) return;
  if (const std::string unsaid = unsaid_of_kinds(*job.model); !unsaid.empty()) {
    reasons.add_if(true, concat("no flag says ", unsaid));
    return;
  }
  reasons.add_if(has_expert_biases(*job.model) && job.mesh.tensor > 1 && !job.mesh.whole_experts,
                 "experts with biases are not split by tensor parallelism");
}

/// The model of equal layers whose flags are those of a model of several kinds, but for what
/// write_megatron_kinds() writes. @pre megatron_cannot() is empty
inline Transformer equal_layers_of(const Transformer& model) {
  if (!model.has_kinds()) return model;
  Transformer equal = model;
  const LayerKind& last = model.kinds[model.pattern.back()];
  const auto& attention = std::get<Attention>(last.sublayers[0]);
  equal.qkv_bias = attention.qkv_bias && !attention.output_bias;
  equal.qk_norm = attention.qk_norm;
  if (const auto* const experts = std::get_if<Mixture>(&last.sublayers[1])) {
    equal.gated = experts->function == MlpFunction::gated;
    equal.dense_layers = dense_first_of(model);
    if (equal.dense_layers > 0) equal.dense_width = std::get<Mlp>(model.kinds[model.pattern.front()].sublayers[1]).width;
  } else {
    equal.gated = std::get<Mlp>(last.sublayers[1]).function == MlpFunction::gated;
  }
  equal.window = 0;
  equal.kinds.clear();
  equal.pattern.clear();
  return equal;
}

/// --window-attn-skip-freq: a number where every so many layers one has full attention, else a list.
inline std::string window_layers_text(const std::vector<char>& within) {
  const auto full = std::find(within.begin(), within.end(), 0) - within.begin();
  if (full == std::ssize(within)) return {};
  bool regular = true;
  for (std::ptrdiff_t layer = 0; layer < std::ssize(within); ++layer) {
    const bool wanted = (layer + 1) % (full + 1) != 0;
    regular = regular && (within[static_cast<std::size_t>(layer)] != 0) == wanted;
  }
  if (regular) return std::to_string(full + 1);
  std::string runs;
  for (auto at = within.begin(); at != within.end();) {
    const auto end = std::find_if(at, within.end(), [&](char other) { return other != *at; });
    runs += concat(runs.empty() ? "" : "+", "[", int{*at}, "]*", end - at);
    at = end;
  }
  return concat("(", runs, ")");
}

/// Sets the flags of the model's windows and kinds of layers. @pre megatron_cannot() is empty, and the
/// other flags are set
inline void write_megatron_kinds(const Transformer& model, MegatronFlags& flags) {
  if (!model.has_kinds()) {
    if (model.window > 0) flags.window = concat(model.window - 1, ",0");
    return;
  }
  std::vector<char> within;
  int window = 0;
  for (const std::uint8_t kind : model.pattern) {
    const int of = std::get<Attention>(model.kinds[kind].sublayers[0]).window;
    within.push_back(of > 0 ? 1 : 0);
    window = std::max(window, of);
  }
  if (window > 0) {
    flags.window = concat(window - 1, ",0");
    flags.window_layers = window_layers_text(within);
  }
  const LayerKind& last = model.kinds[model.pattern.back()];
  const auto& attention = std::get<Attention>(last.sublayers[0]);
  if (attention.sinks) flags.softmax = "learnable";
  flags.no_bias = !attention.output_bias;
  if (attention.scaled) {  // gpt-oss's factor and positions, which change no time
    flags.positions_kind = "yarn";
    flags.rotary_factor = "32.0";
    flags.unscaled_positions = 4096;
    flags.unfused_positions = true;
  }
  flags.unfused_dropout = has_expert_biases(model);
  const auto* const experts = std::get_if<Mixture>(&last.sublayers[1]);
  if (experts == nullptr || !experts->bounded) return;
  flags.quick_geglu = true;  // with gpt-oss's offset and bound, which change no time
  flags.glu_offset = "1.0";
  flags.clamp = "7.0";
  flags.swiglu = flags.unfused_swiglu = false;
  flags.unfused_geglu = !model.fused_swiglu;
}

}  // namespace tawpipe::v0::detail
