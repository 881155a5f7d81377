// The work of a decoder before its first layer and after its last one: embedding, final norm, output
// matrix and loss.
// Not: its layers (model/operator_work.hpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/kernel.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

/// Kernel::op of an edge's kernels.
enum class EdgePart : std::uint8_t { embedding, norm, loss };

/// The embedding: in the forward a token's row is read and written; in the backward the gradient is
/// read, and the row's gradient read and written.
TAWPIPE_INLINE StageWork embedding_work(const Transformer& model, const Batch& batch);

/// Final norm (as a layer's), output matrix, and cross entropy: cast to float32 (where narrower),
/// log-softmax read and write; backward: write the gradient of log-softmax, read it and log-softmax,
/// write the gradient of the logits, cast it back. In chunks: the same, with the forward's kernels once
/// more in the backward; and for each further chunk a token's largest logit and sum of exponentials, in
/// float32, read and written, and read in the backward. A metric's loss after it: cast to float32,
/// log-softmax read and write. With unfused attention (Megatron-LM of 2021 and 2022,
/// core/tensor_parallel/cross_entropy.py) the loss is kernels of their own: the maximum read;
/// subtracted, read and written; exponentials and their quotients by the sum, each read and written; the
/// sum read; backward: read and written, cast back. The product with the vocabulary's matrix is in 16
/// bits (or the model's) whatever the layers' format; for a loss in chunks one for each, and again in
/// the backward. `parameters` are those of the norm, and of the matrix where it is not the embedding.
///
/// Memory as PyTorch's eager mode with automatic mixed precision has it: cross entropy in float32 (the
/// autocast list of its documentation), so for a 16-bit model and each token and vocabulary entry
///   forward peak   10 bytes: logits (2), their float32 copy (4), log-softmax (4, kept);
///   backward peak  14 bytes: logits (2, still referred to by the caller), log-softmax (4, kept),
///                  the float32 gradients of log-softmax (4) and of the logits (4).
/// Without loss_in_float32: 4 and 8 bytes, as nothing is copied. With one_kernel_loss: 2 and 2, or 4 with
/// a gradient beside the logits. In addition [microbatch, sequence,
/// hidden]: input and normed input kept, two gradients in the backward. In chunks, as the layers of this
/// library run it: a number for each token is kept, the logarithm of its logits' sum; the logits of one
/// chunk exist at a time, in the forward together with a number for each token.
TAWPIPE_INLINE StageWork head_work(const Transformer& model, const Batch& batch);

}  // namespace tawpipe

