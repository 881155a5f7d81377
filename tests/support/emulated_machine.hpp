// A machine of devices over host memory, for tests of the CUDA executors where there is no GPU:
// streams run lazily, in a random order that keeps only what streams, events and communications
// promise.
// Not: fast; the interface that executors use (emulated_device.hpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/emulated_meeting.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace support {

/// Which of the orders that are allowed the emulation takes.
struct EmulatedOrder {
  std::uint64_t seed = 1;
  /// Work of one device starts in the order in which it was issued, as with one hardware queue:
  /// what waits holds up everything after it. What does not hang here hangs on no device.
  bool in_issue_order = false;
  bool threads = false;  ///< ranks are threads: that nothing can run does not mean that nothing will
};

/// All devices, streams, events and communicators of one test.
class EmulatedMachine {
 public:
  explicit EmulatedMachine(EmulatedOrder order) : order_{order}, random_{order.seed} {}

  using Work = std::function<void()>;
  static constexpr int never = -1;

  // ---- streams and events ----

  int make_stream(int device) {
    const Lock lock{mutex_};
    if (static_cast<std::size_t>(device) >= issued_.size()) {
      issued_.resize(static_cast<std::size_t>(device) + 1);
      started_.resize(issued_.size());
      capture_.resize(issued_.size());
    }
    streams_.push_back({device, {}, random_()});
    return static_cast<int>(streams_.size()) - 1;
  }
  int make_event() {
    const Lock lock{mutex_};
    events_.push_back(never);
    return static_cast<int>(events_.size()) - 1;
  }
  void enqueue(int stream, Work work) {
    Item item;
    item.work = std::move(work);
    put(stream, std::move(item));
  }
  void record(int event, int stream) {
    Item item;
    item.kind = Item::Kind::record;
    item.event = event;
    put(stream, std::move(item));
  }
  void wait(int stream, int event) {
    Item item;
    item.kind = Item::Kind::wait;
    item.event = event;
    put(stream, std::move(item));
  }
  /// Runs something, then says whether the event's last mark is reached. @throws DeviceError  if it
  /// never will be.
  bool finished(int event) {
    const Lock lock{mutex_};
    const int mark = events_[static_cast<std::size_t>(event)];
    for (int turn = 0; turn < 1000; ++turn) {
      if (mark == never || marks_[static_cast<std::size_t>(mark)] != never) return true;
      if (advance()) continue;
      if (order_.threads) return false;
      throw tawpipe::DeviceError("the emulated device hangs: " + stuck());
    }
    return false;
  }
  /// None: of an event that a graph has recorded, when it is asked for first.
  std::optional<double> time(int event) {
    const Lock lock{mutex_};
    if (early_.erase(event) > 0) return std::nullopt;
    const int mark = events_[static_cast<std::size_t>(event)];
    const std::int64_t at = mark == never ? never : marks_[static_cast<std::size_t>(mark)];
    if (at == never) throw tawpipe::DeviceError("the time of an event that was not reached");
    return 1e-6 * static_cast<double>(at);
  }

  // ---- graphs ----

  void begin_capture(int stream) {
    const Lock lock{mutex_};
    Capture capture;
    capture.origin = stream;
    capture.joined.insert(stream);
    capture_[device_of(stream)] = std::move(capture);
  }
  int end_capture(int stream) {
    const Lock lock{mutex_};
    Capture capture = std::move(*capture_[device_of(stream)]);
    capture_[device_of(stream)].reset();
    if (!capture.unjoined.empty()) throw tawpipe::DeviceError("a captured stream has not been waited for at the capture's end");
    graphs_.push_back({std::move(capture.items), {}});
    for (const int joined : capture.joined) graphs_.back().streams[joined] = make_stream(streams_[to_size(stream)].device);
    return static_cast<int>(graphs_.size()) - 1;
  }
  void launch(int graph, int stream) {
    const Lock lock{mutex_};
    Graph& launched = graphs_[to_size(graph)];
    const int begin = make_event();
    record(begin, stream);
    for (const auto& [captured, own] : launched.streams) wait(own, begin);
    for (const auto& [captured, item] : launched.items) {
      if (item.kind == Item::Kind::record) early_.insert(item.event);
      put(launched.streams.at(captured), item);
    }
    for (const auto& [captured, own] : launched.streams) {
      const int end = make_event();
      record(end, own);
      wait(stream, end);
    }
    ++launches;
  }

