// Tests of schedules/pipeline.hpp, gpipe.hpp and one_f_one_b.hpp: closed forms under fixed times,
// transfers, errors.
// Not: what every schedule must do (properties/).
#include "tawpipe/schedules/pipeline.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "support/clusters.hpp"
#include "support/unit_computations.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedules/gpipe.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace tawpipe::literals;
using support::count;
using tawpipe::FixedCost;
using tawpipe::Op;
using tawpipe::Payload;
using tawpipe::Schedule;
using tawpipe::Workload;
using tawpipe::schedules::Action;
using tawpipe::schedules::gpipe;
using tawpipe::schedules::one_f_one_b;
using tawpipe::schedules::pipeline;
using tawpipe::schedules::PipelineProgram;

namespace {

/// Times in which a hop is short against a computation, as the closed forms ask.
const FixedCost costs_with_short_hops[] = {{.forward = 30_s, .backward_input = 40_s, .backward_weight = 20_s, .transfer = 1_s},
                                           {.forward = 10_s, .backward_input = 10_s, .backward_weight = 10_s, .transfer = 0_s},
                                           {.forward = 50_s, .backward_input = 30_s, .backward_weight = 0_s, .transfer = 2_s}};

tawpipe::Duration whole(const FixedCost& cost) { return cost.forward + cost.backward_input + cost.backward_weight; }

/// The most forwards a rank has done whose backward it has not, over its program.
int max_kept(const Schedule& schedule, int rank) {
  int kept = 0;
  int most = 0;
  for (const auto task : schedule.program(tawpipe::Rank{rank}, 0)) {
    if (schedule.task(task).op == Op::forward) most = std::max(most, ++kept);
    if (schedule.task(task).op == Op::backward) --kept;
  }
  return most;
}

}  // namespace

TEST_CASE("GPipe takes (m + p-1)(F+B) + 2(p-1)c") {
  for (int p = 1; p <= 16; ++p) {
    const auto cluster = support::cluster(p);
    for (int m = 1; m <= 64; m += m < 16 ? 1 : 8) {
      const FixedCost& cost = costs_with_short_hops[m % 3];
      CAPTURE(p);
      CAPTURE(m);
      const auto expected = whole(cost) * (m + p - 1) + cost.transfer * (2 * (p - 1));
      CHECK(simulate(gpipe(Workload::abstract(p, m), p), cluster, cost).makespan() == expected);
    }
  }
}

TEST_CASE("1F1B takes (m + p-1)(F+B) + c[2(p-1)m/p + 2(p-2)] where p divides m") {
  for (int p = 2; p <= 16; ++p) {
    const auto cluster = support::cluster(p);
    for (int m = p; m <= 64; m += p) {
      const Schedule schedule = one_f_one_b(Workload::abstract(p, m), p);
      for (const FixedCost& cost : costs_with_short_hops) {
        CAPTURE(p);
        CAPTURE(m);
        const auto expected = whole(cost) * (m + p - 1) + cost.transfer * (2 * (p - 1) * (m / p) + 2 * (p - 2));
        CHECK(simulate(schedule, cluster, cost).makespan() == expected);
      }
    }
  }
}

TEST_CASE("1F1B on one rank is plain training") {
  const FixedCost& cost = costs_with_short_hops[0];
  CHECK(simulate(one_f_one_b(Workload::abstract(1, 7), 1), support::cluster(1), cost).makespan() == whole(cost) * 7);
}

TEST_CASE("without communication cost 1F1B takes as long as GPipe for any number of microbatches") {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 20; ++m) {
      CAPTURE(p);
      CAPTURE(m);
      const auto made =
          simulate(one_f_one_b(Workload::abstract(p, m), p), support::cluster(p), costs_with_short_hops[1]).makespan();
      CHECK(made == 30_s * (m + p - 1));
    }
  }
}

TEST_CASE("GPipe keeps m activations a rank, 1F1B p - r on rank r") {
  const Workload work = Workload::abstract(5, 12);
  for (int r = 0; r < 5; ++r) {
    CHECK(max_kept(gpipe(work, 5), r) == 12);
    CHECK(max_kept(one_f_one_b(work, 5), r) == 5 - r);
  }
  CHECK(max_kept(one_f_one_b(Workload::abstract(5, 2), 5), 0) == 2);  // no more than there are
}

