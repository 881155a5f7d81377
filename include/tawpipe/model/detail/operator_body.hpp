// Writes the bodies of a stage's passes from the operators of its layers.
// Not: what ranks exchange around one (model/detail/body_exchanges.hpp), nor one rank's part of the
// stage's memory (model/transformer_body.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/detail/body_exchanges.hpp"
#include "tawpipe/model/detail/kind_of_rank.hpp"
#include "tawpipe/model/edge_work.hpp"
#include "tawpipe/model/kernel.hpp"
#include "tawpipe/model/operator.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

/// The kinds of a model's layers and its edges, as one of the ranks that share them has them.
struct PartsOfRank {
  std::vector<KindOfRank> kinds = {};
  StageWork first_edge = {};  ///< of all ranks, with one rank's kernels
  StageWork last_edge = {};
};

/// Writes the steps of one pass. A layer's forward: its operators in order, each gather before the first
/// that needs it, each sum after what gives summands; copies of tokens go to whole experts and back by
/// all-to-all. The backward goes the other way: the gradient of a sum is gathered, that of a gather is
/// summed, during which the gradients of weights are computed, from the inputs that are gathered again
/// beside it. A shared expert is computed before the tokens are sent, as without
/// --moe-shared-expert-overlap. Source: Megatron-LM, core/transformer/moe: moe_layer.py,
/// token_dispatcher.py (MoEAlltoAllTokenDispatcher).
class OperatorBody : public BodyExchanges {
 public:
  OperatorBody(const PartsOfRank& parts, const Transformer& model, const Batch& batch, Recompute recompute,
               const Sharing& sharing)
      : BodyExchanges{model, batch, sharing}, parts_{parts}, recompute_{recompute} {}

  void forward(const StageWork& stage) {
    if (stage.first_edge) {
      compute(edge(parts_.first_edge, EdgePart::embedding, KernelPass::forward));
      sum(false, width());
    } else {
      gather_message(false, width());
    }
    for (int layer = 0; layer < stage.layers; ++layer) {
      begin(kind(stage, layer));
      forward(kind(stage, layer), layer, [](std::size_t) { return true; });
    }
    if (!stage.last_edge) return;
    compute_apart(edge(parts_.last_edge, EdgePart::norm, KernelPass::forward), last());
    body_.back().layer = stage.layers;
    gather(false, width());
    compute(edge(parts_.last_edge, EdgePart::loss, KernelPass::forward));
    // For each token: the largest logit, the sum of exponentials and the target's logit, at least in float32.
    if (splits()) collective(Kind::all_reduce, Axis::tensor, false, 3 * std::max(4.0, element_) * tokens_, last());
  }

  /// @param input  the gradients of inputs; @param weight  those of weights
  void backward(const StageWork& stage, bool input, bool weight) {
    if (stage.last_edge) {
      const std::int32_t gathered = weight ? gather(true, width()) : -1;
      const StepWork weights = edge(parts_.last_edge, EdgePart::loss, KernelPass::backward_weight);
      if (input) {
        StepWork loss = edge(parts_.last_edge, EdgePart::loss, KernelPass::recompute);  // of a loss in chunks
        loss += edge(parts_.last_edge, EdgePart::loss, KernelPass::backward_input);
        compute(loss);
        const std::int32_t summed = sum(true, width());
        if (weight) compute(weights, {gathered});
        compute(edge(parts_.last_edge, EdgePart::norm, KernelPass::backward_input), {summed});
      } else {
        compute(weights, {gathered});
      }
      if (weight) {
        body_.back().layer = stage.layers;
        compute_apart({}, last());
      }
    } else if (input) {
      gather_message(true, width());
    }
    for (int layer = stage.layers; layer-- > 0;) {
      const KindOfRank& of = kind(stage, layer);
      if (input) begin(of);
      const bool again = input && layer < stage.recomputed;
      if (again && recompute_ == Recompute::full) forward(of, -1, [&](std::size_t i) { return of.reading().runs_again(i); });
      backward(of, layer, input, weight, again && recompute_ != Recompute::full);
    }
    compute_delayed(last());
    if (stage.first_edge && input) {
      gather(true, width());
      compute(edge(parts_.first_edge, EdgePart::embedding, KernelPass::backward_input));
    }
  }

 private:
  using OpKind = Operator::Kind;

