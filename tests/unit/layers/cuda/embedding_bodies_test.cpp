// The bodies of the embedding, on a host with one thread and with several: each id's rows in runs,
// the same bits whatever the threads.
// Not: other bodies (bodies_test.cpp), nor a GPU (tests/gpu/).
#include "tawpipe/layers/cuda/embedding_bodies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "support/kernel_numbers.hpp"
#include "support/random.hpp"
#include "support/threaded_block.hpp"
#include "tawpipe/layers/cuda/norm_bodies.hpp"

namespace {

namespace cuda = tawpipe::layers::cuda;
using cuda::widen;
using support::numbers;
using tawpipe::Bfloat16;
using tawpipe::Half;

constexpr std::int32_t vocab = 9;

/// In no order; two ids with several runs, of which one ends within the places where the other begins.
std::vector<std::int32_t> mixed_ids(std::int64_t tokens) {
  support::Random random{1};
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int32_t draw = random.between(0, 19);
    ids.push_back(draw < 8 ? 4 : draw < 15 ? 5 : draw % vocab);
  }
  return ids;
}

/// What LookUpBackward makes of `table`. @param threads  0: a block of one, without a team
template <class T, class G>
std::vector<G> backward(const std::vector<std::int32_t>& ids, const std::vector<T>& gradient, std::vector<G> table,
                        std::int64_t hidden, int threads) {
  std::vector<cuda::TokenPlace> places(ids.size());
  const std::int64_t rows = cuda::RmsNormBackward<T>::blocks(std::ssize(ids));
  std::vector<float> runs(static_cast<std::size_t>(rows * hidden));
  cuda::LookUpBackward<T, G>{ids.data(), gradient.data(), table.data(), places.data(), runs.data(), std::ssize(ids), hidden}.each(
      [&](const auto& body) { threads == 0 ? cuda::run_on_host(body) : support::run_with_threads(body, threads); });
  return table;
}

/// The same, written out: runs of an id's rows, then the runs' sums, then the table.
template <class T, class G>
std::vector<G> by_runs(const std::vector<std::int32_t>& ids, const std::vector<T>& gradient, std::vector<G> table,
                       std::int64_t hidden, int longest) {
  for (std::int32_t id = 0; id < vocab; ++id) {
    for (std::int64_t j = 0; j < hidden; ++j) {
      float sum = 0;
      float run = 0;
      int in_run = 0;
      for (std::size_t t = 0; t < ids.size(); ++t) {
        if (ids[t] != id) continue;
        run += widen(gradient[t * static_cast<std::size_t>(hidden) + static_cast<std::size_t>(j)]);
        if (++in_run < longest) continue;
        sum += run;
        run = 0;
        in_run = 0;
      }
      G& to = table[static_cast<std::size_t>(id * hidden + j)];
      to = cuda::narrow<G>(widen(to) + (sum + run));
    }
  }
  return table;
}

template <class T, class G>
void check_backward(std::int64_t tokens, std::int64_t hidden, int longest) {
  CAPTURE(tokens);
  CAPTURE(hidden);
  const std::vector<std::int32_t> ids = mixed_ids(tokens);
  const auto gradient = numbers<T>(tokens * hidden, 1);
  const auto table = numbers<G>(vocab * hidden, 2);
  const auto wanted = support::wide(by_runs(ids, gradient, table, hidden, longest));
  for (const int threads : {0, 3, 4}) CHECK(support::wide(backward(ids, gradient, table, hidden, threads)) == wanted);
}

}  // namespace

TEST_CASE("a lookup copies the rows of the tokens' ids") {
  const std::vector<std::int32_t> ids{3, 1, 3, 0, 3, 1, 4};
  for (const std::int64_t hidden : {16, 6}) {
    const auto table = numbers<Bfloat16>(5 * hidden, 1);
    std::vector<Bfloat16> x(ids.size() * static_cast<std::size_t>(hidden));
    support::run_with_threads(cuda::LookUp<Bfloat16>{ids.data(), table.data(), x.data(), std::ssize(ids), hidden}, 3);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto width = static_cast<std::size_t>(hidden);
      CHECK(x[i].bits == table[static_cast<std::size_t>(ids[i / width]) * width + i % width].bits);
    }
  }
}

TEST_CASE("tokens are sorted by id, those of an id in their own order") {
  for (const std::int64_t tokens : {1, 31, 32, 77}) {
    const std::vector<std::int32_t> ids = mixed_ids(tokens);
    std::vector<std::int32_t> wanted(ids.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    const auto id_of = [&](std::int32_t token) { return ids[static_cast<std::size_t>(token)]; };
    std::ranges::stable_sort(wanted, {}, id_of);
    std::vector<cuda::TokenPlace> places(ids.size());
    support::run_with_threads(cuda::SortTokens{ids.data(), places.data(), tokens}, 3);
    for (std::size_t p = 0; p < ids.size(); ++p) {
      const cuda::TokenPlace place = places[p];
      CHECK(place.token == wanted[p]);
      CHECK(place.id == id_of(wanted[p]));
      CHECK(place.before == std::count(ids.begin(), ids.begin() + place.token, place.id));
      CHECK(place.count == std::ranges::count(ids, place.id));
    }
  }
}

TEST_CASE("an id's rows are added in runs, with the same bits whatever the threads") {
  check_backward<float, float>(7, 6, 64);
  check_backward<Bfloat16, float>(400, 16, 64);
  check_backward<Half, Half>(400, 6, 64);
  check_backward<Bfloat16, Bfloat16>(129, 2049, 64);  // more columns than a row of blocks has
}

TEST_CASE("a token that is most of a batch is summed in few steps, and its runs fit in a norm's sums") {
  for (const std::int64_t tokens : {1, 64, 65, 16384, 16385, 1 << 20}) {
    CAPTURE(tokens);
    const std::int64_t rows = cuda::rows_of_run(tokens);
    const std::int64_t runs = (tokens + rows - 1) / rows;
    CHECK(rows + runs <= 2 * std::max<std::int64_t>(256, rows));
    if (tokens > rows) CHECK(cuda::row_of_run(tokens - 1, 0, rows) < cuda::RmsNormBackward<float>::blocks(tokens));
  }
}
