// How the software that runs a layer turns its operators into kernels: what it fuses and copies.
// Not: the operators (model/operator.hpp) nor the kernels (model/detail/operator_kernels.hpp).
#pragma once

#include "tawpipe/model/layer_code.hpp"

namespace tawpipe::inline v0::detail {

/// Numbers that a memory-bound kernel reads and writes, for each number of its result.
struct MovedNumbers {
  double forward = 0;
  double backward = 0;

  constexpr MovedNumbers operator+(const MovedNumbers& more) const { return {forward + more.forward, backward + more.backward}; }
};

/// One row for each software.
struct LayerSoftware {
  bool joins_products;    ///< products of one input are one
  bool sums_branches;     ///< sums of the gradients of what several products read are kernels
  MovedNumbers norm;      ///< read x, write y; read x and dy, write dx
  MovedNumbers sum;       ///< read 2, write 1; two gradients into one
  MovedNumbers rotary;    ///< read and write
  MovedNumbers gated;     ///< SiLU times up: read 2, write 1; read 3, write 2
  MovedNumbers function;  ///< without a gate: read, write; read 2, write 1
  MovedNumbers copies;    ///< of attention's result
  MovedNumbers bounds;    ///< of what a gated function reads, in addition: Operator::scaled
  MovedNumbers scaling;   ///< of rotary positions that are scaled, in addition
};

/// Megatron-LM and Transformer Engine, and Composer: fused norms, sums and functions. Some is in no fused
/// kernel and runs by operators of PyTorch's. A function's bounds: both halves read and written, and
/// joined; backward of gate and up comparisons and a choice (4 and 7 numbers), and joined. Rotary positions
/// that YaRN scales: 12 and 10 numbers in place of 2 (products with cosine and sine, halves turned and
/// joined, a sum, a copy; backward two products, a turn, a joining and a sum).
/// Source: Megatron-LM, core/fusions/fused_bias_geglu.py: weighted_bias_quick_geglu_impl;
/// core/models/common/embeddings/rope_utils.py: apply_rotary_pos_emb (mscale that is not 1),
/// _apply_rotary_pos_emb_bshd; PyTorch, FunctionsManual.cpp: clamp_backward.
inline constexpr LayerSoftware fused_software = {true, false, {2, 3}, {3, 3}, {2, 2}, {3, 5}, {2, 3}, {}, {8, 15}, {10, 8}};
/// Megatron-LM of 2021 and 2022: biases and dropout with its mask in the sums, 3.5 and 8.5 numbers with
/// the biases' gradients; copies between layouts around attention.
inline constexpr LayerSoftware unfused_software = {true, false, {2, 3}, {3.5, 8.5}, {2, 2}, {3, 6}, {2, 4}, {4, 7}, {}, {}};
/// torchtitan, compiled: a product for each matrix, and keys and values copied for each query head.
inline constexpr LayerSoftware compiled_software = {false, true, {2, 3}, {3, 3}, {4, 4}, {3, 5}, {3, 5}, {}, {}, {}};
/// The same without torch.compile: each operator of PyTorch reads and writes memory, norms and rotary
/// embedding in float32.
inline constexpr LayerSoftware eager_software = {false, true, {18, 38}, {3, 3}, {12, 12}, {5, 9}, {5, 9}, {}, {}, {}};

constexpr const LayerSoftware& software_of(LayerCode code, bool fused_attention) {
  if (code == LayerCode::torchtitan) return compiled_software;
  if (code == LayerCode::torchtitan_eager) return eager_software;
  return fused_attention ? fused_software : unfused_software;
}

}  // namespace tawpipe::detail
