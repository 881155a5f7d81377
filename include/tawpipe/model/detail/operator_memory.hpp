// What a layer's operators keep for the backward, leave between its halves, and need while they run.
// Not: what each operator computes (model/operator.hpp), nor when the bytes live (analysis/memory.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/core/units.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/detail/operator_reading.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/kernel.hpp"
#include "tawpipe/model/operator.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

/// The memory of one of the ranks that share a layer.
class OperatorMemory {
 public:
  using Kind = Operator::Kind;

  explicit OperatorMemory(const OperatorReading& reading, const Sharing& sharing = {})
      : reading_{reading},
        list_{reading.operators()},
        model_{reading.model()},
        sharing_{sharing},
        element_{static_cast<double>(size_bytes(model_.dtype))},
        tokens_{static_cast<double>(reading.batch().tokens())} {}

  /// Workspaces: all that is not kept; in the forward two tensors of the residual stream under
  /// construction, in the backward the stream's gradient and those inside the sublayer that has most;
  /// and what a rank gathers of keys and values or sends to experts beside it.
  void add_to(StageWork& work) const {
    const Kept none = kept(false);
    const Kept policy = kept(true);
    const double again = std::max(0.0, none.all - policy.all);  // an MLP that runs again may keep more: its input is wide
    const double hidden = element_ * static_cast<double>(model_.hidden) / sharing_.token_parts();
    const double keys = gathered_keys();
    work.saved = bytes(policy.all);
    work.boundary = bytes(hidden);
    work.forward_workspace = bytes(again + 2 * hidden + keys + sent_copies());
    work.backward_workspace = bytes(again + hidden + element_ * widest_gradients() + 2 * keys + sent_copies());
    const double places = policy.results - element_ * copied_keys();
    const double left = std::clamp(none.inputs + element_ * product_gradients() - places, 0.0, again);
    work.stashed_workspace = bytes(left);
    work.stash = work.stashed_workspace;
    if (left > 0 && !reading_.parts_again().any()) work.stash += std::min(norm_sums(), bytes(again) - work.stash);
  }

  /// Whether the gradient [microbatch, sequence, hidden] that an embedding waits for fits among what the
  /// layer keeps: in place of SiLU's result, where it is a tensor that is kept, after the gradients of
  /// the norms' weights. @pre not shared
  bool fits_lookup_gradient() const {
    double silu = 0;
    for (std::size_t i = 0; i < list_.size(); ++i) silu += reading_.is_dropped(i) ? 0 : silu_numbers(i);
    const auto hidden = static_cast<double>(model_.hidden);
    return tokens_ * silu >= tokens_ * hidden + static_cast<double>(norm_numbers()) * std::max(1.0, 4 / element_);
  }

 private:
  /// Bytes of a token.
  struct Kept {
    double all = 0;
    double results = 0;  ///< of operators: gradients take the place of those that are not read again
    double inputs = 0;   ///< of these, what products read
  };
  /// How an operator's result is read by what the policy does not run again.
  struct Read {
    double wide = 0;        ///< numbers of it in the model's format
    bool narrow = false;    ///< by products in theirs
    bool products = false;  ///< by products in the model's
    bool gathered = false;  ///< by products that need all tokens of it
  };

  Bytes bytes(double of_token) const { return Bytes{static_cast<std::int64_t>(of_token * tokens_ + 0.5)}; }
  double width_of(std::size_t i) const { return static_cast<double>(list_[i].out * list_[i].copies); }
  /// Numbers of its n-th input that it reads: of a product that also gives keys, the values.
  double read_width(const Operator& op, std::size_t n) const {
    const double all = width_of(static_cast<std::size_t>(op.from[n]));
    return op.kind == Kind::attention && n == 2 ? std::min(all, static_cast<double>(op.count * op.value)) : all;
  }
  /// The number of parts of its result of which a rank has one: copies for experts that ranks split by
  /// their width are on all of them.
  double parts_of(std::size_t i) const {
    const Operator& op = list_[i];
    if (op.kind == Kind::dispatch && !sharing_.whole_experts) return sharing_.token_ranks();
    return op.gives == Split::tokens || op.gives == Split::partial ? sharing_.token_parts() : sharing_.ranks();
  }
  double silu_numbers(std::size_t i) const { return model_.fused_swiglu || !is_swiglu(i) ? 0 : width_of(i); }
  bool is_swiglu(std::size_t i) const {
    const Operator& op = list_[i];
    return op.kind == Kind::function && op.from[1] >= 0 && read_width(op, 1) == width_of(i);
  }

