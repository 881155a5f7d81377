// The JSON cluster format: its regular form, its graph form and the exact dump.
// Not: public; topology/cluster_file.hpp is the public interface.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/topology/cluster.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/fabric_graph.hpp"
#include "tawpipe/topology/node_graph.hpp"
#include "tawpipe/topology/routing.hpp"

namespace tawpipe::inline v0::detail {

inline constexpr std::size_t longest_list = 1'000'000;

/// A rate, either as text with its unit under `key`, or as an exact number under `exact_key`, whose
/// name is the unit.
template <class Rate>
Rate read_rate(JsonValue object, std::string_view key, std::string_view exact_key, Rate (*parse)(std::string_view)) {
  if (const auto exact = object.find(exact_key)) return Rate{exact->positive()};
  return object.at(key).parsed(parse);
}
inline BytesPerSecond read_bandwidth(JsonValue object) {
  return read_rate(object, "bandwidth", "bytes_per_second", parse_bandwidth);
}
inline constexpr Duration longest_latency = 1000_s;
/// A duration as text under "latency", or in picoseconds under "latency_ps"; zero if both are
/// missing.
inline Duration read_latency(JsonValue object) {
  if (const auto exact = object.find("latency_ps")) return Duration{exact->whole<std::int64_t>(0, longest_latency.value())};
  const auto text = object.find("latency");
  if (!text) return {};
  const Duration latency = text->parsed(parse_duration);
  if (latency > longest_latency) text->fail("a latency is at most 1000 s");
  return latency;
}
inline Bytes read_memory(JsonValue object, std::string_view key = "memory", std::string_view exact_key = "memory_bytes") {
  constexpr std::int64_t most = 1'000'000'000'000'000;
  if (const auto exact = object.find(exact_key)) return Bytes{exact->whole<std::int64_t>(1, most)};
  const JsonValue text = object.at(key);
  const Bytes memory = text.parsed(parse_bytes);
  if (memory < Bytes{1} || memory > Bytes{most}) text.fail("must be above zero and at most 1000 TB, such as 80GiB");
  return memory;
}
/// A host's memory: "host_memory" and "host_memory_bandwidth", as text or exact; both may be missing.
inline HostMemory read_host_memory(JsonValue object) {
  HostMemory memory;
  if (object.has("host_memory") || object.has("host_memory_bytes"))
    memory.capacity = read_memory(object, "host_memory", "host_memory_bytes");
  if (object.has("host_memory_bandwidth") || object.has("host_memory_bytes_per_second"))
    memory.bandwidth = read_rate(object, "host_memory_bandwidth", "host_memory_bytes_per_second", parse_bandwidth);
  return memory;
}
inline LinkSpec read_link_spec(JsonValue object) { return {read_bandwidth(object), read_latency(object)}; }

/// "A100-80G", or an object with the data sheet's numbers.
inline DeviceSpec read_device(JsonValue json) {
  if (json.is_text()) return json.parsed(device_named);
  json.only("name", "memory", "memory_bytes", "peak", "flops_per_second", "peak_fp8", "fp8_flops_per_second", "peak_fp4",
            "fp4_flops_per_second", "memory_bandwidth", "memory_bytes_per_second", "sms", "assumed");
  const auto assumed = json.find("assumed");
  const auto sms = json.find("sms");
  const auto low_peak = [&](std::string_view key, std::string_view exact_key) {
    return json.find(key) || json.find(exact_key) ? read_rate(json, key, exact_key, parse_flops_rate) : FlopsPerSecond{};
  };
  return {.name = json.at("name").label(),
          .memory = read_memory(json),
          .peak = read_rate(json, "peak", "flops_per_second", parse_flops_rate),
          .peak_fp8 = low_peak("peak_fp8", "fp8_flops_per_second"),
          .peak_fp4 = low_peak("peak_fp4", "fp4_flops_per_second"),
          .memory_bandwidth = read_rate(json, "memory_bandwidth", "memory_bytes_per_second", parse_bandwidth),
          .sms = sms ? sms->whole<int>(1, max_device_sms) : 0,
          .assumed = assumed && assumed->boolean()};
}

/// A list of at most `most` items.
inline JsonValue read_list(JsonValue object, std::string_view key, std::size_t most) {
  const JsonValue list = object.at(key);
  if (list.size() > most) list.fail(concat("a list of ", list.size(), " is too long; at most ", most, " fit"));
  return list;
}

inline std::string read_name(JsonValue cluster) {
  const auto name = cluster.find("name");
  return name ? name->label() : "cluster";
}

// ---- the regular form ----

inline Cluster read_regular_cluster(JsonValue json) {
  json.only("name", "device", "nodes", "devices_per_node", "devices_of_nodes", "intra_node", "inter_node", "adapters_per_node",
            "host_link", "host_memory", "host_memory_bytes", "host_memory_bandwidth", "host_memory_bytes_per_second");
  ClusterBuilder builder;
  builder.host_memory(read_host_memory(json));
  builder.name(read_name(json)).device(read_device(json.at("device")));
  const auto given_nodes = json.find("nodes");
  int nodes = given_nodes ? given_nodes->whole<int>(1, max_cluster_devices) : 1;
  int largest = 0;
  if (const auto list = json.find("devices_of_nodes")) {
    if (json.has("devices_per_node")) list->fail("give this or devices_per_node, not both");
    std::vector<std::int32_t> sizes;
    std::int64_t total = 0;
    for (const JsonValue size : read_list(json, "devices_of_nodes", longest_list)) {
      sizes.push_back(size.whole<std::int32_t>(1, max_devices_per_node));
      largest = std::max(largest, sizes.back());
      total += sizes.back();
    }
    if (sizes.empty()) list->fail("the list is empty; give each node's devices, such as [8, 8, 4]");
    if (given_nodes && std::cmp_not_equal(nodes, sizes.size())) {
      given_nodes->fail(concat("devices_of_nodes lists ", sizes.size(), " nodes; leave nodes out or make it ", sizes.size()));
    }
    nodes = static_cast<int>(sizes.size());
    check_cluster_size(1, total);
    builder.devices_of_nodes(std::move(sizes));
  } else {
    largest = json.at("devices_per_node").whole<int>(1, max_devices_per_node);
    check_cluster_size(nodes, largest);
    builder.nodes(nodes).devices_per_node(largest);
  }
  if (json.has("intra_node") || largest > 1) {
    const JsonValue intra = json.at("intra_node").only("bandwidth", "bytes_per_second", "latency", "latency_ps", "kind");
    const auto kind = intra.find("kind");
    builder.intra_node(read_link_spec(intra), kind ? kind->enumerator<LinkClass>(link_classes, "kind") : LinkClass::nvlink);
  }
  if (json.has("inter_node") || nodes > 1) {
    builder.inter_node(read_link_spec(json.at("inter_node").only("bandwidth", "bytes_per_second", "latency", "latency_ps")));
  }
  if (const auto adapters = json.find("adapters_per_node")) {
    builder.adapters_per_node(adapters->whole<int>(1, max_devices_per_node));
  }
  if (const auto host = json.find("host_link")) {
    host->only("bandwidth", "bytes_per_second", "latency", "latency_ps", "kind");
    const auto kind = host->find("kind");
    builder.host_link(read_link_spec(*host), kind ? kind->enumerator<LinkClass>(link_classes, "kind") : LinkClass::pcie);
  }
  return builder.build();
}

// ---- the graph form ----

/// The index of a name in a list.
inline int read_place(JsonValue name, std::string_view what, const std::vector<std::string>& names) {
  const auto found = std::find(names.begin(), names.end(), name.text());
  if (found == names.end()) name.fail(unknown_name(what, name.text(), names));
  return static_cast<int>(found - names.begin());
}
/// The indices in `names` of an edge's two ends.
inline std::pair<int, int> read_ends(JsonValue edge, const std::vector<std::string>& names) {
  const JsonValue ends = edge.at("between");
  ends.of_size(2, "the names of two vertices, such as [\"GPU0\", \"switch\"]");
  return {read_place(ends[0], "vertex", names), read_place(ends[1], "vertex", names)};
}

inline NodeType read_node_graph(JsonValue json) {
  json.only("name", "vertices", "edges", "host_memory", "host_memory_bytes", "host_memory_bandwidth",
            "host_memory_bytes_per_second");
  NodeGraph graph;
  graph.host_memory = read_host_memory(json);
  std::vector<std::string> names;
  for (const JsonValue vertex : read_list(json, "vertices", max_vertices)) {
    vertex.only("name", "kind", "device", "bandwidth", "bytes_per_second", "latency", "latency_ps");
    const std::string& name = vertex.at("name").label();
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      vertex.at("name").fail(concat(quote(name), " occurs twice"));
    }
    names.push_back(name);
    const auto kind = vertex.at("kind").enumerator<VertexKind>(vertex_kinds, "kind");
    if (kind == VertexKind::device) {
      graph.add_device(name, read_device(vertex.at("device")));
    } else if (kind == VertexKind::adapter) {
      graph.add_adapter(name, read_link_spec(vertex));
    } else {
      kind == VertexKind::cpu ? graph.add_cpu(name) : graph.add_switch(name);
    }
  }
  for (const JsonValue edge : read_list(json, "edges", longest_list)) {
    edge.only("between", "kind", "bandwidth", "bytes_per_second", "latency", "latency_ps");
    const auto [a, b] = read_ends(edge, names);
    graph.connect(a, b, edge.at("kind").enumerator<LinkClass>(link_classes, "kind"), read_link_spec(edge));
  }
  return make_node_type(json.at("name").label(), graph);
}

