// The thread-block interface of GPU kernel bodies, and its implementation on the host.
// Not: the bodies (norm_bodies.hpp etc.) nor a GPU's block (launch.cuh).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/layers/cuda/number.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// The grid of a body: its blocks and their memory. A body is a struct of arguments with
/// `Grid grid() const` and `template <class Block> void operator()(Block&) const`, which every
/// thread of every block calls.
///
/// Block: `index()` of `count()` blocks, `row()` in the grid's second dimension, `thread()` of
/// `threads()`; `sum(x)` (of a float, a double or a Pair) and `largest(x)` over the block's
/// threads, returned to all of them; `sync()`; `shared()`: memory of the block's threads,
/// uninitialised. All threads of a block call sum, largest and sync in the same order.
struct Grid {
  std::int64_t blocks = 1;
  int threads = 1;
  int rows = 1;             ///< second dimension
  std::int64_t shared = 0;  ///< floats of shared memory
};

/// Two sums that a block computes at once.
struct Pair {
  float first = 0;
  float second = 0;
  TAWPIPE_HOST_DEVICE friend Pair operator+(Pair a, Pair b) { return {a.first + b.first, a.second + b.second}; }
};

/// The limit on threads of a block: with more, none could have more than 64 registers.
inline constexpr int max_threads = 512;

/// Threads for `work` pieces a block: whole warps.
inline int threads_for(std::int64_t work) { return work >= max_threads ? max_threads : static_cast<int>((work + 31) / 32 * 32); }
/// Blocks for `work` pieces, `each` a block; at most `most`, which loop over the rest.
inline std::int64_t blocks_for(std::int64_t work, std::int64_t each, std::int64_t most = 2048) {
  const std::int64_t blocks = (work + each - 1) / each;
  return blocks < most ? (blocks > 0 ? blocks : 1) : most;
}

/// Calls work(j) for this thread's share of 0, W, 2W, .. below count. @pre W divides count
template <int W, class Block, class Work>
TAWPIPE_HOST_DEVICE inline void each_in_row(const Block& block, std::int64_t count, const Work& work) {
  for (std::int64_t j = std::int64_t{block.thread()} * W; j < count; j += std::int64_t{block.threads()} * W) work(j);
}
/// As each_in_row, over all blocks of the grid.
template <int W, class Block, class Work>
TAWPIPE_HOST_DEVICE inline void each_in_grid(const Block& block, std::int64_t count, const Work& work) {
  const std::int64_t threads = block.threads();
  for (std::int64_t j = (block.index() * threads + block.thread()) * W; j < count; j += block.count() * threads * W) work(j);
}

/// A block of one thread on the host. Marked for both, as the bodies that call it are.
class HostBlock {
 public:
  HostBlock(std::int64_t index, std::int64_t count, int row, float* shared)
      : index_{index}, count_{count}, row_{row}, shared_{shared} {}

  TAWPIPE_HOST_DEVICE std::int64_t index() const { return index_; }
  TAWPIPE_HOST_DEVICE std::int64_t count() const { return count_; }
  TAWPIPE_HOST_DEVICE int row() const { return row_; }
  TAWPIPE_HOST_DEVICE int thread() const { return 0; }
  TAWPIPE_HOST_DEVICE int threads() const { return 1; }
  template <class F>
  TAWPIPE_HOST_DEVICE F sum(F x) const {
    return x;
  }
  TAWPIPE_HOST_DEVICE float largest(float x) const { return x; }
  TAWPIPE_HOST_DEVICE void sync() const {}
  TAWPIPE_HOST_DEVICE float* shared() const { return shared_; }

 private:
  std::int64_t index_;
  std::int64_t count_;
  int row_;
  float* shared_;
};

/// Runs a body on host memory, one block after another.
template <class Body>
void run_on_host(const Body& body) {
  const Grid grid = body.grid();
  std::vector<float> shared(static_cast<std::size_t>(grid.shared));
  for (int row = 0; row < grid.rows; ++row) {
    for (std::int64_t index = 0; index < grid.blocks; ++index) {
      const HostBlock block{index, grid.blocks, row, shared.data()};
      body(block);
    }
  }
}

}  // namespace tawpipe::layers::cuda
