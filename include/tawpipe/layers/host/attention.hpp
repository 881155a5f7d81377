// Causal grouped-query attention with rotary embedding of one layer, all earlier tokens or a window
// of them, forward and backward, in blocks of query rows.
// Not: the projections before and after it (layers/host/decoder_layer.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tawpipe/layers/host/blas.hpp"
#include "tawpipe/layers/host/kernels.hpp"
#include "tawpipe/layers/rotary_frequencies.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::host {

/// The attention core on a matrix qkv [tokens, Q + 2K]: all query heads, key heads and value heads
/// of a token contiguous.
///
/// Scores are held for one head and one block of query rows at a time; the backward recomputes
/// them, and with them the row sums that fused kernels save. A block's rows follow only from the
/// model and the batch, so that the numbers do not depend on how the model is split.
/// With a window of W a token sees itself and the W - 1 before it; keys that no row of a block sees
/// are not touched.
/// Source: Su et al. 2021, RoFormer, arXiv:2104.09864, equation 34 (rotation of adjacent pairs);
/// Ainslie et al. 2023, arXiv:2305.13245 (groups); Dao et al. 2022, arXiv:2205.14135, appendix B.2
/// (gradients); transformers, masking_utils.py, sliding_window_overlay (window).
template <class T>
class Attention {
 public:
  Attention(const Transformer& model, const Batch& batch, const DecoderConstants& constants)
      : sequence_{batch.sequence},
        window_{model.window > 0 ? std::min<std::int64_t>(model.window, batch.sequence) : batch.sequence},
        sequences_{batch.microbatch_size},
        heads_{model.heads},
        kv_heads_{model.kv_heads},
        size_{model.head_size()},
        width_{model.query_width() + 2 * model.key_width()},
        // The forward has 2 x hidden numbers a token for scores, the backward Q (StageWork)
        // for twice as many.
        rows_{std::max<std::int64_t>(1, std::min({std::int64_t{64}, batch.sequence, 2 * model.hidden * batch.microbatch_size,
                                                  model.query_width() * batch.microbatch_size / 2}))},
        scale_{T{1} / std::sqrt(static_cast<T>(model.head_size()))} {
    const std::vector<T> frequencies = rotary_frequencies<T>(constants, size_);
    cosine_.reserve(static_cast<std::size_t>(sequence_) * frequencies.size());
    sine_.reserve(static_cast<std::size_t>(sequence_) * frequencies.size());
    for (std::int64_t s = 0; s < sequence_; ++s) {
      for (const T frequency : frequencies) {
        const T angle = static_cast<T>(s) * frequency;
        cosine_.push_back(std::cos(angle));
        sine_.push_back(std::sin(angle));
      }
    }
  }

  /// The workspace of forward(), in numbers.
  std::int64_t forward_workspace() const { return rows_ * sequence_; }
  /// The workspace of backward(), in numbers.
  std::int64_t backward_workspace() const { return 2 * rows_ * sequence_ + 2 * sequence_ * size_; }

  /// Rotates queries and keys by their position.
  void rotate(T* qkv) const { turn(qkv, T{1}); }
  /// The same of one token [Q + 2K] at a position of its sequence. @param direction  1, or -1: back
  void rotate_token(T* qkv, std::int64_t position, T direction) const {
    const std::int64_t half = size_ / 2;
    const T* const c = cosine_.data() + position * half;
    const T* const d = sine_.data() + position * half;
    for (std::int64_t head = 0; head < heads_ + kv_heads_; ++head) {
      T* const x = qkv + head * size_;
      for (std::int64_t j = 0; j < half; ++j) {
        const T even = x[2 * j];
        const T odd = x[2 * j + 1];
        const T sine = direction * d[j];
        x[2 * j] = even * c[j] - odd * sine;
        x[2 * j + 1] = even * sine + odd * c[j];
      }
    }
  }

  /// `output` [tokens, Q] of the rotated qkv.
  void forward(const T* qkv, T* output, T* workspace) const {
    for (std::int64_t b = 0; b < sequences_; ++b) {
      for (std::int64_t head = 0; head < heads_; ++head) {
        const T* const value = values(qkv, b, head / group());
        T* const to = output + b * sequence_ * query_width() + head * size_;
        for (std::int64_t begin = 0; begin < sequence_; begin += rows_) {
          const Block block = block_at(begin);
          probabilities(qkv, b, head, block, workspace);
          multiply<T>(Operand::plain, Operand::plain, block.rows, size_, block.keys, 1, workspace, block.keys,
                      value + block.first_key * width_, width_, 0, to + begin * query_width(), query_width());
        }
      }
    }
  }

  /// qkv, rotated, becomes its gradient before the rotation, given the gradient [tokens, Q] of the
  /// output.
  void backward(T* qkv, const T* gradient, T* workspace) const {
    T* const key_gradient = workspace;
    T* const value_gradient = key_gradient + sequence_ * size_;
    T* const scores = value_gradient + sequence_ * size_;
    for (std::int64_t b = 0; b < sequences_; ++b) {
      for (std::int64_t kv_head = 0; kv_head < kv_heads_; ++kv_head) {
        std::fill(key_gradient, scores, T{0});
        for (std::int64_t g = 0; g < group(); ++g) {
          backward_of_head(qkv, gradient, b, kv_head * group() + g, key_gradient, value_gradient, scores);
        }
        for (std::int64_t s = 0; s < sequence_; ++s) {  // all queries of the group have used them
          std::copy_n(key_gradient + s * size_, size_, keys(qkv, b, kv_head) + s * width_);
          std::copy_n(value_gradient + s * size_, size_, values(qkv, b, kv_head) + s * width_);
        }
      }
    }
    turn(qkv, T{-1});
  }

