// Names of what may differ between decoders: whose code runs the layers, which norms queries have.
// Not: the decoder (model/transformer.hpp).
#pragma once

#include <cstdint>
#include <string_view>

#include "tawpipe/core/parse_name.hpp"

namespace tawpipe::inline v0 {

/// Whose code runs the layers, which decides the kernels and what is exchanged.
enum class LayerCode : std::uint8_t {
  /// Megatron-LM and Transformer Engine: projections of one input are one product, the rest is
  /// fused
  megatron,
  torchtitan,        ///< torchtitan, compiled: a product for each matrix; 8-bit products by torchao
  torchtitan_eager,  ///< the same without torch.compile: each operator of PyTorch is a kernel
  composer,          ///< LLM Foundry's by Composer and PyTorch's first FSDP: kernels as megatron's
  /// Megatron-LM without gradient accumulation fusion (before 2022, without APEX, under DeepSpeed):
  /// products write a microbatch's gradients of weights, and kernels of their own add them
  megatron_unfused,
  /// This library's own layers (layers/), as `tawpipe train` runs them: kernels as megatron's, SiLU's
  /// part of SwiGLU is kept, and recomputation leaves out what no gradient needs
  tawpipe,
};
inline constexpr int layer_codes = 6;

/// Its name in files, "torchtitan".
constexpr std::string_view name(LayerCode code) {
  constexpr std::string_view names[layer_codes] = {"megatron", "torchtitan",       "torchtitan-eager",
                                                   "composer", "megatron-unfused", "tawpipe"};
  return names[static_cast<int>(code)];
}
/// Parses the name of a code. @throws InputError  naming the nearest and all known names.
inline LayerCode parse_layer_code(std::string_view text) {
  return detail::parse_name<LayerCode, layer_codes>("code of layers", text);
}

/// Norms of queries and keys before they are turned.
enum class QkNorm : std::uint8_t {
  none,
  head,   ///< of each head, with one weight for all: Qwen3
  width,  ///< of all heads together: OLMoE, OLMo 2
};
inline constexpr int qk_norms = 3;

/// Its name in files, "head".
constexpr std::string_view name(QkNorm norm) {
  constexpr std::string_view names[qk_norms] = {"none", "head", "width"};
  return names[static_cast<int>(norm)];
}

}  // namespace tawpipe
