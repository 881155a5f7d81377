// The effect of communications on the contents of buffers: moves each parameter's value, or
// activation, from end to end.
// Not: computations (contents_walk.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/verify/detail/copy_walk.hpp"
#include "tawpipe/verify/detail/message_findings.hpp"

namespace tawpipe::inline v0::detail {

/// Moves contents as one communication does.
class MessageWalk : MessageFindings {
 public:
  MessageWalk(const Schedule& schedule, ContentsWalk& walk)
      : MessageFindings{schedule, walk}, copies_{schedule, walk}, messages_{schedule} {}

  void run(TaskId t) {
    const Task& task = schedule_.task(t);
    if (schedule_.uses(t).empty()) return;
    if (is_host_copy(task.op)) return copies_.run(t);
    const ParameterMessage& message = messages_.read(t);
    switch (traits(task.payload).numbers) {
      case Numbers::weights:
        return parameters(t, message, ContentKind::weights);
      case Numbers::gradients:
        return parameters(t, message, ContentKind::gradients);
      case Numbers::activations:
        return activations(t, message);
      case Numbers::single:
      case Numbers::states:
      case Numbers::none:
        return others(t);
    }
  }

 private:
  // ---- parameters -------------------------------------------------------------------------------

  void parameters(TaskId t, const ParameterMessage& message, ContentKind kind) {
    const Task& task = schedule_.task(t);
    for (const Use& use : schedule_.uses(t)) {
      if (walk_.kind(use.buffer) != kind) return holds_other(t, use);
    }
    const bool both_ways = goes_both_ways(task.op) || is_all_pairs(task.op);
    if (both_ways || (is_sum(task.op) && kind != ContentKind::gradients)) {
      return unfit(t, task.rank, concat(" carries ", name(task.payload)),
                   "only gradients are summed, and only activations go both ways or from all to all");
    }
    if (message.parts.empty()) {
      return walk_.error(
          "V112", t, task.rank, [&] { return concat(describe(schedule_, t), " does not say which parameters it carries"); },
          "let its split name them");
    }
    if (!labelled(task, message)) {
      unfit(t, task.rank, " carries no parameters of its stage", "give it the stage of what its split names");
    }
    collect(t, message);
    bool sends_updated = false;
    for (std::size_t e = 0; e < message.ends.size(); ++e) {
      for (const Use& use : message.ends[e].taken) {
        if (!takes(message, e)) continue;
        if (kind == ContentKind::weights) {
          if (use.access == Access::accumulate) {
            holds_other(t, use);
            continue;
          }
          const bool owned = walk_.is_owner(use.buffer);
          // An iteration may begin with the gathers of what the one before has updated.
          const bool renews = gathers(task.op) && use.access == Access::read_write && walk_.has_room(use.buffer, carried_);
          if (owned && !updated_ && !renews && !carried_.empty()) {  // of a stage without layers it carries nothing
            walk_.overwrites(t, use);
            continue;
          }
          sends_updated = sends_updated || (updated_ && !owned);
        }
        deliver(t, message, e, use);
        walk_.room(t, use);
      }
    }
    if (!sends_updated) return;
    walk_.error(
        "V504", t, task.rank, [&] { return concat(describe(schedule_, t), " sends weights after their update"); },
        "move the update after the last transfer of its weights");
  }

  /// Whether some of what is carried belongs to the task's stage: a tied last edge's own parameters
  /// travel with the first edge's.
  bool labelled(const Task& task, const ParameterMessage& message) const {
    if (task.stage == none<StageId>) return true;
    bool carries = false;
    for (const PiecesId part : message.parts) {
      for (const ParameterRange& range : walk_.rooms().set(part).ranges()) {
        carries = carries || !schedule_.is_padding(range);
        for (const ParameterRange& need : walk_.model().needs(task.stage)) {
          if (range.begin < need.end && need.begin < range.end) return true;
        }
      }
    }
    return !carries;
  }
  static bool takes(const ParameterMessage& message, std::size_t end) { return message.role_of(end).takes != Part::nothing; }

