// The threads of a rank's host, from a PyTorch profiler trace: stretches that end with a launch or
// with a wait for the device.
// Not: the device's work (kineto_rank.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/report/detail/kineto_rank.hpp"

namespace tawpipe::inline v0::detail {

/// A stretch of a host thread that ends with a launch, or with a wait for the device.
struct KinetoStretch {
  double start = 0;
  double end = 0;
  int thread = 0;       ///< numbered by their first calls
  int before = -1;      ///< the stretch of another thread that it follows; -1: none
  int after_item = -1;  ///< the item that it waits for; -1: none
  int launched = -1;    ///< the first item that the call launched
  int call = -1;        ///< the call at its end
  std::string cause{};  ///< what kept the host busy, by name; "": its own work
};

/// A gap that ends when a communication of the rank ends, launched before the gap, is the host's
/// wait for it, however it waits: a blocking wait of Python calls nothing of CUDA's that the trace
/// shows. The gap must be long, and what is left after the communication's end a small part of it.
/// @param communications  their ends and items, by end
/// @return the item; -1: the host was at work
inline int waited_for(const KinetoRank& rank, const std::vector<std::pair<double, int>>& communications, double start,
                      double end) {
  constexpr double shortest = 500;  // microseconds
  if (end - start < shortest) return -1;
  const auto after =
      std::upper_bound(communications.begin(), communications.end(), std::pair{end, std::numeric_limits<int>::max()});
  if (after == communications.begin()) return -1;
  const auto& [last, item] = *std::prev(after);
  if (last <= start || end - last > std::max(100.0, (end - start) / 20)) return -1;
  const KinetoItem& one = rank.items()[static_cast<std::size_t>(item)];
  const double launched = one.call >= 0 ? rank.call(one.call).start : one.start;
  return launched <= start ? item : -1;
}

/// Adds a stretch, cut where something with a name kept its thread busy, and without what was
/// waiting.
/// @param thread  as the trace's events have it
inline void push_stretch(std::vector<KinetoStretch>& stretches, const KinetoRank& rank,
                         const std::vector<std::pair<double, int>>& communications, int thread, KinetoStretch whole) {
  double from = whole.start;
  const auto push = [&](double until, const std::string& cause, bool last) {
    KinetoStretch piece{.start = from, .end = until, .thread = whole.thread, .cause = cause};
    if (from == whole.start) piece.before = whole.before;
    if (last) {
      piece.launched = whole.launched;
      piece.call = whole.call;
    }
    const bool works = cause == KinetoReader::loader_cause || cause == KinetoReader::collector_cause;
    if (const int item = works ? -1 : waited_for(rank, communications, from, until); item >= 0) {
      piece.after_item = item;
      piece.start = rank.items()[static_cast<std::size_t>(item)].end;
      piece.cause.clear();
    }
    stretches.push_back(std::move(piece));
    from = until;
  };
  for (const KinetoCause& cause : rank.causes(thread)) {
    if (cause.end <= from) continue;
    if (cause.start >= whole.end) break;
    if (cause.start > from) push(cause.start, "", false);
    push(std::min(cause.end, whole.end), cause.name, false);
  }
  push(whole.end, "", true);
}

/// The host's threads, cut where they launch and where they wait; in the order of their calls. An
/// idle thread continues from the last call of another thread, as the backward thread does from the
/// program's main thread.
inline std::vector<KinetoStretch> host_stretches(const KinetoRank& rank) {
  const auto at = [](int number) { return static_cast<std::size_t>(number); };
  const auto& items = rank.items();
  std::map<int, std::vector<int>> launched;  // [call] items
  std::vector<std::pair<double, int>> ends;  // of items
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].call >= 0) launched[items[i].call].push_back(static_cast<int>(i));
    ends.emplace_back(items[i].end, static_cast<int>(i));
  }
  std::sort(ends.begin(), ends.end());
  std::vector<std::pair<double, int>> communications;  // by their ends
  for (const auto& [end, item] : ends) {
    if (items[at(item)].kind == TraceKind::communication) communications.emplace_back(end, item);
  }
  std::vector<KinetoStretch> stretches;
  std::map<int, int> threads;
  std::vector<double> last;      // [thread] the end of its last stretch
  std::vector<int> last_number;  // and its index
  for (const auto& [start, number] : rank.calls()) {
    const KinetoCall& call = rank.call(number);
    const int thread = threads.try_emplace(call.thread, static_cast<int>(threads.size())).first->second;
    if (at(thread) >= last.size()) {
      last.resize(at(thread) + 1, rank.first_start());
      last_number.resize(at(thread) + 1, -1);
    }
    const auto found = launched.find(number);
    KinetoStretch stretch{.start = last[at(thread)], .thread = thread, .call = number};
    for (std::size_t other = 0; other < last.size(); ++other) {  // a thread continues where another one woke it
      if (last[other] > stretch.start && last[other] <= start) {
        stretch.start = last[other];
        stretch.before = last_number[other];
      }
    }
    stretch.end = std::max(stretch.start, start);
    double blocked = call.synchronizes ? call.end : -1;
    if (found != launched.end()) {
      double first = call.end;
      double end = 0;
      for (const int i : found->second) {
        first = std::min(first, items[at(i)].start);
        end = std::max(end, items[at(i)].end);
      }
      stretch.launched = found->second.front();
      stretch.end = std::max(stretch.end, first);
      if (end <= call.end) blocked = call.end;  // a copy for which the host waits
    }
    push_stretch(stretches, rank, communications, call.thread, stretch);
    last_number[at(thread)] = static_cast<int>(stretches.size()) - 1;
    last[at(thread)] = stretch.end;
    if (blocked < 0) continue;
    // The host waited for the device's last item that ended before the call returned.
    const auto after = std::upper_bound(ends.begin(), ends.end(), std::pair{blocked, std::numeric_limits<int>::max()});
    KinetoStretch wait{.start = stretch.end, .end = std::max(stretch.end, blocked), .thread = thread, .call = -1};
    if (after != ends.begin() && std::prev(after)->first > stretch.end) {
      wait.after_item = std::prev(after)->second;
      wait.start = std::prev(after)->first;
    }
    last_number[at(thread)] = static_cast<int>(stretches.size());
    last[at(thread)] = wait.end;
    stretches.push_back(wait);
  }
  return stretches;
}

}  // namespace tawpipe::detail
