// The arguments with which an executor runs a stage that ranks share, step by step as its body says,
// and the concept of the code that computes one rank's part.
// Not: the steps (model/shared_stage.hpp) nor when they run (execute/).
//
// A step is a task of its own in the executed schedule, as in the simulated one: the code computes
// what lies between two collectives, and says where a collective's numbers are. A communicator in its
// hands would be simpler to write, and hide messages from the schedule that is proven and simulated.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/schedule/op_traits.hpp"

namespace tawpipe::inline v0 {

/// An operation of the code that computes a stage, named as it likes.
struct StepOperation {
  std::uint8_t code = 0;
  std::int32_t layer = 0;  ///< of the stage
};

/// What each step of a body does on one rank.
struct StepPlan {
  Passes passes;                                       ///< of the computation
  int rank = 0;                                        ///< the part of the stage that the rank has
  std::vector<std::vector<StepOperation>> operations;  ///< [step] in order; a collective's: one
  std::vector<Flops> flops;                            ///< [step] of the body
};

/// How the numbers of a collective that sums are combined.
enum class Combine : std::uint8_t {
  sum,
  /// Triples of a token's largest logit, the sum of exponentials of differences from it, and the
  /// target's logit: the first is the largest, the others are sums relative to it.
  /// Source: Milakov and Gimelshein 2018, arXiv:1805.02867, equation 4; Megatron-LM,
  /// core/tensor_parallel/cross_entropy.py.
  softmax,
};

/// One rank's memory in a collective of a body, in numbers of the executor's type.
struct ExchangeArgs {
  std::byte* from = nullptr;  ///< all_gather: its part; otherwise the whole buffer
  std::byte* to = nullptr;    ///< reduce_scatter: its part; all_reduce: as `from`; otherwise the whole
  std::int64_t count = 0;     ///< numbers of the whole buffer
  Combine combine = Combine::sum;
};

/// Code that computes one rank's part of shared stages. Steps of one pass run in order, no other
/// computation of the rank between them; a collective's memory is touched by no operation between
/// the step that gives its numbers and the first that waits for it.
template <class L>
concept SharedLayerCompute = LayerCompute<L> &&
    requires(L& layer, const L& constant, const Passes& passes, const StageWork& stage, const StageBody& body, int rank,
             const StepPlan& plan, std::size_t step, const ForwardArgs& forward, const BackwardArgs& backward) {
  { constant.plan(passes, stage, body, rank) } -> std::same_as<StepPlan>;
  { layer.run(plan, step, forward) } -> std::same_as<void>;
  { layer.run(plan, step, backward) } -> std::same_as<void>;
  { constant.exchange(plan, step, forward) } -> std::same_as<ExchangeArgs>;
  { constant.exchange(plan, step, backward) } -> std::same_as<ExchangeArgs>;
};

}  // namespace tawpipe