  /// Sets carried_ to the values of the message's parts: those of the one end that gives each part,
  /// or the sum of all ends.
  void collect(TaskId t, const ParameterMessage& message) {
    carried_.clear();
    all_.clear();
    updated_ = false;
    const bool sums = is_sum(message.op);
    for (std::size_t part = 0; sums && part < message.parts.size(); ++part) {
      for (const ParameterRange& range : ranges_of(message, part)) carried_.set(range, {});
    }
    for (const auto& piece : carried_.pieces()) all_.push_back(piece.range);
    for (std::size_t e = 0; e < message.ends.size(); ++e) {
      const Part gives = message.role_of(e).gives;
      if (gives == Part::nothing || message.ends[e].given.empty()) continue;
      const std::vector<ParameterRange>& given = sums ? all_ : ranges_of(message, gives == Part::own ? e : 0);
      const std::int64_t needed = parameters_in(given);
      std::int64_t found = 0;
      const bool several = message.ends[e].given.size() > 1;
      // What it holds beside where it gathers is what it gives. A sum takes all that it is given.
      const bool apart = several && !sums && room_apart(message.ends[e], given) == needed;
      std::int64_t room = several ? 0 : needed;
      for (const BufferId buffer : message.ends[e].given) {
        if (apart && is_taken(message.ends[e], buffer)) continue;
        found += give(given, buffer, sums);
        if (several) room += room_of(buffer, given);
      }
      if (found != needed || room != needed) lacks(t, message.ends[e], room > needed ? room : found, needed);
    }
  }
  std::int64_t room_of(BufferId buffer, const std::vector<ParameterRange>& ranges) const {
    std::int64_t room = 0;
    for (const ParameterRange& range : ranges) {
      walk_.rooms()[buffer].for_each_part(range, [&](const ParameterRange& part, std::int64_t) { room += part.count(); });
    }
    return room;
  }
  static bool is_taken(const MessageEnd& end, BufferId buffer) {
    return std::any_of(end.taken.begin(), end.taken.end(), [&](const Use& use) { return use.buffer == buffer; });
  }
  /// The room that an end has for ranges in the buffers that it gives from and does not write.
  std::int64_t room_apart(const MessageEnd& end, const std::vector<ParameterRange>& ranges) const {
    std::int64_t room = 0;
    for (const BufferId buffer : end.given) room += is_taken(end, buffer) ? 0 : room_of(buffer, ranges);
    return room;
  }
  const std::vector<ParameterRange>& ranges_of(const ParameterMessage& message, std::size_t part) const {
    return walk_.rooms().set(message.parts[part]).ranges();
  }

  /// Adds a buffer's values of some parameters to carried_. @return the number of parameters
  std::int64_t give(const std::vector<ParameterRange>& ranges, BufferId buffer, bool sums) {
    std::int64_t found = 0;
    for (const ParameterRange& range : ranges) {
      walk_.values(buffer).visit(range, [&](const ParameterRange& part, const ParameterValue* value) {
        if (value == nullptr) return;
        found += part.count();
        updated_ = updated_ || value->updated;
        if (!sums) {
          ParameterValue sent = *value;
          sent.kept = sent.needed = false;
          return carried_.set(part, sent);
        }
        carried_.change(part, [&](const ParameterRange&, const ParameterValue* old) {
          ParameterValue sum = *old;
          sum.sum += value->sum;
          sum.contributions += value->contributions;
          return std::optional{sum};
        });
      });
      walk_.need(buffer, range);
    }
    return found;
  }

  void lacks(TaskId t, const MessageEnd& end, std::int64_t found, std::int64_t needed) {
    for (const BufferId buffer : end.given) {
      if (found < needed && walk_.values(buffer).empty()) return walk_.unwritten(t, {buffer, Access::read});
    }
    unfit(t, end.rank,
          concat(" finds ", found, " parameters in ", describe(schedule_, end.given[0]),
                 found > needed ? ", more than once those" : ", and not all those", " that it carries: ", needed),
          "let each piece arrive before it is sent on, and the task's split name what is there");
  }

  /// Writes what an end takes from the message into one of its buffers, as far as it fits.
  void deliver(TaskId t, const ParameterMessage& message, std::size_t end, const Use& use) {
    ParameterValues& target = walk_.values(use.buffer);
    const PackedParameters& room = walk_.rooms()[use.buffer];
    if (use.access == Access::write) target.clear();
    const bool owned = walk_.is_owner(use.buffer);
    bool defined = true;
    bool lost = false;
    const auto put = [&](const ParameterRange& range) {
      carried_.visit(range, [&](const ParameterRange& part, const ParameterValue* value) {
        if (value == nullptr) return;
        if (use.access != Access::accumulate && !owned) return target.set(part, *value);
        target.change(part, [&](const ParameterRange&, const ParameterValue* old) {
          if (use.access != Access::accumulate) {
            lost = lost || (old != nullptr && old->updated && !value->updated);
            ParameterValue arrived = *value;
            arrived.needed = old != nullptr && old->needed;
            return std::optional{arrived};
          }
          defined = defined && old != nullptr;
          ParameterValue sum = old == nullptr ? ParameterValue{} : *old;
          sum.sum += value->sum;
          sum.contributions += value->contributions;
          return std::optional{sum};
        });
      });
    };
    if (message.role_of(end).takes == Part::whole) {
      for (const ParameterRange& range : room.ranges()) put(range);
    } else {
      for (const ParameterRange& range : walk_.rooms().set(message.parts[end]).ranges()) {
        room.for_each_part(range, [&](const ParameterRange& part, std::int64_t) { put(part); });
      }
    }
    if (!defined) walk_.unwritten(t, use);
    if (lost) walk_.overwrites(t, use);
  }

