// What would make a plan fit where none does.
#include "tawpipe/search/remedies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "schedules.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/search/layout_bound.hpp"
#include "tawpipe/search/plan.hpp"
#include "tawpipe/topology/clusters.hpp"

using namespace tawpipe;

namespace {

constexpr auto one_by_one = [](std::size_t count, auto&& run) {
  for (std::size_t i = 0; i < count; ++i) run(i);
};

PlanRequest on_h100(const std::string& cluster, const std::string& model, std::int64_t batch) {
  PlanRequest request{
      .problem = {.cluster = cluster_named(cluster), .model = models::named(model), .sequence = 8192, .global_batch = batch}};
  request.problem.usable_memory = usable_memory_share;
  request.loss_chunk = 8192;
  return request;
}

const Remedy* of_word(const std::vector<Remedy>& all, const std::string& word) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Remedy& one) { return one.what.find(word) != std::string::npos; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("states in host memory need weights and gradients on the devices still") {
  PlanRequest request = on_h100("dgx-h100", "llama-3-405b", 64);
  request.problem.offload = {.activations = true, .optimizer = true};
  LayoutBounds bounds{request};
  const PlanLayout layout{.mesh = Mesh{.tensor = 8}.over(8)};
  CHECK(!bounds.can_hold(layout));  // 405e9 x 4 bytes / 8
  CHECK(bounds.min_memory(layout) == doctest::Approx(static_cast<double>(request.problem.model->parameters()) * 4 / 8));
  const PlanResult found = plan(request, shipped());
  CHECK(found.plans.empty());
  CHECK(found.counts.simulated == 0);
  CHECK(found.proven_best);
}

TEST_CASE("the number of nodes that would do is found, with what lies in host memory and without") {
  PlanRequest request = on_h100("dgx-h100", "llama-3-405b", 64);
  request.offload = {{.optimizer = true}, {.activations = true, .optimizer = true}};
  const std::vector<Remedy> all = find_remedies(request, shipped(), one_by_one);
  REQUIRE(all.size() == 2);
  CHECK(all[0].what == "16 nodes (128 devices)");  // 16 bytes a parameter are 89 devices' at least
  CHECK(all[1].what == "4 nodes (32 devices) with optimizer in host memory");
  for (const Remedy& one : all) CHECK(one.plan.summary.fits());
}

TEST_CASE("each condition that alone keeps plans from fitting is named") {
  PlanRequest request = on_h100("dgx-h100*4", "llama-3-70b", 64);
  request.axes = {1, 1, 0, 1, 0};
  const std::vector<Remedy> all = find_remedies(request, shipped(), one_by_one);
  CHECK(of_word(all, "leave out --tensor-parallel") != nullptr);
  CHECK(of_word(all, "leave out --pipeline-parallel") != nullptr);
  CHECK(of_word(all, "leave out --context-parallel") == nullptr);
  CHECK(of_word(all, "all of these") == nullptr);
  for (const Remedy& one : all) CHECK(one.plan.summary.fits());
}
