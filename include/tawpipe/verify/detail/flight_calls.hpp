// The recorded calls of all ranks, matched with each other: which meet, which have ended, which are
// open beyond their limit.
// Not: why the job hangs (verify/diagnose.hpp).
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
#include "tawpipe/verify/flight_record.hpp"

namespace tawpipe::inline v0::detail {

/// A call and its rank.
struct FlightMade {
  std::int32_t rank = 0;
  const FlightCall* call = nullptr;
};

class FlightCalls {
 public:
  using Meeting = std::tuple<std::int32_t, std::int64_t, std::int32_t>;  // group, number, order
  using Way = std::tuple<std::int32_t, std::int32_t, std::int32_t>;      // group, from, to
  using Ends = std::array<std::vector<const FlightCall*>, 2>;            // sends, receives

  explicit FlightCalls(const FlightRecord& record) : record_{record} {
    for (const FlightDump& dump : record.dumps) ranks_ = std::max(ranks_, dump.rank + 1);
    for (const FlightGroup& group : record.groups) {
      for (const std::int32_t rank : group.ranks) ranks_ = std::max(ranks_, rank + 1);
    }
    dump_of_.assign(at(ranks_), nullptr);
    for (const FlightDump& dump : record.dumps) {
      dump_of_[at(dump.rank)] = &dump;
      collect(dump);
      pass_completion_back(dump);
      now_ = std::max(now_, dump.latest);
    }
    find_ended();
  }

  const FlightRecord& record() const { return record_; }
  std::int32_t ranks() const { return ranks_; }
  const FlightDump* dump_of(std::int32_t rank) const { return dump_of_[at(rank)]; }
  const std::map<Meeting, std::vector<FlightMade>>& meetings() const { return meetings_; }
  const std::vector<FlightMade>& meeting(const FlightCall& call) const { return meetings_.at(key(call)); }
  const std::map<Way, Ends>& ways() const { return ways_; }
  const FlightGroup& group_of(const FlightCall& call) const { return record_.groups[at(call.group)]; }

  /// On all its ranks, as far as one of them shows.
  bool has_ended(const FlightCall& call) const { return ended_.contains(&call); }
  /// Open on its own rank, and longer than it may be. Ranks stop to record when they stand still, so
  /// the last time in any dump is the least that the time of the dumps can be.
  bool is_overdue(const FlightCall& call) const {
    if (!call.is_open() || passed_.contains(&call)) return false;
    return call.gave_up || (call.created > 0 && call.limit > 0 && now_ - call.created > call.limit);
  }
  /// The calls of a rank that have not ended, oldest first.
  std::vector<const FlightCall*> open_calls(const FlightDump& dump) const {
    std::vector<const FlightCall*> open;
    for (const FlightCall& call : dump.calls) {
      if (!has_ended(call)) open.push_back(&call);
    }
    return open;
  }
  /// The members of a collective's group that have not issued it.
  std::vector<std::int32_t> absent_from(const Meeting& meeting) const {
    std::set<std::int32_t> made;
    for (const FlightMade& one : meetings_.at(meeting)) made.insert(one.rank);
    std::vector<std::int32_t> absent;
    for (const std::int32_t rank : record_.groups[at(std::get<0>(meeting))].ranks) {
      if (!made.contains(rank)) absent.push_back(rank);
    }
    return absent;
  }
  /// Whether the other end of a rank's send or receive has been issued, as far as the record shows.
  bool has_partner(std::int32_t rank, const FlightCall& call) const {
    if (has_ended(call)) return true;
    const bool sends = call.kind == "send";
    const Ends& ends = ways_.at({call.group, sends ? rank : call.peer, sends ? call.peer : rank});
    std::size_t open = 0;  // of this end, up to the call
    for (const FlightCall* one : ends[sends ? 0 : 1]) {
      open += has_ended(*one) ? 0 : 1;
      if (one == &call) break;
    }
    const auto& others = ends[sends ? 1 : 0];
    return open <= static_cast<std::size_t>(
                       std::count_if(others.begin(), others.end(), [&](const auto* one) { return !has_ended(*one); }));
  }
  /// Whether its calls can be counted from the first on.
  bool is_whole(std::int32_t rank) const { return dump_of(rank) != nullptr && dump_of(rank)->whole; }

