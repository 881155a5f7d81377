// What `tawpipe plan` recommends, `tawpipe validate` proves, with the same flags; and what validate
// says that it does not prove.
// Not: plans themselves (plan_test.cpp), nor each finding (unit/verify).
#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "support/command_json.hpp"

namespace plan_validates_test {

using nlohmann::json;
using support::parsed;
using support::run;

namespace {

/// The words of a plan's command with another verb and its answer as JSON.
std::vector<std::string> validate_of(std::string command) {
  command.erase(std::remove(command.begin(), command.end(), '\''), command.end());
  std::vector<std::string> words = support::words(command);
  REQUIRE(words.size() > 2);
  REQUIRE(words[1] == "simulate");
  words.erase(words.begin());
  words[0] = "validate";
  words.insert(words.end(), {"--json", "-"});
  return words;
}

/// The flags of a command that begin with "--".
std::set<std::string> flags_of(const std::vector<std::string>& words) {
  std::set<std::string> flags;
  std::copy_if(words.begin(), words.end(), std::inserter(flags, flags.end()),
               [](const std::string& word) { return word.starts_with("--"); });
  return flags;
}

}  // namespace

TEST_CASE("validate proves what plan recommends, of every form of states") {
  const support::Folder folder;
  const std::string mixture =
      folder.write("config.json",
                   R"({"model_type": "mixtral", "num_hidden_layers": 8, "hidden_size": 512, "num_attention_heads": 8,
          "num_key_value_heads": 8, "intermediate_size": 704, "vocab_size": 32000, "num_local_experts": 8,
          "num_experts_per_tok": 2, "tie_word_embeddings": false, "torch_dtype": "bfloat16"})");
  const std::string batch = " --sequence 2048 --global-batch 16 --top 2 --json - ";
  const std::string dense = "plan --cluster 2x4 --model llama-8x512" + batch;
  const std::string experts = "plan --cluster 2x4 --expert-parallel 4 --model " + mixture + batch;
  std::set<std::string> flags;
  int proven = 0;
  for (const std::string& plan :
       {dense, dense + "--shard-states optimizer --tensor-parallel 2 --schedules 1f1b,interleaved-1f1b:chunks=2",
        dense + "--shard-states gradients --data-parallel 2 --schedules 1f1b,zb-h1 --bucket 1000000",
        dense + "--shard-states parameters --data-parallel 2 --schedules 1f1b --reshard microbatch",
        dense + "--shard-states parameters --context-parallel 2 --data-parallel 2 --schedules gpipe --reshard step",
        dense + "--offload activations+optimizer --schedules 1f1b,fsdp",
        dense + "--layers-per-stage auto --schedules 1f1b --data-parallel 2", experts,
        std::string{"plan --cluster dgx-h100*4 --model llama-3-8b --sequence 8192 --global-batch 64 --top 2 --json - "
                    "--budget 200000"}}) {
    CAPTURE(plan);
    const json answer = parsed(run(plan));
    REQUIRE(!answer.at("plans").empty());
    for (const json& one : answer.at("plans")) {
      CAPTURE(one.at("command").get<std::string>());
      const std::vector<std::string> words = validate_of(one.at("command"));
      const auto result = run(words);
      CHECK(result.code == 0);
      const json found = parsed(result);
      CHECK(found.at("valid").get<bool>());
      CHECK(found.at("findings").empty());
      flags.merge(flags_of(words));
      ++proven;
    }
  }
  CHECK(proven >= 14);
  for (const char* flag : {"--shard-states", "--reshard", "--overlap-grad-reduce", "--overlap-param-gather", "--bucket",
                           "--offload", "--expert-parallel", "--data-parallel", "--tensor-parallel", "--context-parallel"}) {
    CAPTURE(flag);
    CHECK(flags.contains(flag));
  }
}

TEST_CASE("validate names the steps inside stages that it does not prove, where there are any") {
  const std::string line = "validate --schedule 1f1b --cluster 2x4 --model llama-8x512 --sequence 2048 --global-batch 16";
  // Buckets of gradients are tasks of the schedule, which are proven.
  for (const char* const more : {"", " --data-parallel 2 --overlap-grad-reduce on --bucket 1000000"}) {
    CHECK(parsed(run(line + more + " --json -")).at("not_proven").empty());
    CHECK(run(line + more).out.find("not proven") == std::string::npos);
  }
  const json shared = parsed(run(line + " --tensor-parallel 2 --json -"));
  CHECK(shared.at("not_proven") == json{"compute", "all_reduce", "all_gather", "reduce_scatter"});
  CHECK(shared.at("valid").get<bool>());
  CHECK(run(line + " --tensor-parallel 2")
            .out.find("not proven: steps inside stages that ranks share: compute, all_reduce, "
                      "all_gather, reduce_scatter\n") != std::string::npos);
}

}  // namespace plan_validates_test
