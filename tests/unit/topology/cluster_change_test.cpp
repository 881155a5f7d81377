// Changes of a cluster that money buys.
#include "tawpipe/topology/cluster_change.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tawpipe/topology/clusters.hpp"

using namespace tawpipe;

namespace {

double link_of(const Cluster& cluster, LinkClass kind) {
  for (const Link& link : cluster.kinds().front().links) {
    if (link.kind == kind) return link.bandwidth.value();
  }
  return 0;
}

}  // namespace

TEST_CASE("a change of several things is parsed, applied and named") {
  const ClusterChange change = parse_cluster_change("nodes=8,network=800G,device=B200,price=5.5USD");
  CHECK(change == ClusterChange{.device = "B200-180G", .network = BytesPerSecond{100e9}, .nodes = 8, .price = {5.5, "USD"}});
  CHECK(name(change) == "B200-180G, 8 nodes, 800 Gbps adapters");
  const Cluster now = cluster_named("dgx-h100x2");
  const Cluster then = with_change(now, change);
  CHECK(then.nodes() == 8);
  CHECK(then.device(Rank{63}).name == "B200-180G");
  CHECK(link_of(then, LinkClass::network) == doctest::Approx(100e9));
  CHECK(link_of(then, LinkClass::nvlink) / link_of(now, LinkClass::nvlink) == doctest::Approx(40.1 / 20.6));
  CHECK(with_change(now, parse_cluster_change("cluster=hgx-b200x4")) == cluster_named("hgx-b200x4"));
}

TEST_CASE("other devices have the links of the machine that has them") {
  const Cluster changed = with_change(cluster_named("dgx-h100"), {.device = "B200-180G"});
  const Cluster shipped = cluster_named("hgx-b200");
  for (const LinkClass kind : {LinkClass::nvlink, LinkClass::pcie, LinkClass::network})
    CHECK(link_of(changed, kind) == doctest::Approx(link_of(shipped, kind)));
}

TEST_CASE("the catalogue has what is next") {
  std::vector<std::string> words;
  for (const ClusterChange& one : usual_changes(cluster_named("dgx-a100x2"))) words.push_back(name(one));
  CHECK(words == std::vector<std::string>{"4 nodes", "400 Gbps adapters", "800 Gbps adapters", "H100-80G", "H200-141G"});
  words.clear();
  for (const ClusterChange& one : usual_changes(cluster_named("hgx-b200"))) words.push_back(name(one));
  CHECK(words == std::vector<std::string>{"2 nodes", "B300-270G"});  // one node sends nothing out
}

TEST_CASE("what cannot be is refused by name") {
  CHECK_THROWS_WITH_AS(parse_cluster_change("more"), doctest::Contains("nodes=8, network=800Gbps"), InputError);
  CHECK_THROWS_WITH_AS(parse_cluster_change("price=3"), doctest::Contains("nothing but the price"), InputError);
  CHECK_THROWS_AS(parse_cluster_change("nodes=0"), InputError);
  CHECK_THROWS_WITH_AS(with_change(cluster_named("dgx-h100"), {.device = "RTX4090-24G"}), doctest::Contains("NVLinks"),
                       InputError);
}
