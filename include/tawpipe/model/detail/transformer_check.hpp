// Which sizes of a decoder are possible: the bodies of Transformer::check and its parts.
// Not: the sizes themselves (model/transformer.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

TAWPIPE_INLINE void Transformer::check() const {
  check_size(layers, "the number of layers", max_layers);
  check_size(hidden, "the hidden size", max_hidden);
  check_size(heads, "the number of heads", max_hidden);
  check_size(kv_heads, "the number of key-value heads", max_hidden);
  check_size(intermediate, "the intermediate size", max_intermediate);
  check_size(vocab, "the vocabulary", max_vocab);
  if (loss_chunk < 0 || loss_chunk > max_vocab) {
    fail(concat("a loss in chunks of ", loss_chunk, " is impossible; they have 1 to ", max_vocab,
                " entries, and 0 is all at once"));
  }
  if (recompute_layers < 0 || recompute_layers > max_layers) {
    fail(concat("recomputation of ", recompute_layers, " layers of a stage is impossible; give 1 to ", max_layers));
  }
  if (narrow_gathers && products != ProductFormat::fp8) {
    fail(concat("weights are gathered in 8 bits where products are in fp8, with one scale for each tensor, not in ",
                tawpipe::name(products)));
  }
  if (fused_experts && products != ProductFormat::mxfp8)
    fail(concat("a fused MLP of experts is known for products in mxfp8, not in ", tawpipe::name(products)));
  if (head_dim) {
    check_size(*head_dim, "the head size", max_hidden);
  } else if (hidden % heads != 0) {
    fail(concat(heads, " heads do not divide the hidden size of ", hidden,
                "; choose a divisor of it, or give the head size (head_dim)"));
  }
  if (heads % kv_heads != 0) {
    fail(concat(kv_heads, " key-value heads do not divide the ", heads, " heads; each must serve equally many"));
  }
  if (query_width() > max_hidden) {
    fail(concat(heads, " heads of ", head_size(), " are too wide together; the most is ", max_hidden));
  }
  if (!(utilization >= 0 && utilization <= 1)) {
    fail(concat("a utilization of ", utilization, " is impossible; it must lie within 0 (unknown) and 1"));
  }
  if (mtp.size() > std::size_t{max_layers}) fail(concat(mtp.size(), " layers that predict further tokens are too many"));
  if (has_kinds()) return check_kinds();
  check_experts();
  check_latent();
  check_details();
  if (!mtp.empty()) decoder().check();
}

TAWPIPE_INLINE void Transformer::check_kinds() const {
  const Model model = decoder();
  model.check();
  for (const LayerKind& kind : kinds) {
    for (const Operator& op : kind.operators(hidden)) {
      const std::int64_t copies = op.kind == Operator::Kind::route ? 1 : op.copies;
      if (std::max(op.in, op.out) * copies > max_intermediate)
        fail(concat("layers of kind ", quote(kind.name), " have ", std::max(op.in, op.out) * copies,
                    " numbers of a token side by side; the most is ", max_intermediate));
    }
  }
  if (std::cmp_not_equal(pattern.size(), layers)) fail(concat("its pattern has ", pattern.size(), " layers, not ", layers));
  if (parameters() > max_parameters) fail(concat(parameters(), " parameters are too many; the most is ", max_parameters));
  if ((code != LayerCode::megatron && code != LayerCode::megatron_unfused) || !fused_attention)
    fail(concat("layers of several kinds are known as Megatron-LM runs them, not with the layers' code ", tawpipe::name(code),
                " or unfused attention"));
}

TAWPIPE_INLINE void Transformer::check_experts() const {
  if (experts == 0) {
    if (experts_per_token != 0) fail(concat(experts_per_token, " experts a token, but no experts"));
    if (shared_width != 0) fail(concat("a shared expert of width ", shared_width, ", but no experts beside it"));
    if (dense_layers != 0 || dense_width != 0) fail("first layers without experts, but no experts in the others");
    if (expert_groups != 1 || groups_per_token != 1) fail("groups of experts, but no experts");
    return;
  }
  if (dense_layers < 0 || dense_layers >= layers)
    fail(concat(dense_layers, " first layers without experts are impossible; give 0 to ", layers - 1));
  if (dense_layers > 0) check_size(dense_width, "the width of the first layers' MLP", max_intermediate);
  check_size(experts, "the number of experts", max_experts);
  check_size(experts_per_token, "the number of experts a token", experts);
  if (expert_groups < 1 || experts % expert_groups != 0)
    fail(concat(expert_groups, " groups do not divide the ", experts, " experts equally"));
  check_size(groups_per_token, "the number of groups a token", expert_groups);
  if (experts_per_token > groups_per_token * (experts / expert_groups))
    fail(concat(groups_per_token, " of ", expert_groups, " groups have fewer than the ", experts_per_token, " experts a token"));
  if (shared_width < 0) fail(concat("a shared expert of width ", shared_width, " is impossible; 0 is none"));
  if (mlp_width() > max_expert_width)
    fail(concat(experts, " experts of width ", intermediate, " are too wide together; the most is ", max_expert_width));
  if (std::max(token_width(), routed_copies()) > max_intermediate)
    fail(concat(experts_per_token, " experts a token are too wide together; the most is ", max_intermediate));
  if (code != LayerCode::megatron && code != LayerCode::megatron_unfused)
    fail(concat("experts are known as Megatron-LM runs them, not with the layers' code ", tawpipe::name(code)));
  if (!fused_attention) fail("experts come with fused attention; code with unfused attention (2021 and 2022) has none");
}

TAWPIPE_INLINE void Transformer::check_latent() const {
  if (!is_latent()) {
    if (query_rank != 0 || rope_width != 0 || value_size != 0) fail("parts of latent attention, but no key_value_rank");
    return;
  }
  check_size(key_value_rank, "the rank of keys and values", max_hidden);
  check_size(value_size, "the size of a value's head", max_hidden);
  if (query_rank < 0 || query_rank > max_hidden) fail(concat("a rank of queries of ", query_rank, " is impossible; 0 is none"));
  if (rope_width < 0 || rope_width > head_size())
    fail(concat("a turned part of ", rope_width, " is impossible; a head has ", head_size()));
  if (kv_heads != heads) fail("latent attention has as many key-value heads as heads");
  if ((head_size() + value_size) % 2 != 0)
    fail(concat("heads of ", head_size(), " and values of ", value_size, " have no whole mean; choose both even or both odd"));
  if (value_width() > max_hidden)
    fail(concat(heads, " values of ", value_size, " are too wide together; the most is ", max_hidden));
  if ((code != LayerCode::megatron && code != LayerCode::megatron_unfused) || !fused_attention)
    fail("latent attention is known as Megatron-LM runs it, fused");
}

TAWPIPE_INLINE void Transformer::check_details() const {
  if (window < 0) fail(concat("a window of ", window, " tokens is impossible; 0 is none"));
  if (window > 0 && (is_latent() || !fused_attention || is_torchtitan()))
    fail("a window of attention is known in Megatron-LM's fused attention over keys and values of their own");
  if (is_latent() && (qkv_bias || output_bias || qk_norm != QkNorm::none))
    fail("latent attention is known without biases and without norms of queries and keys");
  if (mlp_bias && is_routed()) fail("experts are known without biases");
  if (shared_gate && shared_width == 0) fail("a gate of a shared expert, but no shared expert");
}

}  // namespace tawpipe
