// The layout of one decoder layer's matrices, and of its tensors between forward and backward, by
// recomputation policy.
// Not: the computations with them (layers/host/decoder_layer.hpp, layers/cuda/decoder_layer.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/layer_code.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers {

/// Allocates memory from front to back.
template <class T>
class Cursor {
 public:
  explicit Cursor(std::byte* begin) : at_{reinterpret_cast<T*>(begin)} {}

  T* take(std::int64_t count) {
    T* const begin = at_;
    at_ += count;
    return begin;
  }

 private:
  T* at_;
};

/// Numbers of one token's tensors.
struct TokenWidths {
  std::int64_t hidden = 0;
  std::int64_t query = 0;    ///< Q
  std::int64_t key = 0;      ///< K
  std::int64_t inner = 0;    ///< W: of all MLPs that a token passes; I without experts, kI + J with
  std::int64_t dense = 0;    ///< of the MLP that every token passes: I without experts, J with
  std::int64_t expert = 0;   ///< I of an expert
  std::int64_t experts = 0;  ///< E
  std::int64_t held = 0;     ///< of these, those that a rank has
  std::int64_t chosen = 0;   ///< k
  std::int64_t routing = 0;  ///< kH
  std::int64_t normed = 0;   ///< Q + K with norms of queries and keys, else 0
  // Of latent attention, else 0:
  std::int64_t query_rank = 0;  ///< of the short vector of queries
  std::int64_t key_rank = 0;    ///< of that of keys and values
  std::int64_t turned = 0;      ///< of a head's query, and of the key's part that all heads share
  std::int64_t unturned = 0;    ///< of all heads' keys
  std::int64_t value = 0;       ///< of all heads' values

  explicit TokenWidths(const Transformer& model)
      : hidden{model.hidden},
        query{model.query_width()},
        key{model.key_width()},
        inner{model.token_width()},
        dense{model.is_routed() ? model.shared_width : model.intermediate},
        expert{model.is_routed() ? model.intermediate : 0},
        experts{model.experts},
        held{model.experts},
        chosen{model.experts_per_token},
        routing{model.routed_copies()},
        normed{model.qk_normed_width()},
        query_rank{model.query_rank},
        key_rank{model.key_value_rank},
        turned{model.rope_width},
        unturned{model.is_latent() ? model.unturned_width() : 0},
        value{model.is_latent() ? model.value_width() : 0} {}

  bool is_latent() const { return key_rank > 0; }
  /// Of what attention reads: queries, keys and values; latent without the keys' turned part.
  std::int64_t projected() const { return is_latent() ? query + unturned + value : query + 2 * key; }
  /// Of what attention gives.
  std::int64_t attended() const { return is_latent() ? value : query; }
  /// Of latent attention's short vectors before their norms, with the keys' turned part, and after.
  std::int64_t short_vectors() const { return query_rank + key_rank + turned; }
  std::int64_t short_normed() const { return query_rank + key_rank; }

  /// Numbers of all tensors that the policy `none` keeps of a layer.
  std::int64_t all() const {
    return 4 * hidden + projected() + attended() + 4 * inner + routing + normed + short_vectors() + short_normed();
  }
  /// Numbers of the tensors that a policy keeps of a layer.
  std::int64_t kept(Recompute recompute) const {
    if (recompute == Recompute::none) return all();
    if (recompute == Recompute::full) return hidden;
    return 2 * hidden + projected() + 2 * inner + routing + normed + short_vectors();
  }
};

/// The matrices, biases and norms of one layer, or their gradients, in the order of model/parameters.hpp.
/// Gate, down and up are those of the MLP that every token passes, of width D: the layer's own, or
/// with experts the shared one, of width 0 if there is none. A bias or norm of queries and keys that the model
/// does not have is null. Latent attention has R numbers of queries' short vector (or H, where there is none), C of
/// that of keys and values, and D of the turned part.
/// P: T or const T.
template <class P>
struct LayerMatrices {
  P* qkv;                   ///< query, key and value are contiguous: one matrix [Q + 2K, H]; of latent attention null
  P* output;                ///< [H, Q]
  P* router;                ///< [E, H]
  P* experts;               ///< [TokenWidths::held, 3, I H]: of each expert gate [I, H], down [H, I] and up [I, H]
  P* gate;                  ///< [D, H]
  P* down;                  ///< [H, D]
  P* up;                    ///< [D, H]
  P* query_down = nullptr;  ///< latent: [R, H], or null
  P* query_up = nullptr;    ///< latent: [Q, R]
  P* key_down = nullptr;    ///< latent: [C + D, H]
  P* key_up = nullptr;      ///< latent: of each head the key's rows without the turned part, then the value's, [.., C]
  P* qkv_bias = nullptr;
  P* output_bias = nullptr;
  P* gate_bias = nullptr;
  P* down_bias = nullptr;
  P* up_bias = nullptr;
  P* query_norm = nullptr;  ///< [head size], or of all heads together [Q]; latent [R]
  P* key_norm = nullptr;    ///< [head size] or [K]; latent [C]
  P* attention_norm;
  P* ffn_norm;

