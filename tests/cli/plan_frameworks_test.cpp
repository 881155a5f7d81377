// `tawpipe plan --today` and `--emit`: other frameworks' settings in and out.
// Not: what single settings mean (unit/frameworks), nor that all plans parse back
// (properties/frameworks_test.cpp).
#include <doctest/doctest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/command_json.hpp"

namespace plan_frameworks_test {

using nlohmann::json;
using support::parsed;
using support::run;

namespace {

const std::string script =
    "#!/bin/bash\n"
    "# how we train today\n"
    "GPUS=4\n"
    "TP=2\n"
    "MODEL_ARGS=(\n"
    "  --num-layers 8 --hidden-size 512 --num-attention-heads 8\n"
    "  --ffn-hidden-size 1408 --swiglu --vocab-size 32000\n"
    "  --seq-length 2048 --max-position-embeddings 2048 --bf16\n"
    ")\n"
    "torchrun --nproc_per_node $GPUS pretrain_gpt.py ${MODEL_ARGS[@]} \\\n"
    "  --tensor-model-parallel-size $TP \\\n"
    "  --pipeline-model-parallel-size 2 \\\n"
    "  --micro-batch-size 1 --global-batch-size 16 \\\n"
    "  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \\\n"
    "  --attention-dropout 0 --hidden-dropout 0 --lr 3e-4 --data-path $DATA\n";

std::vector<std::string> words_of(std::string command) {
  std::erase(command, '\'');
  std::vector<std::string> words = support::words(command);
  words.erase(words.begin());
  return words;
}

}  // namespace

TEST_CASE("what is run today is simulated beside the best, with what is lost and why") {
  const support::Folder folder;
  const std::string file = folder.write("train.sh", script);
  const json answer = parsed(run("plan --json - --cluster 2x4 --today " + file));
  const json& today = answer.at("today");
  const json& best = answer.at("plans").at(0);
  CHECK(today.at("framework") == "megatron");
  CHECK(today.at("axes") == json({{"tensor", 2}, {"context", 1}, {"pipeline", 2}, {"data", 2}}));
  CHECK(today.at("schedule") == "1f1b");
  CHECK(today.at("sequence") == 2048);
  CHECK(today.at("global_batch") == 16);
  CHECK(today.at("notes").empty());
  const double lost = 1 - best.at("makespan_s").get<double>() / today.at("makespan_s").get<double>();
  CHECK(today.at("lost").get<double>() == doctest::Approx(lost));
  CHECK(lost > 0);
  REQUIRE(!today.at("changes").empty());
  double before = 1;
  for (const json& change : today.at("changes")) {
    CHECK(!change.at("settings").empty());
    CHECK(change.at("faster").get<double>() <= before);
    CHECK(change.at("faster").get<double>() > 0);
    before = change.at("faster").get<double>();
  }
  // Both commands give what the answer says.
  for (const json& plan : {today, best}) {
    std::vector<std::string> arguments = words_of(plan.at("command"));
    arguments.insert(arguments.end(), {"--json", "-"});
    CAPTURE(plan.at("command").get<std::string>());
    const json simulated = parsed(run(arguments));
    CHECK(simulated.at("makespan_ps") == plan.at("makespan_ps"));
    CHECK(simulated.at("peak_memory_bytes") == plan.at("peak_memory_bytes"));
  }
  const auto text = run("plan --cluster 2x4 --today " + file);
  CHECK(text.code == 0);
  for (const char* part : {"today  ", "Megatron-LM: 1f1b TP2 PP2 DP2", "of the time is lost", "faster by one change: "}) {
    CAPTURE(part);
    CHECK(text.out.find(part) != std::string::npos);
  }
}

TEST_CASE("a script with its arguments, a log with its times, and what is not known in them") {
  const support::Folder folder;
  std::string text = script;
  text.replace(text.find("TP=2"), 4, "TP=$1");
  const std::string file = folder.write("train.sh", text + "\n");
  const std::string plan = "plan --json - --budget 1 --cluster 2x4 --today ";
  const json expected = parsed(run(plan + folder.write("as_it_was.sh", script))).at("today");
  const json given = parsed(run(plan + file + " --args 2 --env NAME=x")).at("today");
  CHECK(given.at("makespan_ps") == expected.at("makespan_ps"));
  CHECK_FALSE(given.contains("measured_s"));
  const auto missing = run(plan + file);
  CHECK(missing.code == 2);
  CHECK(missing.err.find("$1 is not set in this file; write its value, set it before, or give it by --args") !=
        std::string::npos);
  support::check_refused(run("plan --cluster 2x4 --model llama-8x512 --sequence 2048 --global-batch 16 --args 2"),
                         {"--args requires --today"});
  CHECK(run(plan + file + " --args 2 --env x").err.find("write --env TP=4") != std::string::npos);
  const std::string fork = folder.write("fork.sh", script.substr(0, script.size() - 1) + " --data-impl mmap\n");
  CHECK(parsed(run(plan + fork)).at("today").at("notes").at(0).get<std::string>().find("left out: --data-impl in line 15") !=
        std::string::npos);
  CHECK(run(plan + fork + " --strict").err.find("line 15: unknown Megatron-LM flag '--data-impl'") != std::string::npos);

  std::string log = "--- arguments ---\n  bf16 ... True\n  attention_dropout .. 0\n  hidden_dropout .. 0\n";
  for (const char* argument :
       {"num_layers .. 8", "hidden_size .. 512", "num_attention_heads .. 8", "ffn_hidden_size .. 1408", "swiglu .. True",
        "vocab_size .. 32000", "seq_length .. 2048", "tensor_model_parallel_size .. 2", "pipeline_model_parallel_size .. 2",
        "micro_batch_size .. 1", "global_batch_size .. 16", "recompute_granularity .. full", "recompute_method .. uniform",
        "recompute_num_layers .. 1", "world_size .. 8"})
    log += std::string{"  "} + argument + "\n";
  log +=
      "--- end of arguments ---\n iteration 2/ 9 | elapsed time per iteration (ms): 250.0 |\n"
      "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1.0 | max allocated: 2048.0 |\n";
  const std::string path = folder.write("run.log", log);
  support::check_refused(run(plan + path + " --args 2"), {"is no script; leave out --args and --env"});
  const json read = parsed(run(plan + path)).at("today");
  CHECK(read.at("makespan_ps") == expected.at("makespan_ps"));
  CHECK(read.at("measured_s") == 0.25);
  CHECK(read.at("measured_allocated_bytes") == std::int64_t{2} << 30);
  CHECK(run("plan --budget 1 --cluster 2x4 --today " + path).out.find("measured 250 ms a step, predicted ") != std::string::npos);

  const json whole = parsed(run("plan --json - --cluster 2x4 --today " + path + " --step-time 500ms"));  // in place of the log's
  const json& today = whole.at("today");
  CHECK(today.at("measured_s") == 0.5);
  const auto of = [](const json& one, const char* key) { return one.at(key).get<double>(); };
  const double factor = 0.5 / of(today, "makespan_s");
  const json& expected_step = today.at("by_measured_s");
  CHECK(expected_step.at(1).get<double>() == doctest::Approx(factor * of(whole.at("plans").at(0), "makespan_s")).epsilon(1e-6));
  CHECK(expected_step.at(0).get<double>() < expected_step.at(1).get<double>());
  CHECK(expected_step.at(1).get<double>() < expected_step.at(2).get<double>());
  for (const json& change : today.at("changes"))
    CHECK(change.at("by_measured_s").at(1).get<double>() == doctest::Approx(factor * of(change, "makespan_s")).epsilon(1e-6));
  CHECK(run("plan --cluster 2x4 --step-time 500ms --today " + path).out.find("by the measured step the plan takes ") !=
        std::string::npos);
  CHECK(run(plan + path + " --step-time 0s").err.find("--step-time 0 is no step") != std::string::npos);
  CHECK(run(plan + path + " --step-time 9").err.find("'9' is not a duration") != std::string::npos);
  support::check_refused(run("plan --cluster 2x4 --model llama-8x512 --sequence 2048 --global-batch 16 --step-time 1s"),
                         {"--step-time requires --today"});
}

TEST_CASE("the settings that are printed are those of the best plan that the framework can run, and read back") {
  const support::Folder folder;
  const std::string problem = " --cluster 2x4 --model llama-8x512 --sequence 2048 --global-batch 16";
  for (const std::string framework : {"megatron", "torchtitan", "deepspeed"}) {
    CAPTURE(framework);
    const json answer = parsed(run("plan --json - --emit " + framework + problem));
    const json& emitted = answer.at("emitted");
    CHECK(emitted.at("framework") == framework);
    CHECK(emitted.at("plan").at("makespan_s").get<double>() >= answer.at("plans").at(0).at("makespan_s").get<double>());
    if (emitted.at("plan").at("makespan_ps") != answer.at("plans").at(0).at("makespan_ps")) CHECK(!emitted.at("cannot").empty());
    const auto printed = run("plan --emit " + framework + problem);
    CHECK(printed.code == 0);
    CHECK(printed.out == emitted.at("text").get<std::string>());
    const std::string file = folder.write(framework == "megatron"     ? "a.sh"
                                          : framework == "torchtitan" ? "a.toml"
                                                                      : "a.json",
                                          printed.out);
    const std::string recompute = emitted.at("plan").at("recompute").get<std::string>();
    const json back = parsed(run("plan --json - --budget 1 --today " + file + " --recompute " + recompute + problem));
    CHECK(back.at("today").at("makespan_ps") == emitted.at("plan").at("makespan_ps"));
    CHECK(back.at("today").at("peak_memory_bytes") == emitted.at("plan").at("peak_memory_bytes"));
    CHECK(back.at("today").at("notes").empty());
  }
}

TEST_CASE("a plan for another framework than today's has that framework's kernels") {
  const support::Folder folder;
  const std::string file = folder.write("train.sh", script);
  const std::string problem = " --cluster 2x4 --device H100-80G --emit torchtitan";
  const json moved = parsed(run("plan --json - --today " + file + problem));
  const json fresh = parsed(run("plan --json - --model llama-8x512 --sequence 2048 --global-batch 16" + problem));
  const auto code = [](const json& answer) {
    const std::string command = answer.at("emitted").at("plan").at("command");
    return command.find("--layer-code torchtitan") != std::string::npos;
  };
  CHECK(code(moved));
  CHECK(code(fresh));
  CHECK(moved.at("today").at("command").get<std::string>().find("--layer-code") == std::string::npos);  // Megatron-LM's own
}

TEST_CASE("the best of several formats of products is written as settings") {
  const auto printed =
      run("plan --emit megatron --cluster 2x4 --device H100-80G --model llama-8x4096 --sequence 2048 --global-batch 16 "
          "--gemm-format 16bit,fp8");
  CHECK(printed.code == 0);
  CHECK(printed.out.find("--fp8-format") != std::string::npos);
}

TEST_CASE("CUDA graphs of today's run are planned with, and written for Megatron-LM only") {
  const support::Folder folder;
  const std::string kept = "  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \\\n";
  std::string graphs = script + " --cuda-graph-impl local --te-rng-tracker\n";
  const std::string file = folder.write("train.sh", graphs.erase(graphs.find(kept), kept.size()));
  const std::string plan = "plan --cluster 2x4 --device H100-80G --today " + file;
  const json answer = parsed(run(plan + " --json -"));
  for (const json& one : {answer.at("today"), answer.at("plans").at(0)})
    CHECK(one.at("command").get<std::string>().find("--cuda-graphs layers") != std::string::npos);
  CHECK(run(plan + " --emit megatron").out.find("--cuda-graph-impl local") != std::string::npos);
  // A comment may say that the plan here has them.
  const std::string toml = run(plan + " --emit torchtitan").out;
  CHECK(toml.find("cuda", toml.find("\n[")) == std::string::npos);
  support::check_refused(run(plan + " --emit torchtitan --cuda-graphs layers"), {"--cuda-graphs", "--emit megatron"});
  CHECK(run(plan + " --cost roofline --json -").code == 0);
}

TEST_CASE("torchtitan's products in 8 bits, and gathers of their weights, are planned with") {
  const support::Folder folder;
  const std::string file = folder.write(
      "job.toml",
      "[model]\nname = 'llama3'\nflavor = '8B'\nconverters = ['quantize.linear.float8']\n[training]\nlocal_batch_size = 1\n"
      "seq_len = 2048\n[activation_checkpoint]\nmode = 'full'\n[quantize.linear.float8]\n"
      "enable_fsdp_float8_all_gather = true\nfilter_fqns = ['output']\n");
  const json answer = parsed(run("plan --json - --budget 1 --cluster dgx-h100 --today " + file));
  CHECK(answer.at("today").at("notes").empty());
  const std::string command = answer.at("today").at("command");
  CHECK(command.find("--model llama-3-8b ") != std::string::npos);
  CHECK(command.find("--gemm-format fp8 --gathered-weights gemm") != std::string::npos);
  CHECK(command.find("--layer-code torchtitan-eager") != std::string::npos);  // not compiled
}

TEST_CASE("whose kernels run the layers today is planned with, unless said otherwise") {
  const support::Folder folder;
  const std::string file = folder.write("train.sh", script + " --no-gradient-accumulation-fusion\n");
  const std::string plan = "plan --cluster 2x4 --budget 1 --json - --today " + file;
  const std::string command = parsed(run(plan)).at("today").at("command");
  CHECK(command.find("--layer-code megatron-unfused") != std::string::npos);
  CHECK(parsed(run(plan + " --layer-code megatron")).at("today").at("command").get<std::string>().find("unfused") ==
        std::string::npos);
  const json answer =
      parsed(run("plan --cluster 2x4 --model llama-8x512 --sequence 2048 --global-batch 16 --json - "
                 "--emit torchtitan"));
  CHECK(answer.at("emitted").at("plan").at("command").get<std::string>().find("--layer-code torchtitan") != std::string::npos);
}

TEST_CASE("a framework that cannot run the best plan says so, and why") {
  const std::string problem = " --cluster 3x2 --model llama-8x512 --sequence 2048 --global-batch 12 --schedules ";
  const auto printed = run("plan --emit megatron --json -" + problem + "tawpipe,1f1b");
  const json answer = parsed(printed);
  if (answer.at("plans").at(0).at("schedule") == "tawpipe") {
    const std::string text = answer.at("emitted").at("text");
    CHECK(text.find("# Megatron-LM cannot run the best plan") != std::string::npos);
    CHECK(text.find("it has no tawpipe") != std::string::npos);
    CHECK(answer.at("emitted").at("plan").at("schedule") == "1f1b");
  }
  support::check_refused(run("plan --emit megatron" + problem + "tawpipe,weipipe"), {"Megatron-LM has none of tawpipe, weipipe"});
}

TEST_CASE("settings that contradict the flags, or say too little, are refused with what would be right") {
  const support::Folder folder;
  const std::string file = folder.write("train.sh", script);
  const std::string base = "plan --cluster 2x4 --today " + file;
  support::check_refused(run(base + " --sequence 4096"), {"--sequence 4096 is not what", "2048", "leave out --sequence"});
  support::check_refused(run(base + " --global-batch 32"), {"--global-batch 32", "16"});
  support::check_refused(run(base + " --model llama-3-8b"),
                         {"--model llama-3-8b is not the model of", "8 layers of hidden size 512"});
  std::string more = script;
  more.insert(more.find("--micro-batch-size"),
              "--multi-latent-attention --kv-lora-rank 64 --num-experts 8 --moe-layer-freq '[0]*2+[1]*6' --sequence-parallel ");
  const std::string mixture = folder.write("mixture.sh", more);
  support::check_refused(run("plan --cluster 2x4 --model deepseek-v2-lite --today " + mixture),
                         {"latent attention of rank 64", "8 experts, 2 a token, before them 2 layers with one MLP of 1408"});
  support::check_refused(run("plan --today " + file), {"--cluster is missing"});
  support::check_refused(run("plan --cluster 1x3 --today " + file), {"line 11: --tensor-model-parallel-size", "3 devices"});
  support::check_refused(run(base + " --devices 4..8"), {"leave out --devices"});
  support::check_refused(run("plan --cluster 2x4 --today nowhere.sh"), {"nowhere.sh"});
  support::check_refused(run("plan --cluster 2x4 --model llama-8x512 --sequence 2048 --global-batch 16 --emit megatrn"),
                         {"did you mean 'megatron'"});
  const std::string toml = folder.write("job.toml", "[training]\nlocal_batch_size = 2\n");
  support::check_refused(run("plan --cluster 2x4 --today " + toml), {"does not say the sizes of llama3 debugmodel", "--model"});
  const std::string wrong = folder.write("wrong.sh", "p.py --micro-batch-size 1 \\\n --tensor-model-paralel-size 2\n");
  support::check_refused(run("plan --strict --cluster 2x4 --today " + wrong),
                         {"wrong.sh, line 2: unknown Megatron-LM flag", "did you mean '--tensor-model-parallel-size'"});
  const std::string given = " --model llama-8x512 --sequence 2048 --global-batch 16";
  const std::string stages = folder.write("ds.json", "{\"train_batch_size\": 16,\n\"zero_optimization\": {\"stag\": 3}}");
  support::check_refused(run("plan --strict --cluster 2x4 --today " + stages + given),
                         {"ds.json, line 2: unknown DeepSpeed setting", "did you mean 'zero_optimization.stage'"});
  const std::string degree = folder.write("a.toml", "[parallelism]\npipeline_parallel_degre = 2\n");
  support::check_refused(run("plan --strict --cluster 2x4 --today " + degree + given),
                         {"a.toml, line 2: unknown torchtitan setting", "did you mean 'parallelism.pipeline_parallel_degree'"});
}

}  // namespace plan_frameworks_test
