// One process with a thread and an emulated device for each rank, as a process that no launcher
// started runs on its GPUs.
#include "tawpipe/execute/cuda/rank_threads.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "schedules.hpp"
#include "support/each_schedule.hpp"
#include "support/toy_device_training.hpp"

using namespace support;
using namespace tawpipe;

namespace {

constexpr std::int64_t making = 0;      ///< the executor
constexpr std::int64_t gathering = -1;  ///< after training

/// The work of a rank in addition to its schedule; may throw. @param step  or making, or gathering
using Trouble = std::function<void(int rank, std::int64_t step)>;

/// The toy's tokens, with trouble on the way to them.
struct TroubledTokens {
  ToyTokens tokens;
  int rank;
  const Trouble& trouble;

  void fetch(std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> tokens_out,
             std::span<std::int32_t> targets) const {
    if (trouble) trouble(rank, step);
    tokens.fetch(step, microbatch, tokens_out, targets);
  }
};

/// @param aborted  if not null, how many communicators are aborted when it fails
ToyBits train_f32_by_rank_threads(const Schedule& schedule, int steps, std::uint64_t seed, const Trouble& trouble = {},
                                  int* aborted = nullptr) {
  const LayerStack& model = schedule.workload().model();
  const auto ranks = static_cast<std::size_t>(schedule.ranks());
  EmulatedMachine machine{{.seed = seed, .threads = true}};
  ToyBits bits;
  bits.gradient.assign(static_cast<std::size_t>(model.parameters()), 0);
  bits.weights = bits.gradient;
  const auto observe = [&](ParameterRange range, std::span<const float> gradients) {  // within the machine's lock
    std::copy(gradients.begin(), gradients.end(), bits.gradient.begin() + range.begin);
  };
  cuda::RankThreads threads{schedule.ranks()};
  const auto family = std::make_shared<EmulatedCommunicator::Family>();
  family->threads = true;
  family->stop = &threads.failed();
  std::deque<EmulatedCommunicator> worlds;
  for (int rank = 0; rank < schedule.ranks(); ++rank) worlds.emplace_back(machine, family, rank, schedule.ranks());
  // Executors outlive the threads: work of a rank that has failed is still in the emulation, which
  // any thread runs.
  std::vector<std::unique_ptr<ToyNcclExecutor>> executors(ranks);
  std::vector<IterationResult> last(ranks);
  std::mutex mutex;
  try {
    threads.run([&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      executors[r] = std::make_unique<ToyNcclExecutor>(
          schedule, EmulatedDevice{machine, rank}, std::move(worlds[r]),
          [&] {
            if (trouble) trouble(rank, making);
            return ToyDeviceLayer{machine, ToyLayer<float>{model}};
          },
          ToyDeviceUpdate{machine, {}, observe});
      ToyNcclExecutor& executor = *executors[r];
      set_toy_weights_f32(executor);
      for (int step = 1; step <= steps; ++step) {
        const auto result = executor.run(TroubledTokens{{model.token_ids}, rank, trouble}, toy_step(step, 0));
        last[r] = result;
        if (!executor.is_root()) continue;
        bits.losses.push_back(result.losses);
        bits.norms.push_back(result.gradient_norm);
      }
      {
        const std::lock_guard lock{mutex};
        read_toy_weights_f32(executor, bits.weights);
      }
      if (trouble) trouble(rank, gathering);
      std::vector<float> values(static_cast<std::size_t>(schedule.ranks()), -1);
      std::vector<char> known(values.size(), 0);
      values[r] = static_cast<float>(rank);
      known[r] = 1;
      executor.gather(values, known);
      for (std::size_t other = 0; other < values.size(); ++other) {
        if (values[other] != static_cast<float>(other)) throw DeviceError("what ranks know is not gathered");
      }
    });
  } catch (const Error&) {
    if (aborted != nullptr) *aborted = family->aborted.load();
    throw;
  }
  for (const auto& one : last) {
    if (one.losses != last[0].losses || one.timeline != last[0].timeline) throw DeviceError("ranks differ");
  }
  return bits;
}

Schedule schedule_of(const std::string& name) {
  return build_schedule(name, {.workload = toy_work_f32(toy_model(12, true), 12), .nodes = DeviceGroups{{2, 2}}, .options = {}});
}

}  // namespace

TEST_CASE("ranks as threads of a process give the host executor's bits under every schedule") {
  const Workload work = toy_work_f32(toy_model(12, true), 12);
  for_each_schedule(work, {{2}, {2, 2}, {3, 2, 1}}, [](const Schedule& schedule) {
    const bool same = train_f32_by_rank_threads(schedule, 2, 7) == train_f32_by_threads(schedule, 2);
    CHECK(same);
  });
}

TEST_CASE("a rank's thread that fails ends all, wherever they are, with one message that names it") {
  for (const char* const name : {"tawpipe", "fsdp", "1f1b"}) {
    const Schedule schedule = schedule_of(name);
    for (int bad = 0; bad < schedule.ranks(); ++bad) {
      CAPTURE(std::string{name});
      CAPTURE(bad);
      const auto fails_in = [&](std::int64_t bad_step) {
        return [=](int rank, std::int64_t step) {
          if (rank == bad && step == bad_step) throw DeviceError("out of memory");
        };
      };
      const std::string message = concat("rank ", bad, " failed: out of memory");
      CHECK_THROWS_WITH_AS(train_f32_by_rank_threads(schedule, 3, 1, fails_in(making)), message.c_str(), DeviceError);
      const bool reads = name != std::string{"1f1b"} || bad == 0 || bad == schedule.ranks() - 1;
      if (reads) CHECK_THROWS_WITH_AS(train_f32_by_rank_threads(schedule, 3, 1, fails_in(2)), message.c_str(), DeviceError);
    }
  }
}

TEST_CASE("what ranks have begun together is aborted where one of them does not come to it") {
  std::atomic<int> come{0};
  const auto fails = [&](int rank, std::int64_t step) {
    if (step != gathering) return;
    ++come;
    while (rank == 2 && come < 4) std::this_thread::yield();  // the others have trained
    if (rank == 2) throw DeviceError("the disk is full");
  };
  int aborted = 0;
  CHECK_THROWS_WITH_AS(train_f32_by_rank_threads(schedule_of("fsdp"), 1, 1, fails, &aborted), "rank 2 failed: the disk is full",
                       DeviceError);
  CHECK(aborted >= 3);  // at least one of each other rank: a device with work that never ends could not be freed
}
