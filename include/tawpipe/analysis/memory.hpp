// Memory over time: each rank's peak on its device, its breakdown, and its peak in host memory.
// Not: allocator waste, nor the buffers of NCCL and libraries, for which a plan leaves room
// (usable_memory_share).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

/// One rank's memory at its peak.
struct PeakMemory {
  Bytes total;
  std::array<Bytes, buffer_kinds> by_kind{};  ///< [kind] at the moment of the peak
  TimePoint at;
  Bytes host;  ///< the peak in host memory, page-locked for as long as the program runs
};

/// The peak of each rank while `schedule` runs as in `timeline`. A persistent buffer is held
/// throughout, a transient one from its first use's start to its last use's end.
/// @param same_as  [rank] an earlier rank that does the same (FoldedSchedule::same_as); empty: all
/// differ
/// @return [rank], `schedule.ranks()` long.
/// Complexity: O(uses + buffers log buffers), one rank's changes in memory at a time.
TAWPIPE_INLINE std::vector<PeakMemory> peak_memory(const Schedule& schedule, const Timeline& timeline,
                                                   std::span<const Rank> same_as = {});

/// What each rank holds over time, for a picture: the iteration cut into `parts` equal parts, each
/// with its peak.
/// @return [rank][part * buffer_kinds + kind] bytes. @pre parts > 0
TAWPIPE_INLINE std::vector<std::vector<double>> memory_over_time(const Schedule& schedule, const Timeline& timeline,
                                                                 std::size_t parts);

/// The fraction of a device's memory that a plan may count on: the rest is for memory that no peak
/// counts (the driver, CUDA's context, NCCL, library workspaces, allocator waste, temporaries).
/// docs/accuracy.md has the reasons for the figure.
inline constexpr double usable_memory_share = 0.85;

/// `fraction` of `memory`, rounded down. @param fraction  above 0, at most 1
inline Bytes usable_part(Bytes memory, double fraction) {
  return fraction < 1 ? Bytes{static_cast<std::int64_t>(static_cast<double>(memory.value()) * fraction)} : memory;
}

/// The ranks whose peak exceeds the `usable` fraction of their device's memory.
/// @param memory  [rank] of its device
inline std::vector<Rank> out_of_memory(const std::vector<PeakMemory>& peaks, const std::vector<Bytes>& memory,
                                       double usable = 1) {
  std::vector<Rank> ranks;
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    if (peaks[rank].total > usable_part(memory[rank], usable)) ranks.push_back(id<Rank>(rank));
  }
  return ranks;
}
/// The same on a cluster's devices.
inline std::vector<Rank> out_of_memory(const std::vector<PeakMemory>& peaks, const Cluster& cluster, double usable = 1) {
  std::vector<Bytes> memory;
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) memory.push_back(cluster.device(id<Rank>(rank)).memory);
  return out_of_memory(peaks, memory, usable);
}

/// [node] what its ranks keep in the memory of their host: the sum of their peaks, since page-locked
/// memory is not given back to other processes. Source: PyTorch, aten/src/ATen/core/CachingHostAllocator.h.
inline std::vector<Bytes> host_needs(const std::vector<PeakMemory>& peaks, const Cluster& cluster) {
  std::vector<Bytes> needs(static_cast<std::size_t>(cluster.nodes()));
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) needs[index(cluster.node_of(id<Rank>(rank)))] += peaks[rank].host;
  return needs;
}
/// The nodes that need more than the `usable` fraction of their host's memory, as far as that is known.
/// @param memory  [node] of its host; 0: unknown
inline std::vector<NodeId> out_of_host_memory(const std::vector<Bytes>& needs, const std::vector<Bytes>& memory,
                                              double usable = 1) {
  std::vector<NodeId> nodes;
  for (std::size_t node = 0; node < needs.size(); ++node) {
    if (memory[node] > Bytes{} && needs[node] > usable_part(memory[node], usable)) nodes.push_back(id<NodeId>(node));
  }
  return nodes;
}

/// Whether both kinds of memory are enough.
inline bool fits_memory(const std::vector<PeakMemory>& peaks, const Cluster& cluster, double usable = 1) {
  std::vector<Bytes> hosts;
  for (int node = 0; node < cluster.nodes(); ++node) hosts.push_back(cluster.memory_of_host(NodeId{node}));
  return out_of_memory(peaks, cluster, usable).empty() && out_of_host_memory(host_needs(peaks, cluster), hosts, usable).empty();
}

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <limits>

#include "tawpipe/core/prefetch.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// A buffer that is taken or, with negative bytes, released.
struct MemoryChange {
  std::int64_t time;  ///< picoseconds
  std::int64_t bytes;
  BufferKind kind;
  bool host;  ///< in host memory
};

/// From the first use's start to the last use's end, picoseconds.
struct BufferLife {
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  std::int64_t from = never;
  std::int64_t to = -1;
};

