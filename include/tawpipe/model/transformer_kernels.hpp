// The kernels that a run of decoder layers launches for one microbatch.
// Not: operations, parameters and activations (model/transformer_work.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/kernel.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The number of parts of the vocabulary of which the head has the logits one after another.
inline std::int64_t loss_chunks(const Transformer& model) {
  return model.loss_chunk > 0 ? (model.vocab + std::int64_t{model.loss_chunk} - 1) / model.loss_chunk : 1;
}

}  // namespace detail

/// The kernels of `layers` layers, with embedding and head if requested, for one microbatch on one
/// device; Kernel::split gives a tensor- and context-parallel rank's part.
///
/// A layer runs four products (query, key and value together; output; gate and up together; down)
/// and attention. Each product has one for the gradient of its input and one for that of its
/// weight. Products of a layer run in `model.products`, with the casts that this requires;
/// attention, the head and a router do not. With experts there is a batch of equal products for each
/// of an MLP's (grouped GEMM), and those of a router and a shared expert.
/// Memory-bound kernels are fused as Megatron-LM and torch.compile do: each reads its inputs and
/// writes its outputs once, in numbers a token two norms 4H, two residual sums 6H, rotary 2(Q + K)
/// and SwiGLU 3I (GELU 2I) in the forward; 6H, 6H, 2(Q + K) and 5I (3I) in the backward. Unfused
/// attention (Megatron-LM of 2021 and 2022) comes with biases, dropout and copies between layouts:
/// 11H + 2(Q + K) + 4H + 2I in the forward, 23H + 2(Q + K) + 7H + 4I in the backward, sums of the
/// biases' gradients among them; and with batched products of all pairs of tokens and, for each
/// pair and head, 13 bytes of traffic in the forward (scores written, softmax, dropout, read) and
/// 19 in the backward. Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4 (how each
/// matrix is split). In torchtitan: a product for each matrix; casts as torchao's
/// matmul_with_hp_or_float8_args (float8_linear.py) and Inductor's kernels run them; without
/// torch.compile the operators that nn.RMSNorm, apply_rotary_emb and F.silu consist of. Without
/// gradient accumulation fusion, gradients of weights are added by kernels of their own. A loss in
/// chunks runs the products and kernels of the head once for each chunk, each as wide as it is.
/// @param edge_forward_bytes  memory-bound traffic of embedding and loss, and in the backward
TAWPIPE_INLINE std::vector<Kernel> transformer_kernels(const Transformer& model, const Batch& batch, Recompute recompute,
                                                       std::int32_t layers, bool embedding, bool head, double edge_forward_bytes,
                                                       double edge_backward_bytes);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <utility>

#include "tawpipe/model/detail/kernel_lister.hpp"

namespace tawpipe::inline v0 {

TAWPIPE_INLINE std::vector<Kernel> transformer_kernels(const Transformer& model, const Batch& batch, Recompute recompute,
                                                       std::int32_t layers, bool embedding, bool head, double edge_forward_bytes,
                                                       double edge_backward_bytes) {
  detail::KernelLister layer{model, batch, layers};
  if (layers > 0) {
    layer.forward(KernelPass::forward);
    if (recompute == Recompute::full) layer.forward(KernelPass::recompute);
    if (recompute == Recompute::selective) layer.selective();
    layer.backward();
    layer.backward_traffic();
  }
  detail::KernelLister edge{model, batch, 1};
  if (head) edge.head();
  if (head || embedding) {
    const std::int64_t chunks = head ? detail::loss_chunks(model) : 1;
    const bool again = head && model.loss_chunk > 0;  // the logits' cast and log-softmax
    edge.chunked_traffic(KernelPass::forward, edge_forward_bytes, 4, chunks);
    edge.chunked_traffic(KernelPass::backward_input, edge_backward_bytes, again ? 6 : 4, chunks);
  }
  for (Kernel& kernel : edge.kernels) kernel.of_edge = true;
  layer.kernels.insert(layer.kernels.end(), edge.kernels.begin(), edge.kernels.end());
  return std::move(layer.kernels);
}

}  // namespace tawpipe
#endif
