// Tests of frameworks/torchtitan_table.hpp: what is compiled, names of older releases, models.
// Not: what settings mean otherwise (frameworks_test.cpp).
#include "tawpipe/frameworks/torchtitan_table.hpp"

#include <doctest/doctest.h>

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

TEST_CASE("mixtures of experts are refused by name, and Qwen3's dense models are known") {
  const auto model = [](const std::string& name, const std::string& flavor) {
    return concat("[model]\nname = \"", name, "\"\nflavor = \"", flavor, "\"\n[training]\nlocal_batch_size = 2\n");
  };
  CHECK(refusal(model("deepseek_v3", "671B")) ==
        "job.toml, line 2: model.name: deepseek_v3 671B: a mixture of experts is not modelled");
  CHECK(has(refusal(model("llama4", "17bx16e")), "a mixture of experts"));
  CHECK(has(refusal(model("gpt_oss", "20b")), "a mixture of experts"));
  for (const char* flavor : {"30B-A3B", "235B-A22B", "debugmodel_moe"}) CHECK(has(refusal(model("qwen3", flavor)), "experts"));
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

}  // namespace torchtitan_table_test
