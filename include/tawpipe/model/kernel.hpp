// The kernels that a device runs for a stage, by shape.
// Not: which ones a model needs (model/operator_work.hpp, model/edge_work.hpp) nor how long they take
// (cost/kernel_cost.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "tawpipe/core/parse_name.hpp"

namespace tawpipe::inline v0 {

/// The format of a matrix product's operands; results and sums are wider.
enum class ProductFormat : std::uint8_t {
  bits16,     ///< bfloat16 or float16
  bits32,     ///< float32, on matrix units (TF32)
  fp8,        ///< 8 bits, one scale a tensor
  fp8_rows,   ///< 8 bits, one scale a row of the operand
  fp8_block,  ///< 8 bits, one scale for each 128 numbers or 128 x 128 block
  mxfp8,      ///< 8 bits, one scale for each 32 numbers
  nvfp4,      ///< 4 bits, one scale for each 16 numbers
};
inline constexpr int product_formats = 7;

/// Its name on the command line, "mxfp8".
constexpr std::string_view name(ProductFormat format) {
  constexpr std::string_view names[product_formats] = {"16bit", "32bit", "fp8", "fp8-rows", "fp8-block", "mxfp8", "nvfp4"};
  return names[static_cast<int>(format)];
}
/// Parses the name of a format. @throws InputError  naming the nearest and all known names.
inline ProductFormat parse_product_format(std::string_view text) {
  return detail::parse_name<ProductFormat, product_formats>("format of products", text);
}
/// Bytes of a number including its share of the scales.
constexpr double bytes_of(ProductFormat format) {
  constexpr double bytes[product_formats] = {2, 4, 1, 1, 1 + 4.0 / 128, 1 + 1.0 / 32, 0.5 + 1.0 / 16};
  return bytes[static_cast<int>(format)];
}

/// Whether it is narrower than the 16 bits that activations have.
constexpr bool is_narrow(ProductFormat format) { return format != ProductFormat::bits16 && format != ProductFormat::bits32; }

/// Whether products may overlap the collectives of their operands and results: Transformer Engine
/// has no such products in 4 bits, nor with one scale for each 32 numbers.
constexpr bool overlaps_collectives(ProductFormat format) {
  return format != ProductFormat::nvfp4 && format != ProductFormat::mxfp8;
}

/// How ranks share a stage's kernels.
struct KernelSplit {
  int tensor = 1;
  int context = 1;
  int expert = 1;              ///< ranks with sequences of their own
  bool whole_experts = false;  ///< all of these ranks have experts of their own
  bool sequence_parallel = true;
  /// of whole experts: each rank gets a copy of a token for each of its experts, ordered by the ranks
  /// that sent them, not by experts
  bool sends_copies = false;
  /// of whole experts to whose ranks a token is sent once: tokens that a rank gets for each of its own
  double arriving = 1;

  int ranks() const { return tensor * context * expert; }
};

/// When a kernel runs.
enum class KernelPass : std::uint8_t { forward, recompute, backward_input, backward_weight };

/// One kernel of a stage, or several equal ones.
struct Kernel {
  enum class Kind : std::uint8_t {
    product,  ///< [m, k] x [k, n], `batch` of them
    /// causal, fused: m queries a head and n keys of size k, `batch` heads of all sequences
    attention,
    attention_backward,  ///< the same, gradients of all three; computes the scores again
    traffic,             ///< `bytes` of memory-bound work in `launches` kernels
  };
  /// A dimension that a split divides.
  enum class Dimension : std::uint8_t { none, m, n, k, batch };

