// Operations, bytes and parameters of a run of decoder layers for one microbatch.
// Not: how long they take (cost/) nor how a model is cut (model/workload.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/layer_stack.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_kernels.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Device-memory bytes of memory-bound work, forward and backward. Each kernel reads its inputs and
/// writes its outputs once.
struct TrafficBytes {
  std::int64_t forward = 0;
  std::int64_t backward = 0;
};

/// Of one layer, in elements a token (a sum of gradients reads two tensors and writes one):
///              forward                                     backward
///   norms      2 x (read x, write y)                4H     2 x (read x, dy; write dx)                      6H
///   residual   2 x (read 2, write 1)                6H     2 sums of gradients                             6H
///   branches   -                                           2 sums into normed (q, k, v), 1 (gate, up)      9H
///   rotary     read and write query and key   2(Q + K)     the same                                  2(Q + K)
///   latent     norms of both short vectors  2 x latent     the same                                2 x latent
///   SwiGLU     silu 2I, product 3I                  5I     product 2 x 3I, silu 3I                         9I
///   no gate    read up, write its activation        2I     read both, write a gradient                     3I
///   experts    copy tokens, add results up   2(k + 1)H     the same                                 2(k + 1)H
///   router     softmax and choice in float32        5E     the same                                        5E
/// The backward includes recomputation: all of the forward (full; but the last residual sum, 3H, and
/// the sum of experts' results, where that stops early), or norms and SwiGLU (selective, unless it
/// covers other parts). With experts I is what a token passes of them, and with latent attention K of
/// a key is Q.
inline TrafficBytes layer_traffic(const Transformer& model, const Batch& batch, Recompute recompute) {
  const std::int64_t hidden = model.hidden;
  const std::int64_t inner = model.token_width();
  const std::int64_t rotary = 2 * model.turned_width();
  const std::int64_t copies = model.is_routed() ? model.routed_copies() + hidden : 0;  // to experts, or back
  const std::int64_t routing = 2 * copies + 5 * model.experts;
  const std::int64_t mlp = (model.gated ? 5 : 2) * inner;
  const std::int64_t forward = 10 * hidden + rotary + mlp + routing;
  std::int64_t backward = 21 * hidden + rotary + (model.gated ? 9 : 3) * inner + routing;
  if (recompute == Recompute::full) backward += forward - (model.stops_early() ? 3 * hidden + copies : 0);
  const RecomputeParts parts = model.parts_again(recompute);
  const bool chosen = model.chooses_parts(recompute);
  if (chosen || parts.layernorm) backward += 4 * hidden;
  if (chosen || parts.mlp || parts.activation) backward += mlp;
  if (parts.mlp) backward += routing;
  const std::int64_t scale = batch.tokens() * size_bytes(model.dtype);
  return {.forward = scale * forward, .backward = scale * backward};
}

/// Forward: read the token's row, write it. Backward: read the gradient, read and write the row's
/// gradient.
inline TrafficBytes embedding_traffic(const Transformer& model, const Batch& batch) {
  const std::int64_t row = batch.tokens() * size_bytes(model.dtype) * model.hidden;
  return {.forward = 2 * row, .backward = 3 * row};
}

/// Final norm (as a layer's), and cross entropy: cast to float32 (where narrower), log-softmax read
/// and write; backward: write the gradient of log-softmax, read it and log-softmax, write the
/// gradient of the logits, cast it back. In chunks: the same, with the forward's kernels once more
/// in the backward; and for each further chunk a token's largest logit and sum of exponentials, in
/// float32, read and written, and read in the backward. A metric's loss after it: cast to float32,
/// log-softmax read and write. With
/// unfused attention (Megatron-LM of 2021 and 2022, core/tensor_parallel/cross_entropy.py) the loss
/// is kernels of their own: the maximum read; subtracted, read and written; exponentials and their
/// quotients by the sum, each read and written; the sum read; backward: read and written, cast back.
inline TrafficBytes head_traffic(const Transformer& model, const Batch& batch) {
  const std::int64_t element = size_bytes(model.dtype);
  const std::int64_t loss = model.loss_in_float32 ? std::max<std::int64_t>(element, 4) : element;
  const auto cast_to = [&](std::int64_t number) { return element < number ? element + number : 0; };
  const auto log_softmax = [&](std::int64_t number) { return cast_to(number) + 2 * number; };
  const std::int64_t cast = cast_to(loss);
  const std::int64_t norm = element * model.hidden;
  const std::int64_t metrics = model.metric_losses() * log_softmax(std::max<std::int64_t>(element, 4));
  const std::int64_t forward = model.fused_attention ? log_softmax(loss) : cast + 8 * loss;
  const std::int64_t backward = (model.fused_attention ? 4 : 2) * loss + cast + metrics;
  const std::int64_t again = model.loss_chunk > 0 ? forward : 0;
  const std::int64_t further = loss_chunks(model) - 1;
  return {.forward = batch.tokens() * (2 * norm + forward * model.vocab + 16 * further),
          .backward = batch.tokens() * (3 * norm + (backward + again) * model.vocab + 8 * further)};
}

}  // namespace detail

