// Trains on the toy model by what the executors make of a schedule, one task after another in
// memory that shows what was never written.
// Not: an executor; nothing runs at once.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "support/toy_layer.hpp"
#include "tawpipe/execute/compute_call.hpp"
#include "tawpipe/execute/detail/dataflow_builder.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::test {

/// What a schedule trains in f64. Each buffer has its own memory, so two that share bytes by
/// mistake of a plan are not seen.
class SequentialRun {
 public:
  /// The places of the weights that count.
  enum class Left {
    everywhere,  ///< all that keep them, which must agree
    by_updates,  ///< what updates have written: the next iteration brings it to the others
  };

  /// The parameters after two iterations, then how often each had an update; empty if the schedule
  /// cannot run: refused, blocked, beyond the end of a buffer, or with copies of a parameter that
  /// differ. @param latest  of several tasks that are ready
  static std::vector<double> weights(const Schedule& schedule, bool latest, Left left = Left::everywhere) {
    const std::vector<TaskId> order = run_order(schedule, latest);
    if (order.size() != schedule.tasks().size()) return {};
    try {
      const Dataflow flow = resolve_dataflow(schedule);
      if (!fits(schedule, flow)) return {};
      return SequentialRun{schedule, flow}.train(order, left);
    } catch (const std::exception&) {
      return {};
    }
  }
  /// Whether two runs have left the same, but for roundings; false if one could not run.
  static bool same(const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size() || a.empty()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (!(std::abs(a[i] - b[i]) < 1e-9)) return false;
    }
    return true;
  }

 private:
  static constexpr double unwritten = std::numeric_limits<double>::quiet_NaN();

  SequentialRun(const Schedule& schedule, const Dataflow& flow)
      : schedule_{schedule}, flow_{flow}, layer_{schedule.workload().model()} {
    std::int64_t workspace = 8;
    for (const StageWork& stage : schedule.stages()) {
      workspace = std::max({workspace, stage.forward_workspace.value(), stage.backward_workspace.value()});
    }
    workspace_.resize(static_cast<std::size_t>(workspace) / sizeof(double));
    for (const Buffer& buffer : schedule.buffers()) {
      memory_.emplace_back(static_cast<std::size_t>(buffer.bytes.value()) / sizeof(double), 0.0);
    }
    for_each_run(BufferKind::weights, [](ParameterRange range, std::span<double> numbers) {
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = std::sin(0.7 * static_cast<double>(range.begin + static_cast<std::int64_t>(i)));
      }
    });
    tokens_.resize(static_cast<std::size_t>(schedule.workload().batch().tokens()));
    targets_ = tokens_;
  }

  /// An order in which the tasks can run, by id or against it; shorter than the tasks where they
  /// block each other.
  static std::vector<TaskId> run_order(const Schedule& schedule, bool latest) {
    const std::size_t count = schedule.tasks().size();
    std::vector<std::vector<std::size_t>> next(count);
    std::vector<int> waits(count, 0);
    const auto wait = [&](std::size_t from, std::size_t to) {
      next[from].push_back(to);
      ++waits[to];
    };
    for (std::size_t t = 0; t < count; ++t) {
      for (const TaskId earlier : schedule.dependencies(id<TaskId>(t))) wait(index(earlier), t);
    }
    for (std::size_t row = 0; row < schedule.parts().program.size(); ++row) {
      const auto lane = schedule.parts().program[row];
      for (std::size_t i = 1; i < lane.size(); ++i) wait(index(lane[i - 1]), index(lane[i]));
    }
    std::priority_queue<std::int64_t> ready;
    const auto offer = [&](std::size_t t) { ready.push(latest ? static_cast<std::int64_t>(t) : -static_cast<std::int64_t>(t)); };
    for (std::size_t t = 0; t < count; ++t) {
      if (waits[t] == 0) offer(t);
    }
    std::vector<TaskId> order;
    while (!ready.empty()) {
      const auto t = static_cast<std::size_t>(latest ? ready.top() : -ready.top());
      ready.pop();
      order.push_back(id<TaskId>(t));
      for (const std::size_t later : next[t]) {
        if (--waits[later] == 0) offer(later);
      }
    }
    return order;
  }

  /// Whether everything that tasks use is there, and lies within its buffer.
  static bool fits(const Schedule& schedule, const Dataflow& flow) {
    bool all = true;
    const auto has = [&](BufferId buffer, std::int64_t bytes) {
      all = all && (buffer == none<BufferId> || schedule.buffer(buffer).bytes.value() >= bytes);
    };
    const auto run = [&](const Place& place, std::int64_t count) { has(place.buffer, 8 * (place.offset + count)); };
    const std::int64_t boundary = schedule.stage(StageId{0}).boundary.value();
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      const Task& task = schedule.tasks()[t];
      if (task.op == Op::idle) continue;
      if (task.op == Op::update) {
        for (const UpdatePiece& piece : flow.update(id<TaskId>(t))) {
          for (const Place* place : {&piece.weights, &piece.gradients, &piece.twin}) run(*place, piece.parameters.count());
          run(piece.optimizer, piece.optimizer_parameters + piece.parameters.count());
        }
      } else if (is_compute(task.op)) {
        const ComputeFlow& compute = flow.compute(id<TaskId>(t));
        const LayerStack& model = schedule.workload().model();
        const StageWork& stage = schedule.stage(task.stage);
        const std::int64_t sizes[stage_parts] = {stage.layers * model.layer_parameters(), model.first_edge.parameters,
                                                 model.last_edge.parameters};
        const Passes passes = traits(task.op).passes;
        const bool head_shares = stage.last_edge && model.tied;
        const bool has_part[stage_parts] = {stage.layers > 0, stage.first_edge || head_shares, stage.last_edge};
        const bool reads[stage_parts] = {stage.layers > 0 && (passes.forward || passes.backward_input),
                                         head_shares || (stage.first_edge && passes.forward), stage.last_edge};
        for (std::size_t i = 0; i < stage_parts; ++i) {
          run(compute.weights[i], sizes[i]);
          run(compute.gradients[i], sizes[i]);
          all = all && (!reads[i] || compute.weights[i]) && (!(has_part[i] && passes.backward_weight) || compute.gradients[i]);
        }
        const auto is_there = [&](BufferId buffer, bool needed) { all = all && (!needed || buffer != none<BufferId>); };
        is_there(compute.saved, saved_bytes(schedule, task, compute) > 0);
        is_there(compute.input, passes.forward ? !stage.first_edge : passes.backward_input && !stage.last_edge);
        is_there(compute.output, passes.forward ? !stage.last_edge : passes.backward_input && !stage.first_edge);
        for (const Run& cleared : compute.cleared) run(cleared.place, cleared.count);
        has(compute.input, boundary);
        has(compute.output, boundary);
        has(compute.saved, std::max(stage.saved.value(), saved_bytes(schedule, task, compute)));
        has(compute.stash, stage.stash.value());
      } else {
        const TransferFlow& transfer = flow.transfer(id<TaskId>(t));
        for (const TransferEnd& end : transfer.ends) {
          for (const auto* segments : {&end.gives, &end.takes}) {
            for (const Segment& segment : *segments) {
              run(segment.place, segment.count);
              all = all && segment.packed >= 0 && segment.packed + segment.count <= transfer.count;
            }
          }
        }
      }
    }
    return all;
  }

  /// What the toy keeps in a stage's buffer: its layers' inputs, and what a split backward leaves to
  /// its second half where there is no stash for it.
  static std::int64_t saved_bytes(const Schedule& schedule, const Task& task, const ComputeFlow& compute) {
    const StageWork& stage = schedule.stage(task.stage);
    const Passes passes = traits(task.op).passes;
    const std::int64_t one = 8 * schedule.workload().batch().tokens() * schedule.workload().model().decoder.value().hidden;
    const std::int64_t kept = (stage.layers + 1) * one;
    const bool stashed = compute.stash != none<BufferId> && schedule.buffer(compute.stash).bytes.value() >= kept;
    const bool leaves = !passes.forward && passes.backward_input != passes.backward_weight && stage.layers > 0 && !stashed;
    return (stage.layers + (stage.last_edge ? 1 : 0)) * one + (leaves ? kept : 0);
  }

  std::vector<double> train(const std::vector<TaskId>& order, Left left) {
    for (int step = 1; step <= 2; ++step) {
      for (std::size_t b = 0; b < memory_.size(); ++b) {
        const Buffer& buffer = schedule_.buffers()[b];
        const bool states = buffer.kind() == BufferKind::weights || buffer.kind() == BufferKind::optimizer;
        if (buffer.persistent && states) continue;
        const bool sums = buffer.persistent && buffer.kind() == BufferKind::gradients;
        std::fill(memory_[b].begin(), memory_[b].end(), sums ? 0 : unwritten);
      }
      for (const TaskId t : order) run(t, step);
    }
    return result(left);
  }

  void run(TaskId t, int step) {
    const Task& task = schedule_.task(t);
    if (task.op == Op::idle) return;
    if (task.op == Op::update) {
      for (const UpdatePiece& piece : flow_.update(t)) update(piece);
    } else if (is_compute(task.op)) {
      Tokens{schedule_.workload().model().token_ids}.fetch(step, task.microbatch, tokens_, targets_);
      const ComputeCall call = compute_call(schedule_, t, flow_.compute(t), *this);
      for (const std::span<std::byte> cleared : call.cleared) std::fill(cleared.begin(), cleared.end(), std::byte{});
      call.run(layer_);
    } else {
      const TransferFlow& transfer = flow_.transfer(t);
      std::vector<double> message(static_cast<std::size_t>(transfer.count), is_sum(task.op) ? 0 : unwritten);
      for (const TransferEnd& end : transfer.ends) {
        for (const Segment& segment : end.gives) {
          for (std::int64_t i = 0; i < segment.count; ++i) {
            double& to = message[static_cast<std::size_t>(segment.packed + i)];
            to = at(segment.place)[i] + (is_sum(task.op) ? to : 0);
          }
        }
      }
      for (const TransferEnd& end : transfer.ends) {
        for (const Segment& segment : end.takes) {
          for (std::int64_t i = 0; i < segment.count; ++i) {
            double& to = at(segment.place)[i];
            to = message[static_cast<std::size_t>(segment.packed + i)] + (segment.add ? to : 0);
          }
        }
      }
    }
  }

  /// w -= rate * gradient, and a count of updates in the first moment.
  void update(const UpdatePiece& piece) {
    for (std::int64_t i = 0; i < piece.parameters.count(); ++i) {
      at(piece.weights)[i] -= 0.05 * (at(piece.gradients)[i] + (piece.twin ? at(piece.twin)[i] : 0));
      at(piece.optimizer)[i] += 1;
    }
  }

  std::vector<double> result(Left left) {
    const auto count = static_cast<std::size_t>(schedule_.workload().model().parameters());
    std::vector<double> all(2 * count, unwritten);
    bool agree = true;
    const auto note = [&](std::size_t offset) {
      return [&, offset](ParameterRange range, std::span<double> values) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          double& known = all[offset + static_cast<std::size_t>(range.begin) + i];
          agree = agree && !std::isnan(values[i]) && (std::isnan(known) || std::abs(known - values[i]) < 1e-9);
          known = values[i];
        }
      };
    };
    if (left == Left::everywhere) for_each_run(BufferKind::weights, note(0));
    for (std::size_t t = 0; t < schedule_.tasks().size() && left == Left::by_updates; ++t) {
      if (schedule_.tasks()[t].op != Op::update) continue;
      for (const UpdatePiece& piece : flow_.update(id<TaskId>(t))) {
        note(0)(piece.parameters, {at(piece.weights), static_cast<std::size_t>(piece.parameters.count())});
      }
    }
    for_each_run(BufferKind::optimizer, note(count));
    return agree ? all : std::vector<double>{};
  }

  /// Calls `visit(range, numbers)` for each run of parameters in persistent buffers of a kind.
  template <class Visit>
  void for_each_run(BufferKind kind, Visit&& visit) {
    for (std::size_t b = 0; b < memory_.size(); ++b) {
      const Buffer& buffer = schedule_.buffers()[b];
      if (!buffer.persistent || buffer.kind() != kind) continue;
      std::size_t offset = 0;
      for (const ParameterRange& range : flow_.content(id<BufferId>(b)).ranges()) {
        const auto count = static_cast<std::size_t>(range.count());
        if (!schedule_.is_padding(range) && offset + count <= memory_[b].size())
          visit(range, std::span<double>{memory_[b]}.subspan(offset, count));
        offset += count;
      }
    }
  }

  double* at(const Place& place) const { return memory_[index(place.buffer)].data() + place.offset; }

 public:
  // What compute_call() asks for.
  std::byte* weight_at(Place place) const { return reinterpret_cast<std::byte*>(at(place)); }
  std::byte* gradient_at(Place place) const { return weight_at(place); }
  std::int64_t gradient_bytes() const { return sizeof(double); }
  std::span<std::byte> memory(BufferId buffer) const { return std::as_writable_bytes(std::span<double>{memory_[index(buffer)]}); }
  std::span<std::byte> boundary(BufferId buffer) const { return memory(buffer); }
  std::span<std::byte> workspace() const { return std::as_writable_bytes(std::span<double>{workspace_}); }
  std::span<const std::int32_t> tokens(std::int32_t) const { return tokens_; }
  std::span<const std::int32_t> targets(std::int32_t) const { return targets_; }
  double* loss(std::int32_t) const { return &loss_; }

 private:
  using Tokens = support::ToyTokens;

  const Schedule& schedule_;
  const Dataflow& flow_;
  support::ToyLayer<double> layer_;
  mutable std::vector<std::vector<double>> memory_;  ///< [buffer]
  mutable std::vector<double> workspace_;
  mutable double loss_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> targets_;
};

}  // namespace tawpipe::test
