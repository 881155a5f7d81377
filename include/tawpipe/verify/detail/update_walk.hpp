// Checks what updates use: the whole gradient of every parameter, once, and persistent model states
// (V703 to V709, V515).
// Not: how gradients got there (message_walk.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tawpipe/verify/detail/contents_walk.hpp"

namespace tawpipe::inline v0::detail {

/// Checks the updates during a walk, and the final state at its end.
class UpdateWalk {
 public:
  UpdateWalk(const Schedule& schedule, ContentsWalk& walk)
      : schedule_{schedule},
        walk_{walk},
        updates_(schedule.buffers().size(), 0),
        twice_(updates_.size(), 0),
        users_(updates_.size(), 0),
        from_host_(updates_.size(), 0),
        expected_(parts(schedule)) {
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      if (schedule.tasks()[t].op == Op::copy_from_host) {
        for (const Use& use : schedule.uses(id<TaskId>(t))) from_host_[index(use.buffer)] = use.access == Access::read ? 0 : 1;
      }
      if (schedule.tasks()[t].op != Op::update) continue;
      for (const Use& use : schedule.uses(id<TaskId>(t))) ++users_[index(use.buffer)];
    }
    gradients_.resize(static_cast<std::size_t>(schedule.ranks()));
    for (std::size_t b = 0; b < schedule.buffers().size(); ++b) {
      const Buffer& buffer = schedule.buffers()[b];
      if (buffer.persistent && buffer.kind() == BufferKind::gradients) gradients_[index(buffer.rank)].push_back(id<BufferId>(b));
    }
  }

  void update(TaskId t) {
    const Task& task = schedule_.task(t);
    Named weights;
    Named optimizer;
    Named gradient;
    for (const Use& use : schedule_.uses(t)) {
      const ContentKind kind = walk_.kind(use.buffer);
      // Weights may be overwritten: the optimizer states include a copy in full precision. Not
      // where other updates change pieces of them, to which the gradient is left as it is, too.
      const bool shared = users_[index(use.buffer)] > 1;
      const bool changed = (use.access == Access::read_write && !(shared && kind == ContentKind::gradients)) ||
                           (use.access == Access::write && kind == ContentKind::weights && !shared);
      if (kind == ContentKind::weights || kind == ContentKind::optimizer_state) {
        (kind == ContentKind::weights ? weights : optimizer).add(use.buffer, changed);
        if (changed && kind == ContentKind::optimizer_state) {
          change_states(t, use);
        } else if (changed) {
          ++updates_[index(use.buffer)];
          if (from_host_[index(use.buffer)] == 0) kept(t, use);  // otherwise they must get back there: finish()
        }
      } else if (kind == ContentKind::gradients && (use.access == Access::read || changed)) {
        gradient.add(use.buffer, true);
      } else if (use.access != Access::read && kind != ContentKind::workspace) {
        walk_.overwrites(t, use);
      }
    }
    if (!weights.changed) {
      return walk_.error(
          "V707", t, task.rank, [&] { return concat(describe(schedule_, t), " changes no weights"); },
          "name the weights that it updates");
    }
    if (weights.count != 1 || optimizer.count != 1 || gradient.count != 1) {
      walk_.error(
          "V707", t, task.rank,
          [&] {
            return concat(describe(schedule_, t), " names ", weights.count, " buffers of weights, ", optimizer.count,
                          " of optimizer states and ", gradient.count, " of gradients");
          },
          "an update has one of each");
    }
    if (weights.count > 1) twice_[index(weights.buffer)] = 1;
    if (optimizer.count == 0 || gradient.count == 0) return;
    const StageId stage = schedule_.buffer(weights.buffer).stage();
    if (task.stage != stage) {
      walk_.error(
          "V507", t, task.rank, [&] { return concat(describe(schedule_, t), " updates ", describe(schedule_, weights.buffer)); },
          "give the update the stage of its weights");
    }
    if (walk_.values(gradient.buffer).empty() && walk_.rooms()[optimizer.buffer].count() > 0) {
      walk_.unwritten(t, {gradient.buffer, Access::read});
    } else {
      compare(t, optimizer.buffer, gradient.buffer, stage);
    }
    change(t, weights.buffer, optimizer.buffer);
  }

