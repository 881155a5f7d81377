// Tests of frameworks/trainer.hpp: LLaMA-Factory, axolotl and Accelerate, with DeepSpeed, FSDP and DDP.
// Not: DeepSpeed's configuration (deepspeed_test.cpp), YAML (yaml_settings_test.cpp).
#include "tawpipe/frameworks/trainer.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/refusal.hpp"
#include "support/scratch_folder.hpp"
#include "support/text.hpp"
#include "tawpipe/frameworks/yaml_job.hpp"

using namespace tawpipe;

namespace trainer_test {

namespace {

using support::has;

const std::string z3 =
    "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\", \"gradient_accumulation_steps\": \"auto\",\n"
    " \"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": \"auto\"},\n"
    " \"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true, \"reduce_bucket_size\": \"auto\"}}";
const std::string factory =
    "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nstage: sft\nfinetuning_type: full\ndeepspeed: z3.json\ncutoff_len: 4096\n"
    "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nbf16: true\npacking: true\nlearning_rate: 1e-5\n";

YamlJob read(const std::string& text, const GivenJob& given = {}) { return yaml_job(text, "a.yaml", 16, given); }
std::string why(const std::string& text, const GivenJob& given = {}) {
  return support::refusal([&] { read(text, given); });
}
std::string with(std::string text, const std::string& old, const std::string& now) {
  return text.replace(text.find(old), old.size(), now);
}

}  // namespace

TEST_CASE("LLaMA-Factory with DeepSpeed's file beside it") {
  const support::ScratchFolder folder;
  const GivenJob given{.path = folder / "a.yaml"};
  CHECK(why(factory, given) ==
        concat("a.yaml, line 4: deepspeed: there is no z3.json; put that DeepSpeed configuration at ", folder / "z3.json"));
  support::put_file(folder / "z3.json", z3);
  const YamlJob read_job = read(factory, given);
  const FrameworkJob& job = read_job.job;
  CHECK(read_job.kind == YamlKind::llama_factory);
  CHECK(read_job.framework == Framework::deepspeed);
  CHECK(job.choice.schedule == "fsdp");
  CHECK(job.microbatch_size == 1);
  CHECK(job.global_batch == 128);
  CHECK(job.sequence == 4096);
  CHECK(job.recompute == Recompute::full);  // which LLaMA-Factory turns on by itself
  CHECK(job.dtype == Dtype::bf16);
  CHECK(job.overlap_gradients);
  CHECK(job.model_name == "Qwen2.5-7B-Instruct");
  CHECK(job.notes.empty());
  // By its name alone, from wherever LLaMA-Factory is started.
  CHECK(read(with(factory, "z3.json", "examples/deepspeed/z3.json"), given).job.global_batch == 128);
  CHECK(read(with(factory, "bf16: true", "fp16: true\ndisable_gradient_checkpointing: true"), given).job.dtype == Dtype::f16);
  CHECK(read(with(factory, "bf16: true", "fp16: true\ndisable_gradient_checkpointing: true"), given).job.recompute ==
        Recompute::none);
  CHECK(read(with(factory, "Qwen/Qwen2.5-7B-Instruct", "./qwen2.5-7b"), given).job.model_name == "qwen2.5-7b");
  CHECK(read(with(factory, "Qwen/Qwen2.5-7B-Instruct", "/data/mine"), given).job.model_lacks ==
        "the sizes of /data/mine, which is no known model");
  const FrameworkJob loose = read(with(factory, "packing: true", "packing: false"), given).job;
  CHECK(loose.notes ==
        std::vector<std::string>{"a.yaml: samples are not packed (packing): simulated as if all had 4096 tokens; shorter "
                                 "ones take less"});
  support::put_file(folder / "z3.json",
                    with(z3, "\"train_micro_batch_size_per_gpu\": \"auto\"", "\"train_micro_batch_size_per_gpu\": 4"));
  CHECK(why(factory, given) == concat("a.yaml, line 6: per_device_train_batch_size: 1 is not what ", folder / "z3.json",
                                      ", line 1, says: train_micro_batch_size_per_gpu 4"));
}

TEST_CASE("adapters and other kinds of training have one sentence") {
  for (const char* method : {"lora", "qlora", "oft"}) {
    CHECK(has(why(with(factory, "finetuning_type: full", concat("finetuning_type: ", method))),
              "line 3: finetuning_type: adapters (LoRA and its kin) are not modelled"));
  }
  CHECK(has(why(with(factory, "finetuning_type: full\n", "")), "finetuning_type: lora where it is not said; adapters (LoRA"));
  CHECK(has(why(with(factory, "finetuning_type: full", "finetuning_type: freeze")), "not freeze"));
  CHECK(has(why(with(factory, "stage: sft", "stage: dpo")),
            "stage: dpo: only pre-training and supervised fine-tuning are modelled"));
  CHECK(has(why("base_model: Qwen/Qwen3-8B\nadapter: lora\nlora_r: 8\nmicro_batch_size: 1\n"),
            "a.yaml, line 2: adapter: adapters (LoRA and its kin) are not modelled"));
}

const std::string axolotl =
    "base_model: NousResearch/Meta-Llama-3.1-8B\nsequence_len: 8192\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: "
    "auto\n"
    "sample_packing: true\ngradient_checkpointing: true\noptimizer: adamw_torch_fused\nwandb_project:\ndatasets:\n  - path: x\n";

TEST_CASE("axolotl with FSDP, DeepSpeed and neither") {
  const YamlJob sharded =
      read(axolotl + "fsdp_config:\n  fsdp_version: 2\n  reshard_after_forward: true\n  auto_wrap_policy: X\n");
  CHECK(sharded.kind == YamlKind::axolotl);
  CHECK(sharded.framework == Framework::torchtitan);
  CHECK(sharded.job.choice.schedule == "fsdp");
  CHECK(sharded.job.choice.options.at("reshard") == "on");
  CHECK(sharded.job.microbatch_size == 2);
  CHECK(sharded.job.global_batch == 128);
  CHECK(sharded.job.sequence == 8192);
  CHECK(sharded.job.recompute == Recompute::full);
  CHECK(sharded.job.gradient_bytes == 2);
  CHECK(sharded.job.code == LayerCode::torchtitan_eager);
  CHECK(sharded.job.model_name == "Meta-Llama-3.1-8B");
  CHECK(sharded.job.notes.empty());
  CHECK(read(axolotl + "fsdp: [shard_grad_op, auto_wrap]\n").job.choice.options.at("reshard") == "off");
  const FrameworkJob hybrid = read(axolotl + "fsdp: [hybrid_shard]\n", {.node_devices = 8}).job;
  CHECK(hybrid.mesh.data == 2);
  CHECK(hybrid.mesh.pipeline == 8);
  const FrameworkJob split =
      read(axolotl + "fsdp_config: {fsdp_version: 2}\ntensor_parallel_size: 2\ndp_replicate_size: 2\ndp_shard_size: 4\n").job;
  CHECK(split.mesh.tensor == 2);
  CHECK(split.mesh.data == 2);
  CHECK(split.global_batch == 2 * 4 * 8);
  CHECK_FALSE(split.sequence_parallel);
  const FrameworkJob context = read(axolotl + "fsdp_config: {fsdp_version: 2}\ncontext_parallel_size: 4\n").job;
  CHECK(context.choice.schedule == "ddp");
  CHECK(context.sharding == StateSharding::parameters);
  CHECK(context.mesh.context == 4);
  const FrameworkJob plain = read(axolotl).job;
  CHECK(plain.choice.schedule == "ddp");
  CHECK(plain.sharding == StateSharding::none);
  CHECK(plain.gradient_bytes == 4);
  const YamlJob zero =
      read(axolotl + "deepspeed:\n  zero_optimization: {stage: 2, overlap_comm: true}\n  bf16: {enabled: true}\n");
  CHECK(zero.framework == Framework::deepspeed);
  CHECK(zero.job.choice.schedule == "zero2");
  CHECK(zero.job.global_batch == 128);
  const FrameworkJob offloaded = read(axolotl + "fsdp_config: {offload_params: true}\n").job;
  CHECK(offloaded.offload == Offload{.weights = true, .optimizer = true});
  CHECK(offloaded.notes.size() == 1);
  CHECK(has(read(with(axolotl, "adamw_torch_fused", "adamw_bnb_8bit")).job.notes.at(0),
            "line 8: optimizer: simulated with states in float32"));
  CHECK(has(why(axolotl + "fsdp: [half_shard]\n"), "unknown strategy 'half_shard'"));
  CHECK(has(why(axolotl + "tensor_parallel_size: 3\n"),
            "tensor_parallel_size: tensor 3 x context 1 x replicas 1 = 3 does not divide"));
}

TEST_CASE("Accelerate leaves model and batch to the program") {
  const std::string fsdp =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\nfsdp_config:\n"
      "  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n  fsdp_activation_checkpointing: true\n";
  const GivenJob given{.global_batch = 64, .microbatch = 2};
  const YamlJob job = read(fsdp, given);
  CHECK(job.kind == YamlKind::accelerate);
  CHECK(job.job.choice.options.at("reshard") == "off");
  CHECK(job.job.recompute == Recompute::full);
  CHECK(job.job.global_batch == 64);
  CHECK(job.job.model_lacks == "the model, which is the program's");
  CHECK(job.job.notes.empty());
  CHECK(why(fsdp) == "a.yaml leaves the batch to the program; give --global-batch and --microbatch");
  CHECK(has(why(with(fsdp, "num_processes: 16", "num_processes: 2"), given),
            "num_processes: 2 processes, and the cluster has 16 devices"));
  const std::string zero =
      "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config: {zero_stage: 3, gradient_accumulation_steps: 2}\n";
  const YamlJob third = read(zero, {.microbatch = 2});
  CHECK(third.framework == Framework::deepspeed);
  CHECK(third.job.choice.schedule == "fsdp");
  CHECK(third.job.dtype == Dtype::bf16);
  CHECK(third.job.global_batch == 64);
  CHECK_FALSE(third.job.recompute);
  CHECK(has(why(zero), "give --global-batch and --microbatch"));
}

}  // namespace trainer_test
