// Walks a schedule's tasks once and finds the memory accesses of each.
// Not: the result (execute/dataflow.hpp); transfers (dataflow_transfers.hpp).
#pragma once

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// The memory accesses of each task of `schedule`.
/// @param only  the only rank to resolve: its messages, its computations and its updates; none: all
/// @throws InputError  if the schedule has no model. ScheduleError  naming the task, if it cannot
/// be executed: weights that are missing where it reads them, two buffers for the same purpose, a
/// tensor-parallel part.
/// Complexity: O(uses * ranges of a buffer + members of collectives squared).
TAWPIPE_INLINE Dataflow resolve_dataflow(const Schedule& schedule, Rank only = none<Rank>);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/execute/detail/dataflow_transfers.hpp"
#include "tawpipe/execute/detail/renewed_weights.hpp"
#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/schedule/interpret.hpp"
#include "tawpipe/schedule/parameter_map.hpp"
#include "tawpipe/schedule/task_workspace.hpp"

namespace tawpipe::inline v0 {

namespace detail {

class DataflowBuilder {
 public:
  DataflowBuilder(const Schedule& schedule, Rank only)
      : schedule_{schedule},
        only_{only},
        order_{schedule.parts().slices.empty() ? schedule.workload().model().blocks() : schedule.parts().slices.blocks()},
        rooms_{schedule},
        transfers_{schedule, rooms_, only} {
    flow_.workspace.assign(static_cast<std::size_t>(schedule.ranks()), none<BufferId>);
    flow_.counted.resize(flow_.workspace.size());
    gradients_.resize(flow_.workspace.size());
    flow_.contents.resize(schedule.buffers().size());
    for (std::size_t b = 0; b < schedule.buffers().size(); ++b) {
      const Buffer& buffer = schedule.buffers()[b];
      if (!buffer.persistent) continue;
      BufferId& workspace = flow_.workspace[index(buffer.rank)];
      const bool largest = workspace == none<BufferId> || schedule.buffer(workspace).bytes < buffer.bytes;
      if (buffer.content.kind() == ContentKind::workspace && largest) workspace = id<BufferId>(b);
      if (buffer.kind() == BufferKind::gradients) gradients_[index(buffer.rank)].push_back(id<BufferId>(b));
      flow_.contents[b] = rooms_[id<BufferId>(b)];
    }
  }

  Dataflow build() {
    for (std::size_t t = 0; t < schedule_.tasks().size(); ++t) {
      const TaskId task = id<TaskId>(t);
      const Op op = schedule_.task(task).op;
      rooms_.run(task);
      check_slots(task);
      const bool elsewhere = is_compute(op) && only_ != none<Rank> && schedule_.task(task).rank != only_;
      if (op == Op::idle || (elsewhere && op != Op::update)) {
        flow_.flow_of_task.push_back(-1);
      } else if (op == Op::update) {
        std::vector<UpdatePiece> pieces = update(task);
        updates_ = true;
        count_once(schedule_.task(task).rank, pieces);
        flow_.flow_of_task.push_back(elsewhere ? -1 : static_cast<std::int32_t>(flow_.updates.size()));
        if (!elsewhere) flow_.updates.push_back(std::move(pieces));
      } else if (is_compute(op)) {
        flow_.flow_of_task.push_back(static_cast<std::int32_t>(flow_.computes.size()));
        flow_.computes.push_back(compute(task));
      } else {
        flow_.flow_of_task.push_back(static_cast<std::int32_t>(flow_.transfers.size()));
        flow_.transfers.push_back(transfers_.resolve(task));
        late_ = late_ || (!updates_ && renews(task));
      }
    }
    if (late_) flow_.stale = RenewedWeights{schedule_}.stale();
    return std::move(flow_);
  }

 private:
  [[noreturn]] void fail(TaskId task, const std::string& why) const {
    throw ScheduleError(concat(describe(schedule_, task), " cannot be executed: ", why));
  }

  using Needs = std::array<std::optional<ParameterRange>, stage_parts>;
  Needs needs(const StageWork& stage) const {
    Needs needs;
    const auto need = [&](StagePart part, bool has, const ParameterRange& block) {
      if (has && block.count() > 0) needs[static_cast<std::size_t>(part)] = block;
    };
    need(StagePart::layers, stage.layers > 0, order_.layers(stage.first_layer, stage.layers));
    need(StagePart::first_edge, order_.uses_first_edge(stage), order_.first_edge());
    need(StagePart::last_edge, stage.last_edge, order_.last_edge());
    return needs;
  }

