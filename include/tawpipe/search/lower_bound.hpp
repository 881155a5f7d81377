// Bounds from below: how fast one schedule can be at best on a cluster, and how much memory it needs at least, without running
// it. Not: the search that drops candidates by them (search/plan.hpp), nor what any schedule can reach (search/bound.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/schedule/expand.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

/// What a schedule takes at least.
struct LeastNeed {
  Duration time;           ///< of an iteration: no simulation of the schedule is shorter
  Bytes memory;            ///< of the rank that is fullest beside its limit
  bool fits = true;        ///< false: some rank needs more than is usable, whatever the timing
  std::int64_t ends = 0;   ///< of all tasks that were looked at: what that took
  std::int64_t steps = 0;  ///< tasks that a simulation of as much runs, bodies written out
};

namespace detail {

/// Kinds and places of ranks, and where a node ends, for a table. @param self  marked among them
inline void add_members(std::vector<std::int32_t>& key, std::span<const Rank> members, Rank self, const Cluster& cluster) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    const bool same_node = i > 0 && cluster.same_node(members[i - 1], members[i]);
    key.push_back(cluster.kind_index(cluster.node_of(members[i])) * 4 + (same_node ? 1 : 0) + (members[i] == self ? 2 : 0));
    key.push_back(cluster.local_index(members[i]));
  }
  key.push_back(-1);
}

/// Ranks whose groups along a mesh's axes see the same devices and links: their communications and computations take equally
/// long. Where links between nodes are shared (Cluster::fabric()) only a rank is like itself.
class RankClasses {
 public:
  RankClasses(const Cluster& cluster, const Mesh& mesh) : cluster_{cluster}, mesh_{mesh} {}

  int of(Rank rank) {
    const auto [at, added] = class_of_.try_emplace(rank, 0);
    if (added) at->second = classes_.try_emplace(key(rank), static_cast<int>(classes_.size())).first->second;
    return at->second;
  }

  /// Kinds and places of the members of its two groups, and where a node ends.
  std::vector<std::int32_t> key(Rank rank) const {
    std::vector<std::int32_t> key;
    if (!cluster_.fabric().links.empty()) key.push_back(number(rank));
    add(key, mesh_.group(mesh_.place(rank), {MeshAxis::tensor}), rank);
    add(key, mesh_.group(mesh_.place(rank), {MeshAxis::context}), rank);
    return key;
  }

 private:
  void add(std::vector<std::int32_t>& key, const std::vector<Rank>& members, Rank self) const {
    add_members(key, members, self, cluster_);
  }

  const Cluster& cluster_;
  const Mesh& mesh_;
  std::map<Rank, int> class_of_;
  std::map<std::vector<std::int32_t>, int> classes_;
};

/// Times of large collectives, by what their members see: asked of a cost model once for all schedules of a search. May be
/// shared between threads.
class CollectiveTimes {
 public:
  /// @param key  kinds and places of the members, and where a node ends
  template <class Find>
  std::int64_t find(Op op, std::vector<std::int32_t> key, const Messages& bytes, Find&& find) {
    const std::tuple<Op, std::vector<std::int32_t>, std::int64_t, std::int32_t> whole{op, std::move(key), bytes.value(),
                                                                                      bytes.repeat()};
    {
      const std::lock_guard lock{mutex_};
      if (const auto at = times_.find(whole); at != times_.end()) return at->second;
    }
    const std::int64_t time = find();
    const std::lock_guard lock{mutex_};
    times_.emplace(whole, time);
    return time;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<Op, std::vector<std::int32_t>, std::int64_t, std::int32_t>, std::int64_t> times_;
};

/// What a message takes where nothing else uses its links: the latencies, then its bytes at the slowest link's rate. Shared links
/// only make it longer. Rounded down by a picosecond, as the engine rounds.
inline std::int64_t alone_time(const Path& path, const Messages& bytes, const Cluster& cluster) {
  double rate = std::numeric_limits<double>::infinity();
  for (const LinkLoad& load : path.loads) rate = std::min(rate, cluster.link(load.link).bandwidth.value() / load.weight);
  const double flow = path.fraction * static_cast<double>(bytes.total().value()) / rate * 1e12;
  const std::int64_t latency = saturating_multiply<std::int64_t>(path.latency.value(), bytes.repeat());
  return std::max<std::int64_t>(0, latency + static_cast<std::int64_t>(std::min(flow, 9e18)) - 1);
}

/// Times of a composed schedule's computations and messages, each distinct one once. A computation that ranks share takes no
/// less than the longest path through its body by itself: its first and its last step compute, and the steps of two
/// computations of a rank do not mix.
template <CostModel Cost>
class LeastTimes {
 public:
  /// @param known  null: none
  LeastTimes(const Schedule& schedule, const Cluster& cluster, const Cost& cost, CollectiveTimes* known = nullptr)
      : known_{known},
        schedule_{schedule},
        cluster_{cluster},
        cost_{cost},
        mesh_{schedule.parts().mesh.pipeline > 0 ? schedule.parts().mesh : Mesh{}.over(schedule.ranks())},
        classes_{cluster, mesh_} {}

