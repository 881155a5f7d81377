// Tests of frameworks/nanotron.hpp: meshes, batches, optimizers, stages, and what is refused.
// Not: YAML (yaml_settings_test.cpp).
#include "tawpipe/frameworks/nanotron.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/refusal.hpp"
#include "support/text.hpp"
#include "tawpipe/frameworks/yaml_settings.hpp"

using namespace tawpipe;

namespace nanotron_test {

namespace {

using support::has;

struct Text {
  std::string parallelism = "dp: 2, tp: 2, pp: 4, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER";
  std::string optimizer = "zero_stage: 1, accumulate_grad_in_fp32: true";
  std::string tokens = "sequence_length: 4096, micro_batch_size: 1, batch_accumulation_per_replica: 32";
  std::string model = "dtype: bfloat16";
  std::string config = "";
};
FrameworkJob job(const Text& text, int devices = 16) {
  const std::string all =
      concat("model:\n  ", text.model,
             "\n  model_config: {hidden_size: 2048, num_hidden_layers: 24, num_attention_heads: 16, num_key_value_heads: 16, "
             "intermediate_size: 5632, vocab_size: 32000, is_llama_config: true, tie_word_embeddings: false",
             text.config, "}\nparallelism: {", text.parallelism, "}\noptimizer: {", text.optimizer,
             ", clip_grad: 1.0}\ntokens: {", text.tokens, ", train_steps: 9}\ncheckpoints: {checkpoint_interval: 10}\n");
  return nanotron_job(yaml_settings(all, "a.yaml"), devices);
}
std::string why(const Text& text) {
  return support::refusal([&] { job(text); });
}

}  // namespace

TEST_CASE("nanotron's parallelism, tokens and optimizer") {
  const FrameworkJob read = job({});
  CHECK(read.mesh.tensor == 2);
  CHECK(read.mesh.pipeline == 4);
  CHECK(read.mesh.data == 2);
  CHECK(read.choice.schedule == "1f1b");
  CHECK(read.sharding == StateSharding::optimizer);
  CHECK(read.sequence_parallel);
  CHECK_FALSE(read.tensor_overlap);
  CHECK(read.overlap_gradients);
  CHECK_FALSE(read.overlap_gathers);
  CHECK(read.microbatch_size == 1);
  CHECK(read.global_batch == 64);
  CHECK(read.sequence == 4096);
  CHECK(read.gradient_bytes == 4);
  CHECK(read.optimizer_bytes == 0);
  CHECK(read.recompute == Recompute::none);
  CHECK(read.code == LayerCode::megatron_unfused);
  REQUIRE(read.model);
  CHECK(read.model->layers == 24);
  CHECK(read.model->vocab == 32000);
  CHECK_FALSE(read.model->tied);
  CHECK(read.notes.empty());
  // A stage is full at its quarter of 24 layers and the output matrix, 1.3 of them: 6.3, 12.6, 19.0.
  CHECK(read.stage_cut.layers == std::vector<std::int32_t>{7, 6, 6, 5});
  CHECK(job({.parallelism = "dp: 4, tp: 2, pp: 2", .config = ", vocab_size2: 1"}).notes.size() == 1);
}

TEST_CASE("what nanotron does where the file does not say it") {
  const FrameworkJob read =
      job({.parallelism = "dp: 4, tp: 2, pp: 2", .optimizer = "zero_stage: 0, accumulate_grad_in_fp32: false"});
  CHECK(read.choice.schedule == "gpipe");
  CHECK_FALSE(read.sequence_parallel);
  CHECK(read.sharding == StateSharding::none);
  CHECK(read.gradient_bytes == 2);
  CHECK_FALSE(read.master_copies);
  CHECK(read.optimizer_bytes == 4);
  const FrameworkJob alone = job({.parallelism = "dp: 8, tp: 1, pp: 1, context_parallel_size: 2, recompute_layer: true"});
  CHECK(alone.choice.schedule == "ddp");
  CHECK(alone.mesh.context == 2);
  CHECK(alone.context_exchange == ContextExchange::ring);
  CHECK(alone.recompute == Recompute::full);
  CHECK(alone.stage_cut.is_even());
  CHECK(job({.parallelism = "dp: 8, tp: 1, pp: 1, context_parallel_size: 2",
             .config = ", _attn_implementation: llama3_ring_attention"})
            .context_exchange == ContextExchange::all_gather);
  CHECK(job({.parallelism = "dp: 8, tp: 2, pp: 1, tp_mode: REDUCE_SCATTER, tp_linear_async_communication: true"}).tensor_overlap);
  const FrameworkJob ineffective = job({.parallelism = "dp: 8, tp: 2, pp: 1, tp_linear_async_communication: true"});
  CHECK_FALSE(ineffective.tensor_overlap);
  CHECK(ineffective.notes.size() == 1);
  CHECK(job({.model = "dtype: float32"}).dtype == Dtype::f32);
}

TEST_CASE("what is wrong in a file of nanotron has its line") {
  CHECK(why({.parallelism = "dp: 2, tp: 2, pp: 2"}) ==
        "a.yaml, line 4: parallelism.dp: tp 2 x pp 2 x dp 2 x context_parallel_size 1 is 8 processes, and the cluster has 16 "
        "devices");
  CHECK(has(why({.parallelism = "dp: 2, tp: 2"}), "parallelism.pp: 0 is not a number of devices from 1 to 16"));
  CHECK(has(why({.parallelism = "dp: 2, tp: 2, pp: 4, pp_engine: zb"}), "line 4: parallelism.pp_engine: unknown value 'zb'"));
  CHECK(has(why({.optimizer = "zero_stage: 3"}), "line 5: optimizer.zero_stage: 3 is not 0 or 1"));
  CHECK(has(why({.tokens = "sequence_length: 4096, micro_batch_size: 1"}),
            "tokens.batch_accumulation_per_replica: is missing, or below 1"));
  CHECK(has(why({.parallelism = "dp: 2, tp: 2, pp: 4, expert_parallel_size: 2"}),
            "a mixture of experts of nanotron is not modelled"));
  CHECK(has(why({.config = ", moe_config: {top_k: 2}"}), "a mixture of experts of nanotron is not modelled"));
}

}  // namespace nanotron_test
