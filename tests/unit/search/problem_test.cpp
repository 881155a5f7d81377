// Tests of search/problem.hpp: with a model of any kind (Problem::stack) it is answered like one
// with a transformer, and what only a transformer has is refused.
// Not: the parts of a stack (unit/model/layer_stack_test.cpp).
#include "tawpipe/search/problem.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/refusal.hpp"
#include "tawpipe/model/transformer_work.hpp"
#include "tawpipe/search/bound.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/plan.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/search/what_fits.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;
using support::refusal;

namespace {

/// Residual perceptrons of width 1,024 and 256 tokens a sequence, eight of them after an embedding
/// and before a head of 4,096 symbols.
LayerStack perceptrons() {
  constexpr std::int64_t width = 1024, tokens = 256, symbols = 4096;
  const Flops layer{4.0 * tokens * width * width}, head{2.0 * tokens * width * symbols};
  LayerStack model{.name = "perceptrons", .layers = 8};
  model.first_edge = {.parameters = symbols * width};
  model.layer = {.parameters = 2 * width * width,
                 .saved = Bytes{4 * tokens * width},
                 .stash = Bytes{4 * tokens * width},
                 .boundary = Bytes{2 * tokens * width},
                 .forward = layer,
                 .backward_input = layer,
                 .backward_weight = layer};
  model.last_edge = {.parameters = symbols * width,
                     .saved = Bytes{2 * tokens * symbols},
                     .forward = head,
                     .backward_input = head,
                     .backward_weight = head};
  return model;
}

Problem problem(LayerStack model, std::vector<ScheduleChoice> schedules) {
  return {.cluster = support::cluster(4, 2),
          .stack = std::move(model),
          .sequence = 256,
          .global_batch = 32,
          .schedules = std::move(schedules),
          .cost = RooflineCost{}};
}

}  // namespace

TEST_CASE("the stack of a transformer is predicted as the transformer, with any microbatch size") {
  const Transformer model{.name = "m", .layers = 8, .hidden = 64, .heads = 4, .kv_heads = 2, .intermediate = 256, .vocab = 128};
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    for (const char* name : {"1f1b", "tawpipe", "fsdp", "zb-h1", "interleaved-1f1b"}) {
      for (const int data : {1, 2}) {
        for (const std::int64_t size : {1, 4}) {
          if (data == 2 && size == 4) continue;  // fsdp has a microbatch for each device
          CAPTURE(name);
          Problem own = problem(layer_stack(model, Batch{256, 1, 1}, recompute), {{name}});
          own.microbatch_sizes = {size};
          own.mesh.data = data;
          Problem known = own;
          known.stack.reset();
          known.model = model;
          known.recompute = recompute;
          const Prediction of_stack = predict(own, shipped());
          const Prediction of_model = predict(known, shipped());
          CHECK(of_stack.timeline == of_model.timeline);
          CHECK(of_stack.summary.peak_memory[0].total == of_model.summary.peak_memory[0].total);
          CHECK(of_stack.summary.recompute == tawpipe::name(recompute));
        }
      }
    }
  }
  Problem by_kernels = problem(layer_stack(model, Batch{256, 1, 1}, Recompute::none), {{"1f1b"}});
  by_kernels.cost = KernelCost{};
  by_kernels.microbatch_sizes = {1};
  Problem known = by_kernels;
  known.stack.reset();
  known.model = model;
  known.recompute = Recompute::none;
  CHECK(predict(by_kernels, shipped()).timeline == predict(known, shipped()).timeline);
}

