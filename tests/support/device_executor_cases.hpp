// What holds of every executor for devices, whichever way its ranks are run: the host executor's
// bits under every schedule.
// Not: how a trainer runs them (toy_device_training.hpp).
#pragma once

#include <doctest/doctest.h>

#include <cstdint>

#include "support/clusters.hpp"
#include "support/each_schedule.hpp"
#include "support/toy_device_training.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/schedule/offload.hpp"
#include "tawpipe/simulate/simulate.hpp"

namespace support {

/// `train(schedule, steps, order, options)` gives ToyBits.
template <class Train>
void check_bits_in_any_order(const Train& train) {
  for (const bool tied : {true, false}) {
    const auto recompute = tied ? tawpipe::Recompute::full : tawpipe::Recompute::none;
    const tawpipe::Workload work = toy_work_f32(toy_model(12, tied), 12, recompute);
    for_each_schedule(work, {{1}, {1, 1}, {2, 2}, {2, 2, 2}, {3, 2, 1}}, [&](const tawpipe::Schedule& schedule) {
      const ToyBits expected = train_f32_by_threads(schedule, 2);
      for (const std::uint64_t seed : {1, 2, 3}) {
        const EmulatedOrder order{.seed = seed, .in_issue_order = tied && seed == 3};
        const bool same = train(schedule, 2, order, tawpipe::cuda::ExecutorOptions{}) == expected;
        CHECK(same);
      }
    });
  }
}

/// Microbatches and layers that do not divide.
template <class Train>
void check_bits_of_uneven_parts(const Train& train) {
  for_each_schedule(toy_work_f32(toy_model(7, true), 8), {{3, 2}}, [&](const tawpipe::Schedule& schedule) {
    const EmulatedOrder order{.seed = 2};
    const bool same = train(schedule, 1, order, tawpipe::cuda::ExecutorOptions{}) == train_f32_by_threads(schedule, 1);
    CHECK(same);
  });
}

/// Activations and optimizer states in host memory, which is not the device's.
template <class Train>
void check_bits_with_offload(const Train& train) {
  const tawpipe::Workload work = toy_work_f32(toy_model(12, true), 12);
  for_each_schedule(work, {{1}, {2, 2}}, [&](const tawpipe::Schedule& plain) {
    const tawpipe::Schedule schedule = tawpipe::with_offload(plain, {.activations = true, .optimizer = true});
    const ToyBits expected = train_f32_by_threads(plain, 2);
    for (const std::uint64_t seed : {1, 2, 3}) {
      const EmulatedOrder order{.seed = seed, .in_issue_order = seed == 3};
      const bool same = train(schedule, 2, order, tawpipe::cuda::ExecutorOptions{.graph = seed == 2}) == expected;
      CHECK(same);
    }
  });
}

/// Memory laid out for an expected timeline. `also(schedule, expected)` checks what else must hold.
template <class Train, class Also>
void check_bits_by_expected_timeline(const Train& train, const Also& also) {
  const tawpipe::Workload work = toy_work_f32(toy_model(12, true), 8);
  const tawpipe::Cluster cluster = nodes_of({2, 2});
  for_each_schedule(work, {{2, 2}}, [&](const tawpipe::Schedule& schedule) {
    const tawpipe::Timeline expected = tawpipe::simulate(schedule, cluster, tawpipe::RooflineCost{});
    const ToyBits bits = train_f32_by_threads(schedule, 2);
    for (const std::uint64_t seed : {1, 2, 3}) {
      const EmulatedOrder order{.seed = seed, .in_issue_order = seed == 3};
      const bool same = train(schedule, 2, order, tawpipe::cuda::ExecutorOptions{.expected = &expected}) == bits;
      CHECK(same);
    }
    also(schedule, expected);
  });
}

}  // namespace support
