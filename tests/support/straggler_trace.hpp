// A straggler trace made from simulated 1F1B pipelines: what a training run with a slow rank would
// have noted.
// Not: a trace of PyTorch's profiler (support/kineto_files.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "support/clusters.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/task_factors.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/simulate/simulate.hpp"

namespace support {

/// Replicas of a 1F1B pipeline, one rank of which may be slow, with the step's end: gradients
/// summed over the replicas of each stage, one number over all, the optimizer.
struct StragglerRun {
  int replicas = 2;
  int stages = 4;
  int microbatches = 6;
  int slow_replica = -1;
  int slow_stage = -1;
  double slowdown = 1;
  tawpipe::FixedCost cost{.forward = tawpipe::Duration{40'000'000'000},  // 40 ms, 32 ms, 48 ms
                          .backward_input = tawpipe::Duration{32'000'000'000},
                          .backward_weight = tawpipe::Duration{48'000'000'000},
                          .transfer = tawpipe::Duration{1'000'000'000}};

  tawpipe::Schedule schedule() const {
    return tawpipe::schedules::one_f_one_b(tawpipe::Workload::abstract(stages, microbatches), stages);
  }
  tawpipe::Timeline pipeline(const tawpipe::Schedule& schedule, int replica) const {
    std::vector<double> factors(schedule.tasks().size(), 1);
    for (std::size_t t = 0; t < factors.size(); ++t) {
      if (replica == slow_replica && tawpipe::number(schedule.tasks()[t].rank) == slow_stage) factors[t] = slowdown;
    }
    const auto same = [](const tawpipe::Task&) { return 1.0; };
    return tawpipe::simulate(schedule, cluster(stages),
                             tawpipe::FactoredCost<tawpipe::FixedCost, decltype(same)>{cost, factors, same});
  }

  static constexpr double scatter = 0.003;
  static constexpr double clip = 0.001;
  static constexpr double optimizer = 0.005;

  /// Lines of one step, the run's first event at `begin` seconds. @param end  set to how long it
  /// takes
  std::string step(int number, double begin, double& end) const {
    using tawpipe::concat;
    const tawpipe::Schedule run = schedule();
    std::string out;
    const auto row = [&](int replica, int stage, const char* type, double from, double to, int microbatch) {
      out += concat(replica, ",", stage, ",", 8 * stage + replica, ",", number, ",", type, ",", begin + from, ",", to - from,
                    ",0,0,", stage, ",", microbatch < 0 ? std::string{} : std::to_string(microbatch) + ".0", "\n");
    };
    std::vector<double> computed(static_cast<std::size_t>(replicas * stages), 0);
    for (int replica = 0; replica < replicas; ++replica) {
      const tawpipe::Timeline timeline = pipeline(run, replica);
      std::map<std::pair<int, bool>, double> before;  // [stage, backward] when its last computation of that pass ended
      for (std::size_t t = 0; t < run.tasks().size(); ++t) {
        const tawpipe::Task& task = run.tasks()[t];
        const double from = to_seconds(timeline.start[t]);
        const double to = to_seconds(timeline.end[t]);
        const int rank = tawpipe::number(task.rank);
        if (task.op == tawpipe::Op::forward || task.op == tawpipe::Op::backward) {
          const bool backward = task.op == tawpipe::Op::backward;
          row(replica, rank, backward ? "backward-compute" : "forward-compute", from, to, task.microbatch);
          before[{rank, backward}] = to;
          double& last = computed[static_cast<std::size_t>(replica * stages + rank)];
          last = std::max(last, to);
        } else if (task.op == tawpipe::Op::pass) {
          const int peer = tawpipe::number(task.peer);
          const bool backward = task.payload == tawpipe::Payload::activation_gradients;
          row(replica, rank, backward ? "backward-send" : "forward-send", from, to, -1);
          const double posted = std::min(from, before[{peer, backward}]);  // a receive waits for its message
          row(replica, peer, backward ? "backward-recv" : "forward-recv", posted, to, -1);
        }
      }
    }
    double all = 0;
    for (int stage = 0; stage < stages; ++stage) {
      double last = 0;
      for (int r = 0; r < replicas; ++r) last = std::max(last, computed[static_cast<std::size_t>(r * stages + stage)]);
      for (int r = 0; r < replicas; ++r) {
        row(r, stage, "grads-reduce-scatter", computed[static_cast<std::size_t>(r * stages + stage)], last + scatter, -1);
        computed[static_cast<std::size_t>(r * stages + stage)] = last + scatter;
      }
      all = std::max(all, last + scatter);
    }
    for (int rank = 0; rank < replicas * stages; ++rank) {
      row(rank / stages, rank % stages, "optimizer-clip-main-grad", computed[static_cast<std::size_t>(rank)], all + clip, -1);
      row(rank / stages, rank % stages, "optimizer", all + clip, all + clip + optimizer, -1);
    }
    end = all + clip + optimizer;
    return out;
  }

  static std::string header() { return "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,gmc,mb_id\n"; }
};

}  // namespace support
