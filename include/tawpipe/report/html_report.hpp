// A page that opens offline and shows the result of a command: tables and charts, timelines,
// memory, links, the cluster.
// Not: the page itself (page/*: the build makes detail/page_files.hpp of them).
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/analysis/critical_path.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/version.hpp"
#include "tawpipe/report/colors.hpp"
#include "tawpipe/report/detail/packed_column.hpp"
#include "tawpipe/report/detail/page_files.hpp"
#include "tawpipe/report/report_page.hpp"
#include "tawpipe/report/summary_json.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Text in an element of the page.
inline std::string element_text(std::string_view text) {
  std::string safe;
  for (const char c : text) safe += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return safe;
}

/// [rank] the one that is drawn for it. Of a folded schedule only some are: the first on each axis
/// that is folded.
inline std::vector<int> drawn_ranks(const Schedule& schedule, const Mesh& mesh) {
  std::vector<int> drawn(static_cast<std::size_t>(schedule.ranks()));
  std::iota(drawn.begin(), drawn.end(), 0);
  if (mesh.is_plain()) return drawn;
  const Mesh whole = mesh.over(schedule.ranks());
  MeshPlace most;
  for (const int rank : drawn) {
    const MeshPlace place = whole.place(Rank{rank});
    if (schedule.program(Rank{rank}, 0).empty()) continue;
    for (const MeshAxis axis : whole.order) most[axis] = std::max(most[axis], place[axis]);
  }
  for (int& rank : drawn) {
    MeshPlace place = whole.place(Rank{rank});
    for (const MeshAxis axis : whole.order) place[axis] = std::min(place[axis], most[axis]);
    rank = number(whole.rank(place));
  }
  return drawn;
}

/// "0, 3 to 5": the stages whose weights each rank keeps, whole or, without a stage of its own, a shard
/// of all. @param drawn  [rank] drawn_ranks()
inline std::vector<std::string> owned_stages(const Schedule& schedule, const std::vector<int>& drawn) {
  std::vector<std::vector<int>> stages(static_cast<std::size_t>(schedule.ranks()));
  std::vector<char> shards(stages.size(), 0);
  for (const Buffer& buffer : schedule.buffers()) {
    if (!buffer.persistent || buffer.kind() != BufferKind::weights) continue;
    const bool whole = buffer.stage() != none<StageId>;
    if (whole) stages[index(buffer.rank)].push_back(number(buffer.stage()));
    if (!whole && buffer.bytes > Bytes{}) shards[index(buffer.rank)] = 1;
  }
  std::vector<std::string> texts;
  for (const int rank : drawn) {
    std::vector<int>& of_rank = stages[static_cast<std::size_t>(rank)];
    std::sort(of_rank.begin(), of_rank.end());
    of_rank.erase(std::unique(of_rank.begin(), of_rank.end()), of_rank.end());
    std::string text;
    for (std::size_t i = 0; i < of_rank.size();) {
      std::size_t last = i;
      while (last + 1 < of_rank.size() && of_rank[last + 1] == of_rank[last] + 1) ++last;
      text += concat(text.empty() ? "" : ", ", of_rank[i], last > i ? concat(" to ", of_rank[last]) : std::string{});
      i = last + 1;
    }
    const bool shard = text.empty() && shards[static_cast<std::size_t>(rank)] != 0;
    texts.push_back(shard ? concat("0 to ", schedule.stages().size() - 1, ", a shard of each") : std::move(text));
  }
  return texts;
}

