// Runs pipelines under fixed times, and reads the orders that PyTorch writes.
// Not: PyTorch's format as a whole; transfers are skipped.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "support/csv.hpp"
#include "tawpipe/analysis/bubble.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/schedules/pipeline_program.hpp"
#include "tawpipe/simulate/simulate.hpp"

namespace support {

/// Times of one device's whole share, and what a schedule takes under them.
struct PipelineRun {
  tawpipe::Duration makespan;
  tawpipe::Duration span;  ///< the longest time from a rank's first computation to its last
  double span_rate = 0;
};

inline PipelineRun run_pipeline(const tawpipe::Schedule& schedule, const tawpipe::FixedCost& cost) {
  const tawpipe::Timeline timeline = tawpipe::simulate(schedule, cluster(schedule.ranks()), cost);
  PipelineRun run{timeline.makespan(), {}, tawpipe::bubble(schedule, timeline).span_rate()};
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    tawpipe::TimePoint first{tawpipe::Duration::max()};
    tawpipe::TimePoint last;
    for (const auto task : schedule.program(tawpipe::Rank{rank}, 0)) {
      if (!tawpipe::is_work(schedule.task(task).op) || schedule.task(task).op == tawpipe::Op::update) continue;
      first = std::min(first, timeline.start_of(task));
      last = std::max(last, timeline.end_of(task));
    }
    if (last > first) run.span = std::max(run.span, last - first);
  }
  return run;
}

/// All computations of a microbatch on a device's whole share, one after another.
inline tawpipe::Duration whole(const tawpipe::FixedCost& cost) {
  return cost.forward + cost.backward_input + cost.backward_weight;
}

/// The largest of peak_saved().
inline int max_saved(const tawpipe::schedules::PipelineProgram& program) {
  const auto peaks = tawpipe::schedules::peak_saved(program);
  return *std::max_element(peaks.begin(), peaks.end());
}

/// "7B3" as an action; `op` of other letters than F, B, I, W is a transfer and gives false.
inline bool parse_action(const std::string& text, tawpipe::schedules::Action& action) {
  const auto at = text.find_first_not_of("0123456789");
  if (at == std::string::npos || text.find_first_not_of("0123456789", at + 1) != std::string::npos) return false;
  const auto letter = std::string{"FBIW"}.find(text[at]);
  if (letter == std::string::npos) return false;
  constexpr tawpipe::Op ops[] = {tawpipe::Op::forward, tawpipe::Op::backward, tawpipe::Op::backward_input,
                                 tawpipe::Op::backward_weight};
  action = {ops[letter], std::stoi(text.substr(0, at)), std::stoi(text.substr(at + 1))};
  return true;
}

/// The computations of each rank in a file of PyTorch's, one line a rank; "(0F7;7B3)OVERLAP_F_B" is
/// a joined block.
inline std::vector<std::vector<tawpipe::schedules::Action>> read_orders(std::istream& file) {
  std::vector<std::vector<tawpipe::schedules::Action>> orders;
  for (std::string line; std::getline(file, line);) {
    auto& order = orders.emplace_back();
    for (std::string cell : split(line, ',')) {
      if (!cell.empty() && cell.back() == '\r') cell.pop_back();
      const bool block = !cell.empty() && cell.front() == '(';
      const auto parts = block ? split(cell.substr(1, cell.find(')') - 1), ';') : std::vector<std::string>{cell};
      for (std::size_t i = 0; i < parts.size(); ++i) {
        tawpipe::schedules::Action action;
        if (!parse_action(parts[i], action)) continue;
        action.joined = block && i == 0;
        order.push_back(action);
      }
    }
  }
  return orders;
}

/// As PyTorch writes an order with transfers: the two halves of a backward that stand together are
/// one.
inline std::vector<tawpipe::schedules::Action> merged(const std::vector<tawpipe::schedules::Action>& order) {
  std::vector<tawpipe::schedules::Action> out;
  for (const auto& action : order) {
    if (action.op == tawpipe::Op::backward_weight && !out.empty() && out.back().op == tawpipe::Op::backward_input &&
        out.back().stage == action.stage && out.back().microbatch == action.microbatch) {
      out.back().op = tawpipe::Op::backward;
    } else {
      out.push_back(action);
    }
  }
  return out;
}

}  // namespace support