  // ---- communicators ----

  void make_member(int communicator, int member) {
    const Lock lock{mutex_};
    communicators_.resize(std::max(communicators_.size(), to_size(communicator) + 1));
    auto& members = communicators_[to_size(communicator)].members;
    members.resize(std::max(members.size(), to_size(member) + 1));
    communicators_[to_size(communicator)].meeting.add_member(to_size(member));
  }
  void communicate(int communicator, int member, std::vector<CommunicatorCall> calls, int stream) {
    const Lock lock{mutex_};
    Item item;
    item.kind = Item::Kind::communication;
    item.communicator = communicator;
    item.member = member;
    item.calls = std::move(calls);
    put(stream, std::move(item));
  }

  std::atomic<int> allocations = 0;
  int launches = 0;  ///< of graphs

 private:
  struct Item {
    enum class Kind { work, record, wait, communication };
    Kind kind = Kind::work;
    Work work;
    int event = never;
    int mark = never;
    int communicator = never;
    int member = never;
    std::vector<CommunicatorCall> calls;
    std::int64_t place = 0;     ///< among those issued to its device
    std::int64_t sequence = 0;  ///< among those of its member on its communicator
    bool started = false;
    std::size_t open = 0;  ///< calls that are not done
  };
  struct Stream {
    int device;
    std::deque<Item> items;
    std::uint64_t weight;
  };
  struct Member {
    std::int64_t issued = 0;
    std::int64_t done = 0;
  };
  struct Communicator {
    std::vector<Member> members;
    EmulatedMeeting meeting;
  };
  struct Capture {
    int origin = never;
    std::set<int> joined;
    std::set<int> unjoined;       ///< streams whose last item nothing waits for
    std::map<int, int> recorded;  ///< event: its stream
    std::vector<std::pair<int, Item>> items;
  };
  struct Graph {
    std::vector<std::pair<int, Item>> items;
    std::map<int, int> streams;
  };

  using Lock = std::lock_guard<std::recursive_mutex>;

  static std::size_t to_size(int number) { return static_cast<std::size_t>(number); }
  std::size_t device_of(int stream) const { return to_size(streams_[to_size(stream)].device); }

  void put(int stream, Item item) {
    const Lock lock{mutex_};
    if (stream < 0 || to_size(stream) >= streams_.size()) throw tawpipe::DeviceError("the default stream is used");
    if (std::optional<Capture>& capture = capture_[device_of(stream)]) return put_captured(*capture, stream, std::move(item));
    if (item.kind == Item::Kind::record) {
      item.mark = static_cast<int>(marks_.size());
      marks_.push_back(never);
      events_[to_size(item.event)] = item.mark;
    }
    if (item.kind == Item::Kind::wait) {
      item.mark = events_[to_size(item.event)];
      if (item.mark == never) return;
    }
    if (item.kind == Item::Kind::communication) {
      item.sequence = communicators_[to_size(item.communicator)].members[to_size(item.member)].issued++;
      item.open = item.calls.size();
    }
    item.place = issued_[device_of(stream)]++;
    streams_[to_size(stream)].items.push_back(std::move(item));
  }
  void put_captured(Capture& capture, int stream, Item item) {
    if (item.kind == Item::Kind::wait) {
      const auto recorded = capture.recorded.find(item.event);
      if (recorded == capture.recorded.end()) throw tawpipe::DeviceError("a capture waits for an event from outside");
      capture.joined.insert(stream);
      capture.unjoined.erase(recorded->second);
    }
    if (!capture.joined.count(stream)) throw tawpipe::DeviceError("work is put into a stream that is not captured");
    if (item.kind == Item::Kind::record) {
      capture.recorded[item.event] = stream;
    }
    if (stream != capture.origin) capture.unjoined.insert(stream);
    capture.items.push_back({stream, std::move(item)});
  }

