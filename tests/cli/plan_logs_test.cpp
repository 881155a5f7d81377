// `tawpipe plan --today` of logs: as the settings of the same job, with what was measured, and what is asked for.
// Not: single lines of a log (unit/frameworks), nor Megatron-LM's (plan_frameworks_test.cpp).
#include <doctest/doctest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command_json.hpp"

namespace plan_logs_test {

using nlohmann::json;
using support::parsed;
using support::run;

namespace {

const std::string plan = "plan --json - --budget 1 --cluster 2x4 --today ";

}  // namespace

TEST_CASE("a log of torchtitan is its TOML, with a step's time and what the allocator reserved") {
  const support::Folder folder;
  const std::string toml =
      folder.write("job.toml",
                   "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\nseq_len = "
                   "4096\n[parallelism]\ntensor_parallel_degree = 2\n[activation_checkpoint]\nmode = \"full\"\n");
  const std::string log = folder.write(
      "run.log",
      "[titan] 2026-01-02 - root - INFO - Running with configs: {\n  \"model\": {\n    \"name\": \"llama3\",\n    \"flavor\": "
      "\"8B\"\n  },\n  \"training\": {\n    \"local_batch_size\": 1,\n    \"seq_len\": 4096\n  },\n  \"parallelism\": {\n    "
      "\"tensor_parallel_degree\": 2\n  },\n  \"activation_checkpoint\": {\n    \"mode\": \"full\"\n  }\n}\n"
      "[titan] 2026-01-02 - root - INFO - step:  1  loss:  8.19  memory: 40.00GiB(50.00%)  tps: 100  tflops: 1.00  mfu: 1.00%\n"
      "[titan] 2026-01-02 - root - INFO - step: 10  loss:  7.19  memory: 42.00GiB(52.50%)  tps: 1,024  tflops: 9.00  mfu: "
      "9.00%\n");
  const json expected = parsed(run(plan + toml)).at("today");
  const json today = parsed(run(plan + log)).at("today");
  CHECK(today.at("makespan_ps") == expected.at("makespan_ps"));
  CHECK(today.at("framework") == "torchtitan");
  // 4 replicas of 4,096 tokens over 8 devices are 2,048 tokens a device, at 1,024 a second.
  CHECK(today.at("measured_s") == 2.0);
  CHECK(today.at("measured_reserved_bytes") == std::int64_t{42} << 30);
  support::check_refused(run(plan + log + " --args 2"), {"is no script; leave out --args and --env"});
}

TEST_CASE("a log of DeepSpeed is its JSON, and asks for the model and the sequence at once") {
  const support::Folder folder;
  const std::string settings =
      "{\"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true}, \"zero_optimization\": "
      "{\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}, \"offload_optimizer\": {\"device\": \"cpu\"}}}";
  const std::string file = folder.write("ds.json", settings);
  const std::string log =
      folder.write("run.log",
                   "[2026] [INFO] [config.py:1:print] DeepSpeedEngine configuration:\n[2026] [INFO] [config.py:1:print]   "
                   "json = " +
                       settings + "\nCurrSamplesPerSec=4.0, MemAllocated=1.0GB, MaxMemAllocated=2.0GB\n");
  const std::string rest = " --model llama-8x512 --sequence 2048";
  const json expected = parsed(run(plan + file + rest)).at("today");
  const json today = parsed(run(plan + log + rest)).at("today");
  CHECK(today.at("makespan_ps") == expected.at("makespan_ps"));
  CHECK(today.at("command").get<std::string>().find("--offload weights+optimizer") != std::string::npos);
  CHECK(today.at("measured_s") == 4.0);
  CHECK(today.at("measured_allocated_bytes") == std::int64_t{2} << 30);
  support::check_refused(run(plan + log), {"nor the sequence length; give --model and --sequence"});
}

TEST_CASE("a log of the Trainer is today's run, in its own words") {
  const support::Folder folder;
  const std::string log = folder.write(
      "train.log",
      "Model config LlamaConfig {\n  \"hidden_size\": 512,\n  \"intermediate_size\": 1408,\n  \"model_type\": \"llama\",\n  "
      "\"num_attention_heads\": 8,\n  \"num_hidden_layers\": 8,\n  \"rms_norm_eps\": 1e-05,\n  \"tie_word_embeddings\": false,\n "
      " "
      "\"vocab_size\": 32000\n}\n***** Running training *****\n  Instantaneous batch size per device = 1\n  Total train batch "
      "size (w. parallel, distributed & accumulation) = 16\n  Gradient Accumulation steps = 2\n  Total optimization steps = "
      "10\n{'train_runtime': 25.0, 'train_steps_per_second': 0.4}\n");
  const json today = parsed(run(plan + log + " --sequence 2048")).at("today");
  CHECK(today.at("framework") == "transformers");
  CHECK(today.at("measured_s") == 2.5);
  CHECK(today.at("command").get<std::string>().find("--model ") != std::string::npos);
}

}  // namespace plan_logs_test
