// Transfers and collectives against the buffers they name (V3xx): every end takes part in the right way and in size.
// Not: what the buffers hold at that time (analysis/check_contents.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/analysis/diagnostics.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Which accesses a communication has to buffers of one rank, as bits.
enum AccessBits : std::uint8_t { no_access = 0, has_read = 1, has_write = 2, has_read_write = 4, has_accumulate = 8 };

constexpr std::uint8_t access_bit(Access access) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(access)); }

/// What an op asks of one end: some bits at least one of which must be there, and bits that may be there.
struct EndRule {
  std::uint8_t sends = no_access;     ///< one of these, to have something to send
  std::uint8_t receives = no_access;  ///< one of these, to have somewhere to put it
  std::uint8_t allowed = no_access;
};

inline EndRule end_rule(const Task& task, Rank rank) {
  const bool root = rank == task.rank;
  switch (task.op) {
    case Op::pass:
      return root ? EndRule{has_read, no_access, has_read}
                  : EndRule{no_access, has_write | has_accumulate, has_write | has_accumulate};
    case Op::exchange:
      return {has_read, has_write | has_accumulate, has_read | has_write | has_accumulate};
    case Op::broadcast:
      return root ? EndRule{has_read, no_access, has_read} : EndRule{no_access, has_write, has_write};
    case Op::reduce:  // a member that reads nothing adds zeros
      return root ? EndRule{no_access, has_write | has_read_write | has_accumulate,
                            has_read | has_write | has_read_write | has_accumulate}
                  : EndRule{no_access, no_access, has_read};
    case Op::all_gather:
      return {has_read | has_read_write, has_write | has_read_write, has_read | has_write | has_read_write};
    case Op::reduce_scatter:
    case Op::all_reduce:  // a member that reads nothing adds zeros; one that writes nothing drops its part
      return {no_access, no_access, has_read | has_write | has_read_write | has_accumulate};
    default:
      return {};
  }
}

/// What an exchange of copies asks of every member: it changes what the member has computed.
inline constexpr EndRule exchange_rule{has_read_write, has_read_write, has_read_write};

/// Whether the whole message passes through a buffer used so: then it must fit. (Of a gather, through one a rank; of an exchange
/// among the ranks of a logical rank, layer by layer.)
inline bool carries_message(const Schedule& schedule, const Task& task, Access access) {
  if (is_exchange_of_copies(schedule, task)) return false;
  if (task.op == Op::all_gather) return access != Access::read;
  if (task.op == Op::reduce_scatter) return access == Access::read_write;
  return true;
}

}  // namespace detail

/// Adds a finding for each end of a communication that sends from nothing, receives into nothing or uses a buffer in a way
/// that its op does not have, and for messages larger than their buffers. Complexity: O(uses + ends).
inline void check_transfers(const Schedule& schedule, Diagnostics& out) {
  std::vector<std::uint8_t> bits(static_cast<std::size_t>(schedule.ranks()), 0);  // [rank] of the task looked at
  const auto gathers_elsewhere = [&](TaskId id, Rank rank) {                      // a rank may keep its own part beside the whole
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
    for (const Use& use : schedule.uses(id)) {
      const Buffer& buffer = schedule.buffer(use.buffer);
      bits[index(buffer.rank)] |= detail::access_bit(use.access);
      if (task.bytes <= buffer.bytes || !detail::carries_message(schedule, task, use.access)) continue;
      if (task.op == Op::all_gather && gathers_elsewhere(id, buffer.rank)) continue;
      out.error(
          "V304", id, buffer.rank,
          [&] {
            return concat(detail::describe(schedule, id), " moves ", task.bytes.value(), " bytes through ",
                          detail::describe(schedule, use.buffer), ", which has ", buffer.bytes.value());
          },
          "make the buffer as large as its largest message");
    }
    const bool exchange = is_exchange_of_copies(schedule, task);
    bool receives = !is_collective(task.op);
    for_each_end(schedule, id, [&](Rank rank, int) {
      const std::uint8_t found = bits[index(rank)];
      bits[index(rank)] = 0;
      receives = receives || (found & ~detail::has_read) != 0;
      const detail::EndRule rule = exchange ? detail::exchange_rule : detail::end_rule(task, rank);
      const auto report = [&](std::string_view code, std::string_view what, std::string_view help) {
        out.error(
            code, id, rank, [&] { return concat(detail::describe(schedule, id), " ", what, " on rank ", number(rank)); }, help);
      };
      if (rule.sends != 0 && (found & rule.sends) == 0) report("V301", "reads nothing to send", "name the buffer that is sent");
      if (rule.receives != 0 && (found & rule.receives) == 0) {
        report("V302", "writes nothing that it receives", "name the buffer that receives the message");
      }
      if ((found & ~rule.allowed) != 0) {
        report("V303", "uses a buffer in a way that its op does not have",
               "sources read; destinations write or accumulate; only sums and gathers change a buffer in place");
      }
    });
    if (receives || (task.op == Op::reduce_scatter && schedule.uses(id).empty())) continue;
    out.error(
        "V302", id, task.rank, [&] { return concat(detail::describe(schedule, id), " writes nothing on any rank"); },
        "name the buffers that receive the result");
  }
}

}  // namespace tawpipe
