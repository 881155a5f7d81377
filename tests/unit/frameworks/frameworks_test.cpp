// Tests of frameworks/torchtitan.hpp, frameworks/deepspeed.hpp and frameworks/frameworks.hpp: what
// settings mean, what is refused.
// Not: TOML and JSON (toml_settings_test.cpp), nor that settings of plans parse back
// (properties/frameworks_test.cpp).
#include "tawpipe/frameworks/frameworks.hpp"

#include <doctest/doctest.h>

#include <string>

#include "schedules.hpp"
#include "support/clusters.hpp"

using namespace tawpipe;

namespace frameworks_test {

namespace {

std::string torchtitan_refusal(const std::string& text, int devices = 16) {
  try {
    torchtitan_job(text, "job.toml", devices, {.layers = 32, .strict = true});
    return {};
  } catch (const InputError& error) {
    return error.what();
  }
}
std::string deepspeed_refusal(const std::string& text, int devices = 16) {
  try {
    deepspeed_job(text, "ds.json", devices, {.strict = true});
    return {};
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a job knows which shipped schedules give each rank a part of the batch") {
  for (const ScheduleInfo& info : shipped().schedules()) {
    CAPTURE(info.name);
    FrameworkJob job;
    job.choice.schedule = info.name;
    CHECK(job.splits_batch() == (info.family == ScheduleFamily::data_parallel));
  }
}

TEST_CASE("torchtitan: FSDP over what is left, DDP, groups, and a pipeline") {
  const FrameworkJob fsdp = torchtitan_job(
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 2\nseq_len = 8192\n"
      "[parallelism]\ntensor_parallel_degree = 2\n[activation_checkpoint]\nmode = 'none'\n",
      "job.toml", 16);
  CHECK(fsdp.choice.schedule == "fsdp");
  CHECK(fsdp.mesh.pipeline == 8);
  CHECK(fsdp.mesh.data == 1);
  CHECK(fsdp.global_batch == 16);
  CHECK(fsdp.sequence == 8192);
  CHECK(fsdp.recompute == Recompute::none);
  REQUIRE(fsdp.model);
  CHECK(fsdp.model->name == "llama-3-8b");
  CHECK(fsdp.model->loss_in_float32);
  CHECK(fsdp.model->code == tawpipe::LayerCode::torchtitan_eager);

  const FrameworkJob ddp = torchtitan_job("[parallelism]\ndata_parallel_replicate_degree = 16\n", "job.toml", 16, {.layers = 32});
  CHECK(ddp.choice.schedule == "ddp");
  CHECK(ddp.mesh.data == 16);
  CHECK_FALSE(ddp.shards());
  CHECK_FALSE(ddp.model);
  CHECK(ddp.notes.size() == 1);  // each second layer is computed again

  const FrameworkJob groups = torchtitan_job(
      "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 8\nfsdp_reshard_after_forward = 'never'\n",
      "job.toml", 16, {.layers = 32});
  CHECK(groups.mesh.pipeline == 8);
  CHECK(groups.mesh.data == 2);
  CHECK(groups.choice.options.at("reshard") == "off");

  const FrameworkJob pipeline = torchtitan_job(
      "[training]\nlocal_batch_size = 8\n[parallelism]\npipeline_parallel_degree = 4\n"
      "pipeline_parallel_schedule = 'Interleaved1F1B'\npipeline_parallel_layers_per_stage = 4\n"
      "pipeline_parallel_first_stage_less_layers = 0\npipeline_parallel_last_stage_less_layers = 0\n",
      "job.toml", 16, {.layers = 32});
  CHECK(pipeline.choice.schedule == "interleaved-1f1b");
  CHECK(pipeline.chunks() == 2);
  CHECK(pipeline.mesh.data == 4);
  CHECK(pipeline.sharding == StateSharding::parameters);
  CHECK(pipeline.reshard == Reshard::automatic);
  CHECK(pipeline.microbatches() == 8);
}

TEST_CASE("torchtitan: products in 8 bits, gathers of their weights, and training all in bfloat16") {
  const std::string start = "[model]\nname = \"llama3\"\nflavor = \"8B\"\nconverters = [\"quantize.linear.float8\"]\n";
  const std::string kept = "[quantize.linear.float8]\nfilter_fqns = [\"output\"]\n";
  const FrameworkJob plain = torchtitan_job(start + kept, "job.toml", 16);
  CHECK(plain.model->products == ProductFormat::fp8);
  CHECK_FALSE(plain.model->narrow_gathers);
  const FrameworkJob gathers = torchtitan_job(start + kept + "enable_fsdp_float8_all_gather = true\n", "job.toml", 16);
  CHECK(gathers.model->narrow_gathers);
  CHECK_FALSE(torchtitan_job(start + kept + "enable_fsdp_float8_all_gather = true\n", "job.toml", 1).model->narrow_gathers);
  REQUIRE(torchtitan_cannot(gathers).empty());
  const std::string text = torchtitan_text(gathers, {});
  CHECK(text.find("converters = [\"quantize.linear.float8\"]\n") != std::string::npos);
  CHECK(text.find("[quantize.linear.float8]\nenable_fsdp_float8_all_gather = true\nfilter_fqns = [\"output\"]\n") !=
        std::string::npos);
  CHECK(torchtitan_job(text, "job.toml", 16).model->narrow_gathers);
  const FrameworkJob rows = torchtitan_job(start + kept + "recipe_name = 'rowwise'\n", "job.toml", 16);
  CHECK(rows.model->products == ProductFormat::fp8_rows);
  CHECK(torchtitan_text(rows, {}).find("recipe_name = \"rowwise\"\n") != std::string::npos);
  CHECK(torchtitan_job(start, "job.toml", 16).notes.size() == plain.notes.size() + 1);  // the output matrix too
  CHECK(torchtitan_refusal(start + kept + "recipe_name = 'rowwise'\nenable_fsdp_float8_all_gather = true\n")
            .find("line 8: quantize.linear.float8.enable_fsdp_float8_all_gather: needs one scale a tensor") != std::string::npos);

  const Problem base{.cluster = support::cluster(16, 2), .model = models::named("llama-3-8b"), .sequence = 4096};
  const std::string unnamed = "[model]\nconverters = [\"quantize.linear.float8\"]\n" + kept;
  const FrameworkJob given = torchtitan_job(unnamed + "recipe_name = 'rowwise'\n", "job.toml", 16, {.layers = 32});
  CHECK_FALSE(given.model);
  CHECK(problem_of(given, base).model->products == ProductFormat::fp8_rows);

  FrameworkJob narrow =
      torchtitan_job("[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\ndtype = \"bfloat16\"\n", "job.toml", 16);
  CHECK(narrow.gradient_bytes == 2);
  CHECK(*optimizer_of(narrow) == OptimizerBytes{.master = 0, .moment = 2});
  REQUIRE(torchtitan_cannot(narrow).empty());
  CHECK(torchtitan_text(narrow, {}).find("dtype = \"bfloat16\"\n") != std::string::npos);
  CHECK(megatron_cannot(narrow).size() > 0);
  CHECK(deepspeed_cannot(narrow).size() > 0);
  CHECK(problem_of(narrow, base).parameter_bytes == ParameterBytes{2, 2, 4});
  CHECK(torchtitan_refusal("[training]\ndtype = 'bfloat16'\nmixed_precision_param = 'float32'\n")
            .find("training.dtype: bfloat16 needs training.mixed_precision_param bfloat16") != std::string::npos);
  narrow.optimizer_bytes = 8;  // moments in float32
  CHECK(torchtitan_cannot(narrow).size() == 1);
}

TEST_CASE("DeepSpeed: master weights, gradients and moments in 16 bits") {
  const std::string start = "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 1, ";
  const std::string stage = "\"zero_optimization\": {\"stage\": 3}";
  const FrameworkJob all = deepspeed_job(start + stage +
                                             ", \"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true, "
                                             "\"bf16_optimizer_states\": true}}",
                                         "ds.json", 16);
  CHECK(all.optimizer_bytes == 6);
  CHECK(all.gradient_bytes == 2);
  CHECK(all.notes.empty());
  REQUIRE(deepspeed_cannot(all).empty());
  CHECK(deepspeed_text(all, {}).find("\"bf16_optimizer_states\": true") != std::string::npos);
  FrameworkJob master =
      deepspeed_job(start + stage + ", \"fp16\": {\"enabled\": true, \"fp16_master_weights_and_grads\": true}}", "ds.json", 16);
  CHECK(*optimizer_of(master) == OptimizerBytes{.master = 2, .moment = 4});
  CHECK(deepspeed_cannot(master).size() == 1);  // needs the optimizer in the host
  master.offload.optimizer = true;
  CHECK(deepspeed_cannot(master).empty());
  CHECK(deepspeed_refusal(start + "\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true}}")
            .find("needs zero_optimization.stage 1, 2 or 3") != std::string::npos);
  CHECK(deepspeed_refusal(start + stage + ", \"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true}}")
            .find("needs bf16.bf16_master_weights_and_grads") != std::string::npos);
}

TEST_CASE("torchtitan: a wrong setting is named with its line and what would be right") {
  CHECK(torchtitan_refusal("[parallelism]\ntensor_paralel_degree = 2\n") ==
        "job.toml, line 2: unknown torchtitan setting 'parallelism.tensor_paralel_degree'; did you mean "
        "'parallelism.tensor_parallel_degree'?");
  CHECK(torchtitan_refusal("[parallelism]\ndata_parallel_shard_degree = 4\n").find("4 is not what the others leave") !=
        std::string::npos);
  CHECK(torchtitan_refusal("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = '1FB1'\n")
            .find("did you mean '1F1B'") != std::string::npos);
  CHECK(torchtitan_refusal("[training]\nseq_len = \"long\"\n")
            .find("line 2: training.seq_len: expected a whole number, not 'long'") != std::string::npos);
  CHECK(torchtitan_refusal("[compile]\nenable = 1\n").find("expected true or false, not '1'") != std::string::npos);
  CHECK(torchtitan_refusal("[compile]\nenabel = true\n")
            .find("line 2: unknown torchtitan setting 'compile.enabel'; did you mean "
                  "'compile.enable'?") != std::string::npos);
  CHECK(torchtitan_refusal("[parallelism]\nexpert_parallel_degree = 4\n").find("mixture of experts") != std::string::npos);
}

TEST_CASE("DeepSpeed: stages, batches, and what its file cannot say") {
  const FrameworkJob three = deepspeed_job(
      "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 4, \"bf16\": {\"enabled\": true},\n"
      "\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true, \"stage3_max_live_parameters\": 1e9}, \"optimizer\": "
      "{\"type\": \"AdamW\"}}",
      "ds.json", 16);
  CHECK(three.choice.schedule == "fsdp");
  CHECK(three.code == tawpipe::LayerCode::megatron_unfused);
  CHECK(three.global_batch == 128);
  CHECK_FALSE(three.recompute);
  CHECK(three.overlap_gradients);
  CHECK(three.dtype == Dtype::bf16);
  const FrameworkJob one = deepspeed_job(
      "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 2, \"zero_optimization\": {\"stage\": 1, "
      "\"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}}, \"tensor_parallel\": {\"autotp_size\": 2}}",
      "ds.json", 16);
  CHECK(one.choice.schedule == "ddp");
  CHECK(one.mesh.tensor == 2);
  CHECK(one.mesh.data == 8);
  CHECK(one.sharding == StateSharding::optimizer);
  CHECK(one.offload.optimizer);
  CHECK_FALSE(one.overlap_gradients);
  CHECK(one.dtype == Dtype::f32);
  CHECK(one.gradient_bytes == 4);

  // Stage 3 alone overlaps unless told not to.
  const std::string batch = "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true}, ";
  FrameworkJob overlapped = deepspeed_job(batch + "\"zero_optimization\": {\"stage\": 3}}", "ds.json", 16);
  CHECK(overlapped.overlap_gradients);
  overlapped.overlap_gradients = false;
  CHECK_FALSE(deepspeed_job(deepspeed_text(overlapped, {}), "ds.json", 16).overlap_gradients);

  // The weights of a model that is given become those of the settings.
  const Problem base{.cluster = support::cluster(16, 2), .model = models::named("llama-3-8b"), .sequence = 4096};
  const Problem wide = problem_of(one, base);
  CHECK(wide.model->dtype == Dtype::f32);
  CHECK(wide.model->products == ProductFormat::bits32);
  CHECK(wide.parameter_bytes.weight == 4);
  CHECK(wide.parameter_bytes.optimizer == 8);

  CHECK(deepspeed_refusal("{\n\"train_batch_size\": \"many\",\n\"bf16\": {}}")
            .find("ds.json, line 2: train_batch_size: expected a whole number") == 0);
  CHECK(deepspeed_refusal("{\"train_batch_size\": 32,\n\"zero_optimisation\": {\"stage\": 2}}")
            .find("line 2: unknown DeepSpeed setting 'zero_optimisation.stage'; did you mean 'zero_optimization.stage'?") !=
        std::string::npos);
  CHECK(deepspeed_refusal("{\"train_batch_size\": 32, \"zero_optimization\": {\"stage\": 4}}").find("4 is not 0, 1, 2 or 3") !=
        std::string::npos);
  CHECK(deepspeed_refusal("{\"train_batch_size\": 32,\n\"zero_optimization\": {\"stage\": 2,\n\"overlap_com\": true}}")
            .find("line 3: unknown DeepSpeed setting 'zero_optimization.overlap_com'; did you mean "
                  "'zero_optimization.overlap_comm'?") != std::string::npos);
  CHECK(deepspeed_refusal("{\"train_batch_size\": 32,\n\"bf16\": {\"enabeld\": true}}").find("did you mean 'bf16.enabled'?") !=
        std::string::npos);
  CHECK(deepspeed_refusal("{\"train_batch_size\": 32, \"zero_optimization\": {\"cpu_offload\": true}}")
            .find("it is zero_optimization.offload_optimizer.device now") != std::string::npos);
  CHECK(deepspeed_refusal("{\"train_batch_size\": 32, \"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}")
            .find("fp16.enabled: not with bf16.enabled") != std::string::npos);
  CHECK(deepspeed_refusal("{\"train_batch_size\": 30}").find("30 sequences are not a multiple") != std::string::npos);
}

TEST_CASE("DeepSpeed: what its program fills in is taken from what is given beside the file") {
  const std::string text =
      "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\", \"gradient_accumulation_steps\": "
      "\"auto\",\n"
      "\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": \"auto\"}, \"optimizer\": {\"params\": {\"lr\": \"auto\"}},\n"
      "\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": \"auto\"}}";
  const FrameworkJob job = deepspeed_job(text, "ds.json", 16, {.global_batch = 64, .microbatch = 2});
  CHECK(job.global_batch == 64);
  CHECK(job.microbatch_size == 2);
  CHECK_FALSE(job.dtype);
  CHECK(job.gradient_bytes == 2);
  REQUIRE(job.notes.size() == 1);
  CHECK(job.notes[0] == "ds.json: bf16.enabled and fp16.enabled are left to the program; simulated in the model's numbers");
  CHECK(deepspeed_refusal(text).find("what is \"auto\" is filled in by the program; give --global-batch and --microbatch") !=
        std::string::npos);
}

TEST_CASE("torchtitan: settings of older releases are read, with a note") {
  const FrameworkJob job = torchtitan_job(
      "[model]\nname = \"llama3\"\nflavor = \"70B\"\nconverters = \"float8\"\n[training]\nbatch_size = 2\nseq_len = 8192\n"
      "compile = true\n[parallelism]\ntensor_parallel_degree = 8\n[activation_checkpoint]\nmode = 'full'\n"
      "[float8]\nenable_fsdp_float8_all_gather = true\nfilter_fqns = \"output\"\n",
      "job.toml", 64);
  CHECK(job.microbatch_size == 2);
  CHECK(job.products == ProductFormat::fp8);
  CHECK(job.narrow_gathers);
  REQUIRE(job.notes.size() == 4);
  CHECK(job.notes[0] == "job.toml, line 6: training.local_batch_size: read from its old name, training.batch_size");
  CHECK(torchtitan_refusal("[experimental]\npipeline_parallel_microbatches = 8\n")
            .find("it is parallelism.pipeline_parallel_microbatch_size now, in sequences") != std::string::npos);
}

TEST_CASE("torchtitan: recomputation that stops early is read and written") {
  const auto job = [](const std::string& more) {
    return torchtitan_job(
        "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n"
        "[activation_checkpoint]\nmode = 'full'\n" +
            more,
        "job.toml", 8);
  };
  CHECK_FALSE(job("").model->stops_early());  // its own default, where nothing is compiled
  const FrameworkJob stops = job("early_stop = true\n");
  CHECK(stops.model->stops_early());
  CHECK(tawpipe::torchtitan_settings(stops).early_stop);
  CHECK_FALSE(tawpipe::torchtitan_settings(job("")).early_stop);
}

TEST_CASE("whose settings a file holds") {
  CHECK(framework_of("", "a.json") == Framework::deepspeed);
  CHECK(framework_of("", "a.toml") == Framework::torchtitan);
  CHECK(framework_of("# x\n[training]\n", "job.conf") == Framework::torchtitan);
  CHECK(framework_of("\n{\"a\": 1}", "-") == Framework::deepspeed);
  CHECK(framework_of("#!/bin/bash\nA=(\n", "run") == Framework::megatron);
  for (const char* file : {"model_config.yaml", "nemo.yml"}) CHECK_THROWS_AS(framework_of("a: 1\n", file), InputError);
  CHECK_THROWS_WITH_AS(framework_of("import torch\n", "train.py"),
                       "train.py is in Python, which is not read; a script with Megatron-LM's flags, torchtitan's TOML, "
                       "DeepSpeed's JSON and YAML of several programs are",
                       InputError);
  CHECK_THROWS_WITH_AS(parse_framework("megatrn"),
                       "unknown framework 'megatrn'; did you mean 'megatron'? Known: megatron, torchtitan, deepspeed",
                       InputError);
}

TEST_CASE("schedules that move weights run in no framework") {
  const Problem problem{
      .cluster = support::cluster(16, 2), .model = models::named("llama-3-8b"), .sequence = 4096, .global_batch = 32};
  for (const Framework framework : {Framework::megatron, Framework::torchtitan, Framework::deepspeed}) {
    for (const char* schedule : {"tawpipe", "weipipe", "weipipe-zb1"}) {
      const FrameworkJob job = job_of(problem, {Mesh{.data = 2}.over(8), Recompute::full, 1}, {schedule});
      const auto reasons = cannot_run(framework, job);
      REQUIRE(!reasons.empty());
      CHECK(reasons[0].find(schedule) != std::string::npos);
    }
  }
}

}  // namespace frameworks_test
