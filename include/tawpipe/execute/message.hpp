// How one rank's part of a communication goes through memory: in place if its numbers are laid out
// as in the message, otherwise through a staging area.
// Not: the communication itself (execute/mpi/transfer.hpp, execute/cuda/nccl_executor.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// Numbers of a rank's buffer, or (buffer none) of the current lane's staging area.
struct Address {
  Place place;

  bool staged() const { return !place; }
  Address operator+(std::int64_t numbers) const { return {{place.buffer, place.offset + numbers}}; }
  bool operator==(const Address& other) const { return place.buffer == other.place.buffer && place.offset == other.place.offset; }
};
/// A place in the staging area.
inline Address staging_address(std::int64_t offset) { return {{none<BufferId>, offset}}; }

/// An operation on numbers of one rank.
struct Move {
  enum class Kind : std::uint8_t { clear, copy, add };
  Kind kind = Kind::copy;
  Address to;
  Address from;
  std::int64_t count = 0;
};

/// Executes a move of a host's numbers.
template <class T>
void carry_out(const Move& move, T* to, const T* from) {
  switch (move.kind) {
    case Move::Kind::clear:
      return void(std::fill_n(to, move.count, T{}));
    case Move::Kind::copy:
      return void(std::copy_n(from, move.count, to));
    case Move::Kind::add:
      for (std::int64_t i = 0; i < move.count; ++i) to[i] += from[i];
  }
}

/// One rank's part of a communication: moves before it, its source and destination, moves after it.
struct MessagePlan {
  std::vector<Move> before;
  /// for an all_gather: this member's part; none: the rank gives nothing
  std::optional<Address> from;
  /// for a reduce_scatter: this member's part; none: the rank gets nothing
  std::optional<Address> to;
  std::vector<Move> after;
  std::int64_t staging = 0;  ///< numbers of the staging area
};

namespace detail {

/// Builds a MessagePlan.
class MessagePlanner {
 public:
  MessagePlanner(const Task& task, const TransferFlow& flow, const TransferEnd& end, std::int64_t member)
      : task_{task}, flow_{flow}, end_{end}, member_{member} {}

  MessagePlan plan() {
    switch (traits(task_.op).pattern) {
      case Pattern::none:
        break;
      case Pattern::one_way:
      case Pattern::both_ways:
        pair();
        break;
      case Pattern::all_pairs:
        blocks();
        break;
      case Pattern::ring_gather:
        gather();
        break;
      case Pattern::chain_from_root:
      case Pattern::chain_to_root:
      case Pattern::ring_scatter:
      case Pattern::ring_sum:
      case Pattern::to_host:
      case Pattern::from_host:
        by_role();
        break;
    }
    return std::move(plan_);
  }

  /// For messages around a ring or along a chain: the whole message, contiguous, where it is
  /// stored, summed and forwarded.
  MessagePlan ring_plan() {
    const bool sum = is_sum(task_.op);
    if (const auto base = whole_in_place(sum)) {
      plan_.from = plan_.to = base;
      for (const Segment& segment : end_.gives) {
        const Address to = *base + segment.packed;
        if (!(to == Address{segment.place})) plan_.before.push_back({Move::Kind::copy, to, {segment.place}, segment.count});
      }
      return std::move(plan_);
    }
    plan_.from = plan_.to = stage(flow_.count);
    pack(end_.gives, 0, flow_.count, sum);
    unpack(*plan_.to, 0);
    return std::move(plan_);
  }

 private:
  std::int64_t part(std::int64_t member) const { return flow_.member_begin[static_cast<std::size_t>(member)]; }

  void pair() {
    const bool source = end_.rank == task_.rank;
    const bool both = goes_both_ways(task_.op);
    const std::int64_t count = both ? flow_.count / 2 : flow_.count;
    if (source || both) give(end_.gives, source ? 0 : count, count, false);
    if (!source || both) take(source ? count : 0, count, std::nullopt);
  }

  /// A whole message given, and taken whole or in part.
  void by_role() {
    const EndTraits& role = task_.role_of(end_.rank);
    const bool sum = is_sum(task_.op);
    if (role.gives == Part::whole) give(end_.gives, 0, flow_.count, sum);
    if (role.takes == Part::own) {
      take(part(member_), part(member_ + 1) - part(member_), *plan_.from + part(member_));
    } else if (role.takes == Part::whole) {
      take(0, flow_.count, plan_.from);
    } else if (!sum) {
      plan_.to = plan_.from;  // a root keeps what it sends
    }
  }

