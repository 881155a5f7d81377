// Why a job hangs, from the recorded calls of its ranks.
// Not: reading a dump (report/flight_recorder.hpp). The verdicts: docs/hangs.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/verify/detail/flight_calls.hpp"
#include "tawpipe/verify/detail/flight_mismatch.hpp"
#include "tawpipe/verify/detail/flight_program.hpp"
#include "tawpipe/verify/flight_record.hpp"
#include "tawpipe/verify/prove.hpp"

namespace tawpipe::inline v0 {

namespace detail {

class FlightDoctor {
 public:
  explicit FlightDoctor(const FlightRecord& record) : record_{record}, calls_{record} {}

  FlightDiagnosis run() {
    describe_waits();
    decide();
    std::sort(out_.culprits.begin(), out_.culprits.end());
    out_.culprits.erase(std::unique(out_.culprits.begin(), out_.culprits.end()), out_.culprits.end());
    return std::move(out_);
  }

 private:
  void decide() {
    if (find_flight_mismatch(calls_, out_)) return;
    const FlightProgram shown{calls_, false};
    const HangVerdict verdict = prove(shown.program());
    if (!verdict.circle.empty()) return tell_circle(FlightVerdict::deadlock, shown, verdict);
    const FlightProgram likely{calls_, true};
    if (const HangVerdict by_launch = prove(likely.program()); !by_launch.circle.empty()) {
      return tell_circle(FlightVerdict::likely_deadlock, likely, by_launch);
    }
    if (!verdict.ends) return find_missing(shown, verdict);
    const bool late = find_late();  // then ranks that owe a call wait for it
    if (find_overdue(late) || (!late && find_owed(shown)) || find_absent()) return;
    find_not_recorded();
  }

  void blame(std::int32_t rank, const FlightCall& call, std::string why) {
    out_.culprits.push_back(
        {rank, calls_.group_of(call).shown(), FlightCalls::number_text(call), std::move(why), calls_.place(call)});
  }

