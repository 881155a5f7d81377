// Tests of analysis/gpu_profile.hpp: known times come out of profiles made of them.
// Not: a profiler's files (unit/report/kineto_trace_test.cpp).
#include "tawpipe/analysis/gpu_profile.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "support/clusters.hpp"

using doctest::Approx;
using tawpipe::calibrate;
using tawpipe::GpuProfile;
using tawpipe::ModelPart;
using tawpipe::Op;
using tawpipe::ProfileCalibration;
using tawpipe::Rank;

namespace {

std::vector<Rank> ranks(int begin, int end) {
  std::vector<Rank> all;
  for (int r = begin; r < end; ++r) all.push_back(Rank{r});
  return all;
}

ProfileCalibration of(const GpuProfile& profile) { return calibrate({&profile, 1}, support::cluster(4, 2)); }

}  // namespace

TEST_CASE("each part and pass has the median of its times") {
  GpuProfile profile;
  for (const double late : {0.0, 0.0, 5.0}) {  // one in three came late
    profile.computations.push_back({Op::forward, ModelPart::layer, 0.010 + late});
    profile.computations.push_back({Op::backward, ModelPart::layer, 0.030 + late});
  }
  profile.computations.push_back({Op::forward, ModelPart::embedding, 0.001});
  profile.computations.push_back({Op::forward, ModelPart::head, 0.004});
  profile.computations.push_back({Op::backward, ModelPart::head, 0.008});
  profile.computations.push_back({Op::update, ModelPart::layer, 0.5});
  const auto& cost = of(profile).calibration.cost;
  CHECK(cost.forward->layer == Approx(0.010));
  CHECK(cost.forward->embedding == Approx(0.001));
  CHECK(cost.forward->head == Approx(0.004));
  CHECK(cost.backward->layer == Approx(0.030));
  CHECK(cost.backward->embedding == 0);
  CHECK(cost.backward->head == Approx(0.008));
  CHECK(cost.update->once == Approx(0.5));
  CHECK_FALSE(cost.intra_node);
  CHECK_FALSE(cost.work);
  CHECK(of(profile).calibration.classes.size() == 3);
}

TEST_CASE("latency and bandwidth come out of collectives of two sizes, however long others waited") {
  // Inside a node 2 us a step and 100 GB/s, between nodes 20 us and 10 GB/s.
  GpuProfile profile;
  for (const double bytes : {1e6, 1e9}) {
    const auto whole = static_cast<std::int64_t>(bytes);
    for (const double wait : {0.0, 0.3, 2.0}) {
      // All-gather of 2 in a node: 1 step, half of the buffer over each edge.
      profile.collectives.push_back({Op::all_gather, ranks(0, 2), whole, 2e-6 + 0.5 * bytes / 100e9 + wait});
      // All-reduce of 4 in 2 nodes: 6 steps, half of its edges between nodes: 3 of 2 us and 3 of 20
      // us; 1.5 buffers an edge.
      profile.collectives.push_back({Op::all_reduce, ranks(0, 4), whole, 3 * 2e-6 + 3 * 20e-6 + 1.5 * bytes / 10e9 + wait});
    }
    // Overlapping another it took longer, and less: not used if some ran by themselves.
    profile.collectives.push_back({Op::all_gather, ranks(0, 2), whole, 1e-9, false});
  }
  const auto found = of(profile).calibration;
  CHECK(found.cost.intra_node->latency == Approx(2e-6).epsilon(1e-3));
  CHECK(found.cost.intra_node->byte == Approx(1 / 100e9).epsilon(1e-3));
  CHECK(found.cost.inter_node->latency == Approx(20e-6).epsilon(1e-3));
  CHECK(found.cost.inter_node->byte == Approx(1 / 10e9).epsilon(1e-3));
  REQUIRE(found.classes.size() == 2);
  CHECK(found.classes[0].tasks == 8);
  CHECK(found.classes[0].used == 2);
  CHECK(found.classes[1].tasks == 6);
}

TEST_CASE("matrix products reach a share of the peak") {
  GpuProfile profile;  // devices of 1 TFLOP/s
  profile.products = 2;
  profile.product_flops = 1e12;
  profile.product_seconds = 2.5;
  CHECK(of(profile).product_rate == Approx(4e11));
  CHECK(of(profile).product_share == Approx(0.4));
  CHECK(of(GpuProfile{}).product_rate == 0);
}

TEST_CASE("profiles of another cluster are refused") {
  GpuProfile profile;
  profile.collectives.push_back({Op::all_reduce, ranks(0, 8), 8, 1});
  CHECK_THROWS_WITH_AS(of(profile),
                       "the profile has rank 4, and cluster 'cluster' has 4 devices; give the cluster that it was taken on",
                       tawpipe::InputError);
  CHECK_THROWS_WITH_AS(calibrate(std::vector<GpuProfile>{}, support::cluster(4)), "there is no profile to calibrate from",
                       tawpipe::InputError);
}
