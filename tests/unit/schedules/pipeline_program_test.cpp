// Tests of schedules/pipeline_program.hpp, and of what pipeline.hpp makes of copies, blocks and
// released activations.
// Not: any one pipeline's order.
#include "tawpipe/schedules/pipeline_program.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "support/pipelines.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/schedules/pipeline.hpp"

using namespace tawpipe::literals;
using tawpipe::Op;
using tawpipe::Payload;
using tawpipe::Schedule;
using tawpipe::Workload;
using tawpipe::schedules::Action;
using tawpipe::schedules::keep_microbatches;
using tawpipe::schedules::peak_saved;
using tawpipe::schedules::pipeline;
using tawpipe::schedules::PipelineProgram;

namespace {

constexpr tawpipe::FixedCost hops{30_s, 40_s, 20_s, 1_s};

/// Two ranks, two copies of two stages; microbatch 0 goes down, 1 up.
PipelineProgram crossing() {
  PipelineProgram program;
  program.rank_of_stage = {0, 1};
  program.second_rank_of_stage = {1, 0};
  program.actions = {{{Op::forward, 0, 0}, {Op::forward, 1, 1}, {Op::backward, 1, 1}, {Op::backward, 0, 0}},
                     {{Op::forward, 0, 1}, {Op::forward, 1, 0}, {Op::backward, 1, 0}, {Op::backward, 0, 1}}};
  return program;
}

void expect_incomplete(const PipelineProgram& program, const char* message) {
  CHECK_THROWS_WITH_AS(pipeline("wrong", Workload::abstract(1, 1), program, {}), message, tawpipe::ScheduleError);
}

}  // namespace

TEST_CASE("taking microbatches out keeps the order of the others and parts the blocks it breaks") {
  PipelineProgram program;
  program.rank_of_stage = {0, 0};
  program.actions = {{{Op::forward, 0, 1}, {Op::forward, 0, 0, true}, {Op::backward, 1, 1}, {Op::backward, 0, 0}}};
  keep_microbatches(program, 1);
  CHECK(program.actions[0] == std::vector<Action>{{Op::forward, 0, 0}, {Op::backward, 0, 0}});
}

TEST_CASE("an activation counts from its forward to the end of its backward, or of its backward_weight") {
  PipelineProgram program;
  program.rank_of_stage = {0, 1};
  program.actions = {{{Op::forward, 0, 0}, {Op::backward, 0, 0}, {Op::forward, 0, 1}, {Op::backward, 0, 1}},
                     {{Op::forward, 1, 0},
                      {Op::backward_input, 1, 0},
                      {Op::forward, 1, 1},
                      {Op::backward_weight, 1, 0},
                      {Op::backward_input, 1, 1},
                      {Op::backward_weight, 1, 1}}};
  CHECK(peak_saved(program) == std::vector<int>{1, 2});
}

TEST_CASE("microbatches that meet the same stage on two ranks leave gradients that are summed before the updates") {
  const Schedule schedule = pipeline("crossing", Workload::abstract(2, 2), crossing(), {});
  const auto count = [&](Op op, Payload payload) {
    return std::ranges::count_if(schedule.tasks(), [&](const auto& task) { return task.op == op && task.payload == payload; });
  };
  CHECK(count(Op::all_reduce, Payload::gradients) == 2);  // one a stage
  CHECK(count(Op::update, Payload::nothing) == 4);        // two copies of two stages
  CHECK(count(Op::pass, Payload::activations) == 2);
  // 30, hop, 30, 60, hop, 60: both microbatches at once, then two sums of 1 s one after another
  CHECK(support::run_pipeline(schedule, hops).makespan == 184_s);
}

TEST_CASE("a joined block starts when both inputs are there and hands both results on at its end") {
  const auto program = [](bool joined) {
    PipelineProgram two;
    two.rank_of_stage = {0, 1};
    two.actions = {{{Op::forward, 0, 0}, {Op::forward, 0, 1, joined}, {Op::backward, 0, 0}, {Op::backward, 0, 1}},
                   {{Op::forward, 1, 0}, {Op::backward, 1, 0}, {Op::forward, 1, 1}, {Op::backward, 1, 1}}};
    return two;
  };
  const auto makespan = [&](bool joined) {
    return support::run_pipeline(pipeline("block", Workload::abstract(2, 2), program(joined), {}), hops).makespan;
  };
  // F0 30, hop, F0 30, B0 60: 121. Apart: F1 is there already, so F1 30, B1 60, hop, B1 60.
  CHECK(makespan(false) == 272_s);
  // Joined: the block waits for B0's hop, 122, takes 30 + 60, hands F1 on at 212; hop, F1 30, B1
  // 60, hop, B1 60.
  CHECK(makespan(true) == 364_s);
}

TEST_CASE("what backward_weight does not need is released at the end of backward_input") {
  PipelineProgram program;
  program.rank_of_stage = {0};
  program.actions = {{{Op::forward, 0, 0},
                      {Op::backward_input, 0, 0},
                      {Op::forward, 0, 1},
                      {Op::backward_weight, 0, 0},
                      {Op::backward_input, 0, 1},
                      {Op::backward_weight, 0, 1}}};
  const auto peak = [&](tawpipe::Share kept) {
    program.kept = kept;
    const Schedule schedule = pipeline("released", Workload::abstract(1, 2), program, {});
    const auto timeline = tawpipe::simulate(schedule, support::cluster(1), hops);
    return tawpipe::peak_memory(schedule, timeline)[0].by_kind[static_cast<std::size_t>(tawpipe::BufferKind::activations)];
  };
  CHECK(peak({1, 1}) == 2_MB);  // both microbatches' 1 MB
  CHECK(peak({2, 5}) == tawpipe::Bytes{1'400'000});
  CHECK(peak({0, 1}) == 1_MB);
}

TEST_CASE("a program that is not complete is refused, naming what is wrong") {
  PipelineProgram program;
  program.rank_of_stage = {0};
  program.actions = {{{Op::forward, 0, 0}}};
  expect_incomplete(program,
                    "the pipeline's program must name stage 0, microbatch 0 once forward and once backward, but has 1 forward, 0 "
                    "backward, 0 backward_input and 0 backward_weight");
  program.actions = {{{Op::forward, 0, 0}, {Op::backward_input, 0, 0}}};
  expect_incomplete(program,
                    "the pipeline's program must name stage 0, microbatch 0 once forward and once backward, but has 1 forward, 0 "
                    "backward, 1 backward_input and 0 backward_weight");
  program.actions = {{{Op::forward, 1, 0}}};
  expect_incomplete(program,
                    "the pipeline's program names forward of stage 1, microbatch 0 on rank 0, a stage that does not exist");
  program.actions = {{{Op::forward, 0, 1}}};
  expect_incomplete(program,
                    "the pipeline's program names forward of stage 0, microbatch 1 on rank 0, a microbatch that does not exist");
  program.actions = {{{Op::forward, 0, 0}}, {{Op::backward, 0, 0}}};
  expect_incomplete(program,
                    "the pipeline's program names backward of stage 0, microbatch 0 on rank 1, which does not hold the stage");
  program.second_rank_of_stage = {1};
  expect_incomplete(program,
                    "the pipeline's program names backward of stage 0, microbatch 0 on rank 1, which passes the stage on another "
                    "rank too");
}
