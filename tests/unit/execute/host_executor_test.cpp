// Every schedule of the catalogue, executed by threads on a toy model: gradients and weights equal
// one device's.
#include "tawpipe/execute/host/executor.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/clusters.hpp"
#include "support/toy_training.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace support;
using namespace tawpipe;

namespace {

using Nodes = std::vector<std::int32_t>;

/// Whether the catalogue refuses these sizes, which is right for some.
bool refuses(const std::string& name, const ScheduleRequest& request) {
  try {
    build_schedule(name, request);
    return false;
  } catch (const InputError&) {
    return true;
  }
}

void check_equal(const ToyOutcome& outcome, const ToyOutcome& alone) {
  for (std::size_t i = 0; i < alone.losses.size(); ++i)
    CHECK(outcome.losses[i] == doctest::Approx(alone.losses[i]).epsilon(1e-12));
  CHECK(largest_difference(outcome.gradient, alone.gradient) < 1e-12);
  CHECK(largest_difference(outcome.weights, alone.weights) < 1e-12);
  CHECK(outcome.copies_differ < 1e-13);
}

}  // namespace

TEST_CASE("TawPipe, striped, with speeds or a short last round, gives the losses, gradients and weights of one device") {
  for (const std::vector<std::int32_t>& nodes : std::vector<std::vector<std::int32_t>>{{2, 2}, {2, 2, 2}, {4, 2}, {2, 3}}) {
    const DeviceGroups groups{nodes};
    for (const std::int64_t microbatches : {12, 5}) {
      const Workload work = toy_work(toy_model(11, true), microbatches, Recompute::none);  // shards of one layer and of two
      CAPTURE(groups.ranks());
      CAPTURE(microbatches);
      const ToyOutcome alone = train_by_threads(toy_alone(work), 2);
      for (const ScheduleOptions& options : std::vector<ScheduleOptions>{
               {{"stripe", "on"}}, {}, {{"speeds", concat("1+2", groups.count() == 3 ? "+1" : "")}, {"node-cache", "2"}}}) {
        const ScheduleRequest request{.workload = work, .nodes = groups, .options = options};
        check_equal(train_by_threads(build_schedule("tawpipe", request), 2), alone);
      }
    }
  }
}

TEST_CASE("every schedule gives the losses, gradients and weights of one device") {
  for (const bool tied : {true, false}) {
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      const Workload work = toy_work(toy_model(12, tied), 12, recompute);
      const ToyOutcome alone = train_by_threads(toy_alone(work), 2);
      for (const auto& info : shipped().schedules()) {
        for (const Nodes& nodes : {Nodes{2}, Nodes{1, 1}, Nodes{2, 2}, Nodes{3, 3}, Nodes{2, 2, 2}, Nodes{3, 2, 1}}) {
          const DeviceGroups groups{nodes};
          CAPTURE(std::string{info.name});
          CAPTURE(tied);
          CAPTURE(std::string{name(recompute)});
          CAPTURE(groups.ranks());
          CAPTURE(groups.count());
          const ScheduleRequest request{.workload = work, .nodes = groups, .options = {}};
          if (refuses(std::string{info.name}, request)) continue;
          check_equal(train_by_threads(build_schedule(info.name, request), 2), alone);
        }
      }
    }
  }
}

TEST_CASE("microbatches and layers that do not divide are trained exactly") {
  const Workload work = toy_work(toy_model(7, true), 8);
  const ToyOutcome alone = train_by_threads(toy_alone(work), 1);
  for (const auto& info : shipped().schedules()) {
    const ScheduleRequest request{.workload = work, .nodes = DeviceGroups{{3, 2}}, .options = {}};
    if (refuses(std::string{info.name}, request)) continue;
    CAPTURE(std::string{info.name});
    check_equal(train_by_threads(build_schedule(info.name, request), 1), alone);
  }
}

TEST_CASE("options that change what travels change no number") {
  const Workload work = toy_work(toy_model(6, true), 12);
  const ToyOutcome alone = train_by_threads(toy_alone(work), 2);
  const std::vector<std::pair<std::string, ScheduleOptions>> cases{
      {"tawpipe", {{"overlap", "off"}}},
      {"tawpipe", {{"groups", "flat"}}},
      {"tawpipe", {{"buffers", "3"}}},
      {"tawpipe", {{"buffers", "1"}}},
      {"tawpipe", {{"node-cache", "all"}}},
      {"tawpipe", {{"node-cache", "2"}}},
      {"tawpipe", {{"shards", "3"}}},
      {"tawpipe", {{"order", "paper"}}},
      {"weipipe", {{"order", "paper"}}},
      {"weipipe", {{"overlap", "off"}}},
      {"weipipe-naive", {{"overlap", "off"}}},
      {"weipipe-zb1", {{"split", "on"}}},
      {"weipipe-zb2", {{"split", "on"}, {"lines", "2"}, {"overlap", "off"}}},
      {"1f1b", {{"overlap", "on"}}},
      {"fsdp", {{"collectives", "two-level"}}},
      {"fsdp", {{"prefetch", "2"}, {"reshard", "off"}}},
  };
  for (const auto& one : cases) {
    const std::string& name = one.first;
    const ScheduleOptions& options = one.second;
    CAPTURE(name);
    CAPTURE(options.begin()->first);
    CAPTURE(options.begin()->second);
    for (const Nodes& nodes : {Nodes{2, 2}, Nodes{3, 2, 1}}) {
      check_equal(train_by_threads(build_schedule(name, {.workload = work, .nodes = DeviceGroups{nodes}, .options = options}), 2),
                  alone);
    }
  }
}