  Kind kind = Kind::traffic;
  KernelPass pass = KernelPass::forward;
  ProductFormat format = ProductFormat::bits16;
  Dimension by_tensor = Dimension::none;  ///< the dimension that tensor parallelism divides
  /// the dimension that context parallelism divides: the tokens
  Dimension by_context = Dimension::none;
  /// launches for a microbatch: one for each layer of the stage
  std::int32_t count = 1;
  std::int32_t launches = 1;
  /// Of routed experts, kernels that the host launches for one expert after another, once it has read
  /// how many tokens each got; 0: one for all experts. A whole-iteration CUDA graph has none.
  std::int32_t singles = 0;
  bool adds = true;  ///< a product that is a weight's gradient: to a sum in float32
  /// traffic of weights or of their gradients, which context-parallel ranks have whole
  bool of_weights = false;
  bool of_edge = false;           ///< of the embedding or the head, not of a layer
  bool of_experts = false;        ///< of routed experts: a product of each, or their tokens' copies
  bool padded = false;            ///< experts' tokens are a multiple of some number: their copies are padded
  bool before_blackwell = false;  ///< only on devices of a compute capability below 10.0
  bool pytorch = false;           ///< attention by PyTorch's own kernel
  bool aligned = false;           ///< a product whose operands are padded to whole 16 bytes a row
  /// a product whose by_tensor is the tokens: without sequence parallelism ranks have all of them
  bool by_tokens = false;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  double bytes = 0;
  /// Of copies of tokens for `batch` experts, bytes of one token's numbers, and how many of them
  /// there are; 0: this moves no such copies.
  double token_bytes = 0;
  std::int32_t copies = 0;
  double reordered = 0;  ///< of `bytes`, those that ranks with experts of their own move in addition
  double share = 1;      ///< the part of it that runs, where this is of a step of a stage's body
  /// the operator of its kind of layers (LayerKind::operators), or the edge's part; -1: unknown
  std::int16_t op = -1;
  std::uint8_t layer_kind = 0;  ///< LayerPattern

  /// One rank's part of it. Traffic of tokens is divided by context and expert, and any by tensor
  /// where by_tensor is n or, with sequence parallelism, m (ranks divide the tokens). Sequences are
  /// those of attention's batch, and otherwise tokens. With whole experts all ranks divide them, and
  /// each expert has all of its tokens on one. What they are sent they then put in the order of their
  /// experts: copies that are ordered by senders are read and written once more, if a rank has several
  /// experts, and once more where they are padded; tokens that are sent once are copied for each
  /// expert where they arrive, so that all that arrive are read (to experts) or written (back).
  /// Source: Megatron-LM, core/transformer/moe/token_dispatcher.py: dispatch_postprocess and
  /// combine_preprocess (sort_chunks_by_idxs), _DeepepManager.get_permuted_hidden_states_by_experts;
  /// experts.py: quantization_padding (Transformer Engine, module/fp8_padding.py).
  Kernel split(const KernelSplit& by) const {
    Kernel part = *this;
    if (of_experts && by.whole_experts) {
      part.divide(Dimension::batch, by.ranks());
      part.bytes = bytes / by.ranks();
      part.singles = (singles + by.ranks() - 1) / by.ranks();
      if (token_bytes == 0 || by.ranks() == 1) return part;
      const int again = by.sends_copies ? (part.batch > 1 ? 1 : 0) + (padded ? 1 : 0) : 0;
      part.reordered = token_bytes * (by.sends_copies ? 2.0 * copies * again : by.arriving - 1) / by.ranks();
      part.bytes += part.reordered;
      part.launches += again;
      return part;
    }
    const bool attends = kind == Kind::attention || kind == Kind::attention_backward || by_tensor == Dimension::batch;
    if (by.sequence_parallel || !by_tokens) part.divide(by_tensor, by.tensor);
    part.divide(by_context, by.context);
    part.divide(attends ? Dimension::batch : by_context, by.expert);
    const bool whole = by_tensor == Dimension::none || (by_tensor == Dimension::m && !by.sequence_parallel);
    part.bytes = bytes / (whole ? 1 : by.tensor) / (of_weights ? 1 : by.context * by.expert);
    return part;
  }
  Kernel split(int tensor, int context, bool sequence_parallel = true) const {
    return split({.tensor = tensor, .context = context, .sequence_parallel = sequence_parallel});
  }
  /// Operations: a multiply-add counts as two, causal attention at half.
  double flops() const {
    const double all =
        2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    if (kind == Kind::traffic) return 0;
    return kind == Kind::product ? all : kind == Kind::attention ? all : 2.5 * all;
  }

 private:
  void divide(Dimension dimension, int parts) {
    if (dimension == Dimension::none) return;
    std::int64_t& size = dimension == Dimension::m ? m : dimension == Dimension::n ? n : dimension == Dimension::k ? k : batch;
    size = std::max<std::int64_t>(1, (size + parts - 1) / parts);
  }
};

}  // namespace tawpipe
