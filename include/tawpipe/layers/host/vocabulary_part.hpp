// One rank's part of a decoder's vocabulary, of the tokens that it has: embedding, logits and loss.
// Not: the sums over ranks (layers/tensor_passes.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/layers/context_tokens.hpp"
#include "tawpipe/layers/host/kernels.hpp"

namespace tawpipe::inline v0::layers::host {

/// Rows of the embedding and of the output matrix are divided among tensor-parallel ranks; the last
/// rank's part may be padded. Tokens and targets are those of the microbatch, of which context- and
/// expert-parallel ranks have a part each.
/// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.
template <class T>
class VocabularyPart {
 public:
  /// @param all  entries of the vocabulary. @param own  of one rank's part, padding included
  VocabularyPart(std::int64_t all, std::int64_t own, std::int64_t hidden, const ContextTokens& tokens)
      : all_{all}, own_{own}, hidden_{hidden}, tokens_{tokens} {}

  /// `to` [tokens, hidden]: rows of the tokens in this rank's part, zeros for others.
  /// @throws InputError  naming an id that is not in the vocabulary; so do the others
  void look_up(const T* table, std::span<const std::int32_t> ids, const SharedPart& part, T* to) const {
    check_ids("token", ids);
    for (std::int64_t t = 0; t < tokens_.tokens(); ++t, to += hidden_) {
      const std::int64_t row = id(ids, part, t) - part.tensor * own_;
      if (row >= 0 && row < own_) {
        std::copy_n(table + row * hidden_, hidden_, to);
      } else {
        std::fill_n(to, hidden_, T{0});
      }
    }
  }
  /// Adds `gradient` [tokens, hidden] of such rows to that of the table.
  void add_rows(const T* gradient, std::span<const std::int32_t> ids, const SharedPart& part, T* table) const {
    for (std::int64_t t = 0; t < tokens_.tokens(); ++t, gradient += hidden_) {
      const std::int64_t row = id(ids, part, t) - part.tensor * own_;
      if (row >= 0 && row < own_) add_to(table + row * hidden_, gradient, hidden_);
    }
  }

  /// Of the rank's entries, some: a loss in chunks has the logits [tokens, count] of these at a time.
  struct Chunk {
    std::int64_t begin = 0;
    std::int64_t count = 0;
  };

  /// Those of a chunk join `triple` [tokens, 3] of Combine::softmax; the first one begins it.
  void add_triples(const T* logits, std::span<const std::int32_t> targets, const SharedPart& part, const Chunk& chunk,
                   T* triple) const {
    check_ids("target", targets);
    const std::int64_t entries = entries_of(part, chunk);
    for (std::int64_t t = 0; t < tokens_.tokens() && entries > 0; ++t, triple += 3, logits += chunk.count) {
      const T highest = *std::max_element(logits, logits + entries);
      const bool first = chunk.begin == 0;
      const T most = first ? highest : std::max(highest, triple[0]);
      const std::int64_t target = id(targets, part, t) - part.tensor * own_ - chunk.begin;
      T total = first ? T{0} : triple[1] * std::exp(triple[0] - most);
      for (std::int64_t v = 0; v < entries; ++v) total += std::exp(logits[v] - most);
      triple[0] = most;
      triple[1] = total;
      if (first) triple[2] = 0;
      if (target >= 0 && target < chunk.count) triple[2] = logits[target];
    }
  }
  /// @param triple  of all ranks together. @return the sum of the tokens' losses
  double loss(const T* triple) const {
    double total = 0;
    for (std::int64_t t = 0; t < tokens_.tokens(); ++t, triple += 3)
      total += static_cast<double>(triple[0] + std::log(triple[1])) - static_cast<double>(triple[2]);
    return total;
  }
  /// A chunk's logits become their softmax over all ranks.
  void softmax(const T* triple, const SharedPart& part, const Chunk& chunk, T* logits) const {
    const std::int64_t entries = entries_of(part, chunk);
    for (std::int64_t t = 0; t < tokens_.tokens(); ++t, triple += 3, logits += chunk.count) {
      for (std::int64_t v = 0; v < chunk.count; ++v) logits[v] = v < entries ? std::exp(logits[v] - triple[0]) / triple[1] : T{0};
    }
  }
  /// Softmax becomes `factor` times the gradient of the sum of losses.
  void loss_gradient(T* softmax, std::span<const std::int32_t> targets, const SharedPart& part, const Chunk& chunk,
                     T factor) const {
    for (std::int64_t t = 0; t < tokens_.tokens(); ++t, softmax += chunk.count) {
      const std::int64_t target = id(targets, part, t) - part.tensor * own_ - chunk.begin;
      if (target >= 0 && target < chunk.count) softmax[target] -= T{1};
      scale(softmax, factor, chunk.count);
    }
  }

 private:
  std::int64_t id(std::span<const std::int32_t> ids, const SharedPart& part, std::int64_t t) const {
    const std::int64_t first = part.expert * tokens_.sequences() * tokens_.sequence();
    return ids[static_cast<std::size_t>(first + tokens_.index(part.context, t))];
  }
  /// The entries of a chunk that are no padding; below 1: none.
  std::int64_t entries_of(const SharedPart& part, const Chunk& chunk) const {
    return std::min(chunk.count, all_ - part.tensor * own_ - chunk.begin);
  }
  void check_ids(const char* what, std::span<const std::int32_t> ids) const {
    for (std::size_t t = 0; t < ids.size(); ++t) {
      if (ids[t] >= 0 && ids[t] < all_) continue;
      throw InputError(concat(what, " ", ids[t], " at position ", t, " of the microbatch is not in the vocabulary of ", all_,
                              ", which ends at ", all_ - 1));
    }
  }

  std::int64_t all_;
  std::int64_t own_;
  std::int64_t hidden_;
  ContextTokens tokens_;
};

}  // namespace tawpipe::layers::host
