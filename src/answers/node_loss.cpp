// The best plan on what is left when a node is lost.
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "schedules.hpp"
#include "tawpipe/answers/run_answer.hpp"
#include "tawpipe/core/stop.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/topology/changed_links.hpp"

namespace tawpipe::inline v0::answers {

namespace {

/// Simulations of more tasks than this would take a good part of the search's time.
constexpr std::int64_t max_lost_tasks = 1'500'000;

std::int64_t simulated_tasks(const Summary& summary) {
  return summary.folding.factor > 1 ? summary.folding.tasks : summary.tasks;
}

/// A plan and its batch.
struct Left {
  Plan plan;
  std::int64_t global_batch = 0;
};

/// How many of the first nodes have exactly so many devices; 0: none.
int nodes_with(const Cluster& cluster, int devices) {
  for (int node = 0; node < cluster.nodes() && devices > 0; ++node) {
    devices -= cluster.devices_in(NodeId{node});
    if (devices == 0) return node + 1;
  }
  return 0;
}

/// The best plan with as few replicas less as whole nodes allow, each with the work that it had.
std::optional<Left> fewer_replicas(const Planned& planned, int devices_left) {
  const PlanRequest& asked = planned.request;
  const Plan& best = planned.use();
  const int replicas = best.layout.mesh.data;
  const int devices = best.summary.ranks / replicas;  // of one
  for (int data = std::min(replicas - 1, devices_left / devices); data >= 1; --data) {
    const int nodes = nodes_with(asked.problem.cluster, data * devices);
    if (nodes == 0) continue;
    Left left{best, asked.problem.global_batch / replicas * data};
    left.plan.layout.mesh.data = data;
    if (best.estimated || simulated_tasks(best.summary) > max_lost_tasks) {  // a step takes as long as before
      left.plan.estimated = true;
      left.plan.summary.ranks = data * devices;
      return left;
    }
    PlanRequest request = asked;
    request.problem.cluster = first_nodes(asked.problem.cluster, nodes);
    request.problem.global_batch = left.global_batch;
    try {
      left.plan.summary = predict(problem_of(request, left.plan.layout, left.plan.choice), shipped()).summary;
    } catch (const InputError&) {
      continue;  // the schedule does not exist there
    }
    return left.plan.summary.fits() ? std::optional{std::move(left)} : std::nullopt;
  }
  return std::nullopt;
}

/// The best plan of a search with the same batch. @throws Stopped
std::optional<Left> searched(const Planned& planned, int nodes, const PlanWatch& watch) {
  PlanRequest request = planned.request;
  request.problem.cluster = first_nodes(request.problem.cluster, nodes);
  request.axes[static_cast<std::size_t>(MeshAxis::data)] = 0;
  request.budget /= 8;
  const auto without_best = [&](PlanProgress now, const Planned& asked, std::string_view what) {
    now.best = nullptr;  // it is no answer to what was asked
    return watch(now, asked, what);
  };
  const std::int64_t batch = request.problem.global_batch;
  try {
    Planned found = search_plan(planned.question, std::move(request), "planning with a node less", without_best);
    if (found.result.stopped) throw Stopped{};
    if (found.result.plans.empty()) return std::nullopt;
    return Left{found.use(), batch};  // chosen as the plan that it is compared with
  } catch (const InputError&) {
    return std::nullopt;  // no layout has so many devices
  }
}

}  // namespace

std::optional<Planned::NodeLoss> find_node_loss(const Planned& planned, const PlanWatch& watch) {
  const Cluster& cluster = planned.request.problem.cluster;
  if (!wants_run(planned.question.job) || planned.result.plans.empty() || cluster.nodes() < 2) return std::nullopt;
  const int left = cluster.ranks() - cluster.devices_in(NodeId{cluster.nodes() - 1});
  const Failures failures = parse_run(planned.question.job).run.failures;
  Planned::NodeLoss loss{.global_batch = 0, .lost = {.restart_s = failures.restart_s, .repair_s = failures.repair_s}};
  std::optional<Left> found[] = {searched(planned, cluster.nodes() - 1, watch), fewer_replicas(planned, left)};
  for (std::optional<Left>& one : found) {
    if (!one || (loss.plan && one->plan.summary.tokens_per_day() <= loss.plan->summary.tokens_per_day())) continue;
    loss.plan = std::move(one->plan);
    loss.global_batch = one->global_batch;
  }
  if (loss.plan) loss.lost.speed = loss.plan->summary.tokens_per_day() / planned.use().summary.tokens_per_day();
  return loss;
}

}  // namespace tawpipe::answers
