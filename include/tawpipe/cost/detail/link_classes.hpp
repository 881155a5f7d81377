// The links of a cluster that images of folded communications load alike, and collectives whose
// members wait for each other although only one of them is kept.
// Not: the cost of a folded schedule (cost/folded_cost.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/cost/held_sms.hpp"
#include "tawpipe/schedule/fold.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0::detail {

/// The loads of all images of all kinds, and the classes of links.
///
/// Two links are in one class if they have the same bandwidth and the same load: for each kind the
/// same number of images, with the same weights. Folding is exact if all images of a kind have one
/// latency and load the same set of classes. Proof: let all flows of a kind start together. Give
/// each the rate of the fair solution in which every class is one link that holds what each of its
/// links holds: no link is overloaded, and each flow crosses a link of its kind's bottleneck class,
/// which is saturated and on which no flow is faster. So these rates are the fair ones, which are
/// unique, and all flows of a kind end together; by induction over time images never differ.
class LinkClasses {
 public:
  /// Adds the next image of kind `kind`; kinds come in order.
  void add(std::size_t kind, const Path& path);

  /// Finds the classes. Complexity: O(loads log loads).
  void classify(const Cluster& cluster);

  /// The classes that an image loads, each by its first link, in order.
  std::vector<LinkId> classes(std::size_t image) const;

  /// The load of all images of `kind` on one link of each of these classes; a link is listed once
  /// for each image that crosses it.
  std::vector<LinkLoad> loads(std::size_t kind, std::span<const LinkId> classes) const;

 private:
  struct Load {
    LinkId link;
    std::uint32_t kind;
    double weight;
  };
  std::vector<Load> loads_;             ///< by image
  std::vector<std::size_t> image_end_;  ///< [image]
  std::vector<Load> sorted_;            ///< by link, kind and weight
  std::vector<LinkId> class_of_;        ///< [link] the first link of its class
};

/// A collective of copies for which only one of them has to wait, so that the others arrive sooner;
/// empty if there is none, or if ranks that wait hold nothing.
TAWPIPE_INLINE std::string find_unequal_arrival(const FoldedSchedule& folded, const Cluster& cluster, const HeldSms& held);

}  // namespace tawpipe::detail

#if TAWPIPE_BODIES
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::detail {

TAWPIPE_INLINE void LinkClasses::add(std::size_t kind, const Path& path) {
  for (const LinkLoad& load : path.loads) loads_.push_back({load.link, static_cast<std::uint32_t>(kind), load.weight});
  image_end_.push_back(loads_.size());
}

TAWPIPE_INLINE void LinkClasses::classify(const Cluster& cluster) {
  sorted_ = loads_;
  std::sort(sorted_.begin(), sorted_.end(),
            [](const Load& a, const Load& b) { return std::tie(a.link, a.kind, a.weight) < std::tie(b.link, b.kind, b.weight); });
  class_of_.assign(static_cast<std::size_t>(cluster.links()), none<LinkId>);
  using Seen = std::vector<std::pair<std::uint32_t, double>>;
  std::map<std::pair<double, Seen>, LinkId> classes;
  std::pair<double, Seen> seen;
  for (std::size_t begin = 0, end = 0; begin < sorted_.size(); begin = end) {
    const LinkId link = sorted_[begin].link;
    seen.first = cluster.link(link).bandwidth.value();
    seen.second.clear();
    for (; end < sorted_.size() && sorted_[end].link == link; ++end) {
      seen.second.emplace_back(sorted_[end].kind, sorted_[end].weight);
    }
    class_of_[index(link)] = classes.try_emplace(seen, link).first->second;
  }
}

TAWPIPE_INLINE std::vector<LinkId> LinkClasses::classes(std::size_t image) const {
  std::vector<LinkId> found;
  for (std::size_t i = image == 0 ? 0 : image_end_[image - 1]; i < image_end_[image]; ++i) {
    found.push_back(class_of_[index(loads_[i].link)]);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

TAWPIPE_INLINE std::vector<LinkLoad> LinkClasses::loads(std::size_t kind, std::span<const LinkId> classes) const {
  std::vector<LinkLoad> all;
  const auto number = static_cast<std::uint32_t>(kind);
  for (const LinkId link : classes) {
    auto load = std::partition_point(sorted_.begin(), sorted_.end(), [&](const Load& other) {
      return std::tie(other.link, other.kind) < std::tie(link, number);
    });
    for (; load != sorted_.end() && load->link == link && load->kind == number; ++load) all.push_back({link, load->weight});
  }
  return all;
}

TAWPIPE_INLINE std::string find_unequal_arrival(const FoldedSchedule& folded, const Cluster& cluster, const HeldSms& held) {
  if (!held.waiting) return {};
  const Schedule& schedule = folded.schedule;
  HeldCtas ctas{held, schedule, cluster};
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    if (!is_collective(task.op) || ctas.of(task) == 0) continue;
    const auto members = schedule.group(task.group);
    const auto is_member = [&](Rank rank) { return std::find(members.begin(), members.end(), rank) != members.end(); };
    if (std::all_of(members.begin(), members.end(), [&](Rank rank) { return folded.same_as[index(rank)] == rank; })) continue;
    for (const TaskId earlier : schedule.dependencies(id<TaskId>(t))) {
      bool met = false;
      for_each_end(schedule, earlier, [&](Rank rank, int) { met = met || is_member(rank); });
      if (!met)
        return concat("the other members of the ", name(task.op), " of rank ", number(task.rank), " hold SMs before it does");
    }
  }
  return {};
}

}  // namespace tawpipe::detail
#endif
