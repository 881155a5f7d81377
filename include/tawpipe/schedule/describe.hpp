// Tasks, buffers and parameters in words, for findings. Safe for tasks that are not well formed.
// Not: labels in pictures (report/).
#pragma once

#include <string>
#include <string_view>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

inline std::string_view op_name(Op op) { return static_cast<int>(op) < ops ? name(op) : std::string_view{"unknown op"}; }

inline std::string_view payload_name(Payload payload) {
  return static_cast<int>(payload) < payloads ? name(payload) : std::string_view{"unknown payload"};
}

/// "backward of stage 3, microbatch 5, on rank 2 (task 77)", "pass of weights, stage 3, rank 0 -> 4
/// (task 88)".
TAWPIPE_INLINE std::string describe(const Task& task, TaskId id);

inline std::string describe(const Schedule& schedule, TaskId id) { return describe(schedule.task(id), id); }

/// "transfer buffer 12 of stage 3 on rank 2".
TAWPIPE_INLINE std::string describe(const Schedule& schedule, BufferId id);

/// "layer.3 (parameters 512 to 639)"; without a model "parameters 512 to 639".
/// @pre 0 <= range.begin < range.end, all of the model's parameters or all padding
TAWPIPE_INLINE std::string describe(const Schedule& schedule, const ParameterRange& range);

/// The place of a rank on a mesh, " (tensor 1, pipeline 0, data 1)", each from 0; "" if there is no mesh.
inline std::string place_text(const Mesh& mesh, Rank rank) {
  if (mesh.is_plain()) return {};
  std::string text;
  for (int a = 0; a < mesh_axes; ++a) {
    const auto axis = static_cast<MeshAxis>(a);
    if (mesh.size(axis) > 1) text += concat(text.empty() ? "" : ", ", name(axis), " ", mesh.place(rank)[axis]);
  }
  return concat(" (", text, ")");
}

}  // namespace tawpipe::detail

#if TAWPIPE_BODIES
namespace tawpipe::inline v0::detail {

TAWPIPE_INLINE std::string describe(const Task& task, TaskId id) {
  std::string out{op_name(task.op)};
  if (!is_compute(task.op)) out += concat(" of ", payload_name(task.payload));
  const bool comma = !is_compute(task.op);
  if (task.stage != none<StageId>) out += concat(comma ? ", stage " : " of stage ", number(task.stage));
  if (task.microbatch >= 0) out += concat(", microbatch ", task.microbatch);
  if (is_point_to_point(task.op)) {
    out += concat(", rank ", number(task.rank), goes_both_ways(task.op) ? " <-> " : " -> ", number(task.peer));
  } else if (is_collective(task.op)) {
    out += concat(", group ", number(task.group), is_rooted(task.op) ? " from root rank " : " with rank ", number(task.rank));
  } else {
    out += concat(", on rank ", number(task.rank));
  }
  return concat(out, " (task ", number(id), ")");
}

TAWPIPE_INLINE std::string describe(const Schedule& schedule, BufferId id) {
  const Buffer& buffer = schedule.buffer(id);
  std::string out = concat(buffer.host ? "host " : "", name(buffer.kind()), " buffer ", number(id));
  if (buffer.stage() != none<StageId>) out += concat(" of stage ", number(buffer.stage()));
  return concat(out, " on rank ", number(buffer.rank));
}

TAWPIPE_INLINE std::string describe(const Schedule& schedule, const ParameterRange& range) {
  if (schedule.is_padding(range)) return concat("padding (numbers ", range.begin, " to ", range.end - 1, ")");
  const std::string numbers = concat("parameters ", range.begin, " to ", range.end - 1);
  if (schedule.workload().is_abstract()) return numbers;
  return concat(schedule.workload().model().blocks().name(range), " (", numbers, ")");
}

}  // namespace tawpipe::detail
#endif
