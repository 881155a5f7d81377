// Conversion between PyTorch's pipeline schedules and ours: they are checked and turned into a
// program or a schedule, and back.
// Not: the text of the cells (report/pytorch_csv.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/detail/pytorch_check.hpp"
#include "tawpipe/report/pytorch_csv.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedules/dualpipe.hpp"
#include "tawpipe/schedules/pipeline.hpp"
#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0 {

/// What to write in addition to the computations.
struct PytorchOptions {
  /// SEND and RECV, as PyTorch would add them: for its format compute_comms
  bool communication = false;
  /// an I directly followed by its W becomes B, as in PyTorch when it loads compute_only
  bool merge_backward = false;
  /// REDUCE_GRAD after each stage's last backward: for stages with replicas
  bool reduce_gradients = false;
  /// add_waits(): PyTorch requires them from 2.15 on, and cannot read them before
  bool waits = false;
  PytorchGrammar grammar = PytorchGrammar::stage_first;
};

namespace detail {

constexpr Op op_of(PytorchOp op, bool split) {
  if (op == PytorchOp::forward) return Op::forward;
  if (op == PytorchOp::backward) return split ? Op::backward_input : Op::backward;
  return op == PytorchOp::backward_input ? Op::backward_input : Op::backward_weight;
}

constexpr PytorchOp pytorch_op_of(Op op, PytorchGrammar grammar) {
  const Passes passes = traits(op).passes;
  if (passes.forward) return PytorchOp::forward;
  if (!passes.backward_input) return PytorchOp::backward_weight;
  // For a backward in two halves the older form has B, and W for the second half.
  const bool half = !passes.backward_weight && grammar == PytorchGrammar::stage_first;
  return half ? PytorchOp::backward_input : PytorchOp::backward;
}

}  // namespace detail

/// The schedule with sends and receives: after each computation whose result another rank needs
/// comes its send, and at that moment its receive is appended to the other rank's row. Rows advance
/// in turn by one cell; idle cells count as turns, and are removed. These are the rows that PyTorch
/// itself makes when it loads a file with only computations.
/// @throws InputError  if it already has sends or receives, does not fit together
/// (pipeline_program()), or cannot run.
inline PytorchSchedule add_communication(const PytorchSchedule& schedule, std::string_view source = "PyTorch schedule") {
  const detail::PytorchShape shape = detail::PytorchCheck{schedule, source}.run();
  detail::for_each_action(schedule, [&](const PytorchAction& action, int rank, std::size_t cell) {
    if (!is_transfer(action.op)) return;
    throw InputError(concat(source, ": line ", rank + 1, ", cell ", cell + 1, ": the schedule has sends and receives already"));
  });
  // [forward] [stage, microbatch] whether the forward or backward has been computed
  std::vector<bool> computed[2] = {std::vector<bool>(shape.split.size()), std::vector<bool>(shape.split.size())};
  const auto is_ready = [&](const PytorchAction& action) {
    const bool forward = action.op == PytorchOp::forward;
    if (!is_compute(action.op) || action.op == PytorchOp::backward_weight) return true;
    const int from = forward ? action.stage - 1 : action.stage + 1;
    return from < 0 || from >= shape.stages() || computed[forward ? 1 : 0][shape.at(from, action.microbatch)];
  };
  PytorchSchedule out{schedule.grammar, std::vector<std::vector<PytorchCell>>(schedule.ranks.size())};
  std::vector<std::size_t> next(schedule.ranks.size());
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
      if (next[r] == schedule.ranks[r].size()) continue;
      const PytorchCell& cell = schedule.ranks[r][next[r]];
      if (!std::all_of(cell.actions.begin(), cell.actions.end(), is_ready)) continue;
      ++next[r];
      progress = true;
      if (!cell.actions.empty()) out.ranks[r].push_back(cell);
      for (const auto& action : cell.actions) {
        if (!is_compute(action.op) || action.op == PytorchOp::backward_weight) continue;
        const bool forward = action.op == PytorchOp::forward;
        computed[forward ? 1 : 0][shape.at(action.stage, action.microbatch)] = true;
        if (!shape.sends(action.stage, forward)) continue;
        const int to = forward ? action.stage + 1 : action.stage - 1;
        out.ranks[r].push_back(
            {{{forward ? PytorchOp::send_forward : PytorchOp::send_backward, action.stage, action.microbatch}}});
        out.ranks[static_cast<std::size_t>(shape.rank_of(to))].push_back(
            {{{forward ? PytorchOp::receive_forward : PytorchOp::receive_backward, to, action.microbatch}}});
      }
    }
  }
  for (std::size_t r = 0; r < next.size(); ++r) {
    if (next[r] == schedule.ranks[r].size()) continue;
    throw InputError(one_line(concat(source, ": line ", r + 1, ", cell ", next[r] + 1, ": ",
                                     quote(pytorch_text(schedule.ranks[r][next[r]].actions[0], schedule.grammar)),
                                     " waits forever: the ranks' orders wait for each other")));
  }
  return out;
}

