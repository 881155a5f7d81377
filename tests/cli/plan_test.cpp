// `tawpipe plan` and `tawpipe bound`: what they print, that the command they give does what they
// say, and what they refuse.
// Not: whether the answer is the best (unit/search/plan_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "support/command_json.hpp"

namespace plan_test {

using nlohmann::json;
using support::parsed;
using support::run;

namespace {

const std::string problem_of_small = " --model llama-8x512 --sequence 2048 --global-batch 16";
const std::string small = " --cluster 2x4" + problem_of_small;

/// The words of a command as plan prints it, without the name of the program.
std::vector<std::string> arguments_of(std::string command) {
  command.erase(std::remove(command.begin(), command.end(), '\''), command.end());
  std::vector<std::string> words = support::words(command);
  REQUIRE(words.front() == "tawpipe");
  words.erase(words.begin());
  return words;
}

}  // namespace

TEST_CASE("of several formats of products the fastest is planned, and what the others cost is told") {
  const std::string problem =
      "plan --cluster dgx-h100 --model llama-3.2-1b --sequence 8192 --global-batch 16 --top 1 --schedules fsdp,ddp";
  const json answer = parsed(run(problem + " --gemm-format 16bit,fp8 --json -"));
  const json alone = parsed(run(problem + " --json -"));
  REQUIRE(answer.at("gemm_formats").size() == 2);
  CHECK(answer.at("gemm_formats")[0].at("format") == "16bit");
  CHECK(answer.at("gemm_formats")[0].at("makespan_s") == alone.at("plans")[0].at("makespan_s"));
  CHECK(answer.at("gemm_formats")[1].at("makespan_s") == answer.at("plans")[0].at("makespan_s"));
  CHECK(answer.at("plans")[0].at("makespan_s") < alone.at("plans")[0].at("makespan_s"));
  CHECK(answer.at("plans")[0].at("command").get<std::string>().find("--gemm-format fp8") != std::string::npos);
  CHECK(run(problem + " --gemm-format 16bit,fp8").out.find("GEMMs in 16bit: ") != std::string::npos);
  support::check_refused(run(problem + " --gemm-format 16bit,fp9"), {"fp9", "fp8"});
  support::check_refused(run(problem + " --moment-dtype bfloat16 --emit torchtitan"), {"--moment-dtype", "--emit"});
  support::check_refused(run(problem + " --master-dtype float16 --emit torchtitan"), {"--master-dtype", "--emit"});
  const std::string all = run(problem + " --moment-dtype bfloat16 --master-dtype none --emit torchtitan").out;
  CHECK(all.find("dtype = \"bfloat16\"\n") != std::string::npos);
  CHECK(all.find("--master-dtype none") != std::string::npos);
  const std::string narrow =
      run(problem + " --moment-dtype bfloat16 --master-dtype float16 --loss-dtype model --emit megatron").out;
  for (const char* flag : {"--use-precision-aware-optimizer", "--main-params-dtype fp16", "--exp-avg-dtype bf16",
                           "--exp-avg-sq-dtype bf16", "--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl te"}) {
    CAPTURE(flag);
    CHECK(narrow.find(flag) != std::string::npos);
  }
}

TEST_CASE("a plan's command simulates it: same time, same memory") {
  for (const std::string& flags :
       {std::string{}, std::string{" --cost roofline:utilization=0.4 --recompute full --gradient-dtype float32"},
        std::string{" --schedules 1f1b,interleaved-1f1b:chunks=2 --tensor-parallel 2 --layout tcds --overlap-grad-reduce on "
                    "--sequence-parallel off"}}) {
    const json answer = parsed(run("plan --json - --top 3" + small + flags));
    REQUIRE(!answer.at("plans").empty());
    CHECK(answer.at("proven_best").get<bool>());
    double before = 0;
    for (const json& plan : answer.at("plans")) {
      CAPTURE(plan.at("command").get<std::string>());
      std::vector<std::string> arguments = arguments_of(plan.at("command"));
      arguments.insert(arguments.end(), {"--json", "-"});
      const json simulated = parsed(run(arguments));
      CHECK(simulated.at("makespan_ps") == plan.at("makespan_ps"));
      CHECK(simulated.at("peak_memory_bytes") == plan.at("peak_memory_bytes"));
      CHECK(plan.at("bound_s").get<double>() <= plan.at("least_s").get<double>() * (1 + 1e-6));
      CHECK(plan.at("least_s").get<double>() <= plan.at("makespan_s").get<double>());
      CHECK(plan.at("makespan_s").get<double>() >= before);
      before = plan.at("makespan_s").get<double>();
      const json& axes = plan.at("axes");
      CHECK(axes.at("tensor").get<int>() * axes.at("context").get<int>() * axes.at("pipeline").get<int>() *
                axes.at("data").get<int>() ==
            8);
    }
    CHECK(!answer.at("pareto").empty());
    CHECK(answer.at("searched").at("simulated").get<int>() >= 1);
  }
}

TEST_CASE("the output is the same for any number of threads, and a batch may be given in tokens") {
  const auto one = run("plan --json - --threads 1" + small);
  REQUIRE(one.code == 0);
  CHECK(one.out == run("plan --json - --threads 3" + small).out);
  CHECK(one.out == run("plan --json - --cluster 2x4 --model llama-8x512 --sequence 2048 --tokens 32768").out);
}

TEST_CASE("what is printed names the best, what limits it, and the command") {
  const auto text = run("plan --price 2 --top 2" + small);
  CHECK(text.code == 0);
  for (const char* part : {"runs in", "limited by ", "no schedule takes less than ", "a billion tokens",
                           "proven: nothing in the space is faster", "tawpipe simulate --schedule "}) {
    CAPTURE(part);
    CHECK(text.out.find(part) != std::string::npos);
  }
}

TEST_CASE("the table has each schedule once, and others a line with the reason") {
  const json answer = parsed(run("plan --json - --top 1000" + small));
  std::set<std::string> planned;
  for (const json& plan : answer.at("plans")) planned.insert(plan.at("schedule"));
  const std::string text = run("plan --top 3" + small).out;
  const json schedules = parsed(run("list schedules --json -"));
  for (const json& schedule : schedules) {
    const std::string name = schedule.at("name");
    if (name == "zb-auto") continue;
    CAPTURE(name);
    const std::string words = " " + std::regex_replace(text, std::regex{"[,:\\s]+"}, " ");
    CHECK(words.find(" " + name + " ") != std::string::npos);
  }
  for (const json& other : answer.at("others")) {
    CAPTURE(other.at("schedule"));
    CHECK(!planned.contains(other.at("schedule")));
    if (other.at("least_s").is_null()) continue;
    CHECK(other.at("least_s").get<double>() >= answer.at("plans")[0].at("makespan_s").get<double>() * (1 - 1e-4));
  }
  CHECK(text.find("limited by") != std::string::npos);
}

TEST_CASE("what a tenth more bandwidth buys is what sensitivity says, and more memory never costs time") {
  const json answer = parsed(run("plan --json - --schedules ddp" + small));
  const json& best = answer.at("plans")[0];
  std::vector<std::string> arguments = arguments_of(best.at("command"));
  arguments[0] = "sensitivity";
  arguments.insert(arguments.end(), {"--json", "-"});
  const json gains = parsed(run(arguments)).at("gains");
  const auto of = [](const json& all, const std::string& what) -> double {
    const auto at = std::find_if(all.begin(), all.end(), [&](const json& one) { return one.at("what") == what; });
    REQUIRE(at != all.end());
    return at->at("makespan_s");
  };
  const json& changes = answer.at("changes");
  CHECK(of(changes, "10 % more bandwidth between nodes") == doctest::Approx(of(gains, "links: network, bandwidth")));
  CHECK(of(changes, "10 % more bandwidth between nodes") < best.at("makespan_s").get<double>());
  CHECK(of(changes, "10 % faster GEMMs and attention") < best.at("makespan_s").get<double>());
  CHECK(of(changes, "10 GiB more memory a device") <= best.at("makespan_s").get<double>());
  for (const json& change : changes) {
    CHECK(change.at("change").get<double>() ==
          doctest::Approx(change.at("makespan_s").get<double>() / best.at("makespan_s").get<double>() - 1));
  }
  const std::string text = run("plan --no-offload --schedules ddp" + small).out;
  CHECK(text.find("10 % more bandwidth between nodes: -") != std::string::npos);
  CHECK(text.find("in host memory (--offload)") != std::string::npos);
}

TEST_CASE("numbers of devices are compared by doubling") {
  const json answer = parsed(run("plan --json - --devices 4..16" + small));
  REQUIRE(answer.at("by_devices").size() == 3);
  for (int i = 0; i < 3; ++i) CHECK(answer.at("by_devices")[static_cast<std::size_t>(i)].at("devices") == 4 << i);
  CHECK(run("plan --devices 4..16" + small).out.find("worth") != std::string::npos);
  // The front is over all of them.
  std::vector<json> all;
  for (const json& one : answer.at("by_devices")) all.insert(all.end(), one.at("pareto").begin(), one.at("pareto").end());
  const auto beats = [](const json& a, const json& b) {
    bool better = false;
    for (const char* key : {"devices", "makespan_s", "memory_bytes"}) {
      if (a.at(key) > b.at(key)) return false;
      better = better || a.at(key) < b.at(key);
    }
    return better;
  };
  for (const json& plan : all) {
    const bool beaten = std::any_of(all.begin(), all.end(), [&](const json& other) { return beats(other, plan); });
    const json& front = answer.at("pareto");
    CHECK(beaten == (std::find(front.begin(), front.end(), plan) == front.end()));
  }
  support::check_refused(run("plan --devices 3..16" + small), {"multiples of the 4 devices of a node"});
}

TEST_CASE("where nothing fits it says so, with the nearest") {
  const auto none = run("plan --cluster 1x2 --model llama-2-70b --sequence 4096 --global-batch 4");
  support::check_complaint(none, 1,
                           {"nothing in the space fits", "the least that a plan needs is", "; what fits: ", "16 devices"});
}

TEST_CASE("where states in host memory are not enough either it is known at once, with the nodes that would do") {
  const auto none = run("plan --json - --cluster dgx-h100 --model llama-3-405b --sequence 8192 --global-batch 64");
  CHECK(none.code == 1);
  const json answer = json::parse(none.out);
  CHECK(answer.at("searched").at("simulated") == 0);  // dropped by a bound
  CHECK(answer.at("needed_bytes").get<double>() > 80e9);
  const json& remedies = answer.at("remedies");
  REQUIRE(!remedies.empty());
  CHECK(remedies.back().at("what") == "4 nodes (32 devices) with optimizer in host memory");
  for (const json& one : remedies) CHECK(one.at("memory_bytes").get<double>() < 80 * 1.0737e9);
}

TEST_CASE("a condition that keeps plans from fitting is named") {
  const auto none =
      run("plan --cluster dgx-h100x4 --model llama-3-70b --sequence 8192 --global-batch 64 --pipeline-parallel 1 "
          "--tensor-parallel 1 --context-parallel 1 --no-offload");
  support::check_complaint(none, 1, {"what fits: ", "leave out --"});
}

TEST_CASE("a short budget is said, with how far the answer may be from the best") {
  const json answer = parsed(run("plan --json - --budget 1 --schedules 1f1b" + small));
  CHECK_FALSE(answer.at("proven_best").get<bool>());
  CHECK(answer.at("dropped").at("left").get<int>() > 0);
}

TEST_CASE("a clock that does not end the search changes nothing, and says so") {
  json answer = parsed(run("plan --json - --seconds 1000 --schedules 1f1b" + small));
  CHECK_FALSE(answer.at("timed_out").get<bool>());
  const json other = parsed(run("plan --json - --schedules 1f1b" + small));
  CHECK(answer.at("plans") == other.at("plans"));
  support::check_refused(run("plan --seconds 0" + small), {"--seconds"});
}

TEST_CASE("a plan that cannot be is refused") {
  support::check_refused(run("plan --cluster 2x4 --model llama-8x512 --sequence 2048"), {"--global-batch is missing"});
  support::check_refused(run("plan --tokens 4096" + small), {"--tokens and --global-batch"});
  support::check_refused(run("plan --cluster 2x4 --model llama-8x512 --sequence 2048 --tokens 5000"), {"4096", "6144"});
  support::check_refused(run("plan --schedules 1f2b" + small), {"1f1b"});
  support::check_refused(run("plan --cost fixed:forward=1s" + small), {"fixed"});
  support::check_refused(run("plan --price 0" + small), {"--price", "above 0"});
  support::check_refused(run("plan --tensor-parallel 3" + small), {"no layout of 8 devices has tensor 3", "must divide"});
  support::check_refused(run("plan --gemm-format mxfp8 --device H100-80G --cluster 2x4" + problem_of_small),
                         {"H100-80G", "no GEMMs in mxfp8", "--gemm-format fp8"});
}

TEST_CASE("where nothing else fits, what lies in host memory is planned") {
  const json answer =
      parsed(run("plan --json - --cluster 1x4 --device RTX4090-24G --model llama-3-8b --sequence 2048 --global-batch 4 "
                 "--schedules fsdp,ddp"));
  const std::string command = answer.at("plans").at(0).at("command");
  CAPTURE(command);
  CHECK(command.find("--offload") != std::string::npos);
}

TEST_CASE("a device with products in 8 bits is planned for by a roofline too") {
  CHECK(run("plan --cost roofline --device H100-80G --cluster 2x4" + problem_of_small).code == 0);
}

TEST_CASE("nodes of which only some have products in 8 bits are planned for") {
  const support::Folder folder;
  const auto node = [](const std::string& name) {
    return R"({"name": ")" + name + R"(", "vertices": [{"name": "G0", "kind": "device", "device": ")" + name +
           R"("}, {"name": "root", "kind": "cpu"}, {"name": "NIC", "kind": "adapter", "bandwidth": "200Gbps", "latency": "8us"}],
              "edges": [{"between": ["G0", "root"], "kind": "pcie", "bandwidth": "24GBps", "latency": "3us"},
                        {"between": ["NIC", "root"], "kind": "pcie", "bandwidth": "24GBps"}]})";
  };
  const std::string file = folder.write("mixed.json", R"({"name": "mixed", "node_types": [)" + node("H100-80G") + ", " +
                                                          node("A100-40G") + R"(], "nodes": ["H100-80G", "A100-40G"]})");
  const json answer = parsed(run("plan --json - --schedules ddp,1f1b --cluster " + file + problem_of_small));
  CHECK(!answer.at("plans").empty());
}

