// How one rank's part of a stage that ranks share uses its caller's memory, and how much it needs.
// Not: the computations in it (layers/host/tensor_llama.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/layers/context_tokens.hpp"
#include "tawpipe/layers/expert_routing.hpp"
#include "tawpipe/layers/host/context_attention.hpp"
#include "tawpipe/layers/host/expert_part.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/tensor_part.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace tawpipe::inline v0::layers::host {

/// A layer's tensors in `saved`: t tokens of the ranks that have the same, of which norms and residual
/// sums have n, those of the rank. H is the residual stream's width; Q, K and I are the rank's parts.
/// Of them a policy keeps those of LayerTensors; the others are made in workspace, and again for a
/// backward, or by one half of it for the other in the stash.
template <class T>
struct TensorMemoryLayer {
  T* input;                 ///< [n, H]
  T* attention_norm;        ///< [n, H]
  T* qkv;                   ///< [t, Q + 2K], rotated -> the gradient of its product
  T* attention;             ///< [t, Q]
  T* middle;                ///< [n, H]
  T* ffn_norm;              ///< [n, H]
  T* gate;                  ///< [t, I] -> its gradient
  T* sigmoid;               ///< [t, I]
  T* up;                    ///< [t, I] -> its gradient
  T* product;               ///< [t, I]
  T* norm_gradients;        ///< [2, H] of the attention norm and the feed-forward norm
  T* gathered;              ///< [t, H] ffn_norm of all tokens, beside experts; null: it is not kept
  ContextSaved<T> context;  ///< of context-parallel ranks' attention, with qkv and attention
  ExpertSaved<T> experts;   ///< of a mixture, beside which I is that of the shared one
};

/// A layer's tensors while its forward runs, for the first time or again.
template <class T>
struct TensorMemoryForward {
  TensorMemoryLayer<T> x;
  T* work;    ///< of TensorMemory::forward_numbers()
  T* output;  ///< [n, H]
};

/// The head's, after those of the layers; V is the rank's part of the vocabulary.
template <class T>
struct TensorMemoryHead {
  T* input;          ///< [n, H]
  T* normed;         ///< [n, H]
  T* all_normed;     ///< [t, H], with a loss in chunks, whose logits are computed again; null: not kept
  T* logits;         ///< [t, V] -> softmax -> its gradient; in chunks: none
  T* triples;        ///< in chunks: [t, 3] of Combine::softmax
  T* norm_gradient;  ///< [H]
};

template <class T>
class TensorMemory {
 public:
  /// @param part  tensor_part() of the model
  /// @throws InputError  naming what is not computed: recomputation of parts of a stage or of a layer, experts'
  /// widths divided without sequence parallelism, or tokens that cannot be divided
  TensorMemory(const Transformer& part, const Batch& batch, Recompute recompute, const Sharing& sharing)
      : part_{part},
        width_{part},
        recompute_{recompute},
        sharing_{sharing},
        context_{part, batch_of_rank(batch, sharing), sharing},
        all_{context_.tokens().tokens()},
        own_{by_tokens() ? all_ / sharing.tensor : all_},
        experts_{part, routed_batch(), sends_to_experts() ? sharing.ranks() : 1},
        score_numbers_{(2 * std::int64_t{64} + 2 * width_.query) * batch.sequence},
        layer_parameters_{part.layer_parameters()} {
    if (sends_to_experts()) {
      width_.held = width_.experts / sharing.ranks();
      layer_parameters_ -= part.layer_expert_parameters() / sharing.ranks() * (sharing.ranks() - 1);
    }
    const Placed sizes = placed(nullptr, nullptr);
    kept_ = sizes.kept;
    rest_ = sizes.rest;
    if (sharing.ranks() == 1) return;
    const auto refuse = [&](const std::string& what) {
      const char* const axis = sharing.tensor > 1 ? "tensor" : sharing.context > 1 ? "context" : "expert";
      throw InputError(concat(axis, " parallelism is executed ", what));
    };
    check_shared_part(part, sharing.tensor > 1    ? "--tensor-parallel"
                            : sharing.context > 1 ? "--context-parallel"
                                                  : "--expert-parallel");
    if (part.recompute_layers > 0 || part.recompute_parts.any()) {
      refuse("with recomputation of all layers, and not of named parts; choose --recompute none, selective or full");
    }
    if (has_experts()) check_experts(refuse);
    if (sharing.context > 1 && sharing.exchange == ContextExchange::two_level) {
      refuse("without an exchange in two levels; choose all-gather, ring or all-to-all");
    }
    if (sharing.overlap) refuse("without overlapping pieces of products; leave out --tp-overlap");
    if (all_ % sharing.tensor != 0) {
      refuse(concat("with as many tokens of a microbatch on each rank; ", all_, " is no multiple of ", sharing.tensor));
    }
  }

