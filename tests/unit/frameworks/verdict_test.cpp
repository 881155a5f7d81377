// Tests of frameworks/verdict.hpp and frameworks/runs_in.hpp: which plan of a search is to be used.
#include "tawpipe/frameworks/verdict.hpp"

#include <doctest/doctest.h>

#include "tawpipe/model/models.hpp"
#include "tawpipe/topology/clusters.hpp"

using namespace tawpipe;

namespace verdict_test {

namespace {

const PlanRequest request{
    .problem = {
        .cluster = clusters::named("dgx-h100"), .model = models::named("llama-3-8b"), .sequence = 8192, .global_batch = 64}};

Plan plan_of(const char* schedule, double time, Mesh mesh, Recompute recompute = Recompute::none) {
  Plan plan{.layout = {.mesh = mesh, .recompute = recompute}, .choice = {schedule}, .bound = {}, .summary = {}};
  if (plan.choice.schedule == "1f1b") plan.choice.options["overlap"] = "off";
  plan.summary.makespan = seconds(time);
  return plan;
}
PlanResult result_of(std::vector<Plan> plans) {
  PlanResult result;
  result.plans = std::move(plans);
  return result;
}

const Mesh data{.data = 8, .pipeline = 1};
const Mesh pipeline{.data = 4, .pipeline = 2};
const Mesh tensor{.tensor = 2, .data = 2, .pipeline = 2};
const Mesh own{.pipeline = 8};

}  // namespace

TEST_CASE("a schedule that moves weights runs in no framework, pipelines and data parallelism in some") {
  const auto runs = [](const Plan& plan) { return runs_with_error(request.problem, plan.layout, plan.choice).runs; };
  CHECK(runs(plan_of("tawpipe", 1, own)).empty());
  const std::vector<Framework> found = runs(plan_of("1f1b", 1, pipeline));
  const auto has = [&](const Plan& plan, Framework framework) {
    const std::vector<Framework> all = runs(plan);
    return std::find(all.begin(), all.end(), framework) != all.end();
  };
  // With kernels and gradients of its own, so not as predicted here.
  CHECK(has(plan_of("fsdp", 1, own), Framework::torchtitan));
  CHECK(has(plan_of("hsdp", 1, own), Framework::torchtitan));
  CHECK(has(plan_of("zero1", 1, own), Framework::megatron));
  CHECK(runs_as_predicted(request.problem, plan_of("fsdp", 1, own).layout, {"fsdp"}).empty());
  CHECK(std::find(found.begin(), found.end(), Framework::megatron) != found.end());
  CHECK(software_of(request.problem, found) == Software::megatron);
  CHECK(software_of(request.problem, {}) == Software::unknown);
  CHECK(software_of(request.problem, {Framework::deepspeed}) == Software::unknown);
}

TEST_CASE("what a framework runs is used, and what none runs is beyond it") {
  const Verdict verdict = verdict_of(request, result_of({plan_of("tawpipe", 1, own), plan_of("ddp", 1.017, data)}));
  CHECK(verdict.use == 1);
  CHECK(!verdict.runs.empty());
  REQUIRE(verdict.beyond);
  CHECK(*verdict.beyond == 0);
  CHECK(!verdict.beyond_is_told_apart());
  CHECK(verdict_of(request, result_of({plan_of("tawpipe", 1, own), plan_of("ddp", 4, data)})).beyond_is_told_apart());
  const Verdict alone = verdict_of(request, result_of({plan_of("tawpipe", 1, own)}));
  CHECK(alone.use == 0);
  CHECK(alone.runs.empty());
  CHECK(!alone.beyond);
}

TEST_CASE("of plans that cannot be told apart the simpler one is used, unless it is likely the slower one") {
  const auto verdict = [](double simple) {
    return verdict_of(request, result_of({plan_of("1f1b", 1, tensor), plan_of("ddp", simple, data)}));
  };
  CHECK(verdict(1.01).use == 1);  // dense models of one software: pairs within 5.5 %, one in three at 1.8 %
  CHECK(verdict(1.03).use == 0);
  CHECK(verdict(1.03).alike == std::vector<std::size_t>{1});
  CHECK(verdict(1.2).alike.empty());
}

TEST_CASE("where one framework is asked for, only its plans are used") {
  const PlanResult result = result_of({plan_of("1f1b", 1, pipeline), plan_of("ddp", 1.3, data)});
  CHECK(verdict_of(request, result).use == 0);
  CHECK(verdict_of(request, result, Framework::deepspeed).use == 1);
}

}  // namespace verdict_test
