// Structural findings (V1xx): ids, sizes, lanes and programs fit together, so that the other checks
// may index freely.
// Not: what the schedule computes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Checks parts of unknown origin: never uses an id as an index before it has checked the id's
/// range.
class StructureCheck {
 public:
  StructureCheck(const Schedule& schedule, Diagnostics& out) : schedule_{schedule}, parts_{schedule.parts()}, out_{out} {}

  void run() {
    const std::size_t errors = out_.errors();
    sizes();
    if (out_.errors() != errors) return;
    stages();
    groups();
    buffers();
    for (std::size_t t = 0; t < parts_.tasks.size(); ++t) task(id<TaskId>(t));
    if (out_.errors() != errors) return;
    uses();
    programs();
    buckets();
  }

 private:
  bool is_rank(Rank rank) const { return number(rank) >= 0 && number(rank) < parts_.ranks; }
  static constexpr std::int64_t max_bytes = std::int64_t{1} << 50;
  /// Small enough that sums of them do not overflow.
  static bool is_size(Bytes bytes) { return bytes >= Bytes{} && bytes <= Bytes{max_bytes}; }
  template <class Id>
  static bool below(Id id, std::size_t size) {
    return number(id) >= 0 && index(id) < size;
  }
  template <class Message>
  void error(std::string_view code, TaskId task, Rank rank, Message&& message, std::string_view help) {
    out_.error(code, task, rank, message, help);
  }

  template <class T>
  void rows(std::string_view what, const Rows<T>& rows, std::size_t expected) {
    const auto& begins = rows.begins();
    if (rows.size() != expected) {
      error(
          "V101", none<TaskId>, none<Rank>, [&] { return concat(what, " has ", rows.size(), " rows instead of ", expected); },
          "give one row each, empty where there is nothing");
      return;
    }
    bool fits = begins.empty() || (begins.front() == 0 && begins.back() == rows.items().size());
    for (std::size_t i = 1; i < begins.size(); ++i) fits = fits && begins[i - 1] <= begins[i];
    if (fits) return;
    error(
        "V101", none<TaskId>, none<Rank>,
        [&] { return concat("the rows of ", what, " do not cover its items one after another"); },
        "row offsets start at 0, never fall and end at the number of items");
  }

  void sizes() {
    constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();
    if (parts_.ranks < 1 || parts_.lanes.empty() || parts_.lanes.size() > 255) {
      error(
          "V101", none<TaskId>, none<Rank>,
          [&] { return concat("a schedule of ", parts_.ranks, " ranks and ", parts_.lanes.size(), " lanes is impossible"); },
          "a schedule has at least one rank, and 1 to 255 lanes");
      return;
    }
    if (parts_.tasks.size() > most || parts_.buffers.size() > most || parts_.stages.size() > most) {
      error(
          "V101", none<TaskId>, none<Rank>, [] { return std::string{"there are more tasks, buffers or stages than ids"}; },
          "cut the iteration into several");
      return;
    }
    try {
      parts_.mesh.over(parts_.ranks);
    } catch (const InputError& error) {
      this->error(
          "V101", none<TaskId>, none<Rank>, [&] { return std::string{error.what()}; },
          "let tensor, context, expert and data parallelism divide the ranks");
    }
    const Workload& workload = schedule_.workload();
    if (parts_.mesh.whole_experts && (workload.is_abstract() || !workload.model().has_experts())) {
      error(
          "V101", none<TaskId>, none<Rank>, [] { return std::string{"ranks have whole experts of a model without experts"}; },
          "leave whole_experts out, or name the model's experts");
      return;
    }
    rows("dependencies", parts_.dependencies, parts_.tasks.size());
    rows("uses", parts_.uses, parts_.tasks.size());
    rows("program", parts_.program, static_cast<std::size_t>(parts_.ranks) * parts_.lanes.size());
    rows("groups", parts_.groups, parts_.groups.size());
    rows("pair_sizes", parts_.pair_sizes, parts_.pair_sizes.size());
  }

