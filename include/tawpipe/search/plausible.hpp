// The guard that every prediction passes: no answer is faster than the devices can compute.
// Not: the check of files' contents (cost/measured.hpp, report/).
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/search/device_memory.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The peak of a device for the model's products: that of the widest where the format is unknown.
inline double product_peak_of(const DeviceSpec& device, const std::optional<Transformer>& model) {
  const ProductFormat format = model ? model->products : ProductFormat::bits16;
  const double narrow = !is_narrow(format)               ? 0
                        : format == ProductFormat::nvfp4 ? device.peak_fp4.value()
                                                         : device.peak_fp8.value();
  return std::max(device.peak.value(), narrow);
}

/// Where the times are from, and what would be right.
inline std::string doubt_of(const Problem& problem, bool known_times) {
  if (known_times) return "the times of computations in the schedule file; give the cluster that they were taken on";
  if (const auto* measured = std::get_if<MeasuredCost>(&problem.cost)) {
    return concat("the measured times", measured->source.empty() ? std::string{} : concat(" of ", measured->source),
                  " (--cost measured); calibrate them again, with the model and on the devices that they are used for");
  }
  if (std::holds_alternative<FixedCost>(problem.cost)) {
    return "the fixed times (--cost fixed); give those of this model on this device, or leave the model out (--microbatches)";
  }
  return "the device's peak, which is below what its cost model reaches; give the peak of the data sheet";
}

}  // namespace detail

/// @param known_times  the computations have times of their own (search/known_times.hpp)
/// @throws InputError  for an iteration that takes no time or less than the devices' peak of the
/// model's products allows (an MFU above 100 %), naming what must be wrong.
inline void check_plausible(const Summary& summary, const Problem& problem, bool known_times = false) {
  if (summary.model.empty()) return;  // no operations are known
  double peak = 0;
  double plain = 0;
  for (int rank = 0; rank < std::min(summary.ranks, problem.cluster.ranks()); ++rank) {
    const DeviceSpec& device = problem.cluster.device(Rank{rank});
    peak += detail::product_peak_of(device, problem.model);
    plain += device.peak.value();
  }
  const double share = peak > 0 ? summary.mfu * plain / peak : 0;
  if (summary.makespan > Duration{} && share <= 1.001) return;  // times are whole picoseconds
  const std::string& device = problem.cluster.device(Rank{0}).name;
  const std::string what = summary.makespan > Duration{}
                               ? concat("has an MFU of ", std::llround(100 * share), " %: no ", device, " computes that fast")
                               : std::string{"takes no time"};
  throw InputError(one_line(
      concat("an iteration of ", summary.schedule, " ", what, "; the cause is ", detail::doubt_of(problem, known_times))));
}

/// The summary, checked, with what its devices hold beside buffers.
inline Summary plausible(Summary summary, const Problem& problem) {
  check_plausible(summary, problem);
  add_device_memory(summary, problem);
  return summary;
}

}  // namespace tawpipe
