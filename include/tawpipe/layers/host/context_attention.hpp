// The attention of one context-parallel rank: its blocks, what it exchanges, and the memory for both.
// Not: the arithmetic (layers/host/chunk_attention.hpp), nor the order of the steps
// (layers/context_passes.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/layers/context_tokens.hpp"
#include "tawpipe/layers/host/attention.hpp"
#include "tawpipe/layers/host/chunk_attention.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::host {

/// What a layer keeps for its attention's backward: t tokens of the rank, Q and 2K numbers of each.
template <class T>
struct ContextSaved {
  T* qkv;        ///< [t, Q + 2K] rotated -> its gradient; all-to-all: [rank, t, (Q + 2K) / N] of the rank's heads
  T* attention;  ///< [t, Q]
  T* keys;       ///< [t, 2K] keys and values to send: its own, or in a ring those of the rank before it
  T* swapped;    ///< all-to-all: [rank, t, Q / N] results of the rank's heads
  T* log_sums;   ///< [t, heads], or [rank, t, heads / N]
  T* product;    ///< all-to-all: [t, Q + 2K] rotated, where it is kept; null: in workspace
};

/// Takes memory, and counts it.
template <class T>
struct Taking {
  T* at;
  std::int64_t size = 0;

  T* take(std::int64_t count) {
    T* const begin = at == nullptr ? nullptr : at + size;
    size += count;
    return begin;
  }
};

/// Queries, keys and values are of a rank's own tokens, those of ContextTokens, but with an all-to-all,
/// where a rank has the tokens of all ranks in the order of ranks, and 1/N of the heads.
template <class T>
class ContextAttention {
 public:
  /// @param part  one tensor-parallel rank's part of the model
  ContextAttention(const Transformer& part, const Batch& batch, const Sharing& sharing)
      : exchange_{sharing.exchange},
        tokens_{batch, sharing.context},
        query_{part.query_width()},
        kv_{2 * part.key_width()},
        heads_{part.heads},
        swap_{exchange_ == ContextExchange::all_to_all ? sharing.context : 1},
        core_{part.heads / swap_, part.kv_heads / swap_, part.head_size(), tokens_, part.window} {}

  const ContextTokens& tokens() const { return tokens_; }

  // ---- sizes, in numbers ------------------------------------------------------------------------

  std::int64_t keys_kept() const { return swaps() ? 0 : keys(); }
  std::int64_t swapped_kept() const { return swaps() ? queries() : 0; }
  std::int64_t product_kept() const { return swaps() ? all() : 0; }
  std::int64_t sums_kept() const { return tokens_.tokens() * heads_; }
  std::int64_t forward_numbers() const { return at_forward(nullptr).size; }
  std::int64_t backward_numbers() const { return at_backward(nullptr).size; }

  // ---- forward ----------------------------------------------------------------------------------

  /// Where the product [t, Q + 2K] goes.
  T* product(const ContextSaved<T>& x, T* work) const {
    if (!swaps()) return x.qkv;
    return x.product == nullptr ? at_forward(work).flat : x.product;
  }
  void rotate_product(const Attention<T>& rotary, const ContextSaved<T>& x, T* work, int rank) const {
    rotate(rotary, product(x, work), rank, T{1});
  }
  /// Gives what is sent of it.
  void send(const ContextSaved<T>& x, T* work) const {
    const T* const qkv = product(x, work);
    const Forward at = at_forward(work);
    if (swaps()) {
      pack(qkv, at.sent);
    } else {
      copy_rows(qkv + query_, width(), exchange_ == ContextExchange::ring ? at.slots : x.keys, kv_, kv_);
    }
  }
  /// The queries' attention to a block of keys, or to all that were gathered.
  void block(const ContextSaved<T>& x, T* work, int rank, int block) const {
    const Forward at = at_forward(work);
    const int own = swaps() ? 0 : rank;
    for (int q = own; q < own + swap_; ++q) {
      const typename ChunkAttention<T>::Running running{results(x, q), x.log_sums + sums_at(q), at.totals + sums_at(q)};
      if (block == 0) core_.begin(running);
      const auto add = [&](const ContextRows<const T>& rows, const T* values) {
        core_.add(queries_of(x, q), rows, values, running, at.scratch);
      };
      if (exchange_ == ContextExchange::ring) {
        add({slot(x, at.slots, block), kv_, before(rank, block)}, slot(x, at.slots, block) + kv_ / 2);
      } else {
        for (int k = 0; k < tokens_.ranks(); ++k) add(keys_of(x, at.slots, k), values_of(x, at.slots, k));
      }
      if (block + 1 == blocks()) core_.end(running);
    }
  }
  /// The results [t, Q] of the rank's own tokens.
  void receive(const ContextSaved<T>& x, T* work) const {
    for (int m = 0; m < swap_; ++m) {
      copy_rows(at_forward(work).received + m * queries() / swap_, query_ / swap_, x.attention + m * (query_ / swap_), query_,
                query_ / swap_);
    }
  }
  ExchangeArgs sent_queries(const ContextSaved<T>& x, T* work) const { return args(at_forward(work).sent, x.qkv, all()); }
  ExchangeArgs sent_results(const ContextSaved<T>& x, T* work) const {
    return args(x.swapped, at_forward(work).received, queries());
  }
  ExchangeArgs gathered_keys(const ContextSaved<T>& x, T* work) const {
    return args(x.keys, at_forward(work).slots, keys() * tokens_.ranks());
  }
  ExchangeArgs passed_keys(const ContextSaved<T>& x, T* work, int block) const {
    T* const slots = at_forward(work).slots;
    return args(slot(x, slots, block), slot(x, slots, block + 1), keys());
  }

