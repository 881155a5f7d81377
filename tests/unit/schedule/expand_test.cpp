// Bodies written out: whose steps run where and when, and that nothing else of a composed schedule
// changes.
#include "tawpipe/schedule/expand.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/simulate/simulate.hpp"

namespace expand_test {

using namespace tawpipe;

namespace {

Transformer model() {
  return {.name = "m", .layers = 4, .hidden = 256, .heads = 8, .kv_heads = 4, .intermediate = 512, .vocab = 1000, .tied = false};
}
Workload work(std::int64_t microbatches) {
  return Workload{model(), Batch{.sequence = 128, .microbatch_size = 1, .global_batch = microbatches}, Recompute::none};
}

/// Two pipeline stages, each shared by tensor x context ranks.
Schedule composed(const char* name, const Sharing& sharing) {
  Workload one = work(3);
  one.over_devices(2);
  const Schedule logical = build_schedule(name, {.workload = one, .nodes = DeviceGroups{{2}}, .options = {}});
  const Mesh mesh = Mesh{.tensor = sharing.tensor, .context = sharing.context}.over(2 * sharing.ranks());
  Composition with;
  with.stages = share_stages(model(), one.batch(), one.recompute(), logical.stages(), sharing);
  return compose(logical, one, mesh, with);
}

constexpr FixedCost costs{Duration{1'000'000'000}, Duration{1'000'000'000}, Duration{1'000'000'000}, Duration{}};

}  // namespace

TEST_CASE("where messages take no time, shared stages take as long as whole ones") {
  for (const char* name : {"1f1b", "zb-h1"}) {
    const Cluster cluster = support::cluster(16, 16);
    Workload one = work(3);
    one.over_devices(2);
    const Schedule logical = build_schedule(name, {.workload = one, .nodes = DeviceGroups{{2}}, .options = {}});
    const double expected = to_seconds(simulate(logical, cluster, costs).makespan());
    for (const Sharing& sharing :
         {Sharing{.tensor = 2}, Sharing{.tensor = 2, .context = 2}, Sharing{.context = 4, .exchange = ContextExchange::ring},
          Sharing{.context = 4, .exchange = ContextExchange::two_level, .inner = 2}}) {
      const Schedule schedule = composed(name, sharing);
      REQUIRE(has_bodies(schedule));
      const ExpandedSchedule steps = expand_bodies(schedule);
      CHECK(to_seconds(simulate(steps.schedule, cluster, costs).makespan()) == doctest::Approx(expected).epsilon(1e-9));
    }
  }
}

TEST_CASE("on two levels each rank sends to its neighbours, and round a ring of their groups") {
  using Kind = BodyStep::Kind;
  const auto sizes = [](Kind kind, std::int32_t inner) {
    std::vector<std::int64_t> values;
    for (const Bytes size : detail::pairs_of({.kind = kind, .inner = inner, .bytes = Bytes{8}}, 4))
      values.push_back(size.value());
    return values;
  };
  CHECK(sizes(Kind::ring, 0) == std::vector<std::int64_t>{0, 8, 0, 0, 0, 0, 8, 0, 0, 0, 0, 8, 8, 0, 0, 0});
  CHECK(sizes(Kind::ring, 2) == std::vector<std::int64_t>{0, 0, 8, 0, 0, 0, 0, 8, 8, 0, 0, 0, 0, 8, 0, 0});
  CHECK(sizes(Kind::all_to_all, 2) == std::vector<std::int64_t>{4, 4, 0, 0, 4, 4, 0, 0, 0, 0, 4, 4, 0, 0, 4, 4});
  CHECK(detail::has_pairs({.kind = Kind::ring}));
  CHECK_FALSE(detail::has_pairs({.kind = Kind::all_to_all}));
}

TEST_CASE("a collective has all ranks of its axis, and none starts before what it carries is there") {
  const Schedule schedule = composed("1f1b", {.tensor = 2, .context = 2});
  const ExpandedSchedule steps = expand_bodies(schedule);
  const Timeline timeline = simulate(steps.schedule, support::cluster(8, 8), RooflineCost{});
  const Mesh& mesh = schedule.parts().mesh;
  int collectives = 0;
  for (const Task& task : steps.schedule.tasks()) {
    if (!is_collective(task.op) || !is_of_tokens(task.payload)) continue;
    ++collectives;
    const auto members = steps.schedule.group(task.group);
    REQUIRE(members.size() == 2);
    const MeshPlace first = mesh.place(members[0]);
    MeshPlace second = mesh.place(members[1]);
    (steps.schedule.lanes()[index(task.lane)] == "tensor_parallel" ? second.tensor : second.context) = 0;
    CHECK(first == second);
  }
  // 2 stages of 2 layers, 3 microbatches. Forward: 4 + 4 tensor and 2 context collectives a stage
  // and group of two, of which there are two an axis; the first stage sums its embedding, the last
  // gathers for its head and sums the loss.
  // Backward: 8 + 4 and 4; the first gathers a gradient, the last gathers its input and scatters
  // its gradient.
  CHECK(collectives == 3 * 2 * (2 * (4 + 4 + 2) + 3 + 2 * (8 + 4 + 4) + 3));
  for (std::size_t t = 0; t < steps.first.size(); ++t) {
    CHECK(timeline.end_of(steps.last[t]) >= timeline.start_of(steps.first[t]));
    const Task& from = schedule.tasks()[t];
    const Task& last = steps.schedule.task(steps.last[t]);
    CHECK(last.op == from.op);
    CHECK(last.rank == from.rank);
    CHECK(last.microbatch == from.microbatch);
    for (const TaskId earlier : schedule.dependencies(id<TaskId>(t))) {
      CHECK(timeline.end_of(steps.last[index(earlier)]) <= timeline.start_of(steps.first[t]));
    }
  }
}

TEST_CASE("the gradients of weights hide the collectives that run during them") {
  // One stage; links so slow that collectives take longer than what hides them, or so quick that
  // they take nearly nothing.
  const Transformer large{
      .name = "l", .layers = 2, .hidden = 4096, .heads = 32, .kv_heads = 32, .intermediate = 11008, .vocab = 100};
  const Batch batch{.sequence = 2048, .microbatch_size = 1, .global_batch = 1};
  const Workload one{large, batch, Recompute::none};
  const Schedule logical = build_schedule("gpipe", {.workload = one, .nodes = DeviceGroups{{1}}, .options = {}});
  const auto makespan = [&](bool sequence_parallel) {
    const Mesh mesh = Mesh{.tensor = 2}.over(2);
    Composition with;
    with.stages =
        share_stages(large, batch, Recompute::none, logical.stages(), {.tensor = 2, .sequence_parallel = sequence_parallel});
    const Schedule schedule = expand_bodies(compose(logical, one, mesh, with)).schedule;
    const Timeline timeline = simulate(schedule, support::cluster(2, 2), RooflineCost{.overhead = Duration{}});
    double compute = 0;
    double messages = 0;
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      const double took = to_seconds(timeline.duration_of(id<TaskId>(t)));
      if (is_collective(schedule.tasks()[t].op)) messages += took;
      if (is_compute(schedule.tasks()[t].op) && schedule.tasks()[t].rank == Rank{0}) compute += took;
    }
    const double whole = to_seconds(timeline.makespan());
    CHECK(whole < compute + messages);  // something is hidden
    CHECK(whole > compute);             // not all of it
    return whole;
  };
  makespan(true);
  makespan(false);
}

}  // namespace expand_test
