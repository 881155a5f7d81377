// The times of a measured cost from a traced run of a pipeline: input for simulating another
// schedule or cluster.
// Not: times from profiles of a model's parts (analysis/gpu_profile.hpp), nor what-if questions on
// the run itself (what_if.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/measured.hpp"
#include "tawpipe/replay/traced_run.hpp"

namespace tawpipe::inline v0 {

/// Medians over the run: of each stage's forward and backward, of the update, and of a message's
/// own time.
///
/// A layer takes the median time of the stages, without the first and the last if there are others,
/// divided by their layers; the additional time of the first stage is the embedding's, and that of
/// the last the head's. A message takes its time whatever its size, since such traces do not record
/// sizes.
/// @param layers  of the model, cut evenly into the stages (chunks, if a rank holds several)
/// @throws InputError  if the run records no stages or no passes, the layers cannot be cut evenly,
/// or take no time.
inline MeasuredCost measured_cost(const TracedRun& run, int layers) {
  std::map<std::pair<Op, StageId>, std::vector<double>> passes;
  std::vector<double> updates;
  std::vector<double> messages;
  int stages = 0;
  for (const TracedStep& step : run.steps) {
    for (const TracedEvent& event : step.events) {
      const double time = to_seconds(event.own);
      if (event.op == Op::pass) messages.push_back(time);
      if (event.op == Op::update && run.names[static_cast<std::size_t>(event.name)] == "optimizer") updates.push_back(time);
      if (event.stage == none<StageId> || (event.op != Op::forward && event.op != Op::backward)) continue;
      passes[{event.op, event.stage}].push_back(time);
      stages = std::max(stages, number(event.stage) + 1);
    }
  }
  if (stages == 0) throw InputError("the trace does not say which stage computes; give a straggler trace, or --cluster");
  if (layers < stages || layers % stages != 0) {
    throw InputError(
        concat(layers, " layers cannot be cut evenly into the trace's ", stages, " stages; give a multiple of them"));
  }
  const auto median = [](std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  };
  MeasuredCost cost;
  for (const Op op : {Op::forward, Op::backward}) {
    std::vector<double> of_stage;
    for (int s = 0; s < stages; ++s) {
      const auto found = passes.find({op, StageId{s}});
      if (found == passes.end()) throw InputError(concat("the trace has no ", name(op), " of stage ", s));
      of_stage.push_back(median(found->second));
    }
    const bool ends = stages > 2;
    const double plain = median({of_stage.begin() + (ends ? 1 : 0), of_stage.end() - (ends ? 1 : 0)});
    auto& pass = op == Op::forward ? cost.forward : cost.backward;
    pass = MeasuredPass{.layer = plain * stages / layers,
                        .embedding = std::max(0.0, of_stage.front() - plain),
                        .head = std::max(0.0, of_stage.back() - plain)};
  }
  cost.update = MeasuredUpdate{.once = updates.empty() ? 0 : median(updates)};
  cost.intra_node = cost.inter_node = MeasuredLink{.latency = messages.empty() ? 0 : median(messages)};
  cost.software = "as traced";
  cost.check_times();
  return cost;
}

}  // namespace tawpipe
