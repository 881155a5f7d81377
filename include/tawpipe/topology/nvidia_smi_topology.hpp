// Reads the matrix that `nvidia-smi topo -m` prints, and builds a node from it.
// Not: NCCL's XML (topology/nccl_topology_xml.hpp), which has more detail and should be preferred
// if both are available.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/detail/smi_text.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"
#include "tawpipe/topology/node_graph.hpp"
#include "tawpipe/topology/routing.hpp"

namespace tawpipe::inline v0 {

/// What `nvidia-smi topo -m` shows: which devices are connected, in its own terms. Column c is
/// gpus[c], or nics[c - gpus].
struct SmiTopology {
  std::vector<std::string> gpus;  ///< "GPU0", ...
  /// [gpu] as the text around the matrix names it, "NVIDIA L40S"; "" where it does not
  std::vector<std::string> models;
  /// "NIC0", or "mlx5_0" if an old driver prints that; the legend's name if given
  std::vector<std::string> nics;
  /// [gpu] the first affinity column, such as "0-23,48-71"; empty if blank
  std::vector<std::string> affinities;
  /// [row * size() + column]; `unknown` between adapters whose rows are missing
  std::vector<SmiCell> cells;

  std::size_t size() const { return gpus.size() + nics.size(); }
  const SmiCell& cell(std::size_t row, std::size_t column) const { return cells[row * size() + column]; }
};

/// Settings that the matrix does not contain.
struct SmiOptions {
  /// default: as the text names it, otherwise assumed: H100-80G where a pair has 18 NVLinks,
  /// otherwise A100-80G
  std::optional<DeviceSpec> device;
  std::optional<LinkSpeeds> speeds;  ///< default: link_speeds() of the device's generation
};

/// Parses the text. Takes tabs or spaces, escape codes, cells run together where a terminal
/// wrapped, NIC or mlx5 columns, missing or cut-off NIC rows, any affinity columns or none, marks of
/// quoting, and text before and after the matrix, which may name the GPUs (collect_env,
/// nvidia-smi -L).
/// @param source  the file's name, for messages.
/// @throws InputError  naming line and cell.
inline SmiTopology parse_nvidia_smi_topology(std::string_view text, std::string_view source = "nvidia-smi topo -m") {
  const auto lines = detail::smi_lines(text);
  const auto fail = [&](std::size_t line, std::string_view message) {
    return InputError(one_line(concat(source, ", line ", line + 1, ": ", message)));
  };
  std::size_t header = 0;
  while (header < lines.size() && !detail::is_smi_header(lines[header])) ++header;
  if (header == lines.size()) {
    throw InputError(concat(source, " holds no matrix of nvidia-smi topo -m: no line starts with the columns GPU0, GPU1, ..."));
  }
  SmiTopology topology;
  for (auto& column : detail::smi_columns(lines[header])) {
    const bool gpu = detail::is_numbered(column, "GPU");
    if (gpu && !topology.nics.empty()) throw fail(header, concat("column ", column, " stands after an adapter; GPUs come first"));
    auto& names = gpu ? topology.gpus : topology.nics;
    if (std::find(names.begin(), names.end(), column) != names.end()) {
      throw fail(header, concat("column ", column, " occurs twice"));
    }
    names.push_back(std::move(column));
  }
  if (topology.size() > 1024) throw fail(header, "more than 1024 columns cannot be one node");

  std::vector<std::string> columns = topology.gpus;
  columns.insert(columns.end(), topology.nics.begin(), topology.nics.end());
  topology.cells.assign(columns.size() * columns.size(), SmiCell{});
  topology.affinities.resize(topology.gpus.size());
  std::vector<std::size_t> line_of(columns.size(), 0);
  for (std::size_t line = header + 1; line < lines.size(); ++line) {
    const auto row_name = detail::first_word(lines[line]);
    const auto place = std::find(columns.begin(), columns.end(), row_name);
    if (place == columns.end()) continue;
    const auto row = static_cast<std::size_t>(place - columns.begin());
    const bool gpu = row < topology.gpus.size();
    if (line_of[row] != 0) throw fail(line, concat("a second row for ", row_name));
    line_of[row] = line;
    std::string cells = lines[line].substr(lines[line].find(row_name) + row_name.size());
    auto parsed = detail::smi_cells(cells, columns.size());
    while (parsed.cells.size() < columns.size() && parsed.rest.empty() && line + 1 < lines.size() &&
           detail::continues_row(lines[line + 1])) {
      cells += concat(" ", lines[++line]);  // a row that a terminal wrapped
      parsed = detail::smi_cells(cells, columns.size());
    }
    const std::size_t needed = gpu ? topology.gpus.size() : 0;
    if (parsed.cells.size() < needed || (parsed.cells.size() < columns.size() && !parsed.rest.empty())) {
      const auto& column = columns[parsed.cells.size()];
      throw fail(line, concat("row ", row_name, ", column ", column, ": ",
                              parsed.rest.empty() ? "the cell is missing" : concat(quote(parsed.rest), " is not a connection"),
                              "; expected X, NV#, PIX, PXB, PHB, NODE or SYS"));
    }
    if (gpu && parsed.rest != "N/A") topology.affinities[row] = parsed.rest;
    for (std::size_t c = 0; c < parsed.cells.size(); ++c) {
      const auto& cell = parsed.cells[c];
      if ((c == row) != (cell.kind == SmiConnection::self)) {
        throw fail(line, concat("row ", row_name, ", column ", columns[c],
                                c == row ? ": a row's own column holds X" : ": X stands only in a row's own column"));
      }
      if (cell.kind == SmiConnection::nvlink && (!gpu || c >= topology.gpus.size())) {
        throw fail(line, concat("row ", row_name, ", column ", columns[c], ": an adapter has no NVLink"));
      }
      topology.cells[row * columns.size() + c] = cell;
    }
  }
  for (std::size_t row = 0; row < topology.gpus.size(); ++row) {
    if (line_of[row] == 0) throw fail(header, concat("column ", columns[row], " has no row of its own"));
  }
  detail::complete_smi_matrix(topology, line_of, fail);
  detail::apply_smi_legend(lines, topology.nics);
  topology.models = detail::smi_models(lines, topology.gpus.size());
  return topology;
}

/// Builds the node's graph. GPUs and adapters connected by PIX or PXB share a switch and its
/// uplink; those connected by PHB or NODE meet in one CPU, each through its own slot, and so do
/// GPUs of equal CPU affinity connected by NVLink, which hides their PCI Express; SYS crosses from
/// CPU to CPU (each pair of CPUs has a link, as in NCCL). NVLinks that add up to more than 18 a GPU
/// if they were direct are one NVSwitch with a port of # links for each GPU; fewer are direct
/// links. @throws InputError  if the text names a GPU that has no entry in the table.
inline NodeGraph make_node_graph(const SmiTopology& topology, const SmiOptions& options = {}) {
  int max_nvlinks = 0;
  for (const auto& cell : topology.cells) max_nvlinks = std::max(max_nvlinks, cell.nvlinks);
  const KnownDevice* usual = &known_device(max_nvlinks == 18 ? "H100-80G" : "A100-80G");
  std::vector<DeviceSpec> devices;
  for (std::size_t gpu = 0; gpu < topology.gpus.size(); ++gpu) {
    const std::string_view model = gpu < topology.models.size() ? std::string_view{topology.models[gpu]} : std::string_view{};
    if (options.device) {
      devices.push_back(*options.device);
    } else if (model.empty()) {
      devices.push_back(assumed_spec(*usual));
    } else if (const KnownDevice* const known = device_of_driver(model)) {
      devices.push_back(spec_of(*known));
    } else {
      throw InputError(concat("no data sheet is known for GPU ", quote(model), "; name the nearest device (--device NAME)"));
    }
  }
  if (const KnownDevice* const known = devices.empty() ? nullptr : find_device(devices.front().name)) usual = known;
  const LinkSpeeds speeds = options.speeds ? *options.speeds : link_speeds(*usual);

  NodeGraph graph;
  for (std::size_t gpu = 0; gpu < devices.size(); ++gpu) graph.add_device(topology.gpus[gpu], devices[gpu]);
  for (const auto& nic : topology.nics) graph.add_adapter(nic, {speeds.network, speeds.network_latency});
  detail::connect_smi_nvlinks(topology, speeds, graph);
  detail::connect_smi_pcie(topology, speeds, graph);
  return graph;
}

/// Both steps and the routes: from text to node. @throws InputError  as they do.
inline NodeType node_type_from_nvidia_smi(std::string_view text, const SmiOptions& options = {},
                                          std::string_view source = "nvidia-smi topo -m") {
  return make_node_type(std::string{source}, make_node_graph(parse_nvidia_smi_topology(text, source), options));
}

}  // namespace tawpipe
