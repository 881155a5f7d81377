// Clusters from any input: a name, a size, a JSON file, nvidia-smi's matrix, NCCL's XML or log; and
// back to JSON.
// Not: the parsers themselves (nvidia_smi_topology.hpp, nccl_topology_xml.hpp, nccl_graph_log.hpp,
// detail/cluster_json.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

/// A cluster from the JSON format of docs/topology.md: regular, graph, or exact dump.
/// @param source  the file's name, for messages.
/// @throws InputError  in one line: where the JSON breaks, or the key and what it should hold.
TAWPIPE_INLINE Cluster cluster_from_json(std::string_view text, std::string_view source = "cluster file");

/// The exact dump: cluster_from_json() of it equals `cluster`. Numbers are in the unit named by
/// their key.
TAWPIPE_INLINE std::string write_cluster_json(const Cluster& cluster);

/// The format of a text.
enum class ClusterFormat : std::uint8_t { json, nccl_xml, nccl_log, nvidia_smi, amd_smi, slurm, unknown };

/// Detected by its content: '{' starts JSON, '<' XML, "=== System" NCCL's graph in its log; AMD's
/// tools name XGMI or ROCm, Slurm's tree SwitchName, and a matrix has a column GPU0.
TAWPIPE_INLINE ClusterFormat cluster_format(std::string_view text);

/// A cluster from the text of a file of any of the formats. A machine's topology (XML, matrix)
/// gives `nodes` nodes of that kind.
/// @param nodes  0: as the file says, or one
/// @param device  all devices, by name (topology/devices.hpp), whatever the text says; "": as it
/// says, or else assumed (DeviceSpec::assumed). Link speeds that the text does not give are those
/// of the usual machine around it.
/// @param nvlinks  of each GPU to an NVSwitch, where NCCL's XML names none; 0: as it says
/// @throws InputError  naming the file, and the place in it; for an unknown device, and
/// Slurm's tree, which has no nodes' insides (slurm_topology.hpp).
TAWPIPE_INLINE Cluster cluster_from_text(std::string_view text, std::string_view source, int nodes = 0,
                                         std::string_view device = "", int nvlinks = 0);

inline constexpr std::int64_t max_cluster_file_mebibytes = 64;

/// A cluster file of any format. @throws InputError  if it cannot be read, and as
/// cluster_from_text().
TAWPIPE_INLINE Cluster read_cluster_file(const std::string& path, int nodes = 0, std::string_view device = "", int nvlinks = 0);

/// NVLinks that each device of the first node usually has, if it has at least four such devices and
/// the cluster has no NVLink at all, as in a partial NCCL XML; otherwise 0.
TAWPIPE_INLINE int missing_nvlinks(const Cluster& cluster);

/// The cluster of `--cluster TEXT`: a preset ("dgx-h100", "dgx-h100*16"), a size ("3x8", "8+8+4"),
/// or a file; a file that describes one machine may be multiplied too ("node.xml*4"). The nodes of
/// several are added ("dgx-h100*2+dgx-a100").
/// @param device  as cluster_from_text(); a preset keeps its links
/// @param inter_node  the speed of each adapter, "100Gbps", in place of what the text says (with_adapter_speed()); "": as it says
/// @throws InputError  with the nearest preset's name; for an unknown device.
TAWPIPE_INLINE Cluster resolve_cluster(std::string_view text, std::string_view device = "", std::string_view inter_node = "");

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <optional>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/text_file.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/topology/changed_links.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"
#include "tawpipe/topology/clusters.hpp"
#include "tawpipe/topology/detail/cluster_json.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/nccl_graph_log.hpp"
#include "tawpipe/topology/nccl_topology_xml.hpp"
#include "tawpipe/topology/nvidia_smi_topology.hpp"
#include "tawpipe/topology/peer_access.hpp"
#include "tawpipe/topology/rocm_smi_topology.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The cluster with every device replaced by the one of that name, links unchanged; "": as it is.
inline Cluster with_device(const Cluster& cluster, std::string_view device) {
  if (device.empty()) return cluster;
  return with_changed_devices(cluster, [spec = device_named(device)](DeviceSpec& one) { one = spec; });
}

