// Resolves the shared flags and runs predictions. Not: printing them (commands/).
#include "request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/task_factors.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/measured_json.hpp"
#include "tawpipe/simulate/folding.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_file.hpp"

namespace tawpipe::sim {

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = text.find(separator); end != std::string::npos; end = text.find(separator, begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

double parse_fraction(const std::string& key, const std::string& text) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || !(value > 0 && value <= 1)) {
    throw InputError(concat("--cost: ", key, "=", text, " must be a fraction above 0 and at most 1, such as 0.45"));
  }
  return value;
}

/// @throws InputError  naming the parameter
Duration parse_time(const std::string& key, const std::string& text) {
  try {
    return parse_duration(text);
  } catch (const InputError& error) {
    throw InputError(concat("--cost: ", key, "=", one_line(text), ": ", error.what()));
  }
}

/// "roofline[:utilization=0.45,memory-utilization=0.8,overhead=8.4us,all-reduce=ring|tree,collectives=simple|nccl]",
/// "fixed:forward=…,…" or "measured:FILE".
Cost parse_cost(const std::string& text, const std::optional<Transformer>& model) {
  const auto colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  if (kind == "measured") {
    const std::string file = colon == std::string::npos ? "" : text.substr(colon + 1);
    if (file.empty()) throw InputError("--cost measured needs a file of tawpipe calibrate, such as measured:cost.json");
    return parse_measured_json(read_text(file, "file of measured times"), one_line(file));
  }
  const ScheduleOptions values =
      colon == std::string::npos || colon + 1 == text.size()
          ? ScheduleOptions{}
          : parse_options(split(text.substr(colon + 1), ','), kind == "fixed" ? "forward=18522us" : "utilization=0.45");
  if (kind == "roofline") {
    RooflineCost cost;
    if (model && model->utilization > 0) cost.utilization = model->utilization;
    for (const auto& [key, value] : values) {
      if (key == "utilization") {
        cost.utilization = parse_fraction(key, value);
      } else if (key == "memory-utilization") {
        cost.memory_utilization = parse_fraction(key, value);
      } else if (key == "overhead") {
        cost.overhead = parse_time(key, value);
      } else if (key == "all-reduce" && (value == "ring" || value == "tree")) {
        cost.all_reduce = value == "tree" ? Algorithm::tree : Algorithm::ring;
      } else if (key == "all-reduce") {
        throw InputError(concat("--cost: all-reduce=", value, " must be ring or tree"));
      } else if (key == "collectives" && (value == "simple" || value == "nccl")) {
        cost.nccl_collectives = value == "nccl";
      } else if (key == "collectives") {
        throw InputError(concat("--cost: collectives=", value, " must be simple or nccl"));
      } else {
        throw InputError(
            concat("--cost: ", unknown_name("parameter of roofline", key,
                                            {"utilization", "memory-utilization", "overhead", "all-reduce", "collectives"})));
      }
    }
    if (cost.nccl_collectives && values.contains("all-reduce")) {
      throw InputError("--cost: with collectives=nccl each all-reduce is a ring or a tree as NCCL chooses; leave out all-reduce");
    }
    return cost;
  }
  if (kind == "fixed") {
    FixedCost cost{};
    const std::vector<std::pair<std::string, Duration*>> known{{"forward", &cost.forward},
                                                               {"backward_input", &cost.backward_input},
                                                               {"backward_weight", &cost.backward_weight},
                                                               {"transfer", &cost.transfer}};
    std::vector<std::string> names;
    for (const auto& [name, target] : known) names.push_back(name);
    for (const auto& [key, value] : values) {
      bool found = false;
      for (const auto& [name, target] : known) {
        if (name != key) continue;
        *target = parse_time(key, value);
        found = true;
      }
      if (!found) throw InputError(concat("--cost: ", unknown_name("parameter of fixed", key, names)));
    }
    std::erase_if(names, [&](const std::string& name) { return values.contains(name); });
    if (!names.empty()) {
      throw InputError(
          concat("--cost fixed needs times of ", join(names, ", "),
                 " too, such as fixed:forward=18522us,backward_input=18086us,backward_weight=9337us,transfer=601us"));
    }
    if (cost.forward + cost.backward_input + cost.backward_weight <= Duration{}) {
      throw InputError(
          "--cost fixed needs times, such as fixed:forward=18522us,backward_input=18086us,backward_weight=9337us,transfer=601us");
    }
    return cost;
  }
  throw InputError(concat("--cost: ", unknown_name("cost model", kind, {"roofline", "fixed", "measured"})));
}

