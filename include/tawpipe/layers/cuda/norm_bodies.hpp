// RMSNorm on a GPU: forward, and backward with the sums of gradients that surround it.
// Not: other kernels (decoder_bodies.hpp, loss_bodies.hpp) nor their launch (launch.cuh).
#pragma once

#include <cmath>
#include <cstdint>

#include "tawpipe/layers/cuda/block.hpp"
#include "tawpipe/layers/cuda/number.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// y = RMSNorm(x) with the weights `gain` [hidden]; x and y are [rows, hidden]. One block a row.
/// Source: Zhang and Sennrich 2019, arXiv:1910.07467, equation 4.
template <class T>
struct RmsNorm {
  const T* x;
  const T* gain;
  T* y;
  std::int64_t rows;
  std::int64_t hidden;
  float epsilon;
  bool packs = in_packs(hidden, x, gain, y);

  Grid grid() const { return {.blocks = rows, .threads = threads_for(hidden / (packs ? pack_size<T> : 1))}; }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    packs ? run<pack_size<T>>(block) : run<1>(block);
  }

 private:
  template <int W, class Block>
  TAWPIPE_HOST_DEVICE void run(const Block& block) const {
    const T* const from = x + block.index() * hidden;
    T* const to = y + block.index() * hidden;
    float squares = 0;
    each_in_row<W>(block, hidden, [&](std::int64_t j) {
      const Floats<W> v = load<W>(from + j);
      for (int k = 0; k < W; ++k) squares += v.at[k] * v.at[k];
    });
    const float scale = 1.0F / sqrtf(block.sum(squares) / static_cast<float>(hidden) + epsilon);
    each_in_row<W>(block, hidden, [&](std::int64_t j) {
      Floats<W> v = load<W>(from + j);
      const Floats<W> g = load<W>(gain + j);
      for (int k = 0; k < W; ++k) v.at[k] = v.at[k] * scale * g.at[k];
      store<W>(to + j, v);
    });
  }
};

/// Given the gradient [rows, hidden] of RMSNorm's output, writes to `to` the sum of `residual` and
/// the gradient of its input x, and to `partial` [blocks(rows), hidden] the gradient of the
/// weights, each block's own sum. If `keep` is given, the previous contents of `to` are stored
/// there first. `to` and `keep` may be x; `residual` is null or another tensor.
///
/// A block loops over its rows. A thread has the same columns of each, up to two packs, so their
/// sums and the data read twice from a row are in its registers. For wider rows the sums are in the
/// block's memory, or in `partial` itself.
template <class T>
struct RmsNormBackward {
  const T* x;
  const T* gain;
  const T* gradient;
  const T* residual;
  T* to;
  T* keep;
  float* partial;
  std::int64_t rows;
  std::int64_t hidden;
  float epsilon;
  bool packs = in_packs(hidden, x, gain, gradient, residual, to, keep, partial);

  static constexpr int together = 2;  ///< blocks per processor: a thread has up to 64 registers
  static constexpr std::int64_t max_blocks = 512;
  /// floats, within the 48 KiB available to every block
  static constexpr std::int64_t max_shared = 11 * 1024;

