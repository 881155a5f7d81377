// One rank's tasks in the order of their issue, with resolved addresses, streams, events and
// communicators.
// Not: their issue (nccl_executor.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/execute/cuda/communicators.hpp"
#include "tawpipe/execute/cuda/device_api.hpp"
#include "tawpipe/execute/cuda/rank_memory.hpp"
#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/execute/message.hpp"
#include "tawpipe/execute/program.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::cuda {

/// Staging memory that a rank's messages need. @return [lane] bytes
inline std::vector<std::int64_t> staging_bytes(const Schedule& schedule, const Dataflow& flow, const Program& program,
                                               Rank rank) {
  const NumberTypes types = number_types(schedule.workload());
  std::vector<std::int64_t> bytes(schedule.lanes().size(), 0);
  for (int lane = 0; lane < program.lanes(); ++lane) {
    for (const Launch& launch : program.lane(lane)) {
      const Task& task = schedule.task(launch.task);
      if (is_compute(task.op)) continue;
      const MessagePlan message = message_plan(schedule, launch.task, flow.transfer(launch.task), rank);
      std::int64_t& most = bytes[static_cast<std::size_t>(lane)];
      most = std::max(most, message.staging * size_bytes(types.of(task.payload)));
    }
  }
  return bytes;
}

/// The steps of one rank's iteration.
template <DeviceApi Device>
class RankSteps {
 public:
  using Stream = typename Device::Stream;
  using Event = typename Device::Event;

  /// A part of an uneven all-gather or reduce-scatter; a block of an all-to-all.
  struct Part {
    int root;
    std::int64_t begin;
    std::int64_t count;
  };
  /// A task of this rank, or a signal, with all its addresses, streams and events.
  struct Step {
    TaskId task = none<TaskId>;
    Op op = Op::idle;
    bool notice = false;
    bool norm = false;
    bool record = false;
    Dtype type = Dtype::f32;
    Stream stream{};
    Event done{};
    std::int32_t communicator = -1;  ///< index into communicators_; -1: it is sender and receiver
    int peer = 0;                    ///< or root
    std::int64_t count = 0;          ///< of the message, or of each member's part
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::uint32_t waits_begin = 0;
    std::uint32_t waits_end = 0;
    std::uint32_t before_begin = 0;  ///< moves before the communication, then those after it
    std::uint32_t before_end = 0;
    std::uint32_t after_end = 0;
    std::uint32_t parts_begin = 0;  ///< parts of an uneven collective
    std::uint32_t parts_end = 0;
  };

  /// The inputs for planning steps; all must stay valid until the constructor returns.
  struct Setting {
    const Schedule& schedule;
    const Dataflow& flow;
    const Program& program;
    std::vector<TaskId> order;  ///< issue order of all ranks' tasks
    const RankMemory& memory;   ///< with its address set
    const CommunicatorPlan& communicators;
    /// [communicator of the plan] its index on this rank; -1: none
    const std::vector<std::int32_t>& own;
    const std::vector<Stream>& lanes;
    Stream notices;
  };
  RankSteps() = default;
  RankSteps(Device& device, const Setting& setting) : device_{&device}, set_{&setting} {
    plan_launches();
    set_ = nullptr;
    device_ = nullptr;
  }

  const std::vector<Step>& steps() const { return steps_; }
  std::span<const Event> waits(const Step& step) const { return part(waits_, step.waits_begin, step.waits_end); }
  std::span<const ResolvedMove> before(const Step& step) const { return part(moves_, step.before_begin, step.before_end); }
  std::span<const ResolvedMove> after(const Step& step) const { return part(moves_, step.before_end, step.after_end); }
  /// The parts of an uneven all-gather or reduce-scatter; otherwise none.
  std::span<const Part> parts(const Step& step) const { return part(parts_, step.parts_begin, step.parts_end); }

 private:
  template <class T>
  static std::span<const T> part(const std::vector<T>& all, std::uint32_t begin, std::uint32_t end) {
    return std::span<const T>{all}.subspan(begin, end - begin);
  }
  template <class T>
  static std::uint32_t size32(const std::vector<T>& items) {
    return static_cast<std::uint32_t>(items.size());
  }
  Event make_event() { return device_->make_event(false); }

