// The places of a rank's buffers: in memory that an executor owns, one block on the device and one
// on the host, or in tensors that a program lends it.
// Not: the offsets in those blocks (execute/buffer_plan.hpp) nor the computations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/buffer_plan.hpp"
#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// Memory of the program, in which an executor keeps parameters of a rank instead of allocating
/// memory for them. It must stay as long as the executor, and is read and written during iterations
/// only. Gradients are set to zero when an iteration begins.
struct LentParameters {
  Rank rank = none<Rank>;
  ContentKind kind = ContentKind::weights;  ///< or gradients
  /// all of a buffer of the rank: one of kept_parameters()
  std::vector<ParameterRange> parameters = {};
  /// [parameters] one after another, in the executor's numbers; those after the model's last one are
  /// padding (Schedule::is_padding), which a message may overwrite
  std::span<std::byte> memory = {};
};

namespace detail {

/// The same parameters in as few ranges as their order allows.
inline std::vector<ParameterRange> joined(std::span<const ParameterRange> ranges) {
  std::vector<ParameterRange> joined;
  for (const ParameterRange& range : ranges) append(joined, range);
  return joined;
}

}  // namespace detail

/// The parameters of which `rank` keeps weights, or gradients, between iterations: for each buffer
/// that a program may lend memory for, its ranges in order. @param kind  weights or gradients
inline std::vector<std::vector<ParameterRange>> kept_parameters(const Schedule& schedule, Rank rank, ContentKind kind) {
  std::vector<std::vector<ParameterRange>> kept;
  for (const Buffer& buffer : schedule.buffers()) {
    const PiecesId set = buffer.content.parameters();
    if (buffer.rank != rank || !buffer.persistent || buffer.content.kind() != kind || set == none<PiecesId>) continue;
    kept.push_back(detail::joined(schedule.pieces(set)));
  }
  return kept;
}

/// The buffers of one rank by their addresses.
class ParameterStore {
 public:
  /// @param lent  lent by the program, including that of other ranks
  /// @throws InputError  naming lent memory of this rank that differs in size from its parameters,
  /// or matches no buffer.
  ParameterStore(const Schedule& schedule, const Dataflow& flow, Rank rank, std::span<const LentParameters> lent)
      : schedule_{&schedule}, flow_{&flow}, rank_{rank}, lent_(schedule.buffers().size()) {
    for (const LentParameters& one : lent) {
      if (one.rank == rank) adopt(one);
    }
  }

  Rank rank() const { return rank_; }
  const BufferPlan& plan() const { return plan_; }
  /// [buffer] null if it is in memory of the executor
  std::span<std::byte* const> lent() const { return lent_; }
  /// @param plan  of the rank, without the lent buffers
  void plan(BufferPlan plan) { plan_ = std::move(plan); }
  /// @param begin  device memory of the plan's size. @param host  the same on the host
  void place(std::byte* begin, std::byte* host) {
    begin_ = begin;
    host_ = host;
  }

  std::byte* at(BufferId buffer) const {
    if (lent_[index(buffer)] != nullptr) return lent_[index(buffer)];
    return (schedule_->buffer(buffer).host ? host_ : begin_) + plan_.offset[index(buffer)];
  }
  /// All bytes of a buffer of this rank.
  std::span<std::byte> memory(BufferId buffer) const {
    return {at(buffer), static_cast<std::size_t>(schedule_->buffer(buffer).bytes.value())};
  }
  /// An activation that is passed from stage to stage, or its gradient.
  std::span<std::byte> boundary(BufferId buffer) const {
    return memory(buffer).first(static_cast<std::size_t>(schedule_->stage(StageId{0}).boundary.value()));
  }

