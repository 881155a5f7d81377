// One number for a schedule and its timeline: FNV-1a over every task's op, rank, stage, microbatch,
// start and end.
// Not: a hash to look things up by.
#pragma once

#include <cstdint>

#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace support {

inline std::uint64_t fingerprint(const tawpipe::Schedule& schedule, const tawpipe::Timeline& timeline) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::int64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      hash ^= (static_cast<std::uint64_t>(value) >> (8 * byte)) & 0xff;
      hash *= 0x100000001b3;
    }
  };
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const auto& task = schedule.tasks()[t];
    add(static_cast<int>(task.op));
    add(number(task.rank));
    add(number(task.stage));
    add(task.microbatch);
    add(timeline.start[t].picoseconds());
    add(timeline.end[t].picoseconds());
  }
  return hash;
}

}  // namespace support
