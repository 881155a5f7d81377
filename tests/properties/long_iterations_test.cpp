// Iterations of many microbatches against what two short ones say of them: random (TAWPIPE_DRAWS=1000
// for more), and one that a plan estimates.
// Not: other plans (unit/search/plan_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/mixtures.hpp"
#include "support/plan_requests.hpp"
#include "support/random.hpp"
#include "tawpipe/analysis/extrapolate.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/detail/plan_order.hpp"
#include "tawpipe/search/plan.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/topology/clusters.hpp"

using namespace tawpipe;
using support::one_of;
using support::Random;

TEST_CASE("short iterations say what a long one takes") {
  Random random{20261124};
  const int wanted = support::draws(60);
  std::vector<double> errors;
  for (int i = 0; i < wanted; ++i) {
    Problem problem{.cluster =
                        cluster_named(one_of<std::string>(random, {"dgx-h100*4", "a800x24-10gbe", "l40s-pcie*4", "dgx-a100*2"}))};
    const int ranks = problem.cluster.ranks();
    problem.model = models::llama({.layers = 24, .hidden = one_of<int>(random, {1024, 4096}), .heads = 32, .vocab = 32000});
    problem.microbatch_sizes = {1};
    problem.sequence = one_of<std::int64_t>(random, {4096, 16384});
    problem.recompute = one_of<Recompute>(random, {Recompute::none, Recompute::selective, Recompute::full});
    problem.overlap_gradients = random.between(0, 1) == 0;
    problem.tensor_overlap = random.between(0, 1) == 0;
    Mesh mesh{.tensor = one_of<int>(random, {1, 2, 4}), .context = one_of<int>(random, {1, 1, 2})};
    const int pipeline = one_of<int>(random, {2, 3, 4, 6, 8, 12});
    const std::string schedule =
        one_of<std::string>(random, {"1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "gpipe", "tawpipe",
                                     "fsdp", "hfsdp", "weipipe", "dualpipe", "looped-bfs", "interleaved-zb"});
    const int rounds = one_of<int>(random, {8, 12, 16}) * std::max(1, 16 / pipeline);
    const auto [shorter, longer] = detail::short_iterations(rounds);
    const int rest = one_of<int>(random, {0, random.between(0, pipeline - 1)});
    if (ranks % (mesh.shared() * pipeline) != 0) continue;
    mesh.data = ranks / (mesh.shared() * pipeline);
    problem.mesh = mesh;
    problem.schedules = {{schedule}};
    const auto run = [&](std::int64_t microbatches) {
      problem.global_batch = microbatches * mesh.data;
      return Predictor{problem, shipped()}.best().summary;
    };
    try {
      const Summary few = run(shorter * pipeline + rest);
      const Summary found = extrapolate(few, run(longer * pipeline + rest), std::int64_t{rounds * pipeline + rest} * mesh.data);
      const Summary all = run(rounds * pipeline + rest);
      CAPTURE(schedule);
      CAPTURE(problem.cluster.name());
      CAPTURE(mesh.tensor);
      CAPTURE(pipeline);
      errors.push_back(std::abs(found.makespan / all.makespan - 1));
      CHECK(errors.back() < 0.1);
      CHECK(found.fullest() / all.fullest() == doctest::Approx(1).epsilon(0.05));
      CHECK(found.tasks == all.tasks);
    } catch (const InputError&) {  // the schedule does not exist for that
    }
  }
  REQUIRE(!errors.empty());
  std::sort(errors.begin(), errors.end());
  const auto at = [&](double part) { return errors[static_cast<std::size_t>(part * static_cast<double>(errors.size() - 1))]; };
  MESSAGE(errors.size() << " iterations; error: median " << at(0.5) << ", nine in ten at most " << at(0.9) << ", largest "
                        << at(1));
  CHECK(at(0.5) < 1e-6);
  CHECK(at(0.9) < 0.005);
}

namespace {

/// A request of one candidate with many microbatches. @param microbatches  that it has
void check_estimated(const PlanRequest& asked, std::int64_t microbatches) {
  const PlanResult found = plan(asked, shipped());
  REQUIRE(found.plans.size() == 1);
  const Plan& best = found.plans.front();
  CHECK(best.estimated);
  CHECK(!found.proven_best);
  CHECK(best.summary.microbatches == microbatches);
  CHECK(best.summary.makespan >= best.bound);
  Problem whole = problem_of(asked, best.layout, best.choice);
  whole.max_tasks = 1e9;
  const Summary all = predict(whole, shipped()).summary;
  CHECK(best.summary.makespan / all.makespan == doctest::Approx(1).epsilon(1e-6));
  CHECK(best.summary.fullest() == all.fullest());
  CHECK(best.summary.tasks == all.tasks);
}

}  // namespace

TEST_CASE("a long iteration is estimated from short ones") {
  PlanRequest asked = support::request(support::cluster(2));
  asked.axes = {1, 1, 1, 2, 1};
  asked.problem.global_batch = 160'001;
  asked.microbatch_sizes = {1};
  asked.recompute = {Recompute::none};
  asked.schedules = {{"1f1b"}};
  check_estimated(asked, asked.problem.global_batch);
}

TEST_CASE("a long iteration of a mixture, whose experts' ranks share each microbatch, too") {
  PlanRequest asked = support::request(support::cluster(4));
  asked.problem.model = support::wide_mixture();
  asked.axes = {1, 1, 2, 2, 1};
  asked.expert_parts = 2;
  asked.problem.global_batch = 320'004;
  asked.microbatch_sizes = {1};
  asked.recompute = {Recompute::none};
  asked.schedules = {{"1f1b"}};
  check_estimated(asked, asked.problem.global_batch / 2);
}
