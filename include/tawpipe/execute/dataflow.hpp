// The memory accesses of each task: which part of which buffer it reads, writes, sends and adds to.
// Not: how they are found (execute/detail/dataflow_builder.hpp) nor their order
// (execute/program.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/core/ids.hpp"
#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/schedule/packed_parameters.hpp"

namespace tawpipe::inline v0 {

/// A place in a buffer, in numbers (of the buffer's own type) from its start.
struct Place {
  BufferId buffer = none<BufferId>;
  std::int64_t offset = 0;

  explicit operator bool() const { return buffer != none<BufferId>; }
};

/// A run of numbers in a buffer.
struct Run {
  Place place;
  std::int64_t count = 0;
};

/// The kinds of parameters that a stage has, in the order of StageParameters.
enum class StagePart : std::uint8_t { layers, first_edge, last_edge };
inline constexpr int stage_parts = 3;

/// A forward or backward. Parts that a task lacks are none.
struct ComputeFlow {
  std::array<Place, stage_parts> weights{};
  std::array<Place, stage_parts> gradients{};
  std::vector<Run> cleared;         ///< gradients to set to zero first
  BufferId input = none<BufferId>;  ///< activation, or gradient of the output, that it receives
  /// activation, or gradient of the input, that it passes on; may equal `input`
  BufferId output = none<BufferId>;
  BufferId saved = none<BufferId>;      ///< from the forward to the backward
  BufferId stash = none<BufferId>;      ///< from backward_input to backward_weight
  BufferId workspace = none<BufferId>;  ///< its own; none: its rank's
};

/// A piece of an update: parameters that are contiguous in each of the buffers.
struct UpdatePiece {
  ParameterRange parameters;
  Place weights;
  Place gradients;
  /// a second gradient of the same parameters on the rank, to be added; may be none
  Place twin;
  /// numbered by parameter: of state i of n, place offset + i * optimizer_parameters
  Place optimizer;
  std::int64_t optimizer_parameters = 0;  ///< parameters of the whole optimizer buffer
};

/// A contiguous part of a message in a buffer.
struct Segment {
  Place place;
  std::int64_t packed = 0;  ///< its offset in the packed message
  std::int64_t count = 0;
  bool add = false;  ///< accumulated; otherwise stored
};

/// One rank's part in a communication.
struct TransferEnd {
  Rank rank = none<Rank>;
  std::vector<Segment> gives;  ///< the segments that it writes to the packed message
  std::vector<Segment> takes;  ///< the segments that it reads from it
};

/// A communication. The packed message has all numbers in the order in which its collective expects
/// them: for an all_gather and a reduce_scatter by member.
struct TransferFlow {
  std::vector<TransferEnd> ends;  ///< by member; pass: source, destination
  /// all_gather, reduce_scatter: [member] and the end: its part of the message; all_to_all: [from *
  /// members + to] and the end: the block of each pair
  std::vector<std::int64_t> member_begin;
  /// numbers of the whole packed message; exchange: in each direction
  std::int64_t count = 0;
  /// all_to_all: the layers say how much of a block is sent, in rows (ExchangeArgs::rows)
  bool by_rows = false;
};

/// The dataflow of the whole schedule. Made by `resolve_dataflow`
/// (execute/detail/dataflow_builder.hpp).
struct Dataflow {
  std::vector<std::int32_t> flow_of_task;  ///< [task] index into one of the following, by op
  std::vector<ComputeFlow> computes;
  std::vector<std::vector<UpdatePiece>> updates;
  std::vector<TransferFlow> transfers;
  /// [buffer] of persistent ones: the parameters they hold
  std::vector<PackedParameters> contents;
  std::vector<BufferId> workspace;  ///< [rank] may be none
  /// [rank] pieces of its updates; over all ranks, every parameter once
  std::vector<std::vector<UpdatePiece>> counted;
  /// [buffer] of weights kept between iterations: those that an iteration leaves as they were before
  /// its updates, because the next one begins with their gather (Composition::overlap_gathers);
  /// empty: in no buffer
  std::vector<std::vector<ParameterRange>> stale;

  const ComputeFlow& compute(TaskId task) const { return computes[at(task)]; }
  std::span<const UpdatePiece> update(TaskId task) const { return updates[at(task)]; }
  const TransferFlow& transfer(TaskId task) const { return transfers[at(task)]; }
  const PackedParameters& content(BufferId buffer) const { return contents[index(buffer)]; }

 private:
  std::size_t at(TaskId task) const { return static_cast<std::size_t>(flow_of_task[index(task)]); }
};

}  // namespace tawpipe
