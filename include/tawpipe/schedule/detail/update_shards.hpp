// Which updates of a schedule are shared by the ranks that hold the same parameters, and the part
// of each rank.
// Not: the sums and gathers around such an update (detail/state_messages.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/schedule/detail/composed_copies.hpp"
#include "tawpipe/schedule/detail/state_buckets.hpp"
#include "tawpipe/schedule/detail/state_sizes.hpp"
#include "tawpipe/schedule/early_messages.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/schedule/state_sharding.hpp"

namespace tawpipe::inline v0::detail {

inline bool is_tied(const Schedule& schedule) { return !schedule.workload().is_abstract() && schedule.workload().model().tied; }

/// The updates that are sharded: those of one optimizer's states, with a gradient and weights of
/// the same parameters. Several that update the same weights, each with a piece of the states
/// (schedule/offload.hpp), count as one: a *series*. A schedule that shards its updates itself
/// keeps them as they are, and so does a rank with a tied matrix in two stages: each copy is
/// updated by both gradients, of which it then must have the same part.
class UpdateShards {
 public:
  /// @param builder  of the composed schedule, which gets the sets. @param copies  the ranks that
  /// share an update. @param buckets  each of which is cut by itself
  UpdateShards(const Schedule& logical, ScheduleBuilder& builder, const ComposedCopies& copies, const StateSizes& sizes,
               StateSharding sharding, const StateBuckets& buckets)
      : logical_{logical},
        builder_{builder},
        copies_{copies},
        sizes_{sizes},
        buckets_{buckets},
        sharded_(logical.buffers().size(), 0),
        cut_{sharded_} {
    if (copies.holders() == 1) return;
    find_series();
    if (sharding == StateSharding::none) return;
    for (const std::vector<TaskId>& series : series_) {
      if (is_alike(series) && !has_two_ties(logical.task(series.front()).rank)) mark(series);
    }
    for (std::size_t t = 0; t < logical.tasks().size(); ++t) {  // states lie in host memory as the update has them
      if (!is_host_copy(logical.tasks()[t].op)) continue;
      const auto uses = logical.uses(id<TaskId>(t));
      const auto at = std::find_if(uses.begin(), uses.end(), [&](const Use& use) { return has(use.buffer); });
      if (at == uses.end()) continue;
      const auto piece = pieces_.find(at->buffer);
      for (const Use& use : uses) {
        sharded_[index(use.buffer)] = 1;
        if (piece != pieces_.end()) pieces_.try_emplace(use.buffer, piece->second);
      }
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

  /// Whether an update is the first, or the last, of its series.
  bool begins(TaskId update) const { return first(update) == update; }
  bool ends(TaskId update) const { return series(update).back() == update; }
  /// The first update of a series.
  TaskId first(TaskId update) const { return series(update).front(); }
  /// All updates of its series, in order.
  const std::vector<TaskId>& series(TaskId update) const { return series_[series_of_.at(update)]; }
  /// The optimizer states that an update uses; none if it names none.
  BufferId states(TaskId update) const {
    for (const Use& use : logical_.uses(update)) {
      if (logical_.buffer(use.buffer).content.kind() == ContentKind::optimizer_state) return use.buffer;
    }
    return none<BufferId>;
  }

  /// The parameters that an update's series updates, where it is sharded; otherwise none.
  PiecesId of_update(TaskId update) const {
    if (logical_.task(update).op != Op::update || series_of_.empty()) return none<PiecesId>;
    const BufferId found = states(update);
    if (found == none<BufferId> || !has(found)) return none<PiecesId>;
    const auto piece = pieces_.find(found);
    return piece != pieces_.end() ? piece->second.of : logical_.buffer(found).content.parameters();
  }

  /// [holder] the parameters of a class in a logical set cut into equal parts, in order; with
  /// buckets, each of them is cut. @param bucket  only that; null: the whole set
  std::vector<PiecesId> parts(PiecesId logical, const LayerBucket* bucket, ParameterClass of = ParameterClass::dense) {
    std::vector<PiecesId> parts;
    if (bucket != nullptr) {
      const std::vector<ParameterRange> ranges = sizes_.part_of(bucket->ranges, of);
      for (int h = 0; h < copies_.holders(of); ++h) parts.push_back(builder_.pieces(equal_part(ranges, h, copies_.holders(of))));
      return parts;
    }
    const auto [at, added] = parts_.try_emplace({logical, of});
    if (added) {
      for (int h = 0; h < copies_.holders(of); ++h) at->second.push_back(builder_.pieces(part(logical, h, of)));
    }
    return at->second;
  }
  /// A logical set, or one of its buckets.
  std::span<const ParameterRange> ranges(PiecesId logical, const LayerBucket* bucket) const {
    return bucket == nullptr ? logical_.pieces(logical) : bucket->ranges;
  }
  /// What a holder has of a logical buffer that is cut: a part of its set or, for a piece of
  /// states, that piece of the part of the series' set, of each class.
  PiecesId part(BufferId logical, int copy) {
    const auto piece = pieces_.find(logical);
    const PiecesId set = piece == pieces_.end() ? logical_.buffer(logical).content.parameters() : piece->second.of;
    if (piece == pieces_.end() && copies_.classes().size() == 1)
      return parts(set, nullptr)[copies_.holder(copy, ParameterClass::dense)];
    std::vector<ParameterRange> own;
    for (const ParameterClass of : copies_.classes()) {
      std::vector<ParameterRange> ranges = part(set, static_cast<int>(copies_.holder(copy, of)), of);
      if (piece != pieces_.end()) ranges = equal_part(ranges, piece->second.number, piece->second.count);
      for (const ParameterRange& range : ranges) append(own, range);
    }
    return builder_.pieces(own);
  }
  /// The largest number of its parameters of a class that a holder has.
  std::int64_t part_size(BufferId logical, ParameterClass of) const {
    const auto up = [](std::int64_t whole, int parts) { return (whole + parts - 1) / parts; };
    const auto piece = pieces_.find(logical);
    const PiecesId set = piece == pieces_.end() ? logical_.buffer(logical).content.parameters() : piece->second.of;
    const auto of_holder = [&](std::span<const ParameterRange> ranges) {
      return up(parameters_in(sizes_.part_of(ranges, of)), copies_.holders(of));
    };
    std::int64_t size = 0;
    for (const LayerBucket& bucket : buckets_.of(set)) size += of_holder(bucket.ranges);
    if (buckets_.of(set).empty()) size = of_holder(logical_.pieces(set));
    return piece == pieces_.end() ? size : up(size, piece->second.count);
  }

 private:
  /// One of several pieces of the states of a set of parameters.
  struct Piece {
    PiecesId of;
    int number;
    int count;
  };

  /// A holder's part of the parameters of a class in a logical set.
  std::vector<ParameterRange> part(PiecesId logical, int holder, ParameterClass of) const {
    const std::vector<LayerBucket>& buckets = buckets_.of(logical);
    if (buckets.empty()) return equal_part(sizes_.part_of(logical_.pieces(logical), of), holder, copies_.holders(of));
    std::vector<ParameterRange> own;
    for (std::size_t b = buckets.size(); b-- > 0;) {
      for (const ParameterRange& range : equal_part(sizes_.part_of(buckets[b].ranges, of), holder, copies_.holders(of)))
        append(own, range);
    }
    return own;
  }
  PiecesId parameters(TaskId update, ContentKind kind) const {
    for (const Use& use : logical_.uses(update)) {
      if (logical_.buffer(use.buffer).content.kind() == kind) return logical_.buffer(use.buffer).content.parameters();
    }
    return none<PiecesId>;
  }
  /// An update that changes no weights is a series of its own.
  void find_series() {
    std::map<BufferId, std::size_t> of_weights;
    for (std::size_t t = 0; t < logical_.tasks().size(); ++t) {
      if (logical_.tasks()[t].op != Op::update) continue;
      std::size_t found = series_.size();
      for (const Use& use : logical_.uses(id<TaskId>(t))) {
        if (logical_.buffer(use.buffer).content.kind() != ContentKind::weights) continue;
        found = of_weights.try_emplace(use.buffer, series_.size()).first->second;
      }
      if (found == series_.size()) series_.emplace_back();
      series_[found].push_back(id<TaskId>(t));
      series_of_[id<TaskId>(t)] = found;
    }
  }
  /// Whether its updates have the states, a gradient and weights of the same parameters.
  bool is_alike(const std::vector<TaskId>& series) const {
    const PiecesId weights = parameters(series.front(), ContentKind::weights);
    if (weights == none<PiecesId>) return false;
    std::vector<ParameterRange> updated;
    for (const TaskId update : series) {
      const PiecesId states = parameters(update, ContentKind::optimizer_state);
      const bool fits =
          logical_.uses(update).size() == 3 && states != none<PiecesId> && parameters(update, ContentKind::gradients) == weights;
      if (!fits) return false;
      if (series.size() == 1) return states == weights;
      for (const ParameterRange& range : logical_.pieces(states)) append(updated, range);
    }
    std::vector<ParameterRange> all;
    for (const ParameterRange& range : logical_.pieces(weights)) append(all, range);
    return updated == all;
  }
  void mark(const std::vector<TaskId>& series) {
    const PiecesId all = parameters(series.front(), ContentKind::weights);
    const int count = static_cast<int>(series.size());
    for (int number = 0; number < count; ++number) {
      const TaskId update = series[static_cast<std::size_t>(number)];
      for (const Use& use : logical_.uses(update)) sharded_[index(use.buffer)] = 1;
      if (count > 1) pieces_.try_emplace(states(update), Piece{all, number, count});
    }
  }
  bool has_two_ties(Rank rank) const {
    if (!is_tied(logical_)) return false;
    int ties = 0;
    for (const std::vector<TaskId>& series : series_) {
      const Task& task = logical_.task(series.front());
      if (task.rank != rank || task.stage == none<StageId>) continue;
      ties += logical_.stage(task.stage).first_edge || logical_.stage(task.stage).last_edge ? 1 : 0;
    }
    return ties > 1;
  }

  const Schedule& logical_;
  ScheduleBuilder& builder_;
  const ComposedCopies& copies_;
  const StateSizes& sizes_;
  const StateBuckets& buckets_;
  std::vector<std::vector<TaskId>> series_;
  std::map<TaskId, std::size_t> series_of_;
  std::vector<char> sharded_;  ///< [logical buffer]
  std::vector<char> cut_;      ///< [logical buffer]
  /// [logical buffer] of states that a series has in pieces
  std::map<BufferId, Piece> pieces_;
  std::map<std::pair<PiecesId, ParameterClass>, std::vector<PiecesId>> parts_;  ///< [logical set, class][holder]
};

}  // namespace tawpipe::detail
