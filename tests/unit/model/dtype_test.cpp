// Tests of model/dtype.hpp.
// Not: what a size is used for (activation_test.cpp).
#include "tawpipe/model/dtype.hpp"

#include <doctest/doctest.h>

#include "tawpipe/core/error.hpp"

using tawpipe::Dtype;

TEST_CASE("a dtype takes as many bytes as its bits say") {
  CHECK(tawpipe::size_bytes(Dtype::f64) == 8);
  CHECK(tawpipe::size_bytes(Dtype::f32) == 4);
  CHECK(tawpipe::size_bytes(Dtype::bf16) == 2);
  CHECK(tawpipe::size_bytes(Dtype::f16) == 2);
  CHECK(tawpipe::size_bytes(Dtype::f8) == 1);
}

TEST_CASE("a dtype's own name parses back to it") {
  for (const auto dtype : {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f8}) {
    CHECK(tawpipe::parse_dtype(tawpipe::name(dtype)) == dtype);
  }
}

TEST_CASE("PyTorch's other names and the short ones parse") {
  CHECK(tawpipe::parse_dtype("torch.bfloat16") == Dtype::bf16);
  CHECK(tawpipe::parse_dtype("half") == Dtype::f16);
  CHECK(tawpipe::parse_dtype("float") == Dtype::f32);
  CHECK(tawpipe::parse_dtype("float8_e4m3fn") == Dtype::f8);
  CHECK(tawpipe::parse_dtype("bf16") == Dtype::bf16);
}

TEST_CASE("an unknown dtype is refused with the nearest name and all that exist") {
  CHECK_THROWS_WITH_AS(tawpipe::parse_dtype("bfloat166"),
                       "unknown dtype 'bfloat166'; did you mean 'bfloat16'? Known: float64, float32, bfloat16, float16, float8",
                       tawpipe::InputError);
  CHECK_THROWS_AS(tawpipe::parse_dtype(""), tawpipe::InputError);
  CHECK_THROWS_AS(tawpipe::parse_dtype("torch."), tawpipe::InputError);
  CHECK_THROWS_AS(tawpipe::parse_dtype("FLOAT16"), tawpipe::InputError);
}
