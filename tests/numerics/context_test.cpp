// Recorded LLaMA decoders, trained by context-parallel ranks around any schedule, alone and with all
// other axes: every loss, gradient and parameter as recorded.
// Not: tensor-parallel ranks alone (tensor_test.cpp).
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

namespace context_numerics_test {

using namespace tawpipe;
using namespace reference_training;

const std::string folder = std::string{TAWPIPE_TEST_DATA} + "/llama_golden";
constexpr ContextExchange exchanges[] = {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::all_to_all};

/// Under the schedules that have these ranks and the replica's part of the batch. @return how many
int check_schedules(const training::ReferenceRun& reference, const std::vector<std::string>& names, const Mesh& axes, int ranks,
                    const Splitting& how, const Composition& with = {}) {
  CAPTURE(how.by_tokens);
  CAPTURE(std::string{name(how.exchange)});
  CAPTURE(ranks);
  int trained = 0;
  for (const std::string& name : names) {
    CAPTURE(name);
    std::vector<training::NumericsCheck> checks;
    try {
      checks = train_tensor_parallel<double>(reference, name, ranks, axes, how, with);
    } catch (const InputError&) {  // sizes that this schedule cannot have
      continue;
    }
    ++trained;
    check_recorded_numbers(checks);
  }
  return trained;
}

std::vector<std::string> all_schedules() {
  std::vector<std::string> names;
  for (const auto& info : shipped().schedules()) names.emplace_back(info.name);
  return names;
}

TEST_CASE("two context-parallel ranks of configuration A under every schedule in f64") {
  const training::ReferenceRun reference{folder + "/A"};
  CHECK(check_schedules(reference, all_schedules(), {.context = 2}, 2, true) > 20);
  for (const ContextExchange exchange : exchanges)
    CHECK(check_schedules(reference, {"1f1b", "zb-h1"}, {.context = 2}, 1, {true, exchange}) == 2);
}
TEST_CASE("four context-parallel ranks of configuration A by each exchange in f64") {
  const training::ReferenceRun reference{folder + "/A"};
  const std::vector<std::string> names{"1f1b", "zb-v", "weipipe", "tawpipe", "fsdp"};
  for (const ContextExchange exchange : exchanges)
    CHECK(check_schedules(reference, names, {.context = 4}, 2, {true, exchange}) == 5);
}
TEST_CASE("tensor 2 x context 2 of configuration A by each exchange in f64") {
  const training::ReferenceRun reference{folder + "/A"};
  const std::vector<std::string> names{"1f1b", "interleaved-zb", "tawpipe"};
  for (const ContextExchange exchange : exchanges) {
    for (const bool by_tokens : {false, true})
      CHECK(check_schedules(reference, names, {.tensor = 2, .context = 2}, 2, {by_tokens, exchange}) == 3);
  }
}
// Three key and value heads, two sequences in a microbatch: an all-to-all is refused.
TEST_CASE("context 2 and 4, and tensor 2 x context 2, of configuration B in f64") {
  const training::ReferenceRun reference{folder + "/B"};
  for (const ContextExchange exchange : {ContextExchange::all_gather, ContextExchange::ring}) {
    CHECK(check_schedules(reference, {"1f1b", "zb-h2"}, {.context = 2}, 2, {true, exchange}) == 2);
    CHECK(check_schedules(reference, {"fsdp"}, {.context = 4}, 2, {true, exchange}) == 1);
    CHECK(check_schedules(reference, {"zb-v"}, {.tensor = 2, .context = 2}, 2, {true, exchange}) == 1);
  }
  CHECK(check_schedules(reference, {"1f1b"}, {.context = 2}, 2, {true, ContextExchange::all_to_all}) == 0);
}
TEST_CASE("tensor 2 x context 2 x pipeline 2 x data 2, 16 ranks, with each choice of shared states in f64") {
  const training::ReferenceRun reference{folder + "/A"};
  const Mesh axes{.tensor = 2, .context = 2, .data = 2};
  for (const StateSharding sharding :
       {StateSharding::none, StateSharding::optimizer, StateSharding::gradients, StateSharding::parameters}) {
    CAPTURE(std::string{name(sharding)});
    CHECK(check_schedules(reference, {"1f1b"}, axes, 2, true, {.sharding = sharding}) == 1);
  }
  const std::vector<std::string> names{"zb-h1", "tawpipe", "fsdp"};
  CHECK(check_schedules(reference, names, axes, 2, {true, ContextExchange::ring}, {.overlap_gathers = true}) == 3);
  CHECK(check_schedules(training::ReferenceRun{folder + "/B"}, {"1f1b"}, axes, 2, {true, ContextExchange::ring}) == 1);
}

// ---- messages ---------------------------------------------------------------------------------

TEST_CASE("context-parallel ranks exchange what is simulated, in its order, and the same bits under delays") {
  const training::ReferenceRun reference{folder + "/A"};
  for (const std::string name : {"1f1b", "zb-h1", "tawpipe"}) {
    for (const ContextExchange exchange : exchanges) {
      for (const int context : {2, 4}) {
        CAPTURE(name);
        CAPTURE(context);
        CAPTURE(std::string{tawpipe::name(exchange)});
        const Mesh axes{.tensor = context == 2 ? 2 : 1, .context = context};
        const Splitting how{true, exchange};
        const Schedule told = simulated_schedule<double>(reference, name, 2, axes, how);
        const Schedule expanded = expand_bodies(told).schedule;
        const Schedule executed = tensor_schedule<double>(reference, name, 2, axes, how);
        const ExecutedSchedule run{executed};
        for (int r = 0; r < told.ranks(); ++r) {
          const std::vector<Sent> own = messages(run.schedule(), Rank{r}, "context_parallel");
          CHECK(!own.empty());
          CHECK(own == messages(expanded, Rank{r}, "context_parallel"));
          if (axes.tensor > 1) {
            CHECK(messages(run.schedule(), Rank{r}, "tensor_parallel") == messages(expanded, Rank{r}, "tensor_parallel"));
          }
        }
        const Traffic traffic_told = traffic(expanded, support::cluster(told.ranks()));
        const auto once = train_steps<double>(reference, executed, axes, how, {});
        check_token_bytes(once.back(), traffic_told);
        const auto again = train_steps<double>(reference, executed, axes, how, {.seed = 7, .longest_microseconds = 20});
        for (std::size_t step = 0; step < once.size(); ++step) CHECK(again[step].losses == once[step].losses);
      }
    }
  }
}

}  // namespace context_numerics_test
