// The kinds of task a schedule is made of, and what they carry.
// Not: a task's place and order (schedule/task.hpp).
#pragma once

#include <cstdint>
#include <string_view>

namespace tawpipe::inline v0 {

/// What a task does.
enum class Op : std::uint8_t {
  forward,          ///< one stage, one microbatch
  backward,         ///< gradients of inputs and weights together
  backward_input,   ///< gradients of inputs alone
  backward_weight,  ///< gradients of weights alone
  update,           ///< the optimizer's step on what the rank owns
  idle,             ///< a drawn bubble, as long as one forward of its stage
  pass,             ///< point to point: rank -> peer
  exchange,         ///< point to point both ways at once: rank <-> peer
  broadcast,        ///< root -> group
  reduce,           ///< group -> root, summed
  all_gather,       ///< each member's part -> all members
  reduce_scatter,   ///< summed, each member keeps its part
  all_reduce,       ///< summed, all members keep all
};
inline constexpr int ops = 13;

/// The op's name in reports, traces and files.
constexpr std::string_view name(Op op) {
  constexpr std::string_view names[ops] = {"forward",    "backward",       "backward_input", "backward_weight", "update",
                                           "idle",       "pass",           "exchange",       "broadcast",       "reduce",
                                           "all_gather", "reduce_scatter", "all_reduce"};
  return names[static_cast<int>(op)];
}

/// Runs on one rank's own processors.
constexpr bool is_compute(Op op) { return op <= Op::idle; }
/// Has two ends.
constexpr bool is_point_to_point(Op op) { return op == Op::pass || op == Op::exchange; }
/// Has a group of members.
constexpr bool is_collective(Op op) { return op >= Op::broadcast; }
/// Counts as work: compute that is not a drawn bubble.
constexpr bool is_work(Op op) { return op < Op::idle; }

/// What a communication carries.
enum class Payload : std::uint8_t {
  nothing,
  weights,
  gradients,
  activations,
  activation_gradients,
  edge_gradients,  ///< of embedding and head where every rank holds a copy
};
inline constexpr int payloads = 6;

/// The payload's name in reports and files.
constexpr std::string_view name(Payload payload) {
  constexpr std::string_view names[payloads] = {"nothing",       "weights", "gradients", "activations", "activation_gradients",
                                                "edge_gradients"};
  return names[static_cast<int>(payload)];
}

}  // namespace tawpipe
