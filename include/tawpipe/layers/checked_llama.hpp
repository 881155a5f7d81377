// Whether a model can be computed by the layers here.
// Not: the computation (layers/host/llama.hpp, layers/cuda/llama.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/layers/check_constants.hpp"
#include "tawpipe/layers/expert_routing.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/layer_code.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers {

namespace detail {

/// @throws InputError  if gradients of layers of these sizes do not fit the bytes of `StageWork`
inline void check_room(const Transformer& of, const Batch& batch, const RouterRules& router, Dtype mine) {
  const TokenWidths width{of};
  // The gradients of the norms overlap a tensor [tokens, W]; those of 16-bit models are float32.
  const std::int64_t times = std::max<std::int64_t>(1, 4 / size_bytes(mine));
  const std::int64_t norms = times * (2 * width.hidden + width.short_normed());
  if (batch.tokens() * width.inner < norms) {
    refuse_model(of, concat("a microbatch of ", batch.tokens(), " tokens is too small; tokens x ",
                            of.is_routed() ? "width of a token's experts" : "intermediate size", " must be at least ", norms,
                            width.is_latent() ? ", that of all norms of a layer"
                            : times == 1      ? ", twice the hidden size"
                                              : ", four times the hidden size"));
  }
  const std::int64_t attention = width.is_latent() ? 2 * width.query + 2 * width.value : 2 * width.query + 2 * width.key;
  const std::int64_t inside = std::max({of.is_routed() ? width.routing : 3 * width.inner, attention});
  if (width.hidden > inside) {
    refuse_model(of, concat("a hidden size of ", of.hidden, " is too large for an intermediate size of ", of.intermediate,
                            "; three times the latter, or the width of query, key, value and output together, must reach it"));
  }
  if (std::max(width.query_rank, width.key_rank) > inside) {
    refuse_model(of, concat("short vectors of ", width.query_rank, " and ", width.key_rank,
                            " numbers are too large; twice the width of queries and values together must reach them"));
  }
  if (of.is_routed() && !RoutingSizes{of, batch, size_bytes(mine), router}.fit()) {
    refuse_model(of, concat("a microbatch of ", batch.tokens(), " tokens with ", of.experts_per_token, " of ", of.experts,
                            " experts each and a hidden size of ", of.hidden,
                            " has no room for the router's choice, or too many of them; take a larger hidden size, or ",
                            "fewer experts or more tokens"));
  }
}

}  // namespace detail

/// The model, if code that computes in numbers of type `mine` can compute it within the bytes of
/// model/transformer_work.hpp.
/// @throws InputError  as Transformer::check and Batch::check; if the model's dtype differs; if its
/// MLP has no gate or is fused; if what rotary embedding turns of a head is odd; if a microbatch is so
/// small, or the hidden size so large or so small relative to the others, that the sizes of `StageWork`
/// are too small.
inline Transformer checked_llama(Transformer model, const Batch& batch, const DecoderConstants& constants, Dtype mine) {
  model.check();
  batch.check();
  if (model.dtype != mine) {
    refuse_model(model, concat("its numbers are ", name(model.dtype), ", but this code computes in ", name(mine)));
  }
  if (model.has_kinds()) {
    std::string kinds;
    for (const LayerKind& kind : model.kinds) kinds += concat(kinds.empty() ? "" : ", ", kind.name);
    refuse_model(model, concat("layers of several kinds (", kinds, ") can be simulated, but not computed by this code"));
  }
  if (!model.mtp.empty())
    refuse_model(model, "layers that predict further tokens can be simulated, but not computed by this code");
  if (!model.gated) refuse_model(model, "this code computes SwiGLU; a model without its gate can be simulated, but not computed");
  if (model.fused_swiglu) refuse_model(model, "this code keeps silu's part of SwiGLU; fused_swiglu must be false");
  if (const std::int64_t turned = model.is_latent() ? model.rope_width : model.head_size(); turned % 2 != 0) {
    refuse_model(model, concat("a head size of ", turned, model.is_latent() ? " of the turned part" : "",
                               " is odd; rotary embedding turns pairs and needs an even one"));
  }
  check_constants(model, constants);
  detail::check_room(model, batch, constants.router, mine);
  if (model.dense_layers > 0) detail::check_room(model.of_dense_layers(), batch, constants.router, mine);
  return model;
}

/// The same for code without experts, latent attention, biases, norms of queries and keys, windows and scaled
/// rotary embedding.
/// @throws InputError  as checked_llama(), or if the model has one of these.
inline Transformer checked_dense_llama(Transformer model, const Batch& batch, const DecoderConstants& constants, Dtype mine) {
  model.check();
  const auto refuse = [&](std::string_view what) { refuse_model(model, concat(what, " not computed by this code")); };
  if (model.is_routed()) refuse("a mixture of experts can be simulated, but");
  if (model.is_latent()) refuse("latent attention is");
  if (model.has_biases()) refuse("biases are");
  if (model.qk_norm != QkNorm::none) refuse("norms of queries and keys are");
  if (model.window > 0 && model.window < batch.sequence) refuse("attention within a window shorter than the sequence is");
  if (constants.scaling.kind != RotaryScaling::Kind::none) refuse("scaled rotary embedding is");
  return checked_llama(std::move(model), batch, constants, mine);
}

/// For code in which ranks share a layer.
/// @throws InputError  naming the first part that only one rank alone computes, and what would be right
inline void check_shared(const Transformer& model, const DecoderConstants& constants, const Sharing& sharing) {
  if (sharing.ranks() == 1) return;
  const auto refuse = [&](std::string_view what) {
    const std::string_view flag = sharing.expert > 1   ? "--expert-parallel"
                                  : sharing.tensor > 1 ? "--tensor-parallel"
                                                       : "--context-parallel";
    refuse_model(model, concat(what, " computed on one rank, not shared by several; leave out ", flag,
                               ", and share the work by a schedule over the ranks and --data-parallel"));
  };
  if (model.is_latent()) refuse("latent attention is");
  if (model.dense_layers > 0) refuse("first layers without experts are");
  if (!model.is_routed()) return;
  if (constants.router.sigmoid) refuse("a router that chooses by sigmoids is");
  if (!constants.router.sum_to_one) refuse("weights of experts that do not sum to one are");
  if (constants.router.balance != 0) refuse("a loss that balances experts is");
}

}  // namespace tawpipe::layers
