// A composed schedule with the bodies of its stages written out: each computation that ranks share
// becomes its steps, with the collectives among these ranks on lanes of their own, and buckets wait
// for steps, or steps for them.
// Not: what the steps are (model/shared_stage.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/detail/body_tasks.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

namespace tawpipe::inline v0 {

/// Whether a schedule has bodies that are not written out, or buckets.
inline bool has_bodies(const Schedule& schedule) {
  const Schedule::Parts& parts = schedule.parts();
  return (!parts.bodies.empty() && parts.mesh.shared() > 1) || !parts.buckets.empty();
}

/// A schedule with its stages' bodies written out.
struct ExpandedSchedule {
  /// What simulators run. Tasks keep their stage and microbatch; a computation's `split` says which
  /// step it is (Schedule::work).
  Schedule schedule;
  std::vector<TaskId> first;  ///< [task of the schedule that was expanded] its first step
  std::vector<TaskId> last;   ///< and its last
};

/// Writes out the bodies. Complexity: O(steps of all computations). @pre has_bodies(schedule)
TAWPIPE_INLINE ExpandedSchedule expand_bodies(const Schedule& schedule);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "tawpipe/schedule/detail/bucket_steps.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Rewrites a schedule. The copies of a shared computation are consecutive in a composed
/// schedule; their steps are written together, in the order of the body. The first and the last
/// step of a copy use what the computation uses, so that buffers live as long, and what waits for
/// the computation waits for its last step, except buckets. Buckets use nothing: they are given
/// what they wait for. A forward and a backward next to each other take turns where their stages do
/// (SharedStage::alternates): the backward begins, as Megatron-LM launches them.
/// Source: Megatron-LM, core/models/common/model_chunk_schedule_plan.py:
/// TransformerLayerSchedulePlan.run.
class BodyExpander {
 public:
  explicit BodyExpander(const Schedule& schedule)
      : from_{schedule}, mesh_{schedule.parts().mesh}, builder_{schedule}, buckets_{schedule} {
    const Schedule::Parts& parts = schedule.parts();
    builder_.bodies({});  // written out
    if (mesh_.tensor > 1) lanes_[0] = builder_.lane("tensor_parallel");
    if (mesh_.context > 1) lanes_[1] = builder_.lane("context_parallel");
    if (mesh_.whole_experts && mesh_.shared() > 1) lanes_[2] = builder_.lane("expert_parallel");
    std::vector<char> written(static_cast<std::size_t>(schedule.ranks()), 0);
    for (const Task& task : parts.tasks) {
      if (is_compute(task.op)) written[index(task.rank)] = 1;
    }
    builder_.written_ranks(std::move(written));
    for (const Buffer& buffer : parts.buffers) builder_.buffer(buffer);
    first_.assign(parts.tasks.size(), none<TaskId>);
    last_ = first_;
  }

  std::vector<TaskId> take_first() { return std::move(first_); }
  std::vector<TaskId> take_last() { return std::move(last_); }

  Schedule build() {
    const std::size_t count = from_.tasks().size();
    for (std::size_t t = 0; t < count;) {
      const StageBody* body = body_of(from_, from_.tasks()[t]);
      const CutPass cut = body == nullptr ? buckets_.cut_of(id<TaskId>(t)) : CutPass{};
      if (!cut.body.empty()) body = &cut.body;
      if (body == nullptr) {
        const bool bucket = from_.bucket(id<TaskId>(t)) != nullptr;
        first_[t] = last_[t] =
            builder_.add(from_.tasks()[t], bucket ? std::span<const Use>{} : from_.uses(id<TaskId>(t)), waits(t));
        ++t;
      } else if (const std::size_t partner = partner_of(t); partner > t) {
        t = add_pairs(t, partner);
      } else {
        const std::size_t end = end_of_copies(t);
        Part part = begin_body(*body, cut.parts, t, end);
        for (std::size_t s = 0; s < body->size(); ++s) add_step(part, s);
        finish(part);
        t = end;
      }
    }
    return builder_.build();
  }

 private:
  /// Past the last copy of the computation that begins at `first`, of one replica.
  std::size_t end_of_copies(std::size_t first) const {
    const auto tasks = from_.tasks();
    const Task& task = tasks[first];
    const MeshPlace place = mesh_.place(task.rank);
    std::size_t end = first + 1;
    for (; end < tasks.size(); ++end) {
      const Task& next = tasks[end];
      if (next.op != task.op || next.stage != task.stage || next.microbatch != task.microbatch || next.rank == task.rank) break;
      const MeshPlace other = mesh_.place(next.rank);
      if (other.pipeline != place.pipeline || other.data != place.data) break;
    }
    return end;
  }

