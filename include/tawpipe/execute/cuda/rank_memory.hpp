// One rank's part of a device's memory: the schedule's buffers by its buffer plan, and the
// executor's own.
// Not: the allocation itself (virtual_executor.hpp, nccl_executor.hpp) nor the computations in it
// (rank_work.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/backend/device_compute.hpp"
#include "tawpipe/execute/buffer_plan.hpp"
#include "tawpipe/execute/compute_call.hpp"
#include "tawpipe/execute/cuda/number_types.hpp"
#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/execute/iteration.hpp"
#include "tawpipe/execute/parameter_store.hpp"
#include "tawpipe/execute/program.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::cuda {

/// The layout of all memory of one rank, from one address on. Pure arithmetic: no memory is
/// accessed.
///
/// After the schedule's buffers: workspace of computations for which the schedule has none, the sum of
/// tied gradients, for each lane a staging area for messages that cannot be sent or received in
/// place, an iteration's input (tokens, targets, scalars) and its results (losses, the gradient's
/// square, the scale of clipping).
class RankMemory {
 public:
  static constexpr std::int64_t alignment = 256;  ///< of every buffer

  /// @param program   of the rank; gets the waits that the layout of its buffers needs.
  /// @param expected  as for plan_buffers()
  ///
  /// @param staging   [lane] bytes
  /// @param exchange  bytes through which ranks exchange values
  /// @throws InputError  as number_types
  RankMemory(const Schedule& schedule, const Dataflow& flow, ParameterStore store, Program& program, const Timeline* expected,
             std::span<const std::int64_t> staging, std::int64_t exchange = 0)
      : schedule_{&schedule}, flow_{&flow}, types_{number_types(schedule.workload())}, store_{std::move(store)} {
    store_.plan(plan_buffers(schedule, program, rank(), alignment, expected, store_.lent()));
    end_ = store_.plan().bytes.value();
    const std::int64_t workspace = shared_workspace(schedule, flow, program).value();
    const BufferId given = flow.workspace[index(rank())];
    const bool own = given == none<BufferId> || schedule.buffer(given).bytes.value() < workspace;
    workspace_ = own ? take(workspace) : Region{store_.plan().offset[index(given)], schedule.buffer(given).bytes.value()};
    std::int64_t twin = 0;
    for (int lane = 0; lane < program.lanes(); ++lane) {
      for (const Launch& launch : program.lane(lane)) count_input(launch.task, twin);
    }
    twin_sum_ = take(twin * size_bytes(types_.gradient));
    for (const std::int64_t bytes : staging) staging_.push_back(take(bytes));

    for (std::int64_t& slot : target_slot_) slot += slot < 0 ? 0 : tokens_;
    input_ = take(slot_offset(std::max<std::int64_t>(tokens_ + targets_, 1)));
    output_ = take(aligned(schedule.workload().microbatches() * std::int64_t{sizeof(double)}) + alignment);
    scale_ = take(sizeof(float));
    notice_ = take(2 * alignment);
    exchange_ = take(exchange);
  }

  Rank rank() const { return store_.rank(); }
  const NumberTypes& types() const { return types_; }
  /// Size of the whole part, a multiple of the alignment.
  std::int64_t bytes() const { return end_; }
  /// Size of the buffers in host memory.
  std::int64_t host_bytes() const { return store_.plan().host_bytes.value(); }
  /// Before this call all addresses are relative to null. @param begin  memory of bytes(), aligned.
  /// @param host  of host_bytes(), page-locked
  void place(std::byte* begin, std::byte* host) {
    begin_ = begin;
    store_.place(begin, host);
  }
  std::byte* begin() const { return begin_; }

  std::byte* at(Place place, Dtype type) const { return store_.at(place.buffer) + place.offset * size_bytes(type); }
  std::byte* weight_at(Place place) const { return at(place, types_.weight); }
  std::byte* gradient_at(Place place) const { return at(place, types_.gradient); }
  std::int64_t gradient_bytes() const { return size_bytes(types_.gradient); }
  std::span<std::byte> memory(BufferId buffer) const { return store_.memory(buffer); }
  std::span<std::byte> boundary(BufferId buffer) const { return store_.boundary(buffer); }
  std::span<std::byte> workspace() const { return span(workspace_); }
  std::byte* twin_sum() const { return begin_ + twin_sum_.begin; }
  std::byte* staging(int lane) const { return begin_ + staging_[static_cast<std::size_t>(lane)].begin; }

