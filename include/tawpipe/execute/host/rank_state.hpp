// One rank's memory on a host, and its computations and updates in it.
// Not: their order (execute/host/executor.hpp, execute/mpi/executor.hpp), nor messages.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/execute/buffer_plan.hpp"
#include "tawpipe/execute/compute_call.hpp"
#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/execute/executed_schedule.hpp"
#include "tawpipe/execute/iteration.hpp"
#include "tawpipe/execute/parameter_store.hpp"
#include "tawpipe/execute/program.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::host {

/// The buffers of one rank and the computations in them. Numbers are of type T throughout.
/// Thread-safe between tasks that the schedule orders; no two computations of one rank at once.
template <class T>
class RankState {
 public:
  static constexpr std::size_t alignment = 64;  ///< bytes, of every buffer
  static constexpr Dtype dtype = sizeof(T) == 8 ? Dtype::f64 : Dtype::f32;

  /// @pre the schedule was built with `ParameterBytes{sizeof(T), sizeof(T), 2 * sizeof(T)}` and
  /// activations of T.
  /// @param program  of the rank; gets the waits that the layout of its buffers needs.
  /// @param expected  as for plan_buffers()
  RankState(const Schedule& schedule, const Dataflow& flow, ParameterStore store, Program& program, const Timeline* expected)
      : schedule_{&schedule}, flow_{&flow}, store_{std::move(store)} {
    BufferPlan plan = plan_buffers(schedule, program, rank(), alignment, expected, store_.lent());
    bytes_ = allocated(plan.bytes);
    host_bytes_ = allocated(plan.host_bytes);
    store_.plan(std::move(plan));
    store_.place(bytes_.get(), host_bytes_.get());
    const Bytes workspace = shared_workspace(schedule, flow, program);
    std::int64_t largest_update = 0;
    for (const auto& update : flow.updates) {
      for (const UpdatePiece& piece : update)
        largest_update = std::max(largest_update, piece.twin ? piece.parameters.count() : 0);
    }
    const BufferId given = flow.workspace[index(rank())];
    if (given == none<BufferId> || schedule.buffer(given).bytes < workspace) {
      own_workspace_.resize(static_cast<std::size_t>(workspace.value()) / sizeof(T) + 1);
      workspace_ = std::as_writable_bytes(std::span<T>{own_workspace_});
    } else {
      workspace_ = memory(given);
    }
    sum_.resize(static_cast<std::size_t>(largest_update));
    const auto tokens = static_cast<std::size_t>(schedule.workload().batch().tokens());
    tokens_.resize(tokens);
    targets_.resize(tokens);
  }

  Rank rank() const { return store_.rank(); }
  const BufferPlan& plan() const { return store_.plan(); }

  /// All bytes of a buffer of this rank.
  std::span<std::byte> memory(BufferId buffer) const { return store_.memory(buffer); }
  T* at(Place place) const { return reinterpret_cast<T*>(store_.at(place.buffer)) + place.offset; }

  // The interface required by compute_call().
  std::byte* weight_at(Place place) const { return reinterpret_cast<std::byte*>(at(place)); }
  std::byte* gradient_at(Place place) const { return weight_at(place); }
  std::int64_t gradient_bytes() const { return sizeof(T); }
  std::span<std::byte> boundary(BufferId buffer) const { return store_.boundary(buffer); }
  std::span<std::byte> workspace() const { return workspace_; }
  std::span<const std::int32_t> tokens(std::int32_t) const { return tokens_; }
  std::span<const std::int32_t> targets(std::int32_t) const { return targets_; }
  double* loss(std::int32_t) const { return nullptr; }  // each iteration has its own

  /// Clears the gradients of the last iteration.
  void begin_iteration() {
    norm_ = -1;
    store_.for_each_persistent(BufferKind::gradients, [&](BufferId buffer) {
      const auto bytes = memory(buffer);
      std::fill(bytes.begin(), bytes.end(), std::byte{});
    });
  }