/// Calls `visit(rank, persistent, changes)` for each rank that differs from all earlier ones: the
/// memory it holds throughout, and the changes in time order. At the same instant, ending uses
/// release before starting ones allocate, as in a stream-ordered allocator.
/// Complexity: O(uses + buffers log buffers), one rank's changes in memory at a time.
template <class Visit>
void for_each_memory(const Schedule& schedule, const Timeline& timeline, std::span<const Rank> same_as, Visit&& visit) {
  const auto buffers = schedule.buffers();
  std::vector<BufferLife> lives(buffers.size());
  constexpr std::size_t ahead = 16;  // buffers used one after another are far from each other in memory
  const std::vector<Use>& uses = schedule.parts().uses.items();
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    for (const Use& use : schedule.uses(id<TaskId>(t))) {
      if (const Use* const later = &use + ahead; later < uses.data() + uses.size()) prefetch(&lives[index(later->buffer)]);
      BufferLife& life = lives[index(use.buffer)];
      life.from = std::min(life.from, timeline.start[t].picoseconds());
      life.to = std::max(life.to, timeline.end[t].picoseconds());
    }
  }
  std::vector<PeakMemory> persistent(static_cast<std::size_t>(schedule.ranks()));
  std::vector<std::size_t> rank_begin(persistent.size() + 2, 0);  // a counting sort of the transient buffers
  const auto comes_and_goes = [&](std::size_t b) {
    return !buffers[b].persistent && lives[b].from != BufferLife::never && buffers[b].bytes > Bytes{};
  };
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const Buffer& buffer = buffers[b];
    if (comes_and_goes(b)) {
      ++rank_begin[index(buffer.rank) + 2];
    } else if (buffer.persistent && buffer.host) {
      persistent[index(buffer.rank)].host += buffer.bytes;
    } else if (buffer.persistent) {
      persistent[index(buffer.rank)].total += buffer.bytes;
      persistent[index(buffer.rank)].by_kind[static_cast<std::size_t>(buffer.kind())] += buffer.bytes;
    }
  }
  for (std::size_t i = 2; i < rank_begin.size(); ++i) rank_begin[i] += rank_begin[i - 1];
  std::vector<BufferId> by_rank(rank_begin.back());
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (comes_and_goes(b)) by_rank[rank_begin[index(buffers[b].rank) + 1]++] = id<BufferId>(b);
  }
  std::vector<MemoryChange> changes;
  for (std::size_t rank = 0; rank < persistent.size(); ++rank) {
    if (!same_as.empty() && same_as[rank] != id<Rank>(rank)) continue;
    changes.clear();
    for (std::size_t i = rank_begin[rank]; i < rank_begin[rank + 1]; ++i) {
      if (i + ahead < by_rank.size()) {
        prefetch(&schedule.buffer(by_rank[i + ahead]));
        prefetch(&lives[index(by_rank[i + ahead])]);
      }
      const Buffer& buffer = schedule.buffer(by_rank[i]);
      const BufferLife& life = lives[index(by_rank[i])];
      changes.push_back({life.from, buffer.bytes.value(), buffer.kind(), buffer.host});
      changes.push_back({life.to, -buffer.bytes.value(), buffer.kind(), buffer.host});
    }
    std::sort(changes.begin(), changes.end(), [](const MemoryChange& a, const MemoryChange& b) {
      return a.time != b.time ? a.time < b.time : (a.bytes != b.bytes ? a.bytes < b.bytes : a.kind < b.kind);
    });
    visit(id<Rank>(rank), persistent[rank], std::span<const MemoryChange>{changes});
  }
}

}  // namespace detail

TAWPIPE_INLINE std::vector<PeakMemory> peak_memory(const Schedule& schedule, const Timeline& timeline,
                                                   std::span<const Rank> same_as) {
  std::vector<PeakMemory> peaks(static_cast<std::size_t>(schedule.ranks()));
  detail::for_each_memory(schedule, timeline, same_as,
                          [&](Rank rank, const PeakMemory& persistent, std::span<const detail::MemoryChange> changes) {
                            PeakMemory now = persistent;
                            PeakMemory& peak = peaks[index(rank)] = persistent;
                            Bytes host = persistent.host;
                            for (const detail::MemoryChange& change : changes) {
                              if (change.host) {
                                now.host += Bytes{change.bytes};
                                host = std::max(host, now.host);
                                continue;
                              }
                              now.total += Bytes{change.bytes};
                              now.by_kind[static_cast<std::size_t>(change.kind)] += Bytes{change.bytes};
                              if (now.total <= peak.total) continue;
                              peak = now;
                              peak.at = TimePoint{Duration{change.time}};
                            }
                            peak.host = host;
                          });
  for (std::size_t rank = 0; rank < same_as.size(); ++rank) peaks[rank] = peaks[index(same_as[rank])];
  return peaks;
}

TAWPIPE_INLINE std::vector<std::vector<double>> memory_over_time(const Schedule& schedule, const Timeline& timeline,
                                                                 std::size_t parts) {
  std::vector<std::vector<double>> all(static_cast<std::size_t>(schedule.ranks()));
  const double length = static_cast<double>(std::max<std::int64_t>(timeline.makespan().value(), 1)) / static_cast<double>(parts);
  detail::for_each_memory(
      schedule, timeline, {}, [&](Rank rank, const PeakMemory& persistent, std::span<const detail::MemoryChange> changes) {
        std::vector<double>& held = all[index(rank)];
        held.assign(parts * buffer_kinds, 0);
        PeakMemory now = persistent;
        std::size_t next = 0;
        for (std::size_t part = 0; part < parts; ++part) {
          PeakMemory fullest = now;
          const double end = static_cast<double>(part + 1) * length;
          const auto before_end = [&](std::int64_t time) { return part + 1 == parts || static_cast<double>(time) < end; };
          for (; next < changes.size() && before_end(changes[next].time); ++next) {
            if (changes[next].host) continue;
            now.total += Bytes{changes[next].bytes};
            now.by_kind[static_cast<std::size_t>(changes[next].kind)] += Bytes{changes[next].bytes};
            if (now.total > fullest.total) fullest = now;
          }
          for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
            held[part * buffer_kinds + kind] = static_cast<double>(fullest.by_kind[kind].value());
          }
        }
      });
  return all;
}

}  // namespace tawpipe
#endif
