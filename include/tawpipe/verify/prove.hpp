// Proves that a program of calls ends under every timing, or shows the cycle in which it hangs.
// Not: how to fix it (verify/mend.hpp). The rules and their sources: docs/hangs.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/verify/comm_program.hpp"
#include "tawpipe/verify/detail/comm_run.hpp"
#include "tawpipe/verify/detail/comm_slots.hpp"
#include "tawpipe/verify/detail/comm_standstill.hpp"

namespace tawpipe::inline v0 {

/// The result of prove().
struct HangVerdict {
  bool ends = false;  ///< under every timing
  /// each waits for the next, the last for the first; members of a group together
  std::vector<std::vector<CallRef>> circle;
  std::vector<CallRef> missing;                 ///< calls without a counterpart
  std::vector<std::vector<CallRef>> differing;  ///< calls of one collective that do not match
  /// matching send and receive, or calls of one collective, that mean different data
  std::vector<std::pair<CallRef, CallRef>> crossed;

  bool is_right() const { return ends && crossed.empty(); }
};

/// Whether the program ends whatever the timing.
///
/// A send and its receive hold their streams until both run, whatever their size. A collective
/// holds the streams of all its ranks until all run. Calls of a group go on independently of each
/// other. Steps only enable further steps, so checking one order of them is enough; with `slots`,
/// all orders are searched.
/// @throws InputError  if a call refers to something that does not exist, or if there are too many
/// states to search (slots).
/// Complexity: O(calls + search for cycles); with slots exponential, and bounded.
inline HangVerdict prove(const CommProgram& program) {
  const detail::CommUnits units{program};
  detail::CommRun run{units};
  if (program.slots > 0) {
    if (std::optional<detail::CommRun> hang = find_hang_with_slots(units)) {
      run = *std::move(hang);
    } else {
      run.run();
    }
  } else {
    run.run();
  }

  HangVerdict verdict;
  verdict.ends = run.has_ended();
  const auto has_ended = [&](std::int32_t call) { return run.state(units.unit_of(call)) == detail::UnitState::ended; };
  for (std::int32_t call = 0; call < static_cast<std::int32_t>(units.calls()); ++call) {
    const CommCall& text = units.call(call);
    if (!is_point_to_point(text.op)) continue;
    const std::int32_t partner = units.partner(call);
    if (partner < 0) {
      verdict.missing.push_back(units.ref(call));
    } else if (text.op == CommOp::send && has_ended(call) && has_ended(partner)) {
      const CommCall& other = units.call(partner);
      const bool other_data = !text.data.empty() && !other.data.empty() && text.data != other.data;
      const bool other_size = text.bytes != other.bytes && text.bytes > 0 && other.bytes > 0;
      if (other_data || other_size) verdict.crossed.emplace_back(units.ref(call), units.ref(partner));
    }
  }
  for (const detail::CommMeeting& meeting : units.meetings()) {
    std::vector<CallRef> made;
    for (const std::int32_t call : meeting.calls) {
      if (call >= 0) made.push_back(units.ref(call));
    }
    if (!meeting.alike) {
      verdict.differing.push_back(std::move(made));
    } else if (made.size() < meeting.calls.size()) {  // a rank makes no call: the others' calls have no counterpart
      verdict.missing.insert(verdict.missing.end(), made.begin(), made.end());
    } else if (has_ended(meeting.first)) {
      const CallRef* named = nullptr;
      for (const CallRef& one : made) {
        const std::string& data = call_at(program, one).data;
        if (data.empty()) continue;
        if (named == nullptr) named = &one;
        if (call_at(program, *named).data != data) verdict.crossed.emplace_back(*named, one);
      }
    }
  }
  if (verdict.ends) return verdict;
  for (const std::int32_t unit : detail::CommStandstill{run}.circle()) {
    auto& calls = verdict.circle.emplace_back();
    run.for_each_call(unit, [&](std::int32_t call) { calls.push_back(units.ref(call)); });
  }
  return verdict;
}

/// "0:send1 + 0:recv1": the calls of one member of a cycle.
inline std::string unit_text(const CommProgram& program, const std::vector<CallRef>& calls) {
  std::string text;
  for (const CallRef& call : calls) text += (text.empty() ? "" : " + ") + call_text(program, call);
  return text;
}

}  // namespace tawpipe
