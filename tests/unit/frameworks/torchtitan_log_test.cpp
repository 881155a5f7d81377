// Tests of frameworks/torchtitan_log.hpp: configurations, commands, lines and times as torchtitan prints them.
// Not: what the settings mean (torchtitan_test.cpp).
#include "tawpipe/frameworks/torchtitan_log.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/text.hpp"
#include "tawpipe/frameworks/frameworks.hpp"

using namespace tawpipe;

namespace torchtitan_log_test {

using support::has;

std::string at(const std::string& rank, const std::string& words) {
  return concat("[rank", rank, "]:[titan] 2026-01-02 03:04:05,678 - root - INFO - ", words, "\n");
}
/// A step of 8,192 tokens a device at that many a second.
std::string step(int number, const std::string& speed, const std::string& memory) {
  return at("0", concat("\033[31mstep: ", number, "  \033[32mloss:  8.1996  \033[38;2;180;60;0mgrad_norm:  1.5  \033[36mmemory: ",
                        memory, "GiB(57.23%)  \033[34mtps: ", speed, "  \033[36mtflops: 314.71  \033[35mmfu: 31.8%\033[0m"));
}
const std::string steps =
    step(1, "1,024", "45.30") + step(10, "8,192", "46.50") + step(20, "8,000", "46.50") + step(30, "8,300", "46.50");

const std::string start =
    at("0", "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=4, cp=1, tp=2, ep=1, etp=1") +
    at("0", "\033[34mModel llama3 8B \033[31msize: 8,030,261,248 total parameters\033[0m") +
    at("0", "Applied full activation checkpointing to the model") +
    at("0", "Compiling each TransformerBlock with torch.compile") + at("0", "Applied FSDP to the model") +
    at("0",
       "Trainer is initialized with local batch size 2, global batch size 16, gradient accumulation steps 2, sequence length "
       "4096, total steps 30 (warmup 2)");

FrameworkJob job_of_log(const std::string& text, const GivenJob& given = {}) {
  CHECK(framework_of(text, "run.log") == Framework::torchtitan);
  return read_job(Framework::torchtitan, text, "run.log", 8, given);
}

TEST_CASE("a printed configuration is the TOML that it came from") {
  const std::string toml =
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 2\nglobal_batch_size = 16\nseq_len = 4096\n"
      "[parallelism]\ntensor_parallel_degree = 2\n[activation_checkpoint]\nmode = \"full\"\n[compile]\nenable = true\n";
  const FrameworkJob expected = torchtitan_job(toml, "job.toml", 8);
  const std::string configuration =
      at("0", "Running with configs: {") + "[rank0]:  \"job\": {\n" + at("1", "something else") +
      "[rank0]:    \"config_file\": null,\n[rank0]:    \"description\": \"a } in \\\"quotes\\\"\"\n[rank0]:  },\n"
      "[rank0]:  \"model\": {\n[rank0]:    \"name\": \"llama3\",\n[rank0]:    \"flavor\": \"8B\",\n[rank0]:    \"converters\": "
      "[]\n"
      "[rank0]:  },\n[rank0]:  \"training\": {\n[rank0]:    \"local_batch_size\": 2,\n[rank0]:    \"global_batch_size\": 16,\n"
      "[rank0]:    \"seq_len\": 4096,\n[rank0]:    \"some_new_name\": 3\n[rank0]:  },\n[rank0]:  \"parallelism\": {\n"
      "[rank0]:    \"tensor_parallel_degree\": 2,\n[rank0]:    \"pipeline_parallel_layers_per_stage\": null,\n"
      "[rank0]:    \"data_parallel_shard_degree\": -1\n[rank0]:  },\n[rank0]:  \"activation_checkpoint\": {\n"
      "[rank0]:    \"mode\": \"full\"\n[rank0]:  },\n[rank0]:  \"compile\": {\n[rank0]:    \"enable\": true,\n"
      "[rank0]:    \"components\": [\n[rank0]:      \"model\",\n[rank0]:      \"loss\"\n[rank0]:    ]\n[rank0]:  }\n[rank0]:}\n";
  const FrameworkJob job = job_of_log(configuration + steps);
  CHECK(torchtitan_text(job, {}) == torchtitan_text(expected, {}));
  CHECK(job.notes == expected.notes);
  CHECK(job.code == expected.code);
}

TEST_CASE("the time of a step follows from tokens a second of the middle line but the first") {
  // 16 sequences of 4,096 tokens over 8 devices are 8,192 tokens a device.
  const FrameworkJob job = job_of_log(start + steps);
  CHECK(job.measured.step_seconds == doctest::Approx(1.0));
  CHECK(job.measured.reserved_bytes == static_cast<std::int64_t>(46.5 * 1024 * 1024 * 1024));
  CHECK(job.measured.allocated_bytes == 0);
}

TEST_CASE("lines of a start say the job where nothing else does") {
  const FrameworkJob job = job_of_log(start + steps);
  CHECK(job.mesh.tensor == 2);
  CHECK(job.choice.schedule == "fsdp");
  CHECK(job.recompute == Recompute::full);
  CHECK(job.code == LayerCode::torchtitan);
  CHECK(job.global_batch == 16);
  CHECK(job.microbatch_size == 2);
  CHECK(job.sequence == 4096);
  REQUIRE(job.model);
  CHECK(job.model->layers == 32);
  REQUIRE(job.notes.size() == 1);
  CHECK(has(job.notes[0], "no printed configuration"));
  const std::string old = at("0", "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]") +
                          at("0", "Model llama3 8B size: 8,030,261,248 total parameters") +
                          at("0",
                             "Training starts at step 1, with local batch size 1, global batch size 4, sequence length 8192, "
                             "total steps 10 (warmup 2)");
  const FrameworkJob first = job_of_log(old + steps);
  CHECK(first.mesh.tensor == 2);
  CHECK(first.recompute == Recompute::none);
  CHECK(first.sequence == 8192);
}

TEST_CASE("of 2026: tokens, a policy by its class, and the command that the script echoes") {
  const std::string lines =
      at("0", "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1") +
      at("0", "Model llama3 8B size: 8,030,261,248 total parameters") +
      at("0", "Applied SelectiveAC activation checkpointing to the model") +
      at("0",
         "Trainer is initialized with 8192 tokens per DP rank, 131072 tokens per train step, gradient accumulation steps 2, "
         "maximum context length 8192, total steps 100 (warmup 2)");
  const FrameworkJob job = job_of_log(lines + steps);
  CHECK(job.recompute == Recompute::selective);
  CHECK(job.global_batch == 16);
  CHECK(job.microbatch_size == 1);
  const std::string command =
      "+ torchrun --nproc_per_node=8 --local-ranks-filter 0 --role rank --tee 3 -m torchtitan.train --module llama3 --config "
      "llama3_8b --parallelism.tensor_parallel_degree 2\n";
  const FrameworkJob echoed = job_of_log(command + steps);
  CHECK(echoed.mesh.tensor == 2);
  CHECK(echoed.sequence == 8192);
  CHECK(echoed.notes.empty());
}

TEST_CASE("what a log does not say is asked for, all at once") {
  CHECK_THROWS_WITH_AS(job_of_log(steps), doctest::Contains("says neither its configuration nor its mesh"), InputError);
  const std::string mesh =
      at("0", "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1, etp=1");
  CHECK_THROWS_WITH_AS(job_of_log(mesh + steps),
                       "run.log has no printed configuration, and does not say the model (--model), the sequence length "
                       "(--sequence), the sequences of a device at a time (--microbatch), those of an iteration (--global-batch)",
                       InputError);
  const FrameworkJob job =
      job_of_log(mesh + steps, {.layers = 32, .global_batch = 8, .microbatch = 1, .sequence = 8192, .model = true});
  CHECK(job.global_batch == 8);
  CHECK(job.measured.step_seconds == doctest::Approx(1.0));
}

}  // namespace torchtitan_log_test
