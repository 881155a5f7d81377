// The memory of a mixture of experts that tells which expert gets which token: its layout.
// Not: the choice and the computations with it (layers/host/experts.hpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers {

/// Sizes of the parts of LayerTensors::routing, which has k tokens H numbers of some bytes each,
/// those that model/transformer_work.hpp has for the copies of tokens. It follows from model, batch and
/// number only, so that products have the same rows however the model is split.
struct RoutingSizes {
  std::int64_t chosen = 0;    ///< k tokens: pairs of a token and an expert of its choice
  std::int64_t experts = 0;   ///< E
  std::int64_t integers = 0;  ///< numbers that the integers take: 2 k tokens + E + 1 of 4 bytes
  std::int64_t left = 0;      ///< numbers for rows, and for the logits of the router
  std::int64_t rows = 0;      ///< most tokens [H] that are gathered there at a time
  std::int64_t logits = 0;    ///< most tokens that have their logits [E] there at a time, with sigmoids before one row
  /// numbers beside the weights: with sigmoids the k scores of each token, else where all logits have
  /// a gradient the E of these
  std::int64_t scores = 0;

  RoutingSizes() = default;
  /// @param number  bytes of a number
  RoutingSizes(const Transformer& model, const Batch& batch, std::int64_t number, const RouterRules& rules = {})
      : chosen{model.experts_per_token * batch.tokens()},
        experts{model.experts},
        integers{((2 * chosen + experts + 1) * 4 + number - 1) / number},
        left{chosen * model.hidden - chosen - integers - scores_of(rules, chosen, batch.tokens() * model.experts)},
        rows{std::min(batch.tokens(), left / model.hidden)},
        logits{std::min(batch.tokens(), left / std::max<std::int64_t>(experts, 1) - (rules.sigmoid ? 1 : 0))},
        scores{scores_of(rules, chosen, batch.tokens() * model.experts)} {}

  /// Whether logits of experts that are not chosen have gradients: of a softmax over all experts.
  static bool has_all_gradients(const RouterRules& rules) { return !rules.sigmoid && (!rules.sum_to_one || rules.balance != 0); }

  /// Whether every part has room. Beyond 2^31 pairs integers would not.
  bool fit() const { return chosen < std::int64_t{1} << 31 && left > 0 && rows > 0 && logits > 0; }

 private:
  static std::int64_t scores_of(const RouterRules& rules, std::int64_t chosen, std::int64_t all) {
    return rules.sigmoid ? chosen : has_all_gradients(rules) ? all : 0;
  }
};

/// The parts themselves, with numbers of type T. Rows are the pairs of a token and an expert in the
/// order of experts, and of tokens for each expert: the order of all tensors of the experts.
template <class T>
struct Routing {
  T* weight;             ///< [tokens, k]: of each chosen expert -> gradient of its logit
  std::int32_t* expert;  ///< [tokens, k], of falling logits
  std::int32_t* pair;    ///< [k tokens]: of each row its index in [tokens, k]
  std::int32_t* begin;   ///< [E + 1]: first row of each expert, and k tokens
  T* scores;             ///< [tokens, k] sigmoids of the chosen, or [tokens, E] gradients of all logits
  T* rows;               ///< [RoutingSizes::rows, H], free between calls

  Routing(T* memory, const RoutingSizes& sizes)
      : weight{memory},
        expert{reinterpret_cast<std::int32_t*>(memory + sizes.chosen)},
        pair{expert + sizes.chosen},
        begin{pair + sizes.chosen},
        scores{memory + sizes.chosen + sizes.integers},
        rows{scores + sizes.scores} {}
};

}  // namespace tawpipe::layers
