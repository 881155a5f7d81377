// How the links of a cluster fall into classes, and what a folded communication loads.
// Not: the axes (simulate/folding_test.cpp).
#include "tawpipe/cost/folded_cost.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "support/clusters.hpp"
#include "tawpipe/cost/roofline.hpp"

using namespace tawpipe;

TEST_CASE("links that see the same traffic are of one class; bandwidth and weights tell them apart") {
  const Cluster cluster = support::cluster(4, 2);  // links of a node: two devices' ports 0 .. 3, adapter 4 and 5; then 6 .. 11
  detail::LinkClasses links;
  links.add(0, {.latency = {}, .fraction = 1, .loads = {{LinkId{0}, 1}, {LinkId{3}, 1}}});
  links.add(0, {.latency = {}, .fraction = 1, .loads = {{LinkId{6}, 1}, {LinkId{9}, 1}}});
  links.add(1, {.latency = {}, .fraction = 1, .loads = {{LinkId{3}, 2}}});
  links.add(1, {.latency = {}, .fraction = 1, .loads = {{LinkId{9}, 2}}});
  links.classify(cluster);
  CHECK(links.classes(0) == std::vector{LinkId{0}, LinkId{3}});
  CHECK(links.classes(1) == std::vector{LinkId{0}, LinkId{3}});  // 6 is like 0, 9 like 3
  CHECK(links.classes(2) == std::vector{LinkId{3}});
  CHECK(links.classes(3) == std::vector{LinkId{3}});
}

TEST_CASE("a class that several images cross is loaded by each of them") {
  const Cluster cluster = support::cluster(4, 2);
  detail::LinkClasses links;
  links.add(0, {.latency = {}, .fraction = 1, .loads = {{LinkId{0}, 1}, {LinkId{4}, 1}}});
  links.add(0, {.latency = {}, .fraction = 1, .loads = {{LinkId{2}, 1}, {LinkId{4}, 1}}});
  links.classify(cluster);
  const std::vector<LinkLoad> loads = links.loads(0, links.classes(0));
  REQUIRE(loads.size() == 3);
  CHECK(loads[0].link == LinkId{0});
  CHECK(loads[1].link == LinkId{4});
  CHECK(loads[2].link == LinkId{4});
}