  // ---- activations ------------------------------------------------------------------------------

  /// Passes, exchanges and all_to_alls: one buffer in each direction.
  void activations(TaskId t, const ParameterMessage& message) {
    const Task& task = schedule_.task(t);
    if (is_collective(task.op) && !is_all_pairs(task.op)) {
      return walk_.error(
          "V512", t, task.rank,
          [&] { return concat(describe(schedule_, t), " combines activations of ranks that share no computation"); },
          "pass activations from stage to stage; only tensor- and context-parallel ranks combine theirs");
    }
    for (const Use& use : schedule_.uses(t)) {
      if (!walk_.is_activation(use.buffer)) return others(t);
    }
    for (const MessageEnd& end : message.ends) {
      const std::size_t e = static_cast<std::size_t>(&end - message.ends.data());
      const EndTraits& role = message.role_of(e);
      if (end.given.size() <= 1 && end.taken.size() <= 1) continue;
      if (role.gives == Part::nothing && end.taken.size() <= 1) continue;
      walk_.error(
          "V514", t, end.rank,
          [&] {
            return concat(describe(schedule_, t), " gives ", end.given.size(), " and takes ", end.taken.size(),
                          " activations on rank ", number(end.rank));
          },
          "name one buffer for each way that an activation goes");
    }
    sent_.clear();
    for (const MessageEnd& end : message.ends) {
      sent_.push_back({});
      if (end.given.empty()) continue;
      sent_.back() = walk_.take(end.given[0]);
      check_source(t, {end.given[0], Access::read}, end.rank, sent_.back());
    }
    for (std::size_t e = 0; e < message.ends.size(); ++e) {
      // All members of an all_to_all have the same labels, whichever blocks arrive.
      const std::size_t from = is_all_pairs(task.op) ? 0 : 1 - e;
      for (const Use& use : message.ends[e].taken) {
        if (use.access == Access::accumulate) walk_.added(t, use);
        if (sent_[from].made != Made::nothing) walk_.put(t, use, sent_[from]);
      }
    }
  }

  /// A source holds what the task says it carries, and all of it fits into the message.
  void check_source(TaskId t, const Use& use, Rank rank, const Activation& held) {
    const Task& task = schedule_.task(t);
    if (held.made == Made::nothing) return walk_.unwritten(t, use);
    const bool returned = goes_both_ways(task.op) && rank == task.peer;  // the reverse direction has no labels of its own
    const bool output = held.made == Made::forward_output || held.made == Made::backward_output;
    const Made wanted = task.payload == Payload::activations ? Made::forward_output : Made::backward_output;
    bool labelled = held.made == Made::unknown || (returned ? output : held.made == wanted);
    if (!returned && output && labelled) {
      const std::int32_t stage = number(task.stage);
      const std::int32_t sender = held.made == Made::forward_output ? stage - 1 : stage + 1;
      labelled = (stage < 0 || held.stage == stage || held.stage == sender) &&
                 (task.microbatch < 0 || held.microbatch == task.microbatch);
    }
    if (!labelled) {
      unfit(t, rank, concat(" finds ", held.words(), " in ", describe(schedule_, use.buffer)),
            "send what the task's payload, stage and microbatch say, or correct them");
    }
    if (is_all_pairs(task.op)) return;
    if (held.bytes > 0 && held.bytes < task.bytes.value()) {
      walk_.error(
          "V116", t, rank,
          [&] {
            return concat(describe(schedule_, t), " moves ", task.bytes.value(), " bytes, and ", describe(schedule_, use.buffer),
                          " holds ", held.bytes);
          },
          "let a buffer or message be as large as what it holds or carries");
    }
    if (held.bytes <= task.bytes.value()) return;
    walk_.error(
        "V305", t, rank,
        [&] {
          return concat(describe(schedule_, t), " moves ", task.bytes.value(), " of ", held.bytes, " bytes of ",
                        describe(schedule_, use.buffer));
        },
        "let the message be as large as what it carries");
  }

  // ---- others -----------------------------------------------------------------------------------

  /// Checks the sum of a number; an empty payload carries nothing.
  void others(TaskId t) {
    for (const Use& use : schedule_.uses(t)) {
      const bool fits = schedule_.task(t).payload == Payload::scalar && walk_.kind(use.buffer) == ContentKind::scalar;
      if (!fits) return holds_other(t, use);
    }
  }

  CopyWalk copies_;
  MessageReader messages_;
  ParameterValues carried_;          ///< by the current message
  std::vector<ParameterRange> all_;  ///< for a sum: the parameters that it carries
  bool updated_ = false;             ///< includes weights after their update
  std::vector<Activation> sent_;     ///< [end]
};

}  // namespace tawpipe::detail
