// Trains a recorded run by any CUDA executor, and compares what it gives.
// Not: which executor or schedule (virtual_test.cpp, nccl_test.cpp).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checks.hpp"
#include "reference.hpp"
#include "schedules.hpp"
#include "tawpipe/execute/cuda/cuda_api.hpp"
#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/layers/cuda/adamw.hpp"
#include "tawpipe/layers/cuda/llama.hpp"
#include "tawpipe/model/workload.hpp"

namespace gpu {

using Layer = tawpipe::layers::cuda::Llama<float>;
using Optimizer = tawpipe::layers::cuda::DeviceAdamW<float>;

inline Layer layer_of(const Reference& reference) {
  return Layer{reference.model,
               reference.batch,
               tawpipe::Recompute::none,
               {.rope_theta = reference.number("rope_theta"), .norm_epsilon = reference.number("norm_eps")}};
}
template <class T = float>
tawpipe::layers::cuda::DeviceAdamW<T> optimizer_of(const Reference& reference) {
  return {reference.model,
          {.beta1 = reference.number("beta1"),
           .beta2 = reference.number("beta2"),
           .epsilon = reference.number("eps"),
           .weight_decay = reference.number("weight_decay")}};
}

/// Microbatches that cannot be read in one step; 0: in none.
struct Failing {
  const Reference& reference;
  std::int64_t bad_step;
  void fetch(std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    if (step == bad_step) throw tawpipe::DeviceError("it was told to");
    reference.fetch(step, microbatch, tokens, targets);
  }
};

/// A layer one of whose forwards never ends.
class Stalling {
 public:
  /// @param forwards  the last of so many; 0: none. @param launches  that it puts into its stream
  /// after it
  Stalling(Layer layer, int forwards, int launches = 0) : layer_{std::move(layer)}, forwards_{forwards}, launches_{launches} {}
  void use_stream(cudaStream_t stream) {
    layer_.use_stream(stream);
    stream_ = stream;
  }
  void forward(const tawpipe::ForwardArgs& args) {
    layer_.forward(args);
    if (--forwards_ != 0) return;
    const auto stand = [](void*) {
      for (;;) std::this_thread::sleep_for(std::chrono::seconds{1});
    };
    const auto nothing = [](void*) {};
    tawpipe::cuda::check(cudaLaunchHostFunc(stream_, stand, nullptr), "cudaLaunchHostFunc");
    for (int i = 0; i < launches_; ++i) {
      tawpipe::cuda::check(cudaLaunchHostFunc(stream_, nothing, nullptr), "cudaLaunchHostFunc");
    }
  }
  void backward(const tawpipe::BackwardArgs& args) { layer_.backward(args); }
  void backward_input(const tawpipe::BackwardArgs& args) { layer_.backward_input(args); }
  void backward_weight(const tawpipe::BackwardArgs& args) { layer_.backward_weight(args); }

 private:
  Layer layer_;
  int forwards_;
  int launches_;
  cudaStream_t stream_ = nullptr;
};

/// Nothing where the schedule cannot have these sizes, which is right for some.
inline std::optional<tawpipe::Schedule> schedule_of(const Reference& reference, const std::string& name,
                                                    const std::vector<std::int32_t>& nodes) {
  tawpipe::Workload work{reference.model, reference.batch, tawpipe::Recompute::none};
  work.over_devices(tawpipe::DeviceGroups{nodes}.ranks());
  work.parameter_bytes(tawpipe::trained_bytes(reference.model.dtype));
  try {
    return tawpipe::build_schedule(name,
                                   {.workload = work, .nodes = tawpipe::DeviceGroups{nodes}, .options = {}, .device_memory = {}});
  } catch (const tawpipe::InputError&) {
    return std::nullopt;
  }
}

/// What a training leaves.
struct Trained {
  std::vector<std::vector<double>> losses;  ///< [step, microbatch], one more step than the reference trains
  std::vector<float> first;                 ///< [parameter] after the first step
  std::vector<float> last;                  ///< [parameter] after the reference's last step

  bool operator==(const Trained&) const = default;
};

/// @param gather    brings [parameter] values and which of them are right here to the process that
/// compares
/// @param bad_step  in which the rank throws; 0: in none
template <class Executor, class Gather>
Trained train(Executor& executor, const Reference& reference, Gather&& gather, std::int64_t bad_step = 0) {
  using tawpipe::ParameterRange;
  const std::vector<float> initial = reference.initial();
  executor.for_each_rank([&](auto& rank) {
    rank.set_weights([&](const ParameterRange& range, tawpipe::Dtype, std::span<std::byte> bytes) {
      std::memcpy(bytes.data(), initial.data() + range.begin, bytes.size());
    });
  });
  const auto weights = [&] {
    std::vector<float> all(initial.size());
    std::vector<char> known(initial.size(), 0);
    executor.for_each_rank([&](auto& rank) {
      rank.read_weights([&](const ParameterRange& range, tawpipe::Dtype, std::span<const std::byte> bytes) {
        std::memcpy(all.data() + range.begin, bytes.data(), bytes.size());
        std::fill_n(known.begin() + range.begin, range.count(), char{1});
      });
    });
    gather(std::span<float>{all}, std::span<const char>{known});
    return all;
  };
  Trained trained;
  for (int step = 1; step <= reference.steps() + 1; ++step) {
    const tawpipe::Iteration args{.step = step, .learning_rate = reference.number("lr")};
    trained.losses.push_back(executor.run(Failing{reference, bad_step}, args).losses);
    if (step == 1) trained.first = weights();
    if (step == reference.steps()) trained.last = weights();
  }
  return trained;
}

inline void check(Checks& checks, const Reference& reference, const Trained& trained, const std::string& what) {
  checks.within(reference.losses_off(trained.losses), what + ": losses");
  checks.within(reference.parameters_off(1, trained.first), what + ": parameters after 1 step");
  checks.within(reference.parameters_off(reference.steps(), trained.last), what + ": parameters at the end");
}

}  // namespace gpu
