// Groups a program's calls into units launched together, and matches calls with each other.
// Not: what can run (comm_run.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/verify/comm_program.hpp"

namespace tawpipe::inline v0::detail {

/// Calls of one rank that are launched together: a group, or a single call.
struct CommUnit {
  std::int32_t rank = 0;
  std::int32_t begin = 0;  ///< its calls on the rank
  std::int32_t end = 0;
  std::int32_t before = -1;  ///< the previous unit on its stream
  std::int32_t after = -1;   ///< the next unit on its stream
  bool blocks_host = false;
  bool communicates = false;
  std::vector<std::int32_t> waits_for;  ///< units
  std::vector<std::int32_t> waited_by;  ///< units
};

/// A collective: the n-th call of each rank of a communicator.
struct CommMeeting {
  /// [rank of the communicator] numbered over the program; -1: it has no such call
  std::vector<std::int32_t> calls;
  std::int32_t first = -1;  ///< one of them
  bool alike = true;        ///< the existing calls have the same op and sizes
};

/// Everything that follows from the program's text.
class CommUnits {
 public:
  /// @throws InputError  naming the call that refers to something that does not exist.
  explicit CommUnits(const CommProgram& program) : program_{program} {
    for (const CommGroup& communicator : program.communicators) {
      auto& places = places_.emplace_back();
      for (const std::int32_t rank : communicator.ranks) {
        places.emplace_back(rank, static_cast<std::int32_t>(places.size()));
      }
      std::sort(places.begin(), places.end());
    }
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      first_call_.push_back(static_cast<std::int32_t>(refs_.size()));
      cut(static_cast<std::int32_t>(r));
    }
    first_call_.push_back(static_cast<std::int32_t>(refs_.size()));
    match();
  }

  const CommProgram& program() const { return program_; }
  const std::vector<CommUnit>& units() const { return units_; }
  const CommUnit& unit(std::int32_t unit) const { return units_[at(unit)]; }
  /// The units of a rank are `first_unit(rank)` to `first_unit(rank + 1)` - 1, in launch order.
  std::int32_t first_unit(std::size_t rank) const { return first_unit_[rank]; }
  std::size_t calls() const { return refs_.size(); }
  CallRef ref(std::int32_t call) const { return refs_[at(call)]; }
  const CommCall& call(std::int32_t call) const { return call_at(program_, ref(call)); }
  std::int32_t number(std::int32_t rank, std::int32_t call) const { return first_call_[at(rank)] + call; }
  std::int32_t unit_of(std::int32_t call) const { return unit_of_[at(call)]; }
  /// The receive of a send, or the send of a receive; -1 if there is none.
  std::int32_t partner(std::int32_t call) const { return partner_[at(call)]; }
  /// The matching calls of a collective.
  const CommMeeting& meeting(std::int32_t call) const { return meetings_[at(meeting_of_[at(call)])]; }
  const std::vector<CommMeeting>& meetings() const { return meetings_; }

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

 private:
  void cut(std::int32_t rank) {
    const auto& calls = program_.ranks[at(rank)];
    first_unit_.resize(at(rank) + 2);
    first_unit_[at(rank)] = static_cast<std::int32_t>(units_.size());
    std::vector<std::int32_t> last_on(program_.streams.size(), -1);
    for (std::size_t c = 0; c < calls.size(); ++c) {
      const CommCall& call = calls[c];
      const bool joins = c > 0 && call.group >= 0 && call.group == calls[c - 1].group;
      if (joins && call.stream != calls[c - 1].stream) {
        throw InputError(concat("rank ", rank, ": ", quote(call.id), " is in a group whose other calls are on another stream"));
      }
      if (!joins) {
        CommUnit unit;
        unit.rank = rank;
        unit.begin = static_cast<std::int32_t>(c);
        if (call.stream >= 0) {
          unit.before = std::exchange(last_on[at(call.stream)], static_cast<std::int32_t>(units_.size()));
          if (unit.before >= 0) units_[at(unit.before)].after = static_cast<std::int32_t>(units_.size());
        }
        units_.push_back(std::move(unit));
      }
      const auto here = static_cast<std::int32_t>(units_.size() - 1);
      CommUnit& unit = units_.back();
      unit.end = static_cast<std::int32_t>(c + 1);
      unit.blocks_host = unit.blocks_host || call.blocks_host;
      unit.communicates = unit.communicates || !is_local(call.op);
      for (const std::int32_t earlier : call.waits_for) {
        if (earlier < 0 || at(earlier) >= c || unit_of_[at(number(rank, earlier))] == here) {
          throw InputError(concat("rank ", rank, ": ", quote(call.id), " waits for a call that is not launched before it"));
        }
        unit.waits_for.push_back(unit_of_[at(number(rank, earlier))]);
        units_[at(unit.waits_for.back())].waited_by.push_back(here);
      }
      refs_.push_back({rank, static_cast<std::int32_t>(c)});
      unit_of_.push_back(here);
    }
    first_unit_[at(rank) + 1] = static_cast<std::int32_t>(units_.size());
  }

