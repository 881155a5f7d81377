// What computations copy, as in PyTorch's FSDP2: weights gathered for them, and gradients that they
// leave to be scattered.
// Not: the messages (schedules/detail/sharded_builder.hpp, schedule/detail/state_messages.hpp).
#pragma once

#include <cstddef>
#include <vector>

#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// Sets the bytes of computations other than updates to what their copies read and write on the
/// stream that computes. The first that reads gathered weights copies them into each parameter (2
/// weights a parameter: split_with_sizes_copy). A gradient is made in the weights' format, and
/// copied in the gradients' format into what is scattered (chunk_cat); where several add to it, it
/// is first cast, then added to, and copied after the last. Copies of shards run on another stream
/// and are left out.
/// Source: PyTorch, torch/distributed/fsdp/_fully_shard: _fsdp_collectives.py
/// (foreach_all_gather_copy_out, foreach_reduce), _fsdp_param.py (to_accumulated_grad_if_needed,
/// accumulate_unsharded_grad_if_needed).
/// @pre tasks are in the order in which they were added. Complexity: O(uses).
inline void count_gathered_copies(Schedule::Parts& parts, const ParameterBytes& sizes) {
  struct Copied {
    bool gathered = false;  ///< weights that no computation has read
    int additions = 0;      ///< to a gradient
    TaskId last = none<TaskId>;
  };
  std::vector<Copied> copied(parts.buffers.size());
  const auto add = [&](TaskId task, const Buffer& buffer, std::int64_t bytes, std::int64_t of) {
    Messages& sum = parts.tasks[index(task)].bytes;
    sum = Bytes{sum.value() + buffer.bytes.value() / of * bytes};
  };
  for (std::size_t t = 0; t < parts.tasks.size(); ++t) {
    Task& task = parts.tasks[t];
    if (is_stage_work(task.op)) task.bytes = {};
    for (const Use& use : parts.uses[t]) {
      const Buffer& buffer = parts.buffers[index(use.buffer)];
      if (buffer.persistent) continue;
      Copied& found = copied[index(use.buffer)];
      if (buffer.content.kind() == ContentKind::weights) {
        if (gathers(task.op) && use.access != Access::read) found.gathered = true;
        if (!is_stage_work(task.op) || !found.gathered) continue;
        add(id<TaskId>(t), buffer, 2, 1);
        found.gathered = false;
      } else if (buffer.content.kind() == ContentKind::gradients) {
        if (is_stage_work(task.op) && found.last != id<TaskId>(t) && use.access != Access::read) {
          if (use.access == Access::write) found.additions = 0;
          add(id<TaskId>(t), buffer, sizes.weight + (found.additions > 0 ? 2 : 1) * sizes.gradient, sizes.gradient);
          ++found.additions;
          found.last = id<TaskId>(t);
        } else if (is_sum(task.op) && found.last != none<TaskId>) {
          if (found.additions > 1) add(found.last, buffer, 2, 1);
          found = {};
        }
      }
    }
  }
}

}  // namespace tawpipe::detail
