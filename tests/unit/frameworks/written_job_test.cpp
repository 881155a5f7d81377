// Tests of frameworks/written_job.hpp: stages that a plan balances by costs are written with their layers.
#include "tawpipe/frameworks/written_job.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tawpipe/frameworks/frameworks.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/schedules/shipped.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/topology/clusters.hpp"

using namespace tawpipe;

namespace written_job_test {

namespace {

PlanRequest request_for(int layers) {
  Problem problem{
      .cluster = clusters::named("dgx-h100"), .model = models::named("llama-3-8b"), .sequence = 8192, .global_batch = 64};
  problem.model->layers = layers;
  return for_framework(Framework::megatron, {.problem = with_best_switches(Framework::megatron, std::move(problem))});
}

Duration time_of(const Problem& problem) { return Predictor{problem, shipped_schedules()}.best().summary.makespan; }
/// The simulated step of the flags that Megatron-LM is given.
Duration time_as_written(const PlanRequest& request, const PlanLayout& layout, const ScheduleChoice& choice) {
  const FrameworkJob job = written_job(request, layout, choice);
  const FrameworkJob back = read_job(Framework::megatron, write_job(Framework::megatron, job), "written", 8);
  return time_of(problem_of(back, request.problem));
}

}  // namespace

TEST_CASE("Megatron-LM runs any stages, which take as long as written") {
  for (const int layers : {30, 32}) {
    const PlanRequest request = request_for(layers);
    for (const char* chunks : {"1", "2", "3"}) {
      const bool looped = chunks != std::string{"1"};
      const ScheduleChoice choice =
          looped ? ScheduleChoice{"interleaved-1f1b", {{"chunks", chunks}}} : ScheduleChoice{"1f1b", {{"overlap", "off"}}};
      for (const bool balanced : {false, true}) {
        CAPTURE(layers);
        CAPTURE(chunks);
        CAPTURE(balanced);
        const PlanLayout layout{.mesh = Mesh{.tensor = 2, .pipeline = 4}, .microbatch_size = 1, .balanced_stages = balanced};
        REQUIRE(request.allows(layout, choice));
        CHECK(time_as_written(request, layout, choice) == time_of(problem_of(request, layout, choice)));
      }
    }
  }
}

TEST_CASE("the head of a large vocabulary takes layers from the last stage") {
  const PlanRequest request = request_for(32);
  const PlanLayout layout{.mesh = Mesh{.tensor = 2, .pipeline = 4}, .balanced_stages = true};
  const ScheduleChoice choice{"1f1b", {{"overlap", "off"}}};
  const std::string text = write_job(Framework::megatron, written_job(request, layout, choice));
  CAPTURE(text);
  CHECK(text.find("--pipeline-model-parallel-layout 'Et*7|(t*9|)*2t*7L'") != std::string::npos);
  CHECK(text.find("--account-for") == std::string::npos);
}

}  // namespace written_job_test
