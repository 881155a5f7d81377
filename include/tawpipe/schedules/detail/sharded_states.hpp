// The model states of sharded data parallelism: one buffer a rank and kind, or one for each unit
// where units finish one by one.
// Not: gathers and sums (detail/sharded_builder.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "tawpipe/schedules/common.hpp"
#include "tawpipe/schedules/detail/shard_sets.hpp"
#include "tawpipe/schedules/sharding_plan.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// Persistent buffers by *part*: a unit's parameters or, where all states are sharded over several
/// ranks, the whole model unless the plan has units apart. One rank has a part for each unit, so that what is composed around it
/// gathers and sums unit by unit. Tied parameters are the first edge's, and the last edge's own are
/// with them: both have one part.
class ShardedStates {
 public:
  ShardedStates(ScheduleBuilder& builder, ShardSets& sets, const ShardingPlan& plan, int ranks)
      : sets_{sets}, plan_{plan}, ranks_{ranks} {
    const Workload& workload = builder.workload();
    const bool tied = !workload.is_abstract() && workload.model().tied;
    const bool together = plan.weights == Scope::all && ranks > 1 && !plan.by_unit;
    std::vector<std::vector<Run>> runs;  // [part]
    int first_edge = -1;
    for (int u = 0; u < static_cast<int>(builder.stages().size()); ++u) {
      const StageWork& unit = builder.stage(u);
      std::vector<Run> own = sets.runs(u);
      if (unit.first_edge) first_edge = u;
      int part = own.empty() ? -1 : this->parts();
      if (tied && unit.last_edge && !unit.first_edge) {
        part = part_of(first_edge);
        own.pop_back();  // the first edge's; its own remain
      } else if (part > 0 && together) {
        part = 0;
      }
      part_of_.push_back(part);
      if (part == this->parts()) {
        parts_.push_back({-1, together ? -1 : u});
        runs.emplace_back();
      }
      if (part >= 0)
        runs[static_cast<std::size_t>(part)].insert(runs[static_cast<std::size_t>(part)].end(), own.begin(), own.end());
    }
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      parts_[p].list = sets.add(std::move(runs[p]));
      for (int r = 0; r < ranks; ++r) add_buffers(builder, parts_[p], r);
    }
  }

  int parts() const { return static_cast<int>(parts_.size()); }
  /// The part that a unit's computation reads and adds to; -1 if it has no parameters.
  int part_of(int unit) const { return part_of_[static_cast<std::size_t>(unit)]; }
  /// The index of its parameters in ShardSets.
  int list(int part) const { return parts_[static_cast<std::size_t>(part)].list; }
  /// The unit whose backward comes last; -1 for the whole model.
  int unit(int part) const { return parts_[static_cast<std::size_t>(part)].unit; }

  BufferId weights(int rank, int part) const { return at(rank, part).weights; }
  BufferId gradients(int rank, int part) const { return at(rank, part).gradients; }

  /// The optimizer's step of one rank on its share of a part.
  void update(ScheduleBuilder& builder, int rank, int part) const {
    const States& own = at(rank, part);
    builder.add(detail::update(rank, unit(part), own.bytes),
                {reads(own.gradients), changes(own.weights), changes(own.optimizer)});
  }

 private:
  struct Part {
    int list;
    int unit;
  };

  void add_buffers(ScheduleBuilder& builder, const Part& part, int rank) {
    const ParameterBytes& bytes = builder.workload().parameter_bytes();
    const auto add = [&](ContentKind kind, Scope scope, std::int64_t size) {
      const auto share = sets_.share(scope, rank, part.list);
      const Content content{kind, StageId{part.unit}, builder.pieces(share)};
      return builder.persistent(rank, content, Bytes{parameters_in(share) * size});
    };
    const std::int64_t updated = parameters_in(sets_.share(plan_.optimizer, rank, part.list));
    states_.push_back({add(ContentKind::weights, plan_.weights, bytes.weight),
                       add(ContentKind::gradients, plan_.gradients, bytes.gradient),
                       add(ContentKind::optimizer_state, plan_.optimizer, bytes.optimizer),
                       Bytes{updated * (bytes.weight + bytes.gradient + bytes.optimizer)}});
  }

  const States& at(int rank, int part) const { return states_[static_cast<std::size_t>(part * ranks_ + rank)]; }

  ShardSets& sets_;
  const ShardingPlan& plan_;
  int ranks_;
  std::vector<Part> parts_;
  std::vector<int> part_of_;    ///< [unit]
  std::vector<States> states_;  ///< [part][rank]
};

}  // namespace tawpipe::schedules::detail
