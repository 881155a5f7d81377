// An all_to_all by the executors for GPUs over emulated devices: every number is where it belongs,
// whatever the sizes of the pairs.
// Not: the calls that it makes (communicators_test.cpp).
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "support/all_to_all_run.hpp"
#include "support/toy_device_training.hpp"

using namespace tawpipe;
using namespace support;

namespace {

/// Sets the numbers of all ranks of the executors, runs them, and counts what is wrong afterwards.
template <class Executors, class Run>
void check_numbers(const AllToAllRun& run, int ranks, Executors& executors, Run&& run_all) {
  for (auto* executor : executors) {
    executor->for_each_rank([&](auto& rank) {
      for (const int which : {0, 1}) {
        const BufferId buffer = run.buffer(which, number(rank.rank()));
        const std::vector<float> numbers = run.before<float>(buffer);
        rank.write(buffer, std::as_bytes(std::span{numbers}));
      }
    });
  }
  run_all();
  int seen = 0;
  for (auto* executor : executors) {
    executor->for_each_rank([&](auto& rank) {
      for (const int which : {0, 1}) {
        const BufferId buffer = run.buffer(which, number(rank.rank()));
        std::vector<float> numbers(static_cast<std::size_t>(run.run()));
        rank.read(buffer, std::as_writable_bytes(std::span{numbers}));
        CHECK(numbers == run.after<float>(buffer));
        ++seen;
      }
    });
  }
  CHECK(seen == 2 * ranks);
}

}  // namespace

TEST_CASE("devices: an all_to_all there and another back leave each number where the sizes say") {
  for (const int ranks : {1, 2, 5}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      CAPTURE(ranks);
      CAPTURE(seed);
      const AllToAllRun run{toy_work_f32(toy_model(12, false), 1), ranks, seed};
      const Schedule schedule = run.build();
      {
        EmulatedMachine machine{{.seed = seed}};
        ToyVirtualExecutor executor{schedule, EmulatedDevice{machine, 0},
                                    [&] {
                                      return ToyDeviceLayer{machine, ToyLayer<float>{schedule.workload().model()}};
                                    },
                                    ToyDeviceUpdate{machine, {}, {}}};
        const std::vector<ToyVirtualExecutor*> all{&executor};
        check_numbers(run, ranks, all, [&] { executor.run(ToyTokens{7}, {}); });
      }
      EmulatedMachine machine{{.seed = seed}};
      const auto family = std::make_shared<EmulatedCommunicator::Family>();
      std::vector<std::unique_ptr<ToyNcclExecutor>> owned;
      std::vector<ToyNcclExecutor*> all;
      for (int rank = 0; rank < ranks; ++rank) {
        owned.push_back(std::make_unique<ToyNcclExecutor>(
            schedule, EmulatedDevice{machine, rank}, EmulatedCommunicator{machine, family, rank, ranks},
            [&] {
              return ToyDeviceLayer{machine, ToyLayer<float>{schedule.workload().model()}};
            },
            ToyDeviceUpdate{machine, {}, {}}, cuda::ExecutorOptions{}));
        all.push_back(owned.back().get());
      }
      check_numbers(run, ranks, all, [&] {
        for (auto* executor : all) executor->start(ToyTokens{7}, {});
        for (auto* executor : all) executor->finish();
      });
    }
  }
}
