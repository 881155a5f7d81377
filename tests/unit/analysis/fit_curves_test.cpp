// Tests of analysis/fit_curves.hpp: figures that made the times of kernels are found again.
#include "tawpipe/analysis/fit_curves.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tawpipe/topology/devices.hpp"

using namespace tawpipe;

namespace {

/// Kernels of every kind, as long as `curves` makes them.
MeasuredDevice measured_by(const DeviceCurves& curves, const DeviceSpec& device) {
  MeasuredDevice measured{.name = "one", .kernel_gap = curves.kernel_gap, .kernels = {}};
  const auto add = [&](const Kernel& kernel, double time) { measured.kernels.push_back({kernel, curves.kernel_gap + time}); };
  for (const double bytes : {1e8, 2e8, 4e8}) {
    add({.kind = Kernel::Kind::traffic, .bytes = bytes}, bytes / (device.memory_bandwidth.value() * curves.memory));
  }
  for (const std::int64_t size : {2048, 4096, 8192}) {
    for (const std::int64_t inner : {1024, 4096, 8192}) {
      Kernel product{.kind = Kernel::Kind::product, .m = size, .n = size, .k = inner};
      add(product, product_seconds(product, curves, device));
      product.pass = KernelPass::backward_weight;
      add(product, product_seconds(product, curves, device));
    }
  }
  for (const std::int64_t unaligned : {8190, 8191}) {
    for (const Kernel& product :
         {Kernel{.kind = Kernel::Kind::product, .pass = KernelPass::backward_input, .m = 8192, .n = 8192, .k = unaligned},
          Kernel{.kind = Kernel::Kind::product,
          .pass = KernelPass::backward_weight,
          .adds = false,
          .m = unaligned,
          .n = 8192,
          .k = 8192}}) {
      add(product, product_seconds(product, curves, device));
    }
  }
  for (const std::int64_t head : {64, 128}) {
    for (const std::int64_t sequence : {2048, 4096}) {
      Kernel attention{.kind = Kernel::Kind::attention, .m = sequence, .n = sequence, .k = head, .batch = 32};
      add(attention, attention_seconds(attention, curves, device));
      attention.kind = Kernel::Kind::attention_backward;
      add(attention, attention_seconds(attention, curves, device));
    }
  }
  return measured;
}

}  // namespace

TEST_CASE("the curves that made the times are found from them") {
  const DeviceSpec device = device_named("H100-80G");
  DeviceCurves curves = KernelCost{}.curves(device);
  curves.products = 0.55;
  curves.inner_ramp = 256;
  curves.weight_gradient = 0.9;
  curves.even_rows = 0.7;
  curves.odd_rows = 0.4;
  curves.attention = 0.7;
  curves.attention_head = 64;
  curves.attention_backward = 0.5;
  curves.memory = 0.8;
  curves.kernel_gap = 3e-6;
  const MeasuredDevice measured = measured_by(curves, device);
  const FittedCurves found = fit_curves(measured, device);
  for (const CurveField& field : curve_fields()) {
    CAPTURE(field.name);
    CHECK(found.curves.*field.member == doctest::Approx(curves.*field.member).epsilon(1e-6));
  }
  CHECK(found.changes.size() == 10);
  REQUIRE(found.seconds.size() == measured.kernels.size());
  for (std::size_t i = 0; i < found.seconds.size(); ++i) {
    CHECK(found.seconds[i] == doctest::Approx(measured.kernels[i].seconds).epsilon(1e-6));
  }
}

TEST_CASE("figures of which nothing was measured stay the generation's, and no share is above 1") {
  const DeviceSpec device = device_named("A100-80G");
  const DeviceCurves before = KernelCost{}.curves(device);
  MeasuredDevice measured{.name = "one", .kernels = {}};
  CHECK(fit_curves(measured, device).curves == before);
  measured.kernels.push_back({{.kind = Kernel::Kind::traffic, .bytes = 1e9}, 1e-9});
  const FittedCurves found = fit_curves(measured, device);
  REQUIRE(found.changes.size() == 1);
  CHECK(found.curves.memory == 1);
  CHECK(found.curves.products == before.products);
}
