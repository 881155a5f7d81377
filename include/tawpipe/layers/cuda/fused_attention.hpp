// Causal grouped-query attention by cuDNN's fused kernels: the forward and the backward as graphs
// of its operations.
// Not: the graph's interface (cudnn_graph.hpp), nor the kernels for head sizes that no engine
// supports (plain_attention.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "tawpipe/layers/cuda/cudnn_graph.hpp"
#include "tawpipe/layers/cuda/plain_attention.hpp"
#include "tawpipe/model/dtype.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// Attention on a matrix qkv [tokens, Q + 2K], as PlainAttention: scores are never in memory.
///
/// cuDNN 9.19 has no single operation for a causal mask; its engines recognize the graph of single
/// operations by its form: 14 of them forward, 22 backward and 24 with grouped queries. Numbers in
/// memory are of the model's dtype, all others are float32. The backward sums the queries'
/// gradients in float32 memory [tokens, Q] by atomics: so their last bits vary between runs.
/// Source: cuDNN's documentation of fused flash attention patterns; the form of both graphs is that
/// of NVIDIA's cudnn-frontend.
class FusedAttention {
 public:
  /// Plans for both graphs; nothing if no engine supports them. @throws DeviceError  if cuDNN
  /// fails.
  static std::optional<FusedAttention> make(const HeadLayout& layout, Dtype dtype, const CudnnTarget& target) {
    if (dtype == Dtype::f32 || layout.size % 8 != 0 || !right(cudnnGetVersion(), layout.sequence)) return {};
    const cudnnDataType_t type = type_of(dtype);
    std::optional<CudnnPlan> forward = forward_graph(layout, type).plan(target);
    if (!forward) return {};
    std::optional<CudnnPlan> backward = backward_graph(layout, type).plan(target);
    if (!backward) return {};
    return FusedAttention{layout, size_bytes(dtype), std::move(*forward), std::move(*backward)};
  }

  /// Whether a version of cuDNN computes both graphs correctly, if its engines support them. Before
  /// 9.6 query_sum must be zeroed beforehand; 9.10.0 and 9.10.1 are wrong; up to 9.15.0 the
  /// backward is wrong except for sequences that are multiples of 128.
  /// Source: cases that NVIDIA's cudnn-frontend rejects or works around
  /// (node/sdpa_support_surface.h, scaled_dot_product_flash_attention.h).
  static constexpr bool right(std::size_t version, std::int64_t sequence) {
    if (version < 90600 || version == 91000 || version == 91001) return false;
    return version > 91500 || sequence % 128 == 0;
  }

  /// The number of engine configurations for the forward and the backward, the smaller of the two.
  /// Needs libcuda, but no device.
  static std::int64_t offered(const HeadLayout& layout, Dtype dtype, const CudnnTarget& target) {
    const std::int64_t forward = forward_graph(layout, type_of(dtype)).offered(target);
    return std::min(forward, backward_graph(layout, type_of(dtype)).offered(target));
  }

  std::int64_t forward_workspace() const { return forward_.workspace(); }  ///< bytes
  /// Bytes: the engine's own, plus the queries' gradients and the rows' products in float32.
  std::int64_t backward_workspace() const { return backward_.workspace() + aligned(query_sum_bytes()) + aligned(row_bytes()); }

  /// As PlainAttention, enqueued in the handle's stream. @pre all memory is aligned to 16 bytes,
  /// workspace to 256
  void forward(cudnnHandle_t handle, const void* qkv, void* output, float* sums, std::byte* workspace) {
    float scale = layout_.scale();
    float masked = lowest();
    forward_.run(
        handle,
        std::array<std::int64_t, 7>{CudnnGraph::id(query), CudnnGraph::id(key), CudnnGraph::id(value), CudnnGraph::id(out),
                                    CudnnGraph::id(row_sums), CudnnGraph::id(factor), CudnnGraph::id(mask)},
        std::array<void*, 7>{column(qkv, 0), column(qkv, layout_.key_column(0)), column(qkv, layout_.value_column(0)), output,
                             sums, &scale, &masked},
        workspace);
  }
  /// As PlainAttentionQueries and PlainAttentionKeys.
  void backward(cudnnHandle_t handle, const void* qkv, const void* output, const void* gradient, const float* sums,
                void* qkv_gradient, std::byte* workspace) {
    float scale = layout_.scale();
    float masked = lowest();
    float unit = 1;
    std::byte* const products = workspace + aligned(query_sum_bytes());
    backward_.run(
        handle,
        std::array<std::int64_t, 14>{CudnnGraph::id(query), CudnnGraph::id(key), CudnnGraph::id(value), CudnnGraph::id(out),
                                     CudnnGraph::id(row_sums), CudnnGraph::id(factor), CudnnGraph::id(mask),
                                     CudnnGraph::id(out_gradient), CudnnGraph::id(one), CudnnGraph::id(query_gradient),
                                     CudnnGraph::id(key_gradient), CudnnGraph::id(value_gradient), CudnnGraph::id(query_sum),
                                     CudnnGraph::id(row_products)},
        std::array<void*, 14>{column(qkv, 0), column(qkv, layout_.key_column(0)), column(qkv, layout_.value_column(0)),
                              const_cast<void*>(output), const_cast<float*>(sums), &scale, &masked, const_cast<void*>(gradient),
                              &unit, column(qkv_gradient, 0), column(qkv_gradient, layout_.key_column(0)),
                              column(qkv_gradient, layout_.value_column(0)), workspace, products},
        products + aligned(row_bytes()));
  }

