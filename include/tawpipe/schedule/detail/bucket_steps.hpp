// Where the computations of a schedule meet its buckets: the steps that buckets wait for, those
// that wait for buckets, and single computations cut at these.
// Not: the steps of shared stages (model/shared_stage.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedule/op_traits.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// The operations of a stage's passes.
inline Flops pass_flops(const StageWork& work, const Passes& passes) {
  Flops flops;
  if (passes.forward) flops += work.forward;
  if (passes.backward_input) flops += work.recompute + work.backward_input;
  if (passes.backward_weight) flops += work.backward_weight;
  return flops;
}

/// A pass through a stage, cut at some of its layers.
struct CutPass {
  StageBody body;                ///< a step for each part, one after another
  std::vector<StageWork> parts;  ///< [step] of the whole stage's ranks together
};

/// Cuts it.
/// @param layers  in any order; each is marked on the step that begins with it, or ends with its
/// gradient; the number of layers: what follows them
/// @param begins  true: a forward; false: a backward
/// @param ranks  that share the stage
inline CutPass cut_at_layers(const Workload& workload, const StageWork& stage, const Passes& passes,
                             std::vector<std::int32_t> layers, bool begins, int ranks) {
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  if (!begins) std::reverse(layers.begin(), layers.end());
  CutPass cut;
  for (std::size_t s = 0; s <= layers.size(); ++s) {
    const bool last = s == layers.size();
    const std::int32_t before = s > 0 ? layers[s - 1] : begins ? 0 : stage.layers;
    const std::int32_t after = last ? (begins ? stage.layers : 0) : layers[s];
    const std::int32_t begin = std::min(before, after);
    const std::int32_t end = std::max(before, after);
    const bool first_edge = stage.first_edge && (begins ? begin == 0 && (end > 0 || last) : last);
    const bool last_edge = stage.last_edge && (begins ? last : s == 0);
    cut.parts.push_back(workload.part(stage, begin, end, first_edge, last_edge));
    const StageWork& part = cut.parts.back();
    cut.body.push_back({.flops = pass_flops(part, passes) / ranks,
                        .traffic = (passes.forward ? part.forward_traffic : part.backward_traffic) / ranks});
    cut.body.back().after[0] = static_cast<std::int32_t>(s) - 1;
    if (begins ? s > 0 : !last) cut.body.back().layer = begins ? layers[s - 1] : layers[s];
  }
  return cut;
}

/// The computations of a schedule that buckets wait for, or that wait for buckets, layer by layer.
class BucketCuts {
 public:
  /// Those that buckets wait for, and the first of each rank that waits for buckets.
  /// Complexity: O(tasks + dependencies) where weights are gathered in buckets, otherwise
  /// O(buckets).
  explicit BucketCuts(const Schedule& schedule) : from_{schedule} {
    std::size_t gathers = 0;  // past the last gather
    for (const Bucket& bucket : from_.parts().buckets) {
      if (!is_sum(from_.task(bucket.message).op)) {
        gathers = index(bucket.message) + 1;
        continue;
      }
      for (const TaskId earlier : from_.dependencies(bucket.message)) {
        if (is_work(from_.task(earlier).op)) awaited_[earlier].push_back({.layer = bucket.layer});
      }
    }
    std::map<std::pair<TaskId, Rank>, bool> waited;
    for (std::size_t t = 0; gathers > 0 && t < from_.tasks().size(); ++t) {
      const Task& task = from_.tasks()[t];
      if (!is_work(task.op)) continue;
      for (const TaskId earlier : from_.dependencies(id<TaskId>(t))) {
        const Bucket* const bucket = index(earlier) < gathers ? from_.bucket(earlier) : nullptr;
        if (bucket != nullptr && waited.try_emplace({earlier, task.rank}, true).second)
          gathered_[id<TaskId>(t)].push_back(*bucket);
      }
    }
  }

  /// Whether the schedule has none.
  bool empty() const { return from_.parts().buckets.empty(); }
  /// The buckets with weights for which a task waits before their layers.
  std::span<const Bucket> gathered(TaskId task) const {
    const auto at = gathered_.find(task);
    return at == gathered_.end() ? std::span<const Bucket>{} : at->second;
  }

  /// A single computation cut where buckets wait for it, or it for them; none if it is not cut.
  CutPass cut_of(TaskId id) const {
    if (empty()) return {};
    std::vector<std::int32_t> layers;
    for (const Bucket& bucket : gathered(id)) layers.push_back(bucket.layer);
    const bool needed = !layers.empty();
    if (const auto at = awaited_.find(id); at != awaited_.end()) {
      for (const Awaited& awaited : at->second) layers.push_back(awaited.layer);
    }
    if (layers.empty()) return {};
    const Task& task = from_.task(id);
    const StageWork& stage = from_.stage(task.stage);
    return cut_at_layers(from_.workload(), stage, traits(task.op).passes, std::move(layers), needed, from_.parts().mesh.shared());
  }

  /// Notes the step after which a task has the gradient of a layer, if buckets wait for that.
  void note(TaskId task, std::int32_t layer, TaskId step) {
    const auto at = awaited_.find(task);
    if (at == awaited_.end() || layer < 0) return;
    for (Awaited& awaited : at->second) {
      if (awaited.layer == layer) awaited.step = step;
    }
  }
  /// The step noted; none if there is none.
  TaskId step(TaskId task, std::int32_t layer) const {
    const auto at = awaited_.find(task);
    if (at == awaited_.end()) return none<TaskId>;
    const auto found = std::find_if(at->second.begin(), at->second.end(), [&](const Awaited& one) { return one.layer == layer; });
    return found == at->second.end() ? none<TaskId> : found->step;
  }

 private:
  /// A layer of a computation that buckets wait for.
  struct Awaited {
    std::int32_t layer = -1;
    TaskId step = none<TaskId>;
  };

  const Schedule& from_;
  std::map<TaskId, std::vector<Awaited>> awaited_;  ///< [task]
  std::map<TaskId, std::vector<Bucket>> gathered_;  ///< [task]
};

}  // namespace tawpipe::detail
