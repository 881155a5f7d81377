// The effect of copies between a device and its host on the contents of buffers.
// Not: messages between ranks (message_walk.hpp).
#pragma once

#include <algorithm>
#include <utility>

#include "tawpipe/verify/detail/message_findings.hpp"

namespace tawpipe::inline v0::detail {

/// Copies contents as one host copy does.
class CopyWalk : MessageFindings {
 public:
  CopyWalk(const Schedule& schedule, ContentsWalk& walk) : MessageFindings{schedule, walk} {}

  /// Copies all that a buffer holds into one of the same kind. @pre check_transfers() reports
  /// errors in its form
  void run(TaskId t) {
    const Task& task = schedule_.task(t);
    const Use* source = nullptr;
    const Use* target = nullptr;
    for (const Use& use : schedule_.uses(t)) (use.access == Access::read ? source : target) = &use;
    if (source == nullptr || target == nullptr) return;
    const Content& from = schedule_.buffer(source->buffer).content;
    const Content& to = schedule_.buffer(target->buffer).content;
    if (!carries(traits(task.payload).numbers, from.kind())) return holds_other(t, *source);
    if (is_of_microbatch(from.kind())) {
      const Activation held = walk_.take(source->buffer);
      if (held.made == Made::nothing) return walk_.unwritten(t, *source);
      if (to.kind() != from.kind()) return holds_other(t, *target);
      return walk_.put(t, *target, held);
    }
    if (from.is_slot() || !(from == to)) {
      return unfit(t, task.rank,
                   concat(" puts ", describe(schedule_, source->buffer), " into ", describe(schedule_, target->buffer)),
                   "copy between buffers of the same parameters, which both name");
    }
    if (from.kind() == ContentKind::optimizer_state) return copy_states(t, *source, *target);
    const ParameterValues& values = walk_.values(source->buffer);
    if (values.empty() && walk_.rooms()[source->buffer].count() > 0) return walk_.unwritten(t, *source);
    const bool updated =
        std::any_of(values.pieces().begin(), values.pieces().end(), [](const auto& piece) { return piece.value.updated; });
    if (from.kind() == ContentKind::weights && walk_.is_owner(target->buffer) && !updated) return walk_.overwrites(t, *target);
    ParameterValues copied = values;
    for (const auto& piece : values.pieces()) {
      ParameterValue value = piece.value;
      value.kept = value.needed = false;
      copied.set(piece.range, value);
    }
    for (const auto& piece : copied.pieces()) walk_.need(source->buffer, piece.range);
    walk_.values(target->buffer) = std::move(copied);
  }

 private:
  static bool carries(Numbers numbers, ContentKind kind) {
    switch (numbers) {
      case Numbers::weights:
        return kind == ContentKind::weights;
      case Numbers::gradients:
        return kind == ContentKind::gradients;
      case Numbers::activations:
        return is_of_microbatch(kind);
      case Numbers::states:
        return kind == ContentKind::optimizer_state;
      case Numbers::single:
      case Numbers::none:
        return false;
    }
    return false;  // unreachable
  }
  /// States are copied out, and back to the buffer that keeps them.
  void copy_states(TaskId t, const Use& source, const Use& target) {
    const auto states = walk_.states(source.buffer);
    if (states.owner == none<BufferId>) return walk_.unwritten(t, source);
    if (walk_.is_owner(target.buffer) && states.owner != target.buffer) {
      return unfit(
          t, schedule_.task(t).rank,
          concat(" puts the states of ", describe(schedule_, states.owner), " into ", describe(schedule_, target.buffer)),
          "copy optimizer states back to the buffer that they came from");
    }
    if (walk_.states(target.buffer).updated && !states.updated) return walk_.overwrites(t, target);
    walk_.states(target.buffer) = states;
  }
};

}  // namespace tawpipe::detail