  /// What the copy waited for; of the buckets with weights, only those without a step of their own.
  const std::vector<TaskId>& waits(std::size_t task, const StageBody* body = nullptr) {
    after_.clear();
    const bool sums = !buckets_.empty() && is_sum(from_.tasks()[task].op);
    const Bucket* const sum = sums ? from_.bucket(id<TaskId>(task)) : nullptr;
    const std::span<const Bucket> later = body == nullptr ? std::span<const Bucket>{} : buckets_.gathered(id<TaskId>(task));
    for (const TaskId earlier : from_.dependencies(id<TaskId>(task))) {
      const auto is_later = [&](const Bucket& one) { return one.message == earlier && has_layer(*body, one.layer); };
      if (std::any_of(later.begin(), later.end(), is_later)) continue;
      const TaskId step = sum == nullptr ? none<TaskId> : buckets_.step(earlier, sum->layer);
      after_.push_back(step == none<TaskId> ? last_[index(earlier)] : step);
    }
    return after_;
  }
  static bool has_layer(const StageBody& body, std::int32_t layer) {
    return std::any_of(body.begin(), body.end(), [&](const BodyStep& step) { return step.layer == layer; });
  }
  /// Lets a step wait for the buckets with the weights of its layer.
  void wait_for_buckets(std::size_t task, std::int32_t layer) {
    if (buckets_.empty() || layer < 0) return;
    for (const Bucket& bucket : buckets_.gathered(id<TaskId>(task))) {
      if (bucket.layer == layer) after_.push_back(last_[index(bucket.message)]);
    }
  }

  /// The copies of a computation whose steps are being written.
  struct Part {
    const StageBody* body = nullptr;
    std::size_t begin = 0;  ///< the first copy
    std::size_t copies = 0;
    const std::vector<SplitId>* numbers = nullptr;
    std::vector<TaskId> added = {};  ///< [step * copies + copy]
    std::size_t next = 0;            ///< step
    /// Of a pair: the step at which saved activations are written, or read for the last time. One
    /// computation keeps layer by layer what the other releases, so that together they hold as much
    /// as one. 0: at the first and the last step, as other buffers.
    std::size_t middle = 0;
    std::optional<std::size_t> other = {};  ///< of a pair's first: the other's first copy, whose inputs it awaits too
  };

  /// The copies of the backward, of whatever replica, next to the forward that begins at `first`, if
  /// the two take turns; else 0.
  std::size_t partner_of(std::size_t first) const {
    const auto tasks = from_.tasks();
    const Task& task = tasks[first];
    if (task.op != Op::forward || from_.parts().bodies.empty() || !from_.parts().bodies[index(task.stage)].alternates) return 0;
    std::size_t next = end_of_copies(first);
    const auto is_copy = [&](const Task& one) { return one.op == task.op && one.stage == task.stage && one.rank != task.rank; };
    while (next < tasks.size() && is_copy(tasks[next])) next = end_of_copies(next);
    if (next == tasks.size() || (tasks[next].op != Op::backward && tasks[next].op != Op::backward_input)) return 0;
    const Task& other = tasks[next];
    if (other.rank != task.rank || body_of(from_, other) == nullptr) return 0;
    const std::size_t end = std::min(tasks.size(), next + (next - first));
    for (std::size_t t = next; t < end; ++t) {
      for (const TaskId earlier : from_.dependencies(id<TaskId>(t))) {
        if (index(earlier) >= first) return 0;
      }
    }
    return next;
  }
  /// Writes the forwards first .. partner - 1 of all replicas with their backwards. @return past these
  std::size_t add_pairs(std::size_t first, std::size_t partner) {
    const std::size_t after_forwards = partner;
    while (first < after_forwards) {
      const std::size_t forward_end = end_of_copies(first);
      const std::size_t backward_end = end_of_copies(partner);
      Part forward = begin_body(*body_of(from_, from_.tasks()[first]), {}, first, forward_end);
      Part backward = begin_body(*body_of(from_, from_.tasks()[partner]), {}, partner, backward_end);
      forward.middle = middle_of(*forward.body);
      backward.middle = middle_of(*backward.body);
      backward.other = forward.begin;
      while (forward.next < forward.body->size() || backward.next < backward.body->size()) {
        for (Part* const part : {&backward, &forward}) {
          for (const std::size_t end = end_of_turn(*part->body, part->next); part->next < end;) add_step(*part, part->next);
        }
      }
      finish(forward);
      finish(backward);
      // Both send what they give at the end of the block (schedules::Action::joined).
      for (std::size_t copy = 0; copy < forward.copies; ++copy) {
        TaskId& one = last_[forward.begin + copy];
        TaskId& other = last_[backward.begin + copy];
        one = other = std::max(one, other);
      }
      first = forward_end;
      partner = backward_end;
    }
    return partner;
  }

