// One rank's PyTorch profiler trace as the items on its streams (or, without a GPU, threads), and
// their launches.
// Not: communication between the ranks (report/kineto_run.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/replay/traced_run.hpp"
#include "tawpipe/report/detail/kineto_collectives.hpp"
#include "tawpipe/report/detail/kineto_events.hpp"
#include "tawpipe/report/detail/kineto_kinds.hpp"

namespace tawpipe::inline v0::detail {

/// An item that ran on a stream or thread of the rank. Times are microseconds.
struct KinetoItem {
  std::string name;
  double start = 0;
  double end = 0;
  int queue = 0;            ///< the stream of a device, or the thread
  std::int64_t order = -1;  ///< order of launching; -1: unknown
  int call = -1;            ///< the call that launched it; -1: unknown
  Op op = Op::forward;      ///< a computation's pass, or a communication's operation
  TraceKind kind = TraceKind::compute;
  /// the name of its communication, the same on all members; "": unknown
  std::string meeting{};
  std::vector<int> members{};  ///< of that communication; for a message sender and receiver
  std::string group{};         ///< its process group
  std::int64_t bytes = 0;
};

/// Reads a rank's events: the pass, kind and communication of each.
class KinetoRank {
 public:
  KinetoRank(KinetoEvents events, std::string source) : events_{std::move(events)}, source_{std::move(source)} {
    nest(events_);
    read_passes();
    causes_ = causes_by_thread(std::exchange(events_.causes, {}));
    if (events_.kernels.empty()) {
      read_threads();
    } else {
      read_streams();
    }
    std::stable_sort(items_.begin(), items_.end(), [](const KinetoItem& a, const KinetoItem& b) {
      return a.start != b.start ? a.start < b.start : a.end < b.end;
    });
    std::sort(calls_.begin(), calls_.end());
    name_meetings();
    read_waits();
    if (waits_.empty()) expect_waits(main_queue());
    std::map<std::string, int> updates;
    for (const KinetoHostEvent& event : events_.host) {
      if (event.name.starts_with("ProfilerStep#")) steps_.insert(event.name);
      if (event.name.starts_with("Optimizer.step#")) updates_ = std::max(updates_, ++updates[event.name]);
    }
  }