  void describe_waits() {
    for (const FlightDump& dump : record_.dumps) {
      std::set<std::int32_t> groups;
      std::string text;
      std::set<std::int32_t> on;
      for (const FlightCall& call : dump.calls) {
        // Without a device, a call that has returned on another rank may have failed there.
        const bool open = !calls_.has_ended(call) || (calls_.group_of(call).host_only && call.is_open());
        if (!open || !groups.insert(call.group).second) continue;
        text += (text.empty() ? "" : "; ") + calls_.text(call);
        if (call.state == FlightState::scheduled && dump.timed) text += ", not started";
        const std::set<std::int32_t> absent = not_arrived(dump.rank, call);
        on.insert(absent.begin(), absent.end());
      }
      if (!text.empty()) out_.waits.push_back({dump.rank, std::move(text), {on.begin(), on.end()}});
    }
    std::sort(out_.waits.begin(), out_.waits.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  }

  /// The ranks that a call waits for: the other end, or the members of its group that have not
  /// issued or started it.
  std::set<std::int32_t> not_arrived(std::int32_t rank, const FlightCall& call) const {
    if (call.is_point_to_point()) return {call.peer};
    const std::vector<std::int32_t>& members = calls_.group_of(call).ranks;
    std::set<std::int32_t> absent{members.begin(), members.end()};
    absent.erase(rank);
    for (const FlightMade& one : calls_.meeting(call)) {
      if (one.call->state != FlightState::scheduled) absent.erase(one.rank);
    }
    return absent;
  }

  void tell_circle(FlightVerdict kind, const FlightProgram& program, const HangVerdict& verdict) {
    out_.verdict = kind;
    const auto& circle = verdict.circle;
    for (std::size_t i = 0; i < circle.size(); ++i) {
      const std::int32_t rank = circle[i][0].rank;
      if (program.recorded(circle[i][0]) == nullptr) continue;  // told with those before and after it
      const auto& before = circle[(i + circle.size() - 1) % circle.size()];
      const auto& after = circle[(i + 1) % circle.size()];
      std::string why = "waits in a cycle";
      if (program.recorded(before[0]) == nullptr) why += concat(", and owes ", unit_ids(program, before));
      std::string text;
      for (const CallRef& call : circle[i]) {
        text += (text.empty() ? "" : " + ") + call_at(program.program(), call).id;
        blame(rank, *program.recorded(call), why);
      }
      if (program.recorded(after[0]) == nullptr) text += concat(", which rank ", after[0].rank, " has not made");
      out_.circle.push_back(concat("rank ", rank, ": ", text));
    }
  }
  static std::string unit_ids(const FlightProgram& program, const std::vector<CallRef>& calls) {
    std::string text;
    for (const CallRef& call : calls) text += (text.empty() ? "" : " + ") + call_at(program.program(), call).id;
    return text;
  }

  /// The ranks that do not issue the calls that others wait for, and do not wait themselves.
  void find_missing(const FlightProgram& program, const HangVerdict& verdict) {
    std::map<std::int32_t, FlightMade> owed;  // by the rank that owes it: the oldest call that waits for it
    const auto owes = [&](std::int32_t rank, const FlightMade& to) {
      const FlightDump* dump = calls_.dump_of(rank);
      if (dump != nullptr && !calls_.open_calls(*dump).empty()) return;  // it is blocked itself
      const auto [at, added] = owed.try_emplace(rank, to);
      if (!added && to.call->created < at->second.call->created) at->second = to;
    };
    for (const CallRef& ref : verdict.missing) {
      const FlightCall* call = program.recorded(ref);
      if (call == nullptr) continue;
      if (call->is_point_to_point()) {
        owes(call->peer, {ref.rank, call});
      } else {
        for (const std::int32_t rank : calls_.absent_from(FlightCalls::key(*call))) owes(rank, {ref.rank, call});
      }
    }
    out_.verdict = FlightVerdict::undecided;
    for (const auto& [rank, to] : owed) {
      const FlightDump* dump = calls_.dump_of(rank);
      if (dump == nullptr) {
        blame(rank, *to.call, "has no dump");
      } else if (!dump->recorded) {
        blame(rank, *to.call, "recorded none of its calls");
        if (out_.verdict == FlightVerdict::undecided) out_.verdict = FlightVerdict::not_recorded;
      } else {
        blame_owed(rank, to, calls_.group_of(*to.call).host_only ? host_only_text() : "");
      }
    }
  }
  /// Ranks that owe a call to others, and stand in calls to which nothing lacks.
  bool find_owed(const FlightProgram& program) {
    if (program.owed().empty()) return false;
    out_.culprits.clear();
    for (const FlightProgram::Owed& one : program.owed()) blame_owed(one.rank, one.to, "");
    return true;
  }
  void blame_owed(std::int32_t rank, const FlightMade& to, std::string more) {
    const FlightDump& dump = *calls_.dump_of(rank);
    blame(rank, *to.call, concat("never calls ", calls_.counterpart_text(to.rank, *to.call), last_text(dump), more));
    out_.verdict = FlightVerdict::missing;
  }
  /// "; its last call was broadcast (tp, collective 7) at train.py:61"
  std::string last_text(const FlightDump& dump) const {
    if (dump.calls.empty()) return "; it recorded no call";
    const FlightCall& last = dump.calls.back();
    const std::string place = calls_.place(last);
    return concat("; its last call was ", calls_.text(last), place.empty() ? "" : " at ", place);
  }
  static std::string host_only_text() { return "; it may stand in a send or receive, which this back end does not record"; }

  /// Ranks of a collective that have not started it although others have, and nothing precedes it.
  bool find_late() {
    for (const auto& [meeting, made] : calls_.meetings()) {
      if (calls_.has_ended(*made[0].call)) continue;
      const bool some =
          std::any_of(made.begin(), made.end(), [](const FlightMade& m) { return m.call->state == FlightState::started; });
      if (!some) continue;
      for (const FlightMade& one : made) {
        if (one.call->state == FlightState::scheduled) blame(one.rank, *one.call, "is late");
      }
    }
    return !out_.culprits.empty();
  }

  /// A call that is open beyond its limit, although all its counterparts are there, or wait for a
  /// rank that is late.
  /// @pre the program of calls ends
  bool find_overdue(bool late) {
    FlightMade first;
    for (const FlightDump& dump : record_.dumps) {
      for (const FlightCall& call : dump.calls) {
        const bool older = first.call == nullptr || call.created < first.call->created;
        if (!older || !calls_.is_overdue(call)) continue;
        if (late || is_made(dump.rank, call)) first = {dump.rank, &call};
      }
    }
    if (first.call == nullptr) return false;
    std::set<std::int32_t> ranks{first.rank};
    if (first.call->is_point_to_point()) {
      ranks.insert(first.call->peer);
    } else {
      for (const FlightMade& one : calls_.meeting(*first.call)) ranks.insert(one.rank);
    }
    out_.verdict = FlightVerdict::stuck;
    out_.note = concat(calls_.text(*first.call), " of rank ", first.rank, " is open beyond its limit");
    if (first.call->limit > 0) out_.note += concat(" of ", first.call->limit / 1'000'000'000, " s");
    out_.note += is_made(first.rank, *first.call) ? concat("; ranks ", rank_ranges(ranks), " have all made it")
                                                  : "; those that have not made it wait for a rank that is late";
    return true;
  }
  /// Whether its counterparts have been issued.
  bool is_made(std::int32_t rank, const FlightCall& call) const {
    return call.is_point_to_point() ? calls_.has_partner(rank, call) : calls_.absent_from(FlightCalls::key(call)).empty();
  }

  bool find_absent() {
    std::set<std::int32_t> ranks;
    for (const FlightGroup& group : record_.groups) ranks.insert(group.ranks.begin(), group.ranks.end());
    std::erase_if(ranks, [&](std::int32_t rank) { return calls_.dump_of(rank) != nullptr; });
    if (ranks.empty()) return false;
    out_.verdict = FlightVerdict::undecided;
    out_.culprits.clear();
    for (const std::int32_t rank : ranks) out_.culprits.push_back({rank, "", "", "has no dump", ""});
    return true;
  }

  void find_not_recorded() {
    bool any = false;
    for (const FlightDump& dump : record_.dumps) {
      any = any || !dump.calls.empty();
      if (!dump.recorded) out_.culprits.push_back({dump.rank, "", "", "recorded none of its calls", ""});
      if (!dump.recorded) out_.note = "the recorder was off on a rank (TORCH_FR_BUFFER_SIZE)";
    }
    const bool host_only = std::any_of(record_.groups.begin(), record_.groups.end(), [](const auto& g) { return g.host_only; });
    if (host_only) out_.note = "this back end does not record sends and receives, nor whether a collective failed";
    if (!any) out_.note = "no rank recorded a call; the recorder is off unless TORCH_FR_BUFFER_SIZE is above 0";
    if (!out_.note.empty()) out_.verdict = FlightVerdict::not_recorded;
  }

  const FlightRecord& record_;
  FlightCalls calls_;
  FlightDiagnosis out_;
};

}  // namespace detail

/// Finds why the job hangs, from the records of its ranks.
///
/// Which computation a call waits for is not recorded.
/// @pre calls name groups and ranks that exist
/// Complexity: O(calls log calls), and the search for a cycle among open calls.
inline FlightDiagnosis diagnose(const FlightRecord& record) { return detail::FlightDoctor{record}.run(); }

}  // namespace tawpipe
