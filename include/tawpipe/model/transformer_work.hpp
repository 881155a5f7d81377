// Operations, bytes and parameters of a run of decoder layers for one microbatch.
// Not: how long they take (cost/) nor how a model is cut (model/workload.hpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/edge_work.hpp"
#include "tawpipe/model/layer_stack.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

/// The work of `layers` layers from `first_layer` on, with or without the embedding before and the
/// head after them, for one microbatch. Symbols: b sequences of S tokens, H hidden, Q and K as in
/// Transformer, V vocabulary.
///
/// Operations (a multiply-add counts as two): a product with a matrix of n parameters 2n a token in
/// the forward (of experts, of those that it passes), as much for the gradient of its input and as
/// much for that of its weight; the attention core, causal at half, 4 S S Q / 2 a sequence in the
/// forward (scores and their product with the values; with a window Operator::span() for one S) and twice that in the backward,
/// all of it in backward_input. The scores that fused attention computes a second time inside its backward kernel are counted
/// nowhere: they are not model operations (MFU), so they belong to the rate that the kernel reaches. Recomputation is counted
/// separately, in `recompute`: of decoder layers, and of the head where its loss is computed in chunks.
///
/// A tied output matrix counts in edge_parameters of the stage with the embedding, and again on a
/// stage that has only the head, where a second copy is held.
/// @pre 0 <= first_layer, 0 <= layers, first_layer + layers <= model.layers
/// @throws InputError  as Transformer::check and Batch::check.
/// Complexity: O(layers). Thread-safe.
/// Source: Narayanan et al. 2021, arXiv:2104.04473, section 5.1 (operations); Chowdhery et al.
/// 2022, PaLM, arXiv:2204.02311, appendix B (MFU); Dao et al. 2022, FlashAttention,
/// arXiv:2205.14135; memory and kernels: model/operator_work.hpp and model/edge_work.hpp.
TAWPIPE_INLINE StageWork transformer_work(const Transformer& model, const Batch& batch, Recompute recompute, int first_layer,
                                          int layers, bool embedding, bool head);

/// A LLaMA decoder as a LayerStack, which holds it.
/// @throws InputError  as transformer_work().
TAWPIPE_INLINE LayerStack layer_stack(const Transformer& model, const Batch& batch, Recompute recompute);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <utility>

#include "tawpipe/core/config.hpp"
#include "tawpipe/model/detail/operator_list.hpp"
#include "tawpipe/model/detail/operator_memory.hpp"
#include "tawpipe/model/detail/operator_reading.hpp"
#include "tawpipe/model/operator_work.hpp"

