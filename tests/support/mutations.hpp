// Changes to a schedule, each of which may change what it computes, let it hang, or be harmless.
// Not: which of them (symbolic_run.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "support/draft.hpp"

namespace tawpipe::test {

using Mersenne = std::mt19937;
inline std::size_t below(Mersenne& random, std::size_t limit) { return limit == 0 ? 0 : random() % limit; }

struct Mutation {
  const char* name;
  bool (*apply)(Draft&, Mersenne&);
};

inline TaskId pick(const std::vector<TaskId>& tasks, Mersenne& random) {
  return tasks.empty() ? none<TaskId> : tasks[below(random, tasks.size())];
}
inline bool any_task(TaskId, const Task&) { return true; }
inline bool communication(TaskId, const Task& task) { return !is_compute(task.op); }

/// Another buffer of the same rank, of the same kind if `alike`.
inline BufferId other_buffer(const Draft& draft, BufferId than, bool alike, Mersenne& random) {
  std::vector<BufferId> found;
  const Buffer& old = draft.parts.buffers[index(than)];
  for (std::size_t b = 0; b < draft.parts.buffers.size(); ++b) {
    const Buffer& buffer = draft.parts.buffers[b];
    if (b == index(than) || buffer.rank != old.rank || buffer.kind() == BufferKind::workspace) continue;
    if (!alike || buffer.kind() == old.kind()) found.push_back(id<BufferId>(b));
  }
  return found.empty() ? none<BufferId> : found[below(random, found.size())];
}

inline Use* pick_use(Draft& draft, Mersenne& random) {
  const TaskId t = pick(draft.select([&](TaskId task, const Task&) { return !draft.uses[index(task)].empty(); }), random);
  if (t == none<TaskId>) return nullptr;
  auto& uses = draft.uses[index(t)];
  return &uses[below(random, uses.size())];
}

inline bool swap_neighbours(Draft& draft, Mersenne& random) {
  auto& lane = draft.program[below(random, draft.program.size())];
  if (lane.size() < 2) return false;
  const std::size_t i = below(random, lane.size() - 1);
  std::swap(lane[i], lane[i + 1]);
  return true;
}
inline bool drop_from_one_end(Draft& draft, Mersenne& random) {
  auto& lane = draft.program[below(random, draft.program.size())];
  if (lane.empty()) return false;
  lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(below(random, lane.size())));
  return true;
}
inline bool drop_dependency(Draft& draft, Mersenne& random) {
  auto& row = draft.dependencies[below(random, draft.dependencies.size())];
  if (row.empty()) return false;
  row.erase(row.begin() + static_cast<std::ptrdiff_t>(below(random, row.size())));
  return true;
}
inline bool drop_dependencies(Draft& draft, Mersenne& random) {
  auto& row = draft.dependencies[below(random, draft.dependencies.size())];
  if (row.empty()) return false;
  row.clear();
  return true;
}
/// A writer no longer waits for those who read the buffer's old content: it is released too early.
inline bool release_early(Draft& draft, Mersenne& random) {
  const TaskId t = pick(draft.select(any_task), random);
  auto& row = draft.dependencies[index(t)];
  const auto reads_what_t_writes = [&](TaskId earlier) {
    for (const Use& mine : draft.uses[index(t)]) {
      if (mine.access != Access::write) continue;
      for (const Use& theirs : draft.uses[index(earlier)]) {
        if (theirs.buffer == mine.buffer && theirs.access == Access::read) return true;
      }
    }
    return false;
  };
  const auto size = row.size();
  row.erase(std::remove_if(row.begin(), row.end(), reads_what_t_writes), row.end());
  return row.size() != size;
}
inline bool like_buffer(Draft& draft, Mersenne& random) {
  Use* use = pick_use(draft, random);
  if (use == nullptr) return false;
  const BufferId other = other_buffer(draft, use->buffer, true, random);
  if (other == none<BufferId>) return false;
  use->buffer = other;
  return true;
}
inline bool any_buffer(Draft& draft, Mersenne& random) {
  Use* use = pick_use(draft, random);
  if (use == nullptr) return false;
  const BufferId other = other_buffer(draft, use->buffer, false, random);
  if (other == none<BufferId>) return false;
  use->buffer = other;
  return true;
}
inline bool wrong_access(Draft& draft, Mersenne& random) {
  Use* use = pick_use(draft, random);
  if (use == nullptr) return false;
  use->access = static_cast<Access>((static_cast<unsigned>(use->access) + 1 + below(random, 3)) % 4);
  return true;
}
inline bool forget_use(Draft& draft, Mersenne& random) {
  auto& uses = draft.uses[below(random, draft.uses.size())];
  if (uses.empty()) return false;
  uses.erase(uses.begin() + static_cast<std::ptrdiff_t>(below(random, uses.size())));
  return true;
}
inline bool early_update(Draft& draft, Mersenne& random) {
  const TaskId t = pick(draft.select([](TaskId, const Task& task) { return task.op == Op::update; }), random);
  if (t == none<TaskId>) return false;
  auto& lane = draft.lane(draft.task(t).rank, number(draft.task(t).lane));
  const auto at = std::find(lane.begin(), lane.end(), t);
  const auto to = lane.begin() + static_cast<std::ptrdiff_t>(below(random, static_cast<std::size_t>(at - lane.begin()) + 1));
  std::rotate(to, at, at + 1);
  draft.dependencies[index(t)].clear();
  return true;
}
inline bool remove_communication(Draft& draft, Mersenne& random) {
  const TaskId t = pick(draft.select(communication), random);
  if (t != none<TaskId>) draft.remove(t);
  return t != none<TaskId>;
}
inline bool skip_computation(Draft& draft, Mersenne& random) {
  draft.remove(pick(draft.select([](TaskId, const Task& task) { return is_work(task.op); }), random));
  return true;
}
inline bool wrong_root(Draft& draft, Mersenne& random) {
  const TaskId t =
      pick(draft.select([](TaskId, const Task& task) { return task.op == Op::broadcast || task.op == Op::reduce; }), random);
  if (t == none<TaskId>) return false;
  const auto members = draft.parts.groups[index(draft.task(t).group)];
  const Rank other = members[below(random, members.size())];
  if (other == draft.task(t).rank) return false;
  draft.task(t).rank = other;
  return true;
}
/// The message goes to another rank, into a buffer of the same kind there.
inline bool wrong_peer(Draft& draft, Mersenne& random) {
  const TaskId t = pick(draft.select([](TaskId, const Task& task) { return is_point_to_point(task.op); }), random);
  if (t == none<TaskId>) return false;
  Task& task = draft.task(t);
  const Rank other = id<Rank>(below(random, static_cast<std::size_t>(draft.parts.ranks)));
  if (other == task.rank || other == task.peer) return false;
  auto& old_lane = draft.lane(task.peer, number(task.peer_lane));
  auto& new_lane = draft.lane(other, number(task.peer_lane));
  old_lane.erase(std::find(old_lane.begin(), old_lane.end(), t));
  new_lane.insert(std::upper_bound(new_lane.begin(), new_lane.end(), t), t);
  for (Use& use : draft.uses[index(t)]) {
    const Buffer& old = draft.parts.buffers[index(use.buffer)];
    if (old.rank != task.peer) continue;
    for (std::size_t b = 0; b < draft.parts.buffers.size(); ++b) {
      const Buffer& buffer = draft.parts.buffers[b];
      if (buffer.rank == other && buffer.kind() == old.kind()) use.buffer = id<BufferId>(b);
    }
  }
  task.peer = other;
  return true;
}
inline bool wrong_stage(Draft& draft, Mersenne& random) {
  Task& task = draft.task(pick(draft.select(any_task), random));
  const StageId other = id<StageId>(below(random, draft.parts.stages.size()));
  if (other == task.stage) return false;
  task.stage = other;
  return true;
}
/// Another set of parameters than those meant, or given to other members.
inline bool wrong_split(Draft& draft, Mersenne& random) {
  const TaskId t = pick(draft.select([](TaskId, const Task& task) { return task.split != none<SplitId>; }), random);
  if (t == none<TaskId>) return false;
  Task& task = draft.task(t);
  const SplitId other = id<SplitId>(below(random, draft.parts.splits.size()));
  if (other == task.split || draft.parts.splits[index(other)].size() != draft.parts.splits[index(task.split)].size())
    return false;
  task.split = other;
  return true;
}
inline bool wrong_microbatch(Draft& draft, Mersenne& random) {
  Task& task = draft.task(pick(draft.select([](TaskId, const Task& t) { return is_stage_work(t.op); }), random));
  const auto other = static_cast<std::int32_t>(below(random, static_cast<std::size_t>(draft.workload.microbatches())));
  if (other == task.microbatch) return false;
  task.microbatch = other;
  return true;
}
inline bool double_task(Draft& draft, Mersenne& random) {
  const TaskId t = pick(draft.select(any_task), random);
  const TaskId twin = id<TaskId>(draft.parts.tasks.size());
  draft.parts.tasks.push_back(draft.parts.tasks[index(t)]);
  draft.dependencies.push_back(draft.dependencies[index(t)]);
  draft.uses.push_back(draft.uses[index(t)]);
  draft.origin.push_back(draft.origin[index(t)]);
  for (const auto& [rank, lane] : draft.ends(t)) {
    auto& program = draft.lane(rank, lane);
    program.insert(std::find(program.begin(), program.end(), t) + 1, twin);
  }
  for (auto& row : draft.dependencies) {
    if (std::find(row.begin(), row.end(), t) != row.end()) row.push_back(twin);
  }
  return true;
}
inline bool half_message(Draft& draft, Mersenne& random) {
  const TaskId t =
      pick(draft.select([](TaskId, const Task& task) { return !is_compute(task.op) && task.bytes > Bytes{1}; }), random);
  if (t == none<TaskId>) return false;
  draft.task(t).bytes = draft.task(t).bytes / 2;
  return true;
}
inline bool large_message(Draft& draft, Mersenne& random) {
  const TaskId t = pick(draft.select(communication), random);
  if (t == none<TaskId>) return false;
  draft.task(t).bytes = draft.task(t).bytes * 3 + Bytes{1};
  return true;
}
/// Two communications change places on one of their ranks only.
inline bool interleave(Draft& draft, Mersenne& random) {
  const TaskId t = pick(draft.select(communication), random);
  if (t == none<TaskId>) return false;
  const auto ends = draft.ends(t);
  const auto [rank, lane] = ends[below(random, ends.size())];
  auto& program = draft.lane(rank, lane);
  const auto at = std::find(program.begin(), program.end(), t);
  const auto next = std::find_if(at + 1, program.end(), [&](TaskId other) { return !is_compute(draft.task(other).op); });
  if (next == program.end()) return false;
  std::iter_swap(at, next);
  return true;
}
inline bool move_in_lane(Draft& draft, Mersenne& random) {
  auto& lane = draft.program[below(random, draft.program.size())];
  if (lane.size() < 3) return false;
  const TaskId moved = lane[below(random, lane.size())];
  lane.erase(std::find(lane.begin(), lane.end(), moved));
  lane.insert(lane.begin() + static_cast<std::ptrdiff_t>(below(random, lane.size() + 1)), moved);
  return true;
}

constexpr Mutation mutations[] = {
    {"neighbours of a lane swapped", swap_neighbours},
    {"dropped at one end", drop_from_one_end},
    {"one dependency dropped", drop_dependency},
    {"all dependencies of a task dropped", drop_dependencies},
    {"buffer released too early", release_early},
    {"another buffer of the kind", like_buffer},
    {"another buffer", any_buffer},
    {"another access", wrong_access},
    {"a use forgotten", forget_use},
    {"early update", early_update},
    {"communication removed", remove_communication},
    {"computation removed", skip_computation},
    {"another root", wrong_root},
    {"another peer", wrong_peer},
    {"another stage", wrong_stage},
    {"another split", wrong_split},
    {"another microbatch", wrong_microbatch},
    {"task doubled", double_task},
    {"message halved", half_message},
    {"message enlarged", large_message},
    {"communications interleaved", interleave},
    {"moved within a lane", move_in_lane},
};

}  // namespace tawpipe::test
