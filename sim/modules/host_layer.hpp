// The layers and the optimizer of runs on CPUs.
// Not: those on GPUs (modules/cuda.cpp).
#pragma once

#include "execution_model.hpp"
#include "execution_request.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/execute/host/paced.hpp"
#include "tawpipe/layers/host/tensor_llama.hpp"
#include "tawpipe/layers/parameter_update.hpp"

namespace tawpipe::sim {

template <class T>
using HostLayer = host::Paced<layers::host::TensorLlama<T>>;
template <class T>
using HostOptimizer = layers::AdamWUpdate<T>;

/// Makes a rank's layer, after execution_schedule() has set `model`'s number format; `model` must
/// outlive it.
template <class T>
auto host_layers(const ExecutionRequest& request, const ExecutionModel& model) {
  const FlopsPerSecond pace = request.pace.empty() ? FlopsPerSecond{} : parse_flops_rate(request.pace);
  return [&model, pace, recompute = parse_recompute(request.recompute), sharing = executed_sharing(request)] {
    return HostLayer<T>{{model.model, model.batch, recompute, model.constants, sharing}, pace};
  };
}

}  // namespace tawpipe::sim
