// An all_to_all by the executors for GPUs over emulated devices: every number is where it belongs, whatever the sizes of the
// pairs. Not: the calls that it makes (communicators_test.cpp).
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
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
void check_numbers(const AllToAllRun& run, Executors& executors, Run&& run_all) {
  for (auto* executor : executors) {
    executor->for_each_rank([](auto& rank) {
      rank.set_weights([](const ParameterRange& range, Dtype, std::span<std::byte> bytes) {
        for (std::int64_t i = 0; i < range.count(); ++i) {
          const auto number = static_cast<float>(AllToAllRun::before(range.begin + i));
          std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof number, &number, sizeof number);
        }
      });
    });
  }
  run_all();
  const std::map<std::int64_t, double> right = run.after();
  std::size_t seen = 0;
  std::size_t wrong = 0;
  for (auto* executor : executors) {
    executor->for_each_rank([&](auto& rank) {
      rank.read_weights([&](const ParameterRange& range, Dtype, std::span<const std::byte> bytes) {
        for (std::int64_t i = 0; i < range.count(); ++i) {
          float number = 0;
          std::memcpy(&number, bytes.data() + static_cast<std::size_t>(i) * sizeof number, sizeof number);
          ++seen;
          if (number != static_cast<float>(right.at(range.begin + i))) ++wrong;
        }
      });
    });
  }
  CHECK(seen == right.size());
  CHECK(wrong == 0);
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
        check_numbers(run, all, [&] { executor.run(ToyTokens{7}, {}); });
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
      check_numbers(run, all, [&] {
        for (auto* executor : all) executor->start(ToyTokens{7}, {});
        for (auto* executor : all) executor->finish();
      });
    }
  }
}
