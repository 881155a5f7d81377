// A page that opens offline and shows predictions: timelines to zoom into, memory, links, the cluster, the table of results.
// Not: the page itself (detail/html_page.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/analysis/critical_path.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/detail/html_page.hpp"
#include "tawpipe/report/detail/html_script.hpp"
#include "tawpipe/report/summary_json.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

/// More ends of tasks than a browser draws fluently.
inline constexpr std::size_t max_report_tasks = 1'000'000;

namespace detail {

/// Numbers as the page's `unpack` takes them: base64 of little-endian numbers of the narrowest type, or places in a list of the
/// distinct values where those are few.
class PackedColumn {
 public:
  void reserve(std::size_t count) { values_.reserve(count); }
  void add(double value) { values_.push_back(value); }

  nlohmann::ordered_json json() const {
    const auto [low, high] = std::minmax_element(values_.begin(), values_.end());
    const bool whole = std::all_of(values_.begin(), values_.end(), [](double value) { return value == std::floor(value); });
    if (values_.empty() || (whole && *low >= 0 && *high <= 255)) return packed<std::uint8_t>("u8", values_);
    if (whole && *low >= -32768 && *high <= 32767) return packed<std::int16_t>("i16", values_);
    std::map<double, double> places;
    for (const double value : values_) {
      places.try_emplace(value, static_cast<double>(places.size()));
      if (places.size() > 65536 || places.size() > values_.size() / 4) break;
    }
    if (places.size() <= 65536 && places.size() <= values_.size() / 4) {
      std::vector<double> distinct(places.size());
      for (const auto& [value, place] : places) distinct[static_cast<std::size_t>(place)] = value;
      std::vector<double> coded;
      coded.reserve(values_.size());
      for (const double value : values_) coded.push_back(places.at(value));
      nlohmann::ordered_json json =
          distinct.size() <= 256 ? packed<std::uint8_t>("u8", coded) : packed<std::uint16_t>("u16", coded);
      json["values"] = distinct;
      return json;
    }
    if (whole && *low >= -2147483648.0 && *high <= 2147483647.0) return packed<std::int32_t>("i32", values_);
    return packed<double>("f64", values_);
  }

 private:
  template <class T>
  static nlohmann::ordered_json packed(const char* type, const std::vector<double>& values) {
    std::string bytes(values.size() * sizeof(T), '\0');
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T value = static_cast<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof value);
    }
    return {{"type", type}, {"data", base64(bytes)}};
  }

  static std::string base64(std::string_view bytes) {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
      std::uint32_t three = 0;
      for (std::size_t i = 0; i < 3; ++i)
        three = three << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
      for (std::size_t i = 0; i < 4; ++i) text += at + i > bytes.size() ? '=' : digits[three >> (18 - 6 * i) & 63];
    }
    return text;
  }

  std::vector<double> values_;
};

inline nlohmann::ordered_json packed_rows(const std::vector<std::vector<double>>& rows) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const std::vector<double>& row : rows) {
    PackedColumn column;
    for (const double value : row) column.add(std::round(value));
    all.push_back(column.json());
  }
  return all;
}

