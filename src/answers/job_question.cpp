// A job as it is asked for becomes a problem.
#include "tawpipe/answers/job_question.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "tawpipe/answers/read_text.hpp"
#include "tawpipe/answers/run_given.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/megatron.hpp"
#include "tawpipe/frameworks/trainer_lines.hpp"
#include "tawpipe/frameworks/yaml_job.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/search/recompute_text.hpp"
#include "tawpipe/topology/cluster_file.hpp"
#include "tawpipe/topology/devices.hpp"

namespace tawpipe::inline v0::answers {

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

/// Sets a field that is not set.
void set_unset(JobQuestion& request, std::string_view field, std::string text) {
  if (!request.has(field)) request.set(field, std::move(text));
}

/// The request with the batch of `known` if no flag gives one.
JobQuestion with_known(JobQuestion request, const Workload& known) {
  if (request.has("global-batch") || request.has("microbatches")) return request;
  request.set("microbatches", concat(known.microbatches()));
  if (known.is_abstract()) return request;
  set_unset(request, "sequence", concat(known.batch().sequence));
  set_unset(request, "microbatch", concat(known.batch().microbatch_size));
  set_unset(request, "recompute", std::string{name(known.recompute())});
  return request;
}

/// The values with which the times were measured, unless a flag overrides them: sequence,
/// microbatch and recomputation, number format and, for a model by name, the vocabulary. Differences are detected
/// during prediction (MeasuredCost::check).
void take_measured_work(const MeasuredWork& work, JobQuestion& request, std::optional<Transformer>& model) {
  set_unset(request, "sequence", concat(work.sequence));
  set_unset(request, "microbatch", concat(work.microbatch_size));
  set_unset(request, "recompute", std::string{name(work.recompute)});
  if (!model) return;
  if (request.has("dtype") && model->dtype != work.dtype) {
    throw InputError(
        concat("--dtype ", name(model->dtype), ", but the times were measured in ", name(work.dtype), "; leave it out"));
  }
  set_dtype(*model, work.dtype);
  // As in tawpipe train: trained from scratch, a named model has the vocabulary of the data.
  if (request.text("model").starts_with("llama-")) model->vocab = std::min<int>(model->vocab, static_cast<int>(work.vocab));
}

}  // namespace

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

ScheduleChoice named_schedule(const JobQuestion& request, std::string_view others) {
  if (request.schedule.empty()) {
    throw InputError(concat("--schedule is missing; give a name (tawpipe list schedules)", others));
  }
  ScheduleChoice choice{request.schedule, parse_options(request.options)};
  shipped().check(choice.schedule, choice.options);
  return choice;
}

