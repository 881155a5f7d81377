// Which parameters each buffer holds, from its own description, and what an activation buffer is for.
// Not: how contents change as tasks run (dataflow_builder.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/packed_parameters.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// The parameters of buffers, fixed or changing with what is written into them.
class DataflowContents {
 public:
  explicit DataflowContents(const Schedule& schedule) : schedule_{schedule}, order_{schedule.workload().model()} {
    const auto buffers = schedule.buffers();
    contents_.resize(buffers.size());
    fixed_.assign(buffers.size(), 0);
    for (const Buffer& buffer : buffers) {
      const bool whole = buffer.stage == none<StageId> && buffer.pieces == none<PiecesId>;
      edge_copies_ = edge_copies_ || (buffer.persistent && buffer.kind == BufferKind::weights && whole);
    }
    for (std::size_t b = 0; b < buffers.size(); ++b) describe_buffer(id<BufferId>(b));
  }

  const ParameterOrder& order() const { return order_; }
  const PackedParameters& operator[](BufferId buffer) const { return contents_[index(buffer)]; }
  bool is_fixed(BufferId buffer) const { return fixed_[index(buffer)] != 0; }

  bool fits(BufferId buffer, const PackedParameters& content) const {
    const ParameterBytes& bytes = schedule_.workload().parameter_bytes();
    return content.count() * std::min(bytes.weight, bytes.gradient) <= schedule_.buffer(buffer).bytes.value();
  }
  /// What a buffer without a content of its own holds from now on.
  void set(TaskId task, BufferId buffer, PackedParameters content) {
    const Buffer& memory = schedule_.buffer(buffer);
    if (!fits(buffer, content)) {
      throw ScheduleError(concat(describe(schedule_, task), " brings ", content.count(), " parameters into ",
                                 describe(schedule_, buffer), ", which has ", memory.bytes.value(), " bytes"));
    }
    contents_[index(buffer)] = std::move(content);
  }

  /// All parameters of a stage as this schedule moves them: without embedding and head where every rank has copies of those.
  PackedParameters of_stage(StageId stage) const {
    if (stage == none<StageId>) return edge();
    const StageWork& work = schedule_.stage(stage);
    return PackedParameters{edge_copies_ ? order_.layers_of(work) : order_.all_of(work)};
  }

 private:
  PackedParameters edge() const {
    std::vector<ParameterRange> ranges{order_.embedding(), order_.final_norm()};
    if (!schedule_.workload().model().tied) ranges.push_back(order_.output());
    return PackedParameters{std::move(ranges)};
  }

  void describe_buffer(BufferId id) {
    const Buffer& buffer = schedule_.buffer(id);
    if (buffer.kind == BufferKind::activations || buffer.kind == BufferKind::workspace) return;
    if (buffer.pieces != none<PiecesId>) {
      const auto pieces = schedule_.pieces(buffer.pieces);
      contents_[index(id)] = PackedParameters{{pieces.begin(), pieces.end()}};
      fixed_[index(id)] = 1;
      return;
    }
    const bool slot = buffer.kind == BufferKind::transfer;
    if (slot && buffer.stage == none<StageId>) return;
    std::vector<PackedParameters> candidates;
    if (buffer.stage == none<StageId>) {
      candidates.push_back(edge());
    } else {
      const StageWork& work = schedule_.stage(buffer.stage);
      candidates.emplace_back(order_.all_of(work));
      candidates.emplace_back(order_.layers_of(work));
    }
    const ParameterBytes& bytes = schedule_.workload().parameter_bytes();
    for (const PackedParameters& candidate : candidates) {
      const std::int64_t count = candidate.count();
      const std::int64_t size = buffer.bytes.value();
      const bool fits = buffer.kind == BufferKind::weights     ? size == count * bytes.weight
                        : buffer.kind == BufferKind::gradients ? size == count * bytes.gradient
                        : buffer.kind == BufferKind::optimizer ? size == count * bytes.optimizer
                                                               : size == count * bytes.weight || size == count * bytes.gradient;
      if (!fits) continue;
      contents_[index(id)] = candidate;
      fixed_[index(id)] = 1;
      return;
    }
    if (slot) return;
    throw ScheduleError(concat(describe(schedule_, id), " has ", buffer.bytes.value(),
                               " bytes, which is not what its stage's parameters take; name its pieces"));
  }

  const Schedule& schedule_;
  ParameterOrder order_;
  std::vector<PackedParameters> contents_;  ///< [buffer]
  std::vector<char> fixed_;                 ///< [buffer]
  bool edge_copies_ = false;
};

/// What an activation buffer is for.
enum class ActivationRole : std::uint8_t {
  stream,  ///< handed from stage to stage
  saved,   ///< from a forward to the backward of its stage and microbatch
  stash,   ///< from a backward_input to its backward_weight
};

/// The role of each buffer, by who writes and who reads it. @return [buffer]
inline std::vector<ActivationRole> activation_roles(const Schedule& schedule) {
  std::vector<ActivationRole> roles(schedule.buffers().size(), ActivationRole::stream);
  std::vector<TaskId> writer(roles.size(), none<TaskId>);
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    for (const Use& use : schedule.uses(id<TaskId>(t))) {
      const Buffer& buffer = schedule.buffer(use.buffer);
      if (buffer.kind != BufferKind::activations || buffer.persistent) continue;
      if (use.access != Access::read) {
        writer[index(use.buffer)] = id<TaskId>(t);
        continue;
      }
      const TaskId made = writer[index(use.buffer)];
      if (made == none<TaskId> || !is_work(task.op)) continue;
      const Task& maker = schedule.task(made);
      if (maker.stage != task.stage || maker.microbatch != task.microbatch || !is_work(maker.op)) continue;
      if (maker.op == Op::forward && task.op != Op::forward) roles[index(use.buffer)] = ActivationRole::saved;
      if (maker.op == Op::backward_input && task.op == Op::backward_weight) roles[index(use.buffer)] = ActivationRole::stash;
    }
  }
  return roles;
}

}  // namespace tawpipe::detail
