// The search for an order: good patterns, and moves of single computations along the longest path.
// Not: the problem and the result as callers see them (schedules/order_search.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tawpipe/core/splitmix64.hpp"
#include "tawpipe/schedules/detail/order_patterns.hpp"
#include "tawpipe/schedules/order_problem.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// Numbers that look random, the same on every machine.
class OrderRandom {
 public:
  std::int64_t below(std::int64_t end) {
    const std::uint64_t bits = splitmix64(state_);
    state_ += splitmix64_step;
    return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(end));
  }
  std::int32_t between(std::int32_t low, std::int32_t high) { return low + static_cast<std::int32_t>(below(high - low + 1)); }

 private:
  std::uint64_t state_ = 1;
};

/// The search: given orders, then patterns, then moves of single computations in the best.
class OrderSearch {
 public:
  OrderSearch(const OrderProblem& problem, std::int64_t bound)
      : problem_{problem}, bound_{bound}, planner_{problem}, clock_{problem}, next_{problem} {
    const auto own = stages_of_devices(problem);
    for (const auto& stages : own) {
      std::int64_t work = 0;
      for (const int s : stages) {
        const OrderStage& stage = problem.stages[static_cast<std::size_t>(s)];
        work += (stage.forward + stage.backward_input + stage.backward_weight) * problem.microbatches;
      }
      max_work_ = std::max(max_work_, work);
      computations_ += static_cast<std::int64_t>(stages.size()) * 3 * problem.microbatches;
    }
    computation_ = std::max<std::int64_t>(max_work_ * static_cast<std::int64_t>(own.size()) / computations_, 1);
  }

  /// Takes the order if it respects the limits, can run, and beats the best so far.
  bool offer(const OrderWords& words) {
    ++moves_;
    for (std::size_t d = 0; d < words.size(); ++d) {
      if (peak_held(problem_, words[d]) > problem_.limits[d]) return false;
    }
    return clock_.run(words) && take(clock_, words);
  }