inline FabricGraph read_fabric_graph(JsonValue json, int nodes) {
  if (json.has("nodes_per_leaf") || json.has("spines")) {
    json.only("nodes_per_leaf", "spines", "uplink");
    const JsonValue uplink = json.at("uplink").only("bandwidth", "bytes_per_second", "latency", "latency_ps");
    return leaf_spine(nodes, json.at("nodes_per_leaf").whole<int>(1, max_fabric_nodes),
                      json.at("spines").whole<int>(1, max_fabric_nodes), read_link_spec(uplink));
  }
  json.only("switches", "attach", "edges");
  FabricGraph graph{nodes};
  std::vector<std::string> names;
  for (const JsonValue item : read_list(json, "switches", 8192)) {
    names.push_back(item.label());
    graph.add_switch(names.back());
  }
  const JsonValue attach = read_list(json, "attach", max_fabric_nodes);
  attach.of_size(static_cast<std::size_t>(nodes), concat("a switch for each of the ", nodes, " nodes"));
  int node = 0;
  for (const JsonValue item : attach) graph.attach(node++, nodes + read_place(item, "switch", names));
  for (const JsonValue edge : read_list(json, "edges", longest_list)) {
    edge.only("between", "bandwidth", "bytes_per_second", "latency", "latency_ps");
    const auto [a, b] = read_ends(edge, names);
    graph.connect(nodes + a, nodes + b, read_link_spec(edge));
  }
  return graph;
}

