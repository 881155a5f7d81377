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
  Task& task = draft.task(pick(draft.select([](TaskId, const Task& t) { return is_work(t.op) && t.op != Op::update; }), random));
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

// ---- mistakes in what a schedule says of itself ---------------------------------------------------------------------------

/// Two tasks change numbers; nothing else changes.
inline bool swap_ids(Draft& draft, Mersenne& random) {
  const std::size_t count = draft.parts.tasks.size();
  const std::size_t a = below(random, count);
  const std::size_t b = (a + 1 + below(random, std::min<std::size_t>(count - 1, 6))) % count;
  std::swap(draft.parts.tasks[a], draft.parts.tasks[b]);
  std::swap(draft.dependencies[a], draft.dependencies[b]);
  std::swap(draft.uses[a], draft.uses[b]);
  std::swap(draft.origin[a], draft.origin[b]);
  for (auto* rows : {&draft.dependencies, &draft.program}) {
    for (auto& row : *rows) {
      for (TaskId& t : row) t = t == id<TaskId>(a) ? id<TaskId>(b) : t == id<TaskId>(b) ? id<TaskId>(a) : t;
    }
  }
  return true;
}
inline bool wrong_stage_table(Draft& draft, Mersenne& random) {
  StageWork& stage = draft.parts.stages[below(random, draft.parts.stages.size())];
  switch (below(random, 4)) {
    case 0:
      stage.first_layer += below(random, 2) == 0 ? 1 : -1;
      return true;
    case 1:
      stage.layers += below(random, 2) == 0 || stage.layers == 0 ? 1 : -1;
      return true;
    case 2:
      stage.embedding = !stage.embedding;
      return true;
    default:
      stage.head = !stage.head;
      return true;
  }
}
/// Two items of a row change places.
template <class T>
bool swap_in_row(Rows<T>& rows, Mersenne& random) {
  std::vector<std::size_t> found;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].size() > 1) found.push_back(row);
  }
  if (found.empty()) return false;
  const std::size_t row = found[below(random, found.size())];
  std::vector<T> items = rows.items();
  const std::size_t first = rows.begins()[row];
  const std::size_t size = rows[row].size();
  const std::size_t a = below(random, size);
  std::swap(items[first + a], items[first + (a + 1 + below(random, size - 1)) % size]);
  rows = {rows.begins(), std::move(items)};
  return true;
}
inline bool wrong_group_order(Draft& draft, Mersenne& random) { return swap_in_row(draft.parts.groups, random); }
inline bool wrong_split_order(Draft& draft, Mersenne& random) { return swap_in_row(draft.parts.splits, random); }
inline bool wrong_piece_order(Draft& draft, Mersenne& random) { return swap_in_row(draft.parts.pieces, random); }
inline bool wrong_piece(Draft& draft, Mersenne& random) {
  std::vector<ParameterRange> items = draft.parts.pieces.items();
  if (items.empty()) return false;
  ParameterRange& range = items[below(random, items.size())];
  const std::int64_t by = below(random, 2) == 0 ? 1 : -1;
  if (below(random, 2) == 0) range.begin += by;
  if (below(random, 2) == 0) range.end += by;
  if (range.begin < 0 || range.end <= range.begin || range.end > draft.workload.model().parameters()) return false;
  draft.parts.pieces = {draft.parts.pieces.begins(), std::move(items)};
  return true;
}
inline Buffer& pick_buffer(Draft& draft, Mersenne& random) {
  return draft.parts.buffers[below(random, draft.parts.buffers.size())];
}
inline bool smaller_buffer(Draft& draft, Mersenne& random) {
  Buffer& buffer = pick_buffer(draft, random);
  if (buffer.bytes < Bytes{16} || buffer.kind() == BufferKind::workspace) return false;
  buffer.bytes = below(random, 2) == 0 ? buffer.bytes / 2 : buffer.bytes - Bytes{8};
  return true;
}
/// A task uses one of its buffers twice, or a second time in place of another.
inline bool alias(Draft& draft, Mersenne& random) {
  const TaskId t = pick(draft.select([&](TaskId task, const Task&) { return draft.uses[index(task)].size() > 1; }), random);
  if (t == none<TaskId>) return false;
  auto& uses = draft.uses[index(t)];
  const std::size_t a = below(random, uses.size());
  const std::size_t b = (a + 1 + below(random, uses.size() - 1)) % uses.size();
  if (draft.parts.buffers[index(uses[a].buffer)].rank != draft.parts.buffers[index(uses[b].buffer)].rank) return false;
  if (below(random, 2) == 0) {
    uses[a].buffer = uses[b].buffer;
  } else {
    uses.push_back({uses[b].buffer, uses[a].access});
  }
  return true;
}
/// A computation names one activation more.
inline bool extra_activation(Draft& draft, Mersenne& random) {
  const TaskId t = pick(draft.select([](TaskId, const Task& task) { return is_work(task.op) && task.op != Op::update; }), random);
  std::vector<BufferId> found;
  for (std::size_t b = 0; b < draft.parts.buffers.size(); ++b) {
    const Buffer& buffer = draft.parts.buffers[b];
    if (buffer.rank == draft.task(t).rank && buffer.kind() == BufferKind::activations) found.push_back(id<BufferId>(b));
  }
  if (found.empty()) return false;
  auto& uses = draft.uses[index(t)];
  const Use use{found[below(random, found.size())], static_cast<Access>(below(random, 3))};
  uses.insert(uses.begin() + static_cast<std::ptrdiff_t>(below(random, uses.size() + 1)), use);
  return true;
}
inline bool wrong_persistence(Draft& draft, Mersenne& random) {
  Buffer& buffer = pick_buffer(draft, random);
  if (buffer.kind() == BufferKind::workspace) return false;
  buffer.persistent = !buffer.persistent;
  return true;
}
inline bool wrong_copy(Draft& draft, Mersenne& random) {
  Buffer& buffer = pick_buffer(draft, random);
  if (!is_of_parameters(buffer.content.kind())) return false;
  buffer.copy = !buffer.copy;
  return true;
}
/// Another kind of contents, stage, microbatch or set of parameters than the buffer's tasks put
/// there.
inline bool wrong_content(Draft& draft, Mersenne& random) {
  Buffer& buffer = pick_buffer(draft, random);
  const Content old = buffer.content;
  const auto kind = static_cast<ContentKind>(below(random, content_kinds));
  const StageId stage = id<StageId>(below(random, draft.parts.stages.size()));
  const bool parameters = is_of_parameters(old.kind());
  const PiecesId set = parameters ? old.parameters() : none<PiecesId>;
  const std::size_t sets = draft.parts.pieces.size();
  switch (below(random, 3)) {
    case 0:
      buffer.content = is_of_parameters(kind)   ? Content{kind, old.stage(), set}
                       : is_of_microbatch(kind) ? Content{kind, old.stage(), old.microbatch()}
                                                : Content{kind};
      break;
    case 1:
      buffer.content = parameters ? Content{old.kind(), stage, set} : Content{old.kind(), stage, old.microbatch()};
      break;
    default:
      if (parameters && sets > 0) {
        buffer.content = {old.kind(), old.stage(), id<PiecesId>(below(random, sets))};
      } else if (is_of_microbatch(old.kind()) && old.microbatch() >= 0) {
        const auto microbatches = static_cast<std::size_t>(draft.workload.microbatches());
        buffer.content = {old.kind(), old.stage(), static_cast<std::int32_t>(below(random, microbatches))};
      }
  }
  return !(buffer.content == old);
}

struct Mutation {
  const char* name;
  bool (*apply)(Draft&, Mersenne&);
};
/// Mistakes of the nine classes that only what is computed shows.
constexpr Mutation content_mutations[] = {
    {"ids swapped", swap_ids},
    {"another stage table", wrong_stage_table},
    {"members of a group in another order", wrong_group_order},
    {"sets of a split in another order", wrong_split_order},
    {"ranges of a set in another order", wrong_piece_order},
    {"another range in a set", wrong_piece},
    {"a smaller buffer", smaller_buffer},
    {"a buffer twice in a task", alias},
    {"an activation more", extra_activation},
    {"another persistence", wrong_persistence},
    {"owner for copy, or copy for owner", wrong_copy},
    {"another content", wrong_content},
};
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
