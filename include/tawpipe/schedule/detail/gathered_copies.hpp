// What computations copy, as in PyTorch's FSDP: weights gathered for them, and gradients that they
// leave to be scattered.
// Not: the messages (schedules/detail/sharded_builder.hpp, schedule/detail/state_messages.hpp).
#pragma once

#include <cstddef>
#include <vector>

#include "tawpipe/model/layer_stack.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// Sets the bytes of computations other than updates to what their copies read and write on the
/// stream that computes.
///
/// FSDP2: the first that reads gathered weights copies them into each parameter (2 weights a
/// parameter: split_with_sizes_copy). A gradient is made in the weights' format, and copied in the
/// gradients' format into what is scattered (chunk_cat); where several add to it, it is first cast,
/// then added to, and copied after the last.
/// The first FSDP: parameters are views of a unit's flat one, so weights are not copied, and autograd
/// puts the gradients of the views together (2 weights a parameter), adding to what was there (3).
/// Copies of shards, and the first FSDP's cast to the gradients' format, run on other streams and
/// are left out.
/// Source: PyTorch, torch/distributed/fsdp/_fully_shard: _fsdp_collectives.py
/// (foreach_all_gather_copy_out, foreach_reduce), _fsdp_param.py (to_accumulated_grad_if_needed,
/// accumulate_unsharded_grad_if_needed); torch/distributed/fsdp/_flat_param.py (_get_unflat_views),
/// _runtime_utils.py (_post_backward_hook), torch/csrc/autograd/FunctionsManual.cpp
/// (split_with_sizes_backward).
/// @pre tasks are in the order in which they were added. Complexity: O(uses).
inline void count_gathered_copies(Schedule::Parts& parts, const ParameterBytes& sizes, ShardCopies copies) {
  const bool flat = copies == ShardCopies::flat_parameter;
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
        if (!is_stage_work(task.op) || !found.gathered || flat) continue;
        add(id<TaskId>(t), buffer, 2, 1);
        found.gathered = false;
      } else if (buffer.content.kind() == ContentKind::gradients) {
        if (is_stage_work(task.op) && found.last != id<TaskId>(t) && use.access != Access::read) {
          if (use.access == Access::write) found.additions = 0;
          const std::int64_t again = found.additions > 0 ? 1 : 0;
          add(id<TaskId>(t), buffer, flat ? (2 + 3 * again) * sizes.weight : sizes.weight + (1 + again) * sizes.gradient,
              sizes.gradient);
          ++found.additions;
          found.last = id<TaskId>(t);
        } else if (is_sum(task.op) && found.last != none<TaskId>) {
          if (found.additions > 1 && !flat) add(found.last, buffer, 2, 1);
          found = {};
        }
      }
    }
  }
}

}  // namespace tawpipe::detail
