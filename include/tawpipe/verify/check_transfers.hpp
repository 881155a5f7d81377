// Transfers and collectives against the buffers they name (V3xx): every end takes part in the right
// way, and sizes match.
// Not: what the buffers hold at that time (verify/check_contents.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Whether the whole message passes through a buffer with this use, and must fit. (For a gather,
/// through one buffer a rank.)
inline bool carries_message(const Task& task, Access access) {
  if (is_all_pairs(task.op) && task.split != none<SplitId>) return false;
  if (gathers(task.op)) return access != Access::read;
  if (scatters(task.op)) return access == Access::read_write;
  return true;
}

/// The most that any member of an all_to_all gives; 0 if the blocks are even.
inline Bytes max_given(const Schedule& schedule, const Task& task) {
  if (!is_all_pairs(task.op) || task.split == none<SplitId>) return Bytes{};
  const auto sizes = schedule.pair_sizes(task.split);
  const std::size_t n = schedule.group(task.group).size();
  Bytes most;
  for (std::size_t from = 0; from < n; ++from) {
    Bytes sum;
    for (const Bytes size : sizes.subspan(from * n, n)) sum += size;
    most = std::max(most, sum);
  }
  return most;
}

/// A message is as large as what it carries.
inline void check_moved(const Schedule& schedule, TaskId id, Bytes carried, Diagnostics& out) {
  const Task& task = schedule.task(id);
  if (task.bytes <= carried) return;
  out.error(
      "V116", id, task.rank,
      [&] { return concat(describe(schedule, id), " moves ", task.bytes.value(), " bytes, and carries ", carried.value()); },
      "let a buffer or message be as large as what it holds or carries");
}

/// A number of each rank, of its own or of the gradients' size.
inline void check_scalar(const Schedule& schedule, TaskId id, Diagnostics& out) {
  const std::int64_t number = std::max<std::int64_t>(schedule.workload().parameter_bytes().gradient, 4);
  for (const Use& use : schedule.uses(id)) {
    const Buffer& buffer = schedule.buffer(use.buffer);
    if (buffer.content.kind() == ContentKind::scalar) check_moved(schedule, id, buffer.bytes, out);
  }
  if (schedule.task(id).bytes.value() != 4) check_moved(schedule, id, Bytes{number}, out);
}

/// A host copy has one source and one destination, on the sides of its op, and moves all of the
/// source.
inline void check_host_copy(const Schedule& schedule, TaskId id, Diagnostics& out) {
  const Task& task = schedule.task(id);
  const bool out_of_device = traits(task.op).pattern == Pattern::to_host;
  const auto uses = schedule.uses(id);
  const Use* source = nullptr;
  const Use* target = nullptr;
  for (const Use& use : uses) {
    if (use.access == Access::read) source = &use;
    if (use.access == Access::write) target = &use;
  }
  if (source == nullptr || target == nullptr) return;  // found by the check of each end
  const bool fits = uses.size() == 2 && schedule.buffer(source->buffer).host != out_of_device &&
                    schedule.buffer(target->buffer).host == out_of_device;
  if (!fits) {
    out.error(
        "V306", id, task.rank,
        [&] {
          return concat(describe(schedule, id), " copies ", describe(schedule, source->buffer), " into ",
                        describe(schedule, target->buffer), uses.size() > 2 ? ", and uses other buffers too" : "");
        },
        "copy_to_host reads one buffer of the device and writes one of the host, copy_from_host the other way round");
  }
  if (const Bytes held = schedule.buffer(source->buffer).bytes; task.bytes > held) {
    check_moved(schedule, id, held, out);
  } else if (task.bytes < held) {
    out.error(
        "V305", id, task.rank,
        [&] {
          return concat(describe(schedule, id), " moves ", task.bytes.value(), " of ", held.value(), " bytes of ",
                        describe(schedule, source->buffer));
        },
        "let the message be as large as what it carries");
  }
}

}  // namespace detail

