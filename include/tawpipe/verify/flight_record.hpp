// The calls recorded by the ranks of a job, and why the job hangs.
// Not: reading a dump (report/flight_recorder.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/verify/prove.hpp"

namespace tawpipe::inline v0 {

/// The progress of a recorded call.
enum class FlightState : std::uint8_t { scheduled, started, completed };

/// One call of one rank. Calls of a batch share a number.
struct FlightCall {
  std::int32_t group = 0;     ///< index into FlightRecord::groups
  std::int64_t number = 0;    ///< counts the group's collectives, or its point-to-point launches
  std::string kind;           ///< "all_reduce", "send", ...
  std::int32_t peer = -1;     ///< send, recv: the other rank of the job
  std::int64_t elements = 0;  ///< of its inputs
  std::string type;           ///< of its inputs, e.g. "BFloat16"
  FlightState state = FlightState::scheduled;

  bool is_point_to_point() const { return peer >= 0; }
  bool is_open() const { return state != FlightState::completed; }
};

/// A process group, with the same name and ranks on all its ranks.
struct FlightGroup {
  std::string name;
  std::string description;
  std::vector<std::int32_t> ranks;  ///< of the job, in the group's order

  const std::string& shown() const { return description.empty() || description == "undefined" ? name : description; }
};

/// The calls that one rank recorded, oldest first; the oldest may have been dropped.
struct FlightDump {
  std::int32_t rank = 0;
  bool whole = true;  ///< it goes back to the first call
  std::vector<FlightCall> calls;
};

/// The dumps of a job.
struct FlightRecord {
  std::vector<FlightGroup> groups;
  std::vector<FlightDump> dumps;
};

/// The reason why a job hangs.
enum class FlightVerdict : std::uint8_t {
  ends,       ///< none: every call has its counterparts; ranks may be late
  deadlock,   ///< calls wait for each other in a cycle
  mismatch,   ///< matching calls differ
  missing,    ///< a rank does not issue a call that others wait for
  undecided,  ///< the rank that others wait for has no dump
};
inline constexpr int flight_verdicts = 5;
constexpr std::string_view name(FlightVerdict verdict) {
  constexpr std::string_view names[flight_verdicts] = {"ends", "deadlock", "mismatch", "missing", "undecided"};
  return names[static_cast<int>(verdict)];
}

/// A rank that causes the hang, and its call.
struct FlightCulprit {
  std::int32_t rank = 0;
  std::string group;
  std::string call;  ///< "collective 6", "p2p 5"
  std::string why;

  auto operator<=>(const FlightCulprit&) const = default;
};

/// The calls and ranks that one rank waits for.
struct FlightWait {
  std::int32_t rank = 0;
  std::string text;
  std::vector<std::int32_t> on;  ///< the ranks that have not reached those calls, in order
};

struct FlightDiagnosis {
  FlightVerdict verdict = FlightVerdict::ends;
  std::vector<FlightCulprit> culprits;
  std::vector<std::string> circle;  ///< deadlock: each waits for the next
  std::vector<FlightWait> waits;    ///< by rank; ranks that wait for nothing are left out
};

namespace detail {

/// Joins the records of all ranks into one program of the calls that have not ended, and finds why
/// it is stuck.
class FlightDoctor {
 public:
  explicit FlightDoctor(const FlightRecord& record) : record_{record} {
    for (const FlightDump& dump : record.dumps) ranks_ = std::max(ranks_, dump.rank + 1);
    for (const FlightGroup& group : record.groups) {
      for (const std::int32_t rank : group.ranks) ranks_ = std::max(ranks_, rank + 1);
    }
    dump_of_.assign(at(ranks_), nullptr);
    for (const FlightDump& dump : record.dumps) dump_of_[at(dump.rank)] = &dump;
  }

