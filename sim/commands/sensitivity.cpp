// `tawpipe sensitivity`: the gain from a tenth more of each speed, and the spread of the figures
// under noise.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "../parallel.hpp"
#include "../terminal_text.hpp"
#include "fitting_search.hpp"
#include "instruments.hpp"
#include "tawpipe/cost/task_factors.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/table.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/changed_links.hpp"

namespace tawpipe::sim {

namespace {

constexpr double faster = 1.1;

/// One thing made faster.
struct Change {
  std::string what;
  std::optional<Op> op;           ///< computations of this kind
  std::optional<LinkClass> link;  ///< links of this kind
  bool latency = false;           ///< their latency, instead of their bandwidth
  Duration makespan{};
};

Duration makespan_with(const Problem& problem, const Schedule& schedule, const Change& change) {
  if (change.link) {
    Problem changed = problem;
    changed.cluster = with_changed_links(problem.cluster, [&](Link& link) {
      if (link.kind != *change.link) return;
      if (change.latency) {
        link.latency = seconds(to_seconds(link.latency) / faster);
      } else {
        link.bandwidth = BytesPerSecond{link.bandwidth.value() * faster};
      }
    });
    return predict(changed, schedule).summary.makespan;
  }
  const Schedule steps = has_bodies(schedule) ? expand_bodies(schedule).schedule : schedule;
  std::vector<double> factors(steps.tasks().size(), 1.0);
  for (std::size_t t = 0; t < factors.size(); ++t) {
    if (steps.tasks()[t].op == *change.op) factors[t] = 1 / faster;
  }
  const auto message = [](const Task&) { return 1.0; };
  return std::visit(
      [&](const auto& cost) {
        using Model = std::decay_t<decltype(cost)>;
        return simulate(steps, problem.cluster, FactoredCost<Model, decltype(message)>{cost, factors, message}).makespan();
      },
      problem.cost);
}

std::vector<Change> possible_changes(const Problem& problem, const Schedule& schedule) {
  std::vector<Change> changes;
  std::array<bool, ops> used{};
  for (const Task& task : schedule.tasks()) used[static_cast<std::size_t>(task.op)] = true;
  for (int op = 0; op < ops; ++op) {
    if (used[static_cast<std::size_t>(op)] && is_compute(static_cast<Op>(op)) && static_cast<Op>(op) != Op::idle) {
      changes.push_back({concat("computation: ", name(static_cast<Op>(op))), static_cast<Op>(op), std::nullopt});
    }
  }
  if (!std::holds_alternative<RooflineCost>(problem.cost) && !std::holds_alternative<KernelCost>(problem.cost))
    return changes;  // other times do not follow from the links' speeds
  bool copies = false;
  for (int op = 0; op < ops; ++op) copies = copies || (used[static_cast<std::size_t>(op)] && is_host_copy(static_cast<Op>(op)));
  std::array<bool, link_classes> kinds{};
  for (const NodeType& kind : problem.cluster.kinds()) {
    for (const Link& link : kind.links) {
      if (link.end != LinkEnd::host || copies) kinds[static_cast<std::size_t>(link.kind)] = true;
    }
  }
  for (int kind = 0; kind < link_classes; ++kind) {
    if (!kinds[static_cast<std::size_t>(kind)]) continue;
    for (const bool latency : {false, true}) {
      changes.push_back({concat("links: ", name(static_cast<LinkClass>(kind)), latency ? ", latency" : ", bandwidth"),
                         std::nullopt, static_cast<LinkClass>(kind), latency});
    }
  }
  return changes;
}

}  // namespace

int run_sensitivity(const Request& request) {
  const ScheduleChoice choice = named_schedule(request);
  Problem problem = resolve(request, false);
  problem.schedules = {choice};
  std::optional<OutputFile> file;
  if (!request.json.empty()) file.emplace(request.json);
  const Prediction base = with_simulation_line("simulating", [&] { return predict(problem); });
  std::vector<Change> changes = possible_changes(problem, base.schedule);
  in_parallel(changes.size(), "sensitivity",
              [&](std::size_t i) { changes[i].makespan = makespan_with(problem, base.schedule, changes[i]); });
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.makespan < b.makespan; });
  const double before = to_seconds(base.summary.makespan);
  const auto gain = [&](const Change& change) { return before / std::max(to_seconds(change.makespan), 1e-12) - 1; };
  if (file) {
    nlohmann::ordered_json json;
    json["schedule"] = base.summary.schedule;
    json["makespan_s"] = before;
    add_notes(json, problem);
    json["faster"] = faster;
    json["gains"] = nlohmann::ordered_json::array();
    for (const Change& change : changes) {
      json["gains"].push_back({{"what", change.what}, {"makespan_s", to_seconds(change.makespan)}, {"gain", gain(change)}});
    }
    (*file)(json.dump(2) + "\n");
    file->finish();
  }
  if (request.json == "-") return ok;
  Table table{{{"10 % faster"}, {"makespan", Align::right}, {"gain", Align::right}, {""}}};
  for (const Change& change : changes) {
    table.row({change.what, format_duration(change.makespan, 4), fmt::format("{:+.2f} %", 100 * gain(change)),
               bar(std::clamp(gain(change) / (faster - 1), 0.0, 1.0), 20, terminal_style().glyphs)});
  }
  print(fmt::format("{}\nmakespan {} ({})\n\n{}", describe(problem), format_duration(base.summary.makespan, 4),
                    base.summary.schedule, table.str(terminal_style())));
  return ok;
}

