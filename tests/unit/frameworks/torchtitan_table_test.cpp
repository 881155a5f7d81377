// Tests of frameworks/torchtitan_table.hpp: what is compiled, names of older releases, models.
// Not: what settings mean otherwise (frameworks_test.cpp).
#include "tawpipe/frameworks/torchtitan_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "support/text.hpp"
#include "tawpipe/frameworks/torchtitan.hpp"

using namespace tawpipe;
using support::has;

namespace torchtitan_table_test {

namespace {

FrameworkJob job(const std::string& text, bool strict = false) {
  return torchtitan_job(text, "job.toml", 16, {.layers = 32, .strict = strict});
}
std::string refusal(const std::string& text) {
  try {
    job(text, true);
    return {};
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("layers are compiled if the model is among the components") {
  const std::string on = "[compile]\nenable = true\n";
  CHECK(job(on).code == LayerCode::torchtitan);
  CHECK(job(on + "components = [\"model\"]\n").code == LayerCode::torchtitan);
  CHECK(job(on + "components = [\"loss\"]\n").code == LayerCode::torchtitan_eager);
  CHECK(job(on + "components = []\n").code == LayerCode::torchtitan_eager);
  const FrameworkJob overlaps =
      job(on + "components = ['loss']\n[parallelism]\ntensor_parallel_degree = 2\nenable_async_tensor_parallel = true\n");
  CHECK_FALSE(overlaps.tensor_overlap);
  CHECK(has(refusal(on + "components = ['modle']\n"), "did you mean 'model'?"));
}

TEST_CASE("the section of older releases is read, and its unknown names are errors") {
  const FrameworkJob old =
      job("[experimental]\ncontext_parallel_degree = 8\ncontext_parallel_rotate_method = \"alltoall\"\n"
          "custom_import = \"x\"\npipeline_parallel_split_points = []\n");
  CHECK(old.mesh.context == 8);
  CHECK(old.context_exchange == ContextExchange::ring);
  CHECK(old.notes.size() == 4);  // each name, and each second layer that is computed again
  CHECK(has(refusal("[experimental]\npipeline_parallel_split_pts = \"x\"\n"),
            "line 2: unknown torchtitan setting 'experimental.pipeline_parallel_split_pts'"));
  CHECK(has(refusal("[experimental]\npipeline_parallel_split_points = [\"layers.8\"]\n"), "line 2: parallelism.pipeline"));
}

TEST_CASE("mixtures of experts that are not known are refused by name, and Qwen3's dense models are known") {
  const auto model = [](const std::string& name, const std::string& flavor) {
    return concat("[model]\nname = \"", name, "\"\nflavor = \"", flavor, "\"\n[training]\nlocal_batch_size = 2\n");
  };
  CHECK(refusal(model("llama4", "17bx16e")) ==
        "job.toml, line 3: model.flavor: llama4 17bx16e: of mixtures of experts qwen3 30B-A3B and 235B-A22B, deepseek_v3 16B, "
        "236B and 671B are known; give such a one");
  CHECK(has(refusal(model("gpt_oss", "20b")), "of mixtures of experts"));
  CHECK(has(refusal(model("qwen3", "debugmodel_moe")), "of mixtures of experts"));
  for (const char* flavor : {"8B", "14B", "32B"}) {
    CAPTURE(std::string{flavor});
    const FrameworkJob dense = job(model("qwen3", flavor));
    REQUIRE(dense.model);
    CHECK(dense.model->head_dim == 128);
    CHECK(torchtitan_settings(dense).model == "qwen3");
    CHECK(torchtitan_settings(dense).flavor == flavor);
  }
  CHECK(job(model("qwen3", "4B")).model_lacks == "the sizes of qwen3 4B");
}

TEST_CASE("FSDP shards experts among the devices that have the same, all else among all") {
  const auto mixture = [](const std::string& more) {
    return concat("[model]\nname = \"qwen3\"\nflavor = \"30B-A3B\"\n[training]\nlocal_batch_size = 2\n[parallelism]\n", more);
  };
  const FrameworkJob whole = job(mixture("expert_parallel_degree = 4\n"));
  REQUIRE(whole.model);
  CHECK(whole.model->experts == 128);
  CHECK(whole.code == LayerCode::megatron_unfused);
  CHECK(std::any_of(whole.notes.begin(), whole.notes.end(),
                    [](const std::string& note) { return has(note, "simulated with Megatron-LM's kernels"); }));
  CHECK(whole.choice.schedule == "ddp");
  CHECK(whole.sharding == StateSharding::parameters);
  CHECK(whole.mesh.whole_experts);
  CHECK(whole.mesh.expert == 4);
  CHECK(whole.mesh.pipeline == 1);
  CHECK(mesh_order_text(whole.mesh.order) == "tceds");
  CHECK(whole.batch_parts() == whole.mesh.copies());
  CHECK(whole.global_batch == 2 * whole.batch_parts());
  CHECK(whole.expert_dispatch == ExpertDispatch::all_to_all);
  const TorchtitanSettings written = torchtitan_settings(whole);
  CHECK(written.flavor == "30B-A3B");
  CHECK(written.expert == 4);
  CHECK(written.shard == whole.batch_parts());
  CHECK(join(torchtitan_cannot(whole), "; ").empty());
  const FrameworkJob again = job(torchtitan_text(whole, {}));
  CHECK(torchtitan_text(again, {}) == torchtitan_text(whole, {}));
  CHECK(again.mesh == whole.mesh);
  CHECK(again.model->fused_swiglu == whole.model->fused_swiglu);
  const FrameworkJob wide =
      job(mixture("expert_parallel_degree = 4\ntensor_parallel_degree = 2\ncontext_parallel_degree = 2\n"
                  "expert_parallel_comm_backend = \"deepep\"\n"));
  CHECK(wide.mesh.expert == 1);
  CHECK(wide.mesh.expert_parts() == 4);
  CHECK(wide.expert_dispatch == ExpertDispatch::deepep);
  CHECK(join(torchtitan_cannot(wide), "; ").empty());
  CHECK(job(torchtitan_text(wide, {})).mesh == wide.mesh);
  const FrameworkJob stages = job(mixture("expert_parallel_degree = 2\npipeline_parallel_degree = 2\n"));
  CHECK(stages.choice.schedule == "1f1b");
  CHECK(stages.sharding == StateSharding::parameters);
  CHECK(stages.mesh.expert == 2);
  const FrameworkJob split = job(mixture("tensor_parallel_degree = 2\n"));  // experts by tensor parallelism
  CHECK(split.choice.schedule == "fsdp");
  CHECK_FALSE(split.mesh.whole_experts);
  CHECK(join(torchtitan_cannot(split), "; ").empty());
  CHECK(job(torchtitan_text(split, {})).mesh == split.mesh);
  CHECK(torchtitan_text(stages, {}).find("expert_parallel_degree = 2") != std::string::npos);
  FrameworkJob other = whole;
  other.model->experts = 64;
  CHECK(has(join(torchtitan_cannot(other), "; "), "by their names"));

  CHECK(has(refusal(mixture("expert_parallel_degree = 3\n")), "3 does not divide the 128 experts"));
  CHECK(has(refusal(mixture("expert_parallel_degree = 2\ntensor_parallel_degree = 4\n")), "2 must be a multiple of tensor 4"));
  CHECK(has(refusal(mixture("expert_parallel_degree = 4\ntensor_parallel_degree = 2\nexpert_tensor_parallel_degree = 2\n")),
            "also split by tensor parallelism are not modelled; give 1"));
  CHECK(has(refusal(mixture("expert_parallel_degree = 2\ndata_parallel_replicate_degree = 2\n")), "replicas of states"));
  CHECK(has(refusal("[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\nexpert_parallel_degree = 2\n"),
            "llama3 8B has no experts"));
}

}  // namespace torchtitan_table_test
