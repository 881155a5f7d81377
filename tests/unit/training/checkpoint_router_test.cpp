// What checkpoints keep of a mixture of experts beside its parameters: a router's biases of the choice.
// Not: checkpoints of any model (checkpoint_test.cpp).
#include <doctest/doctest.h>

#include <span>
#include <string>

#include "support/checkpoints.hpp"
#include "support/scratch_folder.hpp"
#include "support/small_decoder.hpp"
#include "tawpipe/training/checkpoint.hpp"

namespace checkpoint_router_test {

using tawpipe::InputError;
using tawpipe::training::Checkpoint;
using tawpipe::training::ParameterValue;

TEST_CASE("a checkpoint keeps a router's biases of the choice, and latent attention's sizes") {
  const support::ScratchFolder folder;
  tawpipe::Transformer model = support::small_decoder();
  model.dense_layers = 1;
  model.dense_width = 20;
  model.experts = 3;
  model.experts_per_token = 2;
  model.kv_heads = 2;
  model.key_value_rank = 5;
  model.rope_width = 2;
  model.value_size = 6;
  model.head_dim = 4;
  tawpipe::DecoderConstants constants;
  constants.router = {.sigmoid = true, .scale = 2.5, .bias = {0.1, -1, 1.0 / 3}};
  const auto written = [&](const std::string& run) {
    return tawpipe::training::write_checkpoint(
        folder / run, model, constants, support::state_of(5),
        [](const tawpipe::training::CheckpointPart& part, std::span<std::byte> bytes) { support::fill<float>(part, bytes, 0); });
  };
  const Checkpoint checkpoint{written("run")};
  CHECK_NOTHROW(checkpoint.verify());
  CHECK(checkpoint.constants() == constants);
  CHECK(checkpoint.model().parameters() == model.parameters());
  CHECK(support::holds(checkpoint, ParameterValue::weight, {0, model.parameters()}));
  CHECK(support::holds(checkpoint, ParameterValue::second_moment, {0, model.parameters()}));
  CHECK_NOTHROW(checkpoint.expect(model, constants));
  tawpipe::Transformer other = model;
  other.query_rank = 4;
  CHECK_THROWS_WITH_AS(checkpoint.expect(other, constants), doctest::Contains("has q_lora_rank 0, the model has 4"), InputError);
  constants.router.bias[0] = 0.2;
  CHECK_THROWS_WITH_AS(checkpoint.expect(model, constants), doctest::Contains("has other constants"), InputError);
  constants.router.bias = {};  // as a config.json has them
  CHECK_NOTHROW(checkpoint.expect(model, constants));
  CHECK(Checkpoint{written("without")}.constants() == constants);
}

}  // namespace checkpoint_router_test
