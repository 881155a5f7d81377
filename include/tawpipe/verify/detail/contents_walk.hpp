// The contents of all buffers while a schedule is followed, with the checks that all kinds of tasks
// share.
// Not: the values themselves (contents.hpp); what tasks do with them (compute_walk.hpp,
// message_walk.hpp, update_walk.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/interpret.hpp"
#include "tawpipe/verify/detail/contents.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0::detail {

/// The contents of all buffers.
class ContentsWalk {
 public:
  ContentsWalk(const Schedule& schedule, std::span<const TaskId> order, Diagnostics& out)
      : schedule_{schedule}, out_{out}, model_{schedule}, rooms_{schedule, order} {
    place_.reserve(schedule.buffers().size());
    most_.resize(schedule.buffers().size(), 0);
    for (std::size_t b = 0; b < schedule.buffers().size(); ++b) {
      const Buffer& buffer = schedule.buffers()[b];
      const ContentKind kind = buffer.content.kind();
      if (kind == ContentKind::weights || kind == ContentKind::gradients) {
        place_.push_back(static_cast<std::uint32_t>(values_.size()));
        values_.emplace_back();
        if (!buffer.persistent || buffer.copy) continue;  // owners' weights, and sums that begin with zeros, exist at the start
        const bool weights = kind == ContentKind::weights;
        for (const ParameterRange& range : rooms_[id<BufferId>(b)].ranges()) {
          for (const bool experts : {false, true}) {
            const ParameterValue start{.part = weights ? model_.weights_part(model_.place(buffer.rank), experts) : 0,
                                       .kept = weights};
            for (const ParameterRange& own : model_.part_of(range, experts)) values_.back().set(own, start);
          }
        }
      } else if (buffer.kind() == BufferKind::activations) {
        place_.push_back(static_cast<std::uint32_t>(activations_.size()));
        activations_.push_back({.made = buffer.persistent ? Made::unknown : Made::nothing});
      } else if (kind == ContentKind::optimizer_state) {
        place_.push_back(static_cast<std::uint32_t>(states_.size()));
        states_.push_back({.owner = buffer.copy ? none<BufferId> : id<BufferId>(b)});
      } else {
        place_.push_back(0);
      }
    }
  }

  const Schedule& schedule() const { return schedule_; }
  const WholeModel& model() const { return model_; }
  const Rooms& rooms() const { return rooms_; }
  ContentKind kind(BufferId buffer) const { return schedule_.buffer(buffer).content.kind(); }
  bool is_activation(BufferId buffer) const { return is_of_microbatch(kind(buffer)); }
  /// @pre weights or gradients
  ParameterValues& values(BufferId buffer) { return values_[place_[index(buffer)]]; }
  /// @pre is_activation(buffer)
  Activation& activation(BufferId buffer) { return activations_[place_[index(buffer)]]; }

  /// Optimizer states in a buffer: their owner, and whether they are updated.
  struct States {
    /// the buffer that keeps them between iterations; none: nothing was copied there
    BufferId owner = none<BufferId>;
    bool updated = false;
  };
  /// @pre kind(buffer) == ContentKind::optimizer_state
  States& states(BufferId buffer) { return states_[place_[index(buffer)]]; }
  /// Keeps weights, gradients or optimizer states between iterations, and is not a copy of others.
  bool is_owner(BufferId buffer) const { return schedule_.buffer(buffer).persistent && !schedule_.buffer(buffer).copy; }

  /// Whether a buffer of weights or gradients has room for all of these values, not for a part of them.
  bool has_room(BufferId buffer, const ParameterValues& values) const {
    return std::all_of(values.pieces().begin(), values.pieces().end(), [&](const auto& piece) {
      std::int64_t room = 0;
      rooms_[buffer].for_each_part(piece.range, [&](const ParameterRange& part, std::int64_t) { room += part.count(); });
      return room == piece.range.count();
    });
  }

  /// Notes that a task reads some of a buffer's weights: of those that their owner has kept since the
  /// iteration began, the one before must have left the updated ones there.
  void need(BufferId buffer, const ParameterRange& range) {
    ParameterValues& held = values(buffer);
    bool first = false;
    held.visit(range, [&](const ParameterRange&, const ParameterValue* value) {
      first = first || (value != nullptr && value->kept && !value->needed);
    });
    if (!first) return;
    held.change(range, [&](const ParameterRange&, const ParameterValue* old) {
      if (old == nullptr) return std::optional<ParameterValue>{};
      ParameterValue value = *old;
      value.needed = value.needed || value.kept;
      return std::optional{value};
    });
  }

  /// Call it for every task before checking the task.
  void begin(TaskId t) { rooms_.run(t); }

  template <class Message>
  void error(std::string_view code, TaskId task, Rank rank, Message&& message, std::string_view help) {
    out_.error(code, task, rank, message, help);
  }
  void unwritten(TaskId t, const Use& use) {
    error(
        "V501", t, schedule_.buffer(use.buffer).rank,
        [&] {
          return concat(describe(schedule_, t), use.access == Access::accumulate ? " adds to " : " reads ",
                        describe(schedule_, use.buffer), ", which nothing has written before");
        },
        "write the buffer first: a missing transfer, or one into another buffer");
  }
  void overwrites(TaskId t, const Use& use) {
    error(
        "V508", t, schedule_.buffer(use.buffer).rank,
        [&] {
          return concat(describe(schedule_, t), " writes ", describe(schedule_, use.buffer), ", which is not its to change");
        },
        "only an update changes weights and optimizer states; forwards write activations, backwards also gradients");
  }

