// Parses the words and lines of `nvidia-smi topo -m`, and turns its matrix into switches and
// sockets.
// Not: public; topology/nvidia_smi_topology.hpp is the public interface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/log_line.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/link_speeds.hpp"
#include "tawpipe/topology/node_graph.hpp"

namespace tawpipe::inline v0 {

/// How two of a node's GPUs or adapters are connected, nearest first.
enum class SmiConnection : std::uint8_t { self, nvlink, pix, pxb, phb, node, sys, unknown };

/// A cell of the matrix. `nvlinks` is the # of "NV#", otherwise 0.
struct SmiCell {
  SmiConnection kind = SmiConnection::unknown;
  int nvlinks = 0;

  bool operator==(const SmiCell&) const = default;
};

namespace detail {

/// The lines, without escape codes, carriage returns, marks of quoting and labels of launchers.
inline std::vector<std::string> smi_lines(std::string_view text) {
  std::vector<std::string> lines(1);
  text = without_byte_order_mark(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      i += 2;
      while (i < text.size() && !(text[i] >= '@' && text[i] <= '~')) ++i;  // parameters, up to the final letter
    } else if (text[i] == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += text[i] >= 0 && text[i] < ' ' ? ' ' : text[i];
    }
  }
  for (std::string& line : lines) line.erase(0, line.size() - without_label(line).size());
  return lines;
}

inline std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < line.size();) {
    const auto begin = line.find_first_not_of(' ', at);
    if (begin == std::string_view::npos) break;
    at = std::min(line.find(' ', begin), line.size());
    words.push_back(line.substr(begin, at - begin));
  }
  return words;
}

inline std::string_view first_word(std::string_view line) {
  const auto all = words(line);
  return all.empty() ? std::string_view{} : all.front();
}

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// "GPU12" for prefix "GPU".
inline bool is_numbered(std::string_view word, std::string_view prefix) {
  return word.size() > prefix.size() && word.substr(0, prefix.size()) == prefix &&
         std::all_of(word.begin() + static_cast<std::ptrdiff_t>(prefix.size()), word.end(), is_digit);
}

/// The header's first words are columns: GPU0 and then another column or an affinity, never a
/// connection.
inline bool is_smi_header(std::string_view line) {
  const auto all = words(line);
  if (all.empty() || all.front().substr(0, 3) != "GPU" || all.front().size() < 4 || !is_digit(all.front()[3])) return false;
  if (all.size() == 1) return true;
  return all[1].substr(0, 3) == "GPU" || all[1].substr(0, 3) == "NIC" || all[1] == "CPU" || all[1].substr(0, 4) == "mlx5";
}

/// The columns of the matrix, up to the affinities. Names run together are split: "NIC0NIC1".
inline std::vector<std::string> smi_columns(std::string_view header) {
  std::vector<std::string> columns;
  for (std::string_view word : words(header)) {
    if (word == "CPU" || word == "NUMA" || word == "GPU" || word == "Affinity") break;
    while (!word.empty()) {
      std::size_t end = word.size();
      const auto head = word.substr(0, 3);
      if ((head == "GPU" || head == "NIC") && word.size() > 3 && is_digit(word[3])) {
        end = 3;
        while (end < word.size() && is_digit(word[end])) ++end;
      }
      columns.emplace_back(word.substr(0, end));
      word.remove_prefix(end);
    }
  }
  return columns;
}

struct SmiRow {
  std::vector<SmiCell> cells;
  /// the first word that is not a connection of the matrix; empty at the line's end
  std::string rest;
};

/// The connection at the start of `word` and its length; length 0 if there is none.
inline std::pair<SmiCell, std::size_t> smi_cell(std::string_view word) {
  constexpr std::pair<std::string_view, SmiConnection> names[] = {
      {"X", SmiConnection::self},    {"PIX", SmiConnection::pix}, {"PXB", SmiConnection::pxb}, {"PHB", SmiConnection::phb},
      {"NODE", SmiConnection::node}, {"SYS", SmiConnection::sys}, {"SOC", SmiConnection::sys},  // SOC: drivers before 390
  };
  for (const auto& [name, kind] : names) {
    if (word.substr(0, name.size()) == name) return {SmiCell{kind, 0}, name.size()};
  }
  if (word.size() >= 3 && word.substr(0, 2) == "NV" && is_digit(word[2]) && word[2] != '0') {
    // At most two digits: no GPU has a hundred NVLinks, and an affinity may follow without a space.
    const bool two = word.size() > 3 && is_digit(word[3]);
    const int count = two ? (word[2] - '0') * 10 + (word[3] - '0') : word[2] - '0';
    return {SmiCell{SmiConnection::nvlink, count}, two ? std::size_t{4} : std::size_t{3}};
  }
  return {SmiCell{}, 0};
}

