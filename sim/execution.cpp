// Builds the executed model, and the executors on CPUs in one process.
// Not: those with several processes (modules/).
#include "execution.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "modules/host_layer.hpp"
#include "request.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/layers/checked_llama.hpp"
#include "tawpipe/layers/host/tensor_memory.hpp"
#include "tawpipe/model/tensor_part.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/schedule/tensor_parts.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_file.hpp"
#include "tawpipe/verify/validate.hpp"

namespace tawpipe::sim {

DeviceGroups resolve_groups(const std::string& cluster) { return resolve_cluster(cluster).groups_by_node(); }

namespace {

ContextExchange exchange_of(const ExecutionRequest& request) {
  const bool two_level = request.context_exchange.starts_with(name(ContextExchange::two_level));  // of so many or not
  return two_level ? ContextExchange::two_level : parse_context_exchange(request.context_exchange);
}

MeshChoice executed_mesh(const ExecutionRequest& request) {
  const auto alone = [](std::string_view flag, int number, std::string_view why) {
    if (number <= 1) return;
    throw InputError(concat(flag, " ", number, ": ", why, "; leave it out, and share the work by a schedule over the ranks and ",
                            "--data-parallel"));
  };
  if (request.backend == "cuda") {
    alone("--tensor-parallel", request.mesh.tensor, "on GPUs a stage is computed whole by one rank, with whole matrices");
    alone("--context-parallel", request.mesh.context, "on GPUs a stage is computed whole by one rank, with whole sequences");
  }
  if (request.backend == "cuda")
    alone("--expert-parallel", request.expert_parallel, "on GPUs a stage is computed whole by one rank, with all its experts");
  const MeshChoice choice = resolve_mesh(request);
  refuse_idle_sharding(choice.sharding, choice.mesh);
  for (const auto& [flag, ranks] :
       {std::pair{"--tensor-parallel", choice.mesh.tensor}, std::pair{"--context-parallel", choice.mesh.context},
        std::pair{"--expert-parallel", request.expert_parallel}}) {
    if (ranks == 1 || !parse_offload(request.offload).any()) continue;
    throw InputError(
        concat("--offload ", request.offload, " with ", flag, " ", ranks, " can be simulated, but not executed; leave one out"));
  }
  if (choice.mesh.context > 1 && exchange_of(request) == ContextExchange::two_level) {
    throw InputError(concat("--context-exchange ", request.context_exchange,
                            " can be simulated, but not executed; choose all-gather, ring or all-to-all"));
  }
  return choice;
}

/// Whether stages hand activations to other ranks.
bool hands_on(const Schedule& schedule) {
  return std::any_of(schedule.tasks().begin(), schedule.tasks().end(),
                     [](const Task& task) { return is_point_to_point(task.op) && is_of_tokens(task.payload); });
}

/// Whether a backward comes in two halves.
bool splits_backward(const Schedule& schedule) {
  return std::any_of(schedule.tasks().begin(), schedule.tasks().end(),
                     [](const Task& task) { return task.op == Op::backward_input; });
}

/// A loss that balances experts takes the choices of all layers of a microbatch together.
/// @throws InputError  if a microbatch's layers are on several ranks
void check_balance(const ExecutionModel& model, const Schedule& schedule) {
  if (!model.model.is_routed() || model.constants.router.balance == 0) return;
  std::map<std::int32_t, Rank> rank_of;  // of each microbatch
  for (const Task& task : schedule.tasks()) {
    if (task.op != Op::forward) continue;
    const auto [known, fresh] = rank_of.emplace(task.microbatch, task.rank);
    if (fresh || known->second == task.rank) continue;
    throw InputError(concat(
        "router_aux_loss_coef: the loss that balances experts is of all layers of a microbatch together, as ",
        "transformers has it, and ", schedule.name(), " computes them on several ranks; choose a schedule in ",
        "which a rank computes all layers of its microbatches (fsdp, ddp, weipipe, tawpipe), or ", "output_router_logits false"));
  }
}

/// One rank's part of each stage, with the steps of its passes.
std::vector<SharedStage> shared_stages(const ExecutionModel& model, Recompute recompute, const Schedule& logical,
                                       const Sharing& sharing) {
  if (sharing.ranks() == 1) return {};
  const Batch& batch = logical.workload().batch();
  const bool split = splits_backward(logical);
  std::vector<SharedStage> stages = share_stages(model.model, batch, recompute, logical.stages(), sharing);
  return model.model.dtype == Dtype::f64
             ? layers::host::tensor_stages<double>(model.model, batch, recompute, sharing, std::move(stages), split)
             : layers::host::tensor_stages<float>(model.model, batch, recompute, sharing, std::move(stages), split);
}

/// How often weights, gradients and two moments, four numbers a parameter, are held by all ranks
/// together. @param replicas  that hold the same
double held_copies(const MeshChoice& choice, double replicas) {
  const double sharded = choice.sharding == StateSharding::none        ? 0
                         : choice.sharding == StateSharding::optimizer ? 2
                         : choice.sharding == StateSharding::gradients ? 3
                                                                       : 4;
  return replicas + sharded / 4 * (1 - replicas);
}

}  // namespace

Batch executed_batch(const ExecutionRequest& request, Batch each) {
  const int ranks = resolve_mesh(request).mesh.expert;
  each.microbatch_size *= ranks;
  if (ranks > 1 && each.microbatch_size > 0 && each.global_batch % each.microbatch_size != 0) {
    throw InputError(concat("--expert-parallel ", request.expert_parallel, " makes microbatches of ", each.microbatch_size,
                            " sequences, ", each.microbatch_size / ranks, " on each rank; ", each.global_batch,
                            " sequences of a step are no multiple of that"));
  }
  each.check();
  return each;
}

Sharing executed_sharing(const ExecutionRequest& request) {
  const MeshChoice choice = executed_mesh(request);
  return {.tensor = choice.mesh.tensor,
          .context = choice.mesh.context,
          .expert = choice.mesh.expert,
          .whole_experts = choice.mesh.whole_experts,
          .sequence_parallel = choice.sequence_parallel,
          .exchange = exchange_of(request)};
}

Schedule execution_schedule(const ExecutionRequest& request, ExecutionModel& model, const DeviceGroups& nodes) {
  model.model.dtype = execution_dtype(request);
  model.model.loss_chunk = static_cast<int>(std::min<std::int64_t>(request.loss_chunk, Transformer::max_vocab + 1));
  const MeshChoice choice = executed_mesh(request);
  const Mesh mesh = choice.mesh.over(nodes.ranks());
  layers::check_shared(model.model, model.constants, executed_sharing(request));
  const std::int64_t microbatches = model.batch.microbatches();
  if (microbatches % mesh.data != 0) {
    throw InputError(concat(microbatches, " microbatches cannot be shared equally by ", mesh.data,
                            " data-parallel replicas; choose a multiple of ", mesh.data));
  }
  const auto work_of = [&](int replicas) {
    Batch batch = model.batch;
    batch.global_batch /= replicas;
    Workload work{model.model, batch, parse_recompute(request.recompute)};
    work.over_devices(mesh.pipeline).parameter_bytes(trained_bytes(model.model.dtype));
    return work;
  };
  if (parse_offload(request.offload).weights)
    throw InputError("--offload weights is simulated only; train with activations, optimizer or both");
  Schedule schedule = build_schedule(request.schedule, {.workload = work_of(mesh.data),
                                                        .nodes = mesh.is_plain() ? nodes : mesh.pipeline_nodes(nodes),
                                                        .options = parse_options(request.options),
                                                        .offload = parse_offload(request.offload)});
  check_balance(model, schedule);
  if (!mesh.is_plain()) {
    Sharing sharing = executed_sharing(request);
    sharing.sends_activations = hands_on(schedule);
    schedule = compose(schedule, work_of(1), mesh,
                       {.stages = shared_stages(model, parse_recompute(request.recompute), schedule, sharing),
                        .sequence_parallel = choice.sequence_parallel,
                        .sharding = choice.sharding,
                        .reshard = choice.reshard,
                        .overlap_gradients = choice.overlap_gradients,
                        .overlap_gathers = choice.overlap_gathers,
                        .bucket = choice.bucket});
  }
  const Diagnostics found = validate(request.gradient_norm ? with_gradient_norm(schedule) : schedule);
  if (!found.ok()) {
    const Finding& first = found.findings().front();
    throw ScheduleError(
        concat("the schedule is not valid: ", first.code, ": ", first.message, "; tawpipe validate shows all findings"));
  }
  if (mesh.whole_experts) {
    schedule = with_tensor_parts(schedule, expert_slices(model.model, mesh.expert_parts(), mesh.tensor),
                                 choice.sequence_parallel && mesh.tensor > 1);
  } else if (mesh.tensor > 1) {
    schedule = with_tensor_parts(schedule, tensor_slices(model.model, mesh.tensor), choice.sequence_parallel);
  }
  return request.gradient_norm ? with_gradient_norm(schedule) : schedule;
}

void check_host_memory(const ExecutionRequest& request, const ExecutionModel& model, int here, int ranks) {
  const double memory = machine_memory();
  const MeshChoice choice = executed_mesh(request);
  choice.mesh.over(ranks);
  const double share = static_cast<double>(here) / ranks;
  const Dtype dtype = execution_dtype(request);
  const double experts = choice.mesh.whole_experts ? static_cast<double>(model.model.expert_parameters()) : 0;
  const double others = static_cast<double>(model.model.parameters()) - experts;
  const double held = others * held_copies(choice, static_cast<double>(choice.mesh.data) * choice.mesh.token_ranks()) +
                      experts * held_copies(choice, choice.mesh.data);
  const double needed = 4.0 * static_cast<double>(size_bytes(dtype)) * share * held;
  if (memory <= 0 || needed <= memory) return;
  const auto shown = [](double bytes) { return format_memory(bytes); };
  throw InputError(concat("training ", model.model.name, " in ", name(dtype), " takes ", shown(needed),
                          " of this host for weights, gradients and moments",
                          choice.mesh.data > 1 ? concat(" of ", choice.mesh.data, " replicas") : "", ", and it has ",
                          shown(memory), "; choose a smaller model, more hosts, or --backend cuda"));
}

RunIdentity identity_of(const ExecutionRequest& request) {
  RunIdentity identity{{"--cluster", request.cluster},
                       {"--inter-node", request.inter_node},
                       {"--schedule", request.schedule},
                       {"--option", join(request.options, " ")},
                       {"--dtype", request.dtype},
                       {"--recompute", request.recompute},
                       {"--offload", request.offload},
                       {"--loss-chunk", std::to_string(request.loss_chunk)},
                       {"--tensor-parallel", std::to_string(request.mesh.tensor)},
                       {"--sequence-parallel", request.sequence_parallel},
                       {"--context-parallel", std::to_string(request.mesh.context)},
                       {"--context-exchange", request.context_exchange},
                       {"--expert-parallel", std::to_string(request.expert_parallel)},
                       {"--data-parallel", std::to_string(request.mesh.data)},
                       {"--layout", request.layout},
                       {"--shard-states", request.shard_states},
                       {"--reshard", request.reshard},
                       {"--overlap-grad-reduce", request.overlap_gradients},
                       {"--overlap-param-gather", request.overlap_gathers},
                       {"--bucket", std::to_string(request.bucket)},
                       {"--graph", request.graph ? "on" : "off"},
                       {"--zero-cta", request.zero_cta ? "on" : "off"}};
  identity.insert(identity.end(), request.identity.begin(), request.identity.end());
  return identity;
}

Timeline expected_timeline(const ExecutionRequest& request, const Schedule& schedule) {
  return simulate(schedule, resolve_cluster(request.cluster, "", request.inter_node), RooflineCost{});
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
  if (request.backend == "cuda" && request.problem.empty()) executed_mesh(request);  // before a GPU is looked for
  if (std::is_same_v<T, float> && request.backend == "cuda") return run_by_module("cuda", request, model, use);
  if (request.backend != "host") {
    throw InputError(concat("--backend: ", unknown_name("backend", request.backend, {"host", "mpi", "cuda"})));
  }
  if (!request.problem.empty()) throw InputError(request.problem);
  const DeviceGroups nodes = resolve_groups(request.cluster.empty() ? "1x1" : request.cluster);
  check_host_memory(request, model, nodes.ranks(), nodes.ranks());
  const auto layers = host_layers<T>(request, model);
  const Schedule schedule = execution_schedule(request, model, nodes);
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
