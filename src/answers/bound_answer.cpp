// A lower bound on the time of any schedule, and what it follows from.
#include "tawpipe/answers/bound_answer.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "tawpipe/answers/interval.hpp"
#include "tawpipe/answers/plan_question.hpp"
#include "tawpipe/report/comparison.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/table.hpp"
#include "tawpipe/search/bound.hpp"

namespace tawpipe::inline v0::answers {

namespace {

using Json = nlohmann::ordered_json;

double speed_of(const Problem& problem, double seconds) {
  return static_cast<double>(problem.global_batch) * static_cast<double>(problem.sequence) / seconds / problem.cluster.ranks();
}

Json bound_json(const Problem& problem, const TrainingBound& bound) {
  Json json;
  json["cluster"] = problem.cluster.name();
  json["model"] = problem.model->name;
  add_cost(json, problem);
  json["bound_s"] = bound.seconds;
  const ExpectedError error = expected_error(problem, Software::megatron);
  json["interval_s"] = {bound.seconds * error.low(), bound.seconds * error.high()};
  json["tokens_per_device_per_second"] = speed_of(problem, bound.seconds);
  json["limited_by"] = bound.limit();
  json["fits"] = bound.can_hold;
  json["states_bytes"] = bound.states;
  json["usable_bytes"] = bound.usable;
  json["compute_s"] = bound.compute_s;
  json["work"] = {{"product_flops", bound.work.products},
                  {"attention_flops", bound.work.attention},
                  {"traffic_bytes", bound.work.traffic},
                  {"update_bytes", bound.work.update}};
  json["devices"] = Json::array();
  for (const BoundDevice& device : bound.devices) {
    json["devices"].push_back({{"name", device.name},
                               {"devices", device.devices},
                               {"product_flops_per_s", device.products_per_s},
                               {"attention_flops_per_s", device.attention_per_s},
                               {"memory_bytes_per_s", device.bytes_per_s},
                               {"sequences_s", device.seconds},
                               {"update_s", device.update_s}});
  }
  json["cuts"] = Json::array();
  for (const BoundCut& cut : bound.cuts) {
    json["cuts"].push_back({{"side", cut.side},
                            {"bytes_per_s", cut.bytes_per_s},
                            {"side_s", cut.part_s},
                            {"rest_s", cut.rest_s},
                            {"parameter_bytes", cut.parameters},
                            {"activation_bytes", cut.activations},
                            {"token_share", cut.token_share},
                            {"least_s", cut.seconds}});
  }
  return json;
}

std::string bound_text(const Problem& problem, const TrainingBound& bound, const TableStyle& style) {
  const Duration least = seconds(bound.seconds);
  std::string text = fmt::format("No schedule takes less than {} a step (80 %: {}), {} tokens/s/device; limited by {}.\n\n{}\n",
                                 format_duration(least), interval_text(least, expected_error(problem, Software::megatron)),
                                 format_tokens(speed_of(problem, bound.seconds)), bound.limit(), describe_question(problem));
  Table devices{{{"device"},
                 {"number", Align::right},
                 {"GEMMs", Align::right},
                 {"attention", Align::right},
                 {"memory", Align::right},
                 {"all work alone", Align::right}}};
  for (const BoundDevice& device : bound.devices) {
    devices.row({device.name, std::to_string(device.devices), format_flops_rate(FlopsPerSecond{device.products_per_s}),
                 device.attention_per_s > 0 ? format_flops_rate(FlopsPerSecond{device.attention_per_s}) : std::string{},
                 format_bandwidth(BytesPerSecond{device.bytes_per_s}),
                 format_duration(seconds(device.seconds + device.update_s))});
  }
  text += devices.str(style);
  text += fmt::format("work     {} of GEMMs, {} of attention, {} of memory traffic, {} of updates: {} on all devices\n\n",
                      format_flops(Flops{bound.work.products}), format_flops(Flops{bound.work.attention}),
                      format_traffic(bound.work.traffic), format_traffic(bound.work.update),
                      format_duration(seconds(bound.compute_s)));
  if (bound.cuts.empty()) return text;
  Table cuts{{{"cut"},
              {"both ways", Align::right},
              {"parameters cross", Align::right},
              {"or activations", Align::right},
              {"least time", Align::right}}};
  for (const BoundCut& cut : bound.cuts) {
    cuts.row({cut.side, format_bandwidth(BytesPerSecond{cut.bytes_per_s}), format_traffic(cut.parameters),
              format_traffic(cut.activations), format_duration(seconds(cut.seconds))});
  }
  return text + cuts.str(style);
}

}  // namespace

std::optional<double> bound_of(const Problem& problem) {
  const bool known = std::holds_alternative<KernelCost>(problem.cost) || std::holds_alternative<RooflineCost>(problem.cost);
  if (!problem.model || !known || !problem.noise.is_none() || problem.sequence < 1) return std::nullopt;
  return training_bound(problem).seconds;
}

void add_gap(nlohmann::ordered_json& json, Duration makespan, const std::optional<double>& bound) {
  if (!bound) return;
  json["bound_s"] = *bound;
  json["gap"] = to_seconds(makespan) / *bound - 1;
}

std::string gap_text(const Summary& best, double bound) {
  return fmt::format("No schedule of any kind takes less than {} (tawpipe bound); {} takes {}.\n",
                     format_duration(seconds(bound)), best.schedule, format_more(to_seconds(best.makespan) / bound));
}

BoundAnswer answer_bound(const PlanQuestion& question, const TableStyle& style) {
  JobQuestion request = question.job;
  if (question.tokens > 0) request.set("global-batch", concat(batch_of_tokens(question)));
  const Problem problem = resolve(request, true);
  if (!problem.model) throw InputError("--model is missing; give a name (tawpipe list models) or a config.json");
  const TrainingBound bound = training_bound(problem);
  BoundAnswer answer{bound_json(problem, bound), bound_text(problem, bound, style), {}};
  if (bound.can_hold) return answer;
  answer.complaint = fmt::format("the model's states alone take {} and all devices together have {}; try more devices",
                                 format_memory(bound.states), format_memory(bound.usable));
  return answer;
}

}  // namespace tawpipe::answers
