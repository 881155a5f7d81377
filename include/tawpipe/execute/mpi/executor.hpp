// Runs a schedule for real, one process a rank: one thread computes, one communicates by MPI.
// Not: ranks as threads of one process (execute/host/executor.hpp).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tawpipe/execute/executed_schedule.hpp"
#include "tawpipe/execute/host/rank_state.hpp"
#include "tawpipe/execute/iteration.hpp"
#include "tawpipe/execute/mpi/clock.hpp"
#include "tawpipe/execute/mpi/lanes.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"

namespace tawpipe::inline v0::mpi {

/// The options of the MPI executor.
struct MpiOptions {
  std::int64_t chunk_bytes = 256 * 1024;  ///< size of one message in a ring or chain
  /// of the schedule: memory is laid out for it (plan_buffers); null: for any timing
  const Timeline* expected = nullptr;
  /// the whole timeline on every rank; otherwise only this rank's tasks have times
  bool gather_timeline = true;
  /// memory lent to this rank; others are ignored; read by the constructor only
  std::span<const LentParameters> lent{};
};

/// @throws InputError  unless the schedule has as many ranks as the session.
inline void check_ranks(const Schedule& schedule, const Session& session) {
  if (schedule.ranks() == session.ranks()) return;
  throw InputError(concat("the schedule has ", schedule.ranks(), " ranks and MPI has ", session.ranks(),
                          " processes; start mpirun with -np ", schedule.ranks()));
}

/// Trains on the ranks of a session. Every rank creates one from the same schedule and runs the
/// same iterations.
///
/// Collectives are rings and chains of point-to-point messages over the members in order
/// (execute/ring_plan.hpp), so they use the edges that `sent` counts, the same run gives the same
/// bits, whatever algorithms the MPI library has, and no communicator is needed for a group.
/// Messages between two ranks match by their lanes: tag = lane of the sender * lanes + lane of the
/// receiver; on one pair of lanes, both ranks have the same order.
template <class T, LayerCompute Layer, ParameterUpdate Optimizer>
class MpiExecutor {
 public:
  using Number = T;

  /// Collective. @param make_layer  called once
  /// @throws ScheduleError  if the schedule cannot be executed. InputError  if its number of ranks
  /// differs from the session's.
  template <class MakeLayer>
  MpiExecutor(const Schedule& schedule, Session& session, MakeLayer&& make_layer, Optimizer optimizer, MpiOptions options = {})
      : executed_{schedule},
        schedule_{executed_.schedule()},
        session_{session},
        options_{options},
        flow_{resolved(executed_, session)},
        program_{Lowering{schedule_}.lower(Rank{session.rank()})},
        state_{schedule_, flow_, ParameterStore{schedule_, flow_, Rank{session.rank()}, options.lent}, program_,
               executed_.has_steps() ? nullptr : options.expected},  // which has whole computations
        layer_{make_layer()},
        optimizer_{std::move(optimizer)},
        lanes_{executed_,
               flow_,
               program_,
               state_,
               session,
               std::max<std::int64_t>(options.chunk_bytes / static_cast<std::int64_t>(sizeof(T)), 1),
               [this](const BodyTask& at) { return exchange(at); }} {
    require_shared_layers<Layer>(executed_);
    const std::size_t parts = static_cast<std::size_t>(loss_parts(schedule_));
    teller_.assign(static_cast<std::size_t>(schedule_.workload().microbatches()) * parts, none<Rank>);
    for (const Task& task : schedule_.tasks()) {
      if (task.op != Op::forward || !schedule_.stage(task.stage).last_edge) continue;
      const int part = loss_part(schedule_, task.rank);
      if (part >= 0) teller_[static_cast<std::size_t>(task.microbatch) * parts + static_cast<std::size_t>(part)] = task.rank;
    }
    session.watch().describe_by(
        [this](int lane, std::int32_t task) {
          return concat(tawpipe::detail::describe(schedule_, TaskId{task}), " on lane ",
                        schedule_.lanes()[static_cast<std::size_t>(lane)]);
        },
        [this](std::int32_t task) { return is_work(schedule_.task(TaskId{task}).op); },
        [mesh = schedule_.parts().mesh](int rank) { return tawpipe::detail::place_text(mesh, Rank{rank}); });
  }
  MpiExecutor(const MpiExecutor&) = delete;
  MpiExecutor& operator=(const MpiExecutor&) = delete;
  ~MpiExecutor() { session_.watch().describe_by({}, {}); }

