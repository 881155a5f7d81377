// The load of a folded schedule's communications on the links of the whole cluster, and whether
// folding is exact there.
// Not: the folding itself (schedule/fold.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/cost/detail/link_classes.hpp"
#include "tawpipe/cost/held_sms.hpp"
#include "tawpipe/schedule/fold.hpp"

namespace tawpipe::inline v0 {

/// `inner` for the schedule of a fold: each communication loads one link in place of all links with
/// the same traffic, as often as images of it cross that link. Made by folded_cost(); must not
/// outlive its arguments.
template <CostModel Inner>
struct FoldedCost {
  const Inner* inner;
  const FoldedSchedule* folded;
  std::vector<Path> paths;  ///< [kind]

  Duration compute_time(const Schedule& schedule, TaskId id, const Cluster& cluster) const {
    return inner->compute_time(schedule, id, cluster);
  }
  Path path(const Schedule&, const Task& task, const Cluster&) const { return paths[folded->kind(task)]; }
  bool paths_by_size() const { return tawpipe::paths_by_size(*inner); }
  bool times_by_work() const { return tawpipe::times_by_work(*inner); }
  const HeldSms* held_sms() const { return held_sms_of(*inner); }
};

/// A folded cost, or the reason why there is none.
template <CostModel Inner>
struct FoldOutcome {
  std::optional<FoldedCost<Inner>> cost;
  std::string refusal;  ///< empty if there is a cost
};

namespace detail {

/// The first computation whose time on a copy differs from that on the kept rank; empty if there is
/// none.
template <CostModel Inner>
class UnequalComputation {
 public:
  UnequalComputation(const FoldedSchedule& folded, const Cluster& cluster, const Inner& cost)
      : folded_{folded}, cluster_{cluster}, cost_{cost}, distinct_(folded.same_as.size()), copies_(folded.same_as.size()) {
    for (std::size_t rank = 0; rank < copies_.size(); ++rank) {
      std::vector<Rank>& copies = copies_[index(folded.same_as[rank])];
      const DeviceSpec& device = cluster.device(id<Rank>(rank));
      const auto is_alike = [&](Rank other) { return cluster.device(other) == device; };
      if (times_by_work(cost) && std::any_of(copies.begin(), copies.end(), is_alike)) continue;
      copies.push_back(id<Rank>(rank));
    }
    std::set<std::tuple<Rank, Op, StageId, SplitId, Bytes>> known;
    for (const Task& task : folded.schedule.tasks()) {
      if (!is_compute(task.op) || copies_[index(task.rank)].size() < 2) continue;
      if (!known.insert({task.rank, task.op, task.stage, task.split, task.bytes}).second) continue;
      distinct_[index(task.rank)].push_back(task);
    }
  }

  std::string find() const {
    constexpr std::size_t most = std::size_t{1} << 19;  // tasks at a time, each time with all stages
    std::size_t begin = 0;
    std::size_t tasks = 0;
    for (std::size_t kept = 0; kept < copies_.size(); ++kept) {
      tasks += distinct_[kept].size() * copies_[kept].size();
      if (tasks < most && kept + 1 < copies_.size()) continue;
      if (std::string found = find(begin, kept + 1, tasks); !found.empty()) return found;
      begin = kept + 1;
      tasks = 0;
    }
    return {};
  }

