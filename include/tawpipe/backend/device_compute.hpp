// Concepts for code that computes on a device: layers and optimizers that enqueue their work in a
// stream and return.
// Not: the computation itself (layers/cuda/) nor the device (execute/cuda/device_api.hpp).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/model/parameter_blocks.hpp"

namespace tawpipe::inline v0 {

/// Values specific to one training step. They are in device memory and are written before each
/// iteration, so that a captured graph, whose launches have fixed arguments, uses each step's
/// values.
struct StepScalars {
  double learning_rate = 0;
  double gradient_clip = 0;  ///< largest norm of the whole gradient; 0: any
  std::int64_t step = 1;     ///< of the optimizer, from 1
};

/// One step of the optimizer on parameters that are contiguous in each buffer. All pointers are to
/// device memory; parameters begin anywhere in their buffers, so pointers are aligned to their
/// numbers only.
struct DeviceUpdateArgs {
  ParameterRange parameters;     ///< their range in the model
  std::span<std::byte> weights;  ///< [parameters] of the model's dtype
  /// [parameters] mean over the iteration's microbatches, before clipping: f32 if it has 4 bytes a
  /// parameter, otherwise the model's dtype
  std::span<const std::byte> gradients;
  /// [parameters] the weights in f32, from which `weights` are rounded; null: none
  float* master = nullptr;
  float* first_moment = nullptr;          ///< [parameters]
  float* second_moment = nullptr;         ///< [parameters]
  const StepScalars* scalars = nullptr;   ///< one
  const float* gradient_scale = nullptr;  ///< one: factor for gradients (clipping); null: 1
};

/// LayerCompute on a device with streams of type S. The differences from a host's layer:
/// - every pointer of ForwardArgs and BackwardArgs (including tokens, targets and loss) is device
///   memory, aligned to 256 bytes except for parameters and their gradients, which are aligned to
///   their numbers;
/// - weights and activations are of the model's dtype; gradients of parameters are f32 where
///   Workload::parameter_bytes() gives them 4 bytes, otherwise of the model's dtype;
/// - a call enqueues its work in the stream that `use_stream` named last and returns: it neither
///   waits for the device nor allocates nor synchronises, so that it can be captured into a graph.
///   Its inputs may be written by work that is still queued before it in the stream, so pointers
///   may be kept but their data not inspected;
/// - scratch memory beyond `workspace` is allocated by the constructor;
/// - ids are below the model's LayerStack::token_ids. `tokens` always has its size, and valid ids
///   if the stage has the first edge; `targets` has valid ids if it has the last edge.
/// One object serves one rank: all its calls name one stream, so calls do not overlap on the device
/// either.
template <class L, class S>
concept DeviceLayer = LayerCompute<L> && requires(L& layer, S stream) {
  { layer.use_stream(stream) } -> std::same_as<void>;
};

/// An optimizer with two states a parameter on a device. `update` enqueues its work in the stream
/// and returns, as a layer does.
template <class O, class S>
concept DeviceUpdate = requires(const O& optimizer, const DeviceUpdateArgs& args, S stream) {
  { optimizer.update(args, stream) } -> std::same_as<void>;
};

}  // namespace tawpipe