  /// Patterns that do well, and some drawn at random; then small changes are tried on each of the
  /// best few, and then on the best of these.
  void try_patterns(std::int64_t moves) {
    std::vector<Tried> best;  // shortest first
    const std::int64_t drawn_ones = std::max<std::int64_t>(moves / 4, 1);
    for (std::int64_t i = 0; i < drawn_ones && !is_done(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const OrderPattern pattern = at < known.size() ? known[at] : drawn();
      best.push_back({time(pattern), pattern});
      std::sort(best.begin(), best.end(), [](const Tried& one, const Tried& other) { return one.time < other.time; });
      if (best.size() > few) best.pop_back();
    }
    if (best.empty()) return;
    for (Tried& one : best) improve(one, moves / 2 / static_cast<std::int64_t>(few));
    improve(
        *std::min_element(best.begin(), best.end(), [](const Tried& one, const Tried& other) { return one.time < other.time; }),
        moves / 4);
  }

  /// Drops the starting points of the moves, but keeps the best.
  void begin_round() { round_ = {}; }

  /// Moves computations along the longest path of this round's best order, each a few places
  /// earlier or later on its device. What makes the order longer is also accepted, with a shrinking
  /// margin, to escape local optima.
  void move_computations(std::int64_t moves) {
    if (round_.words.empty() || is_done()) return;
    OrderWords words = round_.words;
    clock_.run(words);
    walk_longest_path(words);
    std::int64_t now = height(clock_);
    for (std::int64_t i = 0; i < moves && !is_done(); ++i) {
      const std::size_t device = draw_move(words);
      auto& word = words[device];
      if (std::mismatch(word.begin(), word.end(), changed_word_.begin()).first == word.end()) continue;
      word.swap(changed_word_);
      ++moves_;
      const std::int64_t may = computation_ * (heights / 256) * ((moves - i) * 64 / moves);  // a quarter of one at first
      if (peak_held(problem_, word) > problem_.limits[device] || !next_.run(words) ||
          height(next_) > now + random_.below(may + 1)) {
        word.swap(changed_word_);
        continue;
      }
      now = height(next_);
      std::swap(clock_, next_);
      take(clock_, words);
      walk_longest_path(words);
    }
  }

  /// Nothing can be gained: no order has a shorter makespan, none a shorter span.
  bool is_done() const { return best_.time == Time{bound_, max_work_}; }
  const OrderWords& best() const { return best_.words; }
  std::int64_t makespan() const { return best_.time.first; }
  std::int64_t moves() const { return moves_; }
  std::int64_t computations() const { return computations_; }

 private:
  static constexpr std::int64_t heights = 4096;  ///< steps of height() a unit of time
  static constexpr std::size_t few = 4;
  /// Forms of a V: steps of one slot down and up, of two down and one up, and between these.
  static constexpr std::array<OrderPattern, 5> known{{
      {},
      {.lead = 12},
      {.slope = {32, 16, 32, 16}, .turn = {1, 3, 1}, .lead = 12, .wait = 4, .weight_wait = 0},
      {.slope = {32, 24, 32, 32}, .turn = {0, -1, 1}, .lead = 6, .wait = 12, .weight_wait = 0},
      {.slope = {24, 16, 32, 16}, .weight = 20, .lead = 12, .wait = 4, .weight_wait = 0},
  }};
  using Time = std::pair<std::int64_t, std::int64_t>;  // makespan, span
  static constexpr Time endless{std::numeric_limits<std::int64_t>::max(), 0};
  struct Tried {
    Time time;
    OrderPattern pattern;
  };
  struct Timed {
    Time time = endless;
    OrderWords words = {};
  };
  struct Place {
    std::size_t device;
    std::size_t at;
  };

  /// The score of the pattern's order, which is kept if it is the best so far.
  Time time(const OrderPattern& pattern) {
    const OrderWords words = planner_.lay(pattern);
    ++moves_;
    if (words.empty() || !clock_.run(words)) return endless;
    take(clock_, words);
    return {clock_.makespan(), clock_.span()};
  }

  void improve(Tried& one, std::int64_t moves) {
    for (std::int64_t i = 0; i < moves && !is_done(); ++i) {
      const OrderPattern pattern = changed(one.pattern);
      const Time then = time(pattern);
      if (then <= one.time) one = {then, pattern};
    }
  }

  bool take(const OrderClock& clock, const OrderWords& words) {
    const Time time{clock.makespan(), clock.span()};
    if (time < round_.time) round_ = {time, words};
    if (time >= best_.time) return false;
    best_ = {time, words};
    return true;
  }

  /// The objective of the moves: the makespan, and a little of the devices' mean end, which shows a
  /// gain before the makespan does.
  std::int64_t height(const OrderClock& clock) const {
    return clock.makespan() * heights + clock.sum_of_ends() * 4 / static_cast<std::int64_t>(problem_.limits.size());
  }

  OrderPattern drawn() {
    OrderPattern pattern;
    const std::int32_t down = 8 * random_.between(1, 7);
    const std::int32_t up = 8 * random_.between(1, 7);
    const bool alike = random_.below(2) == 0;  // backwards spaced like forwards
    for (int i = 0; i < 4; ++i) pattern.slope[i] = alike ? (i % 2 == 0 ? down : up) : 8 * random_.between(1, 7);
    for (auto& turn : pattern.turn) turn = random_.between(-1, 5);
    pattern.lead = drawn_lead();
    pattern.weight = random_.below(2) == 0 ? OrderPattern::never : random_.between(0, 48);
    pattern.wait = random_.between(0, 24);
    pattern.weight_wait = random_.below(2) == 0 ? 0 : random_.between(0, 16);
    return pattern;
  }
  std::int32_t drawn_lead() { return random_.below(4) == 0 ? OrderPattern::never : random_.between(4, 13); }

  OrderPattern changed(OrderPattern pattern) {
    for (int count = random_.between(1, 3); count > 0; --count) {
      switch (random_.below(9)) {
        case 0:
        case 1: {
          auto& slope = pattern.slope[random_.below(4)];
          slope = std::clamp(slope * random_.between(20, 52) / 32, 1, 256);
          break;
        }
        case 2:
          pattern.slope[random_.below(4)] = 16 * random_.between(1, 4);
          break;
        case 3:
          pattern.lead = drawn_lead();
          break;
        case 4:
          pattern.weight = random_.below(3) == 0 ? OrderPattern::never : random_.between(0, 48);
          break;
        case 5:
          pattern.wait = random_.between(0, 24);
          break;
        case 6:
          pattern.weight_wait = random_.between(0, 16);
          break;
        case 7:
          pattern.turn[random_.below(3)] = random_.between(-1, 5);
          break;
        default:
          pattern.even = !pattern.even;
          break;
      }
    }
    return pattern;
  }

  /// Follows the longest path back from the last end: each computation starts when its predecessor
  /// on the device ends, or its input arrives.
  void walk_longest_path(const OrderWords& words) {
    const std::size_t stages = problem_.stages.size();
    const auto microbatches = static_cast<std::size_t>(problem_.microbatches);
    where_.resize(3 * stages * microbatches);
    const auto slot = [&](std::int32_t step, std::int32_t microbatch) -> std::size_t& {
      return where_[static_cast<std::size_t>(step) * microbatches + static_cast<std::size_t>(microbatch)];
    };
    Place at{0, 0};
    for (std::size_t d = 0; d < words.size(); ++d) {
      if (clock_.end_of_device(d) == clock_.makespan()) at.device = d;
      for (std::size_t i = 0; i < words[d].size(); ++i) slot(words[d][i], clock_.microbatch(d, i)) = i;
    }
    at.at = words[at.device].size() - 1;
    path_.clear();
    while (true) {
      path_.push_back(at);
      const std::int64_t start = clock_.start(at.device, at.at);
      if (start == 0) return;
      const std::int32_t step = words[at.device][at.at];
      const std::int32_t microbatch = clock_.microbatch(at.device, at.at);
      const auto s = static_cast<std::size_t>(step / 3);
      const int kind = step % 3;
      const std::size_t from = kind == order_forward ? s - 1 : s + 1;  // wraps round at the ends
      bool waited = false;
      if (kind != order_weight && from < stages) {
        waited = clock_.end(kind, from, microbatch) + problem_.stages[std::min(s, from)].hop == start;
      }
      if (at.at > 0 && waited) {
        const std::int32_t before = words[at.device][at.at - 1];
        const std::int64_t end =
            clock_.start(at.device, at.at - 1) + time_of(problem_.stages[static_cast<std::size_t>(before / 3)], before % 3);
        waited = end < start || random_.below(2) == 0;
      }
      if (waited) {
        at = {static_cast<std::size_t>(problem_.stages[from].device),
              slot(static_cast<std::int32_t>(from) * 3 + kind, microbatch)};
      } else {
        --at.at;
      }
    }
  }

  /// Draws a device and a changed order of its computations, changed_word_.
  std::size_t draw_move(const OrderWords& words) {
    const Place place = path_[static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(path_.size())))];
    std::size_t device = place.device;
    auto at = static_cast<std::int64_t>(place.at);
    auto last = static_cast<std::int64_t>(words[device].size()) - 1;
    std::int64_t from = at;
    std::int64_t to = at;
    const std::int64_t kind = random_.below(12);
    if (kind < 5) {  // a computation on the path moves earlier
      to = at - 1 - random_.below(kind < 3 ? 1 : 6);
    } else if (kind < 8) {  // one before it moves later
      from = at - 1 - random_.below(3);
      to = at + random_.below(random_.below(4) == 0 ? 30 : 8);
    } else if (kind < 10) {  // any other moves
      device = static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(words.size())));
      last = static_cast<std::int64_t>(words[device].size()) - 1;
      if (last < 0) last = 0;
      from = random_.below(last + 1);
      to = from - random_.below(12) + random_.below(6);
    }
    const auto& word = words[device];
    changed_word_ = word;
    if (kind >= 10) {  // two neighbours swap, and the same pair in adjacent microbatches
      const std::int64_t many = std::int64_t{12} << random_.below(6);
      swap_neighbours(place.at, place.at > static_cast<std::size_t>(many) ? place.at - static_cast<std::size_t>(many) : 0,
                      place.at + static_cast<std::size_t>(many));
    } else if (!word.empty()) {
      const auto within = [&](std::int64_t i) { return static_cast<std::size_t>(std::clamp<std::int64_t>(i, 0, last)); };
      shift(changed_word_, within(from), within(to));
    }
    return device;
  }

  /// Swaps two neighbours in changed_word_, at `at` and before it, and wherever from `begin` to
  /// `end` the same two are adjacent.
  void swap_neighbours(std::size_t at, std::size_t begin, std::size_t end) {
    if (at == 0) return;
    const std::int32_t first = changed_word_[at - 1];
    const std::int32_t second = changed_word_[at];
    for (std::size_t i = begin + 1; i < std::min(end, changed_word_.size()); ++i) {
      if (changed_word_[i - 1] != first || changed_word_[i] != second) continue;
      std::swap(changed_word_[i - 1], changed_word_[i]);
      ++i;
    }
  }

  static void shift(std::vector<std::int32_t>& word, std::size_t from, std::size_t to) {
    const auto at = [&](std::size_t i) { return word.begin() + static_cast<std::ptrdiff_t>(i); };
    if (from > to) {
      std::rotate(at(to), at(from), at(from + 1));
    } else {
      std::rotate(at(from), at(from + 1), at(to + 1));
    }
  }

  const OrderProblem& problem_;
  std::int64_t bound_;
  OrderPlanner planner_;
  OrderClock clock_;
  OrderClock next_;
  OrderRandom random_;
  std::int64_t max_work_ = 0;      ///< of one device
  std::int64_t computations_ = 0;  ///< on all devices
  std::int64_t computation_ = 1;   ///< mean duration of a computation
  Timed best_;
  Timed round_;
  std::int64_t moves_ = 0;
  std::vector<Place> path_;
  std::vector<std::size_t> where_;
  std::vector<std::int32_t> changed_word_;
};

}  // namespace tawpipe::schedules::detail