  ComputeFlow compute(TaskId id) {
    const Task& task = schedule_.task(id);
    const StageWork& stage = schedule_.stage(task.stage);
    const Needs needed = needs(stage);
    ComputeFlow flow;
    for (const Use& use : schedule_.uses(id)) {
      const ContentKind kind = schedule_.buffer(use.buffer).content.kind();
      if (kind == ContentKind::workspace) {
        if (schedule_.buffer(use.buffer).bytes >= workspace_of(stage, task.op)) flow.workspace = use.buffer;
      } else if (is_of_microbatch(kind)) {
        activation(id, use, flow);
      } else if (use.access == Access::read) {
        find(use.buffer, needed, flow.weights);
      }
    }
    for (std::size_t i = 0; i < needed.size(); ++i) {
      if (needed[i] && !flow.weights[i]) fail(id, concat("no buffer that it reads holds all of its ", order_.name(*needed[i])));
    }
    if (leaves_gradients(task.op)) gradients(id, needed, flow);
    const bool forward = traits(task.op).passes.forward;
    const bool hands_on = forward || traits(task.op).passes.backward_input;
    if (flow.input == none<BufferId> && hands_on && !(forward ? stage.first_edge : stage.last_edge)) {
      fail(id, forward ? "it reads no activation" : "it reads no gradient of its output");
    }
    if (flow.output == none<BufferId> && hands_on && !(forward ? stage.last_edge : stage.first_edge)) {
      fail(id, forward ? "it writes no activation" : "it writes no gradient of its input");
    }
    if (flow.saved == none<BufferId>) fail(id, "no buffer leads from its forward to its backward");
    return flow;
  }

  void find(BufferId buffer, const Needs& needed, std::array<Place, stage_parts>& places) const {
    for (std::size_t i = 0; i < needed.size(); ++i) {
      if (!needed[i] || places[i]) continue;
      const std::int64_t at = rooms_[buffer].find(*needed[i]);
      if (at >= 0) places[i] = {buffer, at};
    }
  }

  void activation(TaskId id, const Use& use, ComputeFlow& flow) const {
    const ContentKind kind = schedule_.buffer(use.buffer).content.kind();
    if (kind == ContentKind::saved || kind == ContentKind::stash) {
      BufferId& place = kind == ContentKind::saved ? flow.saved : flow.stash;
      if (place != none<BufferId> && place != use.buffer) {
        fail(id, "what its forward saves lies in two buffers; build the schedule without a part released early");
      }
      place = use.buffer;
      return;
    }
    if (use.access == Access::read || use.access == Access::read_write) flow.input = use.buffer;
    if (use.access != Access::read) flow.output = use.buffer;
  }

  void gradients(TaskId id, const Needs& needed, ComputeFlow& flow) const {
    for (const Use& use : schedule_.uses(id)) {
      if (schedule_.buffer(use.buffer).content.kind() != ContentKind::gradients || use.access == Access::read) continue;
      find(use.buffer, needed, flow.gradients);
      if (use.access == Access::write) flow.cleared.push_back({{use.buffer, 0}, rooms_[use.buffer].count()});
    }
    for (std::size_t i = 0; i < needed.size(); ++i) {
      if (needed[i] && !flow.gradients[i]) fail(id, concat("no buffer takes the gradient of its ", order_.name(*needed[i])));
    }
  }

  std::vector<UpdatePiece> update(TaskId id) const {
    BufferId weights = none<BufferId>;
    BufferId optimizer = none<BufferId>;
    std::vector<BufferId> gradients;
    for (const Use& use : schedule_.uses(id)) {
      const ContentKind kind = schedule_.buffer(use.buffer).content.kind();
      if (kind == ContentKind::weights) weights = use.buffer;
      if (kind == ContentKind::optimizer_state) optimizer = use.buffer;
      if (kind == ContentKind::gradients) gradients.push_back(use.buffer);
    }
    if (weights == none<BufferId> || optimizer == none<BufferId> || gradients.empty()) {
      fail(id, "an update names weights, a gradient and optimizer states");
    }
    // A tied matrix in two stages of one rank: each of its copies is updated by the sum of both
    // gradients.
    const StageId own = schedule_.buffer(weights).stage();
    for (const BufferId other : gradients_[index(schedule_.task(id).rank)]) {
      if (schedule_.buffer(other).stage() != own) gradients.push_back(other);
    }
    std::vector<UpdatePiece> pieces;
    std::int64_t covered = 0;
    const PackedParameters& states = rooms_[optimizer];
    for (const ParameterRange& range : states.ranges()) {
      if (schedule_.is_padding(range)) {
        covered += range.count();
        continue;
      }
      rooms_[weights].for_each_part(range, [&](ParameterRange in_weights, std::int64_t) {
        rooms_[gradients.front()].for_each_part(in_weights, [&](ParameterRange part, std::int64_t at) {
          for (ParameterRange left = part; left.count() > 0;) {
            UpdatePiece piece{left, {}, {gradients.front(), at + left.begin - part.begin}, {}, {}, states.count()};
            find_twin({gradients.begin() + 1, gradients.end()}, piece);
            piece.weights = {weights, rooms_[weights].find(piece.parameters)};
            piece.optimizer = {optimizer, states.find(piece.parameters)};
            covered += piece.parameters.count();
            left.begin = piece.parameters.end;
            pieces.push_back(piece);
          }
        });
      });
    }
    if (covered != states.count()) {
      fail(id,
           concat("of the ", states.count(), " parameters of its optimizer states it finds weights and gradients of ", covered));
    }
    return pieces;
  }

