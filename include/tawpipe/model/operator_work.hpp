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
/// group; attention its inputs, its result and a number of each head, unfused in place of both 2e + 1
/// bytes of each pair of tokens and head, and a dropout's mask before each residual sum; a recurrence and
/// a convolution their inputs; a function what it reads, and SiLU's result unless it is fused; a router
/// its scores in float32. What runs again keeps nothing, and what it reads is kept, as wide as it is,
/// unless that runs again too; only attention's result stays for its product. `full` runs all again;
/// `selective` without named parts norms, attention and functions, or with torchtitan's code all but
/// attention and every second product.
///
/// Between a backward_input and its backward_weight: the inputs of products and the gradients of their
/// results. Gradients take the place of what is kept and not read any more; what has no place is the
/// stash, never more than what runs again, so that both together take no more than without
/// recomputation.
///
/// Kernels: each operator has its own, in numbers a token by the software that runs it
/// (model/detail/layer_software.hpp); products of one input are one where it joins them, copies for
/// experts and back are k + 1; casts of 8 and 4 bits as Transformer Engine or torchao run them.
/// Recurrences are the products of their chunks. Traffic is that of the kernels.
/// Source: Korthikanti et al. 2022, arXiv:2205.05198, eq. 1 and 2, and section 4 (how each matrix is
/// split); Megatron-LM, core/transformer/moe/experts.py (the router's weights are applied before the last
/// product), core/extensions/transformer_engine.py: set_save_original_input (what runs again is not kept
/// in 8 bits either); sail-sg/zero-bubble-pipeline-parallelism, megatron/core/weight_grad_store.py, and
/// PyTorch, distributed/pipelining/_backward.py: stage_backward_input (what waits for a weight); Dao and Gu
/// 2024, arXiv:2405.21060, section 6 (Mamba-2); flash-linear-attention, ops/gated_delta_rule/chunk.py.
/// @throws InputError  where `model`'s code runs no such operator, naming it
TAWPIPE_INLINE StageWork layer_work(const LayerKind& kind, const Transformer& model, const Batch& batch, Recompute recompute);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include "tawpipe/model/detail/operator_kernels.hpp"
#include "tawpipe/model/detail/operator_memory.hpp"
#include "tawpipe/model/detail/operator_reading.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The work of a list of operators.
inline StageWork work_of(const OperatorReading& reading) {
  StageWork work;
  reading.flops(work);
  OperatorMemory{reading}.add_to(work);
  OperatorKernels{reading}.add_to(work.kernels);
  work.take_traffic();
  return work;
}

}  // namespace detail

TAWPIPE_INLINE StageWork layer_work(const LayerKind& kind, const Transformer& model, const Batch& batch, Recompute recompute) {
  StageWork work = detail::work_of({kind.operators(model.hidden), model, batch, recompute});
  work.layers = work.recomputed = 1;
  return work;
}

}  // namespace tawpipe
#endif
