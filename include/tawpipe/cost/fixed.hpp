// Fixed times: each kind of computation takes the time it is given, each transfer one hop's time,
// whatever its size.
// Not: a prediction from a model and a cluster (cost/roofline.hpp).
#pragma once

#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/cost/held_sms.hpp"

namespace tawpipe::inline v0 {

/// Times for one microbatch and a device's whole share of the model; a schedule with several chunks
/// a device divides them evenly. An update takes no time, a drawn idle unit one forward. Transfers
/// do not share links.
struct FixedCost {
  Duration forward;
  Duration backward_input;
  Duration backward_weight;
  Duration transfer;   ///< of any pass, exchange or collective
  HeldSms held_sms{};  ///< held by communications; off

  Duration compute_time(const Schedule& schedule, TaskId id, const Cluster&) const {
    const Task& task = schedule.task(id);
    const Passes passes = traits(task.op).passes;
    if (!passes.any()) return Duration{};
    Duration whole;
    if (passes.forward) whole += forward;
    if (passes.backward_input) whole += backward_input;
    if (passes.backward_weight) whole += backward_weight;
    const StageWork& work = schedule.work(task);
    const Duration time = whole * work.share.numerator / work.share.denominator;
    return work.fraction == 1 ? time : seconds(to_seconds(time) * work.fraction);
  }
  Path path(const Schedule&, const Task&, const Cluster&) const { return {.latency = transfer, .fraction = 0, .loads = {}}; }
};
static_assert(CostModel<FixedCost>);

}  // namespace tawpipe