  /// All that a member gives and all that it receives is at the start of a buffer
  /// (DataflowTransfers); its own block is not sent.
  void blocks() {
    const auto n = static_cast<std::int64_t>(flow_.ends.size());
    if (!end_.gives.empty()) plan_.from = Address{end_.gives.front().place};
    if (!end_.takes.empty()) plan_.to = Address{{end_.takes.front().place.buffer, 0}};
    const std::int64_t own = member_ * n + member_;
    for (const Segment& taken : end_.takes) {
      if (taken.packed != part(own)) continue;
      plan_.before.push_back({Move::Kind::copy, {taken.place}, *plan_.from + (part(own) - part(member_ * n)), taken.count});
    }
  }

  /// The address of the numbers [begin, begin + count) of the message, if they are contiguous and
  /// none is accumulated.
  static std::optional<Address> in_one_run(std::span<const Segment> segments, std::int64_t begin, std::int64_t count) {
    if (segments.empty()) return std::nullopt;
    const Address base = Address{segments[0].place} + (begin - segments[0].packed);
    std::vector<Segment> inside{segments.begin(), segments.end()};
    std::sort(inside.begin(), inside.end(), [](const Segment& a, const Segment& b) { return a.packed < b.packed; });
    std::int64_t reached = begin;
    for (const Segment& segment : inside) {
      if (segment.add || segment.packed != reached || !(Address{segment.place} + (begin - segment.packed) == base)) {
        return std::nullopt;
      }
      reached += segment.count;
    }
    if (reached != begin + count) return std::nullopt;
    return base;
  }

  Address stage(std::int64_t count) {
    const Address area = staging_address(plan_.staging);
    plan_.staging += count;
    return area;
  }

  /// The part that the rank gives, [begin, begin + count) of the message. @param sum  numbers it
  /// does not give are zeros
  void give(std::span<const Segment> gives, std::int64_t begin, std::int64_t count, bool sum) {
    plan_.from = in_one_run(gives, begin, count);
    if (plan_.from) return;
    plan_.from = stage(count);
    pack(gives, begin, count, sum);
  }
  /// Copies the segments to `from`.
  void pack(std::span<const Segment> gives, std::int64_t begin, std::int64_t count, bool sum) {
    std::int64_t given = 0;
    for (const Segment& segment : gives) given += segment.count;
    const bool once = given == count;  // each number once: segments of one rank do not overlap unless a number is repeated
    if (sum && !once) plan_.before.push_back({Move::Kind::clear, *plan_.from, {}, count});
    for (const Segment& segment : gives) {
      plan_.before.push_back({sum && !once ? Move::Kind::add : Move::Kind::copy,
                              *plan_.from + (segment.packed - begin),
                              {segment.place},
                              segment.count});
    }
  }

  /// The part that the rank receives, [begin, begin + count) of the message. @param staged  its
  /// address if that is staging memory
  void take(std::int64_t begin, std::int64_t count, std::optional<Address> staged) {
    plan_.to = in_one_run(end_.takes, begin, count);
    if (plan_.to) return;
    plan_.to = staged && staged->staged() ? *staged : stage(count);
    unpack(*plan_.to, begin);
  }
  void unpack(Address area, std::int64_t begin) {
    for (const Segment& segment : end_.takes) {
      plan_.after.push_back(
          {segment.add ? Move::Kind::add : Move::Kind::copy, {segment.place}, area + (segment.packed - begin), segment.count});
    }
  }

  /// The address for the whole message in the rank's own segments, if nothing that it gives is
  /// overwritten before it is read.
  std::optional<Address> whole_in_place(bool sum) const {
    const auto base = [](const Segment& s) { return Address{s.place} + -s.packed; };
    const auto covers = [this](std::vector<Segment> segments) {
      std::sort(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) { return a.packed < b.packed; });
      std::int64_t reached = 0;
      for (const Segment& s : segments) {
        if (s.packed > reached) return false;
        reached = std::max(reached, s.packed + s.count);
      }
      return reached >= flow_.count;
    };
    const bool copies_out = end_.takes.empty() && !sum;  // a source: nothing is stored on this rank
    const std::vector<Segment>& main = copies_out ? end_.gives : end_.takes;
    if (main.empty()) return std::nullopt;
    const Address place = base(main.front());
    for (const Segment& s : main) {
      if (s.add || !(base(s) == place)) return std::nullopt;
    }
    std::vector<Segment> held = main;
    std::size_t there = 0;
    std::int64_t given = 0;
    for (const Segment& s : end_.gives) {
      given += s.count;
      if (base(s) == place) {
        ++there;
        if (!copies_out) held.push_back(s);
      } else if (s.place.buffer == place.place.buffer) {
        return std::nullopt;
      }
    }
    if (!covers(held) || (there > 0 && there < end_.gives.size())) return std::nullopt;
    if (sum && (given != flow_.count || !covers(end_.gives))) return std::nullopt;  // each number once, or with zeros and sums
    return place;
  }

