// PyTorch profiler (Kineto) traces of all ranks of a job, read as one run that can be replayed.
// Not: times of a model's parts from them (report/kineto_trace.hpp), nor what-if questions
// (replay/what_if.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/replay/trace_recorder.hpp"
#include "tawpipe/replay/traced_run.hpp"
#include "tawpipe/report/detail/kineto_events.hpp"
#include "tawpipe/report/detail/kineto_host.hpp"
#include "tawpipe/report/detail/kineto_meetings.hpp"
#include "tawpipe/report/detail/kineto_rank.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Puts the events of all ranks into one recorder.
class KinetoJob {
 public:
  KinetoJob(std::vector<KinetoRank> ranks, std::vector<std::string>& notes)
      : ranks_{std::move(ranks)}, notes_{notes}, recorder_{static_cast<int>(ranks_.size()), 1, 1} {}

  TracedRun read() {
    const KinetoMeetings meetings{ranks_, notes_};
    zero_ = ranks_.front().first_start();
    for (const KinetoRank& rank : ranks_) zero_ = std::min(zero_, rank.first_start());
    for (const KinetoRank& rank : ranks_) {
      if (rank.last_end() - zero_ < longest) continue;
      throw InputError(one_line(concat(rank.source(),
                                       ": it ends more than a day after the first event of all ranks; the traces "
                                       "must be of the same steps, with clocks less than that apart")));
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) add_rank(static_cast<int>(r));
    meet(meetings);
    TracedRun run;
    for (const KinetoRank& rank : ranks_) run.ranks.push_back({rank.rank(), concat("rank ", rank.rank())});
    const std::set<std::string>& steps = ranks_.front().steps();
    const std::string name = steps.empty() ? std::string{"trace"} : *steps.begin();
    run.steps.push_back(recorder_.build(name, steps.empty() ? updates() : static_cast<int>(steps.size())));
    run.names = std::move(names_);
    note();
    return run;
  }

 private:
  static std::size_t at(int number) { return static_cast<std::size_t>(number); }

  TimePoint time(double microseconds) const { return TimePoint{seconds(std::max(0.0, microseconds - zero_) * 1e-6)}; }

  std::int32_t name_of(const std::string& name) {
    const auto [found, added] = known_names_.try_emplace(name, static_cast<std::int32_t>(names_.size()));
    if (added) names_.push_back(name);
    return found->second;
  }
  /// The class of the n-th event of that name on a rank, which is also that of other ranks' n-th.
  /// @param host  for its launch
  std::int32_t alike(std::int32_t name, std::int32_t n, bool host) {
    return classes_.try_emplace({name, n, host}, static_cast<std::int32_t>(classes_.size())).first->second;
  }

  /// Optimizer steps where the profiler had no schedule: of the rank with the fewest, since one may
  /// have several optimizers of a name.
  int updates() const {
    int fewest = 0;
    for (const KinetoRank& rank : ranks_) {
      if (rank.updates() > 0 && (fewest == 0 || rank.updates() < fewest)) fewest = rank.updates();
    }
    return std::max(1, fewest);
  }

