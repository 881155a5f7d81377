// AdamW's formula by hand. Not: its course over steps (host/llama_golden_test.cpp).
#include "tawpipe/layers/adamw.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

using tawpipe::layers::AdamW;
using tawpipe::layers::adamw_step;
using tawpipe::layers::AdamWStep;

TEST_CASE("two steps of AdamW by hand") {
  const AdamW constants{.beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.5, .weight_decay = 0.25};
  std::vector<double> weights{2};
  std::vector<double> mean{0};
  std::vector<double> square{0};
  const std::vector<double> gradients{4};
  // p = 2 (1 - 0.2 x 0.25) = 1.9; m = 0.5 x 4 = 2; v = 0.25 x 16 = 4; corrected 2 / 0.5 = 4 and 2 /
  // 0.5 = 4; p = 1.9 - 0.2 x 4 / (4 + 0.5) = 1.7222...
  adamw_step<double>(constants, {.number = 1, .learning_rate = 0.2}, weights, gradients, mean, square);
  CHECK(mean[0] == 2);
  CHECK(square[0] == 4);
  CHECK(weights[0] == doctest::Approx(1.9 - 0.8 / 4.5).epsilon(1e-15));
  // Scaled by a half the gradient is 2; no decay. m = 1 + 1 = 2; v = 3 + 1 = 4; 1 - 0.5^2 = 0.75,
  // 1 - 0.75^2 = 0.4375.
  adamw_step<double>(constants, {.number = 2, .learning_rate = 0.2, .gradient_scale = 0.5, .decay = false}, weights, gradients,
                     mean, square);
  CHECK(mean[0] == 2);
  CHECK(square[0] == 4);
  CHECK(weights[0] == doctest::Approx(1.9 - 0.8 / 4.5 - 0.2 * (2 / 0.75) / (2 / std::sqrt(0.4375) + 0.5)).epsilon(1e-15));
}

TEST_CASE("a run of parameters gives what its parts give") {
  std::vector<float> gradients;
  for (int i = 0; i < 37; ++i) gradients.push_back(0.01F * static_cast<float>(i * i % 17 - 8));
  std::vector<float> whole(37, 1), mean(37, 0), square(37, 0);
  std::vector<float> parts = whole, mean_parts = mean, square_parts = square;
  for (std::int64_t n = 1; n <= 3; ++n) {
    const AdamWStep step{.number = n, .learning_rate = 1e-3};
    adamw_step<float>({}, step, whole, gradients, mean, square);
    for (const auto& [begin, size] : {std::pair<std::size_t, std::size_t>{0, 5}, {5, 1}, {6, 31}}) {
      adamw_step<float>({}, step, std::span{parts}.subspan(begin, size), std::span<const float>{gradients}.subspan(begin, size),
                        std::span{mean_parts}.subspan(begin, size), std::span{square_parts}.subspan(begin, size));
    }
  }
  CHECK(whole == parts);
  CHECK(square == square_parts);
}

TEST_CASE("impossible constants are refused") {
  CHECK_NOTHROW(AdamW{}.check());
  CHECK_THROWS_WITH_AS(AdamW{.beta1 = 1}.check(), "AdamW's beta1 is 1.000000; it must be at least 0 and below 1",
                       tawpipe::InputError);
  CHECK_THROWS_AS(AdamW{.beta2 = -0.1}.check(), tawpipe::InputError);
  CHECK_THROWS_AS(AdamW{.epsilon = 0}.check(), tawpipe::InputError);
  CHECK_THROWS_AS(AdamW{.weight_decay = std::numeric_limits<double>::quiet_NaN()}.check(), tawpipe::InputError);
}
