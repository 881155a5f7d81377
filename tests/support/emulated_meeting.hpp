// The calls of one communicator's members: which meet, and what is moved where they do.
// Not: when a member calls (emulated_machine.hpp) nor through what (test_communicator.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "support/test_communicator.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/execute/cuda/device_api.hpp"

namespace support {

/// A call that a member has started.
struct EmulatedCall {
  CommunicatorCall call;
  int stream;
  int member;
};

/// Pairs up the calls of one communicator: a send with its receive, a collective when its last
/// member has come.
class EmulatedMeeting {
 public:
  /// Makes room for a member.
  void add_member(std::size_t member) { collectives_of_.resize(std::max(collectives_of_.size(), member + 1)); }

  /// Starts a call. `end(call)` is called for each call that is done by it.
  /// @throws DeviceError  if calls that meet do not match.
  template <class End>
  void start(const EmulatedCall& started, End&& end) {
    if (started.call.is_pair()) {
      start_pair(started, end);
    } else {
      start_collective(started, end);
    }
  }

 private:
  template <class End>
  void start_pair(const EmulatedCall& started, End&& end) {
    const bool sends = started.call.kind == CommunicatorCall::Kind::send;
    const std::pair<int, int> way =
        sends ? std::pair{started.member, started.call.peer} : std::pair{started.call.peer, started.member};
    (sends ? sends_ : receives_)[way].push_back(started);
    std::deque<EmulatedCall>& out = sends_[way];
    std::deque<EmulatedCall>& in = receives_[way];
    if (out.empty() || in.empty()) return;
    const EmulatedCall sent = out.front();
    const EmulatedCall received = in.front();
    out.pop_front();
    in.pop_front();
    if (sent.call.count != received.call.count || sent.call.type != received.call.type) {
      throw tawpipe::DeviceError("a send and its receive differ");
    }
    std::memmove(received.call.to, sent.call.from, bytes(sent.call));
    end(sent);
    end(received);
  }

  template <class End>
  void start_collective(const EmulatedCall& started, End&& end) {
    const std::int64_t at = collectives_of_[static_cast<std::size_t>(started.member)]++;
    collectives_[at].push_back(started);
    if (collectives_[at].size() < collectives_of_.size()) return;
    std::vector<EmulatedCall> all = std::move(collectives_[at]);
    collectives_.erase(at);
    std::sort(all.begin(), all.end(), [](const EmulatedCall& a, const EmulatedCall& b) { return a.member < b.member; });
    for (const EmulatedCall& one : all) {
      if (one.call.kind != all[0].call.kind || one.call.count != all[0].call.count || one.call.type != all[0].call.type ||
          one.call.peer != all[0].call.peer) {
        throw tawpipe::DeviceError("members call different collectives");
      }
    }
    if (all[0].call.type == tawpipe::Dtype::f64) {
      collective<double>(all);
    } else {
      collective<float>(all);
    }
    for (const EmulatedCall& one : all) end(one);
  }

  static std::size_t bytes(const CommunicatorCall& call) {
    return static_cast<std::size_t>(call.count * tawpipe::size_bytes(call.type));
  }

  template <class T>
  static void collective(const std::vector<EmulatedCall>& all) {
    using Kind = CommunicatorCall::Kind;
    const CommunicatorCall& first = all[0].call;
    const auto count = static_cast<std::size_t>(first.count);
    const std::size_t n = all.size();
    const bool sum = first.kind != Kind::broadcast && first.kind != Kind::all_gather;
    std::vector<T> message(first.kind == Kind::all_gather || first.kind == Kind::reduce_scatter ? n * count : count);
    for (std::size_t m = 0; m < n; ++m) {
      const T* from = reinterpret_cast<const T*>(all[m].call.from);
      if (first.kind == Kind::broadcast && m != static_cast<std::size_t>(first.peer)) continue;
      T* to = message.data() + (first.kind == Kind::all_gather ? m * count : 0);
      const std::size_t numbers = first.kind == Kind::reduce_scatter ? n * count : count;
      for (std::size_t i = 0; i < numbers; ++i) {
        if (sum && m > 0) {
          to[i] = first.reduction == tawpipe::cuda::Reduction::maximum ? std::max(to[i], from[i]) : to[i] + from[i];
        } else {
          to[i] = from[i];
        }
      }
    }
    for (std::size_t m = 0; m < n; ++m) {
      if (first.kind == Kind::reduce && m != static_cast<std::size_t>(first.peer)) continue;
      const bool scatter = first.kind == Kind::reduce_scatter;
      const T* from = message.data() + (scatter ? m * count : 0);
      std::copy_n(from, scatter ? count : message.size(), reinterpret_cast<T*>(all[m].call.to));
    }
  }

  std::vector<std::int64_t> collectives_of_;                                  ///< [member] how many it has called
  std::map<std::int64_t, std::vector<EmulatedCall>> collectives_;             ///< by their number
  std::map<std::pair<int, int>, std::deque<EmulatedCall>> sends_, receives_;  ///< by source and destination
};

}  // namespace support
