// The plan is never slower than the best of 500 random ways to train that fit (TAWPIPE_DRAWS for
// more or fewer). What cannot be the best of them, by its bounds, is counted and not simulated. The
// cases of the suite are small;
// TAWPIPE_PLAN_CASES=70b,405b-1024,405b-16384,1024,2048,4096,7b runs large ones and prints what
// they found.
// Not: that it is the best of all (unit/search/plan_test.cpp), nor how long the command takes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/random.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/detail/plan_order.hpp"
#include "tawpipe/search/detail/rank_classes.hpp"
#include "tawpipe/search/layout_bound.hpp"
#include "tawpipe/search/plan.hpp"
#include "tawpipe/topology/cluster_file.hpp"

using namespace tawpipe;

namespace plan_random {

namespace {

struct Case {
  std::string name;
  std::string cluster;
  std::string model;
  std::int64_t sequence;
  std::int64_t global_batch;
};

const std::vector<Case> small{{"two nodes", "2x4", "llama-8x512", 2048, 16},
                              {"24 devices, slow network", "a800x24-10gbe", "llama-8x512", 2048, 48},
                              {"unequal nodes", "4+4+2", "llama-8x512", 2048, 40}};
const std::vector<Case> large{{"70b", "dgx-h100*4", "llama-2-70b", 32768, 32},
                              {"405b-1024", "dgx-h100*128", "llama-3-405b", 8192, 1024},
                              {"405b-16384", "dgx-h100*2048", "llama-3-405b", 8192, 2048},
                              {"1024", "a800x24-10gbe", "llama-48x1024", 16384, 1536},
                              {"2048", "a800x24-10gbe", "llama-48x2048", 16384, 1536},
                              {"4096", "a800x24-10gbe", "llama-48x4096", 16384, 1536},
                              {"7b", "8+8+4", "llama-2-7b", 4096, 480}};

struct Drawn {
  int fitting = 0;    ///< by their bounds, of a few microbatches where a bound says that they cannot be the best
  int simulated = 0;  ///< of these, those whose bounds of time were below the best so far
  int tried = 0;
  std::optional<Duration> best;
};

/// Whether the devices can hold what any schedule needs on a layout; those that keep stages have
/// whole weights and gradients in each replica.
bool can_hold(const PlanRequest& request, LayoutBounds& bounds, const PlanLayout& layout, const ScheduleChoice& choice) {
  if (!bounds.can_hold(layout)) return false;
  if (layout.mesh.pipeline == 1 && !shipped().info(choice.schedule).plain) return false;  // the same as the plain one
  if (shipped().info(choice.schedule).family != ScheduleFamily::pipeline) return true;
  const Problem& problem = request.problem;
  const ParameterBytes& bytes = problem.parameter_bytes;
  const auto parameters = static_cast<double>(problem.model->parameters());
  const double whole =
      parameters * static_cast<double>(bytes.weight + bytes.gradient) / layout.mesh.tensor / layout.mesh.pipeline;
  const double parts = parameters * static_cast<double>(bytes.optimizer) / problem.cluster.ranks();
  const Bytes usable = usable_part(problem.cluster.device(Rank{0}).memory, problem.usable_memory);
  return whole + parts <= static_cast<double>(usable.value());
}

/// Random layouts with random schedules of the space, until `wanted` fit.
/// @param shown  prints how many do, now and then
Drawn draw(const PlanRequest& request, int wanted, bool shown) {
  constexpr double max_tasks = 1'500'000;  // more take more memory than a test may
  support::Random random{20261122};
  const std::vector<PlanLayout> layouts = planned_layouts(request);
  const std::vector<ScheduleChoice> choices = planned_schedules(shipped());
  LayoutBounds bounds{request};
  detail::CollectiveTimes known;
  detail::PipelineCache cache;
  const detail::PlanProber prober{request, shipped(), known, cache};
  Drawn drawn;
  int next_shown = 0;
  while (drawn.fitting < wanted && drawn.tried < 400 * wanted) {
    ++drawn.tried;
    const PlanLayout& layout = support::one_of(random, layouts);
    const ScheduleChoice& choice = support::one_of(random, choices);
    if (!can_hold(request, bounds, layout, choice)) continue;
    if (shown && drawn.fitting >= next_shown) {
      std::fprintf(stderr, "%d of %d drawn fit\n", drawn.fitting, drawn.tried);
      next_shown = drawn.fitting + wanted / 20;
    }
    try {
      Problem problem = problem_of(request, layout, choice);
      const double microbatches = static_cast<double>(problem.global_batch / layout.microbatch_size / layout.mesh.data);
      if (2 * std::max(problem.model->layers, layout.mesh.pipeline) * microbatches > max_tasks) continue;
      if (prober.is_worth(layout)) {  // no more memory than with all microbatches
        if (!prober.min_of_few(problem, choice).fits) continue;
        if (drawn.best && bounds.min_time(layout) >= *drawn.best) {
          ++drawn.fitting;
          continue;
        }
      }
      const MinNeed need = Predictor{problem, shipped()}.least(choice);
      if (!need.fits) continue;
      if (drawn.best && need.time >= *drawn.best) {
        ++drawn.fitting;
        continue;
      }
      if (static_cast<double>(need.steps) * layout.mesh.copies() > max_tasks) problem.fold = Fold::on;
      const Prediction one = predict(problem, shipped());
      if (!one.fits()) continue;
      ++drawn.fitting;
      ++drawn.simulated;
      if (!drawn.best || one.summary.makespan < *drawn.best) drawn.best = one.summary.makespan;
    } catch (const InputError&) {  // the ranks or the batch cannot be divided so
    }
  }
  return drawn;
}

void check_case(const Case& one, int wanted, bool shown) {
  CAPTURE(one.name);
  PlanRequest request{.problem = {.cluster = resolve_cluster(one.cluster),
                                  .model = models::named(one.model),
                                  .sequence = one.sequence,
                                  .global_batch = one.global_batch}};
  request.problem.cost = KernelCost{.held_sms = measured_held_sms(request.problem.cluster.device(Rank{0}))};  // as the command
  const PlanResult found = plan(request, shipped());
  const Drawn random = draw(request, wanted, shown);
  REQUIRE(!found.plans.empty());
  REQUIRE(random.best);
  const double best = to_seconds(found.plans.front().summary.makespan);
  if (shown) {
    std::printf("%s: plan %.4g s (%s), best of %d random ones that fit, of %d drawn, %d simulated: %.4g s, %.3g times as long\n",
                one.name.c_str(), best, found.plans.front().choice.schedule.c_str(), random.fitting, random.tried,
                random.simulated, to_seconds(*random.best), to_seconds(*random.best) / best);
    std::fflush(stdout);
  }
  CHECK(random.fitting == wanted);
  CHECK(best <= to_seconds(*random.best) * (1 + plan_tolerance));
}

}  // namespace

TEST_CASE("a plan is not slower than the best of random ways to train that fit") {
  const char* const named = std::getenv("TAWPIPE_PLAN_CASES");
  if (named == nullptr) {
    for (const Case& one : small) check_case(one, support::draws(500), false);
    return;
  }
  for (const std::string_view name : split(named, ',')) {
    for (const Case& one : large) {
      if (one.name == name) check_case(one, support::draws(500), true);
    }
  }
}

}  // namespace plan_random
