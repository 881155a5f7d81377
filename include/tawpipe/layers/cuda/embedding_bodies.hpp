// The embedding on a GPU: the lookup of tokens' rows, and the sum of their gradients by id.
// Not: the output matrix, a product (cuda_math.hpp), nor launches (launch.cuh).
#pragma once

#include <cstdint>

#include "tawpipe/layers/cuda/block.hpp"
#include "tawpipe/layers/cuda/number.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// x [tokens, hidden] = the tokens' rows of table [vocab, hidden]. One block a token.
template <class T>
struct LookUp {
  const std::int32_t* ids;
  const T* table;
  T* x;
  std::int64_t tokens;
  std::int64_t hidden;
  bool packs = in_packs(hidden, table, x);

  Grid grid() const { return {.blocks = tokens, .threads = threads_for(hidden / (packs ? pack_size<T> : 1))}; }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    packs ? run<pack_size<T>>(block) : run<1>(block);
  }

 private:
  template <int W, class Block>
  TAWPIPE_HOST_DEVICE void run(const Block& block) const {
    const T* const from = table + ids[block.index()] * hidden;
    T* const to = x + block.index() * hidden;
    each_in_row<W>(block, hidden, [&](std::int64_t j) { store<W>(to + j, load<W>(from + j)); });
  }
};

/// A token in the order of ids; those of one id are in their own order.
struct alignas(16) TokenPlace {
  std::int32_t token;
  std::int32_t id;
  std::int32_t before;  ///< tokens of this id before it
  std::int32_t count;   ///< tokens of this id
};

/// places [tokens]: the order of ids. Each token is compared with each, which takes no memory: 2.7e8
/// comparisons for 16,384 tokens, of ids from the cache.
/// @pre tokens < 2^30
struct SortTokens {
  const std::int32_t* ids;
  TokenPlace* places;
  std::int64_t tokens;

  static constexpr int width = 32;  ///< tokens of a block: a warp reads the same ids
  static constexpr int slices = 8;  ///< each compares with every 8th id

  Grid grid() const { return {.blocks = (tokens + width - 1) / width, .threads = width * slices, .shared = 3 * width * slices}; }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    auto* const smaller = reinterpret_cast<std::int32_t*>(block.shared());
    std::int32_t* const before = smaller + width * slices;
    std::int32_t* const equal = before + width * slices;
    const auto first = static_cast<std::int32_t>(block.index()) * width;
    const auto count = static_cast<std::int32_t>(tokens);  // 32 bits: the loop below is all of the work
    for (int p = block.thread(); p < width * slices; p += block.threads()) {
      smaller[p] = before[p] = equal[p] = 0;
      const std::int32_t t = first + p % width;
      if (t >= count) continue;
      const std::int32_t id = ids[t];
      std::int32_t of_smaller = 0;
      std::int32_t of_before = 0;
      std::int32_t of_equal = 0;
      for (std::int32_t u = p / width; u < count; u += slices) {
        const std::int32_t other = ids[u];
        of_smaller += other < id ? 1 : 0;
        of_equal += other == id ? 1 : 0;
        of_before += other == id && u < t ? 1 : 0;
      }
      smaller[p] = of_smaller;
      before[p] = of_before;
      equal[p] = of_equal;
    }
    block.sync();
    for (int c = block.thread(); c < width && first + c < count; c += block.threads()) {
      TokenPlace mine{first + c, ids[first + c], 0, 0};
      std::int32_t place = 0;
      for (int p = c; p < width * slices; p += width) {
        place += smaller[p] + before[p];
        mine.before += before[p];
        mine.count += equal[p];
      }
      places[place] = mine;
    }
  }
};

/// Rows of an id that are summed one after another: a run. So a token that is half of a batch takes
/// the time of a run and of adding up the runs' sums. Those fit in RmsNormBackward::max_blocks rows.
/// The length depends on the number of tokens alone, and so the bits do not on the launch.
TAWPIPE_HOST_DEVICE inline std::int64_t rows_of_run(std::int64_t tokens) {
  constexpr std::int64_t shortest = 64;
  constexpr std::int64_t most_runs = 256;
  const std::int64_t rows = (tokens + most_runs - 1) / most_runs;
  return rows > shortest ? rows : shortest;
}
/// The row of `runs` of an id's run; its tokens are from place `begin` on. Of ids with several runs,
/// one first run at most and one later run begin within `rows` places: all but an id's last are
/// whole.
TAWPIPE_HOST_DEVICE inline std::int64_t row_of_run(std::int64_t begin, std::int64_t run, std::int64_t rows) {
  return 2 * (begin / rows + run) + (run == 0 ? 1 : 0);
}

/// row_at(0) + .. + row_at(count - 1), in this order: W numbers of each. Loads a few rows before it
/// adds them, or each would wait for the memory.
template <int W, class RowAt>
TAWPIPE_HOST_DEVICE inline Floats<W> sum_of_rows(std::int64_t count, const RowAt& row_at) {
  constexpr int ahead = 8;
  Floats<W> sum{};
  for (std::int64_t i = 0; i < count; i += ahead) {
    decltype(load_packed<W>(row_at(0))) rows[ahead] = {};
    for (int a = 0; a < ahead; ++a) {
      if (i + a < count) rows[a] = load_packed<W>(row_at(i + a));
    }
    for (int a = 0; a < ahead; ++a) {
      const Floats<W> row = rows[a].floats();
      for (int k = 0; k < W; ++k) sum.at[k] += row.at[k];
    }
  }
  return sum;
}

