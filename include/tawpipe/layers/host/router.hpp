// The router of a layer with experts: which of them each token passes, their weights, and the gradients
// of both. Softmax or sigmoid scores, groups, and the part of a loss that balances experts.
// Not: the experts (layers/host/experts.hpp) nor that loss itself (layers/host/balance_loss.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tawpipe/layers/expert_routing.hpp"
#include "tawpipe/layers/host/blas.hpp"
#include "tawpipe/layers/host/kernels.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::host {

/// The k largest of scores [E], of equal ones the first, in falling order: expert [k] and score [k].
/// @pre 0 < k <= E
template <class T>
void choose_largest(const T* scores, std::int64_t experts, std::int64_t k, std::int32_t* expert, T* score) {
  for (std::int64_t e = 0; e < experts; ++e) {
    if (e >= k && !(scores[e] > score[k - 1])) continue;
    std::int64_t at = std::min(e, k - 1);
    for (; at > 0 && scores[e] > score[at - 1]; --at) {
      score[at] = score[at - 1];
      expert[at] = expert[at - 1];
    }
    score[at] = scores[e];
    expert[at] = static_cast<std::int32_t>(e);
  }
}

/// The same of logits, with their softmax over the chosen in `weight`.
template <class T>
void choose_experts(const T* logits, std::int64_t experts, std::int64_t k, std::int32_t* expert, T* weight) {
  choose_largest(logits, experts, k, expert, weight);
  softmax(weight, k);
}

/// Scores of groups that are not among the `open` best become the least number. A group is `size` experts
/// that follow each other, and as good as the sum of its two largest scores; of equal groups the first.
/// Source: DeepSeek-AI 2024, DeepSeek-V3, arXiv:2412.19437, section 2.1.2; inference/model.py, Gate.
/// @pre 0 < open <= groups
template <class T>
void close_groups(T* scores, std::int64_t groups, std::int64_t size, std::int64_t open) {
  const auto value = [&](std::int64_t group) {
    T first = -std::numeric_limits<T>::infinity();
    T second = first;
    for (std::int64_t e = group * size; e < (group + 1) * size; ++e) {
      second = std::max(second, std::min(first, scores[e]));
      first = std::max(first, scores[e]);
    }
    return size > 1 ? first + second : first;
  };
  // A group closes one after the other, the worst first, of equal ones the last.
  for (std::int64_t closed = 0; closed < groups - open; ++closed) {
    std::int64_t worst = -1;
    T least = 0;
    for (std::int64_t group = 0; group < groups; ++group) {
      const T of_group = value(group);
      if (of_group == -std::numeric_limits<T>::infinity()) continue;  // closed
      if (worst >= 0 && of_group > least) continue;
      worst = group;
      least = of_group;
    }
    if (worst < 0) return;
    std::fill_n(scores + worst * size, size, -std::numeric_limits<T>::infinity());
  }
}

/// What a layer's router has beside its matrix; null: not used.
template <class T>
struct RouterNumbers {
  const T* bias = nullptr;     ///< [E] added to sigmoid scores for the choice
  T* probabilities = nullptr;  ///< [E] to which choose() adds those of all tokens
  const T* balance = nullptr;  ///< [E] derivative of the whole loss by the probability of each expert, of any token
};

/// Softmax: the largest logits are chosen, and the weights are their softmax over the chosen, or over all
/// experts. Sigmoid: s = sigmoid(logit); the largest s + bias in the best groups are chosen, and the
/// weights are s times a factor, divided by the sum of the chosen s where they are to have a sum.
/// Source: Jiang et al. 2024, Mixtral, arXiv:2401.04088, section 2.1; DeepSeek-AI 2024, DeepSeek-V3,
/// arXiv:2412.19437, eq. 13 to 16; transformers, models/deepseek_v3/modeling_deepseek_v3.py.
template <class T>
class Router {
 public:
  Router(const Transformer& model, const Batch& batch, const RouterRules& rules)
      : hidden_{model.hidden},
        experts_{model.experts},
        chosen_{model.experts_per_token},
        groups_{model.expert_groups},
        open_groups_{model.groups_per_token},
        tokens_{batch.tokens()},
        sigmoid_{rules.sigmoid},
        sum_to_one_{rules.sum_to_one},
        of_all_{RoutingSizes::has_all_gradients(rules)},
        scale_{static_cast<T>(rules.scale)},
        sizes_{model, batch, std::int64_t{sizeof(T)}, rules} {}