  static Meeting key(const FlightCall& call) { return {call.group, call.number, call.order}; }
  static std::string number_text(const FlightCall& call) {
    return concat(call.is_point_to_point() ? "p2p " : "collective ", call.number);
  }
  /// "send to rank 3 (pp, p2p 5)"
  std::string text(const FlightCall& call) const { return concat(kind_text(call), " (", group_text(call), ")"); }
  /// What the peer of a send or receive has to call: "recv from rank 3"; of a collective the same.
  std::string counterpart_text(std::int32_t rank, const FlightCall& call) const {
    if (!call.is_point_to_point()) return call.kind;
    return call.kind == "send" ? concat("recv from rank ", rank) : concat("send to rank ", rank);
  }
  std::string place(const FlightCall& call) const { return call.place < 0 ? "" : record_.places[at(call.place)]; }
  std::string group_text(const FlightCall& call) const { return concat(group_of(call).shown(), ", ", number_text(call)); }

  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

 private:
  static std::string kind_text(const FlightCall& call) {
    if (!call.is_point_to_point()) return call.kind;
    return concat(call.kind, call.kind == "send" ? " to rank " : " from rank ", call.peer);
  }

  void collect(const FlightDump& dump) {
    for (const FlightCall& call : dump.calls) {
      if (call.is_point_to_point()) {
        const bool sends = call.kind == "send";
        ways_[{call.group, sends ? dump.rank : call.peer, sends ? call.peer : dump.rank}][sends ? 0 : 1].push_back(&call);
      } else {
        meetings_[key(call)].push_back({dump.rank, &call});
      }
    }
  }

  /// The calls of one stream end in order: those before one that is complete are, too. A back end
  /// without a device has no streams.
  void pass_completion_back(const FlightDump& dump) {
    std::set<std::pair<std::int32_t, std::int32_t>> completed;  // group; peer, or -1: the group's own stream
    for (std::size_t i = dump.calls.size(); i-- > 0;) {
      const FlightCall& call = dump.calls[i];
      if (group_of(call).host_only) continue;
      const std::pair stream{call.group, call.batch < 0 ? call.peer : -1};
      if (!call.is_open()) completed.insert(stream);
      if (call.is_open() && completed.contains(stream)) passed_.insert(&call);
    }
  }
  bool is_done(const FlightCall& call) const { return !call.is_open() || passed_.contains(&call); }

  /// A call that is complete on one rank has ended on all: the records of the others are late.
  void find_ended() {
    for (const auto& [meeting, made] : meetings_) {
      const bool done = std::any_of(made.begin(), made.end(), [&](const FlightMade& one) { return is_done(*one.call); });
      if (!done) continue;
      for (const FlightMade& one : made) ended_.insert(one.call);
    }
    for (const auto& [way, ends] : ways_) {
      const auto& [group, from, to] = way;
      // Counted from the first call where both ranks have it, otherwise from the last completed
      // call.
      const bool whole = is_whole(from) && is_whole(to);
      const auto completed = [&](const std::vector<const FlightCall*>& calls) {
        std::size_t last = 0;
        for (std::size_t i = 0; i < calls.size(); ++i) last = is_done(*calls[i]) ? i + 1 : last;
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

  const FlightRecord& record_;
  std::int32_t ranks_ = 0;
  std::int64_t now_ = 0;                    ///< the last time in any dump
  std::vector<const FlightDump*> dump_of_;  ///< [rank]
  std::map<Meeting, std::vector<FlightMade>> meetings_;
  std::map<Way, Ends> ways_;
  std::set<const FlightCall*> passed_;  ///< complete on its own rank by the order of its stream
  std::set<const FlightCall*> ended_;
};

}  // namespace tawpipe::detail
