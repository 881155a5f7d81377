// Exponential, sums, softmax, norms, SwiGLU and cross entropy, each against its formula.
// Not: their place in a layer (llama_golden_test.cpp).
#include "tawpipe/layers/host/kernels.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace host = tawpipe::layers::host;

TEST_CASE("the float exponential is within two units in the last place from -87 to 87") {
  double worst = 0;
  for (int i = -870000; i <= 870000; ++i) {
    const float x = static_cast<float>(i) * 1e-4F;
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(host::exponential(x)) - exact) / exact);
  }
  CHECK(worst < 2 * 0x1p-23);
  CHECK(host::exponential(0.0F) == 1);
  CHECK(host::exponential(-1e30F) == host::exponential(-87.0F));
  CHECK(host::exponential(1e30F) == host::exponential(87.0F));
  CHECK(host::exponential(-87.0F) < 2e-38F);
  CHECK(std::isnan(host::exponential(std::numeric_limits<float>::quiet_NaN())));
  CHECK(host::exponential(-3.5) == std::exp(-3.5));
}

TEST_CASE("sums and the largest take every number, whatever their count") {
  for (int n = 1; n <= 40; ++n) {
    std::vector<float> x;
    for (int i = 0; i < n; ++i) x.push_back(static_cast<float>(i * 7 % 11) - 20);
    double sum = 0;
    float most = x[0];
    for (const float value : x) {
      sum += static_cast<double>(value);
      most = std::max(most, value);
    }
    CHECK(static_cast<double>(host::sum_of<float>(n, [&](std::int64_t i) { return x[static_cast<std::size_t>(i)]; })) == sum);
    CHECK(host::largest_of(x.data(), n) == most);
    const std::vector<double> wide(x.begin(), x.end());
    CHECK(host::largest_of(wide.data(), n) == static_cast<double>(most));
  }
  const std::vector<float> mixed{-3, -0.5F, 2, -1e30F, 1.5F};
  CHECK(host::largest_of(mixed.data(), 5) == 2);
  CHECK(host::largest_of(mixed.data(), 2) == -0.5F);
}

TEST_CASE("softmax of large numbers does not overflow") {
  std::vector<double> x{1000, 1000 + std::log(3.0)};
  CHECK(host::softmax(x.data(), 2) == doctest::Approx(1000 + std::log(4.0)));
  CHECK(x[0] == doctest::Approx(0.25));
  CHECK(x[1] == doctest::Approx(0.75));
}

TEST_CASE("RMSNorm divides by the root of the mean square") {
  // mean square of (3, 4) 12.5; with epsilon 3.5 the root is 4.
  const std::vector<double> x{3, 4};
  const std::vector<double> gain{2, -1};
  std::vector<double> y(2);
  host::rms_norm(x.data(), gain.data(), y.data(), 1, 2, 3.5);
  CHECK(y[0] == doctest::Approx(1.5));
  CHECK(y[1] == doctest::Approx(-1));
  // dy = (1, 1): d gain = x / 4; dx = gain / 4 - x (2 x 3 - 1 x 4) / (2 x 64) = (0.5 - 6 / 128,
  // -0.25 - 8 / 128)
  std::vector<double> gradient{1, 1};
  std::vector<double> gain_gradient(2);
  host::rms_norm_backward(x.data(), gain.data(), gradient.data(), gain_gradient.data(), 1, 2, 3.5);
  CHECK(gain_gradient[0] == doctest::Approx(0.75));
  CHECK(gain_gradient[1] == doctest::Approx(1));
  CHECK(gradient[0] == doctest::Approx(0.5 - 6.0 / 128));
  CHECK(gradient[1] == doctest::Approx(-0.25 - 8.0 / 128));
}

TEST_CASE("SwiGLU and its slopes") {
  // sigmoid(ln 3) = 3 / 4; silu = 0.75 ln 3; silu' = s + silu (1 - s).
  std::vector<double> gate{std::log(3.0)};
  std::vector<double> up{2};
  std::vector<double> sigmoid(1);
  std::vector<double> product(1);
  host::swiglu(gate.data(), up.data(), sigmoid.data(), product.data(), 1);
  CHECK(sigmoid[0] == doctest::Approx(0.75));
  CHECK(product[0] == doctest::Approx(1.5 * std::log(3.0)));
  const std::vector<double> gradient{4};
  host::swiglu_backward(gate.data(), up.data(), sigmoid.data(), gradient.data(), 1);
  CHECK(gate[0] == doctest::Approx(8 * (0.75 + 0.1875 * std::log(3.0))));
  CHECK(up[0] == doctest::Approx(3 * std::log(3.0)));
}

TEST_CASE("cross entropy is the mean over tokens, and its gradient softmax minus one at the target") {
  // softmax (1/4, 3/4) twice; targets 0 and 1: (log 4 + log 4/3) / 2.
  std::vector<double> logits{0, std::log(3.0), 5, 5 + std::log(3.0)};
  const std::vector<std::int32_t> targets{0, 1};
  CHECK(host::cross_entropy(logits.data(), targets.data(), 2, 2) == doctest::Approx((std::log(4.0) + std::log(4.0 / 3)) / 2));
  host::cross_entropy_backward(logits.data(), targets.data(), 2, 2, 0.5);  // 0.5 / 2 tokens
  CHECK(logits[0] == doctest::Approx(-0.75 / 4));
  CHECK(logits[1] == doctest::Approx(0.75 / 4));
  CHECK(logits[2] == doctest::Approx(0.25 / 4));
  CHECK(logits[3] == doctest::Approx(-0.25 / 4));
}
