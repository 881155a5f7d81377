// The work of layers by their operators, alone and shared by ranks: as equal layers have it, and for
// what only operators tell.
// Not: parameters and operations of published models (model_test.cpp).
#include "tawpipe/model/operator_work.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "tawpipe/core/error.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/stage_cut.hpp"
#include "tawpipe/model/transformer_body.hpp"

using namespace tawpipe;

namespace operator_work_test {

namespace {

const Batch batch{.sequence = 4096, .microbatch_size = 1, .global_batch = 8};

/// [pass, whether it is traffic] operations or bytes
std::map<std::pair<KernelPass, bool>, double> sums(const std::vector<Kernel>& kernels) {
  std::map<std::pair<KernelPass, bool>, double> sum;
  for (const Kernel& kernel : kernels) {
    const bool traffic = kernel.kind == Kernel::Kind::traffic;
    sum[{kernel.pass, traffic}] += traffic ? kernel.bytes * kernel.count : kernel.flops() * kernel.count;
  }
  return sum;
}

/// A model of several kinds that are all those of `model`.
Transformer told_by_kinds(const Transformer& model) {
  Transformer told = Transformer::of(model.decoder());
  told.dtype = model.dtype;
  told.kinds.push_back(told.kinds.front());
  for (std::size_t layer = 1; layer < told.pattern.size(); layer += 2) told.pattern[layer] = 1;
  return told;
}

struct BodySums {
  double flops = 0;
  double traffic = 0;
  double collectives = 0;
  int count = 0;  ///< of collectives
};
BodySums sums(const StageBody& body) {
  BodySums sum;
  for (const BodyStep& step : body) {
    sum.flops += step.flops.value();
    sum.traffic += static_cast<double>(step.traffic.value());
    sum.collectives += static_cast<double>(step.bytes.value());
    sum.count += step.is_compute() ? 0 : 1;
  }
  return sum;
}

Transformer hybrid() {
  const DeltaNet linear{.key_heads = 4, .value_heads = 8, .key_dim = 32, .value_dim = 32};
  const Attention full{.heads = 8, .kv_heads = 2, .head_dim = 32, .turned = 8, .gate = true};
  const Mixture mixture{.experts = 8, .per_token = 2, .width = 128, .shared_width = 128, .shared_gate = true};
  return Transformer::of(
      {.name = "hybrid",
       .hidden = 256,
       .vocab = 1000,
       .kinds = {{.name = "linear", .sublayers = {linear, mixture}}, {.name = "full", .sublayers = {full, mixture}}},
       .pattern = repeated({0, 0, 0, 1}, 8)});
}

}  // namespace

TEST_CASE("operators say of equal layers what activations, traffic and kernels of a decoder do") {
  for (const char* const name : {"llama-3-8b", "mixtral-8x7b"}) {
    for (const ProductFormat products : {ProductFormat::bits16, ProductFormat::mxfp8}) {
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        Transformer model = models::named(name);
        model.products = products;
        // With experts and 8 bits the chosen policy keeps copies in 16 bits by the one telling.
        if (model.is_routed() && is_narrow(products) && recompute == Recompute::selective) continue;
        CAPTURE(tawpipe::name(recompute));
        CAPTURE(tawpipe::name(products));
        const StageWork one = layer_work(model.layer_kind(), model, batch, recompute);
        const StageWork other = layer_stack(model, batch, recompute).layer;
        CHECK(one.parameters == other.parameters);
        CHECK(one.saved == other.saved);
        CHECK(one.boundary == other.boundary);
        CHECK(one.forward_workspace == other.forward_workspace);
        CHECK(one.backward_workspace == other.backward_workspace);
        CHECK(one.stash >= other.stash);
        CHECK(one.forward_traffic == other.forward_traffic);
        CHECK(one.backward_traffic == other.backward_traffic);
        CHECK(one.forward.value() == other.forward.value());
        CHECK(one.recompute.value() == other.recompute.value());
        CHECK(one.backward_input.value() == other.backward_input.value());
        CHECK(one.backward_weight.value() == other.backward_weight.value());
        CHECK(sums(one.kernels) == sums(other.kernels));
      }
    }
  }
}

