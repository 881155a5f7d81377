// What a decoder computes with beside its sizes: they change numbers, not how long they take.
// Not: the sizes (model/transformer.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tawpipe::inline v0 {

/// How the frequencies of rotary embedding are scaled for longer sequences.
/// Source: transformers, modeling_rope_utils.py.
struct RotaryScaling {
  enum class Kind : std::uint8_t {
    none,
    linear,  ///< divided by `factor`
    llama3,  ///< by wavelength: Llama 3.1
    other,   ///< yarn, dynamic, longrope, ...: not computed here
  };
  Kind kind = Kind::none;
  double factor = 1;
  double low_freq_factor = 1;     ///< of llama3
  double high_freq_factor = 1;    ///< of llama3
  double original_positions = 0;  ///< of llama3: original_max_position_embeddings

  bool operator==(const RotaryScaling&) const = default;
};

/// How a router chooses experts and weights them.
struct RouterRules {
  bool sum_to_one = true;  ///< a token's weights are divided by their sum
  double balance = 0;      ///< factor of the loss that balances experts; 0: none
  bool sigmoid = false;    ///< scores are sigmoids of the logits; false: their softmax
  double scale = 1;        ///< of the weights of sigmoid scores: routed_scaling_factor
  /// [layers with experts, experts] added to sigmoid scores for the choice only, and not trained:
  /// e_score_correction_bias; empty: 0.
  std::vector<double> bias = {};

  bool operator==(const RouterRules&) const = default;
};

/// Constants of a LLaMA decoder other than sizes.
struct DecoderConstants {
  double rope_theta = 10000;      ///< base of the rotary embedding's frequencies
  double norm_epsilon = 1e-5;     ///< inside the root of RMSNorm
  std::int32_t positions = 2048;  ///< longest sequence it is meant for
  RotaryScaling scaling = {};
  double rotary_part = 1;           ///< of each head, its first numbers, that is turned
  std::string activation = "silu";  ///< of the MLP, as transformers calls it
  RouterRules router = {};
  /// as norm_epsilon, of the norms of latent attention's short vectors, whatever the others have.
  /// Source: transformers, models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3RMSNorm
  double latent_epsilon = 1e-6;

  bool operator==(const DecoderConstants&) const = default;
};

}  // namespace tawpipe
