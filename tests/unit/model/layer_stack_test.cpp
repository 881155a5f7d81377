// Tests of model/layer_stack.hpp: stages of a model of any kind, its blocks of parameters, and what
// is refused.
// Not: the stack of a decoder (transformer_work_test.cpp).
#include "tawpipe/model/layer_stack.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "support/refusal.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer_work.hpp"
#include "tawpipe/model/workload.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

LayerStack perceptrons() {
  LayerStack model{.name = "perceptrons", .layers = 4, .dtype = Dtype::f64};
  model.first_edge = {.parameters = 88, .stash = 48_B, .backward_traffic = 7_B};
  model.layer = {
      .parameters = 128, .saved = 48_B, .stash = 48_B, .boundary = 48_B, .forward_workspace = 5_B, .forward = Flops{10}};
  model.last_edge = {.parameters = 100, .saved = 96_B, .forward_workspace = 9_B, .forward = Flops{3}};
  model.names = {.layer = "perceptron", .last_edge = {{"scale", 12}, {"symbols", 88}}};
  return model;
}

std::string refusal(const LayerStack& model) {
  return support::refusal([&] { model.check(); });
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

TEST_CASE("parameters are numbered block by block, and have the names that their author gave") {
  const ParameterBlocks blocks = perceptrons().blocks();
  CHECK(blocks.first_edge() == ParameterRange{0, 88});
  CHECK(blocks.layers(1, 2) == ParameterRange{216, 472});
  CHECK(blocks.last_edge() == ParameterRange{600, 700});
  CHECK(blocks.count() == 700);
  CHECK(perceptrons().parameters() == 700);
  CHECK(blocks.name({0, 88}) == "first edge");
  CHECK(blocks.name({216, 344}) == "perceptron.1");
  CHECK(blocks.name({216, 472}) == "perceptron.1 to perceptron.2");
  CHECK(blocks.name({217, 344}) == "part of perceptron.1");
  CHECK(blocks.name({0, 100}) == "first edge to part of perceptron.0");
  CHECK(blocks.name({599, 612}) == "part of perceptron.3 to scale");
  CHECK(blocks.name({612, 700}) == "symbols");
  CHECK(blocks.name({0, 700}) == "first edge to symbols");
}

TEST_CASE("the parameters of a decoder have its names; a stage with a tied matrix also uses the first edge") {
  Transformer model{.name = "m", .layers = 3, .hidden = 8, .heads = 2, .kv_heads = 1, .intermediate = 12, .vocab = 10};
  const Batch batch{.sequence = 6, .microbatch_size = 2, .global_batch = 8};
  const ParameterBlocks own = layer_stack(model, batch, Recompute::none).blocks();
  CHECK(own.name(own.first_edge()) == "embedding");
  CHECK(own.name(own.layers(1, 1)) == "layer.1");
  CHECK(own.name(own.last_edge()) == "final_norm to output");
  CHECK_FALSE(own.uses_first_edge({.last_edge = true}));
  model.tied = true;
  const ParameterBlocks tied = layer_stack(model, batch, Recompute::none).blocks();
  CHECK(tied.name(tied.last_edge()) == "final_norm");
  CHECK(tied.uses_first_edge({.last_edge = true}));
  CHECK_FALSE(tied.uses_first_edge({.layers = 1}));
}

TEST_CASE("a stack holds the decoder that made it, also of more sequences, and another model none") {
  const Transformer model{.name = "m",
                          .layers = 3,
                          .hidden = 8,
                          .heads = 2,
                          .kv_heads = 1,
                          .intermediate = 12,
                          .vocab = 10,
                          .early_stop = false,
                          .mtp = {0}};
  const Batch batch{.sequence = 6, .microbatch_size = 2, .global_batch = 8};
  const LayerStack stack = layer_stack(model, batch, Recompute::none);
  CHECK(stack.parameters() == model.parameters());
  for (const LayerStack& each : {stack, stack.times(3), Workload{stack, batch}.model()}) {
    REQUIRE(each.decoder);
    CHECK(each.decoder->early_stop == false);
    CHECK(each.decoder->mtp == LayerPattern{0});
    CHECK(each.decoder->parameters() == model.parameters());
  }
  CHECK_FALSE(perceptrons().decoder);
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

TEST_CASE("experts' parameters are found behind first layers without") {
  const Transformer model{.name = "m",
                          .layers = 5,
                          .hidden = 16,
                          .heads = 4,
                          .kv_heads = 2,
                          .intermediate = 24,
                          .vocab = 10,
                          .experts = 4,
                          .experts_per_token = 2,
                          .shared_width = 8,
                          .dense_layers = 2,
                          .dense_width = 40};
  const Batch batch{.sequence = 6, .microbatch_size = 2, .global_batch = 8};
  const auto stack = layer_stack(model, batch, Recompute::none);
  const auto blocks = stack.blocks();
  const std::vector<ParameterRange> all{{0, blocks.count()}};
  std::vector<ParameterRange> experts;
  for (const auto& tensor : ParameterOrder{model}.tensors()) {
    if (tensor.name.find(".experts.") != std::string::npos) append(experts, tensor.range);
  }
  CHECK(experts.size() == 3);
  CHECK(blocks.part_of(all, true) == experts);
  CHECK(parameters_in(blocks.part_of(all, false)) + parameters_in(experts) == blocks.count());
  CHECK(blocks.part_of(std::vector{blocks.layers(0, 2)}, true).empty());
  CHECK(blocks.part_of(std::vector{blocks.layers(1, 2)}, true) == std::vector{experts[0]});
  CHECK(blocks.name(blocks.layers(1, 1)) == "layer.1");
  CHECK(blocks.name(blocks.layers(1, 2)) == "layer.1 to layer.2");
  CHECK(blocks.name(blocks.layers(2, 1)) == "layer.2");
  const auto [begin, end] = blocks.layers(4, 1);
  CHECK(blocks.name({begin + 1, end}) == "part of layer.4");
  CHECK(blocks.name({end, end + 16}) == "final_norm");
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
  model.last_edge.forward = Flops{std::numeric_limits<double>::quiet_NaN()};
  CHECK(refusal(model) == "model 'perceptrons': the operations of its last edge are not a number of 0 or more");
  model = perceptrons();
  for (const std::int64_t count : {87, 89, -1}) {
    model = perceptrons();
    model.names.last_edge[1].count = count;
    CHECK(refusal(model) == "model 'perceptrons': the named blocks of its last edge must have its 100 parameters together");
  }
}