namespace tawpipe::inline v0 {

TAWPIPE_INLINE StageWork transformer_work(const Transformer& model, const Batch& batch, Recompute recompute, int first_layer,
                                          int layers, bool embedding, bool head) {
  TAWPIPE_ASSERT(first_layer >= 0 && layers >= 0 && layers <= model.layers - first_layer, "layers that the model has");
  return layer_stack(model, batch, recompute).stage(first_layer, layers, embedding, head);
}

namespace detail {

/// Adds `of` to an edge: what predicts a further token runs with the loss.
inline void add_to_edge(StageWork& edge, const StageWork& of) {
  edge.parameters += of.parameters;
  for (const auto member : {&StageWork::saved, &StageWork::stash, &StageWork::forward_traffic, &StageWork::backward_traffic})
    edge.*member += of.*member;
  for (const auto member : {&StageWork::forward_workspace, &StageWork::backward_workspace, &StageWork::stashed_workspace})
    edge.*member = std::max(edge.*member, of.*member);
  for (const auto member : {&StageWork::forward, &StageWork::recompute, &StageWork::backward_input, &StageWork::backward_weight})
    edge.*member += of.*member;
  for (Kernel kernel : of.kernels) {
    kernel.of_edge = true;
    kernel.op = static_cast<std::int16_t>(EdgePart::loss);
    edge.kernels.push_back(kernel);
  }
}

/// Of the parameters of a kind's layer, those of experts, where they follow its operators.
inline ParameterRange experts_of(const LayerKind& kind, std::int64_t hidden) {
  ParameterRange experts;
  std::int64_t at = 0;
  for (const Operator& op : kind.operators(hidden)) {
    if (op.expert_parameters() > 0 && experts.end == 0) experts.begin = at;
    at += op.parameters();
    if (op.expert_parameters() > 0) experts.end = at;
  }
  return experts;
}
/// The same of a model that is told by its sizes, whose matrices come before its norms.
inline ParameterRange experts_of(const Transformer& model) {
  if (!model.is_routed()) return {};
  const std::int64_t end = model.layer_matrix_parameters() - model.mlp_matrices() * model.hidden * model.shared_width;
  return {end - model.layer_expert_parameters(), end};
}

}  // namespace detail

TAWPIPE_INLINE LayerStack layer_stack(const Transformer& model, const Batch& batch, Recompute recompute) {
  model.check();
  batch.check();
  const double pairs = static_cast<double>(batch.tokens()) * static_cast<double>(batch.sequence) * model.heads;
  if (!model.fused_attention && 5 * pairs > 0x1p48) {
    throw InputError(concat("attention that is not fused keeps numbers of all pairs of ", batch.sequence,
                            " tokens, more than any memory holds; choose fused attention or shorter sequences"));
  }
  LayerStack stack{.name = model.name, .layers = model.layers, .dtype = model.dtype, .tied = model.tied};
  if (recompute == Recompute::full) stack.recompute_layers = model.recompute_layers;
  const Model decoder = model.decoder();
  for (std::size_t k = 0; k < decoder.kinds.size(); ++k) {
    const LayerKind& kind = decoder.kinds[k];
    const auto work = [&](Recompute policy) {
      StageWork layer = layer_work(kind, model, batch, policy);
      for (Kernel& kernel : layer.kernels) kernel.layer_kind = static_cast<std::uint8_t>(k);
      return layer;
    };
    LayerWork one{.layer = work(recompute),
                  .experts = model.has_kinds() ? detail::experts_of(kind, model.hidden)
                                               : detail::experts_of(k == 0 ? model : model.of_dense_layers())};
    if (stack.recompute_layers > 0) one.kept_layer = work(Recompute::none);
    if (k > 0) {
      stack.others.push_back(std::move(one));
      continue;
    }
    stack.layer = std::move(one.layer);
    stack.kept_layer = std::move(one.kept_layer);
    stack.experts = one.experts;
  }
  if (decoder.kinds.size() > 1 || model.has_kinds()) stack.pattern = decoder.pattern;
  stack.first_edge = embedding_work(model, batch);
  stack.last_edge = head_work(model, batch);
  stack.names.first_edge = {{"embedding", model.embedding_parameters()}};
  stack.names.last_edge = {{"final_norm", model.hidden * (model.norm_bias ? 2 : 1)}};
  if (!model.tied) stack.names.last_edge.push_back({"output", std::int64_t{model.vocab} * model.hidden});
  const StageWork head = stack.last_edge;
  for (const std::uint8_t kind : model.mtp) {
    StageWork logits = head;
    logits.parameters = model.hidden;  // of a norm of its own
    detail::add_to_edge(stack.last_edge, stack.layer_of(kind));
    detail::add_to_edge(stack.last_edge,
                        detail::work_of({detail::joining_operators(model.hidden), model, batch, Recompute::none}));
    detail::add_to_edge(stack.last_edge, logits);
  }
  if (!model.mtp.empty()) {  // their experts come last
    std::int64_t experts = 0;
    for (const std::uint8_t kind : model.mtp) experts += (kind == 0 ? stack.experts : stack.others[kind - 1U].experts).count();
    stack.last_edge_experts = {stack.last_edge.parameters - experts, stack.last_edge.parameters};
    stack.names.last_edge.push_back({"next_tokens", model.mtp_parameters()});
  }
  const LayerKind& first = decoder.kinds[decoder.pattern.front()];
  stack.lookup_waits_in_layer =
      detail::OperatorMemory{detail::OperatorReading{first.operators(model.hidden), model, batch, recompute}}
          .fits_lookup_gradient();
  stack.edges_count_as_layers = model.edges_count_as_layers;
  stack.shard_copies = model.is_torchtitan()               ? ShardCopies::each_parameter
                       : model.code == LayerCode::composer ? ShardCopies::flat_parameter
                                                           : ShardCopies::none;
  if (model.narrow_gathers) stack.gathered_bytes = 1;
  stack.keys = Bytes{batch.tokens() * model.key_width() * size_bytes(model.dtype)};
  stack.token_ids = model.vocab;
  stack.utilization = model.utilization;
  stack.utilization_source = model.utilization_source;
  stack.decoder = model;
  return stack;
}

}  // namespace tawpipe
#endif
