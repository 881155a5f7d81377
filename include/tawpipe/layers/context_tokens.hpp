// Which tokens of a microbatch a context- or expert-parallel rank has.
// Not: how ranks exchange keys and values (layers/context_passes.hpp).
#pragma once

#include <cstdint>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/shared_stage.hpp"

namespace tawpipe::inline v0::layers {

/// What expert-parallel ranks have of a microbatch each.
/// @throws InputError  if its sequences cannot be divided
inline Batch batch_of_rank(Batch batch, const Sharing& sharing) {
  if (batch.microbatch_size % sharing.expert != 0) {
    throw InputError(concat("expert parallelism among ", sharing.expert, " ranks: a microbatch of ", batch.microbatch_size,
                            " sequences cannot be shared equally; choose a multiple"));
  }
  batch.microbatch_size /= sharing.expert;
  batch.global_batch /= sharing.expert;
  return batch;
}

/// Each sequence is cut into 2N chunks for N ranks; rank r has chunks r and 2N-1-r, in this order, so
/// that all have equal work under a causal mask. One rank has all tokens in their order.
/// Source: Transformer Engine, pytorch/attention/dot_product_attention/context_parallel.py;
/// Megatron-LM, core/utils.py, get_batch_on_this_cp_rank.
class ContextTokens {
 public:
  /// @throws InputError  if a sequence cannot be cut so
  ContextTokens(const Batch& batch, int ranks)
      : ranks_{ranks}, sequences_{batch.microbatch_size}, sequence_{batch.sequence}, chunk_{batch.sequence / (ranks * chunks())} {
    if (chunk_ * ranks * chunks() == sequence_) return;
    throw InputError(concat("context parallelism among ", ranks, " ranks cuts each sequence into ", ranks * chunks(),
                            " equal parts; ", sequence_, " tokens are no multiple of that"));
  }

  int ranks() const { return ranks_; }
  std::int64_t sequences() const { return sequences_; }
  /// Tokens of one.
  std::int64_t sequence() const { return sequence_; }
  /// Chunks of a sequence that a rank has.
  int chunks() const { return ranks_ == 1 ? 1 : 2; }
  /// Tokens of a chunk.
  std::int64_t chunk() const { return chunk_; }
  /// Tokens of a rank in a microbatch: [sequence, chunk, token].
  std::int64_t tokens() const { return sequences_ * chunks() * chunk_; }
  /// Where a rank's chunk begins in its sequence.
  std::int64_t begin(int rank, int chunk) const { return chunk_ * (chunk == 0 ? rank : 2 * ranks_ - 1 - rank); }
  /// The position in its sequence of a rank's t-th token.
  std::int64_t position(int rank, std::int64_t t) const {
    const std::int64_t inside = t % (chunks() * chunk_);
    return begin(rank, static_cast<int>(inside / chunk_)) + inside % chunk_;
  }
  /// Its index in the microbatch.
  std::int64_t index(int rank, std::int64_t t) const { return t / (chunks() * chunk_) * sequence_ + position(rank, t); }

 private:
  int ranks_;
  std::int64_t sequences_;
  std::int64_t sequence_;
  std::int64_t chunk_;
};

}  // namespace tawpipe::layers
