// Defaults for values that a schedule's JSON leaves out: shared by its writer and its reader.
// Not: public; report/schedule_json.hpp is the public interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedule/op_traits.hpp"
#include "tawpipe/schedule/task.hpp"

namespace tawpipe::inline v0::detail {

inline constexpr std::int64_t max_json_ranks = 1 << 20;
inline constexpr std::int64_t max_json_stages = 1 << 17;
inline constexpr std::int64_t max_json_lanes = 255;
inline constexpr std::int64_t max_json_programs = 1 << 24;  ///< ranks times lanes
inline constexpr std::int64_t max_json_microbatches = (std::int64_t{1} << 31) - 2;
/// of one buffer or message
inline constexpr std::int64_t max_json_bytes = 4'000'000'000'000'000'000;
inline constexpr Bytes max_json_message{std::int64_t{1} << 50};
inline constexpr std::int64_t max_json_parameters = 1'000'000'000'000'000;  ///< of all stages
inline constexpr std::int64_t max_json_share = 1 << 24;
/// ends of tasks: validated in a few seconds
inline constexpr std::size_t max_json_program_items = std::size_t{1} << 24;

/// Whether a task of this kind may name parameters: a communication those it carries, a backward
/// those whose gradient it leaves.
constexpr bool has_split(Op op) { return !is_local(op) || leaves_gradients(op); }

/// The lane of a task by default: computation on the first, communication on the second if there is
/// one.
constexpr LaneId default_lane(Op op, std::size_t lanes) { return LaneId{!is_compute(op) && lanes > 1}; }

/// The size of what a task carries by default: that of its stage, or of the first stage for
/// activations.
inline Bytes default_bytes(const Task& task, std::span<const StageWork> stages, const Workload& workload) {
  const ParameterBytes& bytes = workload.parameter_bytes();
  const StageWork* const stage = task.stage == none<StageId> ? nullptr : &stages[index(task.stage)];
  const std::int64_t parameters = stage == nullptr ? 0 : stage->parameters + stage->edge_parameters;
  if (task.op == Op::update) return Bytes{parameters * (bytes.weight + bytes.gradient + bytes.optimizer)};
  switch (task.payload) {
    case Payload::nothing:
      return Bytes{};
    case Payload::weights:
      return Bytes{parameters * bytes.weight};
    case Payload::gradients:
      return Bytes{parameters * bytes.gradient};
    case Payload::activations:
    case Payload::activation_gradients:
      return stage != nullptr ? stage->boundary : stages.empty() ? Bytes{} : stages.front().boundary;
    case Payload::edge_gradients:
      return Bytes{workload.edge_parameters() * bytes.gradient};
    case Payload::scalar:
      return Bytes{4};
    case Payload::optimizer_states:
      return Bytes{parameters * bytes.optimizer};
  }
  return Bytes{};  // unreachable: every enumerator returns above
}

/// Visits the plain numbers of a stage by their keys, in the order of the file:
/// `visit(key, number)`.
template <class Stage, class Visit>
void for_each_stage_number(Stage& stage, Visit&& visit) {
  visit("parameters", stage.parameters);
  visit("edge_parameters", stage.edge_parameters);
  visit("saved", stage.saved);
  visit("stash", stage.stash);
  visit("boundary", stage.boundary);
  visit("forward_workspace", stage.forward_workspace);
  visit("backward_workspace", stage.backward_workspace);
  visit("stashed_workspace", stage.stashed_workspace);
  visit("forward", stage.forward);
  visit("recompute", stage.recompute);
  visit("backward_input", stage.backward_input);
  visit("backward_weight", stage.backward_weight);
  visit("forward_traffic", stage.forward_traffic);
  visit("backward_traffic", stage.backward_traffic);
}

/// The key of an access in a task's uses.
constexpr std::string_view access_key(Access access) {
  constexpr std::string_view keys[] = {"read", "write", "read_write", "accumulate"};
  return keys[static_cast<int>(access)];
}
inline constexpr int accesses = 4;

}  // namespace tawpipe::detail
