// The steps of a mixture's stages where tokens are sent to whole experts: groups and lanes of what
// is written out, and folded copies.
// Not: the steps of a body (unit/model/expert_body_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/mixtures.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/kernel_cost.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/expand.hpp"
#include "tawpipe/schedule/fold.hpp"
#include "tawpipe/simulate/folding.hpp"
#include "tawpipe/simulate/simulate.hpp"

namespace expert_steps_test {

using namespace tawpipe;

namespace {

const Transformer mixture = support::wide_mixture();

/// Two pipeline stages of two layers, three microbatches a replica.
struct Composed {
  Mesh mesh;
  Workload one;
  Workload whole;
  Schedule logical;
  Composition with;

  explicit Composed(const Mesh& axes, const char* name = "1f1b")
      : mesh{axes.over(2 * axes.copies())},
        one{work(3)},
        whole{work(3 * mesh.data)},
        logical{build_schedule(name, {.workload = one, .nodes = DeviceGroups{{2}}, .options = {}})} {
    with.stages = share_stages(mixture, one.batch(), one.recompute(), logical.stages(),
                               {.tensor = mesh.tensor, .context = mesh.context, .expert = mesh.expert, .whole_experts = true});
    with.sharding = StateSharding::optimizer;
  }
  Workload work(std::int64_t microbatches) const {
    Workload made{mixture, {.sequence = 128, .microbatch_size = mesh.expert, .global_batch = microbatches * mesh.expert}};
    made.over_devices(2);
    return made;
  }
  Schedule full() const { return compose(logical, whole, mesh, with); }
};

}  // namespace

TEST_CASE("tokens are sent among all ranks that share a stage, on a lane of their own") {
  for (const Mesh& axes : {Mesh{.expert = 4, .whole_experts = true}, Mesh{.tensor = 4, .whole_experts = true},
                           Mesh{.tensor = 2, .context = 2, .data = 2, .expert = 2, .whole_experts = true}}) {
    const Composed composed{axes};
    const Mesh& mesh = composed.mesh;
    const Schedule schedule = composed.full();
    REQUIRE(has_bodies(schedule));
    const Schedule steps = expand_bodies(schedule).schedule;
    const auto shared = static_cast<std::size_t>(mesh.shared());
    int sent = 0;
    std::set<std::string> lanes;
    for (const Task& task : steps.tasks()) {
      if (!is_collective(task.op) || !is_of_tokens(task.payload)) continue;
      const std::string& lane = steps.lanes()[index(task.lane)];
      const auto members = steps.group(task.group);
      lanes.insert(lane);
      CHECK((lane == "expert_parallel") == (task.op == Op::all_to_all));
      if (lane != "expert_parallel") {
        CHECK(members.size() == static_cast<std::size_t>(lane == "tensor_parallel" ? mesh.tensor : mesh.context));
        continue;
      }
      ++sent;
      REQUIRE(members.size() == shared);
      const MeshPlace first = mesh.place(members[0]);
      CHECK((first.tensor == 0 && first.context == 0 && first.expert == 0));
      for (std::size_t m = 0; m < shared; ++m) {  // tensor fastest, then context and expert
        const MeshPlace place = mesh.place(members[m]);
        CHECK(place.pipeline == first.pipeline);
        CHECK(place.data == first.data);
        CHECK(place.tensor + mesh.tensor * (place.context + mesh.context * place.expert) == static_cast<int>(m));
      }
      // 2 of a token's numbers of 2 bytes
      CHECK(task.bytes == Bytes{2 * 128 * mesh.expert * 256 * 2 / mesh.shared()});
    }
    // There and back, forward and backward, of 2 layers of 2 stages and 3 microbatches.
    CHECK(sent == 4 * 4 * 3 * mesh.data);
    std::set<std::string> expected{"expert_parallel"};
    if (mesh.tensor > 1) expected.insert("tensor_parallel");
    if (mesh.context > 1) expected.insert("context_parallel");
    CHECK(lanes == expected);
  }
}

TEST_CASE("what is relayed goes to neighbours, and to the member at the sender's place among others") {
  const BodyStep step{
      .kind = BodyStep::Kind::all_to_all, .axis = BodyStep::Axis::all, .inner = 2, .relayed = Bytes{60}, .bytes = Bytes{100}};
  constexpr std::int64_t near = 20;  // one's own part, too
  constexpr std::int64_t far = 30;
  const std::vector<std::int64_t> expected{near, near, far,  0,    far,  0,     //
                                           near, near, 0,    far,  0,    far,   //
                                           far,  0,    near, near, far,  0,     //
                                           0,    far,  near, near, 0,    far,   //
                                           far,  0,    far,  0,    near, near,  //
                                           0,    far,  0,    far,  near, near};
  std::vector<std::int64_t> found;
  for (const Bytes size : detail::pairs_of(step, 6)) found.push_back(size.value());
  CHECK(found == expected);
}

TEST_CASE("where messages take no time, a stage that ranks with whole experts share takes as long as one on a single rank") {
  constexpr FixedCost costs{Duration{1'000'000'000}, Duration{1'000'000'000}, Duration{1'000'000'000}, Duration{}};
  const Cluster cluster = support::cluster(16, 16);
  for (const char* name : {"1f1b", "zb-h1"}) {
    const Composed plain{Mesh{.expert = 1}, name};
    const double expected = to_seconds(simulate(plain.logical, cluster, costs).makespan());
    for (const Mesh& axes : {Mesh{.expert = 2, .whole_experts = true}, Mesh{.tensor = 2, .whole_experts = true},
                             Mesh{.tensor = 2, .context = 2, .expert = 2, .whole_experts = true}}) {
      const Composed composed{axes, name};
      const Schedule steps = expand_bodies(composed.full()).schedule;
      double first = 0;  // without the update and the gathers after it
      const Timeline timeline = simulate(steps, cluster, costs);
      for (std::size_t t = 0; t < steps.tasks().size(); ++t) {
        if (is_work(steps.tasks()[t].op)) first = std::max(first, to_seconds(timeline.end_of(id<TaskId>(t)) - TimePoint{}));
      }
      CHECK(first == doctest::Approx(expected).epsilon(1e-9));
    }
  }
}

TEST_CASE("folded copies along the expert axis take exactly as long as all of them") {
  const Mesh axes{.tensor = 2, .data = 2, .expert = 2, .whole_experts = true};
  const Composed composed{axes};
  const Mesh& mesh = composed.mesh;
  const Cluster cluster = support::cluster(16, 8);
  const Schedule full = composed.full();
  const Timeline whole = simulate(expand_bodies(full).schedule, cluster, RooflineCost{});
  const FoldedSimulation folded = simulate_folded(composed.logical, composed.whole, mesh, composed.with, cluster, RooflineCost{});
  REQUIRE_MESSAGE(folded.run, folded.refusal);
  CHECK(folded.run->schedule.factor == 8);
  CHECK(folded.run->timeline.makespan() == whole.makespan());
  const auto choices = fold_choices(mesh);
  CHECK(choices.size() == 7);
  for (const FoldAxes& one : choices) {
    const FoldedSchedule kept =
        fold_kept(compose_kept(composed.logical, composed.whole, mesh, composed.with, one), composed.whole, mesh, one);
    CHECK(kept.factor == (one.tensor ? 2 : 1) * (one.data ? 2 : 1) * (one.expert ? 2 : 1));
    std::size_t tasks = 0;
    for (const Task& task : kept.schedule.tasks()) tasks += kept.multiplicity(task);
    CHECK(tasks == expand_bodies(full).schedule.tasks().size());
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      MeshPlace place = mesh.place(Rank{rank});
      if (one.tensor) place.tensor = 0;
      if (one.data) place.data = 0;
      if (one.expert) place.expert = 0;
      CHECK(kept.same_as[static_cast<std::size_t>(rank)] == mesh.rank(place));
    }
  }
}

}  // namespace expert_steps_test
