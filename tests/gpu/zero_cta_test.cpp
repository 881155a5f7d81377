// One rank of a run over NCCL, started by ranks.py: a recorded run with all-gathers through windows
// gives the bits of one without, eager and by graph; over the software GPU, all of them have been
// copied. zero_cta_test REFERENCE SCHEDULE... Skips where ranks share GPUs, or NCCL has no such
// windows.
// Not: which gathers may have windows (tests/emulated/gather_windows_test.cpp).
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "tawpipe/execute/cuda/nccl_executor.hpp"
#include "tawpipe/execute/cuda/session.hpp"
#include "training.hpp"

using namespace tawpipe;
using Executor = cuda::NcclExecutor<cuda::CudaDevice, cuda::NcclCommunicator, gpu::Layer, gpu::Optimizer>;

/// The gathers of this process that the software NCCL has done by copy engines; a real one has no
/// such function.
extern "C" long software_nccl_copied_gathers() __attribute__((weak));

namespace {

long copied() { return software_nccl_copied_gathers == nullptr ? 0 : software_nccl_copied_gathers(); }

struct Outcome {
  gpu::Trained trained;
  cuda::GatherCount gathers;  ///< in an iteration
  long copied;
};

Outcome train(const gpu::Reference& reference, const Schedule& schedule, cuda::Session& session, cuda::NcclCommunicator world,
              bool graph) {
  const long before = copied();
  Executor executor{schedule,
                    cuda::CudaDevice{session.device()},
                    std::move(world),
                    [&] { return gpu::layer_of(reference); },
                    gpu::optimizer_of(reference),
                    {.graph = graph, .time_limit = 400}};
  gpu::Trained trained = gpu::train(
      executor, reference, [&](std::span<float> values, std::span<const char> known) { executor.gather(values, known); });
  return {std::move(trained), executor.gathers(), copied() - before};
}

}  // namespace

int main(int argc, char** argv) {
  const cuda::Environment variables = cuda::read_environment(environ);
  const int ranks = cuda::place_of(variables).ranks;
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0 && gpus < ranks) {
    std::printf("skipped: %d GPUs are visible, and each of %d ranks needs its own\n", gpus, ranks);
    return gpu::skipped;
  }
  return gpu::run([&](gpu::Checks& checks) {
    const gpu::Reference reference{argc > 1 ? argv[1] : ""};
    cuda::SessionOptions options;
    options.watch = {.silence_seconds = 60, .task_seconds = 300, .failed = sim::leave};  // a busy machine is slow
    options.nccl.zero_cta = true;
    cuda::Session session{variables, options};
    session.agree("");
    cuda::check(cudaSetDevice(session.device()), "cudaSetDevice");
    cuda::NcclCommunicator world = session.connect();
    const auto all = [&] { return world.split(0, session.rank(), cuda::Traffic::collectives).value(); };
    for (int i = 2; i < argc; ++i) {
      const std::string name{argv[i]};
      const Schedule schedule = gpu::schedule_of(reference, name, {ranks}).value();
      const Outcome plain = train(reference, schedule, session, cuda::NcclCommunicator::adopt(world.get()), false);
      checks.that(plain.gathers.in_windows == 0 && plain.copied == 0, name + ": without the option there are no windows");
      if (session.rank() == 0) gpu::check(checks, reference, plain.trained, name);
      for (const bool graph : {false, true}) {
        const Outcome windows = train(reference, schedule, session, all(), graph);
        const std::string what = concat(name, graph ? " by graph" : "", " in windows");
        checks.that(windows.trained == plain.trained, what + ": the same bits");
        checks.that(windows.gathers.all > 0 && windows.gathers.in_windows == windows.gathers.all,
                    concat(what, ": ", windows.gathers.in_windows, " of ", windows.gathers.all));
        if (software_nccl_copied_gathers == nullptr) continue;
        const std::int64_t expected = windows.gathers.in_windows * std::ssize(windows.trained.losses);
        checks.that(windows.copied == expected, concat(what, ": ", windows.copied, " copied of ", expected));
      }
    }
  });
}