namespace detail {

inline constexpr int row_threads = 256;

/// A grid of `blocks`, and rows of it for `hidden` columns, a pack or a number a thread.
inline Grid grid_of_columns(std::int64_t blocks, std::int64_t hidden, int width) {
  const std::int64_t columns = std::int64_t{row_threads} * width;
  return {.blocks = blocks, .threads = row_threads, .rows = static_cast<int>((hidden + columns - 1) / columns)};
}
/// Calls work(j) for this thread's share of that row's columns, W of them from j on.
template <int W, class Block, class Work>
TAWPIPE_HOST_DEVICE inline void each_of_columns(const Block& block, std::int64_t hidden, const Work& work) {
  const std::int64_t first = block.row() * std::int64_t{row_threads} * W;
  const std::int64_t rest = hidden - first;
  each_in_row<W>(block, rest < row_threads * W ? rest : row_threads * W, [&](std::int64_t j) { work(first + j); });
}
/// to[0] .. to[W - 1] += sum, rounded once.
template <int W, class G>
TAWPIPE_HOST_DEVICE inline void add_to(G* to, Floats<W> sum) {
  const Floats<W> had = load<W>(to);
  for (int k = 0; k < W; ++k) sum.at[k] += had.at[k];
  store<W>(to, sum);
}

}  // namespace detail

/// Sums the rows of `gradient` [tokens, hidden] by runs of an id: into its row of `table` [vocab,
/// hidden] if it has one run, else into `runs`. One block a place, of which those at the begin of a
/// run work.
template <class T, class G>
struct SumRuns {
  const TokenPlace* places;
  const T* gradient;
  G* table;
  float* runs;
  std::int64_t tokens;
  std::int64_t hidden;
  bool packs = in_packs(hidden, gradient, table, runs);

  Grid grid() const { return detail::grid_of_columns(tokens, hidden, packs ? pack_size<T> : 1); }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    packs ? run<pack_size<T>>(block) : run<1>(block);
  }

 private:
  template <int W, class Block>
  TAWPIPE_HOST_DEVICE void run(const Block& block) const {
    const std::int64_t rows = rows_of_run(tokens);
    const TokenPlace* const from = places + block.index();
    const TokenPlace first = *from;
    if (first.before % rows != 0) return;
    const std::int64_t left = first.count - first.before;
    detail::each_of_columns<W>(block, hidden, [&](std::int64_t j) {
      const Floats<W> sum =
          sum_of_rows<W>(left < rows ? left : rows, [&](std::int64_t i) { return gradient + from[i].token * hidden + j; });
      if (first.count <= rows) {
        detail::add_to<W>(table + first.id * hidden + j, sum);
      } else {
        store<W>(runs + row_of_run(block.index() - first.before, first.before / rows, rows) * hidden + j, sum);
      }
    });
  }
};

/// Adds the sums of ids with several runs to `table`. One block for as many places as a run has: at
/// most one such id begins there.
template <class G>
struct AddRuns {
  const TokenPlace* places;
  const float* runs;
  G* table;
  std::int64_t tokens;
  std::int64_t hidden;
  bool packs = in_packs(hidden, runs, table);

  Grid grid() const {
    const std::int64_t rows = rows_of_run(tokens);
    return detail::grid_of_columns((tokens + rows - 1) / rows, hidden, packs ? pack_size<G> : 1);
  }
  template <class Block>
  TAWPIPE_HOST_DEVICE void operator()(const Block& block) const {
    packs ? run<pack_size<G>>(block) : run<1>(block);
  }

 private:
  template <int W, class Block>
  TAWPIPE_HOST_DEVICE void run(const Block& block) const {
    const std::int64_t rows = rows_of_run(tokens);
    const std::int64_t first = block.index() * rows;
    float found = -1;  // a float holds numbers below 2^24, which a run's rows are
    each_in_row<1>(block, tokens - first < rows ? tokens - first : rows, [&](std::int64_t i) {
      if (places[first + i].before == 0 && places[first + i].count > rows) found = static_cast<float>(i);
    });
    found = block.largest(found);
    if (found < 0) return;
    const std::int64_t begin = first + static_cast<std::int64_t>(found);
    const TokenPlace place = places[begin];
    detail::each_of_columns<W>(block, hidden, [&](std::int64_t j) {
      detail::add_to<W>(table + place.id * hidden + j, sum_of_rows<W>((place.count + rows - 1) / rows, [&](std::int64_t i) {
                          return runs + row_of_run(begin, i, rows) * hidden + j;
                        }));
    });
  }
};

/// Adds the rows of `gradient` [tokens, hidden] to their ids' rows of `table` [vocab, hidden]: those
/// of an id are summed in float, by runs and then the runs' sums, and added once. The same bits in
/// every run and for every launch, without atomics.
template <class T, class G>
struct LookUpBackward {
  const std::int32_t* ids;
  const T* gradient;
  G* table;
  TokenPlace* places;  ///< [tokens] of scratch
  float* runs;         ///< [RmsNormBackward::blocks(tokens), hidden] of scratch
  std::int64_t tokens;
  std::int64_t hidden;

  /// Calls run(body) for each of its kernels, in order.
  template <class Run>
  void each(Run&& run) const {
    run(SortTokens{ids, places, tokens});
    run(SumRuns<T, G>{places, gradient, table, runs, tokens, hidden});
    if (tokens > rows_of_run(tokens)) run(AddRuns<G>{places, runs, table, tokens, hidden});
  }
};

}  // namespace tawpipe::layers::cuda