  std::int64_t of(TaskId id) {
    const Task& task = schedule_.task(id);
    if (is_compute(task.op)) return computation(id, task);
    const auto [at, added] =
        messages_.try_emplace({task.op, task.rank, task.route(), task.bytes.total(), task.bytes.repeat()}, 0);
    if (!added) return at->second;
    const auto find = [&] { return alone_time(cost_.path(schedule_, task, cluster_), task.bytes, cluster_); };
    const bool symmetric = is_collective(task.op) && !is_all_pairs(task.op) && !is_rooted(task.op);
    if (known_ == nullptr || !symmetric || !cluster_.fabric().links.empty() || schedule_.group(task.group).size() < 16) {
      at->second = find();
    } else {
      std::vector<std::int32_t> key;
      add_members(key, schedule_.group(task.group), none<Rank>, cluster_);
      at->second = known_->find(task.op, std::move(key), task.bytes, find);
    }
    return at->second;
  }

  /// Of a computation, what its rank computes, without what its body waits for.
  std::int64_t work_of(TaskId id) {
    const Task& task = schedule_.task(id);
    const StageBody* const body = body_of(schedule_, task);
    return body == nullptr ? of(id) : longest_path(*body, task, false);
  }

  /// Tasks that simulating it takes, with its body written out.
  std::int64_t steps(const Task& task) const {
    const StageBody* const body = body_of(schedule_, task);
    return body == nullptr ? 1 : static_cast<std::int64_t>(body->size());
  }

 private:
  std::int64_t computation(TaskId id, const Task& task) {
    // Stages of as many layers with as much before and after them weigh the same.
    const bool work = task.stage != none<StageId>;
    const StageWork* const stage = work ? &schedule_.stage(task.stage) : nullptr;
    const auto [at, added] = computations_.try_emplace(
        {task.op, classes_.of(task.rank), stage == nullptr ? -1 : stage->layers,
         stage == nullptr ? -1 : (stage->embedding ? 1 : 0) + (stage->head ? 2 : 0), number(task.split), task.bytes.value(),
         stage == nullptr || !schedule_.workload().is_abstract() ? 0 : number(task.stage)},
        0);
    if (!added) return at->second;
    const StageBody* const body = body_of(schedule_, task);
    at->second = body == nullptr ? cost_.compute_time(schedule_, id, cluster_).value() : longest_path(*body, task);
    return at->second;
  }

