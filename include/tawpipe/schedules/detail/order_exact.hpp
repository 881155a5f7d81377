// The shortest order of a small pipeline, by enumerating all orders that could be shorter than a
// known one.
// Not: for large pipelines, where it gives up (schedules/order_search.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tawpipe/schedules/order_problem.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// Branch and bound, one computation a level. Two prefixes of orders that have run the same
/// computations have the same ones left and hold the same memory; a prefix whose devices and
/// messages are all no later dominates the other.
class ExactOrder {
 public:
  enum class Verdict { proven, found, gave_up };

  explicit ExactOrder(const OrderProblem& problem)
      : problem_{problem}, stages_{problem.stages.size()}, microbatches_{static_cast<std::size_t>(problem.microbatches)} {
    std::int64_t after = problem.stages[0].backward_weight;
    tails_.resize(2 * stages_);
    for (std::size_t s = 0; s < stages_; ++s) {
      tails_[2 * s + 1] = after += problem.stages[s].backward_input;
      if (s + 1 < stages_) after += problem.stages[s].hop;
    }
    for (std::size_t s = stages_; s-- > 0;) {
      tails_[2 * s] = after += problem.stages[s].forward;
      if (s > 0) after += problem.stages[s - 1].hop;
    }
  }

  /// Looks for an order shorter than `makespan`, keeping at most `most` prefixes at a time.
  /// @return proven: there is none; found: words() is the shortest; gave_up: there were too many
  /// prefixes
  Verdict run(std::int64_t makespan, std::size_t most) {
    const std::size_t computations = 3 * stages_ * microbatches_;
    Node root;
    root.done.resize(3 * stages_);
    root.clock.resize(problem_.limits.size());
    root.ends.resize(2 * stages_ * microbatches_, -1);
    levels_.assign(1, {root});
    for (std::size_t level = 0; level < computations; ++level) {
      std::map<std::vector<std::uint16_t>, std::vector<std::size_t>> same;
      std::vector<Node> next;
      for (std::size_t parent = 0; parent < levels_[level].size(); ++parent)
        expand(levels_[level][parent], parent, makespan, next, same);
      for (Node& node : levels_[level]) std::vector<std::int64_t>{}.swap(node.ends);
      if (next.empty()) return Verdict::proven;
      if (next.size() > most) return Verdict::gave_up;
      levels_.push_back(std::move(next));
    }
    const auto end = [](const Node& node) { return *std::max_element(node.clock.begin(), node.clock.end()); };
    std::size_t at = 0;
    for (std::size_t i = 1; i < levels_.back().size(); ++i) {
      if (end(levels_.back()[i]) < end(levels_.back()[at])) at = i;
    }
    words_.assign(problem_.limits.size(), {});
    for (std::size_t level = computations; level > 0; --level) {
      const Node& node = levels_[level][at];
      words_[device_of(node.step)].push_back(node.step);
      at = node.parent;
    }
    for (auto& word : words_) std::reverse(word.begin(), word.end());
    return Verdict::found;
  }

  const OrderWords& words() const { return words_; }

 private:
  struct Node {
    std::vector<std::uint16_t> done;  ///< [stage][kind] microbatches
    std::vector<std::int64_t> clock;  ///< [device]
    std::vector<std::int64_t> ends;   ///< [stage][forward, input][microbatch]; -1: not yet
    std::size_t parent = 0;
    std::int32_t step = -1;  ///< the last
    bool superfluous = false;
  };

  std::size_t device_of(std::int32_t step) const {
    return static_cast<std::size_t>(problem_.stages[static_cast<std::size_t>(step / 3)].device);
  }
  std::size_t place(int kind, std::size_t stage, std::size_t microbatch) const {
    return (2 * stage + static_cast<std::size_t>(kind)) * microbatches_ + microbatch;
  }

  /// When the next of this kind could start, or -1 while its input does not exist.
  std::int64_t start(const Node& node, std::size_t s, int kind) const {
    const std::size_t next = node.done[3 * s + static_cast<std::size_t>(kind)];
    if (next >= microbatches_) return -1;
    const std::int64_t clock = node.clock[static_cast<std::size_t>(problem_.stages[s].device)];
    if (kind != order_forward && node.done[3 * s + static_cast<std::size_t>(kind) - 1] <= next) return -1;
    const std::size_t from = kind == order_forward ? s - 1 : s + 1;  // wraps round at the ends
    if (kind == order_weight || from >= stages_) return clock;
    const std::int64_t end = node.ends[place(kind, from, next)];
    return end < 0 ? -1 : std::max(clock, end + problem_.stages[std::min(s, from)].hop);
  }

