// How to train? The whole answer.
#include "tawpipe/answers/plan_answer.hpp"
#include "schedules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "plan_changes.hpp"
#include "plan_devices.hpp"
#include "plan_runnable.hpp"
#include "tawpipe/answers/run_answer.hpp"
#include "tawpipe/answers/schedule_entries.hpp"
#include "tawpipe/answers/threads.hpp"
#include "tawpipe/core/stop.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/search/bound.hpp"

namespace tawpipe::inline v0::answers {

namespace {

/// @throws InputError  if devices cannot have experts of their own as the flags ask
void check_experts(const PlanQuestion& question, const PlanRequest& request) {
  const Problem& problem = request.problem;
  if (request.expert_parts <= 1) return;
  const std::string asked = concat("--expert-parallel ", request.expert_parts);
  if (!problem.model || !problem.model->is_routed()) {
    throw InputError(concat(asked, ": ", problem.model ? concat("model ", quote(problem.model->name)) : "the problem",
                            " has no experts; leave it out"));
  }
  if (problem.model->experts % request.expert_parts != 0) {
    throw InputError(concat(asked, " does not divide the ", problem.model->experts, " experts equally; choose a divisor"));
  }
  if (!problem.sequence_parallel && question.job.count("tensor-parallel") > 1) {
    throw InputError(
        concat(asked, " with --tensor-parallel ", question.job.text("tensor-parallel"), " needs --sequence-parallel on"));
  }
}

}  // namespace

PlanRequest resolve_plan(const PlanQuestion& question) {
  const JobQuestion fixed = usual_job(question);
  PlanRequest request{.problem = resolve(fixed, true)};
  request.microbatch_sizes = std::exchange(request.problem.microbatch_sizes, {});
  if (!question.job.has("usable-memory")) request.problem.usable_memory = usable_memory_share;  // also for a given microbatch
  const JobQuestion& base = question.job;
  const auto size = [&](std::string_view axis) { return static_cast<int>(base.count(axis)); };
  request.axes = {size("tensor-parallel"), size("context-parallel"), 0, question.pipeline, size("data-parallel")};
  request.expert_parts = size("expert-parallel");
  check_experts(question, request);
  if (fixed.has("recompute")) request.recompute = {parse_recompute_text(base.text("recompute")).policy};
  if (base.has("layout") && base.text("layout") != "any") request.orders = {parse_mesh_order(base.text("layout"))};
  if (!question.schedules.empty() || !base.options.empty()) {
    std::vector<std::string> names = question.schedules;
    if (names.empty()) names = {"all"};
    request.schedules = parse_entries(names, parse_options(base.options), true);
  }
  if (question.budget > 0) request.budget = question.budget;
  request.seconds = question.seconds;
  request.partial_recompute = request.problem.model && request.problem.model->recompute_layers == 0;
  if (!question.today.empty() || !question.emit.empty()) return request;  // their switches are the framework's
  const auto open = [&](std::string_view field) {
    return base.text(field) == job_field(field).standard && !base.is_given(field);
  };
  request.problem.overlap_gradients |= open("overlap-grad-reduce");
  request.problem.overlap_gathers |= open("overlap-param-gather");
  const bool may_overlap =
      request.problem.sequence_parallel && (!request.problem.model || request.problem.model->overlaps_collectives());
  request.problem.tensor_overlap |= may_overlap && open("tp-comm-overlap");
  if (open("shard-states")) request.sharding = {StateSharding::optimizer, StateSharding::gradients, StateSharding::parameters};
  if (open("offload")) request.offload = {{.optimizer = true}, {.activations = true, .optimizer = true}};
  if (open("context-exchange"))
    request.exchanges = {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::all_to_all};
  if (!base.has("loss-chunk")) request.loss_chunk = 8192;
  request.balanced_stages = request.problem.stage_cut.is_even() && open("layers-per-stage");
  return request;
}

namespace {

/// Why no layout has the sizes that the flags give.
std::string no_layout(const PlanRequest& request) {
  const Problem& problem = request.problem;
  std::string asked;
  for (int a = 0; a < mesh_axes; ++a) {
    if (const int size = request.axes[static_cast<std::size_t>(a)]; size > 0)
      asked += concat(asked.empty() ? "" : " x ", name(static_cast<MeshAxis>(a)), " ", size);
  }
  if (request.expert_parts > 1) asked += concat(asked.empty() ? "" : " and ", "experts on ", request.expert_parts);
  return concat("no layout of ", problem.cluster.ranks(), " devices has ", asked.empty() ? "a mesh" : asked,
                ": together the sizes must divide the devices, tensor parallelism also the ", problem.model->heads,
                " heads and the devices of a node, context parallelism the ", problem.sequence,
                " tokens of a sequence, of which each device has at least 1,024, and data parallelism the ", problem.global_batch,
                " sequences",
                request.expert_parts > 1 ? concat("; devices with experts divide the ", problem.model->experts,
                                                  " experts, and are tensor x context devices or a multiple")
                                         : std::string{});
}

}  // namespace

Planned search_plan(const PlanQuestion& question, PlanRequest request, std::string_view what, const PlanWatch& watch) {
  Planned planned{question, std::move(request), {}};
  planned.bound_s = training_bound(planned.request.problem).seconds;
  LayoutTimes times;
  planned.result = search_with_host(planned, planned.request, times, what, watch);
  if (planned.result.counts.layouts == 0 && !planned.result.stopped) throw InputError(no_layout(planned.request));
  const auto ended = [&] { return planned.result.stopped || planned.result.timed_out; };
  if (!ended() && question.emit.empty() && question.today.empty()) add_framework_plans(planned, times, watch);
  if (!planned.result.stopped && question.emit.empty()) add_framework_options(planned.request, planned.result);
  // What is tried in host memory for plans that nearly fit may be needed by all.
  for (const Offload& offload : planned.request.offload) {
    if (!planned.result.plans.empty() || ended() || planned.result.counts.left > 0) break;
    PlanQuestion more = question;
    more.job.set("offload", name(offload), false);
    PlanRequest asked = with_offload_for_all(planned, planned.request, offload);
    Planned found = search_plan(more, std::move(asked), concat(what, " with ", name(offload), " in host memory"), watch);
    if (!found.result.plans.empty()) return found;
  }
  return planned;
}

Planned search_plans(const PlanQuestion& question, std::string_view what, const PlanWatch& watch,
                     std::optional<Framework> switches) {
  const std::string given = question.job.text("gemm-format");
  const std::vector<std::string_view> formats = split(given, ',');
  std::optional<Planned> best;
  std::vector<Planned::Format> tried;
  std::vector<Planned> all;  // what is wrong with any is found before the first search
  for (const std::string_view format : formats) {
    PlanQuestion one = question;
    one.job.set("gemm-format", std::string{format});
    if (switches) take_best_switches(*switches, one);
    PlanRequest request = resolve_plan(one);
    all.push_back({std::move(one), std::move(request), {}});
    if (!question.emit.empty()) request_for(*switches, all.back());
  }
  for (Planned& one : all) {
    const std::string format = one.question.job.text("gemm-format");
    const std::string name = formats.size() > 1 ? concat(what, " with ", format) : std::string{what};
    one.request.seconds /= static_cast<double>(formats.size());
    Planned found = search_plan(one.question, std::move(one.request), name, watch);
    if (formats.size() == 1) return found;
    const bool fits = !found.result.plans.empty();
    tried.push_back({format, fits ? std::optional{found.best().makespan} : std::nullopt});
    const bool stopped = found.result.stopped;
    if (!best || (fits && (best->result.plans.empty() || found.best().makespan < best->best().makespan))) best = std::move(found);
    if (stopped) break;
  }
  best->formats = std::move(tried);
  return *std::move(best);
}

namespace {

/// The fastest of the plans with the options that a request has for their schedules and numbers of
/// chunks; none if none fits.
std::optional<Plan> with_options_of(const PlanRequest& request, const std::vector<Plan>& plans) {
  std::optional<Plan> best;
  for (const Plan& plan : plans) {
    for (const ScheduleChoice& choice : request.schedules) {
      if (choice.schedule != plan.choice.schedule || chunks_of(choice) != chunks_of(plan.choice) ||
          !request.allows(plan.layout, choice))
        continue;
      Plan one{.layout = plan.layout, .choice = choice, .bound = plan.bound, .summary = {}};
      one.summary = predict(problem_of(request, one.layout, one.choice), shipped()).summary;
      if (one.summary.fits() && (!best || one.summary.makespan < best->summary.makespan)) best = std::move(one);
    }
  }
  return best;
}

std::string ended_before(Framework framework) {
  return concat("--emit: the search ended before anything that ", title(framework), " can run was found");
}

/// The best plan that the framework can run: the best of all, or of a search among those and the
/// plans of all with the framework's options. Where that finds a faster one than the search among
/// all did, it is the best of all.
Emitted emit(Framework framework, Planned& planned, const PlanWatch& watch) {
  std::vector<std::string> cannot = cannot_run_best(framework, planned);
  if (cannot.empty()) return {framework, {}, planned};
  PlanRequest request = request_for(framework, planned);
  request.seconds = planned.seconds_left();
  Emitted emitted{framework, std::move(cannot),
                  search_plan(planned.question, std::move(request), concat("planning for ", title(framework)), watch)};
  std::vector<Plan>& plans = emitted.planned.result.plans;
  std::optional<Plan> near = with_options_of(emitted.planned.request, planned.result.plans);
  if (near && (plans.empty() || near->summary.makespan < plans.front().summary.makespan))
    plans.insert(plans.begin(), *std::move(near));
  if (!plans.empty()) {
    const Plan& found = emitted.planned.result.plans.front();
    if (found.summary.makespan >= planned.best().makespan) return emitted;
    planned.result.plans.insert(planned.result.plans.begin(), found);
    planned.result.bound = std::min(planned.result.bound, found.summary.makespan);
    return {framework, {}, planned};
  }
  if (emitted.planned.result.stopped) throw InputError(ended_before(framework));
  throw InputError(concat("--emit: nothing that ", title(framework), " can run was found; it cannot run the best plan because ",
                          emitted.cannot.front()));
}

}  // namespace

std::int64_t batch_of_tokens(const PlanQuestion& question) {
  if (question.tokens == 0) return question.job.count("global-batch");
  if (question.job.has("global-batch"))
    throw InputError("--tokens and --global-batch say the same in two ways; give one of them");
  const std::int64_t sequence = std::max<std::int64_t>(1, question.job.count("sequence"));
  if (question.tokens % sequence == 0) return question.tokens / sequence;
  const std::int64_t below = question.tokens / sequence * sequence;
  const std::string least = below > 0 ? concat(below) : std::string{};
  const bool is_more = below <= std::numeric_limits<std::int64_t>::max() - sequence;
  const std::string most = is_more ? concat(least.empty() ? "" : " and ", below + sequence) : std::string{};
  throw InputError(
      concat("--tokens ", question.tokens, " are not whole sequences of ", sequence, " tokens; the nearest are ", least, most));
}

JobQuestion usual_job(const PlanQuestion& question) {
  JobQuestion usual = question.job;
  const std::string formats = usual.text("gemm-format");
  usual.set("gemm-format", std::string{split(formats, ',').front()});
  if (question.tokens > 0) usual.set("global-batch", concat(batch_of_tokens(question)));
  for (const char* const field : {"recompute", "layout", "microbatch"}) {
    if (usual.text(field) == "any" || usual.text(field) == "auto") usual.take_back(field);
  }
  for (const char* const axis : {"tensor-parallel", "context-parallel", "expert-parallel", "data-parallel"})
    usual.take_back(axis);
  return usual;
}

namespace {

/// The best of each number of devices, as far as it came.
PlanAnswer answer_devices(const PlanQuestion& question, const PlanWatch& watch, const PlanEnded& ended) {
  if (!(question.today.empty() && question.emit.empty()))
    throw InputError("--today and --emit are of one number of devices; leave out --devices");
  if (!question.what_if.empty()) throw InputError("--what-if nodes=N is of more nodes too; leave out --devices");
  std::vector<Planned> all;
  for (const PlanQuestion& one : questions_of_devices(question)) {
    const int devices = resolve_plan(one).problem.cluster.ranks();
    all.push_back(search_plans(one, concat("planning ", devices), watch));
    if (ended) ended(all.back());
    if (all.back().result.stopped) break;
  }
  return {.planned = all.front(), .by_devices = std::move(all)};
}

}  // namespace

PlanAnswer answer(PlanQuestion question, const PlanWatch& watch, const PlanEnded& ended) {
  if (!question.devices.empty()) return answer_devices(question, watch, ended);
  JobQuestion& job = question.job;  // with the names of values, for the commands that are shown
  if (!job.has("cluster") && job.cluster_value) job.set("cluster", job.cluster_value->name());
  if (!job.has("model") && job.model_value) job.set("model", job.model_value->name);
  std::optional<TodayFile> today;
  std::optional<Framework> framework;
  if (!question.today.empty()) framework = (today = read_today(question))->framework;
  if (!today && (!question.args.empty() || !question.env.empty() || question.strict || question.vocab_size > 0 ||
                 !question.step_time.empty()))
    throw InputError(
        "--args, --env, --strict, --vocab-size and --step-time are of the file of --today; name it, or leave them out");
  if (!question.emit.empty()) framework = parse_framework(question.emit);
  const bool own = question.job.has("moment-dtype") || question.job.has("master-dtype");
  const bool all_narrow =
      question.job.text("moment-dtype") == "bfloat16" && question.job.text("master-dtype") == "none";  // torchtitan's
  if (framework && own &&
      (today || (*framework != Framework::megatron && !(*framework == Framework::torchtitan && all_narrow)))) {
    throw InputError(concat(question.job.has("moment-dtype") ? "--moment-dtype" : "--master-dtype",
                            " is written by --emit megatron only, and --today says its own; leave it out"));
  }
  if (!question.emit.empty() && *framework != Framework::megatron && question.job.is_given("cuda-graphs") &&
      parse_cuda_graphs(question.job.text("cuda-graphs")) != CudaGraphs::none) {
    throw InputError("--cuda-graphs is written by --emit megatron only, as the others capture none in training; leave it out");
  }
  if (!question.what_if.empty() && (!question.emit.empty() || !question.today.empty()))
    throw InputError("--what-if is of the cluster as it is planned for; leave out --emit and --today");
  if (today) take_optimizer(today->job, question.job);
  std::vector<WhatIf> entries = question.what_if.empty() ? std::vector<WhatIf>{} : what_if_entries(question);
  PlanAnswer found{.planned = search_plans(question, "planning", watch, framework)};
  found.planned.framework = framework;
  const auto tell_switches = [&](Planned& planned, const Plan& plan) {
    PlanQuestion plain = question;
    plain.today.clear();
    plain.emit.clear();
    plain.job.set("gemm-format", planned.question.job.text("gemm-format"));
    planned.framework = framework;
    planned.own_switches = own_switches(planned, plan, resolve_plan(plain));
  };
  try {
    if (!question.emit.empty() && !found.planned.result.plans.empty()) found.emitted = emit(*framework, found.planned, watch);
    if (found.planned.result.plans.empty() && !found.planned.result.stopped) {
      const std::size_t threads = question.threads > 0 ? question.threads : all_threads();
      found.planned.remedies = find_remedies(found.planned.request, shipped(),
                                             [&](std::size_t count, auto&& run) { on_threads(threads, count, run); });
    }
    if (found.emitted) tell_switches(found.emitted->planned, found.emitted->planned.result.plans.front());
    if (today && !found.planned.result.plans.empty()) tell_switches(found.planned, found.planned.use());
    if (today) found.today = simulate_today(found.planned, *std::move(today));
    if (!framework && !found.planned.result.stopped && !found.planned.result.timed_out)
      found.planned.changes = changes_around(found.planned);
    if (!framework && !found.planned.result.stopped) found.planned.node_loss = find_node_loss(found.planned, watch);
    if (!entries.empty() && !found.planned.result.stopped && !found.planned.result.plans.empty())
      found.what_if = search_what_if(found.planned, std::move(entries), watch);
  } catch (const Stopped&) {
    if (!question.emit.empty() && !found.emitted) throw InputError(ended_before(*framework));
    found.planned.result.stopped = true;
  }
  return found;
}

PlanAnswer answer(PlanQuestion question) {
  return answer(std::move(question), [](const PlanProgress&, const Planned&, std::string_view) { return true; });
}

PlanAnswer answer_so_far(Planned best) {
  best.result.stopped = true;
  PlanAnswer answer{.planned = std::move(best)};
  if (answer.planned.question.emit.empty()) return answer;
  const Framework framework = parse_framework(answer.planned.question.emit);
  if (!cannot_run_best(framework, answer.planned).empty()) throw InputError(ended_before(framework));
  answer.emitted = Emitted{framework, {}, answer.planned};
  return answer;
}

PlanAnswer answer_so_far(std::vector<Planned> all) { return {.planned = all.front(), .by_devices = std::move(all)}; }

nlohmann::ordered_json to_json(const PlanAnswer& answer) {
  if (!answer.by_devices.empty()) return devices_json(answer.by_devices);
  nlohmann::ordered_json json = result_json(answer.planned);
  if (!answer.what_if.empty()) json["what_if"] = what_if_json(answer.planned, answer.what_if);
  if (answer.today) json["today"] = today_json(*answer.today, answer.planned);
  if (answer.emitted) json["emitted"] = emitted_json(*answer.emitted, answer.planned);
  return json;
}

std::string to_text(const PlanAnswer& answer, const TableStyle& style) {
  if (!answer.by_devices.empty()) return devices_table(answer.by_devices, style);
  if (answer.emitted) return emitted_text(*answer.emitted, answer.planned);
  std::string text = result_text(answer.planned, style, answer.today ? &*answer.today : nullptr);
  if (answer.today) text += "\n" + today_text(*answer.today, answer.planned);
  return answer.what_if.empty() ? text : text + "\n" + what_if_text(answer.planned, answer.what_if, style);
}

bool PlanAnswer::stopped() const {
  if (!by_devices.empty()) return by_devices.back().result.stopped;
  return planned.result.stopped || (emitted && emitted->planned.result.stopped);
}

std::string PlanAnswer::complaint() const {
  if (!by_devices.empty()) {
    const auto fits = [](const Planned& one) { return !one.result.plans.empty(); };
    return std::any_of(by_devices.begin(), by_devices.end(), fits) ? "" : "nothing fits the memory of so many devices";
  }
  const PlanResult& result = planned.result;
  if (!result.plans.empty()) return {};
  if (result.stopped) return "the search was stopped before it found anything that fits the devices' memory";
  std::string text = result.counts.left > 0
                         ? concat("nothing that fits the devices' memory was found before the search ended, with ",
                                  result.counts.left, " candidates left; try a larger --budget")
                         : std::string{"nothing in the space fits the devices' memory"};
  const Problem& problem = planned.request.problem;
  if (const std::optional<Bytes> needed = least_needed(result)) {
    const Bytes usable = usable_part(problem.cluster.device(Rank{0}).memory, problem.usable_memory);
    text += concat(": the least that a plan needs is ", format_memory(*needed), " a device, of which ", format_memory(usable),
                   " may be planned with");
  }
  for (const Remedy& remedy : planned.remedies)
    text += concat(&remedy == &planned.remedies.front() ? "; what fits: " : ", or ", remedy.what);
  if (planned.remedies.empty()) text += "; more nodes do not help; try a smaller model, sequence or microbatch";
  return text;
}

}  // namespace tawpipe::answers