TEST_CASE("kinds of layers that are all alike are shared as equal layers are") {
  Transformer model = models::named("llama-3-8b");
  model.layers = 4;
  const Transformer told = told_by_kinds(model);
  CHECK(told.parameters() == model.parameters());
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const bool sequence_parallel : {true, false}) {
      const Sharing sharing{.tensor = 4, .sequence_parallel = sequence_parallel};
      const auto shared = [&](const Transformer& of) {
        const std::vector stages{layer_stack(of, batch, recompute).stage(0, 4, true, true)};
        return share_stages(of, batch, recompute, stages, sharing).front();
      };
      const SharedStage one = shared(told);
      const SharedStage other = shared(model);
      CHECK(one.work.saved.value() == doctest::Approx(static_cast<double>(other.work.saved.value())).epsilon(1e-3));
      CHECK(one.work.parameters == other.work.parameters);
      CHECK(one.work.forward_workspace.value() ==
            doctest::Approx(static_cast<double>(other.work.forward_workspace.value())).epsilon(0.02));
      for (const auto body :
           {&SharedStage::forward, &SharedStage::backward, &SharedStage::backward_input, &SharedStage::backward_weight}) {
        const BodySums a = sums(one.*body);
        const BodySums b = sums(other.*body);
        CHECK(a.flops == doctest::Approx(b.flops));
        CHECK(a.count == b.count);
        CHECK(a.collectives == doctest::Approx(b.collectives));
        if (sequence_parallel) CHECK(a.traffic == doctest::Approx(b.traffic).epsilon(1e-3));
      }
    }
  }
}

TEST_CASE("a stack of several kinds of layers has each layer's work at its place") {
  const Transformer model = hybrid();
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const LayerStack stack = layer_stack(model, batch, recompute);
    stack.check();
    CHECK(stack.has_kernels());
    CHECK(stack.parameters() == model.parameters());
    const StageWork all = stack.stage(0, 8, true, true);
    const double step = model.decoder().flops(batch.sequence).all() * static_cast<double>(batch.tokens());
    CHECK((all.forward + all.backward_input + all.backward_weight).value() == doctest::Approx(step));
    StageWork sum;
    for (int layer = 0; layer < 8; ++layer) {
      const StageWork one = stack.stage(layer, 1, layer == 0, layer == 7);
      CHECK(one.layers_of(layer % 4 == 3 ? 1 : 0) == 1);
      sum.parameters += one.parameters + one.edge_parameters;
      sum.saved += one.saved;
      sum.forward += one.forward;
    }
    CHECK(sum.parameters == model.parameters());
    CHECK(sum.saved == all.saved);
    CHECK(sum.forward.value() == doctest::Approx(all.forward.value()));
    // Experts: 8 of 3 matrices in each layer, a run of its parameters.
    CHECK(all.expert_parameters == 8 * 8 * 3 * 128 * 256);
    CHECK(model.expert_parameters() == all.expert_parameters);
    CHECK(parameters_in(stack.blocks().part_of(std::vector{ParameterRange{0, stack.parameters()}}, true)) ==
          all.expert_parameters);
  }
}

TEST_CASE("layers that predict further tokens run with the loss") {
  Model plain = hybrid().decoder();
  Model more = plain;
  more.mtp = {1};
  const StageWork before = layer_stack(Transformer::of(plain), batch, Recompute::none).last_edge;
  const StageWork after = layer_stack(Transformer::of(more), batch, Recompute::none).last_edge;
  CHECK(after.parameters - before.parameters == more.parameters() - plain.parameters());
  const double flops =
      (more.flops(batch.sequence).forward - plain.flops(batch.sequence).forward) * static_cast<double>(batch.tokens());
  CHECK((after.forward - before.forward).value() == doctest::Approx(flops));
  CHECK(after.saved > before.saved);
}