/// The work of `layers` layers from `first_layer` on, with or without the embedding before and the
/// head after them, for one microbatch. Symbols: b sequences of S tokens, H hidden, Q and K as in
/// Transformer, V vocabulary.
///
/// Operations (a multiply-add counts as two): a product with a matrix of n parameters 2n a token in
/// the forward (of experts, of those that it passes), as much for the gradient of its input and as
/// much for that of its weight; the attention core, causal at half, 4 S S Q / 2 a sequence in the
/// forward (scores and their product with the values; with a window attention_span() for one S) and twice that in the backward,
/// all of it in backward_input. The scores that fused attention computes a second time inside its backward kernel are counted
/// nowhere: they are not model operations (MFU), so they belong to the rate that the kernel reaches. Recomputation is counted
/// separately, in `recompute`: of decoder layers, and of the head where its loss is computed in chunks.
///
/// A tied output matrix counts in edge_parameters of the stage with the embedding, and again on a
/// stage that has only the head, where a second copy is held.
/// @pre 0 <= first_layer, 0 <= layers, first_layer + layers <= model.layers
/// @throws InputError  as Transformer::check and Batch::check.
/// Complexity: O(1). Thread-safe.
/// Source: Narayanan et al. 2021, arXiv:2104.04473, section 5.1 (operations); Chowdhery et al.
/// 2022, PaLM, arXiv:2204.02311, appendix B (MFU); Dao et al. 2022, FlashAttention,
/// arXiv:2205.14135; activations: model/activation.hpp.
TAWPIPE_INLINE StageWork transformer_work(const Transformer& model, const Batch& batch, Recompute recompute, int first_layer,
                                          int layers, bool embedding, bool head);

/// A LLaMA decoder as a LayerStack. Its `sizes` are those of Transformer by name, for
/// transformer_of().
/// @throws InputError  as transformer_work().
TAWPIPE_INLINE LayerStack layer_stack(const Transformer& model, const Batch& batch, Recompute recompute);

/// The decoder that layer_stack() made `stack` from; none if its sizes are from elsewhere.
TAWPIPE_INLINE std::optional<Transformer> transformer_of(const LayerStack& stack);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <string_view>
#include <type_traits>
#include <utility>

#include "tawpipe/core/config.hpp"
#include "tawpipe/model/activation.hpp"

