// What an executor has sent, counted as messages go.
// Not: what a schedule should send (analysis/traffic.hpp), with which it must agree.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// Bytes that one rank sent in an iteration, over the edges that NCCL's rings and chains have.
struct SentBytes {
  std::array<std::int64_t, payloads> by_payload{};

  std::int64_t total() const {
    std::int64_t sum = 0;
    for (const std::int64_t bytes : by_payload) sum += bytes;
    return sum;
  }
};

/// Adds what a communication that was done sent, by the numbers it really carried.
///
/// Each way of a pass or exchange as it is. Collectives as rings: with n members in order, a broadcast's chain from the root
/// on sends all of it over n - 1 edges, a reduce's towards the root as well; all_gather: a member sends on every part but that
/// of the member behind it; reduce_scatter: every part but its own; all_reduce: the two together in even parts.
/// @param sent  [rank]
inline void count_sent(const Schedule& schedule, TaskId id, const TransferFlow& flow, std::size_t number_bytes,
                       std::vector<SentBytes>& sent) {
  const Task& task = schedule.task(id);
  const auto payload = static_cast<std::size_t>(task.payload);
  const auto add = [&](Rank rank, std::int64_t numbers) {
    sent[index(rank)].by_payload[payload] += numbers * static_cast<std::int64_t>(number_bytes);
  };
  if (task.op == Op::pass) return add(task.rank, flow.count);
  if (task.op == Op::exchange) {
    add(task.rank, flow.count / 2);
    return add(task.peer, flow.count / 2);
  }
  const auto members = schedule.group(task.group);
  const std::size_t n = members.size();
  std::size_t root = 0;
  while (root + 1 < n && members[root] != task.rank) ++root;
  for (std::size_t m = 0; m < n; ++m) {
    const std::size_t next = (m + 1) % n;
    std::int64_t numbers = 0;
    switch (task.op) {
      case Op::broadcast:
        numbers = next == root ? 0 : flow.count;
        break;
      case Op::reduce:
        numbers = m == root ? 0 : flow.count;
        break;
      case Op::all_gather:
        numbers = flow.count - (flow.member_begin[next + 1] - flow.member_begin[next]);
        break;
      case Op::reduce_scatter:
        numbers = flow.count - (flow.member_begin[m + 1] - flow.member_begin[m]);
        break;
      default:  // all_reduce: one part of n is not sent in each half
        numbers = 2 * flow.count -
                  (flow.count * static_cast<std::int64_t>(next + 1) / static_cast<std::int64_t>(n) -
                   flow.count * static_cast<std::int64_t>(next) / static_cast<std::int64_t>(n)) -
                  (flow.count * static_cast<std::int64_t>(m + 1) / static_cast<std::int64_t>(n) -
                   flow.count * static_cast<std::int64_t>(m) / static_cast<std::int64_t>(n));
        break;
    }
    if (n > 1) add(members[m], numbers);
  }
}

}  // namespace tawpipe
