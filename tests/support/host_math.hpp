// The GPU decoder's Math on a host: products by CBLAS in float, the kernels' bodies one block after
// the other.
// Not: a way to train (layers/host/llama.hpp is exact and faster).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/layers/cuda/decoder.hpp"
#include "tawpipe/layers/cuda/rotary_table.hpp"
#include "tawpipe/layers/host/blas.hpp"

namespace support {

/// T: weights and activations, G: gradients of weights. All memory is the host's.
template <class T, class G = T>
class HostMath {
 public:
  using Number = T;
  using Gradient = G;

  HostMath(const tawpipe::Transformer& model, const tawpipe::Batch& batch, double rope_theta)
      : layout_{batch.sequence, batch.microbatch_size, model.heads, model.kv_heads, model.head_size()},
        table_{tawpipe::layers::cuda::rotary_table(batch.sequence, model.head_size(), rope_theta)},
        partial_(static_cast<std::size_t>(tawpipe::layers::cuda::RmsNormBackward<T>::blocks(batch.tokens()) * model.hidden)),
        places_(static_cast<std::size_t>(batch.tokens())),
        products_(static_cast<std::size_t>(batch.tokens() * model.heads)) {}

  template <class Body>
  void run(const Body& body) {
    tawpipe::layers::cuda::run_on_host(body);
  }
  void project(const T* x, const T* weight, T* y, std::int64_t tokens, std::int64_t in, std::int64_t out, const T* addend) {
    multiply(Operand::plain, Operand::transposed, tokens, out, in, x, weight, addend, y);
  }
  void project_back(const T* dy, const T* weight, T* dx, std::int64_t tokens, std::int64_t in, std::int64_t out, bool add) {
    multiply(Operand::plain, Operand::plain, tokens, in, out, dy, weight, add ? dx : nullptr, dx);
  }
  void add_weight_gradient(const T* dy, const T* x, G* gradient, std::int64_t tokens, std::int64_t in, std::int64_t out) {
    multiply(Operand::transposed, Operand::plain, out, in, tokens, dy, x, gradient, gradient);
  }
  template <class P>
  using Two = tawpipe::layers::cuda::Two<P>;
  void project_two(const T* x, Two<const T> weights, Two<T> y, std::int64_t tokens, std::int64_t in, std::int64_t out) {
    TAWPIPE_ASSERT(weights.first <= weights.second && y.first <= y.second, "the second is nowhere before the first");
    project(x, weights.first, y.first, tokens, in, out, nullptr);
    project(x, weights.second, y.second, tokens, in, out, nullptr);
  }
  void add_two_weight_gradients(Two<const T> dy, const T* x, Two<G> gradients, std::int64_t tokens, std::int64_t in,
                                std::int64_t out) {
    TAWPIPE_ASSERT(dy.first <= dy.second && gradients.first <= gradients.second, "the second is nowhere before the first");
    add_weight_gradient(dy.first, x, gradients.first, tokens, in, out);
    add_weight_gradient(dy.second, x, gradients.second, tokens, in, out);
  }
  void reserve_attention(std::int64_t forward, std::int64_t backward) {
    forward_room_ = forward;
    backward_room_ = backward;
  }
  /// Spoils its room, which is promised to be free.
  void attention(const T* qkv, T* output, float* sums, std::span<std::byte> room) {
    spoil(room, forward_room_);
    run(tawpipe::layers::cuda::PlainAttention<T>{qkv, output, sums, layout_});
  }
  void attention_backward(const T* qkv, const T* output, const T* gradient, const float* sums, T* qkv_gradient,
                          std::span<std::byte> room) {
    spoil(room, backward_room_);
    run(tawpipe::layers::cuda::PlainAttentionQueries<T>{qkv, output, gradient, sums, qkv_gradient, products_.data(), layout_});
    run(tawpipe::layers::cuda::PlainAttentionKeys<T>{qkv, gradient, sums, products_.data(), qkv_gradient, layout_});
  }
  const float* rotary_table() const { return table_.data(); }
  float* norm_partial() { return partial_.data(); }
  tawpipe::layers::cuda::TokenPlace* token_places() { return places_.data(); }

 private:
  using Operand = tawpipe::layers::host::Operand;

  static void spoil(std::span<std::byte> room, std::int64_t promised) {
    TAWPIPE_ASSERT(std::ssize(room) == promised, "the room is as large as was said");
    std::ranges::fill(room, std::byte{0xff});
  }
  template <class N>
  static std::vector<float> floats(const N* from, std::int64_t count) {
    std::vector<float> wide(static_cast<std::size_t>(count));
    std::transform(from, from + count, wide.begin(), [](N x) { return tawpipe::layers::cuda::widen(x); });
    return wide;
  }
  /// c [m, n] = op(a) op(b) + addend.
  template <class C>
  static void multiply(Operand a_as, Operand b_as, std::int64_t m, std::int64_t n, std::int64_t k, const T* a, const T* b,
                       const C* addend, C* c) {
    const auto wide_a = floats(a, m * k);
    const auto wide_b = floats(b, k * n);
    auto sum = addend == nullptr ? std::vector<float>(static_cast<std::size_t>(m * n)) : floats(addend, m * n);
    tawpipe::layers::host::multiply<float>(a_as, b_as, m, n, k, 1, wide_a.data(), a_as == Operand::plain ? k : m, wide_b.data(),
                                           b_as == Operand::plain ? n : k, 1, sum.data(), n);
    std::transform(sum.begin(), sum.end(), c, [](float x) { return tawpipe::layers::cuda::narrow<C>(x); });
  }

  tawpipe::layers::cuda::HeadLayout layout_;
  std::vector<float> table_;
  std::vector<float> partial_;
  std::vector<tawpipe::layers::cuda::TokenPlace> places_;
  std::vector<float> products_;
  std::int64_t forward_room_ = 0;
  std::int64_t backward_room_ = 0;
};

/// The GPU decoder on a host.
template <class T, class G = T>
class HostDecoder : public tawpipe::layers::cuda::Decoder<HostMath<T, G>> {
 public:
  HostDecoder(const tawpipe::Transformer& model, const tawpipe::Batch& batch, tawpipe::Recompute recompute,
              const tawpipe::DecoderConstants& options = {})
      : tawpipe::layers::cuda::Decoder<HostMath<T, G>>{model, batch, recompute, options,
                                                       HostMath<T, G>{model, batch, options.rope_theta}} {}
};

}  // namespace support
