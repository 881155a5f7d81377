// The layout that fits where none that was asked for does.
#include "tawpipe/search/what_fits.hpp"

#include <doctest/doctest.h>

#include "schedules.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/topology/clusters.hpp"

using namespace tawpipe;

TEST_CASE("Llama-3 70B at 32,768 tokens on four nodes of eight H100 fits with tensor parallelism, not without") {
  Problem problem{.cluster = cluster_named("dgx-h100*4"),
                  .model = models::named("llama-3-70b"),
                  .sequence = 32768,
                  .global_batch = 32,
                  .microbatch_sizes = {1},
                  .schedules = {{"1f1b"}, {"fsdp"}},
                  .usable_memory = usable_memory_share};
  for (const ScheduleChoice& choice : problem.schedules) CHECK(!Predictor(problem, shipped()).best(choice).fits());
  const std::optional<FittingLayout> fitting = find_fitting_layout(problem, shipped());
  REQUIRE(fitting.has_value());
  CHECK(fitting->problem.mesh.tensor > 1);
  CHECK(fitting->problem.mesh.tensor <= 8);
  CHECK(fitting->summary.out_of_memory.empty());
  problem.mesh = fitting->problem.mesh;
  CHECK(predict(problem, shipped()).fits());
  problem.model.reset();
  CHECK(!find_fitting_layout(problem, shipped()).has_value());
}

TEST_CASE("on a given mesh no more is changed than is needed") {
  // 16 microbatches of 16 layers: all that they save is too much, their layers' inputs are not.
  Problem problem{.cluster = cluster_named("dgx-h100*2"),
                  .model = models::named("llama-3-8b"),
                  .sequence = 8192,
                  .global_batch = 64,
                  .microbatch_sizes = {4},
                  .schedules = {{"gpipe"}},
                  .recompute = Recompute::none,
                  .mesh = {.tensor = 8},
                  .usable_memory = usable_memory_share};
  CHECK(!predict(problem, shipped()).fits());
  const std::optional<FittingLayout> fitting = find_fitting_layout(problem, shipped());
  REQUIRE(fitting.has_value());
  CHECK(fitting->problem.mesh == problem.mesh);
  CHECK(fitting->choice.schedule == "gpipe");
  CHECK(fitting->problem.recompute == Recompute::full);
  CHECK(fitting->problem.sharding == problem.sharding);
  CHECK(fitting->summary.microbatch_size == 4);
  CHECK(fitting->problem.model->loss_chunk == 0);
  CHECK(fitting->all_run);
  problem.recompute = fitting->problem.recompute;
  CHECK(predict(problem, shipped()).fits());
}

TEST_CASE("states are shared out further where data parallelism is given") {
  // 70B in one stage: 141 GB of weights alone.
  Problem problem{.cluster = cluster_named("dgx-h100*8"),
                  .model = models::named("llama-3-70b"),
                  .sequence = 4096,
                  .global_batch = 64,
                  .microbatch_sizes = {1},
                  .schedules = {{"ddp"}},
                  .mesh = {.data = 64},
                  .usable_memory = usable_memory_share};
  CHECK(!predict(problem, shipped()).fits());
  const std::optional<FittingLayout> fitting = find_fitting_layout(problem, shipped());
  REQUIRE(fitting.has_value());
  CHECK(fitting->problem.mesh == problem.mesh);
  CHECK(fitting->problem.sharding == StateSharding::parameters);
  CHECK(fitting->problem.recompute == problem.recompute);
  problem.sharding = fitting->problem.sharding;
  problem.model->loss_chunk = fitting->problem.model->loss_chunk;
  CHECK(predict(problem, shipped()).fits());
}

TEST_CASE("what fits on no layout is said to be none") {
  const Problem problem{.cluster = cluster_named("dgx-h100*1"),
                        .model = models::named("llama-3-405b"),
                        .sequence = 8192,
                        .global_batch = 8,
                        .microbatch_sizes = {1},
                        .schedules = {{"1f1b"}},
                        .usable_memory = usable_memory_share};
  CHECK(!find_fitting_layout(problem, shipped()).has_value());
}

TEST_CASE("Meta's layout of 405B on 16,384 H100 fits in 80 GiB, and nothing is computed again") {
  // Grattafiori et al. 2024, arXiv:2407.21783, table 4: tensor 8, pipeline 16; its SwiGLU is fused.
  Transformer model = models::named("llama-3-405b");
  model.fused_swiglu = true;
  Problem problem{.cluster = cluster_named("dgx-h100*2048"),
                  .model = model,
                  .sequence = 8192,
                  .global_batch = 2048,
                  .microbatch_sizes = {1},
                  .schedules = {{"1f1b"}},
                  .recompute = Recompute::none};
  problem.parameter_bytes.gradient = 4;
  for (const int context : {2, 1}) {
    problem.mesh = {.tensor = 8, .context = context, .data = 128 / context};
    if (context == 1) problem.usable_memory = 1;  // 79.5 GiB
    const Prediction prediction = predict(problem, shipped());
    CHECK(prediction.fits());
    CHECK(prediction.summary.folding.factor == 8 * 128);
    // Weights of a stage of 8 layers and the head, cut over 8 ranks, 2 bytes each; states shared
    // by 128.
    const std::int64_t first = (model.layers / 16 * model.layer_parameters() + model.embedding_parameters()) / 8;
    const PeakMemory& peak = prediction.summary.peak_memory[0];
    CHECK(static_cast<double>(peak.by_kind[0].value()) == doctest::Approx(2.0 * static_cast<double>(first)).epsilon(0.01));
    CHECK(static_cast<double>(peak.by_kind[1].value()) == doctest::Approx(4.0 * static_cast<double>(first)).epsilon(0.01));
    CHECK(static_cast<double>(peak.by_kind[2].value()) == doctest::Approx(12.0 / 128 * static_cast<double>(first)).epsilon(0.01));
  }
}
