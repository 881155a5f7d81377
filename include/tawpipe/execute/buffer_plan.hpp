// Where each buffer of a rank lies in one allocation; transient ones share memory as far as the order of tasks allows.
// Not: the memory itself (execute/host/, execute/cuda/).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/core/units.hpp"
#include "tawpipe/execute/program.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe {

/// Offsets of one rank's buffers.
struct BufferPlan {
  std::vector<std::int64_t> offset;  ///< [buffer] bytes from the begin of the rank's memory; -1: another rank's
  Bytes bytes;                       ///< to allocate, alignment included
};

namespace detail {

/// For one rank: which of its tasks have ended, whatever the times, before a task starts.
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

  /// Whether `earlier` has ended whenever `later` starts. Both are the rank's.
  bool before(TaskId earlier, TaskId later) const {
    return known_[static_cast<std::size_t>(row_[index(later)]) * lanes_ + lane_[index(earlier)]] >= place_[index(earlier)];
  }

 private:
  void join(std::size_t into, std::size_t from) {
    for (std::size_t lane = 0; lane < lanes_; ++lane) known_[into + lane] = std::max(known_[into + lane], known_[from + lane]);
  }

  std::size_t lanes_;
  std::vector<std::int32_t> place_;  ///< [task] in its lane
  std::vector<std::uint8_t> lane_;   ///< [task]
  std::vector<std::int32_t> row_;    ///< [task] in known_
  std::vector<std::int32_t> known_;  ///< [row, lane] the last place that has ended when the task starts
};

}  // namespace detail

/// Lays out one rank's buffers: persistent ones behind each other, then transient ones, each at the lowest place where every
/// buffer that it overlaps has had its last use before its first, in any timing that the program allows.
/// @param alignment  of each buffer, a power of two
/// Complexity: O(buffers * buffers held at once).
inline BufferPlan plan_buffers(const Schedule& schedule, const Program& program, Rank rank, std::int64_t alignment = 64) {
  struct Life {
    TaskId first = none<TaskId>;
    std::vector<TaskId> uses;
  };
  const auto aligned = [&](std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
  const auto buffers = schedule.buffers();
  BufferPlan plan;
  plan.offset.assign(buffers.size(), -1);
  std::vector<Life> lives(buffers.size());
  std::int64_t end = 0;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].rank != rank || !buffers[b].persistent) continue;
    plan.offset[b] = end;
    end += aligned(buffers[b].bytes.value());
  }
  const std::int64_t base = end;
  std::vector<BufferId> order;  // by first use
  std::vector<TaskId> tasks;
  for (int lane = 0; lane < program.lanes(); ++lane) {
    for (const Launch& launch : program.lane(lane)) tasks.push_back(launch.task);
  }
  std::sort(tasks.begin(), tasks.end());
  for (const TaskId task : tasks) {
    for (const Use& use : schedule.uses(task)) {
      const Buffer& buffer = schedule.buffer(use.buffer);
      if (buffer.rank != rank || buffer.persistent) continue;
      Life& life = lives[index(use.buffer)];
      if (life.first == none<TaskId>) {
        life.first = task;
        order.push_back(use.buffer);
      }
      life.uses.push_back(task);
    }
  }
  const detail::RankOrder known{schedule, program};
  struct Block {
    std::int64_t begin;
    std::int64_t end;
    BufferId buffer;
  };
  std::vector<Block> blocks;  // by place; those that some later buffer may still have to avoid
  for (const BufferId id : order) {
    const std::int64_t bytes = aligned(std::max<std::int64_t>(buffers[index(id)].bytes.value(), 1));
    const TaskId first = lives[index(id)].first;
    const auto ended = [&](const Block& block) {
      const auto& uses = lives[index(block.buffer)].uses;
      return std::all_of(uses.begin(), uses.end(), [&](TaskId use) { return known.before(use, first); });
    };
    std::int64_t at = base;
    std::int64_t best = -1;
    std::int64_t best_gap = 0;
    // The smallest gap that fits, else behind the last block held.
    for (std::size_t i = 0; i <= blocks.size(); ++i) {
      if (i < blocks.size() && ended(blocks[i])) continue;
      const std::int64_t gap_end = i < blocks.size() ? blocks[i].begin : -1;
      const std::int64_t gap = gap_end < 0 ? -1 : gap_end - at;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = at;
        best_gap = gap;
      }
      if (i < blocks.size()) at = std::max(at, blocks[i].end);
    }
    if (best < 0) best = at;
    plan.offset[index(id)] = best;
    end = std::max(end, best + bytes);
    // A block under the new one stays only where part of it stands out: it has ended for all that come after this one.
    std::erase_if(blocks, [&](const Block& block) { return block.begin >= best && block.end <= best + bytes && ended(block); });
    const auto place = std::find_if(blocks.begin(), blocks.end(), [&](const Block& block) { return block.begin >= best; });
    blocks.insert(place, {best, best + bytes, id});
  }
  plan.bytes = Bytes{end};
  return plan;
}

}  // namespace tawpipe
