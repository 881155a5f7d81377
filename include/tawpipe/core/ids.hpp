// One integer type for each kind of index, so that a rank cannot be used as a node.
// Not: what they name.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tawpipe::inline v0 {

/// A device that takes part, 0 .. ranks-1. Ranks are numbered node by node.
enum class Rank : std::int32_t {};
/// A node (machine) of a cluster.
enum class NodeId : std::int32_t {};
/// One direction of one link or adapter: a capacity that transfers share.
enum class LinkId : std::int32_t {};
/// A task of a schedule.
enum class TaskId : std::int32_t {};
/// A buffer of a schedule.
enum class BufferId : std::int32_t {};
/// A set of ranks that communicate together (a communicator).
enum class GroupId : std::int32_t {};
/// A stage of the model: consecutive layers scheduled, stored or sent together. A weight pipeline's
/// stage is its shard.
enum class StageId : std::int32_t {};
/// A set of parameters: what a buffer holds, or a communication carries.
enum class PiecesId : std::int32_t {};
/// What each member of a collective contributes or keeps.
enum class SplitId : std::int32_t {};
/// A lane of a rank: an in-order queue. Lane 0 computes; others come from ScheduleBuilder::lane.
enum class LaneId : std::uint8_t {};

/// The "no such id" of any kind.
template <class Id>
inline constexpr Id none = Id{-1};

template <class Id>
concept IdType = std::is_enum_v<Id> &&(std::same_as<std::underlying_type_t<Id>, std::int32_t> || std::same_as<Id, LaneId>);

/// The id as an index into a vector.
template <IdType Id>
constexpr std::size_t index(Id id) {
  return static_cast<std::size_t>(static_cast<std::int32_t>(id));
}

/// The id as a signed number, for arithmetic and printing.
template <IdType Id>
constexpr std::int32_t number(Id id) {
  return static_cast<std::int32_t>(id);
}

/// An index as an id.
template <IdType Id>
constexpr Id id(std::integral auto value) {
  return static_cast<Id>(static_cast<std::int32_t>(value));
}

}  // namespace tawpipe
