// `tawpipe train` and `tawpipe check-numerics`: what they learn, keep, resume and refuse.
// Not: the numbers of every schedule (numerics/), nor processes (mpi/).
#if TAWPIPE_COMMAND_EXECUTES
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command.hpp"

using nlohmann::json;
using support::check_complaint;
using support::check_refused;
using support::Folder;
using support::read_file;
using support::run;
namespace fs = std::filesystem;

namespace {

const std::string reference = std::string{TAWPIPE_TEST_DATA} + "/llama_golden/A";

/// A text that can be learnt, and a small model on it.
class Training {
 public:
  Training() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog. ";
    text_ = folder.write("text.txt", text);
  }
  std::string flags(int steps, const std::string& more = "") const {
    return "train --model llama-4x32 --data " + text_ + " --sequence 16 --global-batch 6 --warmup 2 --steps " +
           std::to_string(steps) + " --decay-steps 8 --json - " + more;
  }
  json train(int steps, const std::string& more = "") const {
    const auto result = run(flags(steps, more));
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    return json::parse(result.out);
  }

  const Folder folder;

 private:
  std::string text_;
};

}  // namespace

TEST_CASE("the loss falls, and every schedule follows the same curve") {
  const Training training;
  const json alone = training.train(6, "--dtype f64 --schedule 1f1b");
  const auto losses = alone.at("losses").get<std::vector<double>>();
  REQUIRE(losses.size() == 6);
  CHECK(losses[0] == doctest::Approx(std::log(256)).epsilon(0.02));
  CHECK(losses[5] < losses[0]);
  for (const std::string schedule : {"tawpipe", "weipipe", "zb-h1", "fsdp"}) {
    CAPTURE(schedule);
    const json shared = training.train(6, "--dtype f64 --cluster 2+1 --schedule " + schedule);
    for (std::size_t i = 0; i < 6; ++i) CHECK(shared.at("losses")[i].get<double>() == doctest::Approx(losses[i]).epsilon(1e-9));
    CHECK(shared.at("ranks") == 3);
  }
}

TEST_CASE("an interrupted run goes on bit for bit") {
  const Training training;
  const std::string run_folder = training.folder / "run";
  const json whole = training.train(6, "--cluster 2+1");
  training.train(3, "--cluster 2+1 --save " + run_folder);
  const json rest = training.train(6, "--cluster 2+1 --resume " + run_folder);
  CHECK(rest.at("first_step") == 4);
  for (std::size_t i = 0; i < 3; ++i) CHECK(rest.at("losses")[i] == whole.at("losses")[i + 3]);
}

TEST_CASE("a checkpoint of six ranks goes on with four under another schedule") {
  const Training training;
  const std::string run_folder = training.folder / "run";
  const json whole = training.train(6, "--dtype f64 --schedule 1f1b");
  training.train(3, "--dtype f64 --cluster 2x3 --schedule tawpipe --save " + run_folder);
  const json rest = training.train(6, "--dtype f64 --cluster 2x2 --schedule fsdp --resume " + run_folder);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(rest.at("losses")[i].get<double>() == doctest::Approx(whole.at("losses")[i + 3].get<double>()).epsilon(1e-9));
  }
}

TEST_CASE("weights written for transformers train on here") {
  const Training training;
  const std::string weights = training.folder / "weights";
  const json first = training.train(3, "--dtype f64 --clip 0 --save-huggingface " + weights);
  CHECK(fs::exists(weights + "/config.json"));
  const json second = training.train(1, "--dtype f64 --model " + weights);
  CHECK(second.at("losses")[0].get<double>() < first.at("losses")[0].get<double>());
}

