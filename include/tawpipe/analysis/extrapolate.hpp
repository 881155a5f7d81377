// The summary of an iteration of many microbatches, from two iterations of few.
// Not: how many of those few are enough (search/detail/plan_order.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/analysis/summary.hpp"
#include "tawpipe/core/units.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The line through two points, of numbers, quantities, and arrays of them; the second is at 1.
class Extrapolation {
 public:
  explicit Extrapolation(double at) : at_{at} {}

  double operator()(double a, double b) const { return a + (b - a) * at_; }
  std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    const double value = std::max(0.0, std::round((*this)(static_cast<double>(a), static_cast<double>(b))));
    return value < 9.2e18 ? static_cast<std::int64_t>(value) : beyond_64_bits(a);
  }
  Duration operator()(Duration a, Duration b) const { return Duration{(*this)(a.value(), b.value())}; }
  Bytes operator()(Bytes a, Bytes b) const { return Bytes{(*this)(a.value(), b.value())}; }
  PeakMemory operator()(const PeakMemory& a, const PeakMemory& b) const {
    return {(*this)(a.total, b.total), (*this)(a.by_kind, b.by_kind), TimePoint{(*this)(a.at - TimePoint{}, b.at - TimePoint{})},
            (*this)(a.host, b.host)};
  }
  template <class T>
  std::vector<T> operator()(const std::vector<T>& a, const std::vector<T>& b) const {
    std::vector<T> found = b;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) found[i] = (*this)(a[i], b[i]);
    return found;
  }
  template <class T, std::size_t n>
  std::array<T, n> operator()(const std::array<T, n>& a, const std::array<T, n>& b) const {
    std::array<T, n> found{};
    for (std::size_t i = 0; i < n; ++i) found[i] = (*this)(a[i], b[i]);
    return found;
  }

 private:
  double at_;
};

}  // namespace detail

/// The summary of an iteration of `global_batch` sequences, where each microbatch after those of
/// `few` takes, moves and keeps as much as each that `more` has in addition. Tasks' own held times
/// are left out.
/// @param few   the same schedule on the same ranks with fewer microbatches of the same size
/// @param more  with more than `few`, and at most `global_batch` sequences
inline Summary extrapolate(const Summary& few, const Summary& more, std::int64_t global_batch) {
  const detail::Extrapolation line{static_cast<double>(global_batch - few.global_batch) /
                                   static_cast<double>(more.global_batch - few.global_batch)};
  Summary all = more;
  all.microbatches = line(few.microbatches, more.microbatches);
  all.tasks = line(few.tasks, more.tasks);
  all.global_batch = global_batch;
  all.makespan = line(few.makespan, more.makespan);
  const auto share = [&](double a, double b) {  // of the time
    return line(a * to_seconds(few.makespan), b * to_seconds(more.makespan)) / std::max(to_seconds(all.makespan), 1e-12);
  };
  all.tokens_per_device_per_second = share(few.tokens_per_device_per_second, more.tokens_per_device_per_second);
  all.mfu = share(few.mfu, more.mfu);
  all.flops_per_device = FlopsPerSecond{share(few.flops_per_device.value(), more.flops_per_device.value())};
  all.bubble = {.ratio = share(few.bubble.ratio, more.bubble.ratio),
                .span = line(few.bubble.span, more.bubble.span),
                .span_work = line(few.bubble.span_work, more.bubble.span_work),
                .busy = line(few.bubble.busy, more.bubble.busy)};
  all.peak_memory = line(few.peak_memory, more.peak_memory);
  all.host_need = line(few.host_need, more.host_need);
  if (!all.model.empty()) {
    all.out_of_memory = out_of_memory(all.peak_memory, all.device_memory, all.usable_memory);
    all.out_of_host_memory = out_of_host_memory(all.host_need, all.host_memory, all.usable_memory);
  }
  Traffic& traffic = all.traffic;
  traffic.inter_node_bytes = line(few.traffic.inter_node_bytes, more.traffic.inter_node_bytes);
  traffic.intra_node_bytes = line(few.traffic.intra_node_bytes, more.traffic.intra_node_bytes);
  traffic.host_bytes = line(few.traffic.host_bytes, more.traffic.host_bytes);
  traffic.node_egress_bytes = line(few.traffic.node_egress_bytes, more.traffic.node_egress_bytes);
  traffic.node_ingress_bytes = line(few.traffic.node_ingress_bytes, more.traffic.node_ingress_bytes);
  traffic.rank_sent_bytes = line(few.traffic.rank_sent_bytes, more.traffic.rank_sent_bytes);
  traffic.link_bytes = line(few.traffic.link_bytes, more.traffic.link_bytes);
  traffic.payload_bytes = line(few.traffic.payload_bytes, more.traffic.payload_bytes);
  traffic.tasks = line(few.traffic.tasks, more.traffic.tasks);
  all.communication = {line(few.communication.busy_s, more.communication.busy_s),
                       line(few.communication.exposed_s, more.communication.exposed_s),
                       line(few.communication.lane_busy_s, more.communication.lane_busy_s),
                       line(few.communication.lane_exposed_s, more.communication.lane_exposed_s)};
  all.critical_path = line(few.critical_path, more.critical_path);
  all.folding.tasks = line(few.folding.tasks, more.folding.tasks);
  if (few.held && more.held) {
    all.held = HeldTime{line(few.held->slowed_s, more.held->slowed_s), line(few.held->waiting_s, more.held->waiting_s), {}};
  }
  return all;
}

}  // namespace tawpipe
