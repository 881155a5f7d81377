// Whether a program of calls ends, by walking every order in which its calls can start and end.
// Not: fast; an oracle for small programs, written apart from verify/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/verify/comm_program.hpp"

namespace support {

using tawpipe::CallRef;
using tawpipe::CommCall;
using tawpipe::CommOp;
using tawpipe::CommProgram;

/// @pre not cold
class Interleavings {
 public:
  explicit Interleavings(const CommProgram& program) : program_{program} {
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      offset_.push_back(size_);
      size_ += program.ranks[r].size();
    }
  }

  /// Whether no order leads to a state in which calls are left and none can move. @param most
  /// states
  bool always_ends(std::size_t most = 300'000) {
    std::vector<std::string> open{settled(std::string(size_, waiting))};
    std::set<std::string> seen(open.begin(), open.end());
    while (!open.empty()) {
      const std::string state = std::move(open.back());
      open.pop_back();
      std::vector<std::string> next = successors(state);
      if (next.empty() && state.find_first_not_of(ended) != std::string::npos) return false;
      for (std::string& one : next) {
        if (seen.insert(one).second) open.push_back(std::move(one));
      }
      if (seen.size() > most) throw std::runtime_error("too many states");
    }
    return true;
  }

  /// Whether in every state from which nothing moves, each unit named waits for one that has not
  /// ended, in a ring.
  bool hangs_at(const std::vector<std::vector<CallRef>>& circle) {
    std::string state = settled(std::string(size_, waiting));
    for (std::vector<std::string> next = successors(state); !next.empty(); next = successors(state)) state = next.front();
    for (const auto& unit : circle) {
      for (const CallRef& call : unit) {
        if (state[at(call.rank, call.call)] == ended && unit.size() == 1) return false;
      }
    }
    return state.find_first_not_of(ended) != std::string::npos;
  }

 private:
  static constexpr char waiting = 'w';  ///< the host has not come to it
  static constexpr char launched = 'l';
  static constexpr char started = 's';
  static constexpr char ended = 'e';

  std::size_t at(int rank, std::size_t call) const { return offset_[static_cast<std::size_t>(rank)] + call; }
  std::size_t at(int rank, int call) const { return at(rank, static_cast<std::size_t>(call)); }