 private:
  using Tensor = CudnnGraph::Tensor;
  using Shape = CudnnGraph::Shape;

  /// Tensors in memory, in the order in which both graphs create them.
  enum : Tensor {
    query,
    key,
    value,
    out,
    row_sums,
    factor,
    mask,
    out_gradient,
    one,
    query_gradient,
    key_gradient,
    value_gradient,
    query_sum,
    row_products
  };

  /// A masked score. Before cuDNN 9.10 engines require a finite one.
  static float lowest() {
    return cudnnGetVersion() < 91000 ? std::numeric_limits<float>::lowest() : -std::numeric_limits<float>::infinity();
  }

  FusedAttention(const HeadLayout& layout, std::int64_t element, CudnnPlan forward, CudnnPlan backward)
      : layout_{layout}, element_{element}, forward_{std::move(forward)}, backward_{std::move(backward)} {}

  static cudnnDataType_t type_of(Dtype dtype) { return dtype == Dtype::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16; }
  static std::int64_t aligned(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }
  std::int64_t query_sum_bytes() const { return layout_.tokens() * layout_.query_width() * 4; }
  std::int64_t row_bytes() const { return layout_.tokens() * layout_.heads * 4; }
  void* column(const void* qkv, std::int64_t column) const {
    return static_cast<std::byte*>(const_cast<void*>(qkv)) + column * element_;
  }

  /// The shapes of one layout.
  struct Shapes {
    std::int64_t b, h, k, s, d;
    Shape queries, keys, scores, rows;
    Shape in_qkv;  ///< strides of heads in the matrix qkv
    Shape out;     ///< strides of heads in a matrix [tokens, Q]

    explicit Shapes(const HeadLayout& layout)
        : b{layout.sequences},
          h{layout.heads},
          k{layout.kv_heads},
          s{layout.sequence},
          d{layout.size},
          queries{b, h, s, d},
          keys{b, k, s, d},
          scores{b, h, s, s},
          rows{b, h, s, 1},
          in_qkv{s * layout.width(), d, layout.width(), 1},
          out{s * layout.query_width(), d, layout.query_width(), 1} {}
    Shape turned(const Shape& shape) const { return {shape[0], shape[1], shape[3], shape[2]}; }
  };