  const KindOfRank& kind(const StageWork& stage, int layer) const {
    return parts_.kinds[stage.kinds.empty() ? 0 : stage.kinds[static_cast<std::size_t>(layer)]];
  }
  double width() const { return static_cast<double>(model_.hidden); }
  /// Begins a layer with a step of its own if its whole pass would be one with the layer before it.
  void begin(const KindOfRank& of) {
    const auto exchanges = [&](const Operator& op) {
      return (op.kind == OpKind::attention && sharing_.context > 1) || (op.kind == OpKind::dispatch && sharing_.whole_experts);
    };
    const std::vector<Operator>& list = of.list();
    if (body_.back().layer >= 0 && !splits() && std::none_of(list.begin(), list.end(), exchanges)) compute_apart({}, last());
  }
  /// A rank's part of an edge's part.
  StepWork edge(const StageWork& of, EdgePart part, KernelPass pass) const {
    StepWork work;
    if (part == EdgePart::loss) {
      const Flops all = pass == KernelPass::backward_input    ? of.backward_input
                        : pass == KernelPass::backward_weight ? of.backward_weight
                        : pass == KernelPass::recompute       ? of.recompute
                                                              : of.forward;
      work.flops = all.value() / sharing_.ranks();
    }
    work.take(of.kernels, {.op = static_cast<std::int16_t>(part), .of_edge = true, .pass = pass});
    return work;
  }
  Gathered gathered(const KindOfRank& of, std::size_t i, std::int64_t width) const {
    const bool experts = of.has_experts(of.sublayer(i));
    return {.width = static_cast<double>(width), .number = gathered_number(experts), .overlaps = overlaps() && !experts};
  }
  void attention(bool backward, const KindOfRank& of, std::size_t i, const StepWork& work, std::int32_t ready = -1) {
    const Operator& op = of.list()[i];
    BodyExchanges::attention(backward, work, static_cast<double>(op.in) / sharing_.tensor,
                             of.reading().exchanged_width(i, sharing_.tensor), ready);
  }

  /// @param layer  to note where it begins; -1: it is computed again
  /// @param runs  operators
  template <class Runs>
  void forward(const KindOfRank& of, std::int32_t layer, Runs&& runs) {
    const KernelPass pass = layer < 0 ? KernelPass::recompute : KernelPass::forward;
    const std::vector<Operator>& list = of.list();
    StepWork work;  // of the operators since the last exchange
    Gathered with;
    const auto end = [&] {
      if (with.width > 0) {
        gathered_product(false, std::exchange(work, {}), std::exchange(with, {}));
      } else if (work.is_some()) {
        compute(std::exchange(work, {}));
      } else {
        return;
      }
      if (layer >= 0 && body_.back().layer < 0) body_.back().layer = std::exchange(layer, -1);
    };
    for (std::size_t i = 1; i < list.size(); ++i) {
      const Operator& op = list[i];
      if (!runs(i)) continue;
      if (const std::int64_t numbers = of.gathered_before(i); numbers > 0) {
        end();
        with = gathered(of, i, numbers);
      }
      const bool whole = sharing_.whole_experts;
      if (op.kind == OpKind::combine && whole) {
        end();
        send_to_experts(false, op.in, op.copies);
      }
      if (op.kind == OpKind::attention) {
        end();
        attention(false, of, i, of.work(i, pass));
        continue;
      }
      if (of.is_summed(i) && op.kind == OpKind::product) {
        end();
        summed_product(of.work(i, pass), static_cast<double>(op.out), gathered(of, i, 0).overlaps);
        continue;
      }
      work += of.work(i, pass);
      if (of.is_summed(i)) {
        end();
        sum(false, static_cast<double>(op.out));
      }
      if (op.kind == OpKind::dispatch && whole) {
        end();
        send_to_experts(false, op.in, op.copies);
      }
    }
    end();
  }

