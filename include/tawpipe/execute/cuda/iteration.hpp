// Common to both CUDA executors, around an iteration: options, times of tasks by events, waiting
// for the end, access to weights.
// Not: the order of work (virtual_executor.hpp, nccl_executor.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/execute/cuda/device_api.hpp"
#include "tawpipe/execute/cuda/pause.hpp"
#include "tawpipe/execute/cuda/rank_memory.hpp"
#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/execute/sent_bytes.hpp"
#include "tawpipe/execute/watch.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/timeline/issue_order.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0::cuda {

/// The options of a CUDA executor.
struct ExecutorOptions {
  /// Every iteration but the first is one launch of a captured graph. The first runs directly: it
  /// connects communicators and loads kernels, which a capture must not do. Switching clipping on
  /// or off captures a new graph.
  bool graph = false;
  bool timeline = true;                 ///< measure it, with two timed events a task
  Priority compute = Priority::normal;  ///< of the compute stream
  /// Priority of all other streams, with their copies and sums: communications take few processors,
  /// and work that others wait for should get them as soon as any is free.
  Priority communicate = Priority::high;
  /// The schedule's expected timeline: memory is laid out for it (plan_buffers) and tasks are
  /// issued in its order; the same on all ranks. Null: for any timing, in the order of their ids.
  const Timeline* expected = nullptr;
  /// device memory, including that of other ranks; read by the constructor only
  std::span<const LentParameters> lent{};
  /// seconds that an iteration may take before DeviceError; 0: no limit
  double time_limit = 0;

  // ---- for NcclExecutor only

  /// the same for a task, which is named; 0: no limit. Needs the timeline
  double task_limit = 0;
  /// the same for a task of the first iteration, in which communicators connect
  double connect_limit = 600;
  /// seconds that an abort may take: then everything is left as it is, and the error is thrown
  double abort_limit = 4;
  /// is told the current task of each lane, and ends the iteration if another rank has failed
  Watch* watch = nullptr;
  /// called before communicators are aborted, and for a task over its limit
  FailureCallback failed{};
};

/// Waits until `ready()`, without occupying a core. `poll` is called now and then and may throw.
/// @return false after `limit` seconds (0: never)
template <class Ready, class Poll>
bool await(Ready&& ready, double limit, Poll&& poll) {
  const auto begin = std::chrono::steady_clock::now();
  for (int turn = 0; !ready(); ++turn) {
    poll();
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (limit > 0 && std::chrono::duration<double>(waited).count() > limit) return false;
    if (turn < 64) {
      std::this_thread::yield();
    } else {
      pause_after(waited, std::chrono::microseconds{20});
    }
  }
  return true;
}
/// The same until an event is reached.
template <DeviceApi Device, class Poll>
bool await(Device& device, typename Device::Event event, double limit, Poll&& poll) {
  return await([&] { return device.finished(event); }, limit, poll);
}

/// The times of tasks, measured by events on their streams.
template <DeviceApi Device>
class TaskClock {
 public:
  using Stream = typename Device::Stream;

  /// @param timed  whether the task of this id is measured here
  template <class Timed>
  TaskClock(Device& device, std::size_t tasks, Timed&& timed)
      : begin_{device.make_event(true)}, armed_{device.make_event(true)}, before_{device.make_event(true)}, at_(tasks, -1) {
    for (std::size_t t = 0; t < tasks; ++t) {
      if (!timed(id<TaskId>(t))) continue;
      at_[t] = static_cast<std::int32_t>(events_.size());
      events_.push_back({device.make_event(true), device.make_event(true)});
    }
    recorded_ = std::make_unique<std::atomic<std::uint32_t>[]>(events_.size() + 1);
  }