  /// The first seven tensors, which both graphs have. `keys_turned`: [b, k, d, s], as needed by the
  /// product with queries.
  static void common(CudnnGraph& graph, const Shapes& at, cudnnDataType_t type, bool values_turned) {
    graph.tensor(type, at.queries, at.in_qkv);
    graph.tensor(type, at.turned(at.keys), at.turned(at.in_qkv));
    if (values_turned) {
      graph.tensor(type, at.turned(at.keys), at.turned(at.in_qkv));
    } else {
      graph.tensor(type, at.keys, at.in_qkv);
    }
    graph.tensor(type, at.queries, at.out);
    graph.tensor(CUDNN_DATA_FLOAT, at.rows, {at.h * at.s, at.s, 1, 1});
    graph.constant();
    graph.constant();
  }
  /// Scores where the query is not before the key, lowest() elsewhere.
  static Tensor masked(CudnnGraph& graph, const Shapes& at, Tensor scores) {
    const Tensor row = graph.passing(CUDNN_DATA_INT32, at.scores);
    const Tensor column = graph.passing(CUDNN_DATA_INT32, at.scores);
    const Tensor seen = graph.passing(CUDNN_DATA_BOOLEAN, at.scores);
    const Tensor result = graph.passing(CUDNN_DATA_FLOAT, at.scores);
    graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, scores, {}, row, {}, CUDNN_DATA_FLOAT, 2);
    graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, scores, {}, column, {}, CUDNN_DATA_FLOAT, 3);
    graph.pointwise(CUDNN_POINTWISE_CMP_GE, row, column, seen, {}, CUDNN_DATA_BOOLEAN);
    graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, mask, result, seen);
    return result;
  }

  static CudnnGraph forward_graph(const HeadLayout& layout, cudnnDataType_t type) {
    const Shapes at{layout};
    CudnnGraph graph;
    common(graph, at, type, false);
    const auto passing = [&](const Shape& shape) { return graph.passing(CUDNN_DATA_FLOAT, shape); };
    const Tensor scores = passing(at.scores);
    graph.matmul(query, key, scores);
    const Tensor scaled = passing(at.scores);
    graph.pointwise(CUDNN_POINTWISE_MUL, scores, factor, scaled);
    const Tensor causal = masked(graph, at, scaled);
    const Tensor most = passing(at.rows);
    graph.reduction(CUDNN_REDUCE_TENSOR_MAX, causal, most);
    const Tensor below = passing(at.scores);
    graph.pointwise(CUDNN_POINTWISE_SUB, causal, most, below);
    const Tensor powers = passing(at.scores);
    graph.pointwise(CUDNN_POINTWISE_EXP, below, {}, powers);
    const Tensor total = passing(at.rows);
    graph.reduction(CUDNN_REDUCE_TENSOR_ADD, powers, total);
    const Tensor logarithm = passing(at.rows);
    graph.pointwise(CUDNN_POINTWISE_LOG, total, {}, logarithm);
    graph.pointwise(CUDNN_POINTWISE_ADD, most, logarithm, row_sums);
    const Tensor probabilities = graph.passing(type, at.scores);
    graph.pointwise(CUDNN_POINTWISE_DIV, powers, total, probabilities);
    graph.matmul(probabilities, value, out);
    return graph;
  }

  static CudnnGraph backward_graph(const HeadLayout& layout, cudnnDataType_t type) {
    const Shapes at{layout};
    CudnnGraph graph;
    common(graph, at, type, true);
    graph.tensor(type, at.queries, at.out);                                                  // out_gradient
    graph.constant();                                                                        // one
    graph.tensor(type, at.queries, at.in_qkv);                                               // query_gradient
    graph.tensor(type, at.keys, at.in_qkv);                                                  // key_gradient
    graph.tensor(type, at.keys, at.in_qkv);                                                  // value_gradient
    graph.tensor(CUDNN_DATA_FLOAT, at.queries, {at.h * at.s * at.d, at.s * at.d, at.d, 1});  // query_sum
    graph.tensor(CUDNN_DATA_FLOAT, at.rows, {at.h * at.s, at.s, 1, 1});                      // row_products
    const auto passing = [&](const Shape& shape) { return graph.passing(CUDNN_DATA_FLOAT, shape); };

    // The rows' products of output and gradient.
    const Tensor products = graph.passing(CUDNN_DATA_FLOAT, at.queries, at.out);
    graph.pointwise(CUDNN_POINTWISE_MUL, out_gradient, out, products);
    const Tensor sums = passing(at.rows);
    graph.reduction(CUDNN_REDUCE_TENSOR_ADD, products, sums);
    graph.pointwise(CUDNN_POINTWISE_MUL, sums, one, row_products);

    // The probabilities again, and the values' gradient.
    const Tensor scores = passing(at.scores);
    graph.matmul(query, key, scores);
    const Tensor scaled = passing(at.scores);
    graph.pointwise(CUDNN_POINTWISE_MUL, scores, factor, scaled);
    const Tensor below = passing(at.scores);
    graph.pointwise(CUDNN_POINTWISE_SUB, scaled, row_sums, below);
    const Tensor causal = masked(graph, at, below);
    const Tensor probabilities = passing(at.scores);
    graph.pointwise(CUDNN_POINTWISE_EXP, causal, {}, probabilities);
    gradient_of_keys(graph, at, type, probabilities, out_gradient, value_gradient);

    // The scores' gradient, and with it the keys' and the queries'.
    const Tensor back = passing(at.scores);
    graph.matmul(out_gradient, value, back);
    const Tensor centred = passing(at.scores);
    graph.pointwise(CUDNN_POINTWISE_SUB, back, row_products, centred);
    const Tensor slopes = passing(at.scores);
    graph.pointwise(CUDNN_POINTWISE_MUL, centred, probabilities, slopes);
    const Tensor scaled_slopes = graph.passing(type, at.scores);
    graph.pointwise(CUDNN_POINTWISE_MUL, slopes, factor, scaled_slopes);
    gradient_of_keys(graph, at, type, scaled_slopes, query, key_gradient);
    const Tensor keys = graph.passing(type, at.keys, at.in_qkv);
    graph.reshape(key, keys);
    graph.matmul(scaled_slopes, keys, query_sum);
    graph.pointwise(CUDNN_POINTWISE_IDENTITY, query_sum, {}, query_gradient);
    return graph;
  }
  /// `to` [b, k, s, d] = scores^T rows, summed over the queries' heads of each group.
  static void gradient_of_keys(CudnnGraph& graph, const Shapes& at, cudnnDataType_t type, Tensor scores, Tensor rows, Tensor to) {
    const Tensor turned = graph.passing(type, at.scores, {at.h * at.s * at.s, at.s * at.s, 1, at.s});
    graph.reshape(scores, turned);
    if (at.h == at.k) {
      graph.matmul(turned, rows, to);
      return;
    }
    const Tensor of_heads = graph.passing(type, at.queries);
    graph.matmul(turned, rows, of_heads);
    graph.reduction(CUDNN_REDUCE_TENSOR_ADD, of_heads, to);
  }

  HeadLayout layout_;
  std::int64_t element_;
  CudnnPlan forward_;
  CudnnPlan backward_;
};

}  // namespace tawpipe::layers::cuda
