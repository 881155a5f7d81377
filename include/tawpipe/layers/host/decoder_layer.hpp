// One decoder layer for one microbatch: forward, the gradients of its input, the gradients of its
// weights.
// Not: the layers and the source of their memory (layers/host/llama.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "tawpipe/layers/host/attention.hpp"
#include "tawpipe/layers/host/blas.hpp"
#include "tawpipe/layers/host/experts.hpp"
#include "tawpipe/layers/host/kernels.hpp"
#include "tawpipe/layers/host/latent_attention.hpp"
#include "tawpipe/layers/host/router.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/layer_code.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::host {

/// With experts they, and a shared expert where there is one, take the place of the MLP: y = x +
/// sum of the chosen experts' results + shared expert's. Attention is of grouped queries, or latent.
/// Source of the mathematics: Touvron et al. 2023, arXiv:2302.13971, section 2.2; Dai et al. 2024,
/// DeepSeekMoE, arXiv:2401.06066, section 3.2 (shared expert).
template <class T>
class DecoderLayer {
 public:
  DecoderLayer(const Transformer& model, const Batch& batch, const DecoderConstants& constants)
      : width_{model},
        query_norm_{model.qk_norm == QkNorm::head ? model.head_size() : width_.query},
        key_norm_{model.qk_norm == QkNorm::head ? model.head_size() : width_.key},
        tokens_{batch.tokens()},
        epsilon_{static_cast<T>(constants.norm_epsilon)},
        attention_{model, batch, constants},
        experts_{model, batch, constants.router} {
    if (model.is_latent()) latent_.emplace(model, batch, constants);
  }

  /// Computes a layer's tensors from its input, all but its output. `with_products` false: the
  /// results of matrix products and the residual sum exist already, and only the rest is computed.
  void compute(const LayerMatrices<const T>& w, const LayerTensors<T>& x, T* scratch, bool with_products = true,
               const RouterNumbers<T>& router = {}) const {
    const std::int64_t hidden = width_.hidden;
    rms_norm(x.input, w.attention_norm, x.attention_norm, tokens_, hidden, epsilon_);
    if (latent_) {
      latent_->project_inputs(w, x, with_products);
      latent_->forward(x, scratch);
    } else {
      if (with_products) {
        project(x.attention_norm, w.qkv, x.qkv, tokens_, hidden, width_.projected());
        add_bias(x.qkv, w.qkv_bias, width_.projected());
        if (width_.normed > 0) norm_heads(w, x);
        attention_.rotate(x.qkv);
      }
      attention_.forward(x.qkv, x.attention, scratch);
    }
    if (with_products) {
      std::copy_n(x.input, tokens_ * hidden, x.middle);
      project(x.attention, w.output, x.middle, tokens_, width_.attended(), hidden, T{1});
      add_bias(x.middle, w.output_bias, hidden);
    }
    rms_norm(x.middle, w.ffn_norm, x.ffn_norm, tokens_, hidden, epsilon_);
    if (width_.experts > 0) experts_.compute(w, x, with_products, router);
    if (width_.dense == 0) return;
    if (with_products) {
      project(x.ffn_norm, w.gate, dense(x.gate), tokens_, hidden, width_.dense);
      project(x.ffn_norm, w.up, dense(x.up), tokens_, hidden, width_.dense);
      add_bias(dense(x.gate), w.gate_bias, width_.dense);
      add_bias(dense(x.up), w.up_bias, width_.dense);
    }
    swiglu(dense(x.gate), dense(x.up), dense(x.sigmoid), dense(x.product), tokens_ * width_.dense);
  }

  /// The layer's output [tokens, hidden]. @pre compute() ran
  void output(const LayerMatrices<const T>& w, const LayerTensors<T>& x, T* y) const {
    std::copy_n(x.middle, tokens_ * width_.hidden, y);
    if (width_.dense > 0) project(dense(x.product), w.down, y, tokens_, width_.dense, width_.hidden, T{1});
    add_bias(y, w.down_bias, width_.hidden);
    if (width_.experts > 0) experts_.add_output(w, x, y);
  }

  /// `gradient` [tokens, hidden] of the output becomes that of the input; the tensors change as
  /// described in LayerTensors.
  void backward_input(const LayerMatrices<const T>& w, const LayerTensors<T>& x, T* gradient, T* scratch,
                      const RouterNumbers<T>& router = {}) const {
    const std::int64_t hidden = width_.hidden;
    const std::int64_t numbers = tokens_ * hidden;

    if (width_.experts > 0) experts_.backward_products(w, x, gradient, scratch, router);
    if (width_.dense > 0) {
      project_back(gradient, w.down, scratch, tokens_, width_.dense, hidden);
      swiglu_backward(dense(x.gate), dense(x.up), dense(x.sigmoid), scratch, tokens_ * width_.dense);
      project_back(dense(x.gate), w.gate, scratch, tokens_, hidden, width_.dense);
      project_back(dense(x.up), w.up, scratch, tokens_, hidden, width_.dense, T{1});
    } else {
      std::fill_n(scratch, numbers, T{0});
    }
    if (width_.experts > 0) experts_.add_input_gradient(w, x, scratch);
    rms_norm_backward(x.middle, w.ffn_norm, scratch, x.norm_gradients + hidden, tokens_, hidden, epsilon_);
    add(gradient, scratch, x.middle, numbers);

    project_back(x.middle, w.output, scratch, tokens_, width_.attended(), hidden);
    if (latent_) {
      latent_->backward_input(w, x, scratch, x.norm_gradients + 2 * hidden);
    } else {
      attention_.backward(x.qkv, scratch, scratch + tokens_ * width_.query);
      if (width_.normed > 0) norm_heads_backward(w, x, scratch);
      project_back(x.qkv, w.qkv, scratch, tokens_, hidden, width_.projected());
    }
    rms_norm_backward(x.input, w.attention_norm, scratch, x.norm_gradients, tokens_, hidden, epsilon_);
    std::copy_n(gradient, numbers, x.input);
    add(x.middle, scratch, gradient, numbers);
  }

