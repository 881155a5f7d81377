// Device memory over time: the peak of each rank and what holds it.
// Not: allocator waste, nor the buffers of NCCL and of libraries, for which a plan leaves room (usable_memory_share).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

/// One rank's memory at its fullest.
struct PeakMemory {
  Bytes total;
  std::array<Bytes, buffer_kinds> by_kind{};  ///< [kind] at the moment of the peak
  TimePoint at;
};

/// The peak of each rank while `schedule` runs as in `timeline`. A persistent buffer is held throughout, a transient one
/// from its first use's start to its last use's end.
/// @param same_as  [rank] the rank before it that does the same (FoldedSchedule::same_as); empty: each for itself
/// @return [rank], `schedule.ranks()` long.
/// Complexity: O(uses + buffers log buffers), one rank's changes in memory at a time.
inline std::vector<PeakMemory> peak_memory(const Schedule& schedule, const Timeline& timeline,
                                           std::span<const Rank> same_as = {}) {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  struct Life {
    std::int64_t from = never;
    std::int64_t to = -1;
  };
  const auto buffers = schedule.buffers();
  std::vector<Life> lives(buffers.size());
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    for (const Use& use : schedule.uses(id<TaskId>(t))) {
      Life& life = lives[index(use.buffer)];
      life.from = std::min(life.from, timeline.start[t].picoseconds());
      life.to = std::max(life.to, timeline.end[t].picoseconds());
    }
  }
  struct Change {
    std::int64_t time;
    std::int64_t bytes;  ///< negative where a buffer is released
    BufferKind kind;
  };
  std::vector<PeakMemory> peaks(static_cast<std::size_t>(schedule.ranks()));
  std::vector<std::size_t> rank_begin(peaks.size() + 2, 0);  // a counting sort of those that come and go
  const auto comes_and_goes = [&](std::size_t b) {
    return !buffers[b].persistent && lives[b].from != never && buffers[b].bytes > Bytes{};
  };
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const Buffer& buffer = buffers[b];
    if (comes_and_goes(b)) {
      ++rank_begin[index(buffer.rank) + 2];
    } else if (buffer.persistent) {
      peaks[index(buffer.rank)].total += buffer.bytes;
      peaks[index(buffer.rank)].by_kind[static_cast<std::size_t>(buffer.kind())] += buffer.bytes;
    }
  }
  for (std::size_t i = 2; i < rank_begin.size(); ++i) rank_begin[i] += rank_begin[i - 1];
  std::vector<BufferId> by_rank(rank_begin.back());
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (comes_and_goes(b)) by_rank[rank_begin[index(buffers[b].rank) + 1]++] = id<BufferId>(b);
  }
  std::vector<Change> changes;
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    if (!same_as.empty() && same_as[rank] != id<Rank>(rank)) {
      peaks[rank] = peaks[index(same_as[rank])];
      continue;
    }
    changes.clear();
    for (std::size_t i = rank_begin[rank]; i < rank_begin[rank + 1]; ++i) {
      const Buffer& buffer = schedule.buffer(by_rank[i]);
      const Life& life = lives[index(by_rank[i])];
      changes.push_back({life.from, buffer.bytes.value(), buffer.kind()});
      changes.push_back({life.to, -buffer.bytes.value(), buffer.kind()});
    }
    // At one instant what ends releases before what starts takes, as a stream-ordered allocator does.
    std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
      return a.time != b.time ? a.time < b.time : (a.bytes != b.bytes ? a.bytes < b.bytes : a.kind < b.kind);
    });
    PeakMemory now = peaks[rank];
    for (const Change& change : changes) {
      now.total += Bytes{change.bytes};
      now.by_kind[static_cast<std::size_t>(change.kind)] += Bytes{change.bytes};
      if (now.total > peaks[rank].total) {
        peaks[rank] = now;
        peaks[rank].at = TimePoint{Duration{change.time}};
      }
    }
  }
  return peaks;
}

/// The fraction of a device's memory that a plan may count on: the rest goes to what no peak counts (the driver, CUDA's
/// context, NCCL, library workspaces, allocator waste, temporaries). docs/accuracy.md has the reasons for the figure.
inline constexpr double usable_memory_share = 0.85;

/// `fraction` of `memory`, rounded down. @param fraction  above 0, at most 1
inline Bytes usable_part(Bytes memory, double fraction) {
  return fraction < 1 ? Bytes{static_cast<std::int64_t>(static_cast<double>(memory.value()) * fraction)} : memory;
}

/// The ranks whose peak exceeds the `usable` fraction of their device's memory.
inline std::vector<Rank> out_of_memory(const std::vector<PeakMemory>& peaks, const Cluster& cluster, double usable = 1) {
  std::vector<Rank> ranks;
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    if (peaks[rank].total > usable_part(cluster.device(id<Rank>(rank)).memory, usable)) ranks.push_back(id<Rank>(rank));
  }
  return ranks;
}

}  // namespace tawpipe
