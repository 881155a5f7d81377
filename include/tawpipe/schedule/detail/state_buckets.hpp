// Which updates of a schedule have their gradients summed and their weights gathered in buckets.
// Not: how a stage is cut into them (schedule/buckets.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/schedule/buckets.hpp"
#include "tawpipe/schedule/early_messages.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedule/state_sharding.hpp"

namespace tawpipe::inline v0::detail {

/// When a composition's model states travel.
struct StateTravel {
  StateSharding sharding = StateSharding::none;
  /// whole weights and gradients are kept only for a computation, not for the iteration
  bool each_microbatch = false;
  bool early_sums = false;     ///< as soon as a gradient is whole
  bool early_gathers = false;  ///< of new weights: before the next iteration's first use
  /// least parameters, of all tensor-parallel ranks, in an early message; 0: all of a stage's
  std::int64_t bucket = 0;
};

/// The messages that come early with that.
inline EarlyMessages early_messages(const Schedule& logical, int holders, const StateTravel& travel) {
  if (holders == 1) return {};
  const bool once = !travel.each_microbatch;
  return find_early_messages(logical, travel.early_sums || travel.sharding >= StateSharding::gradients,
                             travel.early_gathers || (once && travel.sharding == StateSharding::parameters));
}

/// Those of the first stage: when other stages end their last backward or begin their first
/// forward, the first stage is computing, so their messages are hidden without buckets.
/// Source: Megatron-LM, core/distributed/distributed_data_parallel.py: bucket_size is None where
/// pp_rank > 0, and for chunks after the first. States that are updated in pieces have none, as
/// their gradient is summed before the first piece. Sharded parameters have none either: PyTorch
/// sums after the last backward of a pipeline's stage (distributed/pipelining/stage.py). Of a stage
/// that several ranks hold, all sum in buckets or none: where one has no computation of its own, it
/// only has what the schedule's own sum brings, to which another's buckets must not be added before.
class StateBuckets {
 public:
  StateBuckets() = default;
  StateBuckets(const Schedule& logical, const EarlyMessages& early, const StateTravel& travel) {
    if (travel.bucket < 1 || travel.sharding == StateSharding::parameters || logical.workload().is_abstract()) return;
    const ParameterBlocks blocks = logical.workload().model().blocks();
    const auto is_of_stage = [&](TaskId task, const Task& update) {
      if (task == none<TaskId>) return false;
      const Task& found = logical.task(task);
      return is_work(found.op) && found.stage == update.stage && found.rank == update.rank;
    };
    const bool all_summed = std::all_of(early.updates.begin(), early.updates.end(), [&](const StateUses& uses) {
      const Task& update = logical.task(uses.update);
      return update.stage != StageId{0} ||
             (is_of_stage(uses.last_work, update) && traits(logical.task(uses.last_work).op).passes.backward_weight);
    });
    for (const StateUses& uses : early.updates) {
      const Task& update = logical.task(uses.update);
      if (update.stage != StageId{0} || uses.parameters == none<PiecesId> || uses.in_pieces) continue;
      const bool summed = travel.early_sums && all_summed;
      const bool gathered =
          travel.early_gathers && is_of_stage(uses.first, update) && traits(logical.task(uses.first).op).passes.forward;
      if (!summed && !gathered) continue;
      std::vector<LayerBucket> buckets = buckets_of(blocks, logical.stage(update.stage), travel.bucket);
      if (buckets.size() < 2 || !are_all_of(buckets, logical.pieces(uses.parameters))) continue;
      if (summed) sums_.push_back(uses);
      if (gathered) gathers_.push_back(uses.update);
      buckets_.try_emplace(uses.parameters, std::move(buckets));
    }
  }

  /// Of a logical set; none: it is not cut.
  const std::vector<LayerBucket>& of(PiecesId set) const {
    const auto at = buckets_.find(set);
    return at == buckets_.end() ? none_ : at->second;
  }
  /// The updates whose sums are in buckets.
  const std::vector<StateUses>& sums() const { return sums_; }
  bool has_sums(TaskId update) const {
    return std::any_of(sums_.begin(), sums_.end(), [&](const StateUses& uses) { return uses.update == update; });
  }
  /// The same by the last computation that adds to the gradient.
  bool has_sums_after(TaskId work) const {
    return std::any_of(sums_.begin(), sums_.end(), [&](const StateUses& uses) { return uses.last_work == work; });
  }
  bool has_gathers(TaskId update) const { return std::find(gathers_.begin(), gathers_.end(), update) != gathers_.end(); }

 private:
  static bool are_all_of(const std::vector<LayerBucket>& buckets, std::span<const ParameterRange> set) {
    std::vector<ParameterRange> all;
    for (std::size_t b = buckets.size(); b-- > 0;) {
      for (const ParameterRange& range : buckets[b].ranges) append(all, range);
    }
    return std::equal(all.begin(), all.end(), set.begin(), set.end());
  }

  std::map<PiecesId, std::vector<LayerBucket>> buckets_;
  std::vector<StateUses> sums_;
  std::vector<TaskId> gathers_;
  std::vector<LayerBucket> none_;
};

}  // namespace tawpipe::detail
