// AdamW and the loss scale of float16 on a GPU: every number of a step is read from device memory.
// Not: which parameters decay (layers/parameter_update.hpp) nor launches (adamw.hpp).
#pragma once

#include <cmath>
#include <cstdint>

#include "tawpipe/backend/device_compute.hpp"
#include "tawpipe/layers/adamw.hpp"
#include "tawpipe/layers/cuda/block.hpp"
#include "tawpipe/layers/cuda/number.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// The adaptation of a loss scale.
struct LossScaleOptions {
  float initial = 65536;
  std::int32_t growth_interval = 2000;  ///< steps without overflow before it doubles

  bool operator==(const LossScaleOptions&) const = default;
};

/// A loss scale in device memory, one for all ranks of a device. Gradients are computed with
/// `scale` and divided by it in the update; a step whose gradients are not all finite is skipped
/// and halves the scale.
///
/// The state after a step is recomputed, from that after the previous step, by every update that
/// takes part, and all of them write the same values: so their number, streams and order do not
/// matter.
/// Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.2; the defaults are PyTorch's
/// GradScaler's.
struct LossScaleState {
  /// The state after a step.
  struct After {
    std::int64_t step = 0;
    std::int64_t skipped = 0;     ///< skipped steps in total
    float scale = 1;              ///< for the next gradients
    std::int32_t good_steps = 0;  ///< since its last change
  };
  float scale = 1;  ///< for the next gradients; read by layers
  After after[2];   ///< the last two steps

  explicit LossScaleState(float initial) : scale{initial} { after[0].scale = after[1].scale = initial; }

  static constexpr float least = 1;
  static constexpr float most = 16777216;  ///< 2^24
};

/// The factors of a step that AdamW's kernel reads.
struct AdamWFactors {
  float kept = 1;  ///< factor of weights that decay
  float rate = 0;  ///< learning rate / (1 - beta1^n)
  float root = 1;  ///< 1 / sqrt(1 - beta2^n)
  float gradient_scale = 1;
  std::int32_t skip = 0;
};

/// Computes a step's factors, and adapts the loss scale. Step numbers ascend. One thread.
///
/// `gradient_scale` is the factor of clipping, min(1, clip / norm), for the gradients as stored, so
/// with a loss scale s >= 1 for gradients s times as large; then min(1 / s, that) is 1 / s times
/// the factor for the true ones. It is not above 0 if their norm is not finite: all ranks see the
/// same norm, and skip the same steps.
struct PrepareAdamW {
  AdamW constants;
  const StepScalars* scalars;
  const float* gradient_scale;  ///< null: 1
  LossScaleState* loss_scale;   ///< null: none
  std::int32_t growth_interval;
  AdamWFactors* factors;

  Grid grid() const { return {}; }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block&) const {
    float scale = gradient_scale == nullptr ? 1.0F : *gradient_scale;
    std::int64_t number = scalars->step;
    std::int32_t skip = 0;
    if (loss_scale != nullptr) {
      LossScaleState& state = *loss_scale;
      // The entry for this step: one already written by another of its updates, or the older one.
      const bool second = state.after[1].step == scalars->step ||
                          (state.after[0].step != scalars->step && state.after[1].step < state.after[0].step);
      const LossScaleState::After before = state.after[second ? 0 : 1];
      const LossScaleState::After now = moved(before, scale > 0);
      state.after[second ? 1 : 0] = now;
      state.scale = now.scale;
      number -= now.skipped;
      skip = now.skipped > before.skipped ? 1 : 0;
      const float whole = 1.0F / before.scale;
      scale = scale < whole ? scale : whole;
    }
    const auto n = static_cast<double>(number);
    factors->kept = static_cast<float>(1 - scalars->learning_rate * constants.weight_decay);
    factors->rate = static_cast<float>(scalars->learning_rate / (1 - pow(constants.beta1, n)));
    factors->root = static_cast<float>(1 / sqrt(1 - pow(constants.beta2, n)));
    factors->gradient_scale = scale;
    factors->skip = skip;
  }

 private:
  TAWPIPE_HOST_DEVICE LossScaleState::After moved(LossScaleState::After last, bool finite) const {
    last.step = scalars->step;
    if (!finite) {
      ++last.skipped;
      last.good_steps = 0;
      if (last.scale > LossScaleState::least) last.scale /= 2;
    } else if (++last.good_steps >= growth_interval) {
      last.good_steps = 0;
      if (last.scale < LossScaleState::most) last.scale *= 2;
    }
    return last;
  }
};

/// One step on [count] parameters, in float: `weights` are rounded from `master` if it is given. G:
/// float or T.
/// Source: as layers/adamw.hpp, with the same arithmetic.
template <class T, class G>
struct AdamWBody {
  T* weights;
  const G* gradients;
  float* master;  ///< null: none
  float* first_moment;
  float* second_moment;
  std::int64_t count;
  const AdamWFactors* factors;
  float beta1, beta2, rest1, rest2, epsilon;
  bool decay;
  bool packs = in_packs(0, weights, gradients, master, first_moment, second_moment);

  static constexpr int width = 8;

  Grid grid() const { return {.blocks = blocks_for(count, 256 * (packs ? width : 1), 4096), .threads = 256}; }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    const AdamWFactors step = *factors;
    if (step.skip != 0) return;
    const std::int64_t in_runs = packs ? count / width * width : 0;
    each_in_grid<width>(block, in_runs, [&](std::int64_t j) { update<width>(step, j); });
    each_in_grid<1>(block, count - in_runs, [&](std::int64_t j) { update<1>(step, in_runs + j); });
  }

 private:
  template <int W>
  TAWPIPE_HOST_DEVICE void update(const AdamWFactors& step, std::int64_t j) const {
    const float kept = decay ? step.kept : 1.0F;
    const Floats<W> gradient = load<W>(gradients + j);
    Floats<W> p = master == nullptr ? load<W>(weights + j) : load<W>(master + j);
    Floats<W> m = load<W>(first_moment + j);
    Floats<W> v = load<W>(second_moment + j);
    for (int k = 0; k < W; ++k) {
      const float g = step.gradient_scale * gradient.at[k];
      m.at[k] = beta1 * m.at[k] + rest1 * g;
      v.at[k] = beta2 * v.at[k] + rest2 * g * g;
      p.at[k] = kept * p.at[k] - step.rate * m.at[k] / (sqrtf(v.at[k]) * step.root + epsilon);
    }
    store<W>(first_moment + j, m);
    store<W>(second_moment + j, v);
    if (master != nullptr) store<W>(master + j, p);
    store<W>(weights + j, p);
  }
};

}  // namespace tawpipe::layers::cuda
