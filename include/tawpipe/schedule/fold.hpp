// A composed schedule folded: one tensor-parallel rank, context or expert part or replica stands for
// all those of its axis, which do the same at the same time.
// Not: whether they do so on a given cluster (cost/folded_cost.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/expand.hpp"

namespace tawpipe::inline v0 {

/// The axes of a mesh that are folded.
struct FoldAxes {
  bool tensor = false;
  bool context = false;
  bool data = false;
  bool expert = false;

  /// Devices that each simulated one stands for.
  int factor(const Mesh& mesh) const {
    return (tensor ? mesh.tensor : 1) * (context ? mesh.context : 1) * (expert ? mesh.expert : 1) * (data ? mesh.data : 1);
  }
};

/// A composed schedule with only the first copies along the folded axes.
struct FoldedSchedule {
  /// Ranks, groups and the bytes of messages are those of the whole schedule; tasks, buffers and
  /// programs only those of the copies that are kept. The tasks stand in the order of the whole.
  Schedule schedule;
  /// [rank] the kept rank that does the same.
  std::vector<Rank> same_as;
  /// Devices that each kept one stands for; each computation occurs that often in the whole
  /// schedule.
  int factor = 1;
  /// The communications of the whole schedule, each kind once: for each distinct (op, rank, peer or
  /// group, bytes) of `schedule` its images in all copies, the original first. A group that spans a
  /// folded axis has one image along it.
  Schedule census;
  /// [kind] its first task in the census, and after the last kind the end
  std::vector<std::uint32_t> begin;
  using Kind = std::tuple<Op, Rank, std::int64_t, Bytes>;
  std::map<Kind, std::size_t> kinds;

  static Kind key(const Task& task) { return {task.op, task.rank, task.route(), task.bytes}; }
  /// The kind of a communication of `schedule`.
  std::size_t kind(const Task& task) const { return kinds.at(key(task)); }
  /// A kind with the same ends, of any size.
  std::size_t kind_of_any_size(const Task& task) const {
    return kinds.lower_bound({task.op, task.rank, task.route(), Bytes{}})->second;
  }
  /// The images of one kind.
  std::span<const Task> images(std::size_t kind) const {
    return census.tasks().subspan(begin[kind], begin[kind + 1] - begin[kind]);
  }
  /// The number of tasks of the whole schedule that one task stands for.
  std::size_t multiplicity(const Task& task) const {
    return is_compute(task.op) ? static_cast<std::size_t>(factor) : images(kind(task)).size();
  }
};

/// What compose() gives, with only the first copy along each of `axes` ever built.
TAWPIPE_INLINE Schedule compose_kept(const Schedule& logical, const Workload& whole, const Mesh& mesh, const Composition& with,
                                     const FoldAxes& axes);

/// What compose_kept() gave for these axes with the bodies of its stages written out
/// (expand_bodies()), and what its copies do.
///
/// Complexity: O(tasks, bodies written out), and O(ranks) for each communication that is distinct on
/// a rank.
TAWPIPE_INLINE FoldedSchedule fold_kept(Schedule kept, const Workload& whole, const Mesh& mesh, const FoldAxes& axes);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <utility>

namespace tawpipe::inline v0 {

namespace detail {

/// Lists the communications of all copies.
class Census {
 public:
  Census(const Schedule& folded, const Mesh& mesh, const FoldAxes& axes) : folded_{folded}, mesh_{mesh}, axes_{axes} {
    parts_.name = folded.name();
    parts_.ranks = folded.ranks();
    parts_.mesh = mesh;
    parts_.stages = folded.parts().stages;
    parts_.steps = folded.parts().steps;
    parts_.pair_sizes = folded.parts().pair_sizes;
    for (const Task& task : folded.tasks()) {
      if (is_compute(task.op)) continue;
      if (!kinds_.try_emplace(FoldedSchedule::key(task), kinds_.size()).second) continue;
      begin_.push_back(static_cast<std::uint32_t>(parts_.tasks.size()));
      add_images(task);
    }
    begin_.push_back(static_cast<std::uint32_t>(parts_.tasks.size()));
    parts_.groups = Rows<Rank>{std::move(group_begin_), std::move(members_)};
  }

