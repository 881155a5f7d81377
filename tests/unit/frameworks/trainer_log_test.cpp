// Tests of frameworks/trainer_log.hpp and trainer_lines.hpp: logs of the Hugging Face Trainer and of Accelerate.
// Not: DeepSpeed's configuration (deepspeed_log_test.cpp).
#include "tawpipe/frameworks/trainer_log.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/text.hpp"

using namespace tawpipe;

namespace trainer_log_test {

using support::has;

const std::string block =
    "[INFO|trainer.py:2409] 2026-01-02 03:04:05,678 >> ***** Running training *****\n"
    "[INFO|trainer.py:2410] 2026-01-02 03:04:05,678 >>   Num examples = 346,940\n"
    "[INFO|trainer.py:2411] 2026-01-02 03:04:05,678 >>   Num Epochs = 1\n"
    "[INFO|trainer.py:2412] 2026-01-02 03:04:05,678 >>   Instantaneous batch size per device = 2\n"
    "[INFO|trainer.py:2415] 2026-01-02 03:04:05,678 >>   Total train batch size (w. parallel, distributed & accumulation) = 64\n"
    "[INFO|trainer.py:2416] 2026-01-02 03:04:05,678 >>   Gradient Accumulation steps = 4\n"
    "[INFO|trainer.py:2417] 2026-01-02 03:04:05,678 >>   Total optimization steps = 203\n";
const std::string arguments =
    "Training/evaluation parameters TrainingArguments(\n_n_gpu=1,\nbf16=True,\ndeepspeed=None,\nfp16=False,\n"
    "fsdp=[<FSDPOption.FULL_SHARD: 'full_shard'>, <FSDPOption.AUTO_WRAP: 'auto_wrap'>],\n"
    "fsdp_config={'min_num_params': 0, 'xla': False, 'reshard_after_forward': False},\ngradient_accumulation_steps=4,\n"
    "gradient_checkpointing=True,\noptim=OptimizerNames.ADAMW_TORCH,\nper_device_train_batch_size=2,\ntorch_compile=False,\n)\n";
const std::string model =
    "[INFO|configuration_utils.py:771] 2026-01-02 03:04:01,000 >> Model config LlamaConfig {\n  \"architectures\": [\n    "
    "\"LlamaForCausalLM\"\n  ],\n  \"hidden_size\": 2048,\n  \"intermediate_size\": 5632,\n  \"model_type\": \"llama\",\n  "
    "\"num_attention_heads\": 16,\n  \"num_hidden_layers\": 24,\n  \"num_key_value_heads\": 16,\n  \"rms_norm_eps\": 1e-05,\n  "
    "\"tie_word_embeddings\": false,\n  \"transformers_version\": \"4.50.0\",\n  \"vocab_size\": 32000\n}\n";
const std::string bars =
    "\r  0%|          | 0/203 [00:00<?, ?it/s]\r  0%|          | 1/203 [00:12<40:00, 12.00s/it]\r  1%|          | 2/203 "
    "[00:16<16:46,  5.00s/it]\r  1%|          | 3/203 [00:20<16:46,  4.00s/it]\rMap: 100%|##| 9/9 [00:01<00:00,  9.50it/s]\r  "
    "2%| "
    "| 4/203 [00:21<10:00,  4.00s/it]{'loss': 2.31, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n";
const std::string summary =
    "{'train_runtime': 812.0, 'train_samples_per_second': 16.0, 'train_steps_per_second': 0.25, 'train_loss': 1.2, 'epoch': "
    "1.0}\n";

YamlJob job_of_log(const std::string& text, const GivenJob& given = {}, int devices = 8) {
  REQUIRE(is_trainer_log(text));
  return trainer_log_job(text, "run.log", devices, given);
}

TEST_CASE("the Trainer's arguments, its model and its batch are a job") {
  const YamlJob read = job_of_log(model + arguments + block + bars + summary);
  const FrameworkJob& job = read.job;
  CHECK(read.kind == YamlKind::transformers);
  CHECK(title(read.kind) == "Hugging Face Trainer");
  CHECK(job.choice.schedule == "fsdp");
  CHECK(job.choice.options.at("reshard") == "off");
  CHECK(job.microbatch_size == 2);
  CHECK(job.global_batch == 64);
  CHECK(job.dtype == Dtype::bf16);
  CHECK(job.recompute == Recompute::full);
  REQUIRE(job.model);
  CHECK(job.model->layers == 24);
  CHECK(job.model->hidden == 2048);
  CHECK(job.notes.empty());
  CHECK(job.measured.step_seconds == doctest::Approx(5.0));  // of 4, 4, 5 and 12
}

TEST_CASE("changes are said in the Trainer's words, and read back") {
  YamlJob read = job_of_log(model + arguments + block);
  FrameworkJob changed = read.job;
  changed.microbatch_size = 4;
  CHECK(changed_settings(settings_of(read.kind, read.job, read.framework), settings_of(read.kind, changed, read.framework)) ==
        std::vector<std::string>{"per_device_train_batch_size = 4", "gradient_accumulation_steps = 2"});
  const YamlJob again = yaml_job(yaml_text(settings_of(read.kind, changed, read.framework)), "again.yaml", 8, {.model = true});
  CHECK(again.kind == YamlKind::transformers);
  CHECK(again.job.microbatch_size == 4);
  CHECK(again.job.global_batch == 64);
  CHECK(again.job.choice.options.at("reshard") == "off");
}

TEST_CASE("without bars the run's time over its steps is a step") {
  CHECK(job_of_log(arguments + block + summary, {.model = true}).job.measured.step_seconds == doctest::Approx(4.0));
  const std::string texts = "{'train_runtime': '406.0', 'train_steps_per_second': '0.5'}\n";
  CHECK(job_of_log(arguments + block + texts, {.model = true}).job.measured.step_seconds == doctest::Approx(2.0));
}

TEST_CASE("what is not printed is assumed with a note, or asked for") {
  const YamlJob read = job_of_log(block + bars, {.model = true});
  CHECK(read.job.choice.schedule == "ddp");
  CHECK(read.job.dtype == Dtype::bf16);
  CHECK_FALSE(read.job.recompute);
  REQUIRE(read.job.notes.size() == 1);
  CHECK(has(read.job.notes[0], "does not say how it is distributed"));
  CHECK_THROWS_WITH_AS(job_of_log(summary), doctest::Contains("give --microbatch and --global-batch"), InputError);
  CHECK_THROWS_WITH_AS(job_of_log(block, {}, 16), doctest::Contains("8 processes, and the cluster has 16 devices"), InputError);
  CHECK_THROWS_WITH_AS(job_of_log("trainable params: 20,971,520 || all params: 6,759,387,136 || trainable%: 0.3103\n" + block),
                       doctest::Contains("LoRA"), InputError);
  std::string by_zero = arguments;
  by_zero.replace(by_zero.find("deepspeed=None"), 14, "deepspeed=ds/zero3.json");
  CHECK_THROWS_WITH_AS(job_of_log(by_zero + block), doctest::Contains("the log has not what ds/zero3.json says"), InputError);
}

TEST_CASE("Accelerate's state is a job of its kind") {
  const std::string state =
      "01/02/2026 03:04:05 - INFO - __main__ - Distributed environment: DistributedType.FSDP  Backend: nccl\nNum processes: 8\n"
      "Process index: 0\nLocal process index: 0\nDevice: cuda:0\n\nMixed precision type: bf16\n";
  const YamlJob fsdp = job_of_log(state + block + bars, {.model = true});
  CHECK(fsdp.kind == YamlKind::accelerate);
  CHECK(fsdp.job.choice.schedule == "fsdp");
  CHECK(fsdp.job.global_batch == 64);
  CHECK(fsdp.job.microbatch_size == 2);
  CHECK(fsdp.job.measured.step_seconds == doctest::Approx(5.0));
  const std::string zero =
      "Distributed environment: DEEPSPEED  Backend: nccl\nNum processes: 8\nProcess index: 0\nLocal process index: 0\nDevice: "
      "cuda:0\n"
      "ds_config: {'train_batch_size': 'auto', 'train_micro_batch_size_per_gpu': 'auto', 'gradient_accumulation_steps': 4, "
      "'zero_optimization': {'stage': 3, 'offload_optimizer': {'device': 'cpu', 'nvme_path': None}}, 'bf16': {'enabled': "
      "True}}\n";
  const YamlJob by_zero = job_of_log(zero + block, {.model = true});
  CHECK(by_zero.framework == Framework::deepspeed);
  CHECK(by_zero.job.choice.schedule == "fsdp");
  CHECK(by_zero.job.offload.optimizer);
  CHECK(by_zero.job.dtype == Dtype::bf16);
}

}  // namespace trainer_log_test