  /// @param policy  with what runs again left out; what that reads is kept unless it runs again too
  Kept kept(bool policy) const {
    Kept sum;
    if (policy && reading_.recompute() == Recompute::full) {
      sum.all = sum.results = element_ * static_cast<double>(list_[0].out) / sharing_.token_parts();
      return sum;
    }
    std::vector<Read> reads(list_.size());
    for (std::size_t i = 1; i < list_.size(); ++i) {
      const bool again = policy && reading_.is_dropped(i);
      mark_reads(reads, i, again);
      if (!again) sum.all += statistics(i) / parts_of(i);
    }
    for (std::size_t i = 0; i < list_.size(); ++i) {
      if (policy && reading_.is_dropped(i) && !reading_.keeps_attention(i)) continue;
      const bool ids = list_[i].kind == Kind::index;  // of the chosen tokens
      const double wide = (ids ? 4 : element_) / parts_of(i);
      const double narrow = reads[i].narrow ? bytes_of(model_.products) * width_of(i) / parts_of(i) : 0;
      const double gathered = reads[i].gathered ? others_tokens(i, reads[i].narrow) : 0;
      sum.results += wide * reads[i].wide + narrow + gathered;
      sum.inputs += (reads[i].products ? wide * width_of(i) : 0) + narrow + gathered;
    }
    sum.all += sum.results;
    return sum;
  }

  void mark_reads(std::vector<Read>& reads, std::size_t i, bool again) const {
    const Operator& op = list_[i];
    const auto read = [&](std::size_t at, double width) { reads[at].wide = std::max(reads[at].wide, width); };
    const auto read_all = [&] {
      for (std::size_t n = 0; n < op.from.size(); ++n) {
        if (op.from[n] >= 0) read(static_cast<std::size_t>(op.from[n]), read_width(op, n));
      }
    };
    if (op.kind == Kind::product && !again) {
      const bool narrow = is_narrow(model_.products) && !reading_.is_router(i);
      for (const int at : op.from) {
        if (at < 0) continue;
        Read& input = reads[static_cast<std::size_t>(at)];
        (narrow ? input.narrow : input.products) = true;
        input.gathered = input.gathered || (op.needs == Split::whole && !model_.gathers_again(reading_.recompute()));
      }
      if (!narrow) read_all();
      return;
    }
    const bool needs = op.kind == Kind::norm || op.kind == Kind::attention || op.kind == Kind::function ||
                       op.kind == Kind::convolution || op.kind == Kind::delta_rule || op.kind == Kind::state_space ||
                       op.kind == Kind::index;
    if (needs || again) read_all();
    if (op.kind == Kind::attention && model_.fused_attention && !again) read(i, width_of(i));
  }

  /// Bytes of a token that an operator keeps beside what it reads. Unfused attention has for each head
  /// and pair of tokens the softmax, its dropout's mask (1) and result; its code has dropout before
  /// residual sums too.
  double statistics(std::size_t i) const {
    const Operator& op = list_[i];
    const auto count = static_cast<double>(op.count);
    switch (op.kind) {
      case Kind::norm:  // a number of each group: norms of heads have one for each
        return 4 * static_cast<double>(op.vectors > 0 ? std::max<std::int64_t>(1, op.in / op.vectors) : 1);
      case Kind::attention:
        return count * (model_.fused_attention ? 4 : (2 * element_ + 1) * static_cast<double>(reading_.batch().sequence));
      case Kind::function:
        return element_ * silu_numbers(i);
      case Kind::route:
        return 4 * static_cast<double>(op.in);
      case Kind::sum:
        return !model_.fused_attention && reading_.is_residual(i) ? width_of(i) : 0;
      default:
        return 0;
    }
  }
  /// Bytes of a token of what the other tensor-parallel ranks had of a result that all of them keep.
  double others_tokens(std::size_t i, bool narrow) const {
    if (list_[i].gives != Split::tokens) return 0;
    const double number = narrow && model_.gathers_narrow_inputs() ? bytes_of(model_.products) : element_;
    return number * width_of(i) * (1.0 / sharing_.token_ranks() - 1.0 / sharing_.token_parts());
  }

