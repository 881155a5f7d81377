// One rank's part of the experts of a layer: the copies of its tokens for the experts of all ranks, and its
// own experts with the copies that all ranks send them; and the memory for both.
// Not: the messages between the ranks (execute/), nor experts of a stage that no ranks share
// (layers/host/experts.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/layers/expert_routing.hpp"
#include "tawpipe/layers/host/blas.hpp"
#include "tawpipe/layers/host/experts.hpp"
#include "tawpipe/layers/host/kernels.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::host {

/// What a layer keeps for its experts' backward. Of the rank's t tokens: c = k t copies, in the order of
/// experts and of tokens for each. Of its own experts: rows by the rank that sent them, then as there, R at most.
/// A policy keeps of them what LayerTensors says, with the results in place of routing's rows.
template <class T>
struct ExpertSaved {
  T* routing;             ///< of Routing: the choice of the rank's tokens
  std::int32_t* sent;     ///< [rank, expert of it] copies
  std::int32_t* arrived;  ///< [rank, own expert] rows
  T* results;             ///< [c, H] of the copies, from their experts
  T* inputs;              ///< [R, H]
  T* gate;                ///< [R, I] -> its gradient
  T* sigmoid;             ///< [R, I]
  T* up;                  ///< [R, I] -> its gradient
  T* product;             ///< [R, I]
  T* given;               ///< [R, H] gradients of the rows' results
};

/// Each of `ranks` ranks has equally many experts; nothing is sent where one has all, or its part of the width of
/// all. No token is dropped: a rank has room for all rows that may come. A token's results are weighted where
/// they return.
/// Source: Lepikhin et al. 2020, GShard, arXiv:2006.16668, section 3.2; Megatron-LM,
/// core/transformer/moe/token_dispatcher.py (MoEAlltoAllTokenDispatcher).
template <class T>
class ExpertPart {
 public:
  /// @param own  with the tokens that the rank routes
  ExpertPart(const Transformer& model, const Batch& own, int ranks)
      : width_{model}, ranks_{ranks}, sizes_{model, own, std::int64_t{sizeof(T)}}, tokens_{own.tokens()}, experts_{model, own} {
    width_.held = width_.experts / ranks;
    rows_ = ranks * tokens_ * std::min(width_.chosen, width_.held);
  }

  // ---- memory, in numbers -----------------------------------------------------------------------

  std::int64_t forward_numbers() const { return copies() + rows_ * width_.hidden; }
  std::int64_t backward_numbers() const { return 2 * copies() + rows_ * width_.hidden + tokens_ * width_.expert; }
  /// @param take  (numbers, whether the policy keeps them): their memory
  template <class Take>
  ExpertSaved<T> saved(Recompute recompute, Take&& take) const {
    const bool all = recompute == Recompute::none;
    const bool products = recompute != Recompute::full;
    const auto integers = [&] {
      const std::int64_t numbers = (width_.experts * 4 + std::int64_t{sizeof(T)} - 1) / std::int64_t{sizeof(T)};
      return reinterpret_cast<std::int32_t*>(take(numbers, products));
    };
    ExpertSaved<T> x{};
    x.routing = take(copies(), products);
    x.sent = integers();
    x.arrived = integers();
    x.results = take(copies(), products);
    x.inputs = take(rows_ * width_.hidden, products);
    x.gate = take(rows_ * width_.expert, products);
    x.sigmoid = take(rows_ * width_.expert, all);
    x.up = take(rows_ * width_.expert, products);
    x.product = take(rows_ * width_.expert, all);
    x.given = take(rows_ * width_.hidden, all);
    return x;
  }

  // ---- forward: `work` has what is sent ---------------------------------------------------------

