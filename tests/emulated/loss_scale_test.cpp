// A loss scale under schedules: shared by virtual ranks of one device, or one on each of several
// that move alike. An overflow on one rank skips the step on all, and the steps that are taken
// leave the bits that they leave without a loss scale.
#include <doctest/doctest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/each_schedule.hpp"
#include "support/toy_device_training.hpp"
#include "tawpipe/layers/cuda/adamw_bodies.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"

using namespace support;
using namespace tawpipe;
using layers::cuda::AdamWFactors;
using layers::cuda::LossScaleState;

namespace {

constexpr float most = 1024;         ///< with a larger scale the gradient of one microbatch overflows
constexpr std::int32_t growth = 3;   ///< steps
constexpr double any_clip = 1e30;    ///< nothing is clipped
constexpr std::int32_t spoiled = 3;  ///< that microbatch

/// The toy, whose gradients are made with a scale in device memory.
class ScaledLayer {
 public:
  ScaledLayer(const LayerStack& model, const LossScaleState* state) : layer_{model}, state_{state} {}
  void forward(const ForwardArgs& args) const { layer_.forward(args); }
  void backward(const BackwardArgs& args) const { layer_.backward(scaled(args)); }
  void backward_input(const BackwardArgs& args) const { layer_.backward_input(scaled(args)); }
  void backward_weight(const BackwardArgs& args) const { layer_.backward_weight(scaled(args)); }

 private:
  BackwardArgs scaled(BackwardArgs args) const {
    const bool over = args.microbatch == spoiled && state_->scale > most;
    args.scale *= over ? std::numeric_limits<double>::infinity() : static_cast<double>(state_->scale);
    return args;
  }

  ToyLayer<float> layer_;
  const LossScaleState* state_;
};

/// The toy's optimizer with the loss scale.
class ScaledUpdate {
 public:
  ScaledUpdate(EmulatedMachine& machine, LossScaleState* state) : machine_{&machine}, state_{state} {}

  void update(const DeviceUpdateArgs& device, EmulatedDevice::Stream stream) const {
    machine_->enqueue(stream.number, [this, device] {
      AdamWFactors factors;
      layers::cuda::run_on_host(layers::cuda::PrepareAdamW{{}, device.scalars, device.gradient_scale, state_, growth, &factors});
      if (factors.skip != 0) return;
      UpdateArgs args;
      const auto count = static_cast<std::size_t>(device.parameters.count());
      args.weights = device.weights;
      args.gradients = device.gradients;
      args.first_moment = std::as_writable_bytes(std::span{device.first_moment, count});
      args.learning_rate = device.scalars->learning_rate;
      args.gradient_scale = static_cast<double>(factors.gradient_scale);
      ToyOptimizer<float>{}.update(args);
    });
  }

