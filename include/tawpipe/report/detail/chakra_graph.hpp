// A Chakra trace checked and joined: each rank's nodes in an order in which they can run, messages
// with their two ends.
// Not: schedules (report/chakra_import.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/report/chakra_trace.hpp"

namespace tawpipe::inline v0::detail {

/// An order in which `count` things can run, the smallest key first among those that could be next;
/// those on a cycle, and all that wait for them, are left out. @param waits  [thing] the things it
/// waits for
template <class Key>
std::vector<std::int32_t> topological_order(const std::vector<std::vector<std::int32_t>>& waits, const std::vector<Key>& keys) {
  std::vector<std::vector<std::int32_t>> waited_by(waits.size());
  std::vector<std::int32_t> left(waits.size());
  using Next = std::pair<Key, std::int32_t>;
  std::vector<Next> ready;  // a heap, the smallest first
  const auto is_later = [](const Next& a, const Next& b) { return a > b; };
  const auto push = [&](std::int32_t one) {
    ready.emplace_back(keys[static_cast<std::size_t>(one)], one);
    std::push_heap(ready.begin(), ready.end(), is_later);
  };
  for (std::size_t i = 0; i < waits.size(); ++i) {
    left[i] = static_cast<std::int32_t>(waits[i].size());
    if (left[i] == 0) push(static_cast<std::int32_t>(i));
    for (const std::int32_t earlier : waits[i])
      waited_by[static_cast<std::size_t>(earlier)].push_back(static_cast<std::int32_t>(i));
  }
  std::vector<std::int32_t> order;
  order.reserve(waits.size());
  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end(), is_later);
    order.push_back(ready.back().second);
    ready.pop_back();
    for (const std::int32_t next : waited_by[static_cast<std::size_t>(order.back())]) {
      if (--left[static_cast<std::size_t>(next)] == 0) push(next);
    }
  }
  return order;
}

