// Whether every computation that tensor- and context-parallel ranks share is put together behind it (V710), whole (V305).
// Not: whether that happens before the result is used (verify/check_contents.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/check_transfers.hpp"  // is_within_stage
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0 {

/// Adds a finding for each forward and backward of a stage with layers that lacks a collective which its ranks need, or
/// whose collectives of that kind carry less than all its layers ask for:
/// with tensor parallelism two all-reduces a layer of its activations, with context parallelism an all-gather of its keys and
/// values, in a backward also a reduce-scatter of their gradients; again where the forward is computed again.
/// Complexity: O(tasks log tasks), times the group size for collectives; nothing where no rank shares a computation.
/// Source: Shoeybi et al. 2019, arXiv:1909.08053; Grattafiori et al. 2024, arXiv:2407.21783, section 3.3.2.
inline void check_exchanges(const Schedule& schedule, Diagnostics& out) {
  const Layout& layout = schedule.parts().layout;
  const Workload& workload = schedule.workload();
  if (layout.per_logical_rank() == 1 || workload.is_abstract()) return;
  struct Exchange {
    Rank rank;
    StageId stage;
    std::int32_t microbatch;
    bool forward;
    Op op;
    std::int64_t bytes;
    auto key() const { return std::tuple{rank, stage, microbatch, forward, op}; }
  };
  std::vector<Exchange> exchanges;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    if (!detail::is_within_stage(schedule, task)) continue;
    for (const Rank rank : schedule.group(task.group)) {
      exchanges.push_back(
          {rank, task.stage, task.microbatch, task.payload == Payload::activations, task.op, task.bytes.total().value()});
    }
  }
  const auto before = [](const Exchange& a, const Exchange& b) { return a.key() < b.key(); };
  std::sort(exchanges.begin(), exchanges.end(), before);
  const auto part = [](std::int64_t whole, std::int64_t parts) { return (whole + parts - 1) / parts; };
  const std::int64_t keys = part(workload.model().keys.value(), layout.tensor);
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    if (!is_work(task.op) || task.op == Op::update || task.op == Op::backward_weight) continue;
    const StageWork& stage = schedule.stage(task.stage);
    const bool forward = task.op == Op::forward;
    const std::int64_t passes = forward || workload.recompute() != Recompute::full ? 1 : 2;
    const auto expect = [&](Op op, std::int64_t each) {
      const Exchange wanted{task.rank, task.stage, task.microbatch, forward, op, 0};
      const auto [first, last] = std::equal_range(exchanges.begin(), exchanges.end(), wanted, before);
      std::int64_t bytes = 0;
      for (auto at = first; at != last; ++at) bytes += at->bytes;
      const std::int64_t needed = 2 * stage.layers * passes * each;
      if (first != last && bytes >= needed) return;
      const bool none = first == last;
      out.error(
          none ? "V710" : "V305", id<TaskId>(t), task.rank,
          [&] {
            return concat("behind ", detail::describe(schedule, id<TaskId>(t)),
                          none ? concat(" there is no ", name(op), " with those that share it")
                               : concat(" an ", name(op), " moves ", bytes, " of ", needed, " bytes"));
          },
          "put together what the tensor- and context-parallel ranks compute, for each layer");
    };
    if (stage.layers == 0) continue;
    // Sizes of a composed stage are rounded up: a rank's part may be a byte too large.
    if (layout.tensor > 1) expect(Op::all_reduce, std::max<std::int64_t>(stage.boundary.value() - 1, 0) * layout.tensor);
    if (layout.context > 1) expect(Op::all_gather, keys);
    if (layout.context > 1 && !forward) expect(Op::reduce_scatter, keys);
  }
}

}  // namespace tawpipe
