// Runs all ranks of a schedule on one device: each rank with its own streams and buffers, messages
// as copies in memory.
// Not: ranks on several devices (nccl_executor.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/execute/cuda/device_api.hpp"
#include "tawpipe/execute/cuda/iteration.hpp"
#include "tawpipe/execute/cuda/rank_memory.hpp"
#include "tawpipe/execute/cuda/rank_work.hpp"
#include "tawpipe/execute/detail/dataflow_builder.hpp"
#include "tawpipe/execute/iteration.hpp"
#include "tawpipe/execute/message.hpp"
#include "tawpipe/execute/sent_bytes.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"

namespace tawpipe::inline v0::cuda {

/// Trains with virtual ranks: a schedule of any number of ranks runs on one device, with the same
/// results as on that many devices. One host thread issues all tasks in one topological order
/// (issue_order); streams and events do the rest. A communication runs on the stream of its first
/// end, after the work of all its ends so far, and their later work follows it.
///
/// Memory is one allocation of the device for all ranks, made by the constructor; an iteration
/// allocates nothing.
template <DeviceApi Device, DeviceLayer<typename Device::Stream> Layer, DeviceUpdate<typename Device::Stream> Optimizer>
class VirtualExecutor {
 public:
  using Stream = typename Device::Stream;
  using Event = typename Device::Event;

  /// @param make_layer  called once a rank
  /// @throws ScheduleError  if the schedule cannot be executed. InputError  as number_types and
  /// check_gradients. DeviceError  if the device has not enough memory.
  template <class MakeLayer>
  VirtualExecutor(const Schedule& schedule, Device device, MakeLayer&& make_layer, Optimizer optimizer,
                  ExecutorOptions options = {})
      : schedule_{schedule},
        device_{std::move(device)},
        flow_{resolve_dataflow(schedule)},
        optimizer_{std::move(optimizer)},
        options_{options},
        window_{(device_.use(), device_)},
        clock_{device_, schedule.tasks().size(), [&](TaskId) { return options.timeline; }} {
    lay_out();
    for (std::size_t r = 0; r < memory_.size(); ++r) {
      work_.emplace_back(schedule_, flow_, programs_[r], memory_[r]);
      layers_.push_back(make_layer());
      layers_.back().use_stream(stream({Rank{static_cast<std::int32_t>(r)}, 0}));
    }
    begun_ = device_.make_event(false);
    ended_ = device_.make_event(false);
    plan_steps();
    sent_ = sent_of(schedule_, flow_, types());
  }
  VirtualExecutor(const VirtualExecutor&) = delete;
  VirtualExecutor& operator=(const VirtualExecutor&) = delete;

  using Number = float;  ///< type of the values of gather(), and of moments

  const Schedule& schedule() const { return schedule_; }
  const Dataflow& dataflow() const { return flow_; }
  const NumberTypes& types() const { return memory_.front().types(); }
  /// Device memory of all ranks together.
  Bytes allocated() const { return allocated_; }
  /// Whether this process is the one that reports and writes.
  bool is_root() const { return true; }
  /// Combines the values that each process knows on the root: `known[i]` tells whether values[i] is
  /// right here. One process knows all.
  void gather(std::span<float> values, std::span<const char> known) const {
    static_cast<void>(values);
    static_cast<void>(known);
  }

  /// Calls `visit(RankParameters<Device>&)` for each rank of this process: all of them. Between
  /// iterations only.
  template <class Visit>
  void for_each_rank(Visit&& visit) {
    device_.use();
    for (const RankMemory& memory : memory_) {
      RankParameters<Device> parameters{device_, window_, memory, stream({memory.rank(), 0})};
      visit(parameters);
    }
  }

  /// One iteration: all microbatches forward and backward, then the update.
  /// @throws InputError  naming a token that is not in the vocabulary. DeviceError  if the device
  /// fails or the time limit passes; the executor can then not be used again.
  template <MicrobatchTokens Source>
  IterationResult run(const Source& source, const Iteration& args) {
    start(source, args);
    IterationResult result = finish();
    if (args.stop) result.stop = args.stop();
    return result;
  }

