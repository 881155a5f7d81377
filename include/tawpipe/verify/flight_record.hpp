// The calls recorded by the ranks of a job, and the reason why the job hangs, as data.
// Not: reading a dump (report/flight_recorder.hpp) nor finding the reason (verify/diagnose.hpp).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tawpipe::inline v0 {

/// The progress of a recorded call.
enum class FlightState : std::uint8_t { scheduled, started, completed };

/// One call of one rank. Calls of one launch (a batch of sends and receives, coalesced collectives)
/// share a number.
struct FlightCall {
  std::int32_t group = 0;     ///< index into FlightRecord::groups
  std::int64_t number = 0;    ///< counts the group's collectives, or its point-to-point launches
  std::int32_t order = 0;     ///< among the coalesced collectives of one number
  std::int32_t batch = -1;    ///< the same for all sends and receives of one batch of the rank; -1: none
  std::string kind;           ///< "all_reduce", "send", ...
  std::int32_t peer = -1;     ///< send, recv: the other rank of the job
  std::int64_t elements = 0;  ///< of its inputs
  std::int64_t outputs = 0;   ///< elements of its outputs
  /// all_to_all of lists: the elements for each rank of the group, then those from each; otherwise
  /// empty
  std::vector<std::int64_t> pairs;
  std::string type;  ///< of its inputs, e.g. "BFloat16"
  FlightState state = FlightState::scheduled;
  bool gave_up = false;      ///< the watchdog ended the wait for it, beyond its limit
  std::int32_t place = -1;   ///< of the call in the program: index into FlightRecord::places; -1: unknown
  std::int64_t created = 0;  ///< ns since 1970; 0: unknown
  std::int64_t limit = 0;    ///< how long it may take, ns; 0: unknown

  bool is_point_to_point() const { return peer >= 0; }
  bool is_open() const { return state != FlightState::completed; }
};

/// A process group, with the same name and ranks on all its ranks.
struct FlightGroup {
  std::string name;
  std::string description;
  std::vector<std::int32_t> ranks;  ///< of the job, in the group's order
  /// Its back end has no events of a device: a call that has returned may have failed, and sends and
  /// receives are not recorded (Gloo).
  bool host_only = false;

  const std::string& shown() const { return description.empty() || description == "undefined" ? name : description; }
};

/// The calls that one rank recorded, oldest first; the oldest may have been dropped.
struct FlightDump {
  std::int32_t rank = 0;
  bool whole = true;        ///< it goes back to the first call
  bool timed = false;       ///< it tells which calls have started
  bool recorded = true;     ///< false: the rank made calls, and recorded none
  std::int64_t latest = 0;  ///< the last time in it, ns since 1970; 0: none
  std::vector<FlightCall> calls;
};

/// The dumps of a job.
struct FlightRecord {
  std::vector<FlightGroup> groups;
  std::vector<FlightDump> dumps;
  std::vector<std::string> places;  ///< "train.py:88 (step)"
};

/// The reason why a job hangs.
enum class FlightVerdict : std::uint8_t {
  ends,             ///< none: every call has its counterparts, in time; ranks may be late
  deadlock,         ///< calls wait for each other in a cycle
  likely_deadlock,  ///< they do if those of a rank run in the order of its calls, which was not recorded
  mismatch,         ///< matching calls differ
  missing,          ///< a rank does not issue a call that others wait for
  stuck,            ///< the order is right, and a call is open beyond its limit: the network or a device
  not_recorded,     ///< what was recorded is right, and not all was recorded
  undecided,        ///< a rank has no dump
};
inline constexpr int flight_verdicts = 8;
constexpr std::string_view name(FlightVerdict verdict) {
  constexpr std::string_view names[flight_verdicts] = {"ends",    "deadlock", "likely deadlock", "mismatch",
                                                       "missing", "stuck",    "not recorded",    "undecided"};
  return names[static_cast<int>(verdict)];
}

/// A rank that causes the hang, and its call: for a rank that does not issue one, the call it owes.
struct FlightCulprit {
  std::int32_t rank = 0;
  std::string group;
  std::string call;  ///< "collective 6", "p2p 5"; "": none
  std::string why;
  std::string at;  ///< file and line of the call; of one that is owed, where others make it; "": unknown

  auto operator<=>(const FlightCulprit&) const = default;
};

/// The calls and ranks that one rank waits for.
struct FlightWait {
  std::int32_t rank = 0;
  std::string text;
  std::vector<std::int32_t> on;  ///< the ranks that have not reached those calls, in order
};

/// "0, 2 to 5": ranks in order.
inline std::string rank_ranges(const std::set<std::int32_t>& ranks) {
  std::string text;
  for (auto it = ranks.begin(); it != ranks.end();) {
    const std::int32_t first = *it;
    std::int32_t last = first;
    for (++it; it != ranks.end() && *it == last + 1; ++it) last = *it;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (last > first) text += (last == first + 1 ? ", " : " to ") + std::to_string(last);
  }
  return text;
}

struct FlightDiagnosis {
  FlightVerdict verdict = FlightVerdict::ends;
  std::string note;  ///< what more there is to say of the verdict, in a line; "": nothing
  std::vector<FlightCulprit> culprits;
  std::vector<std::string> circle;  ///< deadlock: each waits for the next
  std::vector<FlightWait> waits;    ///< by rank; ranks that wait for nothing are left out
};

}  // namespace tawpipe
