// Prices of pipelines against the bounds and simulations of the same candidates.
// Not: what the plan does with them (plan_test.cpp).
#include "tawpipe/search/detail/pipeline_price.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/random.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/search/detail/plan_order.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/topology/clusters.hpp"

using namespace tawpipe;

namespace pipeline_price_test {

struct Drawn {
  PlanLayout layout;
  ScheduleChoice choice;
};

struct Space {
  PlanRequest request;
  std::vector<PlanLayout> layouts;
  std::vector<ScheduleChoice> choices;
  detail::CollectiveTimes known = {};
  detail::PipelineCache cache = {};

  explicit Space(PlanRequest asked) : request{std::move(asked)}, layouts{planned_layouts(request)} {
    for (const ScheduleChoice& choice : planned_schedules(shipped())) {
      for (ScheduleChoice& one : variants_of(shipped(), choice, request.problem.cluster)) choices.push_back(std::move(one));
    }
  }
  /// Something with a price and not too many computations; none: another draw may have.
  std::optional<Drawn> draw(support::Random& random, const detail::PipelinePrices& prices) const {
    const auto one = [&](const auto& all) {
      return all[static_cast<std::size_t>(random.between(0, static_cast<int>(all.size()) - 1))];
    };
    Drawn drawn{one(layouts), one(choices)};
    drawn.layout = detail::layout_for(shipped().info(drawn.choice.schedule).family, request, drawn.layout);
    const bool small = detail::microbatches_of(request, drawn.layout) * drawn.layout.mesh.pipeline <= 512;
    return small && prices.has(drawn.layout, drawn.choice) ? std::optional{drawn} : std::nullopt;
  }
};

PlanRequest request_of(const std::string& cluster, const std::string& model, std::int64_t sequence, std::int64_t batch,
                       bool overlap) {
  PlanRequest request{
      .problem = {.cluster = cluster_named(cluster), .model = models::named(model), .sequence = sequence, .global_batch = batch}};
  request.problem.overlap_gradients = request.problem.overlap_gathers = overlap;
  request.balanced_stages = true;
  return request;
}

double quantile(std::vector<double> errors, double part) {
  std::sort(errors.begin(), errors.end());
  return errors[static_cast<std::size_t>(part * static_cast<double>(errors.size() - 1))];
}

/// Of prices relative to bounds, and to some simulations.
struct Errors {
  std::vector<double> times = {};
  std::vector<double> above = {};  ///< by how much a price is greater
  std::vector<double> memories = {};
  std::vector<double> simulated = {};
  double most_above_simulated = -1;
};

void add_errors(Errors& errors, const PlanRequest& request, int draws) {
  support::Random random{7};
  Space space{request};
  detail::PipelinePrices prices{space.request, shipped(), space.known, space.cache};
  for (int draw = 0; draw < draws; ++draw) {
    const std::optional<Drawn> one = space.draw(random, prices);
    if (!one) continue;
    const Problem problem = problem_of(space.request, one->layout, one->choice);
    const auto microbatches = static_cast<std::int64_t>(detail::microbatches_of(space.request, one->layout));
    std::optional<MinNeed> need;
    try {
      need = Predictor{problem, shipped()}.least(one->choice);
    } catch (const InputError&) {
      continue;  // cannot be; it may have a price
    }
    const detail::PipelinePrice price = prices.price(one->layout, one->choice, microbatches);
    errors.above.push_back(price.picoseconds * 1e-12 / to_seconds(need->usual) - 1);
    errors.times.push_back(std::abs(errors.above.back()));
    errors.memories.push_back(std::abs(price.bytes / static_cast<double>(need->memory.value()) - 1));
    if (draw % 4 != 0) continue;
    const Duration whole = Predictor{problem, shipped()}.best().summary.makespan;
    const double above = price.picoseconds * 1e-12 / to_seconds(whole) - 1;
    errors.simulated.push_back(std::abs(above));
    errors.most_above_simulated = std::max(errors.most_above_simulated, above);
  }
}

TEST_CASE("a pipeline's price is the estimate of its bound, and its memory that of the fullest rank") {
  Errors errors;
  for (const bool overlap : {false, true}) {
    for (const char* model : {"llama-2-13b", "qwen3-30b-a3b", "deepseek-v2-lite"})
      add_errors(errors, request_of("dgx-h100*4", model, 4096, 64, overlap), 60);
  }
  REQUIRE(errors.times.size() > 100);
  CHECK(quantile(errors.times, 0.5) < 0.002);
  CHECK(quantile(errors.times, 0.95) < 0.02);
  CHECK(quantile(errors.memories, 0.5) < 0.02);
  CHECK(quantile(errors.memories, 0.95) < 0.12);
  CHECK(quantile(errors.simulated, 0.5) < 0.02);
  CHECK(quantile(errors.simulated, 0.9) < 0.05);
  CHECK(errors.most_above_simulated < 0.015);  // a search drops by them what is 2 % above
}

TEST_CASE("with states in host memory a price is nearly as good, with activations there it is no greater") {
  for (const Offload& offload : {Offload{.optimizer = true}, Offload{.activations = true, .optimizer = true}}) {
    CAPTURE(name(offload));
    Errors errors;
    for (const char* model : {"llama-2-13b", "qwen3-30b-a3b"}) {
      PlanRequest request = request_of("dgx-h100*4", model, 4096, 64, true);
      request.problem.offload = offload;
      add_errors(errors, request, 60);
    }
    REQUIRE(errors.times.size() > 40);
    CHECK(quantile(errors.above, 0.95) < 0.005);
    CHECK(quantile(errors.times, 0.5) < (offload.activations ? 0.04 : 0.01));
    if (!offload.activations) CHECK(quantile(errors.times, 0.95) < 0.06);
    CHECK(quantile(errors.memories, 0.5) < (offload.activations ? 0.05 : 0.02));
    CHECK(errors.most_above_simulated < 0.015);
  }
}

TEST_CASE("prices of few microbatches tell those of many") {
  Space space{request_of("dgx-h100*4", "llama-2-13b", 4096, 2048, true)};
  const detail::PlanProber prober{space.request, shipped(), space.known, space.cache};
  detail::PipelinePrices prices{space.request, shipped(), space.known, space.cache};
  const PlanLayout layout{.mesh = Mesh{.tensor = 2, .data = 2}.over(32), .recompute = Recompute::selective};
  for (const char* schedule : {"1f1b", "interleaved-1f1b", "zb-v", "v-half", "v-min", "zb-h1", "dualpipe", "gpipe"}) {
    const std::string name = schedule;
    CAPTURE(name);
    const ScheduleChoice choice{schedule};
    const double whole = prices.price(layout, choice, 1024).picoseconds * 1e-12;
    CHECK(prober.probe(layout, choice).seconds == doctest::Approx(whole).epsilon(0.002));
  }
}

TEST_CASE("only what an outline tells has a price") {
  Space space{request_of("dgx-h100*4", "llama-2-13b", 4096, 64, true)};
  const detail::PipelinePrices prices{space.request, shipped(), space.known, space.cache};
  const PlanLayout layout{.mesh = Mesh{.tensor = 2, .data = 2}.over(32)};
  CHECK(prices.has(layout, {"1f1b"}));
  CHECK_FALSE(prices.has(layout, {"fsdp"}));
  CHECK_FALSE(prices.has(layout, {"tawpipe"}));
  CHECK_FALSE(prices.has(layout, {"v-half", {{"order", "searched"}}}));
  PlanLayout other = layout;
  other.recompute_layers = 2;
  CHECK_FALSE(prices.has(other, {"1f1b"}));
  other = layout;
  other.sharding = StateSharding::parameters;
  CHECK_FALSE(prices.has(other, {"1f1b"}));
  other = layout;
  other.offload = Offload{.activations = true};
  CHECK(prices.has(other, {"1f1b"}));
  other.offload->layers = 2;
  CHECK_FALSE(prices.has(other, {"1f1b"}));
}

}  // namespace pipeline_price_test
