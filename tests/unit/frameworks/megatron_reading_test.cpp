// Tests of frameworks/detail/megatron_reading.hpp: what Megatron-LM turns on by itself, and on what
// it stops.
// Not: what flags mean otherwise (megatron_test.cpp).
#include "tawpipe/frameworks/detail/megatron_reading.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/clusters.hpp"
#include "support/text.hpp"
#include "tawpipe/frameworks/megatron.hpp"

using namespace tawpipe;
using support::has;

namespace megatron_reading_test {

namespace {

const std::string model =
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 --swiglu --vocab-size 32000 "
    "--untie-embeddings-and-output-weights --seq-length 4096 --micro-batch-size 1 --bf16 ";
const std::string no_dropout = "--attention-dropout 0 --hidden-dropout 0 ";
const std::string full = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 ";

FrameworkJob job(const std::string& flags, const std::string& launch = "") {
  return megatron_job(launch + " p.py " + model + flags, "run.sh", 32);
}
std::string refusal(const std::string& flags, const std::string& launch = "") {
  try {
    job(flags, launch);
    return {};
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("torch's FSDP2 is without gradient accumulation fusion") {
  CHECK(refusal("--use-torch-fsdp2") ==
        "run.sh, line 1: --use-torch-fsdp2: needs --no-gradient-accumulation-fusion, without which Megatron-LM stops");
  FrameworkJob kept = job("--use-torch-fsdp2 --no-gradient-accumulation-fusion --torch-fsdp2-no-reshard-after-forward");
  CHECK(kept.code == LayerCode::megatron_unfused);
  REQUIRE(megatron_cannot(kept).empty());
  CHECK(has(megatron_text(kept, {}), "--use-torch-fsdp2\n"));
  CHECK(has(megatron_text(kept, {}), "--no-gradient-accumulation-fusion\n"));
  kept.model->code = LayerCode::megatron;
  REQUIRE(megatron_cannot(kept).size() == 1);
  CHECK(has(megatron_cannot(kept)[0], "--layer-code megatron-unfused"));
}

TEST_CASE("Megatron-FSDP overlaps gathers and sums by itself") {
  const std::string fsdp = "--use-megatron-fsdp --use-distributed-optimizer --data-parallel-sharding-strategy ";
  const FrameworkJob weights = job(fsdp + "optim_grads_params");
  CHECK(weights.choice.options.at("prefetch") == "1");
  CHECK(weights.overlap_gradients);
  CHECK(weights.overlap_gathers);
  CHECK(job(fsdp + "optim_grads").overlap_gradients);
  CHECK_FALSE(job(fsdp + "optim_grads").overlap_gathers);
  CHECK_FALSE(job(fsdp + "optim").overlap_gradients);
}

TEST_CASE("CUDA graphs of layers are without full recomputation, and any without offloaded activations") {
  const std::string layers = "--cuda-graph-impl local ";
  CHECK(has(refusal(layers + full), "--recompute-granularity: full is not with CUDA graphs"));
  CHECK(has(refusal("--external-cuda-graph --cuda-graph-scope attn " + full), "full is not with CUDA graphs"));
  CHECK(job("--cuda-graph-impl full_iteration " + full).graphs == CudaGraphs::iteration);
  CHECK(job(layers + "--recompute-granularity selective").graphs == CudaGraphs::layers);
  CHECK(has(refusal(layers + "--cpu-offloading-num-layers 2"), "--cpu-offloading-num-layers: not with CUDA graphs"));
  FrameworkJob both = job(full);
  REQUIRE(megatron_cannot(both).empty());
  both.graphs = CudaGraphs::layers;
  REQUIRE(megatron_cannot(both).size() == 1);
  CHECK(has(megatron_cannot(both)[0], "--cuda-graphs iteration"));
  both.graphs = CudaGraphs::iteration;
  CHECK(megatron_cannot(both).empty());
}

TEST_CASE("dropout, which is on unless set to 0, is noted once, and written as 0") {
  CHECK(job(no_dropout).notes.empty());
  REQUIRE(job("").notes.size() == 1);
  CHECK(job("").notes[0] ==
        "run.sh: --hidden-dropout: dropout is 0.1 in attention and 0.1 after it, 0.1 where not set; simulated without");
  CHECK(has(job("--hidden-dropout 0.0 --attention-dropout 0.2").notes.at(0), "line 1: --attention-dropout: dropout is 0.2"));
  CHECK(has(megatron_text(job(""), {}), "--attention-dropout 0\n  --hidden-dropout 0\n"));
}

TEST_CASE("attention that is not fused") {
  const Problem base{.cluster = support::cluster(32, 4), .model = models::named("llama-2-7b"), .sequence = 4096};
  for (const char* flags : {"--transformer-impl local", "--use-legacy-models", "--attention-backend unfused",
                            "--attention-backend local --spec local"}) {
    CAPTURE(flags);
    const FrameworkJob unfused = job(flags);
    CHECK_FALSE(unfused.fused_attention);
    CHECK_FALSE(unfused.model->fused_attention);
    CHECK(unfused.notes.empty());
    CHECK(has(megatron_text(unfused, {}), "--attention-backend unfused\n"));
    CHECK_FALSE(has(megatron_text(unfused, {}), "dropout"));  // which is simulated with it, and on by default
    CHECK(has(job(no_dropout + flags).notes.at(0), "dropout is 0; simulated with it"));
    CHECK_FALSE(problem_of(unfused, base).model->fused_attention);
  }
  for (const char* flags :
       {"", "--attention-backend flash", "--transformer-impl transformer_engine", "--use-legacy-models --use-flash-attn"}) {
    CAPTURE(flags);
    CHECK(job(flags).model->fused_attention);
  }
  CHECK(has(refusal("--attention-backend flush"), "did you mean 'flash'?"));
}

TEST_CASE("the processes of torchrun are the cluster's devices") {
  CHECK(refusal("", "torchrun --nproc_per_node 8 --nnodes 4").empty());
  CHECK(refusal("", "torchrun --nproc_per_node 8 --nnodes $N").empty());
  CHECK(refusal("", "\ntorchrun --nproc_per_node 8 --nnodes 16") ==
        "run.sh, line 2: --nnodes x --nproc_per_node is 128 processes, and the cluster has 32 devices");
}

TEST_CASE("what Megatron-LM stops on is refused with the reason") {
  CHECK(has(refusal("--recompute-granularity full --recompute-num-layers 1"), "full needs --recompute-method uniform or block"));
  CHECK(has(refusal("--recompute-granularity full --recompute-method block"), "full needs --recompute-num-layers"));
  CHECK(has(refusal("--recompute-activations --recompute-num-layers 1"), "--recompute-num-layers: not with selective"));
  CHECK(has(refusal("--recompute-granularity selective --recompute-method block"), "--recompute-method: not with selective"));
  CHECK(has(refusal("--max-position-embeddings 2048"), "2048 is less than the 4096 of --seq-length"));
  CHECK(refusal("--max-position-embeddings 4096").empty());
}

}  // namespace megatron_reading_test
