// Tests of search/measured_step.hpp: the speed that explains a measured step, and what it scales.
#include "tawpipe/search/measured_step.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "schedules.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/search/bound.hpp"
#include "tawpipe/search/expected_error.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/topology/clusters.hpp"

using namespace tawpipe;

namespace measured_step_test {

namespace {

Problem problem_of(const std::string& schedule) {
  Problem problem{
      .cluster = cluster_named("dgx-h100*2"), .model = models::named("llama-2-7b"), .sequence = 4096, .global_batch = 32};
  problem.schedules = {{schedule}};
  problem.microbatch_sizes = {1};
  problem.recomputes = {Recompute::none};
  return problem;
}
double step(const Problem& problem) { return to_seconds(Predictor{problem, shipped()}.best().summary.makespan); }

}  // namespace

TEST_CASE("with the speed that explains a measured step all of a step takes as much longer") {
  for (const char* schedule : {"1f1b", "zb-v", "fsdp", "tawpipe"}) {
    CAPTURE(schedule);
    Problem problem = problem_of(schedule);
    problem.overlap_gradients = true;
    const double predicted = step(problem);
    for (const double factor : {1.3, 0.8}) {
      CAPTURE(factor);
      const double speed = speed_of_step(problem, seconds(predicted), seconds(factor * predicted));
      CHECK(speed == doctest::Approx(1 / factor));
      Problem known = problem;
      std::get<KernelCost>(known.cost).changes.emplace_back(&DeviceCurves::speed, speed);
      CHECK(step(known) == doctest::Approx(factor * predicted).epsilon(1e-4));
      // From there, the same step says the same speed.
      CHECK(speed_of_step(known, seconds(step(known)), seconds(factor * predicted)) == doctest::Approx(speed).epsilon(1e-4));
      CHECK(training_bound(known).seconds <= factor * predicted);
      CHECK(training_bound(known).seconds == doctest::Approx(factor * training_bound(problem).seconds).epsilon(1e-5));
    }
  }
}

TEST_CASE("by a measured step a layout is as sure as the order of two") {
  Problem problem = problem_of("1f1b");
  const ExpectedError before = expected_error(problem, Software::unknown);
  std::get<KernelCost>(problem.cost).changes.emplace_back(&DeviceCurves::speed, 0.9);
  const ExpectedError after = expected_error(problem, Software::unknown);
  CHECK(after.high() < before.high());
  CHECK(after.high() == doctest::Approx(std::exp(pair_error(error_class(problem, Software::unknown)))));
  CHECK(after.low() * after.high() == doctest::Approx(1));
  CHECK(after.text() == "layouts of a job of which one was measured");
}

TEST_CASE("a time that is no step of the run, or another cost, is refused") {
  const Problem problem = problem_of("1f1b");
  CHECK_THROWS_WITH_AS(speed_of_step(problem, seconds(1), seconds(0)), doctest::Contains("above 0"), InputError);
  CHECK_THROWS_WITH_AS(speed_of_step(problem, seconds(1), seconds(30)), doctest::Contains("not one of this run"), InputError);
  CHECK_THROWS_WITH_AS(speed_of_step(problem, seconds(30), seconds(1)), doctest::Contains("not one of this run"), InputError);
  Problem other = problem;
  other.cost = RooflineCost{};
  CHECK_THROWS_WITH_AS(speed_of_step(other, seconds(1), seconds(1)), doctest::Contains("--cost kernels"), InputError);
  other = problem;
  other.microbatch_sizes = {};  // the best is chosen
  CHECK_THROWS_WITH_AS(speed_of_step(other, seconds(1), seconds(1)), doctest::Contains("--microbatch"), InputError);
}

}  // namespace measured_step_test
