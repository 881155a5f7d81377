// Noise that an ideal prediction leaves out: varying kernels, slow devices, computation slowed by
// overlapping communication.
// Not: the simulation itself (simulate/simulate.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/splitmix64.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/task_factors.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/timeline/intervals.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// Disturbances of one run, drawn from a seed: the same seed gives the same run on every machine
/// and compiler.
struct Noise {
  /// standard deviation of each computation's and each route's time, relative; mean 1
  double jitter = 0;
  double stragglers = 0;  ///< the probability that a device is slow for the whole run
  double slowdown = 2;    ///< factor of a slow device's computing time
  /// extra time of a computation while its device communicates: 0.05 is 5 %
  double interference = 0;
  std::uint64_t seed = 1;

  bool is_random() const { return jitter > 0 || stragglers > 0; }
  bool is_none() const { return !is_random() && interference <= 0; }

  /// @throws InputError  if a value is out of range.
  void check() const {
    if (!(jitter >= 0 && jitter <= 0.3)) throw InputError("--jitter must be a fraction from 0 to 0.3, such as 0.03");
    if (!(stragglers >= 0 && stragglers <= 1 && slowdown >= 1 && slowdown <= 1000)) {
      throw InputError("--stragglers must be a probability and how many times slower, such as 0.01x2");
    }
    if (!(interference >= 0 && interference <= 10)) {
      throw InputError("--interference must be a fraction from 0 to 10, such as 0.05");
    }
  }
};

/// "0.01x2": the probability and the slowdown. @throws InputError  for anything else
inline void parse_stragglers(std::string_view text, Noise& noise) {
  const auto cross = std::min(text.find('x'), text.size());
  const auto stragglers = to_number<double>(text.substr(0, cross));
  const auto slowdown = to_number<double>(text.substr(std::min(cross + 1, text.size())));
  if (!stragglers || !slowdown) {
    throw InputError(
        concat("--stragglers ", one_line(std::string{text}), " must be a probability and how many times slower, such as 0.01x2"));
  }
  noise.stragglers = *stragglers;
  noise.slowdown = *slowdown;
  noise.check();
}

namespace detail {

/// Uniform in 0 .. 1, with 53 bits.
constexpr double noise_uniform(std::uint64_t x) { return static_cast<double>(splitmix64(x) >> 11) * 0x1p-53; }

/// Nearly normal (the sum of twelve uniforms minus six): only sums, so the same bits everywhere.
/// Within -6 .. 6.
constexpr double noise_normal(std::uint64_t x) {
  double sum = -6;
  for (std::uint64_t i = 0; i < 12; ++i) sum += noise_uniform(x * 12 + i);
  return sum;
}

}  // namespace detail

/// A factor for a time, with mean 1 and at least 0.1. @param key  what varies: equal keys give
/// equal factors
constexpr double jitter_factor(const Noise& noise, std::uint64_t key) {
  if (noise.jitter <= 0) return 1;
  return std::max(0.1, 1 + noise.jitter * detail::noise_normal(splitmix64(noise.seed) ^ key));
}

/// A device's factor: `slowdown` for a straggler, otherwise 1.
constexpr double straggler_factor(const Noise& noise, Rank rank) {
  const std::uint64_t key = splitmix64(noise.seed ^ 0x5354524147474c45U) + static_cast<std::uint64_t>(number(rank));
  return detail::noise_uniform(key) < noise.stragglers ? noise.slowdown : 1.0;
}

/// [task] the factors of all computations; 1 for communications.
inline std::vector<double> noise_factors(const Schedule& schedule, const Noise& noise) {
  std::vector<double> factors(schedule.tasks().size(), 1.0);
  for (std::size_t t = 0; t < factors.size(); ++t) {
    const Task& task = schedule.tasks()[t];
    if (is_compute(task.op)) factors[t] = jitter_factor(noise, t) * straggler_factor(noise, task.rank);
  }
  return factors;
}

/// The factor of a route's messages: one for each pair of ends or group.
inline double message_factor(const Noise& noise, const Task& task) {
  const auto part = [](auto value) { return static_cast<std::uint64_t>(static_cast<std::uint32_t>(value)); };
  return jitter_factor(noise, splitmix64(part(number(task.rank)) << 32 | part(number(task.peer))) +
                                  part(number(task.group)) * 64 + static_cast<std::uint64_t>(task.op));
}

/// Multiplies into `factors` the slowdown of computations that overlap communication in `timeline`:
/// one with data in flight on its device for a fraction x of its time takes 1 + interference * x
/// times as long.
/// @param overlap  [task] that fraction
inline void add_interference(std::vector<double>& factors, const std::vector<double>& overlap, double interference) {
  for (std::size_t t = 0; t < factors.size(); ++t) factors[t] *= 1 + interference * overlap[t];
}

/// [task] the fraction of a computation's time during which data went to or from its device, copies
/// to and from the host among them; 0 for communications.
/// Complexity: O(tasks log tasks + members).
inline std::vector<double> communication_beside(const Schedule& schedule, const Timeline& timeline) {
  std::vector<detail::Intervals> busy(static_cast<std::size_t>(schedule.ranks()));
  const auto tasks = schedule.tasks();
  const auto span = [&](std::size_t t) {
    return detail::Intervals::value_type{timeline.start[t].since_start().value(), timeline.end[t].since_start().value()};
  };
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    if (is_compute(tasks[t].op)) continue;
    for_each_end(schedule, id<TaskId>(t), [&](Rank rank, int) { busy[index(rank)].push_back(span(t)); });
  }
  for (detail::Intervals& spans : busy) detail::unite(spans);  // so that overlaps count once
  std::vector<double> part(tasks.size(), 0.0);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const auto [start, end] = span(t);
    if (!is_compute(tasks[t].op) || end <= start) continue;
    const auto& spans = busy[index(tasks[t].rank)];
    std::int64_t beside = 0;
    auto at =
        std::lower_bound(spans.begin(), spans.end(), start, [](const auto& s, std::int64_t time) { return s.second <= time; });
    for (; at != spans.end() && at->first < end; ++at) beside += std::min(end, at->second) - std::max(start, at->first);
    part[t] = static_cast<double>(beside) / static_cast<double>(end - start);
  }
  return part;
}

/// As simulate_in_order(), disturbed by `noise`. Interference changes which tasks overlap, and so
/// itself: it is recomputed three times.
template <CostModel Cost>
Timeline simulate_in_order(const Schedule& schedule, const Cluster& cluster, const Cost& cost, const Noise& noise,
                           std::span<const TaskId> calls) {
  if (noise.is_none()) return simulate_in_order(schedule, cluster, cost, calls);
  const std::vector<double> drawn = noise_factors(schedule, noise);
  const auto message = [&noise](const Task& task) { return message_factor(noise, task); };
  const auto run = [&](const std::vector<double>& factors) {
    return simulate_in_order(schedule, cluster, FactoredCost<Cost, decltype(message)>{cost, factors, message}, calls);
  };
  Timeline timeline = run(drawn);
  for (int round = 0; round < 3 && noise.interference > 0; ++round) {
    std::vector<double> factors = drawn;
    add_interference(factors, communication_beside(schedule, timeline), noise.interference);
    timeline = run(factors);
  }
  return timeline;
}

/// As simulate(), disturbed by `noise`.
template <CostModel Cost>
Timeline simulate(const Schedule& schedule, const Cluster& cluster, const Cost& cost, const Noise& noise) {
  return simulate_in_order(schedule, cluster, cost, noise, order_of_calls(schedule, cluster, cost));
}

}  // namespace tawpipe
