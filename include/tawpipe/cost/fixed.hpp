// Fixed times: each kind of computation takes the time it is given, each transfer one hop's time whatever its size.
// Not: a prediction from a model and a cluster (cost/roofline.hpp).
#pragma once

#include "tawpipe/cost/cost_model.hpp"

namespace tawpipe::inline v0 {

/// Times for one microbatch and a device's whole share of the model; a schedule with several chunks a device divides them
/// evenly. An update takes no time, a drawn idle unit one forward. Transfers share nothing.
struct FixedCost {
  Duration forward;
  Duration backward_input;
  Duration backward_weight;
  Duration transfer;  ///< of any pass, exchange or collective

  Duration compute_time(const Schedule& schedule, const Task& task, const Cluster&) const {
    if (task.op == Op::update) return Duration{};
    const Duration whole = whole_share(task.op);
    const Share share = schedule.stage(task.stage).share;
    return whole * share.numerator / share.denominator;
  }
  Path path(const Schedule&, const Task&, const Cluster&) const { return {.latency = transfer, .fraction = 0, .loads = {}}; }

 private:
  Duration whole_share(Op op) const {
    switch (op) {
      case Op::backward:
        return backward_input + backward_weight;
      case Op::backward_input:
        return backward_input;
      case Op::backward_weight:
        return backward_weight;
      default:
        return forward;
    }
  }
};
static_assert(CostModel<FixedCost>);

}  // namespace tawpipe