  /// Stages have the model's layers in order, each layer once; the first has the first edge and the
  /// last the last edge.
  void stages() {
    if (schedule_.workload().is_abstract()) return;
    const std::size_t count = parts_.stages.size();
    std::int64_t layers = 0;
    for (std::size_t s = 0; s < count; ++s) {
      const StageWork& stage = parts_.stages[s];
      const bool follows = stage.first_layer == layers && stage.layers >= 0;
      layers += stage.layers;
      const bool ends = s + 1 < count || layers == schedule_.workload().model().layers;
      if (follows && ends && stage.first_edge == (s == 0) && stage.last_edge == (s + 1 == count)) continue;
      error(
          "V113", none<TaskId>, none<Rank>,
          [&] {
            return concat("stage ", s, " has ", stage.layers, " layers from layer ", stage.first_layer, " on",
                          stage.first_edge ? ", the first edge" : "", stage.last_edge ? ", the last edge" : "",
                          ", and the model's ", schedule_.workload().model().layers,
                          " layers are not those of the stages in order");
          },
          "let the stages cover the model once: the first with the first edge, the last with the last edge");
      return;
    }
  }

  void groups() {
    for (std::size_t g = 0; g < parts_.groups.size(); ++g) {
      const auto members = parts_.groups[g];
      sorted_.assign(members.begin(), members.end());
      ascending_.push_back(std::is_sorted(sorted_.begin(), sorted_.end()));
      if (!ascending_.back()) std::sort(sorted_.begin(), sorted_.end());
      const bool distinct = std::adjacent_find(sorted_.begin(), sorted_.end()) == sorted_.end();
      if (members.empty() || !distinct || !is_rank(sorted_.front()) || !is_rank(sorted_.back())) {
        error(
            "V106", none<TaskId>, none<Rank>,
            [&] {
              return concat("group ", g,
                            members.empty() ? " is empty"
                            : distinct      ? " names a rank that does not exist"
                                            : " names a rank twice");
            },
            "list each member of a group once, 0 to the number of ranks - 1");
      }
    }
  }

  void buffers() {
    for (std::size_t b = 0; b < parts_.buffers.size(); ++b) {
      const Buffer& buffer = parts_.buffers[b];
      const bool stage_fits = buffer.stage() == none<StageId> || below(buffer.stage(), parts_.stages.size());
      if (!is_rank(buffer.rank) || !stage_fits || static_cast<int>(buffer.content.kind()) >= content_kinds) {
        error(
            "V102", none<TaskId>, buffer.rank,
            [&] { return concat("buffer ", b, " names a rank, stage or kind that does not exist"); },
            "ranks and stages count from 0; stage -1 means none");
      }
      if (buffer.content.microbatch() >= schedule_.workload().microbatches()) {
        error(
            "V111", none<TaskId>, buffer.rank,
            [&] { return concat("buffer ", b, " holds activations of microbatch ", buffer.content.microbatch()); },
            "microbatches count from 0 up to their number - 1");
      }
      if (!is_size(buffer.bytes)) {
        error(
            "V110", none<TaskId>, buffer.rank, [&] { return concat("buffer ", b, " has ", buffer.bytes.value(), " bytes"); },
            "sizes are 0 or more, and at most 1 PiB");
      }
    }
  }

  void missing(TaskId id, std::string_view what) {
    error(
        "V102", id, none<Rank>,
        [&] { return concat(describe(parts_.tasks[index(id)], id), " names ", what, " that does not exist"); },
        "ids count from 0 up to the number of such things - 1");
  }