  /// Sets the origin of all times.
  void begin(Device& device, Stream stream) const {
    device.record(begin_, stream);
    recorded_[events_.size()].store(iteration_);
  }
  void start(Device& device, TaskId task, Stream stream) const {
    if (at_[index(task)] >= 0) device.record(of(task).start, stream);
  }
  void end(Device& device, TaskId task, Stream stream) const {
    if (at_[index(task)] < 0) return;
    device.record(of(task).end, stream);
    recorded_[place(task)].store(iteration_);
  }
  /// To be called if the iteration is a launch of a graph, which records all events.
  void launched() { launched_.store(iteration_); }

  /// Tasks not measured here start and end at 0. @pre the iteration has ended
  /// @throws DeviceError  if a time is not known 10 s after that.
  Timeline read(Device& device) const {
    Timeline timeline;
    timeline.start.resize(at_.size());
    timeline.end.resize(at_.size());
    for (std::size_t t = 0; t < at_.size(); ++t) {
      if (at_[t] < 0) continue;
      timeline.start[t] = point_of(device, of(id<TaskId>(t)).start);
      timeline.end[t] = std::max(timeline.start[t], point_of(device, of(id<TaskId>(t)).end));
    }
    return timeline;
  }
  /// To be called before an iteration is enqueued: `ended` refers to it from then on.
  void arm(Device& device, Stream stream) {
    ++iteration_;
    std::swap(armed_, before_);
    if (!ever_armed_) device.record(before_, stream);
    ever_armed_ = true;
    device.record(armed_, stream);
  }
  /// Whether the iteration has begun since `arm`: all ranks have arrived. This and `ended` may be
  /// called by a second thread.
  bool begun(Device& device) const { return reached(device, begin_, events_.size()); }
  /// Whether the task's end has been reached since `arm`. True for tasks not measured here.
  bool ended(Device& device, TaskId task) const { return at_[index(task)] < 0 || reached(device, of(task).end, place(task)); }
  /// The first of these tasks that has not ended since `arm`; none if all have.
  TaskId first_unfinished(Device& device, std::span<const Launch> lane) const {
    for (const Launch& launch : lane) {
      if (!ended(device, launch.task)) return launch.task;
    }
    return none<TaskId>;
  }

 private:
  struct Events {
    typename Device::Event start;
    typename Device::Event end;
  };
  /// A graph's events are recorded again only when they run, and until then have the times of the
  /// previous launch. Times are queried forwards only, from the arming before the last: no event
  /// here is older.
  bool reached(Device& device, typename Device::Event event, std::size_t place) const {
    if (recorded_[place].load() != iteration_ && launched_.load() != iteration_) return false;  // not issued so far
    if (!device.finished(armed_) || !device.finished(event)) return false;
    const std::optional<double> at = device.seconds_between(before_, event);
    return at && at >= device.seconds_between(before_, armed_);
  }
  TimePoint point_of(Device& device, typename Device::Event event) const {
    std::optional<double> seconds;
    const auto known = [&] { return (seconds = device.seconds_between(begin_, event)).has_value(); };
    if (!await(known, 10, [] {})) throw DeviceError("the time of a task is not known 10 s after the end of its iteration");
    return point(*seconds);
  }
  std::size_t place(TaskId task) const { return static_cast<std::size_t>(at_[index(task)]); }
  const Events& of(TaskId task) const { return events_[place(task)]; }
  static TimePoint point(double seconds) { return TimePoint{Duration{static_cast<std::int64_t>(std::max(seconds, 0.0) * 1e12)}}; }

  typename Device::Event begin_;
  typename Device::Event armed_;   ///< before the last iteration
  typename Device::Event before_;  ///< before the previous one, or where the first was armed
  bool ever_armed_ = false;
  std::vector<std::int32_t> at_;  ///< [task] index in events_; -1: not measured
  std::vector<Events> events_;
  std::uint32_t iteration_ = 0;
  /// [event] the iteration that recorded it; last entry: the start
  std::unique_ptr<std::atomic<std::uint32_t>[]> recorded_;
  /// the last iteration that was a graph's launch
  std::atomic<std::uint32_t> launched_{0};
};

