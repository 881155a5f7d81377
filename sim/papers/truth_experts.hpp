// Mixtures of experts in tables of published runs: the model, and how tokens get to experts.
// Not: what all rows have (truth.cpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tawpipe/core/text.hpp"
#include "tawpipe/model/layer_kind.hpp"
#include "tawpipe/model/model.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/transformer.hpp"
#include "truth.hpp"

namespace tawpipe::sim {

/// The known model that a row's name begins with, with the sizes that it gives, for those that no
/// column has.
inline std::optional<Transformer> known_model(const TruthRow& row) {
  std::string text = lower_case(row.model);
  std::replace(text.begin(), text.end(), '_', '-');
  std::optional<Transformer> found;
  std::size_t longest = 0;
  for (const models::ModelPreset& preset : models::all()) {
    if (!text.starts_with(preset.name) || preset.name.size() < longest) continue;
    const Transformer model = preset.make();
    const bool same = model.layers == row.layers && model.hidden == row.hidden && model.heads == row.heads &&
                      model.experts == row.experts && model.experts_per_token == row.topk;
    if (!same) continue;
    longest = preset.name.size();
    found = model;
  }
  return found;
}

/// gpt-oss with what its preset leaves out: a window of 128 in every second layer, sinks, biases, bounded
/// functions, and positions scaled by YaRN. Source: Megatron-Bridge, models/gpt_oss/gpt_oss_provider.py.
inline Transformer whole_gpt_oss(const Transformer& sizes) {
  const Attention full{.heads = sizes.heads,
                       .kv_heads = sizes.kv_heads,
                       .head_dim = static_cast<int>(sizes.head_size()),
                       .scaled = true,
                       .sinks = true,
                       .qkv_bias = true,
                       .output_bias = true};
  Attention window = full;
  window.window = 128;
  const Mixture experts{.experts = sizes.experts,
                        .per_token = sizes.experts_per_token,
                        .width = sizes.intermediate,
                        .bias = true,
                        .bounded = true,
                        .router_bias = true};
  Model model{.name = sizes.name,
              .hidden = sizes.hidden,
              .vocab = sizes.vocab,
              .kinds = {{.name = "window", .sublayers = {window, experts}}, {.name = "full", .sublayers = {full, experts}}}};
  for (int layer = 0; layer < sizes.layers; ++layer) model.pattern.push_back(static_cast<std::uint8_t>(layer % 2));
  return Transformer::of(model);
}

/// The experts of a mixture, or why they cannot be expressed.
inline std::string take_experts(const TruthRow& row, Transformer& model) {
  model.experts = row.experts;
  model.experts_per_token = row.topk;
  model.gated = true;
  if (const std::optional<Transformer> known = known_model(row)) {
    const int vocab = model.vocab;
    model = known->name == "gpt-oss-120b" ? whole_gpt_oss(*known) : *known;
    model.name = row.model;
    model.vocab = vocab;
  } else if (lower_case(row.model).find("deepseek") != std::string::npos) {
    return "the row does not say: latent attention's sizes, experts' width";
  }
  return {};
}

/// Whether tokens get to experts by HybridEP, as flags in lower case say; where a row of Megatron-Bridge has
/// none, on NVL72, as all its recipes there (v0.2.0, scripts/performance/configs/qwen3 and deepseek,
/// workload_base_configs.py).
inline bool sends_by_hybridep(const TruthRow& row, const std::string& flags) {
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const bool recipe = row.source == "megatron_bridge" && flags.empty();
  return has(flags, "moe_flex_dispatcher_backend=hybridep") ||
         (recipe && (has(row.hardware, "GB200") || has(row.hardware, "GB300")));
}

}  // namespace tawpipe::sim
