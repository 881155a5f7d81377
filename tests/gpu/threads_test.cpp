// One process with a thread for each GPU over NCCL: a recorded run's numbers, and a rank that
// fails. threads_test REFERENCE SCHEDULE..., or threads_test REFERENCE --pending SCHEDULE: a rank
// is held in a launch, and the process leaves with code 3. Skips where there is one GPU: NCCL
// refuses two ranks of a process on one.
// Not: ranks as processes (nccl_test.cpp).
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/execute/cuda/nccl_executor.hpp"
#include "tawpipe/execute/cuda/rank_threads.hpp"
#include "tawpipe/execute/cuda/session.hpp"
#include "training.hpp"

using namespace tawpipe;
using Executor = cuda::NcclExecutor<cuda::CudaDevice, cuda::NcclCommunicator, gpu::Layer, gpu::Optimizer>;

namespace {

/// @param bad     the rank that fails; -1: none
/// @param within  in its second step, otherwise after its first
gpu::Trained train(const gpu::Reference& reference, const Schedule& schedule, int bad, bool within = false) {
  std::vector<gpu::Trained> trained(static_cast<std::size_t>(schedule.ranks()));
  cuda::RankThreads threads{schedule.ranks()};
  threads.run([&](int rank) {
    cuda::Session session{threads, rank};
    session.agree("");
    cuda::CudaDevice device{session.device()};
    device.use();
    cuda::NcclCommunicator world = session.connect();
    cuda::ExecutorOptions options = session.watched();
    options.abort_limit = 1e9;  // they must come to their ends
    Executor executor{
        schedule, std::move(device), std::move(world), [&] { return gpu::layer_of(reference); }, gpu::optimizer_of(reference),
        options};
    const auto gather = [&](std::span<float> values, std::span<const char> known) {
      if (rank == bad && !within) {
        session.fail("it was told to");
        throw DeviceError("it was told to");
      }
      executor.gather(values, known);
    };
    trained[static_cast<std::size_t>(rank)] = gpu::train(executor, reference, gather, rank == bad && within ? 2 : 0);
  });
  return trained.front();
}

std::string failure_of(const gpu::Reference& reference, const Schedule& schedule, int bad, bool within) {
  try {
    train(reference, schedule, bad, within);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return {};
}

/// Rank 1 is held in a launch after a computation that never ends.
void hold(const gpu::Reference& reference, const Schedule& schedule) {
  cuda::SessionOptions options;
  options.watch.task_seconds = 3;
  cuda::RankThreads threads{schedule.ranks(), sim::leave, 3};
  threads.run([&](int rank) {
    cuda::Session session{threads, rank, options};
    session.agree("");
    cuda::CudaDevice device{session.device()};
    device.use();
    cuda::NcclCommunicator world = session.connect();
    cuda::NcclExecutor<cuda::CudaDevice, cuda::NcclCommunicator, gpu::Stalling, gpu::Optimizer> executor{
        schedule,
        std::move(device),
        std::move(world),
        [&] {
          return gpu::Stalling{gpu::layer_of(reference), rank == 1 ? 20 : 0, 1500};
        },
        gpu::optimizer_of(reference),
        session.watched()};
    for (int step = 1;; ++step) executor.run(reference, {.step = step, .learning_rate = reference.number("lr")});
  });
}

}  // namespace

int main(int argc, char** argv) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) == cudaSuccess && gpus == 1) {
    std::printf("skipped: one GPU is visible, and each thread needs its own\n");
    return gpu::skipped;
  }
  return gpu::run([&](gpu::Checks& checks) {
    const gpu::Reference reference{argc > 1 ? argv[1] : ""};
    if (argc > 3 && std::string{argv[2]} == "--pending") hold(reference, gpu::schedule_of(reference, argv[3], {2}).value());
    for (int i = 2; i < argc; ++i) {
      const std::string name{argv[i]};
      const auto schedule = gpu::schedule_of(reference, name, {2});
      if (!schedule) continue;
      gpu::check(checks, reference, train(reference, *schedule, -1), name + " on 2 threads");
      for (const bool within : {false, true}) {
        const std::string said = failure_of(reference, *schedule, 1, within);
        checks.that(said == "rank 1 failed: it was told to", concat(name, ": a rank that fails ends both: ", said));
      }
    }
  });
}
