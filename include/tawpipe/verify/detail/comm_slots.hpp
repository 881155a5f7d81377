// Scarce slots: the result can depend on which communication a device starts first, so all states
// are searched.
// Not: programs with enough slots (comm_run.hpp).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/verify/detail/comm_run.hpp"

namespace tawpipe::inline v0::detail {

/// The limit on states searched.
inline constexpr std::size_t max_comm_states = 200'000;

/// A state in which nothing can proceed although not everything has ended, if some order of starts
/// leads there.
/// @throws InputError  if there are more than max_comm_states states.
inline std::optional<CommRun> find_hang_with_slots(const CommUnits& units) {
  const int slots = units.program().slots;
  CommRun begin{units};
  begin.run(true);
  std::vector<CommRun> open{std::move(begin)};
  std::set<std::string> seen;
  while (!open.empty()) {
    const CommRun state = std::move(open.back());
    open.pop_back();
    std::string key;
    for (const UnitState unit : state.states()) key += static_cast<char>(unit);
    if (!seen.insert(std::move(key)).second) continue;
    if (seen.size() > max_comm_states) {
      throw InputError(concat("more than ", max_comm_states, " states; with slots a program must be smaller to be proven"));
    }
    bool moves = false;
    for (std::size_t u = 0; u < units.units().size(); ++u) {
      const auto unit = static_cast<std::int32_t>(u);
      const CommUnit& cut = units.unit(unit);
      if (!cut.communicates || !state.is_ready(unit) || state.running(cut.rank) >= slots) continue;
      moves = true;
      open.push_back(state);
      open.back().start(unit);
    }
    if (!moves && !state.has_ended()) return state;
  }
  return std::nullopt;
}

}  // namespace tawpipe::detail
