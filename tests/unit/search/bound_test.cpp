// Tests of search/bound.hpp against closed forms.
// Not: that no simulation is faster (properties/bounds_test.cpp).
#include "tawpipe/search/bound.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "support/clusters.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/topology/changed_links.hpp"
#include "tawpipe/topology/clusters.hpp"
#include "tawpipe/topology/fabric_graph.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

Problem problem(Cluster cluster, Cost cost) {
  Problem made{.cluster = std::move(cluster), .model = models::named("llama-2-7b"), .sequence = 4096, .global_batch = 64};
  made.cost = std::move(cost);
  return made;
}

/// Two nodes of eight devices.
Cluster two_nodes(BytesPerSecond between, const char* device = "H100-80G") {
  return ClusterBuilder{}
      .device(device_named(device))
      .devices_of_nodes({8, 8})
      .intra_node({.bandwidth = 300_GBps, .latency = 3_us})
      .inter_node({.bandwidth = between, .latency = 9_us})
      .build();
}

}  // namespace

TEST_CASE("by a roofline it is operations over all devices' rates, traffic over their bandwidths, and the update") {
  const Problem one = problem(support::cluster(4), RooflineCost{.utilization = 0.5, .memory_utilization = 0.8});
  const double states = 16.0 * static_cast<double>(one.model->parameters());
  const Workload work{*one.model, Batch{4096, 1, 1}, Recompute::none};
  const StageWork whole = work.stage(0, one.model->layers, false, true);
  const double flops = 64 * (whole.forward + whole.recompute + whole.backward_input + whole.backward_weight).value();
  const double traffic = 64 * static_cast<double>((whole.forward_traffic + whole.backward_traffic).value());
  const double expected = (flops / 0.5e12 + (traffic + 2 * states) / 0.8e9) / 4;
  const TrainingBound bound = training_bound(one);
  CHECK(bound.compute_s == doctest::Approx(expected).epsilon(1e-9));
  CHECK(bound.limit() == "computation");
  CHECK_FALSE(bound.can_hold);  // 4 x 0.85 GB
}

TEST_CASE("a product takes at least what its weights' widths leave over") {
  const DeviceSpec device = device_named("A100-80G");
  const DeviceCurves curves = KernelCost{}.curves(device);
  using Dimension = Kernel::Dimension;
  Kernel kernel{
      .kind = Kernel::Kind::product, .by_tensor = Dimension::n, .by_context = Dimension::m, .m = 4096, .n = 1000, .k = 512};
  const auto least = [&](int ranks) { return detail::min_product_seconds(kernel, curves, device, ranks); };
  CHECK(least(4) <= least(1));
  for (const std::int64_t tokens : {1, 100, 4096, 100000, 5000000}) {
    for (const int tensor : {1, 2, 3, 4}) {
      Kernel part = kernel;
      part.m = tokens;
      part = part.split(tensor, 1);
      CHECK(tensor * product_seconds(part, curves, device) >= least(4) * static_cast<double>(tokens) / 4096);
    }
  }
  Kernel endless = kernel;
  endless.m = endless.n = endless.k = std::int64_t{1} << 20;
  CHECK(least(1) > product_seconds(endless, curves, device) / endless.flops() * kernel.flops());
  kernel = {.kind = Kernel::Kind::product,
            .pass = KernelPass::backward_weight,
            .by_tensor = Dimension::m,
            .by_context = Dimension::k,
            .m = 1024,
            .n = 1024,
            .k = 4096};
  for (const std::int64_t tokens : {64, 4096, 1000000}) {
    Kernel part = kernel;
    part.k = tokens;
    CHECK(product_seconds(part, curves, device) >= least(1) * static_cast<double>(tokens) / 4096);
  }
}

TEST_CASE("products that do not add gradients have a bound of their own") {
  Problem one = problem(two_nodes(50_GBps, "A100-80G"), KernelCost{});
  const double added = training_bound(one).compute_s;
  one.model->code = LayerCode::megatron_unfused;
  CHECK(training_bound(one).compute_s < added);
}

TEST_CASE("faster devices take more of the work") {
  const Cluster fast = two_nodes(50_GBps);
  const Cluster slow = two_nodes(50_GBps, "A100-80G");
  const Cluster both{"both", {fast.kinds()[0], slow.kinds()[0]}, {0, 1}};
  const double a = training_bound(problem(fast, KernelCost{})).compute_s;
  const double b = training_bound(problem(slow, KernelCost{})).compute_s;
  CHECK(training_bound(problem(both, KernelCost{})).compute_s == doctest::Approx(2 / (1 / a + 1 / b)));
  // Two kinds may have one name.
  const RooflineCost roofline;
  const Cluster half =
      with_changed_devices(fast, [](DeviceSpec& device) { device.peak = FlopsPerSecond{device.peak.value() / 2}; });
  const Cluster named{"named", {half.kinds()[0], fast.kinds()[0]}, {0, 1}};
  const Cluster turned{"turned", {fast.kinds()[0], half.kinds()[0]}, {0, 1}};
  const TrainingBound bound = training_bound(problem(named, roofline));
  CHECK(bound.devices.size() == 2);
  CHECK(bound.compute_s < training_bound(problem(half, roofline)).compute_s);
  CHECK(bound.compute_s == doctest::Approx(training_bound(problem(turned, roofline)).compute_s));
}

