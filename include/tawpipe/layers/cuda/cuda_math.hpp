// The operations of a decoder on an NVIDIA GPU: cuBLASLt's products, cuDNN's attention or our own,
// our kernels.
// Not: the decoder (decoder.hpp) nor the kernels' code (launch.cuh).
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tawpipe/layers/checked_llama.hpp"
#include "tawpipe/layers/cuda/check.hpp"
#include "tawpipe/layers/cuda/decoder_layer.hpp"
#include "tawpipe/layers/cuda/fused_attention.hpp"
#include "tawpipe/layers/cuda/launch.hpp"
#include "tawpipe/layers/cuda/matrix_product.hpp"
#include "tawpipe/layers/cuda/plain_attention.hpp"
#include "tawpipe/layers/cuda/rotary_table.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// Models DecoderMath on the current device, in the stream last set by use_stream(), initially the
/// default stream. Allocates in its constructor and in reserve_attention(). T: float, Bfloat16 or
/// Half; G: T or float.
template <class T, class G>
class CudaMath {
 public:
  using Number = T;
  using Gradient = G;

  /// @throws InputError  if no attention supports the head size. @throws DeviceError  if the device
  /// or memory is unavailable.
  /// @param choices  algorithms of products are tried here, and shared with all users of the same
  /// object; null: none are
  CudaMath(const Transformer& model, const Batch& batch, const DecoderConstants& constants, ProductChoices* choices = nullptr)
      : layout_{batch.sequence, batch.microbatch_size, model.heads, model.kv_heads, model.head_size()},
        products_{choices},
        table_{batch.sequence * model.head_size() * std::int64_t{sizeof(float)}},
        partial_{RmsNormBackward<T>::blocks(batch.tokens()) * model.hidden * std::int64_t{sizeof(float)}},
        places_{batch.tokens() * std::int64_t{sizeof(TokenPlace)}} {
    const std::vector<float> table = cuda::rotary_table(batch.sequence, model.head_size(), constants.rope_theta);
    table_.fill(table.data(), table_.bytes());
    // cuDNN requires every tensor to be aligned to 16 bytes: all widths and the rows of a
    // microbatch must be multiples of eight.
    if (!std::is_same_v<T, float> && batch.tokens() % 8 == 0 && model.hidden % 8 == 0 && model.intermediate % 8 == 0) {
      cudnnHandle_t handle = nullptr;
      check(cudnnCreate(&handle), "cudnnCreate");
      cudnn_ = Owned<cudnnHandle_t, cudnnDestroy>{handle};
      fused_ = FusedAttention::make(layout_, dtype_of<T>, {.handle = handle});
    }
    constexpr std::int64_t max_plain = 2048;  // a block's memory holds four vectors of a head
    if (!fused_ && layout_.size > max_plain) {
      refuse_model(model, concat("a head size of ", layout_.size, " is more than the ", max_plain, " that attention takes"));
    }
    prepare_products(model, batch.tokens());
  }

  void use_stream(cudaStream_t stream) {
    stream_ = stream;
    if (cudnn_.get() != nullptr) check(cudnnSetStream(cudnn_.get(), stream), "cudnnSetStream");
  }
  bool has_fused_attention() const { return fused_.has_value(); }
  /// The device memory that it owns.
  std::int64_t own_bytes() const {
    return MatrixProducts::workspace_bytes + table_.bytes() + partial_.bytes() + places_.bytes() + attention_.bytes();
  }

  template <class Body>
  void run(const Body& body) {
    launch(body, stream_);
  }
  void project(const T* x, const T* weight, T* y, std::int64_t tokens, std::int64_t in, std::int64_t out, const T* addend) {
    products_.multiply(projection(tokens, in, out, addend != nullptr), x, weight, addend, y, stream_);
  }
  void project_two(const T* x, Two<const T> weights, Two<T> y, std::int64_t tokens, std::int64_t in, std::int64_t out) {
    products_.multiply(both(projection(tokens, in, out, false)),
                       {.a = x, .b = weights.first, .d = y.first, .b_step = step(weights), .d_step = step(y)}, stream_);
  }
  void project_back(const T* dy, const T* weight, T* dx, std::int64_t tokens, std::int64_t in, std::int64_t out, bool add) {
    products_.multiply(back_projection(tokens, in, out, add), dy, weight, dx, dx, stream_);
  }
  void add_weight_gradient(const T* dy, const T* x, G* gradient, std::int64_t tokens, std::int64_t in, std::int64_t out) {
    products_.multiply(weight_gradient(tokens, in, out), dy, x, gradient, gradient, stream_);
  }
  void add_two_weight_gradients(Two<const T> dy, const T* x, Two<G> gradients, std::int64_t tokens, std::int64_t in,
                                std::int64_t out) {
    products_.multiply(
        both(weight_gradient(tokens, in, out)),
        {.a = dy.first, .b = x, .c = gradients.first, .d = gradients.first, .a_step = step(dy), .d_step = step(gradients)},
        stream_);
  }

