// How computations use parameters: the weights that they need, and the gradients that they produce.
// Not: activations (activation_walk.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tawpipe/verify/detail/activation_walk.hpp"
#include "tawpipe/verify/detail/contents_walk.hpp"

namespace tawpipe::inline v0::detail {

class ComputeWalk {
 public:
  ComputeWalk(const Schedule& schedule, ContentsWalk& walk) : schedule_{schedule}, walk_{walk}, activations_{schedule, walk} {}

  /// A forward, backward, backward_input or backward_weight.
  void compute(TaskId t) {
    const Task& task = schedule_.task(t);
    const Passes passes = traits(task.op).passes;
    for (const Use& use : schedule_.uses(t)) {
      const ContentKind kind = walk_.kind(use.buffer);
      // A workspace holds nothing before a computation and nothing after it: it is written only.
      if (kind == ContentKind::workspace && use.access != Access::write) walk_.unwritten(t, use);
      if (use.access == Access::read) continue;
      const bool gradients = kind == ContentKind::gradients && passes.backward_weight;
      const bool may =
          gradients || kind == ContentKind::workspace || kind == ContentKind::tokens || writes_activations(passes, kind);
      if (!may) walk_.overwrites(t, use);
    }
    if (walk_.model().has_weights) weights(t);
    if (walk_.model().has_activations) activations_.compute(t);
    if (walk_.model().has_weights && passes.backward_weight) gradients(t);
  }

 private:
  // ---- weights ----------------------------------------------------------------------------------

  /// Each run of parameters that the task needs must be complete in one of the weight buffers that
  /// it reads.
  void weights(TaskId t) {
    const Task& task = schedule_.task(t);
    for (const ParameterRange& need : walk_.model().needs(task.stage)) {
      const Use* at = nullptr;
      for (const Use& use : schedule_.uses(t)) {
        const bool read = use.access == Access::read && is_of_parameters(walk_.kind(use.buffer));
        if (read && walk_.rooms()[use.buffer].find(need) >= 0) {
          at = &use;
          break;
        }
      }
      if (at == nullptr || walk_.kind(at->buffer) != ContentKind::weights) return missing_weights(t, need);
      if (!arrived(t, need, *at)) return;
    }
  }

  /// Whether the weights of `need` in a buffer exist, belong to the rank's own part and are not
  /// updated.
  bool arrived(TaskId t, const ParameterRange& need, const Use& use) {
    const Task& task = schedule_.task(t);
    const MeshPlace& here = walk_.model().place(task.rank);
    std::int64_t there = 0;
    bool updated = false;
    std::optional<std::int32_t> other;
    for (const bool experts : {false, true}) {
      const std::int32_t mine = walk_.model().weights_part(here, experts);
      for (const ParameterRange& range : walk_.model().part_of(need, experts)) {
        walk_.values(use.buffer).visit(range, [&](const ParameterRange& part, const ParameterValue* value) {
          if (value == nullptr) return;
          there += part.count();
          updated = updated || value->updated;
          if (value->part != mine) other = value->part;
        });
      }
    }
    if (there == 0 && walk_.values(use.buffer).empty()) {
      walk_.unwritten(t, use);
    } else if (there < need.count()) {
      walk_.error(
          "V503", t, task.rank,
          [&] {
            return concat(describe(schedule_, t), " reads weights of which ", there, " of ", need.count(),
                          " parameters have arrived in ", describe(schedule_, use.buffer), ": ", describe(schedule_, need));
          },
          "gather the pieces of all ranks that hold one before the task");
    } else if (other) {
      const int tensor = walk_.model().tensor;
      no_weights(t, concat(", but those of ", *other < tensor ? "tensor-parallel rank " : "experts of part ",
                           *other < tensor ? *other : *other - tensor, " in ", describe(schedule_, use.buffer)));
    } else if (updated) {
      walk_.error(
          "V504", t, task.rank,
          [&] { return concat(describe(schedule_, t), " reads ", describe(schedule_, use.buffer), " after its update"); },
          "move the update after the last forward and backward of the iteration");
    } else {
      walk_.need(use.buffer, need);
      return true;
    }
    return false;
  }

