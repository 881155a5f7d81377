// A schedule as a graph for Graphviz (dot): for viewing small ones.
// Not: the times of its tasks (report/chrome_trace.hpp).
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

struct DotOptions {
  std::size_t max_tasks = 500;  ///< beyond it dot takes minutes, and the picture is unreadable
  bool program_order = true;    ///< a dashed edge between neighbours in a lane
};

namespace detail {

class DotWriter {
 public:
  DotWriter(const Schedule& schedule, const DotOptions& options) : schedule_{schedule}, options_{options} {}

  std::string write() {
    add("digraph {} {{\n  rankdir=LR;\n  compound=true;\n", quoted(schedule_.name()));
    add("  node [shape=box, style=filled, fontname=\"Helvetica\", fontsize=10];\n  edge [arrowsize=0.6];\n");
    for (int rank = 0; rank < schedule_.ranks(); ++rank) add_rank(Rank{rank});
    for (std::size_t t = 0; t < schedule_.tasks().size(); ++t) {
      join_ends(id<TaskId>(t));
      for (const TaskId earlier : schedule_.dependencies(id<TaskId>(t))) add_dependency(earlier, id<TaskId>(t));
    }
    add("}}\n");
    return std::move(out_);
  }

 private:
  template <class... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Values>(values)...);
  }

  /// In DOT's quotes: only '"' and '\' are special there; control characters become '?'.
  static std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char c : one_line(std::string{text})) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out + '"';
  }

  void add_rank(Rank rank) {
    add("  subgraph \"cluster_{}\" {{\n    label=\"rank {}\";\n", number(rank), number(rank));
    for (std::size_t lane = 0; lane < schedule_.lanes().size(); ++lane) {
      const auto program = schedule_.program(rank, static_cast<int>(lane));
      if (program.empty()) continue;
      add("    subgraph \"cluster_{}_{}\" {{\n      label={};\n      style=dotted;\n", number(rank), lane,
          quoted(schedule_.lanes()[lane]));
      for (const TaskId task : program) add_node(task, rank);
      if (options_.program_order) {
        for (std::size_t i = 1; i < program.size(); ++i) {
          add("      ");
          add_end(program[i - 1], rank);
          add(" -> ");
          add_end(program[i], rank);
          add(" [style=dashed, color=gray60];\n");
        }
      }
      add("    }}\n");
    }
    add("  }}\n");
  }

  /// The node of a task on one rank: every end and member has its own.
  void add_end(TaskId task, Rank rank) { add("t{}r{}", number(task), number(rank)); }

  void add_node(TaskId id, Rank rank) {
    const Task& task = schedule_.task(id);
    add("      ");
    add_end(id, rank);
    add(" [label=\"{}: {}", number(id), name(task.op));
    if (task.payload != Payload::nothing) add("\\n{}", name(task.payload));
    if (task.stage != none<StageId> || task.microbatch >= 0) add("\\n");
    if (task.stage != none<StageId>) add("stage {}", number(task.stage));
    if (task.microbatch >= 0) add("{}microbatch {}", task.stage != none<StageId> ? ", " : "", task.microbatch);
    add("\", fillcolor=\"{}\"];\n", traits(task.op).colors.picture);
  }

  /// A pass as an arrow between its ends, an exchange as a double one; members of a collective by
  /// lines to its root.
  void join_ends(TaskId id) {
    const Task& task = schedule_.task(id);
    if (is_compute(task.op)) return;
    const std::string_view arrow = !is_point_to_point(task.op) ? "none" : goes_both_ways(task.op) ? "both" : "forward";
    for_each_end(schedule_, id, [&](Rank rank, int) {
      if (rank == task.rank) return;
      add("  ");
      add_end(id, task.rank);
      add(" -> ");
      add_end(id, rank);
      add(" [dir={}, penwidth=2, color=\"{}\", constraint=false];\n", arrow, traits(task.op).colors.picture);
    });
  }

  /// Between ends on the same rank if possible, so that the edge is short.
  void add_dependency(TaskId from, TaskId to) {
    Rank from_rank = schedule_.task(from).rank;
    Rank to_rank = schedule_.task(to).rank;
    bool found = false;
    for_each_end(schedule_, from, [&](Rank a, int) {
      if (found) return;
      for_each_end(schedule_, to, [&](Rank b, int) {
        if (found || a != b) return;
        from_rank = to_rank = a;
        found = true;
      });
    });
    add("  ");
    add_end(from, from_rank);
    add(" -> ");
    add_end(to, to_rank);
    add(";\n");
  }

  const Schedule& schedule_;
  const DotOptions& options_;
  std::string out_;
};

}  // namespace detail

/// The schedule in Graphviz's language: a box for each end of each task, coloured by op, in a frame
/// for each rank and lane; dependencies as arrows, the order of each lane dashed, the ends of a
/// transfer or collective connected by a thick line.
///
/// Assumes a schedule without structural findings (check_structure()).
/// @throws InputError  if it has more tasks than the options allow.
/// Complexity: O(ends of all tasks + dependencies); for dependencies between collectives, times
/// their members.
/// Example: `dot -Tsvg schedule.dot > schedule.svg`
inline std::string schedule_dot(const Schedule& schedule, const DotOptions& options = {}) {
  if (schedule.tasks().size() > options.max_tasks) {
    throw InputError(concat("the schedule has ", schedule.tasks().size(), " tasks, and a graph of more than ", options.max_tasks,
                            " cannot be looked at; choose fewer microbatches or ranks, or raise the limit"));
  }
  return detail::DotWriter{schedule, options}.write();
}

}  // namespace tawpipe
