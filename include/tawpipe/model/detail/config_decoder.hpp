// The kinds of layers that a config.json describes, and what of them equal layers cannot say.
// Not: the reading of keys (model/detail/config_parts.hpp, model/detail/config_layers.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/detail/config_layers.hpp"
#include "tawpipe/model/detail/config_reading.hpp"
#include "tawpipe/model/detail/decoder_types.hpp"
#include "tawpipe/model/layer_kind.hpp"
#include "tawpipe/model/model.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

inline Attention attention_of(ConfigReading& reading) {
  const Transformer& model = reading.model();
  Attention attention{.heads = model.heads,
                      .kv_heads = model.kv_heads,
                      .head_dim = static_cast<int>(model.head_size()),
                      .value_dim = model.value_size,
                      .scaled = reading.type.expert_bias,  // gpt-oss's class has YaRN
                      .sinks = reading.type.sinks,
                      .gate = reading.type.output_gate || reading.type.is_unknown()
                                  ? reading.flag("attn_output_gate", reading.type.output_gate)
                                  : false,
                      .qkv_bias = model.qkv_bias,
                      .output_bias = model.output_bias,
                      .qk_norm = model.qk_norm,
                      .query_rank = model.query_rank,
                      .key_value_rank = model.key_value_rank};
  attention.turned = model.is_latent()                ? model.rope_width
                     : reading.type.learned_positions ? 0
                                                      : static_cast<int>(reading.constants().rotary_part * attention.head_dim);
  if (reading.type.does_read(value_size) && !model.is_latent()) {
    attention.value_dim = reading.size("v_head_dim", 0);
    attention.sinks = reading.flag("add_full_attention_sink_bias", false);
  }
  if (reading.type.does_read(indexed)) {
    attention.index_heads = reading.need("index_n_heads").whole<int>(1, Transformer::max_hidden);
    attention.index_dim = reading.need("index_head_dim").whole<int>(1, Transformer::max_hidden);
    attention.index_tokens = reading.need("index_topk").whole<int>(1);
  }
  return attention;
}

/// Attention within a window, where that has other sizes. Source: the code of MiMo-V2-Flash.
inline Attention windowed(ConfigReading& reading, Attention attention, int tokens) {
  attention.window = tokens;
  if (!reading.type.does_read(value_size)) return attention;
  if (const auto same = reading.take("attention_chunk_size"); same && same->whole<int>() != tokens)
    same->fail(concat("is another name of the window here, ", tokens));
  attention.heads = reading.size("swa_num_attention_heads", attention.heads, 1);
  attention.kv_heads = reading.size("swa_num_key_value_heads", attention.kv_heads, 1);
  attention.head_dim = reading.size("swa_head_dim", attention.head_dim, 1);
  attention.value_dim = reading.size("swa_v_head_dim", attention.value_dim);
  attention.sinks = reading.flag("add_swa_attention_sink_bias", attention.sinks);
  return attention;
}

inline DeltaNet delta_net_of(ConfigReading& reading) {
  const auto size = [&](std::string_view key) { return reading.need(key).whole<int>(1, Transformer::max_hidden); };
  return {.key_heads = size("linear_num_key_heads"),
          .value_heads = size("linear_num_value_heads"),
          .key_dim = size("linear_key_head_dim"),
          .value_dim = size("linear_value_head_dim"),
          .convolution = reading.size("linear_conv_kernel_dim", 4, 1)};
}

inline Mamba2 mamba_of(ConfigReading& reading) {
  Mamba2 part{.heads = reading.need("mamba_num_heads").whole<int>(1, Transformer::max_hidden),
              .groups = reading.size("n_groups", 1, 1),
              .state = reading.need("ssm_state_size").whole<int>(1, Transformer::max_hidden),
              .convolution = reading.size("conv_kernel", 4, 1),
              .convolution_bias = reading.flag("use_conv_bias", true)};
  const int expand = reading.size("expand", 2, 1);
  const auto size = reading.take("mamba_head_dim");
  part.head_dim =
      size && !size->is_text() ? size->whole<int>(1, Transformer::max_hidden) : expand * reading.model().hidden / part.heads;
  const bool of_both = reading.flag("mamba_proj_bias", false);
  part.bias = reading.flag("use_bias", of_both) || of_both;
  return part;
}

inline MlpFunction function_of(const ConfigReading& reading) {
  if (reading.read.model.gated) return MlpFunction::gated;
  return reading.read.constants.activation == "relu2" ? MlpFunction::squared_relu : MlpFunction::plain;
}

/// "window" of a letter, for messages.
inline std::string_view name_of(char letter) {
  switch (letter) {
    case 'f':
      return "full";
    case 's':
      return "window";
    case 'c':
      return "chunk";
    case 'l':
      return "linear";
    case 'm':
      return "mamba";
    case 'e':
      return "mixture";
    case 'd':
      return "dense";
    default:
      return "";
  }
}