  /// Allocates memory if attention needs more than the scratch areas that it will get.
  void reserve_attention(std::int64_t forward_room, std::int64_t backward_room) {
    const std::int64_t forward = fused_ ? fused_->forward_workspace() : 0;
    const std::int64_t backward = fused_ ? fused_->backward_workspace() : layout_.tokens() * layout_.heads * 4;
    forward_in_room_ = forward + slack <= forward_room;
    backward_in_room_ = backward + slack <= backward_room;
    attention_ = DeviceMemory{std::max(forward_in_room_ ? 0 : forward, backward_in_room_ ? 0 : backward)};
  }
  void attention(const T* qkv, T* output, float* sums, std::span<std::byte> room) {
    if (fused_) {
      fused_->forward(cudnn_.get(), qkv, output, sums, workspace(room, forward_in_room_));
    } else {
      run(PlainAttention<T>{qkv, output, sums, layout_});
    }
  }
  void attention_backward(const T* qkv, const T* output, const T* gradient, const float* sums, T* qkv_gradient,
                          std::span<std::byte> room) {
    std::byte* const memory = workspace(room, backward_in_room_);
    if (fused_) {
      fused_->backward(cudnn_.get(), qkv, output, gradient, sums, qkv_gradient, memory);
      return;
    }
    auto* const row_products = reinterpret_cast<float*>(memory);
    run(PlainAttentionQueries<T>{qkv, output, gradient, sums, qkv_gradient, row_products, layout_});
    run(PlainAttentionKeys<T>{qkv, gradient, sums, row_products, qkv_gradient, layout_});
  }
  const float* rotary_table() const { return table_.template as<const float>(); }
  float* norm_partial() { return partial_.template as<float>(); }
  TokenPlace* token_places() { return places_.template as<TokenPlace>(); }

 private:
  static constexpr std::int64_t slack = 256;  ///< lost if an area is not aligned to it

  static Product projection(std::int64_t tokens, std::int64_t in, std::int64_t out, bool add) {
    return {.m = tokens, .n = out, .k = in, .b_transposed = true, .add = add, .inputs = dtype_of<T>, .result = dtype_of<T>};
  }
  static Product back_projection(std::int64_t tokens, std::int64_t in, std::int64_t out, bool add) {
    return {.m = tokens, .n = in, .k = out, .add = add, .inputs = dtype_of<T>, .result = dtype_of<T>};
  }
  static Product weight_gradient(std::int64_t tokens, std::int64_t in, std::int64_t out) {
    return {.m = out, .n = in, .k = tokens, .a_transposed = true, .add = true, .inputs = dtype_of<T>, .result = dtype_of<G>};
  }
  static Product both(Product product) {
    product.at_once = 2;
    return product;
  }
  /// The distance in numbers from the first to the second.
  template <class P>
  static std::int64_t step(Two<P> two) {
    return two.second - two.first;
  }
  /// Adds all products of a layer and of the head.
  void prepare_products(const Transformer& model, std::int64_t tokens) {
    const std::int64_t hidden = model.hidden;
    const std::int64_t inner = model.intermediate;
    const std::int64_t qkv = model.query_width() + 2 * model.key_width();
    const std::pair<std::int64_t, std::int64_t> matrices[] = {
        {hidden, qkv},
        {model.query_width(), hidden},
        {inner, hidden},
        {hidden, model.loss_chunk > 0 ? std::min(model.loss_chunk, model.vocab) : model.vocab}};
    for (const auto& [in, out] : matrices) {
      products_.prepare(projection(tokens, in, out, out == hidden));
      products_.prepare(back_projection(tokens, in, out, false));
      products_.prepare(weight_gradient(tokens, in, out));
    }
    products_.prepare(both(projection(tokens, hidden, inner, false)));
    for (const bool add : {false, true}) products_.prepare(back_projection(tokens, hidden, inner, add));
    products_.prepare(both(weight_gradient(tokens, hidden, inner)));
  }
  std::byte* workspace(std::span<std::byte> room, bool in_room) const {
    if (!in_room) return attention_.template as<std::byte>();
    const auto address = reinterpret_cast<std::uintptr_t>(room.data());
    return room.data() + (slack - static_cast<std::int64_t>(address % slack)) % slack;
  }

  HeadLayout layout_;
  MatrixProducts products_;
  Owned<cudnnHandle_t, cudnnDestroy> cudnn_;
  std::optional<FusedAttention> fused_;
  DeviceMemory table_;
  DeviceMemory partial_;
  DeviceMemory places_;
  DeviceMemory attention_;
  bool forward_in_room_ = false;
  bool backward_in_room_ = false;
  cudaStream_t stream_ = nullptr;
};

}  // namespace tawpipe::layers::cuda