/// "dgx-h100*2+dgx-a100": the nodes of all parts, on a network without limits of its own.
inline Cluster sum_of_clusters(std::string_view text) {
  std::vector<NodeType> kinds;
  std::vector<std::int32_t> nodes;
  std::int64_t devices = 0;
  for (const std::string_view part : split(text, '+')) {
    const Cluster cluster = resolve_cluster(part);
    if (cluster.fabric() != Fabric{})
      throw InputError(concat(quote(part), " in ", quote(text), " has switches above its nodes; join clusters without them"));
    devices += cluster.ranks();
    check_cluster_size(1, devices);
    for (int node = 0; node < cluster.nodes(); ++node)
      nodes.push_back(static_cast<std::int32_t>(kinds.size()) + cluster.kind_index(NodeId{node}));
    kinds.insert(kinds.end(), cluster.kinds().begin(), cluster.kinds().end());
  }
  return Cluster{std::string{text}, std::move(kinds), std::move(nodes)};
}

}  // namespace detail

TAWPIPE_INLINE Cluster cluster_from_json(std::string_view text, std::string_view source) {
  const JsonDocument document{text, source};
  const JsonValue json = document.root();
  try {
    return json.has("node_types") ? detail::read_graph_cluster(json) : detail::read_regular_cluster(json);
  } catch (const InputError& error) {  // also errors from the builders, which know no file
    const std::string_view message = error.what();
    if (message.starts_with(one_line(std::string{source}))) throw;
    json.fail(message);
  }
}

TAWPIPE_INLINE std::string write_cluster_json(const Cluster& cluster) {
  detail::Json json{{"name", cluster.name()}};
  for (const auto& type : cluster.kinds()) json["node_types"].push_back(detail::node_type_json(type));
  for (int node = 0; node < cluster.nodes(); ++node) json["nodes"].push_back(cluster.kind_index(NodeId{node}));
  if (cluster.fabric() != Fabric{}) {
    json["fabric"] = {{"links", detail::links_json(cluster.fabric().links)}, {"paths", cluster.fabric().paths}};
  }
  return json.dump(1, ' ', false, detail::Json::error_handler_t::replace) + "\n";
}

TAWPIPE_INLINE ClusterFormat cluster_format(std::string_view text) {
  text = without_byte_order_mark(text);
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return ClusterFormat::unknown;
  if (text[begin] == '{') return ClusterFormat::json;
  if (text[begin] == '<') return ClusterFormat::nccl_xml;
  const auto has = [&](std::string_view words) { return text.find(words) != std::string_view::npos; };
  if (has(detail::nccl_graph_start)) return ClusterFormat::nccl_log;
  if (has("XGMI") || has("ROCm System Management")) return ClusterFormat::amd_smi;
  if (const std::string lower = lower_case(text.substr(0, 1 << 16)); lower.find("switchname=") != std::string::npos)
    return ClusterFormat::slurm;
  return has("GPU0") ? ClusterFormat::nvidia_smi : ClusterFormat::unknown;
}