  const RoutingSizes& sizes() const { return sizes_; }
  /// Whether all logits have gradients, in Routing::scores; else those of the chosen, in Routing::weight.
  bool of_all() const { return of_all_; }

  /// The chosen experts of each token of ffn_norm [tokens, H], their weights, and the rows of each expert.
  /// @param router  [E, H]
  void choose(const T* router, const T* ffn_norm, const Routing<T>& routing, const RouterNumbers<T>& numbers) const {
    for_each_logits(
        router, ffn_norm, [&](std::int64_t) { return routing.rows; },
        [&](std::int64_t token, T* logits) {
          const std::int64_t pair = token * chosen_;
          if (sigmoid_) {
            choose_by_sigmoids(logits, routing, pair, numbers.bias);
            return;
          }
          choose_experts(logits, experts_, chosen_, routing.expert + pair, routing.weight + pair);
          if (!of_all_) return;
          softmax(logits, experts_);
          if (!sum_to_one_) {
            for (std::int64_t i = pair; i < pair + chosen_; ++i) routing.weight[i] = logits[routing.expert[i]];
          }
          if (numbers.probabilities != nullptr) add_to(numbers.probabilities, logits, experts_);
        });
    sort(routing);
  }

  /// The gradients of logits. @param gradient  of the weights [tokens, k]
  /// @pre choose() ran with the same router, ffn_norm and numbers
  void gradients(const T* router, const T* ffn_norm, const T* gradient, const Routing<T>& routing,
                 const RouterNumbers<T>& numbers) const {
    if (!of_all_) {
      for (std::int64_t t = 0; t < tokens_; ++t) {
        T* const weight = routing.weight + t * chosen_;
        const T* const d = gradient + t * chosen_;
        sigmoid_ ? of_sigmoids(weight, routing.scores + t * chosen_, d) : of_softmax(weight, d, weight);
      }
      return;
    }
    for_each_logits(
        router, ffn_norm, [&](std::int64_t begin) { return routing.scores + begin * experts_; },
        [&](std::int64_t token, T* p) {
          softmax(p, experts_);
          add_gradients_of_all(p, routing, token, gradient, numbers.balance);
        });
  }
  /// The same of the chosen logits alone, of a softmax over them.
  void gradients(const T* gradient, const Routing<T>& routing) const { gradients(nullptr, nullptr, gradient, routing, {}); }

 private:
  /// Calls `visit(token, logits [E])`, the logits of some tokens at a time at `memory(first token)`.
  template <class Memory, class Visit>
  void for_each_logits(const T* router, const T* ffn_norm, Memory&& memory, Visit&& visit) const {
    for (std::int64_t begin = 0; begin < tokens_; begin += sizes_.logits) {
      const std::int64_t count = std::min(sizes_.logits, tokens_ - begin);
      T* const logits = memory(begin);
      project(ffn_norm + begin * hidden_, router, logits, count, hidden_, experts_);
      for (std::int64_t i = 0; i < count; ++i) visit(begin + i, logits + i * experts_);
    }
  }

  /// @param logits  become their sigmoids. @param pair  the token's first index in [tokens, k]
  void choose_by_sigmoids(T* logits, const Routing<T>& routing, std::int64_t pair, const T* bias) const {
    std::int32_t* const expert = routing.expert + pair;
    T* const weight = routing.weight + pair;
    T* const score = routing.scores + pair;
    T* const biased = routing.rows + sizes_.logits * experts_;  // [E]
    for (std::int64_t e = 0; e < experts_; ++e) {
      logits[e] = T{1} / (T{1} + exponential(-logits[e]));
      biased[e] = logits[e] + (bias != nullptr ? bias[e] : T{0});
    }
    if (groups_ > 1) close_groups(biased, groups_, experts_ / groups_, open_groups_);
    choose_largest(biased, experts_, chosen_, expert, weight);
    for (std::int64_t i = 0; i < chosen_; ++i) score[i] = logits[expert[i]];
    const T factor = sum_to_one_ ? scale_ / (sum(score) + least_sum) : scale_;
    for (std::int64_t i = 0; i < chosen_; ++i) weight[i] = factor * score[i];
  }
  T sum(const T* of_chosen) const {
    return sum_of<T>(chosen_, [=](std::int64_t i) { return of_chosen[i]; });
  }

