// Megatron-LM's flags of hybrid decoders, of layers of Mamba-2, gated delta nets, attention, MLPs and experts:
// the layers that they say, and the stages.
// Not: flags of equal layers (detail/megatron_reading.hpp), windows and sinks (detail/megatron_kinds.hpp).
#pragma once

#include <algorithm>
#include <cmath>
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
#include "tawpipe/frameworks/detail/megatron_kinds.hpp"
#include "tawpipe/frameworks/megatron_flags.hpp"

namespace tawpipe::inline v0::detail {

/// The flag that says which layers there are; empty: all are alike.
inline std::string_view hybrid_flag(const ReadSettings<MegatronFlags>& read) {
  for (const std::string_view flag : {"--hybrid-layer-pattern", "--hybrid-override-pattern", "--hybrid-attention-ratio",
                                      "--hybrid-mlp-ratio", "--is-hybrid-model"}) {
    if (read.has(flag)) return flag;
  }
  return {};
}

/// A letter for each layer where flags have shares of the layers: attention evenly between the others, and then
/// MLPs evenly in place of Mamba-2.
/// Source: NVIDIA/Megatron-LM, megatron/core/models/hybrid/hybrid_layer_allocation.py: pattern_from_ratios.
inline std::string letters_by_shares(int layers, double attention, double mlps) {
  std::string letters(static_cast<std::size_t>(layers), 'M');
  const auto place = [&](char letter, double each) {
    double left = each;
    for (char& one : letters) {
      if (one != 'M') continue;
      const bool here = left < 0.5;
      if (here) one = letter;
      left += here ? each : -1;
    }
  };
  const double with = std::nearbyint(layers * attention);
  if (with > 0) place('*', (layers - with) / (with + 1));
  if (const double count = std::nearbyint(layers * mlps); count > 0) place('-', (layers - with - count) / count);
  return letters;
}

/// A hybrid decoder's layers by letter, and how they lie on stages.
struct HybridLayers {
  std::string letters;
  std::vector<std::int32_t> stages;  ///< layers of each; empty: not said
  std::vector<std::string> further;  ///< the letters of each layer that predicts a further token
};

/// "M-M*|M-ME/*E/*E": layers, "|" between stages, then those that predict further tokens.
/// Source: as letters_by_shares(): Symbols, ParsedHybridPattern; megatron/training/arguments.py: validate_args
/// (August 2026; --hybrid-override-pattern is its old name).
inline HybridLayers hybrid_layers(const ReadSettings<MegatronFlags>& read) {
  const MegatronFlags& flags = read.values;
  const std::string_view named = hybrid_flag(read);
  HybridLayers found;
  if (!flags.hybrid_pattern.empty() && !flags.hybrid_override.empty())
    read.fail("--hybrid-override-pattern", "not with --hybrid-layer-pattern, whose old name it is");
  const std::string& pattern = flags.hybrid_pattern.empty() ? flags.hybrid_override : flags.hybrid_pattern;
  if (pattern.empty()) {
    const auto share = [&](std::string_view flag, const std::string& text) {
      const std::optional<double> part = to_number<double>(text);
      if (!part || !(*part >= 0 && *part <= 1)) read.fail(flag, concat(quote(text.substr(0, 60)), " is not a part of 1"));
      return *part;
    };
    const double attention = share("--hybrid-attention-ratio", flags.attention_share);
    const double mlps = share("--hybrid-mlp-ratio", flags.mlp_share);
    if (attention + mlps > 1) read.fail(named, "attention and MLPs are more than all layers");
    found.letters = letters_by_shares(std::clamp(flags.layers, 0, Transformer::max_layers), attention, mlps);
    return found;
  }
  const std::vector<std::string_view> parts = split(pattern, '/');
  const std::vector<std::string_view> stages = split(parts.front(), '|');
  for (const std::string_view stage : stages) {
    found.letters += stage;
    if (stages.size() > 1) found.stages.push_back(static_cast<std::int32_t>(stage.size()));
  }
  found.further.assign(parts.begin() + 1, parts.end());
  std::string all = found.letters;
  for (const std::string& one : found.further) all += one;
  if (const auto at = all.find_first_not_of("MG*-E"); at != std::string::npos) {
    read.fail(named, concat("layers ", quote(all.substr(at, 1)),
                            " are not modelled; M (Mamba-2), G (gated delta net), * (attention), - (MLP) and E (experts) are"));
  }
  if (found.letters.empty() || std::cmp_greater(found.letters.size(), Transformer::max_layers))
    read.fail(named, concat("has ", found.letters.size(), " layers, and not 1 to ", Transformer::max_layers));
  return found;
}

/// Takes the number of layers, and of those that predict further tokens, from the pattern, as Megatron-LM does.
inline void count_hybrid_layers(ReadSettings<MegatronFlags>& read) {
  const std::string_view named = hybrid_flag(read);
  if (named.empty() || !named.ends_with("-pattern")) return;
  const HybridLayers found = hybrid_layers(read);
  const auto layers = static_cast<int>(found.letters.size());
  MegatronFlags& flags = read.values;
  if (flags.layers != 0 && flags.layers != layers) read.note("--num-layers", concat("the pattern's ", layers, " layers count"));
  flags.layers = layers;
  if (found.further.empty()) return;
  const auto further = static_cast<int>(found.further.size());
  if (flags.mtp_layers != 0 && flags.mtp_layers != further)
    read.note("--mtp-num-layers", concat("the pattern's ", further, " count"));
  flags.mtp_layers = further;
}

/// A layer by its letter. @param equal  attention and MLP or experts of a layer where all are alike
inline LayerKind::Sublayer hybrid_sublayer(const ReadSettings<MegatronFlags>& read, const LayerKind& equal, char letter) {
  const MegatronFlags& flags = read.values;
  const MlpFunction function = flags.is_gated()     ? MlpFunction::gated
                               : flags.squared_relu ? MlpFunction::squared_relu
                                                    : MlpFunction::plain;
  if (letter == '*') {
    Attention attention = std::get<Attention>(equal.sublayers[0]);
    attention.turned = flags.positions_kind == "none" ? 0 : attention.turned;
    attention.qkv_bias = attention.qkv_bias || !flags.no_bias;
    attention.output_bias = !flags.no_bias;
    return attention;
  }
  if (letter == 'M') {
    const int heads = flags.mamba_heads > 0 ? flags.mamba_heads : 2 * flags.hidden / std::max(1, flags.mamba_head_size);
    return Mamba2{.heads = heads, .head_dim = flags.mamba_head_size, .groups = flags.mamba_groups, .state = flags.mamba_state};
  }
  if (letter == 'G') {
    return DeltaNet{.key_heads = flags.delta_key_heads,
                    .value_heads = flags.delta_value_heads,
                    .key_dim = flags.delta_key_size,
                    .value_dim = flags.delta_value_size,
                    .convolution = flags.delta_convolution};
  }
  if (letter == '-') {
    const int width = flags.ffn > 0 ? flags.ffn : std::get<Mlp>(equal.sublayers[1]).width;
    return Mlp{.width = width, .function = function, .bias = !flags.no_bias};
  }
  const auto* const experts = std::get_if<Mixture>(&equal.sublayers[1]);
  if (experts == nullptr) read.fail(hybrid_flag(read), "layers E need --num-experts in the same file");
  Mixture mixture = *experts;
  mixture.function = function;
  mixture.bias = mixture.router_bias = !flags.no_bias;
  return mixture;
}

/// Gives the model the layers of a pattern, each with one part. @pre the model of equal layers is valid and
/// complete, with as many layers
inline void read_megatron_hybrid(const ReadSettings<MegatronFlags>& read, Transformer& model) {
  const std::string_view named = hybrid_flag(read);
  if (named.empty()) return;
  const MegatronFlags& flags = read.values;
  if (flags.latent) read.fail("--multi-latent-attention", concat("not with ", named, ", where latent attention is not modelled"));
  if (model.has_kinds() || model.window > 0)
    read.fail(named, "windows, sinks and bounded functions of its layers are not modelled");
  if (flags.experts > 0 && trimmed(flags.expert_layers) != "1")
    read.fail("--moe-layer-freq", concat("not with ", named, ", whose layers E have experts"));
  const HybridLayers layers = hybrid_layers(read);
  Model decoder = model.decoder();
  const LayerKind equal = decoder.kinds[decoder.pattern.back()];
  decoder.kinds.clear();
  const auto number_of = [&](std::string_view letters) {
    LayerKind kind = equal;
    kind.sublayers.clear();
    kind.name = concat("layer ", letters);
    for (const char letter : letters) kind.sublayers.push_back(hybrid_sublayer(read, equal, letter));
    const auto found = std::find(decoder.kinds.begin(), decoder.kinds.end(), kind);
    const auto number = static_cast<std::uint8_t>(found - decoder.kinds.begin());
    if (found == decoder.kinds.end()) decoder.kinds.push_back(std::move(kind));
    return number;
  };
  for (std::size_t layer = 0; layer < layers.letters.size(); ++layer)
    decoder.pattern[layer] = number_of(std::string_view{layers.letters}.substr(layer, 1));
  for (std::size_t layer = 0; layer < decoder.mtp.size(); ++layer) {
    if (layers.further.empty())
      read.fail("--mtp-num-layers", concat("needs the layers of each, after a / in --hybrid-layer-pattern"));
    decoder.mtp[layer] = number_of(layers.further[layer]);
  }
  try {
    Transformer hybrid = Transformer::of(decoder);
    take_runs(hybrid, model);
    hybrid.check();
    model = std::move(hybrid);
  } catch (const InputError& error) {
    read.fail(named, error.what());
  }
}

}  // namespace tawpipe::v0::detail
