// Tests of frameworks/deepspeed_log.hpp: the engine's configuration and times as DeepSpeed prints them.
// Not: what the settings mean (deepspeed_test.cpp).
#include "tawpipe/frameworks/deepspeed_log.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/text.hpp"
#include "tawpipe/frameworks/frameworks.hpp"

using namespace tawpipe;

namespace deepspeed_log_test {

using support::has;

const std::string json =
    "{\n    \"train_batch_size\": 2.048000e+03, \n    \"train_micro_batch_size_per_gpu\": 4, \n    "
    "\"gradient_accumulation_steps\": "
    "32, \n    \"bf16\": {\n        \"enabled\": true\n    }, \n    \"zero_optimization\": {\n        \"stage\": 3, \n        "
    "\"reduce_bucket_size\": 5.000000e+08, \n        \"offload_optimizer\": {\n            \"device\": \"cpu\"\n        }\n    "
    "}, \n  "
    "  \"optimizer\": {\n        \"type\": \"AdamW\", \n        \"params\": {\n            \"betas\": [0.9, 0.95]\n        }\n   "
    " }\n}\n";

std::string print(const std::string& words) {
  return concat("[2026-01-02 03:04:05,678] [INFO] [config.py:1005:print] ", words, "\n");
}
std::string log_of(const std::string& before = "") {
  const std::string all = print("DeepSpeedEngine configuration:") + print("  activation_checkpointing_config  {") +
                          "    \"profile\": false\n}\n" + print("  bfloat16_enabled ............. True") +
                          print("  fp16_enabled ................. False") + print("  gradient_accumulation_steps .. 32") +
                          print("  optimizer_name ............... adamw") + print("  train_batch_size ............. 2048") +
                          print("  train_micro_batch_size_per_gpu  4") + print("  world_size ................... 16") +
                          print("  zero_optimization_stage ...... 3") + print("  json = " + json);
  std::string text;
  for (const std::string_view line : split(all, '\n')) {
    if (!line.empty()) text += concat(before, line, "\n");
  }
  return text;
}
std::string speed(int step, double samples, double memory) {
  return concat("[2026-01-02 03:05:05,678] [INFO] [timer.py:264:stop] epoch=0/micro_step=", step, "/global_step=", step,
                ", RunningAvgSamplesPerSec=100.5, CurrSamplesPerSec=", samples,
                ", MemAllocated=17.94GB, MaxMemAllocated=", memory, "GB\n");
}
FrameworkJob job_of_log(const std::string& text, int devices = 16) {
  CHECK(framework_of(text, "run.log") == Framework::deepspeed);
  return read_job(Framework::deepspeed, text, "run.log", devices);
}

TEST_CASE("the JSON of a log is the file that the engine was given") {
  const std::string file =
      "{\"train_batch_size\": 2048, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 32, \"bf16\": "
      "{\"enabled\": "
      "true}, \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}, \"optimizer\": {\"type\": "
      "\"AdamW\"}}";
  const FrameworkJob expected = deepspeed_job(file, "ds.json", 16);
  for (const char* before : {"", "gpu-q-13: ", "2: ", "[rank0]:", "2026-01-02T03:04:05.678Z worker-0 "}) {
    CAPTURE(before);
    const FrameworkJob job = job_of_log(log_of(before));
    CHECK(deepspeed_text(job, {}) == deepspeed_text(expected, {}));
    CHECK(job.offload.optimizer);
    CHECK(job.global_batch == 2048);
    CHECK(job.notes.empty());
  }
}

TEST_CASE("the time of a step follows from samples a second") {
  // 2,048 sequences at 102.4 a second take 20 s; the first line is left out.
  const FrameworkJob job = job_of_log(log_of() + speed(2, 10, 50) + speed(10, 102.4, 54.06) + speed(20, 102.4, 54.06));
  CHECK(job.measured.step_seconds == doctest::Approx(20));
  CHECK(job.measured.allocated_bytes == static_cast<std::int64_t>(54.06 * 1024 * 1024 * 1024));
  const std::string pipeline = "steps: 10 loss: 2.1 iter time (s): 3.250 samples/sec: 630.1\n";
  CHECK(job_of_log(log_of() + pipeline).measured.step_seconds == doctest::Approx(3.25));
  const std::string clock =
      "[Rank 0] time (ms) | fwd_microstep: 10.00 | bwd_microstep: 20.00 | step_microstep: 1.00\n"
      "[Rank 0] time (ms) | fwd: 1000.00 | bwd: 2000.00 | bwd_inner: 1900.00 | bwd_allreduce: 100.00 | step: 500.00\n";
  CHECK(job_of_log(log_of() + clock).measured.step_seconds == doctest::Approx(3.5));
}

TEST_CASE("a configuration that is cut off is read from its arguments, with a note") {
  const std::string whole = log_of();
  const FrameworkJob job = job_of_log(whole.substr(0, whole.find("json = ") + 40));
  CHECK(job.choice.schedule == "fsdp");
  CHECK(job.global_batch == 2048);
  CHECK(job.dtype == Dtype::bf16);
  REQUIRE(job.notes.size() == 1);
  CHECK(has(job.notes[0], "is cut off"));
  CHECK_THROWS_WITH_AS(job_of_log(print("DeepSpeedEngine configuration:")), "run.log: the engine's configuration is cut off",
                       InputError);
}

TEST_CASE("its processes are the cluster's devices") {
  CHECK_THROWS_WITH_AS(job_of_log(log_of(), 32), doctest::Contains("world_size is 16 processes, and the cluster has 32 devices"),
                       InputError);
}

}  // namespace deepspeed_log_test
