// Prediction against measurement: calibrate from timelines, --cost measured, compare-timelines.
// Not: links from nccl-tests (instruments_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command.hpp"

using nlohmann::json;
using support::check_refused;
using support::run;

namespace {

/// Stages of 1, 2 and 2 layers; messages between nodes only.
const std::string five_layers = " --cluster 3x1 --model llama-5x512 --sequence 128 --global-batch 6";

/// A timeline "measured" by the roofline, its schedule, and the cost found from them.
struct Measured {
  support::Folder folder;
  std::string timeline = folder / "measured.csv";
  std::string schedule = folder / "schedule.json";
  std::string cost = folder / "cost.json";

  Measured() {
    REQUIRE(run("simulate --schedule 1f1b --timeline " + timeline + five_layers).code == 0);
    REQUIRE(run("export --schedule 1f1b --out " + schedule + five_layers).code == 0);
    const auto found = run("calibrate --timeline " + timeline + " --schedule-file " + schedule + " --cluster 3x1 --out " + cost);
    CAPTURE(found.err);
    REQUIRE(found.code == 0);
    CHECK(found.out.find("messages between nodes") != std::string::npos);
  }
};

}  // namespace

TEST_CASE("a measured step gives the cost with which other layouts are predicted") {
  const std::string job = " --cluster dgx-h100 --model llama-3-8b --sequence 8192 --global-batch 16 --recompute full";
  const std::string fsdp = "simulate --schedule fsdp" + job;
  const double predicted = json::parse(run(fsdp + " --json -").out).at("makespan_s").get<double>();
  const std::string measured = " --step-time " + std::to_string(1.25 * predicted) + "s";
  const auto found = run(fsdp + measured);
  CAPTURE(found.err);
  REQUIRE(found.code == 0);
  CHECK(found.out.find("25.0% more than predicted") != std::string::npos);
  CHECK(found.out.find("--cost kernels:speed=0.8 ") != std::string::npos);
  const json by_step = json::parse(run(fsdp + measured + " --cost kernels:memory=0.8 --json -").out).at("measured_step");
  const std::string cost = by_step.at("cost");
  CHECK(cost.starts_with("kernels:memory=0.8,speed=0."));
  CHECK(by_step.at("step_s").get<double>() == doctest::Approx(1.25 * predicted).epsilon(1e-5));
  const json again = json::parse(run(fsdp + " --cost " + cost + " --json -").out);
  CHECK(again.at("makespan_s").get<double>() == doctest::Approx(1.25 * predicted).epsilon(2e-3));
  CHECK(again.at("error_of") == "layouts of a job of which one was measured");
  check_refused(run(fsdp + " --step-time soon"), {"--step-time", "soon"});
  check_refused(run(fsdp + " --step-time 3600s"), {"not one of this run"});
  check_refused(run(fsdp + " --step-time 9s --cost roofline"), {"--step-time", "--cost kernels"});
  check_refused(run("simulate --schedule fsdp --microbatch auto --step-time 9s" + job), {"--step-time", "--microbatch"});
  check_refused(run("simulate --spread 3 --schedule fsdp --step-time 9s" + job), {"--spread", "--step-time"});
}