/// The message for an iteration that takes too long. @param each  calls its argument with rank,
/// lane and the first task there that has not ended, or none
template <class Each>
std::string late_message(const Schedule& schedule, const ExecutorOptions& options, Each&& each) {
  std::string message = concat("an iteration has not ended after ", options.time_limit, " s");
  if (!options.timeline) return message + "; measure the timeline to see at which task it stands";
  each([&](int rank, int lane, TaskId task) {
    if (task == none<TaskId>) return;
    message += concat("; lane ", schedule.lanes()[static_cast<std::size_t>(lane)], " of rank ", rank, " stands at ",
                      tawpipe::detail::describe(schedule, task));
  });
  return message;
}

/// @throws InputError  if clipping is requested and the schedule has no sum of squares over its
/// ranks.
inline void check_clipping(const Schedule& schedule, double gradient_clip) {
  if (gradient_clip <= 0 || schedule.ranks() == 1) return;
  const auto tasks = schedule.tasks();
  if (std::any_of(tasks.begin(), tasks.end(), [](const Task& task) { return is_gradient_norm(task); })) return;
  throw InputError("clipping needs the norm of the whole gradient; build the schedule with with_gradient_norm()");
}

/// The bytes that each rank sends in an iteration, the same in all. @return [rank]
inline std::vector<SentBytes> sent_of(const Schedule& schedule, const Dataflow& flow, const NumberTypes& types) {
  std::vector<SentBytes> sent(static_cast<std::size_t>(schedule.ranks()));
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    if (is_compute(task.op)) continue;
    const auto size = static_cast<std::size_t>(size_bytes(types.of(task.payload)));
    count_sent(schedule, id<TaskId>(t), flow.transfer(id<TaskId>(t)), size, sent);
  }
  return sent;
}

/// Copies numbers between host and device, between iterations, through a page-locked buffer.
template <DeviceApi Device>
class HostWindow {
 public:
  explicit HostWindow(Device& device) : window_{device.allocate_host(size)}, event_{device.make_event(false)} {}

  void write(Device& device, std::byte* to, std::span<const std::byte> from, typename Device::Stream stream) const {
    for (std::size_t done = 0; done < from.size(); done += size) {
      const std::size_t count = std::min(size, from.size() - done);
      std::memcpy(window_, from.data() + done, count);
      device.upload(to + done, window_, count, stream);
      wait(device, stream);
    }
  }
  void read(Device& device, std::span<std::byte> to, const std::byte* from, typename Device::Stream stream) const {
    for (std::size_t done = 0; done < to.size(); done += size) {
      const std::size_t count = std::min(size, to.size() - done);
      device.download(window_, from + done, count, stream);
      wait(device, stream);
      std::memcpy(to.data() + done, window_, count);
    }
  }

 private:
  static constexpr std::size_t size = std::size_t{4} << 20;

  void wait(Device& device, typename Device::Stream stream) const {
    device.record(event_, stream);
    await(device, event_, 0, [] {});
  }

  std::byte* window_;
  typename Device::Event event_;
};

/// Completes a rank's result by all ranks': each task's time, from where its last end is ready to
/// where its last end is done, and why to stop. @param largest  puts the largest of all ranks'
/// numbers in the place of each
template <class Largest>
void gather_result(IterationResult& result, Largest&& largest) {
  std::vector<double> all;
  const std::array times{&result.timeline.start, &result.timeline.end};
  for (const auto* some : times) {
    for (const TimePoint& time : *some) all.push_back(static_cast<double>(time.picoseconds()));
  }
  all.push_back(result.stop);
  largest(std::span{all});
  auto at = all.begin();
  for (auto* some : times) {
    for (TimePoint& time : *some) time = TimePoint{Duration{static_cast<std::int64_t>(*at++)}};
  }
  result.stop = static_cast<int>(*at);
}

/// The parameters and states of one rank, read and written from the host between iterations.
template <DeviceApi Device>
class RankParameters {
 public:
  RankParameters(Device& device, const HostWindow<Device>& window, const RankMemory& memory, typename Device::Stream stream)
      : device_{device}, window_{window}, memory_{memory}, stream_{stream} {}

