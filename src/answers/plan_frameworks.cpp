// Today's run of another framework, as the plan to beat, and plans as its settings.
#include "tawpipe/answers/plan_frameworks.hpp"
#include "schedules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "tawpipe/answers/interval.hpp"
#include "tawpipe/answers/read_text.hpp"
#include "tawpipe/answers/threads.hpp"
#include "tawpipe/frameworks/written_job.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/summary_json.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/topology/cluster_file.hpp"

namespace tawpipe::inline v0::answers {

namespace {

using Json = nlohmann::ordered_json;

/// What a framework's settings say of the problem, as fields.
/// @param keeps  called for each field; true: unchanged
template <class Keeps>
void take_switches(JobQuestion& request, const Problem& problem, Keeps&& keeps) {
  for (const JobField& field : job_fields()) {
    if (field.is(of_framework) && !keeps(field)) request.set(field.name, field.value.print(field, problem), false);
  }
}

}  // namespace

void take_optimizer(FrameworkJob& job, JobQuestion& request) {
  if (job.optimizer_bytes == 0) return;
  const std::optional<OptimizerBytes> parts = optimizer_of(job);
  if (!parts) {
    job.notes.push_back(concat("the optimizer's states are simulated in ", job.optimizer_bytes,
                               " bytes a parameter, but planned with all of them in float32"));
    return;
  }
  if (parts->master == 2) request.set("master-dtype", "float16", false);
  if (!job.master_copies) request.set("master-dtype", "none", false);
  if (parts->moment == 2) request.set("moment-dtype", "bfloat16", false);
}

void take_best_switches(Framework framework, PlanQuestion& question) {
  const bool of_today = !question.today.empty() && question.emit.empty();  // which says its own
  if (!of_today && !question.job.has("layer-code") && framework != Framework::megatron) {
    JobQuestion& base = question.job;  // experts are known as Megatron-LM runs them
    const std::string model = base.text("model");
    const bool text = model.ends_with(".sh") || model.ends_with(".yaml") || model.ends_with(".yml") || is_log_name(model);
    const bool experts =
        base.model_value ? base.model_value->is_routed() : !model.empty() && !text && resolve_model(model).is_routed();
    const bool torchtitan = framework == Framework::torchtitan && !experts;
    base.set("layer-code", std::string{name(torchtitan ? LayerCode::torchtitan : LayerCode::megatron_unfused)}, false);
  }
  const Problem best = with_best_switches(framework, resolve(usual_job(question), true));
  take_switches(question.job, best,
                [&](const JobField& field) { return question.job.is_given(field.name) || field.name == "offload"; });
}

namespace {

/// Single changes of a job that may make it faster.
std::vector<FrameworkJob> changes_of(const FrameworkJob& job, Framework framework) {
  std::vector<FrameworkJob> changes;
  const auto add = [&](auto change) {
    FrameworkJob next = job;
    change(next);
    changes.push_back(std::move(next));
  };
  const bool pipeline = !job.splits_batch() && job.mesh.pipeline > 1;
  if (!job.sequence_parallel) add([](FrameworkJob& next) { next.sequence_parallel = true; });
  if (!job.tensor_overlap) add([](FrameworkJob& next) { next.tensor_overlap = next.sequence_parallel = true; });
  if (!job.shards()) add([](FrameworkJob& next) { next.sharding = StateSharding::optimizer; });
  if (!job.overlap_gradients) add([](FrameworkJob& next) { next.overlap_gradients = true; });
  if (!job.overlap_gathers) {
    add([](FrameworkJob& next) {
      next.sharding = std::max(next.sharding, StateSharding::optimizer);
      next.overlap_gradients = next.overlap_gathers = true;
    });
  }
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    if (job.recompute == recompute) continue;
    add([&](FrameworkJob& next) {
      next.recompute = recompute;
      next.recompute_parts = recompute == Recompute::selective ? unnamed_parts(framework) : RecomputeParts{};
    });
  }
  add([](FrameworkJob& next) { next.microbatch_size *= 2; });
  if (job.microbatch_size % 2 == 0) add([](FrameworkJob& next) { next.microbatch_size /= 2; });
  if (pipeline && job.is_one_of({"1f1b", "gpipe", "interleaved-1f1b"})) {
    for (const int chunks : {2, 3, 4, 5, 6, 8, 10, 12}) {
      if (chunks == job.chunks()) continue;
      add([&](FrameworkJob& next) { next.choice = {"interleaved-1f1b", {{"chunks", std::to_string(chunks)}}}; });
    }
  }
  if (job.has_experts()) {
    const auto divided = [&](int expert) {
      FrameworkJob next = job;
      next.mesh.expert = expert;
      next.mesh.whole_experts = next.mesh.shared() > 1;
      next.mesh.data = job.mesh.batch_parts() / expert;
      if (next.mesh.batch_parts() == job.mesh.batch_parts() && job.model->experts % next.mesh.expert_parts() == 0)
        changes.push_back(std::move(next));
    };
    divided(job.mesh.expert * 2);
    if (job.mesh.expert % 2 == 0) divided(job.mesh.expert / 2);
  }
  for (const char* order : {"tcsd", "tcds"}) {
    if (job.mesh.expert > 1) break;  // as Megatron-LM demands
    if (!detail::lies_as(job.mesh, order)) add([&](FrameworkJob& next) { next.mesh.order = parse_mesh_order(order); });
  }
  return changes;
}

/// The change in the file's terms, or ours if it has none.
std::vector<std::string> words_of(const TodayFile& file, FrameworkJob before, FrameworkJob after, const Transformer& model) {
  before.model = after.model = model;
  before.model_name = after.model_name = model.name;
  const auto settings = [&](const FrameworkJob& job) {
    return file.kind ? settings_of(*file.kind, job, file.framework) : settings_of(file.framework, job);
  };
  std::vector<std::string> words = changed_settings(settings(before), settings(after));
  if (words.empty() && !file.kind && before.recompute != after.recompute)
    words.push_back(concat("recomputation: ", name(*after.recompute)));
  return words;
}

/// How far off other layouts are expected to be, where a step of today's run was measured: as far as that
/// step, and by what two layouts of one job were off from each other.
std::optional<ExpectedError> error_by_measured(const Today& today) {
  const double measured = today.file.job.measured.step_seconds;
  if (measured <= 0) return std::nullopt;
  const RunsWithError found = runs_with_error(today.request.problem, today.plan.layout, today.plan.choice);
  return ExpectedError{.mean = std::log(measured / to_seconds(today.plan.summary.makespan)),
                       .deviation = pair_error(found.error.like) / detail::normal_90th};
}

}  // namespace