TEST_CASE("where the best plan has something in host memory, all are tried so") {
  const std::string problem = " --json - --cluster 1x4 --device RTX4090-24G --model llama-3-8b --sequence 2048 --global-batch 8";
  const auto best = [&](const std::string& flags) {
    return parsed(run("plan" + problem + " --schedules fsdp,1f1b" + flags)).at("plans").at(0).at("makespan_s").get<double>();
  };
  CHECK(best("") <= best(" --offload optimizer") * 1.0001);
}

TEST_CASE("on one rank of its own a schedule is data parallelism, and called so") {
  const json answer = parsed(run("plan --json - --pipeline-parallel 1" + small));
  for (const json& plan : answer.at("plans")) CHECK(plan.at("schedule") == "ddp");
}

TEST_CASE("a bound has a certificate whose numbers give it") {
  const json answer = parsed(run("bound --json -" + small));
  double rate = 0;
  for (const json& device : answer.at("devices")) {
    rate += device.at("devices").get<double>() / (device.at("sequences_s").get<double>() + device.at("update_s").get<double>());
  }
  CHECK(answer.at("compute_s").get<double>() == doctest::Approx(1 / rate));
  double most = answer.at("compute_s").get<double>();
  for (const json& cut : answer.at("cuts")) most = std::max(most, cut.at("least_s").get<double>());
  CHECK(answer.at("bound_s").get<double>() == doctest::Approx(most).epsilon(1e-5));
  CHECK(run("bound" + small).out.find("No schedule takes less than ") != std::string::npos);
  support::check_complaint(run("bound --cluster 1x2 --model llama-2-70b --sequence 4096 --global-batch 4"), 1, {"more devices"});
  support::check_refused(run("bound --cluster 1x2 --sequence 4096 --global-batch 4"), {"--model is missing"});
}

}  // namespace plan_test