  /// Calls `visit(buffer)` for each of the rank's buffers that are kept between iterations.
  template <class Visit>
  void for_each_persistent(BufferKind kind, Visit&& visit) const {
    for (std::size_t b = 0; b < schedule_->buffers().size(); ++b) {
      const Buffer& buffer = schedule_->buffers()[b];
      if (buffer.persistent && buffer.kind() == kind && buffer.rank == rank_) visit(id<BufferId>(b));
    }
  }
  /// Calls `visit(range, place, count)` for each run of parameters in such buffers, numbered over the
  /// whole model; `count` is the number in the whole buffer, padding included.
  template <class Visit>
  void for_each_run(BufferKind kind, Visit&& visit) const {
    for_each_own_run(kind, [&](const ParameterRange& range, Place place, std::int64_t count) {
      for_each_whole(range, place, [&](const ParameterRange& whole, Place at) { visit(whole, at, count); });
    });
  }
  /// The same for weights, without those whose new values the rank lacks between iterations.
  template <class Visit>
  void for_each_current_weight(Visit&& visit) const {
    for_each_own_run(BufferKind::weights, [&](const ParameterRange& range, Place place, std::int64_t count) {
      const auto give = [&](std::int64_t begin, std::int64_t end) {
        if (begin >= end) return;
        for_each_whole({begin, end}, {place.buffer, place.offset + begin - range.begin},
                       [&](const ParameterRange& whole, Place at) { visit(whole, at, count); });
      };
      std::int64_t reached = range.begin;
      const std::span<const ParameterRange> stale_ones =
          flow_->stale.empty() ? std::span<const ParameterRange>{} : flow_->stale[index(place.buffer)];
      for (const ParameterRange& stale : stale_ones) {
        if (stale.end <= reached || stale.begin >= range.end) continue;
        give(reached, stale.begin);
        reached = std::min(stale.end, range.end);
      }
      give(reached, range.end);
    });
  }
  /// Calls `visit(whole, place)` for each run of a range that is contiguous in the whole model: the parameters
  /// of a rank that has parts of tensors, or some of the experts, have a numbering of their own (Schedule::Parts::slices).
  template <class Visit>
  void for_each_whole(const ParameterRange& range, Place place, Visit&& visit) const {
    const TensorSlices& slices = schedule_->parts().slices;
    if (slices.empty()) return visit(range, place);
    const Mesh& mesh = schedule_->parts().mesh;
    slices.for_each_run(range, mesh.parameter_part(mesh.place(rank_)), [&](const ParameterRange& whole, std::int64_t offset) {
      visit(whole, Place{place.buffer, place.offset + offset});
    });
  }

 private:
  /// In the numbering of the schedule's sets.
  template <class Visit>
  void for_each_own_run(BufferKind kind, Visit&& visit) const {
    for_each_persistent(kind, [&](BufferId buffer) {
      const PackedParameters& content = flow_->content(buffer);
      std::int64_t offset = 0;
      for (const ParameterRange& range : content.ranges()) {
        if (!schedule_->is_padding(range)) visit(range, Place{buffer, offset}, content.count());
        offset += range.count();
      }
    });
  }
  /// Uses the first buffer with the same parameters that is not yet lent; copies come last.
  void adopt(const LentParameters& one) {
    const std::vector<ParameterRange> wanted = detail::joined(one.parameters);
    const std::int64_t count = parameters_in(wanted);
    const std::string what = concat("memory lent for ", count, one.kind == ContentKind::gradients ? " gradients" : " weights",
                                    " from parameter ", wanted.empty() ? 0 : wanted[0].begin, " on of rank ", number(rank_));
    if (one.kind != ContentKind::weights && one.kind != ContentKind::gradients) {
      throw InputError(concat(what, ": only weights and gradients are lent"));
    }
    BufferId found = none<BufferId>;
    for (const bool copies : {false, true}) {
      for_each_persistent(one.kind == ContentKind::weights ? BufferKind::weights : BufferKind::gradients, [&](BufferId id) {
        if (found != none<BufferId> || schedule_->buffer(id).copy != copies || lent_[index(id)] != nullptr) return;
        if (detail::joined(flow_->content(id).ranges()) == wanted) found = id;
      });
    }
    if (found == none<BufferId> || count == 0) {
      throw InputError(concat(what, " fits none of its buffers; kept_parameters() says what each of them holds"));
    }
    const std::int64_t width = schedule_->buffer(found).bytes.value() / count;
    if (std::ssize(one.memory) != count * width) {
      throw InputError(concat(what, " has ", one.memory.size(), " bytes; numbers of ", width, " bytes need ", count * width));
    }
    lent_[index(found)] = one.memory.data();
  }

  const Schedule* schedule_;
  const Dataflow* flow_;
  Rank rank_;
  BufferPlan plan_;
  std::byte* begin_ = nullptr;
  std::byte* host_ = nullptr;
  std::vector<std::byte*> lent_;  ///< [buffer]
};

}  // namespace tawpipe
