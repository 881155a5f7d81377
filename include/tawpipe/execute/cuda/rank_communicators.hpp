// One rank's communicators, created for a schedule, and the calls on them for its steps.
// Not: the choice of communicators (communicators.hpp) nor the order of steps (nccl_executor.hpp).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/cuda/communicators.hpp"
#include "tawpipe/execute/cuda/device_api.hpp"
#include "tawpipe/execute/cuda/gather_windows.hpp"
#include "tawpipe/execute/cuda/iteration.hpp"
#include "tawpipe/execute/cuda/rank_steps.hpp"

namespace tawpipe::inline v0::cuda {

/// Free memory of a device before and after the creation of communicators.
struct ConnectionMemory {
  Bytes before;
  Bytes after;
};

/// The communicator of all ranks and those split from it.
template <DeviceApi Device, CommunicatorApi<typename Device::Stream> Communicator>
class RankCommunicators {
 public:
  using Step = typename RankSteps<Device>::Step;
  using Part = typename RankSteps<Device>::Part;

  /// @throws InputError  unless `world` has the ranks of the schedule.
  RankCommunicators(const Schedule& schedule, Communicator world) : world_{std::move(world)} {
    if (world_.ranks() == schedule.ranks()) return;
    throw InputError(concat("the schedule has ", schedule.ranks(), " ranks and the communicator ", world_.ranks(),
                            "; start as many processes as the schedule has ranks"));
  }

  Communicator& world() { return world_; }
  /// The number in addition to the one of all ranks.
  std::size_t size() const { return own_.size(); }

  /// Allocates the memory for all messages, once, before `split`: of the communicators' own kind if
  /// they have one.
  std::byte* allocate(Device& device, std::size_t bytes) {
    direct_ = world_.allocate(bytes);
    bytes_ = bytes;
    return direct_ ? direct_.get() : device.allocate(bytes);
  }
  /// Whether that memory is of their own kind.
  bool is_direct() const { return direct_ != nullptr; }
  /// Registers it with them, if all messages of all ranks use such memory: some may not.
  void enroll(bool all) {
    if (!all) return;
    world_.enroll(direct_.get(), bytes_);
    for (Communicator& one : own_) one.enroll(direct_.get(), bytes_);
  }
  /// For a device that does not finish: that memory is never freed.
  void leave_memory() { static_cast<void>(new std::shared_ptr<std::byte>{std::move(direct_)}); }

  /// Collective, once. @return [communicator of the plan] its index on this rank, as used by steps;
  /// -1: not this rank's
  std::vector<std::int32_t> split(const CommunicatorPlan& plan) {
    const Rank rank{world_.rank()};
    std::vector<std::int32_t> index(plan.members.size(), -1);
    for (std::size_t round = 0; round < plan.rounds.size(); ++round) {
      const std::int32_t mine = plan.in_round(round, rank);
      const Traffic traffic = mine < 0 ? Traffic::pairs : plan.traffic[static_cast<std::size_t>(mine)];
      std::optional<Communicator> made = world_.split(mine, mine < 0 ? 0 : plan.member_of(mine, rank), traffic);
      if (mine < 0) continue;
      index[static_cast<std::size_t>(mine)] = static_cast<std::int32_t>(own_.size());
      own_.push_back(std::move(*made));
    }
    return index;
  }

  /// Gives communicators that only gather a window over that memory, if they want one and their
  /// members agree (GatherPlaces). Collective, after `split`.
  /// @param own  as `split` has returned it  @param largest  puts the largest of all ranks' numbers
  /// in the place of each
  template <class Largest>
  GatherCount open_windows(const Schedule& schedule, const CommunicatorPlan& plan, const std::vector<std::int32_t>& own,
                           const RankSteps<Device>& steps, Largest&& largest) {
    GatherCount count;
    std::vector<char> opened(own_.size(), 0);
    if (world_.zero_cta()) {
      GatherPlaces places{schedule, plan};
      places.put(steps, {direct_.get(), direct_ ? bytes_ : 0});
      largest(places.numbers());
      const std::vector<char> agreed = places.agreed();
      for (std::size_t c = 0; c < agreed.size(); ++c) {
        if (own[c] >= 0) opened[static_cast<std::size_t>(own[c])] = agreed[c];
      }
    }
    for (std::size_t i = 0; i < own_.size(); ++i) {  // as they were split, so none waits for one that waits for it
      if (opened[i] != 0) own_[i].open_window(direct_.get(), bytes_);
    }
    for (const Step& step : steps.steps()) {
      if (step.notice || step.communicator < 0 || !gathers(step.op)) continue;
      ++count.all;
      // Uneven parts are broadcast.
      count.in_windows += opened[static_cast<std::size_t>(step.communicator)] != 0 && steps.parts(step).empty() ? 1 : 0;
    }
    return count;
  }

