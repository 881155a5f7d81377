// The lanes of a pipeline, the steps of its ranks where transfers occupy the compute lane, and
// which of these are one exchange.
// Not: when they run (schedules/pipeline.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// The lanes of messages up and down the ring of ranks; without overlap all are the compute lane.
struct PipelineLanes {
  PipelineLanes(ScheduleBuilder& builder, bool overlap) {
    if (!overlap) return;
    send_next = builder.lane("send_next");
    receive_previous = builder.lane("receive_previous");
    send_previous = builder.lane("send_previous");
    receive_next = builder.lane("receive_next");
  }

  LaneId send_next{};
  LaneId receive_previous{};
  LaneId send_previous{};
  LaneId receive_next{};
};

/// A step of one rank: a computation, or without overlap also its end of a transfer.
struct PipelineItem {
  enum class Kind : std::uint8_t { compute, send, receive, exchange } kind = Kind::compute;
  Action action;    ///< computed; or the producer of the message sent
  Action received;  ///< the producer of the message received
  int peer = -1;
};

/// Joins a send and a receive that are adjacent on both ends into one exchange, as batched sends
/// and receives do; kept separate, each of the two ranks would wait for the other to receive.
/// @param items  [rank] steps
inline void fuse_exchanges(std::vector<std::vector<PipelineItem>>& items) {
  using Kind = PipelineItem::Kind;
  const auto key = [](const Action& message) { return std::tuple{message.op, message.stage, message.microbatch}; };
  std::map<std::tuple<Op, std::int32_t, std::int32_t>, std::size_t> sent_at;  // its place in the sender's steps
  for (const auto& steps : items) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind == Kind::send) sent_at[key(steps[i].action)] = i;
    }
  }
  const auto is_pair = [](const std::vector<PipelineItem>& steps, std::size_t i) {
    return i + 1 < steps.size() && steps[i].kind == Kind::send && steps[i + 1].kind == Kind::receive &&
           steps[i].peer == steps[i + 1].peer;
  };
  std::vector<std::vector<PipelineItem>> fused(items.size());
  for (std::size_t r = 0; r < items.size(); ++r) {
    for (std::size_t i = 0; i < items[r].size(); ++i) {
      PipelineItem item = items[r][i];
      if (is_pair(items[r], i)) {
        const Action received = items[r][i + 1].received;
        const auto& other = items[static_cast<std::size_t>(item.peer)];
        const std::size_t j = sent_at[key(received)];
        if (is_pair(other, j) && other[j + 1].received == item.action) {
          item = {Kind::exchange, item.action, received, item.peer};
          ++i;
        }
      }
      fused[r].push_back(item);
    }
  }
  items = std::move(fused);
}

}  // namespace tawpipe::schedules::detail
