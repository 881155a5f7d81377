// Tests of the times that bounds of layouts follow from: parts of a model make up the whole.
// Not: that bounds hold (properties/bounds_test.cpp).
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <variant>

#include "support/clusters.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/search/layout_bound.hpp"

namespace layout_bound_test {

using namespace tawpipe;

namespace {

/// Seconds of all layers and the head, forward and backward, on one device, and of its update.
double whole_seconds(const Problem& problem, const PlanLayout& layout, Cost cost) {
  const Batch batch{problem.sequence, layout.microbatch_size, problem.global_batch};
  Transformer model = *problem.model;
  model.recompute_layers = layout.recompute_layers;
  Workload work{model, batch, layout.recompute};
  work.parameter_bytes(problem.parameter_bytes);
  Schedule::Parts parts;
  parts.ranks = problem.cluster.ranks();
  parts.stages = {work.stage(0, model.layers, false, true)};
  const ParameterBytes& bytes = problem.parameter_bytes;
  const std::int64_t states = model.parameters() * (bytes.weight + bytes.gradient + bytes.optimizer) / parts.ranks;
  for (const Op op : {Op::forward, Op::backward})
    parts.tasks.push_back({.op = op, .rank = Rank{0}, .stage = StageId{0}, .microbatch = 0});
  parts.tasks.push_back({.op = Op::update, .rank = Rank{0}, .stage = StageId{0}, .bytes = Bytes{states}});
  const Schedule schedule{work, std::move(parts)};
  const auto time = [&](int task) {
    return std::visit([&](const auto& one) { return to_seconds(one.compute_time(schedule, TaskId{task}, problem.cluster)); },
                      cost);
  };
  const double microbatches = static_cast<double>(problem.global_batch / layout.microbatch_size / layout.mesh.data);
  return microbatches * (time(0) + time(1)) + time(2);
}

}  // namespace

TEST_CASE("the parts of a model take as long as the whole, whatever its layers are") {
  for (const char* name : {"llama-3-8b", "gemma-3-27b", "qwen3-next-80b-a3b", "deepseek-v3"}) {
    for (const bool roofline : {false, true}) {
      for (const int again : {0, 3}) {
        CAPTURE(name);
        CAPTURE(roofline);
        CAPTURE(again);
        PlanRequest request{
            .problem = {.cluster = support::cluster(8, 1), .model = resolve_model(name), .sequence = 4096, .global_batch = 16}};
        if (roofline) request.problem.cost = RooflineCost{};
        PlanLayout layout{.mesh = Mesh{.data = 8}.over(8), .recompute = Recompute::full, .microbatch_size = 1};
        layout.recompute_layers = again;
        Cost cost = request.problem.cost;
        const bool differ = again > 0 || request.problem.model->has_kinds();
        if (auto* kernels = std::get_if<KernelCost>(&cost)) kernels->host_ahead = differ;
        LayoutBounds bounds{request};
        CHECK(to_seconds(bounds.min_time(layout)) == doctest::Approx(whole_seconds(request.problem, layout, cost)).epsilon(2e-6));
      }
    }
  }
}

TEST_CASE("searches that share times find the same bounds") {
  const PlanRequest request{
      .problem = {.cluster = support::cluster(8, 1), .model = resolve_model("llama-3-8b"), .sequence = 4096, .global_batch = 16}};
  LayoutTimes times;
  LayoutBounds first{request, &times};
  LayoutBounds second{request, &times};
  LayoutBounds alone{request};
  for (const PlanLayout& layout : planned_layouts(request)) {
    const Duration found = first.min_time(layout);
    CHECK(second.min_time(layout) == found);
    CHECK(alone.min_time(layout) == found);
  }
}

}  // namespace layout_bound_test