  int rank() const { return static_cast<int>(events_.rank); }
  int world_size() const { return static_cast<int>(events_.world_size); }
  bool on_device() const { return !events_.kernels.empty(); }
  std::int64_t base() const { return events_.base; }
  const std::string& source() const { return source_; }
  const std::vector<KinetoItem>& items() const { return items_; }  ///< by start
  const std::set<std::string>& steps() const { return steps_; }    ///< that the profiler's schedule names
  int updates() const { return updates_; }                         ///< calls of the optimizer that was called most
  /// When its first item or call starts, or the loader before it.
  double first_start() const {
    double first = items_.front().start;
    if (!calls_.empty()) first = std::min(first, calls_.front().first);
    for (const auto& [thread, own] : causes_) {
      if (!own.front().name.starts_with("Python: ")) first = std::min(first, own.front().start);
    }
    return first;
  }
  const KinetoCall& call(int call) const { return events_.calls[static_cast<std::size_t>(call)]; }
  /// Those that launched an item or synchronize, by start: [start, call].
  const std::vector<std::pair<double, int>>& calls() const { return calls_; }
  /// What kept a thread busy, by start, none overlapping another; none: nothing with a name.
  const std::vector<KinetoCause>& causes(int thread) const {
    static const std::vector<KinetoCause> none;
    const auto found = causes_.find(thread);
    return found == causes_.end() ? none : found->second;
  }
  int queues() const { return static_cast<int>(queues_.size()); }
  /// The queue with the most computation.
  int main_queue() const {
    std::vector<double> busy(queues_.size() + 1, 0);
    for (const KinetoItem& item : items_) {
      if (item.kind != TraceKind::communication && item.kind != TraceKind::host)
        busy[static_cast<std::size_t>(item.queue)] += item.end - item.start;
    }
    return static_cast<int>(std::max_element(busy.begin(), busy.end()) - busy.begin());
  }
  /// The communication that item `i` waits for, inferred from the calls before its launch; -1:
  /// none.
  int expected_wait(std::size_t i) const {
    const auto found = expected_.find(static_cast<int>(i));
    return found == expected_.end() ? -1 : found->second;
  }
  double last_end() const {
    double last = 0;
    for (const KinetoItem& item : items_) last = std::max(last, item.end);
    for (const auto& [start, number] : calls_) last = std::max(last, call(number).end);
    return last;
  }
  /// The last to end of the items that item `i` is recorded to wait for: its stream waited, after
  /// the previous item there, for an event recorded after it on another stream. -1: none.
  int noted_wait(std::size_t i) const {
    const KinetoItem& item = items_[i];
    const auto waits = waits_.find(item.queue);
    if (item.order < 0 || waits == waits_.end()) return -1;
    const auto& own = launched_.at(item.queue);
    const auto here = std::lower_bound(own.begin(), own.end(), std::pair{item.order, 0});
    const std::int64_t before = here == own.begin() ? -1 : std::prev(here)->first;
    int found = -1;
    const auto& all = waits->second;
    for (auto w = std::upper_bound(all.begin(), all.end(), before,
                                   [](std::int64_t order, const Waited&one) { return order < one.order; });
         w != all.end() && w->order < item.order; ++w) {
      const auto& earlier = launched_.at(w->queue);
      const auto recorded = std::lower_bound(earlier.begin(), earlier.end(), std::pair{w->recorded, 0});
      if (recorded == earlier.begin()) continue;
      const int last = std::prev(recorded)->second;
      if (found < 0 || items_[static_cast<std::size_t>(last)].end > items_[static_cast<std::size_t>(found)].end) found = last;
    }
    return found;
  }
  /// A name for the lane of a communication, the same on all its members, and on ranks in groups of
  /// that shape. For a message it differs on the two.
  std::string lane_of(const KinetoItem& item) const {
    const std::vector<int>& members = item.members;
    if (item.op == Op::pass) {
      const int by = members[0] == rank() ? members[1] - members[0] : members[0] - members[1];
      return concat("messages ", by > 0 ? "+" : "", by);
    }
    const std::set<std::string>& same = groups_.at(members);
    const auto which = std::distance(same.begin(), same.find(item.group));
    return concat("group of ", members.size(), " by ", members[1] - members[0],
                  which > 0 ? concat(" #", which + 1) : std::string{});
  }
  /// Moves all times. @param shift  microseconds
  void move(double shift) {
    for (KinetoItem& item : items_) {
      item.start += shift;
      item.end += shift;
    }
    for (KinetoCall& call : events_.calls) {
      call.start += shift;
      call.end += shift;
    }
    for (auto& [start, call] : calls_) start += shift;
    for (auto& [thread, own] : causes_) {
      for (KinetoCause& cause : own) {
        cause.start += shift;
        cause.end += shift;
      }
    }
  }

 private:
  const KinetoHostEvent& host(int event) const { return events_.host[static_cast<std::size_t>(event)]; }

  int queue_of(std::int64_t device, std::int64_t stream) {
    return queues_.try_emplace({device, stream}, static_cast<int>(queues_.size())).first->second;
  }

  /// The pass of each host event: that of the nearest enclosing event with one.
  void read_passes() {
    passes_.assign(events_.host.size(), Op::idle);
    std::vector<int> chain;
    for (std::size_t e = 0; e < passes_.size(); ++e) {
      chain.clear();
      Op pass = Op::forward;
      for (int at = static_cast<int>(e); at >= 0; at = host(at).parent) {
        if (passes_[static_cast<std::size_t>(at)] != Op::idle) {
          pass = passes_[static_cast<std::size_t>(at)];
          break;
        }
        chain.push_back(at);
        if (host(at).name.starts_with("Optimizer.step#")) {
          pass = Op::update;
          break;
        }
        if (host(at).name.starts_with("autograd::engine::evaluate_function")) {
          pass = Op::backward;
          break;
        }
      }
      for (const int at : chain) passes_[static_cast<std::size_t>(at)] = pass;
    }
  }

