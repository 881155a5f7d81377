// The learning rate of each step: linear warm-up, then half a cosine down to a minimum.
// Not: its use in a step (layers/adamw.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::layers {

/// Rises over `warmup_steps` to `peak`, falls as half a cosine to `minimum` at `decay_steps`, and
/// stays there. Both are counts of earlier steps. With decay_steps 0 it stays at its peak.
/// Source: Karpathy, nanoGPT, train.py, get_lr.
/// Example:
/// `LearningRate{.peak = 1e-3, .minimum = 1e-4, .warmup_steps = 100, .decay_steps = 2000}.at(1)`
struct LearningRate {
  double peak = 1e-3;
  double minimum = 0;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;

  bool operator==(const LearningRate&) const = default;
  /// @throws InputError  unless 0 <= minimum <= peak, counts are not negative, and the decay does
  /// not end within the warm-up.
  void check() const {
    if (!(peak >= 0) || !std::isfinite(peak)) {
      throw InputError(concat("a learning rate of ", peak, " is impossible; it must be a number of at least 0"));
    }
    if (!(minimum >= 0 && minimum <= peak)) {
      throw InputError(
          concat("a least learning rate of ", minimum, " is impossible; it must lie within 0 and the peak of ", peak));
    }
    if (warmup_steps < 0 || decay_steps < 0) {
      throw InputError(concat("a warm-up of ", warmup_steps, " steps and a decay until step ", decay_steps,
                              " are impossible; neither may be negative"));
    }
    if (decay_steps > 0 && decay_steps < warmup_steps) {
      throw InputError(concat("the learning rate would end its decay at step ", decay_steps, ", within its warm-up of ",
                              warmup_steps, " steps; let it end later"));
    }
  }

  /// The rate of step `number`, from 1 on. @pre check() passes
  double at(std::int64_t number) const {
    const std::int64_t before = number - 1;
    if (before < warmup_steps) return peak * static_cast<double>(number) / static_cast<double>(warmup_steps + 1);
    if (decay_steps == 0) return peak;
    if (before >= decay_steps) return minimum;
    const double part = static_cast<double>(before - warmup_steps) / static_cast<double>(decay_steps - warmup_steps);
    return minimum + 0.5 * (1 + std::cos(std::numbers::pi * part)) * (peak - minimum);
  }
};

}  // namespace tawpipe::layers