/// The schedule with a wait for each send and each sum of gradients that lacks one. The send of an
/// output is waited for after the stage's backward of that microbatch, which shows that it has
/// arrived; the send of a gradient at the end of the row; a sum at once. PyTorch puts its waits in
/// the same places.
inline PytorchSchedule add_waits(const PytorchSchedule& schedule) {
  std::set<std::tuple<PytorchOp, std::int32_t, std::int32_t>> waited;
  detail::for_each_action(schedule, [&](const PytorchAction& action, int, std::size_t) {
    waited.insert({action.op, action.stage, action.microbatch});
  });
  PytorchSchedule out{schedule.grammar, {}};
  for (const auto& cells : schedule.ranks) {
    auto& row = out.ranks.emplace_back();
    std::vector<PytorchAction> pending;
    const auto add = [&](PytorchOp op, const PytorchAction& of) {
      if (!waited.contains({op, of.stage, of.microbatch})) row.push_back({{{op, of.stage, of.microbatch}}});
    };
    for (const PytorchCell& cell : cells) {
      row.push_back(cell);
      for (const PytorchAction& action : cell.actions) {
        if (action.op == PytorchOp::reduce_gradients) add(PytorchOp::wait_reduce_gradients, action);
        if (action.op == PytorchOp::send_forward || action.op == PytorchOp::send_backward) pending.push_back(action);
        if (action.op != PytorchOp::backward && action.op != PytorchOp::backward_input) continue;
        const auto sent =
            std::find(pending.begin(), pending.end(), PytorchAction{PytorchOp::send_forward, action.stage, action.microbatch});
        if (sent == pending.end()) continue;
        add(PytorchOp::wait_send_forward, action);
        pending.erase(sent);
      }
    }
    for (const PytorchAction& send : pending) {
      add(send.op == PytorchOp::send_forward ? PytorchOp::wait_send_forward : PytorchOp::wait_send_backward, send);
    }
  }
  return out;
}

/// The schedule with each I directly followed by its W, apart from idle cells, joined into B; idle
/// cells are removed.
inline PytorchSchedule merge_backward(const PytorchSchedule& schedule) {
  PytorchSchedule out{schedule.grammar, {}};
  for (const auto& cells : schedule.ranks) {
    std::vector<PytorchCell> merged;
    for (const auto& cell : cells) {
      if (cell.actions.empty()) continue;
      if (!merged.empty() && merged.back().actions.size() == 1 && cell.actions.size() == 1) {
        PytorchAction& last = merged.back().actions[0];
        const PytorchAction& action = cell.actions[0];
        if (last.op == PytorchOp::backward_input && action.op == PytorchOp::backward_weight && last.stage == action.stage &&
            last.microbatch == action.microbatch) {
          last.op = PytorchOp::backward;
          continue;
        }
      }
      merged.push_back(cell);
    }
    out.ranks.push_back(std::move(merged));
  }
  return out;
}

/// The computations of each rank, in order; the rank of a stage is the row that computes it. Sends
/// and receives, if there are any, are checked against those that the computations need, and then
/// left to schedules::pipeline(); UNSHARD, RESHARD and REDUCE_GRAD are checked and left out, since
/// they act among a stage's replicas.
///
/// @param source  the file's name, for messages
/// @throws InputError  in one line, naming line and cell if known: a stage on two ranks or on none,
/// a computation that is missing, duplicated or too early, a message not sent or not received or
/// out of order, a stage used while sharded.
inline schedules::PipelineProgram pipeline_program(const PytorchSchedule& schedule,
                                                   std::string_view source = "PyTorch schedule") {
  detail::PytorchShape shape = detail::PytorchCheck{schedule, source}.run();
  schedules::PipelineProgram program;
  program.rank_of_stage = shape.rank_of_stage;
  program.actions.resize(schedule.ranks.size());
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    for (const PytorchCell& cell : schedule.ranks[r]) {
      for (const PytorchAction& action : cell.actions) {
        if (!is_compute(action.op)) continue;
        const bool split = shape.split[shape.at(action.stage, action.microbatch)];
        const bool joined = &action != &cell.actions.back();
        program.actions[r].push_back({detail::op_of(action.op, split), action.stage, action.microbatch, joined});
      }
    }
  }
  return program;
}

