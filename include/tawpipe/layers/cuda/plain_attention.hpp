// Causal grouped-query attention without a library: for float32, and head sizes that the fused
// kernels refuse.
// Not: fast (fused_attention.hpp), nor the rotation of queries and keys (decoder_bodies.hpp).
#pragma once

#include <cmath>
#include <cstdint>

#include "tawpipe/layers/cuda/block.hpp"
#include "tawpipe/layers/cuda/number.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// The layout of heads in a matrix qkv [tokens, Q + 2K] with all query, key and value heads of a
/// token contiguous.
struct HeadLayout {
  std::int64_t sequence;
  std::int64_t sequences;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t size;

  TAWPIPE_HOST_DEVICE std::int64_t group() const { return heads / kv_heads; }
  TAWPIPE_HOST_DEVICE std::int64_t query_width() const { return heads * size; }
  TAWPIPE_HOST_DEVICE std::int64_t width() const { return (heads + 2 * kv_heads) * size; }
  TAWPIPE_HOST_DEVICE std::int64_t key_column(std::int64_t kv_head) const { return (heads + kv_head) * size; }
  TAWPIPE_HOST_DEVICE std::int64_t value_column(std::int64_t kv_head) const { return (heads + kv_heads + kv_head) * size; }
  TAWPIPE_HOST_DEVICE float scale() const { return 1.0F / sqrtf(static_cast<float>(size)); }
  std::int64_t tokens() const { return sequence * sequences; }
};

namespace detail {

inline constexpr int attention_threads = 128;
inline constexpr int attention_tile = 128;  ///< keys or queries that a block processes together

/// a . b, [size].
template <class A, class B>
TAWPIPE_HOST_DEVICE inline float dot(const A* a, const B* b, std::int64_t size) {
  float sum = 0;
  for (std::int64_t i = 0; i < size; ++i) sum += widen(a[i]) * widen(b[i]);
  return sum;
}

/// The query of a block, and the keys and values of its sequence. One block for each query and
/// head.
template <class T>
struct BlockQuery {
  std::int64_t head;
  std::int64_t token;
  std::int64_t position;  ///< in its sequence
  const T* query;         ///< [size]
  const T* keys;          ///< of its sequence, [sequence] rows of layout.width() numbers
  const T* values;

  template <class Block>
  TAWPIPE_HOST_DEVICE BlockQuery(const Block& block, const T* qkv, const HeadLayout& layout)
      : head{block.index() % layout.heads},
        token{block.index() / layout.heads},
        position{token % layout.sequence},
        query{qkv + token * layout.width() + head * layout.size},
        keys{qkv + (token - position) * layout.width() + layout.key_column(head / layout.group())},
        values{qkv + (token - position) * layout.width() + layout.value_column(head / layout.group())} {}

  /// Its place in [sequences, heads, sequence].
  TAWPIPE_HOST_DEVICE std::int64_t row(const HeadLayout& layout) const {
    return (token / layout.sequence * layout.heads + head) * layout.sequence + position;
  }
};

}  // namespace detail

/// output [tokens, Q] and the logarithms of softmax's sums [sequences, heads, sequence] of the
/// rotated qkv. One block for each query: it passes over the keys in tiles, with the largest score
/// so far.
template <class T>
struct PlainAttention {
  const T* qkv;
  T* output;
  float* sums;
  HeadLayout layout;

  Grid grid() const {
    return {.blocks = layout.tokens() * layout.heads,
            .threads = detail::attention_threads,
            .shared = 2 * layout.size + detail::attention_tile};
  }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    const detail::BlockQuery<T> own{block, qkv, layout};
    const std::int64_t size = layout.size;
    float* const query = block.shared();
    float* const sum_of_values = query + size;
    float* const weights = sum_of_values + size;
    each_in_row<1>(block, size, [&](std::int64_t i) {
      query[i] = widen(own.query[i]) * layout.scale();
      sum_of_values[i] = 0;
    });
    float most = -3.0e38F;
    float total = 0;
    for (std::int64_t first = 0; first <= own.position; first += detail::attention_tile) {
      const std::int64_t left = own.position + 1 - first;
      const std::int64_t count = left < detail::attention_tile ? left : detail::attention_tile;
      block.sync();
      float larger = -3.0e38F;
      each_in_row<1>(block, count, [&](std::int64_t j) {
        weights[j] = detail::dot(query, own.keys + (first + j) * layout.width(), size);
        larger = weights[j] > larger ? weights[j] : larger;
      });
      larger = block.largest(larger);
      larger = larger > most ? larger : most;
      float sum = 0;
      each_in_row<1>(block, count, [&](std::int64_t j) {
        weights[j] = expf(weights[j] - larger);
        sum += weights[j];
      });
      const float shrink = expf(most - larger);
      total = total * shrink + block.sum(sum);  // the weights of all threads are complete after a sum
      most = larger;
      each_in_row<1>(block, size, [&](std::int64_t i) {
        float value = sum_of_values[i] * shrink;
        for (std::int64_t j = 0; j < count; ++j) value += weights[j] * widen(own.values[(first + j) * layout.width() + i]);
        sum_of_values[i] = value;
      });
    }
    each_in_row<1>(block, size, [&](std::int64_t i) {
      output[own.token * layout.query_width() + own.head * size + i] = narrow<T>(sum_of_values[i] / total);
    });
    if (block.thread() == 0) sums[own.row(layout)] = most + logf(total);
  }
};

