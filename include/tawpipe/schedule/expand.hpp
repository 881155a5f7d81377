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
#include "tawpipe/schedule/schedule_builder.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The steps of a pass through a stage; none where it is a single computation.
inline const StageBody* body_of(const Schedule& schedule, const Task& task) {
  const Passes passes = traits(task.op).passes;
  if (schedule.parts().bodies.empty() || !is_work(task.op) || !passes.any()) return nullptr;
  const SharedStage& stage = schedule.parts().bodies[index(task.stage)];
  const StageBody& body = passes.forward           ? stage.forward
                          : !passes.backward_input ? stage.backward_weight
                          : passes.backward_weight ? stage.backward
                                                   : stage.backward_input;
  return body.empty() ? nullptr : &body;
}

/// A body's operations, and the collectives that the host launches.
struct BodyTotals {
  Flops flops;
  double collectives = 0;
  bool kernels = false;  ///< whether its steps know their own

  explicit BodyTotals(const StageBody& body) {
    for (const BodyStep& step : body) {
      kernels = kernels || !step.kernels.empty();
      flops += step.flops;
      collectives += step.is_compute() ? 0 : 1.0 / step.pieces;
    }
  }
};

/// The work of one step of a stage's body, with what it runs of each kernel (Kernel::share). Kernels
/// that no operator has, copies around collectives, are run by all steps, by their operations.
inline StageWork work_of_step(StageWork work, const BodyStep& step, const BodyTotals& body, const Passes& passes) {
  const bool weight = !passes.forward && !passes.backward_input;
  work.forward = step.flops;
  work.recompute = Flops{};
  work.backward_input = weight ? Flops{} : step.flops;
  work.backward_weight = weight ? step.flops : Flops{};
  work.forward_traffic = work.backward_traffic = step.traffic;
  work.pieces = step.pieces;
  work.collectives = body.collectives;
  work.fraction = body.flops.value() > 0 ? step.flops.value() / body.flops.value() : 0;
  if (!body.kernels) work.kernels.clear();
  for (Kernel& kernel : work.kernels) {
    kernel.share = kernel.op < 0 ? work.fraction : 0;
    for (const StepKernels& own : step.kernels) {
      if (!own.has(kernel)) continue;
      // Of one of the layers of its kind, or of those that are recomputed.
      const std::int32_t layers = own.of_edge                         ? 1
                                  : own.pass == KernelPass::recompute ? work.recomputed_of(own.layer_kind)
                                                                      : work.layers_of(own.layer_kind);
      kernel.share += own.share / std::max(1, layers);
    }
  }
  return work;
}

/// The ranks of a collective step, of which one is at `place`.
inline std::vector<Rank> body_group(const Mesh& mesh, const MeshPlace& place, BodyStep::Axis axis) {
  switch (axis) {
    case BodyStep::Axis::tensor:
      return mesh.group(place, {MeshAxis::tensor});
    case BodyStep::Axis::context:
      return mesh.group(place, {MeshAxis::context});
    case BodyStep::Axis::all:
      break;
  }
  return mesh.group(place, {MeshAxis::tensor, MeshAxis::context, MeshAxis::expert});
}

/// The operation of a collective step.
inline Op op_of(BodyStep::Kind kind) {
  switch (kind) {
    case BodyStep::Kind::compute:
      break;
    case BodyStep::Kind::all_reduce:
      return Op::all_reduce;
    case BodyStep::Kind::all_gather:
      return Op::all_gather;
    case BodyStep::Kind::reduce_scatter:
      return Op::reduce_scatter;
    case BodyStep::Kind::all_to_all:
    case BodyStep::Kind::ring:
      return Op::all_to_all;
  }
  return Op::forward;
}

/// Whether a step is an all_to_all in which not every member sends to every other.
inline bool has_pairs(const BodyStep& step) { return step.kind == BodyStep::Kind::ring || step.inner > 0; }

