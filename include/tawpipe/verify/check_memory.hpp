// Device memory against what a schedule must hold (V8xx).
// Not: the peak over time (analysis/memory.hpp), which can be passed in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/core/units.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/topology/cluster.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0 {

/// Bytes that each rank holds at some moment, whatever the tasks' times: its persistent buffers,
/// and the transient ones that one lane uses both before and after one of its tasks. A true peak is
/// at least as large.
/// @return [rank], `schedule.ranks()` long. Complexity: O(uses + buffers).
inline std::vector<Bytes> min_memory(const Schedule& schedule) {
  std::vector<Bytes> least(static_cast<std::size_t>(schedule.ranks()));
  for (const Buffer& buffer : schedule.buffers()) {
    if (buffer.persistent && !buffer.host) least[index(buffer.rank)] += buffer.bytes;
  }
  std::vector<std::int64_t> last_use(schedule.buffers().size(), -1);  // position in the current lane
  std::vector<char> held(schedule.buffers().size(), 0);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    Bytes most;
    for (int lane = 0; lane < static_cast<int>(schedule.lanes().size()); ++lane) {
      const auto program = schedule.program(Rank{rank}, lane);
      const auto for_each_use = [&](std::size_t i, auto&& visit) {
        for (const Use& use : schedule.uses(program[i])) {
          const Buffer& buffer = schedule.buffer(use.buffer);
          if (!buffer.persistent && !buffer.host && buffer.rank == Rank{rank}) visit(use.buffer, buffer.bytes);
        }
      };
      for (std::size_t i = 0; i < program.size(); ++i) {
        for_each_use(i, [&](BufferId b, Bytes) { last_use[index(b)] = static_cast<std::int64_t>(i); });
      }
      Bytes now;
      for (std::size_t i = 0; i < program.size(); ++i) {
        for_each_use(i, [&](BufferId b, Bytes bytes) {
          if (held[index(b)] == 0) now += bytes;
          held[index(b)] = 1;
        });
        most = std::max(most, now);
        for_each_use(i, [&](BufferId b, Bytes bytes) {
          if (held[index(b)] != 0 && last_use[index(b)] == static_cast<std::int64_t>(i)) {
            now -= bytes;
            held[index(b)] = 0;
          }
        });
      }
    }
    least[static_cast<std::size_t>(rank)] += most;
  }
  return least;
}

/// Adds a finding for each rank whose device has less memory than the schedule needs.
/// @param peaks  [rank] known peaks, e.g. from a simulation; otherwise min_memory, a lower bound
inline void check_memory(const Schedule& schedule, const Cluster& cluster, std::span<const Bytes> peaks, Diagnostics& out) {
  if (schedule.ranks() > cluster.ranks()) {
    out.error(
        "V801", none<TaskId>, none<Rank>,
        [&] {
          return concat("the schedule needs ", schedule.ranks(), " ranks and the cluster has ", cluster.ranks(), " devices");
        },
        "use a cluster with more devices, or a schedule of fewer ranks");
    return;
  }
  const bool known = peaks.size() == static_cast<std::size_t>(schedule.ranks());
  const std::vector<Bytes> least = known ? std::vector<Bytes>{} : min_memory(schedule);
  for (int r = 0; r < schedule.ranks(); ++r) {
    const Bytes needed = known ? peaks[static_cast<std::size_t>(r)] : least[static_cast<std::size_t>(r)];
    const Bytes memory = cluster.device(Rank{r}).memory;
    if (needed <= memory) continue;
    out.error(
        "V802", none<TaskId>, Rank{r},
        [&] {
          return concat("rank ", r, known ? " needs " : " needs at least ", needed.value(), " bytes and its device has ",
                        memory.value(), "; ", (needed - memory).value(), " are missing");
        },
        "use more devices, smaller microbatches, recomputation, offload to the host, or a schedule that shards more");
  }
}

}  // namespace tawpipe
