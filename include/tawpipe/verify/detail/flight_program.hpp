// The calls of a record that have not ended as a program, with those that ranks owe to others, so
// that waits between hosts are edges too.
// Not: matching recorded calls (flight_calls.hpp) nor what follows from the program
// (verify/diagnose.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/verify/comm_program.hpp"
#include "tawpipe/verify/detail/flight_calls.hpp"

namespace tawpipe::inline v0::detail {

/// Each communicator is a stream on each rank, as in PyTorch, where a communicator of two ranks
/// carries their sends and receives outside batches.
///
/// Streams of a rank are tied where its dump shows it: a call that is scheduled and not started,
/// with nothing before it on its stream, waits for what the rank launched earlier. If `by_launch`,
/// a dump that tells no starts is read so, too.
///
/// A rank that stands in open calls, and has not issued one that others wait for, owes it: the owed
/// call comes after all its open ones.
class FlightProgram {
 public:
  FlightProgram(const FlightCalls& calls, bool by_launch) : calls_{calls}, by_launch_{by_launch} {
    program_.ranks.resize(at(calls.ranks()));
    call_of_.resize(program_.ranks.size());
    last_on_.resize(program_.ranks.size());
    for (const FlightGroup& group : calls.record().groups) {
      program_.communicators.push_back({group.shown(), group.ranks});
      program_.streams.push_back(group.shown());
    }
    for (const FlightDump& dump : calls.record().dumps) add_open(dump);
    add_owed();
  }

  const CommProgram& program() const { return program_; }
  /// The recorded call; none for one that is owed.
  const FlightCall* recorded(CallRef ref) const {
    const auto& calls = call_of_[at(ref.rank)];
    return at(ref.call) < calls.size() ? calls[at(ref.call)] : nullptr;
  }
  struct Owed {
    std::int32_t rank = 0;
    FlightMade to;  ///< who waits for it, and in what
  };
  /// By the ranks that stand in open calls.
  const std::vector<Owed>& owed() const { return owed_; }

 private:
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

  CommCall base(std::int32_t rank, const FlightCall& call, std::string id, bool turned = false) {
    CommCall one;
    one.id = std::move(id);
    one.op = !call.is_point_to_point() ? CommOp::all_reduce : (call.kind == "send") != turned ? CommOp::send : CommOp::receive;
    one.communicator = one.stream = call.group;
    if (!call.is_point_to_point() || call.batch >= 0 || by_launch_) return one;
    const std::pair pair = std::minmax(rank, call.peer);
    const auto [found, added] = pair_streams_.try_emplace({call.group, pair}, static_cast<std::int32_t>(program_.streams.size()));
    if (added) program_.streams.push_back(concat(calls_.group_of(call).shown(), " ", pair.first, "-", pair.second));
    one.stream = found->second;
    return one;
  }

  void add_open(const FlightDump& dump) {
    auto& out = program_.ranks[at(dump.rank)];
    auto& last_on = last_on_[at(dump.rank)];
    std::int32_t batch = -1;
    for (const FlightCall* call : calls_.open_calls(dump)) {
      CommCall one = base(dump.rank, *call, calls_.text(*call));
      one.peer = call->peer;
      one.group = call->batch;
      const bool begins = call->batch < 0 || call->batch != batch;
      const bool waits = call->state == FlightState::scheduled && !last_on.contains(one.stream);
      if (begins && waits && (dump.timed || by_launch_)) {
        for (const auto& [stream, last] : last_on) one.waits_for.push_back(last);
      }
      batch = call->batch;
      last_on[one.stream] = static_cast<std::int32_t>(out.size());
      call_of_[at(dump.rank)].push_back(call);
      out.push_back(std::move(one));
    }
  }

  void add_owed() {
    for (const auto& [meeting, made] : calls_.meetings()) {
      if (calls_.has_ended(*made[0].call)) continue;
      for (const std::int32_t rank : calls_.absent_from(meeting)) owe(rank, made[0]);
    }
    for (const auto& [way, ends] : calls_.ways()) {
      std::vector<const FlightCall*> open[2];
      for (std::size_t e = 0; e < 2; ++e) {
        for (const FlightCall* call : ends[e]) {
          if (!calls_.has_ended(*call)) open[e].push_back(call);
        }
      }
      const auto [group, from, to] = way;
      for (std::size_t e = 0; e < 2; ++e) {
        for (std::size_t i = open[1 - e].size(); i < open[e].size(); ++i)
          owe(e == 0 ? to : from, {e == 0 ? from : to, open[e][i]});
      }
    }
  }

  void owe(std::int32_t rank, const FlightMade& to) {
    const auto& last_on = last_on_[at(rank)];
    if (last_on.empty()) return;  // it stands in no call, or has no dump
    const FlightCall& call = *to.call;
    CommCall one = base(call.is_point_to_point() ? to.rank : rank, call,
                        concat(calls_.counterpart_text(to.rank, call), " (", calls_.group_text(call), ")"), true);
    if (call.is_point_to_point()) one.peer = to.rank;
    for (const auto& [stream, last] : last_on) one.waits_for.push_back(last);
    program_.ranks[at(rank)].push_back(std::move(one));
    owed_.push_back({rank, to});
  }

  const FlightCalls& calls_;
  bool by_launch_;
  CommProgram program_;
  std::vector<std::vector<const FlightCall*>> call_of_;        ///< [rank, call of program_] before those that are owed
  std::vector<std::map<std::int32_t, std::int32_t>> last_on_;  ///< [rank] by stream, its last recorded call
  std::vector<Owed> owed_;
  /// by group and pair of ranks
  std::map<std::pair<std::int32_t, std::pair<std::int32_t, std::int32_t>>, std::int32_t> pair_streams_;
};

}  // namespace tawpipe::detail
