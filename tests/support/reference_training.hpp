// Trains a recorded LLaMA decoder by the host executor and compares every recorded number.
// Not: the recording (sim/papers/reference_run.hpp) nor which schedules are run (numerics/).
#pragma once

#include <algorithm>
#include <mutex>
#include <span>
#include <vector>

#include "papers/reference_run.hpp"
#include "tawpipe/execute/executor.hpp"
#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/layers/host/llama.hpp"
#include "tawpipe/layers/parameter_update.hpp"

namespace reference_training {

using namespace tawpipe;

template <class T>
Transformer reference_model(const training::ReferenceRun& reference) {
  Transformer model = reference.model();
  model.dtype = sizeof(T) == 8 ? Dtype::f64 : Dtype::f32;
  return model;
}

/// The recorded batch, or the part of it that each of `replicas` has.
template <class T>
Workload reference_work(const training::ReferenceRun& reference, Recompute recompute, int replicas = 1) {
  Batch batch = reference.batch();
  batch.global_batch /= replicas;
  Workload work{reference_model<T>(reference), batch, recompute};
  work.parameter_bytes({.weight = sizeof(T), .gradient = sizeof(T), .optimizer = 2 * sizeof(T)});
  return work;
}

/// Losses of all steps, the first gradient, parameters after the first and the last step.
/// @param make_layer  a rank's
template <class T, class Layer, class MakeLayer>
std::vector<training::NumericsCheck> train_reference(const training::ReferenceRun& reference, const Schedule& schedule,
                                                     MakeLayer&& make_layer) {
  const Transformer model = reference_model<T>(reference);
  const layers::AdamWUpdate<T> optimizer{
      model,
      {.beta1 = reference.beta1, .beta2 = reference.beta2, .epsilon = reference.epsilon, .weight_decay = reference.weight_decay}};
  host::HostExecutor<T, Layer, layers::AdamWUpdate<T>> executor{schedule, make_layer, optimizer};
  const std::vector<T> initial = reference.initial<T>();
  std::vector<T> values(initial.size());
  load_weights(executor, std::span<const T>{initial});
  std::mutex mutex;
  const GradientObserver<T> observe = [&](ParameterRange range, std::span<const T> numbers) {
    const std::lock_guard lock{mutex};
    std::copy(numbers.begin(), numbers.end(), values.begin() + range.begin);
  };
  std::vector<std::vector<double>> losses;
  std::vector<training::NumericsCheck> checks;
  for (int step = 1; step <= reference.steps + 1; ++step) {
    const Iteration args{.step = step, .learning_rate = reference.learning_rate};
    losses.push_back(executor.run(reference, args, step == 1 ? observe : nullptr).losses);
    if (step == 1) reference.check_parameters<T>("grad0", values, checks);
    if (step != 1 && step != reference.steps) continue;
    reference.check_parameters<T>(concat("step", step), collect_weights(executor), checks);
  }
  reference.check_losses<T>(losses, checks);
  return checks;
}

/// The same with layers that compute whole stages.
template <class T>
std::vector<training::NumericsCheck> train_reference(const training::ReferenceRun& reference, const Schedule& schedule,
                                                     Recompute recompute) {
  return train_reference<T, layers::host::Llama<T>>(reference, schedule, [&] {
    return layers::host::Llama<T>{reference_model<T>(reference), reference.batch(), recompute, reference.constants};
  });
}

}  // namespace reference_training
