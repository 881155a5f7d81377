// What must come before what in a schedule, by brute force: all ancestors of all tasks.
// Not: fast; quadratic in the number of tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace support {

/// A short name of a task for messages.
inline std::string describe(const tawpipe::Schedule& schedule, std::size_t task) {
  const auto& t = schedule.tasks()[task];
  return tawpipe::concat("task ", task, " (", tawpipe::name(t.op), " of stage ", number(t.stage), ", microbatch ", t.microbatch,
                         ", rank ", number(t.rank), ")");
}

/// [task] the tasks that it waits for directly: its dependencies and the task before it on each of
/// its lanes.
inline std::vector<std::vector<std::size_t>> direct_predecessors(const tawpipe::Schedule& schedule) {
  std::vector<std::vector<std::size_t>> before(schedule.tasks().size());
  for (std::size_t t = 0; t < before.size(); ++t) {
    for (const auto d : schedule.dependencies(tawpipe::id<tawpipe::TaskId>(t))) before[t].push_back(tawpipe::index(d));
  }
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    for (int lane = 0; lane < static_cast<int>(schedule.lanes().size()); ++lane) {
      const auto program = schedule.program(tawpipe::Rank{rank}, lane);
      for (std::size_t i = 1; i < program.size(); ++i) {
        before[tawpipe::index(program[i])].push_back(tawpipe::index(program[i - 1]));
      }
    }
  }
  return before;
}

/// All ancestors of all tasks. @pre task ids are a topological order
class Ancestors {
 public:
  explicit Ancestors(const std::vector<std::vector<std::size_t>>& before)
      : words_{(before.size() + 63) / 64}, bits_(before.size() * words_) {
    for (std::size_t t = 0; t < before.size(); ++t) {
      for (const std::size_t earlier : before[t]) {
        for (std::size_t w = 0; w <= earlier / 64; ++w) bits_[t * words_ + w] |= bits_[earlier * words_ + w];
        bits_[t * words_ + earlier / 64] |= std::uint64_t{1} << (earlier % 64);
      }
    }
  }

  /// Whether `earlier` has ended in any run before `later` starts.
  bool precedes(std::size_t earlier, std::size_t later) const {
    return ((bits_[later * words_ + earlier / 64] >> (earlier % 64)) & 1) != 0;
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace support
