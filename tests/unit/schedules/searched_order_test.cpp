// Tests of schedules/searched_order.hpp: the pipelines that take order=searched, in the memory and
// the times that they are told.
// Not: the search (order_search_test.cpp).
#include "tawpipe/schedules/searched_order.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/pipelines.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe::literals;
using tawpipe::build_schedule;
using tawpipe::DeviceGroups;
using tawpipe::FixedCost;
using tawpipe::InputError;
using tawpipe::Op;
using tawpipe::Schedule;
using tawpipe::ScheduleOptions;
using tawpipe::Workload;

namespace {

const std::vector<std::string> names{"interleaved-zb", "zb-auto", "zb-v", "v-half", "v-min"};

Schedule build_order(const std::string& name, const Workload& workload, int ranks, ScheduleOptions options) {
  return build_schedule(name, {workload, DeviceGroups::even(ranks, 1), std::move(options)});
}

/// The most stages' activations that a rank holds at once, to the end of their backward_weight.
int max_stages_held(const Schedule& schedule) {
  int most = 0;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    int held = 0;
    for (const auto task : schedule.program(tawpipe::Rank{rank}, 0)) {
      if (schedule.task(task).op == Op::forward) most = std::max(most, ++held);
      if (schedule.task(task).op == Op::backward_weight) --held;
    }
  }
  return most;
}

}  // namespace

TEST_CASE("a searched order is never slower than the paper's, in its memory") {
  for (const auto& name : names) {
    for (const int p : {2, 4, 6}) {
      for (const int m : {3, 12}) {
        CAPTURE(name);
        CAPTURE(p);
        CAPTURE(m);
        const Workload work = Workload::abstract(p, m);
        const FixedCost cost{300_s, 400_s, 200_s, 6_s};
        const Schedule paper = build_order(name, work, p, {});
        const Schedule searched =
            build_order(name, work, p, {{"order", "searched"}, {"times", "300:400:200:6"}, {"moves", "300"}});
        CHECK(support::run_pipeline(searched, cost).makespan <= support::run_pipeline(paper, cost).makespan);
        CHECK(max_stages_held(searched) <= (name == "zb-auto" ? 2 * p : max_stages_held(paper)));
        CHECK(tawpipe::validate(searched).ok());
      }
    }
  }
}

TEST_CASE("a searched order holds no more than it is told, and gets slower with less") {
  for (const auto& name : names) {
    const int stages = name == "zb-auto" ? 1 : 2;
    std::int64_t before = 0;
    for (const int limit : {6, 4, 2, 1}) {
      CAPTURE(name);
      CAPTURE(limit);
      const Schedule schedule = build_order(name, Workload::abstract(4, 12), 4,
                                            {{"order", "searched"}, {"memory-limit", std::to_string(limit)}, {"moves", "400"}});
      CHECK(max_stages_held(schedule) <= limit * stages);
      const auto makespan = support::run_pipeline(schedule, {20_s, 20_s, 20_s, 0_s}).makespan.value();
      CHECK(makespan >= before);
      before = makespan;
    }
  }
  // a size: of a microbatch 1 MB, half of it on each of two stages
  CHECK(max_stages_held(
            build_order("v-half", Workload::abstract(4, 12), 4, {{"order", "searched"}, {"memory-limit", "2500KB"}})) == 5);
}

TEST_CASE("orders of real models are searched by their stages' operations and activations") {
  const Workload work = support::transformer(13, 9);
  for (const auto& name : names) {
    CAPTURE(name);
    const Schedule schedule = build_order(name, work, 4, {{"order", "searched"}, {"moves", "100"}});
    CHECK(tawpipe::validate(schedule).ok());
    const Schedule again = build_order(name, work, 4, {{"order", "searched"}, {"moves", "100"}});
    CHECK(std::equal(schedule.tasks().begin(), schedule.tasks().end(), again.tasks().begin(), again.tasks().end(),
                     [](const tawpipe::Task& one, const tawpipe::Task& other) {
                       return one.op == other.op && one.stage == other.stage && one.microbatch == other.microbatch;
                     }));
  }
}

TEST_CASE("in its own memory a searched order takes no more than the paper's, with what backward_input leaves") {
  const Workload work = support::transformer(16, 16);  // recomputes: it saves little and leaves much
  for (const auto& name : {"interleaved-zb", "zb-v", "v-half", "v-min"}) {
    CAPTURE(name);
    const auto most = [&](const ScheduleOptions& options) {
      const Schedule schedule = build_order(name, work, 4, options);
      tawpipe::Bytes peak;
      const auto timeline = tawpipe::simulate(schedule, support::cluster(4), FixedCost{30_s, 31_s, 18_s, 0_s});
      for (const auto& rank : tawpipe::peak_memory(schedule, timeline)) peak = std::max(peak, rank.total);
      return static_cast<double>(peak.value());
    };
    // messages that wait are counted too, and they are not limited
    CHECK(most({{"order", "searched"}, {"moves", "300"}}) <= 1.2 * most({}));
  }
}

TEST_CASE("what only a search takes is refused without one, and a limit below one microbatch") {
  for (const auto& name : {"interleaved-zb", "zb-v", "v-half", "v-min"}) {
    for (const ScheduleOptions& options : {ScheduleOptions{{"memory-limit", "3"}}, {{"times", "1:1:1:0"}}, {{"moves", "5"}}}) {
      CHECK_THROWS_WITH_AS(build_order(name, Workload::abstract(4, 8), 4, options),
                           (std::string{"memory-limit, times and moves of "} + name + " are for order=searched").c_str(),
                           InputError);
    }
    CHECK_THROWS_WITH_AS(build_order(name, Workload::abstract(4, 8), 4, {{"order", "searched"}, {"memory-limit", "1KB"}}),
                         "the memory limit of a zero-bubble pipeline must hold at least one microbatch's activations",
                         InputError);
    CHECK_THROWS_WITH_AS(build_order(name, Workload::abstract(4, 8), 4, {{"order", "best"}}),
                         (std::string{"option order=best of "} + name + ": the value must be one of paper, searched").c_str(),
                         InputError);
    CHECK_THROWS_AS(build_order(name, Workload::abstract(4, 8), 4, {{"order", "searched"}, {"memory-limit", "all"}}), InputError);
  }
  CHECK_THROWS_WITH_AS(build_order("zb-auto", Workload::abstract(4, 8), 4, {{"moves", "5"}}),
                       "moves of zb-auto are for order=searched, others for tries", InputError);
}