  /// Finds the second gradient (of the tied matrix) for the start of `piece`, and shortens the
  /// piece to the part that has it.
  void find_twin(const std::vector<BufferId>& others, UpdatePiece& piece) const {
    for (const BufferId other : others) {
      rooms_[other].for_each_part(piece.parameters, [&](ParameterRange part, std::int64_t at) {
        if (part.begin > piece.parameters.begin) {
          piece.parameters.end = std::min(piece.parameters.end, part.begin);
        } else if (part.begin == piece.parameters.begin && !piece.twin) {
          piece.twin = {other, at};
          piece.parameters.end = std::min(piece.parameters.end, part.end);
        }
      });
    }
  }

  /// Counts for the rank the parameters of an update that were not counted before.
  void count_once(Rank rank, const std::vector<UpdatePiece>& pieces) {
    const TensorSlices& slices = schedule_.parts().slices;
    const Mesh& mesh = schedule_.parts().mesh;
    const auto count = [&](const UpdatePiece& piece, const ParameterRange& range, int part) {
      const auto p = static_cast<std::size_t>(part);
      if (counted_.size() <= p) counted_.resize(p + 1);
      count_once(rank, piece, range, counted_[p]);
    };
    for (const UpdatePiece& piece : pieces) {
      if (slices.empty()) {
        count(piece, piece.parameters, 0);
        continue;
      }
      const int own = mesh.parameter_part(mesh.place(rank));
      slices.for_each_slice(piece.parameters, [&](const TensorSlice& slice, const ParameterRange& range) {
        count(piece, range, slice.own(own));  // what several parts have alike is counted together
      });
    }
  }
  void count_once(Rank rank, const UpdatePiece& piece, const ParameterRange& of_piece, ParameterMap<char>& counted) {
    counted.change(of_piece, [&](const ParameterRange& range, const char* before) {
      if (before == nullptr) {
        UpdatePiece part = piece;
        part.parameters = range;
        const std::int64_t from = range.begin - piece.parameters.begin;
        for (Place* place : {&part.weights, &part.gradients, &part.twin, &part.optimizer}) place->offset += from;
        flow_.counted[index(rank)].push_back(part);
      }
      return std::optional<char>{1};
    });
  }

  /// Whether a task gathers weights in place of those that its members keep.
  bool renews(TaskId task) const {
    if (schedule_.task(task).payload != Payload::weights || !gathers(schedule_.task(task).op)) return false;
    const auto uses = schedule_.uses(task);
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.access == Access::read_write && schedule_.buffer(use.buffer).kind() == BufferKind::weights;
    });
  }

  /// Checks that a slot is large enough for what a task writes.
  void check_slots(TaskId id) const {
    const ParameterBytes& bytes = schedule_.workload().parameter_bytes();
    for (const Use& use : schedule_.uses(id)) {
      const Buffer& buffer = schedule_.buffer(use.buffer);
      if (use.access == Access::read || !buffer.content.is_slot() || !is_of_parameters(buffer.content.kind())) continue;
      const std::int64_t count = rooms_[use.buffer].count();
      if (count * (buffer.content.kind() == ContentKind::weights ? bytes.weight : bytes.gradient) <= buffer.bytes.value())
        continue;
      fail(id, concat("it brings ", count, " parameters into ", describe(schedule_, use.buffer), ", which has ",
                      buffer.bytes.value(), " bytes"));
    }
  }

  const Schedule& schedule_;
  Rank only_;
  ParameterBlocks order_;
  Rooms rooms_;
  DataflowTransfers transfers_;
  std::vector<std::vector<BufferId>> gradients_;  ///< [rank] persistent gradients
  std::vector<ParameterMap<char>> counted_;       ///< [part of a tensor]; the first: whole tensors, too
  bool updates_ = false;                          ///< whether there has been one
  bool late_ = false;                             ///< whether weights were gathered in place before
  Dataflow flow_;
};

}  // namespace detail

TAWPIPE_INLINE Dataflow resolve_dataflow(const Schedule& schedule, Rank only) {
  if (schedule.workload().is_abstract()) {
    throw InputError("a schedule without a model (fixed times) can be simulated, not executed; give a model");
  }
  return detail::DataflowBuilder{schedule, only}.build();
}

}  // namespace tawpipe
#endif