  /// Reports weights and optimizer states changed by no update, or by more than one.
  void finish() {
    for (std::size_t b = 0; b < updates_.size(); ++b) {
      const BufferId id = tawpipe::id<BufferId>(b);
      const Buffer& buffer = schedule_.buffer(id);
      const ContentKind kind = buffer.content.kind();
      const bool is_weights = kind == ContentKind::weights;
      if (!buffer.persistent || buffer.copy || !(is_weights || kind == ContentKind::optimizer_state)) continue;
      const std::int64_t all = walk_.rooms()[id].count();
      if (updates_[b] > 1 && (!is_weights || all == 0 || twice_[b] != 0)) {  // of weights, each may update a piece
        states(id, "V706", concat(" is updated ", updates_[b], " times"));
        continue;
      }
      std::int64_t updated = 0;
      std::int64_t renewed = 0;
      if (is_weights) count_left(id, updated, renewed);
      if (!is_weights && updates_[b] == 1 && !walk_.states(id).updated) {
        states(id, "V709", " does not get its states back after their update");
        continue;
      }
      const bool once = updates_[b] == 1 || (!is_weights && buffer.bytes == Bytes{});
      if (is_weights ? updated + renewed == all && (all > 0 || once) : once) continue;
      if (updates_[b] == 0 && updated == 0) {
        states(id, "V705", " is never updated");
        continue;
      }
      walk_.error(
          "V709", none<TaskId>, buffer.rank,
          [&] { return concat(describe(schedule_, id), " ends with ", updated, " of ", all, " parameters updated"); },
          "gather the updated weights from the ranks that updated them, here or before the next iteration reads them");
    }
  }

 private:
  /// The buffers of one kind that an update uses.
  struct Named {
    BufferId buffer = none<BufferId>;
    int count = 0;
    bool changed = false;

    void add(BufferId named, bool changes) {
      if (!changed || changes) buffer = named;
      ++count;
      changed = changed || changes;
    }
  };
  /// The required gradient of a parameter.
  struct Expected {
    std::uint64_t sum = 0;
    std::int64_t contributions = 0;

    bool operator==(const Expected&) const = default;
  };

  static std::size_t parts(const Schedule& schedule) {
    const Mesh& mesh = schedule.parts().mesh;
    return static_cast<std::size_t>(mesh.whole_experts ? mesh.shared() : mesh.tensor);
  }

  /// Counts the parameters of weights that an iteration leaves updated, and those that it leaves as
  /// they were, but brings from elsewhere before anything reads them.
  void count_left(BufferId weights, std::int64_t& updated, std::int64_t& renewed) {
    const WholeModel& model = walk_.model();
    const MeshPlace& place = model.place(schedule_.buffer(weights).rank);
    for (const auto& piece : walk_.values(weights).pieces()) {
      for (const bool experts : {false, true}) {
        if (piece.value.part != model.weights_part(place, experts)) continue;
        for (const ParameterRange& own : model.part_of(piece.range, experts)) {
          if (piece.value.updated) updated += own.count();
          if (!piece.value.updated && !piece.value.kept && !piece.value.needed) renewed += own.count();
        }
      }
    }
  }

  void states(BufferId buffer, std::string_view code, const std::string& what) {
    walk_.error(
        code, none<TaskId>, schedule_.buffer(buffer).rank, [&] { return concat(describe(schedule_, buffer), what); },
        "every rank updates what it owns once, reading and writing the optimizer states in place");
  }

  /// Optimizer states must be changed where they are kept, or in a copy that is copied back.
  void change_states(TaskId t, const Use& use) {
    if (!schedule_.buffer(use.buffer).copy) kept(t, use);
    auto& states = walk_.states(use.buffer);
    if (states.owner == none<BufferId>) return walk_.unwritten(t, use);
    if (states.owner != use.buffer) kept(t, {states.owner, use.access});
    ++updates_[index(states.owner)];
    states.updated = true;
  }