  void gather() {
    const std::int64_t own = part(member_);
    const std::int64_t own_count = part(member_ + 1) - own;
    const std::optional<Address> given = in_one_run(end_.gives, own, own_count);
    // In place: all parts are taken contiguously, or all but its own one, which is already there.
    std::vector<Segment> whole{end_.takes};
    plan_.to = in_one_run(whole, 0, flow_.count);
    if (!plan_.to && given) {
      whole.insert(whole.end(), end_.gives.begin(), end_.gives.end());
      plan_.to = in_one_run(whole, 0, flow_.count);
    }
    if (!plan_.to) {
      plan_.to = stage(flow_.count);
      unpack(*plan_.to, 0);
    }
    if (given) {
      plan_.from = given;
    } else if (own_count == 0) {
      plan_.from = *plan_.to + own;
    } else if (plan_.to->staged()) {
      plan_.from = *plan_.to + own;
      for (const Segment& segment : end_.gives) {
        plan_.before.push_back({Move::Kind::copy, *plan_.to + segment.packed, {segment.place}, segment.count});
      }
    } else {
      give(end_.gives, own, own_count, false);
    }
  }

  const Task& task_;
  const TransferFlow& flow_;
  const TransferEnd& end_;
  std::int64_t member_;
  MessagePlan plan_;
};

}  // namespace detail

/// The part of `rank`, an end or member, in the communication `id`. Complexity: O(segments log
/// segments).
inline MessagePlan message_plan(const Schedule& schedule, TaskId id, const TransferFlow& flow, Rank rank) {
  const auto end = std::find_if(flow.ends.begin(), flow.ends.end(), [&](const TransferEnd& one) { return one.rank == rank; });
  return detail::MessagePlanner{schedule.task(id), flow, *end, end - flow.ends.begin()}.plan();
}

/// The same for messages around a ring: `from` and `to` are the start of the whole message, which
/// is contiguous.
inline MessagePlan ring_message_plan(const Schedule& schedule, TaskId id, const TransferFlow& flow, Rank rank) {
  const auto end = std::find_if(flow.ends.begin(), flow.ends.end(), [&](const TransferEnd& one) { return one.rank == rank; });
  return detail::MessagePlanner{schedule.task(id), flow, *end, end - flow.ends.begin()}.ring_plan();
}

/// The moves of a whole communication if all ends share one memory. Each address has its rank;
/// staging memory is that of the first end.
struct SharedMove {
  Move move;
  Rank to;
  Rank from;
};
struct SharedTransfer {
  std::vector<SharedMove> moves;
  std::int64_t staging = 0;  ///< numbers
};

/// Sums are formed in the order of the members, so every run gives the same bits.
inline SharedTransfer shared_transfer(const Schedule& schedule, TaskId id, const TransferFlow& flow) {
  const Task& task = schedule.task(id);
  SharedTransfer transfer;
  const Rank first = flow.ends.front().rank;
  const bool sum = is_sum(task.op);
  const auto add = [&](Move::Kind kind, Address to, Rank to_rank, Address from, Rank from_rank, std::int64_t count) {
    if (to == from && to_rank == from_rank) return;
    transfer.moves.push_back({{kind, to, from, count}, to_rank, from_rank});
  };
  if (sum || goes_both_ways(task.op)) {  // an exchange may swap: nothing is stored before all is read
    const Address area = staging_address(0);
    transfer.staging = flow.count;
    std::int64_t reached = 0;
    for (const TransferEnd& end : flow.ends) {
      std::int64_t given = 0;
      for (const Segment& segment : end.gives) given += segment.count;
      const bool stores = !sum || (reached == 0 && given == flow.count);
      if (sum && reached == 0 && !stores) add(Move::Kind::clear, area, first, {}, none<Rank>, flow.count);
      for (const Segment& segment : end.gives) {
        add(stores ? Move::Kind::copy : Move::Kind::add, area + segment.packed, first, {segment.place}, end.rank, segment.count);
      }
      reached = flow.count;
    }
    for (const TransferEnd& end : flow.ends) {
      for (const Segment& segment : end.takes) {
        add(segment.add ? Move::Kind::add : Move::Kind::copy, {segment.place}, end.rank, area + segment.packed, first,
            segment.count);
      }
    }
    return transfer;
  }
  for (const TransferEnd& source : flow.ends) {
    for (const Segment& given : source.gives) {
      for (const TransferEnd& end : flow.ends) {
        for (const Segment& taken : end.takes) {
          const std::int64_t begin = std::max(given.packed, taken.packed);
          const std::int64_t count = std::min(given.packed + given.count, taken.packed + taken.count) - begin;
          if (count <= 0) continue;
          add(taken.add ? Move::Kind::add : Move::Kind::copy, Address{taken.place} + (begin - taken.packed), end.rank,
              Address{given.place} + (begin - given.packed), source.rank, count);
        }
      }
    }
  }
  return transfer;
}

}  // namespace tawpipe
