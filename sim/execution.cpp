// Builds the executed model, and the executors on CPUs in one process.
// Not: those with several processes (modules/).
#include "execution.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "modules/host_layer.hpp"
#include "request.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_file.hpp"
#include "tawpipe/verify/validate.hpp"

namespace tawpipe::sim {

DeviceGroups resolve_groups(const std::string& cluster) { return resolve_cluster(cluster).groups_by_node(); }

Schedule execution_schedule(const ExecutionRequest& request, ExecutionModel& model, const DeviceGroups& nodes) {
  model.model.dtype = execution_dtype(request);
  model.model.loss_chunk = static_cast<int>(std::min<std::int64_t>(request.loss_chunk, Transformer::max_vocab + 1));
  Workload workload{model.model, model.batch, parse_recompute(request.recompute)};
  workload.over_devices(nodes.ranks());
  workload.parameter_bytes(trained_bytes(model.model.dtype));
  Schedule schedule = build_schedule(request.schedule, {.workload = workload,
                                                        .nodes = nodes,
                                                        .options = parse_options(request.options),
                                                        .offload = parse_offload(request.offload)});
  if (request.gradient_norm) schedule = with_gradient_norm(schedule);
  const Diagnostics found = validate(schedule);
  if (!found.ok()) {
    const Finding& first = found.findings().front();
    throw ScheduleError(
        concat("the schedule is not valid: ", first.code, ": ", first.message, "; tawpipe validate shows all findings"));
  }
  return schedule;
}

void check_host_memory(const ExecutionModel& model, Dtype dtype, double share) {
  const double memory = machine_memory();
  const double needed = 4.0 * static_cast<double>(size_bytes(dtype)) * static_cast<double>(model.model.parameters()) * share;
  if (memory <= 0 || needed <= memory) return;
  const auto shown = [](double bytes) { return format_memory(bytes); };
  throw InputError(concat("training ", model.model.name, " in ", name(dtype), " takes ", shown(needed),
                          " of this host for weights, gradients and moments, and it has ", shown(memory),
                          "; choose a smaller model, more hosts, or --backend cuda"));
}

RunIdentity identity_of(const ExecutionRequest& request) {
  RunIdentity identity{{"--cluster", request.cluster},
                       {"--schedule", request.schedule},
                       {"--option", join(request.options, " ")},
                       {"--dtype", request.dtype},
                       {"--recompute", request.recompute},
                       {"--offload", request.offload},
                       {"--loss-chunk", std::to_string(request.loss_chunk)},
                       {"--graph", request.graph ? "on" : "off"},
                       {"--zero-cta", request.zero_cta ? "on" : "off"}};
  identity.insert(identity.end(), request.identity.begin(), request.identity.end());
  return identity;
}

Timeline expected_timeline(const std::string& cluster, const Schedule& schedule) {
  return simulate(schedule, resolve_cluster(cluster), RooflineCost{});
}

template <class T>
int with_executor(const ExecutionRequest& request, ExecutionModel model, const UseExecutor<T>& use) {
  if (request.gpus > 0 && request.backend != "cuda")
    throw InputError("--gpus is for --backend cuda; add it, or leave --gpus out");
  for (const auto& [flag, given] : {std::pair{"--graph", request.graph}, std::pair{"--zero-cta", request.zero_cta}}) {
    if (!given || request.backend == "cuda") continue;
    throw InputError(concat(flag, " is for --backend cuda; add it, or leave ", flag, " out"));
  }
  if (request.backend == "mpi") return run_by_module("mpi", request, model, use);
  if (std::is_same_v<T, float> && request.backend == "cuda") return run_by_module("cuda", request, model, use);
  if (request.backend != "host") {
    throw InputError(concat("--backend: ", unknown_name("backend", request.backend, {"host", "mpi", "cuda"})));
  }
  if (!request.problem.empty()) throw InputError(request.problem);
  check_host_memory(model, execution_dtype(request), 1);
  const auto layers = host_layers<T>(request, model);
  const Schedule schedule = execution_schedule(request, model, resolve_groups(request.cluster.empty() ? "1x1" : request.cluster));
  // A paced layer sleeps, and so needs a thread but no core: each lane has one.
  const int threads = request.pace.empty() ? 0 : std::numeric_limits<int>::max();
  host::HostExecutor<T, HostLayer<T>, HostOptimizer<T>> executor{
      schedule,
      layers,
      HostOptimizer<T>{model.model, model.optimizer},
      {.chaos = {request.chaos_seed, request.chaos_microseconds}, .threads = threads}};
  ExecutorBy<T, decltype(executor)> one{executor};
  return use(one);
}

template int with_executor(const ExecutionRequest&, ExecutionModel, const UseExecutor<float>&);
template int with_executor(const ExecutionRequest&, ExecutionModel, const UseExecutor<double>&);

}  // namespace tawpipe::sim