  /// The first half of `run`: enqueues the iteration in the streams, without waiting.
  template <MicrobatchTokens Source>
  void start(const Source& source, const Iteration& args) {
    check_clipping(schedule_, args.gradient_clip);
    device_.use();
    clip_ = args.gradient_clip > 0;
    for (std::size_t r = 0; r < memory_.size(); ++r) {
      memory_[r].fill_input(source, args, host_input_[r]);
      device_.upload(memory_[r].input().data(), host_input_[r], memory_[r].input().size(), origin());
    }
    clock_.arm(device_, origin());
    if (options_.graph && warm_) {
      if (!graph_ || captured_clip_ != clip_) capture();
      device_.launch(*graph_, origin());
      clock_.launched();
    } else {
      issue(clip_);
      warm_ = true;
    }
    for (std::size_t r = 0; r < memory_.size(); ++r) {
      device_.download(host_output_[r], memory_[r].output().data(), memory_[r].output().size(), origin());
    }
    device_.record(ended_, origin());
  }
  /// The second half: waits for the end and returns the result.
  IterationResult finish() {
    device_.use();
    if (!await(device_, ended_, options_.time_limit, [] {})) throw DeviceError(late());
    IterationResult result;
    result.losses.assign(static_cast<std::size_t>(schedule_.workload().microbatches()), 0.0);
    for (std::size_t r = 0; r < memory_.size(); ++r) {
      const double square = memory_[r].read_output(host_output_[r], result.losses);
      if (clip_) result.gradient_norm = std::max(result.gradient_norm, std::sqrt(square));
    }
    if (options_.timeline) result.timeline = clock_.read(device_);
    result.sent = sent_;
    return result;
  }

  /// Enqueues one iteration's work, with the input of the last `run`: the host's cost of a run,
  /// without the data.
  void issue(bool clip) {
    for (const RankWork& work : work_) work.begin(device_, origin());
    clock_.begin(device_, origin());
    device_.record(begun_, origin());
    for (std::size_t i = 1; i < lanes_.size(); ++i) device_.wait(lanes_[i].stream, begun_);
    bool square = clip && schedule_.ranks() == 1;  // a single rank needs no sum, so its schedule has no task for it
    for (const Step& step : steps_) {
      if (square && step.op == Op::update) {
        work_.front().put_square(device_, step.stream);
        work_.front().find_scale(device_, step.stream);
        square = false;
      }
      issue(step, clip);
    }
    for (std::size_t i = 1; i < lanes_.size(); ++i) {
      device_.record(lanes_[i].ready, lanes_[i].stream);
      device_.wait(origin(), lanes_[i].ready);
    }
  }

 private:
  struct End {
    Rank rank;
    int lane;
  };
  struct Lane {
    Stream stream;
    Event ready;
  };
  struct Wait {
    Stream stream;
    Event event;
  };
  struct Join {
    Stream stream;
    Event ready;
  };
  /// A task with all its addresses, streams and events.
  struct Step {
    TaskId task;
    Op op;
    Dtype type;  ///< of the message
    bool norm;
    bool record;
    Rank rank;
    Stream stream;
    Event done;
    std::uint32_t waits_begin;
    std::uint32_t waits_end;
    std::uint32_t joins_begin;  ///< the other ends' streams
    std::uint32_t joins_end;
    std::uint32_t moves_begin;
    std::uint32_t moves_end;
  };

  const Stream& origin() const { return lanes_.front().stream; }
  const Lane& lane(End end) const {
    return lanes_[static_cast<std::size_t>(
        lane_at_[index(end.rank) * schedule_.lanes().size() + static_cast<std::size_t>(end.lane)])];
  }
  const Stream& stream(End end) const { return lane(end).stream; }

