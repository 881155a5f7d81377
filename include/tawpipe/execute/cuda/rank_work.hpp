// The computations of one rank, with all addresses resolved beforehand: computations of stages,
// updates, the gradient's square.
// Not: messages (message.hpp) nor their order and streams (virtual_executor.hpp,
// nccl_executor.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/backend/device_compute.hpp"
#include "tawpipe/execute/compute_call.hpp"
#include "tawpipe/execute/cuda/device_api.hpp"
#include "tawpipe/execute/cuda/rank_memory.hpp"
#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::cuda {

/// One rank's work except messages. All functions enqueue work in a stream and return.
class RankWork {
 public:
  /// @pre memory has its address, and stays there
  /// @throws ScheduleError  if a computation is not on lane 0, the only compute lane.
  RankWork(const Schedule& schedule, const Dataflow& flow, const Program& program, const RankMemory& memory)
      : memory_{&memory}, call_(schedule.tasks().size(), -1) {
    for (int lane = 0; lane < program.lanes(); ++lane) {
      for (const Launch& launch : program.lane(lane)) {
        const Task& task = schedule.task(launch.task);
        if (!is_compute(task.op) || task.op == Op::idle) continue;
        if (lane != 0) throw ScheduleError(concat(tawpipe::detail::describe(schedule, launch.task), " must be on lane 0"));
        if (task.op == Op::update) {
          call_[index(launch.task)] = static_cast<std::int32_t>(updates_.size());
          updates_.push_back(update_calls(flow.update(launch.task)));
        } else {
          call_[index(launch.task)] = static_cast<std::int32_t>(computes_.size());
          computes_.push_back(compute_call(schedule, launch.task, flow.compute(launch.task), memory));
        }
      }
    }
    for (const UpdatePiece& piece : flow.counted[index(memory.rank())]) squares_.push_back(gradient(piece));
    memory.for_each_persistent(BufferKind::gradients, [&](BufferId buffer) { gradients_.push_back(memory.memory(buffer)); });
    find_norm(schedule);
  }

  /// Sets gradients and losses to zero, before everything else in an iteration.
  template <DeviceApi Device>
  void begin(Device& device, typename Device::Stream stream) const {
    for (const std::span<std::byte> buffer : gradients_) device.clear(buffer.data(), buffer.size(), stream);
    device.clear(memory_->output().data(), memory_->output().size(), stream);
  }

  /// A forward, backward, backward_input or backward_weight, in the stream that the layer uses.
  template <DeviceApi Device, class Layer>
  void compute(TaskId id, Device& device, Layer& layer, typename Device::Stream stream) const {
    const ComputeCall& call = computes_[at(id)];
    for (const std::span<std::byte> cleared : call.cleared) device.clear(cleared.data(), cleared.size(), stream);
    call.run(layer);
  }

  /// The optimizer's step on what the task updates. @param clip  the gradient's norm is limited
  template <DeviceApi Device, class Optimizer>
  void update(TaskId id, Device& device, const Optimizer& optimizer, bool clip, typename Device::Stream stream) const {
    for (const UpdateCall& call : updates_[at(id)]) {
      DeviceUpdateArgs args = call.args;
      if (clip) args.gradient_scale = memory_->gradient_scale();
      args.gradients = summed(call.gradient, device, stream);
      optimizer.update(args, stream);
    }
  }

  /// This rank's part of the sum of the gradient's squares, written where the sum over the ranks
  /// reads it.
  template <DeviceApi Device>
  void put_square(Device& device, typename Device::Stream stream) const {
    device.clear(reinterpret_cast<std::byte*>(norm_), sizeof(float), stream);
    for (const Gradient& one : squares_) {
      device.add_squares(norm_, summed(one, device, stream).data(), one.count, memory_->types().gradient, stream);
    }
  }
  /// After the sum over all ranks: the factor of clipping for the gradient.
  template <DeviceApi Device>
  void find_scale(Device& device, typename Device::Stream stream) const {
    device.clip_scale(memory_->gradient_scale(), norm_, memory_->scalars(), stream);
    if (norm_ == memory_->square()) return;
    device.copy(reinterpret_cast<std::byte*>(memory_->square()), reinterpret_cast<const std::byte*>(norm_), sizeof(float),
                stream);
  }

 private:
  /// Gradients of some parameters, possibly in two places whose sum is used.
  struct Gradient {
    std::byte* at = nullptr;
    std::byte* twin = nullptr;
    std::int64_t count = 0;
  };
  struct UpdateCall {
    DeviceUpdateArgs args;
    Gradient gradient;
  };

  std::size_t at(TaskId id) const { return static_cast<std::size_t>(call_[index(id)]); }
  static std::size_t bytes(std::int64_t count, Dtype type) { return static_cast<std::size_t>(count * size_bytes(type)); }

  Gradient gradient(const UpdatePiece& piece) const {
    const Dtype type = memory_->types().gradient;
    return {memory_->at(piece.gradients, type), piece.twin ? memory_->at(piece.twin, type) : nullptr, piece.parameters.count()};
  }
  template <class Device>
  std::span<const std::byte> summed(const Gradient& gradient, Device& device, typename Device::Stream stream) const {
    const Dtype type = memory_->types().gradient;
    const std::size_t size = bytes(gradient.count, type);
    if (gradient.twin == nullptr) return {gradient.at, size};
    device.copy(memory_->twin_sum(), gradient.at, size, stream);
    device.add(memory_->twin_sum(), gradient.twin, gradient.count, type, stream);
    return {memory_->twin_sum(), size};
  }

  std::vector<UpdateCall> update_calls(std::span<const UpdatePiece> pieces) const {
    std::vector<UpdateCall> calls;
    for (const UpdatePiece& piece : pieces) {
      const Dtype type = memory_->types().weight;
      const RankMemory::States states = memory_->states(piece.optimizer, piece.optimizer_parameters);
      UpdateCall call{{}, gradient(piece)};
      call.args.parameters = piece.parameters;
      call.args.weights = {memory_->at(piece.weights, type), bytes(piece.parameters.count(), type)};
      call.args.master = states.master;
      call.args.first_moment = states.first_moment;
      call.args.second_moment = states.second_moment;
      call.args.scalars = memory_->scalars();
      calls.push_back(call);
    }
    return calls;
  }

  /// The address of the sum of squares: in the buffer that its all-reduce sums, or, for a single
  /// rank, where it is read.
  void find_norm(const Schedule& schedule) {
    norm_ = memory_->square();
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      if (!is_gradient_norm(schedule.tasks()[t])) continue;
      for (const Use& use : schedule.uses(id<TaskId>(t))) {
        if (schedule.buffer(use.buffer).rank != memory_->rank()) continue;
        norm_ = reinterpret_cast<float*>(memory_->at({use.buffer, 0}, Dtype::f32));
      }
    }
  }

  const RankMemory* memory_;
  std::vector<std::int32_t> call_;  ///< [task] index into computes_ or updates_
  std::vector<ComputeCall> computes_;
  std::vector<std::vector<UpdateCall>> updates_;
  std::vector<Gradient> squares_;
  std::vector<std::span<std::byte>> gradients_;  ///< persistent gradients
  float* norm_ = nullptr;
};

}  // namespace tawpipe::cuda
