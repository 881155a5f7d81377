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
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/layer_code.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers {

/// The model, if code that computes in numbers of type `mine` can compute it within the bytes of
/// model/transformer_work.hpp.
/// @throws InputError  as Transformer::check and Batch::check; if the model's dtype differs; if its
/// MLP has no gate or is fused; if the head size is odd; if a microbatch is so small, or the hidden
/// size so large or so small relative to the others, that the sizes of `StageWork` are too small.
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
  if (model.is_latent() || model.dense_layers > 0) {
    refuse_model(model, concat(model.is_latent() ? "latent attention" : "first layers without experts",
                               " can be simulated, but not computed by this code"));
  }
  if (!model.gated) refuse_model(model, "this code computes SwiGLU; a model without its gate can be simulated, but not computed");
  if (model.fused_swiglu) refuse_model(model, "this code keeps silu's part of SwiGLU; fused_swiglu must be false");
  if (model.head_size() % 2 != 0) {
    refuse_model(model,
                 concat("a head size of ", model.head_size(), " is odd; rotary embedding turns pairs and needs an even one"));
  }
  check_constants(model, constants);
  // The gradients of both norms overlap a tensor [tokens, W]; those of 16-bit models are
  // float32.
  const std::int64_t times = 2 * std::max<std::int64_t>(1, 4 / size_bytes(mine));
  if (batch.tokens() * model.token_width() < times * model.hidden) {
    refuse_model(model, concat("a microbatch of ", batch.tokens(), " tokens is too small; tokens x ",
                               model.is_routed() ? "width of a token's experts" : "intermediate size", " must be at least ",
                               times * model.hidden, ", ", times == 2 ? "twice" : "four times", " the hidden size"));
  }
  if (!model.is_routed() &&
      model.hidden > std::max(3 * std::int64_t{model.intermediate}, 2 * model.query_width() + 2 * model.key_width())) {
    refuse_model(model,
                 concat("a hidden size of ", model.hidden, " is too large for an intermediate size of ", model.intermediate,
                        "; three times the latter, or the width of query, key, value and output together, must reach it"));
  }
  if (model.is_routed() && !RoutingSizes{model, batch, size_bytes(mine)}.fit()) {
    refuse_model(model, concat("a microbatch of ", batch.tokens(), " tokens with ", model.experts_per_token, " of ",
                               model.experts, " experts each and a hidden size of ", model.hidden,
                               " has no room for the router's choice, or too many of them; take a larger hidden size, or ",
                               "fewer experts or more tokens"));
  }
  return model;
}

/// The same for code without experts, biases, norms of queries and keys, windows and scaled rotary
/// embedding.
/// @throws InputError  as checked_llama(), or if the model has one of these.
inline Transformer checked_dense_llama(Transformer model, const Batch& batch, const DecoderConstants& constants, Dtype mine) {
  model.check();
  const auto refuse = [&](std::string_view what) { refuse_model(model, concat(what, " not computed by this code")); };
  if (model.is_routed()) refuse("a mixture of experts can be simulated, but");
  if (model.has_biases()) refuse("biases are");
  if (model.qk_norm != QkNorm::none) refuse("norms of queries and keys are");
  if (model.window > 0 && model.window < batch.sequence) refuse("attention within a window shorter than the sequence is");
  if (constants.scaling.kind != RotaryScaling::Kind::none) refuse("scaled rotary embedding is");
  return checked_llama(std::move(model), batch, constants, mine);
}

}  // namespace tawpipe::layers