  void missing_weights(TaskId t, const ParameterRange& need) {
    std::int64_t found = 0;
    std::string seen;
    for (const Use& use : schedule_.uses(t)) {
      if (use.access != Access::read || walk_.kind(use.buffer) != ContentKind::weights) continue;
      if (walk_.values(use.buffer).empty()) {
        if (schedule_.buffer(use.buffer).content.is_slot()) return walk_.unwritten(t, use);
        continue;
      }
      walk_.values(use.buffer).visit(need, [&](const ParameterRange& part, const ParameterValue* value) {
        found += value == nullptr ? 0 : part.count();
      });
      const std::int32_t stage = walk_.model().stage_of(walk_.values(use.buffer).pieces()[0].range.begin);
      seen = concat(", but those of stage ", stage, " in ", describe(schedule_, use.buffer));
    }
    if (found == 0) return no_weights(t, seen);
    walk_.error(
        "V503", t, schedule_.task(t).rank,
        [&] {
          return concat(describe(schedule_, t), " reads weights of which ", found, " of ", need.count(),
                        " parameters are there, not in one piece: ", describe(schedule_, need));
        },
        "let one buffer have room for all of a stage's layers, in their order");
  }
  void no_weights(TaskId t, const std::string& seen) {
    walk_.error(
        "V502", t, schedule_.task(t).rank,
        [&] { return concat(describe(schedule_, t), " reads no weights of stage ", number(schedule_.task(t).stage), seen); },
        "name the buffer with the weights of the task's own stage");
  }

  // ---- gradients --------------------------------------------------------------------------------

  /// Adds the microbatch's contribution for each run of parameters, in the first buffer that has
  /// room for it.
  void gradients(TaskId t) {
    const Task& task = schedule_.task(t);
    const MeshPlace& here = walk_.model().place(task.rank);
    const WholeModel& model = walk_.model();
    const std::uint64_t dense = model.contribution(number(task.stage), task.microbatch, here.tensor, model.token_part(here));
    const std::uint64_t of_experts = model.contribution_of_experts(number(task.stage), task.microbatch, model.expert_part(here));
    for (const Use& use : schedule_.uses(t)) {
      if (use.access != Access::write || walk_.kind(use.buffer) != ContentKind::gradients) continue;
      walk_.values(use.buffer).clear();
      for (const ParameterRange& range : walk_.rooms()[use.buffer].ranges()) walk_.values(use.buffer).set(range, {});
      walk_.room(t, use);
    }
    for (const ParameterRange& need : walk_.model().needs(task.stage)) {
      const Use* at = nullptr;
      for (const Use& use : schedule_.uses(t)) {
        const bool fits = use.access != Access::read && walk_.kind(use.buffer) == ContentKind::gradients &&
                          walk_.rooms()[use.buffer].find(need) >= 0;
        if (fits && at == nullptr) at = &use;
      }
      if (at == nullptr) {
        walk_.error(
            "V507", t, task.rank,
            [&] {
              return concat(describe(schedule_, t), " adds its gradient to no buffer with room for its stage's ",
                            describe(schedule_, need));
            },
            "name the buffer that sums the stage's gradient; of a slot, let the task's split say what it leaves there");
        return;
      }
      bool defined = true;
      for (const bool experts : {false, true}) {
        for (const ParameterRange& range : model.part_of(need, experts)) {
          walk_.values(at->buffer).change(range, [&](const ParameterRange&, const ParameterValue* old) {
            defined = defined && old != nullptr;
            ParameterValue value = old == nullptr ? ParameterValue{} : *old;
            value.sum += experts ? of_experts : dense;
            ++value.contributions;
            return std::optional{value};
          });
        }
      }
      if (!defined) walk_.unwritten(t, *at);
    }
  }

  const Schedule& schedule_;
  ContentsWalk& walk_;
  ActivationWalk activations_;
};

}  // namespace tawpipe::detail