  void task(TaskId id) {
    const Task& task = parts_.tasks[index(id)];
    if (static_cast<int>(task.op) >= ops || static_cast<int>(task.payload) >= payloads) return missing(id, "an op or a payload");
    if (!is_rank(task.rank)) return missing(id, "a rank");
    for (const TaskId earlier : parts_.dependencies[index(id)]) {
      if (!below(earlier, parts_.tasks.size())) return missing(id, "a dependency");
    }
    if (is_point_to_point(task.op) && !is_rank(task.peer)) return missing(id, "a peer");
    if (is_collective(task.op) && !below(task.group, parts_.groups.size())) return missing(id, "a group");
    const std::size_t lanes = parts_.lanes.size();
    if (index(task.lane) >= lanes || (is_point_to_point(task.op) && index(task.peer_lane) >= lanes)) {
      error(
          "V105", id, task.rank, [&] { return concat(describe(task, id), " is on a lane that does not exist"); },
          "lanes count from 0 up to the number of names in `lanes` - 1");
    }
    if (is_point_to_point(task.op) && task.rank == task.peer) {
      error(
          "V107", id, task.rank, [&] { return concat(describe(task, id), " has one rank at both ends"); },
          "use the buffer where it is, or name another peer");
    }
    if (is_collective(task.op)) {
      const auto members = parts_.groups[index(task.group)];
      if (std::find(members.begin(), members.end(), task.rank) == members.end()) {
        error(
            "V108", id, task.rank, [&] { return concat(describe(task, id), " names a rank that is not a member of its group"); },
            "the root (or first member) is one of the group");
      }
    }
    if (task.bytes.repeat() < 1 || (is_local(task.op) && task.bytes.repeat() != 1)) {
      error(
          "V110", id, task.rank, [&] { return concat(describe(task, id), " is repeated ", task.bytes.repeat(), " times"); },
          "a message between ranks is there once or more, a computation or host copy once");
    } else if (!is_size(task.bytes) || task.bytes.value() > max_bytes / task.bytes.repeat()) {
      error(
          "V110", id, task.rank, [&] { return concat(describe(task, id), " moves ", task.bytes.value(), " bytes"); },
          "sizes are 0 or more, and at most 1 PiB");
    }
    if (is_all_pairs(task.op) && task.split != none<SplitId>) pair_sizes(id);
    const bool needs_both = is_stage_work(task.op);
    const bool stage_fits = below(task.stage, parts_.stages.size()) || (!needs_both && task.stage == none<StageId>);
    const bool microbatch_fits =
        task.microbatch < schedule_.workload().microbatches() && task.microbatch >= (needs_both ? 0 : -1);
    if (!stage_fits || !microbatch_fits) {
      error(
          "V111", id, task.rank,
          [&] {
            return concat(describe(task, id), " is of a stage or microbatch that the iteration does not have (",
                          parts_.stages.size(), " stages, ", schedule_.workload().microbatches(), " microbatches)");
          },
          "both count from 0; a forward or backward needs both");
    }
  }

  /// There is a size for each pair of members.
  void pair_sizes(TaskId id) {
    const Task& task = parts_.tasks[index(id)];
    if (!below(task.split, parts_.pair_sizes.size())) return missing(id, "a list of sizes");
    const auto sizes = parts_.pair_sizes[index(task.split)];
    const std::size_t members = parts_.groups[index(task.group)].size();
    if (sizes.size() == members * members && std::all_of(sizes.begin(), sizes.end(), is_size)) return;
    error(
        "V110", id, task.rank,
        [&] {
          return concat(describe(task, id), " has ", sizes.size(), " sizes for ", members, " members, or one that cannot be");
        },
        "give a size for each pair of members, 0 or more and at most 1 PiB");
  }

  bool has_end(const Task& task, Rank rank) const {
    if (!is_collective(task.op)) return rank == task.rank || (is_point_to_point(task.op) && rank == task.peer);
    const auto members = parts_.groups[index(task.group)];
    if (ascending_[index(task.group)]) return std::binary_search(members.begin(), members.end(), rank);
    return std::find(members.begin(), members.end(), rank) != members.end();
  }

  void uses() {
    for (std::size_t t = 0; t < parts_.tasks.size(); ++t) {
      for (const Use& use : parts_.uses[t]) {
        if (!below(use.buffer, parts_.buffers.size()) || static_cast<int>(use.access) > static_cast<int>(Access::accumulate)) {
          missing(id<TaskId>(t), "a buffer or an access");
          continue;
        }
        const Buffer& buffer = parts_.buffers[index(use.buffer)];
        const Rank rank = buffer.rank;
        if (buffer.host && !is_host_copy(parts_.tasks[t].op)) {
          error(
              "V114", id<TaskId>(t), rank,
              [&] {
                return concat(describe(parts_.tasks[t], id<TaskId>(t)), " uses ", describe(schedule_, use.buffer),
                              ", which lies in host memory");
              },
              "copy it into a buffer of the device first: only copies to and from the host use host memory");
        }
        if (has_end(parts_.tasks[t], rank)) continue;
        error(
            "V109", id<TaskId>(t), rank,
            [&] {
              return concat(describe(parts_.tasks[t], id<TaskId>(t)), " uses ", describe(schedule_, use.buffer),
                            ", which takes no part in it");
            },
            "name a buffer of one of the task's own ranks");
      }
    }
  }

