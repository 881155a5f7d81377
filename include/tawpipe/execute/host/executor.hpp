// Runs a schedule for real in one process: ranks and their lanes are threads, messages are copies in memory.
// Not: several processes (execute/mpi/executor.hpp); what a rank computes (execute/host/rank_state.hpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tawpipe/execute/detail/dataflow_builder.hpp"
#include "tawpipe/execute/host/chaos.hpp"
#include "tawpipe/execute/host/rank_state.hpp"
#include "tawpipe/execute/sent_bytes.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0::host {

/// What an iteration gives back.
struct IterationResult {
  std::vector<double> losses;   ///< [microbatch] before the update
  Timeline timeline;            ///< measured, from the iteration's start
  std::vector<SentBytes> sent;  ///< [rank]
  double gradient_norm = 0;     ///< before clipping; 0 where no clipping is asked for

  /// Mean over the microbatches.
  double loss() const {
    double sum = 0;
    for (const double one : losses) sum += one;
    return losses.empty() ? 0 : sum / static_cast<double>(losses.size());
  }
};

/// How the host executor runs.
struct HostOptions {
  Chaos chaos{};                       ///< random delays, to bring out races
  const Timeline* expected = nullptr;  ///< of the schedule: memory is laid out for it (plan_buffers); null: for any timing
};

/// Trains in this process. Every lane of every rank is a thread that launches its tasks in order; a task with several ends
/// is done by the end that comes last. Sums are formed in the order of the group's members, so every run gives the same bits.
template <class T, LayerCompute Layer, ParameterUpdate Optimizer>
class HostExecutor {
 public:
  /// @param make_layer  called once a rank
  /// @throws ScheduleError  if the schedule cannot be executed.
  template <class MakeLayer>
  HostExecutor(const Schedule& schedule, MakeLayer&& make_layer, Optimizer optimizer, HostOptions options = {})
      : schedule_{schedule},
        flow_{resolve_dataflow(schedule)},
        optimizer_{std::move(optimizer)},
        options_{options},
        states_(schedule.tasks().size()),
        arrivals_(schedule.tasks().size()) {
    const Lowering lowering{schedule};
    for (int r = 0; r < schedule.ranks(); ++r) {
      Program& program = programs_.emplace_back(lowering.lower(Rank{r}));
      BufferPlan plan = plan_buffers(schedule, program, Rank{r}, RankState<T>::alignment, options.expected);
      ranks_.emplace_back(schedule, flow_, std::move(plan), Rank{r});
      layers_.push_back(make_layer());
    }
  }

  const Schedule& schedule() const { return schedule_; }
  const Dataflow& dataflow() const { return flow_; }
  RankState<T>& rank(Rank rank) { return ranks_[index(rank)]; }

  /// Calls `visit(RankState<T>&)` for each rank of this process: all of them.
  template <class Visit>
  void for_each_rank(Visit&& visit) {
    for (RankState<T>& rank : ranks_) visit(rank);
  }
  /// Whether this process is the one that reports and writes.
  bool is_root() const { return true; }
  /// Brings what each process knows to the root: `known[i]` says whether values[i] is right here. One process knows all.
  void gather(std::span<T> values, std::span<const char> known) const {
    static_cast<void>(values);
    static_cast<void>(known);
  }

  /// One iteration: all microbatches forward and backward, then the update.
  /// @throws what a layer or source throws; the executor can then not be used again.
  template <MicrobatchTokens Source>
  IterationResult run(const Source& source, const IterationArgs& args, const GradientObserver<T>& observe = {}) {
    IterationResult result;
    result.losses.assign(static_cast<std::size_t>(schedule_.workload().microbatches()), 0.0);
    result.timeline.start.resize(schedule_.tasks().size());
    result.timeline.end.resize(schedule_.tasks().size());
    result.sent.resize(static_cast<std::size_t>(schedule_.ranks()));
    for (auto& state : states_) state.store(waiting, std::memory_order_relaxed);
    for (auto& arrived : arrivals_) arrived.store(0, std::memory_order_relaxed);
    for (auto& rank : ranks_) rank.begin_iteration();
    failure_ = nullptr;
    result_ = &result;
    const auto begin = Clock::now();
    {
      std::vector<std::jthread> threads;
      for (int r = 0; r < schedule_.ranks(); ++r) {
        const Program& program = programs_[static_cast<std::size_t>(r)];
        for (int lane = 0; lane < program.lanes(); ++lane) {
          if (program.lane(lane).empty()) continue;
          threads.emplace_back([&, r, lane] { run_lane(Rank{r}, lane, source, args, observe, begin); });
        }
      }
    }
    if (failure_) std::rethrow_exception(failure_);
    for (const RankState<T>& rank : ranks_) result.gradient_norm = std::max(result.gradient_norm, rank.gradient_norm());
    return result;
  }

 private:
  using Clock = std::chrono::steady_clock;
  enum State : std::uint32_t { waiting, ended, stopped };

