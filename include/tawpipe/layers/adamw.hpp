// AdamW: one step of the optimizer on a run of parameters.
// Not: which parameters decay (model/parameters.hpp) nor the size of a step
// (layers/learning_rate.hpp).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tawpipe/core/config.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::layers {

/// The constants of AdamW. Defaults: those of the language models that Llama follows (Touvron et
/// al. 2023, arXiv:2302.13971, section 2.3).
struct AdamW {
  double beta1 = 0.9;   ///< decay of the mean of gradients
  double beta2 = 0.95;  ///< decay of the mean of their squares
  double epsilon = 1e-8;
  double weight_decay = 0.1;

  bool operator==(const AdamW&) const = default;
  /// @throws InputError  unless both betas lie in [0, 1), epsilon is above 0 and weight_decay is
  /// not negative.
  void check() const {
    check_beta(beta1, "beta1");
    check_beta(beta2, "beta2");
    if (!(epsilon > 0)) throw InputError(concat("AdamW's epsilon is ", epsilon, "; it must be greater than 0"));
    if (!(weight_decay >= 0 && std::isfinite(weight_decay))) {
      throw InputError(concat("AdamW's weight decay is ", weight_decay, "; it must be a number of at least 0"));
    }
  }

 private:
  static void check_beta(double beta, const char* name) {
    if (!(beta >= 0 && beta < 1)) throw InputError(concat("AdamW's ", name, " is ", beta, "; it must be at least 0 and below 1"));
  }
};

/// Values specific to one step.
struct AdamWStep {
  std::int64_t number = 1;  ///< number of the step, from 1 on
  double learning_rate = 0;
  double gradient_scale = 1;  ///< factor of gradients, e.g. below 1 to clip their norm
  bool decay = true;          ///< false for norms
};

/// weights <- weights (1 - lr wd); m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) g^2; weights <-
/// weights - lr (m / (1 - b1^n)) / (sqrt(v) / sqrt(1 - b2^n) + eps), for each number by itself: so
/// it does not matter how parameters are cut into runs. `mean` (m) and `square` (v) are zero before
/// the first step.
/// T: float or double; factors of the step are computed in double.
/// @pre all spans have the same size; step.number >= 1; constants.check() passes
/// Complexity: O(n), nothing allocated. Thread-safe on different memory.
/// Source: Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2, with decay before the step as
/// PyTorch's AdamW.
template <class T>
void adamw_step(const AdamW& constants, const AdamWStep& step, std::span<T> weights, std::span<const T> gradients,
                std::span<T> mean, std::span<T> square) {
  TAWPIPE_ASSERT(gradients.size() == weights.size() && mean.size() == weights.size() && square.size() == weights.size(),
                 "weights, gradients and both means have one size");
  TAWPIPE_ASSERT(step.number >= 1, "steps count from 1");
  const auto n = static_cast<double>(step.number);
  const T kept = static_cast<T>(step.decay ? 1 - step.learning_rate * constants.weight_decay : 1.0);
  const T scale = static_cast<T>(step.gradient_scale);
  const T b1 = static_cast<T>(constants.beta1);
  const T b2 = static_cast<T>(constants.beta2);
  const T rest1 = static_cast<T>(1 - constants.beta1);
  const T rest2 = static_cast<T>(1 - constants.beta2);
  const T rate = static_cast<T>(step.learning_rate / (1 - std::pow(constants.beta1, n)));
  const T root = static_cast<T>(1 / std::sqrt(1 - std::pow(constants.beta2, n)));
  const T epsilon = static_cast<T>(constants.epsilon);

  T* __restrict p = weights.data();
  const T* __restrict gradient = gradients.data();
  T* __restrict m = mean.data();
  T* __restrict v = square.data();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const T g = scale * gradient[i];
    m[i] = b1 * m[i] + rest1 * g;
    v[i] = b2 * v[i] + rest2 * g * g;
    p[i] = kept * p[i] - rate * m[i] / (std::sqrt(v[i]) * root + epsilon);
  }
}

}  // namespace tawpipe::layers
