// Which parameters each buffer holds while a schedule runs task by task.
// Not: where a message finds them (dataflow_transfers.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/packed_parameters.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// The parameters of buffers: those that the buffer names, or in a slot those that tasks have brought.
///
/// A slot is laid out for everything that it holds until it is written anew: a piece of a stage lies where an all_gather, which
/// brings the others, leaves it.
class DataflowContents {
 public:
  explicit DataflowContents(const Schedule& schedule) : schedule_{schedule}, order_{schedule.workload().model()} {
    for (std::size_t p = 0; p < schedule.parts().pieces.size(); ++p) {
      const auto ranges = schedule.pieces(id<PiecesId>(p));
      sets_.emplace_back(std::vector<ParameterRange>{ranges.begin(), ranges.end()});
    }
    for (const Buffer& buffer : schedule.buffers()) {
      const PiecesId set = buffer.content.parameters();
      held_.push_back(set == none<PiecesId> ? &nothing_ : &sets_[index(set)]);
    }
    find_layouts();
  }
  DataflowContents(const DataflowContents&) = delete;  // held_ refers to sets_
  DataflowContents& operator=(const DataflowContents&) = delete;

  const ParameterOrder& order() const { return order_; }
  const PackedParameters& operator[](BufferId buffer) const { return *held_[index(buffer)]; }
  const PackedParameters& set(PiecesId pieces) const { return sets_[index(pieces)]; }
  bool is_slot(BufferId buffer) const { return schedule_.buffer(buffer).content.is_slot(); }

  /// To be called once for each task, in order: from now on slots that it writes hold what it brings.
  void run(TaskId task) {
    for (const Use& use : schedule_.uses(task)) {
      if (use.access == Access::write && holds_parameters(use.buffer)) held_[index(use.buffer)] = layouts_[next_++];
    }
  }

 private:
  bool holds_parameters(BufferId buffer) const {
    return is_of_parameters(schedule_.buffer(buffer).content.kind()) && is_slot(buffer);
  }

  void find_layouts() {
    std::vector<std::size_t> last(held_.size(), 0);  // [buffer] the place of its last layout
    for (std::size_t t = 0; t < schedule_.tasks().size(); ++t) {
      for (const Use& use : schedule_.uses(id<TaskId>(t))) {
        if (!holds_parameters(use.buffer)) continue;
        const Op op = schedule_.tasks()[t].op;
        if (use.access == Access::write) {
          last[index(use.buffer)] = layouts_.size();
          layouts_.push_back(&brought(id<TaskId>(t), use.buffer));
        } else if (use.access == Access::read_write && op == Op::all_gather && last[index(use.buffer)] < layouts_.size()) {
          layouts_[last[index(use.buffer)]] = &brought(id<TaskId>(t), use.buffer);
        }
      }
    }
  }

  /// What a task leaves in a slot.
  const PackedParameters& brought(TaskId id, BufferId slot) {
    const Task& task = schedule_.task(id);
    const Buffer& buffer = schedule_.buffer(slot);
    if (task.split == none<SplitId>) {
      throw ScheduleError(concat(describe(schedule_, id), " does not say which parameters it brings into ",
                                 describe(schedule_, slot), " (split)"));
    }
    const auto split = schedule_.split(task.split);
    const PackedParameters* set = &sets_[index(split[0])];
    if (task.op == Op::all_gather) {
      set = &whole(task.split);
    } else if (task.op == Op::reduce_scatter) {
      const auto members = schedule_.group(task.group);
      const auto place = std::find(members.begin(), members.end(), buffer.rank) - members.begin();
      set = &sets_[index(split[static_cast<std::size_t>(place)])];
    }
    const ParameterBytes& bytes = schedule_.workload().parameter_bytes();
    const bool weights = buffer.content.kind() == ContentKind::weights;
    if (set->count() * (weights ? bytes.weight : bytes.gradient) > buffer.bytes.value()) {
      throw ScheduleError(concat(describe(schedule_, id), " brings ", set->count(), " parameters into ",
                                 describe(schedule_, slot), ", which has ", buffer.bytes.value(), " bytes"));
    }
    return *set;
  }

  /// All sets of a split, one behind the other.
  const PackedParameters& whole(SplitId split) {
    const auto [at, added] = wholes_.try_emplace(split);
    if (!added) return at->second;
    std::vector<ParameterRange> ranges;
    for (const PiecesId set : schedule_.split(split)) {
      for (const ParameterRange& range : schedule_.pieces(set)) append(ranges, range);
    }
    return at->second = PackedParameters{std::move(ranges)};
  }

  const Schedule& schedule_;
  ParameterOrder order_;
  PackedParameters nothing_;
  std::vector<PackedParameters> sets_;            ///< [set]
  std::map<SplitId, PackedParameters> wholes_;    ///< of gathers
  std::vector<const PackedParameters*> held_;     ///< [buffer]
  std::vector<const PackedParameters*> layouts_;  ///< of each write into a slot, in order
  std::size_t next_ = 0;                          ///< of layouts_
};

}  // namespace tawpipe::detail