  /// Moves the result out. @param into  its schedule is the folded one
  void finish(FoldedSchedule& into) {
    into.census = Schedule{folded_.workload(), std::move(parts_)};
    into.begin = std::move(begin_);
    into.kinds = std::move(kinds_);
  }

 private:
  /// The images of a task are found by moving it along each folded axis that its ends do not span.
  void add_images(const Task& task) {
    std::vector<MeshPlace> ends;
    if (is_collective(task.op)) {
      for (const Rank member : folded_.group(task.group)) ends.push_back(mesh_.place(member));
    } else {
      ends = {mesh_.place(task.rank)};
      if (is_point_to_point(task.op)) ends.push_back(mesh_.place(task.peer));
    }
    bool tensor = axes_.tensor;
    bool context = axes_.context;
    bool data = axes_.data;
    bool expert = axes_.expert;
    for (const MeshPlace& end : ends) {
      tensor = tensor && end.tensor == ends[0].tensor;
      context = context && end.context == ends[0].context;
      data = data && end.data == ends[0].data;
      expert = expert && end.expert == ends[0].expert;
    }
    for (int d = 0; d < (data ? mesh_.data : 1); ++d) {
      for (int x = 0; x < (expert ? mesh_.expert : 1); ++x) {
        for (int c = 0; c < (context ? mesh_.context : 1); ++c) {
          for (int t = 0; t < (tensor ? mesh_.tensor : 1); ++t) add_image(task, ends, {t, c, 0, d, x});
        }
      }
    }
  }

  void add_image(Task task, const std::vector<MeshPlace>& ends, const MeshPlace& by) {
    task.rank = moved(mesh_.place(task.rank), by);
    if (is_collective(task.op)) {
      for (const MeshPlace& end : ends) members_.push_back(moved(end, by));
      group_begin_.push_back(static_cast<std::uint32_t>(members_.size()));
      task.group = id<GroupId>(group_begin_.size() - 2);
    } else if (is_point_to_point(task.op)) {
      task.peer = moved(ends[1], by);
    }
    parts_.tasks.push_back(task);
  }

  Rank moved(const MeshPlace& place, const MeshPlace& by) const {
    return mesh_.rank(
        {place.tensor + by.tensor, place.context + by.context, place.pipeline, place.data + by.data, place.expert + by.expert});
  }

  const Schedule& folded_;
  const Mesh& mesh_;
  FoldAxes axes_;
  Schedule::Parts parts_;
  std::vector<std::uint32_t> begin_;
  std::vector<std::uint32_t> group_begin_{0};
  std::vector<Rank> members_;
  std::map<FoldedSchedule::Kind, std::size_t> kinds_;
};

}  // namespace detail

TAWPIPE_INLINE Schedule compose_kept(const Schedule& logical, const Workload& whole, const Mesh& mesh, const Composition& with,
                                     const FoldAxes& axes) {
  Mesh kept = mesh;
  if (axes.tensor) kept.tensor = 1;
  if (axes.context) kept.context = 1;
  if (axes.data) kept.data = 1;
  if (axes.expert) kept.expert = 1;
  return detail::Composer{logical, whole, mesh, with, kept}.build();
}

TAWPIPE_INLINE FoldedSchedule fold_kept(Schedule kept, const Workload& whole, const Mesh& mesh, const FoldAxes& axes) {
  if (has_bodies(kept)) kept = expand_bodies(kept).schedule;
  std::vector<Rank> same_as;
  for (int rank = 0; rank < kept.ranks(); ++rank) {
    MeshPlace place = mesh.place(Rank{rank});
    if (axes.tensor) place.tensor = 0;
    if (axes.context) place.context = 0;
    if (axes.data) place.data = 0;
    if (axes.expert) place.expert = 0;
    same_as.push_back(mesh.rank(place));
  }
  FoldedSchedule folded{std::move(kept), std::move(same_as), axes.factor(mesh), Schedule{whole, {}}, {}, {}};
  detail::Census{folded.schedule, mesh, axes}.finish(folded);
  return folded;
}

}  // namespace tawpipe
#endif
