// Attention in blocks against the formula taken literally.
// Not: its gradient, which llama_test.cpp compares with differences.
#include "tawpipe/layers/host/attention.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "support/random.hpp"

using tawpipe::Batch;
using tawpipe::Transformer;
using tawpipe::layers::host::Attention;

namespace {

/// Four query heads of 4 on two key heads.
Transformer model() { return {.layers = 1, .hidden = 16, .heads = 4, .kv_heads = 2, .intermediate = 32, .vocab = 10}; }

std::vector<double> random(std::int64_t count, std::uint64_t seed) {
  support::Random random{seed};
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(random.real(-1, 1));
  return numbers;
}

}  // namespace

TEST_CASE("causal grouped attention over sequences longer than a block") {
  // 2 sequences of 150: blocks of min(64, 16 x 2 / 2 = 16) = 16 rows, the last of 6.
  const Batch batch{.sequence = 150, .microbatch_size = 2, .global_batch = 2};
  const Attention<double> attention{model(), batch, {.rope_theta = 1e4}};
  constexpr std::size_t width = 16 + 2 * 8;
  const auto qkv = random(300 * width, 1);
  std::vector<double> output(300 * 16);
  std::vector<double> workspace(static_cast<std::size_t>(attention.forward_workspace()));
  attention.forward(qkv.data(), output.data(), workspace.data());

  double worst = 0;
  for (std::size_t b = 0; b < 2; ++b) {
    for (std::size_t head = 0; head < 4; ++head) {
      for (std::size_t i = 0; i < 150; ++i) {
        const auto at = [&](std::size_t position, std::size_t column) { return qkv[(b * 150 + position) * width + column]; };
        double total = 0;
        std::vector<double> sum(4, 0.0);
        for (std::size_t j = 0; j <= i; ++j) {
          double score = 0;
          for (std::size_t d = 0; d < 4; ++d) score += at(i, head * 4 + d) * at(j, 16 + head / 2 * 4 + d);
          const double weight = std::exp(score / 2);  // sqrt(4)
          total += weight;
          for (std::size_t d = 0; d < 4; ++d) sum[d] += weight * at(j, 24 + head / 2 * 4 + d);
        }
        for (std::size_t d = 0; d < 4; ++d) {
          worst = std::max(worst, std::abs(output[(b * 150 + i) * 16 + head * 4 + d] - sum[d] / total));
        }
      }
    }
  }
  CHECK(worst < 1e-14);
}

TEST_CASE("rotation turns neighbouring pairs of queries and keys by position times frequency, and leaves values") {
  const Batch batch{.sequence = 3, .microbatch_size = 1, .global_batch = 1};
  const Attention<double> attention{model(), batch, {.rope_theta = 100}};
  std::vector<double> qkv(3 * 32, 0.0);
  for (std::size_t column = 0; column < 32; column += 2) qkv[2 * 32 + column] = 1;  // position 2: pairs (1, 0)
  attention.rotate(qkv.data());
  for (std::size_t head = 0; head < 6; ++head) {
    // Frequencies 100^0 = 1 and 100^(-2/4) = 0.1: angles 2 and 0.2.
    CHECK(qkv[64 + head * 4] == doctest::Approx(std::cos(2)));
    CHECK(qkv[64 + head * 4 + 1] == doctest::Approx(std::sin(2)));
    CHECK(qkv[64 + head * 4 + 2] == doctest::Approx(std::cos(0.2)));
    CHECK(qkv[64 + head * 4 + 3] == doctest::Approx(std::sin(0.2)));
  }
  for (std::size_t column = 24; column < 32; ++column) CHECK(qkv[64 + column] == (column % 2 == 0 ? 1 : 0));
}
