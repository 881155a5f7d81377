// Causal attention of some ranks' queries to some ranks' keys, a chunk of a sequence each, with a
// softmax that runs over keys as they arrive.
// Not: what ranks exchange (layers/host/context_attention.hpp), nor attention within one rank
// (layers/host/attention.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tawpipe/layers/context_tokens.hpp"
#include "tawpipe/layers/host/blas.hpp"
#include "tawpipe/layers/host/kernels.hpp"

namespace tawpipe::inline v0::layers::host {

/// Rows of one rank's tokens, the numbers of all heads of a token contiguous.
template <class P>
struct ContextRows {
  P* at = nullptr;          ///< of the first token
  std::int64_t stride = 0;  ///< numbers from one token to the next
  int rank = 0;             ///< whose tokens
};

/// The attention of queries to keys that come in parts: results are sums relative to the largest
/// score so far. The backward has the logarithm of each row's sum of exponentials, and recomputes
/// probabilities. Sums are formed in the order of the calls.
/// Source: Milakov and Gimelshein 2018, arXiv:1805.02867 (running softmax); Liu et al. 2023,
/// arXiv:2310.01889 (blocks of ranks); Dao 2023, arXiv:2307.08691, algorithms 1 and 2.
template <class T>
class ChunkAttention {
 public:
  /// @param window  a token sees itself and so many minus one before it; 0: all
  ChunkAttention(std::int64_t heads, std::int64_t kv_heads, std::int64_t size, const ContextTokens& tokens, std::int64_t window)
      : heads_{heads},
        kv_heads_{kv_heads},
        size_{size},
        tokens_{tokens},
        window_{window > 0 ? window : std::numeric_limits<std::int32_t>::max()},
        rows_{std::min<std::int64_t>(64, tokens.chunk())},
        scale_{T{1} / std::sqrt(static_cast<T>(size))} {}

  /// Numbers of a token's queries, and of its keys.
  std::int64_t query_width() const { return heads_ * size_; }
  std::int64_t key_width() const { return kv_heads_ * size_; }
  std::int64_t heads() const { return heads_; }
  /// The scratch of add() and backward(), in numbers.
  std::int64_t scratch() const { return 2 * rows_ * tokens_.chunk(); }

  /// A rank's queries' results while keys arrive.
  struct Running {
    ContextRows<T> output;  ///< [tokens, heads * size]
    T* most = nullptr;      ///< [tokens, heads] the largest score -> the logarithm of the sum of exponentials
    T* total = nullptr;     ///< [tokens, heads] sums of exponentials relative to it
  };
  void begin(const Running& of) const {
    const std::int64_t tokens = tokens_.tokens();
    for (std::int64_t t = 0; t < tokens; ++t) std::fill_n(of.output.at + t * of.output.stride, query_width(), T{0});
    std::fill_n(of.most, tokens * heads_, std::numeric_limits<T>::lowest());
    std::fill_n(of.total, tokens * heads_, T{0});
  }
  void end(const Running& of) const {
    for (std::int64_t t = 0; t < tokens_.tokens(); ++t) {
      for (std::int64_t h = 0; h < heads_; ++h) {
        T* const x = of.output.at + t * of.output.stride + h * size_;
        const T factor = T{1} / of.total[t * heads_ + h];
        for (std::int64_t j = 0; j < size_; ++j) x[j] *= factor;
        of.most[t * heads_ + h] += std::log(of.total[t * heads_ + h]);
      }
    }
  }

  /// Adds a rank's keys. @param values  in rows like those of `keys`. @param scratch  scratch() numbers
  void add(const ContextRows<const T>& queries, const ContextRows<const T>& keys, const T* values, const Running& to,
           T* scratch) const {
    for_each_block(queries.rank, keys.rank, [&](const Block& block) {
      const T* const query = queries.at + block.query * queries.stride + block.head * size_;
      const T* const key = keys.at + block.key * keys.stride + kv_head(block) * size_;
      scores(query, queries.stride, key, keys.stride, block, scratch);
      T* const output = to.output.at + block.query * to.output.stride + block.head * size_;
      for (std::int64_t r = 0; r < block.rows; ++r) {
        T* const row = scratch + r * block.keys;
        const auto [first, end] = seen(block, r);
        std::fill(row, row + first, T{0});
        std::fill(row + end, row + block.keys, T{0});
        if (first == end) continue;
        T& most = to.most[(block.query + r) * heads_ + block.head];
        T& total = to.total[(block.query + r) * heads_ + block.head];
        const T larger = std::max(most, largest_of(row + first, end - first));
        for (std::int64_t k = first; k < end; ++k) row[k] = exponential(row[k] - larger);
        const T before = total == 0 ? T{0} : std::exp(most - larger);
        total = total * before + sum_of<T>(end - first, [=, x = row + first](std::int64_t k) { return x[k]; });
        most = larger;
        T* const sums = output + r * to.output.stride;
        for (std::int64_t j = 0; j < size_; ++j) sums[j] *= before;
      }
      const T* const value = values + block.key * keys.stride + kv_head(block) * size_;
      multiply<T>(Operand::plain, Operand::plain, block.rows, size_, block.keys, 1, scratch, block.keys, value, keys.stride, 1,
                  output, to.output.stride);
    });
  }

