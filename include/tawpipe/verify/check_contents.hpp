// What buffers hold when tasks use them (V5xx), and whether every update sees the whole gradient
// once (V703 to V709).
// Not: unordered accesses (verify/check_races.hpp), nor tasks that are missing
// (verify/check_completeness.hpp).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/detail/compute_walk.hpp"
#include "tawpipe/verify/detail/contents_walk.hpp"
#include "tawpipe/verify/detail/message_walk.hpp"
#include "tawpipe/verify/detail/update_walk.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Finds activations that a task writes and no task reads.
inline void check_unread(const Schedule& schedule, Diagnostics& out) {
  std::vector<TaskId> writer(schedule.buffers().size(), none<TaskId>);
  std::vector<char> read(schedule.buffers().size(), 0);
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    for (const Use& use : schedule.uses(id<TaskId>(t))) {
      if (use.access == Access::read || use.access == Access::read_write) read[index(use.buffer)] = 1;
      if (use.access != Access::read) writer[index(use.buffer)] = id<TaskId>(t);
    }
  }
  for (std::size_t b = 0; b < read.size(); ++b) {
    const Buffer& buffer = schedule.buffers()[b];
    if (buffer.persistent || buffer.kind() != BufferKind::activations || read[b] != 0 || writer[b] == none<TaskId>) continue;
    out.error(
        "V509", writer[b], buffer.rank,
        [&] {
          return concat(describe(schedule, writer[b]), " fills ", describe(schedule, id<BufferId>(b)), ", which nothing reads");
        },
        "let the backward read what its forward saved, and the next stage this one's output");
  }
}

}  // namespace detail

/// Follows `schedule` with typed values and adds findings: reads of unwritten data, weights of
/// another stage, missing pieces, wrong activations, gradients that are incomplete, duplicated or
/// foreign at their update.
///
/// Each parameter in a buffer has a value, kept by ranges of equal value: for weights, whether they
/// are updated and which rank's part they are, for a gradient, a sum of random numbers, one for
/// each stage and microbatch (detail/contents.hpp). Activations carry their producer, stage and
/// microbatch. Where no two tasks race, every execution order gives the same result.
/// @param order  all tasks, each after what it waits for (check_cycles gives one)
/// Complexity: O(uses * ranges of a buffer + stages * microbatches).
inline void check_contents(const Schedule& schedule, std::span<const TaskId> order, Diagnostics& out) {
  detail::ContentsWalk walk{schedule, order, out};
  detail::ComputeWalk computations{schedule, walk};
  detail::MessageWalk messages{schedule, walk};
  detail::UpdateWalk updates{schedule, walk};
  for (const TaskId t : order) {
    const Op op = schedule.task(t).op;
    walk.begin(t);
    if (op == Op::update) {
      updates.update(t);
    } else if (is_work(op)) {
      computations.compute(t);
    } else if (!is_compute(op)) {
      messages.run(t);
    }
  }
  updates.finish();
  walk.finish();
  detail::check_unread(schedule, out);
}

}  // namespace tawpipe