 private:
  /// The same for the kept ranks from `begin` to `end`, whose copies have that many tasks.
  std::string find(std::size_t begin, std::size_t end, std::size_t tasks) const {
    Schedule::Parts parts;
    parts.ranks = folded_.schedule.ranks();
    parts.stages = folded_.schedule.parts().stages;
    parts.steps = folded_.schedule.parts().steps;
    parts.tasks.reserve(tasks);
    for (std::size_t kept = begin; kept < end; ++kept) {
      for (const Rank copy : copies_[kept]) {
        for (Task task : distinct_[kept]) {
          task.rank = copy;
          parts.tasks.push_back(task);
        }
      }
    }
    const Schedule all{folded_.schedule.workload(), std::move(parts)};
    std::vector<Duration> times;  // of the kept rank
    std::size_t t = 0;
    for (std::size_t kept = begin; kept < end; ++kept) {
      const std::vector<Rank>& copies = copies_[kept];
      if (const HeldSms* held = held_sms_of(cost_)) {
        for (const Rank copy : copies) {
          if (held->sms_of(cluster_.device(copy)) == held->sms_of(cluster_.device(copies[0]))) continue;
          return concat("rank ", number(copy), " has another number of SMs than rank ", kept);
        }
      }
      times.clear();
      for (std::size_t i = 0; i < distinct_[kept].size() * copies.size(); ++i, ++t) {
        const Duration time = cost_.compute_time(all, id<TaskId>(t), cluster_);
        if (i < distinct_[kept].size()) {
          times.push_back(time);
        } else if (time != times[i % times.size()]) {
          const Task& task = all.tasks()[t];
          return concat("a ", name(task.op), " takes rank ", number(task.rank), " another time than rank ", kept);
        }
      }
    }
    return {};
  }

  const FoldedSchedule& folded_;
  const Cluster& cluster_;
  const Inner& cost_;
  std::vector<std::vector<Task>> distinct_;  ///< [kept rank] none where no copy may differ
  /// [kept rank] itself first, and those whose times may differ from it
  std::vector<std::vector<Rank>> copies_;
};

}  // namespace detail

/// `inner` folded, if all images of each task take the same time and see the same traffic on
/// `cluster`.
/// @pre `inner` depends only on a computation's rank, op, stage, step and bytes; FactoredCost
/// depends on the task
/// Complexity: O(loads log loads) over all distinct communications of all ranks.
template <CostModel Inner>
FoldOutcome<Inner> folded_cost(const FoldedSchedule& folded, const Cluster& cluster, const Inner& inner) {
  if (std::string unequal = detail::UnequalComputation{folded, cluster, inner}.find(); !unequal.empty()) {
    return {std::nullopt, std::move(unequal)};
  }
  const HeldSms* const held = held_sms_of(inner);
  if (held != nullptr) {
    if (held->launch_order_implicit) return {std::nullopt, "the calls of each rank are ordered (launch-order=implicit)"};
    if (std::string unequal = detail::find_unequal_arrival(folded, cluster, *held); !unequal.empty()) {
      return {std::nullopt, std::move(unequal)};
    }
  }
  FoldedCost<Inner> cost{&inner, &folded, {}};
  detail::LinkClasses links;
  const auto is_zero_cta = [&](const Task& task) { return held != nullptr && held->is_zero_cta(folded.census, task, cluster); };
  for (std::size_t kind = 0; kind < folded.kinds.size(); ++kind) {
    for (const Task& image : folded.images(kind)) {
      const Task& first = folded.images(kind)[0];
      if (is_zero_cta(image) != is_zero_cta(first)) {
        return {std::nullopt, concat("only one of the ", name(image.op), " of rank ", number(image.rank), " and that of rank ",
                                     number(first.rank), " is inside a node, where it holds no SMs")};
      }
      const Path path = inner.path(folded.census, image, cluster);
      links.add(kind, path);
      if (cost.paths.size() == kind) cost.paths.push_back({path.latency, path.fraction, {}});
      if (path.latency != cost.paths[kind].latency || path.fraction != cost.paths[kind].fraction) {
        return {std::nullopt, concat("the ", name(image.op), " of rank ", number(image.rank),
                                     " takes another latency than that of rank ", number(first.rank))};
      }
    }
  }
  links.classify(cluster);
  for (std::size_t kind = 0; kind < folded.kinds.size(); ++kind) {
    const std::size_t first = folded.begin[kind];
    const std::vector<LinkId> classes = links.classes(first);
    for (std::size_t image = first + 1; image < folded.begin[kind + 1]; ++image) {
      if (links.classes(image) == classes) continue;
      const Task& other = folded.census.tasks()[image];
      return {std::nullopt,
              concat("the ", name(other.op), " of rank ", number(other.rank),
                     " shares its links with other traffic than that of rank ", number(folded.census.tasks()[first].rank))};
    }
    cost.paths[kind].loads = links.loads(kind, classes);
  }
  return {std::move(cost), {}};
}

}  // namespace tawpipe