Fold parse_fold(const std::string& text) {
  if (text.empty() || text == "off") return Fold::off;
  if (text == "auto") return Fold::automatic;
  if (text == "on") return Fold::on;
  throw InputError(concat("--fold ", quote(one_line(text)), " must be auto, on or off"));
}

/// The prediction by kept copies alone, if it is exact; otherwise `refusal` says why not.
std::optional<Prediction> predict_folded(const Problem& problem, const Schedule& logical, const Workload& whole,
                                         std::string& refusal) {
  if (!problem.noise.is_none()) {
    refusal = "noise is drawn for each device";
    return std::nullopt;
  }
  if (const auto* measured = std::get_if<MeasuredCost>(&problem.cost)) measured->check(whole);
  FoldedSimulation folded = std::visit(
      [&](const auto& cost) { return simulate_folded(logical, whole, problem.layout, problem.cluster, cost); }, problem.cost);
  refusal = std::move(folded.refusal);
  if (!folded.run) return std::nullopt;
  Summary summary = summarize(folded.run->schedule, problem.cluster, folded.run->timeline, problem.usable_memory);
  summary.folding.refusal = refusal;
  return Prediction{std::move(folded.run->schedule.schedule), std::move(folded.run->timeline), std::move(summary)};
}

/// Interference changes when tasks meet, and so itself: this often is it counted anew.
constexpr int interference_rounds = 3;

template <CostModel Model>
Timeline run_with_noise(const Problem& problem, const Model& cost, const Schedule& schedule) {
  const Noise& noise = problem.noise;
  if (noise.is_none()) return simulate(schedule, problem.cluster, cost);
  const std::vector<double> drawn = noise_factors(schedule, noise);
  const auto message = [&noise](const Task& task) { return message_factor(noise, task); };
  const auto run = [&](const std::vector<double>& factors) {
    return simulate(schedule, problem.cluster, FactoredCost<Model, decltype(message)>{cost, factors, message});
  };
  Timeline timeline = run(drawn);
  for (int round = 0; round < interference_rounds && noise.interference > 0; ++round) {
    std::vector<double> factors = drawn;
    add_interference(factors, communication_beside(schedule, timeline), noise.interference);
    timeline = run(factors);
  }
  return timeline;
}

/// The request with the batch of `known` where no flag gives one.
Request with_known(Request request, const Workload& known) {
  if (request.global_batch > 0 || request.microbatches > 0) return request;
  request.microbatches = known.microbatches();
  if (known.is_abstract()) return request;
  if (request.sequence == 0) request.sequence = known.batch().sequence;
  if (request.microbatch.empty()) request.microbatch = std::to_string(known.batch().microbatch_size);
  return request;
}

