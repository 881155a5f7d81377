// `tawpipe plan --today` of YAML: as the script of the same job, with files beside it, and refusals.
// Not: what single keys mean (unit/frameworks).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/command_json.hpp"

namespace plan_yaml_test {

using nlohmann::json;
using support::parsed;
using support::run;

namespace {

const std::string plan = "plan --json - --budget 1 --cluster 2x4 --today ";
const std::string model_args =
    "MODEL_ARGS:\n  --num-layers: 8\n  --hidden-size: 512\n  --num-attention-heads: 8\n  --ffn-hidden-size: 1408\n  --swiglu: "
    "true\n"
    "  --vocab-size: 32000\n  --seq-length: 2048\n  --bf16: true\n  --tensor-model-parallel-size: ${TP}\n"
    "  --pipeline-model-parallel-size: 2\n  --micro-batch-size: 1\n  --global-batch-size: 16\n  --attention-dropout: 0\n"
    "  --hidden-dropout: 0\n";

}  // namespace

TEST_CASE("MODEL_ARGS are today's run as their script is") {
  const support::Folder folder;
  const std::string script = folder.write(
      "train.sh",
      "torchrun p.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 --ffn-hidden-size 1408 --swiglu --vocab-size 32000 "
      "--seq-length 2048 --bf16 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1 "
      "--global-batch-size 16 --attention-dropout 0 --hidden-dropout 0\n");
  const std::string file = folder.write("model_config.yaml", model_args);
  const json expected = parsed(run(plan + script)).at("today");
  const json today = parsed(run(plan + file + " --env TP=2")).at("today");
  CHECK(today.at("makespan_ps") == expected.at("makespan_ps"));
  CHECK(today.at("peak_memory_bytes") == expected.at("peak_memory_bytes"));
  CHECK(today.at("framework") == "megatron");
  CHECK(today.at("changes") == expected.at("changes"));
  support::check_refused(run(plan + file), {"line 10: --tensor-model-parallel-size: ${TP} is not set", "--env"});
  support::check_refused(run(plan + file + " --args 2"), {"is no script; leave out --args"});
}

TEST_CASE("nanotron's run is simulated, and changed in its own words") {
  const support::Folder folder;
  const std::string file = folder.write(
      "config.yaml",
      "model: {dtype: bfloat16, model_config: {hidden_size: 512, num_hidden_layers: 8, num_attention_heads: 8, "
      "intermediate_size: 1408, "
      "vocab_size: 32000}}\nparallelism: {dp: 2, tp: 2, pp: 2, pp_engine: 1f1b, tp_mode: ALL_REDUCE, recompute_layer: true}\n"
      "optimizer: {zero_stage: 0, accumulate_grad_in_fp32: true}\n"
      "tokens: {sequence_length: 2048, micro_batch_size: 1, batch_accumulation_per_replica: 8}\n");
  const json today = parsed(run(plan + file)).at("today");
  CHECK(today.at("framework") == "nanotron");
  CHECK(today.at("axes") == json({{"tensor", 2}, {"context", 1}, {"pipeline", 2}, {"data", 2}}));
  CHECK(today.at("global_batch") == 16);
  REQUIRE(!today.at("changes").empty());
  for (const json& change : today.at("changes")) {
    for (const json& word : change.at("settings")) CHECK(word.get<std::string>().find("--") == std::string::npos);
  }
  CHECK(today.dump().find("parallelism.recompute_layer = false") == std::string::npos);  // its default: left out
  CHECK(today.dump().find("without parallelism.recompute_layer") != std::string::npos);
  CHECK(run("plan --budget 1 --cluster 2x4 --today " + file).out.find(", nanotron: 1f1b TP2 PP2 DP2") != std::string::npos);
  // The command gives what the answer says.
  std::string command = today.at("command");
  std::erase(command, '\'');
  std::vector<std::string> words = support::words(command);
  words.erase(words.begin());
  words.insert(words.end(), {"--json", "-"});
  CHECK(parsed(run(words)).at("makespan_ps") == today.at("makespan_ps"));
}

TEST_CASE("LLaMA-Factory's run needs the DeepSpeed file that it names, and has the model that it names") {
  const support::Folder folder;
  const std::string text =
      "model_name_or_path: ./llama-3.2-1b\nstage: sft\nfinetuning_type: full\ndeepspeed: conf/z3.json\ncutoff_len: 2048\n"
      "per_device_train_batch_size: 1\ngradient_accumulation_steps: 2\nbf16: true\npacking: true\n";
  const std::string file = folder.write("train.yaml", text);
  const std::string on_h100 = "plan --json - --budget 1 --cluster dgx-h100 --today ";
  support::check_refused(run(on_h100 + file),
                         {"line 4: deepspeed: there is no conf/z3.json", "put that DeepSpeed configuration at"});
  folder.write("z3.json",
               "{\"bf16\": {\"enabled\": \"auto\"}, \"train_batch_size\": \"auto\", \"zero_optimization\": {\"stage\": 3}}");
  const json today = parsed(run(on_h100 + file)).at("today");
  CHECK(today.at("framework") == "llama-factory");
  CHECK(today.at("global_batch") == 16);
  CHECK(today.at("recompute") == "full");
  CHECK(today.at("command").get<std::string>().find("llama-3.2-1b") != std::string::npos);
  CHECK(today.at("notes").empty());
  const std::string unknown = folder.write("mine.yaml", "model_name_or_path: ./mine\n" + text.substr(text.find("stage")));
  support::check_refused(run(on_h100 + unknown), {"does not say the sizes of ./mine, which is no known model; give --model"});
  CHECK(parsed(run(on_h100 + unknown + " --model llama-3.2-1b")).at("today").at("makespan_ps") == today.at("makespan_ps"));
  const std::string lora = folder.write("lora.yaml", "base_model: Qwen/Qwen3-8B\nadapter: lora\n");
  support::check_refused(run(on_h100 + lora), {"line 2: adapter: adapters (LoRA and its kin) are not modelled"});
}

TEST_CASE("a YAML of no kind is refused with the kinds that are read") {
  const support::Folder folder;
  support::check_refused(run(plan + folder.write("a.yaml", "jobs: {build: 1}\n")),
                         {"a YAML of no kind that is read", "nanotron"});
  support::check_refused(run(plan + folder.write("b.yaml", "a:\n\tb: 1\n")), {"line 2: a tab indents the line"});
}

}  // namespace plan_yaml_test