TEST_CASE("schedule, options and microbatch size of an own model are the fastest of all") {
  const Problem open =
      problem(perceptrons(), {{"1f1b"}, {"tawpipe"}, {"fsdp"}, {.schedule = "interleaved-1f1b", .automatic = true}, {"zb-h1"}});
  const Prediction best = predict(open, shipped());
  REQUIRE(best.fits());
  int tried = 0;
  for (const ScheduleChoice& choice : open.schedules) {
    for (const ScheduleOptions& options : shipped().variants(choice.schedule, choice.options, choice.automatic)) {
      for (const std::int64_t size : {1, 2, 4, 8, 16, 32}) {
        Summary one;
        try {
          const ScheduleRequest request{
              .workload = open.workload(size), .nodes = open.cluster.groups_by_node(), .options = options};
          one = predict(open, build_schedule(choice.schedule, request)).summary;
        } catch (const InputError&) {  // this schedule cannot have so few microbatches
          continue;
        }
        ++tried;
        CHECK((!one.fits() || best.summary.makespan <= one.makespan));
      }
    }
  }
  CHECK(tried > 24);
  const Chosen chosen = choose(open, {.schedule = "interleaved-1f1b", .automatic = true}, shipped());
  CHECK(predict(chosen_problem(open, chosen), shipped()).summary.makespan == chosen.summary.makespan);
}

TEST_CASE("an own model is cut by the times of its parts, and its states go to host memory where they do not fit") {
  Problem one = problem(perceptrons(), {{"1f1b"}});
  one.stack->last_edge.forward = one.stack->layer.forward * 4;
  const Duration even = predict(one, shipped()).summary.makespan;
  one.stage_cut.balanced = true;
  CHECK(predict(one, shipped()).summary.makespan < even);

  one = problem(perceptrons(), {{"1f1b"}});
  one.microbatch_sizes = {1};
  one.cluster = ClusterBuilder{}
                    .device({.name = "device", .memory = 1_GB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
                    .devices_of_nodes({2, 2})
                    .intra_node({.bandwidth = 1_GBps, .latency = 1_us})
                    .inter_node({.bandwidth = 1_GBps, .latency = 1_us})
                    .host_link({.bandwidth = 2_GBps, .latency = 1_us})
                    .build();
  one.usable_memory = 0.14;  // of 1 GB: the first rank needs 144 MB, 137 with its states in host memory
  CHECK_FALSE(predict(one, shipped()).fits());
  const auto fitting = find_fitting_layout(one, shipped());
  REQUIRE(fitting);
  CHECK(fitting->problem.offload.optimizer);
  CHECK(fitting->problem.mesh.is_plain());
}

TEST_CASE("what only a transformer has is refused for an own model, with what serves") {
  const auto refused = [](auto&& change) {
    Problem one = problem(perceptrons(), {{"1f1b"}});
    change(one);
    const std::string why = refusal([&] { predict(one, shipped()); });
    CHECK(refusal([&] { choose(one, {.schedule = "tawpipe", .automatic = true}, shipped()); }) == why);
    return why;
  };
  const std::string shared =
      "model 'perceptrons': ranks of tensor, context and expert parallelism share the layers of a transformer only; spread its "
      "layers over a schedule's ranks and its batch over replicas";
  CHECK(refused([](Problem& one) { one.mesh.tensor = 2; }) == shared);
  CHECK(refused([](Problem& one) { one.mesh.context = 2; }) == shared);
  CHECK(refused([](Problem& one) {
          one.recomputes = {Recompute::none, Recompute::full};
        }) == "model 'perceptrons': its parts state what is computed again; leave the kinds of recomputation empty");
  CHECK(refused([](Problem& one) { one.cost = KernelCost{}; }) ==
        "model 'perceptrons': times of kernels need their shapes, and its parts have none; a roofline, given or measured times "
        "need none");
  CHECK(refused([](Problem& one) {
          one.model =
              Transformer{.name = "m", .layers = 1, .hidden = 2, .heads = 1, .kv_heads = 1, .intermediate = 2, .vocab = 2};
        }) == "model 'perceptrons': the problem has a transformer too, 'm'; give one of the two");
  CHECK(refused([](Problem& one) { one.stack->layer.saved = 100'000_GB; }).ends_with("exceeds 281474976710655"));
  const Problem one = problem(perceptrons(), {{"1f1b"}});
  CHECK(refusal([&] { plan({.problem = one}, shipped()); }) ==
        "a plan is of layouts that share a transformer's layers; choose() and predict() find the best for any model on a mesh");
  CHECK(refusal([&] { training_bound(one); }) == "a bound is of a transformer, whose layers any number of devices can share");
}
