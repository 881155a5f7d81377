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
  std::int32_t block = 0;  ///< of keys and values that context-parallel ranks pass round
  bool again = false;      ///< of a forward that a backward repeats
};

/// Which part of a stage a rank has.
struct SharedPart {
  int tensor = 0;   ///< of matrices
  int context = 0;  ///< of tokens
  int expert = 0;   ///< of sequences, and of experts
};

/// What each step of a body does on one rank.
struct StepPlan {
  Passes passes;                                       ///< of the computation
  SharedPart part;                                     ///< of the rank
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
  /// all_gather: its part; all_to_all: its blocks for the members in their order, with its own if that
  /// has a size; otherwise the whole buffer
  std::byte* from = nullptr;
  /// reduce_scatter: its part; all_reduce: as `from`; all_to_all: the blocks from the members in their
  /// order; otherwise the whole
  std::byte* to = nullptr;
  std::int64_t count = 0;  ///< numbers of the whole buffer; all_to_all: that it sends
  Combine combine = Combine::sum;
  /// all_to_all: numbers that are added to those sent, from number `added_begin` on; null: none
  const std::byte* added = nullptr;
  std::int64_t added_begin = 0;
  /// all_to_all among ranks with whole experts: how many rows of `row` numbers go to each group of each
  /// member, [member, group], and come from each; what comes is told to `arrived`. `count` is then the
  /// most that a block may have.
  const std::int32_t* rows = nullptr;
  std::int32_t* arrived = nullptr;
  std::int64_t row = 0;
  std::int32_t groups = 0;

  /// Numbers that go to a member, or with `arrived` that came from it.
  std::int64_t numbers(const std::int32_t* of, std::size_t member) const {
    std::int64_t all = 0;
    for (std::int32_t g = 0; g < groups; ++g) all += of[member * static_cast<std::size_t>(groups) + static_cast<std::size_t>(g)];
    return all * row;
  }
};

/// Code that computes one rank's part of shared stages. Steps of one pass run in order, no other
/// computation of the rank between them; a collective's memory is touched by no operation between
/// the step that gives its numbers and the first that waits for it.
template <class L>
concept SharedLayerCompute = LayerCompute<L> &&
    requires(L& layer, const L& constant, const Passes& passes, const StageWork& stage, const StageBody& body,
             const SharedPart& part, const StepPlan& plan, std::size_t step, const ForwardArgs& forward,
             const BackwardArgs& backward) {
  { constant.plan(passes, stage, body, part) } -> std::same_as<StepPlan>;
  { layer.run(plan, step, forward) } -> std::same_as<void>;
  { layer.run(plan, step, backward) } -> std::same_as<void>;
  { constant.exchange(plan, step, forward) } -> std::same_as<ExchangeArgs>;
  { constant.exchange(plan, step, backward) } -> std::same_as<ExchangeArgs>;
};

}  // namespace tawpipe
