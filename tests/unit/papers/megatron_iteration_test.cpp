// Tests of sim/papers/megatron_iteration.hpp.
// Not: how well it holds against measurements that are not in the repository (docs/accuracy.md),
// but if available.
#include "papers/megatron_iteration.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "tawpipe/core/csv.hpp"

using tawpipe::megatron_iteration;
using tawpipe::MegatronCosts;
using tawpipe::MegatronRun;

TEST_CASE("the closed form of 1F1B, by hand") {
  // No memory traffic, no launch floor, no overhead, 1 FLOP/s of peak at full efficiency, no
  // vocabulary worth counting: F = 24 b S H^2 + 4 b S^2 H = 24 + 4 = 28 operations a layer, forward
  // and backward 84 s; 2 layers on 2 stages, 3 microbatches.
  MegatronCosts costs{.peak = 1,
                      .efficiency = 1,
                      .half_flops = 0,
                      .scores_traffic = 0,
                      .launch = 0,
                      .latency = 0,
                      .overhead = 0,
                      .vocabulary = 0};
  costs.inside = 1e30;
  const MegatronRun run{.gpus = 2,
                        .global_batch = 3,
                        .microbatch = 1,
                        .hidden = 1,
                        .heads = 1,
                        .layers = 2,
                        .sequence = 1,
                        .tensor = 1,
                        .data = 1,
                        .pipeline = 2};
  CHECK(megatron_iteration(run, costs) == doctest::Approx((3 + 2 - 1) * 84.0));
  costs.launch = 100;  // the host is slower than the device
  CHECK(megatron_iteration(run, costs) == doctest::Approx((3 + 2 - 1) * 100.0));
}

TEST_CASE("a run that cannot be is refused") {
  CHECK_THROWS_AS(megatron_iteration({.gpus = 8, .global_batch = 8, .tensor = 2, .data = 2, .pipeline = 1}), tawpipe::InputError);
  CHECK_THROWS_AS(megatron_iteration({.gpus = 2, .global_batch = 3, .data = 2}), tawpipe::InputError);
  CHECK_THROWS_AS(megatron_iteration({.gpus = 1, .hidden = 0}), tawpipe::InputError);
}

TEST_CASE("published iterations are met within 8 % on one node and 12 % on several") {
  for (const auto& [file, bound] : {std::pair{"single", 0.08}, std::pair{"multi", 0.12}}) {
    std::ifstream in{std::string{TAWPIPE_SHARED} + "/reference/measured/vtrain_" + file + "_node.csv"};
    if (!in) {
      MESSAGE("not at hand: vtrain_", file, "_node.csv");
      continue;
    }
    std::ostringstream text;
    text << in.rdbuf();
    const tawpipe::CsvTable table{file, text.str(), "iteration time (ms)"};
    double sum = 0;
    for (std::size_t r = 0; r < table.rows(); ++r) {
      const auto whole = [&](const char* column) { return static_cast<int>(table.number(r, table.column(column))); };
      const MegatronRun run{.gpus = whole("# GPUs"),
                            .global_batch = whole("global batch"),
                            .microbatch = whole("micro batch"),
                            .hidden = whole("hidden size"),
                            .heads = whole("attention heads"),
                            .layers = whole("# layers"),
                            .sequence = whole("sequence length"),
                            .tensor = whole("tensor parallelism"),
                            .data = whole("data parallelism"),
                            .pipeline = whole("pipeline parallelism")};
      sum += std::abs(1e3 * megatron_iteration(run) / table.number(r, table.column("iteration time (ms)")) - 1);
    }
    CAPTURE(file);
    CHECK(sum / static_cast<double>(table.rows()) < bound);
  }
}
