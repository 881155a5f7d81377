// Runs a program as far as possible: every step only enables others, so checking one order of steps
// is enough.
// Not: scarce slots, where the order matters (comm_slots.hpp), nor why the program is stuck
// (comm_standstill.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/verify/detail/comm_units.hpp"

namespace tawpipe::inline v0::detail {

/// The progress of a unit.
enum class UnitState : std::uint8_t {
  waiting,     ///< the host has not reached it
  connecting,  ///< the host sets up the connections that it is the first to need
  launched,    ///< it waits for its stream or for events
  started,     ///< it waits for other ranks
  ended,
};

/// A state of the program. It can be copied to continue from it.
class CommRun {
 public:
  explicit CommRun(const CommUnits& units)
      : units_{&units},
        state_(units.units().size(), UnitState::waiting),
        left_(units.units().size()),
        events_(units.units().size()),
        next_(units.program().ranks.size()),
        running_(units.program().ranks.size(), 0),
        arrived_(units.calls(), 0) {
    for (std::size_t u = 0; u < state_.size(); ++u) {
      const CommUnit& unit = units.units()[u];
      left_[u] = unit.end - unit.begin;
      events_[u] = static_cast<std::int32_t>(unit.waits_for.size());
    }
    for (std::size_t r = 0; r < next_.size(); ++r) next_[r] = units.first_unit(r);
    if (units.program().cold) connected_.emplace();
  }

  const CommUnits& units() const { return *units_; }
  UnitState state(std::int32_t unit) const { return state_[at(unit)]; }
  const std::vector<UnitState>& states() const { return state_; }
  bool has_ended() const {
    return std::all_of(state_.begin(), state_.end(), [](UnitState s) { return s == UnitState::ended; });
  }
  /// The unit that blocks a rank's host, or -1.
  std::int32_t holds_host(std::size_t rank) const {
    const std::int32_t next = next_[rank];
    if (next < units_->first_unit(rank + 1) && state_[at(next)] == UnitState::connecting) return next;
    const std::int32_t last = next - 1;
    const bool holds = last >= units_->first_unit(rank) && units_->unit(last).blocks_host;
    return holds && state_[at(last)] != UnitState::ended ? last : -1;
  }
  /// The unit that a rank's host launches next; the end of its units if there is none.
  std::int32_t next_unit(std::size_t rank) const { return next_[rank]; }

  /// Whether everything that the unit waits for on its own rank has ended.
  bool is_ready(std::int32_t unit) const {
    if (state_[at(unit)] != UnitState::launched || events_[at(unit)] > 0) return false;
    const std::int32_t before = units_->unit(unit).before;
    return before < 0 || state_[at(before)] == UnitState::ended;
  }
  /// The communication units that run on a rank's device.
  int running(std::int32_t rank) const { return running_[at(rank)]; }

  /// Runs until nothing can proceed. @param slots  whether communicating units are left to start()
  void run(bool slots = false) {
    slots_ = slots;
    for (std::size_t r = 0; r < next_.size(); ++r) launch(static_cast<std::int32_t>(r));
    settle();
  }
  /// Starts a unit that is ready and communicates, and continues. @pre run(true) was called
  void start(std::int32_t unit) {
    begin(unit);
    settle();
  }

  /// The connections that a unit is the first to need.
  std::vector<std::tuple<std::int32_t, std::int32_t, std::int32_t>> new_connections(std::int32_t unit) const {
    std::vector<Connection> needed;
    if (!connected_) return needed;
    for_each_call(unit, [&](std::int32_t call) {
      if (!is_point_to_point(units_->call(call).op)) return;
      const Connection one = connection(call);
      if (!connected_->contains({units_->unit(unit).rank, one})) needed.push_back(one);
    });
    return needed;
  }

  template <class Visit>
  void for_each_call(std::int32_t unit, Visit&& visit) const {
    const CommUnit& cut = units_->unit(unit);
    for (std::int32_t c = cut.begin; c < cut.end; ++c) visit(units_->number(cut.rank, c));
  }

 private:
  using Connection = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // communicator, from, to

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  Connection connection(std::int32_t call) const {
    const CommCall& text = units_->call(call);
    const std::int32_t rank = units_->ref(call).rank;
    const bool sends = text.op == CommOp::send;
    return {text.communicator, sends ? rank : text.peer, sends ? text.peer : rank};
  }

  /// Lets the host continue as far as it can.
  void launch(std::int32_t rank) {
    const std::int32_t end = units_->first_unit(at(rank) + 1);
    while (next_[at(rank)] < end && holds_host(at(rank)) < 0) {
      const std::int32_t unit = next_[at(rank)];
      if (connected_ && !new_connections(unit).empty()) {
        state_[at(unit)] = UnitState::connecting;
        return;
      }
      ++next_[at(rank)];
      state_[at(unit)] = UnitState::launched;
      try_start(unit);
    }
  }

