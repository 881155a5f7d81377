// The work of one layer by its operators for one microbatch: what is kept, recomputed and moved, and
// the kernels.
// Not: the operators (model/layer_kind.hpp), nor how ranks share them (model/operator_body.hpp).
#pragma once

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/layer_kind.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

/// One layer of a kind, with the formats, the recomputed parts and the code of `model`.
///
/// Kept for the backward: each product its input, in its format; a norm its input and a number of each
/// group; attention its inputs, its result and a number of each head; a recurrence and a convolution
/// their inputs; a function what it reads, and SiLU's result unless it is fused; a router its scores in
/// float32. What runs again keeps nothing, and what it reads is kept unless that runs again too.
/// `full` runs all again; `selective` without named parts norms, attention and functions.
/// Traffic, in numbers a token: a norm and rotary embedding 2 of each in the forward, a norm 3 in the
/// backward; a residual sum 3; a function of a gate 5 and 9, of one 2 and 3; sums of the gradients of
/// what several products read 3; copies for experts and back k + 1.
/// Kernels: products of one input are one, as Megatron-LM and Transformer Engine have it; recurrences
/// are the products of their chunks. Source: Dao and Gu 2024, arXiv:2405.21060, section 6 (Mamba-2);
/// flash-linear-attention, ops/gated_delta_rule/chunk.py.
/// @throws InputError  where `model`'s code runs no such operator, naming it
TAWPIPE_INLINE StageWork layer_work(const LayerKind& kind, const Transformer& model, const Batch& batch, Recompute recompute);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include "tawpipe/model/detail/operator_kernels.hpp"
#include "tawpipe/model/detail/operator_reading.hpp"

namespace tawpipe::inline v0 {

TAWPIPE_INLINE StageWork layer_work(const LayerKind& kind, const Transformer& model, const Batch& batch, Recompute recompute) {
  const detail::OperatorReading reading{kind.operators(model.hidden), model, batch, recompute};
  StageWork work;
  work.layers = work.recomputed = 1;
  reading.flops(work);
  reading.memory(work);
  reading.traffic(work);
  detail::OperatorKernels{reading}.add_to(work.kernels);
  return work;
}

}  // namespace tawpipe
#endif