  void plan_launches() {
    struct Own {
      const Launch* launch;
      int lane;
    };
    // A signal: this rank tells `rank` that its tasks `ended` have ended, or the reverse.
    struct Told {
      TaskId waiting;
      Rank rank;
      bool sends;
      TaskId ended;
    };
    std::vector<Own> launches;
    std::vector<Told> told;
    std::vector<char> recorded(set_->schedule.tasks().size(), 0);
    for (int lane = 0; lane < set_->program.lanes(); ++lane) {
      for (const Launch& launch : set_->program.lane(lane)) {
        launches.push_back({&launch, lane});
        if (launch.record) recorded[index(launch.task)] = 1;
        for (const Notice& notice : set_->program.awaits(launch)) told.push_back({launch.task, notice.rank, false, notice.task});
        for (const Notice& notice : set_->program.notifies(launch)) {
          told.push_back({notice.task, notice.rank, true, launch.task});
          recorded[index(launch.task)] = 1;
        }
      }
    }
    std::vector<std::size_t> place(set_->order.size());  // [task] position in the order of issue
    for (std::size_t i = 0; i < place.size(); ++i) place[index(set_->order[i])] = i;
    const auto place_of = [&](TaskId task) { return place[index(task)]; };
    std::sort(launches.begin(), launches.end(),
              [&](const Own& a, const Own& b) { return place_of(a.launch->task) < place_of(b.launch->task); });
    std::sort(told.begin(), told.end(), [&](const Told& a, const Told& b) {
      return std::pair{place_of(a.waiting), a.rank} < std::pair{place_of(b.waiting), b.rank};
    });
    std::vector<Event> done(set_->schedule.tasks().size());
    std::size_t next = 0;
    std::vector<Event> arrived;  // signals that the current task waits for
    const auto add_notices = [&](std::size_t until) {
      arrived.clear();
      while (next < told.size() && place_of(told[next].waiting) <= until) {
        const Told first = told[next];
        Step step;
        step.notice = true;
        step.op = Op::pass;
        step.stream = set_->notices;
        step.waits_begin = size32(waits_);
        for (; next < told.size() && told[next].waiting == first.waiting && told[next].rank == first.rank; ++next) {
          if (first.sends) waits_.push_back(done[index(told[next].ended)]);
        }
        step.waits_end = size32(waits_);
        step.communicator = set_->own[static_cast<std::size_t>(set_->communicators.notices)];
        step.peer = set_->communicators.member_of(set_->communicators.notices, first.rank);
        step.count = 1;
        if (first.sends) {
          step.from = set_->memory.notice_out();
        } else {
          step.to = set_->memory.notice_in();
        }
        step.record = !first.sends;
        if (step.record) arrived.push_back(step.done = make_event());
        steps_.push_back(step);
      }
    };
    for (const Own& own : launches) {
      const TaskId task = own.launch->task;
      add_notices(place_of(task));
      Step step;
      step.task = task;
      step.op = set_->schedule.task(task).op;
      step.norm = is_gradient_norm(set_->schedule.task(task));
      step.stream = set_->lanes[static_cast<std::size_t>(own.lane)];
      step.record = recorded[index(task)] != 0;
      if (step.record) step.done = done[index(task)] = make_event();
      step.waits_begin = size32(waits_);
      for (const TaskId earlier : set_->program.waits(*own.launch)) waits_.push_back(done[index(earlier)]);
      waits_.insert(waits_.end(), arrived.begin(), arrived.end());
      step.waits_end = size32(waits_);
      if (!is_compute(step.op)) add_message(task, own.lane, step);
      steps_.push_back(step);
    }
    add_notices(place.size());
  }

  void add_message(TaskId id, int lane, Step& step) {
    const Task& task = set_->schedule.task(id);
    const TransferFlow& flow = set_->flow.transfer(id);
    const MessagePlan message = message_plan(set_->schedule, id, flow, set_->memory.rank());
    step.type = set_->memory.types().of(task.payload);
    step.count = goes_both_ways(task.op) ? flow.count / 2 : flow.count;
    const auto resolve = [&](const Address& address) -> std::byte* {
      if (!address.staged()) return set_->memory.at(address.place, step.type);
      return set_->memory.staging(lane) + address.place.offset * size_bytes(step.type);
    };
    const auto add_moves = [&](const std::vector<Move>& moves) {
      for (const Move& move : moves) {
        const bool clears = move.kind == Move::Kind::clear;
        moves_.push_back({move.kind, resolve(move.to), clears ? nullptr : resolve(move.from), move.count});
      }
    };
    step.before_begin = size32(moves_);
    add_moves(message.before);
    step.before_end = size32(moves_);
    add_moves(message.after);
    step.after_end = size32(moves_);
    if (message.from) step.from = resolve(*message.from);
    if (message.to) step.to = resolve(*message.to);
    const std::int32_t communicator = set_->communicators.of_task[index(id)];
    if (communicator < 0) return;
    step.communicator = set_->own[static_cast<std::size_t>(communicator)];
    if (is_point_to_point(task.op)) {
      step.peer = set_->communicators.member_of(communicator, set_->memory.rank() == task.rank ? task.peer : task.rank);
    } else if (is_rooted(task.op)) {
      step.peer = set_->communicators.member_of(communicator, task.rank);
    }
    if (flow.member_begin.empty()) return;
    if (is_all_pairs(task.op)) return add_blocks(flow, step);
    bool even = true;
    step.parts_begin = size32(parts_);
    for (std::size_t m = 0; m + 1 < flow.member_begin.size(); ++m) {
      const std::int64_t count = flow.member_begin[m + 1] - flow.member_begin[m];
      even &= count == flow.member_begin[1];
      if (count > 0) parts_.push_back({static_cast<int>(m), flow.member_begin[m], count});
    }
    if (even) {
      parts_.resize(step.parts_begin);
      step.count = flow.member_begin[1];
    }
    step.parts_end = size32(parts_);
  }

  /// The blocks to each member, in order, then those from each; the rank's own are empty.
  void add_blocks(const TransferFlow& flow, Step& step) {
    const std::size_t n = flow.ends.size();
    std::size_t me = 0;
    while (flow.ends[me].rank != set_->memory.rank()) ++me;
    step.parts_begin = size32(parts_);
    for (const bool sends : {true, false}) {
      std::int64_t at = 0;
      for (std::size_t m = 0; m < n; ++m) {
        const std::size_t pair = sends ? me * n + m : m * n + me;
        const std::int64_t count = flow.member_begin[pair + 1] - flow.member_begin[pair];
        parts_.push_back({static_cast<int>(m), at, m == me ? 0 : count});
        at += count;
      }
    }
    step.parts_end = size32(parts_);
  }

  Device* device_ = nullptr;      ///< only while the constructor runs
  const Setting* set_ = nullptr;  ///< the same
  std::vector<Step> steps_;
  std::vector<Event> waits_;
  std::vector<ResolvedMove> moves_;
  std::vector<Part> parts_;
};

}  // namespace tawpipe::cuda
