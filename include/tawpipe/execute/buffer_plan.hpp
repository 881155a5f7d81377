// The offset of each buffer of a rank in an allocation on its device, or on its host; transient
// ones share memory as far as the order of tasks allows.
// Not: the memory itself (execute/host/, execute/cuda/).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/execute/program.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// Offsets of one rank's buffers.
struct BufferPlan {
  /// [buffer] bytes from the start of the rank's memory, device or host; -1: another rank's
  std::vector<std::int64_t> offset;
  Bytes bytes;                   ///< to allocate, alignment included
  Bytes host_bytes;              ///< to allocate on the host
  std::vector<ReuseWait> waits;  ///< that reuse needs in addition to those of the program
};

/// Lays out one rank's buffers in each memory: persistent ones one after another, then transient
/// ones, each at the lowest offset where no other is in use at the time; by size or by first use,
/// whichever needs less memory.
///
/// Without a timeline this holds under any timing that the program allows: a message that may be
/// late keeps its buffer. With one, a buffer may also reuse the memory of one that is over in that
/// timeline, and the program gets the waits that ensure this. It then needs the timeline's peak,
/// except for gaps between buffers of different sizes, and a run that follows the timeline never
/// waits for them.
/// @param alignment  of each buffer, a power of two
/// @param timeline   expected for the schedule; may be null. Tasks can then be issued by their start
/// in it and then by id, but not by id only.
/// @param lent       [buffer] not null: it is elsewhere and takes no memory (ParameterStore::lent);
/// may be empty
/// Complexity: O(buffers^2).
TAWPIPE_INLINE BufferPlan plan_buffers(const Schedule& schedule, Program& program, Rank rank, std::int64_t alignment = 64,
                                       const Timeline* timeline = nullptr, std::span<std::byte* const> lent = {});

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <cstddef>

namespace tawpipe::inline v0 {

namespace detail {

/// For one rank: which of its tasks have always ended before a task starts, under any timing.
class RankOrder {
 public:
  RankOrder(const Schedule& schedule, const Program& program) : lanes_{static_cast<std::size_t>(program.lanes())} {
    std::vector<TaskId> tasks;
    place_.assign(schedule.tasks().size(), -1);
    lane_.assign(schedule.tasks().size(), 0);
    std::vector<const Launch*> launch(schedule.tasks().size(), nullptr);
    for (int lane = 0; lane < program.lanes(); ++lane) {
      std::int32_t at = 0;
      for (const Launch& one : program.lane(lane)) {
        place_[index(one.task)] = at++;
        lane_[index(one.task)] = static_cast<std::uint8_t>(lane);
        launch[index(one.task)] = &one;
        tasks.push_back(one.task);
      }
    }
    std::sort(tasks.begin(), tasks.end());  // ids are a topological order
    row_.assign(schedule.tasks().size(), -1);
    known_.reserve(tasks.size() * lanes_);
    std::vector<std::int32_t> last(lanes_, -1);  // [lane] row of its latest task
    for (const TaskId task : tasks) {
      const std::size_t lane = lane_[index(task)];
      const std::size_t begin = known_.size();
      row_[index(task)] = static_cast<std::int32_t>(begin / lanes_);
      known_.resize(begin + lanes_, -1);
      if (last[lane] >= 0) join(begin, static_cast<std::size_t>(last[lane]) * lanes_);
      known_[begin + lane] = place_[index(task)] - 1;
      for (const TaskId earlier : program.waits(*launch[index(task)])) {
        join(begin, static_cast<std::size_t>(row_[index(earlier)]) * lanes_);
        std::int32_t& seen = known_[begin + lane_[index(earlier)]];
        seen = std::max(seen, place_[index(earlier)]);
      }
      last[lane] = row_[index(task)];
    }
  }

