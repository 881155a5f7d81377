// Tests of schedules/zero_bubble.hpp: closed forms of ZB-H1 and ZB-H2, PyTorch's interleaved order.
// Not: the published bubble rates (oracle/zero_bubble_test.cpp).
#include "tawpipe/schedules/zero_bubble.hpp"

#include <doctest/doctest.h>

#include <fstream>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/pipelines.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/model/transformer_work.hpp"

using namespace tawpipe::literals;
using tawpipe::FixedCost;
using tawpipe::Workload;
using namespace tawpipe::schedules;

namespace {

/// F, B and W in which backward_weight is the shortest, as in transformers; a hop is short.
const FixedCost costs[] = {{30_s, 30_s, 30_s, 0_s}, {31_s, 29_s, 20_s, 1_s}, {300_s, 310_s, 160_s, 7_s}};

}  // namespace

TEST_CASE("ZB-H1 takes mS + (p-1)(F+B-W) + 4(p-1)c for m >= 2p") {
  for (const FixedCost& cost : costs) {
    for (int p = 1; p <= 12; ++p) {
      for (const int m : {2 * p, 2 * p + 1, 5 * p}) {
        CAPTURE(p);
        CAPTURE(m);
        const auto idle = cost.forward + cost.backward_input - cost.backward_weight + cost.transfer * 4;
        const auto run = support::run_pipeline(zb_h1(Workload::abstract(p, m), p), cost);
        CHECK(run.makespan == support::whole(cost) * m + idle * (p - 1));
      }
    }
  }
}

TEST_CASE("no rank of ZB-H2 spans more than mS + (p-1)(F+B-2W) + 2(p-1)c, none less than mS, for m >= 2p") {
  for (const FixedCost& cost : costs) {
    for (int p = 1; p <= 12; ++p) {
      for (const int m : {2 * p, 2 * p + 1, 5 * p}) {
        CAPTURE(p);
        CAPTURE(m);
        const auto idle = cost.forward + cost.backward_input - cost.backward_weight * 2 + cost.transfer * 2;
        const auto run = support::run_pipeline(zb_h2(Workload::abstract(p, m), p), cost);
        CHECK(run.span == support::whole(cost) * m + idle * (p - 1));
        // an optimizer that waits for all pays the ranks' late starts too
        CHECK(run.makespan >= run.span + (cost.forward + cost.transfer) * (p - 1) - cost.transfer * 2 * p - idle * (p - 1));
      }
    }
  }
}

TEST_CASE("ZB-H1 keeps p activations on every rank, ZB-H2 2p-1") {
  for (int p = 1; p <= 9; ++p) {
    for (const int peak : peak_saved(interleaved_zero_bubble_program(p, 3 * p, 1))) CHECK(peak == p);
    for (const int peak : peak_saved(zb_h2_program(p, 3 * p))) CHECK(peak == 2 * p - 1);
  }
}

TEST_CASE("interleaved zero bubble keeps p microbatches' activations on every rank, v stages each") {
  for (int p = 1; p <= 6; ++p) {
    for (int v = 1; v <= 4; ++v) {
      for (const int peak : peak_saved(interleaved_zero_bubble_program(p, 3 * p, v))) CHECK(peak == p * v);
    }
  }
}

TEST_CASE("PyTorch orders interleaved zero bubble in the same way") {
  std::ifstream compute{TAWPIPE_SHARED "/reference/pytorch_pipeline_csv/zb1p_2rank_2stagep_compute.csv"};
  std::ifstream transfers{TAWPIPE_SHARED "/reference/pytorch_pipeline_csv/zb1p_2rank_2stagep_comms.csv"};
  if (!compute.is_open() || !transfers.is_open()) {
    MESSAGE("the reference orders are not here");
    return;
  }
  const auto orders = interleaved_zero_bubble_program(2, 8, 2).actions;
  CHECK(support::read_orders(compute) == orders);
  std::vector<std::vector<Action>> joined;
  for (const auto& order : orders) joined.push_back(support::merged(order));
  CHECK(support::read_orders(transfers) == joined);
}

TEST_CASE("PyTorch's first orders, by hand") {
  // warm-up of (v-1)p + p-1-r forwards, then forward and backward_input in turns, backward_weight r
  // later
  using tawpipe::Op;
  const auto orders = interleaved_zero_bubble_program(2, 2, 2).actions;
  constexpr Op f = Op::forward, i = Op::backward_input, w = Op::backward_weight;
  CHECK(orders[0] == std::vector<Action>{{f, 0, 0},
                                         {f, 0, 1},
                                         {f, 2, 0},
                                         {f, 2, 1},
                                         {i, 2, 0},
                                         {w, 2, 0},
                                         {i, 2, 1},
                                         {w, 2, 1},
                                         {i, 0, 0},
                                         {w, 0, 0},
                                         {i, 0, 1},
                                         {w, 0, 1}});
  CHECK(orders[1] == std::vector<Action>{{f, 1, 0},
                                         {f, 1, 1},
                                         {f, 3, 0},
                                         {i, 3, 0},
                                         {f, 3, 1},
                                         {i, 3, 1},
                                         {w, 3, 0},
                                         {i, 1, 0},
                                         {w, 3, 1},
                                         {i, 1, 1},
                                         {w, 1, 0},
                                         {w, 1, 1}});
}

TEST_CASE("recomputation raises no rank's peak memory where backwards are split") {
  const tawpipe::Transformer model = *support::transformer(8, 4).model().decoder;
  const tawpipe::Batch batch{.sequence = 64, .microbatch_size = 1, .global_batch = 16};
  const auto peaks = [&](const char* name, tawpipe::Recompute recompute) {
    const auto schedule = tawpipe::build_schedule(
        name, {.workload = Workload{model, batch, recompute}, .nodes = tawpipe::DeviceGroups{{4}}, .options = {}});
    return tawpipe::peak_memory(schedule, tawpipe::simulate(schedule, support::cluster(4), costs[0]));
  };
  for (const char* name : {"zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "zb-auto", "interleaved-zb", "dualpipe", "weipipe-zb2"}) {
    const auto none = peaks(name, tawpipe::Recompute::none);
    for (const auto recompute : {tawpipe::Recompute::selective, tawpipe::Recompute::full}) {
      const auto less = peaks(name, recompute);
      for (std::size_t rank = 0; rank < none.size(); ++rank) {
        CAPTURE(name);
        CAPTURE(tawpipe::name(recompute));
        CAPTURE(rank);
        CHECK(less[rank].total.value() <= none[rank].total.value());
      }
    }
  }
}

TEST_CASE("with recomputation a backward in two parts holds what it recomputed from one part to the other") {
  const Workload kept = support::transformer(2, 4);
  const Workload recomputed{*kept.model().decoder, kept.batch(), tawpipe::Recompute::full};
  for (const Workload& work : {kept, recomputed}) {
    const auto schedule = zb_h1(work, 1);
    const auto cluster = support::cluster(1);
    const auto peak = tawpipe::peak_memory(schedule, tawpipe::simulate(schedule, cluster, costs[0]))[0];
    const auto& stage = schedule.stages()[0];
    // one microbatch at a time, and nothing handed on; of each layer 3*8 + 4*8 + 3*16 = 104 numbers of
    // 2 bytes, 4 tokens, and two rows of 8 in float32; of the embedding 8 numbers
    CHECK(stage.stash.value() == (work.recompute() == tawpipe::Recompute::none ? 0 : 2 * (104 * 2 * 4 + 64) + 64));
    CHECK(peak.by_kind[static_cast<std::size_t>(tawpipe::BufferKind::activations)] == stage.saved + stage.stash);
  }
}
