// The bytes that an executor has sent, counted per message.
// Not: the bytes that a schedule should send (analysis/traffic.hpp), with which it must agree.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/execute/ring_plan.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedule/sent_payload.hpp"

namespace tawpipe::inline v0 {

/// Bytes that one rank sent in an iteration, over the edges of NCCL's rings and chains.
struct SentBytes {
  std::array<std::int64_t, payloads> by_payload{};

  std::int64_t total() const {
    std::int64_t sum = 0;
    for (const std::int64_t bytes : by_payload) sum += bytes;
    return sum;
  }
};

/// Adds the bytes of a finished communication, by the numbers it really carried, over the edges of
/// ring_plan().
/// @param sent  [rank]
inline void count_sent(const Schedule& schedule, TaskId id, const TransferFlow& flow, std::size_t number_bytes,
                       std::vector<SentBytes>& sent) {
  for_each_end(schedule, id, [&](Rank rank, int) {
    const std::size_t numbers = ring_plan(schedule, id, flow, rank, std::max<std::int64_t>(flow.count, 1)).numbers_sent;
    const auto payload = static_cast<std::size_t>(sent_payload(schedule.task(id), rank));
    sent[index(rank)].by_payload[payload] += static_cast<std::int64_t>(numbers * number_bytes);
  });
}

}  // namespace tawpipe
