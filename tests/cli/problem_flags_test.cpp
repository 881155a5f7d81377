// What flags change in the answer: cuts of stages, number formats, exchanges, memory.
// Not: the answers' keys (commands_test.cpp).
#include <doctest/doctest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command_json.hpp"

using nlohmann::json;
using support::parsed;
using support::results;
using support::run;

TEST_CASE("stages are cut as people say") {
  const std::string line =
      "simulate --schedule 1f1b --cluster 1x4 --model llama-12x512 --sequence 512 --global-batch 8 --json - ";
  const auto time = [&](const std::string& flags) { return parsed(run(line + flags)).at("makespan_ps").get<std::int64_t>(); };
  const std::int64_t even = time("");
  CHECK(time("--layers-per-stage 3,3,3,3") == even);
  CHECK(time("--layers-per-stage Et*3|(ttt|)*2t*3L") == even);
  CHECK(time("--layers-per-stage even") == even);
  CHECK(time("--layers-per-stage 1,1,1,9") > even);
  CHECK(time("--layers-per-stage auto") <= even);   // the head weighs more than a layer of so small a model
  const std::string ten = " --model llama-10x512";  // and two: three a stage
  CHECK(time("--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split" + ten) ==
        time("--layers-per-stage 2,3,3,2" + ten));
  support::check_refused(run(line + "--layers-per-stage 6,6"), {"given for 2 stages", "into 4"});
  support::check_refused(run(line + "--layers-per-stage 3,3,3,4"), {"13 layers", "has 12"});
  support::check_refused(run(line + "--layers-per-stage Et|q|L"), {"'q' is none of E, t, L and |"});
  support::check_refused(run(line + "--layers-per-stage auto --account-for-loss-in-pipeline-split"), {"leave out"});
  const std::string many = "1f1b --cluster 1x8 --model llama-4x512 --sequence 512 --global-batch 8 ";
  CHECK(parsed(run("simulate --json - --schedule " + many)).at("stages_without_layers") == 3);
  CHECK(run("simulate --schedule " + many).out.find("8, of which 3 have no layer") != std::string::npos);
  CHECK(run("compare --schedules " + many).out.find("1f1b: 3 of 8 stages have no layer") != std::string::npos);
}

TEST_CASE("tokens are told in k and M, and flags by the names that other tools have for them") {
  const std::string ours =
      "simulate --schedule 1f1b --cluster 1x8 --model llama-8x512 --sequence 2048 --global-batch 16 "
      "--microbatch 2 --tensor-parallel 2 --json -";
  const std::string theirs =
      "simulate --schedule 1f1b --cluster 1x8 --model llama-8x512 --seq-length 2k --global-batch-size=16 "
      "--micro-batch-size 2 --tensor-model-parallel-size 2 --json -";
  CHECK(run(ours).out == run(theirs).out);
  const std::string plan = "plan --cluster 1x2 --model llama-8x512 --sequence 2k --schedules ddp --json - ";
  CHECK(parsed(run(plan + "--tokens 1M")).at("plans").at(0).at("makespan_ps") ==
        parsed(run(plan + "--gbs 512")).at("plans").at(0).at("makespan_ps"));
  support::check_refused(run("plan --cluster 1x2 --model llama-8x512 --sequence 2q --gbs 8"), {"--sequence", "'2q'"});
  support::check_refused(run("simulate --schedule 1f1b --cluster 1x2 --model llama-8x512 --sequence 2k --gbs 8 --gpus 8"),
                         {"unknown flag '--gpus'; did you mean '--cluster'?"});
}

TEST_CASE("what an unaligned vocabulary costs is said where nobody pads it and it was measured") {
  // 10,667 of 32,000 entries a device.
  const auto cost = [](const std::string& flags) {
    const std::string out = run("simulate --schedule 1f1b --model llama-4x768 --sequence 512 --global-batch 8 " + flags).out;
    return out.substr(out.find("cost "), out.find("\n\n") - out.find("cost "));
  };
  const std::string a100 = "--cluster 1x3 --tensor-parallel 3 --device A100-80G";
  CHECK(cost(a100 + " --layer-code megatron-unfused")
            .find("the 10,667 entries of the vocabulary on a device are no multiple of 8") != std::string::npos);
  CHECK(cost(a100).find("vocabulary") == std::string::npos);
  CHECK(cost("--cluster 1x3 --tensor-parallel 3 --device H100-80G --layer-code torchtitan").find("vocabulary") ==
        std::string::npos);
  CHECK(cost("--cluster 1x4 --tensor-parallel 4 --device A100-80G --layer-code torchtitan").find("vocabulary") ==
        std::string::npos);
}

