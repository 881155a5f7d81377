// Ranks that share stages and compute activations again: the bits of those that keep them, and each
// collective of the repeated forward as it is simulated.
// Not: ranks that keep everything (tensor_test.cpp, context_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "papers/reference_run.hpp"
#include "support/clusters.hpp"
#include "support/reference_training.hpp"
#include "support/shared_stage_checks.hpp"
#include "support/tensor_training.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/execute/executed_schedule.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/expand.hpp"

namespace shared_recompute_test {

using namespace tawpipe;
using namespace reference_training;

const std::string folder = std::string{TAWPIPE_TEST_DATA} + "/llama_golden";
const std::string mixture = std::string{TAWPIPE_TEST_DATA} + "/moe_golden/M0";
constexpr ContextExchange exchanges[] = {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::all_to_all};

void check_recorded(const training::ReferenceRun& reference, const std::string& schedule, int ranks, const Mesh& axes,
                    const Splitting& how, const Composition& with = {}) {
  check_recorded_numbers(train_tensor_parallel<double>(reference, schedule, ranks, axes, how, with));
}

/// @param again  what they do besides, the policy of which is compared with `none`
void check_again(const training::ReferenceRun& reference, const std::string& name, int ranks, const Mesh& axes,
                 const Splitting& again) {
  CAPTURE(name);
  CAPTURE(again.by_tokens);
  CAPTURE(std::string{tawpipe::name(again.exchange)});
  CAPTURE(std::string{tawpipe::name(again.recompute)});
  Splitting keeps = again;
  keeps.recompute = Recompute::none;
  const Schedule told = expand_bodies(simulated_schedule<double>(reference, name, ranks, axes, again)).schedule;
  const Schedule executed = tensor_schedule<double>(reference, name, ranks, axes, again);
  const ExecutedSchedule run{executed};
  const Schedule kept = expand_bodies(simulated_schedule<double>(reference, name, ranks, axes, keeps)).schedule;
  for (int r = 0; r < told.ranks(); ++r) {
    CHECK(messages(run.schedule(), Rank{r}) == messages(told, Rank{r}));
    const bool sends = axes.tensor > 1 || axes.whole_experts;
    const bool repeats = (again.recompute == Recompute::full && sends) || axes.context > 1;
    CHECK((messages(told, Rank{r}).size() > messages(kept, Rank{r}).size()) == repeats);
  }
  const Traffic traffic_told = traffic(told, support::cluster(told.ranks()));
  const auto results = train_steps<double>(reference, executed, axes, again, {});
  if (!axes.whole_experts) check_token_bytes(results.back(), traffic_told);  // tokens for experts: as routers choose
  const auto without =
      train_steps<double>(reference, tensor_schedule<double>(reference, name, ranks, axes, keeps), axes, keeps, {});
  const auto delayed = train_steps<double>(reference, executed, axes, again, {.seed = 7, .longest_microseconds = 20});
  for (std::size_t step = 0; step < results.size(); ++step) {
    CHECK(results[step].losses == without[step].losses);
    CHECK(results[step].losses == delayed[step].losses);
  }
}

TEST_CASE("tensor-parallel ranks that compute again have the bits of those that keep, by the messages simulated") {
  const training::ReferenceRun reference{folder + "/A"};
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    for (const bool by_tokens : {false, true}) {
      for (const std::string name : {"1f1b", "zb-h1", "tawpipe"})
        check_again(reference, name, 2, {.tensor = 2}, {by_tokens, ContextExchange::all_gather, recompute});
    }
  }
}
TEST_CASE("context-parallel ranks that compute again have the bits of those that keep, by the messages simulated") {
  const training::ReferenceRun reference{folder + "/A"};
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    for (const ContextExchange exchange : exchanges) {
      for (const std::string name : {"1f1b", "zb-h1"})
        check_again(reference, name, 2, {.context = 2}, {true, exchange, recompute});
      check_again(reference, "1f1b", 1, {.tensor = 2, .context = 2}, {true, exchange, recompute});
      check_again(reference, "zb-v", 1, {.tensor = 2, .context = 2}, {false, exchange, recompute});
    }
  }
}
TEST_CASE("ranks that compute a mixture again have the bits of those that keep, by the messages simulated") {
  const training::ReferenceRun reference{mixture};
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    Splitting again{true, ContextExchange::ring, recompute};
    check_again(reference, "zb-h1", 2, {.context = 2}, again);
    check_again(reference, "1f1b", 1, {.tensor = 2}, again);
    check_again(reference, "zb-v", 1, {.tensor = 2, .context = 2, .whole_experts = true}, again);
    again.experts = 2;
    check_again(reference, "zb-h1", 2, {.expert = 2, .whole_experts = true}, again);
    check_again(reference, "1f1b", 1, {.tensor = 2, .expert = 2, .whole_experts = true}, again);
  }
}
TEST_CASE("recorded numbers by ranks that share stages and compute again in f64") {
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    const training::ReferenceRun a{folder + "/A"};
    check_recorded(a, "1f1b", 2, {.tensor = 2, .context = 2, .data = 2}, {true, ContextExchange::ring, recompute});
    check_recorded(a, "fsdp", 2, {.tensor = 2}, {true, ContextExchange::all_gather, recompute});
    check_recorded(a, "zb-h1", 2, {.context = 2}, {true, ContextExchange::all_to_all, recompute},
                   {.sharding = StateSharding::parameters});
    check_recorded(training::ReferenceRun{folder + "/B"}, "zb-v", 2, {.tensor = 2, .context = 2},
                   {false, ContextExchange::all_gather, recompute});
    const training::ReferenceRun of_mixture{mixture};
    Splitting divided{true, ContextExchange::all_gather, recompute};
    check_recorded(of_mixture, "zb-v", 1, {.tensor = 2, .context = 2, .whole_experts = true}, divided);
    divided.experts = 2;
    check_recorded(of_mixture, "zb-h1", 2, {.expert = 2, .whole_experts = true}, divided);
    check_recorded(of_mixture, "1f1b", 2, {.tensor = 2, .expert = 2, .whole_experts = true}, divided);
  }
}

}  // namespace shared_recompute_test