 private:
  EmulatedMachine* machine_;
  LossScaleState* state_;
};

using Layer = EmulatedLayer<ScaledLayer>;
using VirtualRanks = cuda::VirtualExecutor<EmulatedDevice, Layer, ScaledUpdate>;
using OneRank = cuda::NcclExecutor<EmulatedDevice, EmulatedCommunicator, Layer, ScaledUpdate>;

/// What came of some steps with a loss scale.
struct Scaled {
  std::vector<float> scales;   ///< after each step
  std::vector<float> weights;  ///< at the end, of each copy
  bool operator==(const Scaled&) const = default;
};

/// All copies of weights, rank by rank.
template <class Executor>
void append_weights(Executor& executor, std::vector<float>& weights) {
  executor.for_each_rank([&](auto& rank) {
    rank.read_weights([&](const ParameterRange&, Dtype, std::span<const std::byte> bytes) {
      const auto* numbers = reinterpret_cast<const float*>(bytes.data());
      weights.insert(weights.end(), numbers, numbers + bytes.size() / sizeof(float));
    });
  });
}

/// The weights that some steps leave without a loss scale.
std::vector<float> train_plain(const Schedule& schedule, const std::vector<int>& steps) {
  const LayerStack& model = schedule.workload().model();
  EmulatedMachine machine{{}};
  ToyVirtualExecutor executor{schedule, EmulatedDevice{machine, 0},
                              [&] {
                                return ToyDeviceLayer{machine, ToyLayer<float>{model}};
                              },
                              ToyDeviceUpdate{machine, {}}};
  set_toy_weights_f32(executor);
  for (const int step : steps) executor.run(ToyTokens{model.token_ids}, toy_step(step, 0));
  std::vector<float> weights;
  append_weights(executor, weights);
  return weights;
}

Scaled train_virtual(const Schedule& schedule, const std::vector<int>& steps, float initial, const EmulatedOrder& order) {
  const LayerStack& model = schedule.workload().model();
  EmulatedMachine machine{order};
  LossScaleState state{initial};
  VirtualRanks executor{schedule, EmulatedDevice{machine, 0},
                        [&] {
                          return Layer{machine, ScaledLayer{model, &state}};
                        },
                        ScaledUpdate{machine, &state}};
  set_toy_weights_f32(executor);
  Scaled scaled;
  for (const int step : steps) {
    executor.run(ToyTokens{model.token_ids}, toy_step(step, any_clip));
    scaled.scales.push_back(state.scale);
  }
  append_weights(executor, scaled.weights);
  return scaled;
}

Scaled train_devices(const Schedule& schedule, const std::vector<int>& steps, float initial, const EmulatedOrder& order) {
  const LayerStack& model = schedule.workload().model();
  EmulatedMachine machine{order};
  std::deque<LossScaleState> states;
  std::deque<OneRank> executors;
  const auto family = std::make_shared<EmulatedCommunicator::Family>();
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    LossScaleState& state = states.emplace_back(initial);
    executors.emplace_back(
        schedule, EmulatedDevice{machine, rank}, EmulatedCommunicator{machine, family, rank, schedule.ranks()},
        [&] {
          return Layer{machine, ScaledLayer{model, &state}};
        },
        ScaledUpdate{machine, &state});
    set_toy_weights_f32(executors.back());
  }
  Scaled scaled;
  for (const int step : steps) {
    for (OneRank& executor : executors) executor.start(ToyTokens{model.token_ids}, toy_step(step, any_clip));
    for (OneRank& executor : executors) executor.finish();
    scaled.scales.push_back(states[0].scale);
    for (const LossScaleState& state : states) {
      if (state.scale != states[0].scale) throw DeviceError("the scales of ranks differ");
    }
  }
  for (OneRank& executor : executors) append_weights(executor, scaled.weights);
  return scaled;
}

}  // namespace

TEST_CASE("an overflow on one rank skips the step on all, whether they share a device or not") {
  const Workload work = toy_work_f32(toy_model(6, true), 6);
  // 4096 and 2048 overflow; 1024 does not, three steps double it, which overflows.
  const std::vector<int> steps{1, 2, 3, 4, 5, 6, 7};
  const std::vector<float> scales{2048, 1024, 1024, 1024, 2048, 1024, 1024};
  const std::vector<int> taken{3, 4, 5, 7};
  for_each_schedule(work, {{1}, {2, 1}, {3}}, [&](const Schedule& plain) {
    const Schedule schedule = with_gradient_norm(plain);
    const std::vector<float> exact = train_plain(schedule, taken);
    REQUIRE(!exact.empty());
    for (const std::uint64_t seed : {1, 2, 3}) {
      const Scaled shared = train_virtual(schedule, steps, 4096, {.seed = seed});
      CHECK(shared.scales == scales);
      const bool same = shared.weights == exact;
      CHECK(same);
      const bool apart = train_devices(schedule, steps, 4096, {.seed = seed}) == shared;
      CHECK(apart);
    }
  });
}