/// What the times were measured with, where no flag says otherwise: sequence and microbatch, number format and, of a model by
/// its name, the vocabulary. What then differs is found when it is predicted (MeasuredCost::check).
void take_measured_work(const MeasuredWork& work, Request& request, std::optional<Transformer>& model) {
  if (request.sequence == 0) request.sequence = work.sequence;
  if (request.microbatch.empty()) request.microbatch = std::to_string(work.microbatch_size);
  if (!model) return;
  model->dtype = work.dtype;
  // As tawpipe train does: trained from nothing, a named model has the vocabulary of the data.
  if (request.model.starts_with("llama-")) model->vocab = std::min<int>(model->vocab, static_cast<int>(work.vocab));
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

ScheduleOptions named_schedule_options(const Request& request, std::string_view others) {
  if (request.schedule.empty()) {
    throw InputError(concat("--schedule is missing; give a name (tawpipe list schedules)", others));
  }
  ScheduleOptions options = parse_options(request.options);
  shipped().check(request.schedule, options);
  return options;
}

Problem resolve(const Request& given, bool choose_microbatch, const Workload* known) {
  Request request = known != nullptr ? with_known(given, *known) : given;
  if (request.cluster.empty()) throw InputError("--cluster is missing; give a name (tawpipe list clusters), a file, or NxM");
  std::optional<Transformer> model;
  if (!request.model.empty()) {
    model = resolve_model(request.model);
  } else if (known != nullptr && !known->is_abstract()) {
    model = known->model();
  }
  Cost cost = parse_cost(request.cost, model);
  const auto* measured = std::get_if<MeasuredCost>(&cost);
  const std::optional<MeasuredWork> work = measured != nullptr ? measured->work : std::nullopt;
  if (work) take_measured_work(*work, request, model);
  Problem problem{.cluster = resolve_cluster(request.cluster), .model = model, .cost = std::move(cost)};
  if (work) problem.parameter_bytes = work->parameter_bytes;
  problem.recompute = parse_recompute(request.recompute);
  problem.layout = request.layout;
  problem.noise = request.noise;
  if (!request.stragglers.empty()) parse_stragglers(request.stragglers, problem.noise);
  problem.noise.check();
  RankMap{problem.layout, problem.cluster.ranks()};  // finds fault with a layout that does not divide the devices
  problem.fold = parse_fold(request.fold);
  if (request.global_batch > 0 && request.microbatches > 0) {
    throw InputError("--global-batch and --microbatches say the same in two ways; give one of them");
  }
  const bool automatic = request.microbatch == "auto" || (request.microbatch.empty() && choose_microbatch);
  if (!automatic) {
    problem.microbatch_size = 1;
    if (!request.microbatch.empty()) {
      std::int64_t size = 0;
      const char* const end = request.microbatch.data() + request.microbatch.size();
      const auto [rest, status] = std::from_chars(request.microbatch.data(), end, size);
      if (status != std::errc{} || rest != end || size < 1) {
        throw InputError(concat("--microbatch ", request.microbatch, " must be a number of sequences, 1 or more, or auto"));
      }
      problem.microbatch_size = size;
    }
  }
  if (!model) {
    if (!std::holds_alternative<FixedCost>(problem.cost)) {
      throw InputError("--model is missing; give a name (tawpipe list models) or a config.json, or use --cost fixed:...");
    }
    problem.microbatches = request.microbatches > 0 ? request.microbatches : request.global_batch;
    if (problem.microbatches < 1) throw InputError("--microbatches is missing; give the number of microbatches of an iteration");
    problem.microbatch_size = 1;
    return problem;
  }
  problem.sequence = request.sequence;
  if (problem.sequence < 1) throw InputError("--sequence is missing; give the tokens of one sequence, such as 4096");
  problem.global_batch = request.global_batch;
  problem.microbatches = request.microbatches;
  if (problem.global_batch < 1 && problem.microbatches < 1) {
    throw InputError("--global-batch is missing; give the sequences of one iteration, or --microbatches");
  }
  if (problem.microbatches > 0 && !problem.microbatch_size) problem.microbatch_size = 1;
  problem.usable_memory = request.usable_memory > 0 ? request.usable_memory : problem.microbatch_size ? 1 : usable_memory_share;
  const std::int64_t size = problem.microbatch_size.value_or(1);
  if (problem.microbatches > Batch::max_global_batch / size) {
    throw InputError(concat(problem.microbatches, " microbatches of ", size, " sequences are too many; the most is ",
                            Batch::max_global_batch, " sequences"));
  }
  problem.workload(size);  // finds fault before anything is computed
  return problem;
}

Workload Problem::workload(std::int64_t size, int replicas) const {
  const int devices = cluster.ranks() / (layout.per_logical_rank() * layout.data);
  const std::int64_t count = microbatches > 0 || !model ? microbatches : Batch{sequence, size, global_batch}.microbatches();
  if (count % replicas != 0) {
    throw InputError(concat(count, " microbatches cannot be shared equally by ", replicas,
                            " data-parallel replicas; choose a multiple of ", replicas));
  }
  if (!model) return Workload::abstract(devices, count / replicas);
  Workload workload{*model, Batch{.sequence = sequence, .microbatch_size = size, .global_batch = count / replicas * size},
                    recompute};
  workload.over_devices(devices).parameter_bytes(parameter_bytes);
  return workload;
}

std::vector<std::int64_t> Problem::microbatch_sizes() const {
  if (microbatch_size) return {*microbatch_size};
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> large;
  for (std::int64_t size = 1; size * size <= global_batch; ++size) {
    if (global_batch % size != 0) continue;
    sizes.push_back(size);
    if (size * size != global_batch) large.push_back(global_batch / size);
  }
  sizes.insert(sizes.end(), large.rbegin(), large.rend());
  // Beyond this many tokens a microbatch no device holds even its logits; Batch refuses it.
  while (sizes.size() > 1 && sizes.back() > (std::int64_t{1} << 24) / sequence) sizes.pop_back();
  return sizes;
}

Prediction predict(const Problem& problem, Schedule schedule) {
  if (const auto* measured = std::get_if<MeasuredCost>(&problem.cost)) measured->check(schedule.workload());
  Timeline timeline = std::visit([&](const auto& cost) { return run_with_noise(problem, cost, schedule); }, problem.cost);
  Summary summary = summarize(schedule, problem.cluster, timeline, problem.usable_memory);
  return {std::move(schedule), std::move(timeline), std::move(summary)};
}

namespace {

/// Whether each device leaves its node by an adapter that no other device of the node uses.
bool have_own_adapters(const Cluster& cluster) {
  for (const NodeType& type : cluster.kinds()) {
    std::vector<std::int32_t> adapters;
    for (const LinkPath& path : type.to_network) adapters.push_back(path.empty() ? -1 : path.back());
    std::sort(adapters.begin(), adapters.end());
    if (adapters.empty() || std::adjacent_find(adapters.begin(), adapters.end()) != adapters.end()) return false;
  }
  return true;
}

/// [logical rank] FLOP/s of the slowest device that runs a part of it
std::vector<double> speeds_of(const Cluster& cluster, const RankMap& map) {
  std::vector<double> speeds(static_cast<std::size_t>(map.logical_ranks()), 0);
  for (int r = 0; r < cluster.ranks(); ++r) {
    double& slowest = speeds[static_cast<std::size_t>(map.place(Rank{r}).logical)];
    const double speed = cluster.device(Rank{r}).peak.value();
    slowest = slowest > 0 ? std::min(slowest, speed) : speed;
  }
  return speeds;
}

}  // namespace

Schedule logical_schedule(const Problem& problem, const std::string& schedule, const ScheduleOptions& options,
                          std::int64_t size) {
  Bytes memory;  // of the smallest device; without a model none is counted
  if (problem.model) {
    memory = problem.cluster.device(Rank{0}).memory;
    for (int r = 1; r < problem.cluster.ranks(); ++r) memory = std::min(memory, problem.cluster.device(Rank{r}).memory);
  }
  const DeviceGroups nodes = problem.cluster.groups_by_node();
  const RankMap map{problem.layout, problem.cluster.ranks()};
  const bool by_device = std::holds_alternative<RooflineCost>(problem.cost);
  return build_schedule(schedule,
                        {.workload = problem.workload(size, problem.layout.data),
                         .nodes = problem.layout.is_plain() ? nodes : map.logical_nodes(nodes),
                         .options = options,
                         .device_memory = usable_part(memory, problem.usable_memory) * problem.layout.per_logical_rank(),
                         .speeds = by_device ? speeds_of(problem.cluster, map) : std::vector<double>{},
                         .own_adapters = have_own_adapters(problem.cluster)});
}

Prediction predict(const Problem& problem, const std::string& schedule, const ScheduleOptions& options, std::int64_t size) {
  Schedule logical = logical_schedule(problem, schedule, options, size);
  const Workload whole = problem.workload(size);
  std::string refusal;
  if (problem.fold == Fold::on || (problem.fold == Fold::automatic && !problem.layout.is_plain())) {
    if (std::optional<Prediction> folded = predict_folded(problem, logical, whole, refusal)) return *std::move(folded);
    if (problem.fold == Fold::on) {
      throw InputError(concat("--fold on: ", refusal, ", so folding would not be exact; --fold auto simulates it in full"));
    }
  }
  const RankMap map{problem.layout, problem.cluster.ranks()};
  Prediction full =
      predict(problem, problem.layout.is_plain() ? std::move(logical) : compose(logical, whole, problem.layout, map));
  full.summary.folding.refusal = std::move(refusal);
  return full;
}

Prediction predict_best(const Problem& problem, const std::string& schedule, const ScheduleOptions& options) {
  std::optional<Prediction> best;
  for (const std::int64_t size : problem.microbatch_sizes()) {
    Prediction next = predict(problem, schedule, options, size);
    const bool fits = next.summary.out_of_memory.empty();
    if (!best || (fits && (next.summary.makespan < best->summary.makespan || !best->summary.out_of_memory.empty()))) {
      best = std::move(next);
    }
    if (!fits) break;  // a larger microbatch keeps more
  }
  return std::move(*best);
}

std::string describe(const Cost& cost) {
  if (const auto* fixed = std::get_if<FixedCost>(&cost)) {
    return fmt::format("fixed times: forward {}, backward input {}, backward weight {}, transfer {}",
                       format_duration(fixed->forward), format_duration(fixed->backward_input),
                       format_duration(fixed->backward_weight), format_duration(fixed->transfer));
  }
  if (std::holds_alternative<MeasuredCost>(cost)) return "measured times";
  const auto& roofline = std::get<RooflineCost>(cost);
  return fmt::format("roofline: {} of the matrix peak, {} of the memory bandwidth{}", format_percent(roofline.utilization, 0),
                     format_percent(roofline.memory_utilization, 0),
                     roofline.nccl_collectives ? "; collectives as NCCL's tuner chooses" : "");
}

std::string describe(const Problem& problem) {
  const Cluster& cluster = problem.cluster;
  std::string text = fmt::format(
      "cluster  {}: {} {}, {} devices ({}, {}{})\n", cluster.name(), cluster.nodes(), cluster.nodes() == 1 ? "node" : "nodes",
      cluster.ranks(), cluster.device(Rank{0}).name, format_memory(cluster.device(Rank{0}).memory),
      problem.usable_memory < 1 ? concat(", ", format_percent(problem.usable_memory, 0), " of it to plan with") : "");
  if (problem.model) {
    const Transformer& model = *problem.model;
    text += fmt::format("model    {}: {} parameters, {}; {} tokens a sequence, ", model.name, format_count(model.parameters()),
                        name(model.dtype), format_count(problem.sequence));
    text += problem.microbatches > 0 ? fmt::format("{} microbatches", format_count(problem.microbatches))
                                     : fmt::format("{} sequences an iteration", format_count(problem.global_batch));
    text += fmt::format(", recomputation {}\n", name(problem.recompute));
  } else {
    text += fmt::format("model    none: one stage a device, {} microbatches\n", format_count(problem.microbatches));
  }
  return text + "cost     " + describe(problem.cost) + "\n";
}

}  // namespace tawpipe::sim
