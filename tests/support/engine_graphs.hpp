// Small graphs for the engine, written by hand; times in seconds.
// Not: graphs of schedules (simulate/simulate.hpp makes those).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/core/units.hpp"
#include "tawpipe/simulate/engine.hpp"
#include "tawpipe/simulate/held_sms.hpp"

namespace support {

inline std::vector<double> to_seconds(const std::vector<tawpipe::TimePoint>& times) {
  std::vector<double> seconds;
  for (const auto time : times) seconds.push_back(tawpipe::to_seconds(time));
  return seconds;
}

/// Tasks one after another, numbered from 0; each may wait for any.
class GraphBuilder {
 public:
  struct Node {
    double delay = 0;
    double bytes = 0;
    std::vector<tawpipe::LinkLoad> loads;
    std::vector<int> after;
    int device = -1;  ///< on which the delay is a computation, at a speed
    int sms = 0;      ///< that it holds of `device` from its start to the end of `until`; it has no delay then
    int until = -1;
  };

  explicit GraphBuilder(std::vector<double> capacities = {}) : capacities_{std::move(capacities)} {}

  GraphBuilder& wait(double delay, std::vector<int> after = {}) {
    nodes_.push_back({delay, 0, {}, std::move(after), -1, 0, -1});
    return *this;
  }
  GraphBuilder& flow(double delay, double bytes, const std::vector<int>& links, std::vector<int> after = {}) {
    std::vector<tawpipe::LinkLoad> loads;
    for (const int link : links) loads.push_back({tawpipe::LinkId{link}, 1});
    return weighted(delay, bytes, std::move(loads), std::move(after));
  }
  GraphBuilder& weighted(double delay, double bytes, std::vector<tawpipe::LinkLoad> loads, std::vector<int> after = {}) {
    nodes_.push_back({delay, bytes, std::move(loads), std::move(after), -1, 0, -1});
    return *this;
  }

  GraphBuilder& compute(double delay, int device, std::vector<int> after = {}) {
    wait(delay, std::move(after));
    nodes_.back().device = device;
    return *this;
  }
  /// Behind all tasks that are not holds, and those of one `until` together, in its order. `until`
  /// waits for it.
  GraphBuilder& hold(int device, int sms, int until, std::vector<int> after = {}) {
    nodes_[static_cast<std::size_t>(until)].after.push_back(static_cast<int>(nodes_.size()));
    nodes_.push_back({0, 0, {}, std::move(after), device, sms, until});
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
  /// What holds() and compute() say. @param tables  [device]
  tawpipe::EngineHolds holds(std::vector<tawpipe::SpeedTable> tables) const {
    tawpipe::EngineHolds holds;
    holds.tables = std::move(tables);
    for (std::size_t device = 0; device < holds.tables.size(); ++device) {
      holds.table_of.push_back(static_cast<std::int32_t>(device));
    }
    std::size_t tasks = 0;
    for (; tasks < nodes_.size() && nodes_[tasks].until < 0; ++tasks) holds.device_of.push_back(nodes_[tasks].device);
    for (std::size_t i = tasks; i < nodes_.size(); ++i) holds.holds.push_back({nodes_[i].device, nodes_[i].sms});
    std::size_t next = tasks;
    for (std::size_t t = 0; t < tasks; ++t) {
      holds.hold_begin.push_back(static_cast<std::uint32_t>(next - tasks));
      while (next < nodes_.size() && nodes_[next].until == static_cast<int>(t)) ++next;
    }
    holds.hold_begin.push_back(static_cast<std::uint32_t>(next - tasks));
    return holds;
  }

 private:
  std::vector<double> capacities_;
  std::vector<Node> nodes_;
};

}  // namespace support
