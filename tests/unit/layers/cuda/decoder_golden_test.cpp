// The GPU decoder on a host against golden numbers: losses and gradients of the first step in three
// number formats.
// Not: cuts, splits and memory (decoder_test.cpp) nor a GPU (tests/gpu/layers_decoder_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/golden.hpp"
#include "support/host_math.hpp"
#include "support/llama_run.hpp"

namespace {

using tawpipe::layers::cuda::dtype_of;
using tawpipe::layers::cuda::narrow;

/// @param loss      by how much a microbatch's may be off
/// @param gradient  by how much a tensor's may be off, relative to its norm
template <class T>
void check_first_step(const std::string& name, double loss, double gradient) {
  CAPTURE(name);
  const golden::Case test{name};
  const auto model = test.model(dtype_of<T>);
  const auto count = static_cast<double>(test.microbatches());
  llama_run::Runner<T, support::HostDecoder<T, float>, float> runner{
      model, test.batch(), llama_run::whole(model.layers), {.scale = 1 / count}};
  for (const auto& tensor : tawpipe::ParameterOrder{model}.tensors()) {
    const auto values = test.init.read<float>(tensor.name);
    std::ranges::transform(values, runner.parameters.template as<T>().begin() + tensor.range.begin, narrow<T>);
  }
  const auto losses = test.expect.read<double>("loss_mb.f64");
  for (std::int64_t m = 0; m < test.microbatches(); ++m) {
    const auto result = runner.run(test.microbatch(test.tokens, m), test.microbatch(test.targets, m));
    CHECK(std::abs(result.loss - losses[static_cast<std::size_t>(m)]) < loss);
  }
  const auto found = runner.gradients.template as<float>();
  for (const auto& tensor : tawpipe::ParameterOrder{model}.tensors()) {
    CAPTURE(tensor.name);
    const auto wanted = test.expect.read<double>("grad0/" + tensor.name);
    double square = 0;
    double norm = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto ours = static_cast<double>(found[static_cast<std::size_t>(tensor.range.begin) + i]);
      square += (ours - wanted[i]) * (ours - wanted[i]);
      norm += wanted[i] * wanted[i];
    }
    CHECK(std::sqrt(square / norm) < gradient);
  }
}

}  // namespace

TEST_CASE("losses and gradients of configuration A") {
  check_first_step<float>("A", 1e-5, 5e-6);
  // 24 times half a unit in the last place, as decoder_test.cpp explains.
  check_first_step<tawpipe::Bfloat16>("A", 24 * 0x1p-9, 24 * 0x1p-9);
  check_first_step<tawpipe::Half>("A", 24 * 0x1p-12, 24 * 0x1p-12);
}
