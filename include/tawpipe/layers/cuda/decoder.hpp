// A LLaMA decoder whose work is enqueued in a stream: computes any stage of it in memory given by
// its caller.
// Not: the computations (cuda_math.hpp, and on a host in the tests) nor the order within a layer
// (decoder_layer.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/core/config.hpp"
#include "tawpipe/layers/checked_llama.hpp"
#include "tawpipe/layers/cuda/decoder_layer.hpp"
#include "tawpipe/layers/cuda/embedding_bodies.hpp"
#include "tawpipe/layers/cuda/loss_bodies.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/layers/stage_memory.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// Computes stages of a LLaMA decoder with a Math: the same mathematics, cuts, splits and
/// recomputation as host::Llama, in the same memory: `saved`, `stash` and both workspaces as
/// model/transformer_work.hpp computes them.
///
/// `saved` holds the layers contiguously (LayerTensors, then with Recompute::none softmax's sums
/// [sequences, heads, sequence] in float), each as long as a layer's StageWork::saved; then the
/// head's input [tokens, hidden] (after backward_input it begins with the gradient of the final
/// norm, in float), its normed input, the logarithms of the logits' sums [tokens] in float, and the
/// logits [tokens, vocab] (then their gradient). With Transformer::loss_chunk the logits of a chunk
/// are in workspace and their gradients, if the backward is split, in the stash, chunk after chunk;
/// the gradient of the head's input is then rounded to T after each chunk. All sums over tokens or
/// a row are in float. All policies, cuts and splits give the same bits if the Math's products and
/// attention do.
template <DecoderMath Math>
class Decoder {
 public:
  using T = typename Math::Number;
  using G = typename Math::Gradient;

  /// @throws InputError  as checked_dense_llama; if a 16-bit model's hidden or intermediate size is odd,
  /// or its microbatch one token.
  Decoder(Transformer model, const Batch& batch, Recompute recompute, const DecoderConstants& constants, Math math)
      : model_{checked(checked_dense_llama(std::move(model), batch, constants, dtype_of<T>), batch)},
        recompute_{recompute},
        width_{model_},
        tokens_{batch.tokens()},
        memory_{model_, batch, recompute},
        sums_{attention_sums_bytes(model_, batch) / std::int64_t{sizeof(T)}},
        layer_{model_, batch, constants.norm_epsilon},
        math_{std::move(math)} {
    math_.reserve_attention(layer_.forward_room(), layer_.backward_room());
  }

  /// Gradients are multiplied by *scale, which the device reads in each backward of the head;
  /// null: 1.
  void use_loss_scale(const float* scale) { loss_scale_ = scale; }
  Math& math() { return math_; }

  void forward(const ForwardArgs& args) {
    const StageWork& stage = *args.stage;
    T* at = memory_.reached(stage, args.saved.data(), 0, args.output);
    if (stage.first_edge) {
      math_.run(LookUp<T>{args.tokens.data(), weights_of(args.weights.first_edge), at, tokens_, width_.hidden});
    } else {
      copy(args.input.data(), at);
    }
    for (std::int32_t i = 0; i < stage.layers; ++i) {
      Cursor<T> scratch{args.workspace.data()};
      const LayerTensors<T> tensors = memory_.tensors_of(stage, args.saved.data(), i, scratch);
      float* const sums = sums_of(*args.stage, args.saved.data(), i, scratch);
      const auto weights = memory_.template matrices<const T>(stage, args.weights.layers, i);
      at = memory_.reached(stage, args.saved.data(), i + 1, args.output);
      layer_.compute(math_, weights, tensors, sums, bytes(scratch));
      layer_.output(math_, weights, tensors, at);
    }
    if (stage.last_edge) head_forward(args);
  }

  void backward(const BackwardArgs& args) { run_backward(args, Part::both); }
  void backward_input(const BackwardArgs& args) { run_backward(args, Part::input); }
  void backward_weight(const BackwardArgs& args) { run_backward(args, Part::weight); }

 private:
  using Part = BackwardPart;

