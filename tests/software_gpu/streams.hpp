// Streams, events and graphs of the software GPU: a stream is a thread that does its work in order,
// with its own timing.
// Not: CUDA's functions (cudart.cpp) nor what kernels compute (kernels.cpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace software_gpu {

using Work = std::function<void()>;

/// A whole number from the environment.
inline std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::atoll(text) : otherwise;
}

/// A place in a stream's work: whether it has been reached, and when.
class Mark {
 public:
  void reach(std::chrono::steady_clock::time_point when = std::chrono::steady_clock::now()) {
    when_ = when;
    reached_ = true;
    reached_.notify_all();
  }
  void wait() const { reached_.wait(false); }
  bool reached() const { return reached_; }
  std::chrono::steady_clock::time_point when() const { return when_; }

 private:
  std::atomic<bool> reached_ = false;
  std::chrono::steady_clock::time_point when_;
};

struct Capture;

/// Of the work that the calling thread does: the lower the number, the sooner it gets processors.
inline int& priority_of_work() {
  static thread_local int priority = 0;
  return priority;
}

/// One of a device's queues, of which there are CUDA_DEVICE_MAX_CONNECTIONS (8). What is put into
/// one starts in that order: work whose stream is not there yet holds up that of the other streams
/// after it.
class Connection {
 public:
  /// The next of so many that the device's streams have in turn.
  static Connection& next_of(int device) {
    static std::mutex mutex;
    static auto* const devices = new std::map<int, std::pair<std::size_t, std::deque<Connection>>>;  // streams outlive main()
    static const auto count = static_cast<std::size_t>(setting("CUDA_DEVICE_MAX_CONNECTIONS", 8));
    const std::lock_guard lock{mutex};
    auto& [streams, all] = (*devices)[device];
    while (all.size() < std::clamp<std::size_t>(count, 1, 32)) all.emplace_back();
    return all[streams++ % all.size()];
  }
  std::uint64_t take_number() { return come_++; }
  void start(std::uint64_t number) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return started_ == number; });
    ++started_;
    changed_.notify_all();
  }

 private:
  std::atomic<std::uint64_t> come_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t started_ = 0;
};

/// Work in order, done by a thread. SOFTWARE_GPU_SEED other than 0: with pauses in between,
/// different for each seed.
class Stream {
 public:
  Stream(int device, int priority) : device_{device}, priority_{priority}, connection_{Connection::next_of(device)} {
    static std::atomic<std::uint64_t> made = 0;
    const auto seed = static_cast<std::uint64_t>(setting("SOFTWARE_GPU_SEED", 0));
    std::thread{[this, seed, number = made++] { work(seed, seed * 1000 + number); }}.detach();
  }

  int device() const { return device_; }
  int priority() const { return priority_; }
  /// Blocks while SOFTWARE_GPU_PENDING (1024) launches are pending here, as a driver's queue does.
  void put(Work work) {
    static const auto most = static_cast<std::size_t>(setting("SOFTWARE_GPU_PENDING", 1024));
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return queue_.size() < most; });
    add([&connection = connection_, number = connection_.take_number(), work = std::move(work)] {
      connection.start(number);
      work();
    });
  }
  /// Reached when all that has been put here is done.
  std::shared_ptr<const Mark> end() {
    const auto mark = std::make_shared<Mark>();
    const std::lock_guard lock{mutex_};
    add([mark] { mark->reach(); });
    return mark;
  }
  bool idle() {
    const std::lock_guard lock{mutex_};
    return queue_.empty() && !works_;
  }
  /// The last call: the stream deletes itself once its work is done.
  void close() {
    const std::lock_guard lock{mutex_};
    add({});
  }

  std::shared_ptr<Capture> capture;  ///< that this stream's work goes into; guarded by state_mutex()

 private:
  void add(Work work) {
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }
  void work(std::uint64_t seed, std::uint64_t own) {
    priority_of_work() = priority_;
    std::mt19937_64 random{own};
    for (;;) {
      Work next;
      {
        std::unique_lock lock{mutex_};
        works_ = false;
        changed_.wait(lock, [&] { return !queue_.empty(); });
        works_ = true;
        next = std::move(queue_.front());
        queue_.pop_front();
        changed_.notify_all();
      }
      if (!next) break;
      if (seed != 0 && random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds{random() % 300});
      next();
    }
    delete this;
  }

  int device_;
  int priority_;
  Connection& connection_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  bool works_ = false;
};

/// Guards captures and events, which threads of the program and of streams share.
inline std::mutex& state_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

struct Event {
  int device = 0;
  bool timed = false;
  std::shared_ptr<Mark> last;        ///< null: never recorded
  std::shared_ptr<Capture> capture;  ///< the last record was captured: it can only be waited for there
  std::set<int> captured_after;      ///< nodes
};

/// Work and what it comes after. A chain, the nodes of one captured stream, is in order.
struct Graph {
  struct Node {
    Work work;
    std::size_t chain;
    std::set<int> after;
    int priority;
  };
  std::vector<Node> nodes;
  std::size_t chains = 0;
  std::vector<std::shared_ptr<void>> held;  ///< as long as the graph, what was made of it, and its launches

  /// @param own_priorities  each node has its captured stream's; otherwise all have that of the
  /// stream they are launched in
  void run(bool own_priorities) const {
    const int launched = priority_of_work();
    std::vector<Mark> done(nodes.size());
    std::vector<std::thread> threads;
    for (std::size_t chain = 0; chain < chains; ++chain) {
      threads.emplace_back([&, chain] {
        for (std::size_t n = 0; n < nodes.size(); ++n) {
          if (nodes[n].chain != chain) continue;
          for (const int earlier : nodes[n].after) done[static_cast<std::size_t>(earlier)].wait();
          priority_of_work() = own_priorities ? nodes[n].priority : launched;
          nodes[n].work();
          done[n].reach();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

/// A graph under construction. Guarded by state_mutex().
struct Capture {
  std::uint64_t number = 0;  ///< from 1
  struct Tail {
    std::size_t chain;
    std::set<int> after;  ///< what the stream's next work comes after
  };
  const Stream* origin = nullptr;
  std::thread::id thread;
  bool invalid = false;
  Graph graph;
  std::map<Stream*, Tail> tails;

  void join(const std::shared_ptr<Capture>& self, Stream& stream) {
    if (tails.try_emplace(&stream, Tail{graph.chains, {}}).second) ++graph.chains;
    stream.capture = self;
  }
  void add(Stream& stream, Work work) {
    Tail& tail = tails.at(&stream);
    graph.nodes.push_back({std::move(work), tail.chain, tail.after, stream.priority()});
    tail.after = {static_cast<int>(graph.nodes.size()) - 1};
  }
  /// Whether all work comes before the end of the first stream.
  bool joined() const {
    std::vector<char> found(graph.nodes.size(), 0);
    std::vector<int> open;
    for (const auto& [stream, tail] : tails) {
      if (stream == origin) open.assign(tail.after.begin(), tail.after.end());
    }
    while (!open.empty()) {
      const auto node = static_cast<std::size_t>(open.back());
      open.pop_back();
      if (found[node]++ != 0) continue;
      open.insert(open.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
    }
    for (const char reached : found) {
      if (reached == 0) return false;
    }
    return true;
  }
};

}  // namespace software_gpu