TEST_CASE("a mixture of experts learns under every schedule, goes on from a checkpoint and as a Mixtral") {
  const Training training;
  const std::string config = training.folder.write(
      "config.json", R"({"model_type": "mixtral", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2,
          "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 256, "num_local_experts": 4,
          "num_experts_per_tok": 2})");
  const std::string run_folder = training.folder / "run";
  const std::string weights = training.folder / "weights";
  const std::string flags = "--dtype f64 --clip 0 ";
  const json whole = training.train(6, flags + "--model " + config + " --save-huggingface " + weights);
  const auto losses = whole.at("losses").get<std::vector<double>>();
  CHECK(losses.back() < losses.front() - 0.1);
  for (const std::string schedule : {"tawpipe", "1f1b", "zb-h1", "fsdp"}) {
    CAPTURE(schedule);
    const json other = training.train(6, flags + "--cluster 2x2 --schedule " + schedule + " --model " + config);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      CHECK(std::abs(other.at("losses")[i].get<double>() - losses[i]) < 1e-11);
    }
  }
  training.train(3, flags + "--model " + config + " --save " + run_folder);
  const json rest = training.train(6, flags + "--model " + config + " --resume " + run_folder);
  CHECK(rest.at("losses").back() == losses.back());
  const json exported = training.train(1, flags + "--model " + weights);
  CHECK(exported.at("losses")[0].get<double>() < losses.back() + 0.2);
  const std::string shared = training.folder.write(
      "shared.json", R"({"model_type": "qwen2_moe", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
          "num_key_value_heads": 2, "vocab_size": 256, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
          "norm_topk_prob": true, "shared_expert_intermediate_size": 24, "shared_expert_gate": false})");
  training.train(2, "--model " + shared);
  check_refused(run(training.flags(100000, "--model " + shared + " --save-huggingface " + weights)),
                {"has a shared expert of width 24", "transformers"});
}

TEST_CASE("a small DeepSeek-V3 learns under every schedule, goes on from a checkpoint and from its weights") {
  const Training training;
  const std::string sizes =
      R"({"model_type": "deepseek_v3", "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2,
          "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 256, "q_lora_rank": 12, "kv_lora_rank": 10,
          "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
          "moe_intermediate_size": 24, "n_shared_experts": 1, "first_k_dense_replace": 1)";
  const std::string config = training.folder.write("config.json", sizes + R"(, "n_group": 2, "topk_group": 1})");
  const std::string run_folder = training.folder / "run";
  const std::string weights = training.folder / "weights";
  const std::string flags = "--dtype f64 --clip 0 --model ";
  const json whole = training.train(4, flags + config + " --save-huggingface " + weights);
  const auto losses = whole.at("losses").get<std::vector<double>>();
  CHECK(losses.back() < losses.front());
  for (const std::string schedule : {"tawpipe", "1f1b", "zb-h1", "fsdp"}) {
    CAPTURE(schedule);
    const json other = training.train(4, flags + config + " --cluster 2x1 --schedule " + schedule);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      CHECK(std::abs(other.at("losses")[i].get<double>() - losses[i]) < 1e-11);
    }
  }
  training.train(2, flags + weights + " --save " + run_folder);
  const json rest = training.train(4, flags + weights + " --resume " + run_folder);
  CHECK(rest.at("losses").size() == 2);
  CHECK(training.train(1, flags + weights).at("losses")[0].get<double>() < losses.front());
  const std::string groups = training.folder.write("groups.json", sizes + "}");
  check_refused(run(training.flags(4, "--model " + groups)), {"n_group: is missing"});
  check_refused(run(training.flags(4, "--model " + config + " --cluster 2x1 --tensor-parallel 2")),
                {"latent attention is computed on one rank", "--tensor-parallel"});
  const std::string balanced = training.folder.write(
      "balanced.json", R"({"model_type": "mixtral", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2,
          "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 256, "num_local_experts": 4,
          "num_experts_per_tok": 2, "output_router_logits": true, "router_aux_loss_coef": 0.02})");
  const json one = training.train(2, flags + balanced);
  const json pipeline = training.train(2, flags + balanced + " --cluster 2x1 --schedule weipipe");
  CHECK(std::abs(one.at("losses")[1].get<double>() - pipeline.at("losses")[1].get<double>()) < 1e-11);
  check_refused(run(training.flags(2, flags + balanced + " --cluster 2x1 --schedule 1f1b")),
                {"router_aux_loss_coef", "1f1b computes them on several ranks"});
}

