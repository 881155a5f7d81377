// Trains a recorded LLaMA decoder by tensor- and context-parallel ranks on the host.
// Not: the comparison (support/reference_training.hpp).
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "papers/reference_run.hpp"
#include "schedules.hpp"
#include "support/reference_training.hpp"
#include "tawpipe/layers/host/tensor_llama.hpp"
#include "tawpipe/layers/host/tensor_memory.hpp"
#include "tawpipe/model/tensor_part.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/tensor_parts.hpp"
#include "tawpipe/verify/validate.hpp"

namespace reference_training {

/// Whether stages hand activations to other ranks.
inline bool hands_on(const Schedule& logical) {
  return std::any_of(logical.tasks().begin(), logical.tasks().end(),
                     [](const Task& task) { return is_point_to_point(task.op) && is_of_tokens(task.payload); });
}

/// What ranks that share a stage do besides dividing it.
struct Splitting {
  Splitting(bool sequence_parallel, ContextExchange keys = ContextExchange::all_gather, Recompute again = Recompute::none)
      : by_tokens{sequence_parallel}, exchange{keys}, recompute{again} {}
  bool by_tokens;
  ContextExchange exchange;
  Recompute recompute;
  int loss_chunk = 0;
  int experts = 1;  ///< ranks among which experts are divided

  Sharing of(const Mesh& axes) const {
    return {.tensor = axes.tensor,
            .context = axes.context,
            .expert = axes.expert,
            .whole_experts = axes.whole_experts,
            .sequence_parallel = by_tokens,
            .exchange = exchange};
  }
};

template <class T>
Transformer shared_model(const training::ReferenceRun& reference, const Splitting& how) {
  Transformer model = reference_model<T>(reference);
  model.loss_chunk = how.loss_chunk;
  return model;
}
/// The recorded batch; expert-parallel ranks have a recorded microbatch each.
inline Batch shared_batch(const training::ReferenceRun& reference, const Splitting& how) {
  Batch batch = reference.batch();
  batch.microbatch_size *= how.experts;
  return batch;
}
/// It, or the part of it that each of `replicas` has.
template <class T>
Workload shared_work(const training::ReferenceRun& reference, const Splitting& how, int replicas = 1) {
  Batch batch = shared_batch(reference, how);
  batch.global_batch /= replicas;
  Workload work{shared_model<T>(reference, how), batch, how.recompute};
  work.parameter_bytes({.weight = sizeof(T), .gradient = sizeof(T), .optimizer = 2 * sizeof(T)});
  return work;
}

/// The schedule of that name on `ranks` ranks, each of them `axes.tensor` x `axes.context` ranks that
/// share it, and `axes.data` replicas of them, as it is simulated.
/// @param larger  gives stages with the memory that layers need
template <class T, class Larger>
Schedule simulated_schedule(const training::ReferenceRun& reference, const std::string& name, int ranks, const Mesh& axes,
                            const Splitting& how, Composition with, Larger&& larger) {
  const Workload replica = shared_work<T>(reference, how, axes.data);
  const Schedule logical = build_schedule(name, {.workload = replica, .nodes = DeviceGroups{{ranks}}, .options = {}});
  const Transformer model = shared_model<T>(reference, how);
  Sharing sharing = how.of(axes);
  sharing.sends_activations = hands_on(logical);
  with.sequence_parallel = how.by_tokens;
  with.stages = larger(share_stages(model, replica.batch(), how.recompute, logical.stages(), sharing), sharing);
  const Workload whole = shared_work<T>(reference, how);
  return compose(logical, whole, axes.over(ranks * axes.copies()), with);
}
template <class T>
Schedule simulated_schedule(const training::ReferenceRun& reference, const std::string& name, int ranks, const Mesh& axes,
                            const Splitting& how) {
  return simulated_schedule<T>(reference, name, ranks, axes, how, {},
                               [](std::vector<SharedStage> stages, const Sharing&) { return stages; });
}

inline Schedule parts_of_tensors(const Schedule& composed, const Transformer& model, const Mesh& axes, bool by_tokens) {
  const TensorSlices slices =
      axes.whole_experts ? expert_slices(model, axes.expert_parts(), axes.tensor) : tensor_slices(model, axes.tensor);
  return with_tensor_parts(composed, slices, by_tokens && axes.tensor > 1);
}

/// The same as it is executed.
template <class T>
Schedule tensor_schedule(const training::ReferenceRun& reference, const std::string& name, int ranks, const Mesh& axes,
                         const Splitting& how, Composition with = {}) {
  const Transformer model = shared_model<T>(reference, how);
  const auto larger = [&](std::vector<SharedStage> stages, const Sharing& sharing) {
    return layers::host::tensor_stages<T>(model, shared_batch(reference, how), how.recompute, sharing, std::move(stages), true);
  };
  const Schedule composed = simulated_schedule<T>(reference, name, ranks, axes, how, std::move(with), larger);
  if (const Diagnostics found = validate(composed); !found.ok()) throw ScheduleError(found.findings().front().message);
  return parts_of_tensors(composed, model, axes, how.by_tokens);
}

/// The results of two steps.
template <class T>
std::vector<IterationResult> train_steps(const training::ReferenceRun& reference, const Schedule& schedule, const Mesh& axes,
                                         const Splitting& how, const host::Chaos& chaos) {
  const DecoderConstants constants = reference.constants;
  const Transformer model = shared_model<T>(reference, how);
  host::HostExecutor<T, layers::host::TensorLlama<T>, layers::AdamWUpdate<T>> executor{
      schedule,
      [&] {
        return layers::host::TensorLlama<T>{model, shared_batch(reference, how), how.recompute, constants, how.of(axes)};
      },
      layers::AdamWUpdate<T>{model, {.weight_decay = reference.weight_decay}},
      {.chaos = chaos}};
  const std::vector<T> initial = reference.initial<T>();
  load_weights(executor, std::span<const T>{initial});
  std::vector<IterationResult> results;
  for (int step = 1; step <= 2; ++step)
    results.push_back(executor.run(reference, {.step = step, .learning_rate = reference.learning_rate}));
  return results;
}

template <class T>
std::vector<training::NumericsCheck> train_tensor_parallel(const training::ReferenceRun& reference, const std::string& name,
                                                           int ranks, const Mesh& axes, const Splitting& how,
                                                           Composition with = {}) {
  const Schedule schedule = tensor_schedule<T>(reference, name, ranks, axes, how, std::move(with));
  const DecoderConstants constants = reference.constants;
  return train_reference<T, layers::host::TensorLlama<T>>(reference, schedule, [&] {
    return layers::host::TensorLlama<T>{shared_model<T>(reference, how), shared_batch(reference, how), how.recompute, constants,
                                        how.of(axes)};
  });
}

}  // namespace reference_training
