// How a stage of a decoder uses its caller's memory: the places of each layer's tensors in it.
// Not: one layer's tensors (layer_tensors.hpp) nor the head's, which differ by device
// (host/llama.hpp, cuda/decoder.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/layer_stack.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace tawpipe::inline v0::layers {

/// The part of a backward to run.
enum class BackwardPart : std::uint8_t { both, input, weight };

/// Computes the layout of one model's stages in numbers of type T. Layers of a stage are numbered from
/// its first one; those without experts, the model's first, have sizes of their own.
template <class T>
class StageMemory {
 public:
  /// @param packed  layers follow each other in `saved` without what they may keep beside their tensors
  StageMemory(const Transformer& model, const Batch& batch, Recompute recompute, bool packed = false)
      : StageMemory{model, batch, recompute, packed, layer_stack(model, batch, recompute)} {}

  /// Bytes that a backward_input leaves for its backward_weight in addition to `saved`: of the stage's
  /// layers, then the gradient that an embedding waits for, if no layer has room for it, and that of all
  /// logits of a head whose loss is computed in chunks.
  std::int64_t stash_bytes(const StageWork& stage) const { return logits_at(stage) + (stage.last_edge ? head_stash_ : 0); }
  /// Where in the stash the gradient of all logits begins.
  std::int64_t logits_at(const StageWork& stage) const {
    const bool waits = stage.first_edge && (stage.layers == 0 || !layer_fits_lookup_);
    return stash_at(stage, stage.layers) + (waits ? lookup_stash_ : 0);
  }

  /// The kept tensors of a layer, or, after the last layer, of the head.
  Cursor<T> kept(const StageWork& stage, std::byte* saved, std::int64_t layer) const {
    return Cursor<T>{saved + sum_to(stage, layer, &Kind::saved)};
  }
  /// Whether a layer is one of the model's first ones without experts.
  bool is_dense(const StageWork& stage, std::int64_t layer) const { return stage.first_layer + layer < dense_layers_; }

  /// The address of the activation before layer `layer`: the layer's or head's input, or the
  /// stage's output.
  T* reached(const StageWork& stage, std::byte* saved, std::int64_t layer, std::span<std::byte> output) const {
    return layer < stage.layers || stage.last_edge ? kept(stage, saved, layer).take(0) : reinterpret_cast<T*>(output.data());
  }

  /// The tensors of a layer in the forward, or in an unsplit backward; `scratch` moves past those
  /// placed there.
  LayerTensors<T> tensors_of(const StageWork& stage, std::byte* saved, std::int64_t layer, Cursor<T>& scratch) const {
    return {kind_of(stage, layer).width, tokens_, recompute_, kept(stage, saved, layer), scratch, scratch};
  }
  /// The tensors of a layer in the backward; `scratch` moves past those in workspace.
  LayerTensors<T> tensors_of(const BackwardArgs& args, BackwardPart part, std::int64_t layer, Cursor<T>& scratch) const {
    const StageWork& stage = *args.stage;
    if (part == BackwardPart::both) return tensors_of(stage, args.saved.data(), layer, scratch);
    Cursor<T> stash{args.stash.data() + stash_at(stage, layer)};
    return {kind_of(stage, layer).width, tokens_, recompute_, kept(stage, args.saved.data(), layer), stash, scratch};
  }

  /// The address at which backward_input leaves the embedding's gradient [tokens, hidden] for
  /// backward_weight.
  T* lookup_gradient(const BackwardArgs& args) const {
    const StageWork& stage = *args.stage;
    if (stage.layers == 0 || !layer_fits_lookup_) return reinterpret_cast<T*>(args.stash.data() + stash_at(stage, stage.layers));
    Cursor<T> nowhere{args.workspace.data()};
    return tensors_of(args, BackwardPart::weight, 0, nowhere).behind_gradients;
  }

