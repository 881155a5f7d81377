// Which ways of sharing a layer of operators are known.
// Not: what the ranks then do (model/detail/operator_body.hpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/operator.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

/// Why ranks cannot share an operator of `list` so, as a sentence; empty: they can.
inline std::string why_not_shared(const std::vector<Operator>& list, const Sharing& sharing) {
  const auto unknown = [](const Operator& op, std::string_view what) {
    return concat(what, " is not known for its layers' ", name(op.kind));
  };
  for (const Operator& op : list) {
    const bool attention = op.kind == Operator::Kind::attention;
    const bool core = attention || op.kind == Operator::Kind::delta_rule || op.kind == Operator::Kind::state_space;
    if (core && op.count % sharing.tensor != 0)
      return concat("tensor ", sharing.tensor, " does not divide the ", op.count, " heads of its layers' ", name(op.kind));
    if (sharing.context > 1 &&
        ((core && !attention) || op.kind == Operator::Kind::index || op.kind == Operator::Kind::convolution))
      return unknown(op, "context parallelism");
    const int swapped = sharing.exchange == ContextExchange::two_level ? sharing.inner : sharing.context;
    const bool swaps = sharing.exchange == ContextExchange::all_to_all || sharing.exchange == ContextExchange::two_level;
    if (sharing.context > 1 && attention &&
        ((passes_blocks(sharing.exchange) && op.reach > 0) || (swaps && op.count % (sharing.tensor * swapped) != 0)))
      return unknown(op, concat("context exchange ", name(sharing.exchange)));
    if (op.is_of_experts() && sharing.whole_experts && op.count % sharing.ranks() != 0)
      return concat("expert parallelism among ", sharing.ranks(), " ranks: they do not divide the ", op.count,
                    " experts equally; choose a divisor");
  }
  return {};
}

/// Of any kind of a model's layers; empty too where all are of one kind, whose sharing its sizes say.
inline std::string why_not_shared(const Transformer& model, const Sharing& sharing) {
  for (const LayerKind& kind : model.kinds) {
    std::string why = why_not_shared(kind.operators(model.hidden), sharing);
    if (!why.empty()) return concat("model ", quote(model.name), ": ", why);
  }
  return {};
}

}  // namespace tawpipe
