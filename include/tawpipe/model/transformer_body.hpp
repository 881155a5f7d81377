// The rank's parts and the bodies of a decoder's stages under tensor, sequence and context
// parallelism, as Megatron-LM and torchtitan run them.
// Not: the steps of a body (model/detail/operator_body.hpp), which ranks run them
// (schedule/compose.hpp) nor how long they take (cost/).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/detail/kind_of_rank.hpp"
#include "tawpipe/model/detail/operator_body.hpp"
#include "tawpipe/model/detail/operator_memory.hpp"
#include "tawpipe/model/detail/operator_reading.hpp"
#include "tawpipe/model/operator_sharing.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// What torchtitan's tensor-parallel ranks copy. PyTorch's collectives gather and scatter along the
/// first dimension, so tokens of several sequences are copied after each gather and before each
/// sum (read and written), those of the embedding and the head too; inputs that are cast with one
/// scale a row are copied by that. Asynchronous tensor parallelism adds all ranks' parts of a sum
/// in a kernel of its own instead (read, and a part written).
/// Source: PyTorch, torch/distributed/_functional_collectives.py: all_gather_tensor,
/// reduce_scatter_tensor; _symmetric_memory/__init__.py: fused_matmul_reduce_scatter.
inline void add_token_copies(StageWork& work, const Transformer& model, const Batch& batch, Recompute recompute,
                             const Sharing& sharing) {
  if (!model.is_torchtitan() || sharing.tensor == 1 || !sharing.sequence_parallel) return;
  if (!sharing.copies || work.kernels.empty()) return;
  const double stream = static_cast<double>(batch.tokens()) / sharing.token_ranks() * model.hidden;  // numbers
  const double element = static_cast<double>(size_bytes(model.dtype));
  const double copy = batch.microbatch_size > 1 ? 2 * element * stream : 0;
  const double input = model.gathers_narrow_inputs() ? copy / element : copy;
  const double gather = sharing.overlap || model.gathers_apart() ? 0 : input;
  const double sum = sharing.overlap ? (1 + 1.0 / sharing.tensor) * element * stream : copy;
  const auto add = [&](KernelPass pass, double bytes, std::int32_t count) {
    if (bytes > 0 && count > 0)
      work.kernels.push_back({.kind = Kernel::Kind::traffic, .pass = pass, .count = count, .launches = 1, .bytes = bytes});
  };
  add(KernelPass::forward, gather, 2 * work.layers);
  add(KernelPass::forward, sum, 2 * work.layers);
  add(KernelPass::backward_input, gather, 2 * work.layers);
  add(KernelPass::backward_input, sum, 2 * work.layers);
  if (recompute == Recompute::full) add(KernelPass::recompute, sum, (model.stops_early() ? 1 : 2) * work.recomputed);
  if (recompute == Recompute::full || model.chooses_parts(recompute)) add(KernelPass::recompute, gather, 2 * work.recomputed);
  const std::int32_t edges = (work.first_edge ? 1 : 0) + (work.last_edge ? 1 : 0);
  add(KernelPass::forward, copy, edges);
  add(KernelPass::backward_input, copy, edges);
}

/// Before Blackwell, 8-bit products of one scale a tensor read both operands along the inner
/// dimension. So what tensor-parallel ranks gather in 8 bits for gradients of weights is then
/// transposed (read and written): the inputs of two products of a layer, and the gradients of the
/// results of the other two, [t, H] each.
/// Source: Transformer Engine, csrc/util.h: non_tn_fp8_gemm_supported, module/layernorm_linear.py
/// and linear.py: the backward's columnwise usage of gathered tensors.
inline void add_transposes(StageWork& work, const Transformer& model, const Batch& batch, const Sharing& sharing) {
  if (model.is_torchtitan() || model.products != ProductFormat::fp8) return;
  if (sharing.tensor == 1 || !sharing.sequence_parallel || work.kernels.empty() || work.layers == 0) return;
  const double stream = static_cast<double>(batch.tokens()) / sharing.token_ranks() * model.hidden;
  work.kernels.push_back({.kind = Kernel::Kind::traffic,
                          .pass = KernelPass::backward_weight,
                          .count = work.layers,
                          .launches = 4,
                          .before_blackwell = true,
                          .bytes = 4 * 2 * stream});
}

