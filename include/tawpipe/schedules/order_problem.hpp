// The problem of ordering a pipeline: stages on devices, their times and memory, memory limits; a
// lower bound; the time of an order.
// Not: the search for a good answer (order_search.hpp), nor tasks (pipeline.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0::schedules {

/// A stage: its device, the times of its computations for one microbatch, in any unit, and the
/// memory they hold, in any unit.
struct OrderStage {
  int device = 0;
  std::int64_t forward = 1;
  std::int64_t backward_input = 1;
  std::int64_t backward_weight = 1;
  /// time of a message between this stage and the next, in either direction
  std::int64_t hop = 0;
  std::int64_t saved = 1;  ///< memory saved by a forward, from its start
  /// of `saved`, from the end of backward_input to that of backward_weight
  std::int64_t kept = 1;
  /// in addition, from the start of backward_input to the end of backward_weight
  std::int64_t stash = 0;
};

/// In which order should each device compute, so that the last computation ends as early as
/// possible?
struct OrderProblem {
  std::vector<OrderStage> stages;  ///< in the order in which a microbatch meets them
  /// each passes every stage forward, then backward in two halves
  std::int32_t microbatches = 1;
  std::vector<std::int64_t> limits;  ///< [device] of the memory that its stages may hold at once

  /// @throws InputError  for a value that no pipeline can have, or a limit too small for one
  /// microbatch.
  void check() const {
    if (stages.empty() || microbatches < 1) throw InputError("an order needs at least one stage and one microbatch");
    std::vector<std::int64_t> one(limits.size());
    std::vector<std::int64_t> stash(limits.size());
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const OrderStage& stage = stages[s];
      if (stage.device < 0 || stage.device >= static_cast<int>(limits.size())) {
        throw InputError(concat("stage ", s, " is on device ", stage.device, ", but there are ", limits.size(), " devices"));
      }
      if (std::min({stage.forward, stage.backward_input, stage.backward_weight, stage.hop, stage.kept, stage.stash}) < 0 ||
          stage.saved < std::max<std::int64_t>(stage.kept, 1)) {
        throw InputError(concat("stage ", s, " has a time below 0, or keeps more than it saves"));
      }
      const auto d = static_cast<std::size_t>(stage.device);
      one[d] += stage.saved;
      stash[d] = std::max(stash[d], stage.stash);
    }
    for (std::size_t d = 0; d < limits.size(); ++d) {
      if (one[d] + stash[d] > limits[d]) {
        throw InputError(
            concat("device ", d, " may hold ", limits[d], ", but one microbatch on its stages saves ", one[d] + stash[d]));
      }
    }
  }
};

/// Orders that a search times unless told otherwise: 0.3 s for 8 devices with 24 microbatches, 1 s
/// for 32 with 256 (one core of an AMD EPYC).
inline constexpr std::int64_t standard_moves = 6000;

namespace detail {

/// forward, backward_input and backward_weight as indices; a step of an order is
/// `stage * 3 + kind`.
enum OrderKind : std::int32_t { order_forward, order_input, order_weight };
/// [device] steps. A device runs the microbatches of one step in order, so their numbers are
/// implied.
using OrderWords = std::vector<std::vector<std::int32_t>>;

inline std::int64_t time_of(const OrderStage& stage, int kind) {
  return kind == order_forward ? stage.forward : kind == order_input ? stage.backward_input : stage.backward_weight;
}
/// Memory that a computation needs while it runs, in addition to what its device holds.
inline std::int64_t needs(const OrderStage& stage, int kind) {
  return kind == order_forward ? stage.saved : kind == order_input ? stage.stash : 0;
}
/// The change of its device's memory after a computation.
inline std::int64_t holds(const OrderStage& stage, int kind) {
  if (kind == order_forward) return stage.saved;
  return kind == order_input ? stage.stash + stage.kept - stage.saved : -stage.stash - stage.kept;
}

/// [device] its stages, in the order in which a microbatch meets them
inline std::vector<std::vector<int>> stages_of_devices(const OrderProblem& problem) {
  std::vector<std::vector<int>> stages(problem.limits.size());
  for (std::size_t s = 0; s < problem.stages.size(); ++s) {
    stages[static_cast<std::size_t>(problem.stages[s].device)].push_back(static_cast<int>(s));
  }
  return stages;
}

/// The most that a device holds at once.
inline std::int64_t peak_held(const OrderProblem& problem, const std::vector<std::int32_t>& word) {
  std::int64_t held = 0;
  std::int64_t most = 0;
  for (const std::int32_t step : word) {
    const OrderStage& stage = problem.stages[static_cast<std::size_t>(step / 3)];
    most = std::max(most, held + needs(stage, step % 3));
    held += holds(stage, step % 3);
  }
  return most;
}

/// Times an order: every computation starts as early as its device and its inputs allow.
class OrderClock {
 public:
  explicit OrderClock(const OrderProblem& problem)
      : problem_{&problem}, microbatches_{static_cast<std::size_t>(problem.microbatches)} {
    const std::size_t stages = problem.stages.size();
    ends_.resize(2 * stages * microbatches_);
    done_.resize(3 * stages);
    clocks_.resize(problem.limits.size());
    at_.resize(clocks_.size());
    starts_.resize(clocks_.size());
    numbers_.resize(clocks_.size());
  }

