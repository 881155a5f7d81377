// The bodies of AdamW's kernels on a host with one thread and with three, and the loss scale.
// Not: the other kernels' (bodies_test.cpp).
#include "tawpipe/layers/cuda/adamw_bodies.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "support/kernel_numbers.hpp"
#include "support/threaded_block.hpp"
#include "tawpipe/layers/adamw.hpp"

namespace cuda = tawpipe::layers::cuda;
using support::check_near;
using support::numbers;
using support::wide;
using tawpipe::Bfloat16;

TEST_CASE("AdamW is the host's, from any alignment, and keeps weights that are roundings of float") {
  constexpr std::size_t count = 37;
  const tawpipe::layers::AdamW constants;
  const tawpipe::StepScalars scalars{.learning_rate = 1e-2, .gradient_clip = 0, .step = 3};
  const float clip = 0.5F;
  for (const std::size_t begin : {0, 1}) {
    auto weights = numbers<float>(count + 1, 1);
    const auto gradients = numbers<Bfloat16>(count + 1, 2);
    auto mean = numbers<float>(count + 1, 3);
    auto square = numbers<float>(count + 1, 4);
    for (float& v : square) v *= v;
    auto master = weights;
    std::vector<Bfloat16> rounded(count + 1);
    auto m = mean;
    auto v = square;
    cuda::AdamWFactors factors;
    cuda::run_on_host(cuda::PrepareAdamW{constants, &scalars, &clip, nullptr, 1, &factors});
    support::run_with_threads(cuda::AdamWBody<Bfloat16, Bfloat16>{.weights = rounded.data() + begin,
                                                                  .gradients = gradients.data() + begin,
                                                                  .master = master.data() + begin,
                                                                  .first_moment = m.data() + begin,
                                                                  .second_moment = v.data() + begin,
                                                                  .count = count,
                                                                  .factors = &factors,
                                                                  .beta1 = 0.9F,
                                                                  .beta2 = 0.95F,
                                                                  .rest1 = 0.1F,
                                                                  .rest2 = 0.05F,
                                                                  .epsilon = 1e-8F,
                                                                  .decay = true},
                              3);
    const auto from = wide(gradients);
    tawpipe::layers::adamw_step<float>(constants, {.number = 3, .learning_rate = 1e-2, .gradient_scale = 0.5, .decay = true},
                                       std::span{weights}.subspan(begin, count),
                                       std::span<const float>{from}.subspan(begin, count), std::span{mean}.subspan(begin, count),
                                       std::span{square}.subspan(begin, count));
    check_near(master, weights);
    check_near(m, mean);
    check_near(v, square);
    for (std::size_t i = begin; i < begin + count; ++i) CHECK(rounded[i].bits == Bfloat16{master[i]}.bits);
  }
}

TEST_CASE("a loss scale halves and skips where the norm is not finite, and doubles after a while") {
  const tawpipe::layers::AdamW constants;
  cuda::LossScaleState state{1024};
  cuda::AdamWFactors factors;
  tawpipe::StepScalars scalars{.learning_rate = 1, .gradient_clip = 0, .step = 0};
  const auto step = [&](float clip) {
    ++scalars.step;
    const cuda::PrepareAdamW prepare{constants, &scalars, &clip, &state, 2, &factors};
    cuda::run_on_host(prepare);
    cuda::run_on_host(prepare);  // once more for another run of parameters, or another rank: nothing moves
  };
  step(1);  // no clipping asked for: gradients are divided by the scale
  CHECK(factors.skip == 0);
  CHECK(factors.gradient_scale == 1.0F / 1024);
  // The scaled gradients' norm is 4096 times the clip: true ones have four times it.
  step(1.0F / 4096);
  CHECK(factors.gradient_scale == 1.0F / 4096);
  CHECK(state.scale == 2048);  // two good steps
  step(0);                     // clip / infinity
  CHECK(factors.skip == 1);
  CHECK(state.scale == 1024);
  step(std::nanf(""));
  CHECK(factors.skip == 1);
  CHECK(state.scale == 512);
  step(1);  // the fifth step, but the third that is taken
  CHECK(factors.skip == 0);
  CHECK(factors.gradient_scale == 1.0F / 512);
  CHECK(factors.rate == doctest::Approx(1 / (1 - 0.9 * 0.9 * 0.9)));
  // A skipped step leaves everything as it is.
  float weight = 1;
  float moment = 2;
  float square = 3;
  const float gradient = std::nanf("");
  cuda::AdamWFactors skip;
  skip.skip = 1;
  cuda::run_on_host(cuda::AdamWBody<float, float>{.weights = &weight,
                                                  .gradients = &gradient,
                                                  .master = nullptr,
                                                  .first_moment = &moment,
                                                  .second_moment = &square,
                                                  .count = 1,
                                                  .factors = &skip,
                                                  .beta1 = 0.9F,
                                                  .beta2 = 0.95F,
                                                  .rest1 = 0.1F,
                                                  .rest2 = 0.05F,
                                                  .epsilon = 1e-8F,
                                                  .decay = true});
  CHECK(weight == 1);
  CHECK(moment == 2);
  CHECK(square == 3);
}

TEST_CASE("a loss scale moves alike however far another update of the step has come in writing it") {
  const tawpipe::layers::AdamW constants;
  cuda::AdamWFactors factors;
  tawpipe::StepScalars scalars{.learning_rate = 1, .gradient_clip = 0, .step = 700};  // a run that was resumed
  cuda::LossScaleState state{4096};
  for (int i = 0; i < 12; ++i, ++scalars.step) {
    const float clip = i % 5 == 3 ? 0.0F : 1.0F;
    const cuda::PrepareAdamW prepare{constants, &scalars, &clip, &state, 3, &factors};
    const cuda::LossScaleState before = state;
    cuda::run_on_host(prepare);
    const cuda::LossScaleState whole = state;
    const cuda::AdamWFactors expected = factors;
    for (const bool numbered :
         {false, true}) {  // of the place of this step, the number may have come before the rest or after it
      state = before;
      const int place = whole.after[0].step == scalars.step ? 0 : 1;
      if (numbered) {
        state.after[place].step = scalars.step;
      } else {
        state.after[place] = whole.after[place];
        state.after[place].step = before.after[place].step;
        state.scale = whole.scale;
      }
      cuda::run_on_host(prepare);
      CHECK(state.scale == whole.scale);
      CHECK(state.after[place].scale == whole.after[place].scale);
      CHECK(state.after[place].skipped == whole.after[place].skipped);
      CHECK(state.after[place].good_steps == whole.after[place].good_steps);
      CHECK(state.after[1 - place].scale == before.after[1 - place].scale);
      CHECK(factors.skip == expected.skip);
      CHECK(factors.gradient_scale == expected.gradient_scale);
      CHECK(factors.rate == expected.rate);
    }
  }
}
