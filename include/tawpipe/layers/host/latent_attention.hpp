// Latent attention of one layer: its products and norms, and the core, causal with rotary embedding of
// a part of each head, forward and backward, in blocks of query rows.
// Not: the product after it (layers/host/decoder_layer.hpp), nor grouped-query attention
// (layers/host/attention.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tawpipe/layers/host/blas.hpp"
#include "tawpipe/layers/host/kernels.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/layers/rotary_frequencies.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::host {

/// Queries are products of a short vector after its norm, or of the hidden state; keys and values of
/// another short vector after its norm. The last part of a head's query is turned by its position, and
/// so is the last part of a key, which all heads share: it is kept once a token, and scores are the sum
/// of two products. Values may have another size than keys.
///
/// Memory of LayerTensors: `qkv` is queries [tokens, Q], then [tokens, heads (unturned + value)];
/// `unnormed` is queries' short vector [tokens, R], then [tokens, C + D], of which the last D are the
/// keys' turned part, turned; `short_normed` is [tokens, R], then [tokens, C].
/// Scores are held for one head and one block of query rows at a time; the backward recomputes them.
/// Source: DeepSeek-AI 2024, DeepSeek-V2, arXiv:2405.04434, section 2.1; transformers,
/// models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3Attention (with rope_interleave).
template <class T>
class LatentAttention {
 public:
  LatentAttention(const Transformer& model, const Batch& batch, const DecoderConstants& constants)
      : width_{model},
        sequence_{batch.sequence},
        sequences_{batch.microbatch_size},
        tokens_{batch.tokens()},
        heads_{model.heads},
        size_{model.head_size()},
        turned_{model.rope_width},
        unturned_{size_ - turned_},
        value_{model.value_size},
        // The forward has 2 x hidden numbers a token for scores, the backward Q (StageWork) for twice as
        // many.
        rows_{std::max<std::int64_t>(1, std::min({std::int64_t{64}, batch.sequence, 2 * model.hidden * batch.microbatch_size,
                                                  model.query_width() * batch.microbatch_size / 2}))},
        scale_{T{1} / std::sqrt(static_cast<T>(size_))},
        epsilon_{static_cast<T>(constants.latent_epsilon)} {
    const std::vector<T> frequencies = rotary_frequencies<T>(constants, turned_);
    for (std::int64_t s = 0; s < sequence_; ++s) {
      for (const T frequency : frequencies) {
        const T angle = static_cast<T>(s) * frequency;
        cosine_.push_back(std::cos(angle));
        sine_.push_back(std::sin(angle));
      }
    }
  }

  /// Of attention_norm: what forward() reads. `with_products` false: results of products exist, turned.
  void project_inputs(const LayerMatrices<const T>& w, const LayerTensors<T>& x, bool with_products) const {
    if (width_.query_rank > 0) {
      if (with_products) project(x.attention_norm, w.query_down, x.unnormed, tokens_, width_.hidden, width_.query_rank);
      rms_norm(x.unnormed, w.query_norm, x.short_normed, tokens_, width_.query_rank, epsilon_);
    }
    if (with_products) {
      project(query_input(x), w.query_up, x.qkv, tokens_, query_inputs(), width_.query);
      project(x.attention_norm, w.key_down, short_keys(x), tokens_, width_.hidden, short_width());
    }
    for (std::int64_t t = 0; t < tokens_; ++t) {
      rms_norm(short_keys(x) + t * short_width(), w.key_norm, normed_keys(x) + t * width_.key_rank, 1, width_.key_rank, epsilon_);
    }
    if (!with_products) return;
    project(normed_keys(x), w.key_up, keys_values(x), tokens_, width_.key_rank, head_width() * heads_);
    turn(x, T{1});
  }

  /// x.attention of what project_inputs() gave. `workspace`: one block of scores
  void forward(const LayerTensors<T>& x, T* workspace) const {
    for_each_head([&](std::int64_t b, std::int64_t head) {
      for (std::int64_t begin = 0; begin < sequence_; begin += rows_) {
        const std::int64_t rows = std::min(rows_, sequence_ - begin);
        const std::int64_t seen = begin + rows;
        probabilities(x, b, head, begin, rows, workspace);
        multiply<T>(Operand::plain, Operand::plain, rows, value_, seen, 1, workspace, seen, values(x, b, head), kv_width(), 0,
                    x.attention + (b * sequence_ + begin) * width_.value + head * value_, width_.value);
      }
    });
  }

