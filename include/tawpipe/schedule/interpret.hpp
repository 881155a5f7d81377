// Follows a schedule task by task: what each buffer has room for, and what each message carries and
// between which ranks.
// Not: the offsets in a message (execute/detail/dataflow_transfers.hpp), nor what is wrong with it
// (verify/check_contents.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/packed_parameters.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// One rank's buffers in a communication.
struct MessageEnd {
  Rank rank = none<Rank>;
  std::span<const BufferId> given;  ///< that it reads
  std::span<const Use> taken;       ///< that it writes or adds to
};

/// A communication of weights or gradients: sets of parameters, each on its way from some of its
/// ends to others.
struct ParameterMessage {
  Op op = Op::pass;
  std::span<const MessageEnd> ends;  ///< by member; pass: source, destination
  std::size_t root = 0;              ///< the end that is the task's own rank
  /// one for each end if each has its own part, otherwise one; none if unknown
  std::span<const PiecesId> parts;

  const EndTraits& role_of(std::size_t end) const { return end == root ? traits(op).first : traits(op).other; }
  /// Whether each end has its own part.
  bool by_member() const { return has_own_parts(op); }
  /// Whether an end gives its values of a part. In a sum all ends that read do; the others add
  /// zeros.
  bool gives(std::size_t part, std::size_t end) const {
    return has(role_of(end).gives, part, end) && (!is_sum(op) || !ends[end].given.empty());
  }
  /// Whether an end takes what arrives of a part.
  bool takes(std::size_t part, std::size_t end) const { return has(role_of(end).takes, part, end); }
  /// Whether what an end takes is already there because the end itself gives it.
  bool in_place(std::size_t part, std::size_t end, Access access) const {
    return !is_sum(op) && access == Access::read_write && gives(part, end);
  }

 private:
  static bool has(Part of, std::size_t part, std::size_t end) { return of == Part::whole || (of == Part::own && part == end); }
};

/// Reads the messages of communications, one at a time, into memory that it keeps.
class MessageReader {
 public:
  explicit MessageReader(const Schedule& schedule) : schedule_{schedule}, end_of_(static_cast<std::size_t>(schedule.ranks())) {}

  /// A communication's message, until the next is read. Complexity: O(ends + uses).
  const ParameterMessage& read(TaskId id);

 private:
  struct Counts {
    std::size_t given = 0;
    std::size_t taken = 0;
  };

  template <class Give, class Take>
  void for_each(std::span<const Use> uses, Give&& give, Take&& take) {
    for (const Use& use : uses) {
      Counts& end = counts_[end_of_[index(schedule_.buffer(use.buffer).rank)]];
      if (use.access == Access::read || use.access == Access::read_write) give(end, use);
      if (use.access != Access::read) take(end, use);
    }
  }

  const Schedule& schedule_;
  std::vector<std::size_t> end_of_;  ///< [rank] its end in the message read
  std::vector<MessageEnd> ends_;
  std::vector<Counts> counts_;  ///< [end] of its uses; then where the next goes
  std::vector<BufferId> given_;
  std::vector<Use> taken_;
  ParameterMessage message_;
};

/// The parameters for which each buffer has room: those that it names; for a slot, those that tasks
/// put there.
///
/// A slot is laid out for all that it holds until it is written again: a shard of a stage lies
/// where a gather, which brings the others, puts it.
class Rooms {
 public:
  /// @param order  in which the tasks are to be followed; none: by id. Complexity: O(uses +
  /// ranges).
  explicit Rooms(const Schedule& schedule, std::span<const TaskId> order = {});
  Rooms(const Rooms&) = delete;  // rooms_ refers to sets_
  Rooms& operator=(const Rooms&) = delete;

  const PackedParameters& operator[](BufferId buffer) const { return *rooms_[index(buffer)]; }
  const PackedParameters& set(PiecesId set) const { return sets_[index(set)]; }

  /// Call it for every task, in order, before using its slots: it lays them out for what the task
  /// writes.
  void run(TaskId task) {
    if (next_ == layouts_.size()) return;
    for (const Use& use : schedule_.uses(task)) {
      if (use.access == Access::write && is_slot(use.buffer)) rooms_[index(use.buffer)] = layouts_[next_++];
    }
  }

 private:
  bool is_slot(BufferId buffer) const {
    const Content& content = schedule_.buffer(buffer).content;
    return content.is_slot() && is_of_parameters(content.kind());
  }

