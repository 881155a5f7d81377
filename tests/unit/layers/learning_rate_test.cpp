// Warm-up, cosine and minimum. Not: training with them.
#include "tawpipe/layers/learning_rate.hpp"

#include <doctest/doctest.h>

#include <cmath>

using tawpipe::InputError;
using tawpipe::layers::LearningRate;

TEST_CASE("the rate rises linearly, falls as half a cosine and stays at its minimum") {
  const LearningRate rate{.peak = 10, .minimum = 2, .warmup_steps = 4, .decay_steps = 12};
  CHECK(rate.at(1) == doctest::Approx(2));                             // 10 x 1 / 5
  CHECK(rate.at(4) == doctest::Approx(8));                             // 10 x 4 / 5
  CHECK(rate.at(5) == doctest::Approx(10));                            // 4 steps ran before: the warm-up is over
  CHECK(rate.at(7) == doctest::Approx(2 + 4 * (1 + std::sqrt(0.5))));  // a quarter of 8 steps: cos(pi / 4)
  CHECK(rate.at(9) == doctest::Approx(6));                             // half way
  CHECK(rate.at(13) == 2);
  CHECK(rate.at(1000) == 2);
}

TEST_CASE("without decay the rate stays at its peak, without warm-up it starts there") {
  CHECK(LearningRate{.peak = 3}.at(1) == 3);
  CHECK(LearningRate{.peak = 3}.at(100000) == 3);
  CHECK(LearningRate{.peak = 3, .warmup_steps = 2}.at(3) == 3);
  CHECK(LearningRate{.peak = 3, .minimum = 1, .decay_steps = 10}.at(1) == 3);
  const LearningRate at_once{.peak = 3, .minimum = 1, .warmup_steps = 2, .decay_steps = 2};
  CHECK(at_once.at(2) == doctest::Approx(2));  // 3 x 2 / 3
  CHECK(at_once.at(3) == 1);
}

TEST_CASE("impossible rates are refused") {
  CHECK_NOTHROW(LearningRate{}.check());
  CHECK_THROWS_AS(LearningRate{.peak = -1}.check(), InputError);
  CHECK_THROWS_AS((LearningRate{.peak = 1, .minimum = 2}.check()), InputError);
  CHECK_THROWS_AS((LearningRate{.warmup_steps = -1}.check()), InputError);
  CHECK_THROWS_WITH_AS((LearningRate{.warmup_steps = 5, .decay_steps = 3}.check()),
                       "the learning rate would end its decay at step 3, within its warm-up of 5 steps; let it end later",
                       InputError);
}
