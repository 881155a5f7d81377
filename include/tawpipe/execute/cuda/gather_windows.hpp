// Which communicators may have a window over their members' memory: those that only gather, each
// time to equal places of memory of equal size.
// Not: the windows themselves (rank_communicators.hpp, nccl_api.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tawpipe/execute/cuda/communicators.hpp"
#include "tawpipe/execute/cuda/rank_steps.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::cuda {

/// One rank's all-gathers in an iteration.
struct GatherCount {
  std::int64_t all = 0;
  std::int64_t in_windows = 0;  ///< of these
};

/// What members must have in common before their communicator has a window. NCCL does not check it:
/// it copies to the place in each member's memory where its own result is.
///
/// Each rank puts its own numbers; when all have the largest of each, a number x was the same on
/// all ranks that put one where max(x) = -max(-x).
class GatherPlaces {
 public:
  GatherPlaces(const Schedule& schedule, const CommunicatorPlan& plan)
      : plan_{plan}, slot_of_(plan.members.size(), -1), slot_of_task_(plan.of_task.size(), -1) {
    std::vector<char> only(plan.members.size(), 1);  // [communicator] no other collective's destination is known to NCCL
    const auto each = [&](auto&& visit) {
      for (std::size_t t = 0; t < plan.of_task.size(); ++t) {
        if (plan.of_task[t] >= 0) visit(t, static_cast<std::size_t>(plan.of_task[t]));
      }
    };
    each([&](std::size_t t, std::size_t c) { only[c] = only[c] != 0 && gathers(schedule.tasks()[t].op) ? 1 : 0; });
    each([&](std::size_t t, std::size_t c) {
      if (only[c] == 0) return;
      if (slot_of_[c] < 0) slot_of_[c] = add();
      slot_of_task_[t] = add();
    });
  }

  /// Puts this rank's. @param memory  of its messages; empty: it can have no window
  template <DeviceApi Device>
  void put(const RankSteps<Device>& steps, std::span<const std::byte> memory) {
    for (const auto& step : steps.steps()) {
      const std::int32_t slot = step.notice || step.communicator < 0 ? -1 : slot_of_task_[index(step.task)];
      if (slot < 0) continue;
      const auto c = static_cast<std::size_t>(plan_.of_task[index(step.task)]);
      put(slot_of_[c], memory.empty() ? never : static_cast<double>(memory.size()));
      const auto is_inside = [&](const std::byte* at) { return at >= memory.data() && at < memory.data() + memory.size(); };
      const bool inside = is_inside(step.to) && is_inside(step.from);
      put(slot, inside ? static_cast<double>(step.to - memory.data()) : never);
    }
  }
  /// Of which every rank must get the largest of all ranks'.
  std::span<double> numbers() { return numbers_; }
  /// Then: [communicator of the plan] whether its members agree. The same on all ranks.
  std::vector<char> agreed() const {
    std::vector<char> all(slot_of_.size(), 0);
    for (std::size_t c = 0; c < all.size(); ++c) all[c] = slot_of_[c] >= 0 && equal(slot_of_[c]) ? 1 : 0;
    for (std::size_t t = 0; t < slot_of_task_.size(); ++t) {
      if (slot_of_task_[t] >= 0 && !equal(slot_of_task_[t])) all[static_cast<std::size_t>(plan_.of_task[t])] = 0;
    }
    return all;
  }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();  ///< equal to no number's opposite

  std::int32_t add() {
    numbers_.resize(numbers_.size() + 2, -never);
    return static_cast<std::int32_t>(numbers_.size() / 2) - 1;
  }
  void put(std::int32_t slot, double number) {
    double* const pair = numbers_.data() + 2 * slot;
    pair[0] = std::max(pair[0], number);
    pair[1] = std::max(pair[1], number == never ? never : -number);
  }
  bool equal(std::int32_t slot) const {
    const double* const pair = numbers_.data() + 2 * slot;
    return pair[0] == -pair[1];
  }

  const CommunicatorPlan& plan_;
  std::vector<std::int32_t> slot_of_;       ///< [communicator] -1: it does not only gather
  std::vector<std::int32_t> slot_of_task_;  ///< [task] -1: not of such a communicator
  std::vector<double> numbers_;
};

}  // namespace tawpipe::cuda