  /// The host costs no time: it launches whatever nothing keeps it from.
  std::string settled(std::string state) const {
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      const auto& calls = program_.ranks[r];
      for (std::size_t c = 0; c < calls.size(); ++c) {
        char& here = state[offset_[r] + c];
        if (here == waiting) here = launched;
        const bool last_of_group = c + 1 == calls.size() || calls[c].group < 0 || calls[c + 1].group != calls[c].group;
        if (!last_of_group) continue;
        bool held = false;
        for (std::size_t i = c + 1; i-- > 0;) {
          held = held || (calls[i].blocks_host && state[offset_[r] + i] != ended);
          if (calls[i].group < 0 || i == 0 || calls[i - 1].group != calls[i].group) break;
        }
        if (held) break;
      }
    }
    return state;
  }

  bool can_start(const std::string& state, std::size_t r, std::size_t c) const {
    const auto& calls = program_.ranks[r];
    if (state[offset_[r] + c] != launched) return false;
    const auto is_mate = [&](std::size_t i) { return calls[c].group >= 0 && calls[i].group == calls[c].group; };
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (is_mate(i)) {
        for (const int earlier : calls[i].waits_for) {
          if (!unit_ended(state, r, static_cast<std::size_t>(earlier))) return false;
        }
      }
      if (i < c && !is_mate(i) && calls[c].stream >= 0 && calls[i].stream == calls[c].stream && state[offset_[r] + i] != ended) {
        return false;
      }
    }
    for (const int earlier : calls[c].waits_for) {
      if (!unit_ended(state, r, static_cast<std::size_t>(earlier))) return false;
    }
    if (program_.slots == 0 || is_local(calls[c].op)) return true;
    std::set<int> units;  // running, by their first call
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (state[offset_[r] + i] != started || is_local(calls[i].op) || is_mate(i)) continue;
      units.insert(calls[i].group >= 0 ? -1 - calls[i].group : static_cast<int>(i));
    }
    return static_cast<int>(units.size()) < program_.slots;
  }

  bool unit_ended(const std::string& state, std::size_t r, std::size_t c) const {
    const auto& calls = program_.ranks[r];
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const bool mate = i == c || (calls[c].group >= 0 && calls[i].group == calls[c].group);
      if (mate && state[offset_[r] + i] != ended) return false;
    }
    return true;
  }

  std::vector<std::string> successors(const std::string& state) const {
    std::vector<std::string> next;
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      const auto& calls = program_.ranks[r];
      for (std::size_t c = 0; c < calls.size(); ++c) {
        if (can_start(state, r, c)) {
          std::string one = state;
          one[offset_[r] + c] = started;
          next.push_back(settled(std::move(one)));
        }
        std::string one = state;
        if (can_end(one, r, c)) next.push_back(settled(std::move(one)));
      }
    }
    return next;
  }

  /// Ends a started call and those that it meets. @return whether it could
  bool can_end(std::string& state, std::size_t r, std::size_t c) const {
    const auto& calls = program_.ranks[r];
    if (state[offset_[r] + c] != started) return false;
    if (is_local(calls[c].op)) {
      state[offset_[r] + c] = ended;
      return true;
    }
    if (is_point_to_point(calls[c].op)) {
      const auto same_way = [&](const CommCall& a, const CommCall& b) {
        return a.communicator == b.communicator && a.peer == b.peer && a.tag == b.tag && a.op == b.op;
      };
      std::size_t nth = 0;
      for (std::size_t i = 0; i < c; ++i) nth += same_way(calls[i], calls[c]) ? 1 : 0;
      CommCall other = calls[c];
      other.peer = static_cast<int>(r);
      other.op = calls[c].op == CommOp::send ? CommOp::receive : CommOp::send;
      const auto& theirs = program_.ranks[static_cast<std::size_t>(calls[c].peer)];
      for (std::size_t i = 0; i < theirs.size(); ++i) {
        if (!same_way(theirs[i], other) || nth-- > 0) continue;
        char& their = state[offset_[static_cast<std::size_t>(calls[c].peer)] + i];
        if (their != started) return false;
        state[offset_[r] + c] = their = ended;
        return true;
      }
      return false;
    }
    std::size_t nth = 0;
    for (std::size_t i = 0; i < c; ++i) {
      nth += is_meeting(calls[i].op) && calls[i].communicator == calls[c].communicator ? 1 : 0;
    }
    std::vector<std::size_t> all;
    std::vector<const CommCall*> made;
    for (const int member : program_.communicators[static_cast<std::size_t>(calls[c].communicator)].ranks) {
      const auto& theirs = program_.ranks[static_cast<std::size_t>(member)];
      std::size_t left = nth;
      bool found = false;
      for (std::size_t i = 0; i < theirs.size() && !found; ++i) {
        if (!is_meeting(theirs[i].op) || theirs[i].communicator != calls[c].communicator) continue;
        if (left-- > 0) continue;
        const std::size_t place = offset_[static_cast<std::size_t>(member)] + i;
        const bool even = calls[c].op != CommOp::all_to_all;
        if (state[place] != started || theirs[i].op != calls[c].op || (even && theirs[i].bytes != calls[c].bytes)) return false;
        all.push_back(place);
        made.push_back(&theirs[i]);
        found = true;
      }
      if (!found) return false;
    }
    for (std::size_t from = 0; calls[c].op == CommOp::all_to_all && from < made.size(); ++from) {
      for (std::size_t to = 0; to < made.size(); ++to) {
        const auto share = [&](const CommCall& call, const std::vector<std::int64_t>& sizes, std::size_t i) {
          return sizes.empty() ? static_cast<double>(call.bytes) / static_cast<double>(made.size())
                               : static_cast<double>(sizes[i]);
        };
        if (share(*made[from], made[from]->bytes_to, to) != share(*made[to], made[to]->bytes_from, from)) return false;
      }
    }
    for (const std::size_t place : all) state[place] = ended;
    return true;
  }

  const CommProgram& program_;
  std::vector<std::size_t> offset_;
  std::size_t size_ = 0;
};

}  // namespace support
