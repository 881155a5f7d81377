// The experts of one layer for one microbatch: the router's choice, forward, the gradients of their
// input, the gradients of their weights.
// Not: an MLP that every token passes, which the layer has beside them
// (layers/host/decoder_layer.hpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "tawpipe/layers/expert_routing.hpp"
#include "tawpipe/layers/host/blas.hpp"
#include "tawpipe/layers/host/kernels.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::host {

/// The k largest of logits [E], of equal ones the first, in falling order: expert [k], and their
/// softmax: weight [k].
/// @pre 0 < k <= E
template <class T>
void choose_experts(const T* logits, std::int64_t experts, std::int64_t k, std::int32_t* expert, T* weight) {
  for (std::int64_t e = 0; e < experts; ++e) {
    if (e >= k && !(logits[e] > weight[k - 1])) continue;
    std::int64_t at = std::min(e, k - 1);
    for (; at > 0 && logits[e] > weight[at - 1]; --at) {
      weight[at] = weight[at - 1];
      expert[at] = expert[at - 1];
    }
    weight[at] = logits[e];
    expert[at] = static_cast<std::int32_t>(e);
  }
  softmax(weight, k);
}

/// A router that chooses k of E experts for each token by its logits, and the experts: SwiGLU, each
/// times its share of the softmax of the chosen logits. No token is dropped. An expert without
/// tokens multiplies nothing and leaves its gradient as it is.
///
/// Each expert's rows are contiguous; sums over experts are in the order of experts, sums over
/// tokens in the order of tokens, by products of RoutingSizes::rows rows.
/// Source: Jiang et al. 2024, Mixtral, arXiv:2401.04088, section 2.1.
template <class T>
class Experts {
 public:
  Experts(const Transformer& model, const Batch& batch)
      : width_{model}, tokens_{batch.tokens()}, sizes_{model, batch, std::int64_t{sizeof(T)}} {}