  /// The head's part of `saved`.
  struct Head {
    T* input;
    T* normed;
    float* sums;
    T* logits;
  };

  static Transformer checked(Transformer model, const Batch& batch) {
    if (sizeof(T) < sizeof(float) && (model.hidden % 2 != 0 || model.intermediate % 2 != 0 || batch.tokens() < 2)) {
      refuse_model(model, concat("on a GPU in 16 bits hidden and intermediate size must be even, and a microbatch at least two "
                                 "tokens, not ",
                                 model.hidden, ", ", model.intermediate, " and ", batch.tokens()));
    }
    return model;
  }

  // ---- memory -----------------------------------------------------------------------------------

  static std::byte* bytes(Cursor<T> cursor) { return reinterpret_cast<std::byte*>(cursor.take(0)); }
  static const T* weights_of(const std::byte* at) { return reinterpret_cast<const T*>(at); }
  static G* gradients_of(std::byte* at) { return reinterpret_cast<G*>(at); }

  /// The address of a layer's attention sums: after the kept tensors, or next in scratch.
  float* sums_of(const StageWork& stage, std::byte* saved, std::int64_t layer, Cursor<T>& scratch) const {
    if (recompute_ != Recompute::none) return reinterpret_cast<float*>(scratch.take(sums_));
    Cursor<T> behind = memory_.kept(stage, saved, layer);
    behind.take(tokens_ * width_.all());
    return reinterpret_cast<float*>(behind.take(0));
  }
  Head head_of(const StageWork& stage, std::byte* saved) const {
    Cursor<T> cursor = memory_.kept(stage, saved, stage.layers);
    T* const input = cursor.take(tokens_ * width_.hidden);
    T* const normed = cursor.take(tokens_ * width_.hidden);
    auto* const sums = reinterpret_cast<float*>(cursor.take(tokens_ * std::int64_t{sizeof(float) / sizeof(T)}));
    return {input, normed, sums, cursor.take(0)};
  }
  /// [tokens, hidden] from one address to another, possibly the same.
  void copy(const void* from, T* to) {
    if (from != to) math_.run(CopyNumbers<T>{static_cast<const T*>(from), to, tokens_ * width_.hidden});
  }

  // ---- backward ---------------------------------------------------------------------------------

  void run_backward(const BackwardArgs& args, Part part) {
    const auto layer = [&](std::int32_t i, const LayerTensors<T>& tensors, T* gradient, Cursor<T> scratch) {
      if (part != Part::weight) {
        float* const sums = sums_of(*args.stage, args.saved.data(), i, scratch);
        const auto w = memory_.template matrices<const T>(*args.stage, args.weights.layers, i);
        if (recompute_ != Recompute::none) {
          layer_.compute(math_, w, tensors, sums, bytes(scratch), recompute_ == Recompute::full);
        }
        layer_.backward_input(math_, w, tensors, sums, gradient, bytes(scratch));
      }
      if (part != Part::input)
        layer_.backward_weight(math_, memory_.template matrices<G>(*args.stage, args.gradients.layers, i), tensors);
    };
    const auto look_up = [&](const T* arrived) {
      LookUpBackward<T, G>{args.tokens.data(),
                           arrived,
                           gradients_of(args.gradients.first_edge),
                           math_.token_places(),
                           math_.norm_partial(),
                           tokens_,
                           width_.hidden}
          .each([&](const auto& body) { math_.run(body); });
    };
    memory_.run_backward(
        args, part, [&](const void* from, T* to) { copy(from, to); },
        [&](T* gradient, T* scratch) { head_backward_input(args, part, gradient, scratch); },
        [&] { head_backward_weight(args, part); }, layer, look_up);
  }

  // ---- head -------------------------------------------------------------------------------------