// ---- the exact dump: links and paths as a Cluster keeps them ----

inline std::vector<Link> read_links(JsonValue object) {
  std::vector<Link> links;
  for (const JsonValue link : read_list(object, "links", 16 * longest_list)) {
    link.only("kind", "end", "bandwidth", "bytes_per_second", "latency", "latency_ps");
    links.push_back({link.at("kind").enumerator<LinkClass>(link_classes, "kind"),
                     link.at("end").enumerator<LinkEnd>(link_ends, "end"), read_bandwidth(link), read_latency(link)});
  }
  return links;
}

inline std::vector<LinkPath> read_paths(JsonValue object, std::string_view key) {
  std::vector<LinkPath> paths;
  for (const JsonValue item : read_list(object, key, 16 * longest_list)) {
    for (LinkPath& path = paths.emplace_back(); const JsonValue link : item) path.push_back(link.whole<std::int32_t>());
  }
  return paths;
}

inline NodeType read_node_type(JsonValue json) {
  if (json.has("vertices")) return read_node_graph(json);
  json.only("name", "devices", "links", "paths", "to_network", "from_network", "to_host", "from_host", "host_memory",
            "host_memory_bytes", "host_memory_assumed");
  NodeType type;
  type.name = json.at("name").label();
  for (const JsonValue device : read_list(json, "devices", max_devices_per_node)) type.devices.push_back(read_device(device));
  type.links = read_links(json);
  type.paths = read_paths(json, "paths");
  type.to_network = read_paths(json, "to_network");
  type.from_network = read_paths(json, "from_network");
  if (json.has("to_host") || json.has("from_host")) {
    type.to_host = read_paths(json, "to_host");
    type.from_host = read_paths(json, "from_host");
  }
  type.host_memory = read_host_memory(json).capacity;
  if (const auto assumed = json.find("host_memory_assumed")) type.host_memory_assumed = assumed->boolean();
  return type;
}

