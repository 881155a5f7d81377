// What `plan`, `compare`, `simulate` and `bound` print for a reader: a sentence with its interval first,
// the field's words, 80 columns.
// Not: the figures (plan_test.cpp, commands_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "support/command_json.hpp"
#include "tawpipe/report/formatters.hpp"

namespace answers_test {

using nlohmann::json;
using support::parsed;
using support::run;

namespace {

/// Words that are ours alone, or that mislead.
const std::vector<std::string> private_words{"t x c",    "tcsd",   "iteration", "products", "out of a node", "held SMs",
                                             "makespan", "census", "twin",      "rail",     "hopeless"};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream{text};
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// The text without the command at its end: flags are names of their own.
std::string without_commands(const std::string& text) {
  std::string kept;
  bool command = false;
  for (const std::string& line : lines_of(text)) {
    command = line.starts_with("tawpipe ") || (command && line.starts_with("  --"));
    if (!command) kept += line + "\n";
  }
  return std::regex_replace(kept, std::regex{"--[a-z-]+( iteration)?"}, "");
}

struct NarrowTerminal {
  NarrowTerminal() { setenv("COLUMNS", "80", 1); }
  ~NarrowTerminal() { unsetenv("COLUMNS"); }
};

void check_answer(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  REQUIRE(!lines.empty());
  std::string first;  // paragraph
  for (const std::string& line : lines) {
    if (line.empty()) break;
    first += line + " ";
  }
  CHECK(std::regex_search(first, std::regex{R"(\(80 %: [0-9.]+( [a-z]+)?( [0-9.]+ s)? to [0-9.]+ [a-z]+( [0-9.]+ s)?\))"}));
  CHECK(first.find(". ") != std::string::npos);
  const std::string plain = without_commands(text);
  for (const std::string& word : private_words) {
    CAPTURE(word);
    CHECK(plain.find(word) == std::string::npos);
  }
  for (const std::string& line : lines) {
    CAPTURE(line);
    CHECK((tawpipe::display_width(line) <= 80 || line.starts_with("tawpipe ")));
  }
}

}  // namespace

TEST_CASE("answers begin with a sentence that has an interval, in the field's words and 80 columns") {
  const NarrowTerminal terminal;
  const std::vector<std::string> problems{
      "--cluster dgx-h100 --model llama-3-8b --sequence 8192 --global-batch 64",
      "--cluster dgx-h100*2 --model llama-2-13b --sequence 4096 --global-batch 64 --gemm-format fp8",
      "--cluster a800x24-10gbe --model llama-48x1024 --sequence 16384 --global-batch 96 --cost roofline",
      "--cluster dgx-a100*2 --model gpt-3-175b --sequence 2048 --global-batch 64 --device B200-180G",
      "--cluster 2x4 --model llama-8x512 --sequence 2048 --global-batch 16",
      "--cluster 1x8 --model qwen2.5-7b --sequence 131072 --global-batch 8 --device H200-141G",
      "--cluster dgx-h100 --model olmoe-1b-7b --sequence 4096 --global-batch 64",
      "--cluster dgx-h100*2 --model llama-3-8b --sequence 8192 --global-batch 64 --layer-code torchtitan",
      "--cluster dgx-h100*2 --model llama-3-8b --sequence 8192 --global-batch 64 --gradient-dtype float32",
      "--cluster 1x2 --model llama-3.2-1b --sequence 4096 --global-batch 16"};
  for (const std::string& problem : problems) {
    CAPTURE(problem);
    const bool mixture = problem.find("olmoe") != std::string::npos;
    check_answer(run("plan --budget 2000000 --top 3 " + problem).out);
    check_answer(run("bound " + problem).out);
    check_answer(run("compare --schedules " + std::string{mixture ? "1f1b,gpipe " : "fsdp,1f1b "} + problem).out);
    check_answer(run("simulate --schedule " + std::string{mixture ? "1f1b " : "fsdp "} + "--microbatch 1 " + problem).out);
  }
}

TEST_CASE("intervals are in JSON, hold the frameworks that run a plan, and are absent where times are given") {
  const std::string problem = " --cluster dgx-h100 --model llama-3-8b --sequence 8192 --global-batch 64 --json -";
  const json plan = parsed(run("plan --budget 2000000" + problem));
  for (const json& one : {plan.at("use"), plan.at("plans")[0]}) {
    REQUIRE(one.at("interval_s").size() == 2);
    CHECK(one.at("interval_s")[0].get<double>() < one.at("interval_s")[1].get<double>());
    CHECK(one.at("error_of").is_string());
    CHECK(one.at("runs_in").is_array());
  }
  CHECK(!plan.at("use").at("runs_in").empty());
  CHECK(plan.at("use").at("told_apart_above").get<double>() > 0);
  const json simulated = parsed(run("simulate --schedule tawpipe --microbatch 1" + problem));
  CHECK(simulated.at("runs_in").empty());
  CHECK(simulated.at("error_of") == "no public run like it was measured");
  const json pipeline = parsed(run("simulate --schedule 1f1b --option overlap=off --microbatch 1" + problem));
  const auto width = [](const json& one) {
    return one.at("interval_s")[1].get<double>() / one.at("interval_s")[0].get<double>();
  };
  CHECK(width(simulated) > width(pipeline));
  CHECK(!parsed(run("simulate --schedule 1f1b --cluster 1x4 --microbatches 8 --json - "
                    "--cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s"))
             .contains("interval_s"));
}

TEST_CASE("explain shows weights coming and gradients going, and no such lanes where weights stay") {
  const NarrowTerminal narrow;
  const std::string text = run("explain tawpipe").out;
  for (const char* line : {"  0  microbatch", "     shard", "second for each message", "a digit is the weights of that shard"})
    CHECK_MESSAGE(text.find(line) != std::string::npos, line);
  const std::vector<std::string> lines = lines_of(text);
  // A device computes with each of the four shards in turn, and back.
  CHECK(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("     shard") && std::regex_search(line, std::regex{"0+ *1+ *2+ *3+ *3+ *2+ *1+ *0+"});
  }));
  for (const std::string& line : lines) CHECK(tawpipe::display_width(line) <= 80);
  CHECK(run("explain 1f1b").out.find("shard") == std::string::npos);
}

}  // namespace answers_test
