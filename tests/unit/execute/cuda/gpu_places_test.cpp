#include "tawpipe/execute/cuda/gpu_places.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace tawpipe;
using cuda::GpuPlace;
using cuda::link_groups;

namespace {

/// A host with GPUs of these islands, one rank a GPU in their order. @param island  [GPU] -1: it
/// has no NVLink
void add_host(std::vector<GpuPlace>& ranks, const std::string& host, const std::vector<int>& island) {
  const auto name = [&](std::size_t g) { return concat("GPU-", host, "-", g); };
  for (std::size_t g = 0; g < island.size(); ++g) {
    GpuPlace place{host, name(g), {}};
    for (std::size_t other = 0; other < island.size(); ++other) {
      if (other != g && island[g] >= 0 && island[other] == island[g]) place.reaches.push_back(name(other));
    }
    ranks.push_back(place);
  }
}
std::vector<GpuPlace> host_of(const std::vector<int>& island) {
  std::vector<GpuPlace> ranks;
  add_host(ranks, "a", island);
  return ranks;
}
std::vector<int> sizes(const DeviceGroups& groups) {
  std::vector<int> all;
  for (int g = 0; g < groups.count(); ++g) all.push_back(groups.size(g));
  return all;
}
std::vector<int> groups_of(const std::vector<GpuPlace>& ranks) { return sizes(link_groups(ranks, "so do launchers")); }

}  // namespace

TEST_CASE("eight GPUs behind one switch are one group") {
  CHECK(groups_of(host_of({0, 0, 0, 0, 0, 0, 0, 0})) == std::vector<int>{8});
}

TEST_CASE("NVLink islands of one host are groups") {
  CHECK(groups_of(host_of({0, 0, 0, 0, 1, 1, 1, 1})) == std::vector<int>{4, 4});
  CHECK(groups_of(host_of({0, 0, 1, 1, 2, 2, 3, 3})) == std::vector<int>{2, 2, 2, 2});
}

TEST_CASE("GPUs without NVLink are grouped by host") {
  CHECK(groups_of(host_of({-1, -1, -1, -1})) == std::vector<int>{4});
  std::vector<GpuPlace> unknown(3);  // no NVML
  for (GpuPlace& one : unknown) one.host = "a";
  CHECK(groups_of(unknown) == std::vector<int>{3});
}

TEST_CASE("a GPU that NVLink leaves out on a host that has it is a group of its own") {
  CHECK(groups_of(host_of({0, 0, -1})) == std::vector<int>{2, 1});
}

TEST_CASE("each host is grouped by what it has") {
  std::vector<GpuPlace> ranks;
  add_host(ranks, "a", {0, 0, 0, 0});
  add_host(ranks, "b", {0, 0, 1, 1});
  add_host(ranks, "c", {-1, -1, -1});
  CHECK(groups_of(ranks) == std::vector<int>{4, 2, 2, 3});
}

TEST_CASE("GPUs that reach each other by a third are one group, also where only one side says so") {
  std::vector<GpuPlace> ranks = host_of({-1, -1, -1, -1});  // a ring: 0-1-3-2-0
  ranks[0].reaches = {ranks[1].gpu, ranks[2].gpu};
  ranks[3].reaches = {ranks[1].gpu, ranks[2].gpu};
  CHECK(groups_of(ranks) == std::vector<int>{4});
}

TEST_CASE("equal names of GPUs on different hosts are different GPUs") {
  std::vector<GpuPlace> ranks{{"a", "0", {"1"}}, {"b", "1", {"0"}}};
  CHECK(groups_of(ranks) == std::vector<int>{1, 1});
}

TEST_CASE("islands whose ranks are not consecutive are refused with which lie where") {
  CHECK_THROWS_WITH_AS(groups_of(host_of({0, 1, 0, 1})),
                       "groups are of consecutive ranks, and NVLink connects ranks 0, 2 of a; ranks 1, 3 of a; order the GPUs so "
                       "by CUDA_VISIBLE_DEVICES, or give the groups",
                       InputError);
}

TEST_CASE("ranks that are not numbered host by host are refused") {
  const std::vector<GpuPlace> ranks{{"a", {}, {}}, {"b", {}, {}}, {"a", {}, {}}};
  CHECK_THROWS_WITH_AS(groups_of(ranks), doctest::Contains("host by host: so do launchers"), InputError);
}

TEST_CASE("where ranks lie is said in runs of them") {
  std::vector<GpuPlace> ranks;
  add_host(ranks, "a", {0, 0, 0, 1, 0, 1});
  add_host(ranks, "b", {-1});
  CHECK(cuda::describe(ranks) == "ranks 0-2, 4 of a; ranks 3, 5 of a; ranks 6 of b");
}
