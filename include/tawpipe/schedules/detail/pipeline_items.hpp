// The lanes of a pipeline, the steps of its ranks where transfers occupy the compute lane, and
// which of these are one exchange.
// Not: when they run (schedules/pipeline.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/schedules/pipeline_options.hpp"
#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// The lanes of messages up and down the ring of ranks; without overlap all are the compute lane.
struct PipelineLanes {
  PipelineLanes(ScheduleBuilder& builder, const PipelineOptions& options) {
    if (!options.overlap) return;
    if (options.p2p == P2pStreams::pair) {
      send_next = receive_next = builder.lane("next");
      send_previous = receive_previous = builder.lane("previous");
      return;
    }
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

/// A step of one rank: a computation, or without overlap also its end of a transfer. Small, since a
/// schedule has millions.
struct PipelineItem {
  enum class Kind : std::uint8_t {
    compute,
    send,
    receive,
    exchange,  ///< a send that is one exchange with the receive after it
  } kind = Kind::compute;
  Op op = Op::forward;
  bool joined = false;
  std::int32_t stage = 0;  ///< of what is computed; of the producer of a message
  std::int32_t microbatch = 0;

  PipelineItem(Kind of, const Action& action)
      : kind{of}, op{action.op}, joined{action.joined}, stage{action.stage}, microbatch{action.microbatch} {}
  Action action() const { return {op, stage, microbatch, joined}; }
};

/// Joins a send and a receive that are adjacent on both ends into one exchange, as batched sends
/// and receives do; kept separate, each of the two ranks would wait for the other to receive.
/// @param items  [rank] steps
/// @param place  place(message) numbers the messages from 0 to `messages` - 1
/// @param other_end  other_end(rank, item) is the rank at the other end of its transfer
template <class Place, class OtherEnd>
void fuse_exchanges(std::vector<std::vector<PipelineItem>>& items, std::size_t messages, Place&& place, OtherEnd&& other_end) {
  using Kind = PipelineItem::Kind;
  std::vector<std::uint32_t> sent_at(messages, 0);  // its place in the sender's steps
  for (const auto& steps : items) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind == Kind::send) sent_at[place(steps[i].action())] = static_cast<std::uint32_t>(i);
    }
  }
  const auto is_pair = [&](std::size_t rank, std::size_t i) {
    const std::vector<PipelineItem>& steps = items[rank];
    return i + 1 < steps.size() && (steps[i].kind == Kind::send || steps[i].kind == Kind::exchange) &&
           steps[i + 1].kind == Kind::receive && other_end(rank, steps[i]) == other_end(rank, steps[i + 1]);
  };
  for (std::size_t r = 0; r < items.size(); ++r) {
    for (std::size_t i = 0; i < items[r].size(); ++i) {
      if (!is_pair(r, i)) continue;
      const std::size_t other = other_end(r, items[r][i]);
      const std::size_t j = sent_at[place(items[r][i + 1].action())];
      if (!is_pair(other, j) || items[other][j + 1].action() != items[r][i].action()) continue;
      items[r][i].kind = Kind::exchange;
      ++i;
    }
  }
}

}  // namespace tawpipe::schedules::detail