  bool has_room(const Node& node, std::size_t stage, int kind) const {
    std::int64_t held = needs(problem_.stages[stage], kind);
    for (std::size_t s = 0; s < stages_; ++s) {
      const OrderStage& own = problem_.stages[s];
      if (own.device != problem_.stages[stage].device) continue;
      held += (node.done[3 * s] - node.done[3 * s + 1]) * own.saved +
              (node.done[3 * s + 1] - node.done[3 * s + 2]) * (own.kept + own.stash);
    }
    return held <= problem_.limits[static_cast<std::size_t>(problem_.stages[stage].device)];
  }

  /// A lower bound on the end of any order with this prefix.
  std::int64_t bound(const Node& node) const {
    std::vector<std::int64_t> ends = node.clock;
    std::int64_t bound = 0;
    for (std::size_t s = 0; s < stages_; ++s) {
      const OrderStage& stage = problem_.stages[s];
      const auto device = static_cast<std::size_t>(stage.device);
      for (const int kind : {order_forward, order_input, order_weight}) {
        const auto left = static_cast<std::int64_t>(microbatches_) - node.done[3 * s + static_cast<std::size_t>(kind)];
        ends[device] += left * time_of(stage, kind);
        if (left > 0 && kind != order_weight) {
          const std::int64_t from = std::max(node.clock[device], start(node, s, kind));
          bound = std::max(bound, from + (left - 1) * time_of(stage, kind) + tails_[2 * s + static_cast<std::size_t>(kind)]);
        }
      }
    }
    return std::max(bound, *std::max_element(ends.begin(), ends.end()));
  }

  void expand(const Node& node, std::size_t parent, std::int64_t makespan, std::vector<Node>& next,
              std::map<std::vector<std::uint16_t>, std::vector<std::size_t>>& same) const {
    if (node.superfluous) return;
    // A computation that only frees memory, and fits before any other of its device can start, may
    // as well run first.
    std::vector<std::int64_t> fits(problem_.limits.size(), INT64_MAX);
    for (std::size_t s = 0; s < stages_; ++s) {
      for (const int kind : {order_input, order_weight}) {
        const std::int64_t from = start(node, s, kind);
        auto& earliest = fits[static_cast<std::size_t>(problem_.stages[s].device)];
        if (from >= 0 && (kind == order_weight || problem_.stages[s].stash == 0))
          earliest = std::min(earliest, from + time_of(problem_.stages[s], kind));
      }
    }
    for (std::size_t s = 0; s < stages_; ++s) {
      const OrderStage& stage = problem_.stages[s];
      const auto device = static_cast<std::size_t>(stage.device);
      for (const int kind : {order_forward, order_input, order_weight}) {
        const std::int64_t from = start(node, s, kind);
        const std::int64_t takes = time_of(stage, kind);
        if (from < 0 || (from >= fits[device] && takes > 0) || !has_room(node, s, kind)) continue;
        Node child = node;
        child.parent = parent;
        child.step = static_cast<std::int32_t>(3 * s) + kind;
        std::uint16_t& done = child.done[3 * s + static_cast<std::size_t>(kind)];
        child.clock[device] = from + takes;
        if (kind != order_weight) child.ends[place(kind, s, done)] = from + takes;
        ++done;
        if (bound(child) < makespan) keep(std::move(child), next, same);
      }
    }
  }

  void keep(Node&& child, std::vector<Node>& next, std::map<std::vector<std::uint16_t>, std::vector<std::size_t>>& same) const {
    auto& others = same[child.done];
    for (const std::size_t other : others) {
      if (!next[other].superfluous && is_no_later(next[other], child)) return;
    }
    for (const std::size_t other : others) {
      if (is_no_later(child, next[other])) next[other].superfluous = true;
    }
    others.push_back(next.size());
    next.push_back(std::move(child));
  }

  /// For two prefixes that have run the same computations: whether no device and no unused message
  /// of one is later than the other's.
  bool is_no_later(const Node& one, const Node& other) const {
    for (std::size_t d = 0; d < one.clock.size(); ++d) {
      if (one.clock[d] > other.clock[d]) return false;
    }
    for (std::size_t s = 0; s < stages_; ++s) {
      for (const int kind : {order_forward, order_input}) {
        const std::size_t to = kind == order_forward ? s + 1 : s - 1;
        if (to >= stages_) continue;
        const std::int64_t hop = problem_.stages[std::min(s, to)].hop;
        const std::int64_t clock = other.clock[static_cast<std::size_t>(problem_.stages[to].device)];
        const auto k = static_cast<std::size_t>(kind);
        for (std::size_t m = one.done[3 * to + k]; m < one.done[3 * s + k]; ++m) {
          const std::int64_t end = one.ends[place(kind, s, m)];
          if (end > other.ends[place(kind, s, m)] && end + hop > clock) return false;
        }
      }
    }
    return true;
  }

  const OrderProblem& problem_;
  std::size_t stages_;
  std::size_t microbatches_;
  /// [stage][forward, input] from its start to the end of all that must follow it
  std::vector<std::int64_t> tails_;
  std::vector<std::vector<Node>> levels_;
  OrderWords words_;
};

}  // namespace tawpipe::schedules::detail
