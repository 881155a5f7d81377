// Adds the sum that gradient clipping needs to any schedule: one small all-reduce over all ranks
// before the updates.
// Not: clipping itself, which is a factor in the update (execute/).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/schedule/schedule_builder.hpp"

namespace tawpipe::inline v0 {

/// Whether the task sums the squares of all gradients over the ranks (with_gradient_norm).
inline bool is_gradient_norm(const Task& task) { return task.op == Op::all_reduce && task.payload == Payload::scalar; }

namespace detail {

/// [task] whether it is an update or follows one by a dependency or in a buffer. Dependencies leave
/// out what the order of a lane says, as of two gathers into one buffer.
inline std::vector<char> after_updates(const Schedule& schedule) {
  const auto tasks = schedule.tasks();
  std::vector<char> late(tasks.size(), 0);
  std::vector<char> used(schedule.buffers().size(), 0);  // by such a task
  std::vector<char> written(used.size(), 0);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    late[t] = tasks[t].op == Op::update ? 1 : 0;
    for (const TaskId earlier : schedule.dependencies(id<TaskId>(t))) {
      if (late[index(earlier)] != 0) late[t] = 1;
    }
    for (const Use& use : schedule.uses(id<TaskId>(t))) {
      const std::size_t buffer = index(use.buffer);
      if (written[buffer] != 0 || (used[buffer] != 0 && use.access != Access::read)) late[t] = 1;
    }
    if (late[t] == 0) continue;
    for (const Use& use : schedule.uses(id<TaskId>(t))) {
      used[index(use.buffer)] = 1;
      if (use.access != Access::read) written[index(use.buffer)] = 1;
    }
  }
  return late;
}

}  // namespace detail

/// `schedule` with every update after an all-reduce of one number over all ranks, to which each
/// rank contributes the squares of the gradients that it counts; what follows an update still
/// follows it. A schedule of one rank needs no sum and comes back as it is.
///
/// The all-reduce is on the compute lane, waits for everything that any update waits for, and is
/// the only task added: the simulator charges for it and for the barrier that it causes.
inline Schedule with_gradient_norm(const Schedule& schedule) {
  if (schedule.ranks() == 1) return schedule;
  const auto tasks = schedule.tasks();
  ScheduleBuilder builder{schedule};
  builder.option("gradient-norm", "on");
  for (const Buffer& buffer : schedule.buffers()) builder.buffer(buffer);

  const std::vector<char> late = detail::after_updates(schedule);
  std::vector<TaskId> added(tasks.size(), none<TaskId>);
  const auto add = [&](std::size_t t, std::vector<Use> uses, std::vector<TaskId> after) {
    for (const TaskId earlier : schedule.dependencies(id<TaskId>(t))) after.push_back(added[index(earlier)]);
    const auto own = schedule.uses(id<TaskId>(t));
    uses.insert(uses.begin(), own.begin(), own.end());
    added[t] = builder.add(tasks[t], uses, after);
  };
  std::vector<TaskId> awaited;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    if (late[t] == 0) {
      add(t, {}, {});
      continue;
    }
    if (tasks[t].op != Op::update) continue;
    for (const TaskId earlier : schedule.dependencies(id<TaskId>(t))) {
      if (late[index(earlier)] == 0) awaited.push_back(earlier);
    }
  }
  for (TaskId& task : awaited) task = added[index(task)];
  std::vector<Rank> all;
  std::vector<BufferId> norms;
  std::vector<Use> uses;
  const Bytes number{std::max<std::int64_t>(schedule.workload().parameter_bytes().gradient, 4)};
  for (int r = 0; r < schedule.ranks(); ++r) {
    all.push_back(Rank{r});
    norms.push_back(builder.persistent(r, Content{ContentKind::scalar}, number));
    uses.push_back({norms.back(), Access::read_write});
  }
  builder.add({.op = Op::all_reduce, .payload = Payload::scalar, .rank = Rank{0}, .group = builder.group(all), .bytes = number},
              uses, awaited);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    if (late[t] == 0) continue;
    if (tasks[t].op == Op::update) {
      add(t, {{norms[index(tasks[t].rank)], Access::read}}, {});
    } else {
      add(t, {}, {});
    }
  }
  return builder.build();
}

}  // namespace tawpipe