/// Fills in the decoder by kinds of layers. @pre the Transformer's fields are
inline void build_decoder(ConfigReading& reading, const LayerLetters& letters, NormPlace norms) {
  const Transformer& model = reading.model();
  const DecoderType& type = reading.type;
  Model& decoder = reading.read.decoder;
  const bool shift = type.norm_weights == NormWeights::scale_and_shift;
  decoder.name = model.name;
  decoder.hidden = model.hidden;
  decoder.vocab = model.vocab;
  decoder.tied = model.tied;
  decoder.positions = type.learned_positions ? reading.constants().positions + type.more_positions : 0;
  decoder.final_norm_bias = shift;
  const auto has = [&](char letter) { return letters.mixers.find(letter) != std::string::npos; };
  const Attention full = has('f') || has('s') || has('c') ? attention_of(reading) : Attention{};
  const Attention window = has('s') ? windowed(reading, full, letters.window) : full;
  Attention chunk = full;
  chunk.chunk = letters.chunk;
  const DeltaNet linear = has('l') ? delta_net_of(reading) : DeltaNet{};
  const Mamba2 state_space = has('m') ? mamba_of(reading) : Mamba2{};
  const Mlp mlp{.width = model.is_routed() ? model.dense_width : model.intermediate,
                .function = function_of(reading),
                .bias = model.mlp_bias};
  const Mixture mixture{.experts = model.experts,
                        .per_token = model.experts_per_token,
                        .width = model.intermediate,
                        .shared_width = model.shared_width,
                        .function = function_of(reading),
                        .bias = type.expert_bias || model.mlp_bias,
                        .bounded = type.expert_bias,
                        .router_bias = type.expert_bias,
                        .shared_gate = model.shared_gate,
                        .latent = type.does_read(mamba) && model.is_routed() ? reading.size("moe_latent_size", 0) : 0};
  std::vector<std::pair<char, char>> known;
  for (std::size_t i = 0; i < letters.mixers.size(); ++i) {
    const std::pair of{letters.mixers[i], letters.mlps[i]};
    const auto found = std::find(known.begin(), known.end(), of);
    decoder.pattern.push_back(static_cast<std::uint8_t>(found - known.begin()));
    if (found != known.end()) continue;
    known.push_back(of);
    LayerKind kind{.norms = norms, .norm_bias = shift};
    switch (of.first) {
      case 'f':
        kind.sublayers.emplace_back(full);
        break;
      case 's':
        kind.sublayers.emplace_back(window);
        break;
      case 'c':
        kind.sublayers.emplace_back(chunk);
        break;
      case 'l':
        kind.sublayers.emplace_back(linear);
        break;
      case 'm':
        kind.sublayers.emplace_back(state_space);
        break;
      default:
        break;
    }
    if (of.second == 'e') kind.sublayers.emplace_back(mixture);
    if (of.second == 'd') kind.sublayers.emplace_back(mlp);
    kind.name = concat(name_of(of.first), of.first == '-' || of.second == '-' ? "" : ", ", name_of(of.second));
    decoder.kinds.push_back(std::move(kind));
  }
  if (const auto further = reading.take("num_nextn_predict_layers")) {
    const int count = further->whole<int>(0, Transformer::max_layers);
    decoder.mtp.assign(static_cast<std::size_t>(count), decoder.pattern.back());
    if (count > 0)
      reading.not_computed(reading.named("num_nextn_predict_layers"),
                           concat(count, count == 1 ? " layer that predicts" : " layers that predict",
                                  " further tokens, with the loss, not computed"));
  }
}

/// What equal layers cannot say, as the beginning of a sentence; empty: they say all but norms.
inline std::string unequal_layers(const ConfigReading& reading, const LayerLetters& letters) {
  const auto in_layers = [&](char letter) {
    const auto count = std::count(letters.mixers.begin(), letters.mixers.end(), letter);
    return concat(" in ", count, " of ", letters.mixers.size(), " layers");
  };
  const auto has = [&](char letter) { return letters.mixers.find(letter) != std::string::npos; };
  if (has('l')) return concat("gated delta nets", in_layers('l'));
  if (has('m')) return concat("Mamba-2", in_layers('m'));
  if (has('s') && (has('f') || reading.read.model.is_latent()))
    return concat("attention within a window of ", letters.window, " tokens", in_layers('s'));
  const auto first = letters.mlps.find('e');
  if (first != std::string::npos && letters.mlps.find('d', first) != std::string::npos)
    return "layers with and without experts by turns";
  if (reading.read.model.is_routed() && reading.read.model.mlp_bias) return "experts with biases";
  for (const LayerKind& kind : reading.read.decoder.kinds) {
    for (const LayerKind::Sublayer& sublayer : kind.sublayers) {
      if (const auto* const attention = std::get_if<Attention>(&sublayer)) {
        if (attention->index_heads > 0) return "attention to the keys that an index picks";
        if (attention->gate) return "attention whose result has a gate";
        if (attention->key_value_rank == 0 && attention->value_dim > 0 && attention->value_dim != attention->head_dim)
          return "attention whose values have a size of their own";
      }
      if (const auto* const mixture = std::get_if<Mixture>(&sublayer); mixture != nullptr && mixture->latent > 0)
        return "experts of a vector of another width";
    }
  }
  return {};
}

}  // namespace tawpipe::detail
