// Tests of execute/dataflow.hpp: the parts of a model of any kind are found in buffers, and what
// cannot be found is named as its author named it.
// Not: messages (message_test.cpp) nor numbers (host_executor_test.cpp).
#include "tawpipe/execute/dataflow.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "support/draft.hpp"
#include "tawpipe/execute/detail/dataflow_builder.hpp"
#include "tawpipe/schedules/gpipe.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

/// Two layers on two ranks; the last edge has two blocks.
Schedule mixers(bool tied = false) {
  const LayerStack model{
      .name = "mixers",
      .layers = 2,
      .tied = tied,
      .first_edge = {.parameters = 6},
      .layer = {.parameters = 12, .saved = 8_B, .boundary = 8_B},
      .last_edge = {.parameters = 5, .saved = 8_B},
      .names = {.first_edge = {{"patches", 6}}, .layer = "mixer", .last_edge = {{"scale", 2}, {"classes", 3}}}};
  return schedules::gpipe(Workload{model, Batch{.sequence = 1, .microbatch_size = 1, .global_batch = 2}}, 2);
}

/// Why the schedule cannot be executed if the forward or backward of stage 1 and microbatch 0 has no
/// such use.
std::string without(Op op, ContentKind kind) {
  test::Draft draft{mixers()};
  const TaskId task =
      draft.select([&](TaskId, const Task& one) { return one.op == op && one.stage == StageId{1} && one.microbatch == 0; })[0];
  std::erase_if(draft.uses[index(task)],
                [&](const Use& use) { return draft.parts.buffers[index(use.buffer)].content.kind() == kind; });
  try {
    resolve_dataflow(draft.make());
  } catch (const ScheduleError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a stage finds its layers and its edges, and where parameters are tied also the first edge") {
  for (const bool tied : {false, true}) {
    const Schedule schedule = mixers(tied);
    const Dataflow flow = resolve_dataflow(schedule);
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      const Task& task = schedule.tasks()[t];
      if (task.op != Op::forward) continue;
      const auto& weights = flow.compute(id<TaskId>(t)).weights;
      const bool last = task.stage == StageId{1};
      CHECK(weights[static_cast<std::size_t>(StagePart::layers)].offset == (last ? 0 : 6));
      CHECK(static_cast<bool>(weights[static_cast<std::size_t>(StagePart::first_edge)]) == (!last || tied));
      CHECK(static_cast<bool>(weights[static_cast<std::size_t>(StagePart::last_edge)]) == last);
      if (last) CHECK(weights[static_cast<std::size_t>(StagePart::last_edge)].offset == 12);
      if (last && tied) CHECK(weights[static_cast<std::size_t>(StagePart::first_edge)].offset == 17);
    }
  }
}

TEST_CASE("what a computation lacks has the names of the model's author") {
  CHECK(without(Op::forward, ContentKind::weights) ==
        "forward of stage 1, microbatch 0, on rank 1 (task 3) cannot be executed: no buffer that it reads holds all of its "
        "mixer.1");
  CHECK(without(Op::backward, ContentKind::gradients).ends_with("no buffer takes the gradient of its mixer.1"));
}
