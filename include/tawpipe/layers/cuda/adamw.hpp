// AdamW on an NVIDIA GPU, with a loss scale for float16, with the executors' interface.
// Not: its arithmetic (adamw_bodies.hpp, layers/adamw.hpp).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "tawpipe/backend/device_compute.hpp"
#include "tawpipe/core/config.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/layers/adamw.hpp"
#include "tawpipe/layers/cuda/adamw_bodies.hpp"
#include "tawpipe/layers/cuda/check.hpp"
#include "tawpipe/layers/cuda/launch.hpp"
#include "tawpipe/layers/parameter_update.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// The loss scale of all ranks of one device, in memory of the device that is current at its
/// construction.
///
/// Layers multiply gradients by it (Llama::use_loss_scale) and AdamW divides by it. All ranks must
/// skip the same steps, including those of other devices, whose scales change identically: so the
/// decision depends on the norm of the whole gradient, an all-reduce of the schedule. Give the
/// iteration a gradient_clip above 0 (1e30 to clip nothing).
class LossScale {
 public:
  /// @throws InputError  unless the first scale lies within 1 .. 2^24 and the interval is above 0.
  /// @throws DeviceError
  explicit LossScale(LossScaleOptions options = {}) : options_{options}, state_{sizeof(LossScaleState)} {
    if (!(options.initial >= LossScaleState::least && options.initial <= LossScaleState::most)) {
      throw InputError(concat("a loss scale of ", options.initial, " is impossible; it must lie within 1 and 2^24"));
    }
    if (options.growth_interval < 1) throw InputError("a loss scale must keep for at least one step before it grows");
    const LossScaleState first{options.initial};
    state_.fill(&first, sizeof(first));
  }

  const float* scale() const { return &state()->scale; }  ///< in device memory
  LossScaleState* state() const { return state_.as<LossScaleState>(); }
  const LossScaleOptions& options() const { return options_; }

 private:
  LossScaleOptions options_;
  DeviceMemory state_;
};

/// AdamW on parameters of type T with moments, and perhaps weights, kept in float32. Models
/// DeviceUpdate. The ranks of a device may share one object, on several streams, as long as all of
/// them take the same step with the same scale of clipping.
template <class T>
class DeviceAdamW {
 public:
  /// @param loss_scale  the factor of gradients, or null; must outlive this
  /// @throws InputError  as AdamW::check. @throws DeviceError  if memory is exhausted.
  DeviceAdamW(Transformer model, const AdamW& constants, const LossScale* loss_scale = nullptr)
      : model_{std::move(model)}, constants_{constants}, loss_scale_{loss_scale}, factors_{sizeof(AdamWFactors)} {
    constants.check();
  }

  /// @throws InputError  if there is a loss scale but no clipping.
  void update(const DeviceUpdateArgs& args, cudaStream_t stream) const {
    const std::int64_t count = args.parameters.count();
    if (count == 0) return;
    TAWPIPE_ASSERT(std::ssize(args.weights) == count * std::int64_t{sizeof(T)}, "weights are of the model's dtype");
    if (loss_scale_ != nullptr && args.gradient_scale == nullptr) {
      throw InputError("a loss scale needs the norm of the gradient; give a gradient_clip above 0, 1e30 to clip nothing");
    }
    launch(PrepareAdamW{constants_, args.scalars, args.gradient_scale, loss_scale_ == nullptr ? nullptr : loss_scale_->state(),
                        loss_scale_ == nullptr ? 1 : loss_scale_->options().growth_interval, factors_.as<AdamWFactors>()},
           stream);
    if (std::ssize(args.gradients) == count * std::int64_t{sizeof(float)}) {
      update_from<float>(args, stream);
    } else {
      TAWPIPE_ASSERT(std::ssize(args.gradients) == count * std::int64_t{sizeof(T)},
                     "gradients are float32 or of the model's dtype");
      update_from<T>(args, stream);
    }
  }

 private:
  template <class G>
  void update_from(const DeviceUpdateArgs& args, cudaStream_t stream) const {
    for_each_alike(model_, args.parameters, [&](const ParameterRange& part, bool decay) {
      const std::int64_t at = part.begin - args.parameters.begin;
      launch(AdamWBody<T, G>{.weights = reinterpret_cast<T*>(args.weights.data()) + at,
                             .gradients = reinterpret_cast<const G*>(args.gradients.data()) + at,
                             .master = args.master == nullptr ? nullptr : args.master + at,
                             .first_moment = args.first_moment + at,
                             .second_moment = args.second_moment + at,
                             .count = part.count(),
                             .factors = factors_.as<AdamWFactors>(),
                             .beta1 = static_cast<float>(constants_.beta1),
                             .beta2 = static_cast<float>(constants_.beta2),
                             .rest1 = static_cast<float>(1 - constants_.beta1),
                             .rest2 = static_cast<float>(1 - constants_.beta2),
                             .epsilon = static_cast<float>(constants_.epsilon),
                             .decay = decay},
             stream);
    });
  }

  Transformer model_;
  AdamW constants_;
  const LossScale* loss_scale_;
  DeviceMemory factors_;
};

static_assert(DeviceUpdate<DeviceAdamW<Bfloat16>, cudaStream_t>);

}  // namespace tawpipe::layers::cuda
