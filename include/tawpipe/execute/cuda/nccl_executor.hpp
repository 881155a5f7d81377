// Runs one rank of a schedule on one device: streams as lanes, communications as by NCCL.
// Not: all ranks on one device (virtual_executor.hpp); how ranks find each other (rendezvous.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/execute/cuda/device_api.hpp"
#include "tawpipe/execute/cuda/iteration.hpp"
#include "tawpipe/execute/cuda/lane_progress.hpp"
#include "tawpipe/execute/cuda/observer.hpp"
#include "tawpipe/execute/cuda/rank_communicators.hpp"
#include "tawpipe/execute/cuda/rank_memory.hpp"
#include "tawpipe/execute/cuda/rank_steps.hpp"
#include "tawpipe/execute/cuda/rank_work.hpp"
#include "tawpipe/execute/detail/dataflow_builder.hpp"
#include "tawpipe/execute/iteration.hpp"
#include "tawpipe/execute/sent_bytes.hpp"

namespace tawpipe::inline v0::cuda {

/// Trains one rank of a schedule. All ranks have the same schedule and run the same iterations.
///
/// One host thread issues the rank's tasks in an order that is topological and the same on all
/// ranks (issue_order): on every communicator all members call in the same order, and the first
/// communication that has not ended can always proceed. A receive is issued at the same position in
/// that order as its send. An exchange is one group. A wait that no message carries is a number
/// sent on a stream and communicator of its own.
///
/// Messages use buffers directly if their numbers are contiguous there, otherwise a staging area.
/// The constructor makes the one allocation, which communicators use directly if they can.
template <DeviceApi Device, CommunicatorApi<typename Device::Stream> Communicator, DeviceLayer<typename Device::Stream> Layer,
          DeviceUpdate<typename Device::Stream> Optimizer>
class NcclExecutor {
 public:
  using Stream = typename Device::Stream;
  using Event = typename Device::Event;

  /// Collective: all ranks of `world` call it, and split it.
  /// @param world    all ranks of the schedule, with the same numbers; a framework's may be adopted
  /// @param compute  a framework's stream for computation; it is used, not owned
  /// @throws ScheduleError  if the schedule cannot be executed. InputError  as number_types and
  /// check_gradients, or if its ranks differ from those of `world`. DeviceError  if device or communicator fails.
  template <class MakeLayer>
  NcclExecutor(const Schedule& schedule, Device device, Communicator world, MakeLayer&& make_layer, Optimizer optimizer,
               ExecutorOptions options = {}, std::optional<Stream> compute = std::nullopt)
      : schedule_{schedule},
        communicators_{schedule, std::move(world)},
        device_{std::move(device)},
        rank_{Rank{communicators_.world().rank()}},
        flow_{resolve_dataflow(schedule, rank_)},
        program_{Lowering{schedule}.lower(rank_)},
        options_{options},
        window_{(device_.use(), device_)},
        clock_{device_, schedule.tasks().size(), [&](TaskId task) { return options.timeline && takes_part(task); }},
        memory_{schedule,
                flow_,
                ParameterStore{schedule, flow_, rank_, options.lent},
                program_,
                options.expected,
                staging_bytes(schedule, flow_, program_, rank_),
                exchange_bytes},
        layer_{make_layer()},
        optimizer_{std::move(optimizer)},
        progress_{schedule, program_, rank_, options.watch},
        observer_{[this] { look(); }, options.failed} {
    check_gradients<Layer>(memory_.types());
    if (options.watch != nullptr) {
      options.watch->describe_by(
          [&schedule](int lane, std::int32_t task) { return describe_on_lane(schedule, lane, TaskId{task}); },
          [&schedule](std::int32_t task) { return is_work(schedule.task(TaskId{task}).op); });
    }
    allocate(compute);
    work_.emplace(schedule_, flow_, program_, memory_);
    layer_.use_stream(lanes_[0]);
    guarded([&] { connect(); });
    sent_ = sent_of(schedule_, flow_, memory_.types());
  }
  ~NcclExecutor() {
    observer_.end();
    if (options_.watch != nullptr) options_.watch->describe_by({}, {});
  }
  NcclExecutor(const NcclExecutor&) = delete;
  NcclExecutor& operator=(const NcclExecutor&) = delete;

