// Ranks that are threads, with windows for communicators that only gather: the host's bits, through
// windows whose rules are enforced (support/test_communicator.hpp).
#include "tawpipe/execute/cuda/gather_windows.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "support/each_schedule.hpp"
#include "support/toy_device_training.hpp"
#include "tawpipe/execute/cuda/rank_threads.hpp"

using namespace support;
using namespace tawpipe;

namespace {

struct Trained {
  std::vector<std::vector<double>> losses;  ///< [step, microbatch]
  std::vector<float> weights;
  std::vector<cuda::GatherCount> gathers;  ///< [rank]
};

Trained trained_with(const Schedule& schedule, bool zero_cta) {
  const LayerStack& model = schedule.workload().model();
  const auto ranks = static_cast<std::size_t>(schedule.ranks());
  EmulatedMachine machine{{.seed = 5, .threads = true}};
  cuda::RankThreads threads{schedule.ranks()};
  const auto family = std::make_shared<EmulatedCommunicator::Family>();
  family->threads = true;
  family->zero_cta = zero_cta;
  family->stop = &threads.failed();
  std::deque<EmulatedCommunicator> worlds;
  for (int rank = 0; rank < schedule.ranks(); ++rank) worlds.emplace_back(machine, family, rank, schedule.ranks());
  std::vector<std::unique_ptr<ToyNcclExecutor>> executors(ranks);
  Trained trained{{}, std::vector<float>(static_cast<std::size_t>(model.parameters())), std::vector<cuda::GatherCount>(ranks)};
  threads.run([&](int rank) {
    auto& executor = executors[static_cast<std::size_t>(rank)];
    executor = std::make_unique<ToyNcclExecutor>(
        schedule, EmulatedDevice{machine, rank}, std::move(worlds[static_cast<std::size_t>(rank)]),
        [&] {
          return ToyDeviceLayer{machine, ToyLayer<float>{model}};
        },
        ToyDeviceUpdate{machine, {}, {}});
    set_toy_weights_f32(*executor);
    for (int step = 1; step <= 2; ++step) {
      const auto result = executor->run(ToyTokens{model.token_ids}, toy_step(step, 0));
      if (executor->is_root()) trained.losses.push_back(result.losses);
    }
  });
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    read_toy_weights_f32(*executors[rank], trained.weights);
    trained.gathers[rank] = executors[rank]->gathers();
  }
  return trained;
}

/// Of rank 0 in an iteration, through windows of all.
std::pair<std::int64_t, std::int64_t> counts(const std::string& name, std::vector<std::int32_t> nodes,
                                             ScheduleOptions options = {}) {
  const DeviceGroups groups{std::move(nodes)};
  const Workload work = toy_work_f32(toy_model(8, false), 8);
  const auto count =
      trained_with(build_schedule(name, {.workload = work, .nodes = groups, .options = std::move(options)}), true).gathers[0];
  return {count.in_windows, count.all};
}

}  // namespace

TEST_CASE("gathers through windows give the same bits under every schedule") {
  for_each_schedule(toy_work_f32(toy_model(8, true), 8), {{2, 2}, {4}}, [](const Schedule& schedule) {
    const Trained plain = trained_with(schedule, false);
    const Trained windows = trained_with(schedule, true);
    CHECK(windows.losses == plain.losses);
    CHECK(windows.weights == plain.weights);
    for (const cuda::GatherCount& count : plain.gathers) CHECK(count.in_windows == 0);
    for (const cuda::GatherCount& count : windows.gathers) CHECK(count.in_windows <= count.all);
  });
}

TEST_CASE("fully sharded gathers all go through windows; those that share a communicator with sums do not") {
  using Counts = std::pair<std::int64_t, std::int64_t>;
  CHECK(counts("fsdp", {4}) == Counts{40, 40});
  CHECK(counts("hpz", {2, 2}) == Counts{60, 60});
  CHECK(counts("zero1", {4}) == Counts{10, 10});
  CHECK(counts("fsdp", {4}, {{"gather-first", "on"}}) == Counts{0, 40});
  CHECK(counts("fsdp", {8}) == Counts{20, 20});  // shards are padded to 8 numbers a rank
}