  /// @return false if the order cannot run to its end
  bool run(const OrderWords& words) {
    std::fill(ends_.begin(), ends_.end(), -1);
    std::fill(done_.begin(), done_.end(), 0);
    std::fill(clocks_.begin(), clocks_.end(), 0);
    std::fill(at_.begin(), at_.end(), std::size_t{0});
    std::size_t left = 0;
    for (std::size_t d = 0; d < words.size(); ++d) {
      left += words[d].size();
      starts_[d].resize(words[d].size());
      numbers_[d].resize(words[d].size());
    }
    for (bool down = true; left > 0; down = !down) {
      const std::size_t before = left;
      for (std::size_t k = 0; k < words.size(); ++k) left -= advance(words, down ? k : words.size() - 1 - k);
      if (left == before) return false;
    }
    makespan_ = *std::max_element(clocks_.begin(), clocks_.end());
    sum_ = 0;
    for (const std::int64_t clock : clocks_) sum_ += clock;
    return true;
  }

  std::int64_t makespan() const { return makespan_; }
  std::int64_t sum_of_ends() const { return sum_; }
  std::int64_t end_of_device(std::size_t device) const { return clocks_[device]; }
  /// The longest time from a device's first computation to its last.
  std::int64_t span() const {
    std::int64_t longest = 0;
    for (std::size_t d = 0; d < clocks_.size(); ++d) {
      if (!starts_[d].empty()) longest = std::max(longest, clocks_[d] - starts_[d].front());
    }
    return longest;
  }
  std::int64_t start(std::size_t device, std::size_t i) const { return starts_[device][i]; }
  std::int32_t microbatch(std::size_t device, std::size_t i) const { return numbers_[device][i]; }
  /// When a forward or backward_input ends.
  std::int64_t end(int kind, std::size_t stage, std::int32_t microbatch) const { return ends_[place(kind, stage, microbatch)]; }

 private:
  std::size_t place(int kind, std::size_t stage, std::int32_t microbatch) const {
    return (2 * stage + static_cast<std::size_t>(kind)) * microbatches_ + static_cast<std::size_t>(microbatch);
  }

  /// Runs the device up to a computation whose input is not there. @return the number run
  std::size_t advance(const OrderWords& words, std::size_t device) {
    const auto& word = words[device];
    const std::size_t from = at_[device];
    std::size_t i = from;
    std::int64_t clock = clocks_[device];
    for (; i < word.size(); ++i) {
      const auto s = static_cast<std::size_t>(word[i] / 3);
      const int kind = word[i] % 3;
      const OrderStage& stage = problem_->stages[s];
      std::int32_t& number = done_[3 * s + static_cast<std::size_t>(kind)];
      std::int64_t start = clock;
      if (kind == order_forward && s > 0) {
        const std::int64_t end = ends_[place(order_forward, s - 1, number)];
        if (end < 0) break;
        start = std::max(start, end + problem_->stages[s - 1].hop);
      } else if (kind != order_forward && done_[3 * s + static_cast<std::size_t>(kind) - 1] <= number) {
        break;
      } else if (kind == order_input && s + 1 < problem_->stages.size()) {
        const std::int64_t end = ends_[place(order_input, s + 1, number)];
        if (end < 0) break;
        start = std::max(start, end + stage.hop);
      }
      starts_[device][i] = start;
      numbers_[device][i] = number;
      clock = start + time_of(stage, kind);
      if (kind != order_weight) ends_[place(kind, s, number)] = clock;
      ++number;
    }
    at_[device] = i;
    clocks_[device] = clock;
    return i - from;
  }

