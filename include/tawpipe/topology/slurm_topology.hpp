// Slurm's tree of switches (topology.conf, topology/tree): which nodes are below which switch.
// Not: the nodes themselves, nor speeds, which that file does not have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/fabric_graph.hpp"

namespace tawpipe::inline v0 {

/// A switch and what is directly below it, by numbers.
struct SlurmSwitch {
  std::string name;
  std::vector<int> nodes{};
  std::vector<int> switches{};
  int nodes_below = 0;  ///< in all
};

struct SlurmTree {
  std::vector<std::string> nodes;  ///< names, in the file's order
  std::vector<SlurmSwitch> switches;
};

namespace detail {

/// The names of a Slurm hostlist: "n[01-03,7],login", also with several brackets, "r[1-2]n[1-4]".
/// @throws InputError  for a broken one, or more than a fabric has nodes.
inline std::vector<std::string> hostlist(std::string_view text) {
  constexpr std::int64_t most = 1 << 16;
  const auto broken = [&] { return InputError(concat(quote(text), " is not a list of names such as n[01-16,20]")); };
  std::vector<std::string> all;
  std::vector<std::string> heads{""};  // of the name that is being read
  for (std::size_t at = 0; at <= text.size(); ++at) {
    if (at == text.size() || text[at] == ',') {
      for (std::string& name : heads) {
        if (name.empty()) throw broken();
        all.push_back(std::move(name));
      }
      heads.assign(1, "");
    } else if (text[at] == '[') {
      const std::size_t end = text.find(']', at);
      if (end == std::string_view::npos) throw broken();
      std::vector<std::string> numbers;
      for (const std::string_view range : split(text.substr(at + 1, end - at - 1), ',')) {
        const std::size_t dash = range.find('-');
        const std::string_view from = range.substr(0, dash);
        const auto first = to_number<std::int64_t>(from);
        const auto last = dash == std::string_view::npos ? first : to_number<std::int64_t>(range.substr(dash + 1));
        if (!first || !last || *first < 0 || *last < *first || *last - *first >= most) throw broken();
        for (std::int64_t number = *first; number <= *last; ++number) {
          std::string digits = std::to_string(number);
          if (digits.size() < from.size()) digits.insert(0, from.size() - digits.size(), '0');
          numbers.push_back(std::move(digits));
        }
      }
      if (static_cast<std::int64_t>((heads.size() + all.size()) * numbers.size()) > most)
        throw InputError(concat(quote(text), " names more than ", most, " nodes"));
      std::vector<std::string> next;
      for (const std::string& head : heads) {
        for (const std::string& number : numbers) next.push_back(head + number);
      }
      heads = std::move(next);
      at = end;
    } else {
      for (std::string& head : heads) head += text[at];
    }
  }
  return all;
}

class SlurmReader {
 public:
  SlurmReader(std::string_view text, std::string_view source) : text_{text}, source_{source} {}

  SlurmTree read() {
    std::size_t number = 0;
    std::string whole;
    for (std::string_view line : split(text_, '\n')) {
      ++number;
      line = trimmed(line.substr(0, line.find('#')));
      whole += line;
      if (whole.ends_with('\\')) {
        whole.back() = ' ';
        continue;
      }
      try {
        read_line(whole);
      } catch (const InputError& error) {
        throw InputError(one_line(concat(source_, ", line ", number, ": ", error.what())));
      }
      whole.clear();
    }
    try {
      connect();
    } catch (const InputError& error) {
      throw InputError(one_line(concat(source_, ": ", error.what())));
    }
    return std::move(tree_);
  }

 private:
  void read_line(std::string_view line) {
    SlurmSwitch one;
    std::vector<std::string> below;
    for (std::string_view rest = line; !(rest = trimmed(rest)).empty();) {
      const std::size_t end = std::min(rest.find_first_of(" \t"), rest.size());
      const std::string_view word = rest.substr(0, end);
      rest.remove_prefix(end);
      const std::size_t equals = word.find('=');
      const std::string key = lower_case(word.substr(0, equals));
      const std::string_view value = equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1);
      if (key == "switchname") {
        one.name = value;
      } else if (key == "nodes") {
        for (std::string& name : hostlist(value)) one.nodes.push_back(node(std::move(name)));
      } else if (key == "switches") {
        below = hostlist(value);
      } else if (key != "linkspeed") {  // of no unit and no use, as Slurm's manual says
        throw InputError(key == "blockname" || key == "blocksizes"
                             ? "blocks (topology/block) are no tree of switches; give one of SwitchName lines (topology/tree)"
                             : concat(quote(word), " is not read; expected SwitchName=, Nodes= or Switches="));
      }
    }
    if (line.empty()) return;
    if (one.name.empty()) throw InputError("the line has no SwitchName=");
    if (!places_.try_emplace(one.name, static_cast<int>(tree_.switches.size())).second)
      throw InputError(concat("switch ", quote(one.name), " occurs twice"));
    tree_.switches.push_back(std::move(one));
    below_.push_back(std::move(below));
  }

