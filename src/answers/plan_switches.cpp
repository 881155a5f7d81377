// How a framework's own switches differ from those of a plan without it.
// Not: the switches themselves (plan_frameworks.cpp).
#include <string>
#include <string_view>
#include <utility>

#include "schedules.hpp"
#include "tawpipe/answers/plan_frameworks.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/search/predict.hpp"

namespace tawpipe::inline v0::answers {

using Json = nlohmann::ordered_json;

Planned::OwnSwitches own_switches(const Planned& planned, const Plan& plan, const PlanRequest& plain) {
  const Problem& own = planned.request.problem;
  const Problem& other = plain.problem;
  Planned::OwnSwitches found;
  const auto add = [&](bool differs, std::string words) {
    if (differs) found.words.push_back(std::move(words));
  };
  const auto turned = [&](bool mine, bool theirs, std::string_view what) {
    add(mine != theirs, concat(what, mine ? " on" : " off"));
  };
  const std::int64_t gradient = own.parameter_bytes.gradient;
  add(gradient != other.parameter_bytes.gradient, concat("gradients of ", gradient, " bytes (--gradient-dtype ",
                                                         other.parameter_bytes.gradient == 4 ? "float32" : name(own.model->dtype),
                                                         " for ", other.parameter_bytes.gradient, ")"));
  add(own.model->code != other.model->code, concat("layers as by ", name(own.model->code)));
  add(own.sharding != other.sharding, concat("--shard-states ", name(own.sharding)));
  turned(own.sequence_parallel, other.sequence_parallel, "--sequence-parallel");
  turned(own.overlap_gradients, other.overlap_gradients, "--overlap-grad-reduce");
  turned(own.overlap_gathers, other.overlap_gathers, "--overlap-param-gather");
  turned(own.tensor_overlap, other.tensor_overlap, "--tp-comm-overlap");
  add(graphs_of(own.cost) != graphs_of(other.cost), concat("--cuda-graphs ", name(graphs_of(own.cost))));
  add(planned.request.offload.empty() && !plain.offload.empty() && !own.offload.any(), "nothing in host memory");
  if (found.words.empty()) return found;
  try {
    const Summary summary = predict(problem_of(plain, plan.layout, plan.choice), shipped()).summary;
    if (summary.fits()) found.plain = summary.makespan;
  } catch (const InputError&) {  // the schedule does not exist so
  }
  return found;
}

std::string own_switches_text(const Planned& planned) {
  const Planned::OwnSwitches& own = planned.own_switches;
  if (own.words.empty()) return {};
  return concat("with ", title(*planned.framework),
                "'s own switches, which a plan without --today and --emit does not take: ", join(own.words, ", "),
                own.plain ? concat("; without them this plan takes ", format_duration(*own.plain)) : std::string{});
}

void add_own_switches(Json& json, const Planned& planned) {
  if (!planned.framework) return;
  json["own_switches"] = {{"switches", planned.own_switches.words}, {"without_s", nullptr}};
  if (planned.own_switches.plain) json["own_switches"]["without_s"] = to_seconds(*planned.own_switches.plain);
}

}  // namespace tawpipe::answers