  void read_streams() {
    std::map<std::int64_t, int> by_correlation;
    for (std::size_t c = 0; c < events_.calls.size(); ++c) {
      if (events_.calls[c].correlation >= 0) by_correlation[events_.calls[c].correlation] = static_cast<int>(c);
    }
    std::vector<char> used(events_.calls.size(), 0);
    for (KinetoKernel& kernel : events_.kernels) {
      KinetoItem item{.name = std::move(kernel.name),
                      .start = kernel.start,
                      .end = kernel.end,
                      .queue = queue_of(kernel.device, kernel.stream),
                      .order = kernel.correlation};
      const auto launched = by_correlation.find(kernel.correlation);
      if (kernel.correlation >= 0 && launched != by_correlation.end()) {
        item.call = launched->second;
        used[static_cast<std::size_t>(launched->second)] = 1;
      }
      item.kind = trace_kind_of(item.name);
      const auto& noted = collective_of(events_, kernel);
      if (item.name.starts_with("nccl") || noted) {
        communicate(item, noted ? *noted : KinetoCollective{});
      } else if (const auto by = events_.by_external.find(kernel.external); by != events_.by_external.end()) {
        item.op = passes_[static_cast<std::size_t>(by->second)];
      }
      items_.push_back(std::move(item));
    }
    for (std::size_t c = 0; c < used.size(); ++c) {
      if (used[c] != 0 || events_.calls[c].synchronizes) calls_.emplace_back(events_.calls[c].start, static_cast<int>(c));
    }
  }

  /// Without a GPU: operators that no other operator called, and Gloo's records of its collectives.
  void read_threads() {
    for (std::size_t e = 0; e < events_.host.size(); ++e) {
      const KinetoHostEvent& event = events_.host[e];
      const bool gloo = event.name.starts_with("gloo:");
      if (!gloo && (event.annotation || called(event) || inside_cause(event))) continue;
      KinetoItem item{.name = event.name, .start = event.start, .end = event.end, .queue = queue_of(0, event.thread)};
      item.op = passes_[e];
      item.kind = trace_kind_of(item.name);
      if (gloo) {
        KinetoCollective noted{.name = event.name.substr(5)};
        noted.group_size = events_.world_size;
        communicate(item, noted);
      }
      items_.push_back(std::move(item));
    }
    for (const auto& [thread, causes] : causes_) {
      for (const KinetoCause& cause : causes) {
        if (cause.name.starts_with("Python: ")) continue;  // what it calls are operators, which count
        items_.push_back({.name = cause.name,
                          .start = cause.start,
                          .end = cause.end,
                          .queue = queue_of(0, thread),
                          .op = Op::idle,
                          .kind = TraceKind::host});
      }
    }
  }
  bool inside_cause(const KinetoHostEvent& event) const {
    const std::vector<KinetoCause>& own = causes(event.thread);
    return std::any_of(own.begin(), own.end(), [&](const KinetoCause& one) {
      return !one.name.starts_with("Python: ") && one.start <= event.start && event.start < one.end;
    });
  }
  bool called(const KinetoHostEvent& event) const {
    for (int at = event.parent; at >= 0; at = host(at).parent) {
      if (!host(at).annotation) return true;
    }
    return false;
  }

  void communicate(KinetoItem& item, const KinetoCollective& noted) const {
    item.kind = TraceKind::communication;
    const std::string name = lower_case(noted.name);
    const bool sends = name == "send";
    const bool passes = sends || name == "recv";
    item.op = passes ? Op::pass
                     : op_of(noted.name)
                           .value_or(name.find("to_all") != std::string::npos || name.starts_with("alltoall") ? Op::all_to_all
                                                                                                              : Op::all_reduce);
    item.bytes = bytes_of(noted);
    if (noted.name.empty() || name == "coalesced") return;
    std::vector<int> members;
    // A send records its destination, a receive its source (PyTorch, torch/csrc/profiler/util.cpp,
    // saveNcclMeta).
    if (const std::int64_t other = sends ? noted.destination : noted.source;
        passes && other >= 0 && other < KinetoReader::max_ranks) {
      members = {sends ? rank() : static_cast<int>(other), sends ? static_cast<int>(other) : rank()};
    } else {
      for (const Rank member : members_of(events_, noted)) members.push_back(number(member));
      if (members.empty() && noted.group_size == events_.world_size) {
        for (int r = 0; r < world_size(); ++r) members.push_back(r);
      }
      std::sort(members.begin(), members.end());
      if (passes && members.size() == 2 && (members.front() == rank()) != sends) std::swap(members[0], members[1]);
      if (passes && members.size() != 2) members.clear();  // the destination is not recorded
    }
    if (members.size() < 2 || std::find(members.begin(), members.end(), rank()) == members.end()) return;
    item.meeting = concat(passes ? "message" : name, " in ", noted.group.empty() ? "" : concat("group ", noted.group, " "), "[");
    for (std::size_t m = 0; m < members.size() && m < 8; ++m) item.meeting += concat(m > 0 ? ", " : "", members[m]);
    item.meeting += concat(members.size() > 8 ? concat(", ... of ", members.size()) : std::string{}, "]");
    // Messages are numbered on each rank by itself, so only their order between the two matters.
    if (noted.sequence >= 0 && !passes) item.meeting += concat(" with sequence number ", noted.sequence);
    item.members = std::move(members);
    item.group = noted.group;
  }

