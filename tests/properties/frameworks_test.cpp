// Properties of frameworks/: what is written of a plan reads back as the same plan, in every
// framework, for many plans.
// Not: what single settings mean (unit/frameworks).
#include "tawpipe/frameworks/frameworks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "support/random.hpp"

using namespace tawpipe;

namespace framework_properties {

namespace {

/// The problem of a job, as far as it decides what is simulated: the mesh's order where it matters,
/// switches where they act.
std::string decisive(const FrameworkJob& job) {
  std::string text = concat("t", job.mesh.tensor, " c", job.mesh.context, " e", job.mesh.expert, job.mesh.whole_experts, " p",
                            job.mesh.pipeline, " d", job.mesh.data, " ");
  for (const MeshAxis axis : detail::places_of(job.mesh)) text += concat(name(axis), "-");
  text += concat(" ", job.choice.schedule);
  for (const auto& [key, value] : job.choice.options) text += concat(" ", key, "=", value);
  text += concat(" m", job.microbatch_size, " b", job.global_batch, " ", name(job.recompute.value_or(Recompute::none)),
                 job.recompute_layers, name(job.recompute_parts), " g", job.gradient_bytes, " s", optimizer_of(job)->master, " ",
                 optimizer_of(job)->moment, " o", name(job.offload), " g", name(job.graphs));
  if (job.dtype) text += concat(" ", name(*job.dtype));
  if (job.mesh.whole_experts && job.mesh.shared() > 1) text += concat(" ", name(job.expert_overlap));
  if (job.mesh.tensor > 1) text += concat(" sp", job.sequence_parallel, " to", job.tensor_overlap);
  if (job.mesh.context > 1) text += concat(" ", name(job.context_exchange), job.context_inner);
  const int copies = job.mesh.data * job.mesh.context * job.mesh.expert;
  if (copies > 1 && !job.splits_batch()) {
    text += concat(" og", job.overlap_gradients, " op", job.overlap_gathers && job.shards(), " b", job.bucket);
  }
  if (copies > 1 && (!job.splits_batch() || job.choice.schedule == "ddp")) {
    text += concat(" sh", name(job.sharding), " ", name(job.reshard));
  }
  if (job.mesh.pipeline > 1 && !job.splits_batch())
    text += concat(" e", job.edges_count_as_layers, " ", name(job.stage_cut), job.stage_cut.embedding, job.stage_cut.head);
  return text;
}

Transformer draw_model(support::Random& random) {
  Transformer model = models::named(support::one_of<std::string>(random, {"llama-3-8b", "llama-3-70b", "llama-2-7b"}));
  model.dtype = support::one_of<Dtype>(random, {Dtype::bf16, Dtype::bf16, Dtype::f16, Dtype::f32});
  if (model.dtype == Dtype::f32) model.products = ProductFormat::bits32;
  if (random.between(0, 3) == 0) {
    model.layers = 12 * random.between(1, 4) - 2;
    model.edges_count_as_layers = true;
  }
  if (random.between(0, 3) == 0) model.tied = true;
  if (random.between(0, 5) == 0) model.gated = false;
  model.fused_swiglu = model.gated && random.between(0, 1) == 0;
  if (random.between(0, 5) == 0) model.head_dim = 64;
  if (random.between(0, 5) == 0) model.fused_attention = false;
  if (random.between(0, 5) == 0) model.recompute_layers = 2;
  if (random.between(0, 3) == 0) model.loss_in_float32 = false;
  if (random.between(0, 3) == 0) model.recompute_parts = RecomputeParts::of_bits(random.between(0, 15));
  if (model.dtype == Dtype::bf16 && random.between(0, 2) == 0) {
    model.products = support::one_of<ProductFormat>(
        random,
        {ProductFormat::fp8, ProductFormat::fp8_rows, ProductFormat::fp8_block, ProductFormat::mxfp8, ProductFormat::nvfp4});
    model.narrow_gathers = model.products == ProductFormat::fp8 && random.between(0, 1) == 0;
  }
  return model;
}

/// Attention by short vectors, with sizes that are Megatron-LM's defaults or others.
void make_latent(support::Random& random, Transformer& model) {
  model.kv_heads = model.heads;
  model.query_rank = random.between(0, 2) * 768;
  model.key_value_rank = 32 << random.between(0, 4);
  model.rope_width = 32 << random.between(0, 1);
  model.head_dim = model.rope_width + 64 * random.between(1, 2);
  model.value_size = 64 * random.between(1, 2);
}

PlanRequest draw_request(support::Random& random, Framework framework) {
  const int nodes = 1 << random.between(0, 3);
  PlanRequest request{.problem = {.cluster = support::cluster(8 * nodes, nodes), .model = draw_model(random)}};
  Problem& problem = request.problem;
  if (framework == Framework::megatron && random.between(0, 3) == 0) problem.model->code = LayerCode::megatron_unfused;
  if (framework == Framework::megatron && problem.model->fused_attention && random.between(0, 2) == 0) {
    problem.model->experts = 16 << random.between(0, 3);
    problem.model->experts_per_token = random.between(1, 4);
    problem.model->intermediate = 1024;
    problem.model->shared_width = random.between(0, 1) * 2048;
    problem.model->dense_layers = random.between(0, 1) * random.between(1, 3);
    if (problem.model->dense_layers > 0) problem.model->dense_width = 4096;
  }
  if (framework == Framework::megatron && problem.model->fused_attention && random.between(0, 3) == 0)
    make_latent(random, *problem.model);
  problem.sequence = 2048 * (1 << random.between(0, 3));
  problem.global_batch = 32 * random.between(1, 8);
  if (random.between(0, 1) == 0) problem = with_best_switches(framework, problem);
  const auto coin = [&](bool& flag) {
    if (random.between(0, 4) == 0) flag = !flag;
  };
  coin(problem.sequence_parallel);
  if (random.between(0, 4) == 0) problem.sharding = static_cast<StateSharding>(random.between(0, 3));
  if (framework == Framework::torchtitan) problem.reshard = static_cast<Reshard>(random.between(0, 2));
  coin(problem.overlap_gradients);
  coin(problem.overlap_gathers);
  if (framework == Framework::megatron && random.between(0, 4) == 0) problem.bucket = 10'000'000;
  coin(problem.tensor_overlap);
  coin(problem.offload.optimizer);
  if (random.between(0, 4) == 0) set_graphs(problem.cost, static_cast<CudaGraphs>(random.between(0, cuda_graph_scopes - 1)));
  if (random.between(0, 7) == 0) problem.model->loss_chunk = 8192;
  if (random.between(0, 7) == 0) problem.stage_cut.balanced = true;
  problem.context_exchange = static_cast<ContextExchange>(random.between(0, context_exchanges - 1));
  if (random.between(0, 2) == 0) problem.parameter_bytes.gradient = 4;
  if (framework == Framework::megatron && random.between(0, 3) == 0)
    problem.parameter_bytes.optimizer = support::one_of<std::int64_t>(random, {6, 8, 10});
  if (framework != Framework::megatron && random.between(0, 5) == 0) {
    problem.master_copies = framework != Framework::torchtitan;
    problem.parameter_bytes.optimizer = problem.master_copies ? support::one_of<std::int64_t>(random, {6, 10}) : 4;
    problem.parameter_bytes.gradient = 2;
  }
  return for_framework(framework, request);
}

/// Stages of unequal numbers of layers, some without any; or one of embedding and loss counted.
void draw_cut(support::Random& random, FrameworkJob& job) {
  const int stages = job.mesh.pipeline * job.chunks();
  job.edges_count_as_layers = false;
  if (random.between(0, 3) == 0) {
    job.model->layers += job.mesh.pipeline * job.chunks() - 1;
    job.stage_cut = {.embedding = 1};
    return;
  }
  job.stage_cut = {.layers = std::vector<std::int32_t>(static_cast<std::size_t>(stages), 0)};
  for (int layer = 0; layer < job.model->layers; ++layer)
    ++job.stage_cut.layers[static_cast<std::size_t>(random.between(0, stages - 1))];
}

/// What a search tries around a layout.
PlanLayout draw_around(support::Random& random, PlanLayout layout) {
  if (layout.recompute == Recompute::full && random.between(0, 2) == 0) layout.recompute_layers = random.between(1, 4);
  if (random.between(0, 3) == 0) layout.sharding = static_cast<StateSharding>(random.between(0, 3));
  if (random.between(0, 5) == 0) layout.exchange = static_cast<ContextExchange>(random.between(0, 2));
  if (random.between(0, 5) == 0) layout.offload = Offload{.optimizer = true};
  if (random.between(0, 9) == 0) layout.offload = Offload{.activations = true, .layers = 2};
  if (random.between(0, 9) == 0) layout.balanced_stages = true;
  if (random.between(0, 9) == 0) layout.loss_chunk = 8192;
  return layout;
}

}  // namespace

TEST_CASE("the settings of a plan parse back into the same plan") {
  for (const Framework framework : {Framework::megatron, Framework::torchtitan, Framework::deepspeed}) {
    CAPTURE(name(framework));
    support::Random random{17};
    int written = 0;
    int mixtures = 0;
    int shared_out = 0;
    int dense_first = 0;
    int latent = 0;
    int balanced = 0;
    std::vector<std::string> seen;
    for (int draw = 0; draw < support::draws(60); ++draw) {
      const PlanRequest request = draw_request(random, framework);
      const int devices = request.problem.cluster.ranks();
      const std::vector<PlanLayout> layouts = planned_layouts(request);
      for (int i = 0; i < 800 && !layouts.empty(); ++i) {
        const PlanLayout layout = draw_around(random, support::one_of(random, layouts));
        const ScheduleChoice& choice = support::one_of(random, request.schedules);
        FrameworkJob job = job_of(request.problem, layout, choice);
        if (job.stage_cut.balanced) job.stage_cut = {.balanced = true, .embedding = 0.1, .head = 1.7};  // as written_job()
        if (framework == Framework::megatron && random.between(0, 3) == 0) draw_cut(random, job);
        if (!cannot_run(framework, job).empty()) continue;
        CHECK(job.model->loss_chunk == 0);
        if (framework != Framework::megatron) CHECK((!job.stage_cut.balanced || job.mesh.pipeline == 1 || job.splits_batch()));
        CHECK(job.sharding == layout.sharding.value_or(request.problem.sharding));
        CHECK(job.offload == layout.offload.value_or(request.problem.offload));
        const std::string text = write_job(framework, job, {"a comment", "another: 'x' \"y\""});
        CAPTURE(text);
        FrameworkJob back = read_job(framework, text, "written", devices, {.layers = request.problem.model->layers});
        if (!back.recompute) back.recompute = job.recompute;  // DeepSpeed's file does not say it
        if (framework == Framework::torchtitan && job.dtype == Dtype::f16) job.dtype = Dtype::bf16;  // as large and as fast
        if (framework == Framework::deepspeed) back.edges_count_as_layers = job.edges_count_as_layers;
        if (!back.stage_cut.layers.empty()) {  // as any stages are written that flags of equal ones do not say
          const StageCut cut = std::exchange(job.stage_cut, {});
          job.stage_cut.layers = layers_of(cut, job.model->layers, job.mesh.pipeline * job.chunks(),
                                           std::exchange(job.edges_count_as_layers, false));
          balanced += cut.balanced ? 1 : 0;
        }
        REQUIRE(decisive(back) == decisive(job));
        CHECK(back.notes.empty());
        if (framework != Framework::deepspeed) CHECK(back.sequence == job.sequence);
        if (framework == Framework::megatron) {
          REQUIRE(back.model);
          CHECK(detail::same_sizes(*back.model, *job.model));
          mixtures += job.has_experts() ? 1 : 0;
          shared_out += job.mesh.expert > 1 ? 1 : 0;
          dense_first += job.model->dense_layers > 0 ? 1 : 0;
          latent += job.model->is_latent() ? 1 : 0;
          CHECK(back.model->dtype == job.model->dtype);
          CHECK(back.model->products == job.model->products);
          CHECK(back.model->loss_in_float32 == job.model->loss_in_float32);
          CHECK(back.model->narrow_gathers == job.model->narrow_gathers);
          CHECK(back.model->fused_swiglu == job.model->fused_swiglu);
          CHECK(back.model->fused_attention == job.model->fused_attention);
          CHECK(back.model->code == job.model->code);
        }
        ++written;
        seen.push_back(choice.schedule);
      }
    }
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    CHECK(written > 200);
    if (framework == Framework::megatron) {
      CHECK(mixtures > 50);
      CHECK(shared_out > 10);
      CHECK(dense_first > 10);
      CHECK(latent > 50);
      CHECK(balanced > 20);
    }
    CHECK(seen.size() >= (framework == Framework::torchtitan ? 7u : 3u));
  }
}

TEST_CASE("what is read is a plan that the framework can run, and is written as it was") {
  support::Random random{18};
  for (int draw = 0; draw < support::draws(60); ++draw) {
    const PlanRequest request = draw_request(random, Framework::megatron);
    const std::vector<PlanLayout> layouts = planned_layouts(request);
    if (layouts.empty()) continue;
    const FrameworkJob job =
        job_of(request.problem, support::one_of(random, layouts), support::one_of(random, request.schedules));
    if (!cannot_run(Framework::megatron, job).empty()) continue;
    const std::string once = write_job(Framework::megatron, job);
    const FrameworkJob back = read_job(Framework::megatron, once, "written", request.problem.cluster.ranks());
    CAPTURE(once);
    REQUIRE(cannot_run(Framework::megatron, back).empty());
    CHECK(write_job(Framework::megatron, back) == once);
  }
}

}  // namespace framework_properties
