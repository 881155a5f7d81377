// A summary as JSON: the stable, documented form for programs (docs/output.md).
// Not: the timeline itself (timeline_csv.hpp, chrome_trace.hpp).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tawpipe/analysis/summary.hpp"

namespace tawpipe::inline v0 {

/// The summary's JSON object. Keys keep their order and meaning; new ones may be added.
inline nlohmann::ordered_json to_json(const Summary& summary) {
  using Json = nlohmann::ordered_json;
  Json options = Json::object();
  for (const auto& [key, value] : summary.options) options[key] = value;
  Json peaks = Json::array();
  Json device_memory = Json::array();
  Json kinds = Json::object();
  for (const auto& peak : summary.peak_memory) peaks.push_back(peak.total.value());
  for (const auto& memory : summary.device_memory) device_memory.push_back(memory.value());
  for (int kind = 0; kind < buffer_kinds; ++kind) {
    Json ranks = Json::array();
    for (const auto& peak : summary.peak_memory) ranks.push_back(peak.by_kind[static_cast<std::size_t>(kind)].value());
    kinds[std::string{name(static_cast<BufferKind>(kind))}] = std::move(ranks);
  }
  Json host_peaks = Json::array();
  bool has_host = false;
  for (const auto& peak : summary.peak_memory) {
    host_peaks.push_back(peak.host.value());
    has_host = has_host || peak.host > Bytes{};
  }
  Json host_needs = Json::array();
  Json hosts = Json::array();
  Json missing_hosts = Json::array();
  for (const Bytes need : summary.host_need) host_needs.push_back(need.value());
  for (const Bytes memory : summary.host_memory) hosts.push_back(memory.value());
  for (const NodeId node : summary.out_of_host_memory) missing_hosts.push_back(number(node));
  Json missing = Json::array();
  for (const Rank rank : summary.out_of_memory) missing.push_back(number(rank));
  Json links = Json::object();
  for (int kind = 0; kind < link_classes; ++kind) {
    const auto one = static_cast<LinkClass>(kind);
    if (one == LinkClass::memory && !has_host) continue;
    if (joins_two(one) && summary.traffic.link_bytes[static_cast<std::size_t>(kind)] == 0) continue;
    links[std::string{name(static_cast<LinkClass>(kind))}] = summary.traffic.link_bytes[static_cast<std::size_t>(kind)];
  }
  Json by_payload = Json::object();
  for (int payload = 1; payload < payloads; ++payload) {
    if (traits(static_cast<Payload>(payload)).numbers == Numbers::states) continue;  // stays on its rank
    const auto& bytes = summary.traffic.payload_bytes[static_cast<std::size_t>(payload)];
    Json both = Json::object();
    both["inter_node_bytes"] = bytes[1];
    both["intra_node_bytes"] = bytes[0];
    by_payload[std::string{name(static_cast<Payload>(payload))}] = std::move(both);
  }
  Json lanes = Json::object();
  Json exposed_lanes = Json::object();
  for (std::size_t lane = 0; lane < summary.lanes.size(); ++lane) {
    lanes[summary.lanes[lane]] = summary.communication.lane_busy_s[lane];
    exposed_lanes[summary.lanes[lane]] = summary.communication.lane_exposed_s[lane];
  }
  Json path = Json::object();
  for (int op = 0; op < ops; ++op) {
    const Duration time = summary.critical_path[static_cast<std::size_t>(op)];
    if (time > Duration{}) path[std::string{name(static_cast<Op>(op))}] = to_seconds(time);
  }

  Json json;
  json["schedule"] = summary.schedule;
  json["options"] = std::move(options);
  json["cluster"] = summary.cluster;
  json["model"] = summary.model.empty() ? Json{} : Json(summary.model);
  json["nodes"] = summary.nodes;
  json["ranks"] = summary.ranks;
  json["tasks"] = summary.tasks;
  json["stages"] = summary.stages;
  if (summary.empty_stages > 0) json["stages_without_layers"] = summary.empty_stages;
  json["microbatches"] = summary.microbatches;
  json["microbatch_size"] = summary.microbatch_size;
  json["sequence"] = summary.sequence;
  json["global_batch"] = summary.global_batch;
  json["recompute"] = summary.recompute;
  json["makespan_s"] = to_seconds(summary.makespan);
  json["makespan_ps"] = summary.makespan.value();
  json["tokens_per_device_per_second"] = summary.tokens_per_device_per_second;
  json["tokens_per_day"] = summary.tokens_per_day();
  json["mfu"] = summary.mfu;
  json["flops_per_device_per_second"] = summary.flops_per_device.value();
  json["bubble_ratio"] = summary.bubble.ratio;
  json["span_bubble_rate"] = summary.bubble.span_rate();
  json["peak_memory_bytes"] = std::move(peaks);
  json["peak_memory_by_kind"] = std::move(kinds);
  if (has_host) {
    json["peak_host_memory_bytes"] = std::move(host_peaks);
    json["host_need_bytes"] = std::move(host_needs);
    json["host_memory_bytes"] = std::move(hosts);
    json["host_memory_assumed"] = summary.host_memory_assumed;
    json["out_of_host_memory_nodes"] = std::move(missing_hosts);
  }
  json["device_memory_bytes"] = std::move(device_memory);
  json["usable_memory"] = summary.usable_memory;
  json["out_of_memory"] = !summary.fits();
  json["out_of_memory_ranks"] = std::move(missing);
  if (summary.beside && !summary.peak_memory.empty()) {
    Json& most = json["fullest_device"];
    most["allocated_bytes"] = summary.allocated().value();
    most["reserved_bytes"] = summary.reserved().value();
    most["used_bytes"] = summary.used().value();
    most["libraries_bytes"] = summary.beside->libraries.value();
    most["context_bytes"] = summary.beside->context.value();
    most["nccl_bytes"] = summary.beside->collectives.value();
    json["fits_probability"] = summary.fits_probability();
  }
  Json& traffic = json["traffic"];
  traffic["inter_node_bytes"] = summary.traffic.inter_node_bytes;
  traffic["intra_node_bytes"] = summary.traffic.intra_node_bytes;
  if (has_host) {
    traffic["to_host_bytes"] = summary.traffic.host_bytes[0];
    traffic["from_host_bytes"] = summary.traffic.host_bytes[1];
  }
  traffic["max_node_egress_bytes"] = summary.traffic.max_node_egress_bytes();
  traffic["node_egress_bytes"] = summary.traffic.node_egress_bytes;
  traffic["link_bytes"] = std::move(links);
  traffic["payload"] = std::move(by_payload);
  Json& communication = json["communication"];
  communication["busy_s"] = summary.communication.busy_s;
  communication["exposed_s"] = summary.communication.exposed_s;
  communication["lane_busy_s"] = std::move(lanes);
  communication["lane_exposed_s"] = std::move(exposed_lanes);
  json["critical_path_s"] = std::move(path);
  if (summary.held) {
    Json& held = json["held_sms"];
    held["slowed_s"] = summary.held->slowed_s;
    held["waiting_s"] = summary.held->waiting_s;
  }
  const bool folded = summary.folding.factor > 1;
  if (!folded && summary.folding.refusal.empty()) return json;
  Json& folding = json["folding"];
  folding["folded"] = folded;
  folding["factor"] = summary.folding.factor;
  folding["ranks_simulated"] = folded ? summary.folding.ranks : summary.ranks;
  folding["tasks_simulated"] = folded ? summary.folding.tasks : summary.tasks;
  if (!summary.folding.refusal.empty()) folding["refusal"] = summary.folding.refusal;
  return json;
}

}  // namespace tawpipe