  // ---- backward ---------------------------------------------------------------------------------

  /// Gives what is sent of the results' gradient [t, Q].
  void prepare_gradient(const T* gradient, T* work) const {
    if (!swaps()) return;
    T* const sent = at_backward(work).sent;
    for (int m = 0; m < swap_; ++m) {
      copy_rows(gradient + m * (query_ / swap_), query_, sent + m * queries() / swap_, query_ / swap_, query_ / swap_);
    }
  }
  /// Gradients of queries, and of a block of keys or of all.
  void block_gradient(const ContextSaved<T>& x, const T* gradient, T* work, int rank, int block) const {
    const Backward at = at_backward(work);
    const int own = swaps() ? 0 : rank;
    if (block == 0) std::fill_n(at.queries, swaps() ? all() : queries(), T{0});
    if (exchange_ == ContextExchange::all_gather) std::fill_n(at.sums, keys() * tokens_.ranks(), T{0});
    if (exchange_ == ContextExchange::ring) std::fill_n(own_keys(at, block), keys(), T{0});
    for (int q = own; q < own + swap_; ++q) {
      const ContextRows<const T> given = swaps() ? ContextRows<const T>{at.gradient + q * queries() / swap_, query_ / swap_, q}
                                                 : ContextRows<const T>{gradient, query_, q};
      T* const means = at.means + sums_at(q);
      const ContextRows<T> output = results(x, q);
      if (block == 0) core_.mean_products({output.at, output.stride, q}, given, means);
      const typename ChunkAttention<T>::Backward of{.queries = queries_of(x, q),
                                                    .gradient = given,
                                                    .log_sums = x.log_sums + sums_at(q),
                                                    .means = means,
                                                    .query_gradient = query_gradient(at, q)};
      if (exchange_ == ContextExchange::ring) {
        const T* const kv = block == 0 ? x.keys : at.slots[block % 2];
        T* const to = own_keys(at, block);
        core_.backward(of, {kv, kv_, before(rank, block + 1)}, kv + kv_ / 2, {to, kv_, 0}, to + kv_ / 2, at.scratch);
        continue;
      }
      for (int k = 0; k < tokens_.ranks(); ++k) {
        const ContextRows<T> to = key_gradient(at, k);
        core_.backward(of, keys_of(x, at.gathered, k), values_of(x, at.gathered, k), to,
                       to.at + (swaps() ? kv_ / 2 / swap_ : kv_ / 2), at.scratch);
      }
    }
  }
  /// Makes qkv the gradient [t, Q + 2K] of the product.
  void finish_gradient(const Attention<T>& rotary, const ContextSaved<T>& x, T* work, int rank) const {
    const Backward at = at_backward(work);
    if (swaps()) {
      unpack(at.received, x.qkv);
    } else {
      copy_rows(at.queries, query_, x.qkv, width(), query_);
      const bool ring = exchange_ == ContextExchange::ring;
      const T* const kv = ring ? at.slots[tokens_.ranks() % 2] + keys() : at.own;
      copy_rows(kv, kv_, x.qkv + query_, width(), kv_);
      if (ring) {  // those of the other ranks' queries have arrived
        const T* own = own_keys(at, blocks() - 1);
        for (std::int64_t t = 0; t < tokens_.tokens(); ++t, own += kv_) {
          T* const to = x.qkv + t * width() + query_;
          for (std::int64_t j = 0; j < kv_; ++j) to[j] += own[j];
        }
      }
    }
    rotate(rotary, x.qkv, rank, T{-1});
  }
  ExchangeArgs sent_gradient(T* work) const { return args(at_backward(work).sent, at_backward(work).gradient, queries()); }
  ExchangeArgs returned_gradients(T* work) const { return args(at_backward(work).queries, at_backward(work).received, all()); }
  ExchangeArgs gathered_again(const ContextSaved<T>& x, T* work) const {
    return args(x.keys, at_backward(work).gathered, keys() * tokens_.ranks());
  }
  ExchangeArgs summed_keys(T* work) const {
    return args(at_backward(work).sums, at_backward(work).own, keys() * tokens_.ranks());
  }
  /// Keys and values of the next block go on, with the gradients of those of the block before this one:
  /// what has arrived of them, and the rank's own.
  ExchangeArgs passed_gradients(const ContextSaved<T>& x, T* work, int block) const {
    const Backward at = at_backward(work);
    T* const next = at.slots[(block + 1) % 2];
    if (block == 0) return args(x.keys, next, keys());
    const bool last = block + 1 == blocks();
    T* const held = at.slots[block % 2];
    ExchangeArgs both = args(last ? held + keys() : held, last ? next + keys() : next, (last ? 1 : 2) * keys());
    if (block == 1) return both;  // the first block's gradients are where others would have arrived
    both.added = bytes(own_keys(at, block - 1));
    both.added_begin = last ? 0 : keys();
    return both;
  }

