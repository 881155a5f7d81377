// Tests of model/workload.hpp and the defaults of model/stage_work.hpp.
// Not: what one stage weighs (transformer_work_test.cpp).
#include "tawpipe/model/workload.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/model/models.hpp"

using tawpipe::Batch;
using tawpipe::Bytes;
using tawpipe::InputError;
using tawpipe::Recompute;
using tawpipe::Transformer;
using tawpipe::Workload;

namespace {

Transformer of_layers(int layers, bool tied = false) {
  return {.name = "m", .layers = layers, .hidden = 8, .heads = 4, .kv_heads = 2, .intermediate = 12, .vocab = 10, .tied = tied};
}

const Batch batch{.sequence = 6, .microbatch_size = 2, .global_batch = 8};

std::vector<int> layers_of(const Workload& work, int stages) {
  std::vector<int> counts;
  int next = 0;
  for (const auto& stage : work.split(stages)) {
    CHECK(stage.first_layer == next);  // consecutive, none twice
    next += stage.layers;
    counts.push_back(stage.layers);
  }
  CHECK(next == work.model().layers);
  return counts;
}

}  // namespace

TEST_CASE("layers are cut as evenly as can be") {
  // cuts at floor(s x 48 / 7): 0, 6, 13, 20, 27, 34, 41, 48
  CHECK(layers_of({of_layers(48), batch}, 7) == std::vector{6, 7, 7, 7, 7, 7, 7});
  // floor(s x 300 / 7): 0, 42, 85, 128, 171, 214, 257, 300
  CHECK(layers_of({of_layers(300), batch}, 7) == std::vector{42, 43, 43, 43, 43, 43, 43});
  CHECK(layers_of({of_layers(48), batch}, 24) == std::vector<int>(24, 2));
  CHECK(layers_of({of_layers(5), batch}, 1) == std::vector{5});
}

TEST_CASE("more stages than layers leave stages without a layer, but not without their edge") {
  // floor(s x 2 / 8): 0, 0, 0, 0, 1, 1, 1, 1, 2
  const Workload work{of_layers(2), batch};
  CHECK(layers_of(work, 8) == std::vector{0, 0, 0, 1, 0, 0, 0, 1});
  const auto stages = work.split(8);
  CHECK(stages[0].first_edge);
  CHECK(stages[0].edge_parameters == 80);
  CHECK(stages[1].parameters == 0);
  CHECK(stages[1].forward.value() == 0);
  CHECK(stages[1].saved == Bytes{0});
  CHECK(stages[1].boundary == stages[3].boundary);  // the activation passes through
  CHECK(stages[7].last_edge);
}

TEST_CASE("a cut loses nothing and adds nothing, whatever the number of stages") {
  for (const auto recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const Workload work{of_layers(13), batch, recompute};
    const auto whole = work.split(1).front();
    for (int stages = 1; stages <= 20; ++stages) {
      tawpipe::StageWork sum;
      int embeddings = 0;
      int heads = 0;
      int fewest = 13;
      int most = 0;
      for (const auto& stage : work.split(stages)) {
        sum.parameters += stage.parameters;
        sum.edge_parameters += stage.edge_parameters;
        sum.saved += stage.saved;
        sum.forward += stage.forward;
        sum.recompute += stage.recompute;
        sum.backward_input += stage.backward_input;
        sum.backward_weight += stage.backward_weight;
        sum.forward_traffic += stage.forward_traffic;
        sum.backward_traffic += stage.backward_traffic;
        embeddings += stage.first_edge ? 1 : 0;
        heads += stage.last_edge ? 1 : 0;
        fewest = stage.layers < fewest ? stage.layers : fewest;
        most = stage.layers > most ? stage.layers : most;
      }
      CHECK(embeddings == 1);
      CHECK(heads == 1);
      CHECK(most - fewest <= 1);
      CHECK(sum.parameters == whole.parameters);
      CHECK(sum.edge_parameters == whole.edge_parameters);
      CHECK(sum.saved == whole.saved);
      CHECK(sum.forward == whole.forward);  // integers below 2^53: sums are exact
      CHECK(sum.recompute == whole.recompute);
      CHECK(sum.backward_input == whole.backward_input);
      CHECK(sum.backward_weight == whole.backward_weight);
      CHECK(sum.forward_traffic == whole.forward_traffic);
      CHECK(sum.backward_traffic == whole.backward_traffic);
    }
  }
}

