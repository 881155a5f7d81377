// The work in a schedule's JSON of models whose layers are of several kinds.
// Not: tasks and layouts (schedule_json_test.cpp).
#include <doctest/doctest.h>

#include <string>

#include "tawpipe/core/error.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

namespace {

using namespace tawpipe;

TEST_CASE("first layers without experts, and latent attention, come back") {
  const Transformer model{.name = "m",
                          .layers = 5,
                          .hidden = 16,
                          .heads = 4,
                          .kv_heads = 4,
                          .intermediate = 24,
                          .vocab = 10,
                          .head_dim = 8,
                          .recompute_layers = 1,
                          .experts = 4,
                          .experts_per_token = 2,
                          .dense_layers = 2,
                          .dense_width = 40,
                          .key_value_rank = 8,
                          .rope_width = 2,
                          .value_size = 4};
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    const Workload workload{model, Batch{.sequence = 6, .microbatch_size = 2, .global_batch = 8}, recompute};
    ScheduleBuilder builder{"x", workload, 1, {"compute"}};
    builder.stages(workload.split(4));  // 1, 1, 1 and 2 layers
    const Schedule schedule = builder.build();
    const std::string text = schedule_json(schedule);
    const Schedule read = parse_schedule_json(text);
    CHECK(schedule_json(read) == text);
    const LayerStack& stack = read.workload().model();
    CHECK(stack.pattern == tawpipe::LayerPattern{1, 1, 0, 0, 0});
    CHECK(stack.blocks().count() == model.parameters());
    CHECK(stack.experts == workload.model().experts);
    CHECK(stack.has_kernels());
    for (std::size_t s = 0; s < 4; ++s) {
      CHECK(read.stages()[s].kinds == schedule.stages()[s].kinds);
      CHECK(read.stages()[s].recomputed == schedule.stages()[s].recomputed);
      CHECK(read.stages()[s].kernels.size() == schedule.stages()[s].kernels.size());
    }
    CHECK(read.stages()[0].layers_of(1) == 1);
    CHECK(read.stages()[3].layers_of(1) == 0);
    std::string wrong = text;
    const std::string key = R"("pattern":[[1,2],[0,3]])";
    wrong.replace(wrong.find(key), key.size(), R"("pattern":[[1,2],[0,2]])");
    CHECK_THROWS_WITH_AS(parse_schedule_json(wrong), doctest::Contains("its pattern has the kinds of 4 layers, and it has 5"),
                         InputError);
  }
}

}  // namespace