/// At most `columns` connections from the start of `text`; "PXBNODE" is two.
inline SmiRow smi_cells(std::string_view text, std::size_t columns) {
  SmiRow row;
  for (std::string_view word : words(text)) {
    while (!word.empty()) {
      const auto [cell, length] = smi_cell(word);
      if (length == 0 || row.cells.size() == columns) {
        row.rest = word;
        return row;
      }
      row.cells.push_back(cell);
      word.remove_prefix(length);
    }
  }
  return row;
}

/// Whether a line can only be the second half of a row: connections and affinities, and no legend
/// ("X = Self").
inline bool continues_row(std::string_view line) {
  const auto all = words(line);
  return !all.empty() && smi_cell(all.front()).second > 0 && (all.size() < 2 || all[1] != "=");
}

/// Fills gaps in one half of the matrix from the other, and rejects halves that differ.
template <class Topology, class Fail>
void complete_smi_matrix(Topology& topology, const std::vector<std::size_t>& line_of, const Fail& fail) {
  const std::size_t size = topology.size();
  const auto label = [&](std::size_t i) {
    return i < topology.gpus.size() ? topology.gpus[i] : topology.nics[i - topology.gpus.size()];
  };
  for (std::size_t row = 0; row < size; ++row) {
    for (std::size_t column = 0; column < row; ++column) {
      auto& lower = topology.cells[row * size + column];
      auto& upper = topology.cells[column * size + row];
      if (lower.kind == SmiConnection::unknown) lower = upper;
      if (upper.kind == SmiConnection::unknown) upper = lower;
      if (lower != upper) {
        throw fail(line_of[row], concat("row ", label(row), ", column ", label(column), " differs from row ", label(column),
                                        ", column ", label(row), "; the matrix is symmetric"));
      }
      if (lower.kind == SmiConnection::unknown && column < topology.gpus.size()) {
        throw fail(line_of[column], concat("row ", label(column), ", column ", label(row), ": the cell is missing"));
      }
    }
  }
}

/// Replaces "NIC0" by the legend's "mlx5_0": lines "NIC0: mlx5_0".
inline void apply_smi_legend(const std::vector<std::string>& lines, std::vector<std::string>& nics) {
  for (const auto& line : lines) {
    const auto all = words(line);
    if (all.size() != 2 || all[0].back() != ':') continue;
    const auto place = std::find(nics.begin(), nics.end(), all[0].substr(0, all[0].size() - 1));
    if (place != nics.end()) *place = concat(*place, " (", all[1], ")");
  }
}

/// What the text around the matrix calls its GPUs: [gpu] a driver's name; "" where it names none.
/// "GPU 0: NVIDIA L40S" stands in nvidia-smi -L and PyTorch's collect_env, "|   0  NVIDIA L40S  Off |"
/// in nvidia-smi's table.
inline std::vector<std::string> smi_models(const std::vector<std::string>& lines, std::size_t gpus) {
  std::vector<std::string> models(gpus);
  for (const std::string& line : lines) {
    auto all = words(line);
    std::size_t at = 0;
    while (at < all.size() && all[at] != "GPU" && all[at] != "|") ++at;
    if (at + 2 >= all.size()) continue;
    const bool table = all[at] == "|";
    std::string_view number = all[at + 1];
    if (!table && !number.ends_with(':')) continue;
    if (!table) number.remove_suffix(1);
    const auto gpu = to_number<std::size_t>(number);
    if (!gpu || *gpu >= gpus || !models[*gpu].empty()) continue;
    std::string model;
    bool ends = !table;
    for (at += 2; at < all.size() && !all[at].starts_with('('); ++at) {
      if (table && (all[at] == "On" || all[at] == "Off" || all[at] == "|")) {
        ends = all[at] != "|";
        break;
      }
      model += concat(model.empty() ? "" : " ", all[at]);
    }
    if (ends) models[*gpu] = model;
  }
  return models;
}

/// Groups of members connected by `joined(i, j)`, j < i: [member] the smallest member of its group.
template <class Joined>
std::vector<std::size_t> smi_groups(std::size_t size, const Joined& joined) {
  std::vector<std::size_t> group(size);
  for (std::size_t i = 0; i < size; ++i) group[i] = i;
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (group[i] == group[j] || !joined(i, j)) continue;
      const std::size_t kept = std::min(group[i], group[j]);
      const std::size_t merged = std::max(group[i], group[j]);
      std::replace(group.begin(), group.end(), merged, kept);
    }
  }
  return group;
}

