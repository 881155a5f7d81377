// Every schedule of the catalogue, executed by threads on a toy model: gradients and weights equal one device's.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/toy_layer.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/schedule/catalogue.hpp"

using namespace tawpipe;

namespace {

using Executor = host::HostExecutor<double, support::ToyLayer<double>, support::ToyOptimizer<double>>;

Transformer toy_model(int layers, bool tied) {
  return {.name = "toy",
          .layers = layers,
          .hidden = 4,
          .heads = 2,
          .kv_heads = 1,
          .intermediate = 5,
          .vocab = 7,
          .tied = tied,
          .dtype = Dtype::f64};
}

Workload toy_work(const Transformer& model, std::int64_t microbatches, Recompute recompute) {
  Workload work{model, Batch{.sequence = 3, .microbatch_size = 1, .global_batch = microbatches}, recompute};
  work.parameter_bytes({.weight = 8, .gradient = 8, .optimizer = 16});
  return work;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> gradient;
  std::vector<double> weights;
  std::vector<host::IterationResult> results;
};

Outcome train(const Schedule& schedule, int steps, const host::HostOptions& options = {}) {
  const Transformer& model = schedule.workload().model();
  Executor executor{schedule, [&] { return support::ToyLayer<double>{model}; }, {}, options};
  for (int r = 0; r < schedule.ranks(); ++r) {
    executor.rank(Rank{r}).for_each_weight([](ParameterRange range, std::span<double> numbers) {
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = std::sin(0.7 * static_cast<double>(range.begin + static_cast<std::int64_t>(i)));
    });
  }
  Outcome outcome;
  outcome.gradient.assign(static_cast<std::size_t>(model.parameters()), NAN);
  outcome.weights = outcome.gradient;
  for (int step = 1; step <= steps; ++step) {
    std::mutex mutex;
    outcome.results.push_back(executor.run(support::ToyTokens{model.vocab}, {.step = step, .learning_rate = 0.05},
                                           [&](ParameterRange range, std::span<const double> gradients) {
                                             const std::lock_guard lock{mutex};
                                             std::copy(gradients.begin(), gradients.end(),
                                                       outcome.gradient.begin() + range.begin);
                                           }));
    outcome.losses.push_back(outcome.results.back().loss());
  }
  for (int r = 0; r < schedule.ranks(); ++r) {
    executor.rank(Rank{r}).for_each_weight([&](ParameterRange range, std::span<double> numbers) {
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        double& known = outcome.weights[static_cast<std::size_t>(range.begin) + i];
        if (!std::isnan(known)) CHECK(known == doctest::Approx(numbers[i]).epsilon(1e-13));
        known = numbers[i];
      }
    });
  }
  return outcome;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::isnan(a[i]) || std::isnan(b[i]) ? 1e300 : std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

TEST_CASE("TawPipe, striped, with speeds or a short last round, gives the losses, gradients and weights of one device") {
  for (const std::vector<std::int32_t>& nodes : std::vector<std::vector<std::int32_t>>{{2, 2}, {2, 2, 2}, {4, 2}, {2, 3}}) {
    const DeviceGroups groups{nodes};
    for (const std::int64_t microbatches : {12, 5}) {
      const Workload work = toy_work(toy_model(11, true), microbatches, Recompute::none);  // shards of one layer and of two
      CAPTURE(groups.ranks());
      CAPTURE(microbatches);
      const Outcome one = train(build_schedule("1f1b", {work, DeviceGroups{{1}}, {}}), 2);
      for (const ScheduleOptions& options : std::vector<ScheduleOptions>{
               {{"stripe", "on"}}, {}, {{"speeds", concat("1+2", groups.count() == 3 ? "+1" : "")}, {"node-cache", "2"}}}) {
        const Outcome outcome = train(build_schedule("tawpipe", {work, groups, options}), 2);
        for (std::size_t i = 0; i < 2; ++i) CHECK(outcome.losses[i] == doctest::Approx(one.losses[i]).epsilon(1e-12));
        CHECK(largest_difference(outcome.gradient, one.gradient) < 1e-12);
        CHECK(largest_difference(outcome.weights, one.weights) < 1e-12);
      }
    }
  }
}

TEST_CASE("every schedule gives the losses, gradients and weights of one device") {
  for (const auto& info : catalogue()) {
    for (const bool tied : {true, false}) {
      for (const std::vector<std::int32_t>& nodes :
           std::vector<std::vector<std::int32_t>>{{2}, {1, 1}, {2, 2}, {3, 3}, {2, 2, 2}, {3, 2, 1}}) {
        const DeviceGroups groups{nodes};
        const Workload work = toy_work(toy_model(12, tied), 12, Recompute::none);
        CAPTURE(std::string{info.name});
        CAPTURE(tied);
        CAPTURE(groups.ranks());
        CAPTURE(groups.count());
        try {
          const Schedule schedule = build_schedule(info.name, {work, groups, {}});
          const Outcome one = train(build_schedule("1f1b", {work, DeviceGroups{{1}}, {}}), 2);
          const Outcome outcome = train(schedule, 2);
          for (std::size_t i = 0; i < 2; ++i) CHECK(outcome.losses[i] == doctest::Approx(one.losses[i]).epsilon(1e-12));
          CHECK(largest_difference(outcome.gradient, one.gradient) < 1e-12);
          CHECK(largest_difference(outcome.weights, one.weights) < 1e-12);
        } catch (const Error& error) {
          MESSAGE(std::string{info.name} << " refuses: " << std::string{error.what()});
        }
      }
    }
  }
}
