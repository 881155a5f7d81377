// The steps of stages whose layers are of several kinds, from how their operators split values.
// Not: the steps of equal layers (model/detail/body_writer.hpp), nor what an operator costs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/detail/body_steps.hpp"
#include "tawpipe/model/detail/operator_reading.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace tawpipe::inline v0::detail {

/// Where an operator needs whole what ranks have by tokens, they gather it; where one gives summands,
/// they sum them, by tokens with sequence parallelism. Copies of tokens go to whole experts and back by
/// all-to-all; experts that ranks split by their width are gathered and summed as an MLP. The backward
/// goes the other way: the gradient of a sum is gathered, that of a gather is summed, during which the
/// gradients of weights are computed.
class OperatorBody : public BodySteps {
 public:
  OperatorBody(const std::vector<OperatorReading>& kinds, const Transformer& model, const Batch& batch, Recompute recompute,
               const Sharing& sharing)
      : kinds_{kinds},
        model_{model},
        batch_{batch},
        sharing_{sharing},
        recompute_{recompute},
        element_{static_cast<double>(size_bytes(model.dtype))},
        tokens_{static_cast<double>(batch.tokens())} {}

  void forward(const StageWork& stage) {
    if (stage.first_edge) {
      compute(0, static_cast<double>(embedding_traffic(model_, batch_).forward) / sharing_.ranks());
      sum(false, width());
    } else if (sharing_.gathers_messages()) {
      collective(Kind::all_gather, Axis::tensor, false, of_rank_tokens(width()), last());
    }
    for (int layer = 0; layer < stage.layers; ++layer) {
      compute_apart(0, 0, last());
      body_.back().layer = layer;
      forward(kind(stage, layer), false);
    }
    if (!stage.last_edge) return;
    compute_apart(0, 2 * stream(), last());
    body_.back().layer = stage.layers;
    gather(false, width());
    compute(stage_head_.forward.value() / sharing_.ranks(), head_traffic(stage_head_.forward_traffic, 2));
    if (sharing_.tensor > 1) collective(Kind::all_reduce, Axis::tensor, false, 12 * tokens_ / sharing_.token_ranks(), last());
  }

  /// @param input  the gradients of inputs; @param weight  those of weights
  void backward(const StageWork& stage, bool input, bool weight) {
    if (stage.last_edge) {
      const std::int32_t gathered = weight ? gather(true, width()) : -1;
      const double ranks = sharing_.ranks();
      if (input) {
        compute((stage_head_.backward_input + stage_head_.recompute).value() / ranks,
                head_traffic(stage_head_.backward_traffic, 3));
        const std::int32_t summed = sum(true, width());
        if (weight) compute(stage_head_.backward_weight.value() / ranks, 0, {gathered});
        compute(0, 3 * stream(), {summed});
      } else {
        compute(stage_head_.backward_weight.value() / ranks, 0, {gathered});
      }
      if (weight) {
        body_.back().layer = stage.layers;
        compute_apart(0, 0, last());
      }
    } else if (input && sharing_.gathers_messages()) {
      collective(Kind::all_gather, Axis::tensor, true, of_rank_tokens(width()), last());
    }
    for (int layer = stage.layers; layer-- > 0;) {
      const OperatorReading& reading = kind(stage, layer);
      const bool again = layer < stage.recomputed;
      if (input && again && recompute_ == Recompute::full) forward(reading, true);
      backward(reading, input, weight, again && recompute_ != Recompute::full);
      if (weight) {
        compute_apart(0, 0, last());
        body_.back().layer = layer;
      }
    }
    if (stage.first_edge && input) {
      gather(true, width());
      compute(0, static_cast<double>(embedding_traffic(model_, batch_).backward) / sharing_.ranks());
    }
  }
  void take_head(const StageWork& head) { stage_head_ = head; }

 private:
  using OpKind = Operator::Kind;

  const OperatorReading& kind(const StageWork& stage, int layer) const {
    return kinds_[stage.kinds.empty() ? 0 : stage.kinds[static_cast<std::size_t>(layer)]];
  }
  double width() const { return static_cast<double>(model_.hidden); }
  double of_rank_tokens(double width) const { return tokens_ / sharing_.token_ranks() * element_ * width; }
  /// A rank's part of the head's bytes, without those of its norm.
  double head_traffic(Bytes all, int of_norm) const {
    return (static_cast<double>(all.value()) - of_norm * tokens_ * element_ * width()) / sharing_.ranks();
  }
  /// Bytes of one rank's part of the residual stream.
  double stream() const { return tokens_ * element_ * width() / sharing_.token_parts(); }
  bool splits() const { return sharing_.tensor > 1; }

