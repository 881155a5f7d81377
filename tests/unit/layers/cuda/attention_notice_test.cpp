// Tests of layers/cuda/attention_notice.hpp: what a user is told of attention by plain kernels.
// Not: their numbers (bodies_test.cpp).
#include "tawpipe/layers/cuda/attention_notice.hpp"

#include <doctest/doctest.h>

TEST_CASE("a user is told which layout fused attention refuses, and how much slower plain attention is") {
  CHECK(tawpipe::layers::cuda::attention_notice(192, 4096) ==
        "cuDNN's fused attention does not take this model (heads of 192, sequences of 4096); plain kernels do, in float32 "
        "without tensor cores, so attention takes at least 15 times as long (docs/layers.md)");
}