  /// Enqueues a step's communication in its stream. @param parts  of a step with uneven parts;
  /// otherwise none
  void communicate(const Step& step, std::span<const Part> parts, Device& device) {
    if (step.communicator < 0) {  // a group of one, or a host copy
      const bool moves = step.from != nullptr && step.to != nullptr && step.from != step.to;
      if (moves) device.copy(step.to, step.from, static_cast<std::size_t>(step.count * size_bytes(step.type)), step.stream);
      return;
    }
    Communicator& by = own_[static_cast<std::size_t>(step.communicator)];
    switch (traits(step.op).pattern) {
      case Pattern::none:
      case Pattern::to_host:
      case Pattern::from_host:
        return;
      case Pattern::one_way:
        if (step.from != nullptr) return by.send(step.from, step.count, step.type, step.peer, step.stream);
        return by.receive(step.to, step.count, step.type, step.peer, step.stream);
      case Pattern::both_ways:
        by.group_begin();
        by.send(step.from, step.count, step.type, step.peer, step.stream);
        by.receive(step.to, step.count, step.type, step.peer, step.stream);
        return by.group_end();
      case Pattern::chain_from_root:
        return broadcast(step, by, step.from, step.to, step.count, step.peer);
      case Pattern::chain_to_root:
        return reduce(step, by, step.from, step.to, step.count, step.peer);
      case Pattern::ring_gather:
      case Pattern::ring_scatter:
        return by_member(step, parts, by);
      case Pattern::all_pairs:
        return blocks(step, parts, by);
      case Pattern::ring_sum:
        // On all members in place: NCCL does not use the registered memory of those that are.
        if (step.from != step.to) {
          device.copy(step.to, step.from, static_cast<std::size_t>(step.count * size_bytes(step.type)), step.stream);
        }
        return by.all_reduce(step.to, step.to, step.count, step.type, Reduction::sum, step.stream);
    }
  }

  /// The means by which a rank exchanges numbers with others between iterations.
  struct Exchange {
    const HostWindow<Device>& window;
    std::span<std::byte> memory;  ///< on the device
    typename Device::Stream stream;
  };
  /// Puts the largest of all ranks' numbers in the place of each. Collective.
  /// @param wait  waits for the end of the work in the stream
  template <class T, class Wait>
  void largest(Device& device, const Exchange& by, std::span<T> values, Wait&& wait) {
    constexpr Dtype type = sizeof(T) == sizeof(double) ? Dtype::f64 : Dtype::f32;
    std::byte* const at = by.memory.data();
    const std::size_t most = by.memory.size() / sizeof(T);
    for (std::size_t begin = 0; begin < values.size(); begin += most) {
      const std::span<T> part = values.subspan(begin, std::min(most, values.size() - begin));
      by.window.write(device, at, std::as_bytes(part), by.stream);
      world_.all_reduce(at, at, std::ssize(part), type, Reduction::maximum, by.stream);
      wait();
      by.window.read(device, std::as_writable_bytes(part), at, by.stream);
    }
  }

  /// @throws DeviceError  if a communication in progress has failed; does not wait.
  void check() {
    world_.check();
    for (Communicator& one : own_) one.check();
  }
  /// Aborts all of them, once. @return whether that has finished within that many seconds; if not,
  /// a thread continues it
  bool abort(double seconds) {
    std::vector<Communicator> all = std::exchange(own_, {});
    all.push_back(std::move(world_));
    const auto end = std::make_shared<std::promise<void>>();
    std::thread{[end, all = std::move(all)]() mutable {
      Communicator::abort_all(std::move(all));
      end->set_value();
    }}.detach();
    return end->get_future().wait_for(std::chrono::duration<double>{seconds}) == std::future_status::ready;
  }

 private:
  // Members other than the root work in place, as PyTorch's: NCCL 2.24 to 2.28 (over several nodes
  // later, too) uses a ring's registered memory on those members only whose source and destination
  // are both registered (src/register/coll_reg.cc), and then waits for the others for ever; a tuner
  // chooses the algorithm by both (src/enqueue.cc).
  static void broadcast(const Step& step, Communicator& by, const std::byte* from, std::byte* to, std::int64_t count, int root) {
    by.broadcast(by.rank() == root ? from : to, to, count, step.type, root, step.stream);
  }
  static void reduce(const Step& step, Communicator& by, const std::byte* from, std::byte* to, std::int64_t count, int root) {
    by.reduce(from, by.rank() == root ? to : const_cast<std::byte*>(from), count, step.type, root, step.stream);
  }

  /// An all_gather or reduce_scatter; if parts are uneven, as a broadcast or reduce of each.
  void by_member(const Step& step, std::span<const Part> parts, Communicator& by) {
    const bool gather = gathers(step.op);
    if (parts.empty()) {
      if (gather) return by.all_gather(step.from, step.to, step.count, step.type, step.stream);
      return by.reduce_scatter(step.from, step.to, step.count, step.type, step.stream);
    }
    by.group_begin();
    for (const Part& part : parts) {
      const std::int64_t begin = part.begin * size_bytes(step.type);
      if (gather) {
        broadcast(step, by, step.from, step.to + begin, part.count, part.root);
      } else {
        reduce(step, by, step.from + begin, step.to, part.count, part.root);
      }
    }
    by.group_end();
  }

  /// An all_to_all: a message in each direction between each pair of members.
  void blocks(const Step& step, std::span<const Part> parts, Communicator& by) {
    const std::size_t members = parts.size() / 2;
    by.group_begin();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      const std::int64_t begin = part.begin * size_bytes(step.type);
      if (part.count == 0) continue;
      if (i < members) {
        by.send(step.from + begin, part.count, step.type, part.root, step.stream);
      } else {
        by.receive(step.to + begin, part.count, step.type, part.root, step.stream);
      }
    }
    by.group_end();
  }

  std::shared_ptr<std::byte> direct_;  ///< outlives them
  std::size_t bytes_ = 0;
  Communicator world_;
  std::vector<Communicator> own_;
};

}  // namespace tawpipe::cuda
