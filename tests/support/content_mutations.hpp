// Mistakes in what a schedule says of itself: ids, tables, sets of parameters, buffers.
// Not: other orders, waits and messages (mutations.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/draft.hpp"
#include "support/mutations.hpp"

namespace tawpipe::test {

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
      stage.first_edge = !stage.first_edge;
      return true;
    default:
      stage.last_edge = !stage.last_edge;
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
  const TaskId t = pick(draft.select([](TaskId, const Task& task) { return is_stage_work(task.op); }), random);
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

}  // namespace tawpipe::test