TEST_CASE("formats of products, unfused attention, other code and narrow moments are said by flags") {
  const std::string problem =
      "simulate --schedule fsdp --cluster dgx-h100 --model llama-3.2-3b --sequence 8192 --global-batch 8 --recompute none --json "
      "-";
  const auto answer = [&](const std::string& flags) { return parsed(run(problem + flags)); };
  const auto time = [&](const std::string& flags) { return answer(flags).at("makespan_s").get<double>(); };
  const auto memory = [&](const std::string& flags) {
    double sum = 0;
    const json summary = answer(flags);
    for (const json& bytes : summary.at("peak_memory_bytes")) sum += bytes.get<double>();
    return sum;
  };
  const double plain = time("");
  CHECK(time(" --gemm-format fp8") < plain);
  CHECK(time(" --gemm-format fp8-rows --layer-code torchtitan") > time(" --gemm-format fp8"));
  CHECK(time(" --attention unfused") > plain);
  CHECK(time(" --layer-code torchtitan-eager") > time(" --layer-code torchtitan"));
  CHECK(time(" --layer-code composer") > plain);
  const auto recomputing = [&](const std::string& flags) {
    std::string full = problem;
    full.replace(full.find("none"), 4, "full");
    return parsed(run(full + flags)).at("makespan_s").get<double>();
  };
  CHECK(recomputing(" --early-stop on") < recomputing(""));
  CHECK(recomputing(" --layer-code torchtitan --early-stop off") > recomputing(" --layer-code torchtitan"));
  support::check_refused(run(problem + " --early-stop yes"), {"--early-stop", "on", "off"});
  const std::string narrow = " --gemm-format fp8 --layer-code torchtitan";
  CHECK(time(narrow + " --gathered-weights gemm") < time(narrow));
  CHECK(time(narrow + " --gathered-weights model") == time(narrow));
  support::check_refused(run(problem + " --gathered-weights gemm"), {"gathered in 8 bits", "fp8"});
  support::check_refused(run(problem + narrow + " --gathered-weights fp8"), {"--gathered-weights", "gemm", "model"});
  // 4 bytes less for each parameter, which one device owns.
  CHECK(memory("") - memory(" --moment-dtype bfloat16") == doctest::Approx(4 * 3'212'749'824.0).epsilon(1e-3));
  CHECK(memory("") - memory(" --master-dtype float16") == doctest::Approx(2 * 3'212'749'824.0).epsilon(1e-3));
  CHECK(memory("") - memory(" --master-dtype none") == doctest::Approx(4 * 3'212'749'824.0).epsilon(1e-3));
  CHECK(memory(" --loss-dtype model") < memory(""));
  CHECK(time(" --loss-dtype model") < plain);
  CHECK(time(" --loss-dtype float32") == plain);
  CHECK(time(" --cuda-graphs layers") < plain);
  CHECK(time(" --cuda-graphs iteration") < time(" --cuda-graphs layers"));
  CHECK(time(" --cuda-graphs none") == plain);
  support::check_refused(run(problem + " --cuda-graphs step"), {"CUDA graphs", "step", "iteration"});
  support::check_refused(run(problem + " --cuda-graphs layers --cost roofline"), {"--cuda-graphs layers", "--cost kernels"});
  support::check_refused(run(problem + " --loss-dtype float16"), {"--loss-dtype", "float32", "model"});
  const auto recomputed = [&](const std::string& policy) {
    return parsed(
        run("simulate --schedule 1f1b --cluster 1x4 --model llama-8x512 --sequence 512 --global-batch 8 --json - --recompute " +
            policy));
  };
  for (const char* key : {"makespan_s", "peak_memory_bytes"}) {
    const auto value = [&](const std::string& policy) {
      const json summary = recomputed(policy);
      return key == std::string{"makespan_s"} ? summary.at(key).get<double>() : -summary.at(key)[0].get<double>();
    };
    CHECK(value("none") < value("full:1"));
    CHECK(value("full:1") < value("full"));
    CHECK(value("full:2") == value("full"));
    CHECK(value("none") < value("selective:mlp"));
    CHECK(value("selective:activation") < value("selective:mlp,layernorm"));
  }
  CHECK(run("simulate --schedule 1f1b --cluster 1x4 --model llama-8x512 --sequence 512 --global-batch 8 --recompute "
            "selective:layernorm,mlp")
            .out.find("recomputation selective:mlp,layernorm") != std::string::npos);
  support::check_refused(
      run("simulate --schedule 1f1b --cluster 1x4 --model llama-8x512 --sequence 512 --recompute selective:mpl"),
      {"part of a layer", "'mpl'", "'mlp'"});
  support::check_refused(run("simulate --schedule 1f1b --cluster 1x4 --model llama-8x512 --sequence 512 --recompute full:0"),
                         {"--recompute full:LAYERS", "'0'"});
  support::check_refused(run(problem + " --gemm-format nvfp4"), {"H100-80G", "nvfp4", "peak_fp4"});
  support::check_refused(run(problem + " --gemm-format fp8 --cost roofline"), {"fp8", "--cost kernels"});
  support::check_refused(run(problem + " --attention none"), {"--attention", "unfused"});
}

TEST_CASE("context-parallel devices exchange in two levels, in each node and between nodes") {
  const std::string problem =
      "simulate --schedule 1f1b --cluster dgx-h100*2 --model llama-3-8b --sequence 65536 --global-batch 2 --context-parallel 16 "
      "--json -";
  const auto time = [&](const std::string& how) {
    return parsed(run(problem + " --context-exchange " + how)).at("makespan_s").get<double>();
  };
  CHECK(time("all-to-all+ring") == time("all-to-all+ring:8"));  // 8 of each node
  CHECK(time("all-to-all+ring:1") == time("ring"));
  CHECK(time("all-to-all+ring:4") != time("all-to-all+ring:8"));
  support::check_refused(run(problem + " --context-exchange all-to-all+ring:3"), {"all-to-all+ring:3", "divisor of 16"});
  support::check_refused(run(problem + " --context-exchange all-to-all+ring:16"), {"8 key-value heads", "exchange among fewer"});
  support::check_refused(run(problem + " --context-exchange all-to-all+ring:x"), {"--context-exchange", "'x'"});
  const json plan =
      parsed(run("plan --cluster dgx-h100*2 --model llama-3-8b --sequence 65536 --global-batch 2 --context-parallel 16 "
                 "--schedules ddp --context-exchange all-to-all+ring --top 1 --json -"));
  CHECK(plan.at("plans")[0].at("context_exchange") == "all-to-all+ring");
  CHECK(plan.at("plans")[0].at("command").get<std::string>().find("--context-exchange all-to-all+ring") != std::string::npos);
}

TEST_CASE("tokens are sent to experts by DeepEP where that is asked for, and a plan tells what it would gain") {
  const std::string problem =
      "--schedules ddp --cluster dgx-h100*2 --model qwen3-30b-a3b --sequence 4096 --global-batch 64 --expert-parallel 16 ";
  const std::string of_plan = "plan " + problem + "--tensor-parallel 1 --context-parallel 1 --top 1 ";
  const json once = parsed(run(of_plan + "--expert-dispatch deepep --json -"));
  const json copies = parsed(run(of_plan + "--json -"));
  CHECK(once.at("plans")[0].at("makespan_s") < copies.at("plans")[0].at("makespan_s"));
  CHECK(once.at("plans")[0].at("expert_dispatch") == "deepep");
  CHECK(copies.at("plans")[0].at("expert_dispatch") == "all-to-all");
  CHECK(once.at("plans")[0].at("command").get<std::string>().find("--expert-dispatch deepep") != std::string::npos);
  CHECK(run(of_plan).out.find("tokens sent to experts by DeepEP (--expert-dispatch deepep): -") != std::string::npos);
  support::check_refused(run("compare " + problem + "--expert-dispatch deepp"), {"'deepp'", "did you mean 'deepep'?"});
}

TEST_CASE("all-to-alls of experts run under another microbatch where that is asked for, and a plan tells what it would gain") {
  const std::string problem =
      "--schedules ddp --cluster dgx-h100*2 --model qwen3-30b-a3b --sequence 4096 --global-batch 128 --expert-parallel 16 ";
  const std::string of_plan = "plan " + problem + "--tensor-parallel 1 --context-parallel 1 --top 1 ";
  const json delayed = parsed(run(of_plan + "--overlap-expert-all-to-all delayed --json -"));
  const json off = parsed(run(of_plan + "--json -"));
  CHECK(delayed.at("plans")[0].at("makespan_s") < off.at("plans")[0].at("makespan_s"));
  CHECK(delayed.at("plans")[0].at("expert_overlap") == "delayed");
  CHECK(off.at("plans")[0].at("expert_overlap") == "off");
  CHECK(delayed.at("plans")[0].at("command").get<std::string>().find("--overlap-expert-all-to-all delayed") != std::string::npos);
  CHECK(run(of_plan).out.find("under another microbatch (--overlap-expert-all-to-all delayed): -") != std::string::npos);
  support::check_refused(
      run("simulate --schedule 1f1b --cluster dgx-h100 --model qwen3-30b-a3b --sequence 4096 --global-batch 64 "
          "--expert-parallel 4 --overlap-expert-all-to-all on"),
      {"1f1b runs no forward together", "interleaved-1f1b"});
  support::check_refused(run("compare " + problem + "--overlap-expert-all-to-all delay"), {"'delay'", "did you mean 'delayed'?"});
}

TEST_CASE("a microbatch is chosen to leave a part of the memory free, a given one may fill it") {
  const std::string problem =
      "compare --baselines --schedules fsdp --json - --cluster 1x2 --model llama-12x1024 --sequence 16384 --global-batch 32";
  const auto with = [&](const std::string& flags) { return results(run(problem + flags)).at(0); };
  const auto filled = [](const json& summary) {
    return summary.at("peak_memory_bytes").at(0).get<double>() / summary.at("device_memory_bytes").at(0).get<double>();
  };
  const json chosen = with("");
  CHECK(chosen.at("usable_memory") == 0.85);
  CHECK(filled(chosen) <= 0.85);
  const json all = with(" --usable-memory 1");
  CHECK(all.at("usable_memory") == 1);
  const json little = with(" --usable-memory 0.2");
  CHECK(filled(little) <= 0.2);
  CHECK(little.at("microbatch_size") < chosen.at("microbatch_size"));
  CHECK(chosen.at("microbatch_size") <= all.at("microbatch_size"));
  // A size that is given is out of memory where the device is, or where the flag says so.
  const std::string size = " --microbatch " + std::to_string(chosen.at("microbatch_size").get<int>());
  CHECK(with(size).at("usable_memory") == 1);
  CHECK(with(size).at("out_of_memory") == false);
  CHECK(with(size + " --usable-memory 0.2").at("out_of_memory") == true);
  // What no size leaves free is out of memory by the smallest.
  const json none = with(" --usable-memory 0.001");
  CHECK(none.at("microbatch_size") == 1);
  CHECK(none.at("out_of_memory") == true);
  const auto said =
      run("simulate --schedule fsdp --cluster 1x2 --model llama-12x1024 --sequence 16384 --global-batch 32 "
          "--microbatch auto --usable-memory 0.01");
  CHECK(said.code == 1);
  CHECK(said.err.find("has 1% of 80.0 GiB") != std::string::npos);
  CHECK(said.err.find("--usable-memory") != std::string::npos);
}

TEST_CASE("what does not fit is a finding: exit code 1, one line, and the numbers all the same") {
  const auto result =
      run("simulate --schedule tawpipe --cluster 1x2 --model llama-3-405b --sequence 512 --global-batch 2 --json -");
  support::check_complaint(result, 1, {"out of memory on 2 of 2 devices: rank 0 needs", "80.0 GiB", "more devices"});
  CHECK(parsed(result).at("out_of_memory") == true);
  const auto all = run("compare --cluster 1x2 --model llama-3-405b --sequence 512 --global-batch 2 --json -");
  support::check_complaint(all, 1, {"no schedule fits"});
  CHECK(parsed(all).at("results").size() == 5);
}

TEST_CASE("where no split is enough, what goes to host memory is said") {
  // One device, and the activations of 512 microbatches.
  const auto result =
      run("compare --cluster 1x1 --model llama-24x1024 --sequence 4096 --global-batch 512 --microbatch 1 --schedules gpipe "
          "--baselines "
          "--json -");
  CHECK(result.code == 1);
  CHECK(result.err.find("gpipe fits with") != std::string::npos);
  CHECK(result.err.find("--offload activations+optimizer") != std::string::npos);
  CHECK(parsed(result).at("fits").at("offload") == "activations+optimizer");
}
