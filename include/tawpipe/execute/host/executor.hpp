// Runs a schedule for real in one process: threads run the lanes of all ranks, messages are copies
// in memory.
// Not: several processes (execute/mpi/executor.hpp); a rank's computations
// (execute/host/rank_state.hpp).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tawpipe/execute/executed_schedule.hpp"
#include "tawpipe/execute/host/chaos.hpp"
#include "tawpipe/execute/host/exchange.hpp"
#include "tawpipe/execute/host/lane_queue.hpp"
#include "tawpipe/execute/host/rank_state.hpp"
#include "tawpipe/execute/iteration.hpp"
#include "tawpipe/execute/message.hpp"
#include "tawpipe/execute/parameter_store.hpp"
#include "tawpipe/execute/sent_bytes.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0::host {

/// The options of the host executor.
struct HostOptions {
  Chaos chaos{};  ///< random delays, to expose races
  /// of the schedule: memory is laid out for it (plan_buffers); null: for any timing
  const Timeline* expected = nullptr;
  /// at most, including the caller's; 0: the number of cores, or with chaos one a lane
  int threads = 0;
  /// memory lent to all ranks; read by the constructor only
  std::span<const LentParameters> lent{};
  /// called if a layer, source or optimizer throws, before `run` does
  FailureCallback failed{};
};

/// Trains in this process. Every lane of every rank launches its tasks in order, on whichever
/// thread is free; a task with several ends is executed by the end that arrives last. Sums are
/// formed in the order of the group's members, so every run gives the same bits. Layers that wait
/// for something other than the processor (Paced) need a thread for each lane that is to run
/// concurrently.
template <class T, LayerCompute Layer, ParameterUpdate Optimizer>
class HostExecutor {
 public:
  using Number = T;

  /// @param make_layer  called once a rank
  /// @throws ScheduleError  if the schedule cannot be executed. InputError  for lent memory that
  /// matches no buffer.
  template <class MakeLayer>
  HostExecutor(const Schedule& schedule, MakeLayer&& make_layer, Optimizer optimizer, HostOptions options = {})
      : executed_{schedule},
        schedule_{executed_.schedule()},
        flow_{executed_.resolve()},
        optimizer_{std::move(optimizer)},
        options_{options},
        sent_(static_cast<std::size_t>(schedule.ranks())),
        queue_{schedule_.tasks().size()} {
    require_shared_layers<Layer>(executed_);
    const Lowering lowering{schedule_};
    // An expected timeline has whole computations.
    const Timeline* const expected = executed_.has_steps() ? nullptr : options.expected;
    for (int r = 0; r < schedule_.ranks(); ++r) {
      Program& program = programs_.emplace_back(lowering.lower(Rank{r}));
      ranks_.emplace_back(schedule_, flow_, ParameterStore{schedule_, flow_, Rank{r}, options.lent}, program, expected);
      layers_.push_back(make_layer());
      for (int lane = 0; lane < programs_.back().lanes(); ++lane) {
        if (!programs_.back().lane(lane).empty()) lanes_.push_back({Rank{r}, lane});
      }
    }
    transfers_.resize(flow_.transfers.size());
    for (std::size_t t = 0; t < schedule_.tasks().size(); ++t) {
      if (is_compute(schedule_.tasks()[t].op)) continue;
      const TransferFlow& flow = flow_.transfer(id<TaskId>(t));
      if (executed_.members(id<TaskId>(t)).empty()) transfer_of(id<TaskId>(t)) = shared_transfer(schedule_, id<TaskId>(t), flow);
      if (!flow.by_rows) count_sent(schedule_, id<TaskId>(t), flow, sizeof(T), sent_);
    }
  }

  const Schedule& schedule() const { return executed_.given(); }
  const Dataflow& dataflow() const { return flow_; }
  RankState<T>& rank(Rank rank) { return ranks_[index(rank)]; }

  /// Calls `visit(RankState<T>&)` for each rank of this process: all of them.
  template <class Visit>
  void for_each_rank(Visit&& visit) {
    for (RankState<T>& rank : ranks_) visit(rank);
  }
  /// Whether this process is the one that reports and writes.
  bool is_root() const { return true; }
  /// Combines the values that each process knows on the root: `known[i]` tells whether values[i] is
  /// right here. One process knows all.
  void gather(std::span<T> values, std::span<const char> known) const {
    static_cast<void>(values);
    static_cast<void>(known);
  }

