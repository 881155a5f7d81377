// Tests of frameworks/yaml_job.hpp: files of each kind whose keys are Megatron-LM's arguments, and files
// of no kind.
// Not: nanotron (nanotron_test.cpp), LLaMA-Factory, axolotl, Accelerate (trainer_test.cpp).
#include "tawpipe/frameworks/yaml_job.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/refusal.hpp"
#include "support/text.hpp"

using namespace tawpipe;

namespace yaml_job_test {

namespace {

using support::has;

const std::string script =
    "torchrun p.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 64 "
    "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 5632 --swiglu --normalization RMSNorm "
    "--position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear --attention-dropout 0 "
    "--hidden-dropout 0 --seq-length 4096 --vocab-size 32000 --bf16 --use-distributed-optimizer";

YamlJob read(const std::string& text, const GivenJob& given = {}, int devices = 16) {
  return yaml_job(text, "a.yaml", devices, given);
}
std::string why(const std::string& text, const GivenJob& given = {}) {
  return support::refusal([&] { read(text, given); });
}
std::string flags(const FrameworkJob& job) { return megatron_text(job, {}); }
std::string expected(const std::string& more = "") { return flags(megatron_job(script + more, "run.sh", 16)); }

}  // namespace

TEST_CASE("MODEL_ARGS are flags: true sets one, false and null do not") {
  std::string text = "ENV_VARS:\n  X: 1\nMODEL_ARGS:\n";
  text +=
      "  --tensor-model-parallel-size: ${TP}\n  --pipeline-model-parallel-size: 4\n  --micro-batch-size: 1\n"
      "  --global-batch-size: 64\n  --num-layers: 24\n  --hidden-size: 2048\n  --num-attention-heads: 16\n"
      "  --ffn-hidden-size: 5632\n  --swiglu: true\n  --normalization: RMSNorm\n  --position-embedding-type: rope\n"
      "  --untie-embeddings-and-output-weights: true\n  --disable-bias-linear: true\n  --attention-dropout: 0.0\n"
      "  --hidden-dropout: 0.0\n  --seq-length: 4096\n  --vocab-size: 32000\n  --bf16: true\n  --fp16: false\n"
      "  --use-distributed-optimizer: true\n  --finetune: false\n  --save: ${OUT}/x\n  --num-layers-per-virtual-pipeline-stage: "
      "null\n";
  const GivenJob given{.script = {.environment = {{"TP", "2"}}}};
  const YamlJob job = read(text, given);
  CHECK(job.kind == YamlKind::megatron);
  CHECK(flags(job.job) == expected());
  CHECK(job.job.notes.empty());
  CHECK(why(text) ==
        "a.yaml, line 4: --tensor-model-parallel-size: ${TP} is not set in this file; write its value, set it before, or "
        "give it by --env");
  const YamlJob more =
      read(text + "  --recompute-granularity: selective\n  --recompute-modules: \"[mlp layernorm]\"\n  --of-a-fork: 3\n", given);
  CHECK(flags(more.job) == expected(" --recompute-granularity selective --recompute-modules mlp layernorm"));
  REQUIRE(more.job.notes.size() == 1);
  CHECK(has(more.job.notes[0], "a.yaml: an unknown Megatron-LM flag, left out: --of-a-fork in line 29"));
  CHECK(has(why(text + "  --lr: 1\n  --lr: 2\n", given), "line 28: '--lr' stands in line 27 already"));
}

/// The same job in arguments' names.
std::string arguments(const std::string& indent, bool with_batch = true) {
  std::string text;
  for (const char* line :
       {"tensor_model_parallel_size: 2", "pipeline_model_parallel_size: 4", "num_layers: 24", "hidden_size: 2048",
        "num_attention_heads: 16", "ffn_hidden_size: 5632", "attention_dropout: 0.0", "hidden_dropout: 0.0", "vocab_size: 32000"})
    text += concat(indent, line, "\n");
  if (with_batch) text += concat(indent, "micro_batch_size: 1\n", indent, "global_batch_size: 64\n");
  return text;
}

TEST_CASE("ARGS and Primus have the arguments' names") {
  const std::string own =
      "swiglu: true\n  normalization: RMSNorm\n  untie_embeddings_and_output_weights: true\n  add_bias_linear: false\n  "
      "seq_length: 4096\n  bf16: true\n  use_distributed_optimizer: true\n";
  const YamlJob zoo = read(concat("ARGS:\n", arguments("  "), "  ", own));
  CHECK(zoo.kind == YamlKind::megatron);
  CHECK(flags(zoo.job) == expected());

  std::string inner = own;
  for (std::size_t at = 0; (at = inner.find("\n  ", at)) != std::string::npos; at += 3) inner.insert(at + 1, "    ");
  const std::string head =
      "exp_name: x\nmodules:\n  pre_trainer:\n    framework: megatron\n    model: ${M:llama3.1_8B}.yaml\n    overrides:\n";
  const YamlJob primus = read(concat(head, arguments("      "), "      ", inner,
                                     "      gradient_accumulation_fusion: true\n      sequence_parallel: 1\n"));
  CHECK(primus.kind == YamlKind::primus);
  CHECK(flags(primus.job) == expected(" --sequence-parallel"));
  CHECK(primus.job.notes.empty());

  const std::string batch = "      micro_batch_size: 1\n      global_batch_size: 64\n      seq_length: 8192\n";
  const YamlJob named = read(concat(head, batch));
  CHECK(named.job.model_name == "llama-3.1-8B");
  CHECK_FALSE(named.job.model);
  REQUIRE(named.job.notes.size() == 1);
  CHECK(named.job.notes[0] ==
        "a.yaml: not said, and read as Primus has it: bf16, use_distributed_optimizer, sequence_parallel, "
        "attention_dropout, hidden_dropout");
  CHECK(read(concat(head, batch), {.script = {.environment = {{"M", "deepseek_v3"}}}}).job.model_name == "deepseek_v3");
  CHECK(read(concat(head, batch), {.script = {.environment = {{"M", "of_ours"}}}}).job.model_lacks ==
        "the sizes of of_ours, which is no known model");
  std::string other = head;
  other.replace(other.find("megatron"), 8, "maxtext");
  CHECK(
      has(why(other + batch), "line 4: modules.pre_trainer.framework: only Primus's modules of megatron are read, not maxtext"));
}

TEST_CASE("NeMo's model, trainer and optimizer") {
  const std::string model =
      "trainer:\n  devices: 8\n  num_nodes: 2\n  precision: bf16\nexp_manager: {name: x}\nmodel:\n" + arguments("  ") +
      "  encoder_seq_length: 4096\n  max_position_embeddings: ${.encoder_seq_length}\n  activation: fast-swiglu\n"
      "  normalization: rmsnorm\n  bias: false\n  share_embeddings_and_output_weights: false\n  gradient_accumulation_fusion: "
      "true\n"
      "  persist_layer_norm: true\n  kv_channels: null\n  data: {seq_length: '${model.encoder_seq_length}'}\n"
      "  optim: {name: distributed_fused_adam, overlap_grad_sync: true, lr: 1e-4}\n";
  const YamlJob job = read(model);
  CHECK(job.kind == YamlKind::nemo);
  CHECK(flags(job.job) == expected(" --overlap-grad-reduce"));
  CHECK(job.job.notes.empty());
  const YamlJob more = read(model +
                            "  num_query_groups: 4\n  virtual_pipeline_model_parallel_size: 2\n  fp8: true\n  fp8_hybrid: true\n"
                            "  activations_checkpoint_granularity: full\n  activations_checkpoint_method: block\n"
                            "  activations_checkpoint_num_layers: 2\n  of_a_fork: true\n");
  CHECK(flags(more.job) == expected(" --overlap-grad-reduce --group-query-attention --num-query-groups 4 "
                                    "--num-virtual-stages-per-pipeline-rank 2 --fp8-format hybrid --recompute-granularity full "
                                    "--recompute-method block --recompute-num-layers 2"));
  CHECK(more.job.notes == std::vector<std::string>{"a.yaml: switched on and not known to change the layout: of_a_fork"});
  CHECK(
      has(why(model + "  peft: {peft_scheme: lora}\n"), "model.peft.peft_scheme: adapters (LoRA and its kin) are not modelled"));
  std::string geglu = model;
  geglu.replace(geglu.find("fast-swiglu"), 11, "geglu");
  CHECK(has(why(geglu), "model.activation: unknown value 'geglu'"));
  std::string small = model;
  small.replace(small.find("num_nodes: 2"), 12, "num_nodes: 1");
  CHECK(has(why(small), "trainer.devices x trainer.num_nodes is 8 processes, and the cluster has 16 devices"));
}

TEST_CASE("NeMo 2 and Megatron-Bridge have Megatron Core's classes") {
  const std::string core =
      "gated_linear_unit: true\n    normalization: RMSNorm\n    add_bias_linear: false\n    "
      "share_embeddings_and_output_weights: false\n    seq_length: 4096\n    num_query_groups: 16\n";
  const YamlJob nemo =
      read(concat("data: {micro_batch_size: 1, global_batch_size: 64, seq_length: 4096}\nmodel:\n  config:\n",
                  arguments("    ", false), "    ", core,
                  "trainer:\n  devices: 8\n  num_nodes: 2\n  strategy:\n    ddp: {use_distributed_optimizer: true, "
                  "grad_reduce_in_fp32: true}\n  plugins: {precision: bf16-mixed}\n"));
  CHECK(nemo.kind == YamlKind::nemo_2);
  CHECK(flags(nemo.job) == expected());

  std::string inner = core;
  for (std::size_t at = 0; (at = inner.find("\n    ", at)) != std::string::npos; at += 1) inner.erase(at + 1, 2);
  const std::string whole = concat(
      "_target_: megatron.bridge.training.config.ConfigContainer\n"
      "ddp: {use_distributed_optimizer: true, grad_reduce_in_fp32: false, bucket_size: null, data_parallel_sharding_strategy: "
      "no_shard}\n"
      "mixed_precision: {bf16: true, fp8: null, grad_reduce_in_fp32: true}\nmodel:\n",
      arguments("  ", false), "  ", inner,
      "  bf16: false\n  moe_router_topk: 8\n  q_lora_rank: 512\n  recompute_num_layers: 1\n  beta_fast: 32.0\n  hf_model_id: "
      "x/y\n"
      "optimizer: {bf16: true, exp_avg_dtype: {_target_: torch.float32}}\ntokenizer: {vocab_size: 999}\n"
      "train: {micro_batch_size: 1, global_batch_size: 64}\n");
  const YamlJob bridge = read(whole);
  CHECK(bridge.kind == YamlKind::bridge);
  CHECK(flags(bridge.job) == expected());
  CHECK(bridge.job.notes.empty());
  const YamlJob part = read(
      "model: {tensor_model_parallel_size: 4, seq_length: 4096, expert_model_parallel_size: 1}\n"
      "train: {micro_batch_size: 2, global_batch_size: 64}\nmixed_precision: bf16_with_mxfp8_mixed\n");
  CHECK(part.job.mesh.tensor == 4);
  CHECK(part.job.microbatch_size == 2);
  CHECK(has(part.job.model_lacks, "--num-layers"));
  REQUIRE(part.job.notes.size() == 1);
  CHECK(part.job.notes[0] ==
        "a.yaml: not said, and read as Megatron-Bridge has it: use_distributed_optimizer, attention_dropout, hidden_dropout");
  CHECK(has(why(whole + "peft: {_target_: megatron.bridge.peft.lora.LoRA, dim: 8}\n"),
            "adapters (LoRA and its kin) are not modelled"));
}

TEST_CASE("Accelerate with Megatron-LM leaves the batch to the program") {
  const std::string text =
      "distributed_type: MEGATRON_LM\nnum_processes: 16\nmixed_precision: bf16\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n"
      "  megatron_lm_pp_degree: 4\n  megatron_lm_sequence_parallelism: true\n  megatron_lm_use_distributed_optimizer: true\n"
      "  megatron_lm_gradient_clipping: 1.0\n  megatron_lm_num_micro_batches: 8\n";
  const YamlJob job = read(text, {.global_batch = 64, .microbatch = 1, .model = true});
  CHECK(job.kind == YamlKind::accelerate_megatron);
  CHECK(job.job.mesh.tensor == 2);
  CHECK(job.job.mesh.pipeline == 4);
  CHECK(job.job.sequence_parallel);
  CHECK(job.job.global_batch == 64);
  CHECK(job.job.notes.size() == 1);  // of dropout, which Megatron-LM has by itself
  CHECK(why(text) == "a.yaml leaves the batch to the program; give --global-batch and --microbatch");
}

TEST_CASE("a YAML of no kind names those that are read") {
  const std::string text = why("on: push\njobs: {build: {steps: [{run: make}]}}\n");
  for (const char* part : {"a.yaml: a YAML of no kind that is read", "MODEL_ARGS", "nanotron", "LLaMA-Factory", "axolotl",
                           "Accelerate", "NeMo", "Megatron-Bridge", "Primus"}) {
    CAPTURE(part);
    CHECK(has(text, part));
  }
}

TEST_CASE("a model does not need what its file leaves to variables of a run") {
  const std::string text =
      "MODEL_ARGS:\n  --num-layers: 24\n  --hidden-size: 2048\n  --num-attention-heads: 16\n  --vocab-size: 32000\n"
      "  --tensor-model-parallel-size: ${TP}\n  --pipeline-model-parallel-size: ${PP:-2}\n  --micro-batch-size: ${MBS}\n";
  CHECK(yaml_model(text, "a.yaml").layers == 24);
  CHECK_THROWS_WITH_AS(yaml_model("MODEL_ARGS:\n  --num-layers: ${LAYERS}\n  --hidden-size: 2048\n", "a.yaml"),
                       doctest::Contains("${LAYERS} is not set in this file"), InputError);
}

}  // namespace yaml_job_test
