// The cost of a whole training run: days, device-hours, money and energy, and what failures take.
// Not: the time of a step (search/predict.hpp) nor how a run goes on from a checkpoint (training/).
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>

namespace tawpipe::inline v0 {

/// How often a public run or cluster was interrupted unexpectedly, as hours of one device.
struct PublishedMtbf {
  std::string_view what;
  double device_hours;
  std::string_view source;
};

/// The first is the default: the longest run of that size.
inline std::span<const PublishedMtbf> published_mtbfs() {
  static constexpr double node_day = 24.0 * 8;
  static constexpr PublishedMtbf all[] = {
      {"Llama 3 405B", 16384.0 * 54 * 24 / 419,
       "arXiv:2407.21783, 3.3.4: 419 unexpected interruptions in 54 days on 16,384 H100"},
      {"RSC-1", 1000 / 6.50 * node_day, "arXiv:2410.21680: 6.50 failures in 1,000 days of a node of 8 A100"},
      {"RSC-2", 1000 / 2.34 * node_day, "arXiv:2410.21680: 2.34 failures in 1,000 days of a node of 8 A100"},
      {"RSC, jobs of 1,024", 7.9 * 1024, "arXiv:2410.21680: mean time to failure of a job on 1,024 A100, 7.9 h"},
      {"BLOOM 176B", 384.0 * 7 * 24 / 1.5, "BigScience, tr11-176B-ml: 1 to 2 failures a week on 384 A100"},
      {"OPT-175B", 992.0 * 61 * 24 / (35 + 70),
       "arXiv:2205.01068, 2.5: 35 manual and 70 automatic restarts in 2 months on 992 A100"},
  };
  return all;
}

/// When devices fail, and what follows. Times in seconds.
struct Failures {
  /// mean time between failures of one device that stop the run, times apart as of a Poisson process
  double device_mtbf_s = published_mtbfs().front().device_hours * 3600;
  /// from a failure until training goes on: detection, other nodes, start, loading. MegaScale detects
  /// and tests within 10 minutes on average (arXiv:2402.15627, 6.3), and Llama 3's more than 90 % of
  /// effective time at a failure in 3.1 h leave less than 18.
  double restart_s = 600;
  /// until a failed node is back. No public mean is known: a reset takes minutes to hours, a new part
  /// days.
  double repair_s = 86'400;
};

/// A checkpoint and how it is written.
struct Checkpoints {
  double bytes = 0;              ///< weights and optimizer states, each parameter once
  double write_bytes_per_s = 1;  ///< to storage, by all nodes together
  double copy_bytes_per_s = 1;   ///< to their hosts' memory, by all devices together
  bool asynchronous = true;      ///< written from hosts' memory while training goes on

  /// What a checkpoint takes beside its data: who writes what, and that all are done. ByteCheckpoint's
  /// stall is 0.59 s for 405 billion parameters on 8,960 GPUs (arXiv:2407.20143), of which the copy is a
  /// tenth at most.
  static constexpr double stall_s = 0.55;

  double write_s() const { return bytes / write_bytes_per_s; }
  /// For which training stops.
  double pause_s() const { return stall_s + (asynchronous ? bytes / copy_bytes_per_s : write_s()); }
  /// From then until it can be loaded.
  double delay_s() const { return asynchronous ? write_s() : 0; }
};

/// The work between checkpoints that takes the least time, in seconds, to the first order of
/// pause_s / mtbf_s. Source: J. W. Young, A First Order Approximation to the Optimum Checkpoint
/// Interval, CACM 17(9), 1974.
inline double young_interval(double pause_s, double mtbf_s) { return std::sqrt(2 * pause_s * mtbf_s); }

/// The same to a higher order; within 0.2 % of the least time where pause_s < mtbf_s / 2. Source:
/// J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS
/// 22(3), 2006.
inline double daly_interval(double pause_s, double mtbf_s) {
  const double ratio = pause_s / (2 * mtbf_s);
  if (ratio >= 1) return mtbf_s;
  return young_interval(pause_s, mtbf_s) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - pause_s;
}

/// The part of the time in which a run makes progress that is kept, where it never waits for a node.
/// Exact for failures at any moment, in checkpoints and restarts too: from a restart on, the j-th
/// checkpoint is kept if no failure comes within j (interval + pause) + delay, and a restart of mean
/// M (e^(restart/M) - 1) follows each mean time M of training. Without delay that is Daly's time.
/// @param interval_s  work between checkpoints, above 0
inline double kept_share(double interval_s, double pause_s, double delay_s, double restart_s, double mtbf_s) {
  return interval_s / mtbf_s / std::expm1((interval_s + pause_s) / mtbf_s) * std::exp(-(restart_s + delay_s) / mtbf_s);
}

namespace detail {
/// erlang_loss() of `servers` from that of one less.
inline double erlang_step(double loss, int servers, double load) { return load * loss / (servers + load * loss); }
}  // namespace detail

/// The chance that all of `servers` are busy at a mean `load`, of servers, and none queues. Source:
/// A. K. Erlang's loss formula, exact for any distribution of the service times.
/// Complexity: O(servers).
inline double erlang_loss(int servers, double load) {
  double loss = 1;
  for (int n = 1; n <= servers && loss > 0; ++n) loss = detail::erlang_step(loss, n, load);
  return loss;
}

/// A run to be trained. Times in seconds.
struct TrainingRun {
  double tokens = 0;
  double step_tokens = 0;
  double step_s = 0;
  int devices = 0;
  int nodes = 1;
  Failures failures = {};
  Checkpoints checkpoints = {};
  /// nodes that wait for others to fail, and are paid for; none: as many as are needed come from
  /// elsewhere
  std::optional<int> spare_nodes = {};
  double price = 0;  ///< of a device's hour
  double watts = 0;  ///< of a device
  /// Power of a node over that of its devices. A node of 8 H100 of 700 W takes 8.4 kW at most in
  /// training (arXiv:2412.08602), where its sheet says 10.2.
  double host_factor = 1.5;
  /// Power of the site over that of its computers: the mean of the Uptime Institute's survey of 2025;
  /// large new sites have 1.1 to 1.3.
  double pue = 1.54;
};

/// Parts of the elapsed time; together 1.
struct TimeShares {
  double kept = 0;         ///< goodput: training whose result is kept
  double checkpoints = 0;  ///< pauses for those that are kept
  double lost = 0;         ///< training and pauses that a failure undoes
  double restarts = 0;
  double waiting = 0;  ///< for a node's repair, with no spare one left
};

struct RunCost {
  double steps = 0;
  double days_without_failures = 0;
  double mtbf_s = 0;          ///< of the run: of any of its devices
  double young_s = 0;         ///< young_interval()
  double daly_s = 0;          ///< daly_interval()
  double interval_steps = 0;  ///< between checkpoints: Daly's, whole steps, and no less than a write takes
  TimeShares shares;
  double days = 0;
  double failures = 0;      ///< expected
  double device_hours = 0;  ///< spare nodes' too
  double money = 0;
  double megawatt_hours = 0;      ///< of the devices that train, with hosts and site
  double spare_found = 0;         ///< chance that a failure finds a spare node; 1 without TrainingRun::spare_nodes
  double mean_in_repair = 0;      ///< nodes
  int spares_for_99_percent = 0;  ///< the fewest with which 99 % of failures find a spare node