  const OrderProblem* problem_;
  std::size_t microbatches_;
  /// [stage][forward, input][microbatch]; -1: not yet
  std::vector<std::int64_t> ends_;
  std::vector<std::int32_t> done_;                 ///< [stage][kind] microbatches
  std::vector<std::int64_t> clocks_;               ///< [device]
  std::vector<std::size_t> at_;                    ///< [device] steps done
  std::vector<std::vector<std::int64_t>> starts_;  ///< [device][step]
  std::vector<std::vector<std::int32_t>> numbers_;
  std::int64_t makespan_ = 0;
  std::int64_t sum_ = 0;
};

/// The most backward work of a device while no forward runs: limited by the activations that it
/// holds at the beginning. With `alive` activations of stages before their backward_input, the rest
/// of the memory holds those that wait for their backward_weight.
inline std::int64_t max_backward_work(std::int64_t limit, std::int64_t all, const OrderStage& least, const OrderStage& most) {
  std::int64_t best = 0;
  for (std::int64_t alive = 0; alive <= std::min(all, limit / least.saved); ++alive) {
    const std::int64_t rest = limit - alive * least.saved;
    const std::int64_t waiting = least.kept > 0 ? std::min(all - alive, rest / least.kept) : all - alive;
    best = std::max(best, alive * (most.backward_input + most.backward_weight) + waiting * most.backward_weight);
  }
  return best;
}

}  // namespace detail

/// A time that no order of any kind can be faster than. The largest of:
/// * one microbatch's path through all stages and back, and its last backward_weight;
/// * for each device: its earliest start, its work, and its inevitable waits. Before the first
///   backward can reach it, it runs no more forwards than its memory holds; after the last forward
///   that can still be followed by all that comes after it, no more backwards than those of the
///   activations that its memory holds. It waits for as long as these two times exceed that work.
///   All forwards precede the one time, and all backwards follow the other;
/// * for each device: the memory of all microbatches, times how long they must hold it, divided by
///   the limit.
/// Complexity: O(stages + devices * microbatches).
inline std::int64_t order_bound(const OrderProblem& problem) {
  const auto& stages = problem.stages;
  std::vector<std::int64_t> head(stages.size());  // earliest start of a forward
  for (std::size_t s = 1; s < stages.size(); ++s) head[s] = head[s - 1] + stages[s - 1].forward + stages[s - 1].hop;
  std::vector<std::int64_t> back(stages.size());  // earliest start of a backward_input
  back.back() = head.back() + stages.back().forward;
  for (std::size_t s = stages.size() - 1; s-- > 0;) back[s] = back[s + 1] + stages[s + 1].backward_input + stages[s].hop;
  const std::int64_t chain = back[0] + stages[0].backward_input + stages[0].backward_weight;
  std::int64_t bound = chain;
  const auto own = detail::stages_of_devices(problem);
  for (std::size_t d = 0; d < own.size(); ++d) {
    if (own[d].empty()) continue;
    const auto first = static_cast<std::size_t>(own[d].front());
    const auto last = static_cast<std::size_t>(own[d].back());
    OrderStage least = stages[first];  // its kept part includes its stash
    least.kept += least.stash;
    OrderStage most = stages[first];
    std::int64_t work = 0;
    std::int64_t forward_work = 0;
    double held = 0;  // memory times time for one microbatch
    for (const int place : own[d]) {
      const auto s = static_cast<std::size_t>(place);
      const OrderStage& stage = stages[s];
      least.forward = std::min(least.forward, stage.forward);
      least.saved = std::min(least.saved, stage.saved);
      least.kept = std::min(least.kept, stage.kept + stage.stash);
      most.forward = std::max(most.forward, stage.forward);
      most.backward_input = std::max(most.backward_input, stage.backward_input);
      most.backward_weight = std::max(most.backward_weight, stage.backward_weight);
      work += (stage.forward + stage.backward_input + stage.backward_weight) * problem.microbatches;
      forward_work += stage.forward * problem.microbatches;
      held += static_cast<double>(stage.saved) * static_cast<double>(back[s] + stage.backward_input - head[s]) +
              static_cast<double>(stage.kept + stage.stash) * static_cast<double>(stage.backward_weight);
    }
    const std::int64_t all = static_cast<std::int64_t>(own[d].size()) * problem.microbatches;
    const std::int64_t limit = problem.limits[d];
    // The time before: from its earliest start to the earliest backward, which is that of its last
    // stage.
    const std::int64_t forwards = std::min(all, limit / least.saved) * most.forward;
    const std::int64_t wait_before = std::max<std::int64_t>(back[last] - head[first] - forwards, 0);
    // The time after: a forward, at best of its last stage, ends at least this long before the end.
    const std::int64_t after = chain - head[last] - stages[last].forward;
    const std::int64_t wait_after = std::max<std::int64_t>(after - detail::max_backward_work(limit, all, least, most), 0);
    bound = std::max(bound, head[first] + work + std::max(wait_before, wait_after));
    bound = std::max({bound, head[first] + forward_work + after, back[last] + work - forward_work});
    // Both waits count if the two times do not overlap.
    if (bound >= back[last] + after) bound = std::max(bound, head[first] + work + wait_before + wait_after);
    const double memory = held * problem.microbatches / static_cast<double>(limit);
    bound = std::max(bound, head[first] + static_cast<std::int64_t>(memory * (1 - 1e-9)));
  }
  return bound;
}

}  // namespace tawpipe::schedules