/// What the context-parallel ranks of a ring copy and add around the blocks of their attention,
/// counted for the rank with the first and the last tokens: its own block is causal, the others are
/// half of its queries with all keys of another rank. Blocks of a forward run on two streams, so
/// that together they fill the device as one kernel, and their copies run beside them; results are
/// corrected and added after all. In a backward each block copies its queries, results and
/// gradients, and the gradients that it gives are added.
/// Source: Transformer Engine, pytorch/attention/dot_product_attention/context_parallel.py:
/// AttnFuncWithCPAndKVP2P, with fused attention in 16 bits.
inline void add_block_copies(StageWork& work, const Transformer& model, const Batch& batch, const Sharing& sharing) {
  const int others = sharing.attention_blocks() - 1;
  if (others == 0) return;
  const double of_width = static_cast<double>(batch.tokens() * size_bytes(model.dtype)) / sharing.token_ranks();
  const double queries = of_width * static_cast<double>(model.query_width()) / sharing.tensor;
  const double keys = of_width * static_cast<double>(model.key_width_of_rank(sharing.tensor));
  for (std::size_t k = work.kernels.size(); k-- > 0;) {
    const Kernel::Kind kind = work.kernels[k].kind;
    if (kind != Kernel::Kind::attention && kind != Kernel::Kind::attention_backward) continue;
    const bool backward = kind == Kernel::Kind::attention_backward;
    // Copied: read and written; added: both read, and written.
    const double own = backward ? 14 * keys + 3 * queries : 2 * queries;
    const double other = backward ? 10 * keys + 4.5 * queries : 1.5 * queries;
    work.kernels.push_back({.kind = Kernel::Kind::traffic,
                            .pass = work.kernels[k].pass,
                            .count = work.kernels[k].count,
                            .launches = (backward ? 4 : 1) + (backward ? 6 : 2) * others,
                            .bytes = own + others * other,
                            .op = work.kernels[k].op,
                            .layer_kind = work.kernels[k].layer_kind});
  }
}

/// Tensor-parallel ranks split each expert's width, so all of them move the copies of all tokens that
/// experts read, kH a token: the part that other ranks would have, to experts and back.
inline void add_routed_copies(StageWork& work, const Transformer& model, const Batch& batch, Recompute recompute,
                              const Sharing& sharing) {
  const std::int32_t layers = work.layers_of(0);
  if (!model.is_routed() || sharing.tensor == 1 || sharing.whole_experts || layers == 0) return;
  const double numbers =
      static_cast<double>(batch.tokens() / sharing.token_ranks() * model.routed_copies()) * (sharing.tensor - 1) / sharing.tensor;
  const bool again = recompute == Recompute::full || model.parts_again(recompute).mlp;
  const std::int32_t recomputed = std::max(0, work.recomputed - (work.layers - layers));
  const double moved = numbers * static_cast<double>(size_bytes(model.dtype)) * (model.experts_per_token + 1) /
                       model.experts_per_token;  // one way
  const int ways = !again ? 0 : recompute == Recompute::full && model.stops_early() ? 1 : 2;
  work.forward_traffic += Bytes{static_cast<std::int64_t>(2 * layers * moved)};
  work.backward_traffic += Bytes{static_cast<std::int64_t>((2 * layers + ways * recomputed) * moved)};
}

inline void check_experts(const Transformer& model, const Sharing& sharing) {
  if (!model.is_routed()) throw InputError(concat("expert parallelism: model ", quote(model.name), " has no experts"));
  if (model.experts % sharing.ranks() != 0) {
    throw InputError(concat("expert parallelism among ", sharing.ranks(), " ranks: they do not divide the ", model.experts,
                            " experts equally; choose a divisor"));
  }
  if (sharing.tensor > 1 && !sharing.sequence_parallel) {
    throw InputError(
        "expert parallelism with tensor parallelism needs sequence parallelism, so that each rank sends its own tokens");
  }
}

/// What one of the ranks that share a model's layers has of each kind and of the edges.
/// @param whole  of the model, with its kernels
inline PartsOfRank parts_of_rank(const Transformer& model, const Batch& batch, Recompute recompute, const LayerStack& whole,
                                 const Sharing& sharing) {
  PartsOfRank parts{.first_edge = whole.first_edge, .last_edge = whole.last_edge};
  const Model decoder = model.decoder();
  for (std::size_t k = 0; k < decoder.kinds.size(); ++k) {
    const auto number = static_cast<std::uint8_t>(k);
    parts.kinds.emplace_back(OperatorReading{decoder.kinds[k].operators(model.hidden), model, batch, recompute}, number,
                             whole.layer_of(number).kernels, sharing);
  }
  for (StageWork* const edge : {&parts.first_edge, &parts.last_edge}) {
    for (Kernel& kernel : edge->kernels) kernel = kernel.split(sharing.kernels());
  }
  return parts;
}

