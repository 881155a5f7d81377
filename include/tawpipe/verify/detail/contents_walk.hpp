// Runs a schedule on symbols, one task after another, and reports what a task finds that it should not.
// Not: the symbols themselves (contents.hpp); the walk of transfers and sums (transfer_walk.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/detail/contents.hpp"
#include "tawpipe/verify/detail/partial_sums.hpp"
#include "tawpipe/verify/detail/stashes.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0::detail {

/// The contents of all buffers, and what every kind of task does with them.
class ContentsWalk {
 public:
  ContentsWalk(const Schedule& schedule, Diagnostics& out)
      : schedule_{schedule}, out_{out}, layout_{schedule}, stashes_{schedule} {
    for (const Buffer& buffer : schedule.buffers()) {
      has_activations_ = has_activations_ || buffer.kind() == BufferKind::activations;
      contents_.push_back(at_start(buffer));
    }
  }

  const ModelLayout& layout() const { return layout_; }
  PieceSets& pieces() { return pieces_; }
  ParameterSets& parts() { return parts_; }
  /// The parameters of a set that the schedule names; 0 where they are all of the stage's.
  std::int32_t part_of(StageId stage, PiecesId pieces) {
    const auto ranges = schedule_.pieces(pieces);
    return part_of(stage, parts_.find({ranges.begin(), ranges.end()}));
  }
  std::int32_t part_of(StageId stage, std::int32_t part) const {
    if (part == 0 || stage == none<StageId>) return part;
    return layout_.part(parts_.count(part)) + layout_.lost() >= layout_.own_parameters(schedule_.stage(stage)) ? 0 : part;
  }
  const PartialSums& partial_sums() const { return partial_; }
  Held& operator[](BufferId buffer) { return contents_[index(buffer)]; }
  template <class Message>
  void error(std::string_view code, TaskId task, Rank rank, Message&& message, std::string_view help) {
    out_.error(code, task, rank, message, help);
  }

  /// What a task finds in a buffer that it reads or adds to; reports a buffer never written before.
  const Held& look(TaskId t, const Use& use) {
    const Held& content = contents_[index(use.buffer)];
    if (content.holds == Holds::nothing) {
      error(
          "V501", t, schedule_.buffer(use.buffer).rank,
          [&] {
            return concat(describe(schedule_, t), use.access == Access::accumulate ? " adds to " : " reads ",
                          describe(schedule_, use.buffer), ", which nothing has written before");
          },
          "write the buffer first: a missing transfer, or one into another buffer");
    }
    return content;
  }

  /// Puts `content` into a buffer of a transfer or collective, or adds it.
  void put(TaskId t, const Use& use, const Held& content) {
    const Buffer& buffer = schedule_.buffer(use.buffer);
    Held& state = contents_[index(use.buffer)];
    const bool states = buffer.persistent && (buffer.kind() == BufferKind::weights || buffer.kind() == BufferKind::optimizer);
    if (states && !(content.holds == Holds::weights && content.updated)) return overwrites(t, use);
    if (use.access != Access::accumulate) {
      partial_.forget(use.buffer);
      state = content;
      return;
    }
    if (look(t, use).holds == Holds::nothing) {
      state = content;
      return;
    }
    add(t, use, content);
  }

  /// Adds a gradient to a buffer that holds one.
  void add(TaskId t, const Use& use, const Held& gradient) {
    Held& state = contents_[index(use.buffer)];
    if (state.holds != Holds::gradient || gradient.holds != Holds::gradient) {
      error(
          "V507", t, schedule_.buffer(use.buffer).rank,
          [&] {
            return concat(describe(schedule_, t), " adds ", gradient.words(), " to ", state.words(), " in ",
                          describe(schedule_, use.buffer));
          },
          "only gradients are added, and only to gradients");
      return;
    }
    if (state.part == 0 && gradient.part != 0 && holds_stage(schedule_.buffer(use.buffer))) {
      const StageId stage = schedule_.buffer(use.buffer).stage();
      const auto is_all = [&](std::int32_t part) { return part_of(stage, part) == 0; };
      if (!partial_.add(use.buffer, gradient, parts_, is_all)) return;
    }
    if (state.part != 0 && state.part != gradient.part) {
      error(
          "V507", t, schedule_.buffer(use.buffer).rank,
          [&] {
            return concat(describe(schedule_, t), " adds to a piece of a gradient in ", describe(schedule_, use.buffer),
                          " what is not of that piece");
          },
          "add a piece to the whole gradient, or to the same piece");
      return;
    }
    state.sum += gradient.sum;
    state.edge_sum += gradient.edge_sum;
    state.contributions += gradient.contributions;
    state.bytes = std::max(state.bytes, gradient.bytes);
  }