  /// Of the steps of one computation, whose collectives have their links to themselves, or take nothing.
  std::int64_t longest_path(const StageBody& body, const Task& task, bool collectives = true) const {
    const MeshPlace place = mesh_.place(task.rank);
    const std::array<std::vector<Rank>, 2> members{mesh_.group(place, {MeshAxis::tensor}),
                                                   mesh_.group(place, {MeshAxis::context})};
    Schedule::Parts parts;  // one task for each step
    parts.ranks = schedule_.ranks();
    parts.mesh = mesh_;
    parts.stages = {schedule_.stage(task.stage)};
    std::vector<std::uint32_t> ends{0};
    std::vector<Rank> of_groups;
    for (const std::vector<Rank>& group : members) {
      of_groups.insert(of_groups.end(), group.begin(), group.end());
      ends.push_back(static_cast<std::uint32_t>(of_groups.size()));
    }
    parts.groups = Rows<Rank>{std::move(ends), std::move(of_groups)};
    const BodyTotals totals{body};
    std::vector<std::uint32_t> pairs_end{0};
    std::vector<Bytes> pairs;
    std::map<std::tuple<double, std::int64_t, std::int32_t>, SplitId> numbers;  // of equal computations
    for (const BodyStep& step : body) {
      Task one = task;
      one.stage = StageId{0};
      if (step.is_compute()) {
        const auto [at, added] =
            numbers.try_emplace({step.flops.value(), step.traffic.value(), step.pieces}, id<SplitId>(parts.steps.size()));
        if (added) parts.steps.push_back(work_of_step(parts.stages[0], step, totals, traits(task.op).passes));
        one.split = at->second;
      } else {
        const std::vector<Rank>& group = members[step.context ? 1 : 0];
        one = {.op = op_of(step.kind), .rank = group[0], .group = GroupId{step.context ? 1 : 0}, .bytes = step.bytes};
        if (step.kind == BodyStep::Kind::ring) {
          const std::vector<Bytes> ring = ring_pairs(static_cast<int>(group.size()), step.bytes);
          one.split = id<SplitId>(pairs_end.size() - 1);
          pairs.insert(pairs.end(), ring.begin(), ring.end());
          pairs_end.push_back(static_cast<std::uint32_t>(pairs.size()));
        }
      }
      parts.tasks.push_back(one);
    }
    parts.pair_sizes = Rows<Bytes>{std::move(pairs_end), std::move(pairs)};
    const Schedule steps{schedule_.workload(), std::move(parts)};
    std::map<std::tuple<Op, bool, Bytes>, std::int64_t> known;                        // of collectives
    std::map<std::tuple<double, std::int64_t, std::int32_t>, std::int64_t> computed;  // of computations
    std::vector<std::int64_t> end(body.size(), 0);
    std::array<std::int64_t, 3> lane{};  // computations, tensor and context collectives each follow one another
    for (std::size_t s = 0; s < body.size(); ++s) {
      const BodyStep& step = body[s];
      std::int64_t& before = lane[step.is_compute() ? 0U : step.context ? 2U : 1U];
      std::int64_t start = before;
      for (const std::int32_t earlier : step.after) {
        if (earlier >= 0) start = std::max(start, end[static_cast<std::size_t>(earlier)]);
      }
      std::int64_t time = 0;
      if (step.is_compute()) {
        const auto [at, added] = computed.try_emplace({step.flops.value(), step.traffic.value(), step.pieces}, 0);
        if (added) at->second = cost_.compute_time(steps, id<TaskId>(s), cluster_).value();
        time = at->second;
      } else if (collectives) {
        const Task& one = steps.tasks()[s];
        const auto [at, added] = known.try_emplace({one.op, step.context, step.bytes}, 0);
        if (added) at->second = alone_time(cost_.path(steps, one, cluster_), one.bytes, cluster_);
        time = at->second;
      }
      before = end[s] = start + time;
    }
    return end.back();
  }

