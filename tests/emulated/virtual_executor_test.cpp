// Every schedule of the catalogue by virtual ranks on an emulated device whose streams run in
// random orders: bits as on the host.
#include "tawpipe/execute/cuda/virtual_executor.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/device_executor_cases.hpp"
#include "support/each_schedule.hpp"
#include "support/toy_device_training.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"

using namespace support;
using namespace tawpipe;

namespace {

const auto train_virtually = [](const Schedule& schedule, int steps, const EmulatedOrder& order,
                                const cuda::ExecutorOptions& options) {
  return train_f32_by_virtual_ranks(schedule, steps, order, options);
};

}  // namespace

TEST_CASE("virtual ranks give the host executor's bits under every schedule, in any order of streams") {
  check_bits_in_any_order(train_virtually);
}

TEST_CASE("virtual ranks train microbatches and layers that do not divide") { check_bits_of_uneven_parts(train_virtually); }

TEST_CASE("virtual ranks give the same bits with activations and states in host memory") {
  check_bits_with_offload(train_virtually);
}

TEST_CASE("virtual ranks clip by the norm of the whole gradient, and a graph gives the same bits") {
  const Workload work = toy_work_f32(toy_model(6, true), 6);
  for_each_schedule(work, {{1}, {2, 1}}, [](const Schedule& plain) {
    const Schedule schedule = with_gradient_norm(plain);
    const double free = train_f32_by_threads(schedule, 1, 1e9).norms[0];
    const ToyBits expected = train_f32_by_virtual_ranks(schedule, 3, {.seed = 1}, {}, free / 2);
    CHECK(expected.norms[0] == doctest::Approx(free).epsilon(1e-5));
    const ToyBits host = train_f32_by_threads(schedule, 3, free / 2);
    float apart = 0;
    for (std::size_t i = 0; i < host.weights.size(); ++i)
      apart = std::max(apart, std::abs(host.weights[i] - expected.weights[i]));
    CHECK(apart < 1e-5F);
    const bool same = train_f32_by_virtual_ranks(schedule, 3, {.seed = 2}, {.graph = true}, free / 2) == expected;
    CHECK(same);
  });
}

TEST_CASE("virtual ranks send what the simulator says, and their timeline keeps the schedule's order") {
  const Workload work = toy_work_f32(toy_model(12, false), 12);
  const Cluster cluster = nodes_of({2, 2});
  for_each_schedule(work, {{2, 2}}, [&](const Schedule& schedule) {
    std::vector<IterationResult> results;
    train_f32_by_virtual_ranks(schedule, 2, {.seed = 5}, {.graph = true}, 0, &results);
    const Traffic predicted = traffic(schedule, cluster);
    for (std::size_t r = 0; r < 4; ++r) CHECK(results[0].sent[r].total() == predicted.rank_sent_bytes[r]);
    for (const auto& result : results) {
      int early = 0;
      for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
        const TaskId task = id<TaskId>(t);
        if (result.timeline.end_of(task) <= result.timeline.start_of(task)) ++early;
        for (const TaskId before : schedule.dependencies(task)) {
          if (result.timeline.start_of(task) < result.timeline.end_of(before)) ++early;
        }
      }
      CHECK(early == 0);
    }
  });
}

TEST_CASE("virtual ranks give the same bits where memory is laid out for an expected timeline, and take no more") {
  check_bits_by_expected_timeline(train_virtually, [](const Schedule& schedule, const Timeline& expected) {
    EmulatedMachine machine{{}};
    const auto allocated = [&](const Timeline* timeline) {
      ToyVirtualExecutor executor{schedule,
                                  EmulatedDevice{machine, 0},
                                  [&] {
                                    return ToyDeviceLayer{machine, ToyLayer<float>{schedule.workload().model()}};
                                  },
                                  ToyDeviceUpdate{machine, {}},
                                  {.expected = timeline}};
      return executor.allocated();
    };
    CHECK(allocated(&expected) <= allocated(nullptr));
  });
}

TEST_CASE("virtual ranks refuse what they cannot do") {
  const Workload work = toy_work_f32(toy_model(6, true), 6);
  const ScheduleRequest request{.workload = work, .nodes = DeviceGroups{{2, 2}}, .options = {}};
  const Schedule schedule = build_schedule("tawpipe", request);
  EmulatedMachine machine{{}};
  const auto make_layer = [&] { return ToyDeviceLayer{machine, ToyLayer<float>{work.model()}}; };
  ToyVirtualExecutor executor{schedule, EmulatedDevice{machine, 0}, make_layer, ToyDeviceUpdate{machine, {}}};
  CHECK_THROWS_AS(executor.run(ToyTokens{7}, {.gradient_clip = 1}), InputError);
  CHECK_THROWS_WITH_AS(executor.run(ToyTokens{70}, {}), doctest::Contains("is not in the vocabulary of 7"), InputError);

  const Workload wide = toy_work(toy_model(6, true), 6);  // f64
  const Schedule doubles = build_schedule("tawpipe", {.workload = wide, .nodes = DeviceGroups{{2, 2}}, .options = {}});
  const auto make = [&] {
    ToyVirtualExecutor refused{doubles, EmulatedDevice{machine, 0}, make_layer, ToyDeviceUpdate{machine, {}}};
  };
  CHECK_THROWS_WITH_AS(make(), doctest::Contains("not in float64"), InputError);
}