namespace {

/// Weights in the model's numbers, gradients too unless said otherwise, and Adam's states: two
/// moments, and for weights of 16 bits a master copy unless it is none, in float32 unless said
/// otherwise.
/// @throws InputError  for a master copy of weights of 32 bits or more
ParameterBytes parameter_bytes(const JobQuestion& request, Dtype dtype) {
  const auto width = [&](std::string_view field, std::int64_t unsaid) {
    return request.has(field) ? size_bytes(parse_dtype(request.text(field))) : unsaid;
  };
  const std::int64_t weight = size_bytes(dtype);
  const std::int64_t master = request.text("master-dtype") == "none" ? 0 : width("master-dtype", 4);
  if (weight >= 4 && request.has("master-dtype")) {
    throw InputError(concat("--master-dtype: weights of ", name(dtype), " have no master copy; leave it out"));
  }
  return {.weight = weight,
          .gradient = width("gradient-dtype", weight),
          .optimizer = (weight < 4 ? master : 0) + 2 * width("moment-dtype", std::max<std::int64_t>(weight, 4))};
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
void take_held_sms(const JobQuestion& request, Problem& problem) {
  const Cluster& cluster = problem.cluster;
  std::string text = request.text("hold-sms");
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

/// The model that a log says by its sizes.
Transformer log_model(const std::string& text, const std::string& source) {
  if (is_megatron_log(text)) return megatron_model(text, source);
  if (const std::optional<Transformer> logged = logged_model(text, source)) return *logged;
  throw InputError(concat(source, " does not say the sizes of a model; give its name"));
}

/// The model that the request names, and whether what names it says how its SwiGLU runs.
/// @param known  the work in a schedule file
std::pair<std::optional<Transformer>, bool> requested_model(const JobQuestion& request, const Workload* known) {
  if (request.model_value) return {request.model_value, false};
  const std::string source = request.text("model");
  if (source.empty()) {
    const bool of_file = known != nullptr && !known->is_abstract();
    return {of_file ? known->model().decoder : std::nullopt, true};
  }
  const bool yaml = source.ends_with(".yaml") || source.ends_with(".yml");
  if (!yaml && !is_log_name(source) && !source.ends_with(".sh")) return {resolve_model(source), false};
  const std::string text = read_text(source, "script", 16);
  return {yaml                  ? yaml_model(text, one_line(source))
          : is_log_name(source) ? log_model(text, one_line(source))
                                : megatron_model(text, one_line(source)),
          true};
}

/// What is computed again. @param standard  where the request does not say
void take_recompute(const JobQuestion& request, std::string_view standard, const std::optional<MeasuredWork>& work,
                    Problem& problem) {
  const std::string policy = request.has("recompute") ? request.text("recompute") : std::string{standard};
  if (policy == "auto") {
    if (work) {
      problem.recompute = work->recompute;  // times hold only for that
    } else if (problem.model && !std::holds_alternative<MeasuredCost>(problem.cost)) {
      problem.recomputes = {Recompute::none, Recompute::selective, Recompute::full};
    }
    return;
  }
  const RecomputeText flag = parse_recompute_text(policy);
  problem.recompute = flag.policy;
  if ((flag.layers > 0 || flag.parts.any()) && !problem.model)
    throw InputError(concat("--recompute ", one_line(policy), " needs --model"));
  if (flag.layers > 0) problem.model->recompute_layers = flag.layers;
  if (flag.parts.any()) problem.model->recompute_parts = flag.parts;
}

/// The microbatch sizes to choose from; none: all that fit.
std::vector<std::int64_t> microbatch_sizes(const JobQuestion& request, bool choose) {
  const std::string text = request.text("microbatch");
  if (text == "auto" || (text.empty() && choose)) return {};
  const auto size = to_number<std::int64_t>(text.empty() ? "1" : text);
  if (!size || *size < 1)
    throw InputError(concat("--microbatch ", one_line(text), " must be a number of sequences, 1 or more, or auto"));
  return {*size};
}

}  // namespace

Problem resolve(const JobQuestion& given, bool choose_microbatch, const Workload* known, std::string_view recompute) {
  JobQuestion request = known != nullptr ? with_known(given, *known) : given;
  parse_run(request);  // finds errors before anything is computed
  if (!request.has_cluster()) throw InputError("--cluster is missing; give a name (tawpipe list clusters), a file, or NxM");
  auto [model, says_fusion] = requested_model(request, known);
  Problem problem{.cluster = request.cluster_value
                                 ? *request.cluster_value
                                 : resolve_cluster(request.text("cluster"), request.text("device"), request.text("inter-node")),
                  .model = std::move(model)};
  if (problem.model) {
    request.read(problem, true);
    if (!request.has("swiglu") && !says_fusion) problem.model->fused_swiglu = problem.model->code_fuses_swiglu();
    problem.model->check();
  }
  // A schedule file may have a model that is not a decoder: its stages have their costs.
  const bool own_stages = !problem.model && known != nullptr && !known->is_abstract();
  problem.cost = parse_cost(request.text("cost"), problem.model ? problem.model->utilization
                                                  : own_stages  ? known->model().utilization
                                                                : 0);
  const auto* measured = std::get_if<MeasuredCost>(&problem.cost);
  const std::optional<MeasuredWork> work = measured != nullptr ? measured->work : std::nullopt;
  if (work) take_measured_work(*work, request, problem.model);
  const CudaGraphs graphs = parse_cuda_graphs(request.text("cuda-graphs"));
  set_graphs(problem.cost, graphs);
  if (graphs_of(problem.cost) != graphs) {
    throw InputError(
        concat("--cuda-graphs ", name(graphs), " needs --cost kernels, whose times have the host and gaps between kernels"));
  }
  take_held_sms(request, problem);
  take_recompute(request, recompute, work, problem);
  if (problem.model) check_products(problem);
  request.read(problem, false);
  problem.parameter_bytes =
      work ? work->parameter_bytes : parameter_bytes(request, problem.model ? problem.model->dtype : Dtype::bf16);
  problem.master_copies = request.text("master-dtype") != "none";
  problem.max_tasks = tasks_within(request.text("limit"));
  problem.fold = parse_fold(request.fold);
  problem.global_batch = request.count("global-batch");
  problem.microbatches = request.count("microbatches");
  if (problem.global_batch > 0 && problem.microbatches > 0)
    throw InputError("--global-batch and --microbatches say the same in two ways; give one of them");
  problem.microbatch_sizes = microbatch_sizes(request, choose_microbatch);
  const auto usable = to_number<double>(request.text("usable-memory"));
  if (!problem.model) {
    if (!own_stages && !request.times_are_known && !std::holds_alternative<FixedCost>(problem.cost)) {
      throw InputError("--model is missing; give a name (tawpipe list models) or a config.json, or use --cost fixed:...");
    }
    if (problem.microbatches == 0) problem.microbatches = std::exchange(problem.global_batch, 0);
    if (problem.microbatches < 1) throw InputError("--microbatches is missing; give the number of microbatches of an iteration");
    problem.microbatch_sizes = {1};
    problem.usable_memory = own_stages ? usable.value_or(1) : 1;
    problem.check();
    return problem;
  }
  problem.sequence = request.count("sequence");
  if (problem.sequence < 1) throw InputError("--sequence is missing; give the tokens of one sequence, such as 4096");
  if (problem.global_batch < 1 && problem.microbatches < 1) {
    throw InputError("--global-batch is missing; give the sequences of one iteration");
  }
  if (problem.microbatches > 0 && problem.microbatch_sizes.empty()) problem.microbatch_sizes = {1};
  problem.usable_memory = usable.value_or(problem.microbatch_sizes.empty() ? usable_memory_share : 1);
  problem.check();  // finds errors before anything is computed
  return problem;
}

std::string shell_word(const std::string& word) {
  const bool plain =
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=:.,+/%") == std::string::npos;
  if (plain && !word.empty()) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string{"'\\''"} : std::string{c};
  return text + "'";
}

}  // namespace tawpipe::answers