  const Schedule& schedule() const { return executed_.given(); }
  const Dataflow& dataflow() const { return flow_; }
  /// This process's rank.
  host::RankState<T>& state() { return state_; }
  /// Calls `visit(RankState<T>&)` for the one rank of this process.
  template <class Visit>
  void for_each_rank(Visit&& visit) {
    visit(state_);
  }
  /// Whether this process is the one that reports and writes: rank 0.
  bool is_root() const { return session_.rank() == 0; }

  /// Combines the values that each process knows on rank 0: each is then right there if it was on
  /// any rank. Collective.
  /// @param known  [values] whether the value is right here
  void gather(std::span<T> values, std::span<const char> known) {
    guarded([&] {
      if (is_root()) {
        for (int rank = 1; rank < session_.ranks(); ++rank) receive_values(rank, values);
      } else {
        send_values(values, known);
      }
      return 0;
    });
  }

  /// One iteration: all microbatches forward and backward, then the update. Collective. Losses,
  /// bytes sent and, if requested, the timeline are those of all ranks, the same on each. A
  /// communication starts when its last end is ready, and ends when its last end is done: for a
  /// short message the sender's part may end earlier, and its next task start.
  /// @param observe  called with the gradients that this rank's updates use
  /// @throws what a layer or source throws on this rank, after telling all other ranks
  /// (WatchOptions::failed); the program should end. DeviceError  if MPI fails, or another rank and
  /// there is no such callback.
  template <MicrobatchTokens Source>
  IterationResult run(const Source& source, const Iteration& args, const GradientObserver<T>& observe = {}) {
    failure_ = nullptr;
    losses_.assign(static_cast<std::size_t>(schedule_.workload().microbatches()), 0.0);
    state_.begin_iteration();
    lanes_.reset();
    const std::int64_t offset = guarded([&] { return clock_offset(session_); });
    guarded([&] {
      barrier(session_.control());
      return 0;
    });
    const std::int64_t begin = now();
    std::thread communicating{[&] {
      try {
        lanes_.drive();
      } catch (...) {
        stop(std::current_exception());
      }
    }};
    try {
      compute(source, args, observe);
    } catch (...) {
      stop(std::current_exception());
    }
    if (failure_now()) tell(failure_);
    communicating.join();
    if (failure_) {
      tell(failure_);
      std::rethrow_exception(failure_);
    }
    return guarded([&] { return gather(begin, offset, args.stop ? args.stop() : 0); });
  }

 private:
  static Dataflow resolved(const ExecutedSchedule& executed, const Session& session) {
    const Schedule& schedule = executed.schedule();
    check_ranks(schedule, session);
    const auto lanes = static_cast<int>(schedule.lanes().size());
    void* bound = nullptr;
    int given = 0;
    check(MPI_Comm_get_attr(session.messages(), MPI_TAG_UB, &bound, &given), "MPI_Comm_get_attr");
    if (given != 0 && lanes * lanes - 1 > *static_cast<int*>(bound)) {
      throw InputError(concat("a schedule of ", lanes, " lanes needs more tags than this MPI has"));
    }
    return executed.resolve(Rank{session.rank()});
  }

  template <class Source>
  void compute(const Source& source, const Iteration& args, const GradientObserver<T>& observe) {
    const auto launches = program_.lane(0);
    for (std::size_t place = 0; place < launches.size(); ++place) {
      const Launch& launch = launches[place];
      if (!lanes_.await_ready(launch)) return;
      const Op op = schedule_.task(launch.task).op;
      if (!is_compute(op)) {
        if (is_gradient_norm(schedule_.task(launch.task))) state_.put_gradient_square(launch.task);
        if (!lanes_.communicate(place)) return;
        continue;
      }
      at_ = launch.task;
      lanes_.begin_compute(launch);
      if (op == Op::update) {
        state_.update(launch.task, optimizer_, args, observe);
      } else if (op != Op::idle) {
        compute(launch.task, source, args.step);
      }
      lanes_.end_compute(launch);
      at_ = none<TaskId>;
    }
  }