  std::size_t lanes() const { return lanes_; }
  std::size_t lane(TaskId task) const { return lane_[index(task)]; }
  /// Whether `earlier` has ended whenever `later` starts. Both belong to the rank.
  bool before(TaskId earlier, TaskId later) const {
    return known_[static_cast<std::size_t>(row_[index(later)]) * lanes_ + lane_[index(earlier)]] >= place_[index(earlier)];
  }

 private:
  void join(std::size_t into, std::size_t from) {
    for (std::size_t lane = 0; lane < lanes_; ++lane) known_[into + lane] = std::max(known_[into + lane], known_[from + lane]);
  }

  std::size_t lanes_;
  std::vector<std::int32_t> place_;  ///< [task] index in its lane
  std::vector<std::uint8_t> lane_;   ///< [task]
  std::vector<std::int32_t> row_;    ///< [task] row in known_
  /// [row, lane] the last index that has ended when the task starts
  std::vector<std::int32_t> known_;
};

}  // namespace detail

namespace detail {

/// Places one rank's buffers in one memory: the device's or the host's.
class BufferPlanner {
 public:
  BufferPlanner(const Schedule& schedule, const Program& program, Rank rank, std::int64_t alignment, const Timeline* timeline,
                std::span<std::byte* const> lent, bool host)
      : schedule_{schedule}, rank_{rank}, alignment_{alignment}, timeline_{timeline}, host_{host}, known_{schedule, program} {
    const auto buffers = schedule.buffers();
    persistent_.assign(buffers.size(), -1);
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      if (!is_placed(buffers[b]) || !buffers[b].persistent) continue;
      persistent_[b] = base_;
      if (lent.empty() || lent[b] == nullptr) base_ += aligned(buffers[b].bytes);
    }
    find_lives(program);
  }

  BufferPlan plan() {
    auto by_size = order_;
    std::stable_sort(by_size.begin(), by_size.end(),
                     [&](BufferId a, BufferId b) { return schedule_.buffer(a).bytes > schedule_.buffer(b).bytes; });
    BufferPlan best = place_all(by_size);
    BufferPlan other = place_all(order_);
    if (other.bytes < best.bytes) best = std::move(other);
    if (timeline_ != nullptr) find_waits(best);
    return best;
  }

 private:
  struct Life {
    TaskId first = none<TaskId>;
    std::vector<TaskId> uses;
  };
  struct Block {
    std::int64_t begin;
    std::int64_t end;
    BufferId buffer;
  };

  bool is_placed(const Buffer& buffer) const { return buffer.rank == rank_ && buffer.host == host_; }
  std::int64_t aligned(Bytes bytes) const { return (bytes.value() + alignment_ - 1) / alignment_ * alignment_; }
  std::int64_t room(BufferId id) const { return aligned(std::max(schedule_.buffer(id).bytes, Bytes{1})); }

  /// Transient buffers by first use: in the program's order, or by time.
  void find_lives(const Program& program) {
    std::vector<TaskId> tasks;
    for (int lane = 0; lane < program.lanes(); ++lane) {
      for (const Launch& launch : program.lane(lane)) tasks.push_back(launch.task);
    }
    std::sort(tasks.begin(), tasks.end());
    lives_.resize(schedule_.buffers().size());
    for (const TaskId task : tasks) {
      for (const Use& use : schedule_.uses(task)) {
        const Buffer& buffer = schedule_.buffer(use.buffer);
        if (!is_placed(buffer) || buffer.persistent) continue;
        Life& life = lives_[index(use.buffer)];
        if (life.first == none<TaskId>) {
          life.first = task;
          order_.push_back(use.buffer);
        }
        life.uses.push_back(task);
      }
    }
    if (timeline_ == nullptr) return;
    const auto start = [&](BufferId buffer) { return timeline_->start_of(lives_[index(buffer)].first); };
    std::stable_sort(order_.begin(), order_.end(), [&](BufferId a, BufferId b) { return start(a) < start(b); });
  }

