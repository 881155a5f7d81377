// What the commands that execute share: the schedule to run, the executor of a backend, its weights and states as one array.
// Not: what is trained on which data (commands/train.cpp, commands/check_numerics.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_run.hpp"
#include "execution_model.hpp"
#include "execution_request.hpp"
#include "leave.hpp"
#include "request.hpp"
#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/verify/validate.hpp"
#if TAWPIPE_COMMAND_HAS_MPI
#include "tawpipe/execute/mpi/executor.hpp"
#endif
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/execute/executor.hpp"
#include "tawpipe/execute/host/paced.hpp"
#include "tawpipe/layers/host/llama.hpp"
#include "tawpipe/layers/parameter_update.hpp"

namespace tawpipe::sim {

/// Calls `use(executor)` with the executor that `request` asks for. @return what `use` returns
template <class T, class Use>
int with_executor(const ExecutionRequest& request, ExecutionModel model, Use&& use) {
  using Layer = host::Paced<layers::host::Llama<T>>;
  using Optimizer = layers::AdamWUpdate<T>;
  if (request.gpus > 0 && request.backend != "cuda")
    throw InputError("--gpus is for --backend cuda; add it, or leave --gpus out");
  if (request.graph && request.backend != "cuda") throw InputError("--graph is for --backend cuda; add it, or leave --graph out");
  const FlopsPerSecond pace = request.pace.empty() ? FlopsPerSecond{} : parse_flops_rate(request.pace);
  const auto make_layer = [&] {
    return Layer{{model.model, model.batch, parse_recompute(request.recompute), model.llama}, pace};
  };
#if TAWPIPE_COMMAND_HAS_MPI
  if (request.backend == "mpi") {
    delay_terminate();
    mpi::Session session{{.task_seconds = static_cast<double>(request.task_seconds), .failed = leave}};
    std::optional<Schedule> schedule;
    std::string problem;
    try {
      schedule =
          execution_schedule(request, model, request.cluster.empty() ? mpi::nodes_of(session) : resolve_groups(request.cluster));
      mpi::check_ranks(*schedule, session);
    } catch (const Error& error) {
      problem = error.what();
    }
    session.agree(problem);
    mpi::MpiExecutor<T, Layer, Optimizer> executor{*schedule, session, make_layer, Optimizer{model.model, model.optimizer}};
    return use(executor);
  }
#else
  if (request.backend == "mpi") throw InputError("--backend mpi: this tawpipe was built without MPI (on Debian: libopenmpi-dev)");
#endif
  if constexpr (std::is_same_v<T, float>) {
    if (request.backend == "cuda") return with_cuda_run(request, std::move(model), use);
  }
  if (request.backend != "host") {
    throw InputError(concat("--backend: ", unknown_name("backend", request.backend, {"host", "mpi", "cuda"})));
  }
  const Schedule schedule = execution_schedule(request, model, resolve_groups(request.cluster.empty() ? "1x1" : request.cluster));
  // A paced layer sleeps, and so takes a thread without taking a core: each lane has one.
  const int threads = request.pace.empty() ? 0 : std::numeric_limits<int>::max();
  host::HostExecutor<T, Layer, Optimizer> executor{
      schedule,
      make_layer,
      Optimizer{model.model, model.optimizer},
      {.chaos = {request.chaos_seed, request.chaos_microseconds}, .threads = threads}};
  return use(executor);
}

}  // namespace tawpipe::sim