TEST_CASE("ranks split experts whole or by width, and the collectives follow") {
  const Transformer model = hybrid();
  const std::vector stages{layer_stack(model, batch, Recompute::none).stage(0, 8, false, false)};
  const auto body = [&](const Sharing& sharing) { return share_stages(model, batch, Recompute::none, stages, sharing).front(); };
  const auto count = [](const StageBody& of, BodyStep::Kind kind) {
    return std::count_if(of.begin(), of.end(), [&](const BodyStep& step) { return step.kind == kind; });
  };
  // To the experts and back in each of 8 layers, k = 2 copies of H = 256 numbers of a rank's tokens.
  const SharedStage whole = body({.tensor = 1, .expert = 4, .whole_experts = true});
  CHECK(count(whole.forward, BodyStep::Kind::all_to_all) == 16);
  CHECK(count(whole.backward, BodyStep::Kind::all_to_all) == 16);
  CHECK(std::find_if(whole.forward.begin(), whole.forward.end(), [](const BodyStep& step) {
          return !step.is_compute();
        })->bytes == Bytes{4096 / 4 * 2 * 256 * 2});
  CHECK(whole.work.parameters == stages[0].parameters - stages[0].expert_parameters * 3 / 4);
  const SharedStage split = body({.tensor = 2});
  CHECK(count(split.forward, BodyStep::Kind::all_to_all) == 0);
  CHECK(count(split.forward, BodyStep::Kind::all_gather) == count(split.backward_input, BodyStep::Kind::reduce_scatter));
  CHECK(count(split.forward, BodyStep::Kind::reduce_scatter) == count(split.backward_input, BodyStep::Kind::all_gather));
}

TEST_CASE("a sharing that an operator does not have is refused by its name") {
  const Transformer model = hybrid();
  const std::vector stages{layer_stack(model, batch, Recompute::none).stage(0, 8, true, true)};
  const auto refusal = [&](const Sharing& sharing) -> std::string {
    try {
      share_stages(model, batch, Recompute::none, stages, sharing);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal({.context = 2}) == "model 'hybrid': context parallelism is not known for its layers' convolution");
  CHECK(refusal({.tensor = 2, .overlap = true}).empty());
  CHECK(refusal({.tensor = 3}) == "model 'hybrid': tensor 3 does not divide the 8 heads of its layers' delta rule");
  CHECK(refusal({.tensor = 2}).empty());
  Transformer other = model;
  other.code = LayerCode::torchtitan;
  CHECK_THROWS_WITH_AS(other.check(), doctest::Contains("not with the layers' code torchtitan"), InputError);
}

TEST_CASE("unequal layers are balanced by their times") {
  const auto slowest = [](const std::vector<double>& each, const std::vector<std::int32_t>& layers, double embedding,
                          double head) {
    double most = 0;
    std::size_t at = 0;
    for (std::size_t stage = 0; stage < layers.size(); ++stage) {
      double time = (stage == 0 ? embedding : 0) + (stage + 1 == layers.size() ? head : 0);
      for (std::int32_t i = 0; i < layers[stage]; ++i) time += each[at++];
      most = std::max(most, time);
    }
    return most;
  };
  const std::vector<double> each{1, 1, 3, 1, 1, 3, 2, 1, 1, 4};
  for (const double head : {0.0, 2.5}) {
    const std::vector<std::int32_t> found = balanced_layers(each, 3, 0.5, head);
    REQUIRE(found.size() == 3);
    CHECK(found[0] + found[1] + found[2] == 10);
    double best = 1e9;  // of all cuts
    for (std::int32_t a = 1; a < 9; ++a) {
      for (std::int32_t b = 1; a + b < 10; ++b) best = std::min(best, slowest(each, {a, b, 10 - a - b}, 0.5, head));
    }
    CHECK(slowest(each, found, 0.5, head) == doctest::Approx(best));
  }
}

}  // namespace operator_work_test