  void overwrites(TaskId t, const Use& use) {
    error(
        "V508", t, schedule_.buffer(use.buffer).rank,
        [&] {
          return concat(describe(schedule_, t), " writes ", describe(schedule_, use.buffer), ", which is not its to change");
        },
        "only an update changes weights and optimizer states; forwards write activations, backwards also gradients");
  }

  bool holds_stage(const Buffer& buffer) const {
    if (buffer.stage() == none<StageId>) return false;
    return buffer.bytes.value() + layout_.rounding() >=
           layout_.own_parameters(schedule_.stage(buffer.stage())) * layout_.gradient;
  }

  /// A forward, backward, backward_input or backward_weight.
  void compute(TaskId t) {
    const Task& task = schedule_.task(t);
    const auto s = number(task.stage);
    const StageWork& work = schedule_.stage(task.stage);
    Found found;
    for (const Use& use : schedule_.uses(t)) {
      if (use.access == Access::read || use.access == Access::read_write) compute_reads(t, use, found);
    }
    const bool has_own = layout_.owned[index(task.stage)] != 0 || (layout_.sharded && layout_.stage_parameters(work) > 0);
    const bool has_edge = layout_.edge_copies && work.edge_parameters > 0;
    const bool has_lent = layout_.lent && s == layout_.head;
    if ((has_own && !found.weights) || ((has_edge || has_lent) && !found.edge)) {
      error(
          "V502", t, task.rank,
          [&] {
            return concat(describe(schedule_, t), " reads no weights of ",
                          has_own && !found.weights ? concat("stage ", s) : std::string{"embedding and head"}, found.seen);
          },
          "name the buffer with the weights of the task's own stage");
    }
    if (has_activations_ && !found.unwritten_activations) expect_activations(t, found);
    for (const Use& use : schedule_.uses(t)) {
      if (use.access != Access::read) compute_writes(t, use);
    }
  }

 private:
  struct Found {
    bool weights = false;
    bool edge = false;
    bool input = false;
    bool saved = false;
    bool stash = false;
    bool unwritten_activations = false;  ///< reported; what they should have held is not worth a second finding
    std::string seen;                    ///< what was there in place of what is missing
  };

  Held at_start(const Buffer& buffer) {
    Held content;
    if (buffer.kind() == BufferKind::workspace) content.holds = Holds::any;
    if (!buffer.persistent) return content;
    switch (buffer.kind()) {
      case BufferKind::weights:
        content.holds = Holds::weights;
        content.stage = number(buffer.stage());
        content.pieces = pieces_.only(Rank{layout_.place(buffer.rank).logical});
        content.tensor = layout_.place(buffer.rank).tensor;
        content.bytes = buffer.bytes.value();
        break;
      case BufferKind::gradients:
        content.holds = Holds::gradient;  // zeros
        break;
      case BufferKind::optimizer:
      case BufferKind::activations:
        content.holds = Holds::any;
        break;
      default:
        break;
    }
    return content;
  }

