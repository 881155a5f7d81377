// Plans as JSON: the limits of the best, why the others are slower, the command that simulates each.
// Not: as text (plan_text.cpp).
#include "tawpipe/answers/planned.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include "tawpipe/answers/bound_answer.hpp"
#include "tawpipe/answers/interval.hpp"
#include "tawpipe/answers/run_answer.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/layout_words.hpp"
#include "tawpipe/report/summary_json.hpp"

namespace tawpipe::inline v0::answers {

namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string command_of(const PlanQuestion& question, const PlanRequest& request, const Plan& plan) {
  std::string text = "tawpipe simulate";
  const auto add = [&](std::string_view flag, std::string_view value) {
    text += concat(" ", flag, value.empty() ? "" : " ", value.empty() ? "" : shell_word(std::string{value}));
  };
  add("--schedule", plan.choice.schedule);
  for (const auto& [key, value] : plan.choice.options) add("--option", concat(key, "=", value));
  for (const auto& [flag, value] : planned_texts(question.job, request, plan).flags()) add(flag, value);
  return text;
}

JobTexts planned_texts(const JobTexts& asked, const PlanRequest& request, const Plan& plan) {
  JobTexts texts = asked;
  const Problem problem = problem_of(request, plan.layout, plan.choice);
  const auto chosen = [&](std::string_view name) { texts.set(name, job_field(name).value.print(job_field(name), problem)); };
  texts.set("sequence", concat(problem.sequence));
  texts.set("global-batch", concat(problem.global_batch));
  texts.set("microbatch", concat(plan.layout.microbatch_size));
  texts.set("recompute", recompute_text(request, plan));
  for (const char* const axis : {"tensor-parallel", "context-parallel", "expert-parallel", "data-parallel", "layout"})
    chosen(axis);
  if (problem.overlap_gradients) chosen("overlap-grad-reduce");
  if (problem.overlap_gathers) chosen("overlap-param-gather");
  if (problem.tensor_overlap) chosen("tp-comm-overlap");
  if (plan.layout.mesh.tensor == 1) texts.take_back("tp-comm-overlap");
  for (const JobField& field : job_fields()) {
    if (field.is(of_experts) && !plan.layout.mesh.whole_experts) texts.take_back(field.name);
  }
  if (plan.layout.loss_chunk > 0) chosen("loss-chunk");
  if (plan.layout.exchange) chosen("context-exchange");
  if (plan.layout.sharding) chosen("shard-states");
  if (plan.layout.offload) chosen("offload");
  if (plan.layout.balanced_stages) {
    chosen("layers-per-stage");
    for (const char* const edge : {"account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split"})
      texts.take_back(edge);
  }
  return texts;
}

Shares shares_of(const Summary& summary) {
  const double time = std::max(to_seconds(summary.makespan), 1e-12);
  Shares shares{.compute = 1 - summary.bubble.ratio};
  shares.exposed = std::min(summary.communication.exposed_s / time, 1 - shares.compute);
  shares.waiting = std::max(0.0, 1 - shares.compute - shares.exposed);
  return shares;
}

double memory_share(const Summary& summary) {
  double most = 0;
  for (std::size_t rank = 0; rank < summary.peak_memory.size(); ++rank) {
    const Bytes usable = usable_part(summary.device_memory[rank], summary.usable_memory);
    most = std::max(most, summary.peak_memory[rank].total / usable);
  }
  return most;
}

std::string limit_of(const Summary& summary) {
  const Shares shares = shares_of(summary);
  if (shares.exposed > 0.1 && shares.exposed >= shares.waiting) return "communication";
  return shares.waiting > 0.1 ? "waiting" : "computation";
}

std::string loses_by(const Summary& best, const Summary& other) {
  const Shares a = shares_of(best);
  const Shares b = shares_of(other);
  const double longer = to_seconds(other.makespan) / to_seconds(best.makespan);
  const std::pair<double, const char*> parts[] = {{b.compute * longer - a.compute, "computing"},
                                                  {b.exposed * longer - a.exposed, "exposed communication"},
                                                  {b.waiting * longer - a.waiting, "waiting"}};
  const auto& most = *std::max_element(std::begin(parts), std::end(parts));
  if (longer < 1) return concat(format_percent(1 - longer), " faster");
  return longer <= 1 ? std::string{"as fast"}
                     : fmt::format("{} slower: {} more {}", format_percent(longer - 1), format_percent(most.first), most.second);
}

double price_of_tokens(double price, const Summary& summary) { return price / 3600 / summary.tokens_per_device_per_second * 1e9; }

std::string options_text(const Plan& plan) {
  std::string text;
  const auto add = [&](std::string_view key, std::string_view value) {
    text += concat(text.empty() ? "" : " ", key, "=", value);
  };
  for (const auto& [key, value] : plan.choice.options) add(key, value);
  if (plan.layout.exchange) add("context-exchange", name(*plan.layout.exchange));
  if (plan.layout.loss_chunk > 0) add("loss-chunk", std::to_string(plan.layout.loss_chunk));
  if (plan.layout.sharding) add("shard-states", name(*plan.layout.sharding));
  if (plan.layout.offload) add("offload", name(*plan.layout.offload));
  if (plan.layout.balanced_stages) add("layers-per-stage", "auto");
  return text;
}

Json plan_json(const Planned& planned, const Plan& plan) {
  const Mesh& mesh = plan.layout.mesh;
  Json json = to_json(plan.summary);
  json["estimated"] = plan.estimated;
  json["axes"] = {{"tensor", mesh.tensor}, {"context", mesh.context}, {"pipeline", mesh.pipeline}, {"data", mesh.data}};
  if (mesh.whole_experts) json["axes"]["expert"] = mesh.expert;
  if (mesh.whole_experts) json["expert_parallel"] = mesh.expert_parts();
  json["layout"] = mesh_order_text(mesh.order);
  json["words"] = layout_text(plan);
  add_interval(json, plan.summary.makespan, runs_with_error(planned, plan));
  const Problem problem = problem_of(planned.request, plan.layout, plan.choice);
  for (const JobField& field : job_fields()) {
    if (field.json.empty() || (field.is(of_experts) && !mesh.whole_experts)) continue;
    std::string text = field.value.print(field, problem);
    json[field.json] = field.kind == FieldKind::text ? Json(std::move(text)) : Json::parse(text);
  }
  json["balanced_stages"] = problem.stage_cut.balanced;
  add_gap(json, plan.summary.makespan, planned.bound_s);
  json["least_s"] = to_seconds(plan.bound);
  const Shares shares = shares_of(plan.summary);
  json["limited_by"] = limit_of(plan.summary);
  json["shares"] = {{"compute", shares.compute}, {"exposed", shares.exposed}, {"waiting", shares.waiting}};
  json["memory_share"] = memory_share(plan.summary);
  if (!planned.result.plans.empty()) {
    json["slower"] = plan.summary.makespan / planned.best().makespan - 1;
    json["loses_by"] = loses_by(planned.use().summary, plan.summary);
  }
  if (const Price price = price_of(planned.question.job); price.amount > 0)
    json["price_per_billion_tokens"] = price_of_tokens(price.amount, plan.summary);
  json["command"] = command_of(planned.question, planned.request, plan);
  return json;
}

namespace {

/// The plan to use, and what is not told apart from it, by their commands.
Json verdict_json(const Planned& planned) {
  const Verdict verdict = planned.verdict();
  const auto told = [&](std::size_t i) {
    const Plan& plan = planned.result.plans[i];
    return Json{{"schedule", plan.choice.schedule},
                {"words", layout_text(plan)},
                {"makespan_s", to_seconds(plan.summary.makespan)},
                {"command", command_of(planned.question, planned.request, plan)}};
  };
  Json json = plan_json(planned, planned.result.plans[verdict.use]);
  json["told_apart_above"] = verdict.apart;
  json["not_told_apart"] = Json::array();
  for (const std::size_t i : verdict.alike) json["not_told_apart"].push_back(told(i));
  json["beyond"] = nullptr;
  if (verdict.beyond) {
    json["beyond"] = told(*verdict.beyond);
    json["beyond"]["told_apart"] = verdict.beyond_is_told_apart();
    json["beyond"]["error"] = verdict.beyond_error;
  }
  return json;
}

}  // namespace

Json result_json(const Planned& planned) {
  const PlanResult& result = planned.result;
  Json json;
  json["cluster"] = planned.request.problem.cluster.name();
  json["devices"] = planned.request.problem.cluster.ranks();
  json["model"] = planned.request.problem.model->name;
  add_cost(json, planned.request.problem);
  json["plans"] = Json::array();
  json["pareto"] = Json::array();
  const std::size_t shown = std::min(result.plans.size(), static_cast<std::size_t>(planned.question.top));
  for (std::size_t i = 0; i < shown; ++i) json["plans"].push_back(plan_json(planned, result.plans[i]));
  for (const std::size_t i : result.pareto()) {
    const Plan& plan = result.plans[i];
    json["pareto"].push_back({{"makespan_s", to_seconds(plan.summary.makespan)},
                              {"memory_bytes", plan.summary.fullest().value()},
                              {"devices", plan.summary.ranks},
                              {"command", command_of(planned.question, planned.request, plan)}});
  }
  const PlanCounts& counts = result.counts;
  json["searched"] = {{"layouts", counts.layouts},
                      {"candidates", counts.candidates},
                      {"bounded", counts.bounded},
                      {"simulated", counts.simulated}};
  json["others"] = Json::array();
  for (const PlanLoss& loss : result.losses) {
    Json one{{"schedule", loss.schedule}, {"least_s", nullptr}, {"memory_bytes", nullptr}};
    if (loss.least) one["least_s"] = to_seconds(*loss.least);
    if (loss.memory) one["memory_bytes"] = loss.memory->value();
    json["others"].push_back(std::move(one));
  }
  json["dropped"] = {{"impossible", counts.impossible}, {"memory", counts.memory}, {"time", counts.time}, {"left", counts.left}};
  for (const Planned::Format& format : planned.formats) {
    Json one{{"format", format.products}, {"makespan_s", nullptr}};
    if (format.makespan) one["makespan_s"] = to_seconds(*format.makespan);
    json["gemm_formats"].push_back(std::move(one));
  }
  json["changes"] = Json::array();
  for (const Planned::Change& change : planned.changes) {
    json["changes"].push_back({{"what", change.what},
                               {"makespan_s", to_seconds(change.makespan)},
                               {"change", change.makespan / planned.best().makespan - 1}});
  }
  if (result.plans.empty()) {
    const std::optional<Bytes> needed = least_needed(result);
    json["needed_bytes"] = needed ? Json(needed->value()) : Json(nullptr);
    json["remedies"] = Json::array();
    for (const Remedy& remedy : planned.remedies) {
      json["remedies"].push_back({{"what", remedy.what},
                                  {"nodes", remedy.nodes},
                                  {"devices", remedy.devices},
                                  {"schedule", remedy.plan.choice.schedule},
                                  {"words", layout_text(remedy.plan)},
                                  {"memory_bytes", remedy.plan.summary.fullest().value()}});
    }
  }
  add_run(json, planned);
  if (!result.plans.empty()) json["use"] = verdict_json(planned);
  json["bound_s"] = planned.bound_s;
  json["proven_best"] = result.proven_best;
  json["stopped"] = result.stopped;
  json["timed_out"] = result.timed_out;
  if (!result.plans.empty()) {
    json["left_s"] = to_seconds(result.bound);
    json["left_gap"] = result.gap();
  }
  return json;
}

std::optional<Bytes> least_needed(const PlanResult& result) {
  std::optional<Bytes> least;
  const auto take = [&](Bytes memory) { least = std::min(least.value_or(memory), memory); };
  for (const PlanLoss& loss : result.losses) {
    if (loss.memory) take(*loss.memory);
  }
  for (const Plan& plan : result.closest) take(plan.summary.fullest());
  return least;
}

std::string recompute_text(const PlanRequest& request, const Plan& plan) {
  const int layers = plan.layout.recompute_layers;
  const Transformer& model = *request.problem.model;
  return recompute_text(
      RecomputeText{plan.layout.recompute, layers > 0 ? layers : model.recompute_layers, model.recompute_parts});
}

std::string layout_text(const Plan& plan) { return layout_words(plan.layout.mesh, plan.choice); }

std::string told_text(const PlanRequest& request, const Plan& plan) {
  const std::string recompute = recompute_text(request, plan);
  return concat(layout_text(plan), " by ", plan.choice.schedule, ", microbatch ", plan.layout.microbatch_size, ", ",
                recompute == "none" ? "no" : recompute, " recomputation");
}

RunsWithError runs_with_error(const Planned& planned, const Plan& plan) {
  return tawpipe::runs_with_error(problem_of(planned.request, plan.layout, plan.choice), plan.layout, plan.choice);
}

std::string separating_measurement(const Summary& use, const Summary& other) {
  const Shares a = shares_of(use);
  const Shares b = shares_of(other);
  const double compute = std::abs(a.compute * to_seconds(use.makespan) - b.compute * to_seconds(other.makespan));
  const double exposed = std::abs(a.exposed * to_seconds(use.makespan) - b.exposed * to_seconds(other.makespan));
  const double waiting = std::abs(a.waiting * to_seconds(use.makespan) - b.waiting * to_seconds(other.makespan));
  if (compute >= exposed && compute >= waiting) return "The GEMMs' times on your GPU (tawpipe measure)";
  return exposed >= waiting ? "The busbw of your links (nccl-tests)" : "Twenty steps of each";
}

}  // namespace tawpipe::answers
