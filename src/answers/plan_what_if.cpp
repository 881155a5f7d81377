// What a larger, faster or other cluster would buy.
#include "tawpipe/answers/plan_what_if.hpp"
#include "schedules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tawpipe/answers/interval.hpp"
#include "tawpipe/answers/nodes.hpp"
#include "tawpipe/answers/plan_answer.hpp"
#include "tawpipe/answers/run_answer.hpp"
#include "tawpipe/core/stop.hpp"
#include "tawpipe/report/comparison.hpp"
#include "tawpipe/report/formatters.hpp"

namespace tawpipe::inline v0::answers {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* catalogue = "catalogue";

bool more_of_the_same(const ClusterChange& change) {
  return ClusterChange{.nodes = change.nodes, .price = change.price} == change;
}

/// The flags of the same problem on a changed cluster. A price of other devices or adapters is not known unless it is said.
PlanQuestion changed_flags(const PlanQuestion& question, const Cluster& cluster, const ClusterChange& change) {
  PlanQuestion changed = question;
  JobQuestion& base = changed.job;
  base.cluster_value = with_change(cluster, change);
  base.set("cluster", more_of_the_same(change) ? with_nodes(question.job.text("cluster"), change.nodes)
                      : change.cluster.empty() ? base.cluster_value->name()
                                               : change.cluster);
  if (!more_of_the_same(change)) {  // else the command names them still
    base.take_back("device");
    base.take_back("inter-node");
  }
  if (change.price.amount > 0) {
    base.set("price", concat(change.price.amount, change.price.currency));
  } else if (!more_of_the_same(change)) {
    base.take_back("price");
  }
  return changed;
}

void check_currency(const PlanQuestion& question, const ClusterChange& change) {
  const Price now = price_of(question.job);
  if (now.amount > 0 && change.price.amount > 0 && now.currency != change.price.currency)
    throw InputError(concat("--price is in ", now.currency.empty() ? "no currency" : now.currency, " and that of ", name(change),
                            " in ", change.price.currency.empty() ? "none" : change.price.currency, "; say both in one"));
}

double tokens_per_second(const Summary& summary) { return summary.tokens_per_day() / 86'400; }

/// Of a device's hour, what it may cost for a token to cost as much as now, relative to that.
double worth(const Summary& now, const Summary& then) {
  return then.tokens_per_device_per_second / now.tokens_per_device_per_second;
}

bool same_layout(const Plan& a, const Plan& b) { return a.layout == b.layout && a.choice.schedule == b.choice.schedule; }

}  // namespace

std::vector<WhatIf> what_if_entries(const PlanQuestion& question) {
  std::vector<WhatIf> all;
  const Cluster cluster = resolve_plan(question).problem.cluster;
  const auto add = [&](const ClusterChange& change) {
    check_currency(question, change);
    PlanQuestion changed = changed_flags(question, cluster, change);
    PlanRequest request = resolve_plan(changed);
    all.push_back({.change = change, .planned = {std::move(changed), std::move(request), {}}, .plan = {}});
  };
  for (const std::string& entry : question.what_if) {
    if (entry != catalogue) {
      add(parse_cluster_change(entry));
      continue;
    }
    for (const ClusterChange& change : usual_changes(cluster)) {
      try {
        add(change);
      } catch (const InputError&) {  // the catalogue has no entry that cannot be, such as more nodes than the batch has sequences
      }
    }
  }
  if (all.empty())
    throw InputError(
        concat("--what-if catalogue has nothing for cluster ", quote(cluster.name()), "; say what, such as --what-if nodes=4"));
  return all;
}

std::vector<WhatIf> search_what_if(const Planned& now, std::vector<WhatIf> all, const PlanWatch& watch) {
  const Plan& used = now.use();
  for (WhatIf& one : all) {
    const auto without_best = [&](PlanProgress progress, const Planned& asked, std::string_view what) {
      progress.best = nullptr;  // it is no answer to what was asked
      return watch(progress, asked, what);
    };
    PlanRequest request = one.planned.request;
    request.budget /= 4;
    try {
      one.planned =
          search_plan(one.planned.question, std::move(request), concat("planning for ", name(one.change)), without_best);
    } catch (const InputError&) {
      continue;  // no layout has so many devices
    }
    one.planned.framework = now.framework;
    if (!one.planned.result.plans.empty()) one.plan = one.planned.use();
    if (one.planned.request.problem.cluster.ranks() == used.summary.ranks && !used.estimated) {
      Plan same = used;
      same.summary = predict(problem_of(one.planned.request, same.layout, same.choice), shipped()).summary;
      if (same.summary.fits() && (!one.plan || same.summary.makespan < one.plan->summary.makespan)) one.plan = std::move(same);
    }
    one.as_now = one.plan && same_layout(*one.plan, used);
    if (one.planned.result.stopped) throw Stopped{};
  }
  return all;
}

std::string what_if_text(const Planned& now, const std::vector<WhatIf>& all, const TableStyle& style) {
  const Plan& used = now.use();
  const Price price = price_of(now.question.job);
  std::vector<TableColumn> columns{
      {"cluster"}, {"step time", Align::right}, {"80 %", Align::right}, {"tokens/s", Align::right}, {"speed", Align::right}};
  if (price.amount > 0) columns.push_back({"price/Gtoken", Align::right});
  columns.insert(columns.end(), {{"worth", Align::right}, {"plan"}});
  Table table{columns};
  const auto row = [&](const std::string& what, const Planned& planned, const Plan& plan, bool as_now) {
    const Summary& summary = plan.summary;
    std::vector<std::string> cells{what, concat(plan.estimated ? "~" : "", format_duration(summary.makespan)),
                                   interval_text(summary.makespan, runs_with_error(planned, plan).error),
                                   format_tokens(tokens_per_second(summary)),
                                   fmt::format("{:.3g} x", tokens_per_second(summary) / tokens_per_second(used.summary))};
    const Price own = price_of(planned.question.job);
    if (price.amount > 0) cells.push_back(own.amount > 0 ? fmt::format("{:.3g}", price_of_tokens(own.amount, summary)) : "");
    const double may = worth(used.summary, summary);
    cells.push_back(price.amount > 0 ? fmt::format("{:.3g}", price.amount * may) : fmt::format("{:.3g} x", may));
    cells.push_back(as_now ? "as now" : concat(layout_text(plan), " by ", plan.choice.schedule));
    table.row(std::move(cells), &plan == &used ? Emphasis::bold : Emphasis::none);
  };
  row("as it is", now, used, false);
  const WhatIf* most = nullptr;
  for (const WhatIf& one : all) {
    if (!one.plan) {
      table.row({name(one.change), "out of memory"}, Emphasis::dim);
      continue;
    }
    row(name(one.change), one.planned, *one.plan, one.as_now);
    if (most == nullptr || tokens_per_second(one.plan->summary) > tokens_per_second(most->plan->summary)) most = &one;
  }
  std::string text;
  if (most != nullptr)
    text = fmt::format("What to buy: with {} {:.3g} times as many tokens a second.\n", name(most->change),
                       tokens_per_second(most->plan->summary) / tokens_per_second(used.summary));
  text += table.str(style);
  return text + fmt::format("worth: the price of a device's hour with which a token costs as much as now{}\n",
                            price.amount > 0 ? concat(", in ", price.currency.empty() ? "the units of --price" : price.currency)
                                             : std::string{", of the present one"});
}

Json what_if_json(const Planned& now, const std::vector<WhatIf>& all) {
  const Plan& used = now.use();
  const Price price = price_of(now.question.job);
  Json json = Json::array();
  for (const WhatIf& one : all) {
    const Cluster& cluster = one.planned.request.problem.cluster;
    Json entry{{"what", name(one.change)},
               {"nodes", cluster.nodes()},
               {"devices", cluster.ranks()},
               {"device", cluster.device(Rank{0}).name}};
    entry["plan"] = nullptr;
    if (one.plan) {
      const Summary& summary = one.plan->summary;
      Json plan = plan_json(one.planned, *one.plan);
      plan.erase("slower");
      if (one.change.cluster.empty() ? !more_of_the_same(one.change) : ClusterChange{.cluster = one.change.cluster} != one.change)
        plan.erase("command");  // no name says the cluster
      entry["plan"] = std::move(plan);
      entry["as_now"] = one.as_now;
      entry["tokens_per_second"] = tokens_per_second(summary);
      entry["speed"] = tokens_per_second(summary) / tokens_per_second(used.summary);
      entry["worth"] = worth(used.summary, summary);
      if (price.amount > 0) entry["worth_price"] = price.amount * worth(used.summary, summary);
    }
    json.push_back(std::move(entry));
  }
  return json;
}

}  // namespace tawpipe::answers