  void compute_reads(TaskId t, const Use& use, Found& found) {
    const Task& task = schedule_.task(t);
    const auto s = number(task.stage);
    const BufferKind kind = schedule_.buffer(use.buffer).kind();
    const bool may_add = task.op != Op::forward && (kind == BufferKind::gradients || kind == BufferKind::transfer);
    if (use.access == Access::read_write && may_add) return;  // adds in place: compute_writes
    const Held& content = look(t, use);
    switch (content.holds) {
      case Holds::nothing:
        (kind == BufferKind::activations ? found.unwritten_activations : found.weights) = true;
        return;
      case Holds::any:
        return;
      case Holds::weights:
        weights(t, use, content, found);
        return;
      case Holds::gradient:
        found.seen = ", but a gradient";
        return;
      case Holds::stash:
        if (task.op != Op::backward_weight || content.stage != s || content.microbatch != task.microbatch) break;
        found.stash = true;
        contents_[index(use.buffer)].finished = true;
        return;
      case Holds::forward_output:
      case Holds::backward_output: {
        const bool forward = content.holds == Holds::forward_output;
        const bool fixed = use.access == Access::read || !schedule_.buffer(use.buffer).persistent;
        const bool same = content.microbatch == task.microbatch && own_part(content, task.rank);
        if (forward && fixed && same && content.stage == s) {
          // What a backward_weight reads, its backward_input has read before: not what the forward handed on.
          found.saved = found.saved || task.op != Op::backward_weight || content.saved;
          if (task.op == Op::backward_input) contents_[index(use.buffer)].saved = true;
          if (task.op != Op::forward) contents_[index(use.buffer)].used = true;
          if (task.op == Op::backward_weight) contents_[index(use.buffer)].finished = true;
        }
        const bool input = forward == (task.op == Op::forward) && same && content.stage == (forward ? s - 1 : s + 1);
        if (input) found.input = true;
        if (input && content.lacks != lacks_nothing) incomplete(t, use, content);
        if (input || (forward && same && content.stage == s)) return;
        break;
      }
    }
    found.seen = concat(", but ", content.words());
  }

  /// Whether the content is that of the rank's own place among tensor- and context-parallel ranks.
  bool own_part(const Held& content, Rank rank) const {
    const LayoutPlace& place = layout_.place(rank);
    return content.tensor == place.tensor && content.context == place.context;
  }

  void incomplete(TaskId t, const Use& use, const Held& content) {
    const std::string_view what = (content.lacks & lacks_sum) != 0 ? ", not summed over the tensor-parallel ranks"
                                  : (content.lacks & lacks_keys) != 0
                                      ? ", made without the keys and values of the other context-parallel ranks"
                                      : ", made without the other context-parallel ranks' gradients of its keys";
    error(
        "V511", t, schedule_.task(t).rank,
        [&] { return concat(describe(schedule_, t), " reads ", content.words(), " in ", describe(schedule_, use.buffer), what); },
        "combine what the ranks of a logical rank have computed before it is used");
  }

  void weights(TaskId t, const Use& use, const Held& content, Found& found) {
    const Task& task = schedule_.task(t);
    if (use.access != Access::read) return;  // compute_writes reports it
    if (content.tensor != layout_.place(task.rank).tensor) {
      found.seen = concat(", but those of tensor-parallel rank ", content.tensor, " in ", describe(schedule_, use.buffer));
      return;
    }
    if (content.updated) {
      (content.stage < 0 && layout_.edge_copies ? found.edge : found.weights) = true;
      error(
          "V504", t, task.rank,
          [&] { return concat(describe(schedule_, t), " reads ", describe(schedule_, use.buffer), " after its update"); },
          "move the update behind the last forward and backward of the iteration");
      return;
    }
    if (content.stage < 0 && layout_.edge_copies) {
      found.edge = true;
      return;
    }
    const StageWork& work = schedule_.stage(task.stage);
    if (content.stage < 0 && layout_.stage_parameters(work) == 0) {
      found.weights = true;
      return;
    }
    if (layout_.lent && content.stage == layout_.embedding && number(task.stage) == layout_.head) {
      found.edge = true;
      return;
    }
    if (content.stage >= 0 && content.stage != number(task.stage)) {
      found.seen = concat(", but those of stage ", content.stage, " in ", describe(schedule_, use.buffer));
      return;
    }
    found.weights = true;
    const bool owned = layout_.owned[index(task.stage)] != 0;
    const std::int64_t needed = owned ? layout_.pieces_needed[index(task.stage)] : layout_.shards_needed;
    const std::int64_t got = pieces_.size(content.pieces);
    if (got >= needed && content.part != 0) {
      error(
          "V503", t, task.rank,
          [&] {
            return concat(describe(schedule_, t), " reads weights of which ", layout_.part(parts_.count(content.part)), " of ",
                          layout_.own_parameters(work), " parameters have arrived");
          },
          "gather the pieces of the stage before the task");
    }
    if (got >= needed) return;
    error(
        "V503", t, task.rank,
        [&] { return concat(describe(schedule_, t), " reads weights of which ", got, " of ", needed, " pieces have arrived"); },
        "gather the pieces of all ranks that hold one before the task");
  }

