// Tests of model/batch.hpp.
// Not: what a microbatch weighs (transformer_work_test.cpp).
#include "tawpipe/model/batch.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>

#include "tawpipe/core/error.hpp"

using tawpipe::Batch;
using tawpipe::InputError;
using tawpipe::Recompute;

TEST_CASE("parts of a layer are named in any order, and told in one") {
  using tawpipe::RecomputeParts;
  CHECK(tawpipe::parse_recompute_parts("mlp,core_attn") == RecomputeParts{.core_attn = true, .mlp = true});
  CHECK(name(RecomputeParts{.core_attn = true, .layernorm = true, .activation = true}) == "core_attn,layernorm,activation");
  CHECK_FALSE(RecomputeParts{}.any());
  for (int bits = 0; bits < 16; ++bits) CHECK(RecomputeParts::of_bits(bits).bits() == bits);
  CHECK_THROWS_WITH_AS(tawpipe::parse_recompute_parts("mpl"), doctest::Contains("did you mean 'mlp'?"), tawpipe::InputError);
  CHECK_THROWS_AS(tawpipe::parse_recompute_parts("mlp,"), tawpipe::InputError);
}

TEST_CASE("a global batch holds global / microbatch size microbatches") {
  // 1536 / 2 = 768; tokens of one: 2 x 16384 = 32768
  const Batch batch{.sequence = 16384, .microbatch_size = 2, .global_batch = 1536};
  CHECK(batch.microbatches() == 768);
  CHECK(batch.tokens() == 32768);
  CHECK(Batch{.sequence = 1, .global_batch = 1}.microbatches() == 1);
}

TEST_CASE("a microbatch size that does not divide is refused with the nearest that do") {
  // divisors of 1536 = 2^9 x 3 around 7: 6 and 8
  CHECK_THROWS_WITH_AS((Batch{16384, 7, 1536}.microbatches()),
                       "microbatch size 7 does not divide the global batch of 1536 sequences; the nearest that do are 6 and 8",
                       InputError);
  // a prime has only 1 and itself
  CHECK_THROWS_WITH_AS((Batch{16384, 6, 13}.microbatches()),
                       "microbatch size 6 does not divide the global batch of 13 sequences; the nearest that do are 1 and 13",
                       InputError);
  // above the global batch there is no divisor
  CHECK_THROWS_WITH_AS((Batch{16384, 64, 48}.microbatches()),
                       "microbatch size 64 does not divide the global batch of 48 sequences; the nearest that does is 48",
                       InputError);
}

TEST_CASE("the nearest sizes agree with a search one by one") {
  for (std::int64_t global = 1; global <= 60; ++global) {
    for (std::int64_t size = 1; size <= global; ++size) {
      if (global % size == 0) continue;
      std::int64_t below = size;
      while (global % below != 0) --below;
      std::int64_t above = size;
      while (global % above != 0) ++above;
      const std::string expected = tawpipe::concat("microbatch size ", size, " does not divide the global batch of ", global,
                                                   " sequences; the nearest that do are ", below, " and ", above);
      CHECK_THROWS_WITH_AS((Batch{8, size, global}.check()), expected.c_str(), InputError);
    }
  }
}

TEST_CASE("sizes below one are refused") {
  CHECK_THROWS_WITH_AS((Batch{0, 1, 8}.check()), "a sequence of 0 tokens is impossible; it needs at least 1", InputError);
  CHECK_THROWS_WITH_AS((Batch{8, 0, 8}.check()), "a microbatch of 0 sequences is impossible; it needs at least 1", InputError);
  CHECK_THROWS_WITH_AS((Batch{8, 1, -3}.check()), "a global batch of -3 sequences is impossible; it needs at least 1",
                       InputError);
}

TEST_CASE("sizes beyond the limits are refused without overflow") {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_WITH_AS((Batch{8, 1, most}.check()),
                       "a global batch of 9223372036854775807 sequences is too large; the most is 1099511627776", InputError);
  // 2^24 tokens are the most: 16777216
  CHECK_THROWS_WITH_AS((Batch{16777216, 2, 8}.check()),
                       "a microbatch of 2 sequences of 16777216 tokens is too large; the most is 16777216 tokens a microbatch",
                       InputError);
  CHECK_THROWS_AS((Batch{most, 1, 1}.check()), InputError);
  CHECK_THROWS_AS((Batch{most, std::int64_t{1} << 40, std::int64_t{1} << 40}.check()), InputError);
  CHECK_THROWS_AS((Batch{1, most, 1}.check()), InputError);
  CHECK_NOTHROW((Batch{16777216, 1, std::int64_t{1} << 40}.check()));
}

TEST_CASE("a recomputation policy's name parses back to it, and others are refused") {
  for (const auto recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    CHECK(tawpipe::parse_recompute(tawpipe::name(recompute)) == recompute);
  }
  CHECK_THROWS_WITH_AS(tawpipe::parse_recompute("ful"),
                       "unknown recomputation 'ful'; did you mean 'full'? Known: none, selective, full", InputError);
}