/// The layers of a model with the memory of one rank's part, and without kernels.
inline LayerStack layers_of_rank(const Transformer& model, const Batch& batch, Recompute recompute, const LayerStack& whole,
                                 const Sharing& sharing) {
  LayerStack of_rank{.layers = whole.layers, .recompute_layers = whole.recompute_layers, .pattern = whole.pattern};
  const Model decoder = model.decoder();
  of_rank.others.resize(decoder.kinds.size() - 1);
  for (std::size_t k = 0; k < decoder.kinds.size(); ++k) {
    const std::vector<Operator> list = decoder.kinds[k].operators(model.hidden);
    const auto memory = [&](Recompute policy, StageWork& of) {
      OperatorMemory{OperatorReading{list, model, batch, policy}, sharing}.add_to(of);
    };
    memory(recompute, k == 0 ? of_rank.layer : of_rank.others[k - 1].layer);
    if (whole.recompute_layers > 0) memory(Recompute::none, k == 0 ? of_rank.kept_layer : of_rank.others[k - 1].kept_layer);
  }
  return of_rank;
}

/// One rank's part of a stage. If tensor-parallel ranks split norms and residuals by tokens, all of it is
/// divided by T x C, and a product's input [t, H] is gathered for it; otherwise each tensor rank has the
/// whole residual stream.
/// @param layers  layers_of_rank()
inline StageWork shared_work(const StageWork& stage, const Transformer& model, const Batch& batch, Recompute recompute,
                             const LayerStack& whole, const LayerStack& layers, const Sharing& sharing) {
  StageWork work = stage;
  const KernelSplit split = kernel_split(model, sharing);
  for (Kernel& kernel : work.kernels) kernel = kernel.split(split);
  if (sharing.ranks() == 1) return work;
  const auto part = [](std::int64_t all, std::int64_t parts) { return (all + parts - 1) / parts; };
  const std::int64_t stream = batch.tokens() * model.hidden * size_bytes(model.dtype);
  const StageWork memory = layers.stage(stage.first_layer, stage.layers, false, false, stage.recomputed);
  // Of the edges: so many tensors of the residual stream, and the rest, such as logits, by all ranks.
  const auto edge = [&](Bytes all, std::int64_t tensors) {
    const std::int64_t of_stream = std::min(tensors * stream, all.value());
    return Bytes{part(of_stream, sharing.token_parts()) + part(all.value() - of_stream, sharing.ranks())};
  };
  const StageWork head = stage.last_edge ? whole.last_edge : StageWork{};
  const bool waits = stage.first_edge && (stage.layers == 0 || !whole.lookup_waits_in_layer);
  work.saved = memory.saved + edge(head.saved, 2);
  work.stash = memory.stash + edge(head.stash, 0) + edge(waits ? whole.first_edge.stash : Bytes{}, 1);
  work.boundary = Bytes{part(work.boundary.value(), sharing.gathers_messages() ? sharing.ranks() : sharing.token_parts())};
  const bool gathers = (sharing.tensor > 1 && sharing.sequence_parallel) || sharing.gathers_messages();
  const Bytes gathered{gathers && stage.layers > 0 ? part(stream, sharing.token_ranks()) : 0};
  work.forward_workspace = std::max(memory.forward_workspace, edge(head.forward_workspace, 0)) + gathered;
  work.backward_workspace = std::max(memory.backward_workspace, edge(head.backward_workspace, 2)) + gathered * 2;
  work.stashed_workspace =
      work.backward_workspace - std::max(memory.input_workspace(), edge(head.input_workspace(), 2)) - gathered * 2;
  const std::int64_t experts = sharing.whole_experts ? work.expert_parameters : 0;
  work.parameters = part(work.parameters - experts, sharing.tensor) + part(experts, sharing.ranks());
  work.edge_parameters = part(work.edge_parameters, sharing.tensor);
  for (Bytes* bytes : {&work.forward_traffic, &work.backward_traffic}) *bytes = Bytes{part(bytes->value(), sharing.ranks())};
  for (Flops* flops : {&work.forward, &work.recompute, &work.backward_input, &work.backward_weight})
    *flops = *flops / static_cast<double>(sharing.ranks());
  for (const Kernel& kernel : work.kernels) {
    Bytes& traffic = kernel.pass == KernelPass::forward ? work.forward_traffic : work.backward_traffic;
    traffic += Bytes{static_cast<std::int64_t>(kernel.count * kernel.reordered)};
  }
  if (model.has_kinds()) return work;
  add_routed_copies(work, model, batch, recompute, sharing);
  add_token_copies(work, model, batch, recompute, sharing);
  add_transposes(work, model, batch, sharing);
  add_block_copies(work, model, batch, sharing);
  return work;
}

