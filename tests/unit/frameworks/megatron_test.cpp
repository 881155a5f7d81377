// Tests of frameworks/megatron.hpp: what flags mean, what is refused, what is only noted.
// Not: scripts (shell_script_test.cpp), nor that flags of plans parse back
// (properties/frameworks_test.cpp).
#include "tawpipe/frameworks/megatron.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "tawpipe/frameworks/torchtitan.hpp"

using namespace tawpipe;

namespace megatron_test {

namespace {

const std::string model =
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008 --swiglu --vocab-size 32000 "
    "--untie-embeddings-and-output-weights --seq-length 4096 --micro-batch-size 1 --attention-dropout 0 --hidden-dropout 0.0 ";

FrameworkJob job(const std::string& flags, int devices = 32, bool strict = false) {
  return megatron_job("p.py " + model + flags, "run.sh", devices, {.strict = strict});
}
std::string refusal(const std::string& flags, int devices = 32) {
  try {
    job(flags, devices, true);
    return {};
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("axes, schedule and batch") {
  const FrameworkJob plain = job("--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --global-batch-size 64 --bf16");
  CHECK(plain.mesh.tensor == 4);
  CHECK(plain.mesh.pipeline == 2);
  CHECK(plain.mesh.data == 4);
  CHECK(mesh_order_text(plain.mesh.order) == "tcds");
  CHECK(plain.choice.schedule == "1f1b");
  CHECK(plain.microbatches() == 16);
  CHECK_FALSE(plain.shards());
  CHECK_FALSE(plain.overlap_gradients);
  CHECK_FALSE(plain.sequence_parallel);
  CHECK(plain.recompute == Recompute::none);
  CHECK(plain.gradient_bytes == 4);
  CHECK(plain.context_exchange == ContextExchange::ring);
  REQUIRE(plain.model);
  CHECK(plain.model->name == "llama-2-7b");
  CHECK(plain.model->dtype == Dtype::bf16);
  CHECK(plain.model->fused_swiglu);
  CHECK_FALSE(job("--no-bias-swiglu-fusion").model->fused_swiglu);
  const FrameworkJob unfused = job("--no-gradient-accumulation-fusion --seq-length 4096");
  CHECK(unfused.model->code == LayerCode::megatron_unfused);
  CHECK(unfused.notes.empty());
  CHECK(megatron_text(unfused, {}).find("--no-gradient-accumulation-fusion\n") != std::string::npos);
  CHECK(megatron_text(plain, {}).find("accumulation") == std::string::npos);
  // Megatron-LM pads the vocabulary, by what the code says or here.
  CHECK(job("--vocab-size 50257").model->vocab == 50257);
  CHECK(job("--vocab-size 50257 --no-gradient-accumulation-fusion").model->vocab == 50304);
  CHECK(job("--padded-vocab-size 50260 --no-gradient-accumulation-fusion").model->vocab == 50260);

  const FrameworkJob looped =
      job("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2 --use-distributed-optimizer "
          "--overlap-grad-reduce --overlap-param-gather --use-tp-pp-dp-mapping --fp16 --recompute-activations "
          "--ddp-bucket-size 1000000");
  CHECK(looped.choice.schedule == "interleaved-1f1b");
  CHECK(looped.chunks() == 4);
  CHECK(looped.sharding == StateSharding::optimizer);
  CHECK(looped.overlap_gathers);
  CHECK(looped.bucket == 1'000'000);
  CHECK(plain.bucket == automatic_bucket);
  CHECK(mesh_order_text(looped.mesh.order) == "tcsd");
  CHECK(looped.global_batch == 8);
  CHECK(looped.gradient_bytes == 2);
  CHECK(looped.recompute == Recompute::selective);
  CHECK(looped.recompute_parts == RecomputeParts{.core_attn = true});
  CHECK(job("--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 8").chunks() == 8);
  CHECK(job("").choice.schedule == "ddp");
}

TEST_CASE("sharded weights, and numbers in 8 bits") {
  const FrameworkJob fsdp =
      job("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --use-distributed-optimizer "
          "--overlap-grad-reduce --overlap-param-gather --ckpt-format fsdp_dtensor --bf16 --fp8-format hybrid --fp8-recipe "
          "blockwise");
  CHECK(fsdp.choice.schedule == "fsdp");
  CHECK(fsdp.choice.options.at("prefetch") == "1");
  CHECK(fsdp.mesh.pipeline == 32);
  CHECK(fsdp.batch_parts() == 32);
  CHECK(fsdp.model->products == ProductFormat::fp8_block);
  CHECK(job("--use-torch-fsdp2 --no-gradient-accumulation-fusion --torch-fsdp2-no-reshard-after-forward")
            .choice.options.at("reshard") == "off");
  CHECK(job("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads").choice.schedule == "zero2");
}

TEST_CASE("weights gathered in 8 bits") {
  const std::string gathers = "--bf16 --use-distributed-optimizer --fp8-param-gather ";
  const FrameworkJob narrow = job(gathers + "--fp8-format hybrid --fp8-recipe tensorwise");
  CHECK(narrow.model->narrow_gathers);
  CHECK(narrow.notes.empty());
  const FrameworkJob blocks = job(gathers + "--fp8-format e4m3 --fp8-recipe blockwise");
  CHECK_FALSE(blocks.model->narrow_gathers);
  REQUIRE(blocks.notes.size() == 1);
  CHECK(blocks.notes[0].find("gathered in 16 bits, as products are in fp8-block") != std::string::npos);
  CHECK(refusal(gathers).find("needs --fp8-format") != std::string::npos);
  CHECK(refusal("--bf16 --fp8-format hybrid --fp8-param-gather").find("needs --use-distributed-optimizer") != std::string::npos);
}

TEST_CASE("a wrong flag is named with its line and what would be right") {
  CHECK(refusal("\\\n --tensor-modl-parallel-size 4") ==
        "run.sh, line 2: unknown Megatron-LM flag '--tensor-modl-parallel-size'; did you mean '--tensor-model-parallel-size'?");
  CHECK(refusal("--tensor-model-parallel-size four") ==
        "run.sh, line 1: --tensor-model-parallel-size: expected a whole number, not 'four'");
  CHECK(refusal("--tensor-model-parallel-size").find("expected a whole number, not nothing") != std::string::npos);
  CHECK(refusal("--bf16 true").find("--bf16: takes no value, but has 'true'") != std::string::npos);
  CHECK(refusal("--recompute-granularity ful").find("did you mean 'full'?") != std::string::npos);
  CHECK(
      refusal("--tensor-model-parallel-size 5").find("tensor 5 x pipeline 1 x context 1 = 5 does not divide the cluster's 32") !=
      std::string::npos);
  CHECK(refusal("--tensor-model-parallel-size 0").find("not a number of devices from 1 to 32") != std::string::npos);
  CHECK(refusal("--pipeline-model-parallel-size 3", 3).find("32 layers cannot be shared equally by 3 stages") !=
        std::string::npos);
  CHECK(refusal("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3").find("3 does not divide the 8") !=
        std::string::npos);
  CHECK(refusal("--global-batch-size 33").find("--global-batch-size: 33 sequences are not a multiple of 1 a microbatch x 32") !=
        std::string::npos);
  CHECK(refusal("--overlap-param-gather").find("needs --use-distributed-optimizer") != std::string::npos);
  for (const char* old : {"--checkpoint-activations", "--activations-checkpoint-method uniform --checkpoint-num-layers 1",
                          "--deepspeed-activation-checkpointing"}) {
    const FrameworkJob full = job(old);
    CHECK(full.recompute == Recompute::full);
    CHECK(full.notes.back().find("an old flag, read as --recompute-granularity full") != std::string::npos);
  }
  CHECK(job("--recompute-method uniform").recompute == Recompute::none);  // which is nothing without granularity
  CHECK(refusal("--bf16 --fp16").find("--fp16: not with --bf16") != std::string::npos);
}

TEST_CASE("what is read but not modelled is noted, what says nothing of a layout is passed over") {
  const FrameworkJob noted =
      job("--lr 3e-4 --data-path a b --moe-router-topk 2 --num-experts 0 --rampup-batch-size 8 8 100 \\\n"
          "--recompute-granularity full --recompute-method block --recompute-num-layers 4");
  REQUIRE(noted.notes.size() == 1);
  CHECK(noted.notes[0] == "run.sh, line 1: --rampup-batch-size: simulated at the full --global-batch-size");
  CHECK(noted.recompute_layers == 4);
  CHECK(noted.recompute == Recompute::full);
  CHECK(job("--expert-model-parallel-size 1").notes.empty());
}

TEST_CASE("flags that are passed over are words by themselves") {
  const std::string flags = concat(detail::megatron_skipped, " ", detail::megatron_skipped_switches);
  for (const std::string_view flag : split(flags, ' ')) {
    CAPTURE(flag);
    CHECK(flag.rfind("--") == 0);
  }
}

TEST_CASE("CUDA graphs of layers, of an iteration, and of parts of a layer") {
  CHECK(job("").graphs == CudaGraphs::none);
  for (const char* flags : {"--cuda-graph-impl local", "--cuda-graph-impl transformer_engine --cuda-graph-scope full",
                            "--enable-cuda-graph --te-rng-tracker", "--external-cuda-graph"}) {
    CAPTURE(flags);
    CHECK(job(flags).graphs == CudaGraphs::layers);
  }
  CHECK(job("--cuda-graph-impl local --cuda-graph-scope full_iteration").graphs == CudaGraphs::iteration);
  CHECK(job("--cuda-graph-impl full_iteration").graphs == CudaGraphs::iteration);
  CHECK(job("--cuda-graph-impl none --cuda-graph-scope full_iteration").graphs == CudaGraphs::none);
  const FrameworkJob parts = job("--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router");
  CHECK(parts.graphs == CudaGraphs::none);
  REQUIRE(parts.notes.size() == 1);
  CHECK(parts.notes[0] == "run.sh, line 1: --cuda-graph-scope: simulated without CUDA graphs of parts of a layer");
  CHECK(refusal("--cuda-graph-impl all").find("--cuda-graph-impl") != std::string::npos);

  FrameworkJob whole =
      job("--bf16 --cuda-graph-impl full_iteration --normalization RMSNorm --disable-bias-linear "
          "--position-embedding-type rope");
  REQUIRE(whole.model);
  const std::string text = megatron_text(whole, {});
  for (const char* flag : {"--cuda-graph-impl local", "--cuda-graph-scope full_iteration", "--te-rng-tracker",
                           "--no-check-for-nan-in-loss-and-grad"}) {
    CAPTURE(flag);
    CHECK(text.find(flag) != std::string::npos);
  }
  CHECK(torchtitan_cannot(whole).back().find("CUDA graphs") != std::string::npos);
}

TEST_CASE("stages of given numbers of layers") {
  const std::string four = "--pipeline-model-parallel-size 4 --bf16 ";
  const auto layers = [&](const std::string& flags) { return name(job(four + flags).stage_cut); };
  CHECK(layers("") == "even");
  const std::string layout = "--pipeline-model-parallel-layout ";
  CHECK(layers(layout + "'Et*7|t*9|t*8|t*8L'") == "7,9,8,8");
  const FrameworkJob chunks = job(four + layout + "'E|(t*5|)*6,t*2L'");
  CHECK(chunks.choice.schedule == "interleaved-1f1b");
  CHECK(chunks.chunks() == 2);
  CHECK(name(chunks.stage_cut) == "0,5,5,5,5,5,5,2");
  // Megatron-LM: what the ends leave is shared equally, and by chunks in each rank.
  CHECK(layers("--decoder-first-pipeline-num-layers 7 --decoder-last-pipeline-num-layers 5") == "7,10,10,5");
  CHECK(layers("--decoder-last-pipeline-num-layers 2") == "10,10,10,2");
  const std::string uneven = "--decoder-first-pipeline-num-layers 8 --decoder-last-pipeline-num-layers 4 ";
  CHECK(layers(uneven + "--num-virtual-stages-per-pipeline-rank 2") == "4,5,5,2,4,5,5,2");
  const FrameworkJob counted = megatron_job(
      "p.py --num-layers 31 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000 --seq-length 4096 --micro-batch-size "
      "1 "
      "--pipeline-model-parallel-size 4 --account-for-loss-in-pipeline-split",
      "run.sh", 4);
  CHECK(counted.stage_cut == StageCut{.head = 1});
  CHECK_FALSE(counted.edges_count_as_layers);

  CHECK(refusal(four + layout + "'Et*7|t*9|t*8|t*7L'").find("31 layers together, and the model has 32") != std::string::npos);
  CHECK(refusal(four + layout + "'Et*16|t*8|t*8L'").find("3 stages are no multiple of 4") != std::string::npos);
  CHECK(refusal(four + layout + "'t*32L'").find("the first is E") != std::string::npos);
  CHECK(refusal(four + layout + "'Et*32L' --decoder-first-pipeline-num-layers 7").find("not with --decoder-first") !=
        std::string::npos);
  CHECK(refusal(four + "--decoder-first-pipeline-num-layers 7").find("the 25 layers left are not shared equally by 3 stages") !=
        std::string::npos);
  CHECK(refusal(four + uneven + "--num-virtual-stages-per-pipeline-rank 3").find("the 8 layers of a rank") != std::string::npos);
  CHECK(refusal(four + "--decoder-first-pipeline-num-layers 2147483647 --decoder-last-pipeline-num-layers 2147483647")
            .find("2147483647 is not a number of layers from 0 to 32") != std::string::npos);
  CHECK(refusal("--decoder-first-pipeline-num-layers 7").find("needs --pipeline-model-parallel-size") != std::string::npos);
}

TEST_CASE("context parallelism in two levels") {
  const std::string two = "--context-parallel-size 8 --cp-comm-type a2a+p2p --seq-length 4096 --bf16 ";
  const FrameworkJob levels = job(two + "--hierarchical-context-parallel-sizes 4 2");
  CHECK(levels.context_exchange == ContextExchange::two_level);
  CHECK(levels.context_inner == 4);
  CHECK(megatron_text(levels, {}).find("--hierarchical-context-parallel-sizes 4 2\n") != std::string::npos);
  CHECK(megatron_text(levels, {}).find("--cp-comm-type a2a+p2p\n") != std::string::npos);
  CHECK(torchtitan_cannot(levels).size() > 0);
  CHECK(refusal(two).find("a2a+p2p needs --hierarchical-context-parallel-sizes") != std::string::npos);
  for (const char* sizes : {"4 4", "8", "2 2 2", "0 8", "x 8", "-4 -2"}) {
    CAPTURE(sizes);
    CHECK(refusal(two + "--hierarchical-context-parallel-sizes " + sizes).find("product is the 8") != std::string::npos);
  }
  CHECK(refusal("--context-parallel-size 8 --hierarchical-context-parallel-sizes 4 2").find("a2a+p2p") != std::string::npos);
}

TEST_CASE("parts of a layer that are recomputed") {
  const FrameworkJob parts = job("--recompute-granularity selective --recompute-modules mlp layernorm --bf16 --seq-length 4096");
  CHECK(parts.recompute == Recompute::selective);
  CHECK(parts.recompute_parts == RecomputeParts{.mlp = true, .layernorm = true});
  CHECK(parts.notes.empty());
  const FrameworkJob unnamed = job("--recompute-granularity selective --bf16 --seq-length 4096");
  CHECK(unnamed.recompute == Recompute::selective);
  CHECK(unnamed.recompute_parts == RecomputeParts{.core_attn = true});
  CHECK(megatron_text(unnamed, {}).find("--recompute-modules core_attn\n") != std::string::npos);
  FrameworkJob own = unnamed;
  own.recompute_parts = {};
  REQUIRE(megatron_cannot(own).size() == 1);
  CHECK(megatron_cannot(own)[0].find("--recompute selective:core_attn") != std::string::npos);
  own.model->fused_attention = false;
  CHECK(megatron_cannot(own).empty());
  CHECK(job("--recompute-activations --recompute-modules moe_act").recompute == Recompute::none);
  CHECK(job("--recompute-modules mlp").recompute == Recompute::none);
  const FrameworkJob mixture = job("--recompute-activations --recompute-modules core_attn moe_act");
  CHECK(mixture.recompute_parts == RecomputeParts{.core_attn = true});
  REQUIRE(mixture.notes.size() == 1);
  CHECK(mixture.notes[0].find("simulated without moe_act") != std::string::npos);
  CHECK(refusal("--recompute-activations --recompute-modules mpl").find("did you mean 'mlp'?") != std::string::npos);
  FrameworkJob written = parts;
  REQUIRE(megatron_cannot(written).empty());
  CHECK(megatron_text(written, {}).find("--recompute-modules mlp layernorm\n") != std::string::npos);
  written.recompute_parts.activation = true;
  REQUIRE(megatron_cannot(written).size() == 1);
  CHECK(torchtitan_cannot(written).size() > 1);
}

TEST_CASE("the optimizer's states and the loss in other numbers") {
  const FrameworkJob narrow =
      job("--bf16 --use-distributed-optimizer --use-precision-aware-optimizer --main-params-dtype fp16 --exp-avg-dtype bf16 "
          "--exp-avg-sq-dtype bf16 --cross-entropy-loss-fusion --cross-entropy-fusion-impl te --seq-length 4096");
  CHECK(narrow.optimizer_bytes == 2 + 2 + 2);
  CHECK(narrow.notes.empty());
  CHECK_FALSE(narrow.model->loss_in_float32);
  CHECK(megatron_cannot(narrow).empty());
  const std::string text = megatron_text(narrow, {});
  CHECK(text.find("--main-params-dtype fp16\n") != std::string::npos);
  CHECK(text.find("--exp-avg-sq-dtype bf16\n") != std::string::npos);
  CHECK(text.find("--cross-entropy-fusion-impl te\n") != std::string::npos);
  CHECK(job("--bf16").optimizer_bytes == 0);
  CHECK(job("--cross-entropy-loss-fusion").model->loss_in_float32);
  CHECK(job("--bf16 --use-distributed-optimizer --use-precision-aware-optimizer --exp-avg-dtype fp8").optimizer_bytes ==
        4 + 1 + 4);
  CHECK(refusal("--exp-avg-dtype bf16").find("--exp-avg-dtype: needs --use-precision-aware-optimizer") != std::string::npos);
  FrameworkJob whole = narrow;
  whole.sharding = StateSharding::none;
  CHECK(megatron_cannot(whole).size() == 1);
  CHECK(parts_of_optimizer(12, Dtype::bf16)->master == 4);
  CHECK(parts_of_optimizer(8, Dtype::bf16)->moment == 2);
  CHECK(parts_of_optimizer(8, Dtype::f32)->moment == 4);
  CHECK_FALSE(parts_of_optimizer(9, Dtype::bf16));
}

TEST_CASE("a model that is not all said is named by what it lacks") {
  const FrameworkJob part = megatron_job("p.py --num-layers 4 --micro-batch-size 2 --swiglu", "run.sh", 4);
  CHECK_FALSE(part.model);
  CHECK(part.model_lacks == "--hidden-size, --num-attention-heads, --vocab-size");
  CHECK(said_of_model(part) == "does not say --hidden-size, --num-attention-heads, --vocab-size; add them to its command");
  const auto vocabulary = [](const std::string& flags, const GivenJob& given = {}) {
    const FrameworkJob job = megatron_job(
        "p.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 1 "
        "--attention-dropout 0 --hidden-dropout 0 " +
            flags,
        "run.sh", 4, given);
    return concat(job.model ? job.model->vocab : 0, " ", join(job.notes, ""));
  };
  CHECK(vocabulary("--tokenizer-type Llama2Tokenizer --tokenizer-model /t.model") ==
        "32000 run.sh, line 1: --tokenizer-type: a vocabulary of 32000 tokens is assumed; --vocab-size says another");
  CHECK(vocabulary("--tokenizer-type HuggingFaceTokenizer --tokenizer-model /m/Qwen2.5-7B").starts_with("151936 "));
  CHECK(vocabulary("--vocab-file v.json --merge-file m.txt").starts_with("50257 run.sh, line 1: --merge-file"));
  CHECK(vocabulary("--tokenizer-type NullTokenizer").find("128256 tokens are assumed; --vocab-size says how many") !=
        std::string::npos);
  CHECK(vocabulary("--tokenizer-type Llama2Tokenizer", {.vocab = 99}) == "99 ");
  CHECK(vocabulary("--tokenizer-type Llama2Tokenizer", {.model = true}) == "0 ");
  CHECK_THROWS_WITH_AS(vocabulary("--vocab-size 100", {.vocab = 99}),
                       "run.sh, line 1: --vocab-size: is 100, and 99 tokens are asked for", InputError);
  CHECK_THROWS_WITH_AS(megatron_model("p.py --num-layers 4 --hidden-size 64 --vocab-size 9", "run.sh"),
                       "run.sh does not say --num-attention-heads; add them to its command", InputError);
  const FrameworkJob gpt = megatron_job(
      "p.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --vocab-size 100 "
      "--micro-batch-size 2 --group-query-attention --num-query-groups 2",
      "run.sh", 4);
  REQUIRE(gpt.model);
  CHECK(gpt.model->intermediate == 256);
  CHECK(gpt.model->kv_heads == 2);
  CHECK(gpt.model->tied);
  CHECK_FALSE(gpt.model->gated);
}

TEST_CASE("what lies in host memory") {
  const std::string usual = "--bf16 --use-distributed-optimizer ";
  const FrameworkJob layers = job(usual + "--cpu-offloading-num-layers 5");
  CHECK(layers.offload == Offload{.activations = true, .layers = 5});
  CHECK(layers.notes.empty());
  REQUIRE(megatron_cannot(layers).empty());
  CHECK(megatron_text(layers, {}).find("--cpu-offloading-num-layers 5\n") != std::string::npos);
  CHECK_FALSE(job(usual + "--cpu-offloading-num-layers 0").offload.any());
  CHECK(job(usual + "--chunked-optimizer-state-offload").offload == Offload{.optimizer = true});
  CHECK(refusal(usual + "--cpu-offloading-num-layers 32").find("fewer layers than --num-layers") != std::string::npos);
  CHECK(refusal(usual + "--cpu-offloading-num-layers 5 --pipeline-model-parallel-size 2").find("not with --pipeline") !=
        std::string::npos);
  CHECK(refusal(usual + "--cpu-offloading-num-layers 5 --recompute-activations").find("not with recomputation") !=
        std::string::npos);
  FrameworkJob all = layers;
  all.offload.layers = 0;
  REQUIRE(megatron_cannot(all).size() == 1);
  CHECK(megatron_cannot(all)[0].find("--offload activations:LAYERS") != std::string::npos);
}

}  // namespace megatron_test
