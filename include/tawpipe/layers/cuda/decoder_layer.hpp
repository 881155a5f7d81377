// One decoder layer on a GPU for one microbatch: the calls, their order and their memory.
// Not: the calls themselves (a Math: cuda_math.hpp) nor the source of memory (decoder.hpp).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tawpipe/layers/cuda/decoder_bodies.hpp"
#include "tawpipe/layers/cuda/embedding_bodies.hpp"
#include "tawpipe/layers/cuda/norm_bodies.hpp"
#include "tawpipe/layers/cuda/number.hpp"
#include "tawpipe/layers/cuda/plain_attention.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// Two matrices of the same shape.
template <class P>
struct Two {
  P* first;
  P* second;
};

/// The operations of a decoder: on a GPU, or on a host to test the decoder. T: weights and
/// activations, G: gradients of weights. All matrices are row-major and all calls happen in order.
///
/// - project:             y [tokens, out] = x [tokens, in] weight^T [in, out] + addend (null: 0),
///   which may not be y
/// - project_back:        dx [tokens, in] = dy [tokens, out] weight [out, in] (+ dx if `add`)
/// - add_weight_gradient: gradient [out, in] += dy^T x
/// - project_two, add_two_weight_gradients: the same for two matrices with the same input, the
///   second at a higher address than the first
/// - attention, attention_backward: as PlainAttention and the bodies after it; `qkv_gradient` must
///   not be qkv. `room` is free memory of as many bytes as given to reserve_attention.
/// - run:                 a body (block.hpp)
template <class M>
concept DecoderMath = is_number<typename M::Number> && is_number<typename M::Gradient> &&
    requires(M& math, const typename M::Number* from, typename M::Number* to, typename M::Gradient* gradient, float* floats,
             std::int64_t size, std::span<std::byte> room, const SumRows& body) {
  math.run(body);
  math.project(from, from, to, size, size, size, from);
  math.project_back(from, from, to, size, size, size, true);
  math.add_weight_gradient(from, from, gradient, size, size, size);
  math.project_two(from, {from, from}, {to, to}, size, size, size);
  math.add_two_weight_gradients({from, from}, from, {gradient, gradient}, size, size, size);
  math.reserve_attention(size, size);
  math.attention(from, to, floats, room);
  math.attention_backward(from, from, from, floats, to, room);
  /// [sequence, head size]: cosine and sine of each pair
  { math.rotary_table() } -> std::same_as<const float*>;
  /// [RmsNormBackward::blocks(tokens), hidden], owned by the layer
  { math.norm_partial() } -> std::same_as<float*>;
  /// [tokens], owned by the layer
  { math.token_places() } -> std::same_as<TokenPlace*>;
};

/// The part of a layer that is 4 bytes wide for any T: softmax's sums of the attention core,
/// [sequences, heads, sequence].
inline std::int64_t attention_sums_bytes(const Transformer& model, const Batch& batch) {
  return batch.tokens() * model.heads * std::int64_t{sizeof(float)};
}

/// Source of the mathematics: Touvron et al. 2023, arXiv:2302.13971, section 2.2.
template <DecoderMath Math>
class DecoderLayer {
 public:
  using T = typename Math::Number;
  using G = typename Math::Gradient;

  DecoderLayer(const Transformer& model, const Batch& batch, double norm_epsilon)
      : width_{model},
        tokens_{batch.tokens()},
        sequence_{batch.sequence},
        head_size_{static_cast<std::int32_t>(model.head_size())},
        epsilon_{static_cast<float>(norm_epsilon)} {}

  /// Bytes of scratch memory that attention may use while nothing else is there: in the forward,
  /// whose workspace has two tensors [tokens, hidden] to spare, and in the backward in addition to
  /// its own gradients.
  std::int64_t forward_room() const { return tokens_ * 2 * width_.hidden * element; }
  std::int64_t backward_room() const {
    const std::int64_t used = 2 * width_.query + 2 * width_.key;
    return tokens_ * (std::max(3 * width_.inner, used) - used) * element;
  }

  /// Computes a layer's tensors from its input, all but its output. `with_products` false: the
  /// results of matrix products and the residual sum exist already, and only the rest is computed.
  void compute(Math& math, const LayerMatrices<const T>& w, const LayerTensors<T>& x, float* sums, std::byte* scratch,
               bool with_products = true) const {
    const std::int64_t hidden = width_.hidden;
    norm(math, x.input, w.attention_norm, x.attention_norm);
    if (with_products) {
      math.project(x.attention_norm, w.qkv, x.qkv, tokens_, hidden, qkv_width(), nullptr);
      rotate(math, x.qkv, x.qkv, width_.query + width_.key, 1);
    }
    math.attention(x.qkv, x.attention, sums, room(scratch, forward_room()));
    if (with_products) math.project(x.attention, w.output, x.middle, tokens_, width_.query, hidden, x.input);
    norm(math, x.middle, w.ffn_norm, x.ffn_norm);
    if (with_products) math.project_two(x.ffn_norm, {w.gate, w.up}, {x.gate, x.up}, tokens_, hidden, width_.inner);
    math.run(Swiglu<T>{x.gate, x.up, x.product, tokens_ * width_.inner});
  }

