// Mixtures of experts in tables of published runs: the model, and how tokens get to experts.
// Not: what all rows have (truth.cpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "tawpipe/core/text.hpp"
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

/// The experts of a mixture, or why they cannot be expressed.
inline std::string take_experts(const TruthRow& row, Transformer& model) {
  model.experts = row.experts;
  model.experts_per_token = row.topk;
  model.gated = true;
  if (const std::optional<Transformer> known = known_model(row)) {
    const int vocab = model.vocab;
    model = *known;
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
