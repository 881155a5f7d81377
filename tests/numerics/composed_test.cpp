// A recorded LLaMA decoder, trained by replicas of schedules: every loss, gradient and parameter as
// recorded, whatever states the replicas share.
// Not: the toy model (unit/execute/composed_test.cpp), with which more sizes and options are tried.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "papers/reference_run.hpp"
#include "schedules.hpp"
#include "support/reference_training.hpp"
#include "tawpipe/schedule/compose.hpp"

using namespace tawpipe;
using namespace reference_training;

namespace composed_numerics_test {

/// Under every schedule that has these ranks and the replica's part of the batch.
template <class T>
void check_replicas(const training::ReferenceRun& reference, int data, const std::vector<int>& sizes, Recompute recompute,
                    const std::vector<StateSharding>& shardings) {
  const Workload whole = reference_work<T>(reference, recompute);
  int trained = 0;
  for (const auto& info : shipped().schedules()) {
    for (const int ranks : sizes) {
      for (const StateSharding sharding : shardings) {
        CAPTURE(std::string{info.name});
        CAPTURE(ranks);
        CAPTURE(std::string{name(sharding)});
        std::vector<training::NumericsCheck> checks;
        try {
          const Schedule logical = build_schedule(
              info.name,
              {.workload = reference_work<T>(reference, recompute, data), .nodes = DeviceGroups{{ranks}}, .options = {}});
          const Composition with{.sharding = sharding, .overlap_gathers = ranks == 1};
          checks = train_reference<T>(reference, compose(logical, whole, Mesh{.data = data}.over(data * ranks), with), recompute);
        } catch (const InputError&) {  // sizes that this schedule cannot have
          continue;
        }
        ++trained;
        CHECK(checks.size() >= 8);
        for (const training::NumericsCheck& check : checks) {
          CAPTURE(check.quantity);
          CAPTURE(check.worst);
          CHECK(check.difference <= (sizeof(T) == 8 ? std::min(check.tolerance, 1e-12) : check.tolerance));
        }
      }
    }
  }
  CHECK(trained > 20);
}

const std::string folder = std::string{TAWPIPE_TEST_DATA} + "/llama_golden";
const std::vector<StateSharding> all_shardings{StateSharding::none, StateSharding::optimizer, StateSharding::gradients,
                                               StateSharding::parameters};

TEST_CASE("two replicas of configuration A under every schedule in f64") {
  check_replicas<double>(training::ReferenceRun{folder + "/A"}, 2, {2}, Recompute::none, all_shardings);
}
TEST_CASE("four replicas of configuration A under every schedule in f32") {
  check_replicas<float>(training::ReferenceRun{folder + "/A"}, 4, {1}, Recompute::full,
                        {StateSharding::optimizer, StateSharding::parameters});
}
TEST_CASE("two replicas of configuration B under every schedule in f64") {
  check_replicas<double>(training::ReferenceRun{folder + "/B"}, 2, {2}, Recompute::selective,
                         {StateSharding::optimizer, StateSharding::gradients});
}
TEST_CASE("two replicas of a mixture of experts under every schedule in f64") {
  check_replicas<double>(training::ReferenceRun{std::string{TAWPIPE_TEST_DATA} + "/moe_golden/M0"}, 2, {2}, Recompute::none,
                         {StateSharding::optimizer, StateSharding::parameters});
}

}  // namespace composed_numerics_test
