// A decoder as kinds of layers, a pattern of them, and what comes before and after.
// Not: one kind's operators (model/layer_kind.hpp) nor its cut into stages (model/workload.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/layer_kind.hpp"
#include "tawpipe/model/operator.hpp"
#include "tawpipe/model/stage_work.hpp"

namespace tawpipe::inline v0 {

/// The parameters of operators, or those that one token passes, or their operations.
inline std::int64_t sum_of(const std::vector<Operator>& operators, std::int64_t (Operator::*of)() const) {
  std::int64_t sum = 0;
  for (const Operator& each : operators) sum += (each.*of)();
  return sum;
}
inline TokenFlops flops_of(const std::vector<Operator>& operators, std::int64_t sequence) {
  TokenFlops sum;
  for (const Operator& each : operators) sum += each.flops(sequence);
  return sum;
}

/// A decoder. A layer that predicts a further token (MTP) norms the hidden state and the embedding of
/// the next token, makes one vector of both by a product [2H, H], is a layer of its kind, and has a
/// norm of its own before the shared output matrix. Source: DeepSeek-AI 2024, DeepSeek-V3,
/// arXiv:2412.19437, section 2.2.
/// Example: five windows of 512 and one full layer, by turns
/// `Model{.hidden = 1152, .vocab = 262144, .tied = true, .kinds = {window, full},
/// .pattern = repeated({0, 0, 0, 0, 0, 1}, 26)}`
struct Model {
  std::string name = {};
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
  bool tied = false;           ///< one matrix [vocab, hidden] is token embedding and output matrix
  std::int64_t positions = 0;  ///< learned ones; 0: none
  bool final_norm_bias = false;
  std::vector<LayerKind> kinds = {};
  LayerPattern pattern = {};           ///< the kind of each layer, an index into `kinds`
  std::vector<std::uint8_t> mtp = {};  ///< the kind of each layer, an index into `kinds` that predicts a further token
  bool mtp_has_norm = true;            ///< a norm of its own before the output matrix

  std::int64_t embedding_parameters() const { return (vocab + positions) * hidden; }
  /// Of the final norm, and of the output matrix where it is not the embedding.
  std::int64_t head_parameters() const { return hidden * (final_norm_bias ? 2 : 1) + (tied ? 0 : vocab * hidden); }
  /// Beside its layer.
  std::int64_t mtp_parameters() const { return 2 * hidden * hidden + (mtp_has_norm ? 3 : 2) * hidden; }
  /// Those of all layers that predict further tokens.
  std::int64_t all_mtp_parameters() const {
    std::int64_t sum = 0;
    for (const std::uint8_t kind : mtp) sum += sum_of(kinds[kind].operators(hidden), &Operator::parameters) + mtp_parameters();
    return sum;
  }
  /// Those of experts with a router before them.
  std::int64_t expert_parameters() const {
    std::int64_t sum = 0;
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      const auto layers = std::count(pattern.begin(), pattern.end(), kind) + std::count(mtp.begin(), mtp.end(), kind);
      sum += layers * sum_of(kinds[kind].operators(hidden), &Operator::expert_parameters);
    }
    return sum;
  }
  /// All parameters; a tied matrix counts once.
  std::int64_t parameters() const { return count(&Operator::parameters); }
  /// Those that one token passes: without the experts that are not chosen for it.
  std::int64_t active_parameters() const { return count(&Operator::active_parameters); }
  /// For one token of a sequence of so many, with the head; nothing is recomputed.
  TAWPIPE_INLINE TokenFlops flops(std::int64_t sequence) const;

  /// @throws InputError  if there is no layer, a layer is of no kind, a size is below 1, or heads do
  /// not divide into groups.
  TAWPIPE_INLINE void check() const;

 private:
  TAWPIPE_INLINE std::int64_t count(std::int64_t (Operator::*of)() const) const;
  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(concat("model ", quote(name.empty() ? "(unnamed)" : name), ": ", why));
  }
};

/// `part` again and again, up to so many layers.
inline LayerPattern repeated(const LayerPattern& part, int layers) {
  LayerPattern pattern(static_cast<std::size_t>(layers));
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = part[i % part.size()];
  return pattern;
}

}  // namespace tawpipe