  /// A computation in the middle of a body, neither its first nor its last step; 0: there is none.
  static std::size_t middle_of(const StageBody& body) {
    std::size_t s = body.size() / 2;
    while (s > 0 && !body[s].is_compute()) --s;
    return s + 1 < body.size() ? s : 0;
  }
  /// What a step uses of what its computation does.
  std::span<const Use> uses_of(const Part& part, std::size_t s, TaskId original) {
    const bool outer = s == 0 || s + 1 == part.body->size();
    const std::span<const Use> all = from_.uses(original);
    if (part.middle == 0) return outer ? all : std::span<const Use>{};
    uses_.clear();
    for (const Use& use : all) {
      const bool saved = from_.buffer(use.buffer).content.kind() == ContentKind::saved;
      if (saved ? s == part.middle : outer) uses_.push_back(use);
    }
    return uses_;
  }

  /// Begins with the steps of the copies begin .. end - 1. @pre the first and the last step compute
  /// @param parts  [step] of a computation that is cut; none: the steps are those of a shared stage
  Part begin_body(const StageBody& body, const std::vector<StageWork>& parts, std::size_t begin, std::size_t end) {
    Part part{.body = &body, .begin = begin, .copies = end - begin};
    part.added.assign(body.size() * part.copies, none<TaskId>);
    part.numbers = &numbers_of(body, parts, from_.tasks()[begin]);
    return part;
  }
  /// Writes a step of all copies.
  void add_step(Part& part, std::size_t s) {
    const StageBody& body = *part.body;
    part.next = s + 1;
    if (!body[s].is_compute()) {
      add_collectives(part, s);
      return;
    }
    for (std::size_t copy = 0; copy < part.copies; ++copy) {
      const std::size_t original = part.begin + copy;
      Task task = from_.tasks()[original];
      task.split = (*part.numbers)[s];
      if (s == 0) {
        waits(original, &body);
        if (part.other) {
          const std::vector<TaskId> own = after_;
          waits(*part.other + copy, &body);
          after_.insert(after_.end(), own.begin(), own.end());
        }
      } else {
        task.bytes = {};  // the first step copies what the computation does
        after_.clear();
      }
      wait_for(part, body[s], copy);
      wait_for_buckets(original, body[s].layer);
      part.added[s * part.copies + copy] = builder_.add(task, uses_of(part, s, id<TaskId>(original)), after_);
      buckets_.note(id<TaskId>(original), body[s].layer, part.added[s * part.copies + copy]);
    }
  }
  void finish(const Part& part) {
    for (std::size_t copy = 0; copy < part.copies; ++copy) {
      first_[part.begin + copy] = part.added[copy];
      last_[part.begin + copy] = part.added[(part.body->size() - 1) * part.copies + copy];
    }
  }

  void wait_for(const Part& part, const BodyStep& step, std::size_t copy) {
    for (const std::int32_t earlier : step.after) {
      if (earlier >= 0) after_.push_back(part.added[static_cast<std::size_t>(earlier) * part.copies + copy]);
    }
  }

