// What nccl-tests (all_reduce_perf etc.) measured, and latency and bandwidth fitted to it.
// Not: the files of it (report/nccl_tests_file.hpp), nor the cluster that uses the figures
// (topology/cluster_file.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"

namespace tawpipe::inline v0 {

/// One line of results: a size and the time that one call took.
struct NcclTestsPoint {
  double bytes = 0;
  double microseconds = 0;
};

/// A run of one of nccl-tests' programs.
struct NcclTestsRun {
  std::string program;  ///< all_reduce, reduce_scatter, all_gather, alltoall, broadcast, reduce or sendrecv
  int ranks = 0;
  int hosts = 0;
  std::vector<NcclTestsPoint> points;
  std::string gpu{};  ///< of the first rank, as its driver calls it; "": unknown
  /// adapters of a host, where NCCL's log names them or the user says so; 0: unknown
  int adapters = 0;
  bool ring = false;  ///< NCCL_ALGO=Ring, as the log or the user says
};

/// The link that limits a run, as fitted.
struct FittedLink {
  double latency_s = 0;         ///< for each hop, in addition to the overhead of starting
  double bytes_per_second = 0;  ///< in one direction; between hosts of one adapter
  double error = 0;             ///< mean relative error of the times given by the two figures
  int adapters = 0;             ///< of a host, over which the traffic was spread; 0: inside a host
  bool adapters_assumed = false;
};

namespace detail {

/// What a program makes of a buffer of B bytes on the link that limits it, for n ranks on h hosts:
/// steps * latency + fraction * B / bandwidth.
struct NcclTestsShape {
  double steps;
  double fraction;
  bool spread;  ///< over all adapters of a host; otherwise over one
};

/// Rings (cost/collective_cost.hpp): all_reduce 2(n-1) and 2(n-1)/n, all_gather and reduce_scatter
/// n-1 and (n-1)/n, broadcast and reduce n-1 and 1; a sendrecv's ring has one rank a host that sends
/// to another. alltoall: each rank sends B/n to each other one, so a host of g ranks g (n-g)/n B to
/// the others.
inline NcclTestsShape shape_of(const NcclTestsRun& run) {
  const double n = run.ranks;
  if (run.program == "sendrecv") return {1, 1, false};
  if (run.program == "alltoall") {
    const double own = run.hosts > 1 ? n / run.hosts : 1;
    return {1, own * (n - own) / n, true};
  }
  const double passes = run.program == "all_reduce" ? 2 : 1;
  const bool rooted = run.program == "broadcast" || run.program == "reduce";
  return {passes * (n - 1), rooted ? 1 : passes * (n - 1) / n, true};
}

/// Adapters of a host: those known; otherwise one for each rank, unless each would then be slower
/// than 10 Gb/s, as no data centre's is.
inline int adapters_of(const NcclTestsRun& run, double bytes_per_second) {
  if (run.adapters > 0) return run.adapters;
  const int ranks = std::max(1, run.ranks / run.hosts);
  return bytes_per_second / ranks < 1.25e9 * 0.5 ? 1 : ranks;
}

/// @throws InputError  for an all_reduce whose bus bandwidth is no link's: sums in the NVSwitch
/// (NVLS), where a rank sends its buffer once and not twice; trees between hosts (Tree, NVLSTree),
/// which send up to half as much through an adapter as the ring that busbw assumes.
/// Source: nccl-tests, doc/PERFORMANCE.md; NCCL 2.28.9, src/graph/tuning.cc.
inline void check_rings(const NcclTestsRun& run, double bytes_per_second) {
  if (run.program != "all_reduce" || run.ring || run.ranks < 3) return;
  constexpr std::string_view instead =
      "give all_gather_perf or reduce_scatter_perf instead, or run it with NCCL_ALGO=Ring and say --ring";
  if (run.hosts > 1) {
    throw InputError(concat("an all_reduce over ", run.hosts,
                            " hosts may be a tree or sums in NVSwitches (NCCL's Tree, NVLSTree), so its bandwidth is no link's; ",
                            instead));
  }
  const KnownDevice* const device = device_of_driver(run.gpu);
  if (device == nullptr || device->sm < 90) return;  // NVLS begins with Hopper
  const double wire = usual_nvlinks(*device) * nvlink_speed(device->sm).value();
  if (wire <= 0 || bytes_per_second <= 1.02 * wire) return;
  throw InputError(concat("its bandwidth of ", std::llround(bytes_per_second / 1e9), " GB/s is more than the ",
                          std::llround(wire / 1e9), " GB/s that NCCL's rings reach over the ", usual_nvlinks(*device),
                          " NVLinks of ", device->name, ": the NVSwitch summed (NVLS), so it is no link's; ", instead));
}

}  // namespace detail

/// Fits time = overhead + steps * latency + fraction * bytes / bandwidth by least squares of the
/// relative errors, with the steps and the fraction of the buffer over each link that the program
/// has. Between hosts the traffic that leaves a host is divided by its adapters.
/// @param overhead_s  of starting an operation, in the cost model
/// @throws InputError  if the times do not grow with the size, or are not those of links (NVLS,
/// trees).
inline FittedLink fit_link(const NcclTestsRun& run, double overhead_s = to_seconds(nccl_latency::start)) {
  const detail::NcclTestsShape shape = detail::shape_of(run);
  // Relative errors: each row is divided by its time. Normal equations of a + b x with weights 1 /
  // t^2.
  double w = 0;
  double wx = 0;
  double wxx = 0;
  double wy = 0;
  double wxy = 0;
  for (const auto& point : run.points) {
    const double x = shape.fraction * point.bytes;
    const double y = point.microseconds * 1e-6;
    const double weight = 1 / (y * y);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wy += weight * y;
    wxy += weight * x * y;
  }
  const double determinant = w * wxx - wx * wx;
  if (!(determinant > 0))
    throw InputError("nccl-tests with one size only cannot tell latency from bandwidth; give -b 8 -e 1G -f 2");
  const double slope = (w * wxy - wx * wy) / determinant;
  const double start = (wy - slope * wx) / w;
  if (!(slope > 0)) throw InputError("the times of nccl-tests do not grow with the size; run it up to 1 GB (-e 1G)");
  detail::check_rings(run, 1 / slope);
  FittedLink link{.latency_s = std::max(0.0, (start - overhead_s) / shape.steps), .bytes_per_second = 1 / slope};
  for (const auto& point : run.points) {
    const double predicted = overhead_s + shape.steps * link.latency_s + shape.fraction * point.bytes * slope;
    link.error += std::abs(predicted / (point.microseconds * 1e-6) - 1) / static_cast<double>(run.points.size());
  }
  if (run.hosts < 2) return link;
  link.adapters = detail::adapters_of(run, link.bytes_per_second);
  link.adapters_assumed = run.adapters == 0 && run.ranks > run.hosts;
  if (shape.spread) link.bytes_per_second /= link.adapters;
  return link;
}

}  // namespace tawpipe
