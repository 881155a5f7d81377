// What each end of a communication sends.
// Not: which numbers these are (execute/dataflow.hpp), nor how many bytes (analysis/traffic.hpp).
#pragma once

#include "tawpipe/core/ids.hpp"
#include "tawpipe/schedule/op_traits.hpp"
#include "tawpipe/schedule/task.hpp"

namespace tawpipe::inline v0 {

/// What `end`, a rank that takes part, sends: the peer of an exchange gives gradients of activations
/// for activations, and activations for their gradients.
constexpr Payload sent_payload(const Task& task, Rank end) {
  if (!goes_both_ways(task.op) || end == task.rank) return task.payload;
  if (task.payload == Payload::activations) return Payload::activation_gradients;
  return task.payload == Payload::activation_gradients ? Payload::activations : task.payload;
}

}  // namespace tawpipe