TEST_CASE("a trace of PyTorch's profiler gives times that predict") {
  const std::string trace = TAWPIPE_TEST_DATA "/kineto/rank0.json";
  const support::Folder folder;
  const std::string cost = folder / "cost.json";
  const std::string h100 = " --device H100-80G";
  const std::string calibrate = "calibrate --cluster 2x2" + h100 + " --kineto " + trace;
  const std::string setup = " --model llama-4x1024 --sequence 256";
  const auto found = run(calibrate + setup + " --head lm_head --out " + cost);
  CAPTURE(found.err);
  REQUIRE(found.code == 0);
  CHECK(found.out.find("messages between nodes") != std::string::npos);
  CHECK(found.out.find("18 GEMMs: 344 TFLOPS, 34.7% of the peak (--cost kernels:products=0.347)") != std::string::npos);
  const json file = json::parse(support::read_file(cost));
  CHECK(file.at("device") == "H100-80G");
  CHECK(file.at("software") == "PyTorch's profiler, NCCL 2.21.5");
  CHECK(file.at("work").at("sequence") == 256);
  const json& seconds = file.at("seconds");
  CHECK(seconds.at("forward").at("layer").get<double>() == doctest::Approx(120e-6));
  CHECK(seconds.at("inter_node").at("byte").get<double>() == doctest::Approx(1e-10).epsilon(1e-3));
  const std::string predict = "simulate --schedule fsdp --global-batch 8 --cost measured:" + cost + " --cluster ";
  const auto predicted = run(predict + "2x2" + h100 + " --model llama-4x1024");
  CAPTURE(predicted.err);
  CHECK(predicted.code == 0);
  check_refused(run(predict + "2x2 --model llama-4x1024"), {"measured on H100-80G", "has A100-80G", "--device H100-80G"});
  check_refused(run(predict + "2x2" + h100 + " --model llama-4x1024 --sequence 512"), {"sequence length of 256, not 512"});
  check_refused(run(predict + "2x2" + h100 + " --model llama-4x2048"), {"hidden size of 1024, not 2048"});
  check_refused(run(calibrate + " --layer Block --out " + folder / "none.json"),
                {"no forward of a layer", "called 'Block'", "--layer, such as"});
  CHECK(support::read_file(folder / "none.json").empty());
  check_refused(run(calibrate + " --out " + cost), {"--model is missing"});
  check_refused(run(calibrate + " --model llama-4x1024 --out " + cost), {"--sequence is missing"});
  check_refused(run("calibrate --kineto " + trace), {"--cluster"});
  check_refused(run(calibrate + " --json -"), {"one kind of measurement"});
  check_refused(run("calibrate --cluster 1x2" + h100 + " --kineto " + trace), {"rank 2", "2 devices"});
  check_refused(run("calibrate --cluster dgx-a100 --kineto " + trace), {"taken on NVIDIA H100", "--device H100-80G"});
  check_refused(run("calibrate --cluster 2x2 --kineto " + folder.write("empty.json", "{}")), {"no trace", "traceEvents"});
}

TEST_CASE("times that no device reaches are no answer") {
  const support::Folder folder;
  const std::string small = " --cluster 1x2 --model llama-4x1024 --sequence 2048 --global-batch 8";
  check_refused(
      run("simulate --schedule 1f1b --cost fixed:forward=1us,backward_input=1us,backward_weight=1us,transfer=0s" + small),
      {"has an MFU of", "--cost fixed"});
  const Measured measured;
  json file = json::parse(support::read_file(measured.cost));
  for (json& pass : file.at("seconds")) {
    for (json& value : pass) value = 1e-15;
  }
  const std::string quick = folder.write("quick.json", file.dump());
  check_refused(run("compare --schedules 1f1b,gpipe --cost measured:" + quick + five_layers),
                {"has an MFU of", quick, "calibrate"});
  for (json& pass : file.at("seconds")) {
    if (pass.contains("layer")) pass["layer"] = 0.0;
  }
  check_refused(run("simulate --schedule 1f1b --cost measured:" + folder.write("none.json", file.dump()) + five_layers),
                {"a layer that takes no time"});
  file.erase("device");
  check_refused(run("simulate --schedule 1f1b --cost measured:" + folder.write("old.json", file.dump()) + five_layers),
                {"'device' is missing", "calibrate again"});
}

TEST_CASE("a timeline is predicted by the times found from it") {
  const Measured measured;
  const json cost = json::parse(support::read_file(measured.cost));
  CHECK(cost.at("work").at("recompute") == "full");
  CHECK(cost.at("seconds").at("forward").at("layer").get<double>() > 0);
  const std::string predicted = measured.folder / "predicted.csv";
  const auto simulated = run("simulate --schedule-file " + measured.schedule + " --cluster 3x1 --cost measured:" + measured.cost +
                             " --timeline " + predicted);
  CAPTURE(simulated.err);
  REQUIRE(simulated.code == 0);
  CHECK(simulated.out.find("measured times") != std::string::npos);
  const auto compared = run("compare-timelines --json - " + predicted + " " + measured.timeline);
  REQUIRE(compared.code == 0);
  const json answer = json::parse(compared.out);
  CHECK(std::abs(answer.at("error").get<double>()) < 0.01);
  CHECK(answer.at("order").empty());
  for (const json& kind : answer.at("kinds")) CHECK(std::abs(kind.at("error").get<double>()) < 0.01);
  const auto text = run("compare-timelines " + predicted + " " + measured.timeline);
  CHECK(text.code == 0);
  CHECK(text.out.find("predicted order") != std::string::npos);
}

