// The engine's semantics written as plainly as possible: after every event all rates are
// recomputed, from scratch, in doubles.
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

/// Max-min fair rates of `flows` (indices into `nodes`): the link with the least share for its
/// unsettled flows settles them.
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

/// [device] the speed at which it computes while nodes that have begun, and are not given back,
/// hold some of its SMs.
inline std::vector<double> naive_speeds(const std::vector<GraphBuilder::Node>& nodes, const NaiveTimes& times,
                                        const std::vector<tawpipe::SpeedTable>& tables) {
  std::vector<double> speeds;
  for (std::size_t device = 0; device < tables.size(); ++device) {
    int held = 0;
    for (std::size_t t = 0; t < nodes.size(); ++t) {
      if (nodes[t].until < 0 || nodes[t].device != static_cast<int>(device)) continue;
      if (times.start[t] >= 0 && times.end[static_cast<std::size_t>(nodes[t].until)] < 0) held += nodes[t].sms;
    }
    speeds.push_back(tables[device].speed(held));
  }
  return speeds;
}

/// @param tables  [device] that nodes compute on
inline NaiveTimes naive_run(const GraphBuilder& graph, const std::vector<tawpipe::SpeedTable>& tables = {}) {
  enum class State { waiting, delayed, flowing, ended };
  const auto& nodes = graph.nodes();
  NaiveTimes times{std::vector<double>(nodes.size(), -1), std::vector<double>(nodes.size(), -1)};
  std::vector<State> state(nodes.size(), State::waiting);
  std::vector<double> left(nodes.size());  // bytes, or seconds of a computation
  const auto computes = [&](std::size_t t) { return nodes[t].device >= 0 && nodes[t].until < 0; };
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
          if (computes(t)) left[t] = nodes[t].delay;
          changed = true;
        }
        if (state[t] == State::delayed && (computes(t) ? left[t] <= 0 : now >= times.start[t] + nodes[t].delay)) {
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
    const std::vector<double> speeds = naive_speeds(nodes, times, tables);
    const auto speed = [&](std::size_t t) { return speeds[static_cast<std::size_t>(nodes[t].device)]; };
    const auto end_of_delay = [&](std::size_t t) {
      return computes(t) ? now + left[t] / speed(t) : times.start[t] + nodes[t].delay;
    };
    double next = std::numeric_limits<double>::infinity();
    for (std::size_t t = 0; t < nodes.size(); ++t) {
      if (state[t] == State::delayed) next = std::min(next, end_of_delay(t));
    }
    for (std::size_t i = 0; i < flows.size(); ++i) next = std::min(next, now + left[flows[i]] / rates[i]);
    if (next == std::numeric_limits<double>::infinity()) return times;
    for (std::size_t t = 0; t < nodes.size(); ++t) {
      if (state[t] != State::delayed || !computes(t)) continue;
      left[t] = end_of_delay(t) <= next ? 0 : left[t] - speed(t) * (next - now);
    }
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const bool done = now + left[flows[i]] / rates[i] <= next;
      left[flows[i]] = done ? 0 : left[flows[i]] - rates[i] * (next - now);
    }
    now = next;
  }
}

}  // namespace support
