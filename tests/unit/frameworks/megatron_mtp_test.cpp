// Tests of layers that predict further tokens in Megatron-LM's flags: read, written and simulated.
// Not: other flags (megatron_test.cpp), nor those of a config.json (model/).
#include <doctest/doctest.h>

#include <string>

#include "support/text.hpp"
#include "tawpipe/frameworks/frameworks.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer_work.hpp"

using namespace tawpipe;
using support::has;

namespace megatron_mtp_test {

const std::string base =
    "p.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 5632 --swiglu --vocab-size 32000 "
    "--untie-embeddings-and-output-weights --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --attention-dropout 0 "
    "--hidden-dropout 0 --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --bf16 "
    "--use-distributed-optimizer ";
const std::string experts =
    "--num-experts 32 --moe-router-topk 4 --moe-ffn-hidden-size 1024 --moe-grouped-gemm --moe-token-dispatcher-type alltoall "
    "--expert-model-parallel-size 8 ";
const std::string mtp = "--mtp-num-layers 1 --mtp-loss-scaling-factor 0.1 ";

FrameworkJob job(const std::string& flags) { return megatron_job(base + flags, "run.sh", 16); }

TEST_CASE("a layer that predicts a further token is as the last one, with norms and a product of its own") {
  const FrameworkJob plain = job(experts);
  const FrameworkJob more = job(experts + mtp);
  CHECK(more.notes == plain.notes);
  REQUIRE(more.model);
  // A product of 2H to H, and three norms: of the hidden state, of the embedding and before the loss.
  const std::int64_t hidden = 2048;
  CHECK(more.model->parameters() - plain.model->parameters() ==
        plain.model->layer_parameters() + 2 * hidden * hidden + 3 * hidden);
  CHECK(more.model->active_parameters() > plain.model->active_parameters());
  CHECK_FALSE(more.model->has_kinds());
}

TEST_CASE("its experts are shared out as those of other layers, and the rest is the loss's") {
  const Transformer model = *job(experts + mtp).model;
  const LayerStack stack = layer_stack(model, {.sequence = 4096, .microbatch_size = 1, .global_batch = 1}, Recompute::none);
  const LayerStack without =
      layer_stack(*job(experts).model, {.sequence = 4096, .microbatch_size = 1, .global_batch = 1}, Recompute::none);
  CHECK(stack.last_edge_experts.count() == stack.experts.count());
  CHECK(stack.last_edge_experts.end == stack.last_edge.parameters);
  CHECK(stack.parameters() == model.parameters());
  CHECK(stack.stage(12, 12, false, true).expert_parameters == 13 * stack.experts.count());
  CHECK(stack.stage(0, 12, true, false).expert_parameters == 12 * stack.experts.count());
  // Its forward is a layer's, a product of [2H, H] and the logits once more.
  CHECK(stack.last_edge.forward > without.last_edge.forward + without.layer.forward);
  const ParameterBlocks blocks = stack.blocks();
  std::int64_t of_experts = 0;
  const std::vector<ParameterRange> all{{0, blocks.count()}};
  for (const ParameterRange& range : blocks.part_of(all, true)) of_experts += range.count();
  CHECK(of_experts == 25 * stack.experts.count());
  CHECK(of_experts == model.expert_parameters());
}

TEST_CASE("it is written as it was read") {
  for (const std::string& flags : {mtp, experts + mtp, mtp + "--pipeline-model-parallel-size 2 ",
                                   mtp + "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*13|t*11mL' "}) {
    CAPTURE(flags);
    const FrameworkJob read = job(flags);
    CHECK(megatron_cannot(read) == std::vector<std::string>{});
    const std::string text = megatron_text(read, {});
    CHECK(has(text, "--mtp-num-layers 1"));
    CHECK(megatron_text(megatron_job(text, "written", 16), {}) == text);
  }
  CHECK(has(megatron_text(job(mtp + "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*13|t*11mL' "), {}),
            "mL"));
  CHECK_THROWS_WITH_AS(job("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*13|t*11mL' "),
                       doctest::Contains("are not modelled"), InputError);
  CHECK(has(join(torchtitan_cannot(job(mtp)), "; "), "further tokens are written for Megatron-LM only"));
}

}  // namespace megatron_mtp_test
