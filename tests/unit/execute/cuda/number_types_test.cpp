#include "tawpipe/execute/cuda/number_types.hpp"

#include <doctest/doctest.h>

#include "tawpipe/model/models.hpp"

using namespace tawpipe;

namespace {

Workload work(Dtype type, const ParameterBytes& bytes) {
  Transformer model = models::named("llama-4x128");
  model.dtype = type;
  Workload made{model, Batch{.sequence = 8, .microbatch_size = 1, .global_batch = 1}};
  made.parameter_bytes(bytes);
  return made;
}

}  // namespace

TEST_CASE("numbers follow from the model's dtype and the bytes a parameter takes") {
  const auto mixed = cuda::number_types(work(Dtype::bf16, {2, 4, 12}));
  CHECK(mixed.weight == Dtype::bf16);
  CHECK(mixed.gradient == Dtype::f32);
  CHECK(mixed.master);
  CHECK(mixed.of(Payload::weights) == Dtype::bf16);
  CHECK(mixed.of(Payload::activation_gradients) == Dtype::bf16);
  CHECK(mixed.of(Payload::edge_gradients) == Dtype::f32);
  CHECK(mixed.of(Payload::scalar) == Dtype::f32);
  CHECK(cuda::number_types(work(Dtype::f16, {2, 2, 8})).gradient == Dtype::f16);
  CHECK(!cuda::number_types(work(Dtype::f32, {4, 4, 8})).master);
}

TEST_CASE("a layer whose gradients have other numbers than the schedule's memory is refused") {
  struct Wide {
    using Gradient [[maybe_unused]] = float;
  };
  struct Narrow {
    using Gradient [[maybe_unused]] = std::uint16_t;
  };
  struct Any {};
  const auto unsaid = cuda::number_types(work(Dtype::bf16, {}));
  const auto trained = cuda::number_types(work(Dtype::bf16, trained_bytes(Dtype::bf16)));
  CHECK_THROWS_WITH_AS(cuda::check_gradients<Wide>(unsaid),
                       doctest::Contains("set Workload::parameter_bytes(trained_bytes(dtype))"), InputError);
  CHECK_THROWS_WITH_AS(cuda::check_gradients<Narrow>(trained), doctest::Contains("of 4 bytes and the layer computes them in 2"),
                       InputError);
  CHECK_NOTHROW(cuda::check_gradients<Narrow>(unsaid));
  CHECK_NOTHROW(cuda::check_gradients<Wide>(trained));
  CHECK_NOTHROW(cuda::check_gradients<Any>(unsaid));
}

TEST_CASE("sizes that no numbers have are refused") {
  CHECK_THROWS_WITH_AS(cuda::number_types(work(Dtype::f64, {8, 8, 16})), doctest::Contains("not in float64"), InputError);
  CHECK_THROWS_WITH_AS(cuda::number_types(work(Dtype::bf16, {4, 4, 8})), doctest::Contains("weights take 2, gradients 2 or 4"),
                       InputError);
  CHECK_THROWS_AS(cuda::number_types(work(Dtype::f32, {4, 2, 8})), InputError);
  CHECK_THROWS_AS(cuda::number_types(work(Dtype::f32, {4, 4, 4})), InputError);
}