  /// One allocation for all ranks, and the streams of lanes that have tasks.
  void lay_out() {
    const Lowering lowering{schedule_};
    const auto ranks = static_cast<std::size_t>(schedule_.ranks());
    const std::size_t lanes = schedule_.lanes().size();
    const NumberTypes numbers = number_types(schedule_.workload());
    check_gradients<Layer>(numbers);
    std::vector<std::int64_t> staging(ranks * lanes, 0);
    for (std::size_t t = 0; t < schedule_.tasks().size(); ++t) {
      const Task& task = schedule_.tasks()[t];
      if (is_compute(task.op)) continue;
      const End first = ends_of(id<TaskId>(t)).front();
      std::int64_t& bytes = staging[index(first.rank) * lanes + static_cast<std::size_t>(first.lane)];
      const SharedTransfer transfer = shared_transfer(schedule_, id<TaskId>(t), flow_.transfer(id<TaskId>(t)));
      bytes = std::max(bytes, transfer.staging * size_bytes(numbers.of(task.payload)));
    }
    std::int64_t total = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      const Rank rank{static_cast<std::int32_t>(r)};
      Program& program = programs_.emplace_back(lowering.lower(rank));
      memory_.emplace_back(schedule_, flow_, ParameterStore{schedule_, flow_, rank, options_.lent}, program, options_.expected,
                           std::span{staging}.subspan(r * lanes, lanes));
      total += memory_.back().bytes();
    }
    allocated_ = Bytes{total};
    std::byte* at = device_.allocate(static_cast<std::size_t>(total));
    for (RankMemory& memory : memory_) {
      memory.place(at, device_.allocate_host(static_cast<std::size_t>(memory.host_bytes())));
      at += memory.bytes();
    }
    for (const RankMemory& memory : memory_) {
      host_input_.push_back(device_.allocate_host(memory.input().size()));
      host_output_.push_back(device_.allocate_host(memory.output().size()));
    }
    lane_at_.assign(ranks * lanes, -1);
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t l = 0; l < lanes; ++l) {
        if (l > 0 && programs_[r].lane(static_cast<int>(l)).empty()) continue;
        lane_at_[r * lanes + l] = static_cast<std::int32_t>(lanes_.size());
        lanes_.push_back({device_.make_stream(l == 0 ? options_.compute : options_.communicate), device_.make_event(false)});
      }
    }
    // States start as zeros.
    device_.clear(memory_.front().begin(), static_cast<std::size_t>(total), origin());
    device_.record(lanes_.front().ready, origin());
    await(device_, lanes_.front().ready, 0, [] {});
  }

  std::vector<End> ends_of(TaskId task) const {
    std::vector<End> ends;
    for_each_end(schedule_, task, [&](Rank rank, int lane) { ends.push_back({rank, lane}); });
    return ends;
  }

  void plan_steps() {
    // Each rank's launches by task.
    std::vector<std::vector<std::pair<std::size_t, const Launch*>>> launches(schedule_.tasks().size());
    std::vector<char> awaited(schedule_.tasks().size(), 0);
    for (std::size_t r = 0; r < programs_.size(); ++r) {
      for (int l = 0; l < programs_[r].lanes(); ++l) {
        for (const Launch& launch : programs_[r].lane(l)) {
          launches[index(launch.task)].push_back({r, &launch});
          if (launch.record) awaited[index(launch.task)] = 1;
          for (const Notice& notice : programs_[r].awaits(launch)) awaited[index(notice.task)] = 1;
        }
      }
    }
    std::vector<Event> done(schedule_.tasks().size());
    for (const TaskId task : issue_order(schedule_, options_.expected)) {
      const std::size_t t = index(task);
      const std::vector<End> ends = ends_of(task);
      const Task& facts = schedule_.task(task);
      Step step{};
      step.task = task;
      step.op = facts.op;
      step.norm = is_gradient_norm(facts);
      step.record = awaited[t] != 0 || ends.size() > 1;
      step.rank = ends.front().rank;
      step.stream = stream(ends.front());
      if (step.record) done[t] = device_.make_event(false);
      step.done = done[t];
      step.waits_begin = size32(waits_);
      for (const auto& launch : launches[t]) {
        const Program& program = programs_[launch.first];
        const int on = schedule_.lane_on(task, Rank{static_cast<std::int32_t>(launch.first)});
        const Stream& own = stream({Rank{static_cast<std::int32_t>(launch.first)}, on});
        for (const TaskId earlier : program.waits(*launch.second)) waits_.push_back({own, done[index(earlier)]});
        for (const Notice& notice : program.awaits(*launch.second)) waits_.push_back({own, done[index(notice.task)]});
      }
      step.waits_end = size32(waits_);
      step.joins_begin = size32(joins_);
      for (std::size_t e = 1; e < ends.size(); ++e) joins_.push_back({stream(ends[e]), lane(ends[e]).ready});
      step.joins_end = size32(joins_);
      step.moves_begin = size32(moves_);
      if (!is_compute(facts.op)) add_moves(task, step, ends.front());
      step.moves_end = size32(moves_);
      steps_.push_back(step);
    }
  }
  template <class T>
  static std::uint32_t size32(const std::vector<T>& items) {
    return static_cast<std::uint32_t>(items.size());
  }

  void add_moves(TaskId task, Step& step, End first) {
    step.type = types().of(schedule_.task(task).payload);
    const auto resolve = [&](const Address& address, Rank rank) -> std::byte* {
      if (!address.staged()) return memory_[index(rank)].at(address.place, step.type);
      return memory_[index(first.rank)].staging(first.lane) + address.place.offset * size_bytes(step.type);
    };
    for (const SharedMove& one : shared_transfer(schedule_, task, flow_.transfer(task)).moves) {
      const bool clears = one.move.kind == Move::Kind::clear;
      moves_.push_back(
          {one.move.kind, resolve(one.move.to, one.to), clears ? nullptr : resolve(one.move.from, one.from), one.move.count});
    }
  }

  void issue(const Step& step, bool clip) {
    for (std::uint32_t i = step.waits_begin; i < step.waits_end; ++i) device_.wait(waits_[i].stream, waits_[i].event);
    for (std::uint32_t i = step.joins_begin; i < step.joins_end; ++i) {
      device_.record(joins_[i].ready, joins_[i].stream);
      device_.wait(step.stream, joins_[i].ready);
    }
    clock_.start(device_, step.task, step.stream);
    if (step.op == Op::update) {
      work_[index(step.rank)].update(step.task, device_, optimizer_, clip, step.stream);
    } else if (is_work(step.op)) {
      work_[index(step.rank)].compute(step.task, device_, layers_[index(step.rank)], step.stream);
    } else {
      if (step.norm) for_each_member(step, [&](const RankWork& work) { work.put_square(device_, step.stream); });
      for (std::uint32_t i = step.moves_begin; i < step.moves_end; ++i) carry_out(moves_[i], step.type, device_, step.stream);
      if (step.norm && clip) for_each_member(step, [&](const RankWork& work) { work.find_scale(device_, step.stream); });
    }
    clock_.end(device_, step.task, step.stream);
    if (step.record) device_.record(step.done, step.stream);
    for (std::uint32_t i = step.joins_begin; i < step.joins_end; ++i) device_.wait(joins_[i].stream, step.done);
  }
  template <class Visit>
  void for_each_member(const Step& step, Visit&& visit) const {
    for (const Rank rank : schedule_.group(schedule_.task(step.task).group)) visit(work_[index(rank)]);
  }

  void capture() {
    device_.begin_capture(origin());
    issue(clip_);
    graph_ = device_.end_capture(origin());
    captured_clip_ = clip_;
  }

  std::string late() {
    return late_message(schedule_, options_, [&](auto&& visit) {
      for (std::size_t r = 0; r < programs_.size(); ++r) {
        for (int l = 0; l < programs_[r].lanes(); ++l)
          visit(static_cast<int>(r), l, clock_.first_unfinished(device_, programs_[r].lane(l)));
      }
    });
  }

  const Schedule& schedule_;
  Device device_;
  Dataflow flow_;
  Optimizer optimizer_;
  ExecutorOptions options_;
  HostWindow<Device> window_;
  TaskClock<Device> clock_;
  Bytes allocated_;
  std::vector<Program> programs_;        ///< [rank]
  std::deque<RankMemory> memory_;        ///< [rank]
  std::deque<RankWork> work_;            ///< [rank]
  std::deque<Layer> layers_;             ///< [rank]
  std::vector<std::byte*> host_input_;   ///< [rank]
  std::vector<std::byte*> host_output_;  ///< [rank]
  std::vector<Lane> lanes_;              ///< those with tasks; the first is lane 0 of rank 0
  std::vector<std::int32_t> lane_at_;    ///< [rank, lane] in lanes_; -1: no tasks
  std::vector<Step> steps_;              ///< in the order of their issue
  std::vector<Wait> waits_;
  std::vector<Join> joins_;
  std::vector<ResolvedMove> moves_;
  std::vector<SentBytes> sent_;  ///< [rank] in each iteration
  Event begun_;
  Event ended_;
  bool warm_ = false;
  std::optional<typename Device::Graph> graph_;
  bool clip_ = false;
  bool captured_clip_ = false;
};

}  // namespace tawpipe::cuda