namespace tawpipe::inline v0 {

namespace detail {
LayerStack stack_of_kinds(LayerStack stack, const Transformer& model, const Batch& batch, Recompute recompute);
}

TAWPIPE_INLINE StageWork transformer_work(const Transformer& model, const Batch& batch, Recompute recompute, int first_layer,
                                          int layers, bool embedding, bool head) {
  model.check();
  batch.check();
  TAWPIPE_ASSERT(first_layer >= 0 && layers >= 0 && layers <= model.layers - first_layer, "layers that the model has");
  const bool part_again = recompute == Recompute::full && model.recompute_layers > 0 && layers > model.recompute_layers;
  if (part_again || ((model.dense_layers > 0 || model.has_kinds()) && layers > 0)) {
    return layer_stack(model, batch, recompute).stage(first_layer, layers, embedding, head);
  }

  const auto tokens = static_cast<double>(batch.tokens());
  const TokenFlops flops = flops_of(model.layer_kind().operators(model.hidden), batch.sequence);
  const double matrices = flops.backward_weight * tokens;
  const double attention = (flops.forward - flops.backward_weight) * tokens;
  const double logits = head ? 2.0 * static_cast<double>(std::int64_t{model.vocab} * model.hidden) * tokens : 0.0;
  const double of_matrix = 2.0 * static_cast<double>(model.hidden * model.token_width()) * tokens;
  const double of_mlp =
      static_cast<double>(model.mlp_matrices()) * of_matrix + 2.0 * static_cast<double>(model.hidden) * model.experts * tokens;
  double again = recompute == Recompute::full ? matrices + attention - (model.stops_early() ? of_matrix : 0) : 0;
  if (model.attention_again(recompute)) again += attention;
  if (model.parts_again(recompute).mlp) again += of_mlp;
  if (model.chooses_parts(recompute) && model.is_torchtitan())
    again += 2.0 * static_cast<double>(model.every_second_matrix()) * tokens;

  StageWork work;
  work.first_layer = first_layer;
  work.layers = work.recomputed = layers;
  work.first_edge = embedding;
  work.last_edge = head;
  work.parameters = layers * model.layer_parameters();
  if (embedding) work.edge_parameters += model.embedding_parameters();
  if (head) work.edge_parameters += model.head_parameters() - model.mtp_parameters();
  if (head && model.tied && !embedding) work.edge_parameters += model.embedding_parameters();

  work.forward = Flops{layers * (matrices + attention) + logits};
  work.recompute = Flops{layers * again + (model.loss_chunk > 0 ? logits : 0.0)};
  work.backward_input = Flops{layers * (matrices + 2 * attention) + logits};
  work.backward_weight = Flops{layers * matrices + logits};

  detail::TrafficBytes of_edges;
  work.stash = Bytes{stash_bytes(model, batch, recompute, layers, embedding, head)};
  work.boundary = Bytes{batch.tokens() * model.hidden * size_bytes(model.dtype)};
  if (layers > 0) {
    const ActivationBytes layer = layer_activations(model, batch, recompute);
    const detail::TrafficBytes traffic = detail::layer_traffic(model, batch, recompute);
    work.saved += Bytes{layers * layer.saved};
    work.forward_workspace = Bytes{layer.forward_workspace};  // one layer runs at a time
    work.backward_workspace = Bytes{layer.backward_workspace};
    work.stashed_workspace = Bytes{layer_stash(model, batch, recompute).tensors};
    work.forward_traffic += Bytes{layers * traffic.forward};
    work.backward_traffic += Bytes{layers * traffic.backward};
  }
  if (embedding) {
    const detail::TrafficBytes traffic = detail::embedding_traffic(model, batch);
    of_edges.forward += traffic.forward;
    of_edges.backward += traffic.backward;
    work.forward_traffic += Bytes{traffic.forward};
    work.backward_traffic += Bytes{traffic.backward};
  }
  if (head) {
    const ActivationBytes loss = head_activations(model, batch);
    const detail::TrafficBytes traffic = detail::head_traffic(model, batch);
    of_edges.forward += traffic.forward;
    of_edges.backward += traffic.backward;
    work.saved += Bytes{loss.saved};
    work.forward_workspace = std::max(work.forward_workspace, Bytes{loss.forward_workspace});
    const Bytes of_input = std::max(work.input_workspace(), Bytes{loss.backward_workspace});
    work.backward_workspace = std::max(work.backward_workspace, Bytes{loss.backward_workspace});
    work.stashed_workspace = work.backward_workspace - of_input;
    work.forward_traffic += Bytes{traffic.forward};
    work.backward_traffic += Bytes{traffic.backward};
  }
  work.kernels = transformer_kernels(model, batch, recompute, layers, embedding, head, static_cast<double>(of_edges.forward),
                                     static_cast<double>(of_edges.backward));
  return work;
}

namespace detail {

/// What a schedule's file says of a transformer beside its sizes, where it is not the standard.
struct TransformerOption {
  std::string_view key;
  std::int64_t standard;
  std::int64_t most;
  std::int64_t (*get)(const Transformer&);
  void (*set)(Transformer&, std::int64_t);
};
template <auto member>
constexpr TransformerOption transformer_option(std::string_view key, std::int64_t standard, std::int64_t most) {
  using Value = std::remove_cvref_t<decltype(std::declval<Transformer>().*member)>;
  return {key, standard, most, [](const Transformer& model) { return static_cast<std::int64_t>(model.*member); },
          [](Transformer& model, std::int64_t value) { model.*member = static_cast<Value>(value); }};
}
/// The same of an option that may be left open: standard, a value that none has.
template <auto member>
constexpr TransformerOption open_option(std::string_view key, std::int64_t most) {
  using Value = typename std::remove_cvref_t<decltype(std::declval<Transformer>().*member)>::value_type;
  return {key, -1, most,
          [](const Transformer& model) { return model.*member ? static_cast<std::int64_t>(*(model.*member)) : std::int64_t{-1}; },
          [](Transformer& model, std::int64_t value) { model.*member = static_cast<Value>(value); }};
}
inline constexpr TransformerOption transformer_options[] = {
    open_option<&Transformer::head_dim>("head_dim", Transformer::max_hidden),
    transformer_option<&Transformer::loss_chunk>("loss_chunk", 0, Transformer::max_vocab),
    transformer_option<&Transformer::recompute_layers>("recompute_layers", 0, Transformer::max_layers),
    {"recompute_parts", 0, 15, [](const Transformer& model) { return std::int64_t{model.recompute_parts.bits()}; },
     [](Transformer& model, std::int64_t value) { model.recompute_parts = RecomputeParts::of_bits(static_cast<int>(value)); }},
    open_option<&Transformer::early_stop>("early_stop", 1),
    transformer_option<&Transformer::loss_in_float32>("loss_in_float32", 1, 1),
    transformer_option<&Transformer::gated>("gated", 1, 1),
    transformer_option<&Transformer::fused_attention>("fused_attention", 1, 1),
    transformer_option<&Transformer::fused_swiglu>("fused_swiglu", 0, 1),
    transformer_option<&Transformer::code>("code", 0, layer_codes - 1),
    transformer_option<&Transformer::edges_count_as_layers>("edges_count_as_layers", 0, 1),
    transformer_option<&Transformer::narrow_gathers>("narrow_gathers", 0, 1),
    transformer_option<&Transformer::products>("products", 0, product_formats - 1),
    transformer_option<&Transformer::experts>("experts", 0, Transformer::max_experts),
    transformer_option<&Transformer::experts_per_token>("experts_per_token", 0, Transformer::max_experts),
    transformer_option<&Transformer::shared_width>("shared_width", 0, Transformer::max_intermediate),
    transformer_option<&Transformer::expert_groups>("expert_groups", 1, Transformer::max_experts),
    transformer_option<&Transformer::groups_per_token>("groups_per_token", 1, Transformer::max_experts),
    transformer_option<&Transformer::dense_layers>("dense_layers", 0, Transformer::max_layers),
    transformer_option<&Transformer::dense_width>("dense_width", 0, Transformer::max_intermediate),
    transformer_option<&Transformer::query_rank>("query_rank", 0, Transformer::max_hidden),
    transformer_option<&Transformer::key_value_rank>("key_value_rank", 0, Transformer::max_hidden),
    transformer_option<&Transformer::rope_width>("rope_width", 0, Transformer::max_hidden),
    transformer_option<&Transformer::value_size>("value_size", 0, Transformer::max_hidden),
    transformer_option<&Transformer::window>("window", 0, std::numeric_limits<int>::max()),
    transformer_option<&Transformer::qkv_bias>("qkv_bias", 0, 1),
    transformer_option<&Transformer::output_bias>("output_bias", 0, 1),
    transformer_option<&Transformer::mlp_bias>("mlp_bias", 0, 1),
    transformer_option<&Transformer::qk_norm>("qk_norm", 0, 2),
    transformer_option<&Transformer::shared_gate>("shared_gate", 0, 1),
};

}  // namespace detail

TAWPIPE_INLINE LayerStack layer_stack(const Transformer& model, const Batch& batch, Recompute recompute) {
  const double pairs = static_cast<double>(batch.tokens()) * static_cast<double>(batch.sequence) * model.heads;
  if (!model.fused_attention && 5 * pairs > 0x1p48) {
    throw InputError(concat("attention that is not fused keeps numbers of all pairs of ", batch.sequence,
                            " tokens, more than any memory holds; choose fused attention or shorter sequences"));
  }
  LayerStack stack{.name = model.name, .layers = model.layers, .dtype = model.dtype, .tied = model.tied};
  stack.first_edge = transformer_work(model, batch, recompute, 0, 0, true, false);
  stack.first_edge.parameters = model.embedding_parameters();
  const auto layer_of = [&](const Transformer& of, Recompute policy) {
    return transformer_work(of, batch, policy, 0, 1, false, false);
  };
  if (recompute == Recompute::full) stack.recompute_layers = model.recompute_layers;
  if (model.has_kinds()) return detail::stack_of_kinds(std::move(stack), model, batch, recompute);
  const Transformer others = model.of_other_layers();
  stack.layer = layer_of(others, recompute);
  if (stack.recompute_layers > 0) stack.kept_layer = layer_of(others, Recompute::none);
  if (model.dense_layers > 0) {
    stack.pattern = model.decoder().pattern;
    LayerWork& dense = stack.others.emplace_back(LayerWork{.layer = layer_of(model.of_dense_layers(), recompute)});
    if (stack.recompute_layers > 0) dense.kept_layer = layer_of(model.of_dense_layers(), Recompute::none);
  }
  stack.last_edge = transformer_work(model, batch, recompute, 0, 0, false, true);
  stack.last_edge.parameters = model.head_parameters();
  stack.names.first_edge = {{"embedding", model.embedding_parameters()}};
  stack.names.last_edge = {{"final_norm", model.hidden}};
  if (!model.tied) stack.names.last_edge.push_back({"output", model.embedding_parameters()});
  stack.lookup_waits_in_layer =
      layer_fits_lookup_gradient(model.dense_layers > 0 ? model.of_dense_layers() : model, batch, recompute);
  stack.edges_count_as_layers = model.edges_count_as_layers;
  stack.shard_copies = model.is_torchtitan()               ? ShardCopies::each_parameter
                       : model.code == LayerCode::composer ? ShardCopies::flat_parameter
                                                           : ShardCopies::none;
  if (model.narrow_gathers) stack.gathered_bytes = 1;
  if (model.is_routed()) {
    const std::int64_t end = model.layer_matrix_parameters() - model.mlp_matrices() * model.hidden * model.shared_width;
    stack.experts = {end - model.layer_expert_parameters(), end};
  }
  stack.keys = Bytes{batch.tokens() * model.key_width() * size_bytes(model.dtype)};
  stack.token_ids = model.vocab;
  stack.utilization = model.utilization;
  stack.utilization_source = model.utilization_source;
  stack.sizes = {{"hidden", model.hidden},
                 {"heads", model.heads},
                 {"kv_heads", model.kv_heads},
                 {"intermediate", model.intermediate},
                 {"vocab", model.vocab}};
  for (const detail::TransformerOption& option : detail::transformer_options) {
    if (const std::int64_t value = option.get(model); value != option.standard) stack.sizes.emplace_back(option.key, value);
  }
  return stack;
}

TAWPIPE_INLINE std::optional<Transformer> transformer_of(const LayerStack& stack) {
  for (const char* key : {"hidden", "heads", "kv_heads", "intermediate", "vocab"}) {
    if (stack.size(key) < 1 || stack.size(key) > Transformer::max_vocab) return std::nullopt;
  }
  const auto size = [&](const char* key) { return static_cast<int>(stack.size(key)); };
  Transformer model{.name = stack.name,
                    .layers = stack.layers,
                    .hidden = size("hidden"),
                    .heads = size("heads"),
                    .kv_heads = size("kv_heads"),
                    .intermediate = size("intermediate"),
                    .vocab = size("vocab"),
                    .tied = stack.tied,
                    .dtype = stack.dtype,
                    .utilization = stack.utilization,
                    .utilization_source = stack.utilization_source};
  for (const auto& [key, value] : stack.sizes) {
    for (const detail::TransformerOption& option : detail::transformer_options) {
      if (key != option.key) continue;
      if (value < 0 || value > option.most) return std::nullopt;
      option.set(model, value);
    }
  }
  if (model.is_routed() && model.mlp_width() > Transformer::max_expert_width) return std::nullopt;
  return model.parameters() == stack.parameters() ? std::optional{std::move(model)} : std::nullopt;
}

}  // namespace tawpipe

#include "tawpipe/model/detail/stack_of_kinds.hpp"
#endif
