// Lower bounds: the best time of one schedule on a cluster, and the least memory that it needs,
// without simulating it.
// Not: the search that drops candidates by them (search/plan.hpp), nor bounds for all schedules
// (search/bound.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/schedule/expand.hpp"
#include "tawpipe/search/detail/rank_classes.hpp"
#include "tawpipe/search/least_memory.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The time of a message if nothing else uses its links: the latencies, then its bytes at the
/// slowest link's rate. Shared links only make it longer. Rounded down by a picosecond, as the
/// engine rounds.
inline std::int64_t alone_time(const Path& path, const Messages& bytes, const Cluster& cluster) {
  double rate = std::numeric_limits<double>::infinity();
  for (const LinkLoad& load : path.loads) rate = std::min(rate, cluster.link(load.link).bandwidth.value() / load.weight);
  const double flow = path.fraction * static_cast<double>(bytes.total().value()) / rate * 1e12;
  const std::int64_t latency = saturating_multiply<std::int64_t>(path.latency.value(), bytes.repeat());
  return std::max<std::int64_t>(0, latency + static_cast<std::int64_t>(std::min(flow, 9e18)) - 1);
}

/// The steps of a body that differ in work and size: each layer has the same ones.
struct DistinctSteps {
  std::vector<const BodyStep*> first;  ///< of each kind
  std::vector<std::size_t> number;     ///< [step] its kind

  explicit DistinctSteps(const StageBody& body) {
    std::vector<std::size_t> next;  // [kind] what followed it last
    number.reserve(body.size());
    for (const BodyStep& step : body) {
      std::size_t kind = number.empty() ? 0 : next[number.back()];
      if (kind >= first.size() || !alike(*first[kind], step)) {
        kind = 0;
        while (kind < first.size() && !alike(*first[kind], step)) ++kind;
      }
      if (kind == first.size()) {
        first.push_back(&step);
        next.push_back(0);
      }
      if (!number.empty()) next[number.back()] = kind;
      number.push_back(kind);
    }
  }

 private:
  static bool alike(const BodyStep& a, const BodyStep& b) {
    return a.kind == b.kind && a.axis == b.axis && a.inner == b.inner && a.pieces == b.pieces && a.flops == b.flops &&
           a.traffic == b.traffic && a.bytes == b.bytes && a.relayed == b.relayed && a.kernels == b.kernels;
  }
};

