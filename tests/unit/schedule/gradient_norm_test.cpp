// Tests of schedule/gradient_norm.hpp: what comes before the sum and what after it.
// Not: the norm's value (unit/execute/composed_test.cpp, mpi/tensor_test.cpp).
#include "tawpipe/schedule/gradient_norm.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/hand_built.hpp"

namespace gradient_norm_test {

using namespace tawpipe;

/// The tasks' operations in order, the sum as "norm".
std::string order(const Schedule& schedule) {
  std::string text;
  for (const Task& task : schedule.tasks()) {
    text += text.empty() ? "" : " ";
    text += is_gradient_norm(task)          ? "norm"
            : task.op == Op::update         ? "update"
            : task.op == Op::all_gather     ? "gather"
            : task.op == Op::reduce_scatter ? "scatter"
            : task.op == Op::backward       ? "backward"
                                            : "other";
  }
  return text;
}

struct Replicas {
  ScheduleBuilder builder = support::two_lanes(2);
  GroupId both = builder.group({Rank{0}, Rank{1}});
  BufferId weights[2];
  BufferId gradients[2];

  Replicas() {
    for (int r = 0; r < 2; ++r) {
      weights[r] = builder.persistent(r, Content{ContentKind::weights}, Bytes{8});
      gradients[r] = builder.persistent(r, Content{ContentKind::gradients}, Bytes{8});
    }
    for (int r = 0; r < 2; ++r)
      builder.add({.op = Op::backward, .rank = Rank{r}, .stage = StageId{0}, .microbatch = 0},
                  {{weights[r], Access::read}, {gradients[r], Access::accumulate}});
  }
  void collective(Op op, Payload payload, const BufferId (&of)[2]) {
    builder.add({.op = op, .payload = payload, .lane = LaneId{1}, .rank = Rank{0}, .group = both, .bytes = Bytes{8}},
                {{of[0], Access::read_write}, {of[1], Access::read_write}});
  }
  void update() {
    for (int r = 0; r < 2; ++r)
      builder.add({.op = Op::update, .rank = Rank{r}, .bytes = Bytes{8}},
                  {{gradients[r], Access::read}, {weights[r], Access::read_write}});
  }
};

TEST_CASE("of several gathers of new weights into one buffer each follows the updates") {
  Replicas replicas;
  replicas.collective(Op::reduce_scatter, Payload::gradients, replicas.gradients);
  replicas.update();
  // The second waits for the first by the order of their lane alone, and names no dependency.
  replicas.collective(Op::all_gather, Payload::weights, replicas.weights);
  replicas.collective(Op::all_gather, Payload::weights, replicas.weights);
  const Schedule plain = replicas.builder.build();
  REQUIRE(plain.dependencies(TaskId{6}).empty());
  CHECK(order(with_gradient_norm(plain)) == "backward backward scatter norm update update gather gather");
}

TEST_CASE("what overwrites a gradient that an update has read follows that update") {
  Replicas replicas;
  replicas.update();
  for (int r = 0; r < 2; ++r)
    replicas.builder.add({.op = Op::backward, .rank = Rank{r}, .stage = StageId{0}, .microbatch = 0},
                         {{replicas.gradients[r], Access::write}});
  CHECK(order(with_gradient_norm(replicas.builder.build())) == "backward backward norm update update backward backward");
}

}  // namespace gradient_norm_test