  /// Messages of some of a stage's layers, in the order of their ids.
  void buckets() {
    std::int64_t last = -1;
    for (const Bucket& bucket : parts_.buckets) {
      const bool exists = below(bucket.message, parts_.tasks.size()) && number(bucket.message) > last;
      last = number(bucket.message);
      if (exists && is_collective(parts_.tasks[index(bucket.message)].op)) continue;
      error(
          "V102", none<TaskId>, none<Rank>,
          [&] { return concat("a bucket names task ", number(bucket.message), ", which is no collective, or not in order"); },
          "buckets name collectives, in the order of their ids");
    }
  }

  /// Each task exactly once in the program of each of its ends.
  void programs() {
    const std::size_t lanes = parts_.lanes.size();
    std::vector<std::int64_t> last_row(parts_.tasks.size(), -1);
    std::vector<std::uint32_t> seen(parts_.tasks.size(), 0);
    for (std::size_t row = 0; row < parts_.program.size(); ++row) {
      const Rank rank = id<Rank>(row / lanes);
      for (const TaskId t : parts_.program[row]) {
        if (!below(t, parts_.tasks.size())) {
          error(
              "V102", none<TaskId>, rank,
              [&] { return concat("the program of rank ", number(rank), " names task ", number(t), ", which does not exist"); },
              "ids count from 0 up to the number of tasks - 1");
          continue;
        }
        const Task& task = parts_.tasks[index(t)];
        const bool twice = last_row[index(t)] == static_cast<std::int64_t>(row);
        if (!has_end(task, rank) || schedule_.lane_on(t, rank) != static_cast<int>(row % lanes) || twice) {
          error(
              "V104", t, rank,
              [&] {
                return concat(describe(task, t), twice ? " stands twice" : " does not belong", " in lane ",
                              parts_.lanes[row % lanes], " of rank ", number(rank));
              },
              "a task stands once in the lane of each of its ends, and nowhere else");
          continue;
        }
        last_row[index(t)] = static_cast<std::int64_t>(row);
        ++seen[index(t)];
      }
    }
    for (std::size_t t = 0; t < parts_.tasks.size(); ++t) {
      const Task& task = parts_.tasks[t];
      if (seen[t] != number_of_ends(schedule_, task)) absent(id<TaskId>(t));
    }
  }

  void absent(TaskId t) {
    for_each_end(schedule_, t, [&](Rank rank, int lane) {
      const auto program = schedule_.program(rank, lane);
      if (std::find(program.begin(), program.end(), t) != program.end()) return;
      error(
          "V103", t, rank,
          [&] {
            return concat(describe(schedule_, t), " is missing in lane ", parts_.lanes[static_cast<std::size_t>(lane)],
                          " of rank ", number(rank),
                          is_local(schedule_.task(t).op) ? "" : "; the other ends would wait for it forever");
          },
          "add the task to that program, or take it away everywhere");
    });
  }

  const Schedule& schedule_;
  const Schedule::Parts& parts_;
  Diagnostics& out_;
  std::vector<Rank> sorted_;
  std::vector<bool> ascending_;  // of each group's members
};

}  // namespace detail

/// Adds findings about the structure of `schedule`, whatever its parts hold. The other checks need
/// a schedule without such findings. Complexity: O(parts), times the logarithm of a group's size
/// for collectives (its size where members do not ascend).
inline void check_structure(const Schedule& schedule, Diagnostics& out) { detail::StructureCheck{schedule, out}.run(); }

}  // namespace tawpipe
