// Tests of the times of a body's steps by their own kernels (cost/kernel_cost.hpp, schedule/expand.hpp).
// Not: the times of kernels (unit/cost/kernel_cost_test.cpp).
#include <doctest/doctest.h>

#include <initializer_list>
#include <utility>
#include <variant>
#include <vector>

#include "tawpipe/cost/kernel_cost.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedule/expand.hpp"
#include "tawpipe/topology/clusters.hpp"

namespace step_times_test {

using doctest::Approx;
using namespace tawpipe;

namespace {

const Batch batch{.sequence = 4096, .microbatch_size = 2, .global_batch = 2};

/// Seconds of a pass by `stage`: as a whole, or of a step.
double seconds_of(const StageWork& stage, Op op, const Transformer& model) {
  Schedule::Parts parts;
  parts.ranks = 1;
  parts.stages = {stage};
  parts.tasks = {{.op = op, .rank = Rank{0}, .stage = StageId{0}, .microbatch = 0}};
  parts.lanes = {"compute"};
  const Schedule schedule{Workload{model, batch}, std::move(parts)};
  return to_seconds(KernelCost{}.compute_time(schedule, TaskId{0}, clusters::named("dgx-h100")));
}

/// [step] of a body.
std::vector<double> step_seconds(const SharedStage& stage, const StageBody& body, Op op, const Transformer& model) {
  const detail::BodyTotals totals{body};
  std::vector<double> times;
  for (const BodyStep& step : body) {
    times.push_back(step.is_compute() ? seconds_of(detail::work_of_step(stage.work, step, totals, traits(op).passes), op, model)
                                      : 0);
  }
  return times;
}

std::vector<Transformer> all() {
  std::vector<Transformer> found;
  for (const char* const name : {"llama-3-8b", "mixtral-8x7b", "deepseek-v2-lite"}) found.push_back(models::named(name));
  found.push_back(models::named("llama-3-8b"));
  found.back().code = LayerCode::torchtitan;
  found.back().products = ProductFormat::fp8;
  found.push_back(models::named("llama-3-8b"));
  found.back().fused_attention = false;
  found.back().code = LayerCode::megatron_unfused;
  const Transformer sizes = models::named("llama-3-8b");
  LayerKind window = sizes.layer_kind();
  std::get<Attention>(window.sublayers[0]).window = 1024;
  found.push_back(Transformer::of({.name = "windows",
                                   .hidden = sizes.hidden,
                                   .vocab = sizes.vocab,
                                   .kinds = {window, sizes.layer_kind()},
                                   .pattern = repeated({0, 0, 1}, sizes.layers)}));
  return found;
}

}  // namespace

TEST_CASE("the steps of a pass take the time of all its kernels together, each that of its own") {
  for (Transformer model : all()) {
    CAPTURE(model.name);
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      CAPTURE(name(recompute));
      const LayerStack stack = layer_stack(model, batch, recompute);
      const std::vector stages{stack.stage(0, 4, true, false), stack.stage(model.layers - 3, 3, false, true)};
      for (const Sharing& sharing : {Sharing{.tensor = 4}, Sharing{.tensor = 2, .context = 2}}) {
        for (const SharedStage& stage : share_stages(model, batch, recompute, stages, sharing)) {
          const auto check = [&](const StageBody& body, Op op) {
            double sum = 0;
            for (const double time : step_seconds(stage, body, op, model)) sum += time;
            CHECK(sum == Approx(seconds_of(stage.work, op, model)).epsilon(1e-6));
          };
          check(stage.forward, Op::forward);
          check(stage.backward, Op::backward);
          check(stage.backward_input, Op::backward_input);
          check(stage.backward_weight, Op::backward_weight);
        }
      }
    }
  }
}

TEST_CASE("a norm between two collectives takes its own time, and attention longer than its operations say") {
  const Transformer model = models::named("llama-3-8b");
  const LayerStack stack = layer_stack(model, batch, Recompute::none);
  const SharedStage stage =
      share_stages(model, batch, Recompute::none, std::vector{stack.stage(0, 1, false, false)}, {.tensor = 4}).front();
  const std::vector<double> times = step_seconds(stage, stage.forward, Op::forward, model);
  // Norm; gather; attention's half; sum; residual sum and norm; gather; MLP's half; sum; residual sum.
  REQUIRE(times.size() == 9);
  const double bandwidth = clusters::named("dgx-h100").device(Rank{0}).memory_bandwidth.value() *
                           KernelCost{}.curves(clusters::named("dgx-h100").device(Rank{0})).memory;
  const double stream = 8192.0 * 4096 * 2 / 4 / bandwidth;  // s for one tensor of the residual stream
  CHECK(times[0] > 2 * stream);
  CHECK(times[0] < 2.2 * stream + 1e-5);
  CHECK(times[4] > 5 * stream);
  CHECK(times[8] > 3 * stream);
  const double flops = stage.forward[2].flops.value() / (stage.forward[2].flops + stage.forward[6].flops).value();
  CHECK(times[2] / (times[2] + times[6]) > 1.05 * flops);
}

}  // namespace step_times_test
