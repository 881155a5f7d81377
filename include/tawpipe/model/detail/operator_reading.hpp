// Reads a layer's operators: their operations, memory, traffic and kernels for one microbatch.
// Not: what each operator computes (model/operator.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/detail/layer_software.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/operator.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

class OperatorReading {
 public:
  using Kind = Operator::Kind;

  /// @param sharing  memory() is one rank's
  OperatorReading(std::vector<Operator> list, const Transformer& model, const Batch& batch, Recompute recompute,
                  const Sharing& sharing = {})
      : list_{std::move(list)},
        model_{model},
        batch_{batch},
        recompute_{recompute},
        sharing_{sharing},
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

  /// Workspaces: all that is not kept, two tensors of the residual stream under construction, and in
  /// the backward the stream's gradient and those inside the sublayer that has most.
  void memory(StageWork& work) const {
    const double all = kept(false);
    const double saved = kept(true);
    const double hidden = element_ * static_cast<double>(model_.hidden) / sharing_.token_parts();
    work.saved = bytes(saved);
    work.boundary = bytes(hidden);
    work.forward_workspace = bytes(all - saved + 2 * hidden);
    work.backward_workspace = bytes(all - saved + hidden + element_ * widest_gradients() / sharing_.ranks());
    work.stash = work.stashed_workspace = bytes(all - saved);  // at most all that is computed again
  }

