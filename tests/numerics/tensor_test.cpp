// Recorded LLaMA decoders, trained by tensor-parallel ranks around any schedule: every loss, gradient
// and parameter as recorded.
// Not: replicas of whole stages (composed_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "papers/reference_run.hpp"
#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/reference_training.hpp"
#include "support/shared_stage_checks.hpp"
#include "support/tensor_training.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/execute/executed_schedule.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/expand.hpp"

using namespace tawpipe;
using namespace reference_training;

namespace tensor_numerics_test {

const std::string folder = std::string{TAWPIPE_TEST_DATA} + "/llama_golden";

std::vector<std::string> all_schedules() {
  std::vector<std::string> names;
  for (const auto& info : shipped().schedules()) names.emplace_back(info.name);
  return names;
}

/// Under the schedules that have these ranks and the replica's part of the batch. @return how many
int check_schedules(const training::ReferenceRun& reference, const std::vector<std::string>& names, const Mesh& axes, int ranks,
                    bool by_tokens, const Composition& with = {}) {
  CAPTURE(by_tokens);
  CAPTURE(ranks);
  CAPTURE(std::string{name(with.sharding)});
  int trained = 0;
  for (const std::string& name : names) {
    CAPTURE(name);
    std::vector<training::NumericsCheck> checks;
    try {
      checks = train_tensor_parallel<double>(reference, name, ranks, axes, by_tokens, with);
    } catch (const InputError&) {  // sizes that this schedule cannot have
      continue;
    }
    ++trained;
    check_recorded_numbers(checks);
  }
  return trained;
}

TEST_CASE("two tensor-parallel ranks of configuration A under every schedule in f64") {
  const training::ReferenceRun reference{folder + "/A"};
  for (const bool by_tokens : {false, true}) CHECK(check_schedules(reference, all_schedules(), {.tensor = 2}, 2, by_tokens) > 20);
}
TEST_CASE("tensor 2 x data 2 of configuration A with each choice of shared states in f64") {
  const training::ReferenceRun reference{folder + "/A"};
  for (const StateSharding sharding :
       {StateSharding::none, StateSharding::optimizer, StateSharding::gradients, StateSharding::parameters}) {
    CHECK(check_schedules(reference, all_schedules(), {.tensor = 2, .data = 2}, 1, true,
                          {.sharding = sharding, .overlap_gathers = true}) > 5);
  }
}
// Three key and value heads and 97 entries of the vocabulary: the second rank's part is padded.
TEST_CASE("tensor 2 x data 2 x pipeline 2 of configuration B in f64") {
  const training::ReferenceRun reference{folder + "/B"};
  const std::vector<std::string> names{"1f1b", "interleaved-1f1b", "zb-v", "tawpipe", "fsdp"};
  for (const bool by_tokens : {false, true}) {
    CHECK(check_schedules(reference, names, {.tensor = 2, .data = 2}, 2, by_tokens, {.sharding = StateSharding::optimizer}) == 5);
  }
}

// ---- messages ---------------------------------------------------------------------------------

TEST_CASE("tensor-parallel ranks exchange what is simulated, in its order, and the same bits under delays") {
  const training::ReferenceRun reference{folder + "/A"};
  for (const std::string name : {"1f1b", "zb-h1", "zb-v", "tawpipe", "fsdp"}) {
    for (const bool by_tokens : {false, true}) {
      CAPTURE(name);
      CAPTURE(by_tokens);
      const Mesh axes{.tensor = 2, .data = 2};
      const Schedule told = simulated_schedule<double>(reference, name, 2, axes, by_tokens);
      const Schedule expanded = expand_bodies(told).schedule;
      const Schedule executed = tensor_schedule<double>(reference, name, 2, axes, by_tokens);
      const ExecutedSchedule run{executed};
      for (int r = 0; r < told.ranks(); ++r)
        CHECK(messages(run.schedule(), Rank{r}, "tensor_parallel") == messages(expanded, Rank{r}, "tensor_parallel"));

      const Traffic traffic_told = traffic(expanded, support::cluster(told.ranks()));
      const auto once = train_steps<double>(reference, executed, axes, by_tokens, {});
      check_token_bytes(once.back(), traffic_told);
      const auto again = train_steps<double>(reference, executed, axes, by_tokens, {.seed = 7, .longest_microseconds = 20});
      for (std::size_t step = 0; step < once.size(); ++step) CHECK(again[step].losses == once[step].losses);
    }
  }
}

}  // namespace tensor_numerics_test