/// Times of a composed schedule's computations and messages, each distinct one computed once. A
/// computation that ranks share takes no less than the longest path through its body by itself: its
/// first and its last step compute, and the steps of two computations of a rank do not mix.
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
        classes_{cluster, mesh_},
        recent_((schedule.stages().size() + 1) * ops) {}

  std::int64_t of(TaskId id) { return times_of(id).first; }

  /// Its time with no other on its links, and where all copies of the schedule send at once through
  /// a node's adapters.
  std::pair<std::int64_t, std::int64_t> times_of(TaskId id) {
    const Task& task = schedule_.task(id);
    if (is_compute(task.op)) {
      const std::int64_t time = computation(id, task);
      return {time, time};
    }
    const auto [at, added] =
        messages_.try_emplace({task.op, task.rank, task.route(), task.bytes.total(), task.bytes.repeat()}, 0, 0);
    if (!added) return at->second;
    const auto find = [&] { return alone_time(cost_.path(schedule_, task, cluster_), task.bytes, cluster_); };
    const bool symmetric = is_collective(task.op) && !is_all_pairs(task.op) && !is_rooted(task.op);
    std::int64_t time = 0;
    if (known_ == nullptr || !symmetric || !cluster_.fabric().links.empty() || schedule_.group(task.group).size() < 4) {
      time = find();
    } else {
      std::vector<std::int32_t> key;
      add_members(key, schedule_.group(task.group), none<Rank>, cluster_);
      time = known_->find(task.op, std::move(key), task.bytes, find);
    }
    at->second = {time, static_cast<std::int64_t>(std::min(static_cast<double>(time) * sharers(task), 9e18))};
    return at->second;
  }

  /// Of a computation the time without waits in its body, and of().
  std::pair<std::int64_t, std::int64_t> body_times_of(TaskId id) {
    const Task& task = schedule_.task(id);
    const StageBody* const body = body_of(schedule_, task);
    if (body == nullptr) return {of(id), of(id)};
    const std::pair<std::int64_t, std::int64_t> times = body_times(*body, task);
    return {times.first, alternates(task) ? times.first : times.second};
  }

  /// The number of tasks in its simulation, with its body expanded.
  std::int64_t steps(const Task& task) const {
    const StageBody* const body = body_of(schedule_, task);
    return body == nullptr ? 1 : static_cast<std::int64_t>(body->size());
  }

 private:
  /// Copies of a message between nodes for each adapter of its first rank's node; 1 inside a node.
  /// Those of a collective are of all the node's ranks, since sums come at an iteration's end.
  double sharers(const Task& task) const {
    if (!is_point_to_point(task.op) && !is_collective(task.op)) return 1;  // to host memory
    const Rank self = is_point_to_point(task.op) ? task.rank : schedule_.group(task.group)[0];
    const int stage = mesh_.place(self).pipeline;
    int members = 1;
    bool crosses = is_point_to_point(task.op) && !cluster_.same_node(self, task.peer);
    if (!is_point_to_point(task.op)) {
      members = 0;
      for (const Rank member : schedule_.group(task.group)) {
        const bool here = cluster_.same_node(self, member);
        crosses = crosses || !here;
        if (here) ++members;
      }
    }
    if (!crosses) return 1;
    const NodeId node = cluster_.node_of(self);
    const NodeType& type = cluster_.kinds()[static_cast<std::size_t>(cluster_.kind_index(node))];
    std::vector<std::int32_t> adapters;
    int alike = 0;
    for (std::size_t device = 0; device < type.devices.size(); ++device) {
      const Rank rank{number(cluster_.first_rank(node)) + static_cast<std::int32_t>(device)};
      if (!is_point_to_point(task.op) || mesh_.place(rank).pipeline == stage) ++alike;
      if (!type.to_network[device].empty()) adapters.push_back(type.to_network[device].back());
    }
    std::sort(adapters.begin(), adapters.end());
    const auto distinct = std::unique(adapters.begin(), adapters.end()) - adapters.begin();
    return std::max(1.0, static_cast<double>(alike) / members / static_cast<double>(std::max<std::ptrdiff_t>(1, distinct)));
  }

  std::int64_t computation(TaskId id, const Task& task) {
    // Stages with the same number of layers, as many of them computed again and of the first kind, and
    // the same parts before and after them, have equal work.
    const bool work = task.stage != none<StageId>;
    const int rank_class = classes_.of(task.rank);
    Recent& recent = recent_[(work ? index(task.stage) + 1 : 0) * ops + static_cast<std::size_t>(task.op)];
    if (recent.rank_class == rank_class && recent.split == task.split && recent.bytes == task.bytes.value()) return recent.time;
    const StageWork* const stage = work ? &schedule_.stage(task.stage) : nullptr;
    const auto [at, added] = computations_.try_emplace(
        {task.op, rank_class, stage == nullptr ? -1 : stage->layers, stage == nullptr ? -1 : stage->recomputed,
         stage == nullptr ? -1 : (stage->first_edge ? 1 : 0) + (stage->last_edge ? 2 : 0),
         stage == nullptr ? LayerPattern{} : stage->kinds, number(task.split), task.bytes.value(),
         stage == nullptr || !schedule_.workload().is_abstract() ? 0 : number(task.stage)},
        0);
    if (added) {
      const StageBody* const body = body_of(schedule_, task);
      // Collectives of stages that take turns may run while another microbatch computes.
      at->second = body == nullptr ? cost_.compute_time(schedule_, id, cluster_).value() : body_times_of(id).second;
    }
    recent = {rank_class, task.split, task.bytes.value(), at->second};
    return at->second;
  }

  bool alternates(const Task& task) const { return schedule_.parts().bodies[index(task.stage)].alternates; }

  /// The time of one computation's steps, where collectives take no time, and where they have their links
  /// to themselves. Steps of which each layer has equal ones are computed once.
  std::pair<std::int64_t, std::int64_t> body_times(const StageBody& body, const Task& task) {
    const MeshPlace place = mesh_.place(task.rank);
    std::array<std::vector<Rank>, body_axes> members;
    for (std::size_t a = 0; a < members.size(); ++a) members[a] = body_group(mesh_, place, static_cast<BodyStep::Axis>(a));
    Schedule::Parts parts;  // one task for each distinct step
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
    const DistinctSteps distinct{body};
    std::vector<std::int64_t*> time_of_step;  // [distinct step] where its time is
    std::vector<std::int64_t> computations(distinct.first.size(), 0);
    std::vector<std::int64_t*> open;  // [task]
    for (const BodyStep* const first : distinct.first) {
      const BodyStep& step = *first;
      std::int64_t* time = &computations[time_of_step.size()];
      bool known = false;
      if (!step.is_compute()) {
        const auto [at, added] = collectives_.try_emplace({members[static_cast<std::size_t>(step.axis)][0], step.axis, step.kind,
                                                           step.bytes.value(), step.inner, step.relayed.value()},
                                                          0);
        time = &at->second;
        known = !added;
      }
      time_of_step.push_back(time);
      if (known) continue;
      open.push_back(time);
      Task one = task;
      one.stage = StageId{0};
      if (step.is_compute()) {
        one.bytes = {};  // the first step's copies of states, left out
        one.split = id<SplitId>(parts.steps.size());
        parts.steps.push_back(work_of_step(parts.stages[0], step, totals, traits(task.op).passes));
      } else {
        const auto axis = static_cast<std::size_t>(step.axis);
        const std::vector<Rank>& group = members[axis];
        one = {.op = op_of(step.kind), .rank = group[0], .group = id<GroupId>(axis), .bytes = step.bytes};
        if (has_pairs(step)) {
          const std::vector<Bytes> sizes = pairs_of(step, static_cast<int>(group.size()));
          one.split = id<SplitId>(pairs_end.size() - 1);
          pairs.insert(pairs.end(), sizes.begin(), sizes.end());
          pairs_end.push_back(static_cast<std::uint32_t>(pairs.size()));
        }
      }
      parts.tasks.push_back(one);
    }
    parts.pair_sizes = Rows<Bytes>{std::move(pairs_end), std::move(pairs)};
    const Schedule steps{schedule_.workload(), std::move(parts)};
    for (std::size_t t = 0; t < steps.tasks().size(); ++t) {
      const Task& one = steps.tasks()[t];
      *open[t] = is_compute(one.op) ? cost_.compute_time(steps, id<TaskId>(t), cluster_).value()
                                    : alone_time(cost_.path(steps, one, cluster_), one.bytes, cluster_);
    }
    std::int64_t work = 0;
    std::vector<std::int64_t> end(body.size(), 0);
    std::array<std::int64_t, 1 + body_axes> lane{};  // computations, and collectives of each axis, follow one another
    for (std::size_t s = 0; s < body.size(); ++s) {
      const BodyStep& step = body[s];
      std::int64_t& before = lane[step.is_compute() ? 0U : 1U + static_cast<unsigned>(step.axis)];
      std::int64_t start = before;
      for (const std::int32_t earlier : step.after) {
        if (earlier >= 0) start = std::max(start, end[static_cast<std::size_t>(earlier)]);
      }
      const std::int64_t time = *time_of_step[distinct.number[s]];
      before = end[s] = start + time;
      if (step.is_compute()) work += time;
    }
    return {work, end.back()};
  }

  /// The last computation of an operation and a stage: the next is most often alike.
  struct Recent {
    int rank_class = -1;
    SplitId split = {};
    std::int64_t bytes = 0;
    std::int64_t time = 0;
  };

  CollectiveTimes* known_;
  const Schedule& schedule_;
  const Cluster& cluster_;
  const Cost& cost_;
  Mesh mesh_;
  RankClasses classes_;
  std::vector<Recent> recent_;  ///< [stage or none, operation]
  /// Alone, and with all copies (times_of()).
  std::map<std::tuple<Op, Rank, std::int64_t, Bytes, std::int32_t>, std::pair<std::int64_t, std::int64_t>> messages_;
  std::map<std::tuple<Op, int, std::int32_t, std::int32_t, int, LayerPattern, std::int32_t, std::int64_t, std::int32_t>,
           std::int64_t>
      computations_;
  /// Of bodies, by the group's first rank and axis.
  std::map<std::tuple<Rank, BodyStep::Axis, BodyStep::Kind, std::int64_t, std::int32_t, std::int64_t>, std::int64_t> collectives_;
};

}  // namespace detail