  template <class Source>
  void compute(TaskId id, const Source& source, std::int64_t step) {
    if constexpr (SharedLayerCompute<Layer>) {
      if (const BodyTask at = executed_.step(id); at.body != nullptr)
        return state_.compute_step(id, at, layer_, source, step, losses_);
    }
    state_.compute(id, layer_, source, step, losses_);
  }
  ExchangeArgs exchange(const BodyTask& at) const {
    if constexpr (SharedLayerCompute<Layer>) return state_.exchange(at, layer_);
    static_cast<void>(at);
    return {};  // require_shared_layers() has refused it
  }

  void stop(std::exception_ptr why) {
    {
      const std::lock_guard lock{failure_mutex_};
      if (!failure_) failure_ = std::move(why);
    }
    lanes_.stop();
  }
  bool failure_now() {
    const std::lock_guard lock{failure_mutex_};
    return failure_ != nullptr;
  }
  void tell(const std::exception_ptr& why) {
    const std::string where = at_ == none<TaskId> ? "" : concat(" in ", tawpipe::detail::describe(schedule_, at_));
    try {
      std::rethrow_exception(why);
    } catch (const std::exception& error) {
      session_.fail(concat(error.what(), where));
    } catch (...) {
      session_.fail(concat("an unknown exception", where));
    }
  }
  /// Runs an operation of all ranks between iterations: if it fails on one, all must know.
  template <class Do>
  auto guarded(Do&& act) {
    try {
      return act();
    } catch (...) {
      tell(std::current_exception());
      throw;
    }
  }

  static constexpr int values_tag = 1;
  static constexpr std::size_t max_values = std::size_t{1} << 24;  ///< of one message

  void send_values(std::span<const T> values, std::span<const char> known) const {
    std::vector<std::int64_t> runs;  // begin, end, begin, end, ...
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (known[i] != 0 && (i == 0 || known[i - 1] == 0)) runs.push_back(static_cast<std::int64_t>(i));
      if (known[i] != 0 && (i + 1 == known.size() || known[i + 1] == 0)) runs.push_back(static_cast<std::int64_t>(i + 1));
    }
    const auto count = static_cast<std::int64_t>(runs.size());
    check(MPI_Send(&count, 1, MPI_INT64_T, 0, values_tag, session_.control()), "MPI_Send");
    check(MPI_Send(runs.data(), static_cast<int>(count), MPI_INT64_T, 0, values_tag, session_.control()), "MPI_Send");
    for_each_message(runs, [&](std::size_t begin, std::size_t numbers) {
      check(MPI_Send(values.data() + begin, static_cast<int>(numbers * sizeof(T)), MPI_BYTE, 0, values_tag, session_.control()),
            "MPI_Send");
    });
  }
  void receive_values(int rank, std::span<T> values) const {
    std::int64_t count = 0;
    check(MPI_Recv(&count, 1, MPI_INT64_T, rank, values_tag, session_.control(), MPI_STATUS_IGNORE), "MPI_Recv");
    std::vector<std::int64_t> runs(static_cast<std::size_t>(count));
    check(MPI_Recv(runs.data(), static_cast<int>(count), MPI_INT64_T, rank, values_tag, session_.control(), MPI_STATUS_IGNORE),
          "MPI_Recv");
    for_each_message(runs, [&](std::size_t begin, std::size_t numbers) {
      check(MPI_Recv(values.data() + begin, static_cast<int>(numbers * sizeof(T)), MPI_BYTE, rank, values_tag, session_.control(),
                     MPI_STATUS_IGNORE),
            "MPI_Recv");
    });
  }
  template <class Visit>
  static void for_each_message(const std::vector<std::int64_t>& runs, Visit&& visit) {
    for (std::size_t i = 0; i + 1 < runs.size(); i += 2) {
      const auto end = static_cast<std::size_t>(runs[i + 1]);
      for (auto at = static_cast<std::size_t>(runs[i]); at < end; at += max_values) visit(at, std::min(max_values, end - at));
    }
  }