/// The queries' part of `qkv_gradient` [tokens, Q + 2K], and the products of output and its
/// gradient [sequences, heads, sequence]. One block a query. Source: Dao et al. 2022,
/// arXiv:2205.14135, appendix B.2.
template <class T>
struct PlainAttentionQueries {
  const T* qkv;
  const T* output;
  const T* gradient;  ///< [tokens, Q] of the output
  const float* sums;  ///< of PlainAttention
  T* qkv_gradient;
  float* products;
  HeadLayout layout;

  Grid grid() const {
    return {.blocks = layout.tokens() * layout.heads,
            .threads = detail::attention_threads,
            .shared = 3 * layout.size + detail::attention_tile};
  }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    const detail::BlockQuery<T> own{block, qkv, layout};
    const std::int64_t size = layout.size;
    const std::int64_t row = own.row(layout);
    const std::int64_t at = own.token * layout.query_width() + own.head * size;  // of the output
    float* const query = block.shared();
    float* const back = query + size;
    float* const result = back + size;
    float* const slopes = result + size;
    float product = 0;
    each_in_row<1>(block, size, [&](std::int64_t i) {
      query[i] = widen(own.query[i]) * layout.scale();
      back[i] = widen(gradient[at + i]);
      result[i] = 0;
      product += back[i] * widen(output[at + i]);
    });
    product = block.sum(product);
    if (block.thread() == 0) products[row] = product;
    for (std::int64_t first = 0; first <= own.position; first += detail::attention_tile) {
      const std::int64_t left = own.position + 1 - first;
      const std::int64_t count = left < detail::attention_tile ? left : detail::attention_tile;
      block.sync();
      each_in_row<1>(block, count, [&](std::int64_t j) {
        const std::int64_t key = (first + j) * layout.width();
        const float p = expf(detail::dot(query, own.keys + key, size) - sums[row]);
        slopes[j] = p * (detail::dot(back, own.values + key, size) - product);
      });
      block.sync();
      each_in_row<1>(block, size, [&](std::int64_t i) {
        for (std::int64_t j = 0; j < count; ++j) result[i] += slopes[j] * widen(own.keys[(first + j) * layout.width() + i]);
      });
    }
    each_in_row<1>(block, size, [&](std::int64_t i) {
      qkv_gradient[own.token * layout.width() + own.head * size + i] = narrow<T>(result[i] * layout.scale());
    });
  }
};

/// The keys' and values' parts of `qkv_gradient`. One block for each key, which passes over the
/// later queries of its group.
/// @pre PlainAttentionQueries ran
template <class T>
struct PlainAttentionKeys {
  const T* qkv;
  const T* gradient;
  const float* sums;
  const float* products;
  T* qkv_gradient;
  HeadLayout layout;

  Grid grid() const {
    return {.blocks = layout.tokens() * layout.kv_heads,
            .threads = detail::attention_threads,
            .shared = 4 * layout.size + 2 * detail::attention_tile};
  }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    const std::int64_t kv_head = block.index() % layout.kv_heads;
    const std::int64_t token = block.index() / layout.kv_heads;
    const std::int64_t position = token % layout.sequence;
    const std::int64_t begin = token - position;
    const std::int64_t size = layout.size;
    const std::int64_t here = token * layout.width();
    float* const key = block.shared();
    float* const value = key + size;
    float* const key_sum = value + size;
    float* const value_sum = key_sum + size;
    float* const weights = value_sum + size;
    float* const slopes = weights + detail::attention_tile;
    each_in_row<1>(block, size, [&](std::int64_t i) {
      key[i] = widen(qkv[here + layout.key_column(kv_head) + i]) * layout.scale();
      value[i] = widen(qkv[here + layout.value_column(kv_head) + i]);
      key_sum[i] = 0;
      value_sum[i] = 0;
    });
    for (std::int64_t head = kv_head * layout.group(); head < (kv_head + 1) * layout.group(); ++head) {
      const std::int64_t row = (token / layout.sequence * layout.heads + head) * layout.sequence;
      const T* const queries = qkv + begin * layout.width() + head * size;
      const T* const back = gradient + begin * layout.query_width() + head * size;
      for (std::int64_t first = position; first < layout.sequence; first += detail::attention_tile) {
        const std::int64_t left = layout.sequence - first;
        const std::int64_t count = left < detail::attention_tile ? left : detail::attention_tile;
        block.sync();
        each_in_row<1>(block, count, [&](std::int64_t j) {
          const std::int64_t s = first + j;
          weights[j] = expf(detail::dot(key, queries + s * layout.width(), size) - sums[row + s]);
          slopes[j] = weights[j] * (detail::dot(value, back + s * layout.query_width(), size) - products[row + s]);
        });
        block.sync();
        each_in_row<1>(block, size, [&](std::int64_t i) {
          for (std::int64_t j = 0; j < count; ++j) {
            key_sum[i] += slopes[j] * widen(queries[(first + j) * layout.width() + i]);
            value_sum[i] += weights[j] * widen(back[(first + j) * layout.query_width() + i]);
          }
        });
      }
    }
    each_in_row<1>(block, size, [&](std::int64_t i) {
      qkv_gradient[here + layout.key_column(kv_head) + i] = narrow<T>(key_sum[i] * layout.scale());
      qkv_gradient[here + layout.value_column(kv_head) + i] = narrow<T>(value_sum[i]);
    });
  }
};

}  // namespace tawpipe::layers::cuda
