// Tests of analysis/run_cost.hpp: its formulas against a run simulated event by event, and against what
// was published of runs.
// Not: what the command makes of it (tests/cli/run_cost_test.cpp).
#include "tawpipe/analysis/run_cost.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/random.hpp"

using namespace tawpipe;
using doctest::Approx;

namespace {

struct Regime {
  double interval_s;
  double pause_s;
  double delay_s;
  double restart_s;
  double mtbf_s;
  int spares = -1;  ///< < 0: always one
  double repair_s = 0;
  bool fixed_repair = false;
};

struct Simulated {
  double kept = 0;  ///< parts of the elapsed time
  double restarts = 0;
  double checkpoints = 0;
  double waiting = 0;
  double found = 0;  ///< part of the failures that found a spare node
};

/// A run of so many failures, event by event: computing, pauses, writes in the background, failures in
/// each of them, restarts that fail, nodes in repair.
Simulated simulate(const Regime& r, int failures, std::uint64_t seed) {
  support::Random random{seed};
  const auto after = [&](double mean) { return -mean * std::log1p(-random.real(0, 1)); };
  const double never = std::numeric_limits<double>::infinity();
  double now = 0;
  double restarts = 0;
  double waiting = 0;
  int found = 0;
  double kept = 0;  // work in the newest checkpoint that can be loaded
  int kept_checkpoints = 0;
  std::vector<double> back;  // when nodes in repair are back
  for (int failure = 0; failure < failures; ++failure) {
    std::erase_if(back, [&](double at) { return at <= now; });
    found += r.spares < 0 || static_cast<int>(back.size()) < r.spares;
    if (r.spares >= 0) back.push_back(now + (r.fixed_repair ? r.repair_s : after(r.repair_s)));
    if (r.spares >= 0 && static_cast<int>(back.size()) > r.spares) {
      const double first = *std::min_element(back.begin(), back.end());
      waiting += first - now;
      now = first;
    }
    const double fails = now + after(r.mtbf_s);
    const double started = std::min(fails, now + r.restart_s);
    restarts += started - now;
    now = started;
    double work = kept;
    double until = work + r.interval_s;  // work at the next checkpoint
    double pause_ends = never;
    double written = never;  // when the checkpoint that is being written is done
    double writing = 0;
    int taken = kept_checkpoints;
    while (now < fails) {
      const double full = pause_ends < never ? never : now + (until - work);
      const double next = std::min({full, pause_ends, written, fails});
      if (pause_ends == never) work += next - now;
      now = next;
      if (now == fails) break;
      if (now == written) {
        kept = writing;
        kept_checkpoints = taken;
        written = never;
      } else if (now == pause_ends) {
        pause_ends = never;
        writing = work;
        ++taken;
        written = now + r.delay_s;
        until = work + r.interval_s;
      } else {
        work = until;
        pause_ends = now + r.pause_s;
      }
    }
  }
  return {kept / now, restarts / now, kept_checkpoints * r.pause_s / now, waiting / now, static_cast<double>(found) / failures};
}

/// A run whose steps are its intervals, so that nothing is rounded.
TrainingRun run_of(const Regime& r) {
  TrainingRun run{.tokens = 1e9, .step_tokens = 1, .step_s = r.interval_s, .devices = 64, .nodes = 8};
  run.failures = {r.mtbf_s * 64, r.restart_s, r.repair_s};
  run.checkpoints = {.bytes = 1, .write_bytes_per_s = 1 / (r.pause_s - Checkpoints::stall_s), .asynchronous = false};
  if (r.delay_s > 0) {
    run.checkpoints = {.bytes = 1, .write_bytes_per_s = 1 / r.delay_s, .asynchronous = true};
    run.checkpoints.copy_bytes_per_s = 1 / (r.pause_s - Checkpoints::stall_s);
  }
  if (r.spares >= 0) run.spare_nodes = r.spares;
  return run;
}

/// Llama 3's 405 billion parameters on 16,384 H100: 15.6 T tokens, 16 M a step, 400 TFLOPS a device of
/// 3.8e25 FLOPs (arXiv:2407.21783, 3.2 and table 4), storage of 2 TB/s (3.3.1).
TrainingRun llama_3() {
  TrainingRun run{.tokens = 15.6e12, .step_tokens = 16'777'216, .devices = 16'384, .nodes = 2048, .price = 2.5, .watts = 700};
  run.step_s = 3.8e25 / (run.tokens / run.step_tokens) / (16'384 * 400e12);
  run.checkpoints = {.bytes = 405e9 * 14, .write_bytes_per_s = 2e12, .copy_bytes_per_s = 16'384 * 24e9};
  return run;
}

}  // namespace

TEST_CASE("the parts of a run's time are those of one that is simulated event by event") {
  const Regime regimes[] = {
      {600, 20, 0, 300, 36'000},                    // rare failures
      {600, 120, 0, 600, 3'600},                    // many
      {200, 300, 0, 900, 900},                      // more failures than checkpoints
      {120, 1, 0, 600, 11'000},                     // Llama 3's
      {600, 20, 300, 300, 7'200},                   // written in the background
      {200, 5, 190, 600, 2'000},                    // without a break
      {600, 20, 0, 300, 36'000, 0, 18'000},         // each failure waits
      {600, 20, 0, 300, 3'600, 2, 7'200},           // spare nodes
      {600, 20, 200, 300, 3'600, 3, 14'400, true},  // repairs of a fixed time
      {600, 20, 0, 300, 3'600, 12, 14'400},         // enough of them
  };
  std::uint64_t seed = 1;
  for (const Regime& r : regimes) {
    CAPTURE(r.interval_s);
    CAPTURE(r.mtbf_s);
    CAPTURE(r.spares);
    const Simulated simulated = simulate(r, 60'000, seed++);
    TrainingRun run = run_of(r);
    const RunCost cost = run_cost(run);
    // The interval that was simulated, not Daly's.
    const double up = 1 - cost.shares.waiting;
    const double kept = up * kept_share(r.interval_s, r.pause_s, r.delay_s, r.restart_s, r.mtbf_s);
    CHECK(kept == Approx(simulated.kept).epsilon(0.015));
    CHECK(std::fabs(kept * r.pause_s / r.interval_s - simulated.checkpoints) < 0.003);
    CHECK(std::fabs(cost.shares.restarts - simulated.restarts) < 0.003);
    CHECK(std::fabs(cost.shares.waiting - simulated.waiting) < 0.006);
    CHECK(std::fabs(cost.spare_found - simulated.found) < 0.01);
  }
}

TEST_CASE("the shares of a run's time add up, and with the interval that is used too it is as simulated") {
  Regime r{60, 20, 0, 300, 7'200};
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    if (asynchronous) r.delay_s = 400;
    const RunCost cost = run_cost(run_of(r));
    const TimeShares& s = cost.shares;
    CHECK(s.kept + s.checkpoints + s.lost + s.restarts + s.waiting == Approx(1));
    CHECK(cost.interval_steps == std::round(cost.daly_s / 60));
    Regime used = r;
    used.interval_s = cost.interval_steps * 60;
    const Simulated simulated = simulate(used, 60'000, 7);
    CHECK(s.kept == Approx(simulated.kept).epsilon(0.01));
    CHECK(std::fabs(s.checkpoints - simulated.checkpoints) < 0.002);
  }
}

TEST_CASE("Young's and Daly's intervals are the best ones, as far as they claim") {
  for (const double ratio : {1e-6, 1e-4, 1e-2, 0.1, 0.3, 0.5}) {  // of a pause to the time between failures
    CAPTURE(ratio);
    const double mtbf = 10'000;
    const double pause = ratio * mtbf;
    const auto kept = [&](double interval) { return kept_share(interval, pause, 0, 600, mtbf); };
    double best = 0;  // of intervals a 1,000th apart
    for (double interval = pause / 100; interval < 20 * mtbf; interval *= 1.001) best = std::max(best, kept(interval));
    CHECK(kept(daly_interval(pause, mtbf)) >= best * 0.998);
    CHECK(kept(daly_interval(pause, mtbf)) <= best * 1.000001);
    if (ratio <= 1e-4) CHECK(kept(young_interval(pause, mtbf)) >= best * 0.9999);
    if (ratio >= 0.1) CHECK(kept(young_interval(pause, mtbf)) < kept(daly_interval(pause, mtbf)));
  }
  CHECK(daly_interval(3, 1) == 1);  // pauses longer than twice the time between failures
  CHECK(young_interval(2, 100) == Approx(20));
}

TEST_CASE("an asynchronous checkpoint is no more frequent than its write allows, and not lost by that") {
  TrainingRun run = llama_3();
  run.checkpoints.write_bytes_per_s = 50e9;  // 113 s a write
  const RunCost slow = run_cost(run);
  CHECK(slow.interval_steps * run.step_s >= run.checkpoints.write_s() - run.checkpoints.pause_s());
  CHECK(slow.daly_s < slow.interval_steps * run.step_s);
  run.checkpoints.asynchronous = false;
  CHECK(run_cost(run).shares.kept < slow.shares.kept);
  run.checkpoints.write_bytes_per_s = 1e9;  // one node writes all
  CHECK(run_cost(run).shares.kept < run_cost(llama_3()).shares.kept / 2);
}

TEST_CASE("Llama 3: its failures, effective time and device-hours") {
  const RunCost cost = run_cost(llama_3());
  CHECK(cost.mtbf_s == Approx(54 * 86'400.0 / 419));
  CHECK(cost.shares.kept > 0.90);  // "higher than 90 % effective training time"
  CHECK(cost.shares.kept < 0.97);
  CHECK(cost.failures == Approx(cost.days / 54 * 419));
  CHECK(cost.device_hours == Approx(30.84e6).epsilon(0.1));  // the model card's
  CHECK(cost.money == Approx(cost.device_hours * 2.5));
  CHECK(cost.days * 24 * 16'384 == Approx(cost.device_hours));
  CHECK(cost.megawatt_hours == Approx(cost.device_hours * 700 * 1.5 * 1.54 / 1e6));
}

TEST_CASE("the published failure rates give the published times") {
  const auto hours = [](std::size_t i) { return published_mtbfs()[i].device_hours; };
  CHECK(hours(1) / 16'384 == Approx(1.8).epsilon(0.01));  // arXiv:2410.21680, of 16,384 GPUs at RSC-1's rate
  CHECK(hours(3) / 1024 == Approx(7.9));
  for (const PublishedMtbf& one : published_mtbfs()) {
    CAPTURE(one.what);
    CHECK(one.device_hours > 8'000);
    CHECK(one.device_hours < 90'000);
  }
  TrainingRun run = llama_3();
  run.failures.device_mtbf_s = hours(3) * 3600;  // the worst of the table
  const double worst = run_cost(run).shares.kept;
  run.failures.device_mtbf_s = hours(2) * 3600;
  const double best = run_cost(run).shares.kept;
  CHECK(worst < 0.75);
  CHECK(best > 0.94);
}

TEST_CASE("other runs: ByteRobust, MegaScale, ByteCheckpoint, BLOOM") {
  TrainingRun run = llama_3();
  run.devices = 9'600;  // arXiv:2509.16293: 97 % of the time effective in three months
  run.nodes = 1'200;
  CHECK(run_cost(run).shares.kept == Approx(0.97).epsilon(0.03));
  run.devices = 12'288;  // arXiv:2402.15627: over 90 %
  run.nodes = 1'536;
  CHECK(run_cost(run).shares.kept > 0.90);
  const Checkpoints byte{.bytes = 405e9 * 14, .write_bytes_per_s = 1e11, .copy_bytes_per_s = 8'960 * 24e9};
  CHECK(byte.pause_s() == Approx(0.59).epsilon(0.05));  // arXiv:2407.20143: 405 B parameters on 8,960 GPUs
  // BigScience's chronicles: a checkpoint every 3 h, so that a failure loses 1.5 h; four spare nodes.
  const double mtbf = published_mtbfs()[4].device_hours / 384 * 3600;
  const double kept = kept_share(3 * 3600, 40, 0, 600, mtbf);
  CHECK((1 - kept) * mtbf == Approx(1.5 * 3600 + 600 + 40 / 3.0 / 3600 * mtbf).epsilon(0.03));
  CHECK(1 - erlang_loss(4, 86'400 / mtbf) > 0.999);
  // arXiv:2211.02001: 1,082,990 hours of A100 of 400 W are 433 MWh, without hosts and site.
  TrainingRun bloom{.tokens = 1, .step_tokens = 1, .step_s = 1'082'990.0 / 384 * 3600, .devices = 384, .nodes = 48, .watts = 400};
  bloom.host_factor = bloom.pue = 1;
  bloom.failures = {1e15, 0, 0};
  bloom.checkpoints.bytes = 1e-9;
  CHECK(run_cost(bloom).megawatt_hours == Approx(433.196).epsilon(1e-3));
}

TEST_CASE("spare nodes: found, waited for, and paid") {
  CHECK(erlang_loss(0, 3) == 1);
  CHECK(erlang_loss(1, 1) == Approx(0.5));
  CHECK(erlang_loss(2, 1) == Approx(0.2));
  CHECK(erlang_loss(max_spare_nodes, 3) == 0);
  TrainingRun run = llama_3();
  const RunCost enough = run_cost(run);
  CHECK(enough.mean_in_repair == Approx(86'400 / enough.mtbf_s));
  CHECK(enough.shares.waiting == 0);
  run.spare_nodes = enough.spares_for_99_percent;
  const RunCost found = run_cost(run);
  CHECK(found.spare_found >= 0.99);
  CHECK(found.shares.waiting < 0.01);
  CHECK(found.device_hours == Approx(found.days * 24 * (16'384 + 8 * enough.spares_for_99_percent)));
  run.spare_nodes = enough.spares_for_99_percent - 1;
  CHECK(run_cost(run).spare_found < 0.99);
  run.spare_nodes = 0;
  const RunCost none = run_cost(run);
  CHECK(none.spare_found == 0);
  CHECK(none.shares.waiting > 0.8);  // a day's repair each three hours of training
  CHECK(none.days > 5 * enough.days);
}

TEST_CASE("with a node less it is better to go on if the repair takes long") {
  const NodeLost lost{.speed = 0.5, .restart_s = 600, .repair_s = 86'400};
  CHECK(lost.break_even_s() == Approx(1800));
  CHECK(lost.goes_on());
  CHECK_FALSE(NodeLost{.speed = 0.5, .restart_s = 600, .repair_s = 1700}.goes_on());
  CHECK_FALSE(NodeLost{.speed = 0, .restart_s = 600, .repair_s = 1e9}.goes_on());
}

TEST_CASE("what never ends says so, and what never fails costs nothing more") {
  TrainingRun run = llama_3();
  run.failures.device_mtbf_s = 3600;  // a failure each 0.2 s
  CHECK_FALSE(run_cost(run).ends());
  run.failures.device_mtbf_s = 1e15;
  const RunCost cost = run_cost(run);
  CHECK(cost.ends());
  CHECK(cost.days == Approx(cost.days_without_failures).epsilon(1e-3));
  CHECK(cost.failures < 1);
  CHECK(cost.interval_steps <= cost.steps);
}