/// Things that wait for each other, each for the next and the last for the first. @pre `order`
/// leaves some out
inline std::vector<std::int32_t> cycle_of(const std::vector<std::vector<std::int32_t>>& waits,
                                          const std::vector<std::int32_t>& order) {
  std::vector<std::int32_t> place(waits.size(), -1);  // -2: can run
  for (const std::int32_t one : order) place[static_cast<std::size_t>(one)] = -2;
  std::vector<std::int32_t> path;
  auto at = static_cast<std::int32_t>(std::find(place.begin(), place.end(), -1) - place.begin());
  while (place[static_cast<std::size_t>(at)] < 0) {
    place[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(path.size());
    path.push_back(at);
    const auto& earlier = waits[static_cast<std::size_t>(at)];
    at = *std::find_if(earlier.begin(), earlier.end(),
                       [&](std::int32_t one) { return place[static_cast<std::size_t>(one)] != -2; });
  }
  return {path.begin() + place[static_cast<std::size_t>(at)], path.end()};
}

/// A node with an effect, and its properties.
struct ChakraStep {
  const ChakraNode* node = nullptr;
  ChakraType type = ChakraType::compute;
  std::int32_t from = -1;  ///< send, receive: the ranks
  std::int32_t to = -1;
  std::int64_t tag = 0;
  std::int32_t group = -1;          ///< collective: in ChakraGraph::groups
  std::vector<std::int32_t> waits;  ///< earlier steps of the rank
};

struct ChakraProcessGroup {
  std::string name;
  std::vector<std::int32_t> ranks;
};

/// Checks a trace. It refers to the trace.
class ChakraGraph {
 public:
  /// @throws InputError  naming the file and node that is wrong
  explicit ChakraGraph(const ChakraTrace& trace) : trace_{trace}, steps_(trace.ranks.size()) {
    if (trace.ranks.empty()) throw InputError("a Chakra trace has at least one rank");
    declared_ = trace.groups;
    for (const ChakraRank& rank : trace.ranks) {
      for (const ChakraNode& node : rank.nodes) {
        if (node.is(ChakraType::metadata) && !node.inputs.empty()) read_groups(rank, node);
      }
    }
    for (std::size_t r = 0; r < steps_.size(); ++r) read(r);
  }

  std::size_t ranks() const { return steps_.size(); }
  /// In an order in which the rank can run them: by their waits, then by their ids.
  const std::vector<ChakraStep>& steps(std::size_t rank) const { return steps_[rank]; }
  const std::vector<ChakraProcessGroup>& groups() const { return groups_; }
  std::string place(std::size_t rank, const ChakraNode& node) const {
    return concat(trace_.ranks[rank].source, ": node ", node.id,
                  node.name.empty() ? "" : concat(" ", quote(node.name.substr(0, 60))));
  }

 private:
  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  InputError fail(std::size_t rank, const ChakraNode& node, std::string_view what) const {
    return InputError(concat(place(rank, node), ": ", what));
  }

  /// Nodes without effect are left out; their dependents wait for their dependencies.
  void read(std::size_t r) {
    const std::vector<ChakraNode>& nodes = trace_.ranks[r].nodes;
    std::vector<std::pair<std::uint64_t, std::int32_t>> places;  // by id
    for (std::size_t n = 0; n < nodes.size(); ++n) places.emplace_back(nodes[n].id, static_cast<std::int32_t>(n));
    std::sort(places.begin(), places.end());
    for (std::size_t i = 1; i < places.size(); ++i) {
      if (places[i].first == places[i - 1].first) throw fail(r, nodes[at(places[i].second)], "the file has its id twice");
    }
    std::vector<std::vector<std::int32_t>> waits(nodes.size());
    std::vector<std::uint64_t> ids;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      ids.push_back(nodes[n].id);
      for (const auto* list : {&nodes[n].data_deps, &nodes[n].control_deps}) {
        for (const std::uint64_t earlier : *list) {
          const auto found = std::lower_bound(places.begin(), places.end(), std::pair{earlier, std::int32_t{0}});
          if (found == places.end() || found->first != earlier)
            throw fail(r, nodes[n], concat("it waits for node ", earlier, ", which the file does not have"));
          waits[n].push_back(found->second);
        }
      }
      distinct(waits[n]);
    }
    const std::vector<std::int32_t> order = topological_order(waits, ids);
    if (order.size() < nodes.size()) {
      const std::vector<std::int32_t> cycle = cycle_of(waits, order);
      std::string text;
      for (std::size_t i = 0; i < std::min<std::size_t>(cycle.size(), 8); ++i) text += concat(nodes[at(cycle[i])].id, " on ");
      throw fail(r, nodes[at(cycle[0])],
                 concat("nodes wait for each other: ", text, cycle.size() > 8 ? "... on " : "", nodes[at(cycle[0])].id));
    }
    std::vector<std::vector<std::int32_t>> stands_for(nodes.size());  // steps
    for (const std::int32_t n : order) {
      std::vector<std::int32_t> earlier;
      for (const std::int32_t one : waits[at(n)])
        earlier.insert(earlier.end(), stands_for[at(one)].begin(), stands_for[at(one)].end());
      distinct(earlier);
      const ChakraNode& node = nodes[at(n)];
      if (node.is(ChakraType::invalid) || node.is(ChakraType::metadata)) {
        stands_for[at(n)] = std::move(earlier);
        continue;
      }
      stands_for[at(n)] = {static_cast<std::int32_t>(steps_[r].size())};
      steps_[r].push_back(step(r, node));
      steps_[r].back().waits = std::move(earlier);
    }
  }

  static void distinct(std::vector<std::int32_t>& list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }

  ChakraStep step(std::size_t r, const ChakraNode& node) {
    if (node.type < 0 || node.type > static_cast<std::int32_t>(ChakraType::collective)) {
      throw fail(r, node, concat("its type ", node.type, " is none that is simulated (2 to 7, and 0 and 1, which do nothing)"));
    }
    ChakraStep step;
    step.node = &node;
    step.type = static_cast<ChakraType>(node.type);
    for (const ChakraKey key : {ChakraKey::comm_size, ChakraKey::tensor_size, ChakraKey::num_ops}) {
      if (node.number(key).value_or(0) < 0) throw fail(r, node, concat("its ", name(key), " is below 0"));
    }
    if (step.type == ChakraType::send || step.type == ChakraType::receive) {
      const bool sends = step.type == ChakraType::send;
      step.from = rank_of(r, node, ChakraKey::comm_src, sends);
      step.to = rank_of(r, node, ChakraKey::comm_dst, !sends);
      step.tag = node.number(ChakraKey::comm_tag).value_or(0);
      if (step.from == step.to) throw fail(r, node, "a message from a rank to itself");
      if (at(sends ? step.from : step.to) != r) {
        throw fail(r, node, concat("it belongs to rank ", sends ? step.from : step.to, " and stands in the file of rank ", r));
      }
    } else if (step.type == ChakraType::collective) {
      const std::int64_t kind = node.number(ChakraKey::comm_type).value_or(-1);
      if (kind < 0 || kind > static_cast<std::int64_t>(ChakraCollective::barrier)) {
        throw fail(r, node,
                   kind < 0 ? std::string{"it has no comm_type, which says what collective it is"}
                            : concat("its comm_type ", kind, " is none of Chakra's collectives (0 to 9)"));
      }
      const auto which = static_cast<ChakraCollective>(kind);
      if (which == ChakraCollective::gather || which == ChakraCollective::scatter) {
        throw fail(r, node, "gather and scatter (comm_type 3 and 4) are not simulated; write them as messages or all_to_all");
      }
      if (node.text(ChakraKey::involved_dim).find('0') != std::string_view::npos) {
        throw fail(r, node,
                   "it names some dimensions of a network (involved_dim), which is not known here; name its ranks (pg_name)");
      }
      step.group = group_of(r, node);
    }
    return step;
  }

  std::int32_t rank_of(std::size_t r, const ChakraNode& node, ChakraKey key, bool own) const {
    const std::optional<std::int64_t> given = node.number(key);
    if (!given && !own) throw fail(r, node, concat("it has no ", name(key), ", the other rank"));
    const std::int64_t rank = given.value_or(static_cast<std::int64_t>(r));
    if (rank >= 0 && rank < static_cast<std::int64_t>(ranks())) return static_cast<std::int32_t>(rank);
    throw fail(r, node, concat("its ", name(key), " ", rank, " is not a rank; there are files of ranks 0 to ", ranks() - 1));
  }

  std::int32_t group_of(std::size_t r, const ChakraNode& node) {
    std::string name{node.text(ChakraKey::pg_name)};
    if (const auto number = node.number(ChakraKey::pg_name)) name = std::to_string(*number);
    const auto declared = declared_.find(name);
    const bool everybody = name.empty() || name == "0" || (declared != declared_.end() && declared->second.empty());
    if (!everybody && declared == declared_.end()) {
      throw fail(
          r, node,
          concat("no file says which ranks its process group ", quote(name.substr(0, 40)), " has; give it by --comm-groups"));
    }
    const auto [found, added] = group_numbers_.try_emplace(everybody ? "" : name, static_cast<std::int32_t>(groups_.size()));
    if (added) {
      ChakraProcessGroup group{everybody ? "all" : name, everybody ? std::vector<std::int32_t>{} : declared->second};
      for (std::size_t rank = 0; everybody && rank < ranks(); ++rank) group.ranks.push_back(static_cast<std::int32_t>(rank));
      std::vector<std::int32_t> sorted = group.ranks;
      distinct(sorted);
      if (sorted.size() != group.ranks.size() || sorted.front() < 0 || at(sorted.back()) >= ranks()) {
        throw InputError(
            concat("process group ", quote(name), " names a rank twice, or one that has no file (0 to ", ranks() - 1, ")"));
      }
      members_.push_back(std::move(sorted));
      groups_.push_back(std::move(group));
    }
    if (!std::binary_search(members_[at(found->second)].begin(), members_[at(found->second)].end(),
                            static_cast<std::int32_t>(r))) {
      throw fail(r, node, concat("rank ", r, " is not in its process group ", quote(name)));
    }
    return found->second;
  }

  /// PyTorch's record of its process groups, a list in quotes: "[{\"pg_name\": \"1\", \"ranks\":
  /// [0, 1]}]".
  void read_groups(const ChakraRank& rank, const ChakraNode& node) {
    const auto begin = node.inputs.find("[{");
    const auto end = node.inputs.rfind("}]");
    if (begin == std::string::npos || end == std::string::npos || end < begin) return;
    const std::string text = node.inputs.substr(begin, end + 2 - begin);
    const JsonDocument json{text, concat(rank.source, ": node ", node.id, ": its process groups")};
    for (const JsonValue group : json.root()) {
      if (!group.has("pg_name") || !group.has("ranks")) continue;
      std::vector<std::int32_t> members;
      for (const JsonValue member : group.at("ranks")) members.push_back(member.whole<std::int32_t>(0, 1 << 20));
      declared_.try_emplace(group.at("pg_name").text(), std::move(members));
    }
  }

  const ChakraTrace& trace_;
  std::map<std::string, std::vector<std::int32_t>> declared_;
  std::vector<std::vector<ChakraStep>> steps_;      ///< [rank]
  std::vector<ChakraProcessGroup> groups_;          ///< the groups that are used
  std::vector<std::vector<std::int32_t>> members_;  ///< [group] sorted
  std::map<std::string, std::int32_t> group_numbers_;
};

}  // namespace tawpipe::detail
