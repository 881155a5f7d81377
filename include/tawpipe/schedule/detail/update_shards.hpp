// Which updates of a schedule are shared by the ranks that hold the same parameters, and the part
// of each rank.
// Not: the sums and gathers around such an update (detail/state_messages.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "tawpipe/schedule/early_messages.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/schedule/state_sharding.hpp"

namespace tawpipe::inline v0::detail {

inline bool is_tied(const Schedule& schedule) { return !schedule.workload().is_abstract() && schedule.workload().model().tied; }

/// The updates that are sharded: those of one optimizer's states, with a gradient and weights of
/// the same parameters. A schedule that shards its updates itself keeps them as they are, and so
/// does a rank with a tied matrix in two stages: each copy is updated by both gradients, of which
/// it then must have the same part.
class UpdateShards {
 public:
  /// @param builder  of the composed schedule, which gets the sets. @param holders  ranks that
  /// share an update
  UpdateShards(const Schedule& logical, ScheduleBuilder& builder, int holders, StateSharding sharding)
      : logical_{logical}, builder_{builder}, holders_{holders}, sharded_(logical.buffers().size(), 0), cut_{sharded_} {
    if (holders == 1 || sharding == StateSharding::none) return;
    for (std::size_t t = 0; t < logical.tasks().size(); ++t) {
      if (logical.tasks()[t].op != Op::update) continue;
      const auto uses = logical.uses(id<TaskId>(t));
      const auto parameters = [&](const Use& use) { return logical.buffer(use.buffer).content.parameters(); };
      const bool alike = uses.size() == 3 && parameters(uses[0]) != none<PiecesId> &&
                         parameters(uses[0]) == parameters(uses[1]) && parameters(uses[0]) == parameters(uses[2]);
      if (!alike || has_two_ties(logical.tasks()[t].rank)) continue;
      for (const Use& use : uses) sharded_[index(use.buffer)] = 1;
    }
    for (std::size_t t = 0; t < logical.tasks().size(); ++t) {  // states lie in host memory as the update has them
      if (!is_host_copy(logical.tasks()[t].op)) continue;
      const auto uses = logical.uses(id<TaskId>(t));
      if (!std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return has(use.buffer); })) continue;
      for (const Use& use : uses) sharded_[index(use.buffer)] = 1;
    }
    for (std::size_t b = 0; b < cut_.size(); ++b) {
      const ContentKind kind = logical.buffers()[b].content.kind();
      const bool chosen = kind == ContentKind::weights     ? sharding == StateSharding::parameters
                          : kind == ContentKind::gradients ? sharding >= StateSharding::gradients
                                                           : kind == ContentKind::optimizer_state;
      cut_[b] = sharded_[b] != 0 && chosen ? 1 : 0;
    }
    for (std::size_t t = 0; t < logical.tasks().size(); ++t) {  // what the schedule sends or sums itself stays whole
      const Task& task = logical.tasks()[t];
      if (task.op == Op::update || is_host_copy(task.op)) continue;
      for (const Use& use : logical.uses(id<TaskId>(t))) {
        if (!cut(use.buffer)) continue;
        const ContentKind kind = logical.buffer(use.buffer).content.kind();
        const Access usual = kind == ContentKind::weights ? Access::read : Access::accumulate;
        if (!is_work(task.op) || use.access != usual) cut_[index(use.buffer)] = 0;
      }
    }
  }

  /// Whether a logical buffer belongs to a sharded update.
  bool has(BufferId logical) const { return sharded_[index(logical)] != 0; }
  /// Whether each rank keeps only a part of it.
  bool cut(BufferId logical) const { return cut_[index(logical)] != 0; }

  /// The parameters that a logical task updates, where it is a sharded update.
  PiecesId of_update(TaskId logical) const {
    if (logical_.task(logical).op != Op::update) return none<PiecesId>;
    for (const Use& use : logical_.uses(logical)) {
      const Content& content = logical_.buffer(use.buffer).content;
      if (content.kind() == ContentKind::optimizer_state && has(use.buffer)) return content.parameters();
    }
    return none<PiecesId>;
  }

  /// [holder] a logical set cut into equal parts, in order.
  const std::vector<PiecesId>& parts(PiecesId logical) {
    const auto [at, added] = parts_.try_emplace(logical);
    if (!added) return at->second;
    for (const auto& own : equal_parts(logical_.pieces(logical), holders_)) at->second.push_back(builder_.pieces(own));
    return at->second;
  }

 private:
  bool has_two_ties(Rank rank) const {
    if (!is_tied(logical_)) return false;
    int ties = 0;
    for (const Task& task : logical_.tasks()) {
      if (task.op != Op::update || task.rank != rank || task.stage == none<StageId>) continue;
      ties += logical_.stage(task.stage).embedding || logical_.stage(task.stage).head ? 1 : 0;
    }
    return ties > 1;
  }

  const Schedule& logical_;
  ScheduleBuilder& builder_;
  int holders_;
  std::vector<char> sharded_;                        ///< [logical buffer]
  std::vector<char> cut_;                            ///< [logical buffer]
  std::map<PiecesId, std::vector<PiecesId>> parts_;  ///< [logical set][holder]
};

}  // namespace tawpipe::detail
