// Whether the iteration is complete (V701, V702, V708): each microbatch passes each stage once
// forward and once backward.
// Not: whether it does so with the right data (verify/check_contents.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0 {

/// Adds a finding for each stage and microbatch without its forward or backward, or with more than
/// one, on each of the ranks that share it. A backward may be split:
/// then backward_input comes before backward_weight.
/// @param order  all tasks, each after what it waits for; or empty, to skip that last check
/// Complexity: O(tasks log tasks + stages * microbatches), the latter at most the number of tasks.
inline void check_completeness(const Schedule& schedule, std::span<const TaskId> order, Diagnostics& out) {
  struct Meeting {
    std::int64_t key;  // (stage * microbatches + microbatch) * sharing + index among those that share it
    TaskId task;
  };
  constexpr std::array<Op, 4> works = {Op::forward, Op::backward, Op::backward_input, Op::backward_weight};
  static_assert(detail::stage_ops == 0b1111, "one row for each op of a stage's work, which are the first");
  // A stage's computations mostly come in the order of their keys, so each stage is sorted by itself.
  const std::size_t stages = schedule.stages().size();
  std::array<std::vector<std::vector<Meeting>>, 4> of_stage;
  of_stage.fill(std::vector<std::vector<Meeting>>(stages));
  const std::int64_t microbatches = schedule.workload().microbatches();
  const Mesh& layout = schedule.parts().mesh;
  const Mesh map = layout.over(schedule.ranks());
  const std::int64_t sharing = layout.shared();
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    if (!is_stage_work(task.op)) continue;
    const MeshPlace place = map.place(task.rank);
    const std::int64_t key = (number(task.stage) * microbatches + task.microbatch) * sharing + place.tensor +
                             std::int64_t{layout.tensor} * (place.context + layout.context * place.expert);
    of_stage[static_cast<std::size_t>(task.op)][index(task.stage)].push_back({key, id<TaskId>(t)});
  }
  std::array<std::vector<Meeting>, 4> met;
  const auto comes_first = [](const Meeting& a, const Meeting& b) { return a.key != b.key ? a.key < b.key : a.task < b.task; };
  for (std::size_t op = 0; op < met.size(); ++op) {
    for (std::vector<Meeting>& stage : of_stage[op]) {
      if (!std::is_sorted(stage.begin(), stage.end(), comes_first)) std::sort(stage.begin(), stage.end(), comes_first);
      met[op].insert(met[op].end(), stage.begin(), stage.end());
    }
  }
  const auto twice = [&](TaskId t) {
    out.error(
        "V702", t, schedule.task(t).rank, [&] { return concat(detail::describe(schedule, t), " runs for the second time"); },
        "run each stage once forward and once backward for each microbatch");
  };
  for (const auto& meetings : met) {
    for (std::size_t i = 1; i < meetings.size(); ++i) {
      if (meetings[i].key == meetings[i - 1].key) twice(meetings[i].task);
    }
  }
  const auto absent = [&](Op op, std::int64_t key) {
    out.error(
        "V701", none<TaskId>, none<Rank>,
        [&] {
          const std::int64_t computation = key / sharing;
          std::string text =
              concat("no ", name(op), " of stage ", computation / microbatches, ", microbatch ", computation % microbatches);
          if (layout.tensor > 1) text += concat(", on tensor-parallel rank ", key % layout.tensor);
          const std::int64_t part = key % sharing / layout.tensor;
          if (layout.context > 1) text += concat(", on context-parallel rank ", part % layout.context);
          if (layout.expert > 1) text += concat(", on expert-parallel rank ", part / layout.context);
          return text;
        },
        "run each stage once forward and once backward for each microbatch");
  };
  // Walks all stages and microbatches along the sorted meetings; where there are far more of these
  // than tasks, the result is certain earlier.
  std::array<std::size_t, 4> at{};
  const auto has = [&](Op op, std::int64_t key) {
    const auto& meetings = met[static_cast<std::size_t>(op)];
    auto& i = at[static_cast<std::size_t>(op)];
    while (i < meetings.size() && meetings[i].key < key) ++i;
    return i < meetings.size() && meetings[i].key == key;
  };
  const std::int64_t limit = static_cast<std::int64_t>(schedule.tasks().size()) + 1;
  const std::int64_t all = microbatches > limit || std::ssize(schedule.stages()) > limit
                               ? limit
                               : std::min(std::ssize(schedule.stages()) * microbatches, limit);
  for (std::int64_t key = 0; key < all * sharing; ++key) {
    if (!has(works[0], key)) absent(works[0], key);
    const bool whole = has(works[1], key);
    const bool input = has(works[2], key);
    const bool weight = has(works[3], key);
    if (whole && (input || weight)) {
      twice(met[input ? 2 : 3][at[input ? 2 : 3]].task);
    } else if (!whole && !input && !weight) {
      absent(Op::backward, key);
    } else if (!whole && input != weight) {
      absent(input ? Op::backward_weight : Op::backward_input, key);
    }
  }
  if (met[2].empty() || met[3].empty() || order.empty()) return;
  std::vector<std::size_t> place(schedule.tasks().size(), 0);
  for (std::size_t i = 0; i < order.size(); ++i) place[index(order[i])] = i;
  for (std::size_t i = 0, j = 0; i < met[2].size() && j < met[3].size();) {
    if (met[2][i].key != met[3][j].key) {
      met[2][i].key < met[3][j].key ? ++i : ++j;
      continue;
    }
    const TaskId weight = met[3][j].task;
    if (place[index(weight)] < place[index(met[2][i].task)]) {
      out.error(
          "V708", weight, schedule.task(weight).rank,
          [&] { return concat(detail::describe(schedule, weight), " runs before its backward_input"); },
          "the gradient of a stage's output must be known before its weights' gradient");
    }
    ++i, ++j;
  }
}

}  // namespace tawpipe
