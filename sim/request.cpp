// Resolves the shared flags.
// Not: their declaration (flags.cpp) nor the prediction (search/predict.hpp).
#include "request.hpp"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/megatron.hpp"
#include "tawpipe/frameworks/trainer_lines.hpp"
#include "tawpipe/frameworks/yaml_job.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/topology/cluster_file.hpp"
#include "tawpipe/topology/devices.hpp"

namespace tawpipe::sim {

namespace {

/// The tasks that fit into the memory limit. @throws InputError  for an invalid size
double tasks_within(const std::string& limit) {
  constexpr double bytes_each = 256;
  if (!limit.empty()) {
    try {
      return std::max(1.0, static_cast<double>(parse_bytes(limit).value()) / bytes_each);
    } catch (const InputError& error) {
      throw InputError(concat("--limit: ", error.what()));
    }
  }
  return std::min(4.0 * (1 << 30), machine_memory() / 2) / bytes_each;
}

Fold parse_fold(const std::string& text) {
  if (text.empty() || text == "off") return Fold::off;
  if (text == "auto") return Fold::automatic;
  if (text == "on") return Fold::on;
  throw InputError(concat("--fold ", quote(text), " must be auto, on or off"));
}

/// The request with the batch of `known` if no flag gives one.
Request with_known(Request request, const Workload& known) {
  if (request.global_batch > 0 || request.microbatches > 0) return request;
  request.microbatches = known.microbatches();
  if (known.is_abstract()) return request;
  if (request.sequence == 0) request.sequence = known.batch().sequence;
  if (request.microbatch.empty()) request.microbatch = std::to_string(known.batch().microbatch_size);
  if (request.recompute.empty()) request.recompute = name(known.recompute());
  return request;
}

/// The values with which the times were measured, unless a flag overrides them: sequence,
/// microbatch and recomputation, number format and, for a model by name, the vocabulary. Differences are detected
/// during prediction (MeasuredCost::check).
void take_measured_work(const MeasuredWork& work, Request& request, std::optional<Transformer>& model) {
  if (request.sequence == 0) request.sequence = work.sequence;
  if (request.microbatch.empty()) request.microbatch = std::to_string(work.microbatch_size);
  if (request.recompute.empty()) request.recompute = name(work.recompute);
  if (!model) return;
  if (!request.dtype.empty() && model->dtype != work.dtype) {
    throw InputError(
        concat("--dtype ", name(model->dtype), ", but the times were measured in ", name(work.dtype), "; leave it out"));
  }
  set_dtype(*model, work.dtype);
  // As in tawpipe train: trained from scratch, a named model has the vocabulary of the data.
  if (request.model.starts_with("llama-")) model->vocab = std::min<int>(model->vocab, static_cast<int>(work.vocab));
}

}  // namespace

void set_dtype(Transformer& model, Dtype dtype) {
  model.dtype = dtype;
  std::erase_if(model.notes,
                [](const std::string& note) { return note.starts_with("torch_dtype: ") || note.starts_with("dtype: "); });
}

double machine_memory() { return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE)); }

ScheduleOptions parse_options(const std::vector<std::string>& texts, std::string_view example) {
  ScheduleOptions options;
  for (const auto& text : texts) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      throw InputError(concat(quote(text), " is not of the form key=value, such as ", example));
    }
    options[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return options;
}

ScheduleChoice named_schedule(const Request& request, std::string_view others) {
  if (request.schedule.empty()) {
    throw InputError(concat("--schedule is missing; give a name (tawpipe list schedules)", others));
  }
  ScheduleChoice choice{request.schedule, parse_options(request.options)};
  shipped().check(choice.schedule, choice.options);
  return choice;
}

std::pair<ContextExchange, int> parse_context_flag(const std::string& text) {
  const std::string_view two_level = name(ContextExchange::two_level);
  if (!text.starts_with(concat(two_level, ":"))) return {parse_context_exchange(text), 0};
  const std::string inner = text.substr(two_level.size() + 1);
  return {ContextExchange::two_level, parse_whole<int>(inner, concat("--context-exchange ", two_level, ":INNER"), 1)};
}

std::string context_text(ContextExchange exchange, int inner) {
  if (exchange != ContextExchange::two_level || inner == 0) return std::string{name(exchange)};
  return concat(name(exchange), ":", inner);
}

RecomputeFlag parse_recompute_flag(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string policy = text.substr(0, colon);
  if (colon == std::string::npos || (policy != "full" && policy != "selective")) return {.policy = parse_recompute(text)};
  if (policy == "selective") return {.policy = Recompute::selective, .parts = parse_recompute_parts(text.substr(colon + 1))};
  return {.policy = Recompute::full, .layers = parse_whole<int>(text.substr(colon + 1), "--recompute full:LAYERS", 1)};
}

