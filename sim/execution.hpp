// What the commands that execute share: the schedule to run, the executor of a backend, its weights and states as one array.
// Not: what is trained on which data (commands/train.cpp, commands/check_numerics.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "execution_request.hpp"
#include "request.hpp"
#include "tawpipe/analysis/validate.hpp"
#include "tawpipe/execute/host/executor.hpp"
#if TAWPIPE_COMMAND_HAS_MPI
#include "tawpipe/execute/mpi/executor.hpp"
#endif
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/execute/host/paced.hpp"
#include "tawpipe/layers/host/llama.hpp"
#include "tawpipe/layers/parameter_update.hpp"

namespace tawpipe::sim {

/// A model, its batch and what trains it.
struct ExecutionModel {
  Transformer model;
  Batch batch;
  layers::LlamaOptions llama;
  layers::AdamW optimizer;
};

/// "f32" or "f64" as the number format of everything that is executed.
/// @throws InputError  for any other.
inline Dtype execution_dtype(const std::string& text) {
  const Dtype dtype = parse_dtype(text);
  if (dtype == Dtype::f32 || dtype == Dtype::f64) return dtype;
  throw InputError(concat("--dtype ", text, " cannot be executed on a CPU; choose f32 or f64"));
}

/// The ranks of each node of a cluster as --cluster takes it.
DeviceGroups resolve_groups(const std::string& cluster);

/// Builds and proves the schedule that `request` names for `model`, in its number format.
/// @throws InputError  if it cannot be built; ScheduleError  if it is not valid.
Schedule execution_schedule(const ExecutionRequest& request, ExecutionModel& model, const DeviceGroups& nodes);

/// Calls `use(executor)` with the executor that `request` asks for. @return what `use` returns
template <class T, class Use>
int with_executor(const ExecutionRequest& request, ExecutionModel model, Use&& use) {
  using Layer = host::Paced<layers::host::Llama<T>>;
  using Optimizer = layers::AdamWUpdate<T>;
  const FlopsPerSecond pace = request.pace.empty() ? FlopsPerSecond{} : parse_flops_rate(request.pace);
  const auto make_layer = [&] {
    return Layer{{model.model, model.batch, parse_recompute(request.recompute), model.llama}, pace};
  };
#if TAWPIPE_COMMAND_HAS_MPI
  if (request.backend == "mpi") {
    mpi::Session session{{.task_seconds = static_cast<double>(request.task_seconds)}};
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
  if (request.backend != "host") {
    throw InputError(concat("--backend: ", unknown_name("backend", request.backend, {"host", "mpi"})));
  }
  const Schedule schedule = execution_schedule(request, model, resolve_groups(request.cluster.empty() ? "1x1" : request.cluster));
  host::HostExecutor<T, Layer, Optimizer> executor{
      schedule, make_layer, Optimizer{model.model, model.optimizer}, {.chaos = {request.chaos_seed, request.chaos_microseconds}}};
  return use(executor);
}

/// Sets all weights of the executor's ranks from `all`, one number a parameter in the model's numbering.
template <class T, class Executor>
void load_weights(Executor& executor, std::span<const T> all) {
  executor.for_each_rank([&](auto& rank) {
    rank.for_each_weight([&](ParameterRange range, std::span<T> numbers) {
      std::copy_n(all.begin() + range.begin, range.count(), numbers.begin());
    });
  });
}

/// All weights, one number a parameter; right on the root.
template <class T, class Executor>
std::vector<T> collect_weights(Executor& executor) {
  std::vector<T> all(static_cast<std::size_t>(executor.schedule().workload().model().parameters()));
  std::vector<char> known(all.size(), 0);
  executor.for_each_rank([&](auto& rank) {
    rank.for_each_weight([&](ParameterRange range, std::span<T> numbers) {
      std::copy(numbers.begin(), numbers.end(), all.begin() + range.begin);
      std::fill_n(known.begin() + range.begin, range.count(), char{1});
    });
  });
  executor.gather(all, known);
  return all;
}

}  // namespace tawpipe::sim
