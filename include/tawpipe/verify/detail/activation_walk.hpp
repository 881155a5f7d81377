// How computations use activations: their inputs, what they pass on, save, and leave for later.
// Not: parameters (compute_walk.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/verify/detail/contents_walk.hpp"

namespace tawpipe::inline v0::detail {

/// Whether a computation writes buffers of this kind of activations.
constexpr bool writes_activations(const Passes& passes, ContentKind kind) {
  switch (kind) {
    case ContentKind::activation:
    case ContentKind::activation_gradient:
      return passes.forward || passes.backward_input;
    case ContentKind::saved:
      return passes.forward;
    case ContentKind::stash:
      return passes.backward_input && !passes.backward_weight;
    case ContentKind::weights:
    case ContentKind::gradients:
    case ContentKind::optimizer_state:
    case ContentKind::tokens:
    case ContentKind::scalar:
    case ContentKind::workspace:
      break;
  }
  return false;
}

class ActivationWalk {
 public:
  ActivationWalk(const Schedule& schedule, ContentsWalk& walk) : schedule_{schedule}, walk_{walk} {}

  void compute(TaskId t) {
    const Task& task = schedule_.task(t);
    Found found;
    for (const Use& use : schedule_.uses(t)) {
      const ContentKind kind = walk_.kind(use.buffer);
      if (!is_of_microbatch(kind) || kind == ContentKind::tokens) continue;
      const bool reads = use.access == Access::read || use.access == Access::read_write;
      if (use.access == Access::accumulate) walk_.added(t, use);
      if (reads && walk_.take(use.buffer).made == Made::nothing) {
        walk_.unwritten(t, use);
        found.unwritten = true;
      }
      if (kind == ContentKind::saved || kind == ContentKind::stash) {
        kept(t, use, kind == ContentKind::saved ? Made::saved : Made::stash, found);
        continue;
      }
      if (reads) found.input = &use;
      if (use.access != Access::read) found.output = &use;
      found.inputs += reads ? 1 : 0;
      found.outputs += use.access != Access::read ? 1 : 0;
    }
    if (found.inputs > 1 || found.outputs > 1) {
      walk_.error(
          "V514", t, task.rank,
          [&] {
            return concat(describe(schedule_, t), " reads ", found.inputs, " activations and writes ", found.outputs,
                          "; it has one of each at most");
          },
          "name one buffer that it starts from, and one for its output");
    }
    if (!found.unwritten) expect(t, found);
    sizes(t, found);
    for (const Use& use : schedule_.uses(t)) {
      const ContentKind kind = walk_.kind(use.buffer);
      if (use.access != Access::read && is_of_microbatch(kind) && writes_activations(traits(task.op).passes, kind)) make(t, use);
    }
  }

 private:
  /// The activations that a computation uses.
  struct Found {
    const Use* input = nullptr;
    const Use* output = nullptr;
    int inputs = 0;
    int outputs = 0;
    std::int64_t saved = 0;  ///< bytes of its saved activations that it reads or writes
    std::int64_t stash = 0;
    std::vector<BufferId> kept = {};  ///< the buffers that it writes these into
    bool unwritten = false;           ///< reported already; no second finding for the missing value
    std::string seen;                 ///< what was there instead of the missing value
  };

  /// A buffer with what the task's own forward saved, or its backward_input left.
  void kept(TaskId t, const Use& use, Made made, Found& found) {
    const Task& task = schedule_.task(t);
    std::int64_t& bytes = made == Made::saved ? found.saved : found.stash;
    Activation& held = walk_.activation(use.buffer);
    const bool own = held.made == made && is_of(held, number(task.stage), task);
    if (use.access != Access::read || own) bytes += std::max<std::int64_t>(schedule_.buffer(use.buffer).bytes.value(), 1);
    if (use.access != Access::read) return found.kept.push_back(use.buffer);
    if (!own) found.seen = concat(", but ", held.words());
    held.used = held.used || (own && task.op != Op::forward);
    held.finished = held.finished || (own && task.op == Op::backward_weight);
  }

  /// Whether it comes from a computation of `stage` for the task's microbatch, at the task's own
  /// coordinates among tensor- and context-parallel ranks.
  bool is_of(const Activation& held, std::int32_t stage, const Task& task) const {
    const MeshPlace& place = walk_.model().place(task.rank);
    return held.stage == stage && held.microbatch == task.microbatch && held.tensor == place.tensor &&
           held.context == walk_.model().token_part(place);
  }

