// The engine's semantics written as plainly as can be: after every event all rates are solved anew, from scratch, in doubles.
// Not: fast; quadratic and worse.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "support/engine_graphs.hpp"

namespace support {

struct NaiveTimes {
  std::vector<double> start;
  std::vector<double> end;
};

/// Max-min fair rates of `flows` (indices into `nodes`): the link with the least share for its unsettled flows settles them.
inline std::vector<double> naive_rates(const std::vector<GraphBuilder::Node>& nodes, const std::vector<std::size_t>& flows,
                                       const std::vector<double>& capacities) {
  std::vector<double> rates(flows.size(), -1);
  for (;;) {
    double least = std::numeric_limits<double>::infinity();
    int tightest = -1;
    for (std::size_t link = 0; link < capacities.size(); ++link) {
      double left = capacities[link];
      double weight = 0;
      for (std::size_t i = 0; i < flows.size(); ++i) {
        for (const auto& load : nodes[flows[i]].loads) {
          if (tawpipe::index(load.link) != link) continue;
          if (rates[i] >= 0) {
            left -= rates[i] * load.weight;
          } else {
            weight += load.weight;
          }
        }
      }
      if (weight > 0 && std::max(left, 0.0) / weight < least) {
        least = std::max(left, 0.0) / weight;
        tightest = static_cast<int>(link);
      }
    }
    if (tightest < 0) return rates;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const auto& loads = nodes[flows[i]].loads;
      const bool on = std::any_of(loads.begin(), loads.end(), [&](const auto& load) { return number(load.link) == tightest; });
      if (on && rates[i] < 0) rates[i] = least;
    }
  }
}

inline NaiveTimes naive_run(const GraphBuilder& graph) {
  enum class State { waiting, delayed, flowing, ended };
  const auto& nodes = graph.nodes();
  NaiveTimes times{std::vector<double>(nodes.size(), -1), std::vector<double>(nodes.size(), -1)};
  std::vector<State> state(nodes.size(), State::waiting);
  std::vector<double> left(nodes.size());
  double now = 0;
  for (;;) {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t t = 0; t < nodes.size(); ++t) {
        const auto ready = [&] {
          return std::all_of(nodes[t].after.begin(), nodes[t].after.end(),
                             [&](int earlier) { return state[static_cast<std::size_t>(earlier)] == State::ended; });
        };
        if (state[t] == State::waiting && ready()) {
          state[t] = State::delayed;
          times.start[t] = now;
          changed = true;
        }
        if (state[t] == State::delayed && now >= times.start[t] + nodes[t].delay) {
          state[t] = State::flowing;
          left[t] = nodes[t].loads.empty() ? 0 : nodes[t].bytes;
          changed = true;
        }
        if (state[t] == State::flowing && left[t] <= 0) {
          state[t] = State::ended;
          times.end[t] = now;
          changed = true;
        }
      }
    }
    std::vector<std::size_t> flows;
    for (std::size_t t = 0; t < nodes.size(); ++t) {
      if (state[t] == State::flowing) flows.push_back(t);
    }
    const std::vector<double> rates = naive_rates(nodes, flows, graph.capacities());
    double next = std::numeric_limits<double>::infinity();
    for (std::size_t t = 0; t < nodes.size(); ++t) {
      if (state[t] == State::delayed) next = std::min(next, times.start[t] + nodes[t].delay);
    }
    for (std::size_t i = 0; i < flows.size(); ++i) next = std::min(next, now + left[flows[i]] / rates[i]);
    if (next == std::numeric_limits<double>::infinity()) return times;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const bool done = now + left[flows[i]] / rates[i] <= next;
      left[flows[i]] = done ? 0 : left[flows[i]] - rates[i] * (next - now);
    }
    now = next;
  }
}

}  // namespace support
