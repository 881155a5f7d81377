// Tests of schedules/sharded.hpp and sharding_plan.hpp: plans that cannot be.
// Not: what plans that can be do (properties/sharded_test.cpp, the named strategies' tests).
#include "tawpipe/schedules/sharded.hpp"

#include <doctest/doctest.h>

#include "tawpipe/core/error.hpp"

using tawpipe::DeviceGroups;
using tawpipe::InputError;
using tawpipe::Workload;
using tawpipe::schedules::Scope;
using tawpipe::schedules::sharded;
using tawpipe::schedules::ShardingPlan;

TEST_CASE("a plan names its own fault") {
  const Workload work = Workload::abstract(4, 4);
  const DeviceGroups nodes = DeviceGroups::even(4, 2);
  const auto build = [&](const ShardingPlan& plan) { return sharded(work, nodes, plan); };
  CHECK_THROWS_WITH_AS(build({.gradients = Scope::node}),
                       "sharded: gradients are cut over at least as many ranks as weights, optimizer states as gradients",
                       InputError);
  CHECK_THROWS_WITH_AS(build({.weights = Scope::node, .node_copy = true}),
                       "sharded: a copy in the node needs weights cut over all", InputError);
  CHECK_THROWS_WITH_AS(build({.reduce_each = true}),
                       "sharded: a sum in each round needs gradients and optimizer states cut in the node", InputError);
  CHECK_THROWS_WITH_AS(build({.prefetch = -2, .name = "mine"}), "mine needs prefetch=0 or more", InputError);
}

TEST_CASE("a plan of no name is FSDP") {
  const auto schedule = sharded(Workload::abstract(4, 4), DeviceGroups::even(4, 2), {});
  CHECK(schedule.name() == "sharded");
  CHECK(schedule.options().empty());
  CHECK(schedule.lanes() == std::vector<std::string>{"compute", "gather", "scatter"});
}
