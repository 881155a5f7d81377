// Small graphs for the engine, written by hand; times in seconds.
// Not: graphs of schedules (simulate/simulator.hpp makes those).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/core/units.hpp"
#include "tawpipe/simulate/engine.hpp"

namespace support {

inline std::vector<double> to_seconds(const std::vector<std::int64_t>& picoseconds) {
  std::vector<double> seconds;
  for (const auto time : picoseconds) seconds.push_back(tawpipe::to_seconds(tawpipe::Duration{time}));
  return seconds;
}

/// Tasks one after the other, numbered from 0; each may wait for any.
class GraphBuilder {
 public:
  struct Node {
    double delay = 0;
    double bytes = 0;
    std::vector<tawpipe::LinkLoad> loads;
    std::vector<int> after;
  };

  explicit GraphBuilder(std::vector<double> capacities = {}) : capacities_{std::move(capacities)} {}

  GraphBuilder& wait(double delay, std::vector<int> after = {}) {
    nodes_.push_back({delay, 0, {}, std::move(after)});
    return *this;
  }
  GraphBuilder& flow(double delay, double bytes, const std::vector<int>& links, std::vector<int> after = {}) {
    std::vector<tawpipe::LinkLoad> loads;
    for (const int link : links) loads.push_back({tawpipe::LinkId{link}, 1});
    return weighted(delay, bytes, std::move(loads), std::move(after));
  }
  GraphBuilder& weighted(double delay, double bytes, std::vector<tawpipe::LinkLoad> loads, std::vector<int> after = {}) {
    nodes_.push_back({delay, bytes, std::move(loads), std::move(after)});
    return *this;
  }

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<double>& capacities() const { return capacities_; }

  tawpipe::EngineGraph build() const {
    tawpipe::EngineGraph graph;
    std::vector<std::vector<std::int32_t>> successors(nodes_.size());
    for (std::size_t t = 0; t < nodes_.size(); ++t) {
      const Node& node = nodes_[t];
      for (const int earlier : node.after) successors[static_cast<std::size_t>(earlier)].push_back(static_cast<std::int32_t>(t));
      graph.predecessors.push_back(static_cast<std::int32_t>(node.after.size()));
      graph.delay.push_back(tawpipe::seconds(node.delay).value());
      graph.bytes.push_back(node.bytes);
      graph.path.push_back(node.loads.empty() ? -1 : static_cast<std::int32_t>(graph.paths.size()));
      if (!node.loads.empty()) graph.paths.push_back(node.loads);
    }
    graph.successor_begin.push_back(0);
    for (const auto& list : successors) {
      graph.successors.insert(graph.successors.end(), list.begin(), list.end());
      graph.successor_begin.push_back(static_cast<std::uint32_t>(graph.successors.size()));
    }
    graph.capacities = capacities_;
    return graph;
  }

 private:
  std::vector<double> capacities_;
  std::vector<Node> nodes_;
};

}  // namespace support
