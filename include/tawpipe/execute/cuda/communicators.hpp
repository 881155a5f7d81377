// Which communicators a schedule needs: one for each group and lane, and as few as possible for
// sends and receives.
// Not: their creation (nccl_executor.hpp, by splitting the communicator of all ranks).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/execute/cuda/device_api.hpp"
#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::cuda {

/// The communicators of a schedule, the same on all ranks.
///
/// Calls on one communicator keep their order, whatever the stream. So that lanes, which are
/// streams, do not wait for each other, every communicator is used by one lane of each of its
/// ranks. Messages between two ranks share communicators as far as that allows: each takes GPU
/// memory.
struct CommunicatorPlan {
  std::vector<std::vector<Rank>> members;  ///< [communicator] in their order
  std::vector<Traffic> traffic;            ///< [communicator]
  std::vector<std::int32_t> of_task;       ///< [task] -1: it sends nothing to another rank
  /// Each round is one split of all ranks: its communicators have no rank in common.
  std::vector<std::vector<std::int32_t>> rounds;
  std::int32_t notices = -1;  ///< all ranks, for signals that no message carries; -1: none needed

  /// The index of a rank in a communicator to which it belongs.
  int member_of(std::int32_t communicator, Rank rank) const {
    const auto& all = members[static_cast<std::size_t>(communicator)];
    return static_cast<int>(std::find(all.begin(), all.end(), rank) - all.begin());
  }
  /// The communicator created in a round that has this rank; -1 if there is none.
  std::int32_t in_round(std::size_t round, Rank rank) const {
    for (const std::int32_t one : rounds[round]) {
      const auto& all = members[static_cast<std::size_t>(one)];
      if (std::find(all.begin(), all.end(), rank) != all.end()) return one;
    }
    return -1;
  }
};

namespace detail {

/// Messages from a lane of a rank to a lane of another; for an exchange in both directions.
struct Way {
  Rank rank;
  std::int32_t lane;
  Rank peer;
  std::int32_t peer_lane;

  bool operator<(const Way& other) const {
    return std::tie(rank, peer, lane, peer_lane) < std::tie(other.rank, other.peer, other.lane, other.peer_lane);
  }
};

/// Assigns directions of messages to communicators, each to the first that has no other lane of its
/// ranks, nor the reverse direction.
class SharedWays {
 public:
  explicit SharedWays(std::int32_t ranks) : count_(static_cast<std::size_t>(ranks), 0) {}

  std::int32_t add(const Way& way) {
    std::size_t c = 0;
    while (c < all_.size() && !fits(all_[c], way)) ++c;
    if (c == all_.size()) all_.push_back({std::vector<std::int32_t>(count_.size(), none), {}});
    put(all_[c], way.rank, way.lane);
    put(all_[c], way.peer, way.peer_lane);
    all_[c].ways.insert({way.rank, way.peer});
    return static_cast<std::int32_t>(c);
  }
  /// The largest number of communicators of any rank.
  int most() const { return *std::max_element(count_.begin(), count_.end()); }

 private:
  static constexpr std::int32_t none = -1;
  struct One {
    std::vector<std::int32_t> lane_of;  ///< [rank]
    std::set<std::pair<Rank, Rank>> ways;
  };

  static bool fits(const One& one, const Way& way) {
    const auto free = [&](Rank rank, std::int32_t lane) {
      return one.lane_of[index(rank)] == none || one.lane_of[index(rank)] == lane;
    };
    return free(way.rank, way.lane) && free(way.peer, way.peer_lane) && one.ways.count({way.peer, way.rank}) == 0;
  }
  void put(One& one, Rank rank, std::int32_t lane) {
    if (one.lane_of[index(rank)] == none) ++count_[index(rank)];
    one.lane_of[index(rank)] = lane;
  }

