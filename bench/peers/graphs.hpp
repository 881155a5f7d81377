// Task graphs for measuring simulators: a weight pipeline over nodes of devices, in three kinds.
// Not: a schedule anybody trains with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/splitmix64.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/simulate/task_graph.hpp"

namespace peers {

/// A generator's settings. In each step every device computes, and every node fetches the next
/// step's shard from the node before it over its one adapter and spreads it inside.
struct GraphOptions {
  std::string mode = "star";  ///< how it spreads: "star", all copies at once from one device; "chain", from device to device;
                              ///< "mix": a star, and between nodes `extra` messages a node and step, of random size and way
  int nodes = 4;
  int devices = 8;  ///< a node
  int steps = 20;
  double shard_bytes = 200e6;
  int extra = 3;
  double compute_s = 0.03;
  double jitter = 0.2;  ///< of compute_s, either way
  std::uint64_t seed = 1;
};

namespace detail {

/// SplitMix64: the same numbers everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_{seed} {}
  std::uint64_t next() {
    const std::uint64_t number = tawpipe::splitmix64(state_);
    state_ += tawpipe::splitmix64_step;
    return number;
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  int below(int limit) { return static_cast<int>(next() % static_cast<std::uint64_t>(limit)); }

 private:
  std::uint64_t state_;
};

class GraphGenerator {
 public:
  explicit GraphGenerator(const GraphOptions& options) : options_{options}, random_{options.seed} {
    if (options.nodes < 2 || options.devices < 1 || options.steps < 1) {
      throw tawpipe::InputError("at least 2 nodes, 1 device a node and 1 step are needed");
    }
    if (options.mode != "star" && options.mode != "chain" && options.mode != "mix") {
      throw tawpipe::InputError(tawpipe::unknown_name("mode", options.mode, {"star", "chain", "mix"}));
    }
  }

  tawpipe::TaskGraph run() {
    graph_.platform = {options_.nodes, options_.devices, tawpipe::BytesPerSecond{150e9}, 5e-6, tawpipe::BytesPerSecond{12.5e9},
                       20e-6};
    const auto devices = static_cast<std::size_t>(graph_.platform.devices());
    computed_.assign(devices, none);
    delivered_.assign(devices, none);
    inputs_.resize(devices);
    for (int step = 0; step < options_.steps; ++step) {
      const std::vector<std::int32_t> before = computed_;
      compute();
      std::vector<std::vector<std::int32_t>> sent(devices);
      if (step + 1 < options_.steps) spread(step, before);
      if (options_.mode == "mix" && step + 1 < options_.steps) mix(before, sent);
      inputs_ = std::move(pending_);  // what is sent in one step is needed two steps later
      pending_ = std::move(sent);
      inputs_.resize(devices);
    }
    return std::move(graph_);
  }

 private:
  static constexpr std::int32_t none = -1;

  std::int32_t device(int node, int place) const { return node % options_.nodes * options_.devices + place % options_.devices; }
  static std::size_t at(std::int32_t device) { return static_cast<std::size_t>(device); }

  std::int32_t add(std::int32_t from, std::int32_t to, double amount, std::vector<std::int32_t> after) {
    after.erase(std::remove(after.begin(), after.end(), none), after.end());
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    graph_.add(from, to, amount);
    for (const std::int32_t earlier : after) graph_.wait_for(earlier);
    return static_cast<std::int32_t>(graph_.tasks()) - 1;
  }

  void compute() {
    for (std::int32_t d = 0; d < graph_.platform.devices(); ++d) {
      std::vector<std::int32_t> after = inputs_[at(d)];
      after.push_back(computed_[at(d)]);
      after.push_back(delivered_[at(d)]);
      const double jitter = options_.jitter * (2 * random_.uniform() - 1);
      const double nanoseconds = options_.compute_s * (1 + jitter) * 1e9;
      computed_[at(d)] = add(d, none, static_cast<double>(static_cast<std::int64_t>(nanoseconds)) / 1e9, std::move(after));
    }
  }

  /// The shard of the next step to every device, as soon as the sender holds its own and the
  /// receiver is done with the one before.
  void spread(int step, const std::vector<std::int32_t>& before) {
    std::vector<std::int32_t> delivered(delivered_.size(), none);
    for (int node = 0; node < options_.nodes; ++node) {
      const std::int32_t source = device(node, step);
      const std::int32_t root = device(node + 1, step);
      std::int32_t last = add(source, root, options_.shard_bytes, {delivered_[at(source)], before[at(source)], before[at(root)]});
      std::int32_t holder = root;
      delivered[at(root)] = last;
      for (int place = 1; place < options_.devices; ++place) {
        const std::int32_t next = device(node + 1, step + place);
        delivered[at(next)] = add(holder, next, options_.shard_bytes, {last, before[at(next)]});
        if (options_.mode != "chain") continue;
        last = delivered[at(next)];
        holder = next;
      }
    }
    delivered_ = std::move(delivered);
  }

  void mix(const std::vector<std::int32_t>& before, std::vector<std::vector<std::int32_t>>& sent) {
    for (int node = 0; node < options_.nodes; ++node) {
      for (int message = 0; message < options_.extra; ++message) {
        const std::int32_t target = device(node + 1 + random_.below(options_.nodes - 1), random_.below(options_.devices));
        const std::int32_t source = device(node, random_.below(options_.devices));
        const double bytes = options_.shard_bytes * 0.5 * (0.1 + random_.uniform());
        const std::int32_t after = random_.below(2) == 0 ? computed_[at(source)] : before[at(source)];
        sent[at(target)].push_back(add(source, target, static_cast<double>(static_cast<std::int64_t>(bytes)), {after}));
      }
    }
  }

  GraphOptions options_;
  Random random_;
  tawpipe::TaskGraph graph_;
  std::vector<std::int32_t> computed_;   ///< [device] its last computation
  std::vector<std::int32_t> delivered_;  ///< [device] what brought it the shard of this step
  std::vector<std::vector<std::int32_t>> inputs_;
  std::vector<std::vector<std::int32_t>> pending_;
};

}  // namespace detail

/// The same graph for the same options, on every machine.
inline tawpipe::TaskGraph generate(const GraphOptions& options) { return detail::GraphGenerator{options}.run(); }

/// Named ones: MODE-SIZE, where SIZE is 10k, 100k or 1m tasks.
inline tawpipe::TaskGraph named_graph(std::string_view name) {
  const auto dash = std::min(name.find('-'), name.size());
  GraphOptions options{.mode = std::string{name.substr(0, dash)}};
  const std::string_view size = dash < name.size() ? name.substr(dash + 1) : "";
  const bool mix = options.mode == "mix";
  if (mix) {
    options.extra = 4;
    options.compute_s = 0.06;
  }
  options.nodes = size == "1m" ? 128 : size == "100k" ? 32 : 8;
  options.steps = size == "1m" ? (mix ? 390 : 490) : size == "100k" ? (mix ? 157 : 196) : (mix ? 63 : 78);
  if (size != "1m" && size != "100k" && size != "10k")
    throw tawpipe::InputError("a graph's name is MODE-SIZE: star, chain or mix, and 10k, 100k or 1m");
  return generate(options);
}

}  // namespace peers
