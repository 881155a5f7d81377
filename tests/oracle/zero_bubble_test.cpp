// The 72 bubble rates of table 5 of the zero-bubble paper, each to its four digits.
// Not: how its schedules behave elsewhere (unit/schedules/).
// Source: Qi et al. 2024, arXiv:2401.10241, table 5 (times measured, rates computed) and table 3
// (hidden size, heads).
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/csv.hpp"
#include "support/pipelines.hpp"
#include "tawpipe/schedules/interleaved_one_f_one_b.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/schedules/zero_bubble.hpp"
#include "tawpipe/schedules/zero_bubble_auto.hpp"

using tawpipe::FixedCost;
using tawpipe::Op;
using tawpipe::Schedule;
using tawpipe::Workload;
using namespace tawpipe::schedules;

namespace {

/// One line of the table.
class Setting {
 public:
  explicit Setting(std::map<std::string, std::string> row) : row_{std::move(row)} {}

  std::int64_t number(const std::string& column) const { return std::stoll(row_.at(column)); }
  int ranks() const { return static_cast<int>(number("ranks")); }
  int chunks() const { return static_cast<int>(number("chunks")); }
  Workload workload() const { return Workload::abstract(ranks(), number("microbatches")); }
  FixedCost cost() const {
    const auto us = [&](const char* column) { return tawpipe::Duration{number(column) * 1'000'000}; };
    return {us("forward_us"), us("backward_input_us"), us("backward_weight_us"), us("transfer_us")};
  }
  /// The paper's memory of a layer, s = 1024 tokens, a heads, hidden h, a microbatch of b: a
  /// forward keeps sb(34h + 5as), of which backward_weight needs 32sbh. Without that release, 2p
  /// activations would hold no more than 2p forwards.
  ZeroBubbleOptions planned(int limit) const {
    const auto h = static_cast<std::int32_t>(number("hidden"));
    const auto a = static_cast<std::int32_t>(number("heads"));
    return {.limit = {.activations = limit},
            .kept = {32 * h, 34 * h + 5 * a * 1024},
            .times = {number("forward_us"), number("backward_input_us"), number("backward_weight_us"), number("transfer_us")},
            .tries = 0};
  }

  void check(const std::string& schedule, double rate) const {
    CAPTURE(schedule);
    CAPTURE(row_.at("model"));
    CAPTURE(number("microbatches"));
    CAPTURE(rate);
    CHECK(std::lround(rate * 1e4) == std::lround(std::stod(row_.at(schedule)) * 1e4));
  }

 private:
  std::map<std::string, std::string> row_;
};

std::vector<Setting> table() {
  std::vector<Setting> settings;
  for (auto& row : support::read_csv(TAWPIPE_TEST_DATA "/zero_bubble/published_table5.csv")) settings.emplace_back(row);
  REQUIRE(settings.size() == 12);
  return settings;
}

/// The schedule without the dependencies on messages between the last rank and the first, but for
/// the first microbatch of each group of p.
Schedule without_max_wraps(const Schedule& schedule) {
  auto parts = schedule.parts();
  const int ranks = schedule.ranks();
  const auto stages = static_cast<int>(parts.stages.size());
  std::vector<std::uint32_t> begin{0};
  std::vector<tawpipe::TaskId> items;
  for (std::size_t t = 0; t < parts.tasks.size(); ++t) {
    const auto& task = parts.tasks[t];
    const int stage = number(task.stage);
    const bool wraps = (task.op == Op::forward && stage > 0 && stage % ranks == 0) ||
                       (task.op == Op::backward && stage + 1 < stages && (stage + 1) % ranks == 0);
    for (const auto earlier : parts.dependencies[t]) {
      const bool message = schedule.task(earlier).op == Op::pass;
      if (!(wraps && message && task.microbatch % ranks != 0)) items.push_back(earlier);
    }
    begin.push_back(static_cast<std::uint32_t>(items.size()));
  }
  parts.dependencies = {std::move(begin), std::move(items)};
  return Schedule{schedule.workload(), std::move(parts)};
}

}  // namespace

TEST_CASE("1F1B, ZB-H1 and ZB-H2 have the published bubble rates") {
  for (const Setting& setting : table()) {
    const Workload work = setting.workload();
    setting.check("1f1b", support::run_pipeline(one_f_one_b(work, setting.ranks()), setting.cost()).span_rate);
    setting.check("zb_h1", support::run_pipeline(zb_h1(work, setting.ranks()), setting.cost()).span_rate);
    setting.check("zb_h2", support::run_pipeline(zb_h2(work, setting.ranks()), setting.cost()).span_rate);
  }
}

TEST_CASE("the automatic schedule has the published bubble rates under limits of p and 2p activations") {
  for (const Setting& setting : table()) {
    const int p = setting.ranks();
    const Workload work = setting.workload();
    setting.check("zb_1p", support::run_pipeline(zb_auto(work, p, setting.planned(p)), setting.cost()).span_rate);
    setting.check("zb_2p", support::run_pipeline(zb_auto(work, p, setting.planned(2 * p)), setting.cost()).span_rate);
  }
}

TEST_CASE("interleaved 1F1B has the published bubble rates once most of its messages round the ring cost no wait") {
  for (const Setting& setting : table()) {
    const FixedCost cost = setting.cost();
    const int p = setting.ranks();
    const Schedule schedule = interleaved_one_f_one_b(setting.workload(), p, {.chunks = setting.chunks()});
    const auto relaxed = support::run_pipeline(without_max_wraps(schedule), cost);
    setting.check("1f1b_i", relaxed.span_rate);
    // What the table leaves out is p hops, no more: with every dependency kept the span is longer
    // by p c. Chunk times are rounded down to a picosecond, by which m v chunks may be short.
    const auto kept = support::run_pipeline(schedule, cost);
    const auto missing = kept.span - relaxed.span - cost.transfer * p;
    CHECK(std::abs(missing.value()) <= 2 * setting.number("microbatches") * setting.chunks());
  }
}
