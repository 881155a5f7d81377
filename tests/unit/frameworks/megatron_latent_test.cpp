// Tests of frameworks/detail/megatron_latent.hpp: latent attention in Megatron-LM's flags, read and
// written.
// Not: experts (megatron_experts_test.cpp).
#include "tawpipe/frameworks/detail/megatron_latent.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/text.hpp"
#include "tawpipe/frameworks/frameworks.hpp"

using namespace tawpipe;
using support::has;

namespace megatron_latent_test {

namespace {

const std::string sizes =
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336 --swiglu --vocab-size 32000 "
    "--untie-embeddings-and-output-weights --seq-length 4096 --micro-batch-size 1 --attention-dropout 0 --hidden-dropout 0 "
    "--normalization RMSNorm --disable-bias-linear --position-embedding-type rope --bf16 ";
const std::string latent = "--multi-latent-attention --qk-layernorm ";

FrameworkJob job(const std::string& flags) { return megatron_job("p.py " + sizes + flags, "run.sh", 32); }
std::string refusal(const std::string& flags) {
  try {
    job(flags);
    return {};
  } catch (const InputError& error) {
    return error.what();
  }
}
std::string notes(const std::string& flags) { return join(job(flags).notes, "\n"); }

}  // namespace

TEST_CASE("latent attention, and Megatron-LM's defaults of it") {
  const FrameworkJob plain = job(latent);
  REQUIRE(plain.model);
  CHECK(plain.notes.empty());
  CHECK(plain.model->is_latent());
  CHECK(plain.model->query_rank == 0);
  CHECK(plain.model->key_value_rank == 32);
  CHECK(plain.model->head_size() == 192);
  CHECK(plain.model->rope_width == 64);
  CHECK(plain.model->value_size == 128);
  CHECK(plain.model->kv_heads == 32);
  const FrameworkJob given =
      job(latent +
          "--q-lora-rank 768 --kv-lora-rank 256 --qk-head-dim 64 --qk-pos-emb-head-dim 32 --v-head-dim 80 --kv-channels 128 "
          "--rope-type yarn --rotary-scaling-factor 40 --mscale 1.0 --mscale-all-dim 1.0 --no-rope-fusion");
  CHECK(given.notes.empty());
  CHECK(given.model->query_rank == 768);
  CHECK(given.model->key_value_rank == 256);
  CHECK(given.model->head_size() == 96);
  CHECK(given.model->rope_width == 32);
  CHECK(given.model->value_size == 80);
  // Without latent attention its flags say nothing.
  const FrameworkJob grouped = job("--q-lora-rank 768 --kv-lora-rank -5 --v-head-dim 80 --qk-layernorm");
  CHECK_FALSE(grouped.model->is_latent());
  CHECK(grouped.model->head_size() == 128);
  CHECK(grouped.notes.empty());
}

TEST_CASE("the flags of DeepSeek-V3 are the preset") {
  const std::string deepseek =
      "p.py --num-layers 61 --hidden-size 7168 --num-attention-heads 128 --kv-channels 128 --ffn-hidden-size 18432 --swiglu "
      "--vocab-size 129280 --untie-embeddings-and-output-weights --normalization RMSNorm --qk-layernorm --multi-latent-attention "
      "--q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --num-experts 256 "
      "--moe-layer-freq ([0]*3+[1]*58) --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 "
      "--moe-router-topk 8 --moe-router-num-groups 8 --moe-router-group-topk 4 --moe-grouped-gemm --bf16";
  std::string quoted = deepseek;
  quoted.replace(quoted.find("(["), std::string{"([0]*3+[1]*58)"}.size(), "'([0]*3+[1]*58)'");
  const Transformer model = megatron_model(quoted, "run.sh");
  CHECK(model.name == "deepseek-v3");
  CHECK(model.parameters() == models::named("deepseek-v3").parameters());
}

TEST_CASE("models with latent attention and first layers without experts are written, and read back") {
  for (const char* name : {"deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "kimi-k2", "glm-4.5-air", "glm-4.5"}) {
    CAPTURE(name);
    FrameworkJob written = job("");
    written.model = models::named(name);
    written.model->fused_swiglu = true;
    REQUIRE(megatron_cannot(written) == std::vector<std::string>{});
    const std::string text = megatron_text(written, {});
    CAPTURE(text);
    const FrameworkJob back = megatron_job(text, "written", 32);
    CHECK(back.notes.empty());
    REQUIRE(back.model);
    CHECK(detail::same_sizes(*back.model, *written.model));
    CHECK(back.model->name == name);
    CHECK(megatron_text(back, {}) == text);
  }
  FrameworkJob lite = job("");
  lite.model = models::named("deepseek-v2-lite");
  const std::string text = megatron_text(lite, {});
  CHECK(has(text,
            "--multi-latent-attention\n  --kv-lora-rank 512\n  --qk-head-dim 128\n  --qk-pos-emb-head-dim 64\n"
            "  --v-head-dim 128\n  --qk-layernorm\n"));
  CHECK(has(text, "--ffn-hidden-size 10944\n"));
  CHECK(has(text, "--moe-ffn-hidden-size 1408\n"));
  CHECK(has(text, "--moe-layer-freq '([0]*1+[1]*26)'\n"));
  CHECK_FALSE(has(text, "--kv-channels"));
  CHECK_FALSE(has(text, "--q-lora-rank"));
  CHECK_FALSE(has(text, "--group-query-attention"));
  CHECK_FALSE(has(text, "--num-query-groups"));
}

TEST_CASE("without experts, and with heads that do not divide the hidden size") {
  FrameworkJob dense = job(latent + "--kv-lora-rank 512");
  CHECK_FALSE(has(megatron_text(dense, {}), "--kv-channels"));
  dense.model->heads = dense.model->kv_heads = 24;
  const std::string text = megatron_text(dense, {});
  CHECK(has(text, "--kv-channels 128\n"));
  const FrameworkJob back = megatron_job(text, "written", 32);
  CHECK(detail::same_sizes(*back.model, *dense.model));
  CHECK(megatron_text(back, {}) == text);
}

TEST_CASE("what of latent attention is not modelled is refused or noted") {
  CHECK(refusal(latent + "--kv-lora-rank 0") == "run.sh, line 1: --kv-lora-rank: 0 is impossible; give 1 to 131072");
  CHECK(has(refusal(latent + "--q-lora-rank -1"), "--q-lora-rank: -1 is impossible"));
  CHECK(has(refusal(latent + "--qk-pos-emb-head-dim 0"), "--qk-pos-emb-head-dim: 0 is impossible"));
  CHECK(has(refusal(latent + "--v-head-dim 100000"), "--multi-latent-attention: model 'decoder-32x4096': 32 values of 100000"));
  CHECK(has(refusal(latent + "--qk-head-dim 100000"), "32 heads of 100064 are too wide together"));
  CHECK(has(refusal(latent + "--num-attention-heads 24"), "needs --kv-channels where the 24 heads do not divide"));
  CHECK(refusal(latent + "--num-attention-heads 24 --kv-channels 128").empty());
  CHECK(has(refusal(latent + "--transformer-impl local"), "latent attention is known with fused attention only"));
  CHECK(has(refusal(latent + "--use-legacy-models --use-flash-attn"), "--multi-latent-attention: not with --use-legacy-models"));
  CHECK(job(latent + "--mtp-num-layers 1").model->mtp.size() == 1);
  CHECK(notes("--multi-latent-attention") ==
        "run.sh: --qk-layernorm: is not set; simulated with it, with norms of the short vectors");
  CHECK(notes(latent + "--group-query-attention --num-query-groups 8") ==
        "run.sh, line 1: --group-query-attention: simulated without, as latent attention has a key and a value of each head");
  const std::string selective = "--recompute-granularity selective --recompute-modules ";
  const FrameworkJob up = job(latent + selective + "mla_up_proj layernorm");
  CHECK(up.recompute_parts == RecomputeParts{.layernorm = true});
  CHECK(join(up.notes, "\n") == "run.sh, line 1: --recompute-modules: simulated without mla_up_proj, whose results are kept");
  CHECK(has(notes(selective + "mla_up_proj"), "simulated without mla_up_proj, which a dense decoder's layers lack"));
}

TEST_CASE("frameworks without latent attention cannot run it") {
  const FrameworkJob dense = job(latent);
  CHECK(has(join(torchtitan_cannot(dense), "; "), "latent attention is written of deepseek_v3, by its name"));
  CHECK(has(join(deepspeed_cannot(dense), "; "), "latent attention is set in the program"));
  FrameworkJob unturned = dense;
  unturned.model->rope_width = 0;
  CHECK(join(megatron_cannot(unturned), "; ") == "latent attention has a turned and an unturned part of each query");
}

}  // namespace megatron_latent_test