  std::vector<int> count_;  ///< [rank] communicators
  std::vector<One> all_;
};

/// The fewest communicators a rank over several orders of pairs of lanes: the order matters. Every
/// rank finds the same. @return the communicator of each direction, from 0
inline std::map<Way, std::int32_t> share(const std::set<Way>& ways, std::int32_t ranks) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<Way>> by_lanes;
  for (const Way& way : ways) by_lanes[{way.lane, way.peer_lane}].push_back(way);
  std::vector<std::pair<std::int32_t, std::int32_t>> order;
  for (const auto& one : by_lanes) order.push_back(one.first);
  std::map<Way, std::int32_t> best;
  int fewest = std::numeric_limits<int>::max();
  constexpr std::size_t budget = 200'000;  // assignments tried: tens of milliseconds
  std::size_t tried = 0;
  do {
    SharedWays shared{ranks};
    std::map<Way, std::int32_t> found;
    for (const auto& lanes : order) {
      for (const Way& way : by_lanes[lanes]) found[way] = shared.add(way);
    }
    if (shared.most() < fewest) best = std::move(found);
    fewest = std::min(fewest, shared.most());
    tried += ways.size();
  } while (tried < budget && std::next_permutation(order.begin(), order.end()));
  return best;
}

}  // namespace detail

/// @param with_notices  whether any rank waits for a task whose end no message tells it
/// Complexity: O(tasks log ways + ways * communicators), where a way is an ordered pair of lanes of
/// two ranks.
inline CommunicatorPlan plan_communicators(const Schedule& schedule, const Dataflow& flow, bool with_notices) {
  CommunicatorPlan plan;
  const auto make = [&](Traffic traffic) {
    plan.traffic.push_back(traffic);
    plan.members.emplace_back();
    return static_cast<std::int32_t>(plan.members.size()) - 1;
  };
  const auto way_of = [&](const Task& task) {
    return detail::Way{task.rank, number(task.lane), task.peer, number(task.peer_lane)};
  };
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> collectives;  // by lane and group
  std::set<detail::Way> ways;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    plan.of_task.push_back(-1);
    if (is_local(task.op) || flow.transfer(id<TaskId>(t)).count == 0) continue;
    if (!is_collective(task.op)) {
      ways.insert(way_of(task));
      continue;
    }
    const auto group = schedule.group(task.group);
    if (group.size() < 2) continue;
    const auto found = collectives.try_emplace({number(task.lane), number(task.group)}, -1);
    if (found.second) {
      found.first->second = make(Traffic::collectives);
      plan.members.back().assign(group.begin(), group.end());
    }
    plan.of_task.back() = found.first->second;
  }
  const auto first = static_cast<std::int32_t>(plan.members.size());
  const std::map<detail::Way, std::int32_t> shared = detail::share(ways, schedule.ranks());
  for (const auto& [way, one] : shared) {
    while (first + one >= static_cast<std::int32_t>(plan.members.size())) make(Traffic::pairs);
    auto& members = plan.members[static_cast<std::size_t>(first + one)];
    for (const Rank rank : {way.rank, way.peer}) {
      if (std::find(members.begin(), members.end(), rank) == members.end()) members.push_back(rank);
    }
  }
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    const bool sends = is_point_to_point(task.op) && flow.transfer(id<TaskId>(t)).count > 0;
    if (sends) plan.of_task[t] = first + shared.at(way_of(task));
  }
  if (with_notices) {
    plan.notices = make(Traffic::pairs);
    for (std::int32_t r = 0; r < schedule.ranks(); ++r) plan.members.back().push_back(Rank{r});
  }
  std::vector<std::vector<char>> taken;  // [round, rank]
  for (std::size_t c = 0; c < plan.members.size(); ++c) {
    std::size_t round = 0;
    const auto meets = [&](const std::vector<char>& ranks) {
      return std::any_of(plan.members[c].begin(), plan.members[c].end(), [&](Rank rank) { return ranks[index(rank)] != 0; });
    };
    while (round < taken.size() && meets(taken[round])) ++round;
    if (round == taken.size()) {
      taken.emplace_back(static_cast<std::size_t>(schedule.ranks()), char{0});
      plan.rounds.emplace_back();
    }
    for (const Rank rank : plan.members[c]) taken[round][index(rank)] = 1;
    plan.rounds[round].push_back(static_cast<std::int32_t>(c));
  }
  return plan;
}

}  // namespace tawpipe::cuda