  /// The choice, and the copies of ffn_norm [t, H]. @param router  [E, H]
  void route(const T* router, const T* ffn_norm, const ExpertSaved<T>& x, T* work) const {
    const Routing<T> routing = routing_of(x);
    experts_.choose(router, ffn_norm, routing);
    for (std::int64_t e = 0; e < width_.experts; ++e) x.sent[e] = routing.begin[e + 1] - routing.begin[e];
    if (!sends()) std::copy_n(x.sent, width_.experts, x.arrived);
    T* const rows = sends() ? work : x.inputs;
    for_each_copy(routing, [&](std::int64_t row, std::int64_t token, std::int32_t) {
      std::copy_n(ffn_norm + token * width_.hidden, width_.hidden, rows + row * width_.hidden);
    });
  }
  ExchangeArgs dispatched(const ExpertSaved<T>& x, T* work) const { return args(work, x.inputs, x.sent, x.arrived); }
  void compute(const LayerMatrices<const T>& w, const ExpertSaved<T>& x, T* work) const {
    T* const to = sends() ? results(work) : x.results;
    for_each_block(x, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
      const T* const inputs = x.inputs + first * width_.hidden;
      project(inputs, experts_.gate(w, e), x.gate + at(first), count, width_.hidden, width_.expert);
      project(inputs, experts_.up(w, e), x.up + at(first), count, width_.hidden, width_.expert);
      swiglu(x.gate + at(first), x.up + at(first), x.sigmoid + at(first), x.product + at(first), at(count));
      project(x.product + at(first), experts_.down(w, e), to + first * width_.hidden, count, width_.expert, width_.hidden);
    });
  }
  /// Sigmoid and product again, of gate and up.
  void function(const ExpertSaved<T>& x) const {
    for_each_block(x, [&](std::int64_t, std::int64_t first, std::int64_t count) {
      swiglu(x.gate + at(first), x.up + at(first), x.sigmoid + at(first), x.product + at(first), at(count));
    });
  }
  ExchangeArgs returned(const ExpertSaved<T>& x, T* work) const { return args(results(work), x.results, x.arrived, x.sent); }
  /// Adds the weighted results to y [t, H].
  void mix(const ExpertSaved<T>& x, T* y) const {
    const Routing<T> routing = routing_of(x);
    for_each_copy(routing, [&](std::int64_t row, std::int64_t token, std::int32_t pair) {
      add_scaled(y + token * width_.hidden, x.results + row * width_.hidden, routing.weight[pair], width_.hidden);
    });
  }

  // ---- backward ---------------------------------------------------------------------------------

  /// Given the gradient [t, H] of the layer's output: those of the copies' results, to be sent, and of the
  /// chosen logits in place of the weights.
  void mix_gradient(const T* gradient, const ExpertSaved<T>& x, T* work) const {
    const Routing<T> routing = routing_of(x);
    T* const weights = routing.rows;  // [t, k]
    T* const rows = sends() ? work : x.given;
    for_each_copy(routing, [&](std::int64_t row, std::int64_t token, std::int32_t pair) {
      const T* const from = gradient + token * width_.hidden;
      const T* const result = x.results + row * width_.hidden;
      T* const to = rows + row * width_.hidden;
      weights[pair] = sum_of<T>(width_.hidden, [=](std::int64_t j) { return from[j] * result[j]; });
      for (std::int64_t j = 0; j < width_.hidden; ++j) to[j] = from[j] * routing.weight[pair];
    });
    experts_.choice_gradient(weights, routing);
  }
  ExchangeArgs gave(const ExpertSaved<T>& x, T* work) const { return args(work, x.given, x.sent, x.arrived); }
  /// The gradients of gate and up, and of the rows.
  void input_gradient(const LayerMatrices<const T>& w, const ExpertSaved<T>& x, T* work) const {
    T* const scratch = copies_gradient(work) + copies();  // [t, I]
    T* const to = sends() ? results(work) : copies_gradient(work);
    for_each_block(x, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
      project_back(x.given + first * width_.hidden, experts_.down(w, e), scratch, count, width_.expert, width_.hidden);
      swiglu_backward(x.gate + at(first), x.up + at(first), x.sigmoid + at(first), scratch, at(count));
      T* const rows = to + first * width_.hidden;
      project_back(x.gate + at(first), experts_.gate(w, e), rows, count, width_.hidden, width_.expert);
      project_back(x.up + at(first), experts_.up(w, e), rows, count, width_.hidden, width_.expert, T{1});
    });
  }
  ExchangeArgs gave_back(const ExpertSaved<T>& x, T* work) const {
    return args(results(work), copies_gradient(work), x.arrived, x.sent);
  }
  /// Adds the gradients of copies and logits to that of ffn_norm [t, H].
  void add_input_gradient(const T* router, const ExpertSaved<T>& x, T* work, T* to) const {
    const Routing<T> routing = routing_of(x);
    for_each_copy(routing, [&](std::int64_t row, std::int64_t token, std::int32_t pair) {
      T* const sum = to + token * width_.hidden;
      add_to(sum, copies_gradient(work) + row * width_.hidden, width_.hidden);
      add_scaled(sum, router + routing.expert[pair] * width_.hidden, routing.weight[pair], width_.hidden);
    });
  }
  /// Adds to the gradients of the rank's experts.
  void add_weight_gradients(const LayerMatrices<T>& g, const ExpertSaved<T>& x) const {
    for_each_block(x, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
      const T* const inputs = x.inputs + first * width_.hidden;
      add_weight_gradient(x.gate + at(first), inputs, experts_.gate(g, e), count, width_.hidden, width_.expert);
      add_weight_gradient(x.up + at(first), inputs, experts_.up(g, e), count, width_.hidden, width_.expert);
      add_weight_gradient(x.given + first * width_.hidden, x.product + at(first), experts_.down(g, e), count, width_.expert,
                          width_.hidden);
    });
  }
  /// Adds to the router's gradient [E, H].
  void add_router_gradient(const T* ffn_norm, const ExpertSaved<T>& x, T* router) const {
    const Routing<T> routing = routing_of(x);
    for_each_copy(routing, [&](std::int64_t, std::int64_t token, std::int32_t pair) {
      add_scaled(router + routing.expert[pair] * width_.hidden, ffn_norm + token * width_.hidden, routing.weight[pair],
                 width_.hidden);
    });
  }

 private:
  bool sends() const { return ranks_ > 1; }
  std::int64_t copies() const { return sizes_.chosen * width_.hidden; }
  Routing<T> routing_of(const ExpertSaved<T>& x) const { return {x.routing, sizes_}; }
  // What is sent: the copies or their gradients [c, H], then what goes back [R, H]; what has come back [c, H].
  T* results(T* work) const { return work + copies(); }
  T* copies_gradient(T* work) const { return results(work) + rows_ * width_.hidden; }
  /// Numbers of that many rows of width I.
  std::int64_t at(std::int64_t rows) const { return rows * width_.expert; }

  /// Calls `visit(row, token, index in [t, k])` for the copies.
  template <class Visit>
  void for_each_copy(const Routing<T>& routing, Visit&& visit) const {
    for (std::int64_t row = 0; row < sizes_.chosen; ++row) visit(row, routing.pair[row] / width_.chosen, routing.pair[row]);
  }
  /// Calls `visit(expert, first row, rows)` for the rows of one rank's tokens for one expert, t at most.
  template <class Visit>
  void for_each_block(const ExpertSaved<T>& x, Visit&& visit) const {
    std::int64_t first = 0;
    for (std::int64_t block = 0; block < ranks_ * width_.held; ++block) {
      const std::int64_t count = x.arrived[block];
      if (count > 0) visit(block % width_.held, first, count);
      first += count;
    }
  }
  ExchangeArgs args(const T* from, T* to, const std::int32_t* rows, std::int32_t* arrived) const {
    ExchangeArgs one{
        .from = reinterpret_cast<std::byte*>(const_cast<T*>(from)), .to = reinterpret_cast<std::byte*>(to), .count = copies()};
    one.rows = rows;
    one.arrived = arrived;
    one.row = width_.hidden;
    one.groups = static_cast<std::int32_t>(width_.held);
    return one;
  }

  TokenWidths width_;
  int ranks_;
  RoutingSizes sizes_;
  std::int64_t tokens_;
  std::int64_t rows_ = 0;  // that may come, at most
  Experts<T> experts_;
};

}  // namespace tawpipe::layers::host