TEST_CASE("a config.json and a folder of its weights train the same decoder, with all that its keys say") {
  const Training training;
  const std::string sizes = R"({"model_type": "qwen3", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
      "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 48, "vocab_size": 256)";
  const std::string detailed = training.folder.write(
      "detailed.json", sizes + R"(, "use_sliding_window": true, "sliding_window": 5, "max_window_layers": 0, "rms_norm_eps": 1e-4,
          "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0}})");
  const std::string plain = training.folder.write("plain.json", sizes + "}");
  const std::string flags = "--dtype f64 --clip 0 --data-order sequential ";
  const std::string weights = training.folder / "weights";
  const std::string run_folder = training.folder / "run";
  const json whole = training.train(4, flags + "--model " + detailed);
  CHECK(whole.at("losses") != training.train(4, flags + "--model " + plain).at("losses"));
  training.train(2, flags + "--model " + detailed + " --save-huggingface " + weights + " --save " + run_folder);
  const json rest = training.train(4, flags + "--resume " + run_folder + " --model " + detailed);
  CHECK(rest.at("losses").back() == whole.at("losses").back());
  const json read = training.train(2, flags + "--model " + weights);
  CHECK(read.at("losses")[0] != whole.at("losses")[0]);
  check_refused(run(training.flags(4, flags + "--resume " + run_folder + " --model " + plain)),
                {"has window 5, the model has 0"});
  const std::string yarn =
      training.folder.write("yarn.json", sizes + R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}})");
  check_refused(run(training.flags(4, "--model " + yarn)), {"rope_scaling", "yarn is not computed"});
  const std::string unnamed = training.folder.write(
      "unnamed.json", R"({"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
          "vocab_size": 256, "torch_dtype": "float32"})");
  const std::string note = run(training.flags(1, "--model " + unnamed)).err;
  CHECK(note.starts_with("tawpipe: note: model_type: is missing; read by its keys as a decoder with norms before attention"));
  CHECK(note.find('\n') == note.size() - 1);
}

TEST_CASE("sequential order begins with the first global batch") {
  const Training training;
  const std::string text = read_file(training.folder / "text.txt");
  const std::string first = training.folder.write("first.txt", text.substr(0, 6 * 16 + 1));  // one step's sequences and a target
  const std::string flags = "--data-order sequential --dtype f64 --microbatch 2 ";
  CHECK(training.train(1, flags).at("losses") == training.train(1, flags + "--data " + first).at("losses"));
}

TEST_CASE("a timeline and a trace of the last step are written") {
  const Training training;
  training.train(2, "--cluster 1x2 --timeline " + training.folder / "t.csv" + " --trace " + training.folder / "t.json");
  CHECK(read_file(training.folder / "t.csv").starts_with("task,op,payload,"));
  CHECK(json::parse(read_file(training.folder / "t.json")).contains("traceEvents"));
}

TEST_CASE("a full disk is one clear error, and the last good checkpoint stays") {
  const Training training;
  const std::string run_folder = training.folder / "run";
  training.train(2, "--save " + run_folder);
  const auto full = run(training.flags(4, "--resume " + run_folder + " --save " + run_folder), {.file_limit = 20000});
  check_complaint(full, 3, {"step 4 is trained", "safetensors", "File too large"});
  const json rest = training.train(3, "--resume " + run_folder);
  CHECK(rest.at("first_step") == 3);
}