  /// Whether failures leave enough time to train at all: a millionth.
  bool ends() const { return shares.kept > 1e-6; }
};

/// The most spare nodes that are counted.
inline constexpr int max_spare_nodes = 1'000'000;

/// Nodes in repair are a queue without waiting room: with s spare ones a run waits while s + 1 are, and
/// its own clock of failures stands still.
/// @pre tokens, step_tokens, step_s, devices, nodes, device_mtbf_s and the rates are above 0
/// Complexity: O(spare nodes)
inline RunCost run_cost(const TrainingRun& run) {
  RunCost cost;
  const Failures& failures = run.failures;
  cost.steps = std::ceil(run.tokens / run.step_tokens);
  const double work_s = cost.steps * run.step_s;
  cost.days_without_failures = work_s / 86'400;
  cost.mtbf_s = failures.device_mtbf_s / run.devices;
  const double pause = run.checkpoints.pause_s();
  const double delay = run.checkpoints.delay_s();
  cost.young_s = young_interval(pause, cost.mtbf_s);
  cost.daly_s = daly_interval(pause, cost.mtbf_s);
  const double steps = std::max(std::round(cost.daly_s / run.step_s), std::ceil((delay - pause) / run.step_s));
  cost.interval_steps = std::clamp(steps, 1.0, cost.steps);
  const double interval = cost.interval_steps * run.step_s;

  cost.mean_in_repair = failures.repair_s / cost.mtbf_s;
  double loss = 1;  // erlang_loss() of the spare nodes
  while (loss > 0.01 && cost.spares_for_99_percent < max_spare_nodes) {
    loss = detail::erlang_step(loss, ++cost.spares_for_99_percent, cost.mean_in_repair);
  }
  const int spares = run.spare_nodes.value_or(0);
  cost.spare_found = run.spare_nodes ? 1 - erlang_loss(spares, cost.mean_in_repair) : 1;

  TimeShares& shares = cost.shares;
  shares.waiting = run.spare_nodes ? erlang_loss(spares + 1, cost.mean_in_repair) : 0;
  const double up = 1 - shares.waiting;
  shares.kept = up * kept_share(interval, pause, delay, failures.restart_s, cost.mtbf_s);
  shares.checkpoints = shares.kept * pause / interval;
  shares.restarts = up * -std::expm1(-failures.restart_s / cost.mtbf_s);
  shares.lost = std::max(0.0, up - shares.kept - shares.checkpoints - shares.restarts);

  cost.days = cost.days_without_failures / shares.kept;
  cost.failures = cost.days * 86'400 * up / cost.mtbf_s;
  const double hours = cost.days * 24;
  cost.device_hours = hours * run.devices * (run.nodes + spares) / run.nodes;
  cost.money = cost.device_hours * run.price;
  cost.megawatt_hours = hours * run.devices * run.watts * run.host_factor * run.pue / 1e6;
  return cost;
}

/// A node is lost and no spare one is left: to wait for its repair, or to train on what is left until
/// then, at the price of another restart when it is back.
struct NodeLost {
  double speed = 0;  ///< on what is left, of the whole run's
  double restart_s = 0;
  double repair_s = 0;

  /// The repair time from which it is better to go on: until then (repair - restart) at `speed` is less
  /// than the restart at full speed.
  double break_even_s() const { return restart_s * (1 + 1 / speed); }
  bool goes_on() const { return speed > 0 && repair_s > break_even_s(); }
};

}  // namespace tawpipe