  void add_rank(int r) {
    const KinetoRank& rank = ranks_[at(r)];
    const auto& items = rank.items();
    const int main = rank.main_queue();
    const double latency = rank.on_device() ? 20 : 500;  // microseconds from an event to its dependents
    // Numbers of items and their classes first, since launches are named after the launched items.
    std::map<std::int32_t, std::int32_t> count;
    std::vector<std::int32_t> classes(items.size());
    std::vector<std::int32_t> launches(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::int32_t name = name_of(items[i].name);
      const std::int32_t n = count[name]++;
      classes[i] = alike(name, n, false);
      launches[i] = alike(name, n, true);
    }
    const std::vector<KinetoStretch> stretches = host_stretches(rank);
    std::vector<std::size_t> host_order(stretches.size());
    for (std::size_t h = 0; h < host_order.size(); ++h) host_order[h] = h;
    std::stable_sort(host_order.begin(), host_order.end(),
                     [&](std::size_t a, std::size_t b) { return stretches[a].end < stretches[b].end; });
    std::vector<std::int32_t> host_events(stretches.size(), -1);
    std::map<int, std::int32_t> launched_by;  // [call] host event
    std::vector<std::int32_t> event_of(items.size(), -1);
    std::vector<int> last_of_queue(at(rank.queues()), -1);
    std::size_t next = 0;
    std::vector<std::size_t> by_end;  // items that were added, by their end
    const auto host_class = [&](const KinetoStretch& one) {
      if (one.cause.empty()) return one.launched >= 0 ? launches[at(one.launched)] : -1;
      const std::int32_t name = name_of(one.cause);
      return alike(name, count[name]++, false);
    };
    const auto add_host = [&](std::size_t h) {
      const KinetoStretch& one = stretches[h];
      const std::int32_t added =
          recorder_.add({.op = Op::idle,
                         .kind = TraceKind::host,
                         .rank = Rank{r},
                         .lane = recorder_.lane(one.thread > 0 ? concat("host ", one.thread + 1) : std::string{"host"}),
                         .name = name_of(one.cause.empty() ? "host" : one.cause),
                         .alike = host_class(one),
                         .start = time(one.start),
                         .end = time(one.end)});
      if (one.before >= 0) recorder_.wait(added, host_events[at(one.before)]);
      if (one.after_item >= 0) recorder_.wait(added, event_of[at(one.after_item)]);
      if (one.launched >= 0) launched_by[one.call] = added;
      host_events[h] = added;
    };
    for (std::size_t i = 0; i < items.size(); ++i) {
      const KinetoItem& item = items[i];
      while (next < host_order.size() && stretches[host_order[next]].end <= item.start) add_host(host_order[next++]);
      const bool apart = item.kind == TraceKind::communication && !item.members.empty();
      const std::string lane = apart                ? rank.lane_of(item)
                               : item.queue == main ? std::string{"compute"}
                                                    : concat(rank.on_device() ? "stream " : "thread ", item.queue + 1);
      const std::int32_t added = recorder_.add({.op = item.op,
                                                .kind = item.kind,
                                                .rank = Rank{r},
                                                .lane = recorder_.lane(lane),
                                                .name = name_of(item.name),
                                                .alike = classes[i],
                                                .start = time(item.start),
                                                .end = time(item.end)});
      event_of[i] = added;
      double floor = -1;
      const auto wait = [&](int earlier) {
        if (earlier < 0 || event_of[at(earlier)] < 0) return;
        recorder_.wait(added, event_of[at(earlier)]);
        if (items[at(earlier)].end <= item.start) floor = std::max(floor, items[at(earlier)].end);
      };
      wait(last_of_queue[at(item.queue)]);
      last_of_queue[at(item.queue)] = static_cast<int>(i);
      if (const auto host = launched_by.find(item.call); item.call >= 0 && host != launched_by.end()) {
        recorder_.wait(added, host->second);
        floor = std::max(floor, zero_ + to_seconds(recorder_.event(host->second).end) * 1e6);
      }
      wait(rank.noted_wait(i));
      wait(rank.expected_wait(i));
      if (item.kind == TraceKind::communication) wait(last_computation(items, i, main));
      infer(items, by_end, i, floor, latency, wait);
      insert_by_end(items, by_end, i);
    }
    while (next < host_order.size()) add_host(host_order[next++]);
    item_events_.push_back(std::move(event_of));
  }

  /// The last item of the computing queue that was launched before a communication, for which it
  /// waits; -1: none.
  static int last_computation(const std::vector<KinetoItem>& items, std::size_t i, int main) {
    for (std::size_t b = i; b-- > 0;) {
      if (items[b].queue != main || items[b].kind == TraceKind::communication) continue;
      if (items[i].order >= 0 && items[b].order > items[i].order) continue;
      if (items[b].end > items[i].start) continue;  // it did not wait for this one
      return static_cast<int>(b);
    }
    return -1;
  }

  /// If no known dependency explains an item's start, it is assumed to wait for the item that ended
  /// just before it on another queue. After a communication what woke late may start later, by a
  /// small part of the gap, as for the host of a device (waited_for()).
  template <class Wait>
  static void infer(const std::vector<KinetoItem>& items, const std::vector<std::size_t>& by_end, std::size_t i, double floor,
                    double latency, Wait&& wait) {
    const KinetoItem& item = items[i];
    if (item.start - floor <= 2) return;
    const double late = floor < 0 ? latency : std::max(latency, (item.start - floor) / 20);
    int tries = 8;
    for (auto at = by_end.rbegin(); at != by_end.rend() && tries > 0; ++at) {
      const KinetoItem& earlier = items[*at];
      if (earlier.end > item.start) continue;
      const bool wakes = earlier.kind == TraceKind::communication;
      if (earlier.end <= floor || item.start - earlier.end > (wakes ? late : latency)) return;
      --tries;
      if (earlier.queue == item.queue) continue;
      if (earlier.order >= 0 && item.order >= 0 && earlier.order > item.order) continue;
      wait(static_cast<int>(*at));
      return;
    }
  }
  static void insert_by_end(const std::vector<KinetoItem>& items, std::vector<std::size_t>& by_end, std::size_t i) {
    auto place = by_end.end();
    while (place != by_end.begin() && items[*std::prev(place)].end > items[i].end) --place;
    by_end.insert(place, i);
  }

  void meet(const KinetoMeetings& meetings) {
    for (const auto& members : meetings.all()) {
      std::vector<std::int32_t> events;
      std::int64_t bytes = 0;
      for (const KinetoMeetings::Place& place : members) {
        events.push_back(item_events_[at(place.first)][at(place.second)]);
        bytes = std::max(bytes, meetings.item(place).bytes);
      }
      recorder_.meet(std::move(events), Bytes{bytes});
    }
  }

