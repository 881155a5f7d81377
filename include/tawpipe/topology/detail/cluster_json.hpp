// The JSON cluster format: its regular form, its graph form and the exact dump.
// Not: public; topology/cluster_file.hpp is the door.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/topology/cluster.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"
#include "tawpipe/topology/detail/json_fields.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/fabric_graph.hpp"
#include "tawpipe/topology/node_graph.hpp"
#include "tawpipe/topology/routing.hpp"

namespace tawpipe::inline v0::detail {

inline constexpr std::size_t longest_list = 1'000'000;

/// "A100-80G", or an object with the data sheet's numbers.
inline DeviceSpec read_device(const Json& json, const std::string& where) {
  if (json.is_string()) return device_named(json.get<std::string>());
  const JsonFields fields{
      json, where, {"name", "memory", "memory_bytes", "peak", "flops_per_second", "memory_bandwidth", "memory_bytes_per_second"}};
  return {.name = fields.text("name"),
          .memory = fields.memory(),
          .peak = fields.rate("peak", "flops_per_second", parse_flops_rate),
          .memory_bandwidth = fields.rate("memory_bandwidth", "memory_bytes_per_second", parse_bandwidth)};
}

/// A name of four: `names[i]` for enumerator i.
template <class Enum>
Enum read_enum(const JsonFields& fields, const char* key, int count) {
  const std::string text = fields.text(key);
  std::vector<std::string> known;
  for (int i = 0; i < count; ++i) {
    known.emplace_back(name(static_cast<Enum>(i)));
    if (text == known.back()) return static_cast<Enum>(i);
  }
  throw InputError(concat(fields.where(), ": ", unknown_name(key, text, known)));
}

inline LinkSpec read_link_spec(const JsonFields& fields) { return {fields.bandwidth(), fields.latency()}; }

// ---- the regular form ----

inline Cluster read_regular_cluster(const Json& json) {
  const JsonFields fields{
      json,
      "cluster",
      {"name", "device", "nodes", "devices_per_node", "devices_of_nodes", "intra_node", "inter_node", "adapters_per_node"}};
  ClusterBuilder builder;
  builder.name(fields.text_or("name", "cluster")).device(read_device(fields.at("device"), "device"));
  std::int64_t nodes = 0;
  std::int64_t largest = 0;
  if (fields.has("devices_of_nodes")) {
    if (fields.has("devices_per_node")) throw fields.fail("devices_of_nodes", "give this or devices_per_node, not both");
    std::vector<std::int32_t> sizes;
    std::int64_t total = 0;
    for (const Json& size : fields.list("devices_of_nodes", longest_list)) {
      sizes.push_back(static_cast<std::int32_t>(fields.whole_value(size, "devices_of_nodes", 1, max_devices_per_node)));
      largest = std::max<std::int64_t>(largest, sizes.back());
      total += sizes.back();
    }
    nodes = static_cast<std::int64_t>(sizes.size());
    if (sizes.empty()) throw fields.fail("devices_of_nodes", "the list is empty; give each node's devices, such as [8, 8, 4]");
    if (fields.has("nodes") && fields.whole("nodes", 1, max_cluster_devices) != nodes) {
      throw fields.fail("nodes", concat("devices_of_nodes lists ", nodes, " nodes; leave nodes out or make it ", nodes));
    }
    check_cluster_size(1, total);
    builder.devices_of_nodes(std::move(sizes));
  } else {
    nodes = fields.has("nodes") ? fields.whole("nodes", 1, max_cluster_devices) : 1;
    largest = fields.whole("devices_per_node", 1, max_devices_per_node);
    check_cluster_size(nodes, largest);
    builder.nodes(static_cast<int>(nodes)).devices_per_node(static_cast<int>(largest));
  }
  if (fields.has("intra_node") || largest > 1) {
    const JsonFields intra{
        fields.at("intra_node"), "intra_node", {"bandwidth", "bytes_per_second", "latency", "latency_ps", "kind"}};
    builder.intra_node(read_link_spec(intra),
                       intra.has("kind") ? read_enum<LinkClass>(intra, "kind", link_classes) : LinkClass::nvlink);
  }
  if (fields.has("inter_node") || nodes > 1) {
    builder.inter_node(read_link_spec(
        JsonFields{fields.at("inter_node"), "inter_node", {"bandwidth", "bytes_per_second", "latency", "latency_ps"}}));
  }
  if (fields.has("adapters_per_node")) {
    builder.adapters_per_node(static_cast<int>(fields.whole("adapters_per_node", 1, max_devices_per_node)));
  }
  return builder.build();
}

// ---- the graph form ----

/// [edge] the places in `names` of its two ends. @throws InputError  if an end is unknown.
inline std::pair<int, int> read_ends(const JsonFields& fields, const std::vector<std::string>& names) {
  const Json& ends = fields.list("between", 2);
  if (ends.size() != 2 || !ends[0].is_string() || !ends[1].is_string()) {
    throw fields.fail("between", "expected the names of two vertices, such as [\"GPU0\", \"switch\"]");
  }
  const auto place = [&](const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) throw InputError(concat(fields.where(), ": ", unknown_name("vertex", name, names)));
    return static_cast<int>(found - names.begin());
  };
  return {place(ends[0].get<std::string>()), place(ends[1].get<std::string>())};
}

