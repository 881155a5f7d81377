// Your own schedule with options, in a registry with the shipped ones, compared with them by name.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/tawpipe.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"

using namespace tawpipe::literals;
using tawpipe::Op;

namespace {

/// One table has the name, values and meaning of each option; its default is the struct's.
struct WaveOptions {
  int width = 2;

  static std::vector<tawpipe::Field<WaveOptions>> fields() {
    return {tawpipe::option_field<&WaveOptions::width>("width", {.low = 1, .high = 1024, .reason = "each keeps its activations"},
                                                       "microbatches forward at a time, then as many backward")};
  }
};

/// Waves of `width` forwards, then their backwards. Keeps `width` activations a rank, at the price
/// of a bubble for each wave.
tawpipe::Schedule waves(const tawpipe::ScheduleRequest& request, const WaveOptions& options) {
  tawpipe::schedules::PipelineProgram program;
  const auto microbatches = static_cast<std::int32_t>(request.workload.microbatches());
  for (int rank = 0; rank < request.nodes.ranks(); ++rank) {
    program.rank_of_stage.push_back(rank);
    auto& actions = program.actions.emplace_back();
    for (std::int32_t first = 0; first < microbatches; first += options.width) {
      for (const Op op : {Op::forward, Op::backward}) {
        for (std::int32_t m = first; m < std::min(first + options.width, microbatches); ++m) actions.push_back({op, rank, m});
      }
    }
  }
  return tawpipe::schedules::pipeline("waves", request.workload, program, {}, tawpipe::option_texts(options));
}

}  // namespace

int main() {
  tawpipe::Registry registry = tawpipe::shipped_schedules();
  registry.add<WaveOptions>(
      {.name = "waves", .description = "activations move: some forwards, then their backwards", .source = "here"}, waves);
  for (const auto& option : registry.info("waves").options) {
    std::printf("waves has %s=%s (%s): %s\n", option.name.c_str(), option.values.c_str(), option.standard.c_str(),
                option.meaning.c_str());
  }

  const auto cluster = tawpipe::cluster_from_dimensions("1x4");
  const tawpipe::FixedCost cost{.forward = 1_ms, .backward_input = 1_ms, .backward_weight = 1_ms, .transfer = 100_us};
  const std::vector<std::pair<std::string, tawpipe::ScheduleOptions>> entries{
      {"waves", {}}, {"waves", {{"width", "8"}}}, {"1f1b", {}}, {"gpipe", {}}, {"zb-h1", {}}};
  for (const auto& [name, options] : entries) {
    const auto schedule = registry.build(
        name, {.workload = tawpipe::Workload::abstract(4, 16), .nodes = cluster.groups_by_node(), .options = options});
    const auto timeline = tawpipe::simulate(schedule, cluster, cost);
    std::printf("%-6s %5.1f ms, bubble %4.1f %%", name.c_str(), 1e3 * tawpipe::to_seconds(timeline.makespan()),
                100 * tawpipe::bubble(schedule, timeline).ratio);
    for (const auto& [key, value] : schedule.options()) std::printf("  %s=%s", key.c_str(), value.c_str());
    std::printf("\n");
  }

  try {
    registry.check("waves", {{"widht", "2"}});
  } catch (const tawpipe::InputError& error) {
    std::printf("refused: %s\n", error.what());
  }
}