/// The schedule's tasks and its dependencies, in columns.
inline void add_tasks(nlohmann::ordered_json& json, const Schedule& schedule, const Timeline& timeline) {
  constexpr std::array names{"start", "length", "op",    "payload",    "lane",  "peer_lane", "rank",
                             "peer",  "group",  "stage", "microbatch", "bytes", "waits",     "waited"};
  std::array<PackedColumn, names.size()> columns;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.task(id<TaskId>(t));
    const auto waited = schedule.dependencies(id<TaskId>(t));
    const std::array<std::int64_t, names.size() - 1> row{
        timeline.start[t].picoseconds() - (t > 0 ? timeline.start[t - 1].picoseconds() : 0),
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
  for (std::size_t i = 0; i < columns.size(); ++i) json[names[i]] = columns[i].json();
  json[names[0]]["running"] = true;
}

/// "t0 p2": the coordinates of each rank on axes of more than one rank; empty without such axes.
inline std::vector<std::string> places_of(const Mesh& mesh, int ranks) {
  std::vector<std::string> places;
  if (mesh.is_plain()) return places;
  const Mesh whole = mesh.over(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const MeshPlace place = whole.place(Rank{rank});
    std::string text;
    for (const MeshAxis axis : whole.order) {
      if (whole.size(axis) > 1) text += concat(text.empty() ? "" : " ", name(axis).substr(0, 1), place[axis]);
    }
    places.push_back(std::move(text));
  }
  return places;
}

/// How the cluster is wired: kinds of nodes with their devices, adapters and the links inside, and
/// which kind each node is.
inline nlohmann::ordered_json wiring_json(const Cluster& cluster) {
  using Object = nlohmann::ordered_json;
  Object json{{"name", cluster.name()}, {"nodes", Object::array()}, {"types", Object::array()}};
  for (int node = 0; node < cluster.nodes(); ++node) json["nodes"].push_back(cluster.kind_index(NodeId{node}));
  for (const NodeType& type : cluster.kinds()) {
    Object devices = Object::array();
    for (const DeviceSpec& device : type.devices) devices.push_back(device.name);
    std::map<std::int32_t, Object> adapters;  // by link, the devices that use it to leave
    for (std::size_t d = 0; d < type.to_network.size(); ++d) {
      if (!type.to_network[d].empty()) adapters[type.to_network[d].back()].push_back(d);
    }
    Object all = Object::array();
    for (auto& [link, users] : adapters) {
      all.push_back({{"bandwidth", type.links[static_cast<std::size_t>(link)].bandwidth.value()}, {"devices", std::move(users)}});
    }
    Object inside = Object::array();
    for (const Link& link : type.links) {
      Object one{{"kind", name(link.kind)}, {"bandwidth", link.bandwidth.value()}};
      if (link.end == LinkEnd::inside && std::find(inside.begin(), inside.end(), one) == inside.end())
        inside.push_back(std::move(one));
    }
    json["types"].push_back({{"devices", std::move(devices)}, {"adapters", std::move(all)}, {"inside", std::move(inside)}});
  }
  return json;
}

inline nlohmann::ordered_json report_json(const ReportEntry& entry) {
  const Cluster& cluster = *entry.cluster;
  const Schedule& schedule = *entry.schedule;
  const Timeline& timeline = *entry.timeline;
  const Summary& summary = *entry.summary;
  nlohmann::ordered_json json;
  json["label"] = entry.label;
  json["note"] = entry.note;
  json["summary"] = to_json(summary);
  json["ranks"] = schedule.ranks();
  json["lanes"] = schedule.lanes();
  add_tasks(json, schedule, timeline);
  json["groups"] = nlohmann::ordered_json::array();
  for (int group = 0; group < schedule.groups(); ++group) {
    nlohmann::ordered_json members = nlohmann::ordered_json::array();
    for (const Rank rank : schedule.group(GroupId{group})) members.push_back(number(rank));
    json["groups"].push_back(std::move(members));
  }
  json["drawn"] = nlohmann::ordered_json::array();
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    if (!schedule.program(Rank{rank}, 0).empty()) json["drawn"].push_back(rank);
  }
  json["critical"] = nlohmann::ordered_json::array();
  for (const TaskId task : critical_path(schedule, timeline).tasks) json["critical"].push_back(number(task));
  constexpr std::size_t parts = 400;
  json["memory"] = packed_rows(memory_over_time(schedule, timeline, parts));
  // A folded schedule has only some of the messages.
  const bool whole = summary.folding.factor <= 1;
  json["links"] =
      packed_rows(whole ? node_traffic_over_time(schedule, cluster, timeline, parts) : std::vector<std::vector<double>>{});
  json["egress_limit"] = nlohmann::ordered_json::array();
  for (int node = 0; node < cluster.nodes(); ++node) {
    double sum = 0;
    for (const Link& link : cluster.kind_of(NodeId{node}).links) {
      if (link.end == LinkEnd::adapter_out) sum += link.bandwidth.value();
    }
    json["egress_limit"].push_back(sum);
  }
  json["peak"] = nlohmann::ordered_json::array();
  json["limit"] = nlohmann::ordered_json::array();
  for (const PeakMemory& peak : summary.peak_memory) json["peak"].push_back(peak.total.value());
  for (int rank = 0; entry.limits_memory && rank < schedule.ranks(); ++rank) {
    json["limit"].push_back(usable_part(cluster.device(Rank{rank}).memory, summary.usable_memory).value());
  }
  json["cluster"] = wiring_json(cluster);
  json["axes"] = places_of(entry.mesh, schedule.ranks());
  json["owns"] = owned_stages(schedule, drawn_ranks(schedule, entry.mesh));
  return json;
}