  /// What a backward needs of a rank's queries, and what it adds to.
  struct Backward {
    ContextRows<const T> queries;
    ContextRows<const T> gradient;  ///< of the results
    const T* log_sums = nullptr;    ///< [tokens, heads] as end() leaves them
    const T* means = nullptr;       ///< [tokens, heads] of mean_products()
    ContextRows<T> query_gradient;
  };
  /// [tokens, heads] for each row, the products of result and its gradient, summed.
  void mean_products(const ContextRows<const T>& output, const ContextRows<const T>& gradient, T* means) const {
    for (std::int64_t t = 0; t < tokens_.tokens(); ++t) {
      for (std::int64_t h = 0; h < heads_; ++h) {
        const T* const x = output.at + t * output.stride + h * size_;
        const T* const d = gradient.at + t * gradient.stride + h * size_;
        *means++ = sum_of<T>(size_, [=](std::int64_t j) { return x[j] * d[j]; });
      }
    }
  }
  /// Adds to the gradients of queries, keys and values. @param values  as in add()
  void backward(const Backward& of, const ContextRows<const T>& keys, const T* values, const ContextRows<T>& key_gradient,
                T* value_gradient, T* scratch) const {
    T* const gradients = scratch + rows_ * tokens_.chunk();
    for_each_block(of.queries.rank, keys.rank, [&](const Block& block) {
      const std::int64_t kv = kv_head(block) * size_;
      const T* const query = of.queries.at + block.query * of.queries.stride + block.head * size_;
      const T* const key = keys.at + block.key * keys.stride + kv;
      const T* const from = of.gradient.at + block.query * of.gradient.stride + block.head * size_;
      scores(query, of.queries.stride, key, keys.stride, block, scratch);
      multiply<T>(Operand::plain, Operand::transposed, block.rows, block.keys, size_, 1, from, of.gradient.stride,
                  values + block.key * keys.stride + kv, keys.stride, 0, gradients, block.keys);
      for (std::int64_t r = 0; r < block.rows; ++r) {
        T* const p = scratch + r * block.keys;
        T* const d = gradients + r * block.keys;
        const std::int64_t row = (block.query + r) * heads_ + block.head;
        const auto [first, end] = seen(block, r);
        for (std::int64_t k = 0; k < block.keys; ++k) {
          p[k] = k < first || k >= end ? T{0} : exponential(p[k] - of.log_sums[row]);
          d[k] = p[k] * (d[k] - of.means[row]);
        }
      }
      multiply<T>(Operand::transposed, Operand::plain, block.keys, size_, block.rows, 1, scratch, block.keys, from,
                  of.gradient.stride, 1, value_gradient + block.key * key_gradient.stride + kv, key_gradient.stride);
      multiply<T>(Operand::transposed, Operand::plain, block.keys, size_, block.rows, scale_, gradients, block.keys, query,
                  of.queries.stride, 1, key_gradient.at + block.key * key_gradient.stride + kv, key_gradient.stride);
      multiply<T>(Operand::plain, Operand::plain, block.rows, size_, block.keys, scale_, gradients, block.keys, key, keys.stride,
                  1, of.query_gradient.at + block.query * of.query_gradient.stride + block.head * size_,
                  of.query_gradient.stride);
    });
  }

 private:
  /// Some rows of a chunk of queries with the keys of a chunk that they may see.
  struct Block {
    std::int64_t head;
    std::int64_t query;  ///< the first row, of the rank's tokens
    std::int64_t rows;
    std::int64_t key;  ///< the first of the rank's tokens
    std::int64_t keys;
    std::int64_t query_position;  ///< of the first row in its sequence
    std::int64_t key_position;
  };
  struct Seen {
    std::int64_t first;
    std::int64_t end;
  };

  std::int64_t kv_head(const Block& block) const { return block.head * kv_heads_ / heads_; }
  /// The keys of a block that its r-th row sees.
  Seen seen(const Block& block, std::int64_t r) const {
    const std::int64_t at = block.query_position + r - block.key_position;
    const std::int64_t end = std::clamp<std::int64_t>(at + 1, 0, block.keys);
    return {std::clamp<std::int64_t>(at + 1 - window_, 0, end), end};
  }
  template <class Visit>
  void for_each_block(int of_queries, int of_keys, Visit&& visit) const {
    const std::int64_t chunk = tokens_.chunk();
    for (std::int64_t b = 0; b < tokens_.sequences(); ++b) {
      for (int q = 0; q < tokens_.chunks(); ++q) {
        for (int k = 0; k < tokens_.chunks(); ++k) {
          const std::int64_t query_position = tokens_.begin(of_queries, q);
          const std::int64_t key_position = tokens_.begin(of_keys, k);
          if (key_position > query_position || key_position + chunk + window_ - 1 <= query_position) continue;
          for (std::int64_t row = 0; row < chunk; row += rows_) {
            const std::int64_t rows = std::min(rows_, chunk - row);
            const std::int64_t keys = key_position == query_position ? row + rows : chunk;
            for (std::int64_t head = 0; head < heads_; ++head) {
              visit(Block{head, (b * tokens_.chunks() + q) * chunk + row, rows, (b * tokens_.chunks() + k) * chunk, keys,
                          query_position + row, key_position});
            }
          }
        }
      }
    }
  }
  /// [rows, keys] of a block, of which all are computed.
  void scores(const T* query, std::int64_t query_stride, const T* key, std::int64_t key_stride, const Block& block, T* to) const {
    multiply<T>(Operand::plain, Operand::transposed, block.rows, block.keys, size_, scale_, query, query_stride, key, key_stride,
                0, to, block.keys);
  }

  std::int64_t heads_;
  std::int64_t kv_heads_;
  std::int64_t size_;
  ContextTokens tokens_;
  std::int64_t window_;
  std::int64_t rows_;
  T scale_;
};

}  // namespace tawpipe::layers::host