  LayerMatrices(P* begin, const Transformer& model, const TokenWidths& width) {
    P* at = begin;
    const auto take = [&at](std::int64_t count) { return std::exchange(at, at + count); };
    qkv = width.is_latent() ? nullptr : take(width.hidden * width.projected());
    if (width.is_latent()) {
      if (width.query_rank > 0) query_down = take(width.query_rank * width.hidden);
      query_up = take(width.query * (width.query_rank > 0 ? width.query_rank : width.hidden));
      key_down = take((width.key_rank + width.turned) * width.hidden);
      key_up = take((width.unturned + width.value) * width.key_rank);
    }
    output = take(width.hidden * width.attended());
    router = take(width.experts * width.hidden);
    experts = take(3 * width.held * width.expert * width.hidden);
    gate = take(width.hidden * width.dense);
    down = take(width.hidden * width.dense);
    up = take(width.hidden * width.dense);
    if (model.qkv_bias) qkv_bias = take(width.projected());
    if (model.output_bias) output_bias = take(width.hidden);
    if (model.mlp_bias) {
      gate_bias = take(width.dense);
      down_bias = take(width.hidden);
      up_bias = take(width.dense);
    }
    if (width.normed > 0) {
      query_norm = take(model.qk_norm == QkNorm::head ? model.head_size() : width.query);
      key_norm = take(model.qk_norm == QkNorm::head ? model.head_size() : width.key);
    }
    if (width.query_rank > 0) query_norm = take(width.query_rank);
    if (width.is_latent()) key_norm = take(width.key_rank);
    attention_norm = take(width.hidden);
    ffn_norm = take(width.hidden);
  }
};

/// The tensors of one layer for one microbatch, each [tokens, width]. The tensor that
/// backward_input writes over them, for backward_weight, is given after the arrow.
///
/// Norms' reciprocal roots and attention's row sums are not among them: both are recomputed from
/// these. Policy `none` keeps all, in this order; `selective` keeps input, qkv, unnormed, middle, gate,
/// up and routing; `full` the input. Tensors not kept are recomputed into workspace, or into the stash if
/// backward_weight runs by itself and needs them (all but the sigmoid).
///
/// With experts the tensors of width W are rows of width I, one for each token and expert of its
/// choice in the order of experts (Routing), and then [tokens, J] of the shared expert. The product
/// has the experts' weights in it. `routing` has the room of the copies [k tokens, H] that
/// model/transformer_work.hpp counts: the choice, its weights, and the rows of one expert's tokens at a
/// time, gathered anew for each product. It is kept with the results of products. The router's
/// probabilities, 4 E bytes a token, are not kept: those of other experts than the chosen ones are
/// not needed, and that part of `saved` is left over.
template <class T>
struct LayerTensors {
  /// sums over tokens are at least float
  using Sum = std::conditional_t<sizeof(T) < sizeof(float), float, T>;

  T* input = nullptr;           ///< H -> gradient of the layer's output
  T* attention_norm = nullptr;  ///< H
  /// Q + 2K, rotated -> the gradient of its product; latent: all queries, then keys without their turned part and
  /// values as LayerMatrices::key_up gives them
  T* qkv = nullptr;
  /// Q + K before their norms, if any -> gradients of the norms' weights; latent: queries' short vector, then
  /// that of keys and values with the keys' turned part -> the gradients of their products
  T* unnormed = nullptr;
  T* short_normed = nullptr;  ///< latent: both short vectors after their norms
  T* attention = nullptr;     ///< Q, or of latent attention V: output of the attention core
  T* middle = nullptr;        ///< H: input + attention's projection -> its gradient
  T* ffn_norm = nullptr;      ///< H
  T* gate = nullptr;          ///< W -> its gradient
  /// W, of the gate -> gradients of the norms' weights (if not in the stash)
  T* sigmoid = nullptr;
  T* up = nullptr;       ///< W -> its gradient
  T* product = nullptr;  ///< W: silu(gate) up
  T* routing = nullptr;  ///< kH: layers/expert_routing.hpp
  /// for all tokens: of the attention norm and the feed-forward norm, H each, and of those of short vectors
  Sum* norm_gradients = nullptr;
  /// free memory after them in the last half of backward_input, and later
  T* behind_gradients = nullptr;

  /// The size of the space of `norm_gradients`, in T.
  static std::int64_t norm_gradient_numbers(const TokenWidths& width) {
    return (2 * width.hidden + width.short_normed()) * std::int64_t{sizeof(Sum) / sizeof(T)};
  }

  /// Places a layer's tensors: those that the policy keeps in `kept`, others that backward_weight
  /// needs in `rest`, the remainder in `passing`. `rest` and `passing` may be the same memory.
  LayerTensors(const TokenWidths& width, std::int64_t tokens, Recompute recompute, Cursor<T> kept, Cursor<T>& rest,
               Cursor<T>& passing) {
    const bool products = recompute != Recompute::full;  // results of matrix products are kept
    const bool all = recompute == Recompute::none;
    const auto place = [&](T*& tensor, std::int64_t numbers, bool keep, Cursor<T>& otherwise) {
      tensor = keep ? kept.take(tokens * numbers) : otherwise.take(tokens * numbers);
    };
    place(input, width.hidden, true, rest);
    place(attention_norm, width.hidden, all, rest);
    place(qkv, width.projected(), products, rest);
    place(unnormed, width.normed + width.short_vectors(), products, rest);
    place(short_normed, width.short_normed(), all, rest);
    place(attention, width.attended(), all, rest);
    place(middle, width.hidden, products, rest);
    place(ffn_norm, width.hidden, all, rest);
    place(gate, width.inner, products, rest);
    place(sigmoid, width.inner, all, passing);
    place(up, width.inner, products, rest);
    place(product, width.inner, all, rest);
    place(routing, width.routing, products, rest);
    T* const sums = all || &rest == &passing ? sigmoid : rest.take(norm_gradient_numbers(width));
    norm_gradients = reinterpret_cast<Sum*>(sums);
    behind_gradients = sums + norm_gradient_numbers(width);
  }
};

}  // namespace tawpipe::layers
