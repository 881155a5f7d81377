// A timeline as a picture in the style of the papers: a row of cells for each rank, with transfers
// below.
// Not: the zoomable page (report/html_report.hpp), nor the file's bytes (report/drawing.hpp).
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/drawing.hpp"
#include "tawpipe/schedule/check_devices.hpp"
#include "tawpipe/schedule/op_traits.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/check_timeline.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

struct GanttOptions {
  /// names each rank's node; at least as many ranks as the schedule
  const Cluster* cluster = nullptr;
  std::string title{};             ///< above the picture; "": the schedule's name
  std::size_t max_tasks = 20'000;  ///< the limit for a readable picture
};

namespace detail {

/// Seconds, exact to the picosecond: "1.5".
inline std::string exact_seconds(TimePoint time) {
  const std::int64_t picoseconds = time.picoseconds();
  const auto magnitude =
      picoseconds < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(picoseconds) : static_cast<std::uint64_t>(picoseconds);
  std::string text =
      fmt::format("{}{}.{:012}", picoseconds < 0 ? "-" : "", magnitude / 1'000'000'000'000, magnitude % 1'000'000'000'000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

class GanttDrawer {
 public:
  GanttDrawer(const Schedule& schedule, const Timeline& timeline, const GanttOptions& options)
      : schedule_{schedule}, timeline_{timeline}, options_{options} {
    begin_ = std::numeric_limits<std::int64_t>::max();
    std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
    std::vector<std::set<StageId>> stages(static_cast<std::size_t>(schedule.ranks()));
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      const Task& task = schedule.tasks()[t];
      begin_ = std::min(begin_, timeline.start[t].picoseconds());
      end_ = std::max(end_, timeline.end[t].picoseconds());
      if (is_compute(task.op)) {
        if (is_stage_work(task.op)) shortest = std::min(shortest, length(t));
        if (is_work(task.op) && task.stage != none<StageId>) stages[index(task.rank)].insert(task.stage);
      } else {
        seen_.insert(task.payload);
        moves_weights_ = moves_weights_ || task.payload == Payload::weights;
      }
    }
    for (const auto& of_rank : stages) max_stages_ = std::max(max_stages_, of_rank.size());
    if (begin_ > end_) begin_ = end_ = 0;
    const double makespan = static_cast<double>(std::max<std::int64_t>(end_ - begin_, 1));
    const double cells = makespan / static_cast<double>(std::clamp<std::int64_t>(shortest, 1, end_ - begin_ + 1));
    width_ = std::clamp(cells * 22, 320.0, 1600.0);
    scale_ = width_ / makespan;
  }

  Drawing draw() {
    const double top = 34;
    drawing_.title = options_.title.empty() ? schedule_.name() : options_.title;
    drawing_.words(12, 20, printable(drawing_.title), 13);
    double y = top;
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      if (rank > 0 && node_of(rank) != node_of(rank - 1)) {
        y += 5;
        drawing_.line({12, y - 3, left + width_, y - 3}, "#b0b4ba", 1, true);
      }
      rows_.push_back(y);
      y += row_height + (seen_.empty() ? 0 : strip_height) + 3;
    }
    for (int rank = 0; rank < schedule_.ranks(); ++rank) add_row(rank);
    for (std::size_t t = 0; t < schedule_.tasks().size(); ++t) add_task(id<TaskId>(t));
    add_axis(y);
    add_key(y + 40);
    drawing_.width = left + width_ + 24;
    drawing_.height = y + 54;
    return std::move(drawing_);
  }

 private:
  static constexpr double left = 64;
  static constexpr double row_height = 24;
  static constexpr double strip_height = 7;

  std::int64_t length(std::size_t task) const { return (timeline_.end[task] - timeline_.start[task]).value(); }
  double x(TimePoint time) const { return left + static_cast<double>(time.picoseconds() - begin_) * scale_; }
  int node_of(int rank) const { return options_.cluster != nullptr ? number(options_.cluster->node_of(Rank{rank})) : 0; }

  void add_row(int rank) {
    const double y = rows_[static_cast<std::size_t>(rank)];
    drawing_.box(left, y, width_, row_height, "#eef0f2");
    drawing_.words(left - 8, y + 16, fmt::format("P{}", rank), 11, TextAnchor::end);
    if (options_.cluster != nullptr && options_.cluster->nodes() > 1 && (rank == 0 || node_of(rank) != node_of(rank - 1))) {
      drawing_.words(10, y + 16, fmt::format("n{}", node_of(rank)), 10, TextAnchor::start, "#5c6066");
    }
  }

  void add_task(TaskId task) {
    const Task& one = schedule_.task(task);
    if (is_compute(one.op)) return add_cell(task, one);
    for_each_end(schedule_, task, [&](Rank rank, int) { add_message(task, one, rank); });
  }

  /// A cell with its microbatch, and, if a rank has several stages, the stage below it.
  void add_cell(TaskId task, const Task& one) {
    const double from = x(timeline_.start_of(task));
    const double wide = x(timeline_.end_of(task)) - from;
    if (wide <= 0 || one.op == Op::idle) return;
    const double y = rows_[index(one.rank)];
    const bool has_stage = one.stage != none<StageId>;
    drawing_.box(from + 0.5, y + 0.5, std::max(wide - 1, 0.3), row_height - 1, traits(one.op).colors.page,
                 fmt::format("rank={} op={} stage={} microbatch={} start={} end={}", number(one.rank), name(one.op),
                             has_stage ? number(one.stage) : -1, one.microbatch, exact_seconds(timeline_.start_of(task)),
                             exact_seconds(timeline_.end_of(task))));
    computed_.insert(one.op);
    if (wide < 11 || one.microbatch < 0) return;
    const bool two = max_stages_ > 1 && has_stage && wide >= 17;
    drawing_.words(from + wide / 2, y + (two ? 11.5 : 16), std::to_string(one.microbatch), two ? 10.5 : 11, TextAnchor::middle);
    if (two) {
      drawing_.words(from + wide / 2, y + 21, fmt::format("{}{}", moves_weights_ ? "W" : "s", number(one.stage)), 8,
                     TextAnchor::middle);
    }
  }

  /// A bar below the row; one without duration is a mark: down for arrivals, up for departures, a
  /// diamond for a collective.
  void add_message(TaskId task, const Task& one, Rank rank) {
    const std::string_view color = traits(one.payload).page_color;
    const double from = x(timeline_.start_of(task));
    const double wide = x(timeline_.end_of(task)) - from;
    const double y = rows_[index(rank)] + row_height + 1;
    if (wide >= 1) return drawing_.box(from, y, wide, strip_height - 2, color);
    const double at = std::clamp(from, left, left + width_);
    if (is_collective(one.op)) {
      drawing_.area({at, y - 0.5, at + 3, y + 2.5, at, y + 5.5, at - 3, y + 2.5}, color);
    } else if (rank == one.rank) {
      drawing_.area({at - 3, y + 5, at + 3, y + 5, at, y}, color);
    } else {
      drawing_.area({at - 3, y, at + 3, y, at, y + 5}, color);
    }
  }

  /// "5.00 s" as "5 s".
  static std::string rounded(std::string text) {
    const std::size_t point = text.find('.');
    const std::size_t space = text.find(' ');
    if (point == std::string::npos || space < point) return text;
    const std::size_t last = text.find_last_not_of('0', space - 1);
    return text.erase(last == point ? point : last + 1, space - (last == point ? point : last + 1));
  }

  void add_axis(double y) {
    const double makespan = static_cast<double>(end_ - begin_);
    drawing_.line({left, y + 2, left + width_, y + 2}, "#5c6066");
    const double rough = std::pow(10, std::floor(std::log10(std::max(makespan, 1.0) / 8)));
    double step = rough;
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
      step = factor * rough;
      if (makespan / step <= 12) break;
    }
    for (double at = 0; at <= makespan * (1 + 1e-9); at += step) {
      const double place = left + at * scale_;
      drawing_.line({place, y + 2, place, y + 6}, "#5c6066");
      drawing_.words(place, y + 17, rounded(format_duration(Duration{static_cast<std::int64_t>(at)})), 9, TextAnchor::middle,
                     "#5c6066");
    }
  }