  int ranks() const { return sharing_.tensor; }
  Recompute recompute() const { return recompute_; }
  /// A loss in chunks: entries of the rank's part at a time.
  bool chunked() const { return part_.loss_chunk > 0; }
  std::int64_t chunk_entries() const {
    return chunked() ? std::min<std::int64_t>((part_.loss_chunk + sharing_.tensor - 1) / sharing_.tensor, part_.vocab)
                     : part_.vocab;
  }
  bool by_tokens() const { return sharing_.sequence_parallel && sharing_.tensor > 1; }
  const ContextAttention<T>& context() const { return context_; }
  const ExpertPart<T>& experts() const { return experts_; }
  bool has_experts() const { return part_.is_routed(); }
  /// Whether ranks have whole experts of their own.
  bool sends_to_experts() const { return has_experts() && sharing_.whole_experts && sharing_.ranks() > 1; }
  /// Whether tensor-parallel ranks divide the width of all experts, and so route the same tokens.
  bool routes_all_tokens() const { return has_experts() && sharing_.tensor > 1 && !sends_to_experts(); }
  ContextExchange exchange() const { return sharing_.exchange; }
  bool has_context() const { return sharing_.context > 1; }
  std::int64_t all_tokens() const { return all_; }
  std::int64_t own_tokens() const { return own_; }
  /// Whether messages between stages have a part of the tokens that norms have.
  bool gathers_messages(const StageWork& stage) const { return boundary(stage) < stream(own_); }

  // ---- sizes ------------------------------------------------------------------------------------

  /// What a stage needs on one rank, at least. @param split  a backward may come in two halves
  StageWork enlarged(StageWork stage, bool split) const {
    const auto bytes = [](std::int64_t numbers) { return Bytes{numbers * std::int64_t{sizeof(T)}}; };
    const std::int64_t halves = split ? (2 * stage.layers + 3) * stream(all_) : 0;
    stage.saved = std::max(stage.saved, bytes(saved_numbers(stage) + halves));
    const std::int64_t waiting = chunked() && stage.last_edge ? all_ * part_.vocab : 0;
    stage.stash = std::max(stage.stash, bytes(split ? stage.layers * rest_ + waiting : 0));
    stage.forward_workspace = std::max(stage.forward_workspace, bytes(forward_numbers() + std::max(rest_, chunk_numbers())));
    const std::int64_t again = std::max(rest_ > 0 ? forward_numbers() + rest_ : 0, chunk_numbers());
    stage.backward_workspace = std::max(stage.backward_workspace, bytes(backward_numbers() + again)) + stage.stashed_workspace;
    return stage;
  }

  // ---- kept -------------------------------------------------------------------------------------

  TensorMemoryForward<T> layer(const ForwardArgs& args, std::int64_t layer) const {
    T* const work = numbers(args.workspace);
    return {placed(kept(args.saved, layer), work + forward_numbers()).x, work, reached(args, layer + 1)};
  }
  /// @param passes  of the computation: one half makes for the other what is not kept
  TensorMemoryLayer<T> layer(const BackwardArgs& args, const Passes& passes, std::int64_t layer) const {
    T* const rest = whole(passes) ? again(args) + forward_numbers() : numbers(args.stash) + layer * rest_;
    return placed(kept(args.saved, layer), rest).x;
  }
  /// The same where its forward is repeated.
  TensorMemoryForward<T> layer_again(const BackwardArgs& args, const Passes& passes, std::int64_t layer) const {
    return {this->layer(args, passes, layer), again(args), again(args) + stream(all_)};
  }
  TensorMemoryHead<T> head(std::span<std::byte> saved, std::int64_t layers) const {
    Cursor<T> at{saved.data() + layers * kept_ * std::int64_t{sizeof(T)}};
    TensorMemoryHead<T> head{};
    head.input = at.take(stream(own_));
    head.normed = at.take(stream(own_));
    head.all_normed = !by_tokens() ? head.normed : chunked() ? at.take(stream(all_)) : nullptr;
    head.logits = at.take(chunked() ? 0 : all_ * part_.vocab);
    head.triples = at.take(chunked() ? 3 * all_ : 0);
    head.norm_gradient = at.take(width_.hidden);
    return head;
  }

