// A decoder's GPU kernels other than products, norms and attention: rotation, SwiGLU, copies.
// Not: the embedding (embedding_bodies.hpp), norms (norm_bodies.hpp), the loss (loss_bodies.hpp),
// launches (launch.cuh).
#pragma once

#include <cmath>
#include <cstdint>

#include "tawpipe/layers/cuda/block.hpp"
#include "tawpipe/layers/cuda/number.hpp"

namespace tawpipe::inline v0::layers::cuda {

TAWPIPE_HOST_DEVICE inline float sigmoid_of(float x) { return 1.0F / (1.0F + expf(-x)); }

/// Rotates adjacent pairs of the first `turned` columns of `from` [tokens, columns] by their
/// token's position and stores them in `to`, which may be `from`; copies the others up to `stored`.
/// One block a token. Source: Su et al. 2021, RoFormer, arXiv:2104.09864, equation 34.
template <class T>
struct Rotate {
  const T* from;
  T* to;
  const float* table;  ///< [sequence, size]: cosine and sine of each pair
  std::int64_t tokens;
  std::int64_t columns;
  std::int64_t turned;    ///< a multiple of size
  std::int64_t stored;    ///< turned, or columns
  std::int64_t sequence;  ///< tokens of one sequence
  std::int32_t size;      ///< of a head
  float direction;        ///< 1, or -1 to rotate back
  bool packs = in_packs(columns, from, to) && in_packs(size, from, to, table);

  Grid grid() const { return {.blocks = tokens, .threads = threads_for(stored / (packs ? pack_size<T> : 2))}; }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    packs ? run<pack_size<T>>(block) : run<2>(block);
  }

 private:
  template <int W, class Block>
  TAWPIPE_HOST_DEVICE void run(const Block& block) const {
    const T* const token = from + block.index() * columns;
    T* const result = to + block.index() * columns;
    const float* const position = table + block.index() % sequence * size;
    each_in_row<W>(block, stored, [&](std::int64_t j) {
      Floats<W> v = load<W>(token + j);
      if (j < turned) {
        const Floats<W> angle = load<W>(position + static_cast<std::int32_t>(j) % size);
        for (int k = 0; k < W; k += 2) {
          const float even = v.at[k];
          const float odd = v.at[k + 1];
          const float sine = direction * angle.at[k + 1];
          v.at[k] = even * angle.at[k] - odd * sine;
          v.at[k + 1] = even * sine + odd * angle.at[k];
        }
      }
      store<W>(result + j, v);
    });
  }
};

/// A number of adjacent elements, as a compile-time constant.
template <int W>
struct Width {
  static constexpr int value = W;
};
/// Calls work(Width<W>{}, j) for this thread's share of `count` numbers, W of them from j on: a
/// pack of T, or one.
template <class T, class Block, class Work>
TAWPIPE_HOST_DEVICE inline void each_pack(const Block& block, std::int64_t count, bool packs, const Work& work) {
  if (packs) return each_in_grid<pack_size<T>>(block, count, [&](std::int64_t j) { work(Width<pack_size<T>>{}, j); });
  each_in_grid<1>(block, count, [&](std::int64_t j) { work(Width<1>{}, j); });
}
/// The grid for that.
template <class T>
Grid grid_of_packs(std::int64_t count, bool packs) {
  return {.blocks = blocks_for(count, 256 * (packs ? pack_size<T> : 1)), .threads = 256};
}

/// product = silu(gate) up, all [count]. Source: Shazeer 2020, arXiv:2002.05202, equation 6.
template <class T>
struct Swiglu {
  const T* gate;
  const T* up;
  T* product;
  std::int64_t count;
  bool packs = in_packs(count, gate, up, product);

  Grid grid() const { return grid_of_packs<T>(count, packs); }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    each_pack<T>(block, count, packs, [&](auto width, std::int64_t j) {
      constexpr int W = decltype(width)::value;
      Floats<W> g = load<W>(gate + j);
      const Floats<W> u = load<W>(up + j);
      for (int k = 0; k < W; ++k) g.at[k] = g.at[k] * sigmoid_of(g.at[k]) * u.at[k];
      store<W>(product + j, g);
    });
  }
};

/// `gate` and `up` become their gradients, given that of their product.
template <class T>
struct SwigluBackward {
  T* gate;
  T* up;
  const T* gradient;
  std::int64_t count;
  bool packs = in_packs(count, gate, up, gradient);

  Grid grid() const { return grid_of_packs<T>(count, packs); }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    each_pack<T>(block, count, packs, [&](auto width, std::int64_t j) {
      constexpr int W = decltype(width)::value;
      Floats<W> g = load<W>(gate + j);
      Floats<W> u = load<W>(up + j);
      const Floats<W> d = load<W>(gradient + j);
      for (int k = 0; k < W; ++k) {
        const float sigmoid = sigmoid_of(g.at[k]);
        const float silu = g.at[k] * sigmoid;
        g.at[k] = d.at[k] * u.at[k] * (sigmoid + silu * (1.0F - sigmoid));
        u.at[k] = d.at[k] * silu;
      }
      store<W>(gate + j, g);
      store<W>(up + j, u);
    });
  }
};

/// to = from, [count].
template <class T>
struct CopyNumbers {
  const T* from;
  T* to;
  std::int64_t count;
  bool packs = in_packs(count, from, to);

  Grid grid() const { return grid_of_packs<T>(count, packs); }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    each_pack<T>(block, count, packs, [&](auto width, std::int64_t j) {
      constexpr int W = decltype(width)::value;
      store<W>(to + j, load<W>(from + j));
    });
  }
};

}  // namespace tawpipe::layers::cuda