/// @throws InputError  if a model's sizes cannot be shared so
inline void check_sharing(const Transformer& model, const Sharing& sharing) {
  const bool two_level = sharing.exchange == ContextExchange::two_level;
  if (sharing.context > 1 && two_level && (sharing.inner < 1 || sharing.context % sharing.inner != 0)) {
    throw InputError(concat("context exchange ", name(sharing.exchange), ":", sharing.inner, " among ", sharing.context,
                            " ranks; choose a divisor of ", sharing.context));
  }
  if (sharing.whole_experts) check_experts(model, sharing);
  if (model.has_kinds()) {
    if (const std::string why = why_not_shared(model, sharing); !why.empty()) throw InputError(why);
    return;
  }
  const int swapped = sharing.tensor * (two_level ? sharing.inner : sharing.context);  // ranks that have heads of their own
  if (sharing.context > 1 && (two_level || sharing.exchange == ContextExchange::all_to_all) && !model.divides_heads(swapped)) {
    throw InputError(concat("context exchange ", name(sharing.exchange), " gives each of tensor ", sharing.tensor, " x context ",
                            swapped / sharing.tensor, " ranks whole heads; ", model.heads, " heads and ", model.kv_heads,
                            " key-value heads are not divisible by ", swapped,
                            two_level ? "; exchange among fewer" : "; use all-gather or ring"));
  }
  if (sharing.context > 1 && model.window > 0 && passes_blocks(sharing.exchange)) refuse_ring_of_window(sharing.exchange);
}

}  // namespace detail

/// One rank's part of each stage, with the bodies of its passes.
/// @throws InputError  if all-to-all has more ranks than there are key and value heads, two levels do
/// not divide the context ranks, or a ring has a window; or if whole experts cannot be divided among all ranks, or
/// tensor-parallel ranks have the same tokens, without sequence parallelism.
/// Complexity: O(layers).
inline std::vector<SharedStage> share_stages(const Transformer& model, const Batch& batch, Recompute recompute,
                                             std::span<const StageWork> stages, const Sharing& sharing) {
  detail::check_sharing(model, sharing);
  LayerStack whole;
  LayerStack layers;
  detail::PartsOfRank parts;
  const bool has_bodies = sharing.ranks() > 1;
  if (has_bodies) {
    whole = layer_stack(model, batch, recompute);
    layers = detail::layers_of_rank(model, batch, recompute, whole, sharing);
    parts = detail::parts_of_rank(model, batch, recompute, whole, sharing);
  }
  std::vector<SharedStage> shared;
  shared.reserve(stages.size());
  const auto alike = [](const StageWork& a, const StageWork& b) {
    return a.layers == b.layers && a.recomputed == b.recomputed && a.kinds == b.kinds && a.first_edge == b.first_edge &&
           a.last_edge == b.last_edge;
  };
  for (const StageWork& stage : stages) {
    SharedStage part{.work = detail::shared_work(stage, model, batch, recompute, whole, layers, sharing)};
    part.alternates = sharing.alternates();
    const std::size_t before = shared.empty() ? 0 : shared.size() - 1;
    if (!shared.empty() && alike(stages[before], stage)) {
      part.forward = shared[before].forward;
      part.backward = shared[before].backward;
      part.backward_input = shared[before].backward_input;
      part.backward_weight = shared[before].backward_weight;
    } else if (has_bodies) {
      const auto body = [&](auto&& write) {
        detail::OperatorBody writer{parts, model, batch, recompute, sharing};
        write(writer);
        return writer.take();
      };
      part.forward = body([&](auto& writer) { writer.forward(stage); });
      part.backward = body([&](auto& writer) { writer.backward(stage, true, true); });
      part.backward_input = body([&](auto& writer) { writer.backward(stage, true, false); });
      part.backward_weight = body([&](auto& writer) { writer.backward(stage, false, true); });
    }
    shared.push_back(std::move(part));
  }
  return shared;
}

}  // namespace tawpipe
