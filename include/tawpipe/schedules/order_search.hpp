// Searches the order of a pipeline's computations for any placement of its stages, any times and
// any memory limit.
// Not: the problem (order_problem.hpp), nor the schedules that use it (v_schedules.hpp,
// zero_bubble_auto.hpp, ...).
#pragma once

#include <cstdint>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/order_problem.hpp"

namespace tawpipe::inline v0::schedules {

/// An order, and how good it is.
struct FoundOrder {
  std::vector<std::vector<Action>> actions;  ///< [device]
  std::int64_t makespan = std::numeric_limits<std::int64_t>::max();
  /// the longest, from a device's first computation to its last
  std::int64_t span = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> held;  ///< [device] the peak
  /// no order has a shorter makespan
  std::int64_t bound = 0;
  std::int64_t moves = 0;  ///< orders that were timed

  bool is_optimal() const { return makespan == bound; }
  /// How much longer the makespan is than the bound, as a fraction of the bound.
  double gap() const { return bound == 0 ? 0 : static_cast<double>(makespan - bound) / static_cast<double>(bound); }
};

/// Computations in all orders of the standard number of moves, at most.
inline constexpr std::int64_t max_timed_computations = 20'000'000;

/// The order with the shortest makespan found, and among those one with a short span. Given orders
/// are tried first, so that the result is never longer than any of them that respects the limits. A
/// third of the moves draw patterns, on which every device takes the computation due first, the
/// others move single computations; a pipeline of up to `exact_computations` is then solved
/// exactly, if there are not too many cases. The same arguments give the same order on every
/// machine.
///
/// @param moves   orders timed, at most; fewer (down from the standard number) where many
/// computations make them slow
/// @param starts  orders to begin with, each [device]; those that do not fit the problem are
/// ignored
/// @throws InputError  as OrderProblem::check()
/// Complexity: O(moves * computations).
TAWPIPE_INLINE FoundOrder search_order(const OrderProblem& problem, std::int64_t moves,
                                       const std::vector<std::vector<std::vector<Action>>>& starts = {});

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include <algorithm>
#include <cstddef>

#include "tawpipe/schedules/detail/order_exact.hpp"
#include "tawpipe/schedules/detail/order_moves.hpp"

namespace tawpipe::inline v0::schedules {

namespace detail {

/// Divides all times so that sums of all of them, and of small multiples, are exact. Rounding up
/// keeps the order of times.
inline OrderProblem with_small_times(OrderProblem problem) {
  std::int64_t longest = 1;
  for (const OrderStage& stage : problem.stages) {
    longest = std::max({longest, stage.forward, stage.backward_input, stage.backward_weight, stage.hop});
  }
  const auto most = (std::int64_t{1} << 48) / (4 * static_cast<std::int64_t>(problem.stages.size()) * problem.microbatches);
  const std::int64_t divisor = longest / std::max<std::int64_t>(most, 1) + 1;
  for (OrderStage& stage : problem.stages) {
    for (std::int64_t* time : {&stage.forward, &stage.backward_input, &stage.backward_weight, &stage.hop}) {
      *time = (*time + divisor - 1) / divisor;
    }
  }
  return problem;
}

/// The steps of actions; a whole backward counts as its two halves. Empty unless each computation
/// is named once.
inline OrderWords words_of(const OrderProblem& problem, const std::vector<std::vector<Action>>& actions) {
  if (actions.size() != problem.limits.size()) return {};
  const std::size_t stages = problem.stages.size();
  OrderWords words(actions.size());
  std::vector<std::int32_t> count(3 * stages);
  const auto add = [&](std::size_t device, const Action& action, int kind) {
    const auto s = static_cast<std::size_t>(action.stage);
    if (s >= stages || problem.stages[s].device != static_cast<int>(device)) return false;
    const std::int32_t step = action.stage * 3 + kind;
    words[device].push_back(step);
    return action.microbatch == count[static_cast<std::size_t>(step)]++;
  };
  for (std::size_t d = 0; d < actions.size(); ++d) {
    for (const Action& action : actions[d]) {
      const int kind = action.op == Op::forward ? order_forward : action.op == Op::backward_weight ? order_weight : order_input;
      if (!add(d, action, kind)) return {};
      if (action.op == Op::backward && !add(d, action, order_weight)) return {};
    }
  }
  for (const std::int32_t number : count) {
    if (number != problem.microbatches) return {};
  }
  return words;
}

inline std::vector<std::vector<Action>> actions_of(const OrderProblem& problem, const OrderWords& words) {
  constexpr Op ops[] = {Op::forward, Op::backward_input, Op::backward_weight};
  std::vector<std::int32_t> next(3 * problem.stages.size());
  std::vector<std::vector<Action>> actions;
  for (const auto& word : words) {
    auto& own = actions.emplace_back();
    for (const std::int32_t step : word) own.push_back({ops[step % 3], step / 3, next[static_cast<std::size_t>(step)]++});
  }
  return actions;
}

}  // namespace detail

TAWPIPE_INLINE FoundOrder search_order(const OrderProblem& problem, std::int64_t moves,
                                       const std::vector<std::vector<std::vector<Action>>>& starts) {
  constexpr std::int64_t exact_computations = 48;
  constexpr std::size_t exact_beginnings = 4000;
  problem.check();
  const OrderProblem reduced = detail::with_small_times(problem);
  detail::OrderSearch search{reduced, order_bound(reduced)};
  for (const auto& start : starts) {
    const detail::OrderWords words = detail::words_of(reduced, start);
    if (!words.empty()) search.offer(words);
  }
  const std::int64_t most = moves > standard_moves
                                ? moves
                                : std::min(moves, std::max<std::int64_t>(max_timed_computations / search.computations(), 16));
  const std::int64_t rounds = std::clamp<std::int64_t>(most / standard_moves, 1, 8);
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (round > 0) search.begin_round();
    search.try_patterns(most / rounds / 3);
    search.move_computations(most / rounds - most / rounds / 3);
  }
  if (search.best().empty()) throw ScheduleError("no order was found");  // the first pattern always gives one
  FoundOrder found;
  found.bound = order_bound(problem);
  bool proven = false;
  if (search.computations() <= exact_computations && !search.is_done()) {
    detail::ExactOrder exact{reduced};
    const auto verdict = exact.run(search.makespan(), exact_beginnings);
    if (verdict == detail::ExactOrder::Verdict::found) search.offer(exact.words());
    proven = verdict != detail::ExactOrder::Verdict::gave_up;
  }
  detail::OrderClock clock{problem};
  clock.run(search.best());
  found.makespan = clock.makespan();
  found.span = clock.span();
  found.moves = search.moves();
  if (proven) found.bound = found.makespan;
  for (const auto& word : search.best()) found.held.push_back(detail::peak_held(problem, word));
  found.actions = detail::actions_of(problem, search.best());
  return found;
}

}  // namespace tawpipe::schedules
#endif