  /// Data that an update changes must persist to the next iteration.
  void kept(TaskId t, const Use& use) {
    const Buffer& buffer = schedule_.buffer(use.buffer);
    if (buffer.persistent && !buffer.copy) return;
    walk_.error(
        "V515", t, buffer.rank,
        [&] {
          return concat(describe(schedule_, t), " changes ", describe(schedule_, use.buffer),
                        buffer.copy ? ", a copy" : ", which is not held until the next iteration");
        },
        "update persistent weights and optimizer states, of which nothing else is the owner");
  }

  const ParameterMap<Expected>& expected(const MeshPlace& place) {
    const WholeModel& model = walk_.model();
    const int tensor = place.tensor;
    const int part = model.expert_parts > 0 ? model.expert_part(place) : tensor;
    ParameterMap<Expected>& map = expected_[static_cast<std::size_t>(part)];
    if (!map.empty()) return map;
    const std::int64_t microbatches = schedule_.workload().microbatches();
    for (std::size_t s = 0; s < schedule_.stages().size(); ++s) {
      Expected all{0, microbatches * model.context};
      for (std::int64_t m = 0; m < microbatches; ++m) {
        for (int c = 0; c < model.context; ++c) all.sum += model.contribution(static_cast<std::int64_t>(s), m, tensor, c);
      }
      Expected of_experts{0, microbatches};
      for (std::int64_t m = 0; m < microbatches && model.expert_parts > 0; ++m)
        of_experts.sum += model.contribution_of_experts(static_cast<std::int64_t>(s), m, part);
      for (const ParameterRange& need : model.needs(id<StageId>(s))) {
        for (const bool experts : {false, true}) {
          const Expected& added = experts ? of_experts : all;
          for (const ParameterRange& range : model.part_of(need, experts)) {
            map.change(range, [&](const ParameterRange&, const Expected* old) {
              return std::optional{old == nullptr ? added
                                                  : Expected{old->sum + added.sum, old->contributions + added.contributions}};
            });
          }
        }
      }
    }
    return map;
  }

  void compare(TaskId t, BufferId optimizer, BufferId gradient, StageId stage) {
    // With more microbatches than tasks, most contributions are missing, and their sum would take
    // too long.
    if (schedule_.workload().microbatches() > static_cast<std::int64_t>(schedule_.tasks().size())) return;
    const Rank rank = schedule_.task(t).rank;
    const ParameterMap<Expected>& expected = this->expected(walk_.model().place(rank));
    const PackedParameters& states = walk_.rooms()[optimizer];
    found_.clear();
    for (const ParameterRange& range : states.ranges()) {
      walk_.values(gradient).visit(range, [&](const ParameterRange& part, const ParameterValue* value) {
        if (value != nullptr) found_.set(part, {value->sum, value->contributions});
      });
    }
    // If a rank has two copies of a tied matrix, each is updated by the sum of both gradients.
    for (const BufferId other : gradients_[index(rank)]) {
      if (schedule_.buffer(other).stage() != stage) add_twin(states, other);
    }
    bool reported = false;
    for (const ParameterRange& range : states.ranges()) {
      expected.visit(range, [&](const ParameterRange& part, const Expected* wanted) {
        found_.visit(part, [&](const ParameterRange& sub, const Expected* found) {
          if (reported || wanted == nullptr || (found != nullptr && *found == *wanted)) return;
          reported = true;
          differs(t, sub, found, *wanted);
        });
      });
    }
  }