  /// Adds to the gradients of the weights. @pre backward_input() ran
  void backward_weight(const LayerMatrices<T>& g, const LayerTensors<T>& x) const {
    const std::int64_t hidden = width_.hidden;
    if (width_.experts > 0) experts_.backward_weight(g, x);
    if (width_.dense > 0) {
      add_weight_gradient(x.input, dense(x.product), g.down, tokens_, width_.dense, hidden);
      add_weight_gradient(dense(x.gate), x.ffn_norm, g.gate, tokens_, hidden, width_.dense);
      add_weight_gradient(dense(x.up), x.ffn_norm, g.up, tokens_, hidden, width_.dense);
    }
    add_bias_gradient(g.down_bias, x.input, hidden);
    add_bias_gradient(g.gate_bias, dense(x.gate), width_.dense);
    add_bias_gradient(g.up_bias, dense(x.up), width_.dense);
    add_to(g.ffn_norm, x.norm_gradients + hidden, hidden);
    add_weight_gradient(x.middle, x.attention, g.output, tokens_, width_.attended(), hidden);
    if (latent_) {
      latent_->backward_weight(g, x, x.norm_gradients + 2 * hidden);
    } else {
      add_weight_gradient(x.qkv, x.attention_norm, g.qkv, tokens_, hidden, width_.projected());
    }
    add_bias_gradient(g.output_bias, x.middle, hidden);
    add_bias_gradient(g.qkv_bias, x.qkv, width_.projected());
    add_to(g.attention_norm, x.norm_gradients, hidden);
    if (width_.normed == 0) return;
    add_to(g.query_norm, x.unnormed, query_norm_);
    add_to(g.key_norm, x.unnormed + query_norm_, key_norm_);
  }

 private:
  /// The part of a tensor of the MLPs that the MLP of every token has.
  T* dense(T* tensor) const { return tensor + tokens_ * (width_.inner - width_.dense); }

  /// A bias that the model does not have is null.
  void add_bias(T* y, const T* bias, std::int64_t width) const {
    if (bias != nullptr) add_to_rows(y, bias, tokens_, width);
  }
  void add_bias_gradient(T* bias, const T* gradient, std::int64_t width) const {
    if (bias != nullptr) add_sum_of_rows(bias, gradient, tokens_, width);
  }

  /// Calls `visit(unnormed, qkv, numbers, norm, keys)` for the queries and the keys of each token: before
  /// their norm and after it, how many numbers, the size of the norm, and which of the two.
  template <class Visit>
  void for_each_normed(const LayerTensors<T>& x, Visit&& visit) const {
    for (std::int64_t t = 0; t < tokens_; ++t) {
      T* const from = x.unnormed + t * width_.normed;
      T* const to = x.qkv + t * (width_.query + 2 * width_.key);
      visit(from, to, width_.query, query_norm_, false);
      visit(from + width_.query, to + width_.query, width_.key, key_norm_, true);
    }
  }
  void norm_heads(const LayerMatrices<const T>& w, const LayerTensors<T>& x) const {
    for_each_normed(x, [&](T* unnormed, T* qkv, std::int64_t numbers, std::int64_t norm, bool keys) {
      std::copy_n(qkv, numbers, unnormed);
      rms_norm(unnormed, keys ? w.key_norm : w.query_norm, qkv, numbers / norm, norm, epsilon_);
    });
  }
  void norm_heads_backward(const LayerMatrices<const T>& w, const LayerTensors<T>& x, T* scratch) const {
    std::fill_n(scratch, query_norm_ + key_norm_, T{0});
    for_each_normed(x, [&](const T* unnormed, T* qkv, std::int64_t numbers, std::int64_t norm, bool keys) {
      add_rms_norm_backward(unnormed, keys ? w.key_norm : w.query_norm, qkv, scratch + (keys ? query_norm_ : 0), numbers / norm,
                            norm, epsilon_);
    });
    std::copy_n(scratch, query_norm_ + key_norm_, x.unnormed);
  }

  TokenWidths width_;
  std::int64_t query_norm_;  // the sizes of these norms, where there are any
  std::int64_t key_norm_;
  std::int64_t tokens_;
  T epsilon_;
  Attention<T> attention_;
  std::optional<LatentAttention<T>> latent_;
  Experts<T> experts_;
};

}  // namespace tawpipe::layers::host
