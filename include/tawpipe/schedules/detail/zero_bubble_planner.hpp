// One pass of the zero-bubble heuristic with given choices: lays forwards, backward_inputs and
// backward_weights on one stage a rank, round by round, under a memory limit.
// Not: the search over its choices (schedules/zero_bubble_auto.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/schedules/pipeline_program.hpp"
#include "tawpipe/schedules/zero_bubble_options.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// The choices of the heuristic, each with the option taken.
class ZeroBubbleChoices {
 public:
  /// All choices of a kind take the same option.
  ZeroBubbleChoices(std::size_t stages, std::int32_t microbatches, bool wait, bool skip, bool fill)
      : stages_{stages}, steps_{2 * static_cast<std::size_t>(microbatches)} {
    ways_.insert(ways_.end(), stages_, wait);
    ways_.insert(ways_.end(), stages_ * steps_, skip);
    ways_.insert(ways_.end(), stages_ * steps_, fill);
  }

  /// Before its first backward the stage waits rather than starting a forward that delays it.
  bool wait_for_first(std::size_t stage) const { return ways_[stage]; }
  /// A stage well ahead of the next postpones its forward of this step, if that costs nothing.
  bool skip_forward(std::size_t stage, std::int32_t step) const { return ways_[stages_ + at(stage, step)]; }
  /// A backward_weight longer than the gap before this step is placed there even where a longer
  /// wait elsewhere hides the gap.
  bool fill_gap(std::size_t stage, std::int32_t step) const { return ways_[stages_ * (1 + steps_) + at(stage, step)]; }

  std::size_t size() const { return ways_.size(); }
  void flip(std::size_t place) { ways_[place] = !ways_[place]; }

 private:
  /// A step counts the forwards and backward_inputs before it.
  std::size_t at(std::size_t stage, std::int32_t step) const { return stage * steps_ + static_cast<std::size_t>(step); }

  std::size_t stages_;
  std::size_t steps_;
  std::vector<bool> ways_;
};

/// The heuristic of Qi et al. 2024, arXiv:2401.10241, section 3.1. First each stage runs as many
/// forwards as memory and the first backward's arrival allow, always one more than the next stage.
/// Then rounds of one forward (down the stages) and one backward_input (up the stages);
/// backward_weights fill the remaining gaps, and free memory where it is full.
class ZeroBubblePlanner {
 public:
  ZeroBubblePlanner(const std::vector<ZeroBubbleStage>& stages, std::int64_t hop, std::int32_t microbatches,
                    const ZeroBubbleChoices& choices)
      : hop_{hop}, microbatches_{microbatches}, choices_{choices} {
    for (const ZeroBubbleStage& stage : stages) lines_.push_back({.work = stage});
  }

  void run() {
    warm_up();
    for (std::int32_t round = 1; round < microbatches_; ++round) {
      forward_round();
      backward_round();
    }
    for (Line& line : lines_) {
      while (line.done(weight) < microbatches_) put(line, weight);
    }
  }

  /// The longest time from a stage's first computation to its last.
  std::int64_t span() const {
    std::int64_t longest = 0;
    for (const Line& line : lines_) longest = std::max(longest, line.clock - (line.ends[forward][0] - line.work.forward));
    return longest;
  }

  /// [rank] in order
  std::vector<std::vector<Action>> actions() const {
    constexpr Op ops[] = {Op::forward, Op::backward_input, Op::backward_weight};
    std::vector<std::vector<Action>> all;
    for (std::size_t s = 0; s < lines_.size(); ++s) {
      std::int32_t next[] = {0, 0, 0};
      auto& actions = all.emplace_back();
      for (const Kind kind : lines_[s].order) actions.push_back({ops[kind], static_cast<std::int32_t>(s), next[kind]++});
    }
    return all;
  }

 private:
  enum Kind : std::uint8_t { forward, input, weight };
  /// A stage and its computations so far.
  struct Line {
    ZeroBubbleStage work;
    std::vector<std::int64_t> ends[3] = {};  ///< [kind][microbatch]
    std::vector<Kind> order = {};
    std::int64_t clock = 0;
    std::int64_t waited = 0;  ///< idle time since its first forward
    std::int64_t held = 0;

    std::int32_t done(Kind kind) const { return static_cast<std::int32_t>(ends[kind].size()); }
    bool has_weight() const { return done(weight) < done(input); }
    std::int64_t takes(Kind kind) const {
      return kind == forward ? work.forward : kind == input ? work.backward_input : work.backward_weight;
    }
    std::int64_t needs(Kind kind) const {
      return kind == forward ? work.saved : kind == input ? work.kept - work.saved : -work.kept;
    }
  };

  std::size_t place(const Line& line) const { return static_cast<std::size_t>(&line - lines_.data()); }
  bool is_last(const Line& line) const { return place(line) + 1 == lines_.size(); }

  std::int32_t step(const Line& line) const { return line.done(forward) + line.done(input); }

