// Tests of frameworks/megatron_log.hpp: arguments and times as Megatron-LM prints them.
// Not: what the arguments mean (megatron_test.cpp).
#include "tawpipe/frameworks/megatron_log.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/text.hpp"
#include "tawpipe/frameworks/megatron.hpp"

using namespace tawpipe;

namespace megatron_log_test {

using support::has;

/// The block of a run of 24 layers on 16 GPUs, with `more` lines, each after `before`.
std::string block(const std::string& more, const std::string& before = "") {
  std::string text = before + "------------------------ arguments ------------------------\n";
  const std::string lines =
      "  add_bias_linear ................................. False\n  attention_backend ............................... "
      "AttnBackend.auto\n"
      "  attention_dropout ............................... 0.0\n  bf16 ............................................ True\n"
      "  data_parallel_size .............................. 2\n  ffn_hidden_size ................................. 5632\n"
      "  fp16 ............................................ False\n  global_batch_size ............................... 64\n"
      "  gradient_accumulation_fusion .................... True\n  hidden_dropout .................................. 0.0\n"
      "  hidden_size ..................................... 2048\n  kv_lora_rank .................................... 32\n"
      "  micro_batch_size ................................ 1\n  moe_ffn_hidden_size ............................. 1024\n"
      "  moe_router_topk ................................. 2\n  normalization ................................... RMSNorm\n"
      "  num_attention_heads ............................. 16\n  num_layers ...................................... 24\n"
      "  padded_vocab_size ............................... 32000\n  pipeline_model_parallel_size .................... 4\n"
      "  position_embedding_type ......................... rope\n  recompute_modules ............................... "
      "['core_attn']\n"
      "  seq_length ...................................... 4096\n  swiglu .......................................... True\n"
      "  tensor_model_parallel_size ...................... 2\n  untie_embeddings_and_output_weights ............. True\n"
      "  use_distributed_optimizer ....................... True\n  virtual_pipeline_model_parallel_size ............ None\n"
      "  world_size ...................................... 16\n";
  const std::string all = lines + more;
  for (const std::string_view line : split(all, '\n')) {
    if (!line.empty()) text += concat(before, line, "\n");
  }
  return text + before + "-------------------- end of arguments ---------------------\n";
}
std::string words(const FrameworkJob& job) { return megatron_text(job, {}); }

TEST_CASE("the arguments of a log are the flags of its script") {
  const std::string script =
      "torchrun --nnodes 2 --nproc_per_node 8 p.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 "
      "--micro-batch-size 1 --global-batch-size 64 --num-layers 24 --hidden-size 2048 --num-attention-heads 16 "
      "--ffn-hidden-size 5632 --swiglu --normalization RMSNorm --position-embedding-type rope "
      "--untie-embeddings-and-output-weights --disable-bias-linear --attention-dropout 0 --hidden-dropout 0 "
      "--seq-length 4096 --vocab-size 32000 --bf16 --use-distributed-optimizer";
  const FrameworkJob expected = megatron_job(script, "run.sh", 16);
  CHECK(words(megatron_job(block(""), "run.log", 16)) == words(expected));
  CHECK(megatron_job(block(""), "run.log", 16).notes.empty());
  for (const char* before : {"[rank0]: ", "  0: ", "2026-01-02T03:04:05.678Z worker-0 ", "[default0]:"}) {
    CAPTURE(before);
    CHECK(words(megatron_job(block("", before), "run.log", 16)) == words(expected));
  }
  CHECK(words(megatron_job(block("  virtual_pipeline_model_parallel_size ............ 3\n"), "run.log", 16)) ==
        words(megatron_job(script + " --num-virtual-stages-per-pipeline-rank 3", "run.sh", 16)));
  CHECK(words(megatron_job(
            block("  recompute_granularity ... full\n  recompute_method .... uniform\n  recompute_num_layers .... 1\n"),
            "run.log", 16)) ==
        words(megatron_job(script + " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "run.sh",
                           16)));
}

TEST_CASE("what is switched on and not known is noted; another number of devices is refused") {
  const FrameworkJob job =
      megatron_job(block("  my_own_switch ... True\n  my_own_number ... 3\n  log_timers .. False\n"), "run.log", 16);
  REQUIRE(job.notes.size() == 1);
  CHECK(job.notes[0] == "run.log: switched on and not known to change the layout: my_own_switch");
  CHECK_THROWS_WITH_AS(megatron_job(block(""), "run.log", 32),
                       "run.log, line 30: world_size is 16 processes, and the cluster has 32 devices", InputError);
  CHECK_FALSE(is_megatron_log("p.py --num-layers 4  # arguments\n"));
  CHECK_THROWS_AS(megatron_job("--- arguments ---\nx .. y\n--- end of arguments ---\n", "run.log", 8), InputError);
}

TEST_CASE("the step's time is the middle one after the first, the memory that of the fullest rank") {
  const auto line = [](const char* time) {
    return concat(" [2026-01-02 03:04:05] iteration 10/ 100 | consumed samples: 640 | elapsed time per iteration (ms): ", time,
                  " | global batch size: 64 |\n");
  };
  const std::string log =
      block("") + line("9000.0") + line("1834.2") + line("1800.0") + line("1836.0") +
      "[Rank 0] (after 10 iterations) memory (MB) | allocated: 900.5 | max allocated: 2048.0 | reserved: 3000.0\n"
      "[Rank 8] (after 10 iterations) memory (MB) | allocated: 900.5 | max allocated: 1024.0 | reserved: 3000.0\n";
  const LoggedRun run = megatron_job(log, "run.log", 16).measured;
  CHECK(run.step_seconds == doctest::Approx(1.8342));
  CHECK(run.allocated_bytes == std::int64_t{2} << 30);
  CHECK(measured_by_megatron("elapsed time per iteration (ms): nan |\n").step_seconds == 0);
}

}  // namespace megatron_log_test
