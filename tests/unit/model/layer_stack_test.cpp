// Tests of model/layer_stack.hpp: stages of a model of any kind, its blocks of parameters, and what
// is refused.
// Not: the stack of a decoder (transformer_work_test.cpp).
#include "tawpipe/model/layer_stack.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/model/transformer_work.hpp"
#include "tawpipe/model/workload.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

LayerStack perceptrons() {
  LayerStack model{.name = "perceptrons", .layers = 4, .dtype = Dtype::f64};
  model.embedding = {.parameters = 88, .stash = 48_B, .backward_traffic = 7_B};
  model.layer = {
      .parameters = 128, .saved = 48_B, .stash = 48_B, .boundary = 48_B, .forward_workspace = 5_B, .forward = Flops{10}};
  model.head = {.parameters = 100, .saved = 96_B, .forward_workspace = 9_B, .forward = Flops{3}};
  model.norm_parameters = 12;
  return model;
}

std::string refusal(const LayerStack& model) {
  try {
    model.check();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a stage is the sum of its parts") {
  const Workload work{perceptrons(), Batch{.sequence = 6, .microbatch_size = 1, .global_batch = 8}};
  CHECK(work.microbatches() == 8);
  CHECK(work.edge_parameters() == 188);
  CHECK(work.model_flops() == Flops{8 * 43.0});
  const std::vector<StageWork> stages = work.split(3);  // 1, 1 and 2 layers
  REQUIRE(stages.size() == 3);
  CHECK(stages[0].parameters == 128);
  CHECK(stages[0].edge_parameters == 88);
  CHECK(stages[0].stash == 96_B);
  CHECK(stages[0].backward_traffic == 7_B);
  CHECK(stages[1].edge_parameters == 0);
  CHECK(stages[1].forward == Flops{10});
  CHECK(stages[2].parameters == 256);
  CHECK(stages[2].edge_parameters == 100);
  CHECK(stages[2].saved == 192_B);  // 2 x 48 + 96
  CHECK(stages[2].forward == Flops{23});
  CHECK(stages[2].forward_workspace == 9_B);  // the larger: one part runs at a time
  CHECK(stages[2].boundary == 48_B);
  CHECK(work.units().size() == 6);
}

TEST_CASE("parameters are numbered block by block") {
  const ParameterBlocks blocks = perceptrons().blocks();
  CHECK(blocks.embedding() == ParameterRange{0, 88});
  CHECK(blocks.layers(1, 2) == ParameterRange{216, 472});
  CHECK(blocks.final_norm() == ParameterRange{600, 612});
  CHECK(blocks.output() == ParameterRange{612, 700});
  CHECK(blocks.count() == 700);
  CHECK(perceptrons().parameters() == 700);
}

TEST_CASE("a decoder comes back from the stack that it made, and another model does not") {
  const Transformer model{.name = "m",
                          .layers = 3,
                          .hidden = 8,
                          .heads = 2,
                          .kv_heads = 1,
                          .intermediate = 12,
                          .vocab = 10,
                          .tied = true,
                          .dtype = Dtype::f32,
                          .head_dim = 6,
                          .loss_in_float32 = false};
  const Batch batch{.sequence = 6, .microbatch_size = 2, .global_batch = 8};
  LayerStack stack = layer_stack(model, batch, Recompute::none);
  CHECK(stack.parameters() == model.parameters());
  const auto again = transformer_of(stack);
  REQUIRE(again);
  CHECK(again->head_dim == 6);
  CHECK(again->kv_heads == 1);
  CHECK_FALSE(again->loss_in_float32);
  CHECK(again->parameters() == model.parameters());
  stack.layer.parameters += 1;  // no longer that decoder's
  CHECK_FALSE(transformer_of(stack));
  CHECK_FALSE(transformer_of(perceptrons()));
}

TEST_CASE("the stack of a decoder gives the work of its layers to the bit") {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const bool tied : {false, true}) {
      Transformer model{
          .name = "m", .layers = 7, .hidden = 24, .heads = 4, .kv_heads = 2, .intermediate = 12, .vocab = 101, .tied = tied};
      if (recompute == Recompute::full) model.loss_chunk = 10;
      const Batch batch{.sequence = 5, .microbatch_size = 3, .global_batch = 9};
      const LayerStack stack = layer_stack(model, batch, recompute);
      for (int layers = 0; layers <= 7; ++layers) {
        for (const bool embedding : {false, true}) {
          for (const bool head : {false, true}) {
            const StageWork one = transformer_work(model, batch, recompute, 0, layers, embedding, head);
            const StageWork other = stack.stage(0, layers, embedding, head);
            CHECK(one.parameters == other.parameters);
            CHECK(one.edge_parameters == other.edge_parameters);
            CHECK(one.saved == other.saved);
            CHECK(one.stash == other.stash);
            CHECK(one.boundary == other.boundary);
            CHECK(one.forward_workspace == other.forward_workspace);
            CHECK(one.backward_workspace == other.backward_workspace);
            CHECK(one.forward == other.forward);
            CHECK(one.recompute == other.recompute);
            CHECK(one.backward_input == other.backward_input);
            CHECK(one.backward_weight == other.backward_weight);
            CHECK(one.forward_traffic == other.forward_traffic);
            CHECK(one.backward_traffic == other.backward_traffic);
          }
        }
      }
    }
  }
}

TEST_CASE("a stack that cannot be is refused with what is wrong") {
  CHECK(refusal(perceptrons()).empty());
  LayerStack model = perceptrons();
  model.layers = 0;
  CHECK(refusal(model) == "model 'perceptrons': the number of layers must be 1 to 4096, not 0");
  model = perceptrons();
  model.layer.saved = Bytes{-1};
  CHECK(refusal(model).starts_with("model 'perceptrons': a size of its layer must be 0 to "));
  model = perceptrons();
  model.head.forward = Flops{std::numeric_limits<double>::quiet_NaN()};
  CHECK(refusal(model) == "model 'perceptrons': the operations of its head are not a number of 0 or more");
  model = perceptrons();
  model.norm_parameters = 101;
  CHECK(refusal(model) == "model 'perceptrons': its norm has 101 of the head's 100 parameters");
  model.tied = true;
  model.norm_parameters = 12;
  CHECK(refusal(model) == "model 'perceptrons': its output matrix is the embedding, but the head has one of its own");
}