  /// A backward through a stage, the same on every device. @param copy  (from, to): [tokens,
  /// hidden], possibly the same address
  /// @param head_input   (gradient, workspace). @param head_weight  ()
  /// @param layer        (number, its tensors, gradient, workspace): both, or as given by `part`
  /// @param look_up      (gradient): adds it to the embedding's
  template <class Copy, class HeadInput, class HeadWeight, class Layer, class LookUp>
  void run_backward(const BackwardArgs& args, BackwardPart part, Copy&& copy, HeadInput&& head_input, HeadWeight&& head_weight,
                    Layer&& layer, LookUp&& look_up) const {
    const StageWork& stage = *args.stage;
    const bool inputs = part != BackwardPart::weight;
    const bool weights = part != BackwardPart::input;
    Cursor<T> workspace{args.workspace.data()};
    // The gradient passing back through the stage. A stage with only the embedding just reads it.
    const bool passes = stage.layers > 0 || stage.last_edge || !stage.first_edge;
    T* const own = passes && stage.first_edge ? workspace.take(tokens_ * hidden()) : nullptr;
    T* const gradient = stage.first_edge ? own : reinterpret_cast<T*>(args.input_gradient.data());
    if (stage.last_edge) {
      if (inputs) head_input(gradient, workspace.take(0));
      if (weights) head_weight();
    } else if (inputs && passes) {
      copy(args.output_gradient.data(), gradient);
    }
    for (std::int32_t i = stage.layers; i-- > 0;) {
      Cursor<T> scratch = workspace;
      const LayerTensors<T> tensors = tensors_of(args, part, i, scratch);
      layer(i, tensors, gradient, scratch);
    }
    if (!stage.first_edge) return;
    const T* arrived = passes ? gradient : reinterpret_cast<const T*>(args.output_gradient.data());
    if (part == BackwardPart::input) copy(arrived, lookup_gradient(args));
    if (part == BackwardPart::weight) arrived = lookup_gradient(args);
    if (weights) look_up(arrived);
  }

  /// A layer's matrices, or their gradients, of type P.
  template <class P, class Byte>
  LayerMatrices<P> matrices(const StageWork& stage, Byte* layers, std::int64_t layer) const {
    const Kind& kind = kind_of(stage, layer);
    return {reinterpret_cast<P*>(layers) + sum_to(stage, layer, &Kind::parameters), kind.model, kind.width};
  }

  /// The output matrix [vocab, hidden] in type P, or its gradient: after the final norm [hidden] in
  /// the last edge, or a tied model's embedding.
  template <class P, class Byte>
  P* output_matrix(const StageParameters<Byte>& of) const {
    return model_.tied ? reinterpret_cast<P*>(of.first_edge) : reinterpret_cast<P*>(of.last_edge) + hidden();
  }

 private:
  StageMemory(const Transformer& model, const Batch& batch, Recompute recompute, bool packed, const LayerStack& stack)
      : model_{model},
        recompute_{recompute},
        tokens_{batch.tokens()},
        dense_layers_{model.dense_layers},
        lookup_stash_{stack.first_edge.stash.value()},
        head_stash_{stack.last_edge.stash.value()},
        layer_fits_lookup_{stack.lookup_waits_in_layer},
        layer_{model, stack.layer},
        dense_{model.dense_layers > 0 ? Kind{model.of_dense_layers(), stack.layer_of(1)} : layer_} {
    for (Kind* const kind : {&layer_, &dense_}) {
      if (packed) kind->saved = tokens_ * kind->width.kept(recompute) * std::int64_t{sizeof(T)};
    }
  }

  /// Layers of equal sizes.
  struct Kind {
    Transformer model;
    TokenWidths width;
    std::int64_t saved;  ///< bytes
    std::int64_t stash;  ///< bytes
    std::int64_t parameters;

    Kind(const Transformer& of, const StageWork& work)
        : model{of}, width{of}, saved{work.saved.value()}, stash{work.stash.value()}, parameters{of.layer_parameters()} {}
  };

  std::int64_t hidden() const { return model_.hidden; }
  const Kind& kind_of(const StageWork& stage, std::int64_t layer) const { return is_dense(stage, layer) ? dense_ : layer_; }
  /// Of the layers before `layer`.
  std::int64_t sum_to(const StageWork& stage, std::int64_t layer, std::int64_t Kind::*size) const {
    const std::int64_t dense = std::clamp<std::int64_t>(dense_layers_ - stage.first_layer, 0, layer);
    return dense * (dense_.*size) + (layer - dense) * (layer_.*size);
  }
  std::int64_t stash_at(const StageWork& stage, std::int64_t layer) const { return sum_to(stage, layer, &Kind::stash); }

  Transformer model_;
  Recompute recompute_;
  std::int64_t tokens_;
  std::int64_t dense_layers_;
  std::int64_t lookup_stash_;
  std::int64_t head_stash_;
  bool layer_fits_lookup_;
  Kind layer_;
  Kind dense_;
};

}  // namespace tawpipe::layers
