// The layers that decoders are made of, described by their sizes, and the operators of each.
// Not: which layers a model has (model/decoder.hpp) nor what an operator costs (model/operator.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/model/layer_code.hpp"
#include "tawpipe/model/operator.hpp"

namespace tawpipe::inline v0 {

/// Attention: full, within a window or a chunk, latent, or of tokens that an index chooses.
/// Source: Ainslie et al. 2023, GQA, arXiv:2305.13245; DeepSeek-AI 2024, DeepSeek-V2,
/// arXiv:2405.04434, section 2.1 (latent); DeepSeek-AI 2025, DeepSeek-V3.2-Exp (index); OpenAI 2025,
/// gpt-oss, arXiv:2508.10925 (sinks).
struct Attention {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;          ///< of queries and keys
  int value_dim = 0;         ///< of values; 0: head_dim
  int turned = -1;           ///< numbers of a head that rotary embedding turns; -1: all, 0: none
  bool scaled = false;       ///< and multiplies by YaRN's factor of attention (arXiv:2309.00071, eq. 22)
  int window = 0;            ///< tokens that a token attends to, with itself; 0: all before it
  int chunk = 0;             ///< a token attends to those of its own chunk; 0: to all before it
  bool sinks = false;        ///< a number a head, which the softmax counts as a score
  bool gate = false;         ///< the result times the sigmoid of as many numbers made from the input
  bool qkv_bias = false;     ///< queries, keys and values have biases
  bool output_bias = false;  ///< and so has the output
  QkNorm qk_norm = QkNorm::none;
  int query_rank = 0;      ///< latent: length of the vector that queries are products of; 0: the hidden state
  int key_value_rank = 0;  ///< and keys with values; 0: not latent
  int index_heads = 0;     ///< of the index that chooses tokens; 0: none
  int index_dim = 0;
  int index_tokens = 0;  ///< that it chooses

  bool operator==(const Attention&) const = default;
};

/// A gated delta net. Source: Yang et al. 2024, arXiv:2412.06464; transformers, models/qwen3_next.
struct DeltaNet {
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int convolution = 4;  ///< tokens that the convolution of queries, keys and values reads

  bool operator==(const DeltaNet&) const = default;
};

/// Mamba-2. Source: Dao and Gu 2024, arXiv:2405.21060; transformers, models/nemotron_h, bamba.
struct Mamba2 {
  int heads = 0;
  int head_dim = 0;
  int groups = 1;  ///< that share input and output matrices of the state
  int state = 0;
  int convolution = 4;
  bool convolution_bias = true;
  bool bias = false;  ///< of both products

  bool operator==(const Mamba2&) const = default;
};

/// The function between an MLP's products.
enum class MlpFunction : std::uint8_t {
  gated,         ///< SiLU or GELU of the gate's product, times up's
  plain,         ///< GELU or SiLU
  squared_relu,  ///< So et al. 2021, Primer, arXiv:2109.08668
};
inline constexpr int mlp_functions = 3;

/// Its name in files, "squared-relu".
constexpr std::string_view name(MlpFunction function) {
  constexpr std::string_view names[mlp_functions] = {"gated", "plain", "squared-relu"};
  return names[static_cast<int>(function)];
}

struct Mlp {
  int width = 0;
  MlpFunction function = MlpFunction::gated;
  bool bias = false;

  bool operator==(const Mlp&) const = default;
};

/// A mixture of experts with a router before them. Source: Dai et al. 2024, DeepSeekMoE,
/// arXiv:2401.06066 (shared experts); NVIDIA 2025, Nemotron 3 (latent experts).
struct Mixture {
  int experts = 0;
  int per_token = 0;
  int width = 0;         ///< of each expert
  int shared_width = 0;  ///< of the expert that every token passes; 0: none
  MlpFunction function = MlpFunction::gated;
  bool bias = false;         ///< of the experts' products
  bool bounded = false;      ///< the products that a gated function reads are bounded first (gpt-oss)
  bool router_bias = false;  ///< of the router's
  bool shared_gate = false;  ///< a product [1, H] scales the shared expert's result
  int latent = 0;            ///< width of the vector that experts read and give; 0: the hidden state

  bool operator==(const Mixture&) const = default;
};

/// Where a layer's norms are.
enum class NormPlace : std::uint8_t {
  before,    ///< before each sublayer
  after,     ///< after it, before the residual sum: OLMo 2
  both,      ///< Gemma 2 and 3, GLM-4
  parallel,  ///< one before all sublayers, whose results are summed: Cohere, GPT-J
};
inline constexpr int norm_places = 4;

/// Its name in files, "both".
constexpr std::string_view name(NormPlace place) {
  constexpr std::string_view names[norm_places] = {"before", "after", "both", "parallel"};
  return names[static_cast<int>(place)];
}

/// One kind of layer: sublayers in order, each with its norms and residual sum. Most have two, an
/// attention and an MLP; a layer of Nemotron-H has one.
/// Example: `LayerKind{.name = "window", .sublayers = {Attention{.heads = 4, .kv_heads = 1,
/// .head_dim = 256, .window = 512}, Mlp{.width = 6912}}}`
struct LayerKind {
  using Sublayer = std::variant<Attention, DeltaNet, Mamba2, Mlp, Mixture>;

  std::string name = {};  ///< in messages: "window", "full", "mixture"
  std::vector<Sublayer> sublayers = {};
  NormPlace norms = NormPlace::before;
  bool norm_bias = false;  ///< LayerNorm with a bias

  bool operator==(const LayerKind&) const = default;
  /// The operators of a layer whose residual stream is so wide, in the order in which they run.
  TAWPIPE_INLINE std::vector<Operator> operators(std::int64_t hidden) const;
};

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include "tawpipe/model/detail/operator_list.hpp"
#endif