  /// weight times (gradient - the weighted mean of gradients).
  void of_softmax(const T* weight, const T* gradient, T* to) const {
    const T mean = sum_of<T>(chosen_, [=](std::int64_t i) { return weight[i] * gradient[i]; });
    for (std::int64_t i = 0; i < chosen_; ++i) to[i] = weight[i] * (gradient[i] - mean);
  }
  /// Weights [k] become the gradients of their logits.
  void of_sigmoids(T* weight, const T* score, const T* gradient) const {
    const T factor = sum_to_one_ ? T{1} / (sum(score) + least_sum) : T{1};
    const T mean = sum_to_one_ ? sum_of<T>(chosen_, [=](std::int64_t i) { return weight[i] * gradient[i]; }) : T{0};
    for (std::int64_t i = 0; i < chosen_; ++i) {
      weight[i] = (scale_ * gradient[i] - mean) * factor * score[i] * (T{1} - score[i]);
    }
  }
  /// Probabilities p [E] become the gradients of their logits.
  void add_gradients_of_all(T* p, const Routing<T>& routing, std::int64_t token, const T* gradient, const T* balance) const {
    const T* const weight = routing.weight + token * chosen_;
    const std::int32_t* const expert = routing.expert + token * chosen_;
    const T* const d = gradient + token * chosen_;
    T mean = balance == nullptr ? T{0} : sum_of<T>(experts_, [=](std::int64_t e) { return p[e] * balance[e]; });
    const auto of_balance = [=](std::int64_t e) { return balance == nullptr ? T{0} : balance[e]; };
    if (sum_to_one_) {
      for (std::int64_t e = 0; e < experts_; ++e) p[e] *= of_balance(e) - mean;
      const T chosen = sum_of<T>(chosen_, [=](std::int64_t i) { return weight[i] * d[i]; });
      for (std::int64_t i = 0; i < chosen_; ++i) p[expert[i]] += weight[i] * (d[i] - chosen);
      return;
    }
    mean += sum_of<T>(chosen_, [=](std::int64_t i) { return weight[i] * d[i]; });
    for (std::int64_t e = 0; e < experts_; ++e) p[e] *= of_balance(e) - mean;
    for (std::int64_t i = 0; i < chosen_; ++i) p[expert[i]] += weight[i] * d[i];  // a weight is its probability
  }

  /// The rows of each expert, from the choices of all tokens.
  void sort(const Routing<T>& routing) const {
    std::int32_t* const begin = routing.begin;
    std::fill_n(begin, experts_ + 1, 0);
    for (std::int64_t pair = 0; pair < sizes_.chosen; ++pair) ++begin[routing.expert[pair] + 1];
    for (std::int64_t e = 0; e < experts_; ++e) begin[e + 1] += begin[e];
    for (std::int64_t pair = 0; pair < sizes_.chosen; ++pair) {
      routing.pair[begin[routing.expert[pair]]++] = static_cast<std::int32_t>(pair);
    }
    for (std::int64_t e = experts_; e > 0; --e) begin[e] = begin[e - 1];  // each was moved to the next one's begin
    begin[0] = 0;
  }

  static constexpr T least_sum = static_cast<T>(1e-20);  // so that a sum of 0 divides

  std::int64_t hidden_;
  std::int64_t experts_;
  std::int64_t chosen_;
  std::int64_t groups_;
  std::int64_t open_groups_;
  std::int64_t tokens_;
  bool sigmoid_;
  bool sum_to_one_;
  bool of_all_;
  T scale_;
  RoutingSizes sizes_;
};

}  // namespace tawpipe::layers::host
