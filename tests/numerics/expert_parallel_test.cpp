// A recorded mixture of experts, trained by ranks that have some of the experts each: every loss, gradient
// and parameter as recorded.
// Not: mixtures of which each rank has all experts (composed_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "papers/reference_run.hpp"
#include "support/reference_training.hpp"
#include "support/tensor_training.hpp"
#include "tawpipe/execute/executed_schedule.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/expand.hpp"

namespace expert_parallel_test {

using namespace tawpipe;
using namespace reference_training;

const std::string folder = std::string{TAWPIPE_TEST_DATA} + "/moe_golden/M0";

Splitting among(int experts, int loss_chunk = 0) {
  Splitting how{true};
  how.experts = experts;
  how.loss_chunk = loss_chunk;
  return how;
}
Mesh mesh(int experts, int data = 1) { return {.data = data, .expert = experts, .whole_experts = true}; }

void check_recorded(const training::ReferenceRun& reference, const std::string& schedule, int ranks, const Mesh& axes,
                    const Composition& with = {}, int loss_chunk = 0) {
  CAPTURE(schedule);
  CAPTURE(ranks);
  CAPTURE(axes.expert);
  CAPTURE(axes.data);
  CAPTURE(std::string{name(with.sharding)});
  const auto checks = train_tensor_parallel<double>(reference, schedule, ranks, axes, among(axes.expert, loss_chunk), with);
  CHECK(checks.size() >= 8);
  for (const training::NumericsCheck& check : checks) {
    CAPTURE(check.quantity);
    CAPTURE(check.worst);
    CHECK(check.difference <= std::min(check.tolerance, 1e-12));
  }
}

TEST_CASE("a recorded mixture by 2 and 4 ranks that divide its experts, alone and in pipelines, in f64") {
  const training::ReferenceRun reference{folder};
  for (const int experts : {2, 4}) {
    check_recorded(reference, "1f1b", 1, mesh(experts));
    for (const std::string schedule : {"1f1b", "zb-h1", "interleaved-1f1b"})
      check_recorded(reference, schedule, 2, mesh(experts));
  }
  check_recorded(reference, "zb-v", 2, mesh(2));
  check_recorded(reference, "1f1b", 1, mesh(2), {}, 10);
}
TEST_CASE("experts 2 x data 2 and more with shared states and gradients in f64") {
  const training::ReferenceRun reference{folder};
  for (const StateSharding sharding : {StateSharding::none, StateSharding::optimizer, StateSharding::gradients}) {
    check_recorded(reference, "1f1b", 2, mesh(2, 2), {.sharding = sharding});
    check_recorded(reference, "ddp", 1, mesh(2, 4), {.sharding = sharding, .overlap_gathers = true});
  }
  check_recorded(reference, "zb-h1", 1, mesh(4, 2), {.sharding = StateSharding::optimizer, .overlap_gradients = true});
}

struct Sent {
  Op op;
  Payload payload;
  std::int64_t bytes;
  bool operator==(const Sent&) const = default;
};
std::vector<Sent> messages(const Schedule& run, Rank rank) {
  std::vector<Sent> sent;
  const auto lane = std::find(run.lanes().begin(), run.lanes().end(), "expert_parallel") - run.lanes().begin();
  REQUIRE(lane < std::ssize(run.lanes()));
  for (const TaskId id : run.program(rank, static_cast<int>(lane))) {
    const Task& task = run.task(id);
    sent.push_back({task.op, task.payload, task.bytes.value()});
  }
  return sent;
}

TEST_CASE("tokens travel in the all-to-alls that are simulated, all copies of them, with the same bits under delays") {
  const training::ReferenceRun reference{folder};
  for (const std::string name : {"1f1b", "zb-h1"}) {
    CAPTURE(name);
    const Mesh axes = mesh(4);
    const Splitting how = among(4);
    const Schedule told = expand_bodies(simulated_schedule<double>(reference, name, 2, axes, how)).schedule;
    const Schedule executed = tensor_schedule<double>(reference, name, 2, axes, how);
    const ExecutedSchedule run{executed};
    std::int64_t most = 0;  // bytes, if every rank sent all to others
    for (int r = 0; r < told.ranks(); ++r) {
      CHECK(!messages(told, Rank{r}).empty());
      CHECK(messages(run.schedule(), Rank{r}) == messages(told, Rank{r}));
      for (const Sent& one : messages(told, Rank{r})) most += one.payload == Payload::activations ? one.bytes : 0;
    }
    const auto once = train_steps<double>(reference, executed, axes, how, {});
    const auto again = train_steps<double>(reference, executed, axes, how, {.seed = 7, .longest_microseconds = 20});
    for (std::size_t step = 0; step < once.size(); ++step) {
      CHECK(again[step].losses == once[step].losses);
      std::int64_t activations = 0;
      for (std::size_t r = 0; r < once[step].sent.size(); ++r) {
        CHECK(again[step].sent[r].by_payload == once[step].sent[r].by_payload);
        activations += once[step].sent[r].by_payload[static_cast<std::size_t>(Payload::activations)];
      }
      CHECK(activations > most / 2);
    }
  }
}

}  // namespace expert_parallel_test