  Rank rank() const { return memory_.rank(); }
  const NumberTypes& types() const { return memory_.types(); }

  /// The bytes of a persistent buffer of the rank, of any kind.
  void write(BufferId buffer, std::span<const std::byte> bytes) const {
    window_.write(device_, memory_.memory(buffer).data(), bytes, stream_);
  }
  void read(BufferId buffer, std::span<std::byte> bytes) const {
    window_.read(device_, bytes, memory_.memory(buffer).data(), stream_);
  }

  /// Calls `fill(range, type, bytes)` for every run of weights that the rank keeps, including
  /// copies, and, if the optimizer has weights in f32, for each run of those; `fill` sets `bytes`
  /// to the numbers of `range` in `type`.
  template <class Fill>
  void set_weights(Fill&& fill) const {
    memory_.for_each_weight([&](const ParameterRange& range, std::byte* at) { put(range, types().weight, at, fill); });
    memory_.for_each_state([&](const ParameterRange& range, const RankMemory::States& states) {
      if (states.master != nullptr) put(range, Dtype::f32, bytes_of(states.master), fill);
    });
  }
  /// Calls `visit(range, type, bytes)` for every run of weights that the rank keeps, including
  /// copies; or, if the optimizer has weights in f32, for those, which are more exact: another rank
  /// may have them for what is rounded here.
  template <class Visit>
  void read_weights(Visit&& visit) const {
    if (!types().master) {
      return memory_.for_each_current_weight(
          [&](const ParameterRange& range, const std::byte* at) { get(range, types().weight, at, visit); });
    }
    memory_.for_each_state([&](const ParameterRange& range, const RankMemory::States& states) {
      get(range, Dtype::f32, bytes_of(states.master), visit);
    });
  }
  /// Calls `fill(range, first moments, second moments)` for every run of the rank's optimizer
  /// states.
  template <class Fill>
  void set_moments(Fill&& fill) const {
    memory_.for_each_state([&](const ParameterRange& range, const RankMemory::States& states) {
      std::vector<float> first(static_cast<std::size_t>(range.count()));
      std::vector<float> second(first.size());
      fill(range, std::span<float>{first}, std::span<float>{second});
      window_.write(device_, bytes_of(states.first_moment), std::as_bytes(std::span{first}), stream_);
      window_.write(device_, bytes_of(states.second_moment), std::as_bytes(std::span{second}), stream_);
    });
  }
  /// Calls `visit(range, first moments, second moments)` for every run of the rank's optimizer
  /// states.
  template <class Visit>
  void read_moments(Visit&& visit) const {
    memory_.for_each_state([&](const ParameterRange& range, const RankMemory::States& states) {
      std::vector<float> first(static_cast<std::size_t>(range.count()));
      std::vector<float> second(first.size());
      window_.read(device_, std::as_writable_bytes(std::span{first}), bytes_of(states.first_moment), stream_);
      window_.read(device_, std::as_writable_bytes(std::span{second}), bytes_of(states.second_moment), stream_);
      visit(range, std::span<const float>{first}, std::span<const float>{second});
    });
  }

 private:
  static std::byte* bytes_of(float* numbers) { return reinterpret_cast<std::byte*>(numbers); }

  template <class Fill>
  void put(const ParameterRange& range, Dtype type, std::byte* at, Fill& fill) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(range.count() * size_bytes(type)));
    fill(range, type, std::span{bytes});
    window_.write(device_, at, bytes, stream_);
  }
  template <class Visit>
  void get(const ParameterRange& range, Dtype type, const std::byte* at, Visit& visit) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(range.count() * size_bytes(type)));
    window_.read(device_, bytes, at, stream_);
    visit(range, type, std::span<const std::byte>{bytes});
  }

  Device& device_;
  const HostWindow<Device>& window_;
  const RankMemory& memory_;
  typename Device::Stream stream_;
};

}  // namespace tawpipe::cuda
