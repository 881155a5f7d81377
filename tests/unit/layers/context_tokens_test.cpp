// The tokens of context-parallel ranks: all, each once, and equal work under a causal mask.
// Not: how they are used (layers/host/chunk_attention_test.cpp).
#include "tawpipe/layers/context_tokens.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace context_tokens_test {

using namespace tawpipe;
using layers::ContextTokens;

TEST_CASE("each token of a microbatch is on one rank, and each rank attends to as many keys") {
  const Batch batch{.sequence = 24, .microbatch_size = 2, .global_batch = 2};
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    const ContextTokens tokens{batch, ranks};
    CHECK(tokens.tokens() * ranks == batch.tokens());
    std::vector<int> seen(static_cast<std::size_t>(batch.tokens()), 0);
    std::vector<std::int64_t> keys(static_cast<std::size_t>(ranks), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      for (std::int64_t t = 0; t < tokens.tokens(); ++t) {
        ++seen[static_cast<std::size_t>(tokens.index(rank, t))];
        keys[static_cast<std::size_t>(rank)] += tokens.position(rank, t) + 1;
        CHECK(tokens.index(rank, t) % batch.sequence == tokens.position(rank, t));
      }
    }
    for (const int times : seen) CHECK(times == 1);
    for (const std::int64_t own : keys) CHECK(own == keys.front());
  }
}

// Two ranks have the quarters 0 and 3, and 1 and 2.
TEST_CASE("a rank has an early chunk and a late one, and one rank all tokens in order") {
  const Batch batch{.sequence = 8, .microbatch_size = 1, .global_batch = 1};
  const ContextTokens two{batch, 2};
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> second;
  for (std::int64_t t = 0; t < two.tokens(); ++t) {
    first.push_back(two.position(0, t));
    second.push_back(two.position(1, t));
  }
  CHECK(first == std::vector<std::int64_t>{0, 1, 6, 7});
  CHECK(second == std::vector<std::int64_t>{2, 3, 4, 5});
  const ContextTokens one{{.sequence = 5, .microbatch_size = 2, .global_batch = 2}, 1};
  for (std::int64_t t = 0; t < one.tokens(); ++t) CHECK(one.index(0, t) == t);
}

TEST_CASE("a sequence that cannot be cut into equal chunks is refused with its number") {
  CHECK_THROWS_WITH_AS(
      (ContextTokens{{.sequence = 18, .microbatch_size = 1, .global_batch = 1}, 2}),
      "context parallelism among 2 ranks cuts each sequence into 4 equal parts; 18 tokens are no multiple of that", InputError);
}

}  // namespace context_tokens_test