/// The schedule that runs a PyTorch pipeline here: simulated, validated and executed like any
/// other.
/// @param workload  the model and batch; without: equal stages without a model, for fixed times
/// @throws InputError  as pipeline_program(), or if the workload has a different number of
/// microbatches.
/// @throws ScheduleError  if the ranks' orders wait for each other.
inline Schedule pytorch_pipeline(const PytorchSchedule& schedule, const std::optional<Workload>& workload = std::nullopt,
                                 const schedules::PipelineOptions& options = {}, std::string_view source = "PyTorch schedule") {
  const schedules::PipelineProgram program = pipeline_program(schedule, source);
  std::int32_t microbatches = 0;
  for (const auto& actions : program.actions) {
    for (const auto& action : actions) microbatches = std::max(microbatches, action.microbatch + 1);
  }
  if (workload && workload->microbatches() != microbatches) {
    throw InputError(one_line(concat(source, " is a schedule of ", microbatches, " microbatches, and the batch has ",
                                     workload->microbatches(), "; choose a batch of ", microbatches)));
  }
  return schedules::pipeline("pytorch",
                             workload ? *workload : Workload::abstract(static_cast<int>(program.actions.size()), microbatches),
                             program, options, {{"overlap", OptionText<bool>::text(options.overlap)}});
}

/// The program as PyTorch's rows: one action a cell, or two that run as one block.
/// @throws InputError  if it has two copies of a stage, which PyTorch has no rows for, is
/// inconsistent as in pipeline_program(), or the options cannot be written.
inline PytorchSchedule pytorch_schedule(const schedules::PipelineProgram& program, const PytorchOptions& options = {},
                                        std::string_view source = "pipeline") {
  if (!program.second_rank_of_stage.empty()) {
    throw InputError(one_line(concat(source, " has two copies of each stage; in PyTorch's CSV a stage has one rank")));
  }
  PytorchSchedule out{options.grammar, {}};
  for (const auto& actions : program.actions) {
    std::vector<PytorchCell> cells;
    bool joined = false;
    for (const auto& action : actions) {
      if (!joined) cells.emplace_back();
      cells.back().actions.push_back({detail::pytorch_op_of(action.op, options.grammar), action.stage, action.microbatch});
      joined = action.joined && options.grammar == PytorchGrammar::stage_first;
    }
    out.ranks.push_back(std::move(cells));
  }
  if (options.merge_backward) out = merge_backward(out);
  detail::PytorchCheck{out, source}.run();
  if (options.reduce_gradients) {
    for (auto& cells : out.ranks) {
      std::vector<std::int32_t> seen;
      for (std::size_t c = cells.size(); c-- > 0;) {
        for (const PytorchAction action : std::vector<PytorchAction>{cells[c].actions}) {
          if (action.op != PytorchOp::backward && action.op != PytorchOp::backward_weight) continue;
          if (std::find(seen.begin(), seen.end(), action.stage) != seen.end()) continue;
          seen.push_back(action.stage);
          cells.insert(cells.begin() + static_cast<std::ptrdiff_t>(c) + 1, {{{PytorchOp::reduce_gradients, action.stage, -1}}});
        }
      }
    }
  }
  if (options.communication) out = add_communication(out, source);
  return options.waits ? add_waits(out) : out;
}

namespace detail {

/// Joins a forward and the backward after it, or vice versa, if the first sends its result only
/// when both have ended. This is visible from the pass of the result; it is not visible if the
/// result stays on the rank.
inline void join_blocks(const Schedule& schedule, schedules::PipelineProgram& program) {
  using Key = std::tuple<bool, std::int32_t, std::int32_t>;  // forward, producing stage, microbatch
  std::map<std::tuple<Op, std::int32_t, std::int32_t>, TaskId> computed;
  std::map<Key, TaskId> passes;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    if (is_work(task.op)) computed[{task.op, number(task.stage), task.microbatch}] = id<TaskId>(t);
    if (task.op != Op::pass) continue;
    const bool forward = task.payload == Payload::activations;
    passes[{forward, number(task.stage) - (forward ? 1 : -1), task.microbatch}] = id<TaskId>(t);
  }
  for (auto& actions : program.actions) {
    for (std::size_t i = 0; i + 1 < actions.size(); ++i) {
      const schedules::Action& next = actions[i + 1];
      const bool forward = actions[i].op == Op::forward;
      if (forward == (next.op == Op::forward) || (i > 0 && actions[i - 1].joined)) continue;
      const auto pass = passes.find({forward, actions[i].stage, actions[i].microbatch});
      if (pass == passes.end()) continue;
      const auto after = schedule.dependencies(pass->second);
      actions[i].joined = std::find(after.begin(), after.end(), computed[{next.op, next.stage, next.microbatch}]) != after.end();
    }
  }
}