int run_spread(const Request& request, int runs) {
  const ScheduleChoice choice = named_schedule(request);
  if (runs < 2) throw InputError("--spread needs 2 runs or more");
  Problem problem = resolve(request, false);
  problem.schedules = {choice};
  if (!problem.noise.is_random()) problem.noise.jitter = 0.01;
  std::optional<OutputFile> file;
  if (!request.json.empty()) file.emplace(request.json);
  Problem quiet = problem;
  quiet.noise = {};
  const Prediction base = predict(quiet);
  if (const double tasks = static_cast<double>(base.schedule.tasks().size()) * runs; tasks > 16 * problem.max_tasks) {
    throw InputError(
        fmt::format("--spread {} repeats {} tasks, {:.2g} in all, and at most {:.2g} are simulated; choose fewer runs, or "
                    "a higher --limit",
                    runs, base.schedule.tasks().size(), tasks, 16 * problem.max_tasks));
  }
  std::vector<std::array<double, 4>> figures(static_cast<std::size_t>(runs));
  in_parallel(figures.size(), "repeating", [&](std::size_t i) {
    Problem one = problem;
    one.noise.seed = problem.noise.seed + i;
    const Summary summary = predict(one, base.schedule).summary;
    figures[i] = {to_seconds(summary.makespan), summary.tokens_per_device_per_second, summary.bubble.ratio,
                  summary.communication.exposed_s};
  });
  constexpr std::array<const char*, 4> names{"makespan_s", "tokens_per_device_per_second", "bubble_ratio", "exposed_s"};
  const std::array<double, 4> even{to_seconds(base.summary.makespan), base.summary.tokens_per_device_per_second,
                                   base.summary.bubble.ratio, base.summary.communication.exposed_s};
  Table table{{{"figure"},
               {"without noise", Align::right},
               {"mean", Align::right},
               {"+-", Align::right},
               {"least", Align::right},
               {"most", Align::right}}};
  nlohmann::ordered_json json;
  json["schedule"] = base.summary.schedule;
  json["runs"] = runs;
  add_notes(json, problem);
  json["jitter"] = problem.noise.jitter;
  json["seed"] = problem.noise.seed;
  for (std::size_t f = 0; f < names.size(); ++f) {
    double mean = 0;
    double square = 0;
    double least = figures[0][f];
    double most = least;
    for (const auto& run : figures) {
      mean += run[f] / runs;
      least = std::min(least, run[f]);
      most = std::max(most, run[f]);
    }
    for (const auto& run : figures) square += (run[f] - mean) * (run[f] - mean);
    const double deviation = std::sqrt(square / (runs - 1));
    table.row({names[f], fmt::format("{:.5g}", even[f]), fmt::format("{:.5g}", mean), fmt::format("{:.2g}", deviation),
               fmt::format("{:.5g}", least), fmt::format("{:.5g}", most)});
    json[names[f]] = {{"without_noise", even[f]}, {"mean", mean}, {"deviation", deviation}, {"least", least}, {"most", most}};
  }
  if (file) {
    (*file)(json.dump(2) + "\n");
    file->finish();
  }
  if (request.json != "-") {
    print(fmt::format("{}\n{} runs, jitter {:.3g}, stragglers {:.3g} x {:.3g}, seeds from {}; +- is one standard deviation\n\n{}",
                      describe(problem), runs, problem.noise.jitter, problem.noise.stragglers, problem.noise.slowdown,
                      problem.noise.seed, table.str(terminal_style())));
  }
  return ok;
}

}  // namespace tawpipe::sim