TEST_CASE("of a damaged checkpoint the older one is taken, and that is said") {
  const Training training;
  const std::string run_folder = training.folder / "run";
  training.train(2, "--save " + run_folder);
  training.train(3, "--resume " + run_folder + " --save " + run_folder);
  const std::string newest = run_folder + "/step-000003/optimizer.safetensors";
  std::string bytes = read_file(newest);
  bytes.back() = static_cast<char>(bytes.back() ^ 4);
  std::ofstream{newest, std::ios::binary} << bytes;
  const auto result = run(training.flags(4, "--resume " + run_folder));
  CHECK(result.code == 0);
  CHECK(result.err.find("tensor 'v/norm.weight' is not what was written") != std::string::npos);
  CHECK(result.err.find("goes on from") != std::string::npos);
  CHECK(json::parse(result.out).at("first_step") == 3);
  check_refused(run(training.flags(4, "--resume " + run_folder + "/step-000003")), {"optimizer.safetensors", "is damaged"});
}

TEST_CASE("a run saves where no other run saves, and goes on with the model of its checkpoint") {
  const Training training;
  const std::string run_folder = training.folder / "run";
  training.train(2, "--save " + run_folder);
  check_refused(run("train --model llama-4x64 --data " + (training.folder / "text.txt") +
                    " --sequence 16 --global-batch 6 --steps 4 --resume " + run_folder),
                {"hidden size 32", "the model has 64"});
  const int held = ::open((run_folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  REQUIRE(::flock(held, LOCK_EX) == 0);
  check_refused(run(training.flags(4, "--save " + run_folder)), {"run'", "is in use by another"});
  ::close(held);
  training.train(4, "--resume " + run_folder + " --save " + run_folder);
  CHECK_FALSE(fs::exists(run_folder + "/lock"));
}

TEST_CASE("a folder of another run is refused, unless it may be overwritten") {
  const Training training;
  const std::string run_folder = training.folder / "run";
  const std::string other = training.folder / "other";
  const std::string weights = training.folder / "weights";
  training.train(2, "--save " + run_folder + " --save-huggingface " + weights);
  const std::string config = read_file(weights + "/config.json");
  check_refused(run(training.flags(3, "--save " + run_folder)),
                {"holds 'step-000002' of another run", "--resume", "--overwrite"});
  check_refused(run(training.flags(3, "--save-huggingface " + weights)), {"holds 'config.json' already", "--overwrite"});
  check_refused(run(training.flags(3, "--overwrite")), {"--overwrite is of --save"});
  training.train(3, "--resume " + run_folder + " --save " + other);
  training.train(4, "--resume " + other + "/step-000003 --save " + other);
  check_refused(run(training.flags(5, "--resume " + run_folder + " --save " + other)), {"holds 'step-000004' of another run"});
  CHECK(fs::exists(run_folder + "/step-000002"));
  CHECK(read_file(weights + "/config.json") == config);
  training.train(1, "--save " + other + " --overwrite --save-huggingface " + weights);
  CHECK(read_file(other + "/latest") == "step-000001\n");
  CHECK_FALSE(fs::exists(other + "/step-000004"));
}

TEST_CASE("a damaged `latest` is passed over, and that is said") {
  const Training training;
  const std::string run_folder = training.folder / "run";
  training.train(2, "--save " + run_folder);
  training.folder.write("run/latest", "");
  const auto result = run(training.flags(3, "--resume " + run_folder + " --save " + run_folder));
  CHECK(result.code == 0);
  CHECK(result.err.find("latest' is broken") != std::string::npos);
  CHECK(json::parse(result.out).at("first_step") == 3);
  CHECK(read_file(run_folder + "/latest") == "step-000003\n");
}

TEST_CASE("what train cannot do is one clear sentence") {
  const Training training;
  check_refused(run("train --steps 2"), {"--data is missing"});
  check_refused(run(training.flags(2, "--dtype bf16")), {"f32 or f64"});
  check_refused(run(training.flags(2, "--backend gpu")), {"unknown backend 'gpu'", "host"});
  check_refused(run(training.flags(2, "--backend cuda --dtype f64")), {"--dtype f64", "GPU", "bf16"});
  check_refused(run(training.flags(2, "--gpus 2")), {"--gpus", "--backend cuda"});
  check_refused(run(training.flags(2, "--graph")), {"--graph", "--backend cuda"});
  check_refused(run(training.flags(2, "--zero-cta")), {"--zero-cta", "--backend cuda"});
  check_refused(run("check-numerics --backend cuda --dtype bf16 --reference " + reference), {"--dtype bf16", "f32"});
  check_refused(run(training.flags(2, "--schedule tawpip")), {"did you mean 'tawpipe'"});
  check_refused(run(training.flags(2, "--resume " + training.folder / "nowhere")), {"nowhere"});
  check_refused(run(training.flags(2, "--sequence 100000")), {"needs at least 100001"});
  check_refused(run(training.flags(2, "--microbatch 4")), {"does not divide"});
}

TEST_CASE("a GPU that is not there is one clear error") {
  const Training training;
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const auto result = run(training.flags(2, "--backend cuda"));
  unsetenv("CUDA_VISIBLE_DEVICES");
  if (result.code == 2) {
    check_complaint(result, 2, {"built without CUDA", "--backend host"});
  } else {
    check_complaint(result, 3, {"no CUDA device was found", "nvidia-smi"});
  }
}

TEST_CASE("check-numerics passes on the recorded run and prints every quantity") {
  const auto result = run("check-numerics --reference " + reference + " --schedule tawpipe --cluster 2+1 --dtype f64");
  CHECK(result.code == 0);
  CHECK(result.out.find("gradients of step 1") != std::string::npos);
  CHECK(result.out.find("EXCEEDED") == std::string::npos);
}

TEST_CASE("check-numerics ends with 1 where a number differs") {
  const Folder folder;
  fs::copy(reference, folder / "A");
  fs::permissions(folder / "A/A.config.json", fs::perms::owner_all);
  std::string config = read_file(folder / "A/A.config.json");
  const auto at = config.find("1e-05");
  REQUIRE(at != std::string::npos);
  folder.write("A/A.config.json", config.replace(at, 5, "1e-06"));  // norm_eps: visible in f64 only
  const auto sharp = run("check-numerics --dtype f64 --json - --reference " + folder / "A");
  CHECK(sharp.code == 1);
  CHECK(json::parse(sharp.out).at("passes") == false);
}

TEST_CASE("check-numerics names what a reference folder lacks") {
  check_refused(run("check-numerics"), {"--reference is missing"});
  check_refused(run("check-numerics --reference /nowhere"), {"'/nowhere'", "No such file"});
  const Folder folder;
  check_refused(run("check-numerics --reference " + folder / ""), {"*.config.json", "it has 0"});
}

TEST_CASE("what cannot be written or is not a number is found before the first step") {
  const Training training;
  const auto refused = [&](const std::string& more, const std::vector<std::string>& parts) {
    CAPTURE(more);
    check_refused(run(training.flags(100000, more)), parts);
  };
  for (const std::string flag : {"--json", "--timeline", "--trace", "--schedule-out"}) {
    refused(flag + " " + (training.folder / "no/x"), {"cannot write", "no/x"});
  }
  for (const std::string flag : {"--save", "--save-huggingface"}) refused(flag + " /dev/null/x", {"cannot write to folder"});
  refused("--timeline -", {"--timeline and --json would both write to '-'"});
  refused("--clip nan", {"--clip nan is impossible"});
  refused("--clip -1", {"--clip -1", "at least 0"});
  refused("--warmup -1", {"--warmup: the value must be a whole number from 0 to ", "not '-1'"});
  refused("--seed -1", {"--seed: the value must be a whole number from 0 to ", "not '-1'"});
  refused("--weight-decay inf", {"weight decay is inf"});
  refused("--learning-rate fast", {"--learning-rate = fast; it takes a number"});
}
#endif
