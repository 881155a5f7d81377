// The loss that balances a router's experts over all layers of a microbatch, and its derivatives.
// Not: those of the logits (layers/host/router.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/layers/expert_routing.hpp"
#include "tawpipe/layers/host/kernels.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::host {

/// factor E sum of f_e P_e: over the tokens of all layers with experts of one microbatch, R in number, f_e is the
/// number of choices of expert e / R, and P_e the mean probability of e in a softmax over all experts.
/// f is a count, without a derivative. So the backward of any layer needs the choices of all, later ones
/// too: it is computed where one object computes all layers of a microbatch, for as many microbatches at
/// once as an iteration has.
/// Source: Fedus et al. 2021, Switch Transformer, arXiv:2101.03961, eq. 4; transformers,
/// models/mixtral/modeling_mixtral.py, load_balancing_loss_func, which takes all layers together.
template <class T>
class BalanceLoss {
 public:
  /// Allocates only where the rules have such a loss.
  BalanceLoss(const Transformer& model, const Batch& batch, const RouterRules& rules)
      : factor_{rules.balance},
        layers_{model.layers - model.dense_layers},
        experts_{model.experts},
        rows_{static_cast<double>(batch.tokens() * layers_)},
        counts_(is_used() ? static_cast<std::size_t>(batch.microbatches() * layers_ * experts_) : 0),
        known_(is_used() ? static_cast<std::size_t>(batch.microbatches() * layers_) : 0),
        probabilities_(counts_.size()),
        derivative_(is_used() ? static_cast<std::size_t>(experts_) : 0) {}

  bool is_used() const { return factor_ != 0; }

  /// Where a layer's forward adds the probabilities of its tokens [E]; null where there is no such loss.
  /// @param layer  of those with experts
  T* probabilities(std::int32_t microbatch, std::int64_t layer) {
    if (!is_used()) return nullptr;
    T* const sums = probabilities_.data() + at(microbatch, layer) * experts_;
    std::fill_n(sums, experts_, T{0});
    return sums;
  }
  /// The choices of a layer, after its forward.
  void note(std::int32_t microbatch, std::int64_t layer, const Routing<T>& routing) {
    if (!is_used()) return;
    std::int32_t* const counts = counts_.data() + at(microbatch, layer) * experts_;
    for (std::int64_t e = 0; e < experts_; ++e) counts[e] = routing.begin[e + 1] - routing.begin[e];
    known_[static_cast<std::size_t>(at(microbatch, layer))] = 1;
  }
  /// Of a microbatch whose layers all ran; 0 where there is no such loss.
  /// @throws InputError  if a layer ran elsewhere
  double loss(std::int32_t microbatch) const {
    if (!is_used()) return 0;
    check(microbatch);
    double sum = 0;
    for (std::int64_t e = 0; e < experts_; ++e) {
      double probability = 0;
      for (std::int64_t l = 0; l < layers_; ++l) {
        probability += static_cast<double>(probabilities_[static_cast<std::size_t>(at(microbatch, l) * experts_ + e)]);
      }
      sum += count(microbatch, e) / rows_ * (probability / rows_);
    }
    return factor_ * static_cast<double>(experts_) * sum;
  }
  /// Its derivative by each expert's probability for any token [E], times `scale`; null where there is none.
  /// @throws InputError  as loss()
  const T* derivative(std::int32_t microbatch, double scale) {
    if (!is_used()) return nullptr;
    check(microbatch);
    for (std::int64_t e = 0; e < experts_; ++e) {
      derivative_[static_cast<std::size_t>(e)] =
          static_cast<T>(scale * factor_ * static_cast<double>(experts_) * (count(microbatch, e) / rows_) / rows_);
    }
    return derivative_.data();
  }

 private:
  std::int64_t at(std::int32_t microbatch, std::int64_t layer) const { return microbatch * layers_ + layer; }
  double count(std::int32_t microbatch, std::int64_t expert) const {
    std::int64_t sum = 0;
    for (std::int64_t l = 0; l < layers_; ++l) sum += counts_[static_cast<std::size_t>(at(microbatch, l) * experts_ + expert)];
    return static_cast<double>(sum);
  }
  void check(std::int32_t microbatch) const {
    for (std::int64_t l = 0; l < layers_; ++l) {
      if (known_[static_cast<std::size_t>(at(microbatch, l))] != 0) continue;
      throw InputError(concat("router_aux_loss_coef: the loss that balances experts is of all layers of a microbatch, and layer ",
                              l, " of those with experts ran on another rank"));
    }
  }

  double factor_;
  std::int64_t layers_;
  std::int64_t experts_;
  double rows_;
  std::vector<std::int32_t> counts_;  // [microbatch, layer, expert]
  std::vector<char> known_;           // [microbatch, layer]
  std::vector<T> probabilities_;      // as counts_: sums over tokens
  std::vector<T> derivative_;         // [expert]
};

}  // namespace tawpipe::layers::host
