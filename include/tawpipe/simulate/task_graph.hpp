// Plain task graphs: computations, messages between devices, and dependencies; a format that other
// simulators can run too.
// Not: the text they are read from (task_graph_text.hpp) nor schedules (schedule/schedule.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/hash_index.hpp"
#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/simulate/engine.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"

namespace tawpipe::inline v0 {

/// The machine of a plain task graph: equal nodes of equal devices. Inside a node each device has
/// its own link out and in; between nodes each node has one link out and one in. The two kinds
/// share nothing.
struct TaskGraphPlatform {
  std::int32_t nodes = 1;
  std::int32_t devices_per_node = 1;
  BytesPerSecond intra_bandwidth{1};
  double intra_latency_s = 0;  ///< seconds, as written: may be finer than a picosecond
  BytesPerSecond inter_bandwidth{1};
  double inter_latency_s = 0;

  std::int32_t devices() const { return nodes * devices_per_node; }
  bool operator==(const TaskGraphPlatform&) const = default;
};

/// A plain task graph, as columns. Tasks are numbered from 0 and wait only for earlier ones, so
/// there is no cycle.
///
/// Semantics: a task starts when the last of its dependencies has ended. A computation then takes
/// its time; nothing slows it, and computations of one device are expected to depend on each other.
/// A message waits for the latency of its kind, then is one flow over its sender's outgoing link
/// and its receiver's incoming link; rates are max-min fair with equal weights.
class TaskGraph {
 public:
  TaskGraphPlatform platform;

  std::size_t tasks() const { return amount_.size(); }
  std::size_t edges() const { return dependencies_.size(); }
  bool is_compute(std::size_t task) const { return destination_[task] < 0; }
  /// The device that computes or sends.
  std::int32_t device(std::size_t task) const { return device_[task]; }
  /// The device that receives; -1 for a computation.
  std::int32_t destination(std::size_t task) const { return destination_[task]; }
  /// Seconds of a computation, bytes of a message, as written.
  double amount(std::size_t task) const { return amount_[task]; }
  /// The task's dependencies, as written.
  std::span<const std::int32_t> dependencies(std::size_t task) const {
    return std::span{dependencies_}.subspan(begin_[task], begin_[task + 1] - begin_[task]);
  }

  void reserve(std::size_t tasks, std::size_t edges) {
    device_.reserve(tasks);
    destination_.reserve(tasks);
    amount_.reserve(tasks);
    begin_.reserve(tasks + 1);
    dependencies_.reserve(edges);
  }
  /// Adds a computation; the next task's number is tasks() before the call.
  void compute(std::int32_t device, double seconds, std::span<const std::int32_t> after = {}) { add(device, -1, seconds, after); }
  /// Adds a message.
  void message(std::int32_t source, std::int32_t destination, double bytes, std::span<const std::int32_t> after = {}) {
    add(source, destination, bytes, after);
  }
  /// Adds a task, a message if `destination` is not negative; dependencies are added by wait_for().
  void add(std::int32_t device, std::int32_t destination, double amount) {
    device_.push_back(device);
    destination_.push_back(destination);
    amount_.push_back(amount);
    begin_.push_back(begin_.back());
  }
  /// Makes the last task wait for an earlier one.
  void wait_for(std::int32_t earlier) {
    dependencies_.push_back(earlier);
    ++begin_.back();
  }

  std::size_t memory_bytes() const {
    return (device_.capacity() + destination_.capacity() + dependencies_.capacity()) * sizeof(std::int32_t) +
           amount_.capacity() * sizeof(double) + begin_.capacity() * sizeof(std::uint32_t);
  }

  bool operator==(const TaskGraph&) const = default;

 private:
  void add(std::int32_t device, std::int32_t destination, double amount, std::span<const std::int32_t> after) {
    add(device, destination, amount);
    for (const std::int32_t earlier : after) wait_for(earlier);
  }