TAWPIPE_INLINE Cluster cluster_from_text(std::string_view text, std::string_view source, int nodes, std::string_view device,
                                         int nvlinks) {
  const auto format = cluster_format(text);
  if (format == ClusterFormat::unknown) {
    throw InputError(concat(source,
                            " is not a cluster: expected JSON, NCCL's topology XML or log (NCCL_DEBUG_SUBSYS=GRAPH), or the "
                            "output of nvidia-smi topo -m or rocm-smi --showtopo"));
  }
  if (format == ClusterFormat::slurm) {
    throw InputError(concat(source, " is Slurm's tree of switches, without the nodes' insides; tawpipe topology import ", source,
                            " --cluster NODE joins both"));
  }
  if (nvlinks > 0 && format != ClusterFormat::nccl_xml)
    throw InputError(concat(source, " says itself which NVLinks there are; only NCCL's XML may leave them out"));
  if (format == ClusterFormat::json) {
    if (nodes != 0)
      throw InputError(concat(source, " is a whole cluster and says its number of nodes; leave out '*", nodes, "'"));
    return detail::with_device(cluster_from_json(text, source), device);
  }
  std::optional<DeviceSpec> spec;
  if (!device.empty()) spec = device_named(device);
  NodeType node =
      format == ClusterFormat::nccl_xml   ? node_type_from_nccl_xml(text, {.device = spec, .nvlinks = nvlinks}, source)
      : format == ClusterFormat::amd_smi  ? make_node_type(std::string{source}, node_graph_from_rocm_smi(text, spec, source))
      : format == ClusterFormat::nccl_log ? make_node_type(std::string{source}, node_graph_from_nccl_log(text, spec, source))
                                          : node_type_from_nvidia_smi(text, {.device = spec, .speeds = {}}, source);
  pass_host_memory(node);
  const int count = nodes == 0 ? 1 : nodes;
  check_cluster_size(count, static_cast<std::int64_t>(node.devices.size()));
  return Cluster{std::string{source}, {std::move(node)}, std::vector<std::int32_t>(static_cast<std::size_t>(count), 0)};
}

TAWPIPE_INLINE Cluster read_cluster_file(const std::string& path, int nodes, std::string_view device, int nvlinks) {
  return cluster_from_text(read_text_file(path, "cluster file", max_cluster_file_mebibytes), path, nodes, device, nvlinks);
}

TAWPIPE_INLINE int missing_nvlinks(const Cluster& cluster) {
  const NodeType& node = cluster.kinds().front();
  const KnownDevice* const device = node.devices.size() < 4 ? nullptr : find_device(node.devices.front().name);
  if (device == nullptr) return 0;
  for (const NodeType& kind : cluster.kinds()) {
    for (const Link& link : kind.links) {
      if (joins_devices(link.kind)) return 0;
    }
  }
  return usual_nvlinks(*device);
}

TAWPIPE_INLINE Cluster resolve_cluster(std::string_view text, std::string_view device, std::string_view inter_node) {
  if (!inter_node.empty()) return with_adapter_speed(resolve_cluster(text, device), parse_bandwidth(inter_node));
  if (const std::string shown = one_line(std::string{text}); shown != text) {
    throw InputError(unknown_name("cluster", shown, clusters::names()));
  }
  const auto find_file = [](const std::string& path) { return find_text_file(path, "cluster file", max_cluster_file_mebibytes); };
  if (text.find('+') != std::string_view::npos && !looks_like_dimensions(text)) {
    if (const auto content = find_file(std::string{text})) return cluster_from_text(*content, text, 0, device);
    if (device.empty()) return detail::sum_of_clusters(text);
    throw InputError(concat("--cluster ", text, " names its devices; leave out --device"));
  }
  if (find_sized_cluster(text).first != nullptr) return detail::with_device(cluster_named(text), device);
  if (const std::optional<Cluster> counted = cluster_of_devices(text)) {
    if (device.empty()) return *counted;
    throw InputError(concat("--cluster ", text, " names its device; leave out --device"));
  }
  if (looks_like_dimensions(text)) return cluster_from_dimensions(text, device);
  if (const auto content = find_file(std::string{text})) return cluster_from_text(*content, text, 0, device);
  const auto [name, nodes] = split_node_count(text);
  if (nodes > 0) {
    if (const auto content = find_file(std::string{name})) return cluster_from_text(*content, name, nodes, device);
  }
  const bool means_path = name.find_first_of("./") != std::string_view::npos;
  throw InputError(concat(
      means_path ? concat("the cluster file ", quote(name), " cannot be read; give a name: ", join(clusters::names(), ", "))
                 : unknown_name("cluster", name, clusters::names()),
      "; or a number of devices such as 64xH100, a size such as 3x8 or 8+8+4, or the name of a file that exists"));
}

}  // namespace tawpipe
#endif
