// Which axes are folded, and what keeps them from being.
// Not: that the result is the same (properties/fold_test.cpp).
#include "tawpipe/simulate/folding.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/schedules/gpipe.hpp"

using namespace tawpipe;

namespace {

FoldedSimulation fold(const Cluster& cluster, const Mesh& axes, const HeldSms& held = {}) {
  const Mesh mesh = axes.over(cluster.ranks());
  const Schedule logical = schedules::gpipe(support::transformer(4, 2), mesh.pipeline, {.overlap = true});
  return simulate_folded(logical, support::transformer(4, 2 * axes.data), mesh, {}, cluster, RooflineCost{.held_sms = held});
}

}  // namespace

TEST_CASE("the choices fold more first, and only axes that have copies") {
  const auto choices = fold_choices({.tensor = 2, .context = 1, .data = 8});
  REQUIRE(choices.size() == 3);
  CHECK((choices[0].tensor && choices[0].data && !choices[0].context));
  CHECK((choices[1].data && !choices[1].tensor));  // 8 devices for one, not 2
  CHECK((choices[2].tensor && !choices[2].data));
  CHECK(fold_choices({}).empty());
}

TEST_CASE("equal nodes fold along all axes, also where copies share an adapter") {
  const FoldedSimulation folded = fold(support::cluster(16, 4), {.tensor = 2, .context = 1, .data = 4});
  REQUIRE(folded.run);
  CHECK(folded.run->schedule.factor == 8);
  CHECK(folded.refusal.empty());
  // Two replicas in each node, on one adapter, cross it alike.
  const FoldedSimulation shared =
      fold(support::cluster(16, 2), {.tensor = 1, .context = 1, .data = 4, .order = parse_mesh_order("dtcs")});
  REQUIRE(shared.run);
  CHECK(shared.run->schedule.factor == 4);
}

TEST_CASE("where copies differ, no more is folded than is exact, and the refusal says what differs") {
  // The third node holds two devices: a replica of four devices lies in one node, or in two.
  const FoldedSimulation uneven = fold(support::nodes_of({4, 2, 2}), {.tensor = 1, .context = 1, .data = 2});
  CHECK(!uneven.run);
  CHECK(uneven.refusal.find("rank 4") != std::string::npos);
  // Tensor-parallel pairs still fold there.
  const FoldedSimulation pairs = fold(support::nodes_of({4, 2, 2}), {.tensor = 2, .context = 1, .data = 2});
  REQUIRE(pairs.run);
  CHECK(pairs.run->schedule.factor == 2);
  CHECK(!pairs.refusal.empty());
  const FoldedSimulation plain = fold(support::cluster(4, 2), {});
  CHECK(!plain.run);
  CHECK(plain.refusal == "the layout has no copies");
}

TEST_CASE("copies of which one holds SMs, and calls in order, are not folded") {
  const Mesh replicas{.tensor = 1, .context = 1, .data = 2};
  HeldSms held{.pair_ctas = 8, .sms = 132, .puts = ZeroCta::node};
  CHECK(fold(support::cluster(8, 2), replicas, held).run);
  CHECK(fold(support::nodes_of({4, 2, 2}), replicas, held).refusal ==
        "only one of the pass of rank 5 and that of rank 1 is inside a node, where it holds no SMs");
  held.launch_order_implicit = true;
  CHECK(fold(support::cluster(8, 2), replicas, held).refusal == "the calls of each rank are ordered (launch-order=implicit)");
}

TEST_CASE("a slower device keeps its copy from being folded") {
  NodeType fast = support::cluster(4, 2).kinds()[0];
  NodeType slow = fast;
  slow.devices[1].peak = slow.devices[1].peak * 0.5;
  const Cluster cluster{"mixed", {fast, slow}, {0, 1}};
  const FoldedSimulation folded = fold(cluster, {.tensor = 1, .context = 1, .data = 2});
  CHECK(!folded.run);
  CHECK(folded.refusal.find("takes rank 3 another time than rank 1") != std::string::npos);
}
