// Runs a schedule on the toy model in f32: by the host executor, and by the CUDA executors over
// emulated devices.
// Not: the toy (toy_layer.hpp), nor the emulation (emulated_device.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "support/emulated_device.hpp"
#include "support/emulated_layers.hpp"
#include "support/toy_layer.hpp"
#include "support/toy_training.hpp"
#include "tawpipe/execute/cuda/nccl_executor.hpp"
#include "tawpipe/execute/cuda/virtual_executor.hpp"
#include "tawpipe/execute/host/executor.hpp"

namespace support {

using ToyDeviceLayer = EmulatedLayer<ToyLayer<float>>;
using ToyDeviceUpdate = EmulatedUpdate<ToyOptimizer<float>>;
using ToyVirtualExecutor = tawpipe::cuda::VirtualExecutor<EmulatedDevice, ToyDeviceLayer, ToyDeviceUpdate>;

/// As toy_work, in the sizes of f32.
inline tawpipe::Workload toy_work_f32(tawpipe::Transformer model, std::int64_t microbatches,
                                      tawpipe::Recompute recompute = tawpipe::Recompute::none) {
  model.dtype = tawpipe::Dtype::f32;
  tawpipe::Workload work = toy_work(model, microbatches, recompute);
  work.parameter_bytes({.weight = 4, .gradient = 4, .optimizer = 8});
  return work;
}

/// What some steps of training left.
struct ToyBits {
  std::vector<std::vector<double>> losses;  ///< [step, microbatch]
  std::vector<float> gradient;              ///< [parameter] of the last step
  std::vector<float> weights;               ///< [parameter] at the end
  std::vector<double> norms;                ///< [step]

  bool operator==(const ToyBits&) const = default;
};

inline float toy_weight(std::int64_t parameter) { return static_cast<float>(std::sin(0.7 * static_cast<double>(parameter))); }

inline tawpipe::Iteration toy_step(int step, double clip) {
  return {.step = step, .learning_rate = 0.05 / step, .gradient_clip = clip};
}

/// By the host executor.
inline ToyBits train_f32_by_threads(const tawpipe::Schedule& schedule, int steps, double clip = 0) {
  const tawpipe::LayerStack& model = schedule.workload().model();
  tawpipe::host::HostExecutor<float, ToyLayer<float>, ToyOptimizer<float>> executor{
      schedule, [&] { return ToyLayer<float>{model}; }, {}};
  ToyBits bits;
  bits.gradient.assign(static_cast<std::size_t>(model.parameters()), 0);
  bits.weights = bits.gradient;
  executor.for_each_rank([](auto& rank) {
    rank.for_each_weight([](tawpipe::ParameterRange range, std::span<float> numbers) {
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = toy_weight(range.begin + static_cast<std::int64_t>(i));
    });
  });
  std::mutex mutex;
  const auto observe = [&](tawpipe::ParameterRange range, std::span<const float> gradients) {
    const std::lock_guard lock{mutex};
    std::copy(gradients.begin(), gradients.end(), bits.gradient.begin() + range.begin);
  };
  for (int step = 1; step <= steps; ++step) {
    const auto result = executor.run(ToyTokens{model.token_ids}, toy_step(step, clip), observe);
    bits.losses.push_back(result.losses);
    bits.norms.push_back(result.gradient_norm);
  }
  tawpipe::read_weights(executor, [&](tawpipe::ParameterRange range, std::span<const float> numbers) {
    std::copy(numbers.begin(), numbers.end(), bits.weights.begin() + range.begin);
  });
  return bits;
}

/// Sets the toy's weights on all ranks of an executor for devices.
template <class Executor>
void set_toy_weights_f32(Executor& executor) {
  executor.for_each_rank([](auto& rank) {
    rank.set_weights([](const tawpipe::ParameterRange& range, tawpipe::Dtype, std::span<std::byte> bytes) {
      for (std::int64_t i = 0; i < range.count(); ++i) {
        const float value = toy_weight(range.begin + i);
        std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof value, &value, sizeof value);
      }
    });
  });
}
template <class Executor>
void read_toy_weights_f32(Executor& executor, std::vector<float>& weights) {
  executor.for_each_rank([&](auto& rank) {
    rank.read_weights([&](const tawpipe::ParameterRange& range, tawpipe::Dtype, std::span<const std::byte> bytes) {
      std::memcpy(weights.data() + range.begin, bytes.data(), bytes.size());
    });
  });
}