/// "0, 3 to 5": the stages that each rank keeps the weights of.
inline std::vector<std::string> owned_stages(const Schedule& schedule) {
  std::vector<std::vector<int>> stages(static_cast<std::size_t>(schedule.ranks()));
  for (const Buffer& buffer : schedule.buffers()) {
    if (buffer.persistent && buffer.kind() == BufferKind::weights && buffer.stage() != none<StageId>) {
      stages[index(buffer.rank)].push_back(number(buffer.stage()));
    }
  }
  std::vector<std::string> texts;
  for (std::vector<int>& of_rank : stages) {
    std::sort(of_rank.begin(), of_rank.end());
    of_rank.erase(std::unique(of_rank.begin(), of_rank.end()), of_rank.end());
    std::string text;
    for (std::size_t i = 0; i < of_rank.size();) {
      std::size_t last = i;
      while (last + 1 < of_rank.size() && of_rank[last + 1] == of_rank[last] + 1) ++last;
      text += concat(text.empty() ? "" : ", ", of_rank[i], last > i ? concat(" to ", of_rank[last]) : std::string{});
      i = last + 1;
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

inline nlohmann::ordered_json report_json(const Prediction& prediction, const std::string& label, const Cluster& cluster) {
  const Schedule& schedule = prediction.schedule;
  const Timeline& timeline = prediction.timeline;
  constexpr std::array names{"start", "length", "op",    "payload",    "lane",  "peer_lane", "rank",
                             "peer",  "group",  "stage", "microbatch", "bytes", "waits",     "waited"};
  std::array<PackedColumn, names.size()> columns;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.task(id<TaskId>(t));
    const auto waited = schedule.dependencies(id<TaskId>(t));
    const std::array<std::int64_t, names.size() - 1> row{timeline.start[t].picoseconds(),
                                                         (timeline.end[t] - timeline.start[t]).value(),
                                                         static_cast<std::int64_t>(task.op),
                                                         static_cast<std::int64_t>(task.payload),
                                                         number(task.lane),
                                                         number(task.peer_lane),
                                                         number(task.rank),
                                                         is_point_to_point(task.op) ? number(task.peer) : -1,
                                                         is_collective(task.op) ? number(task.group) : -1,
                                                         number(task.stage),
                                                         task.microbatch,
                                                         task.bytes.total().value(),
                                                         static_cast<std::int64_t>(waited.size())};
    for (std::size_t i = 0; i < row.size(); ++i) columns[i].add(static_cast<double>(row[i]));
    for (const TaskId earlier : waited) columns.back().add(static_cast<double>(t) - static_cast<double>(index(earlier)));
  }
  nlohmann::ordered_json json;
  json["label"] = label;
  json["summary"] = to_json(prediction.summary);
  json["ranks"] = schedule.ranks();
  json["lanes"] = schedule.lanes();
  for (std::size_t i = 0; i < columns.size(); ++i) json[names[i]] = columns[i].json();
  json["groups"] = nlohmann::ordered_json::array();
  for (int group = 0; group < schedule.groups(); ++group) {
    nlohmann::ordered_json members = nlohmann::ordered_json::array();
    for (const Rank rank : schedule.group(GroupId{group})) members.push_back(number(rank));
    json["groups"].push_back(std::move(members));
  }
  json["critical"] = nlohmann::ordered_json::array();
  for (const TaskId task : critical_path(schedule, timeline).tasks) json["critical"].push_back(number(task));
  constexpr std::size_t parts = 400;
  json["memory"] = packed_rows(memory_over_time(schedule, timeline, parts));
  json["egress"] = packed_rows(node_egress_over_time(schedule, cluster, timeline, parts));
  json["peak"] = nlohmann::ordered_json::array();
  json["limit"] = nlohmann::ordered_json::array();
  for (const PeakMemory& peak : prediction.summary.peak_memory) json["peak"].push_back(peak.total.value());
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    json["limit"].push_back(usable_part(cluster.device(Rank{rank}).memory, prediction.summary.usable_memory).value());
  }
  json["owns"] = owned_stages(schedule);
  return json;
}

/// JSON that may stand inside a script element: no "</script" and no "<!--".
inline std::string script_text(const nlohmann::ordered_json& json) {
  std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) text.replace(at, 1, "\\u003c");
  return text;
}

}  // namespace detail

/// One timeline of a report. The prediction must outlive it, and must not be folded.
struct ReportEntry {
  std::string label;  ///< "1f1b:overlap=on"
  const Prediction* prediction = nullptr;
};

/// Writes a page to `sink`, which is called with pieces of text in order: the entries one below the other on one clock, the
/// memory, links and placement of the first.
/// @param problem  lines that say what was asked (shown as they are)
/// @throws InputError  if there is no entry, if one was folded, or if they have more than max_report_tasks together.
/// Complexity: O(tasks + uses + edges); some 25 bytes a task in the page.
template <class Sink>
requires std::invocable<Sink&, std::string_view>
void write_html_report(std::span<const ReportEntry> entries, const Cluster& cluster, const std::string& problem, Sink&& sink) {
  std::size_t tasks = 0;
  for (const ReportEntry& entry : entries) {
    tasks += entry.prediction->schedule.tasks().size();
    if (entry.prediction->summary.folding.factor > 1) {
      throw InputError(
          concat("a report shows every device, and ", entry.label, " was simulated for some of them; use --fold off"));
    }
  }
  if (entries.empty()) throw InputError("a report needs a schedule to show");
  if (tasks > max_report_tasks) {
    throw InputError(concat("a report of ", tasks, " tasks is too much for a browser; the most is ", max_report_tasks,
                            ": take fewer microbatches, devices or schedules, or --trace"));
  }
  nlohmann::ordered_json json;
  json["title"] = concat(entries.size() == 1 ? entries[0].label : concat(entries.size(), " schedules"), " on ", cluster.name());
  json["problem"] = problem;
  json["cluster"]["device"] = cluster.device(Rank{0}).name;
  json["cluster"]["nodes"] = nlohmann::ordered_json::array();
  for (int node = 0; node < cluster.nodes(); ++node) json["cluster"]["nodes"].push_back(cluster.devices_in(NodeId{node}));
  for (int op = 0; op < ops; ++op) json["ops"].push_back(name(static_cast<Op>(op)));
  for (int payload = 0; payload < payloads; ++payload) json["payloads"].push_back(name(static_cast<Payload>(payload)));
  for (int kind = 0; kind < buffer_kinds; ++kind) json["kinds"].push_back(name(static_cast<BufferKind>(kind)));
  for (const ReportEntry& entry : entries)
    json["schedules"].push_back(detail::report_json(*entry.prediction, entry.label, cluster));

  const std::string data = detail::script_text(json);
  std::string_view rest{detail::html_page, sizeof detail::html_page - 1};
  for (const auto& [place, text] : {std::pair<std::string_view, std::string_view>{"@DATA@", data},
                                    {"@SCRIPT@", {detail::html_script, sizeof detail::html_script - 1}}}) {
    const std::size_t at = rest.find(place);
    sink(rest.substr(0, at));
    sink(text);
    rest.remove_prefix(at + place.size());
  }
  sink(rest);
}

}  // namespace tawpipe
