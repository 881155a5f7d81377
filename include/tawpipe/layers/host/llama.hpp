// A LLaMA decoder on the CPU: computes any stage of it, exactly and without allocating.
// Not: the order and place of stages (execute/) nor the update of its weights (layers/adamw.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/core/config.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/layers/checked_llama.hpp"
#include "tawpipe/layers/expert_routing.hpp"
#include "tawpipe/layers/host/balance_loss.hpp"
#include "tawpipe/layers/host/blas.hpp"
#include "tawpipe/layers/host/decoder_layer.hpp"
#include "tawpipe/layers/host/kernels.hpp"
#include "tawpipe/layers/host/router.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/layers/stage_memory.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::host {

/// Computes stages of a LLaMA decoder in numbers of type T, float or double, which all memory
/// holds.
///
/// Models LayerCompute. A stage is any run of layers, possibly none, with or without embedding and
/// head. Its results do not depend on how the model is split: stages of one layer give the same
/// bits as one stage of all layers.
/// Sizes: `saved` and both workspaces as model/transformer_work.hpp computes them; stash_bytes() of stash
/// for a backward_weight that runs by itself. `saved` holds the layers contiguously
/// (layers/layer_tensors.hpp), then the head's input [tokens, hidden] (after backward_input its
/// first row is the gradient of the final norm), its normed input, and softmax of the logits
/// [tokens, vocab] (then their gradient); with Transformer::loss_chunk only the logarithm of each
/// token's sum of logits. `backward_weight` reads no weights and `backward` is exactly
/// backward_input and backward_weight; recomputation repeats the forward's own arithmetic. All
/// policies, cuts and splits therefore give the same bits.
/// Allocates in the constructor only. One object serves one thread; several objects may compute at
/// once.
/// Source: Touvron et al. 2023, arXiv:2302.13971; the reference decoder of arXiv:2511.09741.
template <class T>
class Llama {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>,
                "tawpipe::layers::host::Llama computes in float or double");

 public:
  /// @throws InputError  as Transformer::check and Batch::check; if the model's dtype is not T's;
  /// if the head size is odd; if a microbatch is so small, or the hidden size so large,
  /// or so small relative to the others, that the sizes of `StageWork` are too small.
  Llama(Transformer model, Batch batch, Recompute recompute, const DecoderConstants& constants = {})
      : model_{checked_llama(std::move(model), batch, constants, std::is_same_v<T, float> ? Dtype::f32 : Dtype::f64)},
        recompute_{recompute},
        width_{model_},
        tokens_{batch.tokens()},
        memory_{model_, batch, recompute, true},
        epsilon_{static_cast<T>(constants.norm_epsilon)},
        layer_{model_, batch, constants},
        bias_(constants.router.bias.begin(), constants.router.bias.end()),
        routing_{model_, batch, std::int64_t{sizeof(T)}, constants.router},
        balance_{model_, batch, constants.router},
        norm_gradient_(static_cast<std::size_t>(model_.hidden)) {
    if (model_.dense_layers > 0) dense_.emplace(model_.of_dense_layers(), batch, constants);
    use_one_thread_for_products();
  }

  /// @throws InputError  naming a token or target that is not in the vocabulary.
  void forward(const ForwardArgs& args) {
    const StageWork& stage = *args.stage;
    check_sizes(args);
    T* at = memory_.reached(stage, args.saved.data(), 0, args.output);
    if (stage.first_edge) {
      look_up(args.tokens, reinterpret_cast<const T*>(args.weights.first_edge), at);
    } else {
      copy(args.input.data(), at);
    }
    for (std::int32_t i = 0; i < stage.layers; ++i) {
      Cursor<T> scratch{args.workspace.data()};
      const LayerTensors<T> tensors = memory_.tensors_of(stage, args.saved.data(), i, scratch);
      const auto weights = memory_.template matrices<const T>(stage, args.weights.layers, i);
      at = memory_.reached(stage, args.saved.data(), i + 1, args.output);
      RouterNumbers<T> router = router_of(stage, i);
      if (routes(stage, i)) router.probabilities = balance_.probabilities(args.microbatch, mixture(stage, i));
      layer_at(stage, i).compute(weights, tensors, scratch.take(0), true, router);
      layer_at(stage, i).output(weights, tensors, at);
      if (routes(stage, i)) balance_.note(args.microbatch, mixture(stage, i), Routing<T>{tensors.routing, routing_});
    }
    if (stage.last_edge) *args.loss = head_forward(args) + balance_.loss(args.microbatch);
  }

  void backward(const BackwardArgs& args) { run_backward(args, Part::both); }
  void backward_input(const BackwardArgs& args) { run_backward(args, Part::input); }
  void backward_weight(const BackwardArgs& args) { run_backward(args, Part::weight); }

  /// Bytes that backward_input leaves for backward_weight in addition to `saved`: recomputed
  /// tensors and, if no kept tensor has space for it, the gradient that the embedding waits for.
  std::int64_t stash_bytes(const StageWork& stage) const { return memory_.stash_bytes(stage); }

 private:
  using Part = BackwardPart;

  /// The head's part of `saved`.
  struct Head {
    T* input;
    T* normed;
    T* logits;
  };

  // ---- layers, some of which may have no experts ------------------------------------------------

  const DecoderLayer<T>& layer_at(const StageWork& stage, std::int32_t i) const {
    return memory_.is_dense(stage, i) ? *dense_ : layer_;
  }
  bool routes(const StageWork& stage, std::int32_t i) const { return model_.is_routed() && !memory_.is_dense(stage, i); }
  /// The number of a layer among those with experts.
  std::int64_t mixture(const StageWork& stage, std::int32_t i) const { return stage.first_layer + i - model_.dense_layers; }
  RouterNumbers<T> router_of(const StageWork& stage, std::int32_t i) const {
    if (bias_.empty() || !routes(stage, i)) return {};
    return {.bias = bias_.data() + mixture(stage, i) * model_.experts};
  }

  // ---- memory -----------------------------------------------------------------------------------

  Head head_of(const StageWork& stage, std::byte* saved) const {
    Cursor<T> cursor = memory_.kept(stage, saved, stage.layers);
    T* const input = cursor.take(tokens_ * width_.hidden);
    T* const normed = cursor.take(tokens_ * width_.hidden);
    return {input, normed, cursor.take(tokens_ * model_.vocab)};
  }
  /// [tokens, hidden] from one address to another, possibly the same.
  void copy(const void* from, T* to) const {
    if (from != to) std::copy_n(static_cast<const T*>(from), tokens_ * width_.hidden, to);
  }

  // ---- backward ---------------------------------------------------------------------------------

  void run_backward(const BackwardArgs& args, Part part) {
    check_sizes(args, part);
    const StageWork& stage = *args.stage;
    const auto layer = [&](std::int32_t i, const LayerTensors<T>& tensors, T* gradient, Cursor<T> scratch) {
      const DecoderLayer<T>& of = layer_at(stage, i);
      if (part != Part::weight) {
        const auto w = memory_.template matrices<const T>(stage, args.weights.layers, i);
        RouterNumbers<T> router = router_of(stage, i);
        if (recompute_ != Recompute::none) of.compute(w, tensors, scratch.take(0), recompute_ == Recompute::full, router);
        if (routes(stage, i)) router.balance = balance_.derivative(args.microbatch, args.scale);
        of.backward_input(w, tensors, gradient, scratch.take(0), router);
      }
      if (part != Part::input) of.backward_weight(memory_.template matrices<T>(stage, args.gradients.layers, i), tensors);
    };
    memory_.run_backward(
        args, part, [&](const void* from, T* to) { copy(from, to); },
        [&](T* gradient, T* scratch) { head_backward_input(args, part, gradient, scratch); },
        [&] { head_backward_weight(args, part); }, layer, [&](const T* arrived) { look_up_backward(args, arrived); });
  }

  // ---- embedding and head -----------------------------------------------------------------------

  void look_up(std::span<const std::int32_t> tokens, const T* table, T* x) const {
    for (std::size_t t = 0; t < tokens.size(); ++t, x += width_.hidden) {
      std::copy_n(table + tokens[t] * width_.hidden, width_.hidden, x);
    }
  }
  void look_up_backward(const BackwardArgs& args, const T* gradient) const {
    T* const table = reinterpret_cast<T*>(args.gradients.first_edge);
    for (std::size_t t = 0; t < args.tokens.size(); ++t, gradient += width_.hidden) {
      add_to(table + args.tokens[t] * width_.hidden, gradient, width_.hidden);
    }
  }
  double head_forward(const ForwardArgs& args) const {
    const Head head = head_of(*args.stage, args.saved.data());
    rms_norm(head.input, reinterpret_cast<const T*>(args.weights.last_edge), head.normed, tokens_, width_.hidden, epsilon_);
    if (chunked()) return chunked_forward(args, head);
    project(head.normed, memory_.template output_matrix<const T>(args.weights), head.logits, tokens_, width_.hidden,
            std::int64_t{model_.vocab});
    return cross_entropy(head.logits, args.targets.data(), tokens_, model_.vocab);
  }
  void head_backward_input(const BackwardArgs& args, Part part, T* gradient, T* scratch) {
    const Head head = head_of(*args.stage, args.saved.data());
    if (chunked()) {
      chunked_backward_input(args, part, head, scratch);
    } else {
      cross_entropy_backward(head.logits, args.targets.data(), tokens_, model_.vocab, args.scale);
      project_back(head.logits, memory_.template output_matrix<const T>(args.weights), scratch, tokens_, width_.hidden,
                   std::int64_t{model_.vocab});
    }
    rms_norm_backward(head.input, reinterpret_cast<const T*>(args.weights.last_edge), scratch, norm_gradient_.data(), tokens_,
                      width_.hidden, epsilon_);
    std::copy(norm_gradient_.begin(), norm_gradient_.end(), head.input);
    copy(scratch, gradient);
  }
  void head_backward_weight(const BackwardArgs& args, Part part) const {
    const Head head = head_of(*args.stage, args.saved.data());
    if (!chunked()) add_output_gradient(args, head.logits, 0, model_.vocab);
    if (chunked() && part == Part::weight) {
      for_each_chunk(
          [&](std::int64_t begin, std::int64_t count) { add_output_gradient(args, stashed(args, begin), begin, count); });
    }
    add_to(reinterpret_cast<T*>(args.gradients.last_edge), head.input, width_.hidden);
  }

  // ---- a loss in chunks of the vocabulary: head.logits holds each token's sum -------------------

  bool chunked() const { return model_.loss_chunk > 0; }
  template <class Visit>
  void for_each_chunk(Visit&& visit) const {
    for (std::int64_t begin = 0; begin < model_.vocab; begin += model_.loss_chunk) {
      visit(begin, std::min<std::int64_t>(model_.loss_chunk, model_.vocab - begin));
    }
  }
  double chunked_forward(const ForwardArgs& args, const Head& head) const {
    T* const logits = reinterpret_cast<T*>(args.workspace.data());
    double loss = 0;
    for_each_chunk([&](std::int64_t begin, std::int64_t count) {
      const T* const weights = memory_.template output_matrix<const T>(args.weights) + begin * width_.hidden;
      project(head.normed, weights, logits, tokens_, width_.hidden, count);
      loss -= add_to_cross_entropy(logits, args.targets.data(), head.logits, tokens_, begin, count);
    });
    for (std::int64_t t = 0; t < tokens_; ++t) loss += static_cast<double>(head.logits[t]);
    return loss / static_cast<double>(tokens_);
  }
  void chunked_backward_input(const BackwardArgs& args, Part part, const Head& head, T* scratch) const {
    for_each_chunk([&](std::int64_t begin, std::int64_t count) {
      const T* const weights = memory_.template output_matrix<const T>(args.weights) + begin * width_.hidden;
      T* const logits = part == Part::both ? scratch + tokens_ * width_.hidden : stashed(args, begin);
      project(head.normed, weights, logits, tokens_, width_.hidden, count);
      cross_entropy_backward(logits, args.targets.data(), head.logits, tokens_, begin, count, args.scale);
      project_back(logits, weights, scratch, tokens_, width_.hidden, count, begin > 0 ? T{1} : T{0});
      if (part == Part::both) add_output_gradient(args, logits, begin, count);
    });
  }
  /// The gradient of a chunk's logits between a backward_input and a backward_weight that run
  /// separately.
  T* stashed(const BackwardArgs& args, std::int64_t begin) const {
    const std::int64_t before = memory_.logits_at(*args.stage);
    return reinterpret_cast<T*>(args.stash.data() + before) + tokens_ * begin;
  }
  void add_output_gradient(const BackwardArgs& args, const T* logits, std::int64_t begin, std::int64_t count) const {
    const Head head = head_of(*args.stage, args.saved.data());
    T* const gradient = memory_.template output_matrix<T>(args.gradients) + begin * width_.hidden;
    add_weight_gradient(logits, head.normed, gradient, tokens_, width_.hidden, count);
  }

  // ---- checks -----------------------------------------------------------------------------------

  void check_ids(const StageWork& stage, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) const {
    if (stage.first_edge) check_ids("token", tokens);
    if (stage.last_edge) check_ids("target", targets);
  }
  void check_ids(const char* what, std::span<const std::int32_t> ids) const {
    TAWPIPE_ASSERT(std::ssize(ids) == tokens_, "one id for each token of the microbatch");
    for (std::size_t t = 0; t < ids.size(); ++t) {
      if (ids[t] >= 0 && ids[t] < model_.vocab) continue;
      throw InputError(concat(what, " ", ids[t], " at position ", t, " of the microbatch is not in the vocabulary of ",
                              model_.vocab, ", which ends at ", model_.vocab - 1));
    }
  }
  [[maybe_unused]] bool is_boundary(std::span<const std::byte> memory) const {
    return std::ssize(memory) == tokens_ * width_.hidden * std::int64_t{sizeof(T)};
  }
  void check_sizes(const ForwardArgs& args) const {
    const StageWork& stage = *args.stage;
    TAWPIPE_ASSERT(stage.first_edge || is_boundary(args.input), "input is [microbatch, sequence, hidden]");
    TAWPIPE_ASSERT(stage.last_edge || is_boundary(args.output), "output is [microbatch, sequence, hidden]");
    TAWPIPE_ASSERT(std::ssize(args.saved) >= stage.saved.value(), "saved has stage->saved bytes");
    TAWPIPE_ASSERT(std::ssize(args.workspace) >= stage.forward_workspace.value(), "workspace has stage->forward_workspace bytes");
    check_ids(stage, args.tokens, args.targets);
  }
  void check_sizes(const BackwardArgs& args, [[maybe_unused]] Part part) const {
    const StageWork& stage = *args.stage;
    TAWPIPE_ASSERT(part == Part::weight || stage.first_edge || is_boundary(args.input_gradient),
                   "input_gradient is [microbatch, sequence, hidden]");
    TAWPIPE_ASSERT(part == Part::weight || stage.last_edge || is_boundary(args.output_gradient),
                   "output_gradient is [microbatch, sequence, hidden]");
    TAWPIPE_ASSERT(std::ssize(args.saved) >= stage.saved.value(), "saved has stage->saved bytes");
    TAWPIPE_ASSERT(part != Part::both || std::ssize(args.workspace) >= stage.backward_workspace.value(),
                   "workspace has stage->backward_workspace bytes");
    TAWPIPE_ASSERT(part != Part::input || std::ssize(args.workspace) >= stage.input_workspace().value(),
                   "workspace has stage->input_workspace() bytes");
    TAWPIPE_ASSERT(part == Part::both || std::ssize(args.stash) >= stash_bytes(stage), "stash has stash_bytes(stage)");
    check_ids(stage, args.tokens, args.targets);
  }

  Transformer model_;
  Recompute recompute_;
  TokenWidths width_;
  std::int64_t tokens_;
  StageMemory<T> memory_;
  T epsilon_;
  DecoderLayer<T> layer_;
  std::optional<DecoderLayer<T>> dense_;  // of the first layers, where these have no experts
  std::vector<T> bias_;                   // RouterRules::bias
  RoutingSizes routing_;
  BalanceLoss<T> balance_;
  std::vector<T> norm_gradient_;  // [hidden], while the head's input is still needed
};

static_assert(LayerCompute<Llama<float>> && LayerCompute<Llama<double>>);

}  // namespace tawpipe::layers::host