TEST_CASE("measured times are taken with what they were measured with, and nothing else") {
  const Measured measured;
  const std::string with = " --cluster 3x1 --global-batch 6 --cost measured:" + measured.cost;
  CHECK(run("simulate --schedule gpipe --model llama-5x512" + with).code == 0);  // sequence and microbatch from the file
  CHECK(run("simulate --schedule gpipe --model llama-10x512" + with).code == 0);
  check_refused(run("simulate --schedule gpipe --model llama-5x1024" + with), {"hidden size of 512, not 1024"});
  check_refused(run("simulate --schedule gpipe --model llama-5x512 --recompute none" + with), {"recomputation full, not none"});
  check_refused(run("simulate --schedule zb-h1 --model llama-5x512" + with), {"no time for backward_input"});
  check_refused(run("simulate --schedule gpipe --microbatches 6 --cluster 3x1 --cost measured:" + measured.cost), {"--model"});
  check_refused(run("simulate --schedule gpipe --cost measured" + five_layers), {"measured:cost.json"});
  check_refused(run("simulate --schedule gpipe --cost measured:" + measured.timeline + five_layers), {"not JSON"});
}

TEST_CASE("a timeline does not differ from itself, and not of another schedule") {
  const Measured measured;
  const json same = json::parse(run("compare-timelines --json - " + measured.timeline + " " + measured.timeline).out);
  CHECK(same.at("error") == 0);
  const std::string other = measured.folder / "other.csv";
  REQUIRE(run("simulate --schedule gpipe --timeline " + other + five_layers).code == 0);
  check_refused(run("compare-timelines " + other + " " + measured.timeline), {"not of one schedule"});
}

TEST_CASE("what cannot be calibrated from is refused") {
  const Measured measured;
  const std::string timeline = " --timeline " + measured.timeline;
  check_refused(run("calibrate"), {"nothing to calibrate from"});
  check_refused(run("calibrate" + timeline + " --cluster 3x1"), {"1 --timeline and 0 --schedule-file"});
  check_refused(run("calibrate" + timeline + " --schedule-file " + measured.schedule), {"--cluster is missing"});
  check_refused(run("calibrate --cluster 3x1"), {"--timeline is missing"});
  check_refused(run("calibrate" + timeline + " --schedule-file " + measured.schedule + " --cluster 2x1"), {"3 ranks"});
  check_refused(run("calibrate node.txt" + timeline), {"give one kind"});
}

TEST_CASE("memory that training took on a GPU is what its own layers are predicted to take") {
  const support::Folder folder;
  const std::string results = TAWPIPE_TEST_DATA "/../../bench/results/h200/";
  std::ifstream lines{results + "training.jsonl"};
  int runs = 0;
  for (std::string text; std::getline(lines, text); ++runs) {
    const json line = json::parse(text);
    const int hidden = line.at("hidden").get<int>();
    folder.write("model.json", json{{"model_type", "llama"},
                                    {"hidden_size", hidden},
                                    {"intermediate_size", hidden == 2048 ? 8192 : 14336},
                                    {"num_attention_heads", 32},
                                    {"num_key_value_heads", 8},
                                    {"num_hidden_layers", line.at("layers")},
                                    {"vocab_size", 32768},
                                    {"tie_word_embeddings", false},
                                    {"torch_dtype", "bfloat16"}}
                                   .dump());
    const auto has = [&](const char* flag) {
      const json& flags = line.at("flags");
      return std::find(flags.begin(), flags.end(), flag) != flags.end();
    };
    const std::string told =
        run("simulate --schedule 1f1b --cluster 1x1 --device H200-141G --gradient-dtype float32 --layer-code tawpipe --model " +
            folder / "model.json" + " --sequence " + std::to_string(line.at("sequence").get<int>()) + " --global-batch " +
            std::to_string(line.at("sequences").get<int>()) + " --recompute " + (has("--recompute") ? "full" : "none") +
            " --cost kernels:file=" + results + "measured.json --json -")
            .out;
    const json answer = json::parse(told);
    const double took = line.at("gpu_memory").at("allocated_bytes").get<double>();
    CHECK(answer.at("peak_memory_bytes").at(0).get<double>() == doctest::Approx(took).epsilon(0.001));
    const double error = answer.at("makespan_s").get<double>() / line.at("step_seconds").get<double>() - 1;
    CHECK(std::abs(error) < (line.at("sequence").get<int>() >= 4096 ? 0.05 : 0.18));  // short kernels reach less of their rate
  }
  CHECK(runs == 7);
}