  /// One iteration: all microbatches forward and backward, then the update.
  /// @throws what a layer or source throws; the executor can then not be used again.
  template <MicrobatchTokens Source>
  IterationResult run(const Source& source, const Iteration& args, const GradientObserver<T>& observe = {}) {
    IterationResult result;
    losses_.assign(ranks_.size(), std::vector<double>(static_cast<std::size_t>(schedule_.workload().microbatches()), 0.0));
    result.timeline.start.resize(schedule_.tasks().size());
    result.timeline.end.resize(schedule_.tasks().size());
    result.sent = sent_;
    for (auto& rank : ranks_) rank.begin_iteration();
    for (LaneRun& lane : lanes_) {
      lane.next = lane.waited = 0;
      lane.arrived = false;
      lane.chaos = ChaosDelay{options_.chaos, lane.rank, lane.lane, args.step};
    }
    queue_.reset(static_cast<int>(lanes_.size()));
    failure_ = nullptr;
    result_ = &result;
    begin_ = Clock::now();
    const auto work = [&] {
      for (int lane = queue_.take(); lane >= 0; lane = queue_.take()) run_lane(lane, source, args, observe);
    };
    {
      std::vector<std::jthread> others;
      for (int t = 1; t < threads(); ++t) others.emplace_back(work);
      work();
    }
    if (queue_.stuck()) throw ScheduleError("the schedule cannot be executed: its lanes wait for each other; validate it");
    if (failure_) {
      if (options_.failed) options_.failed(message_of(failure_));
      std::rethrow_exception(failure_);
    }
    result.losses = summed_losses();
    for (const RankState<T>& rank : ranks_) result.gradient_norm = std::max(result.gradient_norm, rank.gradient_norm());
    if (args.stop) result.stop = args.stop();
    result.timeline = executed_.of_given(std::move(result.timeline));
    return result;
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// A lane of a rank, and its progress.
  struct LaneRun {
    Rank rank = none<Rank>;
    int lane = 0;
    std::size_t next = 0;    ///< index of the next launch
    std::size_t waited = 0;  ///< number of its waits that are over
    bool arrived = false;    ///< the launch waits for its own task, which another end executes
    ChaosDelay chaos{{}, Rank{0}, 0, 0};
    std::vector<T> message = {};  ///< memory for messages that are not contiguous
  };

  int threads() const {
    const int all = static_cast<int>(lanes_.size());
    if (options_.threads > 0) return std::min(options_.threads, all);
    if (options_.chaos.longest_microseconds > 0) return all;
    return std::min(std::max(static_cast<int>(std::thread::hardware_concurrency()), 1), all);
  }

  /// Continues the lane until it must wait or has finished.
  template <class Source>
  void run_lane(int number, const Source& source, const Iteration& args, const GradientObserver<T>& observe) {
    LaneRun& lane = lanes_[static_cast<std::size_t>(number)];
    const Program& program = programs_[index(lane.rank)];
    const auto launches = program.lane(lane.lane);
    try {
      for (; lane.next < launches.size(); ++lane.next, lane.waited = 0) {
        const TaskId task = launches[lane.next].task;
        if (std::exchange(lane.arrived, false)) continue;  // it has ended
        const auto waits = program.waits(launches[lane.next]);
        const auto awaits = program.awaits(launches[lane.next]);
        for (; lane.waited < waits.size() + awaits.size(); ++lane.waited) {
          const bool own = lane.waited < waits.size();
          if (!queue_.has_ended(own ? waits[lane.waited] : awaits[lane.waited - waits.size()].task, number)) return;
        }
        lane.chaos.delay();
        if (is_gradient_norm(schedule_.task(task))) ranks_[index(lane.rank)].put_gradient_square(task);
        lane.arrived = true;  // before another thread may take over the lane
        if (!queue_.arrives_last(task, number_of_ends(schedule_, schedule_.task(task)), number)) return;
        lane.arrived = false;
        result_->timeline.start[index(task)] = since_begin();
        execute(task, lane.rank, source, args, observe, lane.message);
        result_->timeline.end[index(task)] = since_begin();
        queue_.end(task);
      }
      queue_.leave();
    } catch (...) {
      {
        const std::lock_guard lock{failure_mutex_};
        if (!failure_) failure_ = std::current_exception();
      }
      queue_.stop();
    }
  }

  TimePoint since_begin() const {
    return TimePoint{Duration{std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count() * 1000}};
  }

  template <class Source>
  void execute(TaskId id, Rank rank, const Source& source, const Iteration& args, const GradientObserver<T>& observe,
               std::vector<T>& message) {
    const Task& task = schedule_.task(id);
    if (task.op == Op::idle) return;
    if (task.op == Op::update) {
      ranks_[index(rank)].update(id, optimizer_, args, observe);
    } else if (is_compute(task.op)) {
      compute(id, rank, source, args.step);
    } else if (const std::span<const BodyTask> members = executed_.members(id); !members.empty()) {
      exchange(id, members, message);
    } else {
      transfer(id, message);
    }
  }
  template <class Source>
  void compute(TaskId id, Rank rank, const Source& source, std::int64_t step) {
    if constexpr (SharedLayerCompute<Layer>) {
      if (const BodyTask at = executed_.step(id); at.body != nullptr)
        return ranks_[index(rank)].compute_step(id, at, layers_[index(rank)], source, step, losses_[index(rank)]);
    }
    ranks_[index(rank)].compute(id, layers_[index(rank)], source, step, losses_[index(rank)]);
  }
  /// [microbatch] in the order of the ranks that have parts of its tokens
  std::vector<double> summed_losses() const {
    std::vector<double> sums(static_cast<std::size_t>(schedule_.workload().microbatches()), 0.0);
    for (std::size_t r = 0; r < losses_.size(); ++r) {
      if (loss_part(schedule_, id<Rank>(r)) < 0) continue;
      for (std::size_t m = 0; m < sums.size(); ++m) sums[m] += losses_[r][m];
    }
    return sums;
  }
  /// A collective of a body: the layers say where their numbers are.
  void exchange(TaskId id, std::span<const BodyTask> members, std::vector<T>& message) {
    if constexpr (SharedLayerCompute<Layer>) {
      const Task& task = schedule_.task(id);
      const auto group = schedule_.group(task.group);
      std::vector<ExchangeArgs> ends;
      for (std::size_t m = 0; m < group.size(); ++m)
        ends.push_back(ranks_[index(group[m])].exchange(members[m], layers_[index(group[m])]));
      if (flow_.transfer(id).by_rows) {
        const std::vector<std::int64_t> sent = exchange_rows<T>(ends);
        const std::lock_guard lock{sent_mutex_};
        for (std::size_t m = 0; m < group.size(); ++m) {
          const auto payload = static_cast<std::size_t>(sent_payload(task, group[m]));
          result_->sent[index(group[m])].by_payload[payload] += sent[m] * static_cast<std::int64_t>(sizeof(T));
        }
      } else if (is_all_pairs(task.op)) {
        exchange_blocks<T>(ends, flow_.transfer(id).member_begin, message);
      } else {
        host::exchange<T>(task.op, ends, message);
      }
    }
  }

  SharedTransfer& transfer_of(TaskId id) { return transfers_[static_cast<std::size_t>(flow_.flow_of_task[index(id)])]; }
  void transfer(TaskId id, std::vector<T>& message) {
    const SharedTransfer& plan = transfer_of(id);
    message.resize(std::max(message.size(), static_cast<std::size_t>(plan.staging)));
    const auto at = [&](const Address& address, Rank rank) {
      return address.staged() ? message.data() + address.place.offset : ranks_[index(rank)].at(address.place);
    };
    for (const SharedMove& one : plan.moves) {
      carry_out<T>(one.move, at(one.move.to, one.to), one.move.kind == Move::Kind::clear ? nullptr : at(one.move.from, one.from));
    }
  }

  ExecutedSchedule executed_;
  const Schedule& schedule_;  ///< executed_'s tasks
  Dataflow flow_;
  Optimizer optimizer_;
  HostOptions options_;
  std::vector<Program> programs_;            ///< [rank]
  std::deque<RankState<T>> ranks_;           ///< [rank]
  std::deque<Layer> layers_;                 ///< [rank]
  std::vector<LaneRun> lanes_;               ///< those of all ranks that have tasks
  std::vector<SharedTransfer> transfers_;    ///< as in flow_
  std::vector<SentBytes> sent_;              ///< [rank] in each iteration
  std::vector<std::vector<double>> losses_;  ///< [rank][microbatch] that the rank has computed
  LaneQueue queue_;
  Clock::time_point begin_;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::mutex sent_mutex_;
  IterationResult* result_ = nullptr;
};

}  // namespace tawpipe::host
