// What may differ between the decoders that a config.json describes, and what a type that is not
// read is.
// Not: the decoders themselves (model/detail/decoder_families.hpp), nor the keys
// (model/detail/config_keys.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "tawpipe/core/text.hpp"
#include "tawpipe/model/layer_code.hpp"
#include "tawpipe/model/layer_kind.hpp"

namespace tawpipe::inline v0::detail {

/// What a norm has for each number of a hidden state.
enum class NormWeights : std::uint8_t {
  scale,            ///< RMSNorm
  scale_of_layer,   ///< LayerNorm without a bias
  scale_and_shift,  ///< LayerNorm
  none,             ///< LayerNorm without parameters
};

/// What a type of models reads of a file beside the sizes of every decoder; a key that it does not
/// read is refused, unless it says no.
enum Reads : std::uint32_t {
  attention_bias = 1 << 0,  ///< of queries, keys, values and output
  input_bias = 1 << 17,     ///< attention_bias of queries, keys and values only
  mlp_bias = 1 << 1,
  qkv_bias = 1 << 2,       ///< of queries, keys and values
  use_bias = 1 << 3,       ///< one key for the biases of a layer that have none of their own
  qk_norms = 1 << 4,       ///< whether queries and keys have norms
  window = 1 << 5,         ///< sliding_window, in all layers or as layer_types say
  window_switch = 1 << 6,  ///< use_sliding_window, max_window_layers
  experts = 1 << 7,
  expert_width = 1 << 8,     ///< moe_intermediate_size beside intermediate_size
  shared_experts = 1 << 9,   ///< so many, as wide as the others, or as wide as said
  dense_layers = 1 << 10,    ///< the first so many layers have no experts
  layers_in_turn = 1 << 11,  ///< layers with and without experts take turns
  expert_groups = 1 << 12,
  latent = 1 << 13,         ///< latent attention
  value_size = 1 << 14,     ///< values of heads of another size, and other sizes within windows
  scaled_states = 1 << 15,  ///< factors and bounds of hidden states, scores and logits
  no_positions = 1 << 16,   ///< layers without rotary embedding
  parallel = 1 << 18,       ///< whether attention and MLP have the same input
  indexed = 1 << 19,        ///< attention to keys that an index picks
  delta_nets = 1 << 20,     ///< gated delta nets among the layers
  mamba = 1 << 21,          ///< Mamba-2 among the layers
  anything = ((1 << 17) - 1) | delta_nets | mamba,
};

/// One type of models. Source: Hugging Face transformers, models/*/configuration_*.py, and of
/// biases, norms and routers modeling_*.py; of types that are not there, the code published with
/// the weights.
struct DecoderType {
  std::string_view names;         ///< values of model_type, separated by spaces
  std::uint32_t reads = 0;        ///< Reads
  bool tied = false;              ///< tie_word_embeddings
  bool gated = true;              ///< MLP
  double epsilon = 1e-6;          ///< of the norms
  std::int32_t positions = 2048;  ///< max_position_embeddings
  double theta = 1e4;             ///< rope_theta
  double rotary_part = 1;         ///< partial_rotary_factor
  int head_dim = 0;               ///< 0: hidden_size / num_attention_heads
  int kv_heads = 0;               ///< the class's own number, which published files say; 0: as many as heads
  int mlp_factor = 0;             ///< intermediate_size over hidden_size where it is not given; 0: it must be
  bool half_width = false;        ///< intermediate_size is of gate and up together
  int window = 0;                 ///< sliding_window
  std::string_view layers = {};   ///< a letter for each layer, repeated (model/detail/config_layers.hpp)
  bool one_part = false;          ///< a layer is attention, Mamba-2 or an MLP
  bool sinks = false;             ///< of attention: a score of each head for no token
  bool output_gate = false;       ///< attention's result times a gate
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  QkNorm qk_norm = QkNorm::none;
  NormPlace norms = NormPlace::before;
  NormWeights norm_weights = NormWeights::scale;
  bool learned_positions = false;  ///< in place of rotary ones, as many as max_position_embeddings
  int more_positions = 0;          ///< and so many more
  bool expert_bias = false;        ///< experts and router have biases
  bool shared_gate = false;
  bool sum_to_one = true;        ///< norm_topk_prob
  double balance = 0.001;        ///< router_aux_loss_coef
  bool sigmoid = false;          ///< its router is DeepSeek-V3's
  double router_scale = 1;       ///< routed_scaling_factor of such a router
  std::string_view router = {};  ///< why its router is not computed
  /// The class's sizes as JSON: what a nested file leaves out, which transformers writes without
  /// what is as in the class.
  std::string_view sizes = {};

  /// The name in messages.
  std::string_view name() const { return names.substr(0, names.find(' ')); }
  bool is_unknown() const { return names.empty(); }
  bool does_read(std::uint32_t what) const { return (reads & what) != 0; }
};

/// A decoder of a type that is not known: all that its keys say is taken.
inline constexpr DecoderType unknown_type{.names = {}, .reads = anything};

/// Types of models that are no decoders of tokens, or have layers that are not modelled.
struct RefusedType {
  std::string_view names;  ///< separated by spaces
  std::string_view what;   ///< that it is, or has
};
inline constexpr RefusedType refused_types[] = {
    {"t5 mt5 umt5 longt5 byt5 switch_transformers t5gemma t5gemma2 bart mbart plbart pegasus pegasus_x bigbird_pegasus marian "
     "m2m_100 nllb-moe fsmt led prophetnet blenderbot blenderbot-small mvp encoder-decoder",
     "is an encoder and a decoder; a decoder alone is modelled"},
    {"whisper speech_to_text seamless_m4t seamless_m4t_v2 moonshine speecht5 wav2vec2 hubert wavlm parakeet",
     "is a model of speech; a decoder of tokens is modelled"},
    {"bert roberta distilbert electra deberta deberta-v2 modernbert xlm-roberta xlm albert camembert ernie nomic_bert eurobert "
     "mpnet longformer big_bird funnel esm",
     "is an encoder, which predicts no next token; a decoder is modelled"},
    {"clip siglip siglip2 siglip_vision_model clip_vision_model vit dinov2 dinov3_vit swin convnext beit deit resnet "
     "clip_text_model qwen2_vl_vision pixtral",
     "is an encoder of images, with no tokens to predict; give the decoder's config.json"},
    {"mamba falcon_mamba", "has Mamba-1 in place of attention, which is not modelled"},
    {"rwkv rwkv5 rwkv6 rwkv7", "has RWKV's recurrence in place of attention, which is not modelled"},
    {"xlstm recurrent_gemma griffin retnet hyena", "has a recurrence in place of attention, which is not modelled"},
    {"gemma3n gemma3n_text gemma4_e2b", "has embeddings and products of its own in each layer (AltUp), which are not modelled"},
    {"deepseek_v4 deepseek_ref", "has compressed keys and several residual streams, which are not modelled"},
    {"openai-gpt xlnet ctrl reformer", "has layers that are not modelled"},
};

/// Whether a list of words separated by spaces has one.
constexpr bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t at = 0; at <= words.size();) {
    const std::size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace tawpipe::detail