  template <class Source>
  void run_lane(Rank rank, int lane, const Source& source, const IterationArgs& args, const GradientObserver<T>& observe,
                Clock::time_point begin) {
    const Program& program = programs_[index(rank)];
    ChaosDelay chaos{options_.chaos, rank, lane, args.step};
    std::vector<T> message;
    try {
      for (const Launch& launch : program.lane(lane)) {
        for (const TaskId earlier : program.waits(launch)) {
          if (!wait_for(earlier)) return;
        }
        for (const Notice& notice : program.awaits(launch)) {
          if (!wait_for(notice.task)) return;
        }
        chaos.delay();
        if (is_gradient_norm(schedule_.task(launch.task))) ranks_[index(rank)].put_gradient_square(launch.task);
        if (!arrive_last(launch.task)) {
          if (!wait_for(launch.task)) return;
          continue;
        }
        result_->timeline.start[index(launch.task)] = since(begin);
        execute(launch.task, rank, source, args, observe, message);
        result_->timeline.end[index(launch.task)] = since(begin);
        finish(launch.task);
      }
    } catch (...) {
      stop(std::current_exception());
    }
  }

  static TimePoint since(Clock::time_point begin) {
    return TimePoint{Duration{std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count() * 1000}};
  }

  /// False if the iteration has been stopped.
  bool wait_for(TaskId task) {
    std::atomic<std::uint32_t>& state = states_[index(task)];
    state.wait(waiting, std::memory_order_acquire);
    return state.load(std::memory_order_acquire) == ended;
  }
  /// Whether all other ends of the task are there already.
  bool arrive_last(TaskId task) {
    const Task& t = schedule_.task(task);
    const std::size_t ends = number_of_ends(schedule_, t);
    return ends == 1 || arrivals_[index(task)].fetch_add(1, std::memory_order_acq_rel) + 1 == ends;
  }
  void finish(TaskId task) {
    // Only from waiting: a stop must not be undone.
    std::uint32_t expected = waiting;
    states_[index(task)].compare_exchange_strong(expected, ended, std::memory_order_acq_rel);
    states_[index(task)].notify_all();
  }
  void stop(std::exception_ptr why) {
    {
      const std::lock_guard lock{failure_mutex_};
      if (!failure_) failure_ = std::move(why);
    }
    for (auto& state : states_) {
      std::uint32_t expected = waiting;
      state.compare_exchange_strong(expected, stopped, std::memory_order_acq_rel);
      state.notify_all();
    }
  }

  template <class Source>
  void execute(TaskId id, Rank rank, const Source& source, const IterationArgs& args, const GradientObserver<T>& observe,
               std::vector<T>& message) {
    const Task& task = schedule_.task(id);
    if (task.op == Op::idle) return;
    if (task.op == Op::update) {
      ranks_[index(rank)].update(id, optimizer_, args, observe);
    } else if (is_compute(task.op)) {
      ranks_[index(rank)].compute(id, layers_[index(rank)], source, args.step, result_->losses);
    } else {
      transfer(id, message);
    }
  }

  void transfer(TaskId id, std::vector<T>& message) {
    const Task& task = schedule_.task(id);
    const TransferFlow& flow = flow_.transfer(id);
    const bool sum = is_sum(task.op);
    if (sum || !direct(flow)) {
      if (sum) message.assign(static_cast<std::size_t>(flow.count), T{});
      message.resize(static_cast<std::size_t>(flow.count));
      for (const TransferEnd& end : flow.ends) ranks_[index(end.rank)].give(end.gives, message.data(), sum);
      for (const TransferEnd& end : flow.ends) ranks_[index(end.rank)].take(end.takes, message.data());
    }
    const std::lock_guard lock{sent_mutex_};
    count_sent(schedule_, id, flow, sizeof(T), result_->sent);
  }

  /// A message in one piece from one rank goes straight to where it is wanted.
  bool direct(const TransferFlow& flow) {
    const TransferEnd* source = nullptr;
    for (const TransferEnd& end : flow.ends) {
      if (end.gives.empty()) continue;
      if (source != nullptr || end.gives.size() != 1) return false;
      source = &end;
    }
    if (source == nullptr || source->gives[0].packed != 0) return false;
    const T* from = ranks_[index(source->rank)].at(source->gives[0].place);
    for (const TransferEnd& end : flow.ends) ranks_[index(end.rank)].take(end.takes, from);
    return true;
  }

  const Schedule& schedule_;
  Dataflow flow_;
  Optimizer optimizer_;
  HostOptions options_;
  std::vector<Program> programs_;                     ///< [rank]
  std::deque<RankState<T>> ranks_;                    ///< [rank]
  std::deque<Layer> layers_;                          ///< [rank]
  std::vector<std::atomic<std::uint32_t>> states_;    ///< [task]
  std::vector<std::atomic<std::uint32_t>> arrivals_;  ///< [task]
  std::mutex sent_mutex_;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  IterationResult* result_ = nullptr;
};

}  // namespace tawpipe::host