  // ---- of a forward -----------------------------------------------------------------------------

  /// The activation [n, H] before layer `layer`: its input, the head's, or the stage's output.
  T* reached(const ForwardArgs& args, std::int64_t layer) const {
    const StageWork& stage = *args.stage;
    if (layer < stage.layers) return kept(args.saved, layer);
    if (stage.last_edge) return head(args.saved, layer).input;
    return gathers_messages(stage) ? numbers(args.workspace) + stream(all_) : reinterpret_cast<T*>(args.output.data());
  }
  /// What a product reads, of all tokens.
  T* gathered(const ForwardArgs& args) const { return numbers(args.workspace); }
  /// What a product gives before the sum over ranks that goes to `to`: for all tokens, in place if the
  /// sum is for all, otherwise where gathered() was. @param work  of a forward
  T* partial(T* work, T* to) const { return by_tokens() ? work : to; }
  T* partial(const ForwardArgs& args, T* to) const { return partial(numbers(args.workspace), to); }
  T* scratch(T* work) const { return work + 2 * stream(all_); }
  /// [t, 3]
  T* triples(const ForwardArgs& args) const {
    if (chunked()) return head(args.saved, args.stage->layers).triples;
    return scratch(numbers(args.workspace)) + score_numbers_;
  }
  /// [t, H] normed, of which the logits are computed.
  T* head_input(const ForwardArgs& args) const {
    T* const kept = head(args.saved, args.stage->layers).all_normed;
    return kept != nullptr ? kept : gathered(args);
  }
  /// What the MLP that every token passes reads, [t, H]. @param gathered  of all tokens, where it is not kept
  const T* ffn_input(const TensorMemoryLayer<T>& x, const T* gathered) const {
    return !by_tokens() ? x.ffn_norm : x.gathered != nullptr ? x.gathered : gathered;
  }
  T* gathered_ffn(const TensorMemoryLayer<T>& x, T* work) const { return x.gathered != nullptr ? x.gathered : work; }
  /// What the rank routes to experts.
  const T* routed_input(const TensorMemoryLayer<T>& x) const { return routes_all_tokens() ? x.gathered : x.ffn_norm; }
  /// Logits [t, chunk].
  T* chunk(const ForwardArgs& args) const { return numbers(args.workspace) + forward_numbers(); }
  /// Of ContextAttention.
  T* context_work(T* work) const { return scratch(work) + score_numbers_ + 3 * all_; }
  /// Of ExpertPart, when the former is free.
  T* expert_work(T* work) const { return context_work(work); }
  /// Gives the stage's output to the next one, if it is not there.
  void pass_on(const ForwardArgs& args, int rank) const {
    if (gathers_messages(*args.stage)) pass(reached(args, args.stage->layers), args.output, rank);
  }

  // ---- of a backward ----------------------------------------------------------------------------