std::string recompute_text(const RecomputeFlag& flag) {
  const std::string policy{name(flag.policy)};
  if (flag.policy == Recompute::full && flag.layers > 0) return concat(policy, ":", flag.layers);
  if (flag.policy == Recompute::selective && flag.parts.any()) return concat(policy, ":", name(flag.parts));
  return policy;
}

namespace {

/// What flags say about the model. @param says_fusion  whether its source says if SwiGLU is fused
void take_model_flags(const Request& request, bool says_fusion, Transformer& model) {
  if (!request.dtype.empty()) {
    const Dtype dtype = parse_dtype(request.dtype);
    if (dtype == Dtype::f8 || dtype == Dtype::f64)
      throw InputError(concat("--dtype ", name(dtype), " is not predicted; give bfloat16, float16 or float32"));
    set_dtype(model, dtype);
  }
  if (request.loss_chunk > 0) {
    model.loss_chunk = static_cast<int>(std::min<std::int64_t>(request.loss_chunk, Transformer::max_vocab + 1));
  }
  if (!request.products.empty()) {
    model.products = parse_product_format(request.products);
    if (model.products != ProductFormat::fp8) model.narrow_gathers = false;
  }
  if (!request.gathered_weights.empty())
    model.narrow_gathers = one_of_two("--gathered-weights", request.gathered_weights, "gemm", "model");
  if (!request.attention.empty()) model.fused_attention = one_of_two("--attention", request.attention, "fused", "unfused");
  if (!request.layer_code.empty()) model.code = parse_layer_code(request.layer_code);
  if (!request.early_stop.empty()) model.early_stop = one_of_two("--early-stop", request.early_stop, "on", "off");
  if (!request.swiglu.empty() && !model.gated)
    throw InputError(concat("--swiglu: ", one_line(model.name), " has no gate; leave it out"));
  if (!request.swiglu.empty()) {
    model.fused_swiglu = one_of_two("--swiglu", request.swiglu, "fused", "unfused");
  } else if (!says_fusion) {
    model.fused_swiglu = model.code_fuses_swiglu();
  }
  if (!request.loss_dtype.empty()) model.loss_in_float32 = one_of_two("--loss-dtype", request.loss_dtype, "float32", "model");
  model.check();
}

/// Weights in the model's numbers, gradients too unless said otherwise, and Adam's states: two
/// moments, and for weights of 16 bits a master copy unless it is none, in float32 unless said
/// otherwise.
/// @throws InputError  for a master copy of weights of 32 bits or more
ParameterBytes parameter_bytes(const Request& request, Dtype dtype) {
  const auto width = [](const std::string& said, std::int64_t unsaid) {
    return said.empty() ? unsaid : size_bytes(parse_dtype(said));
  };
  const std::int64_t weight = size_bytes(dtype);
  const std::int64_t master = request.master_dtype == "none" ? 0 : width(request.master_dtype, 4);
  if (weight >= 4 && !request.master_dtype.empty()) {
    throw InputError(concat("--master-dtype: weights of ", name(dtype), " have no master copy; leave it out"));
  }
  return {.weight = weight,
          .gradient = width(request.gradient_dtype, weight),
          .optimizer = (weight < 4 ? master : 0) + 2 * width(request.moment_dtype, std::max<std::int64_t>(weight, 4))};
}

bool knows_sms(const Cluster& cluster) {
  for (const NodeType& kind : cluster.kinds()) {
    for (const DeviceSpec& device : kind.devices) {
      if (device.sms <= 0) return false;
    }
  }
  return true;
}

/// What --hold-sms says; unsaid, what was measured, where times are of a model's kernels and all
/// devices' SMs are known. Recorded times, and those of a file's stages without a model, stay as
/// they are.
void take_held_sms(const Request& request, Problem& problem) {
  const Cluster& cluster = problem.cluster;
  std::string text = request.hold_sms;
  if (text.empty()) {
    const bool of_kernels = problem.model && !request.times_are_known && std::holds_alternative<KernelCost>(problem.cost);
    text = of_kernels && knows_sms(cluster) ? "nccl" : "off";
  }
  const HeldSms held = parse_hold_sms(text, cluster.device(Rank{0}));
  std::visit([&](auto& any) { any.held_sms = held; }, problem.cost);
  if (held.is_off()) return;
  for (int rank = 0; rank < cluster.ranks(); ++rank) held.check(cluster.device(Rank{rank}));
}

/// @throws InputError  where a device lacks the format of the model's products, or the cost model
/// does not distinguish formats
void check_products(const Problem& problem) {
  const ProductFormat format = problem.model->products;
  if (!is_narrow(format)) return;
  if (!std::holds_alternative<KernelCost>(problem.cost)) {
    throw InputError(concat("GEMMs in ", name(format), " are predicted by --cost kernels only"));
  }
  for (int rank = 0; rank < problem.cluster.ranks(); ++rank) {
    const DeviceSpec& device = problem.cluster.device(Rank{rank});
    const bool four = format == ProductFormat::nvfp4;
    const KnownDevice* const known = find_device(device.name);
    if (format == ProductFormat::mxfp8 && known != nullptr && known->fp4 == 0) {  // Transformer Engine, MXFP8BlockScaling
      throw InputError(concat("device ", quote(device.name),
                              " has no GEMMs in mxfp8, which begin with B200 and MI355X; choose --gemm-format ",
                              device.peak_fp8.value() > 0 ? "fp8" : "16bit"));
    }
    if (four && known != nullptr && known->sm == 0 && known->fp4 > 0) {
      throw InputError(concat("device ", quote(device.name), " has GEMMs of 4 bits in MXFP4, and nvfp4 is NVIDIA's; choose ",
                              "--gemm-format mxfp8"));
    }
    if ((four ? device.peak_fp4 : device.peak_fp8).value() > 0) continue;
    throw InputError(concat("device ", quote(device.name), " has no GEMMs in ", name(format),
                            "; choose --gemm-format 16bit, or give its ", four ? "peak_fp4" : "peak_fp8",
                            " in the cluster's file"));
  }
}

}  // namespace

