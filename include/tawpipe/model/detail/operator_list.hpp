// Writes the operators of a layer's sublayers one after the other.
// Not: their sizes (model/layer_kind.hpp) nor what each costs (model/operator.hpp).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/model/layer_kind.hpp"
#include "tawpipe/model/operator.hpp"

namespace tawpipe::inline v0::detail {

/// Each add() takes the place of a sublayer's input in the list and returns that of its result.
class OperatorList {
 public:
  OperatorList(std::int64_t hidden, bool norm_bias) : hidden_{hidden}, norm_bias_{norm_bias} {}

  std::vector<Operator> take() { return std::move(list_); }

  /// Takes two vectors of the residual stream's width for one, each after a norm.
  int join(int one, int other) {
    const int left = norm("mtp.hidden_norm", one);
    const int right = norm("mtp.embedding_norm", other);
    return add({.kind = Kind::product, .name = "mtp.projection", .in = 2 * hidden_, .out = hidden_}, {left, right});
  }
  int input() { return add({.kind = Kind::input, .out = hidden_}, {}); }
  int norm(std::string_view name, int of) { return norm(name, of, Split::tokens, hidden_ * (norm_bias_ ? 2 : 1)); }
  int sum(int stream, int value) { return add({.kind = Kind::sum, .in = hidden_, .out = hidden_}, {stream, value}); }

  int add(const Attention& of, int input) {
    const std::int64_t values_of_head = of.value_dim > 0 ? of.value_dim : of.head_dim;
    const std::int64_t query = std::int64_t{of.heads} * of.head_dim;
    const std::int64_t key = std::int64_t{of.kv_heads} * of.head_dim;
    const std::int64_t values = of.heads * values_of_head;
    const std::int64_t turned = of.turned < 0 ? of.head_dim : of.turned;
    int short_query = input;
    if (of.query_rank > 0) {
      short_query = product("attention.wq_a", input, of.query_rank, by_tokens);
      short_query = norm("attention.q_norm", short_query, Split::tokens, of.query_rank);
    }
    const char* const to_query = of.query_rank > 0 ? "attention.wq_b" : "attention.wq";
    int q = 0;
    int k = 0;
    int v = 0;
    if (of.key_value_rank > 0) {
      const int both = product("attention.wkv_a", input, of.key_value_rank + turned, by_tokens);
      const int latent = norm("attention.kv_norm", both, Split::tokens, of.key_value_rank);
      list_[static_cast<std::size_t>(latent)].in = list_[static_cast<std::size_t>(latent)].out = of.key_value_rank;
      q = rotary(product(to_query, short_query, query, inward, of.qkv_bias), query, of.heads * turned);
      v = product("attention.wkv_b", latent, of.heads * (of.head_dim - turned) + values, inward);
      k = rotary(both, query, turned);
    } else {
      q = product(to_query, short_query, query, inward, of.qkv_bias);
      k = product("attention.wk", input, key, inward, of.qkv_bias);
      v = product("attention.wv", input, of.kv_heads * values_of_head, inward, of.qkv_bias);
      if (of.qk_norm != QkNorm::none) {
        const bool head = of.qk_norm == QkNorm::head;
        q = norm("attention.q_norm", q, Split::width, head ? of.head_dim : query);
        k = norm("attention.k_norm", k, Split::width, head ? of.head_dim : key);
      }
      if (turned > 0) {
        q = rotary(q, query, of.heads * turned, of.scaled);
        k = rotary(k, key, of.kv_heads * turned, of.scaled);
      }
    }
    const int index = of.index_heads > 0 ? add_index(of, input, short_query) : -1;
    int result = add({.kind = Kind::attention,
                      .name = "attention.sinks",
                      .in = query,
                      .out = values,
                      .vectors = of.sinks ? of.heads : 0,
                      .count = of.heads,
                      .key = of.head_dim,
                      .value = values_of_head,
                      .reach = of.index_heads > 0 ? of.index_tokens
                               : of.chunk > 0     ? of.chunk
                                                  : of.window,
                      .chunks = of.index_heads == 0 && of.chunk > 0,
                      .needs = Split::width,
                      .gives = Split::width},
                     {q, k, v, index});
    if (of.gate) result = function(result, product("attention.wg", input, values, inward), values);
    return product("attention.wo", result, hidden_, outward, of.output_bias);
  }

