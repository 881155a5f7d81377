// Sums of gradients in pieces: the messages of one step must make up the whole.
// Not: single messages against what they carry (transfer_walk.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/detail/contents.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0::detail {

/// Adds a finding for each stage whose reduce-scatters or all-reduces, where they carry less than its gradient, do not make it
/// up together (nor its gathers of updated weights those): n messages over k groups are n/k steps. One byte a message may be lost
/// in rounding.
inline void check_pieces(const Schedule& schedule, const ModelLayout& layout, Diagnostics& out) {
  struct Step {
    std::int64_t bytes = 0;
    std::int64_t messages = 0;
    std::set<GroupId> groups;
    TaskId smallest = none<TaskId>;
  };
  struct Key {
    Op op;
    StageId stage;
    int copy;  // of the schedule: each has its own messages
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, Step> steps;
  const auto copy_of = [&](Rank rank) {
    const LayoutPlace& place = layout.place(rank);
    return place.tensor + layout.tensor * (place.context + layout.context * place.data);
  };
  const auto whole = [&](Op op, StageId stage) {
    return layout.own_parameters(schedule.stage(stage)) * (op == Op::all_gather ? layout.weight : layout.gradient);
  };
  const auto renews = [&](TaskId t) {  // brings updated weights back
    for (const Use& use : schedule.uses(t)) {
      const Buffer& buffer = schedule.buffer(use.buffer);
      if (use.access != Access::read && (!buffer.persistent || buffer.kind() != BufferKind::weights)) return false;
    }
    return true;
  };
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    const bool sum = (task.op == Op::reduce_scatter || task.op == Op::all_reduce) && task.payload == Payload::gradients;
    const bool gather = task.op == Op::all_gather && task.payload == Payload::weights && renews(id<TaskId>(t));
    if (!(sum || gather) || task.stage == none<StageId> || task.bytes.value() + layout.rounding() >= whole(task.op, task.stage))
      continue;
    // Sums over copies of the schedule are looked at with their contents.
    if (!schedule.parts().layout.is_plain() && layout.one_logical_rank(schedule.group(task.group))) continue;
    Step& step = steps[{task.op, task.stage, copy_of(task.rank)}];
    step.bytes += task.bytes.value();
    ++step.messages;
    step.groups.insert(task.group);
    if (step.smallest == none<TaskId> || task.bytes < schedule.task(step.smallest).bytes) step.smallest = id<TaskId>(t);
  }
  for (const auto& [key, step] : steps) {
    const auto groups = static_cast<std::int64_t>(step.groups.size());
    const std::int64_t expected = whole(key.op, key.stage);
    if ((step.bytes + step.messages * (1 + layout.rounding())) * groups >= expected * step.messages) continue;
    const Step& found = step;
    out.error(
        "V305", found.smallest, schedule.task(found.smallest).rank,
        [&] {
          return concat(describe(schedule, found.smallest), " moves ", schedule.task(found.smallest).bytes.value(),
                        " bytes, and ", found.messages, " such messages of ", groups, " groups ", found.bytes, " of the ",
                        expected, " bytes that each step has");
        },
        "let the message be as large as what it carries");
  }
}

}  // namespace tawpipe::detail
