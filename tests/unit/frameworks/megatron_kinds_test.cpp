// Tests of frameworks/detail/megatron_kinds.hpp and megatron_kinds_written.hpp: windows, sinks and gpt-oss in
// Megatron-LM's flags, read and written.
// Not: experts (megatron_experts_test.cpp).
#include "tawpipe/frameworks/detail/megatron_kinds.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "support/text.hpp"
#include "tawpipe/frameworks/megatron.hpp"

using namespace tawpipe;
using support::has;

namespace megatron_kinds_test {

namespace {

const std::string sizes =
    "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 5632 --vocab-size 32000 --seq-length 4096 "
    "--micro-batch-size 1 --attention-dropout 0 --hidden-dropout 0 --normalization RMSNorm --position-embedding-type rope --bf16 "
    "--untie-embeddings-and-output-weights ";
const std::string plain = sizes + "--swiglu --disable-bias-linear ";
/// As NVIDIA/Megatron-LM, examples/post_training/modelopt/conf/openai/gpt-oss-120b.sh.
const std::string gpt_oss =
    "--micro-batch-size 1 --bf16 --no-masked-softmax-fusion --untie-embeddings-and-output-weights --no-rope-fusion "
    "--normalization RMSNorm --num-layers 36 --hidden-size 2880 --ffn-hidden-size 2880 --num-attention-heads 64 "
    "--group-query-attention --num-query-groups 8 --kv-channels 64 --num-experts 128 --moe-ffn-hidden-size 2880 "
    "--moe-router-dtype fp32 --moe-router-topk 4 --moe-aux-loss-coeff 0.0 --moe-token-dispatcher-type alltoall "
    "--moe-router-score-function softmax --moe-router-load-balancing-type aux_loss --seq-length 4096 "
    "--max-position-embeddings 40960 --make-vocab-size-divisible-by 128 --use-mcore-models --rotary-percent 1.0 "
    "--rotary-base 150000 --no-bias-gelu-fusion --no-bias-dropout-fusion --padded-vocab-size 201088 --quick-geglu "
    "--glu-linear-offset 1.0 --softmax-type learnable --window-attn-skip-freq 2 --enable-gpt-oss "
    "--activation-func-clamp-value 7.0 --window-size 127,0 --moe-grouped-gemm --attention-dropout 0 --hidden-dropout 0 ";

FrameworkJob job(const std::string& flags) { return megatron_job("p.py " + flags, "run.sh", 32); }
std::string refusal(const std::string& flags) {
  try {
    job(flags);
    return {};
  } catch (const InputError& error) {
    return error.what();
  }
}
std::string notes(const std::string& flags) { return join(job(flags).notes, "\n"); }
/// The window of each layer.
std::vector<int> windows(const Transformer& model) {
  std::vector<int> found;
  for (const std::uint8_t kind : model.decoder().pattern)
    found.push_back(std::get<Attention>(model.decoder().kinds[kind].sublayers[0]).window);
  return found;
}
/// The refusals of a job with one change of its layers.
template <class Change>
std::string refusals_with(const FrameworkJob& of, Change change) {
  FrameworkJob other = of;
  for (LayerKind& kind : other.model->kinds) change(kind);
  return join(megatron_cannot(other), "; ");
}

}  // namespace

TEST_CASE("a script of gpt-oss is the preset, with windows, sinks, biases, bounds and scaled positions") {
  const FrameworkJob read = job(gpt_oss);
  CHECK(read.notes.empty());
  REQUIRE(read.model);
  CHECK(read.model->name == "gpt-oss-120b");
  const Transformer known = models::named("gpt-oss-120b");
  CHECK(read.model->kinds == known.kinds);
  CHECK(read.model->pattern == known.pattern);
  CHECK(read.model->parameters() == 116'829'156'672);  // the model's card: 116.83 billion
  CHECK(read.model->parameters() == known.parameters());
  CHECK_FALSE(read.model->fused_swiglu);
  CHECK(job(gpt_oss + "--sequence-parallel --expert-model-parallel-size 32").mesh.expert == 32);
  // Without biases and grouped experts' need of their own kernel.
  const FrameworkJob bare = job(gpt_oss + "--disable-bias-linear");
  CHECK(bare.notes.empty());
  CHECK_FALSE(detail::has_expert_biases(*bare.model));
  CHECK(std::get<Attention>(bare.model->kinds[0].sublayers[0]).qkv_bias == false);
  const FrameworkJob some = job(gpt_oss + "--disable-bias-linear --add-qkv-bias");
  CHECK(std::get<Attention>(some.model->kinds[0].sublayers[0]).qkv_bias);
  CHECK_FALSE(std::get<Attention>(some.model->kinds[0].sublayers[0]).output_bias);
}

TEST_CASE("windows: tokens before a token, of all layers or in a pattern") {
  const FrameworkJob all = job(plain + "--window-size 4095,0");
  CHECK(all.notes.empty());
  CHECK_FALSE(all.model->has_kinds());
  CHECK(all.model->window == 4096);
  CHECK(job(plain + "--window-size '(127, 0)'").model->window == 128);
  CHECK(job(plain + "--window-size '(-1,0)'").model->window == 0);
  CHECK(job(plain + "--window-attn-skip-freq 4").model->window == 0);  // without a window it says nothing
  CHECK(job(plain + "--window-size 127,0 --window-attn-skip-freq 1").model->window == 0);
  CHECK(job(plain + "--window-size 127,0 --window-attn-skip-freq '[1]*24'").model->window == 128);

  const Transformer third = *job(plain + "--window-size 127,0 --window-attn-skip-freq 3").model;
  REQUIRE(third.has_kinds());
  const std::vector<int> of_third = windows(third);
  for (std::size_t layer = 0; layer < 24; ++layer) CHECK(of_third[layer] == (layer % 3 == 2 ? 0 : 128));
  CHECK(third.kinds.size() == 2);
  CHECK(third.kinds[0].name == "window, dense");
  const Transformer listed = *job(plain + "--window-size 127,0 --window-attn-skip-freq '([0]*1+[1]*3)*6'").model;
  const std::vector<int> of_list = windows(listed);
  for (std::size_t layer = 0; layer < 24; ++layer) CHECK(of_list[layer] == (layer % 4 == 0 ? 0 : 128));
  // Biases are Megatron-LM's default.
  const Transformer biased = *job(sizes + "--swiglu --window-size 127,0 --window-attn-skip-freq 3").model;
  CHECK(biased.parameters() == third.parameters() + 24 * (4 * 2048 + 2 * 5632 + 2048));
}

TEST_CASE("a dense first layer, and a layer that predicts a further token, among windows") {
  const std::string experts =
      "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 1024 --moe-grouped-gemm --moe-layer-freq '([0]*1+[1]*23)' "
      "--mtp-num-layers 1 --window-size 127,0 --window-attn-skip-freq 2 --moe-token-dispatcher-type alltoall ";
  const FrameworkJob read = job(plain + experts);
  CHECK(read.notes.empty());
  REQUIRE(read.model->kinds.size() == 3);
  CHECK(read.model->kinds[0].name == "window, dense");
  CHECK(read.model->kinds[1].name == "full, mixture");
  CHECK(read.model->mtp == LayerPattern{1});
  CHECK(detail::has_dense_first(read));
  CHECK(read.model->experts == 8);
  const std::string text = megatron_text(read, {});
  CHECK(has(text, "--moe-layer-freq '([0]*1+[1]*23)'\n"));
  CHECK(has(text, "--ffn-hidden-size 5632\n"));
  CHECK(has(text, "--moe-ffn-hidden-size 1024\n"));
}

TEST_CASE("what was read is written as it was read") {
  const std::string experts = "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 1024 --moe-grouped-gemm ";
  for (const std::string& flags :
       {gpt_oss, gpt_oss + "--disable-bias-linear", gpt_oss + "--disable-bias-linear --add-qkv-bias",
        gpt_oss +
            "--sequence-parallel --tensor-model-parallel-size 4 --expert-model-parallel-size 4 --expert-tensor-parallel-size 1",
        gpt_oss + "--context-parallel-size 4 --cp-comm-type a2a", plain + "--window-size 4095,0",
        plain + "--window-size 127,0 --window-attn-skip-freq 3", sizes + "--swiglu --window-size 127,0 --window-attn-skip-freq 6",
        sizes + "--window-size 127,0 --window-attn-skip-freq 2", plain + "--window-size 127,0 --softmax-type learnable",
        plain + "--softmax-type learnable --qk-layernorm", plain + "--window-size 0,0 --window-attn-skip-freq '([0]*1+[1]*3)*6'",
        plain + experts + "--window-size 127,0 --window-attn-skip-freq 2 --moe-layer-freq '([0]*2+[1]*22)' --mtp-num-layers 1",
        plain + experts + "--moe-shared-expert-intermediate-size 512 --window-size 127,0 --window-attn-skip-freq 2"}) {
    CAPTURE(flags);
    const FrameworkJob read = job(flags);
    REQUIRE(megatron_cannot(read) == std::vector<std::string>{});
    const std::string text = megatron_text(read, {});
    CAPTURE(text);
    const FrameworkJob back = megatron_job(text, "written", 32);
    CHECK(back.notes.empty());
    CHECK(detail::same_sizes(*back.model, *read.model));
    CHECK(detail::same_details(*back.model, *read.model));
    CHECK(back.model->fused_swiglu == read.model->fused_swiglu);
    CHECK(megatron_text(back, {}) == text);
  }
  const std::string text = megatron_text(job(gpt_oss), {});
  CHECK(has(text, "--window-size 127,0\n  --window-attn-skip-freq 2\n  --softmax-type learnable\n  --quick-geglu\n"));
  CHECK(has(text, "--glu-linear-offset 1.0\n  --activation-func-clamp-value 7.0\n  --no-bias-dropout-fusion\n"));
  CHECK(has(text, "--position-embedding-type yarn\n  --rotary-scaling-factor 32.0\n"));
  CHECK_FALSE(has(text, "--swiglu"));
  CHECK_FALSE(has(text, "--disable-bias-linear"));
  CHECK(has(megatron_text(job(plain + "--window-size 127,0 --window-attn-skip-freq '([0]*1+[1]*23)'"), {}),
            "--window-attn-skip-freq '([0]*1+[1]*23)'\n"));
}

TEST_CASE("a gate without bounds is one, and what changes no time is noted") {
  const FrameworkJob gated = job(sizes + "--disable-bias-linear --quick-geglu");
  CHECK(gated.notes.empty());
  CHECK(gated.model->gated);
  CHECK_FALSE(gated.model->has_kinds());
  CHECK(has(refusal(plain + "--quick-geglu"), "--quick-geglu: not with --swiglu"));
  CHECK(has(refusal(plain + "--glu-linear-offset 1.0"), "is of --quick-geglu; with --swiglu Megatron-LM stops"));
  CHECK(has(notes(plain + "--softmax-type off-by-one"), "--softmax-type: is off-by-one; simulated as learnable"));
  CHECK(has(notes(plain + "--position-embedding-type yarn"), "--position-embedding-type: simulated as rope"));
  std::string fused = gpt_oss;
  fused.replace(fused.find("--no-bias-dropout-fusion "), std::string{"--no-bias-dropout-fusion "}.size(), "");
  CHECK(has(notes(fused), "--no-bias-dropout-fusion: is not set, without which grouped experts with biases stop"));
  CHECK(has(notes(plain + "--window-size 127,0 --transformer-impl local --attention-dropout 0.1"),
            "--window-size: attention that is not fused computes all scores"));
}

TEST_CASE("what Megatron-LM or this library cannot run is refused by name") {
  CHECK(
      has(refusal(plain + "--window-size 128"), "is the number of tokens before a token and the number after it, such as 127,0"));
  CHECK(has(refusal(plain + "--window-size '(-2,0)'"), "--window-size: is the number of tokens"));
  CHECK(has(refusal(plain + "--window-size 127,0 --window-attn-skip-freq 0"), "0 is not a number of layers"));
  CHECK(
      has(refusal(plain + "--window-size 127,0 --window-attn-skip-freq '[1,0]'"), "the list has 2 layers, and the model has 24"));
  CHECK(
      has(refusal(plain + "--window-size 127,0 --window-attn-skip-freq x"), "or a list with 1 for each layer within the window"));
  CHECK(has(refusal(plain + "--window-size 127,0 --multi-latent-attention"), "--window-size: windows of latent attention"));
  CHECK(has(refusal(plain + "--softmax-type learnable --multi-latent-attention"), "--softmax-type: sinks of latent attention"));
  CHECK(
      has(refusal(plain + "--softmax-type learnable --attention-backend unfused"), "sinks are known with fused attention only"));
  CHECK(has(refusal(plain + "--softmax-type other"), "--softmax-type"));
  CHECK(has(refusal(plain + "--window-size 127,0 --context-parallel-size 2"),
            "Transformer Engine has no ring of attention within"));
  CHECK(refusal(plain + "--window-size 127,0 --context-parallel-size 2 --cp-comm-type all_gather").empty());
  CHECK(has(refusal(gpt_oss + "--context-parallel-size 2 --cp-comm-type all_gather"),
            "--cp-comm-type: Transformer Engine exchanges heads where attention has sinks; give a2a, not all_gather"));
  CHECK(has(refusal(gpt_oss + "--tensor-model-parallel-size 2 --sequence-parallel"),
            "experts with biases are not split by tensor parallelism"));
  CHECK(has(refusal(gpt_oss + "--moe-shared-expert-intermediate-size 64"), "a shared expert has no biases"));
}

TEST_CASE("layers that no flag says are not written, by name") {
  const FrameworkJob read = job(gpt_oss);
  const auto attention = [&](auto change) {
    return refusals_with(read, [&](LayerKind& kind) { change(std::get<Attention>(kind.sublayers[0])); });
  };
  const auto experts = [&](auto change) {
    return refusals_with(read, [&](LayerKind& kind) { change(std::get<Mixture>(kind.sublayers[1])); });
  };
  CHECK(attention([](Attention& of) { of.gate = true; }) == "no flag says the gate of attention's result");
  CHECK(attention([](Attention& of) { of.turned = 32; }) == "no flag says positions that turn a part of each head");
  CHECK(attention([](Attention& of) { of.output_bias = false; }) == "no flag says biases of some products");
  CHECK(attention([](Attention& of) { of.value_dim = 32; }) == "no flag says values of a size of their own");
  CHECK(attention([](Attention& of) { of.sinks = of.window > 0; }) ==
        "no flag says attention that differs in more than its window");
  CHECK(experts([](Mixture& of) { of.router_bias = false; }) == "no flag says biases of some products");
  CHECK(experts([](Mixture& of) { of.latent = 64; }) == "no flag says experts of a vector of another width");
  CHECK(refusals_with(read, [](LayerKind& kind) { kind.norms = NormPlace::both; }) ==
        "no flag says norms at other places than before attention and MLP");
  CHECK(refusals_with(read, [](LayerKind& kind) { kind.sublayers.resize(1); }) ==
        "no flag says layers of other parts than an attention and an MLP");
  CHECK(refusals_with(read, [](LayerKind& kind) { kind.sublayers[0] = DeltaNet{.key_heads = 1, .value_heads = 1}; }) ==
        "no flag says layers of gated delta nets for pretrain_gpt.py");
  FrameworkJob context = read;
  context.mesh.context = 2;
  context.context_exchange = ContextExchange::ring;
  CHECK(has(join(megatron_cannot(context), "; "), "Transformer Engine exchanges heads where attention has sinks"));
}

}  // namespace megatron_kinds_test
