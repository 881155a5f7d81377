// Which communicators a schedule needs: one for each group and lane, one for each way between two lanes of two ranks.
// Not: how they are made (nccl_executor.hpp, by splitting the communicator of all ranks).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::cuda {

/// The communicators of a schedule, the same on all ranks.
///
/// What is called on one communicator does not overtake there, whatever the stream. So that lanes, which are streams, do not wait
/// for each other, every communicator is used by one lane of each of its ranks.
struct CommunicatorPlan {
  std::vector<std::vector<Rank>> members;  ///< [communicator] in their order
  std::vector<std::int32_t> of_task;       ///< [task] -1: it sends nothing to another rank
  /// Each round is one split of all ranks: its communicators have no rank in common.
  std::vector<std::vector<std::int32_t>> rounds;
  std::int32_t notices = -1;  ///< all ranks, for what no message says; -1: nothing of the kind

  /// The number of a rank in a communicator that it belongs to.
  int member_of(std::int32_t communicator, Rank rank) const {
    const auto& all = members[static_cast<std::size_t>(communicator)];
    return static_cast<int>(std::find(all.begin(), all.end(), rank) - all.begin());
  }
  /// The one that is made in a round and has this rank; -1 if there is none.
  std::int32_t in_round(std::size_t round, Rank rank) const {
    for (const std::int32_t one : rounds[round]) {
      const auto& all = members[static_cast<std::size_t>(one)];
      if (std::find(all.begin(), all.end(), rank) != all.end()) return one;
    }
    return -1;
  }
};

/// @param with_notices  whether any rank waits for a task that no message tells it of
/// Complexity: O(tasks log communicators + communicators * rounds).
inline CommunicatorPlan plan_communicators(const Schedule& schedule, const Dataflow& flow, bool with_notices) {
  CommunicatorPlan plan;
  std::map<std::array<std::int32_t, 4>, std::int32_t> known;  // rank, lane, peer, its lane; or -1, lane, group, -1
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    plan.of_task.push_back(-1);
    if (is_compute(task.op) || flow.transfer(id<TaskId>(t)).count == 0) continue;
    const bool collective = is_collective(task.op);
    if (collective && schedule.group(task.group).size() < 2) continue;
    const std::array<std::int32_t, 4> key =
        collective ? std::array<std::int32_t, 4>{-1, task.lane, number(task.group), -1}
                   : std::array<std::int32_t, 4>{number(task.rank), task.lane, number(task.peer), task.peer_lane};
    const auto found = known.try_emplace(key, static_cast<std::int32_t>(plan.members.size()));
    if (found.second) {
      if (collective) {
        const auto group = schedule.group(task.group);
        plan.members.emplace_back(group.begin(), group.end());
      } else {
        plan.members.push_back({task.rank, task.peer});
      }
    }
    plan.of_task.back() = found.first->second;
  }
  if (with_notices) {
    plan.notices = static_cast<std::int32_t>(plan.members.size());
    plan.members.emplace_back();
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