  /// @param again  the policy's parts run again
  void backward(const KindOfRank& of, std::int32_t layer, bool input, bool weight, bool again) {
    const std::vector<Operator>& list = of.list();
    if (!input) return weights(of, layer);
    const bool mlp_again = again && model_.parts_again(recompute_).mlp;
    StepWork work;              // of the operators since the last exchange
    StepWork of_weights;        // gradients that a sum hides
    Gathered with;              // what is gathered before `work`
    std::int32_t waits = -1;    // of `work`: the sum of the gradient that it reads
    std::int32_t arrived = -1;  // the inputs for the gradients of weights
    std::int32_t ready = last_compute();
    std::vector<std::size_t> residuals;
    const auto end = [&] {
      if (with.width > 0) {
        arrived = gathered_product(true, std::exchange(work, {}), std::exchange(with, {}));
      } else if (work.is_some() || waits >= 0) {
        const std::int32_t after = std::exchange(waits, -1);
        compute(std::exchange(work, {}), {after < 0 ? last() : after});
      }
    };
    for (std::size_t i = list.size(); i-- > 1;) {
      const Operator& op = list[i];
      const bool whole = sharing_.whole_experts;
      if (of.is_residual(i)) {  // its two gradients are summed after the norm of what it adds
        end_sublayer(of, std::exchange(residuals, {i}), again, work);
        end();
        ready = last_compute();
        if (mlp_again && i > 1 && of.reading().is_of_mlp(i - 1)) {
          forward(of, -1, [&](std::size_t j) { return of.sublayer(j) == of.sublayer(i) && of.reading().is_of_mlp(j); });
          compute({});
        }
        continue;
      }
      if (of.is_summed(i)) {
        end();
        with = gathered(of, i, op.out);
        if (weight && gathers_again(of, i)) with.again_width = static_cast<double>(input_width(of, i));
      }
      if (op.kind == OpKind::dispatch && whole) {
        end();
        send_gradients(op);
      }
      const bool repeats = again && of.reading().runs_again(i) && !(mlp_again && of.reading().is_of_mlp(i));
      if (op.kind == OpKind::attention) {
        end();
        StepWork core = of.work(i, KernelPass::backward_input);
        if (repeats && sharing_.context > 1) attention(false, of, i, of.work(i, KernelPass::recompute));
        if (repeats && sharing_.context == 1) core += of.work(i, KernelPass::recompute);
        attention(true, of, i, core, repeats ? -1 : ready);
        continue;
      }
      if (repeats) work += of.work(i, KernelPass::recompute);
      work += of.work(i, KernelPass::backward_input);
      if (weight) {
        StepWork& now = !of.is_by_itself(i) ? of_weights : sharing_.delays_weights() ? delayed_.work : work;
        now += of.work(i, KernelPass::backward_weight);
      }
      if (of.is_summed(i) && op.kind == OpKind::product) end();
      if (op.kind == OpKind::combine && whole) {
        end();
        send_gradients(op);
      }
      // The gradient of what was gathered is summed when all that reads it has given its part.
      if (of.gathered_before(i) == 0) continue;
      end();
      waits = sum(true, static_cast<double>(of.gathered_before(i)));
      if (!weight) continue;
      compute(std::exchange(of_weights, {}), {std::exchange(arrived, -1)});
      if (of.sublayer(i) == 0) body_.back().layer = std::exchange(layer, -1);
    }
    end_sublayer(of, residuals, again, work);
    const bool delays = weight && sharing_.delays_weights();
    (delays ? delayed_.work : work) += of_weights;
    end();
    if (delays) delayed_.layer = layer;
    if (weight && !delays && layer >= 0) body_.back().layer = layer;
  }
  /// Sends gradients of tokens to experts or back, before the gradients of weights that need not wait.
  void send_gradients(const Operator& op) {
    const std::int32_t done = last_compute();
    const std::int32_t before = last();
    send_to_experts(true, op.in, op.copies);
    if (last() == before || !delayed_.is_some()) return;
    const std::int32_t sent = last();
    compute_delayed(done);
    compute_apart({}, sent);  // what follows reads what was sent
  }
  /// Computes the gradients of weights that were delayed, after a step. The gradient of the layer that
  /// ended before is then complete.
  void compute_delayed(std::int32_t after) {
    if (!delayed_.is_some()) return;
    compute_apart(std::exchange(delayed_.work, {}), after);
    body_.back().layer = std::exchange(delayed_.layer, -1);
  }
  /// Adds the sums of the gradients of the residual stream.
  static void end_sublayer(const KindOfRank& of, const std::vector<std::size_t>& sums, bool again, StepWork& work) {
    for (const std::size_t sum : sums) {
      if (again && of.reading().runs_again(sum)) work += of.work(sum, KernelPass::recompute);
      work += of.work(sum, KernelPass::backward_input);
    }
  }
  /// Whether the input of the products before a sum is gathered again; experts keep their copies.
  bool gathers_again(const KindOfRank& of, std::size_t i) const {
    return model_.gathers_again(recompute_) && !of.has_experts(of.sublayer(i));
  }
  /// Numbers of a token that are gathered for the products between the last gathers before `i` and it.
  static std::int64_t input_width(const KindOfRank& of, std::size_t i) {
    std::int64_t width = 0;
    for (std::size_t j = i; j-- > 1 && of.sublayer(j) == of.sublayer(i) && !of.is_summed(j);) width += of.gathered_before(j);
    return width;
  }
  /// The gradients of weights by themselves.
  void weights(const KindOfRank& of, std::int32_t layer) {
    struct Sublayer {
      StepWork work;
      std::int32_t gathered = -1;
    };
    std::vector<Sublayer> all;
    int current = -1;
    const std::int32_t before = last_compute();
    for (std::size_t i = of.list().size(); i-- > 1;) {
      if (all.empty() || of.sublayer(i) != current) {
        current = of.sublayer(i);
        all.emplace_back();
      }
      all.back().work += of.work(i, KernelPass::backward_weight);
      if (!of.is_summed(i) || of.list()[i].kind != OpKind::product || !gathers_again(of, i)) continue;
      all.back().gathered = gather(false, static_cast<double>(input_width(of, i)), gathered_number(false), before);
    }
    for (const Sublayer& one : all) compute(one.work, {one.gathered});
    body_.back().layer = layer;
  }

  /// Gradients of weights that wait for the next all-to-all to begin (Sharing::delays_weights).
  struct Delayed {
    StepWork work = {};
    std::int32_t layer = -1;  ///< whose gradient is complete with them; -1: none's

    bool is_some() const { return work.is_some() || layer >= 0; }
  };

  const PartsOfRank& parts_;
  Recompute recompute_;
  Delayed delayed_;
};

}  // namespace tawpipe::detail