  /// Everyone's losses, bytes, times and reasons to stop by one maximum: what a rank does not know
  /// is the lowest number.
  IterationResult gather(std::int64_t begin, std::int64_t offset, int stop) {
    constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::min();
    const std::size_t told = teller_.size();
    const std::size_t parts = static_cast<std::size_t>(loss_parts(schedule_));
    const auto ranks = static_cast<std::size_t>(schedule_.ranks());
    const std::size_t tasks = schedule_.tasks().size();
    const std::size_t timed = options_.gather_timeline ? 2 * tasks + 1 : 0;
    const Rank me = state_.rank();
    std::vector<std::int64_t> own(told + ranks * payloads + timed + 1, unknown);
    own.back() = stop;
    for (std::size_t m = 0; m < told; ++m) {
      if (teller_[m] == me) own[m] = std::bit_cast<std::int64_t>(losses_[m / parts]);
    }
    for (std::size_t p = 0; p < payloads; ++p) own[told + index(me) * payloads + p] = lanes_.sent().by_payload[p];
    std::int64_t* const times = own.data() + told + ranks * payloads;
    const auto known = [&](std::size_t t) { return lanes_.times.start[t] != 0; };
    for (std::size_t t = 0; timed > 0 && t < tasks; ++t) {
      if (!known(t)) continue;
      times[t] = lanes_.times.start[t] + offset;
      times[tasks + t] = lanes_.times.end[t] + offset;
    }
    if (timed > 0) times[2 * tasks] = -(begin + offset);
    std::vector<std::int64_t> all(own.size());
    barrier(session_.control());  // waits for the slowest rank without occupying a core, as the next line would
    check(MPI_Allreduce(own.data(), all.data(), static_cast<int>(own.size()), MPI_INT64_T, MPI_MAX, session_.control()),
          "MPI_Allreduce");

    IterationResult result;
    result.gradient_norm = state_.gradient_norm();
    result.stop = static_cast<int>(all.back());
    result.losses.assign(losses_.size(), 0.0);
    for (std::size_t m = 0; m < told; ++m) {
      if (all[m] != unknown) result.losses[m / parts] += std::bit_cast<double>(all[m]);
    }
    result.sent.resize(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(told + r * payloads), payloads, result.sent[r].by_payload.begin());
    }
    const std::int64_t* const found = timed > 0 ? all.data() + told + ranks * payloads : nullptr;
    const auto point = [](std::int64_t nanoseconds) {
      return TimePoint{Duration{std::max<std::int64_t>(nanoseconds, 0) * 1000}};
    };
    for (std::size_t t = 0; t < tasks; ++t) {
      const std::int64_t origin = found != nullptr ? -found[2 * tasks] : begin;
      const std::int64_t start = found != nullptr ? found[t] : known(t) ? lanes_.times.start[t] : begin;
      const std::int64_t end = found != nullptr ? found[tasks + t] : known(t) ? lanes_.times.end[t] : begin;
      result.timeline.start.push_back(point(start - origin));
      result.timeline.end.push_back(point(std::max(start, end) - origin));
    }
    result.timeline = executed_.of_given(std::move(result.timeline));
    return result;
  }

  ExecutedSchedule executed_;
  const Schedule& schedule_;  ///< executed_'s tasks
  Session& session_;
  MpiOptions options_;
  Dataflow flow_;
  Program program_;
  host::RankState<T> state_;
  Layer layer_;
  Optimizer optimizer_;
  Lanes<T> lanes_;
  std::vector<Rank> teller_;  ///< [microbatch] the rank whose head computes its loss
  std::vector<double> losses_;
  TaskId at_ = none<TaskId>;  ///< the computing thread's current task
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace tawpipe::mpi