/// Adds a finding for each end of a communication that sends from nothing, receives into nothing or
/// uses a buffer in a way that its op does not allow, and for messages larger than their buffers.
/// Complexity: O(uses + ends).
inline void check_transfers(const Schedule& schedule, Diagnostics& out) {
  std::vector<std::uint8_t> bits(static_cast<std::size_t>(schedule.ranks()), 0);  // [rank] of the current task
  const auto gathers_elsewhere = [&](TaskId id, Rank rank) {  // a rank may keep its own part separately from the whole
    for (const Use& use : schedule.uses(id)) {
      const Buffer& buffer = schedule.buffer(use.buffer);
      if (use.access != Access::read && buffer.rank == rank && buffer.bytes >= schedule.task(id).bytes) return true;
    }
    return false;
  };
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const TaskId id = tawpipe::id<TaskId>(t);
    const Task& task = schedule.tasks()[t];
    if (is_compute(task.op)) continue;
    if (is_host_copy(task.op)) detail::check_host_copy(schedule, id, out);
    if (task.payload == Payload::scalar) detail::check_scalar(schedule, id, out);
    if (is_all_pairs(task.op) && task.split != none<SplitId>)
      detail::check_moved(schedule, id, detail::max_given(schedule, task), out);
    if (task.bytes.repeat() > 1 && !schedule.uses(id).empty()) {
      out.error(
          "V110", id, task.rank,
          [&] {
            return concat(detail::describe(schedule, id), " stands for ", task.bytes.repeat(),
                          " messages, and names the buffers of one");
          },
          "write one task for each message");
    }
    if (const Bytes most = detail::max_given(schedule, task); task.bytes < most) {
      out.error(
          "V305", id, task.rank,
          [&] {
            return concat(detail::describe(schedule, id), " moves ", task.bytes.value(), " of the ", most.value(),
                          " bytes that a member gives");
          },
          "let the message be as large as what it carries");
    }
    for (const Use& use : schedule.uses(id)) {
      const Buffer& buffer = schedule.buffer(use.buffer);
      bits[index(buffer.rank)] |= detail::access_bit(use.access);
      if (task.bytes <= buffer.bytes || !detail::carries_message(task, use.access)) continue;
      if (gathers(task.op) && gathers_elsewhere(id, buffer.rank)) continue;
      out.error(
          "V304", id, buffer.rank,
          [&] {
            return concat(detail::describe(schedule, id), " moves ", task.bytes.value(), " bytes through ",
                          detail::describe(schedule, use.buffer), ", which has ", buffer.bytes.value());
          },
          "make the buffer as large as its largest message");
    }
    bool receives = !is_collective(task.op);
    for_each_end(schedule, id, [&](Rank rank, int) {
      const std::uint8_t found = bits[index(rank)];
      bits[index(rank)] = 0;
      receives = receives || (found & ~detail::has_read) != 0;
      const EndTraits& rule = task.role_of(rank);
      const auto report = [&](std::string_view code, std::string_view what, std::string_view help) {
        out.error(
            code, id, rank, [&] { return concat(detail::describe(schedule, id), " ", what, " on rank ", number(rank)); }, help);
      };
      if (rule.sends != 0 && (found & rule.sends) == 0) report("V301", "reads nothing to send", "name the buffer that is sent");
      if (rule.receives != 0 && (found & rule.receives) == 0) {
        report("V302", "writes nothing that it receives", "name the buffer that receives the message");
      }
      // A member without a microbatch in this round brings nothing, and keeps the sum.
      if (task.op == Op::all_reduce && found == 0 && !schedule.uses(id).empty()) {
        report("V307", "brings nothing to its sum",
               "let every member name what it adds, or where it keeps the sum, or leave it out of the group");
      }
      if ((found & ~rule.allowed) != 0) {
        report("V303", "uses a buffer in a way that its op does not have",
               "sources read; destinations write or accumulate; only sums and gathers change a buffer in place");
      }
    });
    if (receives || (scatters(task.op) && schedule.uses(id).empty())) continue;
    out.error(
        "V302", id, task.rank, [&] { return concat(detail::describe(schedule, id), " writes nothing on any rank"); },
        "name the buffers that receive the result");
  }
}

}  // namespace tawpipe
