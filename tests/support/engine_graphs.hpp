// Small graphs for the engine, written by hand; times in seconds.
// Not: graphs of schedules (simulate/simulate.hpp makes those).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/core/units.hpp"
#include "tawpipe/simulate/engine.hpp"

namespace support {

inline std::vector<double> to_seconds(const std::vector<tawpipe::TimePoint>& times) {
  std::vector<double> seconds;
  for (const auto time : times) seconds.push_back(tawpipe::to_seconds(time));
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
    for (const Node& node : nodes_) {
      graph.tasks.push_back(
          {tawpipe::seconds(node.delay).value(), node.bytes, node.loads.empty() ? -1 : graph.add_path(node.loads), 0});
    }
    graph.connect([&](auto&& visit) {
      for (std::size_t t = 0; t < nodes_.size(); ++t) {
        for (const int earlier : nodes_[t].after) visit(static_cast<std::size_t>(earlier), t);
      }
    });
    graph.capacities = capacities_;
    return graph;
  }

 private:
  std::vector<double> capacities_;
  std::vector<Node> nodes_;
};

}  // namespace support
