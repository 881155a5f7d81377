// Tests of frameworks/torchtitan_command.hpp: torchtitan's command line as settings of its TOML.
// Not: what the settings mean (frameworks_test.cpp, torchtitan_table_test.cpp).
#include "tawpipe/frameworks/torchtitan_command.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/text.hpp"
#include "tawpipe/frameworks/frameworks.hpp"

using namespace tawpipe;

namespace torchtitan_command_test {

using support::has;

FrameworkJob job(const std::string& text, int devices, const GivenJob& given = {}) {
  CHECK(framework_of(text, "run.sh") == Framework::torchtitan);
  return read_job(Framework::torchtitan, text, "run.sh", devices, given);
}
std::string words(const FrameworkJob& job) { return torchtitan_text(job, {}); }

TEST_CASE("a configuration and its changes are the TOML's settings") {
  const std::string start = "#!/bin/bash\nTP=2\ntorchrun --nproc_per_node=8 --nnodes=2 -m torchtitan.train --module llama3 ";
  const FrameworkJob small = job(start +
                                     "--config llama3_8b --parallelism.tensor_parallel_degree $TP "
                                     "--parallelism.data_parallel_shard_degree 8 --metrics.log_freq 1 \"$@\"\n",
                                 16);
  CHECK(small.notes.empty());
  CHECK(words(small) ==
        words(torchtitan_job("[model]\nname='llama3'\nflavor='8B'\n[training]\nlocal_batch_size=1\nseq_len=8192\n[parallelism]\n"
                             "tensor_parallel_degree=2\ndata_parallel_shard_degree=8\n[activation_checkpoint]\n"
                             "selective_ac_option='op'\n",
                             "job.toml", 16)));
  const FrameworkJob piped = job(start +
                                     "--config llama3_70b --parallelism.pipeline_parallel_degree=2 "
                                     "--parallelism.tensor_parallel_degree 4 --parallelism.num_pp_microbatches 8 "
                                     "--training.num_tokens_per_microbatch_per_dp_rank 16384 --compile.enable\n",
                                 16);
  CHECK(piped.microbatch_size == 2);
  CHECK(piped.sequence == 8192);
  CHECK(piped.global_batch == 32);  // 2 x 8 x 2 data-parallel ranks
  CHECK(piped.recompute == Recompute::full);
  CHECK(piped.code == LayerCode::torchtitan);
  CHECK(job(start + "--config llama3_8b --training.num_tokens_per_train_step 1048576\n", 16).global_batch == 128);
  CHECK(job(start + "--config llama3_405b\n", 16).products == ProductFormat::fp8);
}

TEST_CASE("what is not known is noted, refused by name, or needs what the script does not say") {
  const std::string start = "torchrun -m torchtitan.train --module llama3 --config llama3_8b ";
  CHECK(has(job(start + "--my.own 3\n", 8).notes.at(0), "an unknown torchtitan setting, left out: my.own in line 1"));
  const auto refusal = [](const std::string& text, const GivenJob& given = {}) -> std::string {
    try {
      job(text, 8, given);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(has(refusal(start + "--my.own 3\n", {.strict = true}), "unknown torchtitan setting 'my.own'"));
  CHECK(has(refusal("torchrun -m torchtitan.train --module llama3 --config llama3_9b\n"),
            "--config: unknown configuration 'llama3_9b'; did you mean 'llama3_8b'?"));
  CHECK(has(refusal("torchrun -m torchtitan.train --module qwen3 --config llama3_8b\n"),
            "--module: llama3_8b is a configuration of llama3"));
  CHECK(has(refusal(start + "--parallelism.tensor_parallel_degree $X\n"), "$X is not set in this file"));
}

}  // namespace torchtitan_command_test
