// Plans as text and JSON: the limits of the best, why the others are slower, the command that
// simulates each.
// Not: the search (plan.cpp).
#include "plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include "advice.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/summary_json.hpp"

namespace tawpipe::sim {

namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string command_of(const PlanFlags& flags, const PlanRequest& request, const Plan& plan) {
  std::string text = "tawpipe simulate";
  const auto add = [&](std::string_view flag, const auto& value) { text += concat(" ", flag, " ", shell_word(concat(value))); };
  const Request defaults;
  const Request& base = flags.base;
  add("--schedule", plan.choice.schedule);
  for (const auto& [key, value] : plan.choice.options) add("--option", concat(key, "=", value));
  add("--cluster", base.cluster);
  if (!base.device.empty()) add("--device", base.device);
  add("--model", base.model);
  add("--sequence", request.problem.sequence);
  add("--global-batch", request.problem.global_batch);
  add("--microbatch", plan.layout.microbatch_size);
  add("--recompute", recompute_text(request, plan));
  const Mesh& mesh = plan.layout.mesh;
  if (mesh.tensor > 1) add("--tensor-parallel", mesh.tensor);
  if (mesh.context > 1) add("--context-parallel", mesh.context);
  if (mesh.data > 1) add("--data-parallel", mesh.data);
  if (mesh_order_text(mesh.order) != defaults.layout) add("--layout", mesh_order_text(mesh.order));
  if (const std::int64_t chunk = plan.layout.loss_chunk > 0 ? plan.layout.loss_chunk : base.loss_chunk; chunk > 0)
    add("--loss-chunk", chunk);
  if (base.usable_memory > 0) add("--usable-memory", base.usable_memory);
  if (base.sequence_parallel != defaults.sequence_parallel) add("--sequence-parallel", base.sequence_parallel);
  const std::string exchange{plan.layout.exchange ? name(*plan.layout.exchange) : base.context_exchange};
  if (exchange != defaults.context_exchange) add("--context-exchange", exchange);
  const std::string states{plan.layout.sharding ? name(*plan.layout.sharding) : base.shard_states};
  if (states != defaults.shard_states) add("--shard-states", states);
  if (base.reshard != defaults.reshard) add("--reshard", base.reshard);
  if (request.problem.overlap_gradients) add("--overlap-grad-reduce", "on");
  if (request.problem.overlap_gathers) add("--overlap-param-gather", "on");
  const std::string offload = plan.layout.offload ? name(*plan.layout.offload) : base.offload;
  if (offload != defaults.offload) add("--offload", offload);
  const std::string layers = plan.layout.balanced_stages ? "auto" : base.layers_per_stage;
  if (layers != defaults.layers_per_stage) add("--layers-per-stage", layers);
  if (base.embedding_is_layer && !plan.layout.balanced_stages) text += " --account-for-embedding-in-pipeline-split";
  if (base.loss_is_layer && !plan.layout.balanced_stages) text += " --account-for-loss-in-pipeline-split";
  if (base.tensor_overlap != defaults.tensor_overlap) add("--tp-comm-overlap", base.tensor_overlap);
  for (const auto& [flag, value] : {std::pair{"--products", &base.products},
                                    {"--gathered-weights", &base.gathered_weights},
                                    {"--attention", &base.attention},
                                    {"--layer-code", &base.layer_code},
                                    {"--swiglu", &base.swiglu},
                                    {"--loss-dtype", &base.loss_dtype},
                                    {"--gradient-dtype", &base.gradient_dtype},
                                    {"--moment-dtype", &base.moment_dtype},
                                    {"--master-dtype", &base.master_dtype}}) {
    if (!value->empty()) add(flag, *value);
  }
  if (base.cost != defaults.cost) add("--cost", base.cost);
  if (!parse_hold_sms(base.hold_sms).is_off()) add("--hold-sms", base.hold_sms);
  if (!base.limit.empty()) add("--limit", base.limit);
  return text;
}

namespace {

/// The parts of an iteration's time, means over the devices.
struct Shares {
  double compute = 0;
  double exposed = 0;  ///< communication that no computation hides
  double waiting = 0;
};

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

}  // namespace

std::string loses_by(const Summary& best, const Summary& other) {
  const Shares a = shares_of(best);
  const Shares b = shares_of(other);
  const double longer = to_seconds(other.makespan) / to_seconds(best.makespan);
  const std::pair<double, const char*> parts[] = {{b.compute * longer - a.compute, "computing"},
                                                  {b.exposed * longer - a.exposed, "exposed communication"},
                                                  {b.waiting * longer - a.waiting, "waiting"}};
  const auto& most = *std::max_element(std::begin(parts), std::end(parts));
  return longer <= 1 ? std::string{"as fast"}
                     : fmt::format("{} slower: {} more {}", format_percent(longer - 1), format_percent(most.first), most.second);
}

namespace {

double price_of_tokens(double price, const Summary& summary) { return price / 3600 / summary.tokens_per_device_per_second * 1e9; }

/// The schedule's options, and what is around it.
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

}  // namespace

Json plan_json(const Planned& planned, const Plan& plan) {
  const Mesh& mesh = plan.layout.mesh;
  Json json = to_json(plan.summary);
  json["axes"] = {{"tensor", mesh.tensor}, {"context", mesh.context}, {"pipeline", mesh.pipeline}, {"data", mesh.data}};
  json["layout"] = mesh_order_text(mesh.order);
  json["context_exchange"] = name(plan.layout.exchange.value_or(planned.request.problem.context_exchange));
  json["loss_chunk"] = plan.layout.loss_chunk > 0 ? plan.layout.loss_chunk : planned.request.problem.model->loss_chunk;
  json["shard_states"] = name(plan.layout.sharding.value_or(planned.request.problem.sharding));
  json["offload"] = name(plan.layout.offload.value_or(planned.request.problem.offload));
  json["balanced_stages"] = plan.layout.balanced_stages || planned.request.problem.stage_cut.balanced;
  json["bound_s"] = planned.bound_s;
  json["gap"] = to_seconds(plan.summary.makespan) / planned.bound_s - 1;
  json["least_s"] = to_seconds(plan.bound);
  const Shares shares = shares_of(plan.summary);
  json["limited_by"] = limit_of(plan.summary);
  json["shares"] = {{"compute", shares.compute}, {"exposed", shares.exposed}, {"waiting", shares.waiting}};
  json["memory_share"] = memory_share(plan.summary);
  if (!planned.result.plans.empty()) json["slower"] = plan.summary.makespan / planned.best().makespan - 1;
  if (planned.flags.price > 0) json["price_per_billion_tokens"] = price_of_tokens(planned.flags.price, plan.summary);
  json["command"] = command_of(planned.flags, planned.request, plan);
  return json;
}

Json result_json(const Planned& planned) {
  const PlanResult& result = planned.result;
  Json json;
  json["cluster"] = planned.request.problem.cluster.name();
  json["devices"] = planned.request.problem.cluster.ranks();
  json["model"] = planned.request.problem.model->name;
  json["cost"] = describe_cost(planned.request.problem);
  if (const std::string device = assumed_device(planned.request.problem); !device.empty()) json["assumed_device"] = device;
  json["plans"] = Json::array();
  json["pareto"] = Json::array();
  const std::size_t shown = std::min(result.plans.size(), static_cast<std::size_t>(planned.flags.top));
  for (std::size_t i = 0; i < shown; ++i) json["plans"].push_back(plan_json(planned, result.plans[i]));
  for (const std::size_t i : result.pareto()) {
    const Plan& plan = result.plans[i];
    json["pareto"].push_back({{"makespan_s", to_seconds(plan.summary.makespan)},
                              {"memory_bytes", plan.summary.fullest().value()},
                              {"devices", plan.summary.ranks},
                              {"command", command_of(planned.flags, planned.request, plan)}});
  }
  const PlanCounts& counts = result.counts;
  json["searched"] = {{"layouts", counts.layouts},
                      {"candidates", counts.candidates},
                      {"bounded", counts.bounded},
                      {"simulated", counts.simulated}};
  json["dropped"] = {{"impossible", counts.impossible}, {"memory", counts.memory}, {"time", counts.time}, {"left", counts.left}};
  for (const Planned::Format& format : planned.formats) {
    Json one{{"format", format.products}, {"makespan_s", nullptr}};
    if (format.makespan) one["makespan_s"] = to_seconds(*format.makespan);
    json["products"].push_back(std::move(one));
  }
  json["bound_s"] = planned.bound_s;
  json["proven_best"] = result.proven_best;
  json["stopped"] = result.stopped;
  if (!result.plans.empty()) {
    json["left_s"] = to_seconds(result.bound);
    json["left_gap"] = result.gap();
  }
  return json;
}

std::string recompute_text(const PlanRequest& request, const Plan& plan) {
  const int layers = plan.layout.recompute_layers;
  const Transformer& model = *request.problem.model;
  return recompute_text({plan.layout.recompute, layers > 0 ? layers : model.recompute_layers, model.recompute_parts});
}

std::string layout_text(const Plan& plan) {
  const Mesh& mesh = plan.layout.mesh;
  const bool order = mesh.pipeline > 1 && mesh.data > 1;
  return fmt::format("{} x {} x {} x {}{}", mesh.tensor, mesh.context, mesh.pipeline, mesh.data,
                     order ? concat(" ", mesh_order_text(mesh.order)) : std::string{});
}

namespace {

/// The plans that the page shows, the fastest first: the best of each schedule, so that they differ,
/// then others.
std::vector<const Plan*> shown_plans(const Planned& planned) {
  const auto most = static_cast<std::size_t>(planned.flags.top);
  std::vector<const Plan*> shown;
  for (const bool repeats : {false, true}) {
    for (const Plan& plan : planned.result.plans) {
      const bool known = std::any_of(shown.begin(), shown.end(), [&](const Plan* one) {
        return repeats ? one == &plan : one->choice.schedule == plan.choice.schedule;
      });
      if (!known && shown.size() < most) shown.push_back(&plan);
    }
  }
  std::sort(shown.begin(), shown.end());  // the order of plans
  return shown;
}

std::string plans_table(const Planned& planned, const TableStyle& style) {
  std::vector<TableColumn> columns{{"schedule"},
                                   {"t x c x p x d"},
                                   {"microbatch", Align::right},
                                   {"recompute"},
                                   {"time", Align::right},
                                   {"tokens/s/device", Align::right},
                                   {"MFU", Align::right},
                                   {"memory", Align::right},
                                   {"compute", Align::right},
                                   {"exposed", Align::right},
                                   {"waiting", Align::right},
                                   {"options"}};
  Table table{columns};
  for (const Plan* const one : shown_plans(planned)) {
    const Plan& plan = *one;
    const Shares shares = shares_of(plan.summary);
    table.row({plan.choice.schedule, layout_text(plan), std::to_string(plan.layout.microbatch_size),
               recompute_text(planned.request, plan), format_duration(plan.summary.makespan),
               format_count(static_cast<std::int64_t>(plan.summary.tokens_per_device_per_second + 0.5)),
               format_percent(plan.summary.mfu), format_memory(plan.summary.fullest()), format_percent(shares.compute),
               format_percent(shares.exposed), format_percent(shares.waiting), options_text(plan)},
              one == &planned.result.plans.front() ? Emphasis::bold : Emphasis::none);
  }
  return table.str(style);
}

std::string searched_text(const PlanResult& result) {
  const PlanCounts& counts = result.counts;
  std::string text = fmt::format(
      "searched {} layouts x schedules = {} candidates; {} cannot be, {} need too much memory, {} cannot be faster by a bound, "
      "{} simulated",
      format_count(counts.layouts), format_count(counts.candidates), format_count(counts.impossible), format_count(counts.memory),
      format_count(counts.time), format_count(counts.simulated));
  if (counts.left > 0) text += fmt::format(", {} left", format_count(counts.left));
  text += '\n';
  if (result.plans.empty()) return text;
  if (result.stopped) text += "stopped: the best so far\n";
  if (result.proven_best) return text + "proven: nothing in the space is faster\n";
  return text + fmt::format("not proven: what was left may be up to {} faster; a larger --budget looks at more\n",
                            format_percent(result.gap()));
}

}  // namespace

std::string result_text(const Planned& planned, const TableStyle& style) {
  const PlanResult& result = planned.result;
  Problem shown = planned.request.problem;
  std::string text = describe(shown) + "\n";
  if (const auto at = text.find(", recomputation "); at != std::string::npos) {
    text.erase(at, text.find('\n', at) - at);  // it is one of the results
  }
  if (result.plans.empty()) return text + searched_text(result);
  text += plans_table(planned, style) + "\nt x c x p x d: tensor, context, pipeline (the schedule's devices), data\n\n";
  const Plan& best = result.plans.front();
  const Shares shares = shares_of(best.summary);
  text +=
      fmt::format("best   {} tokens a day, {} a device; limited by {} ({} computing, {} exposed, {} waiting), memory {} full\n",
                  format_count(static_cast<std::int64_t>(best.summary.tokens_per_day())),
                  format_flops_rate(best.summary.flops_per_device), limit_of(best.summary), format_percent(shares.compute),
                  format_percent(shares.exposed), format_percent(shares.waiting), format_percent(memory_share(best.summary), 0));
  text += fmt::format("bound  no schedule of any kind is faster than {}: the best is within {} of that\n",
                      format_duration(seconds(planned.bound_s), 4),
                      format_percent(to_seconds(best.summary.makespan) / planned.bound_s - 1));
  for (const Planned::Format& format : planned.formats) {
    if (format.products == planned.flags.base.products) continue;
    text += fmt::format("products in {}: {}\n", format.products,
                        format.makespan ? concat(format_percent(*format.makespan / best.summary.makespan - 1), " slower")
                                        : std::string{"nothing fits"});
  }
  if (planned.flags.price > 0) {
    text += fmt::format("price  {:.2f} a billion tokens\n", price_of_tokens(planned.flags.price, best.summary));
  }
  const std::vector<const Plan*> others = shown_plans(planned);
  for (std::size_t i = 1; i < others.size(); ++i) {
    text +=
        fmt::format("{:<6} {} {}\n", concat(i + 1, "."), others[i]->choice.schedule, loses_by(best.summary, others[i]->summary));
  }
  const std::vector<std::size_t> pareto = result.pareto();
  for (std::size_t i = 1; i < pareto.size(); ++i) {
    const Plan& plan = result.plans[pareto[i]];
    text += fmt::format("less memory: {} with {}, recomputation {}, {} slower: {}\n", plan.choice.schedule, layout_text(plan),
                        recompute_text(planned.request, plan), format_percent(plan.summary.makespan / best.summary.makespan - 1),
                        format_memory(plan.summary.fullest()));
  }
  return text + "\n" + searched_text(result) + "\n" + command_of(planned.flags, planned.request, best) + "\n";
}

std::string devices_table(const std::vector<Planned>& all, const TableStyle& style) {
  const bool priced = all.front().flags.price > 0;
  std::vector<TableColumn> columns{{"devices", Align::right},         {"time", Align::right},  {"tokens a day", Align::right},
                                   {"tokens/s/device", Align::right}, {"worth", Align::right}, {"memory", Align::right}};
  if (priced) columns.push_back({"price/Gtoken", Align::right});
  columns.insert(columns.end(), {{"schedule"}, {"t x c x p x d"}, {"recompute"}, {"options"}});
  Table table{columns};
  double first = 0;
  for (const Planned& one : all) {
    std::vector<std::string> cells{format_count(one.request.problem.cluster.ranks())};
    if (one.result.plans.empty()) {
      cells.push_back("out of memory");
      table.row(std::move(cells), Emphasis::dim);
      continue;
    }
    const Plan& plan = one.result.plans.front();
    const double speed = plan.summary.tokens_per_device_per_second;
    if (first <= 0) first = speed;
    cells.insert(cells.end(),
                 {format_duration(plan.summary.makespan), format_count(static_cast<std::int64_t>(plan.summary.tokens_per_day())),
                  format_count(static_cast<std::int64_t>(speed + 0.5)), format_percent(speed / first, 0),
                  format_memory(plan.summary.fullest())});
    if (priced) cells.push_back(fmt::format("{:.2f}", price_of_tokens(one.flags.price, plan.summary)));
    cells.insert(cells.end(), {plan.choice.schedule, layout_text(plan), recompute_text(one.request, plan), options_text(plan)});
    table.row(std::move(cells));
  }
  return table.str(style) + "\nworth: of what a device does in the first line, what each does here\n";
}

}  // namespace tawpipe::sim