/// Its sizes [from * members + to]: in a ring each member sends to only one other, otherwise to its
/// neighbours, and what is relayed to the members at its place among others. @pre has_pairs(step)
inline std::vector<Bytes> pairs_of(const BodyStep& step, int members) {
  std::vector<Bytes> sizes(static_cast<std::size_t>(members) * static_cast<std::size_t>(members));
  const auto size = [&](int from, int to) -> Bytes& { return sizes[static_cast<std::size_t>(from * members + to)]; };
  const int inner = std::max(1, step.inner);
  for (int from = 0; from < members; ++from) {
    if (step.kind == BodyStep::Kind::ring) {
      size(from, (from + inner) % members) = step.bytes;
      continue;
    }
    const int first = from / inner * inner;
    if (const int others = members / inner - 1; step.relayed > Bytes{} && others > 0) {
      for (int to = from % inner; to < members; to += inner) size(from, to) = step.relayed / others;
    }
    for (int to = first; to < std::min(first + inner, members); ++to) size(from, to) = (step.bytes - step.relayed) / inner;
  }
  return sizes;
}

}  // namespace detail

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
/// what they wait for.
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
      } else {
        const std::size_t end = end_of_copies(t);
        add_body(*body, cut.parts, t, end);
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

  /// The steps of the copies begin .. end - 1. @pre the first and the last step compute
  /// @param parts  [step] of a computation that is cut; none: the steps are those of a shared stage
  void add_body(const StageBody& body, const std::vector<StageWork>& parts, std::size_t begin, std::size_t end) {
    const std::size_t copies = end - begin;
    added_.assign(body.size() * copies, none<TaskId>);
    const std::vector<SplitId>& numbers = numbers_of(body, parts, from_.tasks()[begin]);
    for (std::size_t s = 0; s < body.size(); ++s) {
      if (!body[s].is_compute()) {
        add_collectives(body[s], s, begin, copies);
        continue;
      }
      const bool outer = s == 0 || s + 1 == body.size();
      for (std::size_t copy = 0; copy < copies; ++copy) {
        Task task = from_.tasks()[begin + copy];
        task.split = numbers[s];
        if (s == 0) {
          waits(begin + copy, &body);
        } else {
          task.bytes = {};  // the first step copies what the computation does
          after_.clear();
        }
        wait_for(body[s], copy, copies);
        wait_for_buckets(begin + copy, body[s].layer);
        added_[s * copies + copy] =
            builder_.add(task, outer ? from_.uses(id<TaskId>(begin + copy)) : std::span<const Use>{}, after_);
        buckets_.note(id<TaskId>(begin + copy), body[s].layer, added_[s * copies + copy]);
      }
    }
    for (std::size_t copy = 0; copy < copies; ++copy) {
      first_[begin + copy] = added_[copy];
      last_[begin + copy] = added_[(body.size() - 1) * copies + copy];
    }
  }

  void wait_for(const BodyStep& step, std::size_t copy, std::size_t copies) {
    for (const std::int32_t earlier : step.after) {
      if (earlier >= 0) after_.push_back(added_[static_cast<std::size_t>(earlier) * copies + copy]);
    }
  }

  /// A step's collectives, one for each group along its axis that has a copy.
  void add_collectives(const BodyStep& step, std::size_t s, std::size_t begin, std::size_t copies) {
    for (std::size_t first = 0; first < copies; ++first) {
      if (added_[s * copies + first] != none<TaskId>) continue;
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
        wait_for(step, copy, copies);
      }
      task.rank = mesh_.rank(place);
      const TaskId added = builder_.add(task, std::span<const Use>{}, after_);
      for (const std::size_t copy : members) added_[s * copies + copy] = added;
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
  std::vector<TaskId> added_;  ///< [step * copies + copy] of the current body
  std::vector<TaskId> after_;
};

}  // namespace detail

TAWPIPE_INLINE ExpandedSchedule expand_bodies(const Schedule& schedule) {
  detail::BodyExpander expander{schedule};
  Schedule expanded = expander.build();
  return {std::move(expanded), expander.take_first(), expander.take_last()};
}

}  // namespace tawpipe
#endif