TEST_CASE("a cut lets the gradients of all layers through, or the activations of all tokens that are shared") {
  // Two nodes joined by 1 MB/s: both sides' work needs the cut; one side by itself takes twice as
  // long.
  const TrainingBound wide = training_bound(problem(two_nodes(50_GBps), KernelCost{}));
  CHECK(wide.limit() == "computation");
  const TrainingBound narrow = training_bound(problem(two_nodes(BytesPerSecond{1e6}), KernelCost{}));
  const BoundCut& cut = narrow.cuts.front();
  CHECK(narrow.limit() == "node 0");
  CHECK(cut.seconds <= cut.part_s * (1 + 1e-9));  // a single node needs no cut
  CHECK(cut.seconds > 1.9 * wide.compute_s);
  // In between, what crosses takes all of the time: the lesser of parameters and shared
  // activations.
  const TrainingBound middle = training_bound(problem(two_nodes(BytesPerSecond{4e9}), KernelCost{}));
  const BoundCut& half = middle.cuts.front();
  CHECK(half.parameters == 4.0 * 32 * static_cast<double>(models::named("llama-2-7b").layer_parameters()));
  CHECK(half.activations == 64.0 * 4096 * 4096 * 2 * 2);
  const double x = 1 - half.seconds / half.rest_s;
  const double bytes = std::min(half.parameters, x * half.token_share * half.activations);
  if (half.seconds > middle.compute_s * (1 + 1e-6))
    CHECK(half.seconds == doctest::Approx(bytes / half.bytes_per_s).epsilon(1e-6));
}

TEST_CASE("nodes behind one switch share its uplinks") {
  // 8 nodes of 4, 4 a leaf switch, 2 spines: each node's adapters have 50 GB/s a direction, a leaf
  // its two uplinks.
  const auto joined = [](BytesPerSecond uplink) {
    const FabricGraph graph = leaf_spine(8, 4, 2, {.bandwidth = uplink, .latency = 1_us});
    const Cluster nodes = ClusterBuilder{}
                              .device(device_named("A100-80G"))
                              .devices_of_nodes(std::vector<std::int32_t>(8, 4))
                              .intra_node({.bandwidth = 300_GBps, .latency = 3_us})
                              .inter_node({.bandwidth = 50_GBps, .latency = 9_us})
                              .build();
    return Cluster{"leaves", nodes.kinds(), std::vector<std::int32_t>(8, 0), make_fabric(graph)};
  };
  const TrainingBound wide = training_bound(problem(joined(400_GBps), KernelCost{}));
  const TrainingBound narrow = training_bound(problem(joined(BytesPerSecond{1e8}), KernelCost{}));
  CHECK(wide.limit() == "computation");
  CHECK(narrow.limit() == "nodes 0 to 3");
  CHECK(narrow.seconds > wide.seconds);
  const auto leaf = [](const TrainingBound& bound) {
    return *std::find_if(bound.cuts.begin(), bound.cuts.end(), [](const BoundCut& cut) { return cut.side == "nodes 0 to 3"; });
  };
  CHECK(leaf(narrow).bytes_per_s == 2 * 2 * 1e8);
  CHECK(leaf(narrow).part_s == doctest::Approx(leaf(narrow).rest_s));
  // Wide uplinks: no more than the nodes' adapters.
  CHECK(leaf(wide).bytes_per_s == doctest::Approx(2 * 4 * 50e9));
}

TEST_CASE("where nodes differ, those with little bandwidth are one side of a cut") {
  const Cluster mixed{"mixed", {two_nodes(50_GBps).kinds()[0], two_nodes(1_GBps).kinds()[0]}, {0, 1, 0, 1, 0, 0}};
  const TrainingBound bound = training_bound(problem(mixed, KernelCost{}));
  const auto cut =
      std::find_if(bound.cuts.begin(), bound.cuts.end(), [](const BoundCut& one) { return one.side == "2 nodes with node 1"; });
  REQUIRE(cut != bound.cuts.end());
  CHECK(cut->bytes_per_s == doctest::Approx(2 * 2 * 1e9));
  CHECK(cut->part_s == doctest::Approx(2 * cut->rest_s));
}

TEST_CASE("a bound needs a model and costs that know any layout") {
  Problem wrong =
      problem(support::cluster(2), FixedCost{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 0_s});
  CHECK_THROWS_WITH_AS(training_bound(wrong), doctest::Contains("kernels or roofline"), InputError);
  wrong.model.reset();
  CHECK_THROWS_WITH_AS(training_bound(wrong), doctest::Contains("needs a model"), InputError);
}
