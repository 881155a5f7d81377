// Your own pipeline schedule, from each rank's computations in order. Sends, receives, optimizer
// and all dependencies follow automatically.
#include <cstdint>
#include <cstdio>
#include <utility>

#include "tawpipe/tawpipe.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"

using namespace tawpipe::literals;
using tawpipe::Op;

int main() {
  constexpr int ranks = 4;
  constexpr std::int32_t microbatches = 8;

  // Microbatches in pairs: two forwards, then their two backwards. Keeps two activations a rank, at
  // the price of a bubble.
  tawpipe::schedules::PipelineProgram program;
  for (int rank = 0; rank < ranks; ++rank) {
    program.rank_of_stage.push_back(rank);
    auto& actions = program.actions.emplace_back();
    for (std::int32_t pair = 0; pair < microbatches; pair += 2) {
      for (const Op op : {Op::forward, Op::backward}) {
        actions.push_back({op, rank, pair});
        actions.push_back({op, rank, pair + 1});
      }
    }
  }

  // Without a model: four equal shares, each forward 1 ms, each backward 2 ms, each transfer 100
  // us.
  const auto work = tawpipe::Workload::abstract(ranks, microbatches);
  const auto cluster = tawpipe::cluster_from_dimensions("1x4");
  const tawpipe::FixedCost cost{.forward = 1_ms, .backward_input = 1_ms, .backward_weight = 1_ms, .transfer = 100_us};

  const auto pairs = tawpipe::schedules::pipeline("pairs", work, program, {.overlap = true});
  for (const auto& schedule : {pairs, tawpipe::schedules::one_f_one_b(work, ranks), tawpipe::schedules::gpipe(work, ranks)}) {
    const auto timeline = tawpipe::simulate(schedule, cluster, cost);
    const auto bubble = tawpipe::bubble(schedule, timeline);
    std::printf("%-6s %5.1f ms, bubble %4.1f %%\n", schedule.name().c_str(), 1e3 * tawpipe::to_seconds(timeline.makespan()),
                100 * bubble.ratio);
  }

  // A program that cannot run is refused, naming the rank and its unmet dependency: here the last
  // rank starts with a backward.
  std::swap(program.actions[ranks - 1].front(), program.actions[ranks - 1][2]);
  try {
    tawpipe::schedules::pipeline("stuck", work, program, {});
  } catch (const tawpipe::ScheduleError& error) {
    std::printf("refused: %s\n", error.what());
  }
}