#if TAWPIPE_BODIES
namespace tawpipe::inline v0 {

namespace detail {

/// Adds a kernel of one of an edge's parts, in `chunks` equal launches of `launches` kernels.
inline void add_edge_traffic(StageWork& work, EdgePart part, KernelPass pass, std::int64_t bytes, std::int32_t launches,
                             std::int64_t chunks = 1) {
  work.kernels.push_back({.kind = Kernel::Kind::traffic,
                          .pass = pass,
                          .by_tensor = part == EdgePart::norm ? Kernel::Dimension::m : Kernel::Dimension::n,
                          .count = static_cast<std::int32_t>(chunks),
                          .launches = launches,
                          .of_edge = true,
                          .bytes = static_cast<double>(bytes) / static_cast<double>(chunks),
                          .op = static_cast<std::int16_t>(part)});
}

/// The products of `count` chunks of `width` entries with their matrix.
inline void add_head_products(StageWork& work, const Transformer& model, std::int64_t tokens, std::int64_t width,
                              std::int64_t count) {
  using Dimension = Kernel::Dimension;
  const auto add = [&](KernelPass pass, std::int64_t m, std::int64_t n, std::int64_t k, Dimension tensor, Dimension context) {
    work.kernels.push_back({.kind = Kernel::Kind::product,
                            .pass = pass,
                            .format = model.dtype == Dtype::f32 ? ProductFormat::bits32 : ProductFormat::bits16,
                            .by_tensor = tensor,
                            .by_context = context,
                            .count = static_cast<std::int32_t>(count),
                            .adds = model.fuses_accumulation(),
                            .of_edge = true,
                            .aligned = model.pads_vocabulary(),
                            .m = m,
                            .n = n,
                            .k = k,
                            .op = static_cast<std::int16_t>(EdgePart::loss)});
  };
  add(KernelPass::forward, tokens, width, model.hidden, Dimension::n, Dimension::m);
  if (model.loss_chunk > 0) add(KernelPass::recompute, tokens, width, model.hidden, Dimension::n, Dimension::m);
  add(KernelPass::backward_input, tokens, model.hidden, width, Dimension::k, Dimension::m);
  add(KernelPass::backward_weight, width, model.hidden, tokens, Dimension::m, Dimension::k);
}

}  // namespace detail

TAWPIPE_INLINE StageWork embedding_work(const Transformer& model, const Batch& batch) {
  const std::int64_t row = batch.tokens() * size_bytes(model.dtype) * model.hidden;
  StageWork work;
  work.first_edge = true;
  work.parameters = model.embedding_parameters();
  work.stash = Bytes{row};  // the gradient of its output
  work.boundary = Bytes{row};
  detail::add_edge_traffic(work, EdgePart::embedding, KernelPass::forward, 2 * row, 4);
  detail::add_edge_traffic(work, EdgePart::embedding, KernelPass::backward_input, 3 * row, 4);
  work.take_traffic();
  return work;
}

TAWPIPE_INLINE StageWork head_work(const Transformer& model, const Batch& batch) {
  const std::int64_t element = size_bytes(model.dtype);
  const std::int64_t vocab = model.vocab;
  const double logits = 2.0 * static_cast<double>(vocab * model.hidden) * static_cast<double>(batch.tokens());
  StageWork work;
  work.last_edge = true;
  work.parameters = model.head_parameters() - model.mtp_parameters();
  work.forward = work.backward_input = work.backward_weight = Flops{logits};
  if (model.loss_chunk > 0) work.recompute = Flops{logits};
  work.stash = Bytes{model.loss_chunk > 0 ? batch.tokens() * element * vocab : 0};  // the gradient of all logits
  work.boundary = Bytes{batch.tokens() * model.hidden * element};
  const std::int64_t loss = model.loss_in_float32 ? std::max<std::int64_t>(element, 4) : element;
  const auto cast_to = [&](std::int64_t number) { return element < number ? element + number : 0; };
  const auto log_softmax = [&](std::int64_t number) { return cast_to(number) + 2 * number; };
  const std::int64_t norm = batch.tokens() * element * model.hidden;
  const std::int64_t metrics = model.metric_losses() * log_softmax(std::max<std::int64_t>(element, 4));
  const std::int64_t forward = model.fused_attention ? log_softmax(loss) : cast_to(loss) + 8 * loss;
  const std::int64_t backward = (model.fused_attention ? 4 : 2) * loss + cast_to(loss) + metrics;
  const std::int64_t again = model.loss_chunk > 0 ? forward : 0;
  const std::int64_t width = model.loss_chunk > 0 ? std::min<std::int64_t>(model.loss_chunk, vocab) : vocab;
  const bool whole = model.loss_chunk == 0;
  const std::int64_t sum = std::max<std::int64_t>(4, element);  // a number of each token
  const auto bytes = [&](std::int64_t of_token) { return Bytes{batch.tokens() * of_token}; };
  work.saved = bytes(2 * element * model.hidden + (whole ? 4 + loss * vocab : sum));
  work.forward_workspace = bytes(whole ? (element + (element < loss ? loss : 0)) * vocab : sum + element * width);
  work.backward_workspace = bytes(2 * element * model.hidden + (whole ? (element + 2 * loss) * vocab : element * width));
  if (model.has_one_kernel_loss()) {  // the logits are kept, until their gradient has their place
    work.forward_workspace = Bytes{};
    work.backward_workspace = bytes(2 * element * model.hidden + (model.is_torchtitan() ? element * vocab : 0));
  }
  const std::int64_t chunks = (vocab + width - 1) / width;
  detail::add_head_products(work, model, batch.tokens(), width, vocab / width);
  if (vocab % width > 0) detail::add_head_products(work, model, batch.tokens(), vocab % width, 1);
  if (const std::int64_t added = model.added_bytes(); added > 0) {
    detail::add_edge_traffic(work, EdgePart::loss, KernelPass::backward_weight, added * vocab * model.hidden, 1);
    work.kernels.back().of_weights = true;
  }
  const auto add = [&](EdgePart part, KernelPass pass, std::int64_t each, std::int32_t launches, std::int64_t parts) {
    detail::add_edge_traffic(work, part, pass, each, launches, parts);
  };
  add(EdgePart::norm, KernelPass::forward, 2 * norm, 1, 1);
  add(EdgePart::loss, KernelPass::forward, batch.tokens() * (forward * vocab + 16 * (chunks - 1)), 3, chunks);
  add(EdgePart::loss, KernelPass::backward_input, batch.tokens() * ((backward + again) * vocab + 8 * (chunks - 1)),
      model.loss_chunk > 0 ? 5 : 3, chunks);
  add(EdgePart::norm, KernelPass::backward_input, 3 * norm, 1, 1);
  work.take_traffic();
  return work;
}

}  // namespace tawpipe
#endif
