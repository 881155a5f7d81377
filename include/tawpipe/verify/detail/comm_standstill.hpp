// Why a program is stuck: which units wait for each other in a hang, and the shortest cycle among
// them.
// Not: how the hang was reached (comm_run.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "tawpipe/verify/detail/comm_run.hpp"

namespace tawpipe::inline v0::detail {

/// The wait-for graph of units.
class CommStandstill {
 public:
  explicit CommStandstill(const CommRun& run) : run_{run}, units_{run.units()} {}

  /// The units that prevent `unit` from ending.
  std::vector<std::int32_t> waits_of(std::int32_t unit) const {
    std::vector<std::int32_t> waits;
    const CommUnit& cut = units_.unit(unit);
    const auto rank = static_cast<std::size_t>(cut.rank);
    const auto add = [&](std::int32_t other) {
      if (run_.state(other) != UnitState::ended) waits.push_back(other);
    };
    switch (run_.state(unit)) {
      case UnitState::ended:
        break;
      case UnitState::waiting:
        add(run_.holds_host(rank) >= 0 ? run_.holds_host(rank) : run_.next_unit(rank));
        break;
      case UnitState::connecting:
        for (const auto& [communicator, from, to] : run_.new_connections(unit)) {
          add_connections(communicator, from, to, from == cut.rank ? to : from, waits);
        }
        break;
      case UnitState::launched:
        if (cut.before >= 0) add(cut.before);
        for (const std::int32_t earlier : cut.waits_for) add(earlier);
        if (waits.empty()) add_running(cut.rank, waits);
        break;
      case UnitState::started:
        run_.for_each_call(unit, [&](std::int32_t call) { add_others(call, waits); });
        break;
    }
    std::sort(waits.begin(), waits.end());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    return waits;
  }

  /// The shortest cycle of units that wait for each other; empty if there is none.
  std::vector<std::int32_t> circle() const {
    std::vector<std::int32_t> best;
    const std::size_t count = units_.units().size();
    std::vector<std::int32_t> from(count);
    std::vector<std::vector<std::int32_t>> waits(count);
    std::vector<char> known(count, 0);
    for (std::size_t root = 0; root < count; ++root) {
      // Each cycle has a unit that has started, or one that blocks a host.
      const UnitState state = run_.states()[root];
      const bool holds = run_.holds_host(static_cast<std::size_t>(units_.units()[root].rank)) == static_cast<std::int32_t>(root);
      if (state != UnitState::started && !holds) continue;
      std::fill(from.begin(), from.end(), -1);
      std::vector<std::int32_t> reached{static_cast<std::int32_t>(root)};
      bool closed = false;
      for (std::size_t i = 0; i < reached.size() && !closed; ++i) {
        const auto here = static_cast<std::size_t>(reached[i]);
        if (known[here] == 0) {
          waits[here] = waits_of(reached[i]);
          known[here] = 1;
        }
        for (const std::int32_t next : waits[here]) {
          if (next == static_cast<std::int32_t>(root)) {
            std::vector<std::int32_t> found{reached[i]};
            while (found.back() != static_cast<std::int32_t>(root)) {
              found.push_back(from[static_cast<std::size_t>(found.back())]);
            }
            std::reverse(found.begin(), found.end());
            if (best.empty() || found.size() < best.size()) best = std::move(found);
            closed = true;
            break;
          }
          if (from[static_cast<std::size_t>(next)] >= 0) continue;
          from[static_cast<std::size_t>(next)] = reached[i];
          reached.push_back(next);
        }
      }
    }
    return best;
  }

 private:
  /// Units of `rank` that will set up a connection but have not been reached.
  void add_connections(std::int32_t communicator, std::int32_t from, std::int32_t to, std::int32_t rank,
                       std::vector<std::int32_t>& waits) const {
    const auto r = static_cast<std::size_t>(rank);
    for (std::int32_t unit = run_.next_unit(r); unit < units_.first_unit(r + 1); ++unit) {
      bool makes = false;
      for (const auto& one : run_.new_connections(unit)) makes = makes || one == std::tuple{communicator, from, to};
      if (!makes) continue;
      waits.push_back(unit);
      return;
    }
  }

  /// The units on a device whose slots are all in use.
  void add_running(std::int32_t rank, std::vector<std::int32_t>& waits) const {
    const auto r = static_cast<std::size_t>(rank);
    for (std::int32_t unit = units_.first_unit(r); unit < units_.first_unit(r + 1); ++unit) {
      if (run_.state(unit) == UnitState::started && units_.unit(unit).communicates) waits.push_back(unit);
    }
  }

  /// The units, not yet started, of the calls for which a started call waits.
  void add_others(std::int32_t call, std::vector<std::int32_t>& waits) const {
    const auto add = [&](std::int32_t other) {
      if (other >= 0 && run_.state(units_.unit_of(other)) < UnitState::started) waits.push_back(units_.unit_of(other));
    };
    const CommOp op = units_.call(call).op;
    if (is_point_to_point(op)) add(units_.partner(call));
    if (is_meeting(op)) {
      for (const std::int32_t other : units_.meeting(call).calls) add(other);
    }
  }

  const CommRun& run_;
  const CommUnits& units_;
};

}  // namespace tawpipe::detail