  void try_start(std::int32_t unit) {
    if (!is_ready(unit) || (slots_ && units_->unit(unit).communicates)) return;
    begin(unit);
  }

  void begin(std::int32_t unit) {
    state_[at(unit)] = UnitState::started;
    running_[at(units_->unit(unit).rank)] += units_->unit(unit).communicates ? 1 : 0;
    begun_.push_back(unit);
  }

  /// Applies the consequences of started units.
  void settle() {
    do {
      while (!begun_.empty()) {
        const std::int32_t unit = begun_.back();
        begun_.pop_back();
        for_each_call(unit, [&](std::int32_t call) { meet(call); });
      }
    } while (connect());
  }

  /// Counts a call that has started, and ends what it completes: itself, it and its partner, or all
  /// calls of its collective.
  void meet(std::int32_t call) {
    const CommOp op = units_->call(call).op;
    if (is_local(op)) {
      end(call);
    } else if (is_point_to_point(op)) {
      const std::int32_t partner = units_->partner(call);
      if (partner < 0 || ++arrived_[at(std::min(call, partner))] < 2) return;
      end(call);
      end(partner);
    } else {
      const CommMeeting& meeting = units_->meeting(call);
      std::int32_t& arrived = arrived_[at(meeting.first)];
      if (!meeting.alike || ++arrived < static_cast<std::int32_t>(meeting.calls.size())) return;
      for (const std::int32_t other : meeting.calls) end(other);
    }
  }

  void end(std::int32_t call) {
    const std::int32_t unit = units_->unit_of(call);
    if (--left_[at(unit)] > 0) return;
    const CommUnit& cut = units_->unit(unit);
    state_[at(unit)] = UnitState::ended;
    running_[at(cut.rank)] -= cut.communicates ? 1 : 0;
    for (const std::int32_t later : cut.waited_by) {
      --events_[at(later)];
      try_start(later);
    }
    if (cut.after >= 0) try_start(cut.after);
    launch(cut.rank);
  }

  /// Releases the hosts whose new connections are all established: those of the largest set of
  /// ranks in which every connection that one sets up is also set up by its other end. @return
  /// whether there were any
  bool connect() {
    if (!connected_) return false;
    const std::size_t ranks = next_.size();
    std::vector<std::vector<Connection>> needed(ranks);
    std::vector<char> open(ranks, 0);
    for (std::size_t r = 0; r < ranks; ++r) {
      const bool connecting = next_[r] < units_->first_unit(r + 1) && state_[at(next_[r])] == UnitState::connecting;
      if (connecting) needed[r] = new_connections(next_[r]);
      open[r] = connecting ? 1 : 0;
    }
    const auto is_made = [&](std::size_t rank, const Connection& one) {
      const auto [communicator, from, to] = one;
      const std::int32_t other = from == static_cast<std::int32_t>(rank) ? to : from;
      if (connected_->contains({other, one})) return true;
      const auto& theirs = needed[at(other)];
      return open[at(other)] != 0 && std::find(theirs.begin(), theirs.end(), one) != theirs.end();
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t r = 0; r < ranks; ++r) {
        if (open[r] == 0) continue;
        for (const Connection& one : needed[r]) {
          if (is_made(r, one)) continue;
          open[r] = 0;
          changed = true;
          break;
        }
      }
    }
    bool any = false;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (open[r] == 0) continue;
      any = true;
      for (const Connection& one : needed[r]) connected_->insert({static_cast<std::int32_t>(r), one});
    }
    for (std::size_t r = 0; r < ranks; ++r) {
      if (open[r] == 0) continue;
      state_[at(next_[r])] = UnitState::waiting;
      launch(static_cast<std::int32_t>(r));
    }
    return any;
  }

  const CommUnits* units_;
  std::vector<UnitState> state_;      ///< [unit]
  std::vector<std::int32_t> left_;    ///< [unit] calls that have not ended
  std::vector<std::int32_t> events_;  ///< [unit] that it still waits for
  std::vector<std::int32_t> next_;    ///< [rank] the unit that its host launches next
  std::vector<int> running_;          ///< [rank]
  /// [first of the matching calls] how many of them have started
  std::vector<std::int32_t> arrived_;
  std::vector<std::int32_t> begun_;  ///< started units whose consequences are still to be applied
  /// rank and connection, if the program is cold
  std::optional<std::set<std::pair<std::int32_t, Connection>>> connected_;
  bool slots_ = false;
};

}  // namespace tawpipe::detail