  /// The n-th send from one rank to another with one tag on a communicator matches the n-th
  /// receive; the n-th collective of a rank on a communicator matches the n-th of the others,
  /// whatever its op.
  void match() {
    using Way = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int64_t>;  // communicator, from, to, tag
    struct Open {
      std::vector<std::int32_t> calls[2];  ///< sends, receives
    };
    std::map<Way, Open> ways;
    std::map<std::int32_t, std::vector<std::int32_t>> meetings;                    // of each communicator
    std::vector<std::map<std::int32_t, std::size_t>> made(program_.ranks.size());  // [rank] collectives on each
    partner_.assign(refs_.size(), -1);
    meeting_of_.assign(refs_.size(), -1);
    for (std::size_t c = 0; c < refs_.size(); ++c) {
      const CallRef here = refs_[c];
      const CommCall& call = call_at(program_, here);
      if (is_local(call.op)) continue;
      const std::size_t members = members_of(here, call);
      for (const auto* sizes : {&call.bytes_to, &call.bytes_from}) {
        if (sizes->empty() || (call.op == CommOp::all_to_all && sizes->size() == members)) continue;
        throw InputError(concat("rank ", here.rank, ": ", quote(call.id),
                                ": only an all_to_all has a size for each rank, and one ", "for each of its communicator's ",
                                members));
      }
      if (is_point_to_point(call.op)) {
        const bool sends = call.op == CommOp::send;
        place_of(call.peer, here, call, "its peer");
        place_of(here.rank, here, call, "the rank itself");
        ways[{call.communicator, sends ? here.rank : call.peer, sends ? call.peer : here.rank, call.tag}]
            .calls[sends ? 0 : 1]
            .push_back(static_cast<std::int32_t>(c));
        continue;
      }
      const std::size_t n = made[at(here.rank)][call.communicator]++;
      auto& met = meetings[call.communicator];
      if (met.size() == n) {
        met.push_back(static_cast<std::int32_t>(meetings_.size()));
        meetings_.push_back({std::vector<std::int32_t>(members, -1), static_cast<std::int32_t>(c), true});
      }
      meeting_of_[c] = met[n];
      meetings_[at(met[n])].calls[place_of(here.rank, here, call, "the rank itself")] = static_cast<std::int32_t>(c);
    }
    for (const auto& [way, open] : ways) {
      for (std::size_t i = 0; i < open.calls[0].size() && i < open.calls[1].size(); ++i) {
        partner_[at(open.calls[0][i])] = open.calls[1][i];
        partner_[at(open.calls[1][i])] = open.calls[0][i];
      }
    }
    for (CommMeeting& meeting : meetings_) {
      const CommCall& first = call(meeting.first);
      const bool pairs = std::any_of(meeting.calls.begin(), meeting.calls.end(), [&](std::int32_t one) {
        return one >= 0 && !(call(one).bytes_to.empty() && call(one).bytes_from.empty());
      });
      for (const std::int32_t one : meeting.calls) {
        meeting.alike = meeting.alike && (one < 0 || (call(one).op == first.op && (pairs || call(one).bytes == first.bytes)));
      }
      meeting.alike = meeting.alike && (!pairs || has_equal_pairs(meeting));
    }
  }

  /// Whether each rank of an all_to_all sends to each other what that one expects. A call with one
  /// size spreads it evenly.
  bool has_equal_pairs(const CommMeeting& meeting) const {
    const auto ranks = static_cast<std::int64_t>(meeting.calls.size());
    // Times `ranks`, so that an even share is whole; -1: unknown.
    const auto size = [&](const CommCall& call, const std::vector<std::int64_t>& sizes, std::size_t place) {
      if (!sizes.empty()) return sizes[place] * ranks;
      return call.bytes_to.empty() && call.bytes_from.empty() ? call.bytes : -1;
    };
    for (std::size_t i = 0; i < meeting.calls.size(); ++i) {
      for (std::size_t j = 0; j < meeting.calls.size(); ++j) {
        if (meeting.calls[i] < 0 || meeting.calls[j] < 0) continue;
        const CommCall& from = call(meeting.calls[i]);
        const CommCall& to = call(meeting.calls[j]);
        const std::int64_t sent = size(from, from.bytes_to, j);
        const std::int64_t expected = size(to, to.bytes_from, i);
        if (sent >= 0 && expected >= 0 && sent != expected) return false;
      }
    }
    return true;
  }

  std::size_t members_of(CallRef here, const CommCall& call) const {
    if (call.communicator < 0 || at(call.communicator) >= places_.size()) {
      throw InputError(concat("rank ", here.rank, ": ", quote(call.id), " names no communicator"));
    }
    return places_[at(call.communicator)].size();
  }
  std::size_t place_of(std::int32_t rank, CallRef here, const CommCall& call, std::string_view who) const {
    const auto& places = places_[at(call.communicator)];
    const auto found = std::lower_bound(places.begin(), places.end(), std::pair{rank, std::int32_t{0}});
    if (found != places.end() && found->first == rank) return at(found->second);
    throw InputError(concat("rank ", here.rank, ": ", quote(call.id), ": ", who, " (rank ", rank, ") is not in communicator ",
                            quote(program_.communicators[at(call.communicator)].name)));
  }

  const CommProgram& program_;
  /// [communicator] rank, index; by rank
  std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> places_;
  std::vector<CommUnit> units_;
  std::vector<std::int32_t> first_unit_;  ///< [rank] and the end
  std::vector<CallRef> refs_;             ///< [call]
  std::vector<std::int32_t> first_call_;  ///< [rank] and the end
  std::vector<std::int32_t> unit_of_;     ///< [call]
  std::vector<std::int32_t> partner_;     ///< [call]
  std::vector<std::int32_t> meeting_of_;  ///< [call]
  std::vector<CommMeeting> meetings_;
};

}  // namespace tawpipe::detail
