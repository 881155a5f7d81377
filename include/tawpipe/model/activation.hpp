// Bytes a decoder layer and the head hold for one microbatch: kept for the backward, or only while
// running.
// Not: operations and traffic (model/transformer_work.hpp) nor when the bytes live
// (analysis/memory.hpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

/// Bytes of activations on one device for one microbatch. Token ids and targets (8 bytes a token)
/// are left out.
struct ActivationBytes {
  std::int64_t saved = 0;               ///< kept from forward to backward
  std::int64_t forward_workspace = 0;   ///< in addition to `saved`, at the forward's peak
  std::int64_t backward_workspace = 0;  ///< in addition to `saved`, at the backward's peak
};

namespace detail {

/// Tensors of the width I that the MLP's matrices read or write: gate, silu(gate) where it is a
/// tensor, up, product; without a gate two.
inline std::int64_t mlp_tensors(const Transformer& model) { return !model.gated ? 2 : model.fused_swiglu ? 3 : 4; }

/// Bytes a token that autograd keeps of one layer with fused attention and fused norms, in the
/// order they appear: layer input H, its rstd (4 bytes), normed H, query Q, key K, value K
/// (rotated), attention output Q, log-sum-exp of each head (4 bytes), residual sum H, its rstd (4
/// bytes), normed H, gate I, silu(gate) I, up I, their product I; without a gate up I and its
/// activation I. For products in 8 or 4 bits the inputs (both normed H, the attention's output Q,
/// the product I) are kept in their format, and the attention's output also in 16 bits, which its
/// own backward reads. Unfused attention keeps for each head and pair of tokens softmax (2), its
/// dropout's mask (1) and result (2): 5 heads S bytes a token, which `selective` then drops, and
/// nothing else; its code has dropout after attention and MLP too, a mask of H each (1). Parts that
/// are computed again drop what they make: layernorm both normed H and rstds; core_attn what
/// attention keeps for itself, but not its output, which is a product's input; mlp all of width I;
/// activation silu(gate) and the product. With experts I is what a token passes of them, and the
/// copies of the normed token that they read (kH) are kept, and the router's probabilities (E, in
/// float32); the experts' results are not: their weights are applied before the last product. Of
/// products in 8 or 4 bits the second normed H stays in 16, for the router, and a shared expert has
/// it in the products' format too. Latent attention keeps its short vectors before and after their
/// norms, the latter in the products' format.
/// Source: Megatron-LM, core/transformer/moe: token_dispatcher.py, experts.py
/// (weighted_bias_swiglu_impl).
inline std::int64_t layer_token_bytes(const Transformer& model, std::int64_t sequence, Recompute recompute) {
  const std::int64_t element = size_bytes(model.dtype);
  const std::int64_t hidden = model.hidden;
  const std::int64_t inner = model.token_width();
  const bool narrow = is_narrow(model.products);
  const double input =
      narrow ? bytes_of(model.products) : static_cast<double>(element);  // bytes of a number that a product reads
  const RecomputeParts again = model.parts_again(recompute);
  const std::int64_t of_mlp = again.mlp ? 0 : again.activation ? model.mlp_matrices() - 1 : mlp_tensors(model) - 1;
  const std::int64_t of_experts =
      again.mlp ? 0 : model.routed_copies() + (narrow && model.shared_width > 0 ? hidden : 0);  // tokens that they read
  const std::int64_t of_router =
      (again.mlp ? 0 : 4 * std::int64_t{model.experts}) + (model.is_routed() && !again.layernorm ? element * hidden : 0);
  const std::int64_t normed = again.layernorm ? 0 : (model.is_routed() ? 1 : 2) * hidden;
  const std::int64_t short_normed = std::int64_t{model.query_rank} + model.key_value_rank;
  const auto inputs =
      of_router +
      static_cast<std::int64_t>(input * static_cast<double>(normed + short_normed + (again.mlp || again.activation ? 0 : inner) +
                                                            of_experts + (narrow ? model.value_width() : 0)));
  const std::int64_t masks = model.fused_attention ? 0 : 2 * hidden;
  const std::int64_t linear = inputs + masks +
                              element * (2 * hidden + (narrow && again.core_attn ? 0 : 1) * model.value_width() +
                                         model.attention_inputs() - short_normed + of_mlp * inner);
  const std::int64_t of_attention = model.fused_attention ? 4 * model.heads : (2 * element + 1) * model.heads * sequence;
  if (recompute == Recompute::full) return element * hidden;  // layer input
  if (!model.chooses_parts(recompute)) return linear + (again.layernorm ? 0 : 8) + (again.core_attn ? 0 : of_attention);
  if (!model.fused_attention) return linear + 8;
  // With every second product kept: layer input, query, value, attention's output, gate, down.
  if (model.is_torchtitan()) return element * (2 * hidden + 2 * model.query_width() + model.key_width() + inner);
  // Layer input, query, key, value, residual sum, gate, up; with experts their copies and weights.
  return element * (2 * hidden + model.attention_inputs() + (model.gated ? 2 : 1) * inner) + element * model.routed_copies() +
         4 * std::int64_t{model.experts};
}

}  // namespace detail