  void note() {
    if (recorder_.contradicted() > 0) {
      notes_.push_back(
          concat(recorder_.contradicted(), " of the waits that were expected did not happen in the trace and are left out."));
    }
    if (recorder_.early_end() > Duration{1'000'000'000}) {
      notes_.push_back(concat("A collective ended on one rank ", recorder_.early_end().value() / 1'000'000,
                              " us before it started on another: their clocks are not aligned."));
    }
  }

  static constexpr double longest = 86'400e6;  ///< microseconds

  std::vector<KinetoRank> ranks_;
  std::vector<std::string>& notes_;
  TraceRecorder recorder_;
  std::vector<std::vector<std::int32_t>> item_events_;  ///< [rank][item]
  std::vector<std::string> names_;
  std::map<std::string, std::int32_t> known_names_;
  std::map<std::tuple<std::int32_t, std::int32_t, bool>, std::int32_t> classes_;
  double zero_ = 0;
};

}  // namespace detail

/// Collects the traces of a job, one for each rank, written by torch.profiler's
/// export_chrome_trace.
///
/// Items run on streams (in a GPU's trace) or on threads (without a GPU). Dependencies: order in a
/// stream; a launch before its kernel, and on a thread of the host one launch after another, with
/// the time between them counted as the host's; a wait of the host for the device; a communication
/// for the computations launched before it, and for its last member; with enable_cuda_sync_events,
/// waits between streams as recorded. A long gap of the host that ends with a communication of the
/// rank is the wait for it. What kept the host busy has a name where the trace has one: the data
/// loader, the garbage collector, a function of Python (with_stack=True). Otherwise a call of
/// cudaStreamWaitEvent before a computation is assumed to be for the first communication that
/// nothing waits for yet; and an item that starts within 20 us after the end of another stream's,
/// and for no other reason, waits for that. Other waits, which caused no delay, are not detected.
class KinetoRunReader {
 public:
  /// @param partial  ranks may be missing: their part in communications is then unknown
  explicit KinetoRunReader(bool partial = false) : partial_{partial} {}

  /// @param source  the file's name, for messages
  /// @throws InputError  as read_kineto_trace(), or if that rank was already given.
  void add(std::string_view text, std::string_view source) {
    detail::KinetoRank rank{detail::KinetoReader::read(text, source, true), std::string{source}};
    if (rank.items().empty())
      throw InputError(one_line(concat(source, ": no kernel and no operator in it; profile at least one step")));
    for (const detail::KinetoRank& other : ranks_) {
      if (other.rank() != rank.rank()) continue;
      throw InputError(one_line(concat(other.source(), " and ", source, " are both of rank ", rank.rank(),
                                       "; give each rank's trace once, of one job")));
    }
    ranks_.push_back(std::move(rank));
  }

  /// The reader is empty afterwards.
  /// @throws InputError  if there is none, a rank is missing, or their steps or communications do
  /// not match.
  TracedRun take() {
    if (ranks_.empty()) throw InputError("no trace; give one of each rank");
    std::sort(ranks_.begin(), ranks_.end(), [](const auto& a, const auto& b) { return a.rank() < b.rank(); });
    std::vector<std::string> notes;
    int world = 1;
    for (const detail::KinetoRank& rank : ranks_) world = std::max({world, rank.world_size(), rank.rank() + 1});
    if (static_cast<int>(ranks_.size()) < world) {
      int missing = 0;
      while (missing < static_cast<int>(ranks_.size()) && ranks_[static_cast<std::size_t>(missing)].rank() == missing) ++missing;
      if (!partial_) {
        throw InputError(concat("no trace of rank ", missing, " of ", world,
                                "; give the traces of all ranks, or --partial to go on with what there is"));
      }
      notes.push_back(
          concat("Of ", world, " ranks ", ranks_.size(), " were traced: the wait for another rank counts as communication."));
    }
    for (const detail::KinetoRank& rank : ranks_) {
      const detail::KinetoRank& first = ranks_.front();
      if (rank.steps() == first.steps()) continue;
      const auto shown = [](const detail::KinetoRank& one) {
        return one.steps().empty()
                   ? concat(one.source(), " has no ProfilerStep")
                   : concat(one.source(), " has ", *one.steps().begin(), " and ", one.steps().size() - 1, " more");
      };
      throw InputError(one_line(concat("the traces are of different steps: ", shown(first), ", and ", shown(rank),
                                       "; profile the same steps on all ranks")));
    }
    TracedRun run = detail::KinetoJob{std::exchange(ranks_, {}), notes}.read();
    run.notes = std::move(notes);
    return run;
  }

 private:
  bool partial_;
  std::vector<detail::KinetoRank> ranks_;
};

}  // namespace tawpipe