  /// Of ffn_norm: the choice, gate, up, sigmoid and product. `with_products` false: choice, gate and
  /// up exist already.
  void compute(const LayerMatrices<const T>& w, const LayerTensors<T>& x, bool with_products) const {
    const Routing<T> routing{x.routing, sizes_};
    if (with_products) choose(w.router, x.ffn_norm, routing);
    for_each_block(routing, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
      if (with_products) {
        gather(x.ffn_norm, routing, first, count);
        project(routing.rows, gate(w, e), x.gate + at(first), count, width_.hidden, width_.expert);
        project(routing.rows, up(w, e), x.up + at(first), count, width_.hidden, width_.expert);
      }
      swiglu(x.gate + at(first), x.up + at(first), x.sigmoid + at(first), x.product + at(first), at(count));
      for (std::int64_t row = first; row < first + count; ++row) {
        scale(x.product + at(row), routing.weight[routing.pair[row]], width_.expert);
      }
    });
  }

  /// Adds the experts' results to y [tokens, hidden]. @pre compute() ran
  void add_output(const LayerMatrices<const T>& w, const LayerTensors<T>& x, T* y) const {
    const Routing<T> routing{x.routing, sizes_};
    for_each_block(routing, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
      project(x.product + at(first), down(w, e), routing.rows, count, width_.expert, width_.hidden);
      for (std::int64_t i = 0; i < count; ++i) {
        add_to(y + token(routing, first + i) * width_.hidden, routing.rows + i * width_.hidden, width_.hidden);
      }
    });
  }

  /// Given the gradient [tokens, hidden] of the layer's output, gate, up and the weights become the
  /// gradients of gate, up and the chosen logits. `scratch`: tokens (I + k) numbers.
  void backward_products(const LayerMatrices<const T>& w, const LayerTensors<T>& x, const T* gradient, T* scratch) const {
    const Routing<T> routing{x.routing, sizes_};
    T* const weight_gradient = scratch;
    T* const product_gradient = scratch + sizes_.chosen;
    for_each_block(routing, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
      gather(gradient, routing, first, count);
      project_back(routing.rows, down(w, e), product_gradient, count, width_.expert, width_.hidden);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int32_t pair = routing.pair[first + i];
        const T* const g = x.gate + at(first + i);
        const T* const s = x.sigmoid + at(first + i);
        const T* const u = x.up + at(first + i);
        T* const d = product_gradient + at(i);
        weight_gradient[pair] = sum_of<T>(width_.expert, [=](std::int64_t j) { return g[j] * s[j] * u[j] * d[j]; });
        scale(d, routing.weight[pair], width_.expert);
      }
      swiglu_backward(x.gate + at(first), x.up + at(first), x.sigmoid + at(first), product_gradient, at(count));
    });
    choice_gradient(weight_gradient, routing);
  }

  /// The chosen experts of each token of ffn_norm [tokens, H], their weights, and the rows of each expert.
  /// @param router  [E, H]
  void choose(const T* router, const T* ffn_norm, const Routing<T>& routing) const {
    for (std::int64_t begin = 0; begin < tokens_; begin += sizes_.logits) {
      const std::int64_t count = std::min(sizes_.logits, tokens_ - begin);
      project(ffn_norm + begin * width_.hidden, router, routing.rows, count, width_.hidden, width_.experts);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t pair = (begin + i) * width_.chosen;
        choose_experts(routing.rows + i * width_.experts, width_.experts, width_.chosen, routing.expert + pair,
                       routing.weight + pair);
      }
    }
    sort(routing);
  }
  /// Weights [tokens, k] become the gradients of the chosen logits. @param gradient  of the weights
  void choice_gradient(const T* gradient, const Routing<T>& routing) const {
    for (std::int64_t t = 0; t < tokens_; ++t) {
      T* const weight = routing.weight + t * width_.chosen;
      const T* const d = gradient + t * width_.chosen;
      const T mean = sum_of<T>(width_.chosen, [=](std::int64_t i) { return weight[i] * d[i]; });
      for (std::int64_t i = 0; i < width_.chosen; ++i) weight[i] *= d[i] - mean;
    }
  }

  /// Adds the gradients of ffn_norm to `to` [tokens, hidden]. @pre backward_products() ran
  void add_input_gradient(const LayerMatrices<const T>& w, const LayerTensors<T>& x, T* to) const {
    const Routing<T> routing{x.routing, sizes_};
    for_each_block(routing, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
      project_back(x.gate + at(first), gate(w, e), routing.rows, count, width_.hidden, width_.expert);
      project_back(x.up + at(first), up(w, e), routing.rows, count, width_.hidden, width_.expert, T{1});
      for (std::int64_t i = 0; i < count; ++i) {
        T* const row = routing.rows + i * width_.hidden;
        add_scaled(row, w.router + e * width_.hidden, routing.weight[routing.pair[first + i]], width_.hidden);
        add_to(to + token(routing, first + i) * width_.hidden, row, width_.hidden);
      }
    });
  }

  /// Adds to the gradients of router and experts. @pre the layer's backward_input() ran
  void backward_weight(const LayerMatrices<T>& g, const LayerTensors<T>& x) const {
    const Routing<T> routing{x.routing, sizes_};
    for_each_block(routing, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
      gather(x.ffn_norm, routing, first, count);
      add_weight_gradient(x.gate + at(first), routing.rows, gate(g, e), count, width_.hidden, width_.expert);
      add_weight_gradient(x.up + at(first), routing.rows, up(g, e), count, width_.hidden, width_.expert);
      for (std::int64_t i = 0; i < count; ++i) {
        add_scaled(g.router + e * width_.hidden, routing.rows + i * width_.hidden, routing.weight[routing.pair[first + i]],
                   width_.hidden);
      }
      gather(x.input, routing, first, count);
      add_weight_gradient(routing.rows, x.product + at(first), down(g, e), count, width_.expert, width_.hidden);
    });
  }

  // Matrices of expert e, of those that the rank holds: gate [I, H], down [H, I], up [I, H].
  template <class P>
  P* gate(const LayerMatrices<P>& m, std::int64_t e) const {
    return m.experts + 3 * e * width_.expert * width_.hidden;
  }
  template <class P>
  P* down(const LayerMatrices<P>& m, std::int64_t e) const {
    return gate(m, e) + width_.expert * width_.hidden;
  }
  template <class P>
  P* up(const LayerMatrices<P>& m, std::int64_t e) const {
    return down(m, e) + width_.expert * width_.hidden;
  }

 private:
  /// Numbers of that many rows of width I.
  std::int64_t at(std::int64_t rows) const { return rows * width_.expert; }
  std::int64_t token(const Routing<T>& routing, std::int64_t row) const { return routing.pair[row] / width_.chosen; }

  /// Calls `visit(expert, first row, rows)` for all rows, RoutingSizes::rows of one expert at most.
  template <class Visit>
  void for_each_block(const Routing<T>& routing, Visit&& visit) const {
    for (std::int64_t e = 0; e < width_.experts; ++e) {
      for (std::int64_t first = routing.begin[e]; first < routing.begin[e + 1]; first += sizes_.rows) {
        visit(e, first, std::min(sizes_.rows, routing.begin[e + 1] - first));
      }
    }
  }
  /// The tokens of some rows of from [tokens, hidden], one below the other.
  void gather(const T* from, const Routing<T>& routing, std::int64_t first, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(from + token(routing, first + i) * width_.hidden, width_.hidden, routing.rows + i * width_.hidden);
    }
  }

  /// The rows of each expert, from the choices of all tokens.
  void sort(const Routing<T>& routing) const {
    std::int32_t* const begin = routing.begin;
    std::fill_n(begin, width_.experts + 1, 0);
    for (std::int64_t pair = 0; pair < sizes_.chosen; ++pair) ++begin[routing.expert[pair] + 1];
    for (std::int64_t e = 0; e < width_.experts; ++e) begin[e + 1] += begin[e];
    for (std::int64_t pair = 0; pair < sizes_.chosen; ++pair) {
      routing.pair[begin[routing.expert[pair]]++] = static_cast<std::int32_t>(pair);
    }
    for (std::int64_t e = width_.experts; e > 0; --e) begin[e] = begin[e - 1];  // each was moved to the next one's begin
    begin[0] = 0;
  }

  TokenWidths width_;
  std::int64_t tokens_;
  RoutingSizes sizes_;
};

}  // namespace tawpipe::layers::host
