#include "tawpipe/execute/cuda/lane_progress.hpp"

#include <doctest/doctest.h>

#include <set>

#include "support/two_ranks.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/schedules/tawpipe.hpp"

using namespace tawpipe;
using cuda::LaneProgress;

namespace {

constexpr std::int64_t second = 1'000'000'000;

/// A device of which only the ends of tasks can be seen, and which can stop.
struct Reached {
  std::set<TaskId> reached;
  bool operator()(TaskId task) const { return reached.count(task) != 0; }
};

}  // namespace

TEST_CASE("a lane that waits for another lane is not at fault; the one that stands is named with its rank") {
  // A communication has half as long again as a computation.
  const test::TwoRanks two;  // rank 1: F1 (2) waits for the hop (1), which rank 0 must send
  const Program program = Lowering{two.schedule}.lower(Rank{1});
  LaneProgress progress{two.schedule, program, Rank{1}, nullptr};
  Reached ends;
  progress.begin(5);
  progress.look(0, ends);
  progress.look(7 * second + 500'000'000, ends);
  CHECK_THROWS_WITH_AS(
      progress.look(7 * second + 600'000'000, ends),
      "rank 1 has stalled: pass of activations, stage 1, microbatch 0, rank 0 -> 1 (task 1) on lane receive_previous for 7.6 s",
      DeviceError);
}

TEST_CASE("time counts from where a task can begin, and anew for each task and iteration") {
  const test::TwoRanks two;
  const Program program = Lowering{two.schedule}.lower(Rank{1});
  LaneProgress progress{two.schedule, program, Rank{1}, nullptr};
  Reached ends;
  progress.begin(5);
  progress.look(0, ends);
  ends.reached.insert(TaskId{1});  // the hop
  progress.look(4 * second, ends);
  progress.look(9 * second, ends);  // F1 for 5 s
  ends.reached.insert(TaskId{2});
  progress.look(20 * second, ends);  // not looked at in between, but it has ended
  ends.reached.insert({TaskId{3}, TaskId{4}, TaskId{6}, TaskId{7}});
  progress.look(24 * second, ends);
  progress.look(100 * second, ends);  // all have ended
  ends.reached.clear();
  progress.begin(5);
  progress.look(100 * second, ends);
  CHECK_THROWS_AS(progress.look(108 * second, ends), DeviceError);  // a communication
}

TEST_CASE("no limit, no stall") {
  const test::TwoRanks two;
  const Program program = Lowering{two.schedule}.lower(Rank{0});
  LaneProgress progress{two.schedule, program, Rank{0}, nullptr};
  progress.begin(0);
  progress.look(0, Reached{});
  progress.look(1'000'000 * second, Reached{});
}

TEST_CASE("a collective is named with the ranks of its communicator") {
  const Workload work{models::named("llama-4x128"), {.sequence = 64, .microbatch_size = 1, .global_batch = 8}, Recompute::none};
  const Schedule schedule = schedules::tawpipe(work, DeviceGroups{{2, 2}});
  TaskId collective = none<TaskId>;
  for (std::size_t t = 0; t < schedule.tasks().size() && collective == none<TaskId>; ++t) {
    if (is_collective(schedule.tasks()[t].op)) collective = id<TaskId>(t);
  }
  REQUIRE(collective != none<TaskId>);
  const std::string words =
      cuda::describe_on_lane(schedule, schedule.lane_on(collective, schedule.task(collective).rank), collective);
  CAPTURE(words);
  CHECK(words.find("(communicator of ranks ") != std::string::npos);
}
