// The arguments that an executor passes to the code that computes a stage, and the concept of that
// code.
// Not: the computation itself (layers/) nor when it runs (execute/).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/model/stage_work.hpp"

namespace tawpipe::inline v0 {

/// Pointers to a stage's parameters, or to their gradients, each part contiguous and in the order
/// of model/parameter_blocks.hpp. Null if the stage has none of the kind. The parts of a model may
/// contain anything.
template <class Byte>
struct StageParameters {
  Byte* layers = nullptr;      ///< of all layers of the stage
  Byte* first_edge = nullptr;  ///< of a tied model also in the stage with the last edge
  Byte* last_edge = nullptr;   ///< without tied parameters
};

/// One forward. Memory is aligned to 64 bytes except for parameters, which are aligned to their
/// numbers.
struct ForwardArgs {
  const StageWork* stage = nullptr;
  std::int32_t microbatch = 0;
  StageParameters<const std::byte> weights;
  /// stage->boundary bytes, an activation; empty if the stage has the first edge
  std::span<const std::byte> input;
  /// as many, possibly the same memory; empty if the stage has the last edge
  std::span<std::byte> output;
  /// stage->saved bytes, kept unchanged until this microbatch's backward
  std::span<std::byte> saved;
  /// at least stage->forward_workspace bytes; its contents are lost
  std::span<std::byte> workspace;
  std::span<const std::int32_t> tokens;   ///< [microbatch, sequence]
  std::span<const std::int32_t> targets;  ///< [microbatch, sequence]
  /// set by the last edge: mean over the microbatch's tokens
  double* loss = nullptr;
};

/// One backward. Gradients are accumulated in `gradients`.
struct BackwardArgs {
  const StageWork* stage = nullptr;
  std::int32_t microbatch = 0;
  StageParameters<const std::byte> weights;
  StageParameters<std::byte> gradients;  ///< null in backward_input
  /// of the output; empty if the stage has the last edge
  std::span<const std::byte> output_gradient;
  /// of the input, possibly the same memory; empty if it has the first edge
  std::span<std::byte> input_gradient;
  std::span<std::byte> saved;  ///< as the forward left it; may be overwritten
  /// data from backward_input for backward_weight, in addition to `saved`
  std::span<std::byte> stash;
  std::span<std::byte> workspace;         ///< at least stage->backward_workspace bytes
  std::span<const std::int32_t> tokens;   ///< [microbatch, sequence]
  std::span<const std::int32_t> targets;  ///< [microbatch, sequence]
  /// factor of the loss: 1 / microbatches of the iteration
  double scale = 1;
};

/// One step of the optimizer on parameters that are contiguous. Numbers are of the executor's type.
struct UpdateArgs {
  ParameterRange parameters;     ///< their range in the model
  std::span<std::byte> weights;  ///< [parameters]
  /// [parameters] mean over the iteration's microbatches, before clipping
  std::span<const std::byte> gradients;
  std::span<std::byte> first_moment;   ///< [parameters]
  std::span<std::byte> second_moment;  ///< [parameters]
  std::int64_t step = 1;               ///< of the optimizer, from 1
  double learning_rate = 0;
  double gradient_scale = 1;  ///< of clipping
};

/// An optimizer with two states a parameter, such as AdamW.
template <class O>
concept ParameterUpdate = requires(const O& optimizer, const UpdateArgs& args) {
  { optimizer.update(args) } -> std::same_as<void>;
};

/// A source of microbatches: the same tokens for the same step and microbatch, for all callers.
template <class S>
concept MicrobatchTokens = requires(const S& source, std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> tokens) {
  { source.fetch(step, microbatch, tokens, tokens) } -> std::same_as<void>;
};

/// Code that computes stages for an executor. It sees memory and sizes, never ranks or a
/// framework's types.
///
/// `backward` is what `backward_input` and `backward_weight` do together; the two run in this
/// order, other stages' and microbatches' computations between them. One object serves one rank:
/// calls do not overlap.
template <class L>
concept LayerCompute = requires(L& layer, const ForwardArgs& forward, const BackwardArgs& backward) {
  { layer.forward(forward) } -> std::same_as<void>;
  { layer.backward(backward) } -> std::same_as<void>;
  { layer.backward_input(backward) } -> std::same_as<void>;
  { layer.backward_weight(backward) } -> std::same_as<void>;
};

}  // namespace tawpipe