  static std::int64_t blocks(std::int64_t rows) { return rows < max_blocks ? rows : max_blocks; }
  Grid grid() const {
    return {.blocks = blocks(rows),
            .threads = threads_for(hidden / (packs ? pack_size<T> : 1)),
            .shared = hidden <= max_shared ? hidden : 0};
  }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    packs ? run<pack_size<T>>(block) : run<1>(block);
  }

 private:
  template <int W, class Block>
  TAWPIPE_HOST_DEVICE void run(const Block& block) const {
    const std::int64_t in_one = std::int64_t{block.threads()} * W;
    if (hidden <= in_one) {
      in_registers<W, 1>(block);
    } else if (hidden <= 2 * in_one) {
      in_registers<W, 2>(block);
    } else {
      in_memory<W>(block);
    }
  }
  TAWPIPE_HOST_DEVICE float scale_of(float squares) const { return 1.0F / sqrtf(squares / static_cast<float>(hidden) + epsilon); }
  TAWPIPE_HOST_DEVICE float back_of(float along, float scale) const {
    return along / static_cast<float>(hidden) * scale * scale * scale;
  }
  template <int W>
  TAWPIPE_HOST_DEVICE static void add(Pair& sums, const Floats<W>& v, const Floats<W>& g, const Floats<W>& d) {
    for (int k = 0; k < W; ++k) {
      sums.first += v.at[k] * v.at[k];
      sums.second += g.at[k] * d.at[k] * v.at[k];
    }
  }
  /// Stores the numbers from `at` on and adds to the sums of their columns.
  template <int W>
  TAWPIPE_HOST_DEVICE void finish(std::int64_t at, const Floats<W>& v, const Floats<W>& g, const Floats<W>& d, float scale,
                                  float back, Floats<W>& sums) const {
    Floats<W> rest{};
    if (residual != nullptr) rest = load<W>(residual + at);
    for (int k = 0; k < W; ++k) {
      sums.at[k] += d.at[k] * (v.at[k] * scale);
      rest.at[k] += g.at[k] * d.at[k] * scale - v.at[k] * back;
    }
    if (keep != nullptr) store<W>(keep + at, load<W>(to + at));
    store<W>(to + at, rest);
  }

  template <int W, int parts, class Block>
  TAWPIPE_HOST_DEVICE void in_registers(const Block& block) const {
    const std::int64_t mine = std::int64_t{block.thread()} * W;
    const std::int64_t step = std::int64_t{block.threads()} * W;
    Floats<W> sums[parts] = {};
    for (std::int64_t row = block.index(); row < rows; row += block.count()) {
      const std::int64_t begin = row * hidden;
      Packed<W, T> values[parts] = {};
      Packed<W, T> slopes[parts] = {};
      Pair both;
      for (int p = 0; p < parts; ++p) {
        const std::int64_t j = mine + p * step;
        if (j >= hidden) continue;
        values[p] = load_packed<W>(x + begin + j);
        slopes[p] = load_packed<W>(gradient + begin + j);
        add(both, values[p].floats(), load<W>(gain + j), slopes[p].floats());
      }
      both = block.sum(both);
      const float scale = scale_of(both.first);
      const float back = back_of(both.second, scale);
      for (int p = 0; p < parts; ++p) {
        const std::int64_t j = mine + p * step;
        if (j >= hidden) continue;
        finish(begin + j, values[p].floats(), load<W>(gain + j), slopes[p].floats(), scale, back, sums[p]);
      }
    }
    for (int p = 0; p < parts; ++p) {
      const std::int64_t j = mine + p * step;
      if (j < hidden) store<W>(partial + block.index() * hidden + j, sums[p]);
    }
  }
  template <int W, class Block>
  TAWPIPE_HOST_DEVICE void in_memory(const Block& block) const {
    float* const own = partial + block.index() * hidden;
    float* const sums = hidden <= max_shared ? block.shared() : own;  // a thread uses its own columns only
    each_in_row<W>(block, hidden, [&](std::int64_t j) { store<W>(sums + j, Floats<W>{}); });
    for (std::int64_t row = block.index(); row < rows; row += block.count()) {
      const std::int64_t begin = row * hidden;
      Pair both;
      each_in_row<W>(block, hidden, [&](std::int64_t j) {
        add(both, load<W>(x + begin + j), load<W>(gain + j), load<W>(gradient + begin + j));
      });
      both = block.sum(both);
      const float scale = scale_of(both.first);
      const float back = back_of(both.second, scale);
      each_in_row<W>(block, hidden, [&](std::int64_t j) {
        const std::int64_t at = begin + j;
        Floats<W> column = load<W>(sums + j);
        finish(at, load<W>(x + at), load<W>(gain + j), load<W>(gradient + at), scale, back, column);
        store<W>(sums + j, column);
      });
    }
    if (sums == own) return;
    each_in_row<W>(block, hidden, [&](std::int64_t j) { store<W>(own + j, load<W>(sums + j)); });
  }
};

/// to[j] = sum over i of partial[i, j]: partial is [rows, columns]. Always in the same order.
struct SumRows {
  const float* partial;
  std::int64_t rows;
  std::int64_t columns;
  float* to;

  static constexpr int width = 32;   ///< columns of a block
  static constexpr int slices = 16;  ///< each sums every 16th row

  Grid grid() const { return {.blocks = (columns + width - 1) / width, .threads = width * slices, .shared = width * slices}; }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    float* const sums = block.shared();
    const std::int64_t first = block.index() * width;
    for (int p = block.thread(); p < width * slices; p += block.threads()) {
      const std::int64_t j = first + p % width;
      float sum = 0;
      for (std::int64_t i = p / width; j < columns && i < rows; i += slices) sum += partial[i * columns + j];
      sums[p] = sum;
    }
    block.sync();
    for (int c = block.thread(); c < width && first + c < columns; c += block.threads()) {
      float sum = 0;
      for (int slice = 0; slice < slices; ++slice) sum += sums[slice * width + c];
      to[first + c] = sum;
    }
  }
};

/// to += from, [count]: gradients of norms' weights. G: float or a 16-bit number.
template <class G>
struct AddTo {
  const float* from;
  G* to;
  std::int64_t count;

  Grid grid() const { return {.blocks = blocks_for(count, 128), .threads = 128}; }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    each_in_grid<1>(block, count, [&](std::int64_t j) { to[j] = narrow<G>(widen(to[j]) + from[j]); });
  }
};

}  // namespace tawpipe::layers::cuda
