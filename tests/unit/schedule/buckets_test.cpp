// Tests of schedule/buckets.hpp: how many layers share a bucket, and whose gradients have none.
// Not: their messages (compose_test.cpp).
#include "tawpipe/schedule/buckets.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "schedules.hpp"
#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/verify/validate.hpp"

namespace {

using namespace tawpipe;

StageWork stage(std::int32_t first, std::int32_t layers, bool last_edge = false) {
  StageWork work;
  work.last_edge = last_edge;
  work.first_layer = first;
  work.layers = layers;
  return work;
}

TEST_CASE("a bucket has as many layers as it takes to be full, counted by the stage's own") {
  const ParameterBlocks equal{{.first_edge = 7, .layers = 6, .layer = {10, {}}, .last_edge = 5}};
  CHECK(buckets_of(equal, stage(0, 6), 20).size() == 3);
  CHECK(buckets_of(equal, stage(0, 6), 21).size() == 2);
  CHECK(buckets_of(equal, stage(4, 2), 10).front().ranges == std::vector{equal.layers(5, 1)});
  const ParameterBlocks mixed{
      {.first_edge = 7, .layers = 6, .layer = {100, {}}, .last_edge = 5, .others = {{10, {}}}, .pattern = {1, 1, 0, 0, 0, 0}}};
  CHECK(buckets_of(mixed, stage(2, 4), 100).size() == 4);
  CHECK(buckets_of(mixed, stage(0, 6), 100).size() == 6);
  CHECK(buckets_of(mixed, stage(0, 2), 20).size() == 1);
  const auto buckets = buckets_of(mixed, stage(0, 6), 200);
  REQUIRE(buckets.size() == 3);
  CHECK(buckets.back().layer == 0);
  CHECK(buckets.back().ranges == std::vector{mixed.layers(0, 2)});
  CHECK(buckets.front().ranges == std::vector{mixed.layers(4, 2)});
}

TEST_CASE("what follows the layers fills a bucket by itself, or goes with the last layers") {
  const ParameterBlocks blocks{{.first_edge = 7, .layers = 6, .layer = {10, {}}, .last_edge = 15}};
  const auto apart = buckets_of(blocks, stage(0, 6, true), 15);
  REQUIRE(apart.size() == 4);
  CHECK(apart.front().layer == 6);
  CHECK(apart.front().ranges == std::vector{blocks.last_edge()});
  CHECK(apart.front().edge_parameters == 15);
  const auto together = buckets_of(blocks, stage(0, 6, true), 16);
  REQUIRE(together.size() == 3);
  CHECK(together.front().layer == 4);
  CHECK(together.front().edge_parameters == 15);
}

TEST_CASE("where one of a stage's two ranks computes nothing, neither sums its gradient in buckets") {
  const Transformer model{.name = "m", .layers = 8, .hidden = 8, .heads = 4, .kv_heads = 2, .intermediate = 12, .vocab = 10};
  const auto work = [&](std::int64_t microbatches) {
    return Workload{model, {.sequence = 6, .microbatch_size = 1, .global_batch = microbatches}};
  };
  for (const char* name : {"chimera", "dualpipe"}) {
    for (const std::int64_t microbatches : {1, 8}) {
      CAPTURE(name);
      CAPTURE(microbatches);
      const Schedule logical = build_schedule(name, {.workload = work(microbatches), .nodes = DeviceGroups{{4}}, .options = {}});
      const Schedule composed =
          compose(logical, work(2 * microbatches), Mesh{.data = 2}.over(8), {.overlap_gradients = true, .bucket = 1});
      CHECK(composed.parts().buckets.empty() == (microbatches == 1));
      const Diagnostics found = validate(composed);
      CHECK_MESSAGE(found.errors() == 0, found.text());
    }
  }
}

}  // namespace