/// NVLinks: an NVSwitch where direct links would need more than the maximum of 18 per GPU, direct
/// links otherwise.
template <class Topology>
void connect_smi_nvlinks(const Topology& topology, const LinkSpeeds& speeds, NodeGraph& graph) {
  constexpr int max_links_of_a_gpu = 18;  // H100, B200; an A100 has 12
  const auto group = smi_groups(topology.size(), [&](std::size_t i, std::size_t j) { return topology.cell(i, j).nvlinks > 0; });
  const std::size_t gpus = topology.gpus.size();
  for (std::size_t first = 0; first < gpus; ++first) {
    std::vector<std::size_t> members;
    for (std::size_t i = first; i < gpus; ++i) {
      if (group[i] == first) members.push_back(i);
    }
    if (members.size() < 2) continue;
    const int count = topology.cell(members[0], members[1]).nvlinks;
    bool equal = true;
    for (const auto a : members) {
      for (const auto b : members) equal = equal && (a == b || topology.cell(a, b).nvlinks == count);
    }
    const auto links = [&](int number) { return speeds.nvlink * static_cast<double>(number); };
    if (equal && count * static_cast<int>(members.size() - 1) > max_links_of_a_gpu) {
      const int nvswitch = graph.add_switch("NVSwitch");
      for (const auto i : members) {
        graph.connect(static_cast<int>(i), nvswitch, LinkClass::nvlink, {links(count), speeds.nvlink_latency});
      }
      continue;
    }
    for (const auto a : members) {
      for (const auto b : members) {
        if (a >= b || topology.cell(a, b).nvlinks == 0) continue;
        graph.connect(static_cast<int>(a), static_cast<int>(b), LinkClass::nvlink,
                      {links(topology.cell(a, b).nvlinks), speeds.nvlink_latency * 2});
      }
    }
  }
}

/// Whether two members are connected at `level` or below: 0 one switch, 1 several switches, 2 one
/// CPU.
template <class Topology>
bool smi_meet(const Topology& topology, std::size_t i, std::size_t j, int level) {
  const auto kind = topology.cell(i, j).kind;
  if (kind == SmiConnection::pix) return true;
  if (kind == SmiConnection::pxb) return level >= 1;
  if (kind == SmiConnection::phb || kind == SmiConnection::node) return level >= 2;
  if (kind != SmiConnection::nvlink || level < 2) return false;
  return !topology.affinities[i].empty() && topology.affinities[i] == topology.affinities[j];
}

/// PCI Express: switches for PIX groups, a switch above them for PXB groups, a CPU above that,
/// links between the CPUs.
template <class Topology>
void connect_smi_pcie(const Topology& topology, const LinkSpeeds& speeds, NodeGraph& graph) {
  std::vector<int> top(topology.size());  // [member] the vertex that represents it at the current level
  for (std::size_t i = 0; i < top.size(); ++i) top[i] = static_cast<int>(i);
  const auto join = [&](const std::vector<int>& below, int parent) {
    for (const int vertex : below) {
      const bool gpu = vertex < static_cast<int>(topology.gpus.size());
      graph.connect(vertex, parent, LinkClass::pcie, {speeds.pcie, gpu ? speeds.device_pcie_latency : speeds.hop_latency});
    }
  };
  int switches = 0;
  std::vector<int> cpus;
  for (int level = 0; level <= 2; ++level) {
    const auto group = smi_groups(topology.size(), [&](auto i, auto j) { return smi_meet(topology, i, j, level); });
    for (std::size_t first = 0; first < group.size(); ++first) {
      std::vector<int> below;  // the distinct vertices that represent the group so far
      for (std::size_t i = first; i < group.size(); ++i) {
        if (group[i] == first && std::find(below.begin(), below.end(), top[i]) == below.end()) below.push_back(top[i]);
      }
      if (below.empty() || (below.size() == 1 && level < 2)) continue;
      const int parent = level == 2 ? graph.add_cpu(concat("CPU", cpus.size())) : graph.add_switch(concat("PCIe", switches++));
      if (level == 2) cpus.push_back(parent);
      join(below, parent);
      for (std::size_t i = first; i < group.size(); ++i) {
        if (group[i] == first) top[i] = parent;
      }
    }
  }
  for (std::size_t a = 0; a < cpus.size(); ++a) {
    for (std::size_t b = a + 1; b < cpus.size(); ++b) {
      graph.connect(cpus[a], cpus[b], LinkClass::socket, {speeds.socket, speeds.hop_latency});
    }
  }
}

}  // namespace detail

}  // namespace tawpipe