inline NodeType read_node_graph(const Json& json, const std::string& where) {
  const JsonFields fields{json, where, {"name", "vertices", "edges"}};
  NodeGraph graph;
  std::vector<std::string> names;
  for (const Json& item : fields.list("vertices", max_vertices)) {
    const JsonFields vertex{item,
                            concat(where, ", vertex ", names.size()),
                            {"name", "kind", "device", "bandwidth", "bytes_per_second", "latency", "latency_ps"}};
    std::string vertex_name = vertex.text("name");
    if (std::find(names.begin(), names.end(), vertex_name) != names.end()) {
      throw vertex.fail("name", concat(quote(vertex_name), " occurs twice"));
    }
    names.push_back(vertex_name);
    const auto kind = read_enum<VertexKind>(vertex, "kind", vertex_kinds);
    if (kind == VertexKind::device) {
      graph.add_device(std::move(vertex_name), read_device(vertex.at("device"), vertex.where()));
    } else if (kind == VertexKind::adapter) {
      graph.add_adapter(std::move(vertex_name), read_link_spec(vertex));
    } else {
      kind == VertexKind::cpu ? graph.add_cpu(std::move(vertex_name)) : graph.add_switch(std::move(vertex_name));
    }
  }
  int count = 0;
  for (const Json& item : fields.list("edges", longest_list)) {
    const JsonFields edge{
        item, concat(where, ", edge ", count++), {"between", "kind", "bandwidth", "bytes_per_second", "latency", "latency_ps"}};
    const auto [a, b] = read_ends(edge, names);
    graph.connect(a, b, read_enum<LinkClass>(edge, "kind", link_classes), read_link_spec(edge));
  }
  return make_node_type(fields.text("name"), graph);
}

inline FabricGraph read_fabric_graph(const Json& json, int nodes) {
  if (json.contains("nodes_per_leaf") || json.contains("spines")) {
    const JsonFields fields{json, "fabric", {"nodes_per_leaf", "spines", "uplink"}};
    const JsonFields uplink{fields.at("uplink"), "fabric, uplink", {"bandwidth", "bytes_per_second", "latency", "latency_ps"}};
    return leaf_spine(nodes, static_cast<int>(fields.whole("nodes_per_leaf", 1, max_fabric_nodes)),
                      static_cast<int>(fields.whole("spines", 1, max_fabric_nodes)), read_link_spec(uplink));
  }
  const JsonFields fields{json, "fabric", {"switches", "attach", "edges"}};
  FabricGraph graph{nodes};
  std::vector<std::string> names;
  for (const Json& item : fields.list("switches", 8192)) {
    if (!item.is_string()) throw fields.fail("switches", "expected a list of names");
    names.push_back(item.get<std::string>());
    graph.add_switch(names.back());
  }
  int node = 0;
  for (const Json& item : fields.list("attach", max_fabric_nodes)) {
    const auto found = item.is_string() ? std::find(names.begin(), names.end(), item.get<std::string>()) : names.end();
    if (found == names.end()) {
      throw fields.fail("attach", concat("node ", node, " must be attached to one of the switches: ", join(names, ", ")));
    }
    graph.attach(node++, nodes + static_cast<int>(found - names.begin()));
  }
  if (node != nodes) throw fields.fail("attach", concat("expected a switch for each of the ", nodes, " nodes, not ", node));
  int count = 0;
  for (const Json& item : fields.list("edges", longest_list)) {
    const JsonFields edge{
        item, concat("fabric, edge ", count++), {"between", "bandwidth", "bytes_per_second", "latency", "latency_ps"}};
    const auto [a, b] = read_ends(edge, names);
    graph.connect(nodes + a, nodes + b, read_link_spec(edge));
  }
  return graph;
}

// ---- the exact dump: links and paths as a Cluster keeps them ----

