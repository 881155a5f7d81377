// What runs of ranks that share stages are checked by: recorded numbers, messages and bytes as simulated.
// Not: the runs (support/tensor_training.hpp).
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "papers/reference_run.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/execute/iteration.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace reference_training {

using namespace tawpipe;

inline void check_recorded_numbers(const std::vector<training::NumericsCheck>& checks) {
  CHECK(checks.size() >= 8);
  for (const training::NumericsCheck& check : checks) {
    CAPTURE(check.quantity);
    CAPTURE(check.worst);
    CAPTURE(check.tolerance);
    CHECK(check.difference <= std::min(check.tolerance, 1e-12));
  }
}

struct Sent {
  Op op;
  Payload payload;
  std::int64_t bytes;
  std::vector<Bytes> pairs;  ///< of an all-to-all that is not even
  bool operator==(const Sent&) const = default;
};
/// What a rank exchanges on a lane, in order.
/// @param all  without it, what is not of tokens is left out: executed schedules sum norms' gradients there too
inline std::vector<Sent> messages(const Schedule& run, Rank rank, const std::string& of, bool all = false) {
  std::vector<Sent> sent;
  const auto lane = std::find(run.lanes().begin(), run.lanes().end(), of) - run.lanes().begin();
  REQUIRE(lane < std::ssize(run.lanes()));
  for (const TaskId id : run.program(rank, static_cast<int>(lane))) {
    const Task& task = run.task(id);
    if (!all && !is_of_tokens(task.payload)) continue;
    sent.push_back({task.op, task.payload, task.bytes.value(), {}});
    if (!is_all_pairs(task.op) || task.split == none<SplitId>) continue;
    const auto pairs = run.pair_sizes(task.split);
    sent.back().pairs.assign(pairs.begin(), pairs.end());
  }
  return sent;
}

/// What it exchanges of tokens with those that share its stages, lane by lane.
inline std::vector<Sent> messages(const Schedule& run, Rank rank) {
  std::vector<Sent> sent;
  for (const std::string& lane : run.lanes()) {
    if (!lane.ends_with("_parallel")) continue;
    const std::vector<Sent> of = messages(run, rank, lane);
    sent.insert(sent.end(), of.begin(), of.end());
  }
  return sent;
}

/// Whether all ranks together sent the bytes of tokens that are told.
inline void check_token_bytes(const IterationResult& result, const Traffic& told) {
  for (const Payload payload : {Payload::activations, Payload::activation_gradients}) {
    const auto p = static_cast<std::size_t>(payload);
    std::int64_t sent = 0;
    for (const SentBytes& rank : result.sent) sent += rank.by_payload[p];
    CHECK(sent == told.payload_bytes[p][0] + told.payload_bytes[p][1]);
  }
}

}  // namespace reference_training
