// What one change would buy, around the best plan.
#include "plan_changes.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "schedules.hpp"
#include "tawpipe/answers/plan_answer.hpp"
#include "tawpipe/answers/threads.hpp"
#include "tawpipe/core/stop.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/search/sharing.hpp"
#include "tawpipe/topology/changed_links.hpp"

namespace tawpipe::inline v0::answers {

namespace {

constexpr double tenth_faster = 1.1;
/// Simulations of more tasks than this would take a good part of the search's time.
constexpr std::int64_t max_changed_tasks = 1'500'000;

bool all_have_8_bits(const Cluster& cluster) {
  for (const NodeType& kind : cluster.kinds()) {
    const auto lacks = [](const DeviceSpec& device) { return !(device.peak_fp8.value() > 0); };
    if (std::any_of(kind.devices.begin(), kind.devices.end(), lacks)) return false;
  }
  return true;
}

Cluster with_faster_products(const Cluster& cluster) {
  return with_changed_devices(cluster, [](DeviceSpec& device) {
    for (FlopsPerSecond* peak : {&device.peak, &device.peak_fp8, &device.peak_fp4})
      *peak = FlopsPerSecond{peak->value() * tenth_faster};
  });
}

/// A search of what the best plan leaves open with its schedule, options and mesh.
PlanRequest around_best(PlanRequest request, const Plan& best) {
  const Mesh& mesh = best.layout.mesh;
  request.axes = mesh.sizes();
  request.orders = {mesh.order};
  request.schedules = {best.choice};
  if (best.layout.exchange) request.exchanges = {*best.layout.exchange};
  if (best.layout.sharding) request.problem.sharding = *best.layout.sharding;
  if (best.layout.balanced_stages) request.problem.stage_cut = {.balanced = true};
  request.sharding = {};
  request.balanced_stages = false;
  request.budget /= 64;
  return request;
}

/// A change, and how its time is found.
struct Trial {
  enum class How {
    as_is,  ///< by the plan as it is; around it where that does not fit
    around,
    both,
  };

  Planned::Change change;
  How how = How::as_is;
  std::optional<Cluster> cluster = {};      ///< that the plan runs on, or
  std::optional<PlanRequest> request = {};  ///< to search around it
};

/// Whether the best plan's ranks can share layers as the problem says.
bool can_run(const Problem& problem, const Plan& best) {
  const Mesh& mesh = best.layout.mesh;
  if (!detail::why_not_shared(problem, mesh, problem.context_exchange).empty()) return false;
  return problem.expert_overlap == ExpertOverlap::off || shipped().info(best.choice.schedule).pairs;
}

std::vector<Trial> possible_trials(const Planned& planned) {
  const PlanQuestion& question = planned.question;
  const PlanRequest& asked = planned.request;
  const Plan& best = planned.result.plans.front();
  const Cluster& cluster = asked.problem.cluster;
  using enum Trial::How;
  std::vector<Trial> trials;
  if (cluster.nodes() > 1)
    trials.push_back({{"10 % more bandwidth between nodes"}, as_is, with_faster_links(cluster, true, tenth_faster)});
  if (cluster.ranks() > cluster.nodes())
    trials.push_back({{"10 % more bandwidth inside nodes"}, as_is, with_faster_links(cluster, false, tenth_faster)});
  trials.push_back({{"10 % faster GEMMs and attention"}, as_is, with_faster_products(cluster)});
  PlanRequest more = around_best(asked, best);
  more.problem.cluster =
      with_changed_devices(cluster, [](DeviceSpec& device) { device.memory += Bytes{std::int64_t{10} << 30}; });
  trials.push_back({{"10 GiB more memory a device"}, around, {}, std::move(more)});
  if (asked.offload.empty() && !asked.problem.offload.any()) {
    PlanRequest host = around_best(asked, best);
    host.offload = {{.optimizer = true}, {.activations = true, .optimizer = true}};
    trials.push_back({{"states or activations in host memory (--offload)"}, around, {}, std::move(host)});
  }
  const bool by_kernels = std::holds_alternative<KernelCost>(asked.problem.cost);
  if (by_kernels && graphs_of(asked.problem.cost) == CudaGraphs::none) {
    PlanRequest graphs = around_best(asked, best);
    set_graphs(graphs.problem.cost, CudaGraphs::iteration);
    trials.push_back({{"CUDA graphs of whole steps (--cuda-graphs iteration)"}, as_is, {}, std::move(graphs)});
  }
  for (const JobField& field : job_fields()) {
    const auto& [text, words] = field.tried;
    const bool means_nothing = field.is(of_experts) && !best.layout.mesh.whole_experts;
    if (text.empty() || means_nothing || field.value.print(field, asked.problem) != field.standard) continue;
    PlanRequest other = around_best(asked, best);
    field.value.read(field, std::string{text}, other.problem);
    if (can_run(other.problem, best))
      trials.push_back({{concat(words, " (--", field.name, " ", text, ")")}, as_is, {}, std::move(other)});
  }
  if (by_kernels && !question.job.has("gemm-format") && all_have_8_bits(cluster)) {
    PlanQuestion narrow = question;
    narrow.job.set("gemm-format", "fp8");
    trials.push_back({{"GEMMs in 8 bits (--gemm-format fp8)"}, both, {}, around_best(resolve_plan(narrow), best)});
  }
  return trials;
}

}  // namespace

std::vector<Planned::Change> changes_around(const Planned& planned) try {
  if (planned.result.plans.empty()) return {};
  const Plan& best = planned.result.plans.front();
  const Folding& folding = best.summary.folding;
  if ((folding.factor > 1 ? folding.tasks : best.summary.tasks) > max_changed_tasks) return {};
  std::vector<Trial> trials = possible_trials(planned);
  const std::size_t threads = planned.question.threads > 0 ? planned.question.threads : all_threads();
  const StopTold* const outer = detail::stop_told;
  const auto told = [&] { return planned.is_late() || (outer != nullptr && (*outer)()); };
  const StopScope scope{told};
  on_threads(threads, trials.size(), [&](std::size_t i) {
    Trial& trial = trials[i];
    trial.change.makespan = best.summary.makespan;
    if (trial.cluster) {
      Problem problem = problem_of(planned.request, best.layout, best.choice);
      problem.cluster = *std::move(trial.cluster);
      trial.change.makespan = predict(problem, shipped()).summary.makespan;
    } else {
      bool fits = false;
      if (trial.how != Trial::How::around) {
        const Summary same = predict(problem_of(*trial.request, best.layout, best.choice), shipped()).summary;
        fits = same.fits();
        if (fits) trial.change.makespan = std::min(trial.change.makespan, same.makespan);
      }
      if (fits && trial.how == Trial::How::as_is) return;
      const PlanResult found = plan(*trial.request, shipped());
      check_stop();  // the best so far may not be the change
      if (!found.plans.empty()) trial.change.makespan = std::min(trial.change.makespan, found.plans.front().summary.makespan);
    }
  });
  std::vector<Planned::Change> changes;
  for (Trial& trial : trials) changes.push_back(std::move(trial.change));
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Planned::Change& a, const Planned::Change& b) { return a.makespan < b.makespan; });
  return changes;
} catch (const Stopped&) {
  check_stop();
  return {};  // --seconds ended them
}

}  // namespace tawpipe::answers
