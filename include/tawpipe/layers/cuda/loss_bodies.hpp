// Cross entropy on a GPU: its sums, the mean loss, and the gradient of the logits.
// Not: the logits (a matrix product) nor the scale of losses in float16 (adamw_bodies.hpp).
#pragma once

#include <cmath>
#include <cstdint>

#include "tawpipe/layers/cuda/block.hpp"
#include "tawpipe/layers/cuda/number.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// sums[row] = log(sum(exp(logits))) of each row of logits [rows, vocab], in one pass over them,
/// and wanted[row] the logit of its target. Or for a part of the vocabulary: entries from `begin`
/// on, whose sum is added to the existing one unless they are the first, and only whose targets are
/// used. One block a row.
template <class T>
struct LogSumExp {
  const T* logits;
  const std::int32_t* targets;
  float* sums;
  float* wanted;
  std::int64_t rows;
  std::int64_t vocab;      ///< entries here
  std::int64_t begin = 0;  ///< the first of them
  bool packs = in_packs(vocab, logits);

  Grid grid() const { return {.blocks = rows, .threads = threads_for(vocab / (packs ? pack_size<T> : 1))}; }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    packs ? run<pack_size<T>>(block) : run<1>(block);
  }

 private:
  template <int W, class Block>
  TAWPIPE_HOST_DEVICE void run(const Block& block) const {
    const T* const row = logits + block.index() * vocab;
    float most = -3.0e38F;
    float sum = 0;  // of exp(x - most)
    each_in_row<W>(block, vocab, [&](std::int64_t j) {
      const Floats<W> v = load<W>(row + j);
      float larger = most;
      for (int k = 0; k < W; ++k) larger = v.at[k] > larger ? v.at[k] : larger;
      sum *= expf(most - larger);
      for (int k = 0; k < W; ++k) sum += expf(v.at[k] - larger);
      most = larger;
    });
    const float largest = block.largest(most);
    const float total = block.sum(sum * expf(most - largest));
    if (block.thread() != 0) return;
    const float own = largest + logf(total);
    float& all = sums[block.index()];
    if (begin == 0) {
      all = own;
    } else {
      const float more = all > own ? all : own;
      all = more + logf(expf(all - more) + expf(own - more));
    }
    const std::int64_t target = targets[block.index()] - begin;
    if (target >= 0 && target < vocab) wanted[block.index()] = widen(row[target]);
  }
};

/// *loss = mean over rows of sums[row] - wanted[row]. One block.
struct MeanLoss {
  const float* sums;
  const float* wanted;
  double* loss;
  std::int64_t rows;

  Grid grid() const { return {.threads = max_threads}; }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    double sum = 0;
    each_in_row<1>(block, rows,
                   [&](std::int64_t row) { sum += static_cast<double>(sums[row]) - static_cast<double>(wanted[row]); });
    const double total = block.sum(sum);
    if (block.thread() == 0) *loss = total / static_cast<double>(rows);
  }
};

/// logits [rows, vocab], of entries from `begin` on, become their gradient: (softmax - 1 at the
/// target) factor *loss_scale. One block a row.
template <class T>
struct CrossEntropyBackward {
  T* logits;
  const float* sums;  ///< from LogSumExp
  const std::int32_t* targets;
  std::int64_t rows;
  std::int64_t vocab;
  float factor;             ///< the loss's weight / rows
  const float* loss_scale;  ///< null: 1
  std::int64_t begin = 0;
  bool packs = in_packs(vocab, logits);

  Grid grid() const { return {.blocks = rows, .threads = threads_for(vocab / (packs ? pack_size<T> : 1))}; }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    packs ? run<pack_size<T>>(block) : run<1>(block);
  }

 private:
  template <int W, class Block>
  TAWPIPE_HOST_DEVICE void run(const Block& block) const {
    T* const row = logits + block.index() * vocab;
    const float sum = sums[block.index()];
    const std::int64_t target = targets[block.index()] - begin;
    const float weight = loss_scale == nullptr ? factor : factor * *loss_scale;
    each_in_row<W>(block, vocab, [&](std::int64_t j) {
      Floats<W> v = load<W>(row + j);
      for (int k = 0; k < W; ++k) v.at[k] = (expf(v.at[k] - sum) - (j + k == target ? 1.0F : 0.0F)) * weight;
      store<W>(row + j, v);
    });
  }
};

}  // namespace tawpipe::layers::cuda
