// A recorded LLaMA decoder, trained under every schedule of the catalogue: every loss, gradient and
// parameter as recorded.
// Not: the toy model (unit/execute), with which more sizes and options are tried.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "papers/reference_run.hpp"
#include "schedules.hpp"
#include "support/reference_training.hpp"

using namespace tawpipe;
using training::NumericsCheck;
using training::ReferenceRun;

namespace {

using Nodes = std::vector<std::int32_t>;

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
        checks = reference_training::train_reference<T>(
            reference,
            build_schedule(info.name, {.workload = reference_training::reference_work<T>(reference, recompute),
                                       .nodes = DeviceGroups{nodes},
                                       .options = {},
                                       .offload = offload}),
            recompute);
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
TEST_CASE("a first dense layer and DeepSeek-V3's router under every schedule in f64") {
  check_catalogue<double>(ReferenceRun{experts_folder + "/D1"}, {{1}, {2, 2}, {2, 1}}, Recompute::none);
}
TEST_CASE("a first dense layer and DeepSeek-V3's router under every schedule in f32") {
  check_catalogue<float>(ReferenceRun{experts_folder + "/D1"}, {{2, 2}}, Recompute::full);
}
TEST_CASE("latent attention under every schedule in f64") {
  check_catalogue<double>(ReferenceRun{experts_folder + "/D2"}, {{1}, {2, 1}}, Recompute::selective);
}
TEST_CASE("latent attention under every schedule in f32") {
  check_catalogue<float>(ReferenceRun{experts_folder + "/D2"}, {{2, 1}}, Recompute::none);
}
TEST_CASE("a loss that balances experts under every schedule on one rank") {
  check_catalogue<double>(ReferenceRun{experts_folder + "/M1"}, {{1}}, Recompute::full);
  check_catalogue<float>(ReferenceRun{experts_folder + "/M1"}, {{1}}, Recompute::none);
}
TEST_CASE("a loss that balances experts where a rank computes all layers of its microbatches") {
  const ReferenceRun reference{experts_folder + "/M1"};
  for (const char* const name : {"ddp", "fsdp", "weipipe", "tawpipe"}) {
    CAPTURE(name);
    const Schedule schedule =
        build_schedule(name, {.workload = reference_training::reference_work<double>(reference, Recompute::selective),
                              .nodes = DeviceGroups{{2, 2}},
                              .options = {}});
    for (const NumericsCheck& check : reference_training::train_reference<double>(reference, schedule, Recompute::selective)) {
      CAPTURE(check.quantity);
      CHECK(check.difference <= check.tolerance);
    }
  }
  const Schedule pipeline =
      build_schedule("1f1b", {.workload = reference_training::reference_work<double>(reference, Recompute::none),
                              .nodes = DeviceGroups{{2}},
                              .options = {}});
  CHECK_THROWS_AS(reference_training::train_reference<double>(reference, pipeline, Recompute::none), InputError);
}
TEST_CASE("configuration B under every schedule in f32") {
  check_catalogue<float>(ReferenceRun{folder + "/B"}, {{2, 1}}, Recompute::none);
}
