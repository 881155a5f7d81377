// A recorded LLaMA decoder, trained under every schedule of the catalogue: every loss, gradient and
// parameter as recorded.
// Not: the toy model (unit/execute), with which more sizes and options are tried.
#include <doctest/doctest.h>

#include <mutex>
#include <string>
#include <vector>

#include "papers/reference_run.hpp"
#include "schedules.hpp"
#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/layers/host/llama.hpp"
#include "tawpipe/layers/parameter_update.hpp"

using namespace tawpipe;
using training::NumericsCheck;
using training::ReferenceRun;

namespace {

using Nodes = std::vector<std::int32_t>;

template <class T>
std::vector<NumericsCheck> train(const ReferenceRun& reference, const std::string& name, const Nodes& nodes, Recompute recompute,
                                 const Offload& offload) {
  Transformer model = reference.model();
  model.dtype = sizeof(T) == 8 ? Dtype::f64 : Dtype::f32;
  Workload work{model, reference.batch(), recompute};
  work.parameter_bytes({.weight = sizeof(T), .gradient = sizeof(T), .optimizer = 2 * sizeof(T)});
  const Schedule schedule =
      build_schedule(name, {.workload = work, .nodes = DeviceGroups{nodes}, .options = {}, .offload = offload});
  const DecoderConstants constants{.rope_theta = reference.rope_theta, .norm_epsilon = reference.norm_eps};
  const layers::AdamWUpdate<T> optimizer{
      model,
      {.beta1 = reference.beta1, .beta2 = reference.beta2, .epsilon = reference.epsilon, .weight_decay = reference.weight_decay}};
  host::HostExecutor<T, layers::host::Llama<T>, layers::AdamWUpdate<T>> executor{
      schedule,
      [&] {
        return layers::host::Llama<T>{model, reference.batch(), recompute, constants};
      },
      optimizer};
  const std::vector<T> initial = reference.initial<T>();
  std::vector<T> values(initial.size());
  executor.for_each_rank([&](auto& rank) {
    rank.for_each_weight([&](ParameterRange range, std::span<T> numbers) {
      std::copy_n(initial.begin() + range.begin, range.count(), numbers.begin());
    });
  });
  std::mutex mutex;
  const GradientObserver<T> observe = [&](ParameterRange range, std::span<const T> numbers) {
    const std::lock_guard lock{mutex};
    std::copy(numbers.begin(), numbers.end(), values.begin() + range.begin);
  };
  std::vector<std::vector<double>> losses;
  std::vector<NumericsCheck> checks;
  for (int step = 1; step <= reference.steps + 1; ++step) {
    const Iteration args{.step = step, .learning_rate = reference.learning_rate};
    losses.push_back(executor.run(reference, args, step == 1 ? observe : nullptr).losses);
    if (step == 1) reference.check_parameters<T>("grad0", values, checks);
    if (step != 1 && step != reference.steps) continue;
    executor.for_each_rank([&](auto& rank) {
      rank.for_each_weight([&](ParameterRange range, std::span<T> numbers) {
        std::copy(numbers.begin(), numbers.end(), values.begin() + range.begin);
      });
    });
    reference.check_parameters<T>(concat("step", step), values, checks);
  }
  reference.check_losses<T>(losses, checks);
  return checks;
}

template <class T>
void check_catalogue(const ReferenceRun& reference, const std::vector<Nodes>& clusters, Recompute recompute,
                     const Offload& offload = {}) {
  int trained = 0;
  for (const auto& info : shipped().schedules()) {
    for (const Nodes& nodes : clusters) {
      CAPTURE(std::string{info.name});
      CAPTURE(nodes.size());
      CAPTURE(nodes[0]);
      std::vector<NumericsCheck> checks;
      try {
        checks = train<T>(reference, std::string{info.name}, nodes, recompute, offload);
      } catch (const InputError&) {  // sizes that this schedule cannot have
        continue;
      }
      ++trained;
      CHECK(checks.size() >= 8);
      for (const NumericsCheck& check : checks) {
        CAPTURE(check.quantity);
        CAPTURE(check.worst);
        CAPTURE(check.compared);
        CHECK(check.difference <= check.tolerance);
      }
    }
  }
  CHECK(trained * 10 > static_cast<int>(shipped().schedules().size() * clusters.size()) * 8);  // few sizes are refused
}

const std::string folder = std::string{TAWPIPE_TEST_DATA} + "/llama_golden";
const std::string experts_folder = std::string{TAWPIPE_TEST_DATA} + "/moe_golden";
const std::vector<Nodes> clusters_of_a{{1}, {2}, {1, 1}, {4}, {2, 2}, {6}, {3, 3}, {2, 2, 2}, {3, 2, 1}};
const std::vector<Nodes> clusters_of_b{{2, 2}, {3, 2, 1}};

}  // namespace

TEST_CASE("configuration A under every schedule in f64") {
  check_catalogue<double>(ReferenceRun{folder + "/A"}, clusters_of_a, Recompute::none);
}
TEST_CASE("configuration A under every schedule in f32") {
  check_catalogue<float>(ReferenceRun{folder + "/A"}, {{2, 2}, {3, 2, 1}}, Recompute::full);
}
TEST_CASE("configuration A under every schedule in f64, with activations and optimizer states in host memory") {
  check_catalogue<double>(ReferenceRun{folder + "/A"}, {{2, 2}, {3, 2, 1}}, Recompute::none,
                          {.activations = true, .optimizer = true});
}
TEST_CASE("configuration B under every schedule in f64") {
  check_catalogue<double>(ReferenceRun{folder + "/B"}, clusters_of_b, Recompute::selective);
}
TEST_CASE("a mixture of experts under every schedule in f64") {
  check_catalogue<double>(ReferenceRun{experts_folder + "/M0"}, {{1}, {2, 2}, {6}, {3, 2, 1}}, Recompute::selective);
}
TEST_CASE("a mixture of experts under every schedule in f32") {
  check_catalogue<float>(ReferenceRun{experts_folder + "/M0"}, {{2, 2}, {3, 2, 1}}, Recompute::full);
}
TEST_CASE("configuration B under every schedule in f32") {
  check_catalogue<float>(ReferenceRun{folder + "/B"}, {{2, 1}}, Recompute::none);
}
