// Orders by list scheduling: whenever a device is free it takes the computation whose place in a
// repeating pattern comes first.
// Not: which patterns are tried (schedules/order_search.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "tawpipe/schedules/order_problem.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// A pattern: when one microbatch's computations are due, on a grid that repeats for each
/// microbatch. Whole numbers only, so that all machines find the same order.
struct OrderPattern {
  static constexpr std::int32_t never = 1 << 20;

  /// Forwards of a device's even and odd stages, then their backwards: the delay of one stage after
  /// the one before, in sixteenths of a computation.
  std::int32_t slope[4] = {16, 16, 16, 16};
  /// Where one pass through all devices ends and the next begins, in the forward, from forward to
  /// backward, and in the backward: the additional delay, in slots.
  std::int32_t turn[3] = {0, 0, 0};
  bool even = true;  ///< all computations last one slot; otherwise their real times
  /// how late backward_weights are due, in sixteenths of a period; `never`: only in gaps
  std::int32_t weight = never;
  /// how far a computation may run ahead of one that is due, in twelfths of a period
  std::int32_t lead = never;
  /// How long a device waits for a computation that is due earlier than what it could run, in
  /// sixteenths of the latter.
  std::int32_t wait = 8;
  std::int32_t weight_wait = 8;  ///< the same where the latter is a backward_weight
};

/// Lays out an order by a pattern. A forward starts only if every later stage of the device can
/// still hold one microbatch, so that the oldest microbatch always finds room.
class OrderPlanner {
 public:
  explicit OrderPlanner(const OrderProblem& problem)
      : problem_{problem}, microbatches_{static_cast<std::size_t>(problem.microbatches)}, own_{stages_of_devices(problem)} {
    rank_in_device_.resize(problem.stages.size());
    stash_.resize(own_.size());
    for (const OrderStage& stage : problem.stages) {
      auto& stash = stash_[static_cast<std::size_t>(stage.device)];
      stash = std::max(stash, stage.stash);
    }
    for (const auto& own : own_) {
      std::int64_t work = 0;
      for (std::size_t i = 0; i < own.size(); ++i) {
        const auto s = static_cast<std::size_t>(own[i]);
        rank_in_device_[s] = i;
        const OrderStage& stage = problem.stages[s];
        work += stage.forward + stage.backward_input + stage.backward_weight;
      }
      longest_ = std::max(longest_, work);
      chunks_ = std::max(chunks_, own.size());
    }
    longest_ = std::max<std::int64_t>(longest_, 1);
    due_.resize(3 * problem.stages.size());
    ends_.resize(2 * problem.stages.size() * microbatches_);
  }

  /// @return nothing if the devices wait for each other, which a short `lead` can cause
  OrderWords lay(const OrderPattern& pattern) {
    draw(pattern);
    const std::size_t stages = problem_.stages.size();
    std::fill(ends_.begin(), ends_.end(), -1);
    done_.assign(3 * stages, 0);
    clock_.assign(own_.size(), 0);
    held_.assign(own_.size(), 0);
    wake_.assign(own_.size(), 0);
    OrderWords words(own_.size());
    for (std::size_t left = 3 * stages * microbatches_; left > 0;) {
      const auto d = static_cast<std::size_t>(std::min_element(wake_.begin(), wake_.end()) - wake_.begin());
      const std::int64_t now = wake_[d];
      if (now == endless) return {};
      const Choice choice = choose(d, now, pattern);
      if (choice.step < 0) {
        wake_[d] = choice.until;
        continue;
      }
      run(d, now, choice.step);
      words[d].push_back(choice.step);
      --left;
    }
    return words;
  }

 private:
  static constexpr std::int64_t endless = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t period = 6144;  ///< of the grid

  struct Choice {
    std::int32_t step = -1;
    std::int64_t until = endless;  ///< if there is no step: when to look again
  };
  /// The computation due first of those given.
  struct Due {
    std::int32_t step = -1;
    std::int64_t due = endless;
    std::int64_t there = endless;  ///< its input
    void take(std::int32_t other, std::int64_t other_due, std::int64_t other_there) {
      if (other_due < due) *this = {other, other_due, other_there};
    }
  };