  /// The data uploaded before an iteration, contiguous.
  std::span<std::byte> input() const { return span(input_); }
  const StepScalars* scalars() const { return reinterpret_cast<const StepScalars*>(begin_ + input_.begin); }
  /// Ids of a microbatch; if no stage of the rank reads them, memory of their size.
  std::span<const std::int32_t> tokens(std::int32_t microbatch) const { return ids(token_slot_, microbatch); }
  std::span<const std::int32_t> targets(std::int32_t microbatch) const { return ids(target_slot_, microbatch); }
  /// The data downloaded after it, contiguous: the losses, then the square of the gradient's norm.
  std::span<std::byte> output() const { return span(output_); }
  double* loss(std::int32_t microbatch) const { return losses() + microbatch; }
  double* losses() const { return reinterpret_cast<double*>(begin_ + output_.begin); }
  float* square() const { return reinterpret_cast<float*>(begin_ + output_.begin + output_.bytes - alignment); }
  float* gradient_scale() const { return reinterpret_cast<float*>(begin_ + scale_.begin); }

  /// A number to send as a signal, and space for a received one.
  std::byte* notice_out() const { return begin_ + notice_.begin; }
  std::byte* notice_in() const { return notice_out() + alignment; }
  std::span<std::byte> exchange() const { return span(exchange_); }

  /// Writes the contents of `input` to memory of the same size on the host.
  /// @throws InputError  naming a token or target that is not in the vocabulary.
  template <MicrobatchTokens Source>
  void fill_input(const Source& source, const Iteration& args, std::byte* host) const {
    const StepScalars scalars{.learning_rate = args.learning_rate, .gradient_clip = args.gradient_clip, .step = args.step};
    std::memcpy(host, &scalars, sizeof scalars);
    const auto count = static_cast<std::size_t>(schedule_->workload().batch().tokens());
    std::vector<std::int32_t> tokens(count);
    std::vector<std::int32_t> targets(count);
    for (std::size_t m = 0; m < token_slot_.size(); ++m) {
      if (token_slot_[m] < 0 && target_slot_[m] < 0) continue;
      source.fetch(args.step, static_cast<std::int32_t>(m), tokens, targets);
      store(host, token_slot_[m], "token", tokens);
      store(host, target_slot_[m], "target", targets);
    }
  }
  /// The losses that this rank computed are added to [microbatch]. @return the square of the
  /// gradient's norm
  double read_output(const std::byte* host, std::span<double> losses) const {
    for (std::size_t m = 0; m < losses.size(); ++m) {
      double loss = 0;
      std::memcpy(&loss, host + m * sizeof loss, sizeof loss);
      losses[m] += loss;
    }
    float square = 0;
    std::memcpy(&square, host + output_.bytes - alignment, sizeof square);
    return static_cast<double>(square);
  }

  /// Calls `visit(buffer)` for each of the rank's buffers that are kept between iterations.
  template <class Visit>
  void for_each_persistent(BufferKind kind, Visit&& visit) const {
    store_.for_each_persistent(kind, visit);
  }
  /// Calls `visit(range, address)` for every run of weights that the rank keeps between iterations,
  /// including copies.
  template <class Visit>
  void for_each_weight(Visit&& visit) const {
    store_.for_each_run(BufferKind::weights,
                        [&](const ParameterRange& range, Place place, std::int64_t) { visit(range, weight_at(place)); });
  }
  /// The same, without those whose new values the rank lacks between iterations.
  template <class Visit>
  void for_each_current_weight(Visit&& visit) const {
    store_.for_each_current_weight(
        [&](const ParameterRange& range, Place place, std::int64_t) { visit(range, weight_at(place)); });
  }
  /// Calls `visit(range, states)` for every run of optimizer states of the rank; each state is f32.
  template <class Visit>
  void for_each_state(Visit&& visit) const {
    store_.for_each_run(BufferKind::optimizer, [&](const ParameterRange& range, Place place, std::int64_t whole) {
      visit(range, states(place, whole));
    });
  }