  using Number = float;  ///< type of the values of gather(), and of moments
  const Schedule& schedule() const { return schedule_; }
  const Dataflow& dataflow() const { return flow_; }
  const NumberTypes& types() const { return memory_.types(); }
  /// Device memory of this rank.
  Bytes allocated() const { return Bytes{memory_.bytes()}; }
  /// Communicators of this rank in addition to the one of all ranks.
  std::size_t communicators() const { return communicators_.size(); }
  /// This rank's all-gathers in an iteration.
  GatherCount gathers() const { return gathers_; }
  /// Free device memory before they were created, and after the first iteration, which connects
  /// them; zero before it has ended. Memory that others take on the device meanwhile counts too.
  ConnectionMemory connection_memory() const { return connection_memory_; }
  /// Whether this process is the one that reports and writes: rank 0.
  bool is_root() const { return number(rank_) == 0; }

  /// Calls `visit(RankParameters<Device>&)` for the rank of this process, between iterations only.
  template <class Visit>
  void for_each_rank(Visit&& visit) {
    device_.use();
    RankParameters<Device> parameters{device_, window_, memory_, lanes_[0]};
    visit(parameters);
  }

  /// Combines the values that each rank knows: all ranks then have those of any. Collective.
  /// @param known  [values] whether the value is right here
  void gather(std::span<float> values, std::span<const char> known) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (known[i] == 0) values[i] = -std::numeric_limits<float>::infinity();
    }
    guarded([&] { largest(values); });
  }

  /// One iteration: all microbatches forward and backward, then the update. Collective. Losses,
  /// bytes sent and the timeline are those of all ranks, the same on each; the timeline counts from
  /// the time when all ranks have arrived, by each rank's own clock.
  /// @throws InputError  naming a token that is not in the vocabulary. DeviceError  if the device
  /// or a communicator fails or a limit passes. Then ExecutorOptions::failed is called, and all
  /// communicators are aborted: the program should end. Work that does not thereby end within
  /// ExecutorOptions::abort_limit is left as it is, its memory and threads with it.
  template <MicrobatchTokens Source>
  IterationResult run(const Source& source, const Iteration& args) {
    start(source, args);
    IterationResult result = finish();
    result.stop = args.stop ? args.stop() : 0;
    if (!options_.timeline && !args.stop) return result;
    gather_result(result, [&](std::span<double> all) { guarded([&] { largest(all); }); });
    return result;
  }

  /// The first half of `run`: enqueues the iteration. Blocks only while communicators connect.
  template <MicrobatchTokens Source>
  void start(const Source& source, const Iteration& args) {
    check_clipping(schedule_, args.gradient_clip);
    guarded([&] {
      device_.use();
      clip_ = args.gradient_clip > 0;
      memory_.fill_input(source, args, host_input_);
      device_.upload(memory_.input().data(), host_input_, memory_.input().size(), lanes_[0]);
      clock_.arm(device_, lanes_[0]);
      observe();
      if (options_.graph && warm_) {
        if (!graph_ || captured_clip_ != clip_) capture();
        device_.launch(*graph_, lanes_[0]);
        clock_.launched();
      } else {
        issue(clip_);
      }
      device_.download(host_output_, memory_.output().data(), memory_.output().size(), lanes_[0]);
      device_.record(ended_, lanes_[0]);
    });
  }
  /// The second half: waits for the end. The timeline in the result has only this rank's tasks.
  IterationResult finish() {
    IterationResult result;
    guarded([&] {
      device_.use();
      await_end();
      if (!warm_) connection_memory_.after = Bytes{static_cast<std::int64_t>(device_.free_memory())};
      warm_ = true;
      result.losses.assign(static_cast<std::size_t>(schedule_.workload().microbatches()), 0.0);
      const double square = memory_.read_output(host_output_, result.losses);
      if (clip_) result.gradient_norm = std::sqrt(square);
      if (options_.timeline) result.timeline = clock_.read(device_);
    });
    result.sent = sent_;
    return result;
  }

  /// Enqueues one iteration's work on the input of the last `start`: the host's cost of a run.
  void issue(bool clip) {
    work_->begin(device_, lanes_[0]);
    if (options_.timeline) {  // all ranks reach this point in their streams
      communicators_.world().all_reduce(memory_.notice_out(), memory_.notice_in(), 1, Dtype::f32, Reduction::sum, lanes_[0]);
    }
    clock_.begin(device_, lanes_[0]);
    device_.record(begun_, lanes_[0]);
    for (const Stream& stream : side_) device_.wait(stream, begun_);
    bool square = clip && schedule_.ranks() == 1;  // a single rank needs no sum, so its schedule has no task for it
    for (const Step& step : steps_.steps()) {
      if (square && step.op == Op::update) {
        work_->put_square(device_, lanes_[0]);
        work_->find_scale(device_, lanes_[0]);
        square = false;
      }
      issue(step, clip);
    }
    for (const Stream& stream : side_) {
      device_.record(joined_, stream);
      device_.wait(lanes_[0], joined_);
    }
    auto* const losses = reinterpret_cast<std::byte*>(memory_.losses());
    communicators_.world().all_reduce(losses, losses, schedule_.workload().microbatches(), Dtype::f64, Reduction::sum, lanes_[0]);
  }

 private:
  using Step = typename RankSteps<Device>::Step;
  bool takes_part(TaskId task) const {
    bool found = false;
    for_each_end(schedule_, task, [&](Rank rank, int) { found |= rank == rank_; });
    return found;
  }
  static constexpr std::int64_t exchange_bytes = std::int64_t{1} << 20;

  void allocate(std::optional<Stream> compute) {
    const auto bytes = static_cast<std::size_t>(memory_.bytes());
    memory_.place(communicators_.allocate(device_, bytes), device_.allocate_host(static_cast<std::size_t>(memory_.host_bytes())));
    host_input_ = device_.allocate_host(memory_.input().size());
    host_output_ = device_.allocate_host(memory_.output().size());
    for (int lane = 0; lane < program_.lanes(); ++lane) {
      if (lane == 0) {
        lanes_.push_back(compute ? *compute : device_.make_stream(options_.compute));
      } else if (program_.lane(lane).empty()) {
        lanes_.push_back({});
      } else {
        lanes_.push_back(device_.make_stream(options_.communicate));
        side_.push_back(lanes_.back());
      }
    }
    begun_ = device_.make_event(false);
    joined_ = device_.make_event(false);
    ended_ = device_.make_event(false);
    device_.clear(memory_.begin(), bytes, lanes_[0]);  // states start as zeros
    device_.record(ended_, lanes_[0]);
    await(device_, ended_, 0, [] {});
  }

  /// Communicators, and steps over them.
  void connect() {
    connection_memory_.before = Bytes{static_cast<std::int64_t>(device_.free_memory())};
    const CommunicatorPlan plan = plan_communicators(schedule_, flow_, Lowering{schedule_}.has_notices());
    const std::vector<std::int32_t> own = communicators_.split(plan);
    std::array elsewhere{communicators_.is_direct() && options_.lent.empty() ? 0.0F : 1.0F};
    if (Communicator::enrolls) {
      largest(std::span<float>{elsewhere});
      communicators_.enroll(elsewhere[0] == 0);
    }
    if (plan.notices >= 0) {
      notice_stream_ = device_.make_stream(options_.communicate);
      side_.push_back(notice_stream_);
    }
    steps_ = RankSteps<Device>{
        device_,
        {schedule_, flow_, program_, issue_order(schedule_, options_.expected), memory_, plan, own, lanes_, notice_stream_}};
    gathers_ = communicators_.open_windows(schedule_, plan, own, steps_, [this](std::span<double> all) { largest(all); });
  }
  void issue(const Step& step, bool clip) {
    for (const Event& event : steps_.waits(step)) device_.wait(step.stream, event);
    if (step.notice) {
      communicators_.communicate(step, {}, device_);
    } else {
      clock_.start(device_, step.task, step.stream);
      if (step.op == Op::update) {
        work_->update(step.task, device_, optimizer_, clip, step.stream);
      } else if (is_work(step.op)) {
        work_->compute(step.task, device_, layer_, step.stream);
      } else if (step.op != Op::idle) {
        if (step.norm) work_->put_square(device_, step.stream);
        for (const ResolvedMove& one : steps_.before(step)) carry_out(one, step.type, device_, step.stream);
        if (step.count > 0) communicators_.communicate(step, steps_.parts(step), device_);
        for (const ResolvedMove& one : steps_.after(step)) carry_out(one, step.type, device_, step.stream);
        if (step.norm && clip) work_->find_scale(device_, step.stream);
      }
      clock_.end(device_, step.task, step.stream);
    }
    if (step.record) device_.record(step.done, step.stream);
  }

  void capture() {
    device_.begin_capture(lanes_[0]);
    issue(clip_);
    graph_ = device_.end_capture(lanes_[0]);
    captured_clip_ = clip_;
  }

  /// From here on another thread inspects lanes and communicators, if anything uses the results.
  void observe() {
    const double limit = warm_ ? options_.task_limit : std::max(options_.task_limit, options_.connect_limit);
    const bool limited = options_.task_limit > 0;
    if (!options_.timeline || (options_.watch == nullptr && !limited)) return;
    progress_.begin(limited ? limit : 0);
    if (options_.watch != nullptr) options_.watch->connecting(warm_ ? 0 : options_.connect_limit);
    observer_.begin();
  }
  /// Called by the observer's thread.
  void look() {
    device_.use();
    try {
      communicators_.check();
    } catch (const PeerError&) {
      if (options_.watch != nullptr) options_.watch->await_news();
      throw;
    }
    if (clock_.begun(device_)) {
      progress_.look(tawpipe::detail::now(), [&](TaskId task) { return clock_.ended(device_, task); });
    }
  }
  void await_end() {
    const auto poll = [&] {
      communicators_.check();
      observer_.check();
      if (options_.watch != nullptr && options_.watch->must_throw()) throw DeviceError(options_.watch->why());
    };
    const bool ended = await(device_, ended_, options_.time_limit, poll);
    observer_.end();
    progress_.begin(0);  // no lane is in a task now
    if (ended) return;
    throw DeviceError(late_message(schedule_, options_, [&](auto&& visit) {
      for (int lane = 0; lane < program_.lanes(); ++lane) {
        visit(number(rank_), lane, clock_.first_unfinished(device_, program_.lane(lane)));
      }
    }));
  }
  /// Runs an operation of all ranks: if it fails on one, nothing of it may stay in progress.
  template <class Do>
  void guarded(Do&& act) {
    if (failed_) throw DeviceError("this executor has failed; the program should end");
    try {
      act();
    } catch (const PeerError& error) {
      if (options_.watch != nullptr) options_.watch->await_news();
      give_up(error.what());
      throw;
    } catch (const std::exception& error) {
      give_up(error.what());
      throw;
    }
  }
  void give_up(const std::string& why) {
    failed_ = true;
    observer_.end();
    if (options_.failed) options_.failed(why);  // before anything that may wait
    graph_.reset();
    device_.drop_graphs();
    const bool gone = communicators_.abort(options_.abort_limit);
    if (device_.settle(gone ? options_.abort_limit : 0)) return;
    static_cast<void>(new std::pair{std::move(layer_), std::move(optimizer_)});  // freeing memory would wait for the device
    communicators_.leave_memory();
  }

  /// Puts the largest of all ranks' numbers in the place of each. Collective.
  template <class T>
  void largest(std::span<T> values) {
    device_.use();
    communicators_.largest(device_, {window_, memory_.exchange(), lanes_[0]}, values, [&] {
      device_.record(ended_, lanes_[0]);
      await_end();
    });
  }

  const Schedule& schedule_;
  RankCommunicators<Device, Communicator> communicators_;  ///< outlive the device's graphs
  Device device_;
  Rank rank_;
  Dataflow flow_;
  Program program_;
  ExecutorOptions options_;
  HostWindow<Device> window_;
  TaskClock<Device> clock_;
  RankMemory memory_;
  Layer layer_;
  Optimizer optimizer_;
  LaneProgress progress_;
  ConnectionMemory connection_memory_;
  std::optional<RankWork> work_;
  std::byte* host_input_ = nullptr;
  std::byte* host_output_ = nullptr;
  std::vector<Stream> lanes_;
  std::vector<Stream> side_;  ///< all streams but that of lane 0
  Stream notice_stream_{};
  RankSteps<Device> steps_;
  GatherCount gathers_;
  std::vector<SentBytes> sent_;  ///< [rank] in each iteration
  Event begun_{};
  Event joined_{};
  Event ended_{};
  bool clip_ = false;
  bool warm_ = false;
  bool failed_ = false;
  std::optional<typename Device::Graph> graph_;
  bool captured_clip_ = false;
  Observer observer_;  ///< last: it inspects all the others
};

}  // namespace tawpipe::cuda