  std::int32_t gather(bool gradients, double width) {
    if (!splits() || !sharing_.sequence_parallel) return -1;
    return collective(Kind::all_gather, Axis::tensor, gradients, of_rank_tokens(width), last_compute());
  }
  std::int32_t sum(bool gradients, double width) {
    if (!splits()) return -1;
    const Kind how = sharing_.sequence_parallel ? Kind::reduce_scatter : Kind::all_reduce;
    return collective(how, Axis::tensor, gradients, of_rank_tokens(width), last());
  }
  void send(bool gradients, const Operator& op) {
    collective(Kind::all_to_all, Axis::all, gradients,
               tokens_ * element_ * static_cast<double>(op.in * op.copies) / sharing_.ranks(), last_compute());
  }
  /// Keys and values of the ranks that split a sequence.
  void exchange(bool backward, const std::vector<Operator>& list, const Operator& op, double flops) {
    const auto width_of = [&](int at) { return static_cast<double>(list[static_cast<std::size_t>(at)].out); };
    const double keys =
        of_rank_tokens(width_of(op.from[1]) + std::min(width_of(op.from[2]), static_cast<double>(op.count * op.value))) /
        sharing_.tensor;
    if (sharing_.exchange == ContextExchange::all_gather) {
      collective(Kind::all_gather, Axis::context, false, keys * sharing_.context, last());
      compute(flops, 0);
      if (backward) collective(Kind::reduce_scatter, Axis::context, true, keys * sharing_.context, last());
      return;
    }
    const double queries = of_rank_tokens(static_cast<double>(op.in)) / sharing_.tensor;
    collective(Kind::all_to_all, Axis::context, backward, backward ? queries : queries + keys, last());
    compute(flops, 0);
    collective(Kind::all_to_all, Axis::context, backward, backward ? queries + keys : queries, last());
  }
  /// Whether it reads whole what ranks have by tokens.
  static bool gathers(const std::vector<Operator>& list, const Operator& op) {
    if (op.from[0] < 0) return false;
    const bool by_tokens = list[static_cast<std::size_t>(op.from[0])].gives == Split::tokens;
    return by_tokens && (op.needs == Split::whole || op.needs == Split::width);
  }

  /// @param again  only what runs again
  void forward(const OperatorReading& reading, bool again) {
    const std::vector<Operator>& list = reading.operators();
    std::vector<char> gathered(list.size(), 0);
    for (std::size_t i = 1; i < list.size(); ++i) {
      const Operator& op = list[i];
      if (again && !reading.runs_again(i)) continue;
      const bool experts = op.kind == OpKind::dispatch && !sharing_.whole_experts;
      if ((gathers(list, op) || experts) && gathered[static_cast<std::size_t>(op.from[0])] == 0) {
        gathered[static_cast<std::size_t>(op.from[0])] = 1;
        gather(false, static_cast<double>(list[static_cast<std::size_t>(op.from[0])].out));
      }
      if (op.kind == OpKind::combine && sharing_.whole_experts) send(false, op);
      step(reading, i, false, op.flops(batch_.sequence).forward, reading.moved_by(i).forward);
      if (op.kind == OpKind::dispatch && sharing_.whole_experts) send(false, op);
      if (op.gives == Split::partial || (op.kind == OpKind::combine && !sharing_.whole_experts))
        sum(false, static_cast<double>(op.out));
    }
  }

  void backward(const OperatorReading& reading, bool input, bool weight, bool selective) {
    const std::vector<Operator>& list = reading.operators();
    double of_weights = 0;
    for (std::size_t i = list.size(); i-- > 1;) {
      const Operator& op = list[i];
      const TokenFlops flops = op.flops(batch_.sequence);
      of_weights += rank_part(op, flops.backward_weight);
      const bool gathers_again =
          weight && is_first_to_gather(list, i) && op.kind != OpKind::dispatch && model_.gathers_again(recompute_);
      const double read = static_cast<double>(list[static_cast<std::size_t>(std::max<int>(0, op.from[0]))].out);
      if (!input) {
        if (gathers_again) compute(std::exchange(of_weights, 0), 0, {gather(false, read)});
        continue;
      }
      if (op.gives == Split::partial || (op.kind == OpKind::combine && !sharing_.whole_experts))
        gather(true, static_cast<double>(op.out));
      if (op.kind == OpKind::dispatch && sharing_.whole_experts) send(true, op);
      const auto moved = reading.moved_by(i);
      const bool again = selective && reading.runs_again(i);
      step(reading, i, true, flops.backward_input + (again ? flops.forward : 0),
           moved.backward + reading.branches(i) + (again ? moved.forward : 0));
      if (op.kind == OpKind::combine && sharing_.whole_experts) send(true, op);
      // The gradient of what was gathered is summed when all that reads it has given its part.
      if (!is_first_to_gather(list, i)) continue;
      const std::int32_t arrived = gathers_again ? gather(false, read) : -1;
      const std::int32_t summed = sum(true, read);
      if (weight) compute(std::exchange(of_weights, 0), 0, {arrived});
      if (summed >= 0) compute(0, 0, {summed});
    }
    if (weight) compute(of_weights, 0);
  }
  bool is_first_to_gather(const std::vector<Operator>& list, std::size_t i) const {
    const auto reads = [&](const Operator& op) {
      return gathers(list, op) || (op.kind == OpKind::dispatch && !sharing_.whole_experts);
    };
    if (!reads(list[i])) return false;
    for (std::size_t before = 1; before < i; ++before) {
      if (reads(list[before]) && list[before].from[0] == list[i].from[0]) return false;
    }
    return true;
  }
  double rank_part(const Operator& op, double of_token) const {
    const bool by_tokens = op.needs == Split::tokens && op.gives == Split::tokens;
    return of_token * tokens_ / (by_tokens ? sharing_.token_parts() : sharing_.ranks());
  }
  void step(const OperatorReading& reading, std::size_t i, bool backward, double flops, double traffic) {
    const Operator& op = reading.operators()[i];
    if (op.kind == OpKind::attention && sharing_.context > 1)
      return exchange(backward, reading.operators(), op, rank_part(op, flops));
    compute(rank_part(op, flops), rank_part(op, traffic));
  }

  const std::vector<OperatorReading>& kinds_;
  const Transformer& model_;
  const Batch& batch_;
  Sharing sharing_;
  Recompute recompute_;
  double element_;
  double tokens_;
  StageWork stage_head_ = {};
};

}  // namespace tawpipe::detail