  std::vector<std::int32_t> device_;
  std::vector<std::int32_t> destination_;
  std::vector<double> amount_;
  std::vector<std::uint32_t> begin_ = {0};
  std::vector<std::int32_t> dependencies_;
};

namespace detail {

/// The error in a platform, or "".
inline std::string platform_fault(const TaskGraphPlatform& platform) {
  const auto cannot_be = [](double value) { return !(value >= 0 && value < 1e300); };
  if (platform.nodes < 1 || platform.devices_per_node < 1) return "nodes and devices per node must be at least 1";
  if (std::int64_t{platform.nodes} * platform.devices_per_node > max_cluster_devices) {
    return concat("at most ", max_cluster_devices, " devices fit");
  }
  for (const auto bandwidth : {platform.intra_bandwidth, platform.inter_bandwidth}) {
    if (cannot_be(bandwidth.value()) || bandwidth.value() <= 0) return "a bandwidth must be above zero, in bytes a second";
  }
  for (const double latency : {platform.intra_latency_s, platform.inter_latency_s}) {
    if (cannot_be(latency) || latency > 1000) return "a latency must lie between 0 and 1000 seconds";
  }
  return {};
}

/// The error in a task, or "".
inline std::string task_fault(const TaskGraph& graph, std::size_t task) {
  const std::int32_t devices = graph.platform.devices();
  const auto missing = [&](std::int32_t device) {
    return concat("device ", device, " does not exist; the platform has devices 0 to ", devices - 1);
  };
  if (graph.device(task) < 0 || graph.device(task) >= devices) return missing(graph.device(task));
  if (graph.destination(task) >= devices) return missing(graph.destination(task));
  if (graph.destination(task) == graph.device(task)) return "a message must go to another device than it comes from";
  const double amount = graph.amount(task);
  if (graph.is_compute(task) && !(amount >= 0 && amount <= 9e6)) return "a computation must take 0 to 9e6 seconds";
  if (!(amount >= 0 && amount <= 9e18)) return "a message must have 0 to 9e18 bytes";
  for (const std::int32_t earlier : graph.dependencies(task)) {
    if (earlier < 0 || static_cast<std::size_t>(earlier) >= task) {
      return concat("it cannot wait for task ", earlier, ", only for those before it");
    }
  }
  return {};
}

/// Paths of two links, each pair once.
class LinkPairs {
 public:
  explicit LinkPairs(EngineGraph& graph) : graph_{graph} {}

  std::int32_t find(std::int32_t out, std::int32_t in) {
    return index_.find_or_add(
        static_cast<std::uint64_t>(static_cast<std::uint32_t>(out)) << 32 | static_cast<std::uint32_t>(in),
        [&](std::int32_t path) {
          const auto loads = graph_.path_loads(path);
          return number(loads[0].link) == out && number(loads[1].link) == in;
        },
        [&] {
          const LinkLoad loads[] = {{LinkId{out}, 1}, {LinkId{in}, 1}};
          graph_.add_path(loads);
        });
  }

 private:
  EngineGraph& graph_;
  HashIndex index_;
};

}  // namespace detail

/// The graph as the engine runs it. Links: out of and into each device, then out of and into each
/// node.
/// Complexity: O(tasks + edges).
/// @throws InputError  if a device, time, size or dependency is invalid; the message names the
/// platform or the task.
inline EngineGraph to_engine(const TaskGraph& graph) {
  const TaskGraphPlatform& platform = graph.platform;
  if (const auto fault = detail::platform_fault(platform); !fault.empty()) throw InputError(concat("platform: ", fault));
  EngineGraph engine;
  const std::int32_t devices = platform.devices();
  engine.capacities.assign(static_cast<std::size_t>(devices) * 2, platform.intra_bandwidth.value());
  engine.capacities.insert(engine.capacities.end(), static_cast<std::size_t>(platform.nodes) * 2,
                           platform.inter_bandwidth.value());
  const std::int64_t intra_latency = seconds(platform.intra_latency_s).value();
  const std::int64_t inter_latency = seconds(platform.inter_latency_s).value();
  detail::LinkPairs pairs{engine};
  engine.tasks.reserve(graph.tasks());
  for (std::size_t t = 0; t < graph.tasks(); ++t) {
    if (const auto fault = detail::task_fault(graph, t); !fault.empty()) throw InputError(concat("task ", t, ": ", fault));
    const std::int32_t source = graph.device(t);
    const std::int32_t destination = graph.destination(t);
    if (graph.is_compute(t)) {
      engine.tasks.push_back({seconds(graph.amount(t)).value(), 0, -1, 0});
      continue;
    }
    const std::int32_t from = source / platform.devices_per_node;
    const std::int32_t to = destination / platform.devices_per_node;
    const bool inside = from == to;
    const std::int32_t path =
        inside ? pairs.find(2 * source, 2 * destination + 1) : pairs.find(2 * (devices + from), 2 * (devices + to) + 1);
    engine.tasks.push_back({inside ? intra_latency : inter_latency, graph.amount(t), path, 0});
  }
  engine.connect([&](auto&& visit) {
    for (std::size_t t = 0; t < graph.tasks(); ++t) {
      for (const std::int32_t earlier : graph.dependencies(t)) visit(static_cast<std::size_t>(earlier), t);
    }
  });
  engine.fraction_bits = engine.finest_fraction_bits();
  return engine;
}

/// When each task of a plain graph starts and ends. @throws InputError  as to_engine().
///
/// Example:
/// ```cpp
/// tawpipe::TaskGraph graph;
/// graph.platform = {.nodes = 2, .devices_per_node = 1, .inter_bandwidth = tawpipe::BytesPerSecond{10}};
/// graph.compute(0, 2.0);
/// graph.message(0, 1, 100, {{0}});
/// const tawpipe::Timeline predicted = tawpipe::simulate(graph);  // 12 s
/// ```
inline Timeline simulate(const TaskGraph& graph) { return run_engine(to_engine(graph)); }

}  // namespace tawpipe
