// One operator of a layer: what it computes for a token, of which weights, and how ranks split it.
// Not: which operators a layer has (model/layer_kind.hpp) nor how long they take (cost/).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tawpipe::inline v0 {

/// How tensor-parallel ranks hold an activation [tokens, width].
enum class Split : std::uint8_t {
  tokens,   ///< each rank some tokens: the residual stream with sequence parallelism
  whole,    ///< each rank all of it
  width,    ///< each rank a part of the width: heads, or columns
  experts,  ///< each rank the copies of tokens for its experts
  partial,  ///< each rank a summand
};

/// Floating-point operations for one token; a multiply-add counts as two.
struct TokenFlops {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;

  TokenFlops& operator+=(const TokenFlops& other) {
    forward += other.forward;
    backward_input += other.backward_input;
    backward_weight += other.backward_weight;
    return *this;
  }
  double all() const { return forward + backward_input + backward_weight; }
};

/// One operator. Its input and output are numbers of a token; `from` are the operators of the same
/// list whose results it reads.
struct Operator {
  enum class Kind : std::uint8_t {
    input,        ///< what the layer before gives; first in each list
    norm,         ///< RMSNorm or LayerNorm
    product,      ///< of tokens with a matrix [in, out], or `copies` of each token with `count` of them
    rotary,       ///< turns pairs of numbers by the token's position
    convolution,  ///< of each channel by itself, over `reach` tokens
    index,        ///< scores of all earlier tokens by `count` small heads, and the choice of `reach`
    attention,    ///< `count` heads: scores of queries and keys, and their product with the values
    delta_rule,   ///< gated delta net: a state [key, value] for each of `count` heads
    state_space,  ///< Mamba-2: the same, of another rule
    function,     ///< of each number by itself: SiLU times up, GELU, squared ReLU, a gate
    route,        ///< softmax or sigmoid of `in` experts' scores, and the choice of `copies`
    dispatch,     ///< copies of a token for the experts that it passes
    combine,      ///< their results added up
    sum,          ///< with the residual stream
  };
  static constexpr int kinds = 14;

  Kind kind = Kind::input;
  std::string_view name = {};  ///< of its weights, within the layer: "attention.wq"
  std::int64_t in = 0;         ///< numbers of a token (or of its copy) that it reads
  std::int64_t out = 0;        ///< and that it gives
  std::int64_t vectors = 0;    ///< parameters that are in no matrix: a norm's, biases, sinks
  std::int32_t count = 1;      ///< matrices or heads
  std::int32_t copies = 1;     ///< of a token
  std::int64_t key = 0;        ///< width of a head's query and key
  std::int64_t value = 0;      ///< and of its value
  std::int64_t reach = 0;      ///< tokens that one reads beside all others before it; 0: all
  bool chunks = false;         ///< `reach` is the length of chunks that do not see each other
  /// a function whose inputs are bounded first, or rotary positions that are scaled too (YaRN)
  bool scaled = false;
  Split needs = Split::tokens;
  Split gives = Split::tokens;
  std::array<std::int8_t, 4> from = {-1, -1, -1, -1};  ///< operators; -1: none

  /// Whether it is of experts with a router before them.
  bool is_of_experts() const { return needs == Split::experts && kind == Kind::product; }
  /// Parameters of its matrices.
  std::int64_t matrices() const { return kind == Kind::product ? in * out * count : 0; }
  std::int64_t parameters() const { return matrices() + vectors; }
  std::int64_t expert_matrices() const { return is_of_experts() ? matrices() : 0; }
  std::int64_t expert_parameters() const { return is_of_experts() ? parameters() : 0; }
  /// Those that one token passes: of `count` matrices `copies`.
  std::int64_t active_matrices() const { return is_of_experts() ? in * out * copies : matrices(); }
  std::int64_t active_parameters() const { return active_matrices() + (is_of_experts() ? vectors / count * copies : vectors); }

  /// Twice the tokens that a token attends to on average, half of itself counted: S; within a window,
  /// or of R chosen tokens, (R^2 + 2(S - R)R) / S; in chunks the mean of their squares.
  double span(std::int64_t sequence) const {
    const auto all = static_cast<double>(sequence);
    const auto most = static_cast<double>(reach);
    if (reach == 0 || reach >= sequence) return all;
    if (!chunks) return most * (2 * all - most) / all;
    const auto last = static_cast<double>(sequence % reach);
    return ((all - last) * most + last * last) / all;
  }

  /// In a sequence of so many tokens. A product with a matrix of n parameters 2n, as much for the
  /// gradient of its input and as much for that of its weight; attention, causal at half, 2 of each
  /// number of a query's and of a value's head for each token that it sees, and twice that in the
  /// backward; an index the scores; recurrences what the step by step form needs: a gated delta net
  /// reads its state [key, value] by key and query and writes it, Mamba-2 writes and reads it, 2 each
  /// number. Functions, norms and sums are left out, as model operations have it.
  /// Source: Narayanan et al. 2021, arXiv:2104.04473, section 5.1; Yang et al. 2024, Gated Delta
  /// Networks, arXiv:2412.06464, eq. 10; Dao and Gu 2024, Mamba-2, arXiv:2405.21060, eq. 2; DeepSeek-AI
  /// 2025, DeepSeek-V3.2-Exp, section 2 (the lightning indexer).
  TokenFlops flops(std::int64_t sequence) const {
    const auto of_heads = [&](double each) {
      const double forward = each * count;
      return TokenFlops{forward, 2 * forward, 0};
    };
    const auto state = static_cast<double>(key * value);
    switch (kind) {
      case Kind::product: {
        const double forward = 2.0 * static_cast<double>(active_matrices());
        return {forward, forward, forward};
      }
      case Kind::attention:
        return of_heads(span(sequence) * static_cast<double>(key + value));
      case Kind::index:
        return of_heads(static_cast<double>(sequence) * static_cast<double>(key));
      case Kind::delta_rule:
        return of_heads(6 * state);
      case Kind::state_space:
        return of_heads(4 * state);
      case Kind::convolution: {
        const double forward = 2.0 * static_cast<double>(in * reach);
        return {forward, forward, forward};
      }
      default:
        return {};
    }
  }
};

/// Its name in messages, "attention".
constexpr std::string_view name(Operator::Kind kind) {
  constexpr std::string_view names[Operator::kinds] = {"input",  "norm",      "product",    "rotary",      "convolution",
                                                       "index",  "attention", "delta rule", "state space", "function",
                                                       "router", "dispatch",  "combine",    "residual sum"};
  return names[static_cast<int>(kind)];
}

}  // namespace tawpipe