  /// The gradient [n, H] on its way through the stage.
  T* gradient(const BackwardArgs& args) const {
    const bool own = args.stage->first_edge || gathers_messages(*args.stage);
    return own ? numbers(args.workspace) : reinterpret_cast<T*>(args.input_gradient.data());
  }
  /// The sum [n, H] over ranks of what partial() has.
  T* summed(const BackwardArgs& args) const { return by_tokens() ? numbers(args.workspace) + stream(own_) : partial(args); }
  /// What products give, of all tokens, before the sum; memory behind it is free.
  T* partial(const BackwardArgs& args) const { return numbers(args.workspace) + 2 * stream(own_) + 2 * stream(all_); }
  /// Of ContextAttention, behind what products before it give.
  T* context_work(const BackwardArgs& args) const { return partial(args) + widest() * all_ + 2 * score_numbers_; }
  T* expert_work(const BackwardArgs& args) const { return context_work(args); }
  /// The gradient [t, H] of a sublayer's output. @param passes  of the computation: halves keep it
  T* kept_gradient(const BackwardArgs& args, const Passes& passes, std::int64_t layer, bool attention) const {
    if (whole(passes)) return numbers(args.workspace) + 2 * stream(own_);
    return kept(args) + (2 * layer + (attention ? 1 : 0)) * stream(all_);
  }
  /// The gradient [t, H] of the embedding's rows.
  T* lookup_gradient(const BackwardArgs& args, const Passes& passes) const {
    if (!whole(passes)) return kept(args) + 2 * args.stage->layers * stream(all_);
    return by_tokens() ? kept_gradient(args, passes, 0, false) : gradient(args);
  }
  /// The i-th input [t, H] of products, gathered for the gradients of their weights.
  T* inputs(const BackwardArgs& args, const Passes& passes, int i) const {
    if (whole(passes)) return numbers(args.workspace) + 2 * stream(own_) + stream(all_);
    return kept(args) + (2 * args.stage->layers + 1 + i) * stream(all_);
  }
  /// Logits [t, chunk] from some entry on, and their gradient: one half of a backward leaves those of all
  /// entries for the other.
  T* chunk(const BackwardArgs& args, const Passes& passes, std::int64_t begin) const {
    return whole(passes) ? again(args) : numbers(args.stash) + args.stage->layers * rest_ + all_ * begin;
  }
  /// Gives the gradient to the previous stage, or keeps what the embedding's gradient needs.
  void give(const BackwardArgs& args, const Passes& passes, int rank) const {
    if (args.stage->first_edge) {
      std::copy_n(gradient(args), stream(own_), lookup_gradient(args, passes));
    } else if (gathers_messages(*args.stage)) {
      pass(gradient(args), args.input_gradient, rank);
    }
  }

  // ---- weights ----------------------------------------------------------------------------------

  template <class P, class Byte>
  LayerMatrices<P> matrices(Byte* layers, std::int64_t layer) const {
    return {reinterpret_cast<P*>(layers) + layer * layer_parameters_, part_, width_};
  }
  /// [V, H]: after the final norm, or a tied model's embedding.
  template <class P, class Byte>
  P* output_matrix(const StageParameters<Byte>& of) const {
    return part_.tied ? reinterpret_cast<P*>(of.first_edge) : reinterpret_cast<P*>(of.last_edge) + width_.hidden;
  }

 private:
  /// With the tokens that a rank routes.
  Batch routed_batch() const {
    const std::int64_t tokens = routes_all_tokens() ? all_ : own_;
    return {.sequence = tokens, .microbatch_size = 1, .global_batch = 1};
  }
  template <class Refuse>
  void check_experts(const Refuse& refuse) const {
    if (recompute_ == Recompute::full && part_.stops_early())
      refuse("with experts' forwards repeated whole; early_stop must be false");
    if (routes_all_tokens() && !sharing_.sequence_parallel) {
      refuse("for mixtures of experts with sequence parallelism; choose --sequence-parallel on");
    }
    const RoutingSizes sizes{part_, routed_batch(), std::int64_t{sizeof(T)}};
    if (!sizes.fit() || sizes.left < sizes.chosen)
      refuse("for larger hidden sizes; take fewer experts or more tokens on each rank");
  }
  static T* numbers(std::span<std::byte> memory) { return reinterpret_cast<T*>(memory.data()); }
  static bool whole(const Passes& passes) { return passes.backward_input && passes.backward_weight; }
  /// A layer's tensors in `saved`, of which the first is its input.
  T* kept(std::span<std::byte> saved, std::int64_t layer) const { return numbers(saved) + layer * kept_; }
  /// What a repeated forward works in, behind all that a backward does.
  T* again(const BackwardArgs& args) const { return numbers(args.workspace) + backward_numbers(); }