  void expect(TaskId t, Found& found) {
    const Task& task = schedule_.task(t);
    const auto s = number(task.stage);
    const StageWork& work = schedule_.stage(task.stage);
    const bool forward = task.op == Op::forward;
    const bool first = forward ? s == 0 : s + 1 == static_cast<std::int32_t>(schedule_.stages().size());
    if (!first && task.op != Op::backward_weight) {
      const Activation* input = found.input == nullptr ? nullptr : &walk_.activation(found.input->buffer);
      const std::int32_t before = forward ? s - 1 : s + 1;
      const Made made = forward ? Made::forward_output : Made::backward_output;
      if (input == nullptr || input->made != made || !is_of(*input, before, task)) {
        walk_.error(
            "V505", t, task.rank,
            [&] {
              return concat(describe(schedule_, t), " does not read the ", forward ? "forward" : "backward",
                            "'s result of stage ", before, input == nullptr ? "" : concat(", but ", input->words()));
            },
            "run the stages of a microbatch in order, and bring each result to the next");
      }
    }
    const auto foreign = [&] {
      walk_.error(
          "V506", t, task.rank, [&] { return concat(describe(schedule_, t), " reads what it has no use for", found.seen); },
          "let a backward read what its own forward saved, and its own backward_input left, and nothing else of this kind");
    };
    if (forward) {
      if (!found.seen.empty()) foreign();
      return;
    }
    bool complete = true;
    const auto lacks = [&](std::string_view what, std::int64_t bytes, Bytes needed, std::string_view help) {
      complete = false;
      walk_.error(
          "V506", t, task.rank,
          [&] {
            const std::string part = bytes > 0
                                         ? concat(" all of what its ", what, ", but ", bytes, " of ", needed.value(), " bytes")
                                         : concat(" what its ", what, found.seen);
            return concat(describe(schedule_, t), " does not read", part);
          },
          help);
    };
    if (task.op == Op::backward_weight && found.stash < work.stash.value()) {
      lacks("backward_input left", found.stash, work.stash,
            "name the buffer in which the backward_input of its stage and microbatch left activations");
    }
    // A backward_input may have read a part that is then released.
    if (found.saved == 0 || (task.op != Op::backward_weight && found.saved < work.saved.value())) {
      lacks("forward saved", found.saved, work.saved,
            "run the forward before, and name the buffers in which it left its activations");
    }
    if (complete && !found.seen.empty()) foreign();
  }

  /// Checks that the buffers written by the task are large enough.
  void sizes(TaskId t, const Found& found) {
    const Task& task = schedule_.task(t);
    const StageWork& work = schedule_.stage(task.stage);
    const auto check = [&](std::int64_t bytes, std::int64_t needed, std::string_view what) {
      if (bytes < needed) walk_.too_small(t, task.rank, bytes, needed, what);
    };
    const Passes passes = traits(task.op).passes;
    if (passes.forward && found.saved > 0) check(found.saved, work.saved.value(), "what it saves for its backward");
    if (task.op == Op::backward_input && found.stash > 0) {
      check(found.stash, work.stash.value(), "what it leaves for its backward_weight");
    }
    const std::int64_t needed = passes.forward ? work.saved.value() : work.stash.value();
    std::int64_t held = 0;
    for (const BufferId buffer : found.kept) held += schedule_.buffer(buffer).bytes.value();
    const bool own = std::none_of(found.kept.begin(), found.kept.end(),
                                  [&](BufferId buffer) { return schedule_.buffer(buffer).content.is_slot(); });
    if (found.kept.size() == 1 && !own) walk_.holds(found.kept[0], needed);
    if (own && held > needed) {
      walk_.error(
          "V116", t, task.rank,
          [&] { return concat(describe(schedule_, t), " has ", held, " bytes for what it keeps, which takes ", needed); },
          "let the buffers that a task fills be as large as what it puts into them");
    }
    if (found.output != nullptr && (passes.forward || passes.backward_input)) {
      const std::int64_t bytes = schedule_.buffer(found.output->buffer).bytes.value();
      check(bytes, output_bytes(task), "what it hands on");
    }
  }
  /// Bytes that a computation passes on; 0 for the last.
  std::int64_t output_bytes(const Task& task) const {
    const auto stages = static_cast<std::int32_t>(schedule_.stages().size());
    const std::int32_t before = task.op == Op::forward ? number(task.stage) : number(task.stage) - 1;
    return before < 0 || before + 1 == stages ? 0 : schedule_.stages()[static_cast<std::size_t>(before)].boundary.value();
  }

  void make(TaskId t, const Use& use) {
    const Task& task = schedule_.task(t);
    const ContentKind kind = walk_.kind(use.buffer);
    const MeshPlace& place = walk_.model().place(task.rank);
    Activation made{.stage = number(task.stage),
                    .microbatch = task.microbatch,
                    .tensor = place.tensor,
                    .context = walk_.model().token_part(place)};
    made.made = kind == ContentKind::saved   ? Made::saved
                : kind == ContentKind::stash ? Made::stash
                : task.op == Op::forward     ? Made::forward_output
                                             : Made::backward_output;
    if (kind != ContentKind::saved && kind != ContentKind::stash) made.bytes = output_bytes(task);
    walk_.put(t, use, made);
  }

  const Schedule& schedule_;
  ContentsWalk& walk_;
};

}  // namespace tawpipe::detail