#if TAWPIPE_BODIES
namespace tawpipe::inline v0 {

TAWPIPE_INLINE std::int64_t Model::count(std::int64_t (Operator::*of)() const) const {
  std::vector<std::int64_t> each;
  for (const LayerKind& kind : kinds) each.push_back(sum_of(kind.operators(hidden), of));
  std::int64_t sum = embedding_parameters() + head_parameters();
  for (const std::uint8_t kind : pattern) sum += each[kind];
  for (const std::uint8_t kind : mtp) sum += each[kind] + mtp_parameters();
  return sum;
}

TAWPIPE_INLINE TokenFlops Model::flops(std::int64_t sequence) const {
  std::vector<TokenFlops> each;
  for (const LayerKind& kind : kinds) each.push_back(flops_of(kind.operators(hidden), sequence));
  const double logits = 2.0 * static_cast<double>(vocab * hidden);
  const double joined = logits + 4.0 * static_cast<double>(hidden * hidden);
  TokenFlops sum{logits, logits, logits};
  for (const std::uint8_t kind : pattern) sum += each[kind];
  for (const std::uint8_t kind : mtp) (sum += each[kind]) += {joined, joined, joined};
  return sum;
}

namespace detail {

/// Why a sublayer cannot be; empty: it can.
inline std::string why_impossible(const Attention& of) {
  if (of.heads < 1 || of.head_dim < 1) return "attention needs heads and their size";
  if (of.key_value_rank == 0 && (of.kv_heads < 1 || of.heads % of.kv_heads != 0))
    return concat(of.kv_heads, " heads of keys and values do not divide ", of.heads, " heads");
  if (of.turned > of.head_dim) return concat("rotary embedding turns ", of.turned, " of a head's ", of.head_dim, " numbers");
  if (of.window > 0 && of.chunk > 0) return "attention has a window or a chunk, not both";
  if (of.index_heads > 0 && (of.index_dim < 1 || of.index_tokens < 1)) return "an index needs its size and number of tokens";
  return {};
}
inline std::string why_impossible(const DeltaNet& of) {
  if (of.key_heads < 1 || of.value_heads < 1 || of.key_dim < 1 || of.value_dim < 1) return "a delta net needs heads and sizes";
  if (of.value_heads % of.key_heads != 0)
    return concat(of.key_heads, " key heads do not divide ", of.value_heads, " value heads");
  return {};
}
inline std::string why_impossible(const Mamba2& of) {
  if (of.heads < 1 || of.head_dim < 1 || of.state < 1 || of.groups < 1) return "Mamba-2 needs heads, groups and sizes";
  if (of.heads % of.groups != 0) return concat(of.groups, " groups do not divide ", of.heads, " heads");
  return {};
}
inline std::string why_impossible(const Mlp& of) { return of.width < 1 ? "an MLP needs a width" : ""; }
inline std::string why_impossible(const Mixture& of) {
  if (of.experts < 1 || of.width < 1) return "a mixture needs experts and their width";
  if (of.per_token < 1 || of.per_token > of.experts)
    return concat("a token passes 1 to ", of.experts, " experts, not ", of.per_token);
  if (of.shared_gate && of.shared_width == 0) return "a gate of a shared expert, but no shared expert";
  return {};
}

}  // namespace detail

TAWPIPE_INLINE void Model::check() const {
  if (hidden < 1 || vocab < 1) fail("hidden size and vocabulary must be at least 1");
  if (pattern.empty()) fail("it has no layer");
  for (const LayerPattern* layers : {&pattern, &mtp}) {
    for (const std::uint8_t kind : *layers) {
      if (kind >= kinds.size()) fail(concat("a layer is of kind ", int{kind}, "; it has ", kinds.size(), " kinds"));
    }
  }
  for (const LayerKind& kind : kinds) {
    if (kind.sublayers.empty()) fail(concat("layers of kind ", quote(kind.name), " compute nothing"));
    for (const LayerKind::Sublayer& sublayer : kind.sublayers) {
      const std::string why = std::visit([](const auto& of) { return detail::why_impossible(of); }, sublayer);
      if (!why.empty()) fail(concat("layers of kind ", quote(kind.name), ": ", why));
    }
  }
}

}  // namespace tawpipe
#endif