  /// Given the gradient [tokens, V] of x.attention in `scratch`, and room behind it: x.qkv and x.unnormed
  /// become the gradients of their products, and scratch the gradient of attention_norm.
  /// @param norms  becomes the gradient of both norms' weights [R + C]
  void backward_input(const LayerMatrices<const T>& w, const LayerTensors<T>& x, T* scratch, T* norms) const {
    core_backward(x, scratch, scratch + tokens_ * width_.value);
    turn(x, T{-1});
    if (width_.query_rank > 0) {
      project_back(x.qkv, w.query_up, scratch, tokens_, width_.query_rank, width_.query);
      rms_norm_backward(x.unnormed, w.query_norm, scratch, norms, tokens_, width_.query_rank, epsilon_);
      std::copy_n(scratch, tokens_ * width_.query_rank, x.unnormed);
    }
    project_back(keys_values(x), w.key_up, scratch, tokens_, width_.key_rank, head_width() * heads_);
    T* const key_norm = norms + width_.query_rank;
    std::fill_n(key_norm, width_.key_rank, T{0});
    for (std::int64_t t = 0; t < tokens_; ++t) {
      T* const row = short_keys(x) + t * short_width();
      T* const gradient = scratch + t * width_.key_rank;
      add_rms_norm_backward(row, w.key_norm, gradient, key_norm, 1, width_.key_rank, epsilon_);
      std::copy_n(gradient, width_.key_rank, row);
    }
    if (width_.query_rank > 0) {
      project_back(x.unnormed, w.query_down, scratch, tokens_, width_.hidden, width_.query_rank);
    } else {
      project_back(x.qkv, w.query_up, scratch, tokens_, width_.hidden, width_.query);
    }
    project_back(short_keys(x), w.key_down, scratch, tokens_, width_.hidden, short_width(), T{1});
  }

  /// Adds to the gradients of its matrices and norms. @param norms  as backward_input() left it
  void backward_weight(const LayerMatrices<T>& g, const LayerTensors<T>& x, const T* norms) const {
    add_weight_gradient(x.qkv, query_input(x), g.query_up, tokens_, query_inputs(), width_.query);
    if (width_.query_rank > 0) {
      add_weight_gradient(x.unnormed, x.attention_norm, g.query_down, tokens_, width_.hidden, width_.query_rank);
      add_to(g.query_norm, norms, width_.query_rank);
    }
    add_weight_gradient(short_keys(x), x.attention_norm, g.key_down, tokens_, width_.hidden, short_width());
    add_weight_gradient(keys_values(x), normed_keys(x), g.key_up, tokens_, width_.key_rank, head_width() * heads_);
    add_to(g.key_norm, norms + width_.query_rank, width_.key_rank);
  }

 private:
  // ---- parts of tensors -------------------------------------------------------------------------

  std::int64_t head_width() const { return unturned_ + value_; }
  std::int64_t kv_width() const { return heads_ * head_width(); }
  std::int64_t short_width() const { return width_.key_rank + turned_; }
  std::int64_t query_inputs() const { return width_.query_rank > 0 ? width_.query_rank : width_.hidden; }
  const T* query_input(const LayerTensors<T>& x) const { return width_.query_rank > 0 ? x.short_normed : x.attention_norm; }
  T* keys_values(const LayerTensors<T>& x) const { return x.qkv + tokens_ * width_.query; }
  T* short_keys(const LayerTensors<T>& x) const { return x.unnormed + tokens_ * width_.query_rank; }
  T* normed_keys(const LayerTensors<T>& x) const { return x.short_normed + tokens_ * width_.query_rank; }
  /// Of the first token of sequence b: rows are width_.query, kv_width() and short_width() apart.
  T* queries(const LayerTensors<T>& x, std::int64_t b, std::int64_t head) const {
    return x.qkv + b * sequence_ * width_.query + head * size_;
  }
  T* keys(const LayerTensors<T>& x, std::int64_t b, std::int64_t head) const {
    return keys_values(x) + b * sequence_ * kv_width() + head * head_width();
  }
  T* values(const LayerTensors<T>& x, std::int64_t b, std::int64_t head) const { return keys(x, b, head) + unturned_; }
  T* turned_keys(const LayerTensors<T>& x, std::int64_t b) const {
    return short_keys(x) + b * sequence_ * short_width() + width_.key_rank;
  }
  template <class Visit>
  void for_each_head(Visit&& visit) const {
    for (std::int64_t b = 0; b < sequences_; ++b) {
      for (std::int64_t head = 0; head < heads_; ++head) visit(b, head);
    }
  }

  // ---- core -------------------------------------------------------------------------------------

  /// Turns queries and the shared part of keys. @param direction  1, or -1: back
  void turn(const LayerTensors<T>& x, T direction) const {
    for (std::int64_t t = 0; t < tokens_; ++t) {
      const std::int64_t position = t % sequence_;
      for (std::int64_t head = 0; head < heads_; ++head) {
        turn_part(x.qkv + t * width_.query + head * size_ + unturned_, position, direction);
      }
      turn_part(short_keys(x) + t * short_width() + width_.key_rank, position, direction);
    }
  }
  void turn_part(T* x, std::int64_t position, T direction) const {
    const std::int64_t half = turned_ / 2;
    const T* const c = cosine_.data() + position * half;
    const T* const s = sine_.data() + position * half;
    for (std::int64_t j = 0; j < half; ++j) {
      const T even = x[2 * j];
      const T odd = x[2 * j + 1];
      const T sine = direction * s[j];
      x[2 * j] = even * c[j] - odd * sine;
      x[2 * j + 1] = even * sine + odd * c[j];
    }
  }

