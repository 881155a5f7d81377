// Tests of frameworks/detail/megatron_experts.hpp: mixtures of experts in Megatron-LM's flags, read
// and written.
// Not: other flags (megatron_test.cpp).
#include "tawpipe/frameworks/detail/megatron_experts.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/text.hpp"
#include "tawpipe/frameworks/frameworks.hpp"

using namespace tawpipe;
using support::has;

namespace megatron_experts_test {

namespace {

const std::string base =
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
    "--ffn-hidden-size 14336 --swiglu --vocab-size 32000 --untie-embeddings-and-output-weights --seq-length 4096 "
    "--micro-batch-size 1 --attention-dropout 0 --hidden-dropout 0 --normalization RMSNorm --disable-bias-linear "
    "--position-embedding-type rope ";
const std::string experts = "--num-experts 8 --moe-grouped-gemm ";
const std::string mixture = experts + "--bf16 ";
const std::string shared_out = mixture + "--moe-token-dispatcher-type alltoall ";

FrameworkJob job(const std::string& flags, int devices = 32) { return megatron_job("p.py " + base + flags, "run.sh", devices); }
std::string refusal(const std::string& flags, int devices = 32) {
  try {
    job(flags, devices);
    return {};
  } catch (const InputError& error) {
    return error.what();
  }
}
/// The mesh's sizes: "t1 c1 e1 p1 d32".
std::string sizes(const Mesh& mesh) {
  return concat("t", mesh.tensor, " c", mesh.context, " e", mesh.expert, " p", mesh.pipeline, " d", mesh.data);
}
/// Writes the job, reads it back, and compares the two.
void check_written(const FrameworkJob& written, int devices = 32) {
  CHECK(megatron_cannot(written) == std::vector<std::string>{});
  const std::string text = megatron_text(written, {});
  CAPTURE(text);
  const FrameworkJob back = megatron_job(text, "written", devices);
  CHECK(back.notes.empty());
  CHECK(back.mesh == written.mesh);
  CHECK(back.choice.schedule == written.choice.schedule);
  CHECK(back.choice.options == written.choice.options);
  CHECK(back.global_batch == written.global_batch);
  CHECK(back.recompute_parts == written.recompute_parts);
  REQUIRE(back.model);
  CHECK(detail::same_sizes(*back.model, *written.model));
  CHECK(megatron_text(back, {}) == text);
}

}  // namespace

TEST_CASE("a model with experts, and Megatron-LM's defaults of it") {
  const FrameworkJob plain = job(mixture);
  REQUIRE(plain.model);
  CHECK(plain.model->experts == 8);
  CHECK(plain.model->experts_per_token == 2);
  CHECK(plain.model->intermediate == 14336);
  CHECK(plain.model->shared_width == 0);
  CHECK(plain.model->name == "mixtral-8x7b");
  CHECK(plain.notes.empty());
  CHECK(sizes(plain.mesh) == "t1 c1 e1 p1 d32");
  CHECK_FALSE(plain.mesh.whole_experts);
  const FrameworkJob fine =
      job("--bf16 --num-experts 60 --moe-router-topk 4 --moe-ffn-hidden-size 1408 --moe-shared-expert-intermediate-size 5632 "
          "--moe-grouped-gemm --moe-layer-freq '([1]*32)' --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2 "
          "--moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-permute-fusion --moe-z-loss-coeff 1e-3");
  CHECK(fine.notes.empty());
  CHECK(fine.model->name == "decoder-32x4096-60-experts");
  CHECK(fine.model->experts == 60);
  CHECK(fine.model->experts_per_token == 4);
  CHECK(fine.model->intermediate == 1408);
  CHECK(fine.model->shared_width == 5632);
  check_written(fine);
  CHECK(megatron_model(base + mixture, "run.sh").experts == 8);
  const FrameworkJob grouped = job(mixture + "--moe-router-num-groups 4 --moe-router-group-topk 2");
  CHECK((grouped.model->expert_groups == 4 && grouped.model->groups_per_token == 2));
  CHECK(grouped.notes.empty());
  check_written(grouped);
  CHECK(has(refusal(mixture + "--moe-router-num-groups 3 --moe-router-group-topk 1"), "3 groups do not divide the 8 experts"));
  // Without experts their flags say nothing.
  const FrameworkJob dense =
      job("--moe-router-topk 2 --moe-layer-freq 2 --moe-expert-capacity-factor 1.0 --expert-tensor-parallel-size 3 "
          "--moe-token-dispatcher-type flex --delay-wgrad-compute --num-experts 0 --expert-model-parallel-size 1");
  CHECK_FALSE(dense.has_experts());
  CHECK(dense.notes.empty());
}

TEST_CASE("what of experts is not modelled is refused") {
  CHECK(refusal("--bf16 --num-experts 2 --moe-router-topk 3") ==
        "run.sh, line 1: --moe-router-topk: 3 is not a number of experts from 1 to the 2 of --num-experts");
  CHECK(has(refusal("--num-experts -1"), "--num-experts: -1 must be at most"));
  CHECK(has(refusal("--num-experts 4000000"), "--num-experts: model 'decoder-32x4096-4000000-experts'"));
  CHECK(refusal(mixture + "--moe-expert-capacity-factor -1").empty());
  CHECK(refusal(mixture + "--moe-expert-capacity-factor 1.0 --moe-pad-expert-input-to-capacity").empty());
  CHECK(has(refusal(mixture + "--moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity"),
            "--moe-pad-expert-input-to-capacity: rows of experts padded to '1.25' of their mean are not modelled"));
  CHECK(has(refusal(mixture + "--moe-pad-expert-input-to-capacity"), "needs a number as --moe-expert-capacity-factor"));
  CHECK(has(refusal(mixture + "--moe-token-dispatcher-type alltoal"), "did you mean 'alltoall'?"));
  CHECK(has(refusal(mixture + "--moe-extended-tp"), "it is --expert-tensor-parallel-size now"));
  CHECK(
      has(refusal(mixture + "--transformer-impl local"), "--num-experts: layers of experts are known with fused attention only"));
  CHECK(has(refusal(mixture + "--use-legacy-models --use-flash-attn"), "--use-legacy-models are not modelled"));
  CHECK(has(refusal(mixture + "--tensor-model-parallel-size 2"), "experts need --sequence-parallel"));
}

TEST_CASE("first layers without experts") {
  const auto with = [](const std::string& frequency) { return mixture + "--moe-layer-freq '" + frequency + "'"; };
  for (const char* all : {"1", " 1", "[1]*32", "([1]*3+[1]*1)*8", "[0]*0+[1]*32", " ([0] * 0+[1]*32)", "4*(2*[1,1,1,1])"}) {
    CAPTURE(all);
    CHECK(job(with(all)).model->dense_layers == 0);
    CHECK(job(with(all)).model->dense_width == 0);
  }
  for (const char* three : {"[0]*3+[1]*29", "([0,0,0]+[1]*29)", "[0]+[0]*2+[1]+([1]*4)*7"}) {
    CAPTURE(three);
    CHECK(job(with(three)).model->dense_layers == 3);
    CHECK(job(with(three)).model->dense_width == 14336);
  }
  for (const char* mixed : {"", "0", "2", "32", "[0]*32", "([1]*3+[0]*1)*8", "[1]*31+[0]", "[0]*30+[1]+[2]", "[", "[]", "[1",
                            "one", "[1]+[0]*x", "[1]*32)", "[1]*[1]", "2*3", "[1]*4000000000", "[1]*4000+[1]*4000", "1,1"}) {
    CAPTURE(mixed);
    CHECK(has(refusal(with(mixed)), "--moe-layer-freq: "));
  }
  CHECK(has(refusal(with(std::string(100'000, '(') + "[1]")), "--moe-layer-freq: layers with and without experts"));
  CHECK(refusal(with("2")) ==
        "run.sh, line 1: --moe-layer-freq: layers with and without experts in one model are modelled where those without come "
        "first; the whole value is 1, or a list of zeros and then ones such as ([0]*1+[1]*31), not '2'");
  CHECK(refusal(with("[0]+[1]*30")) == "run.sh, line 1: --moe-layer-freq: the list has 31 layers, and the model has 32");

  const FrameworkJob dense = job(with("[0]*3+[1]*29") + " --moe-ffn-hidden-size 2048");
  CHECK(dense.model->intermediate == 2048);
  CHECK(dense.model->dense_width == 14336);
  CHECK(dense.notes.empty());
  check_written(dense);
  CHECK(has(megatron_text(dense, {}), "--moe-layer-freq '([0]*3+[1]*29)'\n"));
  CHECK(has(megatron_text(dense, {}), "--ffn-hidden-size 14336\n"));
  CHECK(has(megatron_text(dense, {}), "--moe-ffn-hidden-size 2048\n"));
}

TEST_CASE("recomputed modules of first layers without experts") {
  const std::string selective = mixture + "--moe-layer-freq [0]*3+[1]*29 --recompute-granularity selective --recompute-modules ";
  const FrameworkJob both = job(selective + "core_attn moe mlp");
  CHECK(both.recompute_parts == RecomputeParts{.core_attn = true, .mlp = true});
  CHECK(both.notes.empty());
  check_written(both);
  CHECK(has(megatron_text(both, {}), "--recompute-modules core_attn moe mlp\n"));
  const FrameworkJob experts_only = job(selective + "moe");
  CHECK(experts_only.recompute_parts == RecomputeParts{.mlp = true});
  CHECK(has(join(experts_only.notes, "\n"), "--recompute-modules: simulated with mlp too, which the first layers have"));
  const FrameworkJob others_only = job(selective + "core_attn mlp");
  CHECK(others_only.recompute_parts == RecomputeParts{.core_attn = true});
  CHECK(has(join(others_only.notes, "\n"), "simulated without mlp, which only the first layers have"));
  const FrameworkJob old = job(mixture + "--moe-layer-freq [0]*3+[1]*29 --moe-layer-recompute");
  CHECK(has(join(old.notes, "\n"), "--moe-layer-recompute: simulated with mlp too"));
}

TEST_CASE("what of experts takes other time is noted") {
  const auto notes = [](const std::string& flags) { return join(job("--bf16 --num-experts 8 " + flags).notes, "\n"); };
  CHECK(notes("") ==
        "run.sh: --moe-grouped-gemm: is not set; simulated with it, the products of a device's experts as one grouped product");
  CHECK(has(notes("--moe-grouped-gemm --moe-use-legacy-grouped-gemm"), "Transformer Engine's grouped products"));
  CHECK(notes("--moe-grouped-gemm --expert-model-parallel-size 8") ==
        "run.sh: --moe-token-dispatcher-type: is allgather where not set; simulated as alltoall");
  CHECK(notes("--moe-grouped-gemm --expert-model-parallel-size 8 --moe-token-dispatcher-type alltoall_seq") ==
        "run.sh, line 1: --moe-token-dispatcher-type: is alltoall_seq; simulated as alltoall");
  for (const char* backend : {"--moe-enable-deepep", "--moe-flex-dispatcher-backend hybridep", ""})
    CHECK(notes(concat("--moe-grouped-gemm --expert-model-parallel-size 8 --moe-token-dispatcher-type flex ", backend)).empty());
  const std::string tensor = "--moe-grouped-gemm --tensor-model-parallel-size 2 --sequence-parallel ";
  CHECK(notes(tensor).empty());
  CHECK(has(notes(tensor + "--moe-token-dispatcher-type alltoall"), "simulated as allgather"));
  const std::string exchanged = "--moe-grouped-gemm --expert-model-parallel-size 8 --moe-token-dispatcher-type alltoall ";
  CHECK(notes(exchanged).empty());
  CHECK(notes(exchanged + "--moe-shared-expert-overlap").empty());
  CHECK(
      has(notes(exchanged + "--moe-shared-expert-overlap --moe-shared-expert-intermediate-size 1024"), "without overlap of the"));
  const FrameworkJob graphs = job(mixture + "--cuda-graph-impl local --te-rng-tracker");
  CHECK(graphs.graphs == CudaGraphs::none);
  REQUIRE(graphs.notes.size() == 1);
  CHECK(has(graphs.notes[0], "--cuda-graph-impl: simulated without, as layers of experts"));
}

TEST_CASE("experts that every device has lie in the mesh of a dense model") {
  const FrameworkJob tensor = job(mixture +
                                  "--tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 2 "
                                  "--expert-tensor-parallel-size 4");
  CHECK(sizes(tensor.mesh) == "t4 c1 e1 p2 d4");
  CHECK_FALSE(tensor.mesh.whole_experts);
  CHECK(mesh_order_text(tensor.mesh.order) == "tcds");
  check_written(tensor);
  CHECK_FALSE(has(megatron_text(tensor, {}), "expert-"));
  CHECK(has(megatron_text(tensor, {}), "--num-experts 8\n  --moe-ffn-hidden-size 14336\n  --moe-grouped-gemm\n"));
  CHECK(refusal(mixture + "--tensor-model-parallel-size 4 --sequence-parallel --expert-tensor-parallel-size 1") ==
        "run.sh, line 1: --expert-tensor-parallel-size: 1 must be the 4 of --tensor-model-parallel-size where "
        "--expert-model-parallel-size is 1");
}

TEST_CASE("experts shared out over devices of tensor, context and data parallelism") {
  const FrameworkJob data =
      job(shared_out + "--expert-model-parallel-size 8 --pipeline-model-parallel-size 2 --global-batch-size 64");
  CHECK(sizes(data.mesh) == "t1 c1 e8 p2 d2");
  CHECK(data.mesh.whole_experts);
  CHECK(mesh_order_text(data.mesh.order) == "tceds");
  CHECK(data.batch_parts() == 16);
  CHECK(data.microbatches() == 4);
  check_written(data);
  const std::string text = megatron_text(data, {});
  CHECK(has(text, "--expert-model-parallel-size 8\n"));
  CHECK(has(text, "--moe-token-dispatcher-type alltoall\n"));
  CHECK_FALSE(has(text, "--expert-tensor-parallel-size"));

  const std::string wide =
      shared_out +
      "--tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1 --context-parallel-size 2 ";
  const FrameworkJob both = job(wide + "--expert-model-parallel-size 8");
  CHECK(sizes(both.mesh) == "t2 c2 e2 p1 d4");
  CHECK(both.global_batch == 8);
  check_written(both);
  CHECK(has(megatron_text(both, {}), "--expert-tensor-parallel-size 1\n"));
  const FrameworkJob inside =
      job(wide + "--expert-model-parallel-size 4 --pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping");
  CHECK(sizes(inside.mesh) == "t2 c2 e1 p2 d4");
  CHECK(inside.mesh.whole_experts);
  CHECK(mesh_order_text(inside.mesh.order) == "tcsd");
  check_written(inside);
}

TEST_CASE("Megatron-FSDP shards experts among the devices that have the same, all else among all") {
  const std::string fsdp = shared_out +
                           "--expert-model-parallel-size 8 --use-megatron-fsdp --use-distributed-optimizer "
                           "--ckpt-format fsdp_dtensor --data-parallel-sharding-strategy ";
  const std::string unfused = " --no-gradient-accumulation-fusion";
  const FrameworkJob weights = job(fsdp + "optim_grads_params" + unfused);
  CHECK(sizes(weights.mesh) == "t1 c1 e8 p1 d4");
  CHECK(weights.mesh.whole_experts);
  CHECK(weights.choice.schedule == "ddp");
  CHECK(weights.sharding == StateSharding::parameters);
  CHECK(weights.reshard == Reshard::automatic);  // of one rank: after each computation
  CHECK(weights.overlap_gradients);
  CHECK(weights.overlap_gathers);
  CHECK(weights.batch_parts() == 32);
  check_written(weights);
  CHECK(has(megatron_text(weights, {}), "--data-parallel-sharding-strategy optim_grads_params\n"));
  const FrameworkJob gradients = job(fsdp + "optim_grads" + unfused);
  CHECK(gradients.sharding == StateSharding::gradients);
  CHECK_FALSE(gradients.overlap_gathers);
  check_written(gradients);
  CHECK(has(megatron_text(gradients, {}), "--data-parallel-sharding-strategy optim_grads\n"));
  const FrameworkJob states = job(fsdp + "optim" + unfused);
  CHECK(states.sharding == StateSharding::optimizer);
  CHECK(states.mesh == weights.mesh);

  // Fused, later versions stop where several devices have the same experts: 32 / 8 here, not 8 / 8.
  const FrameworkJob fused = job(fsdp + "optim_grads_params");
  CHECK(std::any_of(fused.notes.begin(), fused.notes.end(),
                    [](const std::string& note) { return has(note, "--no-gradient-accumulation-fusion"); }));
  CHECK(megatron_cannot(fused).size() == 1);
  FrameworkJob held = weights;
  held.reshard = Reshard::step;
  CHECK(megatron_cannot(held) == std::vector<std::string>{"Megatron-FSDP frees a layer's weights after its forward "
                                                          "(--reshard auto)"});
  CHECK(refusal(fsdp + "optim_grads_params --pipeline-model-parallel-size 2") ==
        "run.sh, line 1: --data-parallel-sharding-strategy: sharded weights and gradients in a pipeline are not modelled");
  CHECK(refusal(shared_out + "--expert-model-parallel-size 8 --use-torch-fsdp2" + unfused) ==
        "run.sh, line 1: --use-torch-fsdp2: not with --expert-model-parallel-size above 1, where Megatron-LM stops; "
        "--use-megatron-fsdp takes it");
}

TEST_CASE("tokens sent by DeepEP") {
  const std::string parallel = shared_out + "--expert-model-parallel-size 8 --global-batch-size 64 ";
  CHECK(job(parallel).expert_dispatch == ExpertDispatch::all_to_all);
  for (const char* backend : {"", "--moe-flex-dispatcher-backend deepep", "--moe-flex-dispatcher-backend hybridep"}) {
    const FrameworkJob flex = job(concat(parallel, "--moe-token-dispatcher-type flex ", backend));
    CHECK(flex.expert_dispatch == ExpertDispatch::deepep);
    CHECK(has(megatron_text(flex, {}), "--moe-token-dispatcher-type flex\n"));
    check_written(flex);
  }
  CHECK(has(refusal(parallel + "--moe-flex-dispatcher-backend uccl"), "known: deepep, hybridep"));
}

TEST_CASE("all-to-alls of experts under another microbatch") {
  const std::string parallel = shared_out + "--expert-model-parallel-size 8 --global-batch-size 64 ";
  const std::string overlap = "--overlap-moe-expert-parallel-comm ";
  const std::string at = "run.sh, line 1: --overlap-moe-expert-parallel-comm: ";
  CHECK(job(parallel).expert_overlap == ExpertOverlap::off);
  const FrameworkJob on = job(parallel + overlap);
  CHECK(on.expert_overlap == ExpertOverlap::on);
  CHECK(on.notes.empty());
  check_written(on);
  CHECK(has(megatron_text(on, {}), "--overlap-moe-expert-parallel-comm\n"));
  const FrameworkJob delayed = job(parallel + overlap + "--delay-wgrad-compute");
  CHECK(delayed.expert_overlap == ExpertOverlap::delayed);
  check_written(delayed);
  CHECK(has(megatron_text(delayed, {}), "--delay-wgrad-compute\n"));
  const std::string stages = "--pipeline-model-parallel-size 2 ";
  const FrameworkJob piped = job(parallel + overlap + stages + "--num-virtual-stages-per-pipeline-rank 4");
  CHECK(piped.expert_overlap == ExpertOverlap::on);
  check_written(piped);
  CHECK(has(refusal(parallel + overlap + stages), at + "needs virtual stages where"));
  CHECK(refusal(shared_out + overlap) == at + "needs --expert-model-parallel-size above 1");
  CHECK(refusal(parallel + "--delay-wgrad-compute") ==
        "run.sh, line 1: --delay-wgrad-compute: needs --overlap-moe-expert-parallel-comm, without which Megatron-LM stops");
  CHECK(has(refusal(mixture + "--expert-model-parallel-size 8 --global-batch-size 64 " + overlap), "alltoall or flex"));
  CHECK(has(refusal(parallel + overlap + "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
            at + "not with --recompute-granularity full"));
  CHECK(
      has(refusal(parallel + overlap + "--recompute-granularity selective --recompute-modules moe"), at + "not with moe among"));
  CHECK(has(refusal(parallel + overlap + "--moe-shared-expert-overlap"), at + "not with --moe-shared-expert-overlap"));
  FrameworkJob again = on;
  again.recompute = Recompute::full;
  CHECK(megatron_cannot(again) ==
        std::vector<std::string>{"all-to-alls of experts do not overlap where these are computed again (--recompute)"});
}

TEST_CASE("degrees of expert parallelism that do not fit are refused with what would") {
  const std::string sequence = "--sequence-parallel --tensor-model-parallel-size ";
  CHECK(refusal("--bf16 --expert-model-parallel-size 2") ==
        "run.sh, line 1: --expert-model-parallel-size: needs --num-experts in the same file");
  CHECK(has(refusal(mixture + "--expert-model-parallel-size 64"), "64 is not a number of devices from 1 to 32"));
  CHECK(has(refusal(mixture + "--expert-model-parallel-size 3"), "3 does not divide the 8 of --num-experts"));
  CHECK(refusal(mixture + sequence + "2 --expert-model-parallel-size 4") ==
        "run.sh, line 1: --expert-model-parallel-size: experts that are also split by tensor parallelism are not modelled; give "
        "--expert-tensor-parallel-size 1");
  CHECK(has(refusal(mixture + sequence + "2 --expert-model-parallel-size 4 --expert-tensor-parallel-size 2"),
            "--expert-tensor-parallel-size: experts that are also split"));
  CHECK(refusal(mixture + sequence + "4 --expert-model-parallel-size 2 --expert-tensor-parallel-size 1") ==
        "run.sh, line 1: --expert-model-parallel-size: 2 must be a multiple of tensor 4 x context 1 = 4, so that each of these "
        "devices has experts of its own");
  CHECK(has(refusal(mixture + "--expert-model-parallel-size 8 --pipeline-model-parallel-size 8"),
            "8 does not divide the 4 devices of a stage, tensor 1 x context 1 x data 4"));
  CHECK(has(refusal(mixture + "--expert-model-parallel-size 8 --pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping"),
            "--use-tp-pp-dp-mapping: not with experts over more devices than tensor x context = 1"));
  CHECK(has(refusal(experts + "--fp16 --expert-model-parallel-size 8"), "--fp16: not with --expert-model-parallel-size above 1"));
  CHECK(has(refusal(mixture + "--expert-model-parallel-size 8 --global-batch-size 30"), "not a multiple of 1 a microbatch x 32"));
}

TEST_CASE("modules of experts that are recomputed") {
  const std::string selective = "--recompute-granularity selective --recompute-modules ";
  const FrameworkJob parts = job(mixture + selective + "core_attn moe moe_act");
  CHECK(parts.recompute == Recompute::selective);
  CHECK(parts.recompute_parts == RecomputeParts{.core_attn = true, .mlp = true, .activation = true});
  CHECK(parts.notes.empty());
  check_written(parts);
  CHECK(has(megatron_text(parts, {}), "--recompute-modules core_attn moe moe_act\n"));
  const FrameworkJob others = job(mixture + selective + "mlp shared_experts");
  CHECK(others.recompute == Recompute::none);
  REQUIRE(others.notes.size() == 2);
  CHECK(has(others.notes[0], "simulated without mlp, which layers of experts lack"));
  CHECK(has(others.notes[1], "simulated without shared_experts"));
  CHECK(job(mixture + "--moe-layer-recompute").recompute_parts == RecomputeParts{.mlp = true});
  CHECK(job(mixture + "--recompute-activations --moe-layer-recompute").recompute_parts ==
        RecomputeParts{.core_attn = true, .mlp = true});
  CHECK(has(refusal(mixture + "--moe-layer-recompute --recompute-granularity full --recompute-method uniform "
                              "--recompute-num-layers 1"),
            "--moe-layer-recompute: not with full recomputation"));
}

TEST_CASE("what the frameworks cannot run of experts") {
  const FrameworkJob plain = job(mixture);
  CHECK(has(join(cannot_run(Framework::torchtitan, plain), "; "), "of mixtures of experts those of qwen3 and deepseek_v3"));
  CHECK(has(join(cannot_run(Framework::deepspeed, plain), "; "), "a mixture of experts"));
  const auto reason = [](const FrameworkJob& wrong) { return join(megatron_cannot(wrong), "; "); };
  CHECK(reason(plain).empty());
  FrameworkJob wrong = job(mixture + "--tensor-model-parallel-size 2 --sequence-parallel");
  wrong.sequence_parallel = false;
  CHECK(reason(wrong) == "experts with tensor parallelism need sequence parallelism (--sequence-parallel on)");
  wrong = job(shared_out + "--expert-model-parallel-size 8");
  wrong.model->experts = 60;
  CHECK(reason(wrong) == "60 experts are not shared equally by 8 devices");
  wrong.model->experts = 8;
  wrong.model->dtype = Dtype::f16;
  wrong.dtype = Dtype::f16;
  CHECK(has(reason(wrong), "not shared out in float16"));
  wrong = job(shared_out +
              "--tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1 "
              "--expert-model-parallel-size 4");
  wrong.mesh.whole_experts = false;
  CHECK(has(reason(wrong), "also split by tensor parallelism"));
  wrong = job(shared_out + "--expert-model-parallel-size 8 --pipeline-model-parallel-size 2");
  wrong.mesh.order = parse_mesh_order("tcesd");
  CHECK(has(reason(wrong), "does not lay out devices as tcesd"));
  wrong = plain;
  wrong.graphs = CudaGraphs::iteration;
  CHECK(has(reason(wrong), "--cuda-graphs none"));
}

}  // namespace megatron_experts_test