  int add(const DeltaNet& of, int input) {
    const std::int64_t keys = std::int64_t{of.key_heads} * of.key_dim;
    const std::int64_t values = std::int64_t{of.value_heads} * of.value_dim;
    const int mixed = product("linear.in_qkv", input, 2 * keys + values, inward);
    const int gate = product("linear.in_z", input, values, inward);
    const int rates = product("linear.in_ba", input, 2 * std::int64_t{of.value_heads}, inward);
    const int convolved = convolution("linear.conv", mixed, of.convolution, false);
    // A decay and a bias of it for each value head.
    const int state = recurrence(Kind::delta_rule, "linear.decay", convolved, rates, of.value_heads, of.key_dim, of.value_dim, 2);
    const int normed = norm("linear.norm", state, Split::width, of.value_dim);
    return product("linear.out", function(normed, gate, values), hidden_, outward);
  }

  int add(const Mamba2& of, int input) {
    const std::int64_t inner = std::int64_t{of.heads} * of.head_dim;
    const int mixed = product("mamba.in_xbc", input, inner + 2 * std::int64_t{of.groups} * of.state, inward, of.bias);
    const int gate = product("mamba.in_z", input, inner, inward, of.bias);
    const int rates = product("mamba.in_dt", input, of.heads, inward, of.bias);
    const int convolved = convolution("mamba.conv", mixed, of.convolution, of.convolution_bias);
    // A decay, a step's bias and a weight of the input itself for each head.
    const int state = recurrence(Kind::state_space, "mamba.decay", convolved, rates, of.heads, of.state, of.head_dim, 3);
    const int normed = norm("mamba.norm", function(state, gate, inner), Split::width, inner);
    return product("mamba.out", normed, hidden_, outward, of.bias);
  }

  int add(const Mlp& of, int input) { return mlp(dense_names, input, of.width, of.function, of.bias); }

  int add(const Mixture& of, int input) {
    int scores = product("feed_forward.gate", input, of.experts, by_tokens, of.router_bias);
    scores = add({.kind = Kind::route, .in = of.experts, .out = of.experts, .copies = of.per_token}, {scores});
    int token = input;
    if (of.latent > 0) token = product("feed_forward.latent_in", input, of.latent, by_tokens);
    int shared = -1;
    if (of.shared_width > 0) shared = mlp(shared_names, input, of.shared_width, of.function, false);
    if (of.shared_gate) shared = function(shared, product("feed_forward.shared_gate", input, 1, by_tokens), hidden_);
    const std::int64_t width = list_[static_cast<std::size_t>(token)].out;
    token = add({.kind = Kind::dispatch, .in = width, .out = width, .copies = of.per_token, .gives = Split::experts},
                {token, scores});
    count_ = of.experts;
    copies_ = of.per_token;
    routed_ = true;
    bounded_ = of.bounded;
    int result = mlp(expert_names, token, of.width, of.function, of.bias);
    bounded_ = false;
    count_ = copies_ = 1;
    routed_ = false;
    result = add({.kind = Kind::combine, .in = width, .out = width, .copies = of.per_token, .needs = Split::experts},
                 {result, scores});
    if (of.latent > 0) result = product("feed_forward.latent_out", result, hidden_, by_tokens);
    return shared < 0 ? result : sum(result, shared);
  }

 private:
  using Kind = Operator::Kind;
  /// How tensor-parallel ranks split a product's input and result.
  struct Way {
    Split needs;
    Split gives;
  };
  static constexpr Way inward = {Split::whole, Split::width};
  static constexpr Way outward = {Split::width, Split::partial};
  static constexpr Way by_tokens = {Split::tokens, Split::tokens};

  /// Of the gate's product (or the only one inward), up's, and down's.
  struct MlpNames {
    std::string_view first;
    std::string_view second;
    std::string_view last;
  };
  static constexpr MlpNames dense_names = {"feed_forward.w1", "feed_forward.w3", "feed_forward.w2"};
  static constexpr MlpNames expert_names = {"feed_forward.experts.w1", "feed_forward.experts.w3", "feed_forward.experts.w2"};
  static constexpr MlpNames shared_names = {"feed_forward.shared_experts.w1", "feed_forward.shared_experts.w3",
                                            "feed_forward.shared_experts.w2"};

  int add(Operator op, std::initializer_list<int> from) {
    std::size_t count = 0;
    for (const int of : from) {
      if (of >= 0) op.from[count++] = static_cast<std::int8_t>(of);
    }
    list_.push_back(op);
    return static_cast<int>(list_.size()) - 1;
  }
  std::int64_t width_of(int of) const { return list_[static_cast<std::size_t>(of)].out; }