Today simulate_today(const Planned& planned, TodayFile file) {
  Today today{.file = std::move(file), .question = planned.question, .request = planned.request, .plan = {}};
  const auto simulated = [&](const FrameworkJob& one) {
    return predict(problem_of(one, planned.request.problem), shipped()).summary;
  };
  today.request.problem = problem_of(today.file.job, planned.request.problem);
  take_switches(today.question.job, today.request.problem, [](const JobField&) { return false; });
  for (const char* const cut :
       {"layers-per-stage", "account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split"})
    today.question.job.set(cut, job_field(cut).value.print(job_field(cut), today.request.problem));
  const LayerCode code = today.file.job.code;
  today.question.job.set("layer-code", code == LayerCode::megatron ? std::string{} : std::string{name(code)});
  const FrameworkJob& now = today.file.job;
  today.plan = {.layout = now.layout(), .choice = now.choice, .bound = {}, .summary = simulated(now)};
  const Transformer& model = *planned.request.problem.model;
  std::vector<FrameworkJob> all = changes_of(now, today.file.framework);
  std::erase_if(all, [&](FrameworkJob& one) {
    one.model = model;
    return !cannot_run(today.file.framework, one).empty() || words_of(today.file, now, one, model).empty() ||
           (today.file.kind && !says(*today.file.kind, today.file.framework, one, today.request.problem.cluster.ranks()));
  });
  std::vector<std::optional<Summary>> results(all.size());
  on_threads(planned.question.threads > 0 ? planned.question.threads : all_threads(), all.size(), [&](std::size_t i) {
    try {
      results[i] = simulated(all[i]);
    } catch (const InputError&) {  // the batch cannot be divided so
    }
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool better = results[i] && results[i]->fits() &&
                        (results[i]->makespan / today.plan.summary.makespan < 0.995 || !today.plan.summary.fits());
    if (better) today.changes.emplace_back(words_of(today.file, now, all[i], model), *results[i]);
  }
  std::stable_sort(today.changes.begin(), today.changes.end(),
                   [](const auto& a, const auto& b) { return a.second.makespan < b.second.makespan; });
  return today;
}

std::vector<std::string> changes_from(const Today& today, const Planned& planned, const Plan& plan) {
  const FrameworkJob job = written_job(planned.request, plan.layout, plan.choice);
  const std::optional<YamlKind> kind = today.file.kind;
  if (kind && !says(*kind, today.file.framework, job, planned.request.problem.cluster.ranks())) return {};
  return words_of(today.file, today.file.job, job, *planned.request.problem.model);
}

std::string today_text(const Today& today, const Planned& planned) {
  const Summary& summary = today.plan.summary;
  std::string text =
      fmt::format("today  {}, {}: {} {}, microbatch {}, recomputation {}: {}, {} tokens/s a device, {} memory{}\n",
                  one_line(planned.question.today), today.file.program(), today.plan.choice.schedule, layout_text(today.plan),
                  today.plan.layout.microbatch_size, recompute_text(today.request, today.plan), format_duration(summary.makespan),
                  format_rounded(summary.tokens_per_device_per_second), format_memory(summary.fullest()),
                  summary.fits() ? "" : ", which does not fit");
  if (const LoggedRun& run = today.file.job.measured; run.step_seconds > 0) {
    text += fmt::format("       measured {} a step, predicted {} ({}{})", format_duration(seconds(run.step_seconds)),
                        format_duration(summary.makespan), to_seconds(summary.makespan) < run.step_seconds ? "-" : "+",
                        format_percent(std::abs(to_seconds(summary.makespan) / run.step_seconds - 1)));
    if (run.allocated_bytes > 0)
      text += fmt::format("; allocated {}, predicted {}", format_memory(Bytes{run.allocated_bytes}),
                          format_memory(summary.fullest()));
    else if (run.reserved_bytes > 0)
      text += fmt::format("; reserved {} by the allocator, predicted {}", format_memory(Bytes{run.reserved_bytes}),
                          format_memory(summary.fullest()));
    text += "\n";
  }
  if (!planned.result.plans.empty()) {
    const Summary& use = planned.use().summary;
    const double lost = 1 - use.makespan / summary.makespan;
    text +=
        lost > plan_tolerance
            ? fmt::format("       {} of the time is lost; {}\n", format_percent(lost), loses_by(use, summary))
            : concat("       ", planned.result.proven_best ? "nothing in the space is faster" : "nothing faster was found", "\n");
    if (const std::optional<ExpectedError> error = error_by_measured(today); error && lost > plan_tolerance)
      text += fmt::format("       by the measured step the plan takes {} (80 %)\n", interval_text(use.makespan, *error));
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(3, today.changes.size()); ++i) {
    const auto& [words, changed] = today.changes[i];
    const double faster = 1 - changed.makespan / summary.makespan;
    text += faster < 0 ? fmt::format("       fits, {} slower, by one change: {}\n", format_percent(-faster), join(words, ", "))
                       : fmt::format("       {} faster by one change: {}\n", format_percent(faster), join(words, ", "));
  }
  for (const std::string& note : today.file.job.notes) text += concat("note   ", note, "\n");
  if (const std::string own = own_switches_text(planned); !own.empty()) text += concat("note   ", own, "\n");
  return text;
}

Json today_json(const Today& today, const Planned& planned) {
  Json json = plan_json(planned, today.plan);
  json.erase("least_s");
  json["file"] = one_line(planned.question.today);
  json["framework"] = today.file.kind ? name(*today.file.kind) : name(today.file.framework);
  json["fits"] = today.plan.summary.fits();
  const LoggedRun& run = today.file.job.measured;
  if (run.step_seconds > 0) json["measured_s"] = run.step_seconds;
  if (run.allocated_bytes > 0) json["measured_allocated_bytes"] = run.allocated_bytes;
  if (run.reserved_bytes > 0) json["measured_reserved_bytes"] = run.reserved_bytes;
  const std::optional<ExpectedError> error = error_by_measured(today);
  const auto add_expected = [&](Json& to, Duration predicted) {
    const double time = to_seconds(predicted);
    if (error) to["by_measured_s"] = {time * error->low(), time * std::exp(error->mean), time * error->high()};
  };
  if (!planned.result.plans.empty()) add_expected(json, planned.use().summary.makespan);
  json["command"] = command_of(today.question, today.request, today.plan);
  json["lost"] = planned.result.plans.empty() ? 0.0 : 1 - planned.best().makespan / today.plan.summary.makespan;
  json["changes"] = Json::array();
  for (const auto& [words, summary] : today.changes) {
    json["changes"].push_back({{"settings", words},
                               {"makespan_s", to_seconds(summary.makespan)},
                               {"faster", 1 - summary.makespan / today.plan.summary.makespan}});
    add_expected(json["changes"].back(), summary.makespan);
  }
  add_own_switches(json, planned);
  json["notes"] = today.file.job.notes;
  return json;
}

std::vector<std::string> cannot_run_best(Framework framework, const Planned& planned) {
  const Plan& best = planned.result.plans.front();
  return cannot_run(framework, job_of(planned.request.problem, best.layout, best.choice));
}

PlanRequest request_for(Framework framework, const Planned& planned) {
  PlanRequest request = for_framework(framework, planned.request);
  std::vector<std::string> allowed;
  for (const ScheduleChoice& choice : planned.request.schedules) allowed.push_back(choice.schedule);
  if (planned.question.schedules.empty()) return request;
  std::erase_if(request.schedules, [&](const ScheduleChoice& choice) {
    return std::find(allowed.begin(), allowed.end(), choice.schedule) == allowed.end();
  });
  if (request.schedules.empty()) {
    throw InputError(concat("--schedules: ", title(framework), " has none of ", join(allowed, ", ")));
  }
  return request;
}

std::string emitted_text(const Emitted& emitted, const Planned& best) {
  const Planned& runs = emitted.planned;
  const Plan& plan = runs.result.plans.front();
  const auto told = [&](const Plan& one, const PlanRequest& request) {
    return fmt::format("{} {}, microbatch {}, recomputation {}: {}, {} tokens/s a device, {} memory", one.choice.schedule,
                       layout_text(one), one.layout.microbatch_size, recompute_text(request, one),
                       format_duration(one.summary.makespan), format_rounded(one.summary.tokens_per_device_per_second),
                       format_memory(one.summary.fullest()));
  };
  const Problem& problem = runs.request.problem;
  std::vector<std::string> comments{fmt::format("tawpipe plan: {} on {}, {} sequences of {} tokens", problem.model->name,
                                                problem.cluster.name(), problem.global_batch, problem.sequence),
                                    told(plan, runs.request),
                                    "the command that simulates it:", command_of(runs.question, runs.request, plan)};
  if (const std::string own = own_switches_text(runs); !own.empty()) comments.push_back(own);
  if (!emitted.cannot.empty()) {
    const Plan& first = best.result.plans.front();
    comments.push_back(concat(title(emitted.framework), " cannot run the best plan; this is the best ",
                              runs.result.proven_best ? "of those" : "that was found of those", " that it can run."));
    comments.push_back(fmt::format("the best, {} faster: {}", format_percent(1 - first.summary.makespan / plan.summary.makespan),
                                   told(first, best.request)));
    for (const std::string& why : emitted.cannot) comments.push_back(concat("  ", why));
  }
  if (emitted.framework == Framework::deepspeed) {
    comments.push_back(concat("the program says the rest: the model, sequences of ", problem.sequence, " tokens, recomputation ",
                              recompute_text(runs.request, plan)));
  }
  return write_job(emitted.framework, written_job(runs.request, plan.layout, plan.choice), comments);
}

Json emitted_json(const Emitted& emitted, const Planned& best) {
  Json json;
  json["framework"] = name(emitted.framework);
  json["cannot"] = emitted.cannot;
  json["plan"] = plan_json(emitted.planned, emitted.planned.result.plans.front());
  add_own_switches(json, emitted.planned);
  json["text"] = emitted_text(emitted, best);
  return json;
}

}  // namespace tawpipe::answers
