// Reads the graph that NCCL logs (NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=GRAPH) into a node, with
// all speeds that it names.
// Not: NCCL's topology XML (topology/nccl_topology_xml.hpp), which also names the devices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/log_line.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"
#include "tawpipe/topology/node_graph.hpp"

namespace tawpipe::inline v0 {

namespace detail {

inline constexpr std::string_view nccl_info = "NCCL INFO ";
inline constexpr std::string_view nccl_graph_start = "=== System : max";

/// Walks the lines as ncclTopoPrint writes them: a node stands behind the link by which its parent
/// reaches it ("+ PCI[48.0] - GPU/0-13000 (0)"), its own links below, further right.
class NcclLogReader {
 public:
  NcclLogReader(std::string_view text, std::string_view source) : text_{text}, source_{source} {}

  NodeGraph read(const std::optional<DeviceSpec>& device) {
    read_lines();
    if (gpus_.empty()) throw InputError(one_line(concat(source_, " has NCCL's graph, and no GPU in it; give the whole log")));
    std::stable_sort(gpus_.begin(), gpus_.end(), [](const Gpu& a, const Gpu& b) { return a.rank < b.rank; });
    DeviceSpec spec = device ? *device : assumed_spec(likely_device());
    for (std::size_t i = 0; i < gpus_.size(); ++i) vertices_[gpus_[i].id] = graph_.add_device(concat("GPU", i), spec);
    for (const Edge& edge : edges_) connect(edge);
    return std::move(graph_);
  }

 private:
  struct Gpu {
    std::string id;
    int rank = 0;
    double nvlink = 0;  ///< bytes a second over all its NVLinks
  };
  /// "PCI[48.0]" from one node to another, by their names.
  struct Edge {
    std::string from;
    std::string to;
    std::string_view kind;
    double bytes_per_second;
  };
  struct Open {
    std::ptrdiff_t column;  ///< of the "+" before it
    std::string id;
  };

  InputError fail(std::size_t line, std::string_view message) const {
    return InputError(one_line(concat(source_, ", line ", line + 1, ": ", message)));
  }

  void read_lines() {
    std::string process;  // only the first process that logs a graph is read, and its first graph
    bool open = false;
    std::vector<Open> above;
    const std::vector<std::string_view> lines = split(text_, '\n');
    for (std::size_t l = 0; l < lines.size(); ++l) {
      const auto at = lines[l].find(nccl_info);
      if (at == std::string_view::npos) continue;
      const std::string_view who = lines[l].substr(0, at);
      std::string_view rest = lines[l].substr(at + nccl_info.size());
      while (!rest.empty() && (rest.back() == ' ' || rest.back() == '\r')) rest.remove_suffix(1);
      if (!open) {
        if (!rest.starts_with(nccl_graph_start)) continue;
        open = true;
        process = who;
      } else if (who == process) {
        if (rest.starts_with("=====")) return;
        read_line(l, rest, above);
      }
    }
  }

  void read_line(std::size_t l, std::string_view rest, std::vector<Open>& above) {
    const std::size_t column = rest.find_first_not_of(' ');
    if (column == std::string_view::npos) return;
    if (rest.starts_with("CPU/")) {
      above.assign(1, {-1, take_node(l, rest)});
      return;
    }
    const std::size_t bracket = rest.find('[', column);
    const std::size_t end = rest.find("] - ", column);
    if (rest[column] != '+' || bracket == std::string_view::npos || end == std::string_view::npos)
      return;  // of another subsystem
    const std::string_view kind = trimmed(rest.substr(column + 1, bracket - column - 1));
    const auto speed = to_number<double>(rest.substr(bracket + 1, end - bracket - 1));
    if (!speed || *speed < 0) throw fail(l, concat(quote(rest), " has no speed"));
    while (!above.empty() && above.back().column >= static_cast<std::ptrdiff_t>(column)) above.pop_back();
    if (above.empty()) throw fail(l, concat(quote(rest), " stands below no CPU; give the whole log, with its indentation"));
    const std::string from = above.back().id;
    const std::string to = take_node(l, rest.substr(end + 4));
    if (kind == "PCI") above.push_back({static_cast<std::ptrdiff_t>(column), to});
    edges_.push_back({from, to, kind, *speed * 1e9});
    if (kind != "NVL") return;
    for (Gpu& gpu : gpus_) {
      if (gpu.id == from) gpu.nvlink += *speed * 1e9;
    }
  }