TEST_CASE("transfers that hold the compute lane never make a pipeline faster") {
  for (int p = 1; p <= 8; ++p) {
    for (const int m : {1, 2, 3, p, 2 * p, 2 * p + 1}) {
      CAPTURE(p);
      CAPTURE(m);
      const Workload work = Workload::abstract(p, m);
      const auto cluster = support::cluster(p);
      CHECK(simulate(gpipe(work, p, {.overlap = false}), cluster, costs_with_short_hops[0]).makespan() >=
            simulate(gpipe(work, p), cluster, costs_with_short_hops[0]).makespan());
      CHECK(simulate(one_f_one_b(work, p, {.overlap = false}), cluster, costs_with_short_hops[0]).makespan() >=
            simulate(one_f_one_b(work, p), cluster, costs_with_short_hops[0]).makespan());
    }
  }
}

TEST_CASE("each microbatch crosses each border once each way") {
  const Schedule free = one_f_one_b(Workload::abstract(4, 8), 4);
  CHECK(count(free, Op::pass) == 2 * 3 * 8);
  // A send and a receive that stand together on both ends are one exchange: 2 messages.
  const Schedule holding = one_f_one_b(Workload::abstract(4, 8), 4, {.overlap = false});
  CHECK(count(holding, Op::pass) + 2 * count(holding, Op::exchange) == 2 * 3 * 8);
  CHECK(count(holding, Op::exchange) > 0);
}

TEST_CASE("each rank has the workspace of its own stages: only the last one's is of logits") {
  const tawpipe::Transformer model{
      .name = "m", .layers = 4, .hidden = 8, .heads = 2, .kv_heads = 2, .intermediate = 16, .vocab = 1000, .tied = false};
  const Workload work{model, {.sequence = 16, .microbatch_size = 1, .global_batch = 4}};
  const auto workspaces = [](const Schedule& schedule) {
    std::vector<tawpipe::Bytes> found(static_cast<std::size_t>(schedule.ranks()));
    for (const tawpipe::Buffer& buffer : schedule.buffers()) {
      if (buffer.content.kind() == tawpipe::ContentKind::workspace) found[tawpipe::index(buffer.rank)] += buffer.bytes;
    }
    return found;
  };
  const Schedule whole = one_f_one_b(work, 4);
  for (std::size_t rank = 0; rank < 4; ++rank) CHECK(workspaces(whole)[rank] == whole.stages()[rank].workspace());
  CHECK(workspaces(whole)[0] < workspaces(whole)[3]);
  // Tensor-parallel ranks have their part of it.
  const Schedule shared = tawpipe::compose(one_f_one_b(work, 2), work, tawpipe::Mesh{.tensor = 2}.over(4));
  for (const tawpipe::Rank rank : {tawpipe::Rank{0}, tawpipe::Rank{2}}) {
    const auto stage = tawpipe::index(rank) / 2;
    CHECK(workspaces(shared)[tawpipe::index(rank)] == shared.stages()[stage].workspace());
  }
}

TEST_CASE("two stages on one rank hand over without a transfer") {
  // rank 0 has stages 0 and 1, rank 1 stage 2
  const PipelineProgram program{
      .rank_of_stage = {0, 0, 1},
      .actions = {{{Op::forward, 0, 0}, {Op::forward, 1, 0}, {Op::backward, 1, 0}, {Op::backward, 0, 0}},
                  {{Op::forward, 2, 0}, {Op::backward, 2, 0}}}};
  const Schedule schedule = pipeline("folded", Workload::abstract(2, 1), program, {});
  CHECK(count(schedule, Op::pass) == 2);
  // 2 devices' shares in 3 stages: 2/3 of 30 s and of 60 s each; six computations one after
  // another, two hops of 1 s
  CHECK(simulate(schedule, support::cluster(2), costs_with_short_hops[0]).makespan() == 20_s * 3 + 40_s * 3 + 2_s);
}