  const std::vector<Operator>& operators() const { return list_; }
  const Transformer& model() const { return model_; }
  const Batch& batch() const { return batch_; }
  const LayerSoftware& software() const { return software_of(model_.code, model_.fused_attention); }
  bool is_router(std::size_t i) const {
    return std::any_of(list_.begin(), list_.end(),
                       [&](const Operator& op) { return op.kind == Kind::route && op.from[0] == static_cast<int>(i); });
  }
  bool runs_again(std::size_t i) const { return again_[i] != 0; }
  /// Whether it is of an MLP or of experts, after its norm.
  bool is_of_mlp(std::size_t i) const { return mlp_[i] != 0; }

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
        return numbers(out, by.rotary);
      case Kind::attention:
        return numbers(out, by.copies);
      case Kind::convolution:
        return moved(in, 2, 3);
      case Kind::function:
        return numbers(in, op.from[1] < 0 ? by.function : by.gated);
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
  Bytes bytes(double of_token) const { return Bytes{static_cast<std::int64_t>(of_token * tokens_ + 0.5)}; }
  bool narrow() const { return is_narrow(model_.products); }
  bool is_gated(const Operator& op) const { return op.kind == Kind::function && op.from[1] >= 0; }
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
    const bool own = chosen && model_.fused_attention;
    mark_mlp();
    if (chosen && model_.is_torchtitan()) return mark_every_second();
    for (std::size_t i = 1; i < list_.size(); ++i) {
      const Operator& op = list_[i];
      const bool norm = op.kind == Kind::norm && op.gives == Split::tokens;
      again_[i] = (recompute_ == Recompute::full && !is_left_out(i)) || (norm && (own || parts.layernorm)) ||
                  (op.kind == Kind::attention && (chosen || parts.core_attn)) || (mlp_[i] != 0 && parts.mlp) ||
                  (op.kind == Kind::function && (own || parts.activation));
    }
  }

  void mark_mlp() {
    mlp_.assign(list_.size(), 0);
    bool inside = false;
    int stream = 0;  // the operator that gave the residual stream last
    for (std::size_t i = 1; i < list_.size(); ++i) {
      const bool residual = list_[i].kind == Kind::sum && list_[i].from[0] == stream;
      if (residual) stream = static_cast<int>(i);
      inside = !residual && (inside || (list_[i].kind == Kind::product && list_[i].name.starts_with("feed_forward")));
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

  /// Bytes of a token that are kept. @param policy  with what runs again left out
  double kept(bool policy) const {
    if (policy && recompute_ == Recompute::full) return element_ * static_cast<double>(list_[0].out) / sharing_.token_parts();
    struct Read {
      double wide = 0;  ///< numbers of it that operators read in the model's format
      bool products = false;
    };
    std::vector<Read> reads(list_.size());
    double sum = 0;
    for (std::size_t i = 1; i < list_.size(); ++i) {
      const Operator& op = list_[i];
      const bool again = policy && again_[i] != 0;
      const auto read = [&](int at, double width) {
        if (at >= 0) reads[static_cast<std::size_t>(at)].wide = std::max(reads[static_cast<std::size_t>(at)].wide, width);
      };
      const auto read_all = [&] {
        for (const int at : op.from) {
          if (at >= 0) read(at, width_of(static_cast<std::size_t>(at)));
        }
      };
      switch (op.kind) {
        case Kind::product:
          if (narrow() && !is_router(i)) {
            reads[static_cast<std::size_t>(op.from[0])].products = true;
          } else {
            read_all();
          }
          break;
        case Kind::norm:
          read_all();
          if (!again) sum += 4.0 / parts_of(i);
          break;
        case Kind::attention:
          read(op.from[0], width_of(static_cast<std::size_t>(op.from[0])));
          read(op.from[1], width_of(static_cast<std::size_t>(op.from[1])));
          read(op.from[2], std::min(width_of(static_cast<std::size_t>(op.from[2])), static_cast<double>(op.count * op.value)));
          if (op.from[3] >= 0) read_all();
          if (!again) sum += 4.0 * op.count / parts_of(i);
          if (!again || !model_.chooses_parts(recompute_)) read(static_cast<int>(i), width_of(i));
          break;
        case Kind::function:
          read_all();
          if (!again && is_gated(op) && !model_.fused_swiglu) sum += element_ * width_of(i) / parts_of(i);
          break;
        case Kind::route:
          if (!again) sum += 4.0 * static_cast<double>(op.in) / parts_of(i);
          break;
        case Kind::convolution:
        case Kind::delta_rule:
        case Kind::state_space:
        case Kind::index:
          read_all();
          break;
        default:
          break;
      }
    }
    for (std::size_t i = 0; i < list_.size(); ++i) {
      if (policy && again_[i] != 0 && !(list_[i].kind == Kind::attention && !model_.chooses_parts(recompute_))) continue;
      const bool ids = list_[i].kind == Kind::index;  // of the chosen tokens
      sum += (ids ? 4 : element_) * reads[i].wide / parts_of(i);
      if (reads[i].products) sum += bytes_of(model_.products) * width_of(i) / parts_of(i);
    }
    return sum;
  }
  /// The number of parts of its result of which a rank has one: copies for experts that ranks split by
  /// their width are on all of them.
  double parts_of(std::size_t i) const {
    const Operator& op = list_[i];
    if (op.kind == Kind::dispatch && !sharing_.whole_experts) return sharing_.token_ranks();
    return op.gives == Split::tokens || op.gives == Split::partial ? sharing_.token_parts() : sharing_.ranks();
  }
  double width_of(std::size_t i) const { return static_cast<double>(list_[i].out * list_[i].copies); }

  /// Numbers of a token of the gradients between a sublayer's norm and its last product, of the
  /// sublayer that has most.
  double widest_gradients() const {
    double most = 0;
    double sum = 0;
    for (std::size_t i = 1; i < list_.size(); ++i) {
      const Operator& op = list_[i];
      const bool inside =
          op.gives == Split::width || op.kind == Kind::dispatch || (op.gives == Split::experts && op.out != model_.hidden);
      sum = op.kind == Kind::sum ? 0 : sum + (inside && op.kind != Kind::rotary ? width_of(i) : 0);
      most = std::max(most, sum);
    }
    return most;
  }

  std::vector<Operator> list_;
  const Transformer& model_;
  const Batch& batch_;
  Recompute recompute_;
  Sharing sharing_;
  double element_;
  double tokens_;
  std::vector<char> again_;  ///< [operator] whether it runs again in the backward
  std::vector<char> mlp_;    ///< [operator]
};

}  // namespace tawpipe::detail