  /// A step's collectives, one for each group along its axis that has a copy.
  void add_collectives(Part& part, std::size_t s) {
    const BodyStep& step = (*part.body)[s];
    const std::size_t begin = part.begin;
    const std::size_t copies = part.copies;
    for (std::size_t first = 0; first < copies; ++first) {
      if (part.added[s * copies + first] != none<TaskId>) continue;
      const Task& original = from_.tasks()[begin + first];
      const MeshPlace place = first_of(mesh_.place(original.rank), step.axis);
      const GroupId group = group_of(place, step.axis);
      Task task{.op = op_of(step.kind),
                .payload = step.gradients ? Payload::activation_gradients : Payload::activations,
                .lane = lanes_[static_cast<int>(step.axis)],
                .group = group,
                .stage = original.stage,
                .microbatch = original.microbatch,
                .bytes = step.bytes};
      if (has_pairs(step)) task.split = sizes_of(step, size_of(step.axis));
      std::vector<std::size_t> members;
      after_.clear();
      for (std::size_t copy = first; copy < copies; ++copy) {
        if (!(first_of(mesh_.place(from_.tasks()[begin + copy].rank), step.axis) == place)) continue;
        members.push_back(copy);
        wait_for(part, step, copy);
      }
      task.rank = mesh_.rank(place);
      const TaskId added = builder_.add(task, std::span<const Use>{}, after_);
      for (const std::size_t copy : members) part.added[s * copies + copy] = added;
    }
  }

  /// The first rank of a collective's group along an axis.
  static MeshPlace first_of(MeshPlace place, BodyStep::Axis axis) {
    if (axis != BodyStep::Axis::context) place.tensor = 0;
    if (axis != BodyStep::Axis::tensor) place.context = 0;
    if (axis == BodyStep::Axis::all) place.expert = 0;
    return place;
  }
  int size_of(BodyStep::Axis axis) const {
    return axis == BodyStep::Axis::tensor ? mesh_.tensor : axis == BodyStep::Axis::context ? mesh_.context : mesh_.shared();
  }
  GroupId group_of(const MeshPlace& first, BodyStep::Axis axis) {
    const auto [at, added] = groups_.try_emplace({axis, mesh_.rank(first)}, none<GroupId>);
    if (added) at->second = builder_.group(body_group(mesh_, first, axis));
    return at->second;
  }

  SplitId sizes_of(const BodyStep& step, int members) {
    const auto [at, added] = sizes_.try_emplace({step.kind, step.inner, members, step.bytes, step.relayed}, none<SplitId>);
    if (!added) return at->second;
    return at->second = builder_.pair_sizes(pairs_of(step, members));
  }

  /// [step] of the computations among a body's steps; equal ones have one number. Parts of a
  /// computation by one rank are timed as what they are.
  const std::vector<SplitId>& numbers_of(const StageBody& body, const std::vector<StageWork>& parts, const Task& task) {
    std::vector<std::int32_t> cuts;
    for (std::size_t s = 0; s < parts.size(); ++s) cuts.push_back(body[s].layer);
    const auto [at, added] = numbers_.try_emplace({task.op, task.stage, std::move(cuts)});
    if (!added) return at->second;
    if (!parts.empty() && mesh_.shared() == 1) {
      for (const StageWork& part : parts) at->second.push_back(builder_.step(part));
      return at->second;
    }
    const BodyTotals totals{body};
    std::map<std::tuple<double, Bytes, std::int32_t, std::vector<StepKernels>>, SplitId> known;
    for (const BodyStep& step : body) {
      at->second.push_back(none<SplitId>);
      if (!step.is_compute()) continue;
      const auto [number, fresh] =
          known.try_emplace({step.flops.value(), step.traffic, step.pieces, step.kernels}, none<SplitId>);
      if (fresh) {
        number->second = builder_.step(work_of_step(from_.stage(task.stage), step, totals, traits(task.op).passes));
      }
      at->second.back() = number->second;
    }
    return at->second;
  }

  const Schedule& from_;
  Mesh mesh_;
  ScheduleBuilder builder_;
  BucketCuts buckets_;
  LaneId lanes_[body_axes] = {};  ///< of each axis's collectives
  std::map<std::pair<BodyStep::Axis, Rank>, GroupId> groups_;
  std::map<std::tuple<BodyStep::Kind, std::int32_t, int, Bytes, Bytes>, SplitId> sizes_;
  std::map<std::tuple<Op, StageId, std::vector<std::int32_t>>, std::vector<SplitId>>
      numbers_;                ///< of a body, or a cut computation
  std::vector<TaskId> first_;  ///< [task of the composed schedule] its first step
  std::vector<TaskId> last_;   ///< and its last
  std::vector<TaskId> after_;
  std::vector<Use> uses_;
};

}  // namespace detail

TAWPIPE_INLINE ExpandedSchedule expand_bodies(const Schedule& schedule) {
  detail::BodyExpander expander{schedule};
  Schedule expanded = expander.build();
  return {std::move(expanded), expander.take_first(), expander.take_last()};
}

}  // namespace tawpipe
#endif
