// A second opinion on a schedule: slow, direct, and without a line of the validator's.
// Not: a search for the cause of a fault; it says what is wrong, and validate() says why.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/brute_force_contents.hpp"
#include "support/graph_order.hpp"
#include "support/random.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace support {

/// Checks a schedule by what its parts mean: no cycle, no unordered uses, no deadlock, one order a
/// communicator, and in some random orders of running the right contents in every buffer. Quadratic
/// in the tasks, in time and memory.
class BruteForce {
 public:
  /// @param map  which copy of which logical rank each rank is
  BruteForce(const tawpipe::Schedule& schedule, const CopyMap& map) : schedule_{schedule}, map_{map} {
    after_.resize(schedule.tasks().size());
    before_ = direct_predecessors(schedule);
    for (std::size_t t = 0; t < before_.size(); ++t) {
      for (const std::size_t earlier : before_[t]) after_[earlier].push_back(t);
    }
  }

  /// What is wrong, empty if nothing. @param orders  in how many random orders the contents are
  /// followed
  std::vector<std::string> run(std::uint64_t seed, int orders) {
    find_cycle();
    if (!found_.empty()) return found_;
    find_unordered_uses();
    compare_communicators();
    run_blocking();
    Random random{seed};
    for (int i = 0; i < orders && found_.empty(); ++i) {
      const std::vector<std::size_t> order = random_order(random);
      BruteContents contents{schedule_, map_};
      for (const std::size_t t : order) contents.run(t);
      for (const std::string& what : contents.finish()) report(what);
      follow_memory(order);
    }
    return found_;
  }

  /// [rank] the least peak over the orders followed.
  const std::vector<std::int64_t>& min_peaks() const { return peaks_; }

 private:
  using Access = tawpipe::Access;

  void report(const std::string& what) {
    if (found_.size() < 10) found_.push_back(what);
  }

  /// Depth first: a task met again while its successors are still being visited stands on a cycle.
  void find_cycle() {
    enum : char { unseen, open, closed };
    std::vector<char> state(after_.size(), unseen);
    std::vector<std::pair<std::size_t, std::size_t>> path;  // task, successors visited
    for (std::size_t root = 0; root < after_.size(); ++root) {
      if (state[root] != unseen) continue;
      path.assign(1, {root, 0});
      state[root] = open;
      while (!path.empty()) {
        auto& [task, visited] = path.back();
        if (visited == after_[task].size()) {
          state[task] = closed;
          path.pop_back();
          continue;
        }
        const std::size_t next = after_[task][visited++];
        if (state[next] == open) return report(describe(schedule_, next) + " waits for itself");
        if (state[next] == closed) continue;
        state[next] = open;
        path.emplace_back(next, 0);
      }
    }
  }