/// DualPipeV's blocks at the ends of its V keep their results on their rank; if the computations
/// are DualPipeV's and the visible blocks are also its, so are the others.
inline void join_dualpipe_v_blocks(schedules::PipelineProgram& program, std::int64_t microbatches) {
  const auto ranks = static_cast<int>(program.actions.size());
  if (program.rank_of_stage.size() != 2 * program.actions.size()) return;
  schedules::PipelineProgram known = schedules::dualpipe_v_program(ranks, static_cast<std::int32_t>(microbatches));
  bool shows = false;
  if (known.rank_of_stage != program.rank_of_stage) return;
  for (std::size_t r = 0; r < known.actions.size(); ++r) {
    if (known.actions[r].size() != program.actions[r].size()) return;
    for (std::size_t i = 0; i < known.actions[r].size(); ++i) {
      schedules::Action expected = known.actions[r][i];
      const schedules::Action& action = program.actions[r][i];
      shows = shows || action.joined;
      if (action.joined && !expected.joined) return;
      expected.joined = action.joined;
      if (action != expected) return;
    }
  }
  if (shows) program.actions = std::move(known.actions);
}

}  // namespace detail

/// The program of a schedule that is an activation pipeline: each stage is computed on one rank,
/// and nothing is sent between ranks except activations and their gradients (and, once, the
/// gradient of a tied embedding, which PyTorch leaves to its user). Forwards and backwards that run
/// as one block are recognized if the first result goes to another rank, or if they are
/// DualPipeV's.
/// @throws InputError  if it is not one, naming what it sends instead, or has other parallelism
/// around it.
inline schedules::PipelineProgram pipeline_program(const Schedule& schedule) {
  if (const Mesh& mesh = schedule.parts().mesh; !mesh.is_plain()) {
    throw InputError(one_line(concat(
        "schedule ", quote(schedule.name()), " has tensor ", mesh.tensor, " x context ", mesh.context, " x data ", mesh.data,
        " copies of ", mesh.pipeline, " ranks, and PyTorch's CSV holds one; export it without tensor, context and data ",
        "parallelism, for ", mesh.pipeline, " devices and ", schedule.workload().microbatches() / mesh.data, " microbatches")));
  }
  const auto refuse = [&](const std::string& why) {
    throw InputError(one_line(concat("schedule ", quote(schedule.name()), " is not an activation pipeline: ", why,
                                     "; PyTorch's CSV holds pipelines, such as 1f1b and gpipe")));
  };
  for (const Task& task : schedule.tasks()) {
    const bool activations = task.payload == Payload::activations || task.payload == Payload::activation_gradients;
    const bool tied = task.op == Op::all_reduce && task.payload == Payload::edge_gradients;
    if (is_compute(task.op) || tied || (is_point_to_point(task.op) && activations)) continue;
    refuse(concat("it moves ", name(task.payload), " (", name(task.op), ")"));
  }
  schedules::PipelineProgram program;
  program.rank_of_stage.assign(schedule.stages().size(), -1);
  program.actions.resize(static_cast<std::size_t>(schedule.ranks()));
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    for (int lane = 0; lane < static_cast<int>(schedule.lanes().size()); ++lane) {
      for (const TaskId id : schedule.program(Rank{rank}, lane)) {
        const Task& task = schedule.task(id);
        if (!is_stage_work(task.op)) continue;
        if (lane != 0)
          refuse(concat("rank ", rank, " computes on lane ", quote(schedule.lanes()[static_cast<std::size_t>(lane)])));
        int& home = program.rank_of_stage[index(task.stage)];
        if (home >= 0 && home != rank)
          refuse(concat("stage ", number(task.stage), " is computed on ranks ", home, " and ", rank));
        home = rank;
        program.actions[static_cast<std::size_t>(rank)].push_back(
            {.op = task.op, .stage = number(task.stage), .microbatch = task.microbatch});
      }
    }
  }
  detail::join_blocks(schedule, program);
  detail::join_dualpipe_v_blocks(program, schedule.workload().microbatches());
  return program;
}

/// A schedule of ours as PyTorch's rows. @throws InputError  if it is not an activation pipeline.
inline PytorchSchedule pytorch_schedule(const Schedule& schedule, const PytorchOptions& options = {}) {
  return pytorch_schedule(pipeline_program(schedule), options, concat("schedule ", quote(schedule.name())));
}

}  // namespace tawpipe
