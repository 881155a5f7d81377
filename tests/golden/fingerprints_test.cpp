// Fingerprints of each schedule's timeline on small clusters against those recorded in
// fingerprints.txt: nothing changes unseen.
//
// A fingerprint that differs says that some task now has another place, start or end. Where that is
// meant, record again with `TAWPIPE_RECORD=1 <this program>`, and explain in the commit why the
// timelines changed and how that was checked.
// Not: a proof that they are right (properties/, oracle/).
#include <doctest/doctest.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "support/fingerprint.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/schedules/fully_sharded.hpp"
#include "tawpipe/schedules/gpipe.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/schedules/weipipe.hpp"
#include "tawpipe/schedules/weipipe_zero_bubble.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace tawpipe::literals;
using tawpipe::Cluster;
using tawpipe::concat;
using tawpipe::Schedule;
using tawpipe::Workload;
using tawpipe::schedules::Order;

namespace {

const std::string recorded_file = TAWPIPE_TEST_DATA "/../golden/fingerprints.txt";

std::vector<Schedule> all_schedules(const Workload& work, const Cluster& cluster) {
  const auto groups = cluster.groups_by_node();
  const int ranks = cluster.ranks();
  std::vector<double> speeds(static_cast<std::size_t>(ranks), 1);
  speeds[0] = 2;
  return {tawpipe::schedules::tawpipe(work, groups),
          tawpipe::schedules::tawpipe(work, groups, {.order = Order::paper}),
          tawpipe::schedules::tawpipe(work, groups, {.overlap = false}),
          tawpipe::schedules::tawpipe(work, groups, {.stripe = true}),
          tawpipe::schedules::tawpipe(work, groups, {.speeds = speeds}),
          tawpipe::schedules::tawpipe(work, groups, {.cache = {.limit = tawpipe::schedules::NodeCache::Limit::all}}),
          tawpipe::schedules::weipipe(work, ranks, {.order = Order::paper}),
          tawpipe::schedules::weipipe(work, ranks, {.order = Order::eager}),
          tawpipe::schedules::weipipe_naive(work, ranks, {.order = Order::eager}),
          tawpipe::schedules::weipipe_zb1(work, ranks, {.order = Order::paper}),
          tawpipe::schedules::weipipe_zb1(work, ranks, {.order = Order::eager, .split = true}),
          tawpipe::schedules::weipipe_zb2(work, groups, {.order = Order::eager, .split = true}),
          tawpipe::schedules::weipipe_zb2(work, groups, {.order = Order::eager, .split = false}),
          tawpipe::schedules::fully_sharded(work, groups, {.two_level = false, .prefetch = 1}),
          tawpipe::schedules::fully_sharded(work, groups, {.two_level = true, .prefetch = 1}),
          tawpipe::schedules::gpipe(work, ranks, {.overlap = true}),
          tawpipe::schedules::one_f_one_b(work, ranks, {.overlap = true}),
          tawpipe::schedules::one_f_one_b(work, ranks, {.overlap = false})};
}

/// "schedule options | cluster | cost" -> fingerprint
std::map<std::string, std::string> fingerprints() {
  std::map<std::string, std::string> found;
  const auto add = [&](const Schedule& schedule, const std::string& where, const tawpipe::Timeline& timeline) {
    std::string key = schedule.name();
    for (const auto& [option, value] : schedule.options()) key += concat(" ", option, "=", value);
    char text[17];
    std::snprintf(text, sizeof text, "%016" PRIx64, support::fingerprint(schedule, timeline));
    CHECK(found.try_emplace(concat(key, " | ", where), text).second);
  };
  for (const auto& sizes : {std::vector<std::int32_t>{4}, {2, 2}, {3, 2, 1}}) {
    const Cluster cluster = support::nodes_of(sizes);
    std::string name;
    for (const auto size : sizes) name += concat(name.empty() ? "" : "+", size);
    const auto microbatches = cluster.ranks() * 2 + 1;
    const tawpipe::FixedCost fixed{.forward = 10_s, .backward_input = 10_s, .backward_weight = 10_s, .transfer = 1_s};
    for (const auto& schedule : all_schedules(Workload::abstract(cluster.ranks(), microbatches), cluster)) {
      add(schedule, name + " fixed", simulate(schedule, cluster, fixed));
    }
    for (const auto& schedule : all_schedules(support::transformer(8, microbatches, true), cluster)) {
      add(schedule, name + " roofline", simulate(schedule, cluster, tawpipe::RooflineCost{}));
    }
  }
  return found;
}

}  // namespace

TEST_CASE("every timeline is the recorded one") {
  const auto found = fingerprints();
  if (std::getenv("TAWPIPE_RECORD") != nullptr) {
    std::ofstream file{recorded_file};
    REQUIRE(file.is_open());
    for (const auto& [key, value] : found) file << value << " " << key << "\n";
    MESSAGE("recorded " << found.size() << " fingerprints");
    return;
  }
  std::map<std::string, std::string> recorded;
  std::ifstream file{recorded_file};
  REQUIRE_MESSAGE(file.is_open(), "cannot open " << recorded_file);
  for (std::string line; std::getline(file, line);) recorded[line.substr(17)] = line.substr(0, 16);
  for (const auto& made : found) {
    CAPTURE(made.first);
    REQUIRE_MESSAGE(recorded.contains(made.first), "not recorded");
    CHECK_MESSAGE(recorded[made.first] == made.second, "another timeline than recorded");
  }
  for (const auto& old : recorded) CHECK_MESSAGE(found.contains(old.first), "recorded and no longer made: " << old.first);
}