  /// All pairs of uses of one buffer against the whole matrix of what comes before what.
  void find_unordered_uses() {
    const std::size_t count = after_.size();
    const std::size_t words = (count + 63) / 64;
    std::vector<std::uint64_t> earlier(count * words, 0);  // [task][task]
    Random none{0};
    for (const std::size_t t : random_order(none)) {
      for (const std::size_t p : before_[t]) {
        for (std::size_t w = 0; w < words; ++w) earlier[t * words + w] |= earlier[p * words + w];
        earlier[t * words + p / 64] |= std::uint64_t{1} << (p % 64);
      }
    }
    const auto precedes = [&](std::size_t a, std::size_t b) { return ((earlier[b * words + a / 64] >> (a % 64)) & 1) != 0; };
    std::vector<std::vector<std::pair<std::size_t, bool>>> uses(schedule_.buffers().size());  // task, changes
    for (std::size_t t = 0; t < count; ++t) {
      for (const auto& use : schedule_.uses(tawpipe::id<tawpipe::TaskId>(t))) {
        uses[tawpipe::index(use.buffer)].emplace_back(t, use.access != Access::read);
      }
    }
    for (const auto& of_buffer : uses) {
      for (std::size_t i = 0; i < of_buffer.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          const auto& [a, a_changes] = of_buffer[i];
          const auto& [b, b_changes] = of_buffer[j];
          if (a == b || (!a_changes && !b_changes) || precedes(a, b) || precedes(b, a)) continue;
          report(describe(schedule_, a) + " and " + describe(schedule_, b) + " use a buffer in no order");
        }
      }
    }
  }

  /// Every communicator's operations, in the order in which each of its ranks issues them.
  void compare_communicators() {
    using Communicator = std::tuple<int, int, int, int>;  // group, lane, -1, -1; or source, lane, destination, lane
    std::map<Communicator, std::map<int, std::vector<tawpipe::TaskId>>> issued;
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      for (int lane = 0; lane < static_cast<int>(schedule_.lanes().size()); ++lane) {
        for (const auto t : schedule_.program(tawpipe::Rank{rank}, lane)) {
          const tawpipe::Task& task = schedule_.task(t);
          if (tawpipe::is_collective(task.op)) issued[{number(task.group), number(task.lane), -1, -1}][rank].push_back(t);
          if (tawpipe::is_point_to_point(task.op)) {
            issued[{number(task.rank), number(task.lane), number(task.peer), number(task.peer_lane)}][rank].push_back(t);
          }
        }
      }
    }
    for (const auto& [communicator, by_rank] : issued) {
      const bool collective = std::get<2>(communicator) < 0;
      const std::size_t ends = collective ? schedule_.group(tawpipe::GroupId{std::get<0>(communicator)}).size() : 2;
      bool same = by_rank.size() == ends;
      for (const auto& [rank, tasks] : by_rank) same = same && tasks == by_rank.begin()->second;
      if (!same) report("a communicator's operations come in different orders from " + std::to_string(ends) + " ranks");
    }
  }

  /// Lanes as queues. A task runs when it heads the queue of each of its ends and all it depends on
  /// has run; nothing is buffered, so a send stays at its head until its receiver is there.
  void run_blocking() {
    std::vector<std::deque<std::size_t>> queues;
    std::vector<std::vector<std::size_t>> queues_of(after_.size());
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      for (int lane = 0; lane < static_cast<int>(schedule_.lanes().size()); ++lane) {
        std::deque<std::size_t>& queue = queues.emplace_back();
        for (const auto t : schedule_.program(tawpipe::Rank{rank}, lane)) {
          queue.push_back(tawpipe::index(t));
          queues_of[tawpipe::index(t)].push_back(queues.size() - 1);
        }
      }
    }
    std::vector<char> done(after_.size(), 0);
    std::size_t left = after_.size();
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t q = 0; q < queues.size(); ++q) {
        while (!queues[q].empty()) {
          const std::size_t t = queues[q].front();
          bool starts = true;
          for (const std::size_t of : queues_of[t]) starts = starts && queues[of].front() == t;
          for (const auto d : schedule_.dependencies(tawpipe::id<tawpipe::TaskId>(t))) {
            starts = starts && done[tawpipe::index(d)] != 0;
          }
          if (!starts) break;
          for (const std::size_t of : queues_of[t]) queues[of].pop_front();
          done[t] = 1;
          --left;
          moved = true;
        }
      }
    }
    if (left > 0) report(std::to_string(left) + " tasks never start where sends and receives block");
  }

  /// Some order in which each task comes after what it waits for.
  std::vector<std::size_t> random_order(Random& random) const {
    std::vector<std::size_t> waits(after_.size());
    std::vector<std::size_t> ready;
    std::vector<std::size_t> order;
    for (std::size_t t = 0; t < after_.size(); ++t) {
      waits[t] = before_[t].size();
      if (waits[t] == 0) ready.push_back(t);
    }
    while (!ready.empty()) {
      std::swap(ready[random.next() % ready.size()], ready.back());
      const std::size_t t = ready.back();
      ready.pop_back();
      order.push_back(t);
      for (const std::size_t later : after_[t]) {
        if (--waits[later] == 0) ready.push_back(later);
      }
    }
    return order;
  }

  /// What each rank holds at most where tasks run one at a time in this order.
  void follow_memory(const std::vector<std::size_t>& order) {
    std::vector<std::size_t> last(schedule_.buffers().size(), 0);
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (const auto& use : schedule_.uses(tawpipe::id<tawpipe::TaskId>(order[i]))) last[tawpipe::index(use.buffer)] = i;
    }
    std::vector<std::int64_t> now(static_cast<std::size_t>(schedule_.ranks()), 0);
    for (const auto& buffer : schedule_.buffers()) {
      if (buffer.persistent) now[tawpipe::index(buffer.rank)] += buffer.bytes.value();
    }
    std::vector<std::int64_t> peak = now;
    std::vector<char> held(last.size(), 0);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto uses = schedule_.uses(tawpipe::id<tawpipe::TaskId>(order[i]));
      const auto change = [&](char to) {
        for (const auto& use : uses) {
          const std::size_t b = tawpipe::index(use.buffer);
          const tawpipe::Buffer& buffer = schedule_.buffer(use.buffer);
          if (buffer.persistent || held[b] == to || (to == 0 && last[b] != i)) continue;
          held[b] = to;
          now[tawpipe::index(buffer.rank)] += (to == 1 ? 1 : -1) * buffer.bytes.value();
        }
      };
      change(1);
      for (std::size_t r = 0; r < now.size(); ++r) peak[r] = std::max(peak[r], now[r]);
      change(0);
    }
    if (peaks_.empty()) peaks_ = peak;
    for (std::size_t r = 0; r < peak.size(); ++r) peaks_[r] = std::min(peaks_[r], peak[r]);
  }

  const tawpipe::Schedule& schedule_;
  const CopyMap& map_;
  std::vector<std::vector<std::size_t>> before_;
  std::vector<std::vector<std::size_t>> after_;
  std::vector<std::int64_t> peaks_;
  std::vector<std::string> found_;
};

}  // namespace support