  FlightDiagnosis run() {
    collect();
    find_ended();
    describe_waits();
    if (find_mismatch()) return std::move(out_);
    const HangVerdict verdict = prove(program());
    if (!verdict.circle.empty()) {
      out_.verdict = FlightVerdict::deadlock;
      for (const auto& calls : verdict.circle) {
        std::string text;
        for (const CallRef& call : calls) {
          text += (text.empty() ? "" : " + ") + call_at(program_, call).id;
          blame(call.rank, *call_of_[at(call.rank)][at(call.call)], "waits in a cycle");
        }
        out_.circle.push_back(concat("rank ", calls[0].rank, ": ", text));
      }
    } else if (!verdict.missing.empty()) {
      find_missing(verdict);
    } else {
      find_late();
    }
    std::sort(out_.culprits.begin(), out_.culprits.end());
    out_.culprits.erase(std::unique(out_.culprits.begin(), out_.culprits.end()), out_.culprits.end());
    return std::move(out_);
  }

 private:
  using Meeting = std::pair<std::int32_t, std::int64_t>;             // group, number
  using Way = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // group, from, to
  struct Made {
    std::int32_t rank;
    const FlightCall* call;
  };

  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
  const FlightGroup& group_of(const FlightCall& call) const { return record_.groups[at(call.group)]; }

  static std::string number_text(const FlightCall& call) {
    return concat(call.is_point_to_point() ? "p2p " : "collective ", call.number);
  }
  std::string text(const FlightCall& call) const {
    const std::string kind =
        call.is_point_to_point() ? concat(call.kind, call.kind == "send" ? " to rank " : " from rank ", call.peer) : call.kind;
    return concat(kind, " (", group_of(call).shown(), ", ", number_text(call), ")");
  }
  void blame(std::int32_t rank, const FlightCall& call, std::string why) {
    out_.culprits.push_back({rank, group_of(call).shown(), number_text(call), std::move(why)});
  }

  void collect() {
    for (const FlightDump& dump : record_.dumps) {
      for (const FlightCall& call : dump.calls) {
        if (call.is_point_to_point()) {
          const bool sends = call.kind == "send";
          ways_[{call.group, sends ? dump.rank : call.peer, sends ? call.peer : dump.rank}][sends ? 0 : 1].push_back(&call);
        } else {
          meetings_[{call.group, call.number}].push_back({dump.rank, &call});
        }
      }
    }
  }

  /// A call that is complete on one rank has ended on all: the records of the others are late.
  void find_ended() {
    for (const auto& [meeting, made] : meetings_) {
      const bool done = std::any_of(made.begin(), made.end(), [](const Made& one) { return !one.call->is_open(); });
      if (!done) continue;
      for (const Made& one : made) ended_.insert(one.call);
    }
    for (const auto& [way, ends] : ways_) {
      const auto& [group, from, to] = way;
      // Counted from the first call where both ranks have it, otherwise from the last completed
      // call.
      const bool whole = is_whole(from) && is_whole(to);
      const auto completed = [](const std::vector<const FlightCall*>& calls) {
        std::size_t last = 0;
        for (std::size_t i = 0; i < calls.size(); ++i) last = calls[i]->is_open() ? last : i + 1;
        return last;
      };
      const std::size_t done[2] = {completed(ends[0]), completed(ends[1])};
      const std::size_t most = std::max(done[0], done[1]);
      for (std::size_t e = 0; e < 2; ++e) {
        const std::size_t count = whole ? std::min(most, ends[e].size()) : done[e];
        for (std::size_t i = 0; i < count; ++i) ended_.insert(ends[e][i]);
      }
    }
  }
  bool is_whole(std::int32_t rank) const { return dump_of_[at(rank)] != nullptr && dump_of_[at(rank)]->whole; }

