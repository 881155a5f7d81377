// Reads what `rocm-smi --showtopo` prints of a node of AMD GPUs, and builds the node from it.
// Not: `amd-smi topology`, nor NVIDIA's matrix (topology/nvidia_smi_topology.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/detail/smi_text.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/node_graph.hpp"
#include "tawpipe/topology/peer_access.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// One table of the text, "Link Type between two GPUs": [from * gpus + to] its words; empty if it is not there.
/// @throws InputError  naming the line of a row that does not fit.
inline std::vector<std::string> rocm_table(const std::vector<std::string>& lines, std::string_view title,
                                           std::string_view source) {
  std::size_t at = 0;
  while (at < lines.size() && !(lines[at].find("==") != std::string::npos && lines[at].find(title) != std::string::npos)) ++at;
  if (at + 1 >= lines.size()) return {};
  const std::size_t gpus = words(lines[at + 1]).size();
  std::vector<std::string> cells;
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
    const std::size_t line = at + 2 + gpu;
    const auto row = line < lines.size() ? words(lines[line]) : std::vector<std::string_view>{};
    if (row.size() != gpus + 1 || row.front() != concat("GPU", gpu)) {
      throw InputError(one_line(concat(source, ", line ", line + 1, ": expected the row of GPU", gpu, " with ", gpus,
                                       " columns, below ", quote(title))));
    }
    cells.insert(cells.end(), row.begin() + 1, row.end());
  }
  return cells;
}

/// What follows the ": " of lines such as "GPU[0] : (Topology) Numa Node: 0" that have `key`: [gpu].
inline std::vector<std::string> rocm_values(const std::vector<std::string>& lines, std::string_view key, std::size_t gpus) {
  std::vector<std::string> values(gpus);
  for (const std::string& line : lines) {
    const std::size_t open = line.find("GPU[");
    const std::size_t found = lower_case(line).find(key);
    if (open == std::string::npos || found == std::string::npos) continue;
    std::string_view number = std::string_view{line}.substr(open + 4);
    const auto gpu = take_number<std::size_t>(number);
    if (!gpu || *gpu >= gpus || !values[*gpu].empty()) continue;
    const auto all = words(std::string_view{line}.substr(found + key.size()));
    for (const std::string_view word : all) values[*gpu] += concat(values[*gpu].empty() ? "" : " ", word);
  }
  return values;
}

}  // namespace detail

/// Builds the node's graph: a link for each pair that XGMI joins, and slots of PCI Express into the CPU of each GPU's
/// NUMA node. The text has no adapters, and no device but where `--showproductname` was asked for too ("Card Series").
/// @param device  of all GPUs; default: as the text names it, otherwise MI300X-192G, assumed
/// @param source  the file's name, for messages
/// @throws InputError  if there is no table of link types, or for GPUs that XGMI joins through others (MI250X).
/// Source: a direct link has weight 15, others more, and hops are 1 for all (ROCm/rocm-systems#5763, open-mpi/hwloc#775).
inline NodeGraph node_graph_from_rocm_smi(std::string_view text, const std::optional<DeviceSpec>& device = {},
                                          std::string_view source = "rocm-smi --showtopo") {
  const auto lines = detail::smi_lines(text);
  const auto types = detail::rocm_table(lines, "Link Type between two GPUs", source);
  const auto weights = detail::rocm_table(lines, "Weight between two GPUs", source);
  std::size_t gpus = 0;
  while (gpus * gpus < types.size()) ++gpus;
  if (gpus == 0 || (!weights.empty() && weights.size() != types.size())) {
    throw InputError(concat(source,
                            " is of AMD GPUs, and has no table \"Link Type between two GPUs\" as rocm-smi --showtopo "
                            "prints it; give its whole output"));
  }
  const auto models = detail::rocm_values(lines, "card series:", gpus);
  const auto numa = detail::rocm_values(lines, "numa node:", gpus);
  NodeGraph graph;
  std::vector<std::string> nodes;
  std::vector<int> cpus;
  std::vector<const KnownDevice*> known;
  std::vector<int> vertices;  // of the GPUs
  const KnownDevice& usual = known_device("MI300X-192G");
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
    const KnownDevice* const named = device_of_driver(models[gpu]);
    if (!device && named == nullptr && !models[gpu].empty())
      throw InputError(
          concat("no data sheet is known for GPU ", quote(models[gpu]), "; name the nearest device (--device NAME)"));
    const DeviceSpec spec = device ? *device : named != nullptr ? spec_of(*named) : assumed_spec(usual);
    const KnownDevice* const entry = find_device(spec.name);
    known.push_back(entry != nullptr ? entry : &usual);
    const auto place = std::find(nodes.begin(), nodes.end(), numa[gpu]);
    if (place == nodes.end()) cpus.push_back(graph.add_cpu(concat("CPU", cpus.size())));
    const int cpu = cpus[static_cast<std::size_t>(place - nodes.begin())];
    if (place == nodes.end()) nodes.push_back(numa[gpu]);
    const LinkSpeeds speeds = link_speeds(*known.back());
    vertices.push_back(graph.add_device(concat("GPU", gpu), spec));
    graph.connect(vertices.back(), cpu, LinkClass::pcie, {speeds.pcie, speeds.device_pcie_latency});
  }
  const LinkSpeeds speeds = link_speeds(*known.front());
  for (std::size_t a = 0; a < cpus.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) graph.connect(cpus[b], cpus[a], LinkClass::socket, {speeds.socket, speeds.hop_latency});
  }
  for (std::size_t a = 0; a < gpus; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const std::string& type = types[b * gpus + a];
      if (type != "XGMI" && type != "PCIE")
        throw InputError(
            one_line(concat(source, ": GPU", b, " and GPU", a, " are joined by ", quote(type), "; known are XGMI and PCIE")));
      if (type != "XGMI") continue;
      if (!weights.empty() && weights[b * gpus + a] != "15")
        throw InputError(one_line(concat(source, ": XGMI joins GPU", b, " and GPU", a, " through other GPUs (weight ",
                                         weights[b * gpus + a], ", a link's is 15); describe the node as JSON")));
      const LinkSpec link = is_mesh(known[a]->peers) ? mesh_link(*known[a]) : mesh_link(usual);
      graph.connect(vertices[b], vertices[a], LinkClass::xgmi, link);
    }
  }
  return graph;
}

}  // namespace tawpipe
