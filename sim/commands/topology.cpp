// `tawpipe topology show|import`: shows a cluster, and converts a machine's description.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "../request.hpp"
#include "../terminal_text.hpp"
#include "output.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/cost/nccl_collectives.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"
#include "tawpipe/topology/cluster_file.hpp"
#include "tawpipe/topology/routing.hpp"
#include "tawpipe/topology/slurm_topology.hpp"

namespace tawpipe::sim {

namespace {

/// The slowest link of a route: its class and bandwidth.
std::string route_text(const Cluster& cluster, Rank from, Rank to) {
  const Route route = cluster.route(from, to);
  if (route.links.empty()) return "none";
  const Link* slowest = &cluster.link(route.links.front());
  for (const LinkId link : route.links) {
    if (cluster.link(link).bandwidth < slowest->bandwidth) slowest = &cluster.link(link);
  }
  return fmt::format("{} {}", name(slowest->kind), format_bandwidth(slowest->bandwidth));
}

std::string adapters_text(const NodeType& type) {
  int adapters = 0;
  BytesPerSecond total;
  for (const Link& link : type.links) {
    if (link.end != LinkEnd::adapter_out) continue;
    ++adapters;
    total += link.bandwidth;
  }
  return adapters == 0 ? std::string{"no network adapter"}
                       : fmt::format("{} network {}, {} out in all", adapters, adapters == 1 ? "adapter" : "adapters",
                                     format_bandwidth(total));
}

std::string host_text(const NodeType& type) {
  if (type.host_memory <= Bytes{}) return "unknown";
  return format_memory(type.host_memory) + (type.host_memory_assumed ? " (assumed)" : "");
}

std::string show_text(const Cluster& cluster) {
  std::string out = fmt::format("{}: {} {}, {} devices, {} links\n", cluster.name(), cluster.nodes(),
                                cluster.nodes() == 1 ? "node" : "nodes", cluster.ranks(), cluster.links());
  if (const std::string device = assumed_device({.cluster = cluster}); !device.empty())
    out += fmt::format("{} is assumed, as nothing names the GPU; --device NAME names it\n", device);
  out += no_nvlinks_text(cluster);
  Table nodes{{{"node"},
               {"ranks"},
               {"device"},
               {"memory", Align::right},
               {"peak", Align::right},
               {"network"},
               {"memory of the host", Align::right}}};
  constexpr int most = 16;
  for (int n = 0; n < std::min(cluster.nodes(), most); ++n) {
    const NodeId node{n};
    const Rank first = cluster.first_rank(node);
    const DeviceSpec& device = cluster.device(first);
    nodes.row({std::to_string(n), fmt::format("{}-{}", number(first), number(first) + cluster.devices_in(node) - 1), device.name,
               format_memory(device.memory), format_flops_rate(device.peak), adapters_text(cluster.kind_of(node)),
               host_text(cluster.kind_of(node))});
  }
  out += "\n" + nodes.str(terminal_style());
  if (cluster.nodes() > most) out += fmt::format("… and {} more nodes\n", cluster.nodes() - most);
  out += "\nslowest link between ranks\n";
  Table routes{{{"from", Align::right}, {"to", Align::right}, {"link"}, {"latency", Align::right}}};
  const int shown = std::min(cluster.devices_in(NodeId{0}), 8);
  for (int to = 1; to < shown; ++to) {
    routes.row({"0", std::to_string(to), route_text(cluster, Rank{0}, Rank{to}),
                format_duration(cluster.route(Rank{0}, Rank{to}).latency)});
  }
  if (cluster.nodes() > 1) {
    const Rank far = cluster.first_rank(NodeId{1});
    routes.row({"0", std::to_string(number(far)), route_text(cluster, Rank{0}, far),
                format_duration(cluster.route(Rank{0}, far).latency)});
  }
  return out + routes.str(terminal_style());
}

std::string nccl_text(const Cluster& cluster) {
  if (cluster.ranks() < 2) return "";
  constexpr int most = 65536;  // ranks times channels are visited
  if (cluster.ranks() > most) return fmt::format("\nNCCL's own estimate is left out beyond {} ranks\n", format_count(most));
  std::vector<Rank> all;
  for (int r = 0; r < cluster.ranks(); ++r) all.push_back(Rank{r});
  NcclRing ring = nccl_ring(all, cluster);
  ring.extra_inside = 0;  // its own estimate uses only its own latencies
  ring.extra_network = 0;
  Table table{{{"over all ranks"},
               {"LL", Align::right},
               {"LL128", Align::right},
               {"Simple", Align::right},
               {"LL below", Align::right},
               {"Simple from", Align::right}}};
  for (const Op op : {Op::broadcast, Op::all_gather, Op::reduce_scatter, Op::all_reduce}) {
    std::vector<std::string> cells{std::string{name(op)}};
    for (const NcclProtocol protocol : {NcclProtocol::ll, NcclProtocol::ll128, NcclProtocol::simple}) {
      const NcclCost cost = nccl_ring_cost(op, protocol, ring);
      cells.push_back(cost.bytes_per_second > 0 ? fmt::format("{} + B / {}", format_duration(seconds(cost.latency_s)),
                                                              format_bandwidth(BytesPerSecond{cost.bytes_per_second}))
                                                : std::string{"-"});
    }
    std::int64_t low = 1024;
    while (low < (std::int64_t{1} << 40) && nccl_fastest_ring(op, ring, static_cast<double>(low)) == NcclProtocol::ll) low *= 2;
    std::int64_t simple = low;
    while (simple < (std::int64_t{1} << 40) && nccl_fastest_ring(op, ring, static_cast<double>(simple)) != NcclProtocol::simple) {
      simple *= 2;
    }
    cells.push_back(format_memory(Bytes{low}));
    cells.push_back(format_memory(Bytes{simple}));
    table.row(std::move(cells));
  }
  return "\nNCCL's own estimate of rings for B bytes (charged with --cost roofline:collectives=nccl)\n" +
         table.str(terminal_style());
}

int show(const Cluster& cluster, const std::string& json) {
  if (!json.empty()) write_output(json, write_cluster_json(cluster));
  if (json != "-") print(show_text(cluster) + nccl_text(cluster));
  return ok;
}

/// Slurm's tree above the nodes of a cluster, or by itself as a part of a cluster file.
int import_slurm(const ImportRequest& request, const SlurmTree& tree) {
  if (request.nodes > 0 || request.nvlinks > 0) throw InputError("Slurm's tree has its nodes; leave out --nodes and --nvlinks");
  std::optional<Cluster> below;
  if (!request.cluster.empty()) below = resolve_cluster(request.cluster, request.device);
  BytesPerSecond node{8 * 50e9};  // 8 adapters of 400 Gb/s
  if (below) {
    node = {};
    for (const Link& link : below->kinds().front().links) {
      if (link.end == LinkEnd::adapter_out) node += link.bandwidth;
    }
  }
  std::optional<BytesPerSecond> given;
  if (!request.uplink.empty()) given = parse_bandwidth(request.uplink);
  const auto uplink = [&](int nodes) {
    return LinkSpec{given ? *given : node * static_cast<double>(nodes), Duration{1'000'000}};
  };
  const FabricGraph graph = fabric_of(tree, uplink);
  const std::string note =
      given ? std::string{}
            : fmt::format(
                  "Uplinks carry all that the nodes below can send ({} each): assumed, as Slurm's file has no speeds; --uplink "
                  "400Gbps gives that of a switch\n",
                  format_bandwidth(node));
  if (below) {
    const int count = graph.nodes;
    if (below->kinds().size() != 1) throw InputError("--cluster has nodes of several kinds; give one whose nodes are alike");
    check_cluster_size(count, below->devices_in(NodeId{0}));
    const Cluster whole{one_line(request.file), below->kinds(), std::vector<std::int32_t>(static_cast<std::size_t>(count), 0),
                        make_fabric(graph)};
    if (request.json != "-") print(note);
    return show(whole, request.json);
  }
  nlohmann::ordered_json fabric;
  fabric["switches"] = graph.switches;
  fabric["attach"] = std::vector<std::string>(static_cast<std::size_t>(graph.nodes));
  for (const FabricGraph::Attachment& one : graph.attachments)
    fabric["attach"][static_cast<std::size_t>(one.node)] = graph.switches[static_cast<std::size_t>(one.at - graph.nodes)];
  fabric["edges"] = nlohmann::ordered_json::array();
  for (const FabricGraph::Edge& edge : graph.edges) {
    fabric["edges"].push_back({{"between",
                                {graph.switches[static_cast<std::size_t>(edge.a - graph.nodes)],
                                 graph.switches[static_cast<std::size_t>(edge.b - graph.nodes)]}},
                               {"bytes_per_second", edge.link.bandwidth.value()},
                               {"latency_ps", edge.link.latency.value()}});
  }
  const nlohmann::ordered_json json{{"nodes", graph.nodes}, {"fabric", std::move(fabric)}};
  if (!request.json.empty()) write_output(request.json, json.dump(2) + "\n");
  if (request.json == "-") return ok;
  Table table{{{"switch"}, {"nodes below", Align::right}, {"directly below"}}};
  for (const SlurmSwitch& one : tree.switches) {
    std::vector<std::string> names;
    for (const int s : one.switches) names.push_back(tree.switches[static_cast<std::size_t>(s)].name);
    if (!one.nodes.empty())
      names.push_back(concat(tree.nodes[static_cast<std::size_t>(one.nodes.front())], " to ",
                             tree.nodes[static_cast<std::size_t>(one.nodes.back())]));
    table.row({one.name, std::to_string(one.nodes_below), join(names, ", ")});
  }
  print(table.str(terminal_style()) + "\n" + note +
        "\nFor a cluster file of such nodes (docs/topology.md), or at once with --cluster NODE:\n" + json.dump() + "\n");
  return ok;
}

}  // namespace

int run_topology_show(const std::string& cluster, const std::string& device, const std::string& inter_node,
                      const std::string& json) {
  return show(resolve_cluster(cluster, device, inter_node), json);
}

int run_topology_import(const ImportRequest& request) {
  const std::string text = read_text(request.file, "cluster file", max_cluster_file_mebibytes);
  const std::string source = one_line(request.file);
  if (cluster_format(text) == ClusterFormat::slurm) return import_slurm(request, read_slurm_tree(text, source));
  if (!request.cluster.empty() || !request.uplink.empty())
    throw InputError("--cluster and --uplink go with Slurm's tree of switches; this file has its nodes");
  return show(cluster_from_text(text, source, request.nodes, request.device, request.nvlinks), request.json);
}

}  // namespace tawpipe::sim