  void describe_waits() {
    for (const FlightDump& dump : record_.dumps) {
      std::set<std::int32_t> groups;
      std::string text_of_rank;
      std::set<std::int32_t> on;
      for (const FlightCall& call : dump.calls) {
        if (ended_.contains(&call) || !groups.insert(call.group).second) continue;
        text_of_rank += (text_of_rank.empty() ? "" : "; ") + text(call);
        if (call.state == FlightState::scheduled) text_of_rank += ", not started";
        const std::set<std::int32_t> absent = absent_from(dump.rank, call);
        on.insert(absent.begin(), absent.end());
      }
      if (!text_of_rank.empty()) out_.waits.push_back({dump.rank, std::move(text_of_rank), {on.begin(), on.end()}});
    }
    std::sort(out_.waits.begin(), out_.waits.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  }

  /// The ranks that a call waits for: the other end, or the members of its group that have not
  /// issued or started it.
  std::set<std::int32_t> absent_from(std::int32_t rank, const FlightCall& call) const {
    if (call.is_point_to_point()) return {call.peer};
    const std::vector<std::int32_t>& members = group_of(call).ranks;
    std::set<std::int32_t> absent{members.begin(), members.end()};
    absent.erase(rank);
    for (const Made& one : meetings_.at({call.group, call.number})) {
      if (one.call->state != FlightState::scheduled) absent.erase(one.rank);
    }
    return absent;
  }

  /// Calls of one number in one group that differ in kind, size or type. The minority differs from
  /// the majority.
  bool find_mismatch() {
    for (const auto& [meeting, made] : meetings_) {
      if (ended_.contains(made[0].call)) continue;
      std::map<std::tuple<std::string, std::int64_t, std::string>, std::vector<Made>> forms;
      for (const Made& one : made) {
        // The sizes of these may differ between ranks.
        const std::string& kind = one.call->kind;
        const bool uneven = kind == "all_to_all" || kind == "gather" || kind == "scatter" || kind == "barrier";
        forms[{kind, uneven ? 0 : one.call->elements, uneven ? "" : one.call->type}].push_back(one);
      }
      if (forms.size() < 2) continue;
      out_.verdict = FlightVerdict::mismatch;
      const auto usual = std::max_element(forms.begin(), forms.end(),
                                          [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
      const bool clear = usual->second.size() * 2 > made.size();
      for (const auto& [form, ranks] : forms) {
        if (clear && form == usual->first) continue;
        const auto& [kind, elements, type] = form;
        const auto& [usual_kind, usual_elements, usual_type] = usual->first;
        for (const Made& one : ranks) {
          std::string why = concat("calls ", kind, " of ", elements, " ", type, " elements");
          if (clear) why += concat(" where others call ", usual_kind, " of ", usual_elements, " ", usual_type);
          blame(one.rank, *one.call, std::move(why));
        }
      }
      return true;  // later mismatches follow from the first one
    }
    return false;
  }

  /// The calls that have not ended, as a program: one stream for each communicator.
  const CommProgram& program() {
    program_.ranks.resize(at(ranks_));
    call_of_.resize(at(ranks_));
    for (const FlightGroup& group : record_.groups) {
      program_.communicators.push_back({group.shown(), group.ranks});
      program_.streams.push_back(group.shown());
    }
    for (const FlightDump& dump : record_.dumps) {
      auto& calls = program_.ranks[at(dump.rank)];
      std::map<Meeting, std::int32_t> batches;
      for (const FlightCall& call : dump.calls) {
        if (ended_.contains(&call)) continue;
        CommCall one;
        one.id = text(call);
        one.op = call.kind == "send" ? CommOp::send : call.kind == "recv" ? CommOp::receive : CommOp::all_reduce;
        one.peer = call.peer;
        one.communicator = one.stream = call.group;
        if (call.is_point_to_point()) {
          one.group = batches.try_emplace({call.group, call.number}, static_cast<std::int32_t>(batches.size())).first->second;
        }
        calls.push_back(std::move(one));
        call_of_[at(dump.rank)].push_back(&call);
      }
    }
    return program_;
  }

  /// The ranks that do not issue the calls that others wait for: those that do not wait themselves.
  /// If all do, hosts wait in a cycle.
  void find_missing(const HangVerdict& verdict) {
    std::map<std::int32_t, const FlightCall*> absent;  // rank, the first call that it does not issue
    for (const CallRef& ref : verdict.missing) {
      const FlightCall& call = *call_of_[at(ref.rank)][at(ref.call)];
      if (call.is_point_to_point()) {
        absent.try_emplace(call.peer, &call);
        continue;
      }
      std::set<std::int32_t> made;
      for (const Made& one : meetings_.at({call.group, call.number})) made.insert(one.rank);
      for (const std::int32_t rank : group_of(call).ranks) {
        if (!made.contains(rank)) absent.try_emplace(rank, &call);
      }
    }
    std::set<std::int32_t> waiting;  // for a call that is not issued
    for (const CallRef& ref : verdict.missing) waiting.insert(ref.rank);
    bool known = false;
    for (const auto& [rank, call] : absent) {
      const bool dumped = dump_of_[at(rank)] != nullptr;
      if (dumped && waiting.contains(rank)) continue;  // it is blocked itself
      known = known || dumped;
      blame(rank, *call, dumped ? concat("never calls ", call->kind) : "has no dump");
    }
    if (out_.culprits.empty()) return find_circle_of_hosts(verdict);
    out_.verdict = known ? FlightVerdict::missing : FlightVerdict::undecided;
  }

  /// Each rank that does not issue the call of others waits in a call of its own that others do not
  /// issue: where calls block the host, as Gloo's do, no rank reaches the point of recording the
  /// call that would show the cycle.
  void find_circle_of_hosts(const HangVerdict& verdict) {
    std::map<std::int32_t, const FlightCall*> stands;  // rank, its first call without a counterpart
    for (const CallRef& ref : verdict.missing) stands.try_emplace(ref.rank, call_of_[at(ref.rank)][at(ref.call)]);
    const auto waits_for = [&](std::int32_t rank) {
      const FlightCall& call = *stands.at(rank);
      if (call.is_point_to_point()) return call.peer;
      std::set<std::int32_t> made;
      for (const Made& one : meetings_.at({call.group, call.number})) made.insert(one.rank);
      for (const std::int32_t other : group_of(call).ranks) {
        if (!made.contains(other)) return other;
      }
      return rank;
    };
    std::vector<std::int32_t> path;
    std::int32_t rank = stands.begin()->first;
    while (stands.contains(rank) && std::find(path.begin(), path.end(), rank) == path.end()) {
      path.push_back(rank);
      rank = waits_for(rank);
    }
    out_.verdict = FlightVerdict::deadlock;
    for (auto one = std::find(path.begin(), path.end(), rank); one != path.end(); ++one) {
      const FlightCall& call = *stands.at(*one);
      blame(*one, call, "waits in a cycle");
      out_.circle.push_back(concat("rank ", *one, ": ", text(call)));
    }
  }

  /// Ranks of a collective that have not started it although others have, and nothing precedes it.
  void find_late() {
    for (const auto& [meeting, made] : meetings_) {
      if (ended_.contains(made[0].call)) continue;
      const bool some =
          std::any_of(made.begin(), made.end(), [](const Made& m) { return m.call->state == FlightState::started; });
      if (!some) continue;
      for (const Made& one : made) {
        if (one.call->state == FlightState::scheduled) blame(one.rank, *one.call, "is late");
      }
    }
  }

  const FlightRecord& record_;
  std::int32_t ranks_ = 0;
  std::vector<const FlightDump*> dump_of_;  ///< [rank]
  std::map<Meeting, std::vector<Made>> meetings_;
  std::map<Way, std::array<std::vector<const FlightCall*>, 2>> ways_;  ///< sends, receives
  std::set<const FlightCall*> ended_;
  CommProgram program_;
  std::vector<std::vector<const FlightCall*>> call_of_;  ///< [rank, call of program_]
  FlightDiagnosis out_;
};

}  // namespace detail

/// Finds why the job hangs, from the records of its ranks.
///
/// Each communicator is a stream on each rank, as in PyTorch; which computation a call waits for is
/// not recorded.
/// @pre calls name groups and ranks that exist
/// Complexity: O(calls log calls).
inline FlightDiagnosis diagnose(const FlightRecord& record) { return detail::FlightDoctor{record}.run(); }

}  // namespace tawpipe