 private:
  struct Forward {
    T* flat;      ///< all-to-all: [t, Q + 2K]
    T* sent;      ///< all-to-all: [rank, t, (Q + 2K) / N]
    T* received;  ///< all-to-all: [rank, t, Q / N]
    T* slots;     ///< [rank, t, 2K] as gathered, or [block, t, 2K] as they arrive
    T* totals;    ///< as ContextSaved::log_sums
    T* scratch;
    std::int64_t size;
  };
  struct Backward {
    T* means;     ///< as ContextSaved::log_sums
    T* sent;      ///< all-to-all: [rank, t, Q / N] of the results' gradient
    T* gradient;  ///< as it arrives
    T* queries;   ///< [t, Q], or [rank, t, (Q + 2K) / N] with the keys' and values'
    T* received;  ///< all-to-all: [rank, t, (Q + 2K) / N]
    T* gathered;  ///< all-gather: [rank, t, 2K]
    T* sums;      ///< all-gather: [rank, t, 2K] gradients
    T* own;       ///< all-gather: [t, 2K] their sum over ranks
    T* slots[2];  ///< ring: [2, t, 2K] keys and values of a block, then the gradients of the one before
    T* added[2];  ///< ring: [t, 2K] the rank's own part of gradients
    T* scratch;
    std::int64_t size;
  };

  bool swaps() const { return swap_ > 1; }
  std::int64_t width() const { return query_ + kv_; }
  std::int64_t queries() const { return tokens_.tokens() * query_; }
  std::int64_t keys() const { return tokens_.tokens() * kv_; }
  std::int64_t all() const { return queries() + keys(); }
  int blocks() const { return exchange_ == ContextExchange::ring ? tokens_.ranks() : 1; }
  /// The rank that many places before another.
  int before(int rank, int places) const { return (rank + tokens_.ranks() - places % tokens_.ranks()) % tokens_.ranks(); }
  /// Where a rank's rows begin in what has the tokens of all.
  std::int64_t sums_at(int rank) const { return swaps() ? rank * tokens_.tokens() * core_.heads() : 0; }

  Forward at_forward(T* work) const {
    Taking<T> from{work};
    Forward at{};
    at.flat = from.take(swaps() ? all() : 0);
    at.sent = from.take(swaps() ? all() : 0);
    at.received = from.take(swaps() ? queries() : 0);
    at.slots = from.take(swaps() ? 0 : tokens_.ranks() * keys());
    at.totals = from.take(tokens_.tokens() * heads_);
    at.scratch = from.take(core_.scratch());
    at.size = from.size;
    return at;
  }
  Backward at_backward(T* work) const {
    Taking<T> from{work};
    const bool gathers = exchange_ == ContextExchange::all_gather;
    const bool ring = exchange_ == ContextExchange::ring;
    Backward at{};
    at.means = from.take(tokens_.tokens() * heads_);
    at.sent = from.take(swaps() ? queries() : 0);
    at.gradient = from.take(swaps() ? queries() : 0);
    at.queries = from.take(swaps() ? all() : queries());
    at.received = from.take(swaps() ? all() : 0);
    at.gathered = from.take(gathers ? tokens_.ranks() * keys() : 0);
    at.sums = from.take(gathers ? tokens_.ranks() * keys() : 0);
    at.own = from.take(gathers ? keys() : 0);
    for (T*& slot : at.slots) slot = from.take(ring ? 2 * keys() : 0);
    for (T*& added : at.added) added = from.take(ring ? keys() : 0);
    at.scratch = from.take(core_.scratch());
    at.size = from.size;
    return at;
  }