/// Lower bounds of `schedule`: time by its longest path through dependencies and lanes, where each
/// message has its links to itself and each shared computation its body; memory by the order of
/// each rank's computations.
///
/// Holds for simulate() with the same cost, and for any schedule of which `schedule` has all tasks
/// of some ranks, like the kept copies of a fold (compose_kept()): waiting for the rest can only
/// take longer. Not with noise, which may shorten times.
/// @param schedule  composed, with bodies not expanded
/// @param usable    fraction of a device's memory that may be needed; without a model memory is
/// ignored
/// @param known     cache of times for the same cluster and cost; null: none
/// Complexity: O(tasks + dependencies + uses), and the cost model once for each distinct task.
template <CostModel Cost>
MinNeed min_need(const Schedule& schedule, const Cluster& cluster, const Cost& cost, double usable = 1,
                 detail::CollectiveTimes* known = nullptr) {
  MinNeed need;
  detail::LeastTimes<Cost> times{schedule, cluster, cost, known};
  detail::LeastMemory memory{schedule};
  for (const StageWork& stage : schedule.stages()) {
    need.layers += stage.layers;
    need.kept += stage.layers - stage.recomputed;
  }
  struct PathTimes {
    std::int64_t alone = 0;
    std::int64_t usual = 0;
    void wait_for(const PathTimes& other) {
      alone = std::max(alone, other.alone);
      usual = std::max(usual, other.usual);
    }
  };
  std::vector<PathTimes> end(schedule.tasks().size());
  std::vector<PathTimes> lanes(static_cast<std::size_t>(schedule.ranks()) * schedule.lanes().size());
  PathTimes last;
  const bool buckets = !schedule.parts().buckets.empty();
  need.steps = static_cast<std::int64_t>(schedule.parts().buckets.size());  // of computations cut there
  for (std::size_t t = 0; t < end.size(); ++t) {
    const TaskId task = id<TaskId>(t);
    PathTimes now;
    PathTimes late;  // buckets of weights that it needs before it ends
    for (const TaskId earlier : schedule.dependencies(task)) {
      PathTimes done = end[index(earlier)];
      if (buckets && is_work(schedule.task(earlier).op) && schedule.bucket(task) != nullptr) {
        const auto [alone, usual] = times.times_of(earlier);  // its gradients may be complete as soon as it begins
        done = {done.alone - alone, done.usual - usual};
      } else if (buckets && is_work(schedule.task(task).op) && schedule.bucket(earlier) != nullptr) {
        late.wait_for(std::exchange(done, {}));
      }
      now.wait_for(done);
    }
    const auto lane_of = [&](Rank rank, int lane) -> PathTimes& {
      return lanes[index(rank) * schedule.lanes().size() + static_cast<std::size_t>(lane)];
    };
    for_each_end(schedule, task, [&](Rank rank, int lane) { now.wait_for(lane_of(rank, lane)); });
    const auto [alone, usual] = times.times_of(task);
    if (is_compute(schedule.task(task).op)) memory.pass(task, alone);
    now.alone += alone;
    now.usual = static_cast<std::int64_t>(std::min(static_cast<double>(now.usual) + static_cast<double>(usual), 9e18));
    now.wait_for(late);
    end[t] = now;
    for_each_end(schedule, task, [&](Rank rank, int lane) { lane_of(rank, lane) = now; });
    need.splits_backward = need.splits_backward || schedule.task(task).op == Op::backward_weight;
    need.ends += static_cast<std::int64_t>(number_of_ends(schedule, schedule.tasks()[t]));
    need.steps += times.steps(schedule.tasks()[t]);
    last.wait_for(now);
  }
  if (!schedule.workload().is_abstract()) memory.take(cluster, usable, need);
  // A picosecond a task for rounding, of steps too.
  need.time = Duration{std::max<std::int64_t>(0, last.alone - need.steps)};
  need.usual = Duration{last.usual};
  return need;
}

namespace detail {

/// MinNeed::fits by itself. @pre as min_need()
template <CostModel Cost>
bool may_fit(const Schedule& schedule, const Cluster& cluster, const Cost& cost, double usable) {
  if (schedule.workload().is_abstract()) return true;
  LeastTimes<Cost> times{schedule, cluster, cost};
  LeastMemory memory{schedule};
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    if (is_compute(schedule.tasks()[t].op)) memory.pass(id<TaskId>(t), times.of(id<TaskId>(t)));
  }
  MinNeed need;
  memory.take(cluster, usable, need);
  return need.fits;
}

}  // namespace detail

}  // namespace tawpipe