  /// Softmax of the masked scores of query rows begin .. begin + rows - 1: [rows, begin + rows].
  void probabilities(const LayerTensors<T>& x, std::int64_t b, std::int64_t head, std::int64_t begin, std::int64_t rows,
                     T* scores) const {
    const std::int64_t seen = begin + rows;
    const T* const query = queries(x, b, head) + begin * width_.query;
    if (unturned_ > 0) {
      multiply<T>(Operand::plain, Operand::transposed, rows, seen, unturned_, scale_, query, width_.query, keys(x, b, head),
                  kv_width(), 0, scores, seen);
    }
    if (turned_ > 0) {
      multiply<T>(Operand::plain, Operand::transposed, rows, seen, turned_, scale_, query + unturned_, width_.query,
                  turned_keys(x, b), short_width(), unturned_ > 0 ? T{1} : T{0}, scores, seen);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      T* const row = scores + r * seen;
      softmax(row, begin + r + 1);
      std::fill(row + begin + r + 1, row + seen, T{0});
    }
  }

  /// Queries, keys and values become their gradients, turned. @param gradient  [tokens, V]
  void core_backward(const LayerTensors<T>& x, const T* gradient, T* workspace) const {
    T* const turned_gradient = workspace;                            // [sequence, turned], of all heads
    T* const key_gradient = turned_gradient + sequence_ * turned_;   // [sequence, unturned]
    T* const value_gradient = key_gradient + sequence_ * unturned_;  // [sequence, value]
    T* const scores = value_gradient + sequence_ * value_;
    for (std::int64_t b = 0; b < sequences_; ++b) {
      std::fill(turned_gradient, key_gradient, T{0});
      for (std::int64_t head = 0; head < heads_; ++head) {
        std::fill(key_gradient, scores, T{0});
        for (std::int64_t begin = 0; begin < sequence_; begin += rows_) {
          block_backward(x, gradient, b, head, begin, turned_gradient, key_gradient, value_gradient, scores);
        }
        for (std::int64_t s = 0; s < sequence_; ++s) {
          std::copy_n(key_gradient + s * unturned_, unturned_, keys(x, b, head) + s * kv_width());
          std::copy_n(value_gradient + s * value_, value_, values(x, b, head) + s * kv_width());
        }
      }
      for (std::int64_t s = 0; s < sequence_; ++s) {  // all heads have used it
        std::copy_n(turned_gradient + s * turned_, turned_, turned_keys(x, b) + s * short_width());
      }
    }
  }
  void block_backward(const LayerTensors<T>& x, const T* gradient, std::int64_t b, std::int64_t head, std::int64_t begin,
                      T* turned_gradient, T* key_gradient, T* value_gradient, T* scores) const {
    const std::int64_t rows = std::min(rows_, sequence_ - begin);
    const std::int64_t seen = begin + rows;
    T* const score_gradients = scores + rows_ * sequence_;
    const T* const from = gradient + (b * sequence_ + begin) * width_.value + head * value_;
    T* const query = queries(x, b, head) + begin * width_.query;

    probabilities(x, b, head, begin, rows, scores);
    multiply<T>(Operand::transposed, Operand::plain, seen, value_, rows, 1, scores, seen, from, width_.value, 1, value_gradient,
                value_);
    multiply<T>(Operand::plain, Operand::transposed, rows, seen, value_, 1, from, width_.value, values(x, b, head), kv_width(), 0,
                score_gradients, seen);
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* __restrict p = scores + r * seen;
      T* __restrict d = score_gradients + r * seen;
      const T mean = sum_of<T>(seen, [=](std::int64_t j) { return p[j] * d[j]; });
      for (std::int64_t j = 0; j < seen; ++j) d[j] = p[j] * (d[j] - mean);
    }
    const auto backward_of = [&](std::int64_t size, T* of_query, const T* key, std::int64_t distance, T* to) {
      if (size == 0) return;
      multiply<T>(Operand::transposed, Operand::plain, seen, size, rows, scale_, score_gradients, seen, of_query, width_.query, 1,
                  to, size);
      multiply<T>(Operand::plain, Operand::plain, rows, size, seen, scale_, score_gradients, seen, key, distance, 0, of_query,
                  width_.query);
    };
    backward_of(unturned_, query, keys(x, b, head), kv_width(), key_gradient);
    backward_of(turned_, query + unturned_, turned_keys(x, b), short_width(), turned_gradient);
  }

  TokenWidths width_;
  std::int64_t sequence_;
  std::int64_t sequences_;
  std::int64_t tokens_;
  std::int64_t heads_;
  std::int64_t size_;      // of a head's query
  std::int64_t turned_;    // its last numbers, which are turned
  std::int64_t unturned_;  // the others
  std::int64_t value_;
  std::int64_t rows_;
  T scale_;
  T epsilon_;
  std::vector<T> cosine_;  // [sequence, turned / 2]
  std::vector<T> sine_;
};

}  // namespace tawpipe::layers::host