/// By virtual ranks on one emulated device. @param results  if not null, gets each step's
inline ToyBits train_f32_by_virtual_ranks(const tawpipe::Schedule& schedule, int steps, const EmulatedOrder& order = {},
                                          const tawpipe::cuda::ExecutorOptions& options = {}, double clip = 0,
                                          std::vector<tawpipe::IterationResult>* results = nullptr) {
  const tawpipe::LayerStack& model = schedule.workload().model();
  EmulatedMachine machine{order};
  ToyBits bits;
  bits.gradient.assign(static_cast<std::size_t>(model.parameters()), 0);
  bits.weights = bits.gradient;
  const auto observe = [&](tawpipe::ParameterRange range, std::span<const float> gradients) {
    std::copy(gradients.begin(), gradients.end(), bits.gradient.begin() + range.begin);
  };
  ToyVirtualExecutor executor{schedule, EmulatedDevice{machine, 0},
                              [&] {
                                return ToyDeviceLayer{machine, ToyLayer<float>{model}};
                              },
                              ToyDeviceUpdate{machine, {}, observe}, options};
  set_toy_weights_f32(executor);
  const int allocations = machine.allocations;
  for (int step = 1; step <= steps; ++step) {
    const auto result = executor.run(ToyTokens{model.token_ids}, toy_step(step, clip));
    bits.losses.push_back(result.losses);
    bits.norms.push_back(result.gradient_norm);
    if (results != nullptr) results->push_back(result);
  }
  if (machine.allocations != allocations) throw tawpipe::DeviceError("an iteration allocates");
  if (machine.launches != (options.graph ? steps - 1 : 0))
    throw tawpipe::DeviceError("graphs are launched for each step but the first");
  read_toy_weights_f32(executor, bits.weights);
  return bits;
}

using EmulatedCommunicator = TestCommunicator<EmulatedMachine, EmulatedDevice::Stream>;
using ToyNcclExecutor = tawpipe::cuda::NcclExecutor<EmulatedDevice, EmulatedCommunicator, ToyDeviceLayer, ToyDeviceUpdate>;

/// One executor a rank, each with its own emulated device.
class ToyRanks {
 public:
  ToyRanks(const tawpipe::Schedule& schedule, const EmulatedOrder& order, const tawpipe::cuda::ExecutorOptions& options)
      : machine{order} {
    const tawpipe::LayerStack& model = schedule.workload().model();
    bits.gradient.assign(static_cast<std::size_t>(model.parameters()), 0);
    bits.weights = bits.gradient;
    const auto observe = [this](tawpipe::ParameterRange range, std::span<const float> gradients) {
      std::copy(gradients.begin(), gradients.end(), bits.gradient.begin() + range.begin);
    };
    const auto family = std::make_shared<EmulatedCommunicator::Family>();
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      executors.emplace_back(
          schedule, EmulatedDevice{machine, rank}, EmulatedCommunicator{machine, family, rank, schedule.ranks()},
          [&] {
            return ToyDeviceLayer{machine, ToyLayer<float>{model}};
          },
          ToyDeviceUpdate{machine, {}, observe}, options);
      set_toy_weights_f32(executors.back());
    }
  }

  EmulatedMachine machine;
  std::deque<ToyNcclExecutor> executors;
  ToyBits bits;
};

/// By ranks with a device each. @param results  if not null, gets each step's of rank 0
inline ToyBits train_f32_by_ranks(const tawpipe::Schedule& schedule, int steps, const EmulatedOrder& order = {},
                                  const tawpipe::cuda::ExecutorOptions& options = {}, double clip = 0,
                                  std::vector<tawpipe::IterationResult>* results = nullptr) {
  ToyRanks ranks{schedule, order, options};
  const int allocations = ranks.machine.allocations;
  for (int step = 1; step <= steps; ++step) {
    for (auto& executor : ranks.executors) executor.start(ToyTokens{schedule.workload().model().token_ids}, toy_step(step, clip));
    std::vector<tawpipe::IterationResult> all;
    for (auto& executor : ranks.executors) all.push_back(executor.finish());
    for (const auto& one : all) {
      if (one.losses != all[0].losses || one.gradient_norm != all[0].gradient_norm) throw tawpipe::DeviceError("ranks differ");
    }
    ranks.bits.losses.push_back(all[0].losses);
    ranks.bits.norms.push_back(all[0].gradient_norm);
    if (results != nullptr) results->push_back(all[0]);
  }
  if (ranks.machine.allocations != allocations) throw tawpipe::DeviceError("an iteration allocates");
  if (ranks.machine.launches != (options.graph ? (steps - 1) * schedule.ranks() : 0)) {
    throw tawpipe::DeviceError("graphs are launched for each step but the first");
  }
  for (auto& executor : ranks.executors) read_toy_weights_f32(executor, ranks.bits.weights);
  return ranks.bits;
}

}  // namespace support