  void read_waits() {
    for (std::size_t i = 0; i < items_.size(); ++i) launched_[items_[i].queue].emplace_back(items_[i].order, static_cast<int>(i));
    for (auto& [queue, items] : launched_) std::sort(items.begin(), items.end());
    const auto queue_on = [&](std::int64_t stream) {
      const auto found =
          std::find_if(queues_.begin(), queues_.end(), [&](const auto& one) { return one.first.second == stream; });
      return found == queues_.end() ? -1 : found->second;
    };
    for (const KinetoWait& wait : events_.waits) {
      const int queue = queue_on(wait.stream);
      const int earlier = queue_on(wait.earlier_stream);
      if (queue >= 0 && earlier >= 0) waits_[queue].push_back({wait.correlation, earlier, wait.recorded});
    }
    for (auto& [queue, waits] : waits_) {
      std::sort(waits.begin(), waits.end(), [](const Waited& a, const Waited& b) { return a.order < b.order; });
    }
  }

  /// Calls that make a stream wait do not name the event. One before the launch of a computation is
  /// assumed to wait for the earliest launched communication that nothing waits for yet, since
  /// programs wait for them in order; sends come last, since nothing needs their end soon.
  void expect_waits(int main) {
    std::vector<std::pair<std::int64_t, int>> launched;  // order, item
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].order >= 0) launched.emplace_back(items_[i].order, static_cast<int>(i));
    }
    std::sort(launched.begin(), launched.end());
    std::vector<std::int64_t> waits;
    for (const KinetoCall& call : events_.calls) {
      if (call.waits && call.correlation >= 0) waits.push_back(call.correlation);
    }
    std::sort(waits.begin(), waits.end());
    std::vector<int> open;  // communications, by launch
    auto next = launched.begin();
    for (const std::int64_t wait : waits) {
      for (; next != launched.end() && next->first < wait; ++next) {
        if (items_[static_cast<std::size_t>(next->second)].kind == TraceKind::communication) open.push_back(next->second);
      }
      if (next == launched.end()) break;
      const KinetoItem& item = items_[static_cast<std::size_t>(next->second)];
      if (item.queue != main || item.kind == TraceKind::communication) continue;
      const auto fits = [&](int communication, bool sends) {
        const KinetoItem& one = items_[static_cast<std::size_t>(communication)];
        return one.end <= item.start && (one.op == Op::pass && !one.members.empty() && one.members[0] == rank()) == sends;
      };
      auto found = std::find_if(open.begin(), open.end(), [&](int one) { return fits(one, false); });
      if (found == open.end()) found = std::find_if(open.begin(), open.end(), [&](int one) { return fits(one, true); });
      if (found == open.end()) continue;
      expected_.insert_or_assign(next->second, *found);
      open.erase(found);
    }
  }

  /// Numbers the communications of the same name, in order.
  void name_meetings() {
    std::map<std::string, int> count;
    for (KinetoItem& item : items_) {
      if (item.meeting.empty()) continue;
      item.meeting += concat(", number ", ++count[item.meeting]);
      groups_[item.members].insert(item.group);
    }
  }

  /// A wait of a stream: after the work launched on it before `order`, for the work on `queue`
  /// before `recorded`.
  struct Waited {
    std::int64_t order;
    int queue;
    std::int64_t recorded;
  };

  KinetoEvents events_;
  std::string source_;
  std::vector<KinetoItem> items_;
  std::vector<Op> passes_;                                       ///< [host event]
  std::map<std::pair<std::int64_t, std::int64_t>, int> queues_;  ///< [device, stream]
  std::vector<std::pair<double, int>> calls_;
  std::map<int, std::vector<KinetoCause>> causes_;  ///< [thread]
  std::set<std::string> steps_;
  int updates_ = 0;
  /// [queue] order and item, by order
  std::map<int, std::vector<std::pair<std::int64_t, int>>> launched_;
  std::map<int, std::vector<Waited>> waits_;                  ///< [queue] by order
  std::map<int, int> expected_;                               ///< [item] communication
  std::map<std::vector<int>, std::set<std::string>> groups_;  ///< [members] process groups
};

}  // namespace tawpipe::inline v0::detail
