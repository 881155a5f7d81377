// The figures of a device's curves from kernels that were measured on it, each by itself.
// Not: the measurement (the command's module for CUDA), nor times of whole steps
// (analysis/calibrate.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/cost/kernel_cost.hpp"
#include "tawpipe/model/kernel.hpp"
#include "tawpipe/topology/device.hpp"

namespace tawpipe::inline v0 {

/// A kernel, and the time from its start to the next one's where it is run over and over.
struct MeasuredKernel {
  Kernel kernel;
  double seconds = 0;
};

/// What was measured on one device.
struct MeasuredDevice {
  std::string name;         ///< as its driver calls it
  std::int64_t memory = 0;  ///< bytes
  double kernel_gap = 0;    ///< s from a kernel's end to the next one's start
  double launch = 0;        ///< s that the host takes to launch a kernel
  double to_host = 0;       ///< bytes/s to the host's pinned memory, with no other copy
  double from_host = 0;     ///< bytes/s the other way
  std::vector<MeasuredKernel> kernels;
  std::string software{};  ///< that ran them: "CUDA 12.8, tawpipe 0.9"
};

/// A figure of the curves, as KernelCost::changes takes it.
using CurveChange = std::pair<double DeviceCurves::*, double>;

/// The figures that fit the measured kernels best.
struct FittedCurves {
  std::vector<CurveChange> changes;  ///< the figures that the kernels determine
  std::vector<double> seconds;       ///< [kernel] that follow from them
  DeviceCurves curves;               ///< the generation's, with the changes
};

namespace detail {

class CurveFit {
 public:
  CurveFit(const MeasuredDevice& measured, const DeviceSpec& device)
      : measured_{measured}, device_{device}, curves_{KernelCost{}.curves(device)} {}

  FittedCurves fit() {
    if (measured_.kernel_gap > 0) change(&DeviceCurves::kernel_gap, std::min(measured_.kernel_gap, 1.0));
    using Kind = Kernel::Kind;
    share(&DeviceCurves::memory, [](const Kernel& one) { return one.kind == Kind::traffic; });
    const auto is_product = [](const Kernel& one, int multiple) {
      return one.kind == Kind::product && one.format == ProductFormat::bits16 && row_multiple(one) == multiple;
    };
    with_ramp(&DeviceCurves::products, &DeviceCurves::inner_ramp,
              [&](const Kernel& one) { return is_product(one, 8) && one.pass != KernelPass::backward_weight; });
    share(&DeviceCurves::weight_gradient,
          [&](const Kernel& one) { return is_product(one, 8) && one.pass == KernelPass::backward_weight; });
    share(&DeviceCurves::even_rows, [&](const Kernel& one) { return is_product(one, 2); });
    share(&DeviceCurves::odd_rows, [&](const Kernel& one) { return is_product(one, 1); });
    with_ramp(&DeviceCurves::attention, &DeviceCurves::attention_head,
              [](const Kernel& one) { return one.kind == Kind::attention; });
    share(&DeviceCurves::attention_backward, [](const Kernel& one) { return one.kind == Kind::attention_backward; });
    FittedCurves found{.changes = changes_, .seconds = {}, .curves = curves_};
    for (const MeasuredKernel& one : measured_.kernels) found.seconds.push_back(predicted(one.kernel) + curves_.kernel_gap);
    return found;
  }

 private:
  double predicted(const Kernel& kernel) const {
    if (kernel.kind == Kernel::Kind::product) return product_seconds(kernel, curves_, device_);
    if (kernel.kind != Kernel::Kind::traffic) return attention_seconds(kernel, curves_, device_);
    return kernel.bytes / (device_.memory_bandwidth.value() * curves_.memory);
  }
  /// Without the gap after it, which counts as at most three quarters of it.
  double net(const MeasuredKernel& one) const { return std::max(one.seconds - curves_.kernel_gap, one.seconds / 4); }

  void change(double DeviceCurves::*member, double value) {
    curves_.*member = value;
    changes_.emplace_back(member, value);
  }

  /// The share of a peak with which half of the kernels are faster than predicted and half slower,
  /// at most 1.
  template <class Takes>
  double best_share(double DeviceCurves::*member, Takes&& takes) {
    curves_.*member = 1;
    std::vector<double> shares;
    for (const MeasuredKernel& one : measured_.kernels) {
      if (takes(one.kernel) && one.seconds > 0) shares.push_back(predicted(one.kernel) / net(one));
    }
    if (shares.empty()) return 0;
    const auto middle = shares.begin() + static_cast<std::ptrdiff_t>(shares.size() / 2);
    std::nth_element(shares.begin(), middle, shares.end());
    return curves_.*member = std::clamp(*middle, 1e-9, 1.0);
  }
  template <class Takes>
  void share(double DeviceCurves::*member, Takes&& takes) {
    const double before = curves_.*member;
    const double found = best_share(member, takes);
    curves_.*member = before;
    if (found > 0) change(member, found);
  }

  /// A share and the size at which it is halved, or that a start costs: the pair with the least
  /// error over sizes from 8 to 1,024.
  template <class Takes>
  void with_ramp(double DeviceCurves::*member, double DeviceCurves::*ramp, Takes&& takes) {
    const DeviceCurves before = curves_;
    double least = -1;
    double share = 0;
    double size = 0;
    for (int step = 0; step <= 56; ++step) {
      curves_.*ramp = 8 * std::pow(2.0, step / 8.0);
      const double found = best_share(member, takes);
      if (found == 0) break;
      double error = 0;
      for (const MeasuredKernel& one : measured_.kernels) {
        if (takes(one.kernel) && one.seconds > 0) error += std::abs(std::log(predicted(one.kernel) / net(one)));
      }
      if (least >= 0 && error >= least) continue;
      least = error;
      share = found;
      size = curves_.*ramp;
    }
    curves_ = before;
    if (least < 0) return;
    change(member, share);
    change(ramp, size);
  }

  const MeasuredDevice& measured_;
  const DeviceSpec& device_;
  DeviceCurves curves_;
  std::vector<CurveChange> changes_;
};

}  // namespace detail

/// Fits the curves of `device` to what was measured on one: memory speed, large products and what
/// their start costs, gradients of weights, unaligned rows, attention and its heads, gaps. Figures
/// for which nothing was measured stay the generation's.
inline FittedCurves fit_curves(const MeasuredDevice& measured, const DeviceSpec& device) {
  return detail::CurveFit{measured, device}.fit();
}

}  // namespace tawpipe