  /// Numbers of a token of the gradients that a backward_weight reads: of products' results, and of
  /// those whose norm by heads is a weight's. A router's has the place of its scores; what is added up
  /// has one gradient, of which the copies for the experts' last products are made when they are read.
  double product_gradients() const {
    double sum = 0;
    for (std::size_t i = 1; i < list_.size(); ++i) {
      const Operator& op = list_[i];
      const bool counts = (op.kind == Kind::product && !reading_.is_router(i)) || op.kind == Kind::combine || is_inner_sum(i) ||
                          (op.kind == Kind::norm && op.gives == Split::width);
      if (!counts || is_added(i)) continue;
      sum += (op.kind == Kind::combine ? static_cast<double>(op.out) : width_of(i)) / parts_of(i);
    }
    return sum;
  }
  bool is_inner_sum(std::size_t i) const { return list_[i].kind == Kind::sum && !reading_.is_residual(i); }
  /// Whether its result is added to others before the residual stream's sum.
  bool is_added(std::size_t i) const {
    for (std::size_t to = i + 1; to < list_.size(); ++to) {
      const bool adds = list_[to].kind == Kind::combine || is_inner_sum(to);
      if (adds && (list_[to].from[0] == static_cast<int>(i) || (is_inner_sum(to) && list_[to].from[1] == static_cast<int>(i))))
        return true;
    }
    return false;
  }
  /// Numbers of a token of latent attention's keys that its own choice of what runs again keeps, as attention
  /// reads them, and whose places no gradient takes: heads share the turned part, and its gradient is one.
  double copied_keys() const {
    double sum = 0;
    for (std::size_t i = 1; i < list_.size() && model_.chooses_parts(reading_.recompute()); ++i) {
      if (list_[i].kind != Kind::attention || list_[i].from[1] < 0) continue;
      const Operator& keys = list_[static_cast<std::size_t>(list_[i].from[1])];
      const bool shared = keys.kind == Kind::rotary && list_[static_cast<std::size_t>(keys.from[0])].gives == Split::tokens;
      if (shared) sum += static_cast<double>(list_[i].count * keys.in) / parts_of(i);
    }
    return sum;
  }
  /// Weights of the norms of tokens, of the residual stream and of short vectors.
  std::int64_t norm_numbers() const {
    std::int64_t sum = 0;
    for (const Operator& op : list_) sum += op.kind == Kind::norm && op.gives == Split::tokens ? op.in : 0;
    return sum;
  }
  /// The gradients of the norms' weights, a row for each sequence, as all sizes grow with these.
  Bytes norm_sums() const {
    const std::int64_t sums =
        norm_numbers() * reading_.batch().microbatch_size * std::max<std::int64_t>(4, size_bytes(model_.dtype));
    return Bytes{(sums + sharing_.ranks() - 1) / sharing_.ranks()};
  }

  /// Numbers of a token of the gradients between a sublayer's norm and its last product, of the
  /// sublayer that has most.
  double widest_gradients() const {
    std::vector<char> read_by_attention(list_.size(), 0);  // counted there
    for (const Operator& op : list_) {
      for (std::size_t n = 0; n < 3 && (op.kind == Kind::attention || op.kind == Kind::rotary); ++n) {
        if (op.from[n] >= 0) read_by_attention[static_cast<std::size_t>(op.from[n])] = 1;
      }
    }
    double most = 0;
    double sum = 0;
    for (std::size_t i = 1; i < list_.size(); ++i) {
      const Operator& op = list_[i];
      const bool inside = op.gives == Split::width || op.kind == Kind::dispatch || (op.gives == Split::experts && !is_added(i));
      if (op.kind == Kind::sum) sum = 0;
      if (inside && op.kind != Kind::rotary && read_by_attention[i] == 0) sum += width_of(i) / parts_of(i);
      for (std::size_t n = 0; n < 3 && op.kind == Kind::attention; ++n) sum += read_width(op, n) / parts_of(i);
      most = std::max(most, sum);
    }
    return most;
  }
  /// Bytes of a token of the keys and values of all context-parallel ranks.
  double gathered_keys() const {
    if (sharing_.context == 1 || sharing_.exchange != ContextExchange::all_gather) return 0;
    double most = 0;
    for (std::size_t i = 1; i < list_.size(); ++i) {
      if (list_[i].kind == Kind::attention) most = std::max(most, reading_.exchanged_width(i, sharing_.tensor));
    }
    return element_ * most / sharing_.expert;
  }
  /// Bytes of a token of the copies that are sent to ranks with whole experts.
  double sent_copies() const {
    double most = 0;
    for (std::size_t i = 1; i < list_.size() && sharing_.whole_experts && sharing_.ranks() > 1; ++i) {
      if (list_[i].kind == Kind::dispatch) most = std::max(most, width_of(i));
    }
    return element_ * most / sharing_.ranks();
  }

  const OperatorReading& reading_;
  const std::vector<Operator>& list_;
  const Transformer& model_;
  Sharing sharing_;
  double element_;
  double tokens_;
};

}  // namespace tawpipe::detail
