// One rank's part of a layer's operators: what each computes in a pass, and what ranks gather and sum
// around it.
// Not: the steps (model/detail/operator_body.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/model/detail/body_steps.hpp"
#include "tawpipe/model/detail/expert_reach.hpp"
#include "tawpipe/model/detail/operator_reading.hpp"
#include "tawpipe/model/kernel.hpp"
#include "tawpipe/model/operator.hpp"
#include "tawpipe/model/shared_stage.hpp"

namespace tawpipe::inline v0::detail {

/// A kind of layers as one of the ranks that share it runs it. Where an operator needs whole what ranks
/// have by tokens, they gather it; where one gives summands, they sum them.
class KindOfRank {
 public:
  using Kind = Operator::Kind;

  /// @param kernels  of a whole layer
  KindOfRank(OperatorReading reading, std::uint8_t number, const std::vector<Kernel>& kernels, const Sharing& sharing)
      : reading_{std::move(reading)}, number_{number}, sharing_{sharing} {
    kernels_.reserve(kernels.size());
    const KernelSplit split = kernel_split(reading_.model(), sharing);
    for (const Kernel& kernel : kernels) kernels_.push_back(kernel.split(split));
    const std::vector<Operator>& ops = list();
    sublayer_.assign(ops.size(), 0);
    sums_.assign(ops.size(), 0);
    partial_.assign(ops.size(), 0);
    int sublayer = 0;
    for (std::size_t i = 1; i < ops.size(); ++i) {
      sublayer_[i] = sublayer;
      const Operator& op = ops[i];
      const auto input = [&](std::size_t n) { return static_cast<std::size_t>(op.from[n]); };
      const bool adds = op.kind == Kind::sum && partial_[input(0)] != 0 && partial_[input(1)] != 0;
      partial_[i] = op.gives == Split::partial || adds || (op.kind == Kind::combine && !sharing.whole_experts);
      if (adds) sums_[input(0)] = sums_[input(1)] = 0;
      sums_[i] = partial_[i];
      if (is_residual(i)) ++sublayer;
      if (op.kind == Kind::route) routed_.push_back(sublayer_[i]);
    }
    mark_gathers();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (std::size_t pass = 0; pass < passes; ++pass) works_.push_back(made_work(i, static_cast<KernelPass>(pass)));
    }
  }

  const std::vector<Operator>& list() const { return reading_.operators(); }
  const OperatorReading& reading() const { return reading_; }
  /// Whether ranks sum what it gives.
  bool is_summed(std::size_t i) const { return sums_[i] != 0; }
  /// Whether it adds to the residual stream.
  bool is_residual(std::size_t i) const { return reading_.is_residual(i); }
  /// Between two sums with the residual stream.
  int sublayer(std::size_t i) const { return sublayer_[i]; }
  bool has_experts(int sublayer) const { return std::find(routed_.begin(), routed_.end(), sublayer) != routed_.end(); }
  /// Whether it reads whole what ranks have by tokens.
  bool gathers(std::size_t i) const {
    const Operator& op = list()[i];
    if (op.from[0] < 0 || list()[source(i)].gives != Split::tokens) return false;
    if (op.kind == Kind::dispatch) return !sharing_.whole_experts;
    return op.needs == Split::whole || op.needs == Split::width;
  }
  /// Numbers of a token that ranks gather before it: its input, with those of the operators after it
  /// that are there by then; 0: none, or an operator before it did.
  std::int64_t gathered_before(std::size_t i) const { return gathered_[i]; }

  /// What the rank computes of an operator in a pass.
  const StepWork& work(std::size_t i, KernelPass pass) const { return works_[i * passes + static_cast<std::size_t>(pass)]; }
  /// Whether the gradient of its weight comes with that of its input: nobody waits for either.
  bool is_by_itself(std::size_t i) const {
    const Operator& op = list()[i];
    return (op.is_of_experts() && sharing_.whole_experts) || (op.needs == Split::tokens && op.gives == Split::tokens);
  }

 private:
  void mark_gathers() {
    gathered_.assign(list().size(), 0);
    std::vector<char> seen(list().size(), 0);
    std::size_t first = 0;  // operator of the last gather
    for (std::size_t i = 1; i < list().size(); ++i) {
      if (!gathers(i) || seen[source(i)] != 0) continue;
      seen[source(i)] = 1;
      if (first == 0 || source(i) > first) first = i;
      gathered_[first] += list()[i].kind == Kind::rotary ? list()[i].in : list()[source(i)].out;
    }
  }
  std::size_t source(std::size_t i) const { return static_cast<std::size_t>(list()[i].from[0]); }
  StepWork made_work(std::size_t i, KernelPass pass) const {
    StepWork work;
    const TokenFlops flops = list()[i].flops(reading_.batch().sequence);
    const double each = pass == KernelPass::backward_input    ? flops.backward_input
                        : pass == KernelPass::backward_weight ? flops.backward_weight
                                                              : flops.forward;
    work.flops = each * static_cast<double>(reading_.batch().tokens()) / parts(i);
    work.take(kernels_, {.op = static_cast<std::int16_t>(i), .layer_kind = number_, .pass = pass});
    return work;
  }
  int parts(std::size_t i) const {
    const Operator& op = list()[i];
    return op.needs == Split::tokens && op.gives == Split::tokens ? sharing_.token_parts() : sharing_.ranks();
  }

  static constexpr std::size_t passes = 4;  // KernelPass

  OperatorReading reading_;
  std::uint8_t number_;
  Sharing sharing_;
  std::vector<Kernel> kernels_;
  std::vector<int> sublayer_;           ///< [operator]
  std::vector<char> sums_;              ///< [operator]
  std::vector<char> partial_;           ///< [operator] whether each rank has a summand of what it gives
  std::vector<int> routed_;             ///< sublayers with experts
  std::vector<std::int64_t> gathered_;  ///< [operator]
  std::vector<StepWork> works_;         ///< [operator * passes + pass]
};

}  // namespace tawpipe::detail