TEST_CASE("random delays change no bit") {
  const Workload work = toy_work(toy_model(6, true), 6);
  for (const std::string name : {"tawpipe", "weipipe", "zb-h1", "fsdp"}) {
    CAPTURE(name);
    const Schedule schedule = build_schedule(name, {.workload = work, .nodes = DeviceGroups{{2, 1}}, .options = {}});
    const ToyOutcome still = train_by_threads(schedule, 2);
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
      const ToyOutcome shaken = train_by_threads(schedule, 2, {.chaos = {.seed = seed, .longest_microseconds = 40}});
      CHECK(shaken.weights == still.weights);
      CHECK(shaken.losses == still.losses);
    }
  }
}

TEST_CASE("memory that is laid out for one timing serves all others") {
  const Workload work = toy_work(toy_model(6, true), 8);
  const Cluster cluster = nodes_of({2, 2});
  for (const auto& info : shipped().schedules()) {
    const std::string name{info.name};
    const ScheduleRequest request{.workload = work, .nodes = DeviceGroups{{2, 2}}, .options = {}};
    if (refuses(name, request)) continue;
    CAPTURE(name);
    const Schedule schedule = build_schedule(name, request);
    const Timeline expected = simulate(schedule, cluster, RooflineCost{});
    const ToyOutcome still = train_by_threads(schedule, 2);
    for (std::uint64_t seed = 0; seed <= 4; ++seed) {
      const ToyOutcome shaken = train_by_threads(
          schedule, 2, {.chaos = {.seed = seed, .longest_microseconds = seed == 0 ? 0 : 60}, .expected = &expected});
      CHECK(shaken.weights == still.weights);
      CHECK(shaken.losses == still.losses);
    }
  }
}

TEST_CASE("what is sent is what the simulator says") {
  // 12 layers of 12 microbatches on 4 ranks: every split is even but for the embedding's 28 + 4
  // parameters in sharded data parallelism, where rounding to whole numbers differs from rounding
  // to whole bytes by less than a number a message.
  const Workload work = toy_work(toy_model(12, false), 12);
  const Nodes nodes{2, 2};
  const Cluster cluster = nodes_of({2, 2});
  for (const auto& info : shipped().schedules()) {
    const ScheduleRequest request{.workload = work, .nodes = DeviceGroups{nodes}, .options = {}};
    if (refuses(std::string{info.name}, request)) continue;
    CAPTURE(std::string{info.name});
    const Schedule schedule = build_schedule(info.name, request);
    const Traffic predicted = traffic(schedule, cluster);
    const ToyOutcome outcome = train_by_threads(schedule, 1);
    for (std::size_t r = 0; r < 4; ++r) CHECK(outcome.results[0].sent[r].total() == predicted.rank_sent_bytes[r]);
  }
}

TEST_CASE("clipping scales the whole gradient on every rank alike") {
  const Workload work = toy_work(toy_model(6, true), 6);
  const ToyOutcome alone = train_by_threads(toy_alone(work), 2, {}, 0.5);
  double square = 0;
  for (const double g : train_by_threads(toy_alone(work), 1).gradient) square += g * g;
  CHECK(alone.results[0].gradient_norm == doctest::Approx(std::sqrt(square)).epsilon(1e-12));
  REQUIRE(std::sqrt(square) > 0.5);  // so it is clipped
  for (const auto& info : shipped().schedules()) {
    const ScheduleRequest request{.workload = work, .nodes = DeviceGroups{{2, 1}}, .options = {}};
    if (refuses(std::string{info.name}, request)) continue;
    CAPTURE(std::string{info.name});
    const Schedule schedule = with_gradient_norm(build_schedule(info.name, request));
    const ToyOutcome outcome = train_by_threads(schedule, 2, {}, 0.5);
    CHECK(outcome.results[1].gradient_norm == doctest::Approx(alone.results[1].gradient_norm).epsilon(1e-12));
    check_equal(outcome, alone);
  }
}

TEST_CASE("a layer that throws ends the iteration with its message") {
  struct Throwing : ToyLayer<double> {
    using ToyLayer<double>::ToyLayer;
    void backward(const BackwardArgs& args) const {
      if (args.microbatch == 3) throw DeviceError("microbatch 3 cannot be computed");
      ToyLayer<double>::backward(args);
    }
  };
  const Workload work = toy_work(toy_model(6, true), 6);
  const Schedule schedule = build_schedule("tawpipe", {.workload = work, .nodes = DeviceGroups{{2, 2}}, .options = {}});
  host::HostExecutor<double, Throwing, ToyOptimizer<double>> executor{schedule, [&] { return Throwing{work.model()}; }, {}};
  CHECK_THROWS_WITH_AS(executor.run(ToyTokens{7}, {}), "microbatch 3 cannot be computed", DeviceError);
}

TEST_CASE("clipping without the sum of squares is refused") {
  const Workload work = toy_work(toy_model(6, true), 6);
  const Schedule schedule = build_schedule("tawpipe", {.workload = work, .nodes = DeviceGroups{{2, 2}}, .options = {}});
  ToyHostExecutor executor{schedule, [&] { return ToyLayer<double>{work.model()}; }, {}};
  CHECK_THROWS_AS(executor.run(ToyTokens{7}, {.gradient_clip = 1}), InputError);
}