 private:
  std::int64_t group() const { return heads_ / kv_heads_; }
  std::int64_t query_width() const { return heads_ * size_; }
  template <class P>
  P* queries(P* qkv, std::int64_t b, std::int64_t head) const {
    return qkv + b * sequence_ * width_ + head * size_;
  }
  template <class P>
  P* keys(P* qkv, std::int64_t b, std::int64_t kv_head) const {
    return qkv + b * sequence_ * width_ + (heads_ + kv_head) * size_;
  }
  template <class P>
  P* values(P* qkv, std::int64_t b, std::int64_t kv_head) const {
    return qkv + b * sequence_ * width_ + (heads_ + kv_heads_ + kv_head) * size_;
  }

  /// Query rows begin .. begin + rows - 1, and the keys that they see.
  struct Block {
    std::int64_t begin;
    std::int64_t rows;
    std::int64_t first_key;
    std::int64_t keys;
  };
  std::int64_t first_key_of(std::int64_t row) const { return std::max<std::int64_t>(0, row - window_ + 1); }
  Block block_at(std::int64_t begin) const {
    const std::int64_t rows = std::min(rows_, sequence_ - begin);
    const std::int64_t first = first_key_of(begin);
    return {begin, rows, first, begin + rows - first};
  }

  void turn(T* qkv, T direction) const {
    for (std::int64_t b = 0; b < sequences_; ++b) {
      for (std::int64_t s = 0; s < sequence_; ++s, qkv += width_) rotate_token(qkv, s, direction);
    }
  }

  /// Softmax of the masked scores of a block: [rows, keys].
  void probabilities(const T* qkv, std::int64_t b, std::int64_t head, const Block& block, T* scores) const {
    multiply<T>(Operand::plain, Operand::transposed, block.rows, block.keys, size_, scale_,
                queries(qkv, b, head) + block.begin * width_, width_, keys(qkv, b, head / group()) + block.first_key * width_,
                width_, 0, scores, block.keys);
    for (std::int64_t r = 0; r < block.rows; ++r) {
      T* const row = scores + r * block.keys;
      T* const seen = row + first_key_of(block.begin + r) - block.first_key;
      T* const end = row + block.begin + r + 1 - block.first_key;
      std::fill(row, seen, T{0});
      softmax(seen, end - seen);
      std::fill(end, row + block.keys, T{0});
    }
  }

  void backward_of_head(T* qkv, const T* gradient, std::int64_t b, std::int64_t head, T* key_gradient, T* value_gradient,
                        T* scores) const {
    T* const score_gradients = scores + rows_ * sequence_;
    for (std::int64_t begin = 0; begin < sequence_; begin += rows_) {
      const Block block = block_at(begin);
      const T* const key = keys(qkv, b, head / group()) + block.first_key * width_;
      const T* const value = values(qkv, b, head / group()) + block.first_key * width_;
      T* const query = queries(qkv, b, head) + begin * width_;
      const T* const from = gradient + (b * sequence_ + begin) * query_width() + head * size_;

      probabilities(qkv, b, head, block, scores);
      multiply<T>(Operand::transposed, Operand::plain, block.keys, size_, block.rows, 1, scores, block.keys, from, query_width(),
                  1, value_gradient + block.first_key * size_, size_);
      multiply<T>(Operand::plain, Operand::transposed, block.rows, block.keys, size_, 1, from, query_width(), value, width_, 0,
                  score_gradients, block.keys);
      for (std::int64_t r = 0; r < block.rows; ++r) {
        const T* __restrict p = scores + r * block.keys;
        T* __restrict d = score_gradients + r * block.keys;
        const T mean = sum_of<T>(block.keys, [=](std::int64_t j) { return p[j] * d[j]; });
        for (std::int64_t j = 0; j < block.keys; ++j) d[j] = p[j] * (d[j] - mean);
      }
      multiply<T>(Operand::transposed, Operand::plain, block.keys, size_, block.rows, scale_, score_gradients, block.keys, query,
                  width_, 1, key_gradient + block.first_key * size_, size_);
      multiply<T>(Operand::plain, Operand::plain, block.rows, size_, block.keys, scale_, score_gradients, block.keys, key, width_,
                  0, query, width_);
    }
  }

  std::int64_t sequence_;
  std::int64_t window_;  // keys that a row sees at most
  std::int64_t sequences_;
  std::int64_t heads_;
  std::int64_t kv_heads_;
  std::int64_t size_;
  std::int64_t width_;
  std::int64_t rows_;
  T scale_;
  std::vector<T> cosine_;  // [sequence, head size / 2]
  std::vector<T> sine_;
};

}  // namespace tawpipe::layers::host