  /// Calls `visit(first entry, entries)` for each chunk of the vocabulary.
  template <class Visit>
  void for_each_chunk(Visit&& visit) const {
    const std::int64_t chunk = chunked() ? model_.loss_chunk : model_.vocab;
    for (std::int64_t begin = 0; begin < model_.vocab; begin += chunk) {
      visit(begin, std::min<std::int64_t>(chunk, model_.vocab - begin));
    }
  }
  /// The address of the gradient of a chunk's logits between a backward_input and a separate
  /// backward_weight.
  T* stashed(const BackwardArgs& args, std::int64_t begin) const {
    const std::int64_t before = memory_.logits_at(*args.stage);
    return reinterpret_cast<T*>(args.stash.data() + before) + tokens_ * begin;
  }

  void head_forward(const ForwardArgs& args) {
    const Head head = head_of(*args.stage, args.saved.data());
    auto* const wanted = reinterpret_cast<float*>(args.workspace.data());
    T* const logits = chunked() ? reinterpret_cast<T*>(wanted + tokens_) : head.logits;
    layer_.norm(math_, head.input, weights_of(args.weights.last_edge), head.normed);
    for_each_chunk([&](std::int64_t begin, std::int64_t count) {
      const T* const weights = memory_.template output_matrix<const T>(args.weights) + begin * width_.hidden;
      math_.project(head.normed, weights, logits, tokens_, width_.hidden, count, nullptr);
      math_.run(LogSumExp<T>{logits, args.targets.data(), head.sums, wanted, tokens_, count, begin});
    });
    math_.run(MeanLoss{head.sums, wanted, args.loss, tokens_});
  }
  void head_backward_input(const BackwardArgs& args, Part part, T* gradient, T* scratch) {
    const Head head = head_of(*args.stage, args.saved.data());
    const auto factor = static_cast<float>(args.scale / static_cast<double>(tokens_));
    for_each_chunk([&](std::int64_t begin, std::int64_t count) {
      const T* const weights = memory_.template output_matrix<const T>(args.weights) + begin * width_.hidden;
      T* logits = head.logits;
      if (chunked()) {
        logits = part == Part::both ? scratch + tokens_ * width_.hidden : stashed(args, begin);
        math_.project(head.normed, weights, logits, tokens_, width_.hidden, count, nullptr);
      }
      math_.run(CrossEntropyBackward<T>{logits, head.sums, args.targets.data(), tokens_, count, factor, loss_scale_, begin});
      math_.project_back(logits, weights, scratch, tokens_, width_.hidden, count, begin > 0);
      if (chunked() && part == Part::both) add_output_gradient(args, logits, begin, count);
    });
    // The norm reads all of its input before the first sums overwrite it.
    layer_.norm_backward(math_, head.input, weights_of(args.weights.last_edge), scratch, nullptr, gradient, nullptr,
                         reinterpret_cast<float*>(head.input));
  }
  void head_backward_weight(const BackwardArgs& args, Part part) {
    const Head head = head_of(*args.stage, args.saved.data());
    if (!chunked()) add_output_gradient(args, head.logits, 0, vocab());
    if (chunked() && part == Part::weight) {
      for_each_chunk(
          [&](std::int64_t begin, std::int64_t count) { add_output_gradient(args, stashed(args, begin), begin, count); });
    }
    math_.run(AddTo<G>{reinterpret_cast<const float*>(head.input), gradients_of(args.gradients.last_edge), width_.hidden});
  }
  void add_output_gradient(const BackwardArgs& args, const T* logits, std::int64_t begin, std::int64_t count) {
    const Head head = head_of(*args.stage, args.saved.data());
    G* const gradient = memory_.template output_matrix<G>(args.gradients) + begin * width_.hidden;
    math_.add_weight_gradient(logits, head.normed, gradient, tokens_, width_.hidden, count);
  }
  bool chunked() const { return model_.loss_chunk > 0; }
  std::int64_t vocab() const { return model_.vocab; }

  Transformer model_;
  Recompute recompute_;
  TokenWidths width_;
  std::int64_t tokens_;
  StageMemory<T> memory_;
  std::int64_t sums_;  ///< size of softmax's sums, in T
  DecoderLayer<Math> layer_;
  Math math_;
  const float* loss_scale_ = nullptr;
};

}  // namespace tawpipe::layers::cuda