  void expect_activations(TaskId t, const Found& found) {
    const Task& task = schedule_.task(t);
    const auto s = number(task.stage);
    const bool forward = task.op == Op::forward;
    const auto stages = static_cast<std::int32_t>(schedule_.stages().size());
    const bool needs_input = task.op != Op::backward_weight && (forward ? s > 0 : s + 1 < stages);
    if (needs_input && !found.input) {
      error(
          "V505", t, task.rank,
          [&] {
            return concat(describe(schedule_, t), " does not read the ", forward ? "forward" : "backward", "'s result of stage ",
                          forward ? s - 1 : s + 1, found.seen);
          },
          "run the stages of a microbatch in order, and bring each result to the next");
    }
    const auto lacks = [&](std::string_view what, std::string_view help) {
      error(
          "V506", t, task.rank, [&] { return concat(describe(schedule_, t), " does not read what its ", what, found.seen); },
          help);
    };
    if (stashes_.takes(task) && !found.stash) {
      lacks("backward_input left", "name the buffer in which the backward_input of its stage and microbatch left activations");
    }
    if (!forward && !found.saved) {
      lacks("forward saved", "run the forward before, and name the buffer in which it left its activations");
    }
  }

  void compute_writes(TaskId t, const Use& use) {
    const Task& task = schedule_.task(t);
    const Buffer& buffer = schedule_.buffer(use.buffer);
    Held& state = contents_[index(use.buffer)];
    if (buffer.kind() == BufferKind::workspace) return;
    if (buffer.kind() == BufferKind::activations) {
      if (use.access == Access::accumulate) {
        error(
            "V510", t, task.rank,
            [&] {
              return concat(describe(schedule_, t), " adds to ", describe(schedule_, use.buffer), ", whose old content stays");
            },
            "write activations, or read and write them in place");
      }
      state = Held{};
      state.holds = task.op == Op::forward              ? Holds::forward_output
                    : stashes_.leaves(task, use.buffer) ? Holds::stash
                                                        : Holds::backward_output;
      state.stage = number(task.stage);
      state.microbatch = task.microbatch;
      state.bytes = buffer.bytes.value();
      state.tensor = layout_.place(task.rank).tensor;
      state.context = layout_.place(task.rank).context;
      if (!layout_.exchanged(schedule_, task.stage)) return;
      if (layout_.tensor > 1) state.lacks |= lacks_sum;
      if (layout_.context > 1) state.lacks |= task.op == Op::forward ? lacks_keys : lacks_keys | lacks_key_gradients;
      return;
    }
    const bool gradient = buffer.kind() == BufferKind::gradients || buffer.kind() == BufferKind::transfer;
    if (!gradient || task.op == Op::forward || task.op == Op::backward_input) return overwrites(t, use);
    const Held made = layout_.gradient_left(schedule_, task, buffer);
    if (use.access == Access::write) {
      partial_.forget(use.buffer);
      state = made;
    } else if (look(t, use).holds == Holds::nothing) {
      state = made;
    } else {
      add(t, use, made);
    }
  }

  const Schedule& schedule_;
  Diagnostics& out_;
  ModelLayout layout_;
  PieceSets pieces_;
  ParameterSets parts_;
  PartialSums partial_;
  std::vector<Held> contents_;  ///< [buffer]
  Stashes stashes_;
  bool has_activations_ = false;
};

}  // namespace tawpipe::detail