  /// The layer's output [tokens, hidden]. @pre compute() ran
  void output(Math& math, const LayerMatrices<const T>& w, const LayerTensors<T>& x, T* y) const {
    math.project(x.product, w.down, y, tokens_, width_.inner, width_.hidden, x.middle);
  }

  /// `gradient` [tokens, hidden] of the output becomes that of the input; the tensors change as
  /// described in LayerTensors.
  void backward_input(Math& math, const LayerMatrices<const T>& w, const LayerTensors<T>& x, const float* sums, T* gradient,
                      std::byte* scratch_memory) const {
    const std::int64_t hidden = width_.hidden;
    T* const scratch = reinterpret_cast<T*>(scratch_memory);

    math.project_back(gradient, w.down, scratch, tokens_, width_.inner, hidden, false);
    math.run(SwigluBackward<T>{x.gate, x.up, scratch, tokens_ * width_.inner});
    math.project_back(x.gate, w.gate, scratch, tokens_, hidden, width_.inner, false);
    math.project_back(x.up, w.up, scratch, tokens_, hidden, width_.inner, true);
    norm_backward(math, x.middle, w.ffn_norm, scratch, gradient, x.middle, nullptr, x.norm_gradients + hidden);

    T* const qkv_gradient = scratch + tokens_ * width_.query;
    T* const behind = qkv_gradient + tokens_ * qkv_width();
    math.project_back(x.middle, w.output, scratch, tokens_, width_.query, hidden, false);
    math.attention_backward(x.qkv, x.attention, scratch, sums, qkv_gradient,
                            room(reinterpret_cast<std::byte*>(behind), backward_room()));
    rotate(math, qkv_gradient, x.qkv, qkv_width(), -1);
    math.project_back(x.qkv, w.qkv, scratch, tokens_, hidden, qkv_width(), false);
    norm_backward(math, x.input, w.attention_norm, scratch, x.middle, gradient, x.input, x.norm_gradients);
  }

  /// Adds to the gradients of the weights. @pre backward_input() ran
  void backward_weight(Math& math, const LayerMatrices<G>& g, const LayerTensors<T>& x) const {
    const std::int64_t hidden = width_.hidden;
    math.add_weight_gradient(x.input, x.product, g.down, tokens_, width_.inner, hidden);
    math.add_two_weight_gradients({x.gate, x.up}, x.ffn_norm, {g.gate, g.up}, tokens_, hidden, width_.inner);
    math.add_weight_gradient(x.middle, x.attention, g.output, tokens_, width_.query, hidden);
    math.add_weight_gradient(x.qkv, x.attention_norm, g.qkv, tokens_, hidden, qkv_width());
    math.run(AddTo<G>{x.norm_gradients, g.attention_norm, hidden});
    math.run(AddTo<G>{x.norm_gradients + hidden, g.ffn_norm, hidden});
  }

  /// y = RMSNorm(x), [tokens, hidden].
  void norm(Math& math, const T* x, const T* gain, T* y) const {
    math.run(RmsNorm<T>{x, gain, y, tokens_, width_.hidden, epsilon_});
  }
  /// As RmsNormBackward; `gain_gradient` [hidden] is written.
  void norm_backward(Math& math, const T* x, const T* gain, const T* gradient, const T* residual, T* to, T* keep,
                     float* gain_gradient) const {
    float* const partial = math.norm_partial();
    math.run(RmsNormBackward<T>{x, gain, gradient, residual, to, keep, partial, tokens_, width_.hidden, epsilon_});
    math.run(SumRows{partial, RmsNormBackward<T>::blocks(tokens_), width_.hidden, gain_gradient});
  }

 private:
  static constexpr std::int64_t element = sizeof(T);

  std::int64_t qkv_width() const { return width_.query + 2 * width_.key; }
  static std::span<std::byte> room(std::byte* scratch, std::int64_t bytes) { return {scratch, static_cast<std::size_t>(bytes)}; }
  void rotate(Math& math, const T* from, T* to, std::int64_t stored, float direction) const {
    math.run(Rotate<T>{from, to, math.rotary_table(), tokens_, qkv_width(), width_.query + width_.key, stored, sequence_,
                       head_size_, direction});
  }

  TokenWidths width_;
  std::int64_t tokens_;
  std::int64_t sequence_;
  std::int32_t head_size_;
  float epsilon_;
};

}  // namespace tawpipe::layers::cuda
