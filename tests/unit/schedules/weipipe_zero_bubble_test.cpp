// Tests of schedules/weipipe_zero_bubble.hpp: closed forms of time, messages and memory, and
// options.
// Not: what every schedule must do (properties/).
#include "tawpipe/schedules/weipipe_zero_bubble.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace tawpipe::literals;
using tawpipe::DeviceGroups;
using tawpipe::FixedCost;
using tawpipe::Op;
using tawpipe::Payload;
using tawpipe::Schedule;
using tawpipe::Workload;
using tawpipe::schedules::Order;
using tawpipe::schedules::weipipe_zb1;
using tawpipe::schedules::weipipe_zb2;

namespace {

const FixedCost line_times[] = {{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 0_s},
                                {.forward = 3_s, .backward_input = 5_s, .backward_weight = 2_s, .transfer = 0_s},
                                {.forward = 2_s, .backward_input = 1_s, .backward_weight = 7_s, .transfer = 0_s},
                                {.forward = 4_s, .backward_input = 1_s, .backward_weight = 0_s, .transfer = 0_s}};

tawpipe::Duration sum(const FixedCost& cost) { return cost.forward + cost.backward_input + cost.backward_weight; }
tawpipe::Duration longest(const FixedCost& cost) { return std::max({cost.forward, cost.backward_input, cost.backward_weight}); }

std::int64_t messages(const Schedule& schedule, Payload payload) {
  return std::ranges::count_if(schedule.tasks(), [&](const auto& task) { return task.payload == payload; });
}

}  // namespace

TEST_CASE("one line takes AP(F + B + W) + (P-1) max(F, B, W), with whole backwards max(F, B + W)") {
  for (int p = 1; p <= 16; ++p) {
    for (int a = 1; a <= 4; ++a) {
      const Schedule schedule = weipipe_zb1(Workload::abstract(p, a * p), p, {.order = Order::paper});
      const Schedule whole = weipipe_zb1(Workload::abstract(p, a * p), p, {.order = Order::paper, .split = false});
      for (const FixedCost& cost : line_times) {
        CAPTURE(p);
        CAPTURE(a);
        const auto cluster = support::cluster(p);
        CHECK(simulate(schedule, cluster, cost).makespan() == sum(cost) * (a * p) + longest(cost) * (p - 1));
        const auto longer = std::max(cost.forward, cost.backward_input + cost.backward_weight);
        CHECK(simulate(whole, cluster, cost).makespan() == sum(cost) * (a * p) + longer * (p - 1));
      }
    }
  }
}

TEST_CASE("several lines take AP(F + B + W) + (G-1) max(F, B, W), with ranks in lines of at most G") {
  for (const auto& sizes : {std::vector<std::int32_t>{2, 2}, {4, 4, 4}, {3, 2, 1}, {1, 1, 1, 1, 1}, {1, 5}, {8, 8}}) {
    const DeviceGroups lines{sizes};
    const int p = lines.ranks();
    for (int a = 1; a <= 3; ++a) {
      const Schedule schedule = weipipe_zb2(Workload::abstract(p, a * p), lines, {.order = Order::paper});
      for (const FixedCost& cost : line_times) {
        CAPTURE(p);
        CAPTURE(lines.largest());
        CAPTURE(a);
        CHECK(simulate(schedule, support::cluster(p), cost).makespan() ==
              sum(cost) * (a * p) + longest(cost) * (lines.largest() - 1));
      }
    }
  }
}

TEST_CASE("with equal times no rank waits between its first and its last computation") {
  for (int p = 1; p <= 12; ++p) {
    CAPTURE(p);
    const Schedule schedule = weipipe_zb1(Workload::abstract(p, 3 * p), p, {.order = Order::paper});
    const auto timeline = simulate(schedule, support::cluster(p), line_times[0]);
    std::vector<tawpipe::TimePoint> first(static_cast<std::size_t>(p), tawpipe::TimePoint{} + timeline.makespan());
    std::vector<tawpipe::TimePoint> last(static_cast<std::size_t>(p));
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      const auto& task = schedule.tasks()[t];
      if (!tawpipe::is_work(task.op) || task.op == Op::update) continue;
      const auto r = tawpipe::index(task.rank);
      first[r] = std::min(first[r], timeline.start[t]);
      last[r] = std::max(last[r], timeline.end[t]);
    }
    for (std::size_t r = 0; r < first.size(); ++r) {
      CHECK(first[r] - tawpipe::TimePoint{} == 1_s * static_cast<std::int64_t>(r));  // one forward later than the previous rank
      CHECK(last[r] - first[r] == 9_s * p);  // three microbatches of P chunks of F, B and W
    }
  }
}

