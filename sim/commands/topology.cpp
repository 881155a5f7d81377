// `tawpipe topology show|import`: shows a cluster, and converts a machine's description.
#include <fmt/format.h>

#include "../request.hpp"
#include "../terminal_text.hpp"
#include "output.hpp"
#include "tawpipe/cost/nccl_collectives.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/topology/cluster_file.hpp"

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

}  // namespace

int run_topology_show(const std::string& cluster, const std::string& device, const std::string& json) {
  return show(resolve_cluster(cluster, device), json);
}

int run_topology_import(const std::string& file, int nodes, const std::string& device, const std::string& json) {
  return show(read_cluster_file(file, nodes, device), json);
}

}  // namespace tawpipe::sim