  /// Adds another gradient of the rank for the same parameters.
  void add_twin(const PackedParameters& states, BufferId other) {
    for (const ParameterRange& room : walk_.rooms()[other].ranges()) {
      states.for_each_part(room, [&](const ParameterRange& both, std::int64_t) {
        walk_.values(other).visit(both, [&](const ParameterRange& part, const ParameterValue* value) {
          found_.change(part, [&](const ParameterRange&, const Expected* own) {
            if (own == nullptr) return std::optional<Expected>{};
            if (value == nullptr) return std::optional{Expected{~own->sum, own->contributions}};  // no sum at all
            return std::optional{Expected{own->sum + value->sum, own->contributions + value->contributions}};
          });
        });
      });
    }
  }

  /// Reports a gradient that is not the required one.
  void differs(TaskId t, const ParameterRange& range, const Expected* found, const Expected& wanted) {
    const bool too_much = found != nullptr && found->contributions >= wanted.contributions;
    walk_.error(
        too_much ? "V704" : "V703", t, schedule_.task(t).rank,
        [&] {
          const std::string where = concat(", of ", describe(schedule_, range));
          if (found == nullptr) return concat(describe(schedule_, t), " sees no gradient", where);
          return concat(describe(schedule_, t), " sees a gradient of ", found->contributions, " contributions instead of ",
                        wanted.contributions, single(t, range, wanted.sum - found->sum), where);
        },
        too_much ? "let each backward's gradient arrive once; a buffer holding an old sum may have been added again"
                 : "bring the gradient of every microbatch into the owner's sum before its update");
  }

  /// Names the single contribution that explains the difference of two sums, if there is one.
  std::string single(TaskId t, const ParameterRange& range, std::uint64_t difference) const {
    const WholeModel& model = walk_.model();
    const int tensor = model.place(schedule_.task(t).rank).tensor;
    for (std::size_t s = 0; s < schedule_.stages().size(); ++s) {
      bool has = false;
      for (const ParameterRange& need : model.needs(id<StageId>(s)))
        has = has || (need.begin <= range.begin && range.begin < need.end);
      if (!has) continue;
      for (std::int64_t m = 0; m < schedule_.workload().microbatches(); ++m) {
        for (int c = 0; c < model.context; ++c) {
          const std::uint64_t one = model.contribution(static_cast<std::int64_t>(s), m, tensor, c);
          if (difference != one && difference != ~one + 1) continue;
          return concat(": stage ", s, ", microbatch ", m, model.context > 1 ? concat(", context rank ", c) : "",
                        difference == one ? " is missing" : " counts twice");
        }
      }
    }
    return {};
  }

  /// Marks as updated the weights that have optimizer states.
  void change(TaskId t, BufferId weights, BufferId optimizer) {
    std::int64_t updated = 0;
    for (const ParameterRange& range : walk_.rooms()[optimizer].ranges()) {
      walk_.values(weights).change(range, [&](const ParameterRange& part, const ParameterValue* old) {
        if (old == nullptr) return std::optional<ParameterValue>{};
        updated += part.count();
        if (old->updated) twice_[index(weights)] = 1;
        ParameterValue value = *old;
        value.updated = true;
        return std::optional{value};
      });
    }
    const std::int64_t all = walk_.rooms()[optimizer].count();
    if (updated == all) return;
    walk_.error(
        "V707", t, schedule_.task(t).rank,
        [&] { return concat(describe(schedule_, t), " has optimizer states of ", all, " parameters, and weights of ", updated); },
        "let the optimizer states be of parameters among the update's weights");
  }

  const Schedule& schedule_;
  ContentsWalk& walk_;
  /// [buffer] number of updates of weights and optimizer states
  std::vector<std::uint32_t> updates_;
  /// [buffer] of weights, some of which two updates changed
  std::vector<char> twice_;
  std::vector<std::uint32_t> users_;              ///< [buffer] updates that name it
  std::vector<char> from_host_;                   ///< [buffer] whether a copy from host memory fills it
  std::vector<ParameterMap<Expected>> expected_;  ///< [part of the parameters]
  ParameterMap<Expected> found_;                  ///< of the current update
  std::vector<std::vector<BufferId>> gradients_;  ///< [rank] persistent gradients
};

}  // namespace tawpipe::detail