  void added(TaskId t, const Use& use) {
    error(
        "V510", t, schedule_.buffer(use.buffer).rank,
        [&] { return concat(describe(schedule_, t), " adds to ", describe(schedule_, use.buffer), ", whose old content stays"); },
        "write activations, or read and write them in place");
  }

  /// What a task reads of a buffer of activations.
  Activation take(BufferId buffer) {
    activation(buffer).read = true;
    return activation(buffer);
  }
  /// Writes the result of a computation or message into a buffer of activations.
  void put(TaskId t, const Use& use, const Activation& made) {
    const Content& content = schedule_.buffer(use.buffer).content;
    if (!content.is_slot() && (content.microbatch() != made.microbatch || number(content.stage()) != made.stage ||
                               kind_of(made.made) != content.kind())) {
      error(
          "V507", t, schedule_.buffer(use.buffer).rank,
          [&] {
            return concat(describe(schedule_, t), " puts ", made.words(), " into ", describe(schedule_, use.buffer),
                          ", which is for ", name(content.kind()), " of stage ", number(content.stage()), ", microbatch ",
                          content.microbatch());
          },
          "let a buffer hold what it is said to hold");
    }
    const Activation& old = activation(use.buffer);
    if (old.bytes > 0 && !old.read && use.access == Access::write) {
      error(
          "V509", t, schedule_.buffer(use.buffer).rank,
          [&] {
            return concat(describe(schedule_, t), " overwrites ", old.words(), " in ", describe(schedule_, use.buffer),
                          ", which nothing has read");
          },
          "let each output be read before the next takes its place, and bring it once");
    }
    activation(use.buffer) = made;
    activation(use.buffer).read = false;
    holds(use.buffer, made.bytes);
  }
  /// Notes how much a task puts into a buffer: it is to be as large as the most of that.
  void holds(BufferId buffer, std::int64_t bytes) { most_[index(buffer)] = std::max(most_[index(buffer)], bytes); }
  /// Reports buffers that are larger than what was ever put into them, where that is known, and
  /// outputs that are left unread.
  void finish() {
    for (std::size_t b = 0; b < most_.size(); ++b) {
      const Buffer& buffer = schedule_.buffers()[b];
      const Activation left = is_activation(id<BufferId>(b)) ? activation(id<BufferId>(b)) : Activation{};
      if (left.bytes > 0 && !left.read) {
        error(
            "V509", none<TaskId>, buffer.rank,
            [&] { return concat(left.words(), " is left in ", describe(schedule_, id<BufferId>(b)), ", and nothing reads it"); },
            "let the next stage read each output, and bring it once");
      }
      if (most_[b] == 0 || buffer.bytes.value() <= most_[b]) continue;
      error(
          "V116", none<TaskId>, buffer.rank,
          [&] {
            return concat(describe(schedule_, id<BufferId>(b)), " has ", buffer.bytes.value(), " bytes, and no more than ",
                          most_[b], " are ever put into it");
          },
          "let a buffer or message be as large as what it holds or carries");
    }
  }
  void too_small(TaskId t, Rank rank, std::int64_t found, std::int64_t needed, std::string_view what) {
    error(
        "V513", t, rank,
        [&] { return concat(describe(schedule_, t), " has ", found, " bytes for ", what, ", which takes ", needed); },
        "make the buffer as large as what its tasks put into it");
  }

  /// Checks that a slot is large enough for the parameters that a task writes.
  void room(TaskId t, const Use& use) {
    const Buffer& buffer = schedule_.buffer(use.buffer);
    if (!buffer.content.is_slot()) return;
    const ParameterBytes& bytes = schedule_.workload().parameter_bytes();
    const std::int64_t each = buffer.content.kind() == ContentKind::weights ? bytes.weight : bytes.gradient;
    const std::int64_t needed = (rooms_[use.buffer].count() * each + model_.tensor - 1) / model_.tensor;
    if (buffer.bytes.value() < needed) {
      too_small(t, buffer.rank, buffer.bytes.value(), needed, concat("what it brings into ", describe(schedule_, use.buffer)));
    }
  }

 private:
  static ContentKind kind_of(Made made) {
    return made == Made::forward_output    ? ContentKind::activation
           : made == Made::backward_output ? ContentKind::activation_gradient
           : made == Made::saved           ? ContentKind::saved
                                           : ContentKind::stash;
  }

  const Schedule& schedule_;
  Diagnostics& out_;
  WholeModel model_;
  Rooms rooms_;
  std::vector<std::uint32_t> place_;  ///< [buffer] in values_ or activations_
  std::vector<std::int64_t> most_;    ///< [buffer] bytes of a task's result in it; 0: unknown
  std::vector<ParameterValues> values_;
  std::vector<Activation> activations_;
  std::vector<States> states_;
};

}  // namespace tawpipe::detail