/// The types of the nodes: a number of nodes of the only type, or each node's type by name or
/// index.
inline std::vector<std::int32_t> read_nodes(JsonValue json, const std::vector<NodeType>& types) {
  const auto nodes = json.find("nodes");
  if (!nodes) return {0};
  if (!nodes->is_list()) {
    const int count = nodes->whole<int>(1, max_cluster_devices);
    if (types.size() != 1) nodes->fail("with several node types, list the type of each node");
    check_cluster_size(count, static_cast<std::int64_t>(types[0].devices.size()));
    return std::vector<std::int32_t>(static_cast<std::size_t>(count), 0);
  }
  std::vector<std::int32_t> kinds;
  std::vector<std::string> names;
  for (const auto& type : types) names.push_back(type.name);
  std::int64_t devices = 0;
  for (const JsonValue item : read_list(json, "nodes", longest_list)) {
    kinds.push_back(item.is_text() ? read_place(item, "node type", names) : item.id(types.size(), "node type"));
    devices += static_cast<std::int64_t>(types[static_cast<std::size_t>(kinds.back())].devices.size());
  }
  if (kinds.empty()) nodes->fail("the list is empty; a cluster needs at least one node");
  check_cluster_size(1, std::max<std::int64_t>(devices, 1));
  return kinds;
}

inline Cluster read_graph_cluster(JsonValue json) {
  json.only("name", "node_types", "nodes", "fabric");
  std::vector<NodeType> types;
  for (const JsonValue type : read_list(json, "node_types", 10'000)) types.push_back(read_node_type(type));
  if (types.empty()) json.at("node_types").fail("the list is empty; give at least one");
  auto nodes = read_nodes(json, types);
  Fabric fabric;
  if (const auto of = json.find("fabric")) {
    if (of->has("links")) {
      of->only("links", "paths");
      fabric = {read_links(*of), read_paths(*of, "paths")};
    } else {
      fabric = make_fabric(read_fabric_graph(*of, static_cast<int>(nodes.size())));
    }
  }
  return Cluster{read_name(json), std::move(types), std::move(nodes), std::move(fabric)};
}

// ---- writing ----

using Json = nlohmann::json;

inline Json links_json(const std::vector<Link>& links) {
  Json json = Json::array();
  for (const auto& link : links) {
    json.push_back({{"kind", name(link.kind)},
                    {"end", name(link.end)},
                    {"bytes_per_second", link.bandwidth.value()},
                    {"latency_ps", link.latency.value()}});
  }
  return json;
}

inline Json node_type_json(const NodeType& type) {
  Json devices = Json::array();
  for (const auto& device : type.devices) {
    devices.push_back({{"name", device.name},
                       {"memory_bytes", device.memory.value()},
                       {"flops_per_second", device.peak.value()},
                       {"memory_bytes_per_second", device.memory_bandwidth.value()}});
    if (device.peak_fp8 > FlopsPerSecond{}) devices.back()["fp8_flops_per_second"] = device.peak_fp8.value();
    if (device.peak_fp4 > FlopsPerSecond{}) devices.back()["fp4_flops_per_second"] = device.peak_fp4.value();
    if (device.sms > 0) devices.back()["sms"] = device.sms;
    if (device.assumed) devices.back()["assumed"] = true;
  }
  Json json{{"name", type.name},   {"devices", std::move(devices)}, {"links", links_json(type.links)},
            {"paths", type.paths}, {"to_network", type.to_network}, {"from_network", type.from_network}};
  if (!type.to_host.empty()) json.update({{"to_host", type.to_host}, {"from_host", type.from_host}});
  if (type.host_memory > Bytes{}) json["host_memory_bytes"] = type.host_memory.value();
  if (type.host_memory_assumed) json["host_memory_assumed"] = true;
  return json;
}

}  // namespace tawpipe::detail
