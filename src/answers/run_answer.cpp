// What a whole training run costs with a plan.
#include "tawpipe/answers/run_answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tawpipe/report/comparison.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"

namespace tawpipe::inline v0::answers {

namespace {

using Json = nlohmann::ordered_json;

/// Of storage, for each node. Llama 3's takes 2 TB/s of some 2,000 nodes (arXiv:2407.21783, 3.3.1).
constexpr double storage_bytes_per_s = 1e9;

/// How fast all devices together copy to their hosts, each the same number of bytes: as the slowest
/// link that they share does.
double copy_speed(const Cluster& cluster) {
  double least = LinkSpeeds{}.pcie.value();  // of a device; where no host is known, a slot's
  bool known = false;
  for (const NodeType& type : cluster.kinds()) {
    std::vector<int> copies(type.links.size(), 0);
    for (const LinkPath& path : type.to_host) {
      for (const std::int32_t link : path) ++copies[static_cast<std::size_t>(link)];
    }
    for (std::size_t link = 0; link < copies.size(); ++link) {
      if (copies[link] == 0) continue;
      const double speed = type.links[link].bandwidth.value() / copies[link];
      least = known ? std::min(least, speed) : speed;
      known = true;
    }
  }
  return least * cluster.ranks();
}

/// The mean of the boards; 0 if one of them is not in the table.
double mean_watts(const Cluster& cluster) {
  double sum = 0;
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    const KnownDevice* const device = find_device(cluster.device(Rank{rank}).name);
    if (device == nullptr) return 0;
    sum += device->watts;
  }
  return sum / cluster.ranks();
}

/// A span of time of any length.
std::string span_text(double time) {
  return time < 9e6 ? format_duration(seconds(time)) : fmt::format("{} days", format_rounded(time / 86'400));
}
/// Days with three digits.
std::string days_text(double days) {
  return days < 1 ? span_text(days * 86'400)
                  : fmt::format("{} days", days < 100 ? fmt::format("{:.3g}", days) : format_rounded(days));
}
std::string energy_text(double megawatt_hours) {
  return megawatt_hours < 100 ? fmt::format("{:.3g} MWh", megawatt_hours) : fmt::format("{} MWh", format_rounded(megawatt_hours));
}

/// The goodput of a run with another MTBF of a device.
double kept_with_mtbf(TrainingRun run, double hours) {
  run.failures.device_mtbf_s = hours * 3600;
  return run_cost(run).shares.kept;
}

/// The goodput of a run with other checkpoints, which training waits for.
double kept_with_waits(TrainingRun run, double write_bytes_per_s) {
  run.checkpoints.asynchronous = false;
  run.checkpoints.write_bytes_per_s = write_bytes_per_s;
  return run_cost(run).shares.kept;
}

std::string node_loss_text(const Planned& planned) {
  if (!planned.node_loss) return {};
  const Planned::NodeLoss& less = *planned.node_loss;
  if (!less.plan) return "node lost   nothing that fits was found for what is left: the run waits for the repair\n";
  const Summary& summary = less.plan->summary;
  const std::string batch = less.global_batch != planned.request.problem.global_batch
                                ? concat(", ", format_count(less.global_batch), " sequences")
                                : "";
  const NodeLost& lost = less.lost;
  return fmt::format("node lost   {} {} on {} devices{}: {} a step, {} tokens a day ({}); {}: the repair takes {}, {} than {}\n",
                     less.plan->choice.schedule, layout_text(*less.plan), format_count(summary.ranks), batch,
                     format_duration(summary.makespan), format_tokens(summary.tokens_per_day()), format_percent(lost.speed),
                     lost.goes_on() ? "go on with it" : "wait", span_text(lost.repair_s), lost.goes_on() ? "more" : "no more",
                     span_text(lost.break_even_s()));
}

Json node_loss_json(const Planned::NodeLoss& less) {
  Json json{{"found", less.plan.has_value()}};
  if (!less.plan) return json;
  const Plan& plan = *less.plan;
  json["schedule"] = plan.choice.schedule;
  json["devices"] = plan.summary.ranks;
  const Mesh& mesh = plan.layout.mesh;
  json["axes"] = {{"tensor", mesh.tensor}, {"context", mesh.context}, {"pipeline", mesh.pipeline}, {"data", mesh.data}};
  json["global_batch"] = less.global_batch;
  json["makespan_s"] = to_seconds(plan.summary.makespan);
  json["tokens_per_day"] = plan.summary.tokens_per_day();
  json["speed"] = less.lost.speed;
  json["break_even_s"] = less.lost.break_even_s();
  json["goes_on"] = less.lost.goes_on();
  return json;
}

}  // namespace

std::string money_text(double amount, const std::string& currency) {
  return (amount < 1000 ? fmt::format("{:.2f}", amount) : format_rounded(amount)) + (currency.empty() ? "" : " " + currency);
}

RunAnswer answer_run(const JobTexts& job, const Problem& problem, const Summary& summary) {
  if (!problem.has_model() || summary.sequence < 1 || summary.global_batch < 1)
    throw InputError("--train-tokens is of a model with sequences; give --model, --sequence and --global-batch");
  RunGiven given = parse_run(job);
  TrainingRun& run = given.run;
  run.step_tokens = static_cast<double>(summary.sequence) * static_cast<double>(summary.global_batch);
  run.step_s = to_seconds(summary.makespan);
  run.devices = summary.ranks;
  run.nodes = summary.nodes;
  if (run.watts <= 0) run.watts = mean_watts(problem.cluster);
  const auto parameters = static_cast<double>(problem.model ? problem.model->parameters() : problem.stack->parameters());
  run.checkpoints.bytes = parameters * static_cast<double>(problem.parameter_bytes.weight + problem.parameter_bytes.optimizer);
  run.checkpoints.write_bytes_per_s = given.write_bytes_per_s.value_or(storage_bytes_per_s * run.nodes);
  run.checkpoints.copy_bytes_per_s = copy_speed(problem.cluster);
  RunAnswer answer{.run = run, .cost = run_cost(run), .currency = given.currency};
  if (!given.has_mtbf) {
    const auto all = published_mtbfs();
    const auto [least, most] = std::minmax_element(
        all.begin(), all.end(), [](const PublishedMtbf& a, const PublishedMtbf& b) { return a.device_hours < b.device_hours; });
    answer.published = {kept_with_mtbf(run, least->device_hours), kept_with_mtbf(run, most->device_hours)};
  }
  answer.synchronous = kept_with_waits(run, run.checkpoints.write_bytes_per_s);
  answer.one_writer = kept_with_waits(run, run.checkpoints.write_bytes_per_s / run.nodes);
  return answer;
}

std::string run_text(const RunAnswer& answer) {
  const TrainingRun& run = answer.run;
  const RunCost& cost = answer.cost;
  const TimeShares& shares = cost.shares;
  std::string text;
  const auto line = [&](std::string_view label, const std::string& words) { text += fmt::format("{:<12}{}\n", label, words); };
  if (cost.ends()) {
    line("run", fmt::format("{} tokens in {}: {} steps, {} without failures", format_tokens(run.tokens), days_text(cost.days),
                            format_rounded(cost.steps), days_text(cost.days_without_failures)));
    const std::string spares = run.spare_nodes.value_or(0) > 0 ? ", with the spare nodes'" : "";
    line("cost", fmt::format("{} device-hours{}{}", format_rounded(cost.device_hours), spares,
                             run.price > 0 ? ", " + money_text(cost.money, answer.currency) : ""));
    if (run.watts > 0)
      line("energy", fmt::format("{}: {} W a device, {:.3g} times that with its host, PUE {:.3g}",
                                 energy_text(cost.megawatt_hours), format_rounded(run.watts), run.host_factor, run.pue));
  } else {
    line("run", fmt::format("{} tokens never: failures leave no time to train", format_tokens(run.tokens)));
  }
  line("goodput", fmt::format("{}{}; {} in restarts, {} lost, {} in checkpoints{}", format_percent(shares.kept),
                              answer.published
                                  ? fmt::format(" ({} to {} by published failure rates)", format_percent(answer.published->first),
                                                format_percent(answer.published->second))
                                  : "",
                              format_percent(shares.restarts), format_percent(shares.lost), format_percent(shares.checkpoints),
                              run.spare_nodes ? fmt::format(", {} waiting for nodes", format_percent(shares.waiting)) : ""));
  line("failures", fmt::format("{}one in {}: {} hours of a device between two, {} to restart",
                               cost.ends() ? format_rounded(cost.failures) + ", " : "", span_text(cost.mtbf_s),
                               format_rounded(run.failures.device_mtbf_s / 3600), span_text(run.failures.restart_s)));
  const Checkpoints& checkpoints = run.checkpoints;
  std::string others;
  if (checkpoints.asynchronous) others += fmt::format("; {} if training waits for it", format_percent(answer.synchronous));
  if (run.nodes > 1) others += fmt::format("; {} if one node writes all", format_percent(answer.one_writer));
  line("checkpoint",
       fmt::format("of {} each {} steps, {} (Young {}, Daly {}): a pause of {}{}{}", format_traffic(checkpoints.bytes),
                   format_rounded(cost.interval_steps), span_text(cost.interval_steps * run.step_s), span_text(cost.young_s),
                   span_text(cost.daly_s), span_text(checkpoints.pause_s()),
                   checkpoints.asynchronous ? ", written in " + span_text(checkpoints.write_s()) : "", others));
  const int enough = cost.spares_for_99_percent;
  line("spare nodes",
       fmt::format("{} of failures find one free with {}{}; {:.3g} nodes are in repair on average, {} each",
                   run.spare_nodes ? format_percent(cost.spare_found) : "99%",
                   !run.spare_nodes && enough == max_spare_nodes ? "more than " : "",
                   format_count(run.spare_nodes.value_or(enough)), cost.mean_in_repair, span_text(run.failures.repair_s)));
  return text;
}

Json run_json(const RunAnswer& answer) {
  const TrainingRun& run = answer.run;
  const RunCost& cost = answer.cost;
  const TimeShares& shares = cost.shares;
  Json json{{"tokens", run.tokens},
            {"steps", cost.steps},
            {"days_without_failures", cost.days_without_failures},
            {"ends", cost.ends()}};
  if (cost.ends()) {
    json["days"] = cost.days;
    json["device_hours"] = cost.device_hours;
    if (run.price > 0) json["price"] = cost.money;
    if (run.price > 0) json["currency"] = answer.currency;
    if (run.watts > 0) json["energy_mwh"] = cost.megawatt_hours;
    json["failures"] = cost.failures;
  }
  if (run.watts > 0) json["power"] = {{"device_watts", run.watts}, {"host_factor", run.host_factor}, {"pue", run.pue}};
  json["goodput"] = shares.kept;
  if (answer.published) json["goodput_published"] = {{"least", answer.published->first}, {"most", answer.published->second}};
  json["lost"] = {
      {"restarts", shares.restarts}, {"work", shares.lost}, {"checkpoints", shares.checkpoints}, {"waiting", shares.waiting}};
  json["mtbf_s"] = cost.mtbf_s;
  json["device_mtbf_s"] = run.failures.device_mtbf_s;
  json["restart_s"] = run.failures.restart_s;
  json["repair_s"] = run.failures.repair_s;
  json["checkpoint"] = {{"bytes", run.checkpoints.bytes},
                        {"asynchronous", run.checkpoints.asynchronous},
                        {"pause_s", run.checkpoints.pause_s()},
                        {"write_s", run.checkpoints.write_s()},
                        {"interval_steps", cost.interval_steps},
                        {"interval_s", cost.interval_steps * run.step_s},
                        {"young_s", cost.young_s},
                        {"daly_s", cost.daly_s},
                        {"goodput_synchronous", answer.synchronous},
                        {"goodput_one_writer", answer.one_writer}};
  json["spare_nodes"] = {{"in_repair", cost.mean_in_repair}, {"for_99_percent", cost.spares_for_99_percent}};
  if (run.spare_nodes) json["spare_nodes"]["nodes"] = *run.spare_nodes;
  if (run.spare_nodes) json["spare_nodes"]["found"] = cost.spare_found;
  return json;
}

namespace {

RunAnswer answer_run(const Planned& planned) {
  return answer_run(planned.question.job, planned.request.problem, planned.use().summary);
}
bool has_run(const Planned& planned) { return wants_run(planned.question.job) && !planned.result.plans.empty(); }

}  // namespace

std::string run_text(const Planned& planned) {
  if (!has_run(planned)) return {};
  return "\n" + run_text(answer_run(planned)) + node_loss_text(planned);
}

std::vector<std::string> run_cells(const Planned& planned) {
  if (!has_run(planned)) return {};
  const RunAnswer answer = answer_run(planned);
  const RunCost& cost = answer.cost;
  if (!cost.ends()) return {"never", format_percent(cost.shares.kept), ""};
  return {days_text(cost.days), format_percent(cost.shares.kept),
          answer.run.price > 0 ? money_text(cost.money, answer.currency) : format_rounded(cost.device_hours) + " device-hours"};
}

void add_run(Json& json, const Planned& planned) {
  if (!has_run(planned)) return;
  json["run"] = run_json(answer_run(planned));
  if (planned.node_loss) json["run"]["node_lost"] = node_loss_json(*planned.node_loss);
}

}  // namespace tawpipe::answers