  ContextRows<const T> queries_of(const ContextSaved<T>& x, int rank) const {
    return swaps() ? ContextRows<const T>{x.qkv + rank * all() / swap_, width() / swap_, rank}
                   : ContextRows<const T>{x.qkv, width(), rank};
  }
  ContextRows<T> results(const ContextSaved<T>& x, int rank) const {
    return swaps() ? ContextRows<T>{x.swapped + rank * queries() / swap_, query_ / swap_, rank}
                   : ContextRows<T>{x.attention, query_, rank};
  }
  ContextRows<const T> keys_of(const ContextSaved<T>& x, const T* gathered, int rank) const {
    if (!swaps()) return {gathered + rank * keys(), kv_, rank};
    return {x.qkv + rank * all() / swap_ + query_ / swap_, width() / swap_, rank};
  }
  const T* values_of(const ContextSaved<T>& x, const T* gathered, int rank) const {
    return keys_of(x, gathered, rank).at + (swaps() ? kv_ / 2 / swap_ : kv_ / 2);
  }
  ContextRows<T> query_gradient(const Backward& at, int rank) const {
    return swaps() ? ContextRows<T>{at.queries + rank * all() / swap_, width() / swap_, rank}
                   : ContextRows<T>{at.queries, query_, rank};
  }
  ContextRows<T> key_gradient(const Backward& at, int rank) const {
    return swaps() ? ContextRows<T>{at.queries + rank * all() / swap_ + query_ / swap_, width() / swap_, rank}
                   : ContextRows<T>{at.sums + rank * keys(), kv_, rank};
  }
  /// Keys and values [t, 2K] of a block of a ring's forward: the second ones are kept, as the backward
  /// begins with them and ends with the rank's own.
  T* slot(const ContextSaved<T>& x, T* slots, int block) const { return block == 1 ? x.keys : slots + block * keys(); }
  /// The rank's own part of the gradients of a block's keys and values.
  T* own_keys(const Backward& at, int block) const { return block == 0 ? at.slots[1] + keys() : at.added[block % 2]; }

  void rotate(const Attention<T>& rotary, T* qkv, int rank, T direction) const {
    for (std::int64_t t = 0; t < tokens_.tokens(); ++t)
      rotary.rotate_token(qkv + t * width(), tokens_.position(rank, t), direction);
  }
  /// `count` numbers of each token.
  void copy_rows(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride, std::int64_t count) const {
    for (std::int64_t t = 0; t < tokens_.tokens(); ++t) std::copy_n(from + t * from_stride, count, to + t * to_stride);
  }
  /// [t, Q + 2K] to [rank, t, (Q + 2K) / N]: the heads of each rank.
  void pack(const T* flat, T* blocks) const {
    for_each_part([&](std::int64_t in_flat, std::int64_t in_blocks, std::int64_t count) {
      copy_rows(flat + in_flat, width(), blocks + in_blocks, width() / swap_, count);
    });
  }
  void unpack(const T* blocks, T* flat) const {
    for_each_part([&](std::int64_t in_flat, std::int64_t in_blocks, std::int64_t count) {
      copy_rows(blocks + in_blocks, width() / swap_, flat + in_flat, width(), count);
    });
  }
  template <class Visit>
  void for_each_part(Visit&& visit) const {
    const std::int64_t query = query_ / swap_;
    const std::int64_t key = kv_ / 2 / swap_;
    for (int m = 0; m < swap_; ++m) {
      const std::int64_t block = m * all() / swap_;
      visit(m * query, block, query);
      visit(query_ + m * key, block + query, key);
      visit(query_ + kv_ / 2 + m * key, block + query + key, key);
    }
  }

  static std::byte* bytes(const T* numbers) { return reinterpret_cast<std::byte*>(const_cast<T*>(numbers)); }
  static ExchangeArgs args(const T* from, const T* to, std::int64_t count) {
    return {.from = bytes(from), .to = bytes(to), .count = count};
  }

  ContextExchange exchange_;
  ContextTokens tokens_;
  std::int64_t query_;
  std::int64_t kv_;
  std::int64_t heads_;
  int swap_;  ///< ranks that have heads of their own
  ChunkAttention<T> core_;
};

}  // namespace tawpipe::layers::host