namespace {

/// The model that a log says by its sizes.
Transformer log_model(const std::string& text, const std::string& source) {
  if (is_megatron_log(text)) return megatron_model(text, source);
  if (const std::optional<Transformer> logged = logged_model(text, source)) return *logged;
  throw InputError(concat(source, " does not say the sizes of a model; give its name"));
}

}  // namespace

Problem resolve(const Request& given, bool choose_microbatch, const Workload* known, std::string_view recompute) {
  Request request = known != nullptr ? with_known(given, *known) : given;
  parse_run(request.run);  // finds errors before anything is computed
  if (!request.cluster_value && request.cluster.empty())
    throw InputError("--cluster is missing; give a name (tawpipe list clusters), a file, or NxM");
  std::optional<Transformer> model = request.model_value;
  const bool yaml = !model && (request.model.ends_with(".yaml") || request.model.ends_with(".yml"));
  const bool log = !model && is_log_name(request.model);
  const bool script = yaml || log || (!model && request.model.ends_with(".sh"));
  const bool of_file = !model && request.model.empty();
  if (!model && !request.model.empty()) {
    const std::string text = script ? read_text(request.model, "script", 16) : std::string{};
    model = yaml     ? yaml_model(text, one_line(request.model))
            : log    ? log_model(text, one_line(request.model))
            : script ? megatron_model(text, one_line(request.model))
                     : resolve_model(request.model);
  } else if (!model && known != nullptr && !known->is_abstract()) {
    model = transformer_of(known->model());
  }
  if (model) take_model_flags(request, script || of_file, *model);
  // A schedule file may have a model that is not a decoder: its stages have their costs.
  const bool own_stages = !model && known != nullptr && !known->is_abstract();
  Cost cost = parse_cost(request.cost, model ? model->utilization : own_stages ? known->model().utilization : 0);
  const auto* measured = std::get_if<MeasuredCost>(&cost);
  const std::optional<MeasuredWork> work = measured != nullptr ? measured->work : std::nullopt;
  if (work) take_measured_work(*work, request, model);
  const CudaGraphs graphs = parse_cuda_graphs(request.cuda_graphs);
  set_graphs(cost, graphs);
  if (graphs_of(cost) != graphs) {
    throw InputError(
        concat("--cuda-graphs ", name(graphs), " needs --cost kernels, whose times have the host and gaps between kernels"));
  }
  Problem problem{.cluster = request.cluster_value ? *request.cluster_value
                                                   : resolve_cluster(request.cluster, request.device, request.inter_node),
                  .model = model,
                  .cost = std::move(cost)};
  take_held_sms(request, problem);
  if (work) problem.parameter_bytes = work->parameter_bytes;
  const std::string policy = request.recompute.empty() ? std::string{recompute} : request.recompute;
  if (policy == "auto" && std::holds_alternative<MeasuredCost>(problem.cost)) {
    if (work) problem.recompute = work->recompute;  // times hold only for that
  } else if (policy == "auto" && model) {
    problem.recomputes = {Recompute::none, Recompute::selective, Recompute::full};
  } else if (policy != "auto") {
    const RecomputeFlag flag = parse_recompute_flag(policy);
    problem.recompute = flag.policy;
    if ((flag.layers > 0 || flag.parts.any()) && !problem.model)
      throw InputError(concat("--recompute ", one_line(policy), " needs --model"));
    if (flag.layers > 0) problem.model->recompute_layers = flag.layers;
    if (flag.parts.any()) problem.model->recompute_parts = flag.parts;
  }
  if (model) check_products(problem);
  problem.offload = parse_offload(request.offload);
  problem.stage_cut = parse_stage_cut(request.layers_per_stage);
  if (request.embedding_is_layer || request.loss_is_layer) {
    if (problem.stage_cut.balanced || !problem.stage_cut.layers.empty()) {
      throw InputError(concat("--layers-per-stage ", one_line(request.layers_per_stage),
                              " says already how embedding and loss count; leave out --account-for-...-in-pipeline-split"));
    }
    problem.stage_cut.embedding = request.embedding_is_layer ? 1 : 0;
    problem.stage_cut.head = request.loss_is_layer ? 1 : 0;
  }
  const MeshChoice choice = resolve_mesh(request);
  problem.mesh = choice.mesh;
  problem.sequence_parallel = choice.sequence_parallel;
  std::tie(problem.context_exchange, problem.context_inner) = parse_context_flag(request.context_exchange);
  problem.expert_dispatch = parse_expert_dispatch(request.expert_dispatch);
  problem.expert_overlap = parse_expert_overlap(request.expert_overlap);
  problem.sharding = choice.sharding;
  problem.reshard = choice.reshard;
  problem.overlap_gradients = choice.overlap_gradients;
  problem.overlap_gathers = choice.overlap_gathers;
  problem.bucket = choice.bucket;
  problem.tensor_overlap = one_of_two("--tp-comm-overlap", request.tensor_overlap, "on", "off");
  if (!work) problem.parameter_bytes = parameter_bytes(request, model ? model->dtype : Dtype::bf16);
  problem.master_copies = request.master_dtype != "none";
  problem.noise = request.noise;
  problem.max_tasks = tasks_within(request.limit);
  if (!request.stragglers.empty()) parse_stragglers(request.stragglers, problem.noise);
  problem.fold = parse_fold(request.fold);
  if (request.global_batch > 0 && request.microbatches > 0) {
    throw InputError("--global-batch and --microbatches say the same in two ways; give one of them");
  }
  if (const bool automatic = request.microbatch == "auto" || (request.microbatch.empty() && choose_microbatch); !automatic) {
    std::int64_t size = 1;
    if (!request.microbatch.empty()) {
      const auto given_size = to_number<std::int64_t>(request.microbatch);
      if (!given_size || *given_size < 1) {
        throw InputError(
            concat("--microbatch ", one_line(request.microbatch), " must be a number of sequences, 1 or more, or auto"));
      }
      size = *given_size;
    }
    problem.microbatch_sizes = {size};
  }
  if (!model) {
    if (!own_stages && !request.times_are_known && !std::holds_alternative<FixedCost>(problem.cost)) {
      throw InputError("--model is missing; give a name (tawpipe list models) or a config.json, or use --cost fixed:...");
    }
    problem.microbatches = request.microbatches > 0 ? request.microbatches : request.global_batch;
    if (problem.microbatches < 1) throw InputError("--microbatches is missing; give the number of microbatches of an iteration");
    problem.microbatch_sizes = {1};
    problem.usable_memory = own_stages && request.usable_memory > 0 ? request.usable_memory : 1;
    problem.check();
    return problem;
  }
  problem.sequence = request.sequence;
  if (problem.sequence < 1) throw InputError("--sequence is missing; give the tokens of one sequence, such as 4096");
  problem.global_batch = request.global_batch;
  problem.microbatches = request.microbatches;
  if (problem.global_batch < 1 && problem.microbatches < 1) {
    throw InputError("--global-batch is missing; give the sequences of one iteration");
  }
  if (problem.microbatches > 0 && problem.microbatch_sizes.empty()) problem.microbatch_sizes = {1};
  const double share = problem.microbatch_sizes.empty() ? usable_memory_share : 1;
  problem.usable_memory = request.usable_memory > 0 ? request.usable_memory : share;
  problem.check();  // finds errors before anything is computed
  return problem;
}

}  // namespace tawpipe::sim
