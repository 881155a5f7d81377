// Tests of frameworks/detail/megatron_hybrid.hpp: hybrid decoders in Megatron-LM's flags.
// Not: decoders of attention and MLPs (megatron_kinds_test.cpp).
#include "tawpipe/frameworks/detail/megatron_hybrid.hpp"

#include <doctest/doctest.h>

#include <string>
#include <variant>
#include <vector>

#include "support/text.hpp"
#include "tawpipe/frameworks/megatron.hpp"
#include "tawpipe/model/huggingface_config.hpp"

using namespace tawpipe;
using support::has;

namespace megatron_hybrid_test {

namespace {

const std::string common =
    "--micro-batch-size 1 --seq-length 4096 --bf16 --attention-dropout 0 --hidden-dropout 0 --use-flash-attn "
    "--disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type none --normalization RMSNorm "
    "--group-query-attention --padded-vocab-size 131072 ";
const std::string small = common + "--hidden-size 256 --num-attention-heads 4 --num-query-groups 4 --squared-relu ";
/// As NVIDIA/Megatron-LM, examples/post_training/modelopt/conf/nvidia.
const std::string nemotron_3 =
    common +
    "--moe-router-score-function sigmoid --moe-grouped-gemm --num-experts 128 --moe-router-topk 6 --moe-aux-loss-coeff 1e-4 "
    "--moe-router-topk-scaling-factor 2.5 --moe-router-enable-expert-bias --moe-shared-expert-intermediate-size 3712 "
    "--is-hybrid-model --mamba-num-heads 64 --mamba-head-dim 64 --num-layers 52 --hidden-size 2688 --num-attention-heads 32 "
    "--num-query-groups 2 --ffn-hidden-size 1856 --kv-channels 128 --squared-relu "
    "--hybrid-override-pattern MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME ";
const std::string nemotron_h =
    common +
    "--is-hybrid-model --mamba-state-dim 256 --squared-relu --num-layers 118 --hidden-size 8192 --num-attention-heads 64 "
    "--num-query-groups 8 --ffn-hidden-size 32768 --kv-channels 128 --hybrid-override-pattern "
    "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M- ";

FrameworkJob job(const std::string& flags) { return megatron_job("p.py " + flags, "run.sh", 8); }
std::string refusal(const std::string& flags) {
  try {
    job(flags);
    return {};
  } catch (const InputError& error) {
    return error.what();
  }
}
/// A letter for each layer.
std::string letters(const Transformer& model) {
  std::string found;
  const Model decoder = model.decoder();
  for (const std::uint8_t kind : decoder.pattern) found += "*GM-E"[decoder.kinds[kind].sublayers.front().index()];
  return found;
}

}  // namespace

TEST_CASE("published hybrids have the layers of their configurations") {
  for (const auto& [flags, name] : {std::pair{nemotron_3, "nemotron-3-nano-30b-a3b"}, {nemotron_h, "nemotron-h-56b"}}) {
    CAPTURE(name);
    const FrameworkJob read = job(flags);
    const Transformer published = timed_model(*find_published_model(name));
    CHECK(letters(*read.model) == letters(published));
    CHECK(read.model->decoder().kinds.size() == published.decoder().kinds.size());
    CHECK(read.model->parameters() == published.parameters());
  }
}

TEST_CASE("a pattern has stages and layers that predict further tokens") {
  const FrameworkJob read =
      job(small + "--hybrid-layer-pattern 'M-M-|M*M-|MMM|GGG-/*-' --pipeline-model-parallel-size 2 --mtp-num-layers 1");
  CHECK(letters(*read.model) == "M-M-M*M-MMMGGG-");
  CHECK(read.stage_cut.layers == std::vector<std::int32_t>{4, 4, 3, 4});
  REQUIRE(read.model->mtp.size() == 1);
  CHECK(read.model->decoder().kinds[read.model->mtp[0]].sublayers.size() == 2);
  CHECK(has(join(job(small + "--mtp-num-layers 2 --hybrid-layer-pattern M-M-/*-").notes, "\n"), "the pattern's 1 count"));
  CHECK(has(join(job(small + "--num-layers 3 --hybrid-layer-pattern M-M-").notes, "\n"), "the pattern's 4 layers count"));
}

TEST_CASE("layers by their shares are those of Megatron-LM") {
  // pattern_from_ratios(num_layers, attention_ratio, mlp_ratio)
  CHECK(detail::letters_by_shares(10, 0.2, 0) == "MMM*MM*MMM");
  CHECK(detail::letters_by_shares(8, 0, 0.5) == "M-M-M-M-");
  CHECK(detail::letters_by_shares(12, 0.08, 0.5) == "M-M-M-*-M-M-");
  CHECK(letters(*job(small + "--num-layers 10 --hybrid-attention-ratio 0.2").model) == "MMM*MM*MMM");
  CHECK(letters(*job(small + "--num-layers 4 --is-hybrid-model").model) == "MMMM");
}

TEST_CASE("what is not modelled is refused by name") {
  const std::string pattern = small + "--hybrid-layer-pattern ";
  CHECK(has(refusal(pattern + "MDM"), "--hybrid-layer-pattern: layers 'D' are not modelled; M (Mamba-2), G"));
  CHECK(has(refusal(pattern + "ME"), "layers E need --num-experts"));
  CHECK(has(refusal(pattern + "'M-|M-|M-' --pipeline-model-parallel-size 2"), "3 stages are no multiple of 2 pipeline ranks"));
  CHECK(has(refusal(pattern + "MM --hybrid-override-pattern MM"), "not with --hybrid-layer-pattern, whose old name it is"));
  CHECK(has(refusal(pattern + "'M-|M-' --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2"),
            "--hybrid-layer-pattern: not with --num-virtual-stages-per-pipeline-rank"));
  CHECK(has(refusal(pattern + "MM*M --mamba-num-heads 7"), "--hybrid-layer-pattern: "));
  CHECK(has(refusal(pattern + "MM*M --window-size 127,0"), "windows, sinks and bounded functions"));
  CHECK(has(refusal(pattern + "MM*M --mtp-num-layers 1"), "needs the layers of each, after a /"));
  CHECK(has(refusal(small + "--num-layers 4 --hybrid-attention-ratio 2"), "is not a part of 1"));
}

}  // namespace megatron_hybrid_test
