// The stack of a decoder whose layers are of several kinds: a part of layer_stack().
// Not: one layer's work (model/operator_work.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/detail/operator_kernels.hpp"
#include "tawpipe/model/detail/operator_list.hpp"
#include "tawpipe/model/detail/operator_reading.hpp"
#include "tawpipe/model/layer_stack.hpp"
#include "tawpipe/model/operator_work.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace tawpipe::inline v0::detail {

/// Adds `of` to an edge: what predicts a further token runs with the loss.
inline void add_to_edge(StageWork& edge, const StageWork& of) {
  edge.parameters += of.parameters;
  for (const auto member : {&StageWork::saved, &StageWork::stash, &StageWork::forward_traffic, &StageWork::backward_traffic})
    edge.*member += of.*member;
  for (const auto member : {&StageWork::forward_workspace, &StageWork::backward_workspace, &StageWork::stashed_workspace})
    edge.*member = std::max(edge.*member, of.*member);
  for (const auto member : {&StageWork::forward, &StageWork::recompute, &StageWork::backward_input, &StageWork::backward_weight})
    edge.*member += of.*member;
  edge.kernels.insert(edge.kernels.end(), of.kernels.begin(), of.kernels.end());
}

/// The product that joins the hidden state and the next token's embedding, with their norms.
inline StageWork joined_work(const Transformer& model, const Batch& batch) {
  const OperatorReading reading{joining_operators(model.hidden), model, batch, Recompute::none};
  StageWork work;
  reading.flops(work);
  reading.memory(work);
  reading.traffic(work);
  OperatorKernels{reading}.add_to(work.kernels);
  return work;
}

/// Of a model with several kinds of layers, from a stack with its first edge.
inline LayerStack stack_of_kinds(LayerStack stack, const Transformer& model, const Batch& batch, Recompute recompute) {
  stack.pattern = model.pattern;
  for (std::size_t k = 0; k < model.kinds.size(); ++k) {
    LayerWork kind{.layer = layer_work(model.kinds[k], model, batch, recompute)};
    if (stack.recompute_layers > 0) kind.kept_layer = layer_work(model.kinds[k], model, batch, Recompute::none);
    std::int64_t at = 0;
    for (const Operator& op : model.kinds[k].operators(model.hidden)) {
      if (op.expert_parameters() > 0 && kind.experts.end == 0) kind.experts = {at, at};
      at += op.parameters();
      if (op.expert_parameters() > 0) kind.experts.end = at;
    }
    if (k > 0) {
      stack.others.push_back(std::move(kind));
      continue;
    }
    stack.layer = std::move(kind.layer);
    stack.kept_layer = std::move(kind.kept_layer);
    stack.experts = kind.experts;
  }
  stack.last_edge = transformer_work(model, batch, recompute, 0, 0, false, true);
  const StageWork head = stack.last_edge;
  stack.last_edge.parameters = model.head_parameters() - model.mtp_parameters();
  stack.names.first_edge = {{"embedding", model.embedding_parameters()}};
  stack.names.last_edge = {{"final_norm", model.hidden * (model.norm_bias ? 2 : 1)}};
  if (!model.tied) stack.names.last_edge.push_back({"output", std::int64_t{model.vocab} * model.hidden});
  for (const std::uint8_t kind : model.mtp) {
    StageWork logits = head;
    logits.parameters = model.hidden;  // of a norm of its own
    add_to_edge(stack.last_edge, stack.layer_of(kind));
    add_to_edge(stack.last_edge, joined_work(model, batch));
    add_to_edge(stack.last_edge, logits);
  }
  if (!model.mtp.empty()) stack.names.last_edge.push_back({"next_tokens", model.mtp_parameters()});
  stack.edges_count_as_layers = model.edges_count_as_layers;
  if (model.narrow_gathers) stack.gathered_bytes = 1;
  stack.keys = Bytes{batch.tokens() * model.key_width() * size_bytes(model.dtype)};
  stack.token_ids = model.vocab;
  stack.utilization = model.utilization;
  stack.utilization_source = model.utilization_source;
  // Without those that transformer_of() needs: the sizes alone do not say what its layers are.
  stack.sizes = {{"hidden", model.hidden}, {"vocab", model.vocab}};
  return stack;
}

}  // namespace tawpipe::detail