  int node(std::string name) {
    if (!nodes_.try_emplace(name, static_cast<int>(tree_.nodes.size())).second)
      throw InputError(concat("node ", quote(name), " is below two switches; give each its leaf"));
    tree_.nodes.push_back(std::move(name));
    if (tree_.nodes.size() > static_cast<std::size_t>(max_fabric_nodes))
      throw InputError(concat("more than ", max_fabric_nodes, " nodes are no fabric that is simulated"));
    return static_cast<int>(tree_.nodes.size()) - 1;
  }

  void connect() {
    std::vector<int> above(tree_.switches.size(), 0);
    for (std::size_t s = 0; s < below_.size(); ++s) {
      for (const std::string& name : below_[s]) {
        const auto found = places_.find(name);
        if (found == places_.end())
          throw InputError(
              concat("switch ", quote(tree_.switches[s].name), " has ", quote(name), " below it, which has no line"));
        tree_.switches[s].switches.push_back(found->second);
        ++above[static_cast<std::size_t>(found->second)];
      }
    }
    if (tree_.nodes.empty()) throw InputError("no switch has nodes below it");
    // Leaves first: a switch follows when all below it are counted; a circle never does.
    std::vector<char> counted(tree_.switches.size(), 0);
    for (std::size_t left = counted.size(); left > 0;) {
      const std::size_t before = left;
      for (std::size_t s = 0; s < counted.size(); ++s) {
        SlurmSwitch& one = tree_.switches[s];
        const auto known = [&](int below) { return counted[static_cast<std::size_t>(below)] != 0; };
        if (counted[s] != 0 || !std::all_of(one.switches.begin(), one.switches.end(), known)) continue;
        one.nodes_below = static_cast<int>(one.nodes.size());
        for (const int below : one.switches) one.nodes_below += tree_.switches[static_cast<std::size_t>(below)].nodes_below;
        counted[s] = 1;
        --left;
      }
      if (left == before) throw InputError("the switches stand below each other in a circle");
    }
    if (const auto roots = std::count(above.begin(), above.end(), 0); roots != 1)
      throw InputError(concat("the tree has ", roots, " switches with none above them; its nodes must be connected, below one"));
  }

  std::string_view text_;
  std::string_view source_;
  SlurmTree tree_;
  std::map<std::string, int> places_;
  std::map<std::string, int> nodes_;
  std::vector<std::vector<std::string>> below_;  ///< [switch] names of the switches below it
};

}  // namespace detail

/// Reads Slurm's tree. Parameter names may have any case; LinkSpeed means nothing to Slurm either.
/// @param source  the file's name, for messages
/// @throws InputError  naming the line and what is wrong; for blocks.
/// Source: Slurm 25.05, topology.conf(5).
inline SlurmTree read_slurm_tree(std::string_view text, std::string_view source = "topology.conf") {
  return detail::SlurmReader{text, source}.read();
}

/// The tree as a fabric: a switch reaches the one above it by one link.
/// @param uplink  of a switch with that many nodes below it
template <class Uplink>
FabricGraph fabric_of(const SlurmTree& tree, const Uplink& uplink) {
  FabricGraph graph{static_cast<int>(tree.nodes.size())};
  for (const SlurmSwitch& one : tree.switches) graph.add_switch(one.name);
  for (std::size_t s = 0; s < tree.switches.size(); ++s) {
    const int at = graph.nodes + static_cast<int>(s);
    for (const int node : tree.switches[s].nodes) graph.attach(node, at);
    for (const int below : tree.switches[s].switches)
      graph.connect(graph.nodes + below, at, uplink(tree.switches[static_cast<std::size_t>(below)].nodes_below));
  }
  return graph;
}

}  // namespace tawpipe