  struct Placed {
    TensorMemoryLayer<T> x;
    std::int64_t kept;  ///< numbers
    std::int64_t rest;
  };
  Placed placed(T* in_saved, T* others) const {
    Taking<T> saved{in_saved};
    Taking<T> rest{others};
    const auto take = [&](std::int64_t count, bool keeps) { return (keeps ? saved : rest).take(count); };
    const bool all = recompute_ == Recompute::none;
    const bool products = recompute_ != Recompute::full;
    const std::int64_t product = all_ * (width_.query + 2 * width_.key);
    const bool swaps = has_context() && context_.product_kept() > 0;
    TensorMemoryLayer<T> x{};
    x.input = take(stream(own_), true);
    x.attention_norm = take(stream(own_), all);
    x.qkv = take(product, swaps ? all : products);
    x.attention = take(all_ * width_.query, all);
    x.middle = take(stream(own_), products);
    x.ffn_norm = take(stream(own_), all);
    x.gate = take(all_ * width_.dense, products);
    x.sigmoid = take(all_ * width_.dense, all);
    x.up = take(all_ * width_.dense, products);
    x.product = take(all_ * width_.dense, all);
    x.norm_gradients = take(2 * width_.hidden, all);
    const bool gathers = has_experts() && by_tokens() && (width_.dense > 0 || routes_all_tokens());
    x.gathered = take(gathers ? stream(all_) : 0, products);
    if (!gathers) x.gathered = nullptr;
    if (has_experts()) x.experts = experts_.saved(recompute_, take);
    if (has_context()) {
      x.context = {.qkv = x.qkv,
                   .attention = x.attention,
                   .keys = take(context_.keys_kept(), all),
                   .swapped = take(context_.swapped_kept(), all),
                   .log_sums = take(context_.sums_kept(), all),
                   .product = swaps && recompute_ == Recompute::selective ? take(product, true) : nullptr};
    }
    return {x, saved.size, rest.size};
  }
  std::int64_t stream(std::int64_t tokens) const { return tokens * width_.hidden; }
  static std::int64_t boundary(const StageWork& stage) { return stage.boundary.value() / std::int64_t{sizeof(T)}; }
  std::int64_t chunk_numbers() const { return chunked() ? all_ * chunk_entries() : 0; }
  std::int64_t forward_numbers() const {
    return 2 * stream(all_) + score_numbers_ + 3 * all_ +
           std::max(has_context() ? context_.forward_numbers() : 0, has_experts() ? experts_.forward_numbers() : 0);
  }
  std::int64_t backward_numbers() const {
    return 2 * stream(own_) + 2 * stream(all_) + widest() * all_ + 2 * score_numbers_ +
           std::max(has_context() ? context_.backward_numbers() : 0, has_experts() ? experts_.backward_numbers() : 0);
  }
  /// Numbers of a token that a backward's products give.
  std::int64_t widest() const { return std::max({width_.dense, width_.hidden, width_.query}); }
  std::int64_t saved_numbers(const StageWork& stage) const {
    const std::int64_t logits = chunked() ? 3 * all_ + (by_tokens() ? stream(all_) : 0) : all_ * part_.vocab;
    const std::int64_t head = 2 * stream(own_) + logits + width_.hidden;
    return stage.layers * kept_ + (stage.last_edge ? head : 0);
  }
  /// What one half of a backward keeps for the other, at the end of `saved`: [2 layers + 3, t, H].
  T* kept(const BackwardArgs& args) const { return numbers(args.saved) + saved_numbers(*args.stage); }
  /// The rank's part of an activation's tokens.
  void pass(const T* all, std::span<std::byte> to, int rank) const {
    const auto count = static_cast<std::int64_t>(to.size() / sizeof(T));
    std::copy_n(all + rank * count, count, numbers(to));
  }

  Transformer part_;
  TokenWidths width_;
  Recompute recompute_;
  Sharing sharing_;
  ContextAttention<T> context_;
  std::int64_t all_;
  std::int64_t own_;
  ExpertPart<T> experts_;
  std::int64_t score_numbers_;  // of attention, at least
  std::int64_t layer_parameters_;
  std::int64_t kept_ = 0;  // of a layer, in `saved`
  std::int64_t rest_ = 0;  // of a layer, elsewhere
};

/// The stages of a composition with the memory that TensorLlama needs: what the simulator counts for
/// other software, and no less than this code uses.
/// @param split  a backward may come in two halves
template <class T>
std::vector<SharedStage> tensor_stages(const Transformer& model, const Batch& batch, Recompute recompute, const Sharing& sharing,
                                       std::vector<SharedStage> stages, bool split) {
  const TensorMemory<T> memory{tensor_part(model, sharing.tensor, sharing.whole_experts), batch, recompute, sharing};
  for (SharedStage& stage : stages) stage.work = memory.enlarged(std::move(stage.work), split);
  return stages;
}

}  // namespace tawpipe::layers::host