  void find_layouts(std::span<const TaskId> order);

  /// What a task leaves in a slot of a rank; nothing if the task does not say.
  const PackedParameters& brought(const Task& task, Rank rank) {
    if (task.split == none<SplitId> || is_all_pairs(task.op)) return nothing_;
    if (gathers(task.op)) return whole(task.split);
    std::size_t part = 0;
    if (scatters(task.op)) {
      const auto members = schedule_.group(task.group);
      part = static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
    }
    return sets_[index(schedule_.split(task.split)[part])];
  }

  /// All sets of a split, in order.
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
  PackedParameters nothing_;
  std::vector<PackedParameters> sets_;            ///< [set]
  std::map<SplitId, PackedParameters> wholes_;    ///< what gathers produce
  std::vector<const PackedParameters*> rooms_;    ///< [buffer]
  std::vector<const PackedParameters*> layouts_;  ///< of each write into a slot, in order
  std::size_t next_ = 0;                          ///< of layouts_
};

}  // namespace tawpipe

#if TAWPIPE_BODIES
namespace tawpipe::inline v0 {

TAWPIPE_INLINE const ParameterMessage& MessageReader::read(TaskId id) {
  const Task& task = schedule_.task(id);
  const auto uses = schedule_.uses(id);
  ends_.clear();
  counts_.clear();
  for_each_end(schedule_, id, [&](Rank rank, int) {
    end_of_[index(rank)] = ends_.size();
    ends_.push_back({rank, {}, {}});
    counts_.push_back({});
  });
  for_each(
      uses, [&](Counts& count, const Use&) { ++count.given; }, [&](Counts& count, const Use&) { ++count.taken; });
  given_.resize(uses.size());
  taken_.resize(uses.size());
  Counts begin;
  for (std::size_t e = 0; e < ends_.size(); ++e) {
    Counts& count = counts_[e];
    ends_[e].given = {given_.data() + begin.given, count.given};
    ends_[e].taken = {taken_.data() + begin.taken, count.taken};
    const Counts next{begin.given + count.given, begin.taken + count.taken};
    count = begin;
    begin = next;
  }
  for_each(
      uses, [&](Counts& at, const Use& use) { given_[at.given++] = use.buffer; },
      [&](Counts& at, const Use& use) { taken_[at.taken++] = use; });
  message_.op = task.op;
  message_.ends = ends_;
  message_.root = end_of_[index(task.rank)];
  message_.parts = {};
  if (task.split != none<SplitId> && !is_all_pairs(task.op)) message_.parts = schedule_.split(task.split);
  return message_;
}

TAWPIPE_INLINE Rooms::Rooms(const Schedule& schedule, std::span<const TaskId> order) : schedule_{schedule} {
  for (std::size_t p = 0; p < schedule.parts().pieces.size(); ++p) {
    const auto ranges = schedule.pieces(id<PiecesId>(p));
    sets_.emplace_back(std::vector<ParameterRange>{ranges.begin(), ranges.end()});
  }
  for (const Buffer& buffer : schedule.buffers()) {
    const PiecesId set = buffer.content.parameters();
    rooms_.push_back(set == none<PiecesId> ? &nothing_ : &sets_[index(set)]);
  }
  find_layouts(order);
}

TAWPIPE_INLINE void Rooms::find_layouts(std::span<const TaskId> order) {
  bool has_slots = false;
  for (std::size_t b = 0; b < rooms_.size(); ++b) has_slots = has_slots || is_slot(id<BufferId>(b));
  if (!has_slots) return;
  constexpr std::size_t unwritten = ~std::size_t{0};
  std::vector<std::size_t> last(rooms_.size(), unwritten);  // [buffer] the place of its last layout
  for (std::size_t i = 0; i < schedule_.tasks().size(); ++i) {
    const TaskId t = order.empty() ? id<TaskId>(i) : order[i];
    const Task& task = schedule_.task(t);
    for (const Use& use : schedule_.uses(t)) {
      std::size_t& layout = last[index(use.buffer)];
      if (use.access == Access::write && is_slot(use.buffer)) {
        layout = layouts_.size();
        layouts_.push_back(&brought(task, schedule_.buffer(use.buffer).rank));
      } else if (use.access == Access::read_write && gathers(task.op) && layout != unwritten) {
        layouts_[layout] = &brought(task, schedule_.buffer(use.buffer).rank);
      }
    }
  }
}

}  // namespace tawpipe
#endif