  /// The node's name, "GPU/0-13000"; a GPU is noted where it stands with its rank.
  std::string take_node(std::size_t l, std::string_view text) {
    std::string id{text.substr(0, text.find(' '))};
    if (!id.starts_with("GPU/") || text.find('(') == std::string_view::npos) return id;
    std::string_view rank = text.substr(text.find('(') + 1);
    const auto number = take_number<int>(rank);
    if (!number) throw fail(l, concat(quote(text), " has no rank"));
    if (std::none_of(gpus_.begin(), gpus_.end(), [&](const Gpu& one) { return one.id == id; })) gpus_.push_back({id, *number, 0});
    return id;
  }

  /// The log does not name the GPU: the first of the table with as many bytes a second over its
  /// NVLinks.
  const KnownDevice& likely_device() const {
    for (const KnownDevice& device : known_devices()) {
      const double usual = usual_nvlinks(device) * nvlink_speed(device.sm).value();
      if (gpus_.front().nvlink > 0.99 * usual && gpus_.front().nvlink < 1.01 * usual) return device;
    }
    return known_device("A100-80G");
  }

  /// An adapter with its port's own slot becomes one vertex; several ports of a card share its slot.
  int vertex_of(const std::string& id) {
    if (const auto found = vertices_.find(id); found != vertices_.end()) return found->second;
    const int vertex = id.starts_with("CPU/") ? graph_.add_cpu(id) : graph_.add_switch(id.starts_with("NVS") ? "NVSwitch" : id);
    return vertices_[id] = vertex;
  }

  void connect(const Edge& edge) {
    const bool to_gpu = edge.to.starts_with("GPU/");
    const BytesPerSecond speed{edge.bytes_per_second};
    if (edge.kind == "NET") {
      if (!edge.to.starts_with("NET/")) return;  // GIN and RMA are the same ports
      const int adapter = graph_.add_adapter(edge.to, {speed, speeds_.network_latency});
      graph_.connect(adapter, vertex_of(edge.from), LinkClass::pcie, {speed, Duration{}});
      return;
    }
    // Links between CPUs, between GPUs and from GPU to CPU are listed at both ends.
    if (edge.kind == "PCI") {
      graph_.connect(vertex_of(edge.to), vertex_of(edge.from), LinkClass::pcie,
                     {speed, to_gpu ? speeds_.device_pcie_latency : speeds_.hop_latency});
    } else if (edge.kind == "SYS") {
      if (edge.from < edge.to)
        graph_.connect(vertex_of(edge.from), vertex_of(edge.to), LinkClass::socket, {speed, speeds_.hop_latency});
    } else if (edge.kind == "NVL" || edge.kind == "C2C") {
      if (!edge.from.starts_with("GPU/") || (to_gpu && edge.to < edge.from)) return;
      const std::string to = edge.to.starts_with("NVS") ? "NVS" : edge.to;  // all NVSwitches are one
      graph_.connect(vertex_of(edge.from), vertex_of(to), LinkClass::nvlink,
                     {speed, to_gpu ? speeds_.nvlink_latency * 2 : speeds_.nvlink_latency});
    }
  }

  std::string_view text_;
  std::string_view source_;
  LinkSpeeds speeds_;  // latencies only: every bandwidth is in the log
  NodeGraph graph_;
  std::vector<Gpu> gpus_;
  std::vector<Edge> edges_;
  std::map<std::string, int> vertices_;
};

}  // namespace detail

/// Builds the graph of the node whose graph the log shows first. GPUs are numbered by their rank.
/// @param device  default: assumed by the speed of all NVLinks of a GPU, otherwise A100-80G
/// @param source  the file's name, for messages
/// @throws InputError  naming the line that is wrong, or if the log shows no graph with a GPU.
/// Source: NCCL 2.28.9, src/graph/topo.cc, ncclTopoPrint.
inline NodeGraph node_graph_from_nccl_log(std::string_view text, const std::optional<DeviceSpec>& device = {},
                                          std::string_view source = "NCCL log") {
  return detail::NcclLogReader{text, source}.read(device);
}

}  // namespace tawpipe
