// How a stage of a decoder uses its caller's memory: the places of each layer's tensors in it.
// Not: one layer's tensors (layer_tensors.hpp) nor the head's, which differ by device
// (host/llama.hpp, cuda/decoder.hpp).
#pragma once

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

/// Computes the layout of one model's stages in numbers of type T.
template <class T>
class StageMemory {
 public:
  /// @param layer_bytes  distance in `saved` from one layer to the next; 0: all that one may keep
  StageMemory(const Transformer& model, const Batch& batch, Recompute recompute, std::int64_t layer_bytes = 0)
      : StageMemory{model, batch, recompute, layer_bytes, layer_stack(model, batch, recompute)} {}

  /// Bytes that a backward_input leaves for its backward_weight in addition to `saved`: of so many
  /// layers, then the gradient that an embedding waits for, if no layer has room for it, and that of all
  /// logits of a head whose loss is computed in chunks.
  std::int64_t stash_bytes(std::int64_t layers, bool embedding, bool head = false) const {
    const bool waits = embedding && (layers == 0 || !layer_fits_lookup_);
    return layers * layer_stash_ + (waits ? lookup_stash_ : 0) + (head ? head_stash_ : 0);
  }

  /// The kept tensors of a layer, or, after the last layer, of the head.
  Cursor<T> kept(std::byte* saved, std::int64_t layer) const { return Cursor<T>{saved + layer * layer_bytes_}; }

  /// The address of the activation before layer `layer`: the layer's or head's input, or the
  /// stage's output.
  T* reached(const StageWork& stage, std::byte* saved, std::int64_t layer, std::span<std::byte> output) const {
    return layer < stage.layers || stage.last_edge ? kept(saved, layer).take(0) : reinterpret_cast<T*>(output.data());
  }

  /// The tensors of a layer in the forward, or in an unsplit backward; `scratch` moves past those
  /// placed there.
  LayerTensors<T> tensors_of(std::byte* saved, std::int64_t layer, Cursor<T>& scratch) const {
    return {width_, tokens_, recompute_, kept(saved, layer), scratch, scratch};
  }
  /// The tensors of a layer in the backward; `scratch` moves past those in workspace.
  LayerTensors<T> tensors_of(const BackwardArgs& args, BackwardPart part, std::int64_t layer, Cursor<T>& scratch) const {
    if (part == BackwardPart::both) return tensors_of(args.saved.data(), layer, scratch);
    Cursor<T> stash{args.stash.data() + layer * layer_stash_};
    return {width_, tokens_, recompute_, kept(args.saved.data(), layer), stash, scratch};
  }

  /// The address at which backward_input leaves the embedding's gradient [tokens, hidden] for
  /// backward_weight.
  T* lookup_gradient(const BackwardArgs& args) const {
    const std::int64_t layers = args.stage->layers;
    if (layers == 0 || !layer_fits_lookup_) return reinterpret_cast<T*>(args.stash.data() + layers * layer_stash_);
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
    T* const own = passes && stage.first_edge ? workspace.take(tokens_ * width_.hidden) : nullptr;
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
  LayerMatrices<P> matrices(Byte* layers, std::int64_t layer) const {
    return {reinterpret_cast<P*>(layers) + layer * layer_parameters_, model_, width_};
  }

  /// The output matrix [vocab, hidden] in type P, or its gradient: after the final norm [hidden] in
  /// the last edge, or a tied model's embedding.
  template <class P, class Byte>
  P* output_matrix(const StageParameters<Byte>& of) const {
    return model_.tied ? reinterpret_cast<P*>(of.first_edge) : reinterpret_cast<P*>(of.last_edge) + width_.hidden;
  }

 private:
  StageMemory(const Transformer& model, const Batch& batch, Recompute recompute, std::int64_t layer_bytes,
              const LayerStack& stack)
      : model_{model},
        recompute_{recompute},
        width_{model},
        tokens_{batch.tokens()},
        layer_bytes_{layer_bytes > 0 ? layer_bytes : stack.layer.saved.value()},
        layer_stash_{stack.layer.stash.value()},
        lookup_stash_{stack.first_edge.stash.value()},
        head_stash_{stack.last_edge.stash.value()},
        layer_parameters_{model.layer_parameters()},
        layer_fits_lookup_{stack.lookup_waits_in_layer} {}

  Transformer model_;
  Recompute recompute_;
  TokenWidths width_;
  std::int64_t tokens_;
  std::int64_t layer_bytes_;
  std::int64_t layer_stash_;
  std::int64_t lookup_stash_;
  std::int64_t head_stash_;
  std::int64_t layer_parameters_;
  bool layer_fits_lookup_;
};

}  // namespace tawpipe::layers
