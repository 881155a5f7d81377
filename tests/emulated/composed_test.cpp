// Replicas of every schedule by the CUDA executors on emulated devices, whose streams run in random
// orders: bits as on the host.
// Not: their numbers against one device's (unit/execute/composed_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/each_schedule.hpp"
#include "support/toy_device_training.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"

using namespace support;
using namespace tawpipe;

namespace composed_devices_test {

/// Calls `visit(schedule)` for two replicas of every schedule, with each choice of shared states.
template <class Visit>
void for_each_composed(std::int64_t microbatches, Visit&& visit) {
  const Workload whole = toy_work_f32(toy_model(6, true), 2 * microbatches);
  for_each_schedule(toy_work_f32(toy_model(6, true), microbatches), {{1}, {2}}, [&](const Schedule& logical) {
    for (const StateSharding sharding :
         {StateSharding::none, StateSharding::optimizer, StateSharding::gradients, StateSharding::parameters}) {
      CAPTURE(std::string{name(sharding)});
      const Composition with{.sharding = sharding, .overlap_gathers = sharding == StateSharding::optimizer};
      visit(compose(logical, whole, Mesh{.data = 2}.over(2 * logical.ranks()), with));
    }
  });
}

TEST_CASE("replicas on devices give the host executor's bits, in any order of streams and as graphs") {
  for_each_composed(4, [](const Schedule& schedule) {
    const ToyBits host = train_f32_by_threads(schedule, 2);
    CHECK(train_f32_by_virtual_ranks(schedule, 2, {.seed = 1}) == host);
    CHECK(train_f32_by_virtual_ranks(schedule, 2, {.seed = 2}, {.graph = true}) == host);
    CHECK(train_f32_by_ranks(schedule, 2, {.seed = 3}) == host);
  });
}

TEST_CASE("replicas on devices clip by the norm over all of them") {
  for_each_composed(2, [](const Schedule& plain) {
    const Schedule schedule = with_gradient_norm(plain);
    const double free = train_f32_by_threads(schedule, 1, 1e9).norms[0];
    const ToyBits host = train_f32_by_threads(schedule, 2, free / 2);
    const ToyBits devices = train_f32_by_ranks(schedule, 2, {.seed = 4}, {}, free / 2);
    CHECK(devices.norms[0] == doctest::Approx(free).epsilon(1e-5));
    float apart = 0;
    for (std::size_t i = 0; i < host.weights.size(); ++i) apart = std::max(apart, std::abs(host.weights[i] - devices.weights[i]));
    CHECK(apart < 1e-5F);
  });
}

TEST_CASE("where the optimizer keeps weights in float32, replicas that share it give each of them once") {
  Workload whole = toy_work_f32(toy_model(6, false), 4);
  Workload replica = toy_work_f32(toy_model(6, false), 2);
  for (Workload* work : {&whole, &replica}) work->parameter_bytes({.weight = 4, .gradient = 4, .optimizer = 12});
  const Schedule logical = build_schedule("1f1b", {.workload = replica, .nodes = DeviceGroups{{1}}, .options = {}});
  const Schedule schedule = compose(logical, whole, Mesh{.data = 2}.over(2), {.sharding = StateSharding::optimizer});
  const LayerStack& model = whole.model();
  EmulatedMachine machine{{}};
  ToyVirtualExecutor executor{schedule, EmulatedDevice{machine, 0},
                              [&] {
                                return ToyDeviceLayer{machine, ToyLayer<float>{model}};
                              },
                              ToyDeviceUpdate{machine, {}}};
  set_toy_weights_f32(executor);
  std::vector<int> times(static_cast<std::size_t>(model.parameters()));
  executor.for_each_rank([&](auto& rank) {
    rank.read_weights([&](const ParameterRange& range, Dtype type, std::span<const std::byte> bytes) {
      CHECK(type == Dtype::f32);
      CHECK(std::ssize(bytes) == range.count() * std::int64_t{sizeof(float)});
      for (std::int64_t p = range.begin; p < range.end; ++p) ++times[static_cast<std::size_t>(p)];
    });
  });
  CHECK(times == std::vector<int>(times.size(), 1));
}

}  // namespace composed_devices_test