  void add_key(double y) {
    double at = left;
    std::set<std::string_view> named;
    const auto add = [&](std::string_view color, std::string_view text) {
      if (!named.insert(text).second) return;
      drawing_.box(at, y - 8, 9, 9, color);
      std::string label{text};
      std::replace(label.begin(), label.end(), '_', ' ');
      drawing_.words(at + 13, y, label, 10);
      at += 24 + 5.4 * static_cast<double>(label.size());
    };
    for (const Op op : computed_) add(traits(op).colors.page, name(op));
    for (const Payload payload : seen_) {
      if (payload != Payload::nothing) add(traits(payload).page_color, name(payload));
    }
    width_ = std::max(width_, at - left - 12);
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  const GanttOptions& options_;
  std::int64_t begin_ = 0;
  std::int64_t end_ = 0;
  double width_ = 0;  ///< of the longest row
  double scale_ = 0;  ///< points a picosecond
  bool moves_weights_ = false;
  std::size_t max_stages_ = 0;  ///< of any rank
  std::set<Op> computed_;       ///< ops that have a cell
  std::set<Payload> seen_;      ///< of communications
  std::vector<double> rows_;    ///< [rank] y
  Drawing drawing_;
};

}  // namespace detail

/// The timeline as a picture: ranks from top to bottom, time to the right; for each computation a
/// cell with its microbatch, whose data has rank, op, stage, microbatch, start and end (seconds,
/// exact).
/// @throws InputError  if the timeline has a different number of tasks, the cluster has fewer ranks
/// than the schedule, or there are more than options.max_tasks tasks.
/// Complexity: O(ends and members of all tasks).
/// Source: the style of figure 3 of arXiv:2511.09741 and of the pipelines in arXiv:2104.04473.
/// Example: `const std::string file = svg(gantt(schedule, timeline, {.cluster = &cluster}));`
inline Drawing gantt(const Schedule& schedule, const Timeline& timeline, const GanttOptions& options = {}) {
  check_timeline(schedule, timeline);
  if (options.cluster != nullptr) check_devices(schedule, *options.cluster);
  if (const std::size_t tasks = schedule.tasks().size(); tasks > options.max_tasks) {
    throw InputError(concat("a picture of ", tasks, " tasks shows nothing; the most is ", options.max_tasks,
                            ": take fewer microbatches or devices, or a page to zoom into (--report)"));
  }
  return detail::GanttDrawer{schedule, timeline, options}.draw();
}

}  // namespace tawpipe