  CollectiveTimes* known_;
  const Schedule& schedule_;
  const Cluster& cluster_;
  const Cost& cost_;
  Mesh mesh_;
  RankClasses classes_;
  std::map<std::tuple<Op, Rank, std::int64_t, Bytes, std::int32_t>, std::int64_t> messages_;
  std::map<std::tuple<Op, int, std::int32_t, int, std::int32_t, std::int64_t, std::int32_t>, std::int64_t> computations_;
};

/// The most that each rank holds at one of its own computations that takes time: persistent buffers, and those that it uses both
/// before and after. @param need  gets the fullest rank's, and whether all fit
template <CostModel Cost>
void least_memory(const Schedule& schedule, const Cluster& cluster, double usable, LeastTimes<Cost>& times, LeastNeed& need) {
  struct Life {
    std::int32_t first = std::numeric_limits<std::int32_t>::max();
    std::int32_t last = -1;
  };
  std::vector<Life> lives(schedule.buffers().size());
  std::vector<std::int32_t> computed(static_cast<std::size_t>(schedule.ranks()), 0);
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    if (!is_compute(task.op)) continue;
    // One that takes no time lies between the one before it and the one after.
    std::int32_t& passed = computed[index(task.rank)];
    const std::int32_t first = passed;
    if (times.of(id<TaskId>(t)) > 0) ++passed;
    for (const Use& use : schedule.uses(id<TaskId>(t))) {
      if (schedule.buffer(use.buffer).rank != task.rank) continue;
      Life& life = lives[index(use.buffer)];
      life.first = std::min(life.first, first);
      life.last = std::max(life.last, passed - 1);
    }
  }
  std::vector<std::size_t> begin(computed.size() + 1, 0);
  for (std::size_t rank = 0; rank < computed.size(); ++rank) {
    begin[rank + 1] = begin[rank] + static_cast<std::size_t>(computed[rank]) + 1;
  }
  std::vector<std::int64_t> change(begin.back(), 0);
  std::vector<std::int64_t> persistent(computed.size(), 0);
  for (std::size_t b = 0; b < lives.size(); ++b) {
    const Buffer& buffer = schedule.buffers()[b];
    if (buffer.host) continue;
    if (buffer.persistent) persistent[index(buffer.rank)] += buffer.bytes.value();
    if (buffer.persistent || lives[b].last < lives[b].first) continue;
    change[begin[index(buffer.rank)] + static_cast<std::size_t>(lives[b].first)] += buffer.bytes.value();
    change[begin[index(buffer.rank)] + static_cast<std::size_t>(lives[b].last) + 1] -= buffer.bytes.value();
  }
  double fullest = -1;
  for (std::size_t rank = 0; rank < computed.size(); ++rank) {
    std::int64_t now = persistent[rank];
    std::int64_t most = now;
    for (std::size_t i = begin[rank]; i < begin[rank + 1]; ++i) most = std::max(most, now += change[i]);
    const Bytes limit = usable_part(cluster.device(id<Rank>(rank)).memory, usable);
    need.fits = need.fits && Bytes{most} <= limit;
    const double share = static_cast<double>(most) / static_cast<double>(std::max<std::int64_t>(1, limit.value()));
    if (share <= fullest) continue;
    fullest = share;
    need.memory = Bytes{most};
  }
}

}  // namespace detail

/// What `schedule` takes at least: time by its longest path through dependencies and lanes, where each message has its links to
/// itself and each shared computation its body; memory by the order of each rank's computations.
///
/// Holds for simulate() with the same cost, and for any schedule of which `schedule` has some ranks' tasks whole, as the kept
/// copies of a fold are (compose_folded()): waiting for the rest can only take longer. Not with noise, which may shorten times.
/// @param schedule  composed, bodies not written out
/// @param usable    fraction of a device's memory that may be needed; without a model memory is not looked at
/// @param known     times that others found with the same cluster and cost, and what is found here; null: none
/// Complexity: O(tasks + dependencies + uses), and the cost model once for each distinct task.
template <CostModel Cost>
LeastNeed least_need(const Schedule& schedule, const Cluster& cluster, const Cost& cost, double usable = 1,
                     detail::CollectiveTimes* known = nullptr) {
  LeastNeed need;
  detail::LeastTimes<Cost> times{schedule, cluster, cost, known};
  if (!schedule.workload().is_abstract()) detail::least_memory(schedule, cluster, usable, times, need);
  std::vector<std::int64_t> end(schedule.tasks().size());
  std::vector<std::int64_t> lanes(static_cast<std::size_t>(schedule.ranks()) * schedule.lanes().size(), 0);
  std::int64_t last = 0;
  for (std::size_t t = 0; t < end.size(); ++t) {
    const TaskId task = id<TaskId>(t);
    std::int64_t start = 0;
    for (const TaskId earlier : schedule.dependencies(task)) start = std::max(start, end[index(earlier)]);
    const auto lane_of = [&](Rank rank, int lane) -> std::int64_t& {
      return lanes[index(rank) * schedule.lanes().size() + static_cast<std::size_t>(lane)];
    };
    for_each_end(schedule, task, [&](Rank rank, int lane) { start = std::max(start, lane_of(rank, lane)); });
    end[t] = start + times.of(task);
    for_each_end(schedule, task, [&](Rank rank, int lane) { lane_of(rank, lane) = end[t]; });
    need.ends += static_cast<std::int64_t>(number_of_ends(schedule, schedule.tasks()[t]));
    need.steps += times.steps(schedule.tasks()[t]);
    last = std::max(last, end[t]);
  }
  // A picosecond a task for rounding, of steps too.
  need.time = Duration{std::max<std::int64_t>(0, last - need.steps)};
  return need;
}

}  // namespace tawpipe
