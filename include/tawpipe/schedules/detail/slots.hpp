// Orders drawn on a grid of equal time slots: every computation gets a slot, and the rank runs them
// by slot.
// Not: when they run, which their real times decide.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0::schedules::detail {

/// A computation and its slot. No two of one rank share a slot.
struct Slotted {
  std::int64_t slot;
  Action action;
};

inline std::vector<Action> in_order(std::vector<Slotted> slotted) {
  std::sort(slotted.begin(), slotted.end(), [](const Slotted& a, const Slotted& b) { return a.slot < b.slot; });
  std::vector<Action> actions;
  for (const Slotted& one : slotted) actions.push_back(one.action);
  return actions;
}

}  // namespace tawpipe::schedules::detail
