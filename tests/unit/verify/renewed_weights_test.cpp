// Iterations that begin with gathers of what the one before has updated: proven, and trained.
// Not: when the gathers run (unit/schedule/compose_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/draft.hpp"
#include "support/findings.hpp"
#include "support/sequential_run.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;
using support::check_finds;
using tawpipe::test::Draft;
using tawpipe::test::SequentialRun;

namespace renewed_weights_test {

namespace {

Workload work(std::int64_t microbatches) {
  const Transformer model{
      .name = "m", .layers = 4, .hidden = 8, .heads = 4, .kv_heads = 2, .intermediate = 12, .vocab = 10, .dtype = Dtype::f64};
  Workload work{model, {.sequence = 6, .microbatch_size = 1, .global_batch = microbatches}, Recompute::none};
  return work.parameter_bytes({.weight = 8, .gradient = 8, .optimizer = 16});
}

/// Two logical ranks, four microbatches a replica.
Schedule composed(const char* name, const Mesh& axes, StateSharding sharding, bool early, std::int64_t bucket = 0) {
  const Schedule logical = build_schedule(name, {.workload = work(4), .nodes = DeviceGroups{{2}}, .options = {}});
  return compose(logical, work(4 * axes.data), axes.over(2 * axes.copies()),
                 {.stages = {}, .sharding = sharding, .overlap_gradients = early, .overlap_gathers = early, .bucket = bucket});
}

bool same(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && !a.empty() &&
         std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) { return std::abs(x - y) < 1e-9; });
}

/// The first gather of weights.
TaskId early_gather(const Draft& draft) {
  const auto found = draft.select([](TaskId, const Task& task) { return task.op == Op::all_gather; });
  REQUIRE(!found.empty());
  return found[0];
}

}  // namespace

TEST_CASE("schedules whose iterations begin with gathers of weights have no findings") {
  int checked = 0;
  for (const char* name : {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v"}) {
    for (const Mesh& axes : {Mesh{.data = 2}, Mesh{.tensor = 2, .data = 2}, Mesh{.context = 2, .data = 2}}) {
      for (const auto sharding : {StateSharding::optimizer, StateSharding::gradients, StateSharding::parameters}) {
        for (const std::int64_t bucket : {0, 1}) {
          CAPTURE(name);
          CAPTURE(std::string{tawpipe::name(sharding)});
          CAPTURE(bucket);
          const Diagnostics found = validate(composed(name, axes, sharding, true, bucket));
          CHECK_MESSAGE(found.errors() + found.warnings() == 0, found.text());
          ++checked;
        }
      }
    }
  }
  CHECK(checked == 90);
}

TEST_CASE("they train what those train that gather after the update") {
  for (const auto sharding : {StateSharding::optimizer, StateSharding::gradients, StateSharding::parameters}) {
    CAPTURE(std::string{name(sharding)});
    for (const bool latest : {false, true}) {
      const auto late = SequentialRun::weights(composed("1f1b", {.data = 2}, sharding, false), latest);
      REQUIRE(!late.empty());
      for (const std::int64_t bucket : {0, 1}) {
        const Schedule early = composed("1f1b", {.data = 2}, sharding, true, bucket);
        CHECK(same(SequentialRun::weights(early, latest, SequentialRun::Left::by_updates), late));
      }
    }
  }
}

TEST_CASE("V709: weights that are read as the iteration before left them, some without their update") {
  Draft draft{composed("1f1b", {.data = 2}, StateSharding::optimizer, true)};
  draft.remove(early_gather(draft));
  check_finds(draft, "V709", "parameters updated");

  draft = Draft{composed("1f1b", {.data = 2}, StateSharding::optimizer, true)};  // after a forward has read them
  const TaskId gather = early_gather(draft);
  const auto forwards = draft.select([&](TaskId, const Task& task) {
    return task.op == Op::forward && task.microbatch == 0 && task.stage == draft.task(gather).stage;
  });
  REQUIRE(!forwards.empty());
  for (const TaskId forward : forwards) {
    auto& row = draft.dependencies[index(forward)];
    row.erase(std::remove(row.begin(), row.end(), gather), row.end());
    draft.dependencies[index(gather)].push_back(forward);
  }
  check_finds(draft, "V709", "parameters updated");
}

TEST_CASE("V508: a gather that brings old weights over updated ones") {
  Draft draft{composed("1f1b", {.data = 2}, StateSharding::optimizer, false)};
  const TaskId gather = early_gather(draft);
  const auto updates =
      draft.select([&](TaskId, const Task& task) { return task.op == Op::update && task.stage == draft.task(gather).stage; });
  REQUIRE(updates.size() == 2);
  // It waits for one of the two updates only, and comes before the other.
  auto& row = draft.dependencies[index(gather)];
  row.erase(std::remove(row.begin(), row.end(), updates[1]), row.end());
  draft.dependencies[index(updates[1])].push_back(gather);
  check_finds(draft, "V709", "parameters updated");
}

}  // namespace renewed_weights_test
