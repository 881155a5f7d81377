// Tests of search/plausible.hpp: no prediction is faster than the devices, whatever its times are
// from.
#include "tawpipe/search/plausible.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/known_times.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/topology/changed_links.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

/// Eight layers on four devices of 1 TFLOP/s, 32 sequences.
Problem problem(Cost cost) {
  return {.cluster = support::cluster(4),
          .model = support::transformer(8, 32).model().decoder,
          .sequence = support::transformer(8, 32).batch().sequence,
          .global_batch = 32,
          .schedules = {{"1f1b"}},
          .cost = std::move(cost)};
}

/// A cost whose layer takes `seconds` forward and twice that backward.
MeasuredCost measured(double seconds) {
  MeasuredCost cost;
  cost.forward = {.layer = seconds, .embedding = 0, .head = 0};
  cost.backward = {.layer = 2 * seconds, .embedding = 0, .head = 0};
  cost.update = {.once = 0, .byte = 0};
  cost.intra_node = cost.inter_node = {.latency = 0, .byte = 0};
  cost.source = "cost.json";
  return cost;
}

std::string refusal(const Problem& of) {
  try {
    predict(of, shipped());
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("times that the devices can reach are an answer") {
  CHECK(refusal(problem(measured(1e-3))).empty());
  CHECK(refusal(problem(FixedCost{.forward = 1_ms, .backward_input = 1_ms, .backward_weight = 1_ms, .transfer = 0_s})).empty());
  CHECK(refusal(problem(KernelCost{})).empty());
}

TEST_CASE("an MFU above 100 % is an error that names the times") {
  const std::string of_file = refusal(problem(measured(1e-12)));
  CHECK(has(of_file, "an iteration of 1f1b has an MFU of"));
  CHECK(has(of_file, "the measured times of cost.json (--cost measured); calibrate them again"));
  const Duration short_time{1};
  const std::string fixed = refusal(
      problem(FixedCost{.forward = short_time, .backward_input = short_time, .backward_weight = short_time, .transfer = 0_s}));
  CHECK(has(fixed, "the fixed times (--cost fixed)"));
}

TEST_CASE("the peak is that of the products' format") {
  Problem one = problem(measured(1e-12));
  one.fold = Fold::off;
  // Times at 1.5 of the 16-bit peak are right for products in 8 bits of twice that, and wrong without.
  const double busy = to_seconds(predict(problem(measured(1)), shipped()).summary.makespan);
  const double mfu = predict(problem(measured(1)), shipped()).summary.mfu;
  one.cost = measured(mfu / 1.5);
  CHECK(busy > 0);
  CHECK(has(refusal(one), "has an MFU of 1"));
  one.cluster = with_changed_devices(one.cluster, [](DeviceSpec& device) { device.peak_fp8 = 2_TFLOPS; });
  CHECK(has(refusal(one), "has an MFU of 1"));
  one.model->products = ProductFormat::fp8;
  CHECK(refusal(one).empty());
}

TEST_CASE("a layer of no time is an error") {
  CHECK(has(refusal(problem(measured(0))), "a forward of a layer that takes no time"));
}

TEST_CASE("times and figures of another device are refused with the difference") {
  MeasuredCost elsewhere = measured(1e-3);
  elsewhere.device = "H100-80G";
  CHECK(has(refusal(problem(elsewhere)), "the times of cost.json were measured on H100-80G, and cluster"));
  CHECK(has(refusal(problem(elsewhere)), "has device"));
  elsewhere.device = "device";
  CHECK(refusal(problem(elsewhere)).empty());
  CHECK(has(refusal(problem(KernelCost{.measured_on = "H100-80G"})), "the figures of the curves were measured on H100-80G"));
}

TEST_CASE("recorded times of a schedule pass the same guard") {
  const Problem of = problem(KernelCost{});
  const Schedule schedule =
      shipped().build("1f1b", {.workload = of.workload(1), .nodes = of.cluster.groups_by_node(), .options = {}});
  std::vector<Duration> times(schedule.tasks().size(), Duration{1});
  CHECK_THROWS_WITH_AS(
      predict(Problem{.cluster = of.cluster,
                      .cost = FixedCost{.forward = 0_s, .backward_input = 0_s, .backward_weight = 0_s, .transfer = 0_s}},
              schedule, times),
      doctest::Contains("the times of computations in the schedule file"), InputError);
}