TEST_CASE("a backward in two halves sends after the first and adds its gradient in the second") {
  const PipelineProgram program{.rank_of_stage = {0, 1},
                                .actions = {{{Op::forward, 0, 0}, {Op::backward_input, 0, 0}, {Op::backward_weight, 0, 0}},
                                            {{Op::forward, 1, 0}, {Op::backward_input, 1, 0}, {Op::backward_weight, 1, 0}}}};
  const Schedule schedule = pipeline("split", Workload::abstract(2, 1), program, {});
  // 30, hop, 30, 40, hop, 40, 20: rank 1's 20 s overlap the hop and rank 0's 40 s
  CHECK(simulate(schedule, support::cluster(2), costs_with_short_hops[0]).makespan() == 162_s);
}

TEST_CASE("a tied embedding on two ranks is summed over both, an untied one is not") {
  const Schedule tied = gpipe(support::transformer(4, 4, true), 2);
  REQUIRE(count(tied, Op::all_reduce) == 1);
  const auto sum = std::ranges::find_if(tied.tasks(), [](const auto& task) { return task.op == Op::all_reduce; });
  CHECK(sum->payload == Payload::edge_gradients);
  CHECK(sum->bytes == tawpipe::Bytes{12 * 8 * 2});  // vocabulary x hidden, 2 bytes each
  CHECK(count(gpipe(support::transformer(4, 4, false), 2), Op::all_reduce) == 0);
  CHECK(count(gpipe(support::transformer(4, 4, true), 1), Op::all_reduce) == 0);
}

TEST_CASE("a program whose order cannot be run names the rank and computation that wait") {
  const PipelineProgram program{
      .rank_of_stage = {0, 1},
      .actions = {{{Op::backward, 0, 0}, {Op::forward, 0, 0}}, {{Op::forward, 1, 0}, {Op::backward, 1, 0}}}};
  CHECK_THROWS_WITH_AS(pipeline("wrong", Workload::abstract(2, 1), program, {}),
                       "the pipeline's program cannot go on: rank 0 waits at backward of stage 0, microbatch 0, whose input no "
                       "rank produces in the order given",
                       tawpipe::ScheduleError);
}

TEST_CASE("a backward of the last stage before its forward cannot be run either") {
  const PipelineProgram program{
      .rank_of_stage = {0, 1},
      .actions = {{{Op::forward, 0, 0}, {Op::backward, 0, 0}}, {{Op::backward, 1, 0}, {Op::forward, 1, 0}}}};
  for (const bool overlap : {true, false}) {
    CHECK_THROWS_WITH_AS(pipeline("wrong", Workload::abstract(2, 1), program, {.overlap = overlap}),
                         "the pipeline's program cannot go on: rank 1 waits at backward of stage 1, microbatch 0, whose input "
                         "no rank produces in the order given",
                         tawpipe::ScheduleError);
  }
}

TEST_CASE("a block of two without overlap is its two computations, with the transfers between them") {
  // 1F1B of two ranks and three microbatches; rank 0's second forward and first backward are one
  // block
  PipelineProgram program{.rank_of_stage = {0, 1},
                          .actions = {{{Op::forward, 0, 0},
                                       {Op::forward, 0, 1, true},
                                       {Op::backward, 0, 0},
                                       {Op::forward, 0, 2},
                                       {Op::backward, 0, 1},
                                       {Op::backward, 0, 2}},
                                      {{Op::forward, 1, 0},
                                       {Op::backward, 1, 0},
                                       {Op::forward, 1, 1},
                                       {Op::backward, 1, 1},
                                       {Op::forward, 1, 2},
                                       {Op::backward, 1, 2}}}};
  const Schedule blocks = pipeline("blocks", Workload::abstract(2, 3), program, {.overlap = false});
  program.actions[0][1].joined = false;
  const Schedule single = pipeline("blocks", Workload::abstract(2, 3), program, {.overlap = false});
  REQUIRE(blocks.tasks().size() == single.tasks().size());
  for (std::size_t t = 0; t < blocks.tasks().size(); ++t) {
    CHECK(blocks.tasks()[t].op == single.tasks()[t].op);
    CHECK(blocks.tasks()[t].rank == single.tasks()[t].rank);
    CHECK(blocks.tasks()[t].stage == single.tasks()[t].stage);
    CHECK(blocks.tasks()[t].microbatch == single.tasks()[t].microbatch);
  }
}
