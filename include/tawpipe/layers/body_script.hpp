// The operations of one pass in the order of the mathematics, laid over the steps of a body.
// Not: what the operations do (layers/host/tensor_llama.hpp) nor the body (model/shared_stage.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/shared_stage.hpp"

namespace tawpipe::inline v0::layers {

/// Collects operations and collectives, each with what it waits for, then finds the body's step for
/// each. The body must have exactly these collectives, in this order and of this size, and its
/// dependencies must order what reads and gives their numbers: a body without a sum, or with a step
/// that does not wait for it, is refused.
class BodyScript {
 public:
  static constexpr int nothing = -1;

  /// A computation. @param after  the collective whose numbers it reads, as returned by exchange()
  /// @return its index
  int compute(std::uint8_t code, std::int32_t layer, int after = nothing, std::int32_t block = 0) {
    Item item{.operation = {code, layer, block, again_}};
    item.after = after;
    item.apart = std::exchange(apart_, false);
    items_.push_back(item);
    return last();
  }
  /// A collective of tensor-parallel ranks. @param given_by  the computation that makes what it sends.
  /// @param bytes  as BodyStep::bytes
  int exchange(std::uint8_t code, std::int32_t layer, BodyStep::Kind kind, bool gradients, std::int64_t bytes, int given_by) {
    return exchange({code, layer}, {.kind = kind, .gradients = gradients, .bytes = Bytes{bytes}}, given_by);
  }
  /// A collective. @param like  with its kind, axis, sizes and payload
  int exchange(const StepOperation& operation, const BodyStep& like, int given_by) {
    Item item{.operation = operation, .like = like};
    item.operation.again = again_;
    item.after = given_by;
    items_.push_back(item);
    return last();
  }
  /// What was added last waits for another collective too.
  void also_after(int collective) { items_.back().also = collective; }
  /// Whether what is added next is of a forward that a backward repeats.
  void repeats(bool again) { again_ = again; }
  /// The next computation is in a later step than those before it, as the body begins one there.
  void apart() { apart_ = true; }
  int last() const { return static_cast<int>(items_.size()) - 1; }

  /// @throws ScheduleError  naming the step that differs.
  /// Complexity: O(steps squared)
  StepPlan over(const StageBody& body, const Passes& passes, const SharedPart& part) const {
    const std::string_view what = passes.forward ? "forward" : "backward";
    StepPlan plan{.passes = passes, .part = part, .operations = {}, .flops = {}};
    plan.operations.resize(body.size());
    for (const BodyStep& step : body) plan.flops.push_back(step.flops);
    const std::vector<std::vector<char>> ended = reach(body);
    std::vector<std::size_t> step_of(items_.size(), 0);
    std::size_t at = 0;    // the last step that has an operation
    std::size_t next = 0;  // the next collective is looked for from here
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const Item& item = items_[i];
      const bool computes = item.like.is_compute();
      std::size_t s = computes ? at + (item.apart ? 1 : 0) : next;
      const auto fits = [&](std::size_t step) {
        if (body[step].is_compute() != computes) return false;
        return !computes || (has_ended(item.after, ended[step], step_of) && has_ended(item.also, ended[step], step_of));
      };
      while (s < body.size() && !fits(s)) ++s;
      if (s == body.size()) refuse(what, i, computes ? "no step of the body waits for its numbers" : "the body has no such step");
      if (!computes) check(what, i, body[s], ended[s], step_of);
      step_of[i] = s;
      plan.operations[s].push_back(item.operation);
      at = computes || s > at ? s : at;
      if (!computes) next = s + 1;
    }
    for (std::size_t s = next; s < body.size(); ++s) {
      if (!body[s].is_compute()) refuse(what, items_.size(), concat("the body has a further ", name(body[s].kind)));
    }
    return plan;
  }

 private:
  struct Item {
    StepOperation operation;
    BodyStep like = {};
    int after = nothing;
    int also = nothing;
    bool apart = false;
  };

  /// Whether an item has ended when a step begins; `nothing` has.
  static bool has_ended(int item, const std::vector<char>& ended, const std::vector<std::size_t>& step_of) {
    return item == nothing || ended[step_of[static_cast<std::size_t>(item)]] != 0;
  }

  /// [step][earlier] whether a step has ended when another begins: those it waits for, and of
  /// computations and of each axis's collectives the one before.
  static std::vector<std::vector<char>> reach(const StageBody& body) {
    std::vector<std::vector<char>> ended(body.size(), std::vector<char>(body.size(), 0));
    int before[body_axes + 1] = {-1, -1, -1, -1};
    for (std::size_t s = 0; s < body.size(); ++s) {
      const auto follow = [&](std::int32_t earlier) {
        if (earlier < 0) return;
        ended[s][static_cast<std::size_t>(earlier)] = 1;
        for (std::size_t e = 0; e < s; ++e)
          ended[s][e] = static_cast<char>(ended[s][e] | ended[static_cast<std::size_t>(earlier)][e]);
      };
      int& lane = before[body[s].is_compute() ? 0 : 1 + static_cast<int>(body[s].axis)];
      for (const std::int32_t earlier : body[s].after) follow(earlier);
      follow(std::exchange(lane, static_cast<int>(s)));
    }
    return ended;
  }

  void check(std::string_view what, std::size_t i, const BodyStep& step, const std::vector<char>& ended,
             const std::vector<std::size_t>& step_of) const {
    const Item& item = items_[i];
    const BodyStep& like = item.like;
    if (step.kind != like.kind || step.axis != like.axis || step.gradients != like.gradients) {
      refuse(what, i, concat("the body has a ", name(step.kind), " of ", name(step.axis), " ranks there"));
    }
    if (step.inner != like.inner || step.relayed != like.relayed) {
      refuse(what, i, concat("the body's ", name(step.kind), " is among ", step.inner, " neighbours"));
    }
    if (step.bytes != like.bytes || step.pieces != 1) {
      refuse(what, i, concat("the body's ", name(step.kind), " has ", step.bytes.value(), " bytes in ", step.pieces, " pieces"));
    }
    if (!has_ended(item.after, ended, step_of)) {
      refuse(what, i, "the body's does not wait for what it sends");
    }
  }
  [[noreturn]] void refuse(std::string_view what, std::size_t i, const std::string& why) const {
    std::string item = "the end";
    if (i < items_.size()) {
      const BodyStep& like = items_[i].like;
      item = like.is_compute() ? concat("operation ", i)
                               : concat("operation ", i, ", a ", name(like.kind), " of ", like.bytes.value(), " bytes");
    }
    throw ScheduleError(concat("the steps of a ", what, " cannot be computed: at ", item, " of a layer's code ", why));
  }

  std::vector<Item> items_;
  bool apart_ = false;
  bool again_ = false;
};

}  // namespace tawpipe::layers