/// Activations of one decoder layer.
///
/// Forward workspace: what the policy does not keep of a layer, all of it at once (an upper bound),
/// and two tensors [microbatch, sequence, hidden] under construction. Backward workspace: the same
/// tensors computed again, the gradient of the residual stream, and the wider of the gradients in
/// flight inside the layer: of silu(gate), up and product (3I) and of the copies for experts (kH),
/// or of query, key, value and attention output (2Q + 2K).
/// Source: Korthikanti et al. 2022, arXiv:2205.05198, eq. 1 and 2, for RMSNorm, rotary embedding,
/// grouped-query attention, SwiGLU and fused attention, without dropout.
inline ActivationBytes layer_activations(const Transformer& model, const Batch& batch, Recompute recompute) {
  const std::int64_t element = size_bytes(model.dtype);
  const std::int64_t kept = detail::layer_token_bytes(model, batch.sequence, recompute);
  const std::int64_t not_kept = detail::layer_token_bytes(model, batch.sequence, Recompute::none) - kept;
  const std::int64_t gradients = model.hidden + std::max(model.mlp_matrices() * model.token_width() + model.routed_copies(),
                                                         model.attention_inputs() + model.value_width());
  return {.saved = batch.tokens() * kept,
          .forward_workspace = batch.tokens() * (not_kept + element * 2 * model.hidden),
          .backward_workspace = batch.tokens() * (not_kept + element * gradients)};
}

/// Bytes that a layer's separate backward_input leaves for its backward_weight in addition to
/// `saved`.
struct StashBytes {
  std::int64_t tensors = 0;  ///< recomputed ones, which then take no workspace
  /// gradients of the norms' weights: two rows for each sequence, as all sizes grow with these
  std::int64_t sums = 0;
};

/// A backward_weight needs for each layer the inputs of its matrices and the gradients of their
/// outputs, [microbatch, sequence] of 4H + 2Q + 2K + 3I, and kH with experts. What is saved holds as
/// much of that as it is long: gradients take the place of what they follow from. So nothing is left
/// with Recompute::none, where silu(gate), not needed any more, has room for the norms' gradients.
/// Policies that keep less leave the rest: `selective` the inputs, 2H + Q + I; `full` all but H; and
/// named parts what they recompute of a matrix's input: both normed H for layernorm, the MLP's tensors
/// of width I or its product. Never more than what the policy does not save, so that saved activations
/// and stash together take no more than without recomputation.
/// Source: sail-sg/zero-bubble-pipeline-parallelism, megatron/core/weight_grad_store.py (a product's
/// input and its output's gradient wait for W, all else is released after B); PyTorch,
/// distributed/pipelining/_backward.py (stage_backward_input keeps the intermediate gradients, and
/// what autograd saved for the weights).
inline StashBytes layer_stash(const Transformer& model, const Batch& batch, Recompute recompute) {
  const std::int64_t hidden = model.hidden;
  const std::int64_t inner = model.token_width();
  const std::int64_t needed =
      4 * hidden + model.attention_inputs() + model.value_width() + model.mlp_matrices() * inner + model.routed_copies();
  const RecomputeParts again = model.parts_again(recompute);
  const std::int64_t element = size_bytes(model.dtype);
  std::int64_t left = 0;    // numbers of a token
  std::int64_t inputs = 0;  // and those that a product reads in its own format
  if (recompute == Recompute::full) {
    left = needed - hidden;
  } else if (again.any()) {
    if (again.layernorm) inputs += 2 * hidden;
    if (again.mlp || again.activation) inputs += inner;
    if (again.mlp) left = (detail::mlp_tensors(model) - 1) * inner + model.routed_copies();
  } else if (recompute == Recompute::selective && model.fused_attention) {
    const std::int64_t kept = model.is_torchtitan() ? 2 * model.query_width() + model.key_width() + inner
                                                    : model.attention_inputs() + (model.mlp_matrices() - 1) * inner;
    left = needed - 2 * hidden - kept - (model.is_torchtitan() ? 0 : model.routed_copies());
  }
  const std::int64_t not_saved = batch.tokens() * (detail::layer_token_bytes(model, batch.sequence, Recompute::none) -
                                                   detail::layer_token_bytes(model, batch.sequence, recompute));
  const double input = is_narrow(model.products) ? bytes_of(model.products) : static_cast<double>(element);
  const auto of_inputs = static_cast<std::int64_t>(input * static_cast<double>(batch.tokens() * inputs));
  const std::int64_t tensors = std::min(batch.tokens() * element * left + of_inputs, not_saved);
  const std::int64_t rows = left > 0 && !again.any() ? 2 * batch.microbatch_size : 0;
  const std::int64_t sums = rows * hidden * std::max<std::int64_t>(4, element);
  return {.tensors = tensors, .sums = std::min(sums, not_saved - tensors)};
}