  int product(std::string_view name, int of, std::int64_t out, Way way, bool bias = false) {
    return add({.kind = Kind::product,
                .name = name,
                .in = width_of(of),
                .out = out,
                .vectors = bias ? out * count_ : 0,
                .count = count_,
                .copies = copies_,
                .needs = routed_ ? Split::experts : way.needs,
                .gives = routed_ ? Split::experts : way.gives},
               {of});
  }
  int norm(std::string_view name, int of, Split split, std::int64_t weights) {
    return add({.kind = Kind::norm,
                .name = name,
                .in = width_of(of),
                .out = width_of(of),
                .vectors = weights,
                .needs = split,
                .gives = split},
               {of});
  }
  int rotary(int of, std::int64_t width, std::int64_t turned, bool scaled = false) {
    return add({.kind = Kind::rotary, .in = turned, .out = width, .scaled = scaled, .needs = Split::width, .gives = Split::width},
               {of});
  }
  int convolution(std::string_view name, int of, int taps, bool bias) {
    const std::int64_t channels = width_of(of);
    return add({.kind = Kind::convolution,
                .name = name,
                .in = channels,
                .out = channels,
                .vectors = channels * (taps + (bias ? 1 : 0)),
                .reach = taps,
                .needs = Split::width,
                .gives = Split::width},
               {of});
  }
  int recurrence(Kind kind, std::string_view name, int of, int rates, int heads, std::int64_t key, std::int64_t value,
                 int vectors_of_head) {
    return add({.kind = kind,
                .name = name,
                .in = width_of(of),
                .out = heads * value,
                .vectors = std::int64_t{vectors_of_head} * heads,
                .count = heads,
                .key = key,
                .value = value,
                .needs = Split::width,
                .gives = Split::width},
               {of, rates});
  }
  int function(int of, int gate, std::int64_t width) {
    return add({.kind = Kind::function,
                .in = width,
                .out = width,
                .count = count_,
                .copies = copies_,
                .scaled = bounded_,
                .needs = Split::width,
                .gives = Split::width},
               {of, gate});
  }
  int mlp(const MlpNames& names, int input, std::int64_t width, MlpFunction of, bool bias) {
    const std::int64_t result = width_of(input);
    const int first = product(names.first, input, width, inward, bias);
    const int second = of == MlpFunction::gated ? product(names.second, input, width, inward, bias) : -1;
    return product(names.last, function(first, second, width), result, outward, bias);
  }
  /// An index has queries of the short vector, one key a token after a norm with a bias, and a weight
  /// for each of its heads. Source: DeepSeek-V3.2-Exp, inference/model.py, Indexer.
  int add_index(const Attention& of, int input, int short_query) {
    const int query = product("attention.index.wq", short_query, std::int64_t{of.index_heads} * of.index_dim, by_tokens);
    const int key = product("attention.index.wk", input, of.index_dim, by_tokens);
    const int normed = norm("attention.index.k_norm", key, Split::tokens, 2 * std::int64_t{of.index_dim});
    const int weights = product("attention.index.weights", input, of.index_heads, by_tokens);
    return add({.kind = Kind::index,
                .in = std::int64_t{of.index_heads} * of.index_dim,
                .out = of.index_tokens,
                .count = of.index_heads,
                .key = of.index_dim,
                .reach = of.index_tokens},
               {query, normed, weights});
  }

  std::int64_t hidden_;
  bool norm_bias_;
  std::int32_t count_ = 1;
  std::int32_t copies_ = 1;
  bool routed_ = false;   ///< products are of experts with a router before them
  bool bounded_ = false;  ///< Mixture::bounded
  std::vector<Operator> list_;
};

/// What a layer that predicts a further token has before it (Model).
inline std::vector<Operator> joining_operators(std::int64_t hidden) {
  OperatorList list{hidden, false};
  const int stream = list.input();
  list.join(stream, list.input());
  return list.take();
}

}  // namespace tawpipe::detail

#if TAWPIPE_BODIES
namespace tawpipe::inline v0 {

TAWPIPE_INLINE std::vector<Operator> LayerKind::operators(std::int64_t hidden) const {
  detail::OperatorList list{hidden, norm_bias};
  const bool before = norms == NormPlace::before || norms == NormPlace::both;
  const bool after = norms == NormPlace::after || norms == NormPlace::both;
  int stream = list.input();
  const int shared = norms == NormPlace::parallel ? list.norm("attention_norm", stream) : -1;
  for (const Sublayer& sublayer : sublayers) {
    const bool mixes_tokens = sublayer.index() < 3;
    int value = shared >= 0 ? shared : stream;
    if (before) value = list.norm(mixes_tokens ? "attention_norm" : "ffn_norm", value);
    value = std::visit([&](const auto& of) { return list.add(of, value); }, sublayer);
    if (after) value = list.norm(mixes_tokens ? "post_attention_norm" : "post_ffn_norm", value);
    stream = list.sum(stream, value);
  }
  return list.take();
}

}  // namespace tawpipe
#endif