/// JSON that is safe inside a script element: no "</script" and no "<!--".
inline std::string script_text(const nlohmann::ordered_json& json) {
  std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) text.replace(at, 1, "\\u003c");
  return text;
}

}  // namespace detail

/// Writes a page that opens offline to `sink`, which is called with pieces of text in order.
/// @throws InputError  if the entries have more than max_report_tasks together.
/// Complexity: O(tasks + uses + edges); about 1 to 15 bytes a task in the page, and 80 kB.
template <class Sink>
requires std::invocable<Sink&, std::string_view>
void write_html_report(const ReportPage& page, Sink&& sink) {
  std::size_t tasks = 0;
  for (const ReportEntry& entry : page.entries) tasks += entry.schedule->tasks().size();
  if (tasks > max_report_tasks) {
    throw InputError(concat("a report of ", tasks, " tasks is too much for a browser; the most is ", max_report_tasks,
                            ": take fewer microbatches, devices or schedules, or --trace"));
  }
  const std::string made = page.invocation.empty() ? concat("tawpipe ", page.command) : page.invocation;
  nlohmann::ordered_json json;
  json["command"] = page.command;
  json["title"] = page.title;
  json["verdict"] = page.verdict;
  json["invocation"] = made;
  json["version"] = version;
  json["date"] = page.date;
  json["settings"] = nlohmann::ordered_json::array();
  for (const auto& [name, text] : page.settings) json["settings"].push_back({{"name", name}, {"text", text}});
  json["problem"] = page.problem;
  json["answer"] = page.answer;
  json["notes"] = page.notes;
  for (int op = 0; op < ops; ++op) json["ops"].push_back(name(static_cast<Op>(op)));
  for (int payload = 0; payload < payloads; ++payload) json["payloads"].push_back(name(static_cast<Payload>(payload)));
  for (int kind = 0; kind < buffer_kinds; ++kind) json["kinds"].push_back(name(static_cast<BufferKind>(kind)));
  for (int op = 0; op < ops; ++op) json["op_colors"].push_back(traits(static_cast<Op>(op)).colors.page);
  for (int payload = 0; payload < payloads; ++payload)
    json["payload_colors"].push_back(traits(static_cast<Payload>(payload)).page_color);
  json["kind_colors"] = memory_colors;
  json["series_colors"] = series_colors;
  json["schedules"] = nlohmann::ordered_json::array();
  for (const ReportEntry& entry : page.entries) json["schedules"].push_back(detail::report_json(entry));

  const auto put = [&](std::string_view text) { sink(text); };
  std::string_view rest{detail::page_html};
  for (const auto& [place, write] :
       {std::pair<std::string_view, std::function<void()>>{"@STYLE@", [&] { put(detail::page_style); }},
        {"@COMMAND@", [&] { put(detail::element_text(made)); }},
        {"@DATA@", [&] { put(detail::script_text(json)); }},
        {"@SCRIPT@", [&] {
           for (const std::string_view part : detail::page_scripts) put(part);
         }}}) {
    const std::size_t at = rest.find(place);
    put(rest.substr(0, at));
    write();
    rest.remove_prefix(at + place.size());
  }
  put(rest);
}

}  // namespace tawpipe
