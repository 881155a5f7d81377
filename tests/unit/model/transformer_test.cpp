// Tests of model/transformer.hpp.
// Not: known models (models_test.cpp).
#include "tawpipe/model/transformer.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "tawpipe/core/error.hpp"

using tawpipe::InputError;
using tawpipe::Transformer;

namespace {

/// Head size 8 / 4 = 2, so Q = 4 x 2 = 8 and K = 2 x 2 = 4.
Transformer two_layers() {
  return {.name = "tiny", .layers = 2, .hidden = 8, .heads = 4, .kv_heads = 2, .intermediate = 12, .vocab = 10};
}

}  // namespace

TEST_CASE("a layer's parameters are its seven matrices and two norms") {
  // query 8x8 = 64, key 8x4 = 32, value 32, output 64, gate 8x12 = 96, up 96, down 96: 480; norms
  // 8 + 8 = 16
  CHECK(two_layers().query_width() == 8);
  CHECK(two_layers().key_width() == 4);
  CHECK(two_layers().layer_matrix_parameters() == 480);
  CHECK(two_layers().layer_parameters() == 496);
}

TEST_CASE("embedding and head are counted once where they are tied") {
  // embedding 10x8 = 80; head: norm 8 + matrix 80 = 88; 2 layers x 496 = 992
  auto model = two_layers();
  CHECK(model.embedding_parameters() == 80);
  CHECK(model.head_parameters() == 88);
  CHECK(model.parameters() == 992 + 80 + 88);
  model.tied = true;
  CHECK(model.embedding_parameters() == 80);
  CHECK(model.head_parameters() == 8);
  CHECK(model.parameters() == 992 + 80 + 8);
}

TEST_CASE("a head size of its own changes the attention's width but not the hidden size") {
  // head size 3: Q = 12, K = 6; query 8x12 = 96, key and value 48 each, output 96, SwiGLU 288: 576
  auto model = two_layers();
  model.head_dim = 3;
  CHECK_NOTHROW(model.check());
  CHECK(model.query_width() == 12);
  CHECK(model.layer_matrix_parameters() == 576);
}

TEST_CASE("impossible shapes are refused in one line that says what would be right") {
  auto model = two_layers();
  model.heads = 3;
  model.kv_heads = 3;
  CHECK_THROWS_WITH_AS(model.check(),
                       "model 'tiny': 3 heads do not divide the hidden size of 8; choose a divisor of it, or give the head size "
                       "(head_dim)",
                       InputError);
  model.head_dim = 4;
  CHECK_NOTHROW(model.check());

  model = two_layers();
  model.kv_heads = 3;
  CHECK_THROWS_WITH_AS(model.check(), "model 'tiny': 3 key-value heads do not divide the 4 heads; each must serve equally many",
                       InputError);
  model.kv_heads = 8;  // more than heads divides nothing either
  CHECK_THROWS_AS(model.check(), InputError);

  model = two_layers();
  model.heads = 100000;
  model.kv_heads = 1;
  model.head_dim = 128;
  CHECK_THROWS_WITH_AS(model.check(), "model 'tiny': 100000 heads of 128 are too wide together; the most is 131072", InputError);
}

TEST_CASE("every size must lie within its limits") {
  int Transformer::*const sizes[] = {&Transformer::layers,   &Transformer::hidden,       &Transformer::heads,
                                     &Transformer::kv_heads, &Transformer::intermediate, &Transformer::vocab};
  for (const auto size : sizes) {
    for (const int wrong : {0, -1, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
      auto model = two_layers();
      model.*size = wrong;
      CHECK_THROWS_AS(model.check(), InputError);
    }
  }
  auto model = two_layers();
  model.layers = 0;
  CHECK_THROWS_WITH_AS(model.check(), "model 'tiny': the number of layers must be 1 to 4096, not 0", InputError);
  model = two_layers();
  model.head_dim = 0;
  CHECK_THROWS_WITH_AS(model.check(), "model 'tiny': the head size must be 1 to 131072, not 0", InputError);
  model = {};
  CHECK_THROWS_WITH_AS(model.check(), "model '(unnamed)': the number of layers must be 1 to 4096, not 0", InputError);
}

TEST_CASE("a utilization outside 0 to 1 is refused") {
  auto model = two_layers();
  for (const double wrong : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    model.utilization = wrong;
    CHECK_THROWS_AS(model.check(), InputError);
  }
  for (const double right : {0.0, 0.45, 1.0}) {
    model.utilization = right;
    CHECK_NOTHROW(model.check());
  }
}