  /// A forward, backward, backward_input or backward_weight.
  /// @param losses  [microbatch] of this rank alone: the forward with the last edge sets its entry
  template <LayerCompute Layer, MicrobatchTokens Source>
  void compute(TaskId id, Layer& layer, const Source& source, std::int64_t step, std::span<double> losses) {
    begin(id, source, step, losses).run(layer);
  }
  /// The same for a step of a stage that ranks share. @throws ScheduleError  if the layer cannot
  /// compute the body
  template <SharedLayerCompute Layer, MicrobatchTokens Source>
  void compute_step(TaskId id, const BodyTask& at, Layer& layer, const Source& source, std::int64_t step,
                    std::span<double> losses) {
    if (id == at.first) {
      ComputeCall& call = begin(id, source, step, losses);
      const MeshPlace place = schedule_->parts().mesh.place(rank());
      if (call.steps.operations.empty()) {
        call.steps = layer.plan(traits(call.op).passes, schedule_->stage(schedule_->task(id).stage), *at.body,
                                SharedPart{place.tensor, place.context, place.expert});
      }
    }
    calls_.at(at.first).run_step(layer, static_cast<std::size_t>(at.step));
  }
  /// The memory of this rank in a collective of a body, of which at least the first step has run.
  template <SharedLayerCompute Layer>
  ExchangeArgs exchange(const BodyTask& at, const Layer& layer) const {
    return calls_.at(at.first).exchange(layer, static_cast<std::size_t>(at.step));
  }

  /// The optimizer's step on what the task updates.
  template <ParameterUpdate Optimizer>
  void update(TaskId id, const Optimizer& optimizer, const Iteration& iteration, const GradientObserver<T>& observe) {
    if (norm_ < 0) norm_ = iteration.gradient_clip > 0 ? found_norm(id) : 0;
    const double gradient_scale = norm_ > iteration.gradient_clip && norm_ > 0 ? iteration.gradient_clip / norm_ : 1.0;
    for (const UpdatePiece& own : flow_->update(id)) {
      store_.for_each_whole(own.parameters, own.weights, [&](const ParameterRange& whole, Place weights) {
        update(moved(own, whole, weights), gradient_scale, optimizer, iteration, observe);
      });
    }
  }

  /// Before a sum over all ranks (schedule/gradient_norm.hpp): writes this rank's own where the
  /// task sums.
  void put_gradient_square(TaskId id) { *norm_number(id) = static_cast<T>(gradient_square()); }
  /// The norm of the whole gradient used by the last iteration's updates; 0 if none was requested.
  double gradient_norm() const { return std::max(norm_, 0.0); }

  /// Calls `visit(range, numbers)` for every run of weights that the rank keeps between iterations,
  /// including copies.
  template <class Visit>
  void for_each_weight(Visit&& visit) {
    store_.for_each_run(BufferKind::weights, [&](const ParameterRange& range, Place place, std::int64_t) {
      visit(range, std::span<T>{at(place), static_cast<std::size_t>(range.count())});
    });
  }
  /// Calls `visit(range, first moment, second moment)` for every run of optimizer states of the
  /// rank.
  template <class Visit>
  void for_each_state(Visit&& visit) {
    store_.for_each_run(BufferKind::optimizer, [&](const ParameterRange& range, Place place, std::int64_t whole) {
      const auto count = static_cast<std::size_t>(range.count());
      visit(range, std::span<T>{at(place), count}, std::span<T>{at(place) + whole, count});
    });
  }

  // As in ExecutorRank, for any number type and any place of a rank's memory.

  template <class Fill>
  void set_weights(Fill&& fill) {
    for_each_weight(
        [&](const ParameterRange& range, std::span<T> numbers) { fill(range, dtype, std::as_writable_bytes(numbers)); });
  }
  template <class Visit>
  void read_weights(Visit&& visit) {
    store_.for_each_current_weight([&](const ParameterRange& range, Place place, std::int64_t) {
      visit(range, dtype, std::as_bytes(std::span<const T>{at(place), static_cast<std::size_t>(range.count())}));
    });
  }
  template <class Fill>
  void set_moments(Fill&& fill) {
    for_each_state(fill);
  }
  template <class Visit>
  void read_moments(Visit&& visit) {
    for_each_state([&](const ParameterRange& range, std::span<T> first, std::span<T> second) {
      visit(range, std::span<const T>{first}, std::span<const T>{second});
    });
  }

