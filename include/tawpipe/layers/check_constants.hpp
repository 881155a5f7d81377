// Whether the constants of a decoder are among those that layers here compute with.
// Not: its sizes (layers/checked_llama.hpp).
#pragma once

#include <cstdint>
#include <iterator>
#include <string>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers {

/// @throws InputError  `why`, with the model's name.
[[noreturn]] inline void refuse_model(const Transformer& model, const std::string& why) {
  throw InputError(concat("model ", quote(model.name.empty() ? "(unnamed)" : model.name), ": ", why));
}

/// @throws InputError  naming the constant, as a config.json has it, that no layer here computes.
inline void check_constants(const Transformer& model, const DecoderConstants& constants) {
  const auto refuse = [&](const auto&... why) { refuse_model(model, concat(why...)); };
  const RotaryScaling& scaling = constants.scaling;
  if (!(constants.rope_theta > 0) || !(constants.norm_epsilon > 0)) refuse("rope_theta and rms_norm_eps must be greater than 0");
  if (scaling.kind == RotaryScaling::Kind::other)
    refuse("rope_parameters: scalings other than linear and llama3 are not computed");
  if (scaling.kind != RotaryScaling::Kind::none && !(scaling.factor > 0))
    refuse("rope_parameters: factor must be greater than 0");
  if (scaling.kind == RotaryScaling::Kind::llama3 &&
      !(scaling.original_positions > 0 && scaling.low_freq_factor < scaling.high_freq_factor)) {
    refuse("rope_parameters: llama3 needs original positions, and low_freq_factor below high_freq_factor");
  }
  if (constants.rotary_part != 1) refuse("partial_rotary_factor: heads that are turned in part are not computed");
  if (constants.activation != "silu") refuse("hidden_act: ", constants.activation, " is not computed; silu is");
  if (!model.is_routed()) return;
  if (model.shared_gate) refuse("shared_expert_gate: the gate of a shared expert (model_type qwen2_moe) is not computed");
  const RouterRules& router = constants.router;
  if (!router.sigmoid && model.expert_groups > 1)
    refuse("n_group: groups of experts of a router that chooses by a softmax are not computed; it must be 1");
  if (router.sigmoid && router.balance != 0)
    refuse("router_aux_loss_coef: a loss that balances experts chosen by sigmoids is not computed; it must be 0");
  if (router.scale != 1 && !router.sigmoid)
    refuse("routed_scaling_factor: a factor of the weights that a softmax gives is not computed; it must be 1");
  if (!router.bias.empty() && !router.sigmoid)
    refuse("e_score_correction_bias: a bias of the choice by a softmax is not computed");
  const std::int64_t biases = std::int64_t{model.layers - model.dense_layers} * model.experts;
  if (!router.bias.empty() && std::ssize(router.bias) != biases)
    refuse("e_score_correction_bias: ", router.bias.size(), " biases are not those of ", biases, " experts of all layers");
}

}  // namespace tawpipe::layers