  std::size_t place(int kind, std::size_t stage, std::int32_t microbatch) const {
    return (2 * stage + static_cast<std::size_t>(kind)) * microbatches_ + static_cast<std::size_t>(microbatch);
  }

  /// When each computation of the first microbatch is due.
  void draw(const OrderPattern& pattern) {
    const std::int64_t slot = period / (3 * static_cast<std::int64_t>(chunks_));
    const auto& stages = problem_.stages;
    const auto late = [&](std::int64_t time, std::int32_t slope) {
      // at most `longest_` + a hop, so the product fits if times do
      const std::int64_t grid =
          pattern.even ? slot : static_cast<std::int64_t>(static_cast<double>(time) / static_cast<double>(longest_) * period);
      return grid * slope / 16;
    };
    std::int64_t due = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      due_[3 * s] = due;
      if (s + 1 < stages.size() && rank_in_device_[s + 1] != rank_in_device_[s]) {
        due += slot * (1 + pattern.turn[0]);
      } else {
        due += late(stages[s].forward + stages[s].hop, pattern.slope[rank_in_device_[s] % 2]);
      }
    }
    due += slot * pattern.turn[1];
    for (std::size_t s = stages.size(); s-- > 0;) {
      due_[3 * s + 1] = due;
      due_[3 * s + 2] = due + pattern.weight * (period / 16);
      if (s > 0 && rank_in_device_[s - 1] != rank_in_device_[s]) {
        due += slot * (1 + pattern.turn[2]);
      } else {
        due += late(stages[s].backward_input + (s > 0 ? stages[s - 1].hop : 0), pattern.slope[2 + rank_in_device_[s] % 2]);
      }
    }
  }

  /// Memory that the stage holds now.
  std::int64_t held_by(std::size_t s) const {
    const OrderStage& stage = problem_.stages[s];
    return (done_[3 * s] - done_[3 * s + 1]) * stage.saved + (done_[3 * s + 1] - done_[3 * s + 2]) * (stage.kept + stage.stash);
  }

  /// Whether a forward of the stage leaves room for one microbatch on each later stage of its
  /// device, and for one backward_input. Then the oldest microbatch finds room wherever it comes:
  /// all that is held before it is freed by then.
  bool holds_forward(std::size_t device, std::size_t stage) const {
    std::int64_t need = held_[device] + problem_.stages[stage].saved + stash_[device];
    for (std::size_t i = rank_in_device_[stage] + 1; i < own_[device].size(); ++i) {
      const auto later = static_cast<std::size_t>(own_[device][i]);
      if (done_[3 * later] < problem_.microbatches) {
        need += std::max<std::int64_t>(problem_.stages[later].saved - held_by(later), 0);
      }
    }
    return need <= problem_.limits[device];
  }

  bool has_room(std::size_t device, std::size_t stage, int kind) const {
    if (kind == order_forward) return holds_forward(device, stage);
    return held_[device] + problem_.stages[stage].stash <= problem_.limits[device];
  }

  /// When the input of the stage's next computation of this kind is there; `endless` while unknown.
  std::int64_t arrival(int kind, std::size_t s) const {
    const std::int32_t next = done_[3 * s + static_cast<std::size_t>(kind)];
    if (next >= problem_.microbatches) return endless;
    if (kind == order_input && done_[3 * s] <= next) return endless;
    const bool first = kind == order_forward ? s == 0 : s + 1 == problem_.stages.size();
    if (first) return 0;
    const std::size_t from = kind == order_forward ? s - 1 : s + 1;
    const std::int64_t end = ends_[place(kind, from, next)];
    return end < 0 ? endless : end + problem_.stages[std::min(s, from)].hop;
  }

  Choice choose(std::size_t device, std::int64_t now, const OrderPattern& pattern) const {
    Due ready;   // can start
    Due coming;  // can start later, at a known time
    Due weight;
    std::int64_t soonest = endless;
    std::int64_t latest = endless;  // a computation due later may not start
    const auto due = [&](std::size_t s, int kind) {
      const std::size_t step = 3 * s + static_cast<std::size_t>(kind);
      return due_[step] + done_[step] * period;
    };
    if (pattern.lead < OrderPattern::never) {
      for (const int stage : own_[device]) {
        const auto s = static_cast<std::size_t>(stage);
        if (done_[3 * s + 1] < problem_.microbatches) latest = std::min(latest, due(s, order_input));
        if (done_[3 * s] < problem_.microbatches && holds_forward(device, s)) latest = std::min(latest, due(s, order_forward));
      }
      if (latest < endless) latest += pattern.lead * (period / 12);
    }
    for (const int stage : own_[device]) {
      const auto s = static_cast<std::size_t>(stage);
      for (const int kind : {order_forward, order_input}) {
        const std::int64_t there = arrival(kind, s);
        if (there == endless || !has_room(device, s, kind)) continue;
        const std::int64_t when = due(s, kind);
        if (there > now) {
          soonest = std::min(soonest, there);
          coming.take(stage * 3 + kind, when, there);
        } else if (when <= latest) {
          ready.take(stage * 3 + kind, when, there);
        }
      }
      if (done_[3 * s + 2] < done_[3 * s + 1]) weight.take(stage * 3 + order_weight, due(s, order_weight), 0);
    }
    const auto waits = [&](std::int32_t step, std::int64_t than, std::int32_t sixteenths) {
      return coming.step >= 0 && coming.due < than && (coming.there - now) * 16 < time(step) * sixteenths;
    };
    if (ready.step >= 0 && ready.due <= weight.due) {
      if (!waits(ready.step, ready.due, pattern.wait)) return {ready.step};
      if (weight.step >= 0 && now + time(weight.step) <= coming.there) return {weight.step};
      return {-1, coming.there};
    }
    if (weight.step < 0) return {-1, soonest};
    if (ready.step < 0 && waits(weight.step, weight.due, pattern.weight_wait)) return {-1, coming.there};
    return {weight.step};
  }

  std::int64_t time(std::int32_t step) const { return time_of(problem_.stages[static_cast<std::size_t>(step / 3)], step % 3); }

  void run(std::size_t device, std::int64_t now, std::int32_t step) {
    const auto s = static_cast<std::size_t>(step / 3);
    const int kind = step % 3;
    const OrderStage& stage = problem_.stages[s];
    std::int32_t& done = done_[static_cast<std::size_t>(step)];
    clock_[device] = wake_[device] = now + time_of(stage, kind);
    held_[device] += holds(stage, kind);
    if (kind != order_weight) {
      ends_[place(kind, s, done)] = clock_[device];
      const std::size_t to = kind == order_forward ? s + 1 : s - 1;  // wraps round at the ends
      if (to < problem_.stages.size() && done == done_[3 * to + static_cast<std::size_t>(kind)]) {
        const auto other = static_cast<std::size_t>(problem_.stages[to].device);
        const std::int64_t there = clock_[device] + problem_.stages[std::min(s, to)].hop;
        if (other != device) wake_[other] = std::max(clock_[other], std::min(wake_[other], there));
      }
    }
    ++done;
  }

  const OrderProblem& problem_;
  std::size_t microbatches_;
  std::vector<std::vector<int>> own_;  ///< [device] stages
  std::vector<std::size_t> rank_in_device_;
  std::vector<std::int64_t> stash_;  ///< [device] the largest of its stages
  std::size_t chunks_ = 1;
  std::int64_t longest_ = 0;  ///< work of one microbatch on a device
  std::vector<std::int64_t> due_;
  std::vector<std::int64_t> ends_;
  std::vector<std::int32_t> done_;
  std::vector<std::int64_t> clock_, held_, wake_;
};

}  // namespace tawpipe::schedules::detail