inline std::vector<Link> read_links(const JsonFields& fields) {
  std::vector<Link> links;
  for (const Json& item : fields.list("links", 16 * longest_list)) {
    const JsonFields link{item,
                          concat(fields.where(), ", link ", links.size()),
                          {"kind", "end", "bandwidth", "bytes_per_second", "latency", "latency_ps"}};
    links.push_back({read_enum<LinkClass>(link, "kind", link_classes), read_enum<LinkEnd>(link, "end", link_ends),
                     link.bandwidth(), link.latency()});
  }
  return links;
}

inline std::vector<LinkPath> read_paths(const JsonFields& fields, const char* key) {
  std::vector<LinkPath> paths;
  for (const Json& item : fields.list(key, 16 * longest_list)) {
    if (!item.is_array()) throw fields.fail(key, "expected a list of lists of link numbers");
    LinkPath path;
    for (const Json& link : item) path.push_back(static_cast<std::int32_t>(fields.whole_value(link, key, 0, 2'000'000'000)));
    paths.push_back(std::move(path));
  }
  return paths;
}

inline NodeType read_node_type(const Json& json, const std::string& where) {
  if (json.contains("vertices")) return read_node_graph(json, where);
  const JsonFields fields{json, where, {"name", "devices", "links", "paths", "to_network", "from_network"}};
  NodeType type;
  type.name = fields.text("name");
  for (const Json& device : fields.list("devices", max_devices_per_node)) {
    type.devices.push_back(read_device(device, concat(where, ", device ", type.devices.size())));
  }
  type.links = read_links(fields);
  type.paths = read_paths(fields, "paths");
  type.to_network = read_paths(fields, "to_network");
  type.from_network = read_paths(fields, "from_network");
  return type;
}

/// The types of the nodes: a number of nodes of the only type, or each node's type by name or place.
inline std::vector<std::int32_t> read_nodes(const JsonFields& fields, const std::vector<NodeType>& types) {
  if (!fields.has("nodes")) return {0};
  if (!fields.at("nodes").is_array()) {
    const auto nodes = fields.whole("nodes", 1, max_cluster_devices);
    if (types.size() != 1) throw fields.fail("nodes", "with several node types, list the type of each node");
    check_cluster_size(nodes, static_cast<std::int64_t>(types[0].devices.size()));
    return std::vector<std::int32_t>(static_cast<std::size_t>(nodes), 0);
  }
  std::vector<std::int32_t> nodes;
  std::vector<std::string> names;
  for (const auto& type : types) names.push_back(type.name);
  std::int64_t devices = 0;
  for (const Json& item : fields.list("nodes", longest_list)) {
    if (item.is_string()) {
      const auto found = std::find(names.begin(), names.end(), item.get<std::string>());
      if (found == names.end()) throw fields.fail("nodes", unknown_name("node type", item.get<std::string>(), names));
      nodes.push_back(static_cast<std::int32_t>(found - names.begin()));
    } else {
      const auto last = static_cast<std::int64_t>(types.size()) - 1;
      nodes.push_back(static_cast<std::int32_t>(fields.whole_value(item, "nodes", 0, last)));
    }
    devices += static_cast<std::int64_t>(types[static_cast<std::size_t>(nodes.back())].devices.size());
  }
  if (nodes.empty()) throw fields.fail("nodes", "the list is empty; a cluster needs at least one node");
  check_cluster_size(1, std::max<std::int64_t>(devices, 1));
  return nodes;
}

inline Cluster read_graph_cluster(const Json& json) {
  const JsonFields fields{json, "cluster", {"name", "node_types", "nodes", "fabric"}};
  std::vector<NodeType> types;
  for (const Json& type : fields.list("node_types", 10'000)) {
    types.push_back(read_node_type(type, concat("node type ", types.size())));
  }
  if (types.empty()) throw fields.fail("node_types", "the list is empty; give at least one");
  auto nodes = read_nodes(fields, types);
  Fabric fabric;
  if (fields.has("fabric")) {
    const Json& json_fabric = fields.at("fabric");
    if (json_fabric.contains("links")) {
      const JsonFields exact{json_fabric, "fabric", {"links", "paths"}};
      fabric = {read_links(exact), read_paths(exact, "paths")};
    } else {
      fabric = make_fabric(read_fabric_graph(json_fabric, static_cast<int>(nodes.size())));
    }
  }
  return Cluster{fields.text_or("name", "cluster"), std::move(types), std::move(nodes), std::move(fabric)};
}

// ---- writing ----

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
  }
  return {{"name", type.name},   {"devices", std::move(devices)}, {"links", links_json(type.links)},
          {"paths", type.paths}, {"to_network", type.to_network}, {"from_network", type.from_network}};
}

}  // namespace tawpipe::detail
