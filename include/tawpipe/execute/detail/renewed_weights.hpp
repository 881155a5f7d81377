// Which weights that ranks keep have their new values when an iteration ends.
// Not: the updates and messages themselves (dataflow_builder.hpp, dataflow_transfers.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/schedule/interpret.hpp"
#include "tawpipe/schedule/parameter_map.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// Follows new weights from the updates through the messages after them, task by task.
class RenewedWeights {
 public:
  /// @pre each update names weights and optimizer states. Complexity: O(uses + ranges).
  explicit RenewedWeights(const Schedule& schedule)
      : schedule_{schedule}, rooms_{schedule}, messages_{schedule}, renewed_(schedule.buffers().size()) {
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      rooms_.run(id<TaskId>(t));
      const Op op = schedule.tasks()[t].op;
      if (op == Op::update) update(id<TaskId>(t));
      if (!is_compute(op)) communication(id<TaskId>(t));
    }
  }

  /// [buffer] of weights that its rank keeps: the parameters that some rank has updated, and whose
  /// new values have not come here
  std::vector<std::vector<ParameterRange>> stale() const {
    std::vector<std::vector<ParameterRange>> stale(renewed_.size());
    for (std::size_t b = 0; b < stale.size(); ++b) {
      const Buffer& buffer = schedule_.buffers()[b];
      if (!buffer.persistent || buffer.kind() != BufferKind::weights) continue;
      for (const ParameterRange& range : rooms_[id<BufferId>(b)].ranges()) {
        updated_.visit(range, [&](const ParameterRange& part, const char* updated) {
          if (updated == nullptr) return;
          renewed_[b].visit(part, [&](const ParameterRange& left, const char* renewed) {
            if (renewed == nullptr) append(stale[b], left);
          });
        });
      }
    }
    return stale;
  }

 private:
  void update(TaskId id) {
    BufferId weights = none<BufferId>;
    BufferId states = none<BufferId>;
    for (const Use& use : schedule_.uses(id)) {
      const ContentKind kind = schedule_.buffer(use.buffer).content.kind();
      if (kind == ContentKind::weights) weights = use.buffer;
      if (kind == ContentKind::optimizer_state) states = use.buffer;
    }
    for (const ParameterRange& range : rooms_[states].ranges()) {
      rooms_[weights].for_each_part(range, [&](const ParameterRange& part, std::int64_t) {
        renewed_[index(weights)].set(part, 1);
        updated_.set(part, 1);
      });
    }
  }
  /// Complexity: O(ends * parts + ranges), once there has been an update.
  void communication(TaskId id) {
    if (updated_.empty() || schedule_.task(id).payload != Payload::weights) return;
    const ParameterMessage& message = messages_.read(id);
    ParameterMap<char> brought;
    for (std::size_t part = 0; part < message.parts.size(); ++part) {
      for (std::size_t end = 0; end < message.ends.size(); ++end) {
        if (message.gives(part, end)) give(message.parts[part], message.ends[end].given, brought);
      }
    }
    for (const MessageEnd& end : message.ends) {
      for (const Use& use : end.taken) take(use, brought);
    }
  }
  void give(PiecesId set, std::span<const BufferId> buffers, ParameterMap<char>& brought) const {
    for (const ParameterRange& range : rooms_.set(set).ranges()) {
      for (const BufferId buffer : buffers) {
        renewed_[index(buffer)].visit(range, [&](const ParameterRange& part, const char* renewed) {
          if (renewed != nullptr) brought.set(part, 1);
        });
      }
    }
  }
  void take(const Use& use, const ParameterMap<char>& brought) {
    ParameterMap<char>& renewed = renewed_[index(use.buffer)];
    if (use.access == Access::write) renewed.clear();
    for (const auto& piece : brought.pieces()) {
      rooms_[use.buffer].for_each_part(piece.range, [&](const ParameterRange& part, std::int64_t) { renewed.set(part, 1); });
    }
  }

  const Schedule& schedule_;
  Rooms rooms_;
  MessageReader messages_;
  std::vector<ParameterMap<char>> renewed_;  ///< [buffer]
  ParameterMap<char> updated_;               ///< by any rank
};

}  // namespace tawpipe::detail
