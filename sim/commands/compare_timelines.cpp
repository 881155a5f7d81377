// `tawpipe compare-timelines`: a predicted timeline compared with a measured one.
#include "tawpipe/analysis/compare_timelines.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>

#include "../terminal_text.hpp"
#include "instruments.hpp"
#include "output.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/table.hpp"
#include "tawpipe/timeline/timeline_csv.hpp"

namespace tawpipe::sim {

namespace {

RecordedTimeline read(const std::string& path) { return parse_timeline_csv(read_text(path, "timeline"), one_line(path)); }

/// The first task that shows different schedules, as text; "" if there is none.
std::string difference_of_tasks(const RecordedTimeline& a, const RecordedTimeline& b) {
  if (a.tasks.size() != b.tasks.size()) return concat(a.tasks.size(), " tasks and ", b.tasks.size());
  const auto key = [](const Task& task) {
    return std::tuple{task.op, task.payload, task.rank, task.partner(), task.lane, task.stage, task.microbatch, task.bytes};
  };
  for (std::size_t t = 0; t < a.tasks.size(); ++t) {
    if (key(a.tasks[t]) != key(b.tasks[t])) return concat("they differ in task ", t);
  }
  return "";
}

/// A relative error; null if nothing was measured.
nlohmann::ordered_json error_json(double error) { return std::isfinite(error) ? nlohmann::ordered_json(error) : nullptr; }

std::string error_text(double error) { return std::isfinite(error) ? fmt::format("{:+.1f} %", 100 * error) : "-"; }

nlohmann::ordered_json to_json(const TimelineComparison& found) {
  nlohmann::ordered_json json;
  json["predicted_s"] = to_seconds(found.predicted);
  json["measured_s"] = to_seconds(found.measured);
  json["error"] = error_json(found.error);
  json["kinds"] = nlohmann::ordered_json::array();
  for (const KindDifference& kind : found.kinds) {
    json["kinds"].push_back({{"op", name(kind.op)},
                             {"payload", name(kind.payload)},
                             {"tasks", kind.tasks},
                             {"predicted_mean_s", kind.predicted},
                             {"measured_mean_s", kind.measured},
                             {"error", error_json(kind.error)}});
  }
  json["order"] = nlohmann::ordered_json::array();
  for (const OrderDifference& lane : found.order) {
    json["order"].push_back({{"rank", number(lane.rank)},
                             {"lane", lane.lane},
                             {"tasks", lane.tasks},
                             {"displaced", lane.displaced},
                             {"place", lane.place},
                             {"predicted_task", number(lane.predicted)},
                             {"measured_task", number(lane.measured)}});
  }
  return json;
}

std::string text_of(const TimelineComparison& found) {
  std::string text = fmt::format("predicted {}, measured {}: {}\n\n", format_duration(found.predicted),
                                 format_duration(found.measured), error_text(found.error));
  Table kinds{{{"op"},
               {"payload"},
               {"tasks", Align::right},
               {"predicted mean", Align::right},
               {"measured mean", Align::right},
               {"error", Align::right}}};
  for (const KindDifference& kind : found.kinds) {
    kinds.row({std::string{name(kind.op)}, kind.payload == Payload::nothing ? "" : std::string{name(kind.payload)},
               format_count(static_cast<std::int64_t>(kind.tasks)), format_duration(seconds(kind.predicted)),
               format_duration(seconds(kind.measured)), error_text(kind.error)});
  }
  text += kinds.str(terminal_style());
  if (found.order.empty()) return text + "\nEvery lane started its tasks in the predicted order.\n";
  Table order{{{"rank", Align::right},
               {"lane", Align::right},
               {"tasks", Align::right},
               {"displaced", Align::right},
               {"first difference"}}};
  for (const OrderDifference& lane : found.order) {
    order.row(
        {std::to_string(number(lane.rank)), std::to_string(lane.lane), std::to_string(lane.tasks), std::to_string(lane.displaced),
         fmt::format("place {}: task {} predicted, {} measured", lane.place, number(lane.predicted), number(lane.measured))});
  }
  return text + "\n" + order.str(terminal_style());
}

}  // namespace

int run_compare_timelines(const CompareTimelinesRequest& request) {
  const RecordedTimeline predicted = read(request.predicted);
  const RecordedTimeline measured = read(request.measured);
  const std::string difference = difference_of_tasks(predicted, measured);
  if (!difference.empty()) {
    throw InputError(concat(one_line(request.predicted), " and ", one_line(request.measured),
                            " are not of one schedule: ", difference, "; simulate the file that train --schedule-out wrote"));
  }
  std::optional<OutputFile> file;
  if (!request.json.empty()) file.emplace(request.json);
  const TimelineComparison found = compare_timelines(measured.tasks, predicted.timeline, measured.timeline);
  if (file) {
    (*file)(to_json(found).dump(2) + "\n");
    file->finish();
  }
  if (request.json != "-") print(text_of(found));
  return ok;
}

}  // namespace tawpipe::sim