TEST_CASE("a tied matrix appears a second time as soon as the model is cut") {
  const Workload work{of_layers(4, true), batch};
  CHECK(work.split(1).front().edge_parameters == 88);
  const auto stages = work.split(2);
  CHECK(stages[0].edge_parameters == 80);
  CHECK(stages[1].edge_parameters == 88);
  CHECK(work.edge_parameters() == 88);
}

TEST_CASE("the units of sharded data parallelism are embedding, each layer and head") {
  const Workload work{of_layers(3), batch};
  const auto units = work.units();
  REQUIRE(units.size() == 5);
  CHECK(units[0].first_edge);
  CHECK(units[0].layers == 0);
  CHECK(units[0].edge_parameters == 80);
  for (std::size_t u = 1; u <= 3; ++u) {
    CHECK(units[u].layers == 1);
    CHECK(units[u].first_layer == static_cast<int>(u) - 1);
    CHECK(units[u].parameters == 496);
    CHECK(units[u].edge_parameters == 0);
  }
  CHECK(units[4].last_edge);
  CHECK(units[4].parameters == 0);
  CHECK(units[4].edge_parameters == 88);
  tawpipe::Flops forward;
  for (const auto& unit : units) forward += unit.forward;
  CHECK(forward == work.split(1).front().forward);
}

TEST_CASE("model operations of an iteration leave out what is recomputed") {
  // tiny layer: 3 x 11520 + 3 x 1152 = 38016; head 3 x 1920 = 5760; 2 layers, 8 / 2 = 4
  // microbatches
  const Workload work{of_layers(2), batch};
  CHECK(work.microbatches() == 4);
  CHECK(work.model_flops().value() == 4 * (2 * 38016 + 5760));
  CHECK(Workload{of_layers(2), batch, Recompute::full}.model_flops() == work.model_flops());
  CHECK(work.tokens() == 48);
}

TEST_CASE("training sums gradients in float32 at least, and keeps 16-bit weights in float32 too") {
  CHECK(tawpipe::trained_bytes(tawpipe::Dtype::bf16) == tawpipe::ParameterBytes{.weight = 2, .gradient = 4, .optimizer = 12});
  CHECK(tawpipe::trained_bytes(tawpipe::Dtype::f16) == tawpipe::trained_bytes(tawpipe::Dtype::bf16));
  CHECK(tawpipe::trained_bytes(tawpipe::Dtype::f32) == tawpipe::ParameterBytes{.weight = 4, .gradient = 4, .optimizer = 8});
  CHECK(tawpipe::trained_bytes(tawpipe::Dtype::f64) == tawpipe::ParameterBytes{.weight = 8, .gradient = 8, .optimizer = 16});
}

TEST_CASE("a workload without a model has equal shares of 1 MB and no operations") {
  const auto work = Workload::abstract(4, 12);
  CHECK(work.is_abstract());
  CHECK(work.microbatches() == 12);
  CHECK(work.model_flops().value() == 0);
  CHECK(work.tokens() == 0);
  CHECK(work.edge_parameters() == 0);
  CHECK(work.parameter_bytes().weight == 1);
  const auto stages = work.split(8);  // 4 devices' shares over 8 stages: half a share each
  REQUIRE(stages.size() == 8);
  CHECK(stages[0].parameters == 500'000);
  CHECK(stages[0].saved == Bytes{500'000});
  CHECK(stages[0].boundary == Bytes{1'000'000});
  CHECK(stages[0].share.numerator == 4);
  CHECK(stages[0].share.denominator == 8);
  CHECK(work.units().size() == 4);
}

TEST_CASE("impossible workloads are refused") {
  CHECK_THROWS_WITH_AS(Workload::abstract(0, 1), "a workload needs at least one device", InputError);
  CHECK_THROWS_WITH_AS(Workload::abstract(1, 0), "0 microbatches are impossible; an iteration needs at least 1", InputError);
  CHECK_THROWS_WITH_AS((Workload{of_layers(2), batch}.split(0)), "0 stages are impossible; a model needs at least 1", InputError);
  CHECK_THROWS_AS((Workload{of_layers(0), batch}), InputError);
  CHECK_THROWS_AS((Workload{of_layers(2), {.sequence = 8, .microbatch_size = 3, .global_batch = 8}}), InputError);
}

TEST_CASE("16-bit training with Adam takes sixteen bytes a parameter") {
  const tawpipe::ParameterBytes bytes;  // ZeRO, section 3.1: 2 + 2 + 12
  CHECK(bytes.weight + bytes.gradient + bytes.optimizer == 16);
}
