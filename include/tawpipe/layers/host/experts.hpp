// The experts of one layer for one microbatch: forward, the gradients of their input, the gradients of
// their weights.
// Not: the router's choice (layers/host/router.hpp), nor an MLP that every token passes, which the layer has beside them
// (layers/host/decoder_layer.hpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "tawpipe/layers/expert_routing.hpp"
#include "tawpipe/layers/host/blas.hpp"
#include "tawpipe/layers/host/kernels.hpp"
#include "tawpipe/layers/host/router.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::host {

/// A router that chooses k of E experts for each token, and the experts: SwiGLU, each times the router's
/// weight. No token is dropped. An expert without tokens multiplies nothing and leaves its gradient as
/// it is.
///
/// Each expert's rows are contiguous; sums over experts are in the order of experts, sums over
/// tokens in the order of tokens, by products of RoutingSizes::rows rows.
/// Source: Jiang et al. 2024, Mixtral, arXiv:2401.04088, section 2.1.
template <class T>
class Experts {
 public:
  Experts(const Transformer& model, const Batch& batch, const RouterRules& rules = {})
      : width_{model}, tokens_{batch.tokens()}, router_{model, batch, rules}, sizes_{router_.sizes()} {}

  /// Of ffn_norm: the choice, gate, up, sigmoid and product. `with_products` false: choice, gate and
  /// up exist already.
  void compute(const LayerMatrices<const T>& w, const LayerTensors<T>& x, bool with_products,
               const RouterNumbers<T>& numbers = {}) const {
    const Routing<T> routing{x.routing, sizes_};
    if (with_products) router_.choose(w.router, x.ffn_norm, routing, numbers);
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

  /// Given the gradient [tokens, hidden] of the layer's output, gate, up and the router's numbers become the
  /// gradients of gate, up and the logits. `scratch`: tokens (I + k) numbers.
  void backward_products(const LayerMatrices<const T>& w, const LayerTensors<T>& x, const T* gradient, T* scratch,
                         const RouterNumbers<T>& numbers = {}) const {
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
    router_.gradients(w.router, x.ffn_norm, weight_gradient, routing, numbers);
  }

  /// As Router, for experts with a softmax over the chosen.
  void choose(const T* router, const T* ffn_norm, const Routing<T>& routing) const {
    router_.choose(router, ffn_norm, routing, {});
  }
  /// Weights [tokens, k] become the gradients of the chosen logits. @param gradient  of the weights
  void choice_gradient(const T* gradient, const Routing<T>& routing) const { router_.gradients(gradient, routing); }

  /// Adds the gradients of ffn_norm to `to` [tokens, hidden]. @pre backward_products() ran
  void add_input_gradient(const LayerMatrices<const T>& w, const LayerTensors<T>& x, T* to) const {
    const Routing<T> routing{x.routing, sizes_};
    for_each_block(routing, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
      project_back(x.gate + at(first), gate(w, e), routing.rows, count, width_.hidden, width_.expert);
      project_back(x.up + at(first), up(w, e), routing.rows, count, width_.hidden, width_.expert, T{1});
      for (std::int64_t i = 0; i < count; ++i) {
        T* const row = routing.rows + i * width_.hidden;
        if (!router_.of_all()) {
          add_scaled(row, w.router + e * width_.hidden, routing.weight[routing.pair[first + i]], width_.hidden);
        }
        add_to(to + token(routing, first + i) * width_.hidden, row, width_.hidden);
      }
    });
    if (router_.of_all()) project_back(routing.scores, w.router, to, tokens_, width_.hidden, width_.experts, T{1});
  }

  /// Adds to the gradients of router and experts. @pre the layer's backward_input() ran
  void backward_weight(const LayerMatrices<T>& g, const LayerTensors<T>& x) const {
    const Routing<T> routing{x.routing, sizes_};
    for_each_block(routing, [&](std::int64_t e, std::int64_t first, std::int64_t count) {
      gather(x.ffn_norm, routing, first, count);
      add_weight_gradient(x.gate + at(first), routing.rows, gate(g, e), count, width_.hidden, width_.expert);
      add_weight_gradient(x.up + at(first), routing.rows, up(g, e), count, width_.hidden, width_.expert);
      for (std::int64_t i = 0; i < count && !router_.of_all(); ++i) {
        add_scaled(g.router + e * width_.hidden, routing.rows + i * width_.hidden, routing.weight[routing.pair[first + i]],
                   width_.hidden);
      }
      gather(x.input, routing, first, count);
      add_weight_gradient(routing.rows, x.product + at(first), down(g, e), count, width_.expert, width_.hidden);
    });
    if (router_.of_all()) add_weight_gradient(routing.scores, x.ffn_norm, g.router, tokens_, width_.hidden, width_.experts);
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

  TokenWidths width_;
  std::int64_t tokens_;
  Router<T> router_;
  RoutingSizes sizes_;
};

}  // namespace tawpipe::layers::host