 private:
  /// Starts a computation: its tokens, cleared gradients and the place of its loss.
  template <class Source>
  ComputeCall& begin(TaskId id, const Source& source, std::int64_t step, std::span<double> losses) {
    const Task& task = schedule_->task(id);
    const StageWork& stage = schedule_->stage(task.stage);
    if (stage.first_edge || stage.last_edge) source.fetch(step, task.microbatch, tokens_, targets_);
    const auto planned = calls_.try_emplace(id);
    ComputeCall& call = planned.first->second;
    if (planned.second) call = compute_call(*schedule_, id, flow_->compute(id), *this);
    for (const std::span<std::byte> cleared : call.cleared) std::fill(cleared.begin(), cleared.end(), std::byte{});
    call.forward.loss = &losses[static_cast<std::size_t>(task.microbatch)];
    return call;
  }
  /// A part of an update, by its numbers in the whole model.
  static UpdatePiece moved(UpdatePiece piece, const ParameterRange& whole, Place weights) {
    const std::int64_t by = weights.offset - piece.weights.offset;
    for (Place* place : {&piece.weights, &piece.gradients, &piece.twin, &piece.optimizer}) place->offset += by;
    piece.parameters = whole;
    return piece;
  }
  template <ParameterUpdate Optimizer>
  void update(const UpdatePiece& piece, double gradient_scale, const Optimizer& optimizer, const Iteration& iteration,
              const GradientObserver<T>& observe) {
    const auto count = static_cast<std::size_t>(piece.parameters.count());
    std::span<const T> gradients{at(piece.gradients), count};
    if (piece.twin) {
      const T* twin = at(piece.twin);
      for (std::size_t i = 0; i < count; ++i) sum_[i] = gradients[i] + twin[i];
      gradients = std::span<const T>{sum_}.first(count);
    }
    if (observe) observe(piece.parameters, gradients);
    T* first = at(piece.optimizer);
    UpdateArgs args;
    args.parameters = piece.parameters;
    args.weights = std::as_writable_bytes(std::span<T>{at(piece.weights), count});
    args.gradients = std::as_bytes(gradients);
    args.first_moment = std::as_writable_bytes(std::span<T>{first, count});
    args.second_moment = std::as_writable_bytes(std::span<T>{first + piece.optimizer_parameters, count});
    args.step = iteration.step;
    args.learning_rate = iteration.learning_rate;
    args.gradient_scale = gradient_scale;
    optimizer.update(args);
  }
  /// The sum of the squares of those gradients that this rank counts for all.
  double gradient_square() {
    double sum = 0;
    for (const UpdatePiece& piece : flow_->counted[index(rank())]) {
      const T* gradient = at(piece.gradients);
      const T* twin = piece.twin ? at(piece.twin) : nullptr;
      for (std::int64_t i = 0; i < piece.parameters.count(); ++i) {
        const auto value = static_cast<double>(twin == nullptr ? gradient[i] : gradient[i] + twin[i]);
        sum += value * value;
      }
    }
    return sum;
  }
  /// The number that a task sums over the ranks, or that an update reads; null if it has none.
  T* norm_number(TaskId id) {
    for (const Use& use : schedule_->uses(id)) {
      const Buffer& buffer = schedule_->buffer(use.buffer);
      if (buffer.content.kind() == ContentKind::scalar && buffer.rank == rank()) return at({use.buffer, 0});
    }
    return nullptr;
  }
  double found_norm(TaskId update) {
    if (schedule_->ranks() == 1) return std::sqrt(gradient_square());
    const T* square = norm_number(update);
    if (square == nullptr) {
      throw InputError("clipping needs the norm of the whole gradient; build the schedule with with_gradient_norm()");
    }
    return std::sqrt(static_cast<double>(*square));
  }

  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete (bytes, std::align_val_t{alignment}); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  /// Sets to zero.
  static Memory allocated(Bytes bytes) {
    const auto size = static_cast<std::size_t>(bytes.value());
    Memory memory{static_cast<std::byte*>(::operator new (size + alignment, std::align_val_t{alignment}))};
    std::fill_n(memory.get(), size, std::byte{});
    return memory;
  }

  const Schedule* schedule_;
  const Dataflow* flow_;
  ParameterStore store_;
  std::map<TaskId, ComputeCall> calls_;  ///< resolved when each first runs
  Memory bytes_;
  Memory host_bytes_;
  std::vector<T> own_workspace_;
  std::span<std::byte> workspace_;
  std::vector<T> sum_;  ///< of tied gradients
  double norm_ = -1;    ///< of the whole gradient; -1: not yet known in this iteration
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> targets_;
};

}  // namespace tawpipe::host