  /// When the input of the line's next computation of this kind has come; 0 if it needs none from
  /// elsewhere.
  std::int64_t arrival(const Line& line, Kind kind) const {
    const auto next = static_cast<std::size_t>(line.done(kind));
    if (kind == forward && place(line) > 0) return lines_[place(line) - 1].ends[forward][next] + hop_;
    if (kind == input && !is_last(line)) return lines_[place(line) + 1].ends[input][next] + hop_;
    return 0;
  }

  void put(Line& line, Kind kind) {
    const std::int64_t start = std::max(line.clock, arrival(line, kind));
    if (line.done(forward) > 0) {
      line.waited += start - line.clock;
      longest_wait_ = std::max(longest_wait_, line.waited);
    }
    line.clock = start + line.takes(kind);
    line.ends[kind].push_back(line.clock);
    line.order.push_back(kind);
    line.held += line.needs(kind);
  }

  /// Inserts backward_weights before the next `kind`: as many as memory requires, then those that
  /// fit before its input arrives, then one that does not fit, if the wait would otherwise become
  /// the longest of all.
  void put_behind_weights(Line& line, Kind kind) {
    while (line.has_weight() && line.held + line.needs(kind) > line.work.limit) put(line, weight);
    const std::int64_t there = arrival(line, kind);
    while (line.has_weight() && line.clock + line.work.backward_weight <= there) put(line, weight);
    if (line.has_weight() && line.clock < there) {
      const bool hidden = there - line.clock <= longest_wait_ - line.waited;
      if (!hidden || choices_.fill_gap(place(line), step(line))) put(line, weight);
    }
    put(line, kind);
  }

  void warm_up() {
    for (Line& line : lines_) put(line, forward);
    std::vector<std::int32_t> more(lines_.size());
    std::int64_t first_backward = 0;  // the end of the next stage's
    for (std::size_t s = lines_.size(); s-- > 0;) {
      const Line& line = lines_[s];
      std::int64_t clock = line.clock;
      if (s + 1 < lines_.size()) {
        const std::int64_t there = first_backward + hop_;
        const auto fits = [&] {
          if (line.done(forward) + more[s] >= microbatches_) return false;
          if (line.held + (more[s] + 1) * line.work.saved > line.work.limit) return false;
          return choices_.wait_for_first(s) ? clock + line.work.forward <= there : clock < there;
        };
        for (; fits(); ++more[s]) clock += line.work.forward;
        clock = std::max(clock, there);
      }
      first_backward = clock + line.work.backward_input;
    }
    for (std::size_t s = 1; s < lines_.size(); ++s) {
      if (lines_[s - 1].done(forward) + more[s - 1] < microbatches_) more[s] = std::min(more[s], std::max(more[s - 1] - 1, 0));
    }
    for (std::size_t s = 0; s < lines_.size(); ++s) {
      for (std::int32_t i = 0; i < more[s]; ++i) put(lines_[s], forward);
    }
    for (std::size_t s = lines_.size(); s-- > 0;) put(lines_[s], input);
  }

  /// A stage runs a forward of this round only if all after it do.
  void forward_round() {
    std::size_t from = lines_.size();
    for (std::size_t s = lines_.size(); s-- > 0 && wants_forward(lines_[s]);) from = s;
    for (std::size_t s = from; s < lines_.size(); ++s) put_behind_weights(lines_[s], forward);
  }

  bool wants_forward(const Line& line) const {
    if (line.done(forward) >= microbatches_) return false;
    if (is_last(line) || !choices_.skip_forward(place(line), step(line))) return true;
    const Line& next = lines_[place(line) + 1];
    if (line.done(forward) < next.done(forward) + 2) return true;
    // The next stage does not need it yet: it has a forward left. This is the earliest time at
    // which it sends back its next backward.
    const std::int64_t back = next.clock + next.work.forward + next.work.backward_input + hop_;
    if (line.clock >= back) return false;
    std::int64_t clock = line.clock + line.work.forward;
    std::int64_t held = line.held + line.work.saved;
    for (std::int32_t w = line.done(weight); held > line.work.limit && w < line.done(input); ++w) {
      clock += line.work.backward_weight;
      held -= line.work.kept;
    }
    if (clock <= back) return true;
    return back - line.clock > longest_wait_ - line.waited;
  }

  void backward_round() {
    for (std::size_t s = lines_.size(); s-- > 0;) {
      Line& line = lines_[s];
      // No stage waits for the first one: once its forwards are done, pending backward_weights come
      // first.
      const bool flush = s == 0 && line.done(forward) == microbatches_;
      while (flush && line.has_weight()) put(line, weight);
      put_behind_weights(line, input);
    }
  }

  std::int64_t hop_;
  std::int32_t microbatches_;
  const ZeroBubbleChoices& choices_;
  std::vector<Line> lines_;  ///< [stage]
  std::int64_t longest_wait_ = 0;
};

}  // namespace tawpipe::schedules::detail