  /// Whether `use` is over when `first` starts, or can be waited for because it is over by then in
  /// the timeline. For tasks at the same time the schedule's order decides, so that waits never
  /// form a cycle.
  bool over(TaskId use, TaskId first) const {
    if (known_.before(use, first)) return true;
    if (timeline_ == nullptr || timeline_->end_of(use) > timeline_->start_of(first)) return false;
    return timeline_->start_of(use) < timeline_->start_of(first) || use < first;
  }
  bool before(BufferId earlier, BufferId later) const {
    const auto& uses = lives_[index(earlier)].uses;
    const TaskId first = lives_[index(later)].first;
    return std::all_of(uses.begin(), uses.end(), [&](TaskId use) { return over(use, first); });
  }

  /// Puts each buffer at the lowest offset that is free while it is in use.
  BufferPlan place_all(const std::vector<BufferId>& order) const {
    BufferPlan plan{persistent_, Bytes{base_}, {}, {}};
    std::vector<Block> blocks;  // by offset
    for (const BufferId id : order) {
      const std::int64_t bytes = room(id);
      std::int64_t at = base_;
      for (const Block& block : blocks) {
        if (block.begin >= at + bytes) break;
        if (block.end > at && !before(block.buffer, id) && !before(id, block.buffer)) at = block.end;
      }
      plan.offset[index(id)] = at;
      plan.bytes = std::max(plan.bytes, Bytes{at + bytes});
      const auto by_place = [](const Block& block, std::int64_t place) { return block.begin < place; };
      blocks.insert(std::lower_bound(blocks.begin(), blocks.end(), at, by_place), {at, at + bytes, id});
    }
    return plan;
  }

  /// For the first use of each buffer, adds waits for the last use, in each lane, of earlier
  /// buffers in its place, unless implied anyway.
  void find_waits(BufferPlan& plan) const {
    std::vector<TaskId> last(known_.lanes());
    for (const BufferId id : order_) {
      const TaskId first = lives_[index(id)].first;
      const std::int64_t begin = plan.offset[index(id)];
      last.assign(last.size(), none<TaskId>);
      for (const BufferId other : order_) {
        const std::int64_t at = plan.offset[index(other)];
        if (other == id || at >= begin + room(id) || begin >= at + room(other) || !before(other, id)) continue;
        for (const TaskId use : lives_[index(other)].uses) {
          if (known_.before(use, first)) continue;
          TaskId& latest = last[known_.lane(use)];
          if (latest == none<TaskId> || latest < use) latest = use;
        }
      }
      for (const TaskId use : last) {
        if (use != none<TaskId>) plan.waits.push_back({first, use});
      }
    }
  }

  const Schedule& schedule_;
  Rank rank_;
  std::int64_t alignment_;
  const Timeline* timeline_;
  bool host_;
  RankOrder known_;
  std::vector<std::int64_t> persistent_;  ///< [buffer] offsets; -1 for others
  std::int64_t base_ = 0;                 ///< after them
  std::vector<Life> lives_;               ///< [buffer]
  std::vector<BufferId> order_;           ///< transient buffers by first use
};

}  // namespace detail

TAWPIPE_INLINE BufferPlan plan_buffers(const Schedule& schedule, Program& program, Rank rank, std::int64_t alignment,
                                       const Timeline* timeline, std::span<std::byte* const> lent) {
  BufferPlan plan = detail::BufferPlanner{schedule, program, rank, alignment, timeline, lent, false}.plan();
  const auto buffers = schedule.buffers();
  if (std::any_of(buffers.begin(), buffers.end(), [&](const Buffer& buffer) { return buffer.host && buffer.rank == rank; })) {
    const BufferPlan host = detail::BufferPlanner{schedule, program, rank, alignment, timeline, lent, true}.plan();
    plan.host_bytes = host.bytes;
    for (std::size_t b = 0; b < buffers.size(); ++b) plan.offset[b] = std::max(plan.offset[b], host.offset[b]);
    plan.waits.insert(plan.waits.end(), host.waits.begin(), host.waits.end());
  }
  program.add(plan.waits);
  return plan;
}

}  // namespace tawpipe
#endif
