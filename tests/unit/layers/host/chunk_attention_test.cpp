// Attention by chunks of several ranks against attention of one rank to all tokens, forward and backward.
// Not: what ranks exchange (numerics/context_test.cpp).
#include "tawpipe/layers/host/chunk_attention.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/layers/host/attention.hpp"

namespace chunk_attention_test {

using namespace tawpipe;
using layers::ContextTokens;
using layers::host::ChunkAttention;
using layers::host::ContextRows;

using Numbers = std::vector<double>;

Numbers numbers(std::int64_t count, double from) {
  Numbers all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(std::sin(from + 1.7 * static_cast<double>(i)));
  return all;
}

/// The rows [token, width] of a rank.
Numbers rows_of(const Numbers& all, const ContextTokens& tokens, int rank, std::int64_t width) {
  Numbers own;
  for (std::int64_t t = 0; t < tokens.tokens(); ++t) {
    const auto at = all.begin() + tokens.index(rank, t) * width;
    own.insert(own.end(), at, at + width);
  }
  return own;
}
double difference(const Numbers& all, const Numbers& own, const ContextTokens& tokens, int rank, std::int64_t width,
                  std::int64_t begin, std::int64_t count) {
  const Numbers wanted = rows_of(all, tokens, rank, width);
  double worst = 0;
  for (std::int64_t t = 0; t < tokens.tokens(); ++t) {
    for (std::int64_t j = 0; j < count; ++j) {
      const double one = wanted[static_cast<std::size_t>(t * width + begin + j)];
      worst = std::max(worst, std::abs(one - own[static_cast<std::size_t>(t * count + j)]));
    }
  }
  return worst;
}

// 160 tokens among two ranks: chunks of 40 rows; among one rank blocks of 64 rows and a rest.
void check(int ranks, std::int64_t sequence, int window) {
  CAPTURE(ranks);
  CAPTURE(sequence);
  CAPTURE(window);
  Transformer model{.name = "small", .layers = 1, .hidden = 32, .heads = 4, .kv_heads = 2, .intermediate = 8, .vocab = 8};
  model.window = window;
  const Batch batch{.sequence = sequence, .microbatch_size = 2, .global_batch = 2};
  const layers::host::Attention<double> whole{model, batch, {}};
  const ContextTokens tokens{batch, ranks};
  const ChunkAttention<double> core{4, 2, 8, tokens, window};
  constexpr std::int64_t query = 32;
  constexpr std::int64_t kv = 32;
  constexpr std::int64_t width = query + kv;
  const Numbers qkv = numbers(batch.tokens() * width, 0.3);
  const Numbers gradient = numbers(batch.tokens() * query, 0.7);
  Numbers output(static_cast<std::size_t>(batch.tokens() * query));
  Numbers scratch(static_cast<std::size_t>(whole.backward_workspace() + core.scratch()));
  whole.forward(qkv.data(), output.data(), scratch.data());
  Numbers gradients = qkv;
  whole.backward(gradients.data(), gradient.data(), scratch.data());
  whole.rotate(gradients.data());  // the backward turns them back

  const std::size_t own = static_cast<std::size_t>(tokens.tokens());
  std::vector<Numbers> key_gradients(static_cast<std::size_t>(ranks), Numbers(own * kv, 0.0));
  for (int r = 0; r < ranks; ++r) {
    const Numbers rows = rows_of(qkv, tokens, r, width);
    const Numbers given = rows_of(gradient, tokens, r, query);
    Numbers results(own * query);
    Numbers most(own * 4);
    Numbers total(own * 4);
    Numbers means(own * 4);
    Numbers query_gradient(own * query, 0.0);
    const ChunkAttention<double>::Running running{{results.data(), query, r}, most.data(), total.data()};
    core.begin(running);
    const auto for_each_rank = [&](auto&& visit) {
      for (int k = 0; k < ranks; ++k) {  // in an order of the rank's own
        const int other = (r + ranks - k) % ranks;
        const Numbers keys = rows_of(qkv, tokens, other, width);
        visit(other, ContextRows<const double>{keys.data() + query, width, other}, keys.data() + query + kv / 2);
      }
    };
    for_each_rank([&](int, const ContextRows<const double>& keys, const double* values) {
      core.add({rows.data(), width, r}, keys, values, running, scratch.data());
    });
    core.end(running);
    CHECK(difference(output, results, tokens, r, query, 0, query) < 1e-14);
    core.mean_products({results.data(), query, r}, {given.data(), query, r}, means.data());
    const ChunkAttention<double>::Backward of{
        {rows.data(), width, r}, {given.data(), query, r}, most.data(), means.data(), {query_gradient.data(), query, r}};
    for_each_rank([&](int other, const ContextRows<const double>& keys, const double* values) {
      double* const to = key_gradients[static_cast<std::size_t>(other)].data();
      core.backward(of, keys, values, {to, kv, other}, to + kv / 2, scratch.data());
    });
    CHECK(difference(gradients, query_gradient, tokens, r, width, 0, query) < 1e-13);
  }
  for (int r = 0; r < ranks; ++r)
    CHECK(difference(gradients, key_gradients[static_cast<std::size_t>(r)], tokens, r, width, query, kv) < 1e-13);
}

TEST_CASE("chunks of any number of ranks give the attention of one to all tokens, and its gradients") {
  for (const int ranks : {1, 2, 4}) check(ranks, 16, 0);
  check(2, 160, 0);
  check(1, 160, 0);
}

TEST_CASE("so they do within a window, also one that is shorter than a chunk") {
  for (const int window : {1, 3, 8, 40}) {
    check(2, 16, window);
    check(4, 48, window);
  }
}

}  // namespace chunk_attention_test
