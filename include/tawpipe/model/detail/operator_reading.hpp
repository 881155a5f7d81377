// Reads a layer's operators: their operations and traffic for one microbatch, and which run again.
// Not: what each operator computes (model/operator.hpp) nor what is kept of it
// (model/detail/operator_memory.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/detail/layer_software.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/operator.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

class OperatorReading {
 public:
  using Kind = Operator::Kind;

  OperatorReading(std::vector<Operator> list, const Transformer& model, const Batch& batch, Recompute recompute)
      : list_{std::move(list)},
        model_{model},
        batch_{batch},
        recompute_{recompute},
        element_{static_cast<double>(size_bytes(model.dtype))},
        tokens_{static_cast<double>(batch.tokens())} {
    mark_again();
  }

  void flops(StageWork& work) const {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const TokenFlops each = list_[i].flops(batch_.sequence);
      work.forward += Flops{each.forward * tokens_};
      work.backward_input += Flops{each.backward_input * tokens_};
      work.backward_weight += Flops{each.backward_weight * tokens_};
      if (again_[i]) work.recompute += Flops{each.forward * tokens_};
      work.parameters += list_[i].parameters();
      work.expert_parameters += list_[i].expert_parameters();
    }
  }

  const std::vector<Operator>& operators() const { return list_; }
  const Transformer& model() const { return model_; }
  const Batch& batch() const { return batch_; }
  Recompute recompute() const { return recompute_; }
  RecomputeParts parts_again() const { return model_.parts_again(recompute_); }
  const LayerSoftware& software() const { return software_of(model_.code, model_.fused_attention); }
  bool is_router(std::size_t i) const {
    return std::any_of(list_.begin(), list_.end(),
                       [&](const Operator& op) { return op.kind == Kind::route && op.from[0] == static_cast<int>(i); });
  }
  bool runs_again(std::size_t i) const { return again_[i] != 0; }
  /// Whether it runs again and keeps nothing: of named parts, `layernorm` is of the residual stream.
  /// Source: Megatron-LM, core/transformer/transformer_layer.py: recompute_input_layernorm,
  /// recompute_pre_mlp_layernorm.
  bool is_dropped(std::size_t i) const {
    const bool of_heads = list_[i].kind == Kind::norm && list_[i].in != model_.hidden;
    return again_[i] != 0 && !(of_heads && parts_again().any());
  }
  /// Whether attention's result is kept though it runs again: for the product that reads it.
  bool keeps_attention(std::size_t i) const {
    return list_[i].kind == Kind::attention && recompute_ == Recompute::selective && !runs_fused_core();
  }
  /// Whether it is of an MLP or of experts, after its norm.
  bool is_of_mlp(std::size_t i) const { return mlp_[i] != 0; }
  /// Whether it gives the residual stream.
  bool is_residual(std::size_t i) const { return stream_[i] != 0; }
  /// Numbers of a token of the keys and values that one of `tensor` ranks has and exchanges: a group of
  /// queries keeps its key and value head whole, and where heads are not divided equally, this is the
  /// rank with the most; torchtitan copies them for each query head.
  double exchanged_width(std::size_t i, int tensor) const {
    const Operator& op = list_[i];
    const auto of_rank = [&](std::size_t n, std::int64_t most, std::int64_t head) {
      const std::int64_t all = model_.is_torchtitan() ? op.in : std::min(list_[static_cast<std::size_t>(op.from[n])].out, most);
      const bool uneven = head > 0 && all % head == 0 && all / head % tensor != 0;
      if (uneven) return static_cast<double>((all / head + tensor - 1) / tensor * head);
      return std::max(static_cast<double>(all) / tensor, static_cast<double>(head));
    };
    return of_rank(1, op.count * op.key, op.key) + of_rank(2, op.count * op.value, op.value);
  }

  /// Bytes of a token that an operator moves by memory-bound kernels.
  struct Moved {
    double forward = 0;
    double backward = 0;
  };
  Moved moved_by(std::size_t i) const {
    const Operator& op = list_[i];
    const LayerSoftware& by = software();
    const auto numbers = [&](double width, const MovedNumbers& each) {
      return Moved{element_ * width * each.forward, element_ * width * each.backward};
    };
    const auto moved = [&](double width, double forward, double backward) { return numbers(width, {forward, backward}); };
    const auto in = static_cast<double>(op.in * op.copies);
    const auto out = static_cast<double>(op.out * op.copies);
    switch (op.kind) {
      case Kind::norm:
        return numbers(in, by.norm);
      case Kind::sum:
        return numbers(in, by.sum);
      case Kind::rotary:
        return numbers(out, op.scaled ? by.rotary + by.scaling : by.rotary);
      case Kind::attention:
        return numbers(out, by.copies);
      case Kind::convolution:
        return moved(in, 2, 3);
      case Kind::function:
        if (op.from[1] < 0) return numbers(in, by.function);
        return numbers(in, op.scaled ? by.gated + by.bounds : by.gated);
      case Kind::route:
        return moved(static_cast<double>(op.in), 5, 5);
      case Kind::dispatch:
      case Kind::combine:
        return moved(in + static_cast<double>(op.in), 1, 1);
      case Kind::delta_rule:
      case Kind::state_space:
        return moved(in + out, 1, 2);
      // Scores in float32, written and read for the choice.
      case Kind::index:
        return {8 * static_cast<double>(batch_.sequence) / 2, 0};
      default:
        return {};
    }
  }
  /// Bytes of a token of the sum of the gradients that several products give to what they read: all
  /// read, one written.
  double branches(std::size_t i) const {
    if (!software().sums_branches) return 0;
    int products = 0;
    for (const Operator& op : list_) products += op.kind == Kind::product && op.from[0] == static_cast<int>(i) ? 1 : 0;
    return products < 2 ? 0 : (products + 1) * element_ * static_cast<double>(list_[i].out);
  }

 private:
  /// Whether the policy runs fused attention again by its own choice, from its inputs to its result.
  bool runs_fused_core() const { return model_.chooses_parts(recompute_) && model_.fused_attention; }
  /// The last product, and with a norm or experts' sum after it that too.
  bool is_left_out(std::size_t i) const {
    if (!model_.stops_early()) return false;
    for (std::size_t after = i; after < list_.size(); ++after) {
      const Operator& op = list_[after];
      if (op.kind != Kind::sum && op.kind != Kind::combine && !(op.kind == Kind::product && op.out == model_.hidden))
        return false;
    }
    return true;
  }

  void mark_again() {
    again_.assign(list_.size(), 0);
    const RecomputeParts parts = model_.parts_again(recompute_);
    const bool chosen = model_.chooses_parts(recompute_);
    const bool own = runs_fused_core();
    mark_stream();
    if (chosen && model_.is_torchtitan()) return mark_every_second();
    for (std::size_t i = 1; i < list_.size(); ++i) {
      const Operator& op = list_[i];
      const bool norm = op.kind == Kind::norm && op.gives == Split::tokens;
      again_[i] = (recompute_ == Recompute::full && !is_left_out(i)) || (norm && (own || parts.layernorm)) ||
                  (op.kind == Kind::attention && (chosen || parts.core_attn)) || (mlp_[i] != 0 && parts.mlp) ||
                  (op.kind == Kind::function && (own || parts.activation));
    }
  }

  void mark_stream() {
    mlp_.assign(list_.size(), 0);
    stream_.assign(list_.size(), 0);
    bool inside = false;
    for (std::size_t i = 1; i < list_.size(); ++i) {
      const auto stream = static_cast<std::size_t>(list_[i].from[0]);
      stream_[i] = list_[i].kind == Kind::sum && (stream == 0 || stream_[stream] != 0);
      inside = stream_[i] == 0 && (inside || (list_[i].kind == Kind::product && list_[i].name.starts_with("feed_forward")));
      mlp_[i] = inside;
    }
  }
  /// torchtitan keeps attention's result and every second product's.
  void mark_every_second() {
    int products = 0;
    for (std::size_t i = 1; i < list_.size(); ++i) {
      const Kind kind = list_[i].kind;
      again_[i] = kind == Kind::product ? products++ % 2 == 1 : kind != Kind::attention;
    }
  }

  std::vector<Operator> list_;
  const Transformer& model_;
  const Batch& batch_;
  Recompute recompute_;
  double element_;
  double tokens_;
  std::vector<char> again_;   ///< [operator] whether it runs again in the backward
  std::vector<char> mlp_;     ///< [operator]
  std::vector<char> stream_;  ///< [operator]
};

}  // namespace tawpipe::detail