/// Whether the gradient [microbatch, sequence, hidden] that an embedding waits for fits among a
/// layer's saved tensors: in place of silu(gate), where it is a tensor that is kept, or that a part
/// recomputes, after its norms' gradients: not over I < H + 2H/T, or H + 4H/T of 16-bit numbers,
/// whose norms' gradients are held in float32.
inline bool layer_fits_lookup_gradient(const Transformer& model, const Batch& batch, Recompute recompute) {
  const RecomputeParts again = model.parts_again(recompute);
  const bool drops_silu = recompute == Recompute::full || (again.activation && !again.mlp) ||
                          (recompute == Recompute::selective && !again.any() && model.fused_attention);
  const std::int64_t norms = 2 * std::max<std::int64_t>(1, 4 / size_bytes(model.dtype));
  return detail::mlp_tensors(model) > model.mlp_matrices() && !drops_silu &&
         batch.tokens() * model.token_width() >= (batch.tokens() + norms) * model.hidden;
}

/// Data that a separate backward_input keeps for its backward_weight in addition to `saved`: that of
/// each layer; then the gradient of an embedding's output [microbatch, sequence, hidden], if no layer
/// has room for it; and, for a head whose loss is computed in chunks, the gradient of all logits
/// [microbatch, sequence, vocab]. Source: the layout of layers/layer_tensors.hpp.
inline std::int64_t stash_bytes(const Transformer& model, const Batch& batch, Recompute recompute, std::int64_t layers,
                                bool embedding, bool head = false) {
  const StashBytes layer = layer_stash(model, batch, recompute);
  const bool fits = layers > 0 && layer_fits_lookup_gradient(model, batch, recompute);
  const std::int64_t numbers = (embedding && !fits ? model.hidden : 0) + (head && model.loss_chunk > 0 ? model.vocab : 0);
  return layers * (layer.tensors + layer.sums) + batch.tokens() * size_bytes(model.dtype) * numbers;
}

/// Activations of the final norm, output matrix and cross entropy, as PyTorch's eager mode with
/// automatic mixed precision runs them: cross entropy in float32 (the autocast list of its
/// documentation), so for a 16-bit model and each token and vocabulary entry
///   forward peak   10 bytes: logits (2), their float32 copy (4), log-softmax (4, kept);
///   backward peak  14 bytes: logits (2, still referred to by the caller), log-softmax (4, kept),
///                  the float32 gradients of log-softmax (4) and of the logits (4).
/// Without loss_in_float32: 4 and 8 bytes, as nothing is copied.
/// In addition [microbatch, sequence, hidden]: input and normed input kept, two gradients in the
/// backward. With Transformer::loss_chunk, as the layers of this library run it: a number for each
/// token is kept, the logarithm of its logits' sum; the logits of one chunk exist at a time, in the
/// forward together with a number for each token.
inline ActivationBytes head_activations(const Transformer& model, const Batch& batch) {
  const std::int64_t element = size_bytes(model.dtype);
  const std::int64_t loss = model.loss_in_float32 ? std::max<std::int64_t>(element, 4) : element;  // a number of cross entropy
  const std::int64_t copy = element < loss ? loss : 0;
  const std::int64_t vocab = model.vocab;
  const std::int64_t hidden = model.hidden;
  if (model.loss_chunk > 0) {
    const std::int64_t sum = std::max<std::int64_t>(element, 4);
    const std::int64_t chunk = element * std::min<std::int64_t>(model.loss_chunk, vocab);
    return {.saved = batch.tokens() * (element * 2 * hidden + sum),
            .forward_workspace = batch.tokens() * (sum + chunk),
            .backward_workspace = batch.tokens() * (element * 2 * hidden + chunk)};
  }
  return {.saved = batch.tokens() * (element * 2 * hidden + 4 + loss * vocab),
          .forward_workspace = batch.tokens() * ((element + copy) * vocab),
          .backward_workspace = batch.tokens() * (element * 2 * hidden + (element + 2 * loss) * vocab)};
}

}  // namespace tawpipe