TEST_CASE("eager order is never slower than in turns, and without communication cost has no bubble to speak of") {
  for (int p = 1; p <= 12; ++p) {
    for (const FixedCost& cost : line_times) {
      CAPTURE(p);
      const auto cluster = support::cluster(p);
      const Workload work = Workload::abstract(p, 2 * p);
      const auto eager = simulate(weipipe_zb1(work, p, {.order = Order::eager, .split = true}), cluster, cost).makespan();
      CHECK(eager <= simulate(weipipe_zb1(work, p, {.order = Order::paper}), cluster, cost).makespan());
      // Weights go down the line before anybody has used them, so that all ranks start at once.
      CHECK(eager == sum(cost) * (2 * p));
      CHECK(simulate(weipipe_zb1(work, p, {.order = Order::eager, .split = false}), cluster, cost).makespan() == eager);
    }
  }
}

TEST_CASE("every rank gets each chunk of others once each way, and each sum ends at its owner") {
  for (int p = 1; p <= 9; ++p) {
    for (int n = 1; n <= 3 * p + 1; ++n) {
      CAPTURE(p);
      CAPTURE(n);
      for (int count = 1; count <= p; ++count) {
        const DeviceGroups lines = DeviceGroups::even(p, count);
        const Schedule schedule = weipipe_zb2(Workload::abstract(p, n), lines, {.order = Order::eager, .split = true});
        // n microbatches meet P chunks each way, and one of the P lies on their rank.
        CHECK(messages(schedule, Payload::weights) == 2 * n * (p - 1));
        // Each of the n P contributions travels once with its sum, but for that of the owner where
        // the sum of its line ends: one chunk for each line and round.
        int ends = 0;
        for (int u = 0; u * p < n; ++u) {
          for (int line = 0; line < count; ++line) ends += lines.first(line) < n - u * p ? 1 : 0;
        }
        CHECK(messages(schedule, Payload::gradients) == n * p - ends);
      }
    }
  }
}

TEST_CASE("a rank holds the activations of one microbatch") {
  const int p = 5;
  const Schedule schedule = weipipe_zb1(Workload::abstract(p, 4 * p), p, {.order = Order::eager, .split = true});
  std::vector<int> held(static_cast<std::size_t>(p), 0);
  int most = 0;
  for (const auto& task : schedule.tasks()) {
    int& now = held[tawpipe::index(task.rank)];
    if (task.op == Op::forward) most = std::max(most, ++now);
    if (task.op == Op::backward_weight) --now;
  }
  CHECK(most == p);  // chunks of one microbatch
}

TEST_CASE("with recomputation a split backward keeps a stash, a whole one does not") {
  const int p = 3;
  const Workload work{tawpipe::models::named("llama-48x1024"),
                      {.sequence = 128, .microbatch_size = 1, .global_batch = 2 * p},
                      tawpipe::Recompute::full};
  const auto kept = [&](bool split) {
    const Schedule schedule = weipipe_zb1(work, p, {.split = split});
    return std::ranges::count_if(schedule.buffers(), [](const auto& buffer) {
      return !buffer.persistent && buffer.kind() == tawpipe::BufferKind::activations;
    });
  };
  // The data that forwards save, plus the data that backward_inputs leave: each of 2p microbatches
  // in p chunks.
  CHECK(kept(false) == 2 * p * p);
  CHECK(kept(true) == 4 * p * p);
}

TEST_CASE("every option that it was built with is recorded") {
  const std::vector<std::pair<std::string, std::string>> expected{{"order", "paper"}, {"overlap", "off"}, {"split", "on"}};
  const Schedule one = weipipe_zb1(Workload::abstract(4, 4), 4, {.order = Order::paper, .overlap = false});
  CHECK(one.options() == expected);
  CHECK(one.name() == "weipipe-zb1");
  CHECK(one.lanes().size() == 1);
  CHECK(weipipe_zb1(Workload::abstract(4, 4), 4).lanes().size() == 9);
  const std::vector<std::pair<std::string, std::string>> with_lines{
      {"order", "eager"}, {"overlap", "on"}, {"split", "off"}, {"lines", "nodes"}};
  const Schedule two = weipipe_zb2(Workload::abstract(4, 4), DeviceGroups{{3, 1}}, {.order = Order::eager, .split = false});
  CHECK(weipipe_zb2(Workload::abstract(4, 4), DeviceGroups{{2, 2}}).options().back().second == "2");
  CHECK(two.options() == with_lines);
  CHECK(two.name() == "weipipe-zb2");
}
