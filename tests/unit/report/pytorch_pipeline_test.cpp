// PyTorch's schedules as programs and schedules of ours, and back; the published artifacts if
// available.
// Not: the grammar of the cells (pytorch_csv_test.cpp).
#include "tawpipe/report/pytorch_pipeline.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

std::string program_error(const std::string& text) {
  try {
    pipeline_program(parse_pytorch_csv(text, "s.csv"), "s.csv");
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

Schedule built(const std::string& name, int ranks, std::int64_t microbatches, const ScheduleOptions& options = {}) {
  return build_schedule(name, {Workload::abstract(ranks, microbatches), DeviceGroups::even(ranks, 1), options});
}

Duration makespan(const Schedule& schedule) {
  const Cluster cluster = cluster_from_dimensions("1x" + std::to_string(schedule.ranks()));
  const FixedCost cost{.forward = 10_us, .backward_input = 12_us, .backward_weight = 8_us, .transfer = 1_us};
  const Timeline timeline = simulate(schedule, cluster, cost);
  TimePoint last;
  for (const TimePoint end : timeline.end) last = std::max(last, end);
  return last.since_start();
}

bool is_valid(const Schedule& schedule) {
  return validate(schedule, cluster_from_dimensions("1x" + std::to_string(schedule.ranks()))).ok();
}

/// The text of one of the artifacts, "" where there are none.
std::string artifact(const std::string& name) {
  std::ifstream file{TAWPIPE_SHARED "/reference/pytorch_pipeline_csv/" + name};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// Two ranks, a stage each, two microbatches: as short as can be with every kind of message.
const std::string with_messages =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1I1,1SEND_B1,1W1\n";

}  // namespace

TEST_CASE("rows give the rank of each stage and what each rank computes") {
  const auto program = pipeline_program(parse_pytorch_csv("1F0,3F0,,3B0,1B0\n0F0,2F0,2I0,2W0,0B0\n"));
  CHECK(program.rank_of_stage == std::vector<int>{1, 0, 1, 0});
  using schedules::Action;
  REQUIRE(program.actions.size() == 2);
  CHECK(program.actions[0] == std::vector<Action>{{.op = Op::forward, .stage = 1, .microbatch = 0},
                                                  {.op = Op::forward, .stage = 3, .microbatch = 0},
                                                  {.op = Op::backward, .stage = 3, .microbatch = 0},
                                                  {.op = Op::backward, .stage = 1, .microbatch = 0}});
  CHECK(program.actions[1][2].op == Op::backward_input);
  CHECK(program.actions[1][3].op == Op::backward_weight);
}

TEST_CASE("a B with a W is the backward of the inputs, as older files say it") {
  for (const std::string text : {"0F0,0F1,0B0,0B1,0W1\n", "F0_s0,F1_s0,B0_s0,B1_s0,W1_s0\n"}) {
    const auto program = pipeline_program(parse_pytorch_csv(text));
    CHECK(program.actions[0][2].op == Op::backward);
    CHECK(program.actions[0][3].op == Op::backward_input);
    CHECK(program.actions[0][4].op == Op::backward_weight);
  }
}

TEST_CASE("computations must be complete and in order") {
  CHECK(program_error("0F0,0B0\n0F1,0B1\n") ==
        "s.csv: line 2, cell 1: '0F1': stage 0 is computed in line 1 too; a stage has one rank");
  CHECK(program_error("0F0,0B0\n,\n") == "s.csv: line 2 computes nothing; each rank needs a stage");
  CHECK(program_error("0F0,0B0\n2F0,2B0\n") == "s.csv: no line computes stage 1, though there is a stage 2");
  CHECK(program_error("0F0,0F1,0B0\n") == "s.csv: line 1 lacks '0B1'; there are 1 stages and 2 microbatches");
  CHECK(program_error("0F1,0B1\n") == "s.csv: line 1 lacks '0F0'; there are 1 stages and 2 microbatches");
  CHECK(program_error("0F0,0I0\n") == "s.csv: line 1 lacks '0W0'; there are 1 stages and 1 microbatches");
  CHECK(program_error("0B0,0F0\n") == "s.csv: line 1, cell 1: '0B0': its forward does not stand before it");
  CHECK(program_error("0F0,0W0,0I0\n") == "s.csv: line 1, cell 2: '0W0': no backward of the inputs stands before it");
  CHECK(program_error("0F0,0F0,0B0\n") == "s.csv: line 1, cell 2: '0F0': it stands twice");
  CHECK(program_error("0F0,0B0,0B0\n") == "s.csv: line 1, cell 3: '0B0': it stands twice");
  CHECK(program_error("0F0,0I0,0W0,0W0\n") == "s.csv: line 1, cell 4: '0W0': it stands twice");
  CHECK(program_error("F0_s0,W0_s0\n") == "s.csv: line 1, cell 2: 'W0_s0': no backward of the inputs stands before it");
  CHECK(program_error("0F2147483646,0B2147483646\n").starts_with("s.csv: line 1 lacks '0F0'"));
}

TEST_CASE("messages must be those that the computations need") {
  CHECK(program_error(with_messages) == "no error");
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = with_messages;
    text.replace(text.find(from), from.size(), to);
    return program_error(text);
  };
  CHECK(with("0SEND_F1,", "") == "s.csv: line 1, cell 3: '0F1': line 1 lacks '0SEND_F1', which sends its output");
  CHECK(with("1RECV_F1,", "") == "s.csv: line 2, cell 5: '1F1': line 2 lacks '1RECV_F1', which brings what it needs");
  CHECK(with("1I1,1SEND_B1", "1SEND_B1,1I1") ==
        "s.csv: line 2, cell 8: '1I1': '1SEND_B1' stands before it, though it sends what this makes");
  CHECK(with("0RECV_B0,0B0", "0B0,0RECV_B0") ==
        "s.csv: line 1, cell 5: '0B0': '0RECV_B0' comes after it, although this needs it");
  CHECK(with("0SEND_F0", "0SEND_F0,0SEND_F0") == "s.csv: line 1, cell 3: '0SEND_F0': it stands twice");
  CHECK(with("0SEND_F0", "0SEND_F0,0SEND_F7") == "s.csv: line 1, cell 3: '0SEND_F7': there are only 2 microbatches");
  CHECK(with("0SEND_F0", "0SEND_F0,0SEND_B0") ==
        "s.csv: line 1, cell 3: '0SEND_B0': what it makes stays on this rank, so that nothing is sent");
  CHECK(with("1RECV_F0", "1RECV_F0,1RECV_B0") ==
        "s.csv: line 2, cell 2: '1RECV_B0': what it needs is made on this rank, or given");
  CHECK(with("0SEND_F0", "0SEND_F0,1SEND_F0") == "s.csv: line 1, cell 3: '1SEND_F0': stage 1 is computed in line 2");
  CHECK(with("0SEND_F0", "0SEND_F0,5SEND_F0") == "s.csv: line 1, cell 3: '5SEND_F0': there are only 2 stages");
  // Both forwards first, and their sends the other way round.
  CHECK(with("0F0,0SEND_F0,0F1,0SEND_F1", "0F0,0F1,0SEND_F1,0SEND_F0") ==
        "s.csv: line 2, cell 1: '1RECV_F0': line 1 sends '0SEND_F1' here instead; between two ranks, sends and receives stand in "
        "one order");
}

TEST_CASE("a sharded stage is computed only while it is gathered") {
  CHECK(program_error("0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0,0REDUCE_GRAD,0RESHARD\n") == "no error");
  CHECK(program_error("0F0,0UNSHARD,0B0\n") == "s.csv: line 1, cell 1: '0F0': the stage is not unsharded here");
  CHECK(program_error("0UNSHARD,0F0,0RESHARD,0B0\n") == "s.csv: line 1, cell 4: '0B0': the stage is not unsharded here");
  CHECK(program_error("0UNSHARD,0UNSHARD,0F0,0B0\n") == "s.csv: line 1, cell 2: '0UNSHARD': the stage is unsharded already");
  CHECK(program_error("0RESHARD,0F0,0B0\n") == "s.csv: line 1, cell 1: '0RESHARD': the stage is not unsharded here");
  CHECK(program_error("0F0,0REDUCE_GRAD,0B0\n") ==
        "s.csv: line 1, cell 3: '0B0': the stage's REDUCE_GRAD comes before it; it must come after the last backward");
  CHECK(program_error("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n") == "s.csv: line 1, cell 4: '0REDUCE_GRAD': it stands twice");
}

TEST_CASE("communication is added as PyTorch adds it, and fits") {
  // Rounds of one cell a rank: rank 0 F0, rank 1 F0 (whose receive has just arrived); F1 both; then
  // B from the last stage.
  const auto rows = parse_pytorch_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  const auto lowered = add_communication(rows);
  CHECK(write_pytorch_csv(lowered) ==
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n");
  CHECK(pipeline_program(lowered).actions == pipeline_program(rows).actions);
  CHECK_THROWS_WITH_AS(add_communication(lowered, "s.csv"), "s.csv: line 1, cell 2: the schedule has sends and receives already",
                       InputError);
}

TEST_CASE("ranks that wait for each other are found") {
  // Rank 0 wants the backward of microbatch 1 first, rank 1 that of microbatch 0, whose successor
  // needs rank 0's forward 1.
  const auto rows = parse_pytorch_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  CHECK_THROWS_WITH_AS(add_communication(rows, "s.csv"),
                       "s.csv: line 1, cell 2: '0B0' waits forever: the ranks' orders wait for each other", InputError);
  CHECK_THROWS_AS(pytorch_pipeline(rows), ScheduleError);
}

TEST_CASE("an imported schedule is simulated and validated as ours is") {
  const Schedule ours = built("1f1b", 4, 8);
  const Schedule imported = pytorch_pipeline(parse_pytorch_csv(write_pytorch_csv(pytorch_schedule(ours))));
  CHECK(imported.name() == "pytorch");
  CHECK(imported.ranks() == 4);
  CHECK(imported.tasks().size() == ours.tasks().size());
  CHECK(makespan(imported) == makespan(ours));
  CHECK(is_valid(imported));
}

TEST_CASE("a schedule of ours goes out and comes back the same, with communication and without") {
  for (const std::string name : {"gpipe", "1f1b"}) {
    for (const std::string overlap : {"on", "off"}) {
      for (const bool communication : {false, true}) {
        CAPTURE(name);
        CAPTURE(communication);
        const Schedule schedule = built(name, 4, 6, {{"overlap", overlap}});
        const std::string text = write_pytorch_csv(pytorch_schedule(schedule, {.communication = communication}));
        CHECK(write_pytorch_csv(parse_pytorch_csv(text)) == text);
        const auto program = pipeline_program(parse_pytorch_csv(text));
        CHECK(program.rank_of_stage == std::vector<int>{0, 1, 2, 3});
        CHECK(program.actions == pipeline_program(schedule).actions);
        CHECK(write_pytorch_csv(pytorch_schedule(program, {.communication = communication})) == text);
      }
    }
  }
}

TEST_CASE("options add and merge") {
  const auto program = pipeline_program(parse_pytorch_csv("0F0,1F0,1I0,1W0,0I0,0F1,0W0,1F1,1B1,0B1\n"));
  CHECK(write_pytorch_csv(pytorch_schedule(program, {.merge_backward = true})) == "0F0,1F0,1B0,0I0,0F1,0W0,1F1,1B1,0B1\n");
  CHECK(write_pytorch_csv(pytorch_schedule(program, {.reduce_gradients = true})) ==
        "0F0,1F0,1I0,1W0,0I0,0F1,0W0,1F1,1B1,1REDUCE_GRAD,0B1,0REDUCE_GRAD\n");
  const std::string older = write_pytorch_csv(pytorch_schedule(program, {.grammar = PytorchGrammar::op_first}));
  CHECK(older == "F0_s0,F0_s1,B0_s1,W0_s1,B0_s0,F1_s0,W0_s0,F1_s1,B1_s1,B1_s0\n");
  CHECK(pipeline_program(parse_pytorch_csv(older)).actions == program.actions);
}

TEST_CASE("each send and each sum of gradients gets one wait, where PyTorch 2.15 puts it") {
  const auto program = pipeline_program(parse_pytorch_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"));
  const PytorchOptions options{.communication = true, .reduce_gradients = true, .waits = true};
  const std::string text = write_pytorch_csv(pytorch_schedule(program, options));
  CHECK(text ==
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"
        "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1WAIT_SEND_B0,1WAIT_SEND_B1\n");
  const PytorchSchedule read = parse_pytorch_csv(text);
  CHECK(pipeline_program(read).actions == program.actions);
  CHECK(add_waits(read) == read);
}

TEST_CASE("waits that do not fit are refused") {
  const auto refusal = [](std::string_view text) {
    try {
      pipeline_program(parse_pytorch_csv(text), "s.csv");
    } catch (const InputError& error) {
      return std::string{error.what()};
    }
    return std::string{"no error"};
  };
  const std::string second = "\n1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0\n";
  CHECK(refusal("0F0,0WAIT_SEND_F0,0SEND_F0,0RECV_B0,0B0" + second) ==
        "s.csv: line 1, cell 2: '0WAIT_SEND_F0': the send that it waits for does not stand before it");
  CHECK(refusal("0F0,0SEND_F0,0WAIT_SEND_F0,0WAIT_SEND_F0,0RECV_B0,0B0" + second) ==
        "s.csv: line 1, cell 4: '0WAIT_SEND_F0': it stands twice");
  CHECK(refusal("0F0,0SEND_F0,0RECV_B0,0B0" + second) ==
        "s.csv: line 1, cell 2: '0SEND_F0': no WAIT_SEND stands after it, though other sends have one");
  CHECK(refusal("0F0,0B0,0WAIT_REDUCE_GRAD,0REDUCE_GRAD\n") ==
        "s.csv: line 1, cell 3: '0WAIT_REDUCE_GRAD': stage 0's REDUCE_GRAD must be the last one before it");
}

TEST_CASE("idle cells are turns of the lowering, and go") {
  CHECK(write_pytorch_csv(add_communication(parse_pytorch_csv(",0F0,,0B0,\n"))) == "0F0,0B0\n");
  CHECK(write_pytorch_csv(merge_backward(parse_pytorch_csv("0F0,0I0,,0W0\n"))) == "0F0,0B0\n");
}

TEST_CASE("what is not an activation pipeline is not exported") {
  const auto refusal = [](const std::string& name) {
    try {
      pytorch_schedule(built(name, 4, 8));
    } catch (const InputError& error) {
      return std::string{error.what()};
    }
    return std::string{"no error"};
  };
  CHECK(refusal("tawpipe").starts_with("schedule 'tawpipe' is not an activation pipeline: it moves "));
  CHECK(refusal("tawpipe").ends_with("; PyTorch's CSV holds pipelines, such as 1f1b and gpipe"));
  CHECK(refusal("weipipe").starts_with("schedule 'weipipe' is not an activation pipeline: it moves "));
  CHECK(
      refusal("fsdp") ==
      "schedule 'fsdp' is not an activation pipeline: it moves weights (all_gather); PyTorch's CSV holds pipelines, such as 1f1b "
      "and gpipe");
  const Schedule replicas = compose(built("1f1b", 2, 4), Workload::abstract(4, 8), Mesh{.data = 2}.over(4));
  CHECK_THROWS_WITH_AS(
      pytorch_schedule(replicas),
      "schedule '1f1b' has tensor 1 x context 1 x data 2 copies of 2 ranks, and PyTorch's CSV holds one; export it "
      "without tensor, context and data parallelism, for 2 devices and 4 microbatches",
      InputError);
}

TEST_CASE("the batch must have the file's microbatches") {
  const auto rows = parse_pytorch_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  const auto model = models::named("llama-8x1024");
  const auto batch = [](std::int64_t microbatches) {
    return Batch{.sequence = 512, .microbatch_size = 1, .global_batch = microbatches};
  };
  const Schedule schedule = pytorch_pipeline(rows, Workload{model, batch(2)});
  CHECK(schedule.stage(StageId{1}).layers == 4);
  CHECK(is_valid(schedule));
  CHECK_THROWS_WITH_AS(pytorch_pipeline(rows, Workload{model, batch(3)}, {}, "s.csv"),
                       "s.csv is a schedule of 2 microbatches, and the batch has 3; choose a batch of 2", InputError);
}

TEST_CASE("an overlapped pair is one block, and comes back as one where that shows") {
  const std::string text = "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n";
  const auto program = pipeline_program(parse_pytorch_csv(text));
  CHECK(program.actions[0][2] == schedules::Action{Op::forward, 0, 2, true});
  CHECK(program.actions[0][3] == schedules::Action{Op::backward, 0, 0, false});
  CHECK(write_pytorch_csv(pytorch_schedule(program)) == text);
  CHECK(write_pytorch_csv(pytorch_schedule(pytorch_pipeline(parse_pytorch_csv(text)))) == text);
  // Where transfers hold the compute lane, there are no blocks.
  const auto one_rank = parse_pytorch_csv("0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,1B1,0B0,0B1\n");
  CHECK(is_valid(pytorch_pipeline(one_rank, std::nullopt, {.overlap = false})));
  CHECK(write_pytorch_csv(pytorch_schedule(program, {.reduce_gradients = true})).starts_with("0F0,0F1,(0F2;0B0)OVERLAP_F_B"));
}

TEST_CASE("every pipeline with one copy of each stage goes out, and in again the same") {
  for (const std::string name : {"1f1b", "gpipe", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2", "zb-auto", "interleaved-zb",
                                 "zb-v", "v-half", "v-min", "dualpipe-v"}) {
    CAPTURE(name);
    const Schedule schedule = built(name, 4, 10);
    for (const bool communication : {false, true}) {
      const std::string text = write_pytorch_csv(pytorch_schedule(schedule, {.communication = communication}));
      const Schedule imported = pytorch_pipeline(parse_pytorch_csv(text));
      CHECK(is_valid(imported));
      CHECK(write_pytorch_csv(pytorch_schedule(imported, {.communication = communication})) == text);
      CHECK(makespan(imported) == makespan(schedule));
    }
  }
  for (const std::string name : {"dualpipe", "chimera"}) CHECK_THROWS_AS(pytorch_schedule(built(name, 4, 8)), InputError);
  CHECK_THROWS_WITH_AS(pytorch_schedule(schedules::dualpipe_program(4, 8)),
                       "pipeline has two copies of each stage; in PyTorch's CSV a stage has one rank", InputError);
}

TEST_CASE("PyTorch's own artifacts parse, re-export the same bytes, and run here") {
  const std::string compute = artifact("zb1p_2rank_2stagep_compute.csv");
  const std::string comms = artifact("zb1p_2rank_2stagep_comms.csv");
  const std::string dual = artifact("dualpipev_4rank_10mb.csv");
  if (compute.empty()) {
    MESSAGE("no artifacts here: skipped");
    return;
  }
  for (const std::string& text : {compute, comms, dual}) {
    const PytorchSchedule rows = parse_pytorch_csv(text);
    CHECK(write_pytorch_csv(rows) == text);
    const Schedule schedule = pytorch_pipeline(rows);
    CHECK(is_valid(schedule));
    CHECK(makespan(schedule) > Duration{});
  }
  // The second file is PyTorch's own lowering of the first.
  CHECK(write_pytorch_csv(add_communication(merge_backward(parse_pytorch_csv(compute)))) == comms);
  CHECK(pipeline_program(parse_pytorch_csv(dual)).rank_of_stage == std::vector<int>{0, 1, 2, 3, 3, 2, 1, 0});
  // Our DualPipeV is theirs.
  CHECK(write_pytorch_csv(pytorch_schedule(schedules::dualpipe_v_program(4, 10))) == dual);
  CHECK(write_pytorch_csv(pytorch_schedule(built("dualpipe-v", 4, 10))) == dual);
}
