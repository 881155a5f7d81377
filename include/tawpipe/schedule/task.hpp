// A task of a schedule, the buffers it touches, and how.
// Not: what it waits for (schedule/schedule.hpp).
#pragma once

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/schedule/content.hpp"
#include "tawpipe/schedule/op_traits.hpp"

namespace tawpipe::inline v0 {

/// The size of a message, and how many equal messages follow one another, like those of a stage's
/// layers: 52 and 12 bits, since schedules hold millions. A size beyond 2 PiB, which no schedule
/// may have, counts as that.
class Messages {
 public:
  static constexpr std::int32_t max_repeat = 4095;

  constexpr Messages() : Messages{Bytes{}} {}
  /// @pre 0 <= repeat <= max_repeat
  constexpr Messages(Bytes each, std::int32_t repeat = 1)
      : bits_{std::clamp(each.value(), -limit, limit) * (max_repeat + 1) + repeat} {}

  constexpr operator Bytes() const { return Bytes{value()}; }
  constexpr std::int64_t value() const { return bits_ >> 12; }
  constexpr std::int32_t repeat() const { return static_cast<std::int32_t>(bits_ & max_repeat); }
  /// The size of all of them together.
  constexpr Bytes total() const { return Bytes{value() * repeat()}; }

  /// The same number of messages of a different size.
  friend constexpr Messages operator*(Messages a, std::int64_t factor) { return {Bytes{a} * factor, a.repeat()}; }
  friend constexpr Messages operator/(Messages a, std::int64_t divisor) { return {Bytes{a} / divisor, a.repeat()}; }

  /// By size first. With a Bytes on one side, only the size is compared.
  template <std::same_as<Messages> T>
  friend constexpr auto operator<=>(const T& a, const T& b) {
    return a.bits_ <=> b.bits_;
  }
  template <std::same_as<Messages> T>
  friend constexpr bool operator==(const T& a, const T& b) {
    return a.bits_ == b.bits_;
  }

 private:
  static constexpr std::int64_t limit = (std::int64_t{1} << 51) - 1;

  std::int64_t bits_;
};

/// One task. A transfer is one task with two ends and a collective one task with its members, so a
/// send without its receive cannot be written.
struct Task {
  Op op = Op::forward;
  Payload payload = Payload::nothing;
  LaneId lane{};       ///< on `rank`; a collective's on every member
  LaneId peer_lane{};  ///< on `peer` (pass, exchange)
  /// compute, host copy: the rank; pass: source; rooted collective: root; others: first member
  Rank rank = none<Rank>;
  Rank peer = none<Rank>;         ///< pass: destination; exchange: the other end
  GroupId group = none<GroupId>;  ///< collectives: the members
  StageId stage = none<StageId>;  ///< the stage (shard) worked on or carried
  std::int32_t microbatch = -1;   ///< numbered over the iteration; -1 where not applicable
  std::int32_t step = -1;         ///< place in the schedule's lock-step picture; -1 if it has none
  SplitId split = none<SplitId>;  ///< weights, gradients: the parameters carried; backward: those
                                  ///< of a slot that it fills (Schedule::split); none: all of the
                                  ///< stage's. all_to_all: the size of each pair
                                  ///< (Schedule::pair_sizes); none: even blocks. In an expanded
                                  ///< schedule, of a computation: which step of its stage's body
                                  ///< (Schedule::work)
  Messages bytes{};               ///< pass, broadcast, reduce, host copy: the message; exchange:
                                  ///< each way; all_to_all: the largest total that a member has for
                                  ///< all members; other collectives: the whole (gathered) buffer;
                                  ///< update: the model states it touches; other computations: what
                                  ///< they read and write to copy states
                                  ///< (detail::count_gathered_copies)

  /// The number of the peer or of the group, whichever the op has; -1 if it has neither.
  constexpr std::int32_t partner() const { return is_collective(op) ? number(group) : number(peer); }
  /// What the links of a communication depend on in addition to op and rank: its partner, for an
  /// all_to_all also the sizes of its pairs.
  constexpr std::int64_t route() const {
    return std::int64_t{partner()} << 32 | static_cast<std::uint32_t>(is_all_pairs(op) ? number(split) : -1);
  }
  /// The role of `end`, a rank that takes part.
  constexpr const EndTraits& role_of(Rank end) const { return end == rank ? traits(op).first : traits(op).other; }
  /// The lane it occupies on a rank that takes part.
  constexpr int lane_on(Rank end) const { return number(is_point_to_point(op) && end == peer ? peer_lane : lane); }
};

/// A buffer a task touches. Four bytes, since schedules hold several for each task.
struct Use {
  constexpr Use() : Use{none<BufferId>, Access::read} {}
  constexpr Use(BufferId touched, Access how) : buffer(touched), access(how) {}

  BufferId buffer : 29;
  Access access : 3;
};
/// The limit on buffers that a Use can name; a composed TawPipe schedule of 700 million tasks has
/// fewer.
inline constexpr std::size_t max_buffers = std::size_t{1} << 28;

/// The kinds of buffers by which memory is reported.
enum class BufferKind : std::uint8_t {
  weights,
  gradients,
  optimizer,
  activations,
  transfer,   ///< copies of weights and gradients in transit
  workspace,  ///< held while a task runs; allocated once
};
inline constexpr int buffer_kinds = 6;

/// The kind's name in reports.
constexpr std::string_view name(BufferKind kind) {
  constexpr std::string_view names[buffer_kinds] = {"weights", "gradients", "optimizer", "activations", "transfer", "workspace"};
  return names[static_cast<int>(kind)];
}

/// Memory of one rank: its device's, or its host's.
struct Buffer {
  Rank rank = none<Rank>;
  Content content;
  /// held for the whole iteration; otherwise from its first use's start to its last use's end
  bool persistent = true;
  /// a copy of weights, gradients or optimizer states that another buffer keeps
  bool copy = false;
  bool host = false;  ///< in the memory of the rank's host: only host copies use it
  Bytes bytes;

  constexpr BufferKind kind() const {
    if (is_of_microbatch(content.kind())) return BufferKind::activations;
    if (!is_of_parameters(content.kind())) return BufferKind::workspace;
    return copy ? BufferKind::transfer : static_cast<BufferKind>(content.kind());
  }
  constexpr StageId stage() const { return content.stage(); }
};

}  // namespace tawpipe
