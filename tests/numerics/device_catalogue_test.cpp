// The recorded LLaMA decoder in f32 by the CUDA executors on emulated devices: under every schedule
// of the catalogue every loss, gradient and parameter as recorded.
// Not: CUDA's layers (tests/gpu).
#include <doctest/doctest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "papers/reference_run.hpp"
#include "support/each_schedule.hpp"
#include "support/emulated_layers.hpp"
#include "tawpipe/execute/cuda/nccl_executor.hpp"
#include "tawpipe/execute/cuda/virtual_executor.hpp"
#include "tawpipe/layers/host/llama.hpp"
#include "tawpipe/layers/parameter_update.hpp"

using namespace support;
using namespace tawpipe;
using training::NumericsCheck;
using training::ReferenceRun;

namespace {

using Layer = EmulatedLayer<layers::host::Llama<float>>;
using Update = EmulatedUpdate<layers::AdamWUpdate<float>>;
using Communicator = TestCommunicator<EmulatedMachine, EmulatedDevice::Stream>;
using OneDevice = cuda::VirtualExecutor<EmulatedDevice, Layer, Update>;
using OneRank = cuda::NcclExecutor<EmulatedDevice, Communicator, Layer, Update>;

Workload work_of(const ReferenceRun& reference, Recompute recompute) {
  Transformer model = reference.model();
  model.dtype = Dtype::f32;
  Workload work{model, reference.batch(), recompute};
  work.parameter_bytes({.weight = 4, .gradient = 4, .optimizer = 8});
  return work;
}

/// Trains by `step(args)`, which gives the losses of one, and compares; `each_rank(visit)` visits
/// all ranks.
template <class Step, class EachRank>
void check_training(const ReferenceRun& reference, std::vector<float>& values, Step&& step, EachRank&& each_rank) {
  const std::vector<float> initial = reference.initial<float>();
  each_rank([&](auto& rank) {
    rank.set_weights([&](const ParameterRange& range, Dtype, std::span<std::byte> bytes) {
      std::memcpy(bytes.data(), initial.data() + range.begin, bytes.size());
    });
  });
  std::vector<std::vector<double>> losses;
  std::vector<NumericsCheck> checks;
  for (int number = 1; number <= reference.steps + 1; ++number) {
    losses.push_back(step(Iteration{.step = number, .learning_rate = reference.learning_rate}));
    if (number == 1) reference.check_parameters<float>("grad0", values, checks);
    if (number != 1 && number != reference.steps) continue;
    std::vector<float> weights(values.size());
    each_rank([&](auto& rank) {
      rank.read_weights([&](const ParameterRange& range, Dtype, std::span<const std::byte> bytes) {
        std::memcpy(weights.data() + range.begin, bytes.data(), bytes.size());
      });
    });
    reference.check_parameters<float>(concat("step", number), weights, checks);
  }
  reference.check_losses<float>(losses, checks);
  CHECK(checks.size() >= 8);
  for (const NumericsCheck& check : checks) {
    CAPTURE(check.quantity);
    CAPTURE(check.worst);
    CHECK(check.difference <= check.tolerance);
  }
}

/// What every executor of a test is made with.
struct Setting {
  Setting(const ReferenceRun& run, const Schedule& schedule, std::uint64_t seed)
      : reference{run},
        model{*schedule.workload().model().decoder},
        recompute{schedule.workload().recompute()},
        machine{{.seed = seed}} {
    values.resize(static_cast<std::size_t>(model.parameters()));
  }
  Layer layer() { return {machine, layers::host::Llama<float>{model, reference.batch(), recompute, reference.constants}}; }
  Update update() {
    const layers::AdamW constants{
        .beta1 = reference.beta1, .beta2 = reference.beta2, .epsilon = reference.epsilon, .weight_decay = reference.weight_decay};
    return {machine, {model, constants}, [this](ParameterRange range, std::span<const float> gradients) {
              if (observes) std::copy(gradients.begin(), gradients.end(), values.begin() + range.begin);
            }};
  }

  const ReferenceRun& reference;
  Transformer model;
  Recompute recompute;
  EmulatedMachine machine;
  std::vector<float> values;  ///< gradients of the first step
  bool observes = true;
};

void check_virtual(const ReferenceRun& reference, const Schedule& schedule, std::uint64_t seed, bool graph) {
  Setting setting{reference, schedule, seed};
  OneDevice executor{
      schedule, EmulatedDevice{setting.machine, 0}, [&] { return setting.layer(); }, setting.update(), {.graph = graph}};
  check_training(
      reference, setting.values,
      [&](const Iteration& args) {
        auto losses = executor.run(reference, args).losses;
        setting.observes = false;
        return losses;
      },
      [&](auto&& visit) { executor.for_each_rank(visit); });
}

void check_ranks(const ReferenceRun& reference, const Schedule& schedule, std::uint64_t seed, bool graph) {
  Setting setting{reference, schedule, seed};
  const auto family = std::make_shared<Communicator::Family>();
  std::deque<OneRank> executors;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    executors.emplace_back(
        schedule, EmulatedDevice{setting.machine, rank}, Communicator{setting.machine, family, rank, schedule.ranks()},
        [&] { return setting.layer(); }, setting.update(), cuda::ExecutorOptions{.graph = graph});
  }
  check_training(
      reference, setting.values,
      [&](const Iteration& args) {
        for (OneRank& executor : executors) executor.start(reference, args);
        std::vector<double> losses;
        for (OneRank& executor : executors) losses = executor.finish().losses;
        setting.observes = false;
        return losses;
      },
      [&](auto&& visit) {
        for (OneRank& executor : executors) executor.for_each_rank(visit);
      });
}

const std::string golden_folder = std::string{TAWPIPE_TEST_DATA} + "/llama_golden";

}  // namespace

TEST_CASE("configuration A by virtual ranks under every schedule") {
  const ReferenceRun reference{golden_folder + "/A"};
  for_each_schedule(work_of(reference, Recompute::none), {{1}, {2, 2}, {3, 2, 1}, {4, 4}}, [&](const Schedule& schedule) {
    check_virtual(reference, schedule, 1, schedule.ranks() == 4);
    if (schedule.ranks() == 4) check_virtual(reference, schedule, 2, false);
  });
}
TEST_CASE("configuration A by ranks with communicators under every schedule") {
  const ReferenceRun reference{golden_folder + "/A"};
  for_each_schedule(work_of(reference, Recompute::full), {{2, 2}, {3, 2, 1}, {4, 4}}, [&](const Schedule& schedule) {
    check_ranks(reference, schedule, 1, schedule.ranks() == 4);
    if (schedule.ranks() == 4) check_ranks(reference, schedule, 2, false);
  });
}
TEST_CASE("configuration B by virtual ranks and by ranks with communicators under every schedule") {
  const ReferenceRun reference{golden_folder + "/B"};
  for_each_schedule(work_of(reference, Recompute::selective), {{2, 1}}, [&](const Schedule& schedule) {
    check_virtual(reference, schedule, 2, true);
    check_ranks(reference, schedule, 2, true);
  });
}