  /// The optimizer's states of a run of parameters.
  struct States {
    float* master = nullptr;  ///< weights in f32; null if none are kept
    float* first_moment = nullptr;
    float* second_moment = nullptr;
  };
  /// @param whole  parameters of the whole optimizer buffer
  States states(Place place, std::int64_t whole) const {
    float* first = reinterpret_cast<float*>(at(place, Dtype::f32));
    if (!types_.master) return {nullptr, first, first + whole};
    return {first, first + whole, first + 2 * whole};
  }

 private:
  struct Region {
    std::int64_t begin = 0;
    std::int64_t bytes = 0;
  };

  static std::int64_t aligned(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
  Region take(std::int64_t bytes) {
    const Region region{end_, bytes};
    end_ += aligned(bytes);
    return region;
  }
  std::span<std::byte> span(const Region& region) const {
    return {begin_ + region.begin, static_cast<std::size_t>(region.bytes)};
  }

  /// Microbatches whose tokens or targets a task reads get a slot; and finds the largest sum of
  /// tied gradients.
  void count_input(TaskId id, std::int64_t& twin) {
    const Task& task = schedule_->task(id);
    const auto microbatches = static_cast<std::size_t>(schedule_->workload().microbatches());
    token_slot_.resize(microbatches, -1);
    target_slot_.resize(microbatches, -1);
    if (task.op == Op::update) {
      for (const UpdatePiece& piece : flow_->update(id)) twin = std::max(twin, piece.twin ? piece.parameters.count() : 0);
    } else if (is_work(task.op)) {
      const StageWork& stage = schedule_->stage(task.stage);
      const auto m = static_cast<std::size_t>(task.microbatch);
      if (stage.first_edge && token_slot_[m] < 0) token_slot_[m] = tokens_++;
      if (stage.last_edge && target_slot_[m] < 0) target_slot_[m] = targets_++;
    }
  }
  std::int64_t slot_offset(std::int64_t slot) const {
    return aligned(sizeof(StepScalars)) +
           slot * aligned(schedule_->workload().batch().tokens() * std::int64_t{sizeof(std::int32_t)});
  }
  std::span<const std::int32_t> ids(const std::vector<std::int64_t>& slots, std::int32_t microbatch) const {
    const std::int64_t slot = std::max<std::int64_t>(slots[static_cast<std::size_t>(microbatch)], 0);
    const std::byte* at = begin_ + input_.begin + slot_offset(slot);
    return {reinterpret_cast<const std::int32_t*>(at), static_cast<std::size_t>(schedule_->workload().batch().tokens())};
  }
  void store(std::byte* host, std::int64_t slot, const char* what, const std::vector<std::int32_t>& ids) const {
    if (slot < 0) return;
    const std::int32_t vocab = schedule_->workload().model().token_ids;
    for (const std::int32_t id : ids) {
      if (vocab == 0 || (id >= 0 && id < vocab)) continue;
      throw InputError(concat(what, " ", id, " is not in the vocabulary of ", vocab, ", which ends at ", vocab - 1));
    }
    std::memcpy(host + slot_offset(slot), ids.data(), ids.size() * sizeof(std::int32_t));
  }

  const Schedule* schedule_;
  const Dataflow* flow_;
  NumberTypes types_;
  ParameterStore store_;
  std::int64_t end_ = 0;
  std::byte* begin_ = nullptr;
  Region workspace_;
  Region twin_sum_;
  std::vector<Region> staging_;  ///< [lane]
  Region input_;
  Region output_;
  Region scale_;
  Region notice_;
  Region exchange_;
  std::vector<std::int64_t> token_slot_;   ///< [microbatch] -1: not read on this rank
  std::vector<std::int64_t> target_slot_;  ///< [microbatch] after those of tokens
  std::int64_t tokens_ = 0;
  std::int64_t targets_ = 0;
};

}  // namespace tawpipe::cuda