  /// Runs one item of one stream. @return false if none can
  bool advance() {
    if (++turns_ % 64 == 0) {
      for (Stream& stream : streams_) stream.weight = random_();
    }
    std::vector<std::size_t>& ready = ready_;
    ready.clear();
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      if (can_run(streams_[s])) ready.push_back(s);
    }
    if (ready.empty()) return false;
    std::size_t chosen = ready[random_() % ready.size()];
    if (order_.seed % 2 == 0) {  // the others as late as can be
      chosen = *std::max_element(ready.begin(), ready.end(),
                                 [&](std::size_t a, std::size_t b) { return streams_[a].weight < streams_[b].weight; });
    }
    run(chosen);
    return true;
  }
  bool can_run(const Stream& stream) const {
    if (stream.items.empty()) return false;
    const Item& item = stream.items.front();
    if (item.started) return false;  // its peers will end it
    if (order_.in_issue_order && item.place != started_[to_size(stream.device)]) return false;
    if (item.kind == Item::Kind::wait) return marks_[to_size(item.mark)] != never;
    if (item.kind == Item::Kind::communication) {
      return communicators_[to_size(item.communicator)].members[to_size(item.member)].done == item.sequence;
    }
    return true;
  }
  void run(std::size_t s) {
    Stream& stream = streams_[s];
    Item& item = stream.items.front();
    ++now_;
    ++started_[to_size(stream.device)];
    if (item.kind == Item::Kind::communication) {
      item.started = true;
      // Copied: the item ends with its last call.
      const std::vector<CommunicatorCall> calls = item.calls;
      const int member = item.member;
      Communicator& communicator = communicators_[to_size(item.communicator)];
      for (const CommunicatorCall& call : calls) {
        communicator.meeting.start({call, static_cast<int>(s), member},
                                   [&](const EmulatedCall& done) { end(communicator, done); });
      }
      return;
    }
    if (item.kind == Item::Kind::work) item.work();
    if (item.kind == Item::Kind::record) marks_[to_size(item.mark)] = now_;
    stream.items.pop_front();
  }
  void end(Communicator& communicator, const EmulatedCall& done) {
    Stream& stream = streams_[to_size(done.stream)];
    if (--stream.items.front().open > 0) return;
    ++communicator.members[to_size(done.member)].done;
    stream.items.pop_front();
  }

  std::string stuck() const {
    std::string text;
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      if (streams_[s].items.empty()) continue;
      const Item& item = streams_[s].items.front();
      text += tawpipe::concat(" stream ", s, " of device ", streams_[s].device,
                              item.kind == Item::Kind::wait ? " waits for an event"
                              : item.started                ? " waits for its peers"
                                                            : " cannot start",
                              " (", streams_[s].items.size(), " left);");
    }
    return text;
  }

  EmulatedOrder order_;
  mutable std::recursive_mutex mutex_;
  std::mt19937_64 random_;
  std::vector<Stream> streams_;
  std::vector<std::int64_t> issued_;             ///< [device]
  std::vector<std::int64_t> started_;            ///< [device]
  std::vector<std::optional<Capture>> capture_;  ///< [device]
  std::vector<int> events_;                      ///< [event] the last mark
  std::vector<std::int64_t> marks_;              ///< [mark] when it was reached, or never
  std::set<int> early_;                          ///< events whose time is not known at the first question
  std::vector<Graph> graphs_;
  std::vector<Communicator> communicators_;
  std::vector<std::size_t> ready_;
  std::int64_t now_ = 0;
  std::int64_t turns_ = 0;
};

}  // namespace support
