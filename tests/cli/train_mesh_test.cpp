// `tawpipe train` and `tawpipe check-numerics` with replicas of a schedule: the same curve and
// recorded numbers, checkpoints of any mesh under any other, the bytes that simulate tells.
// Not: the numbers of every schedule (numerics/composed_test.cpp).
#if TAWPIPE_COMMAND_EXECUTES
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/command.hpp"

using nlohmann::json;
using support::check_refused;
using support::Folder;
using support::run;

namespace train_mesh_test {

const std::string reference = std::string{TAWPIPE_TEST_DATA} + "/llama_golden/A";

class Training {
 public:
  Training() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog. ";
    text_ = folder.write("text.txt", text);
  }
  std::string flags(int steps, const std::string& more, const std::string& dtype = "f64") const {
    return "train --model llama-4x32 --data " + text_ + " --sequence 16 --global-batch 8 --warmup 2 --dtype " + dtype +
           " --steps " + std::to_string(steps) + " --decay-steps 8 --json - " + more;
  }
  json train(int steps, const std::string& more) const {
    const auto result = run(flags(steps, more));
    CAPTURE(more);
    CAPTURE(result.err);
    REQUIRE(result.code == 0);
    return json::parse(result.out);
  }

  const Folder folder;

 private:
  std::string text_;
};

void check_same_curve(const json& run, const json& whole) {
  const std::size_t first = run.at("first_step").get<std::size_t>() - 1;
  const auto losses = run.at("losses").get<std::vector<double>>();
  REQUIRE(first + losses.size() == whole.at("losses").size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    CHECK(losses[i] == doctest::Approx(whole.at("losses")[first + i].get<double>()).epsilon(1e-11));
  }
}

TEST_CASE("replicas follow the curve of one device, whatever states they share, and the same bits under delays") {
  const Training training;
  const json alone = training.train(5, "--schedule 1f1b");
  for (const std::string& mesh : std::vector<std::string>{
           "--schedule 1f1b --cluster 2x2 --data-parallel 2 --shard-states none",
           "--schedule zb-h1 --cluster 2x2 --data-parallel 2",
           "--schedule interleaved-1f1b --cluster 1x4 --data-parallel 2 --shard-states gradients --layout tp-cp-dp-pp",
           "--schedule gpipe --cluster 1x4 --data-parallel 4 --shard-states parameters",
           "--schedule tawpipe --cluster 2x2 --data-parallel 2 --overlap-grad-reduce on --overlap-param-gather on --bucket 1"}) {
    const json replicas = training.train(5, mesh);
    check_same_curve(replicas, alone);
    CHECK(replicas.at("ranks") == 4);
    CHECK(training.train(5, mesh + " --chaos 50 --chaos-seed 3").at("losses") == replicas.at("losses"));
  }
  const auto head = run(training.flags(1, "--json /dev/null --schedule 1f1b --cluster 2x2 --data-parallel 2"));
  CHECK(head.out.starts_with("1f1b on 4 ranks (host, 2 replicas), "));
}

TEST_CASE("a checkpoint of any mesh goes on under any other, and bit for bit under its own") {
  const Training training;
  const json alone = training.train(6, "--schedule 1f1b");
  const std::vector<std::string> meshes{
      "--schedule 1f1b --cluster 2x2 --data-parallel 2 --overlap-param-gather on",
      "--schedule fsdp --cluster 2x2",
      "--schedule gpipe --cluster 1x4 --data-parallel 4 --shard-states parameters",
      "--schedule zb-h1 --cluster 1x4 --data-parallel 2 --shard-states gradients --offload optimizer",
  };
  for (std::size_t m = 0; m < meshes.size(); ++m) {
    const std::string folder = training.folder / ("run" + std::to_string(m));
    training.train(3, meshes[m] + " --save " + folder);
    check_same_curve(training.train(6, meshes[(m + 1) % meshes.size()] + " --resume " + folder), alone);
    const json own = training.train(6, meshes[m] + " --resume " + folder);
    const json whole = training.train(6, meshes[m]);
    for (std::size_t i = 0; i < 3; ++i) CHECK(own.at("losses")[i] == whole.at("losses")[3 + i]);
  }
}

TEST_CASE("replicas send the bytes of the schedule that they write, as simulate counts them") {
  const Training training;
  for (const std::string sharding : {"none", "optimizer", "gradients", "parameters"}) {
    const std::string file = training.folder / (sharding + ".json");
    const json trained = training.train(
        1, "--clip 0 --schedule 1f1b --cluster 2x2 --data-parallel 2 --shard-states " + sharding + " --schedule-out " + file);
    const auto told = run("simulate --cluster 2x2 --cost roofline --json - --schedule-file " + file);
    CAPTURE(told.err);
    REQUIRE(told.code == 0);
    const json traffic = json::parse(told.out).at("traffic");
    std::int64_t sent = 0;
    for (const json& bytes : trained.at("rank_sent_bytes")) sent += bytes.get<std::int64_t>();
    CHECK(sent == traffic.at("inter_node_bytes").get<std::int64_t>() + traffic.at("intra_node_bytes").get<std::int64_t>());
    for (const auto& [payload, bytes] : traffic.at("payload").items()) {
      const auto all = bytes.at("inter_node_bytes").get<std::int64_t>() + bytes.at("intra_node_bytes").get<std::int64_t>();
      CHECK(trained.at("payload_sent_bytes").value(payload, std::int64_t{0}) == all);
    }
  }
}

TEST_CASE("what is trained is the task graph that simulate times for the same flags") {
  const Training training;
  const std::string config = training.folder.write(
      "config.json", R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2,
          "intermediate_size": 48, "vocab_size": 256})");
  const std::string file = training.folder / "schedule.json";
  for (const std::string mesh :
       {"--shard-states none", "--shard-states gradients", "--overlap-param-gather on --overlap-grad-reduce on --bucket 1",
        "--shard-states parameters --reshard microbatch --layout tp-cp-dp-pp"}) {
    CAPTURE(mesh);
    const std::string flags = "--model " + config +
                              " --sequence 16 --global-batch 8 --microbatch 1 --schedule zb-h1 --cluster 2x2 --recompute none "
                              "--data-parallel 2 " +
                              mesh;
    training.train(1, "--dtype f32 --clip 0 " + flags + " --schedule-out " + file);
    const std::string cost = " --cost roofline --json -";
    const auto asked = run("simulate --dtype float32 --fold off " + flags + cost);
    const auto trained = run("simulate --cluster 2x2 --schedule-file " + file + cost);
    CAPTURE(asked.err);
    REQUIRE(asked.code == 0);
    for (const char* const key : {"schedule", "tasks", "traffic", "makespan_ps", "communication"}) {
      CHECK(json::parse(asked.out).at(key) == json::parse(trained.out).at(key));
    }
  }
}

TEST_CASE("check-numerics passes with replicas on the recorded run") {
  for (const std::string sharding : {"none", "optimizer", "gradients", "parameters"}) {
    const auto result = run("check-numerics --reference " + reference +
                            " --schedule 1f1b --cluster 2x2 --data-parallel 2 --dtype f64 --shard-states " + sharding);
    CHECK(result.code == 0);
    CHECK(result.out.find("EXCEEDED") == std::string::npos);
  }
}

TEST_CASE("tensor-parallel ranks follow the curve of one device, with the same bits under delays") {
  const Training training;
  const json alone = training.train(5, "--schedule 1f1b --clip 0.5");
  for (const std::string& mesh : std::vector<std::string>{
           "--schedule 1f1b --cluster 1x2 --tensor-parallel 2",
           "--schedule zb-h1 --cluster 2x4 --tensor-parallel 2 --data-parallel 2 --overlap-param-gather on",
           "--schedule tawpipe --cluster 2x2 --tensor-parallel 2 --sequence-parallel off",
           "--schedule fsdp --cluster 1x4 --tensor-parallel 2",
           "--schedule gpipe --cluster 1x4 --tensor-parallel 2 --data-parallel 2 --shard-states parameters"}) {
    const json shared = training.train(5, mesh + " --clip 0.5");
    check_same_curve(shared, alone);
    CHECK(training.train(5, mesh + " --clip 0.5 --chaos 20 --chaos-seed 3").at("losses") == shared.at("losses"));
  }
}

TEST_CASE("a checkpoint goes on under another number of tensor-parallel ranks") {
  const Training training;
  const json alone = training.train(6, "--schedule 1f1b");
  const std::string folder = training.folder / "shared";
  training.train(3, "--schedule 1f1b --cluster 1x4 --tensor-parallel 2 --save " + folder);
  for (const std::string mesh :
       {"--schedule zb-h1 --cluster 1x2", "--schedule 1f1b --cluster 1x4 --tensor-parallel 2 --data-parallel 2"})
    check_same_curve(training.train(6, mesh + " --resume " + folder), alone);
}

TEST_CASE("check-numerics passes with tensor-parallel ranks on the recorded run") {
  for (const std::string mesh : {"--cluster 1x2", "--cluster 2x2 --data-parallel 2", "--cluster 2x2 --sequence-parallel off"}) {
    const auto result =
        run("check-numerics --reference " + reference + " --schedule 1f1b --dtype f64 --tensor-parallel 2 " + mesh);
    CHECK(result.code == 0);
    CHECK(result.out.find("EXCEEDED") == std::string::npos);
  }
}

TEST_CASE("ranks that share stages and compute activations again have the losses of those that keep them") {
  const Training training;
  for (const std::string& mesh : std::vector<std::string>{
           "--schedule zb-h1 --cluster 2x2 --tensor-parallel 2",
           "--schedule 1f1b --cluster 1x4 --tensor-parallel 2 --context-parallel 2 --context-exchange ring"}) {
    const json kept = training.train(3, mesh);
    for (const std::string policy : {"selective", "full"})
      CHECK(training.train(3, mesh + " --recompute " + policy).at("losses") == kept.at("losses"));
  }
}

TEST_CASE("ranks that share stages and compute the loss in chunks follow the curve of one device") {
  const Training training;
  const json alone = training.train(5, "--schedule 1f1b");
  for (const std::string& mesh : std::vector<std::string>{
           "--schedule zb-h1 --cluster 2x2 --tensor-parallel 2 --loss-chunk 20",
           "--schedule 1f1b --cluster 1x4 --tensor-parallel 2 --context-parallel 2 --loss-chunk 64 --recompute full"})
    check_same_curve(training.train(5, mesh), alone);
}

TEST_CASE("context-parallel ranks follow the curve of one device, with the same bits under delays") {
  const Training training;
  const json alone = training.train(5, "--schedule 1f1b --clip 0.5");
  for (const std::string& mesh : std::vector<std::string>{
           "--schedule 1f1b --cluster 1x2 --context-parallel 2",
           "--schedule zb-h1 --cluster 2x4 --context-parallel 4 --context-exchange ring",
           "--schedule tawpipe --cluster 2x2 --context-parallel 2 --context-exchange all-to-all --shard-states parameters",
           "--schedule 1f1b --cluster 2x8 --tensor-parallel 2 --context-parallel 2 --data-parallel 2 --shard-states gradients"}) {
    const json shared = training.train(5, mesh + " --clip 0.5");
    check_same_curve(shared, alone);
    CHECK(training.train(5, mesh + " --clip 0.5 --chaos 20 --chaos-seed 3").at("losses") == shared.at("losses"));
  }
}

TEST_CASE("a checkpoint goes on under another number of context-parallel ranks") {
  const Training training;
  const json alone = training.train(6, "--schedule 1f1b");
  const std::string folder = training.folder / "shared";
  training.train(3, "--schedule 1f1b --cluster 1x4 --context-parallel 2 --context-exchange ring --save " + folder);
  for (const std::string mesh : {"--schedule zb-h1 --cluster 1x2", "--schedule fsdp --cluster 1x4 --context-parallel 4"})
    check_same_curve(training.train(6, mesh + " --resume " + folder), alone);
}

TEST_CASE("check-numerics passes with context-parallel ranks on the recorded run") {
  for (const std::string mesh :
       {"--cluster 1x2 --context-parallel 2", "--cluster 1x4 --context-parallel 4 --context-exchange ring",
        "--cluster 2x2 --context-parallel 2 --tensor-parallel 2 --context-exchange all-to-all"}) {
    const auto result = run("check-numerics --reference " + reference + " --schedule 1f1b --dtype f64 " + mesh);
    CHECK(result.code == 0);
    CHECK(result.out.find("EXCEEDED") == std::string::npos);
  }
}

TEST_CASE("ranks that divide the experts follow the curve of one device with microbatches of all of them") {
  const Training training;
  const std::string config = training.folder.write(
      "config.json", R"({"model_type": "mixtral", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 256, "num_local_experts": 4,
          "num_experts_per_tok": 2})");
  const std::string model = "--model " + config + " --clip 0.5 ";
  const json alone = training.train(6, model + "--schedule 1f1b --microbatch 2");
  for (const std::string mesh :
       {"--schedule 1f1b --cluster 1x2 --expert-parallel 2", "--schedule zb-h1 --cluster 2x2 --expert-parallel 2",
        "--schedule ddp --cluster 1x2 --expert-parallel 2", "--schedule 1f1b --cluster 2x4 --expert-parallel 2 --data-parallel 2",
        "--schedule ddp --cluster 1x4 --expert-parallel 2 --data-parallel 2 --shard-states parameters",
        "--schedule zb-h1 --cluster 1x4 --expert-parallel 2 --data-parallel 2 --shard-states gradients",
        "--schedule 1f1b --cluster 2x4 --tensor-parallel 2 --expert-parallel 4 --recompute full",
        "--schedule zb-v --cluster 2x4 --context-parallel 2 --expert-parallel 4 --context-exchange ring",
        "--schedule 1f1b --cluster 1x4 --tensor-parallel 2 --context-parallel 2 --microbatch 2",
        "--schedule 1f1b --cluster 1x4 --tensor-parallel 2 --context-parallel 2 --expert-parallel 4 --microbatch 2 "
        "--recompute selective"}) {
    const json shared = training.train(6, model + mesh);
    check_same_curve(shared, alone);
    CHECK(training.train(6, model + mesh + " --chaos 20 --chaos-seed 3").at("losses") == shared.at("losses"));
  }
  const std::string folder = training.folder / "experts";
  training.train(3, model + "--schedule 1f1b --cluster 1x4 --tensor-parallel 2 --expert-parallel 4 --save " + folder);
  const std::string together = model + "--schedule 1f1b --microbatch 2";
  check_same_curve(training.train(6, together + " --resume " + folder), training.train(6, together));
  for (const std::string mesh :
       {"1f1b --cluster 2x2 --expert-parallel 2", "zb-v --cluster 2x4 --tensor-parallel 2 --expert-parallel 4",
        "1f1b --cluster 2x2 --context-parallel 2 --recompute full"}) {
    const auto numerics =
        run("check-numerics --reference " + std::string{TAWPIPE_TEST_DATA} + "/moe_golden/M0 --dtype f64 --schedule " + mesh);
    CAPTURE(mesh);
    CHECK(numerics.code == 0);
    CHECK(numerics.out.find("EXCEEDED") == std::string::npos);
  }
  check_refused(run(training.flags(1, model + "--schedule 1f1b --cluster 1x2 --tensor-parallel 2 --sequence-parallel off")),
                {"mixtures of experts with sequence parallelism", "--sequence-parallel on"});
}

TEST_CASE("what no executor runs of a mesh is refused by its flag") {
  const Training training;
  const auto refused = [&](const std::string& more, const std::vector<std::string>& parts, const std::string& dtype = "f64") {
    CAPTURE(more);
    check_refused(run(training.flags(100000, more, dtype)), parts);
  };
  refused("--tensor-parallel 2 --cluster 1x2 --backend cuda", {"--tensor-parallel 2", "on GPUs", "whole matrices"}, "f32");
  refused("--tensor-parallel 2 --cluster 1x2 --offload optimizer", {"--offload optimizer", "--tensor-parallel 2"});
  refused("--tensor-parallel 3 --cluster 1x3", {"leaves the last none of its", "choose fewer"});
  refused("--context-parallel 2 --cluster 1x2 --backend cuda --dtype f32",
          {"--context-parallel 2", "on GPUs", "whole sequences"});
  refused("--context-parallel 2 --cluster 1x2 --context-exchange all-to-all+ring",
          {"all-to-all+ring", "choose all-gather, ring"});
  refused("--context-parallel 3 --cluster 1x3", {"cuts each sequence into 6 equal parts", "16 tokens"});
  refused("--context-parallel 2 --cluster 1x2 --offload optimizer", {"--offload optimizer", "--context-parallel 2"});
  refused("--expert-parallel 2 --cluster 1x2", {"expert parallelism", "has no experts"});
  refused("--expert-parallel 2 --cluster 1x2 --backend cuda --dtype f32", {"--expert-parallel 2", "on GPUs", "all its experts"});
  refused("--expert-parallel 2 --tensor-parallel 4 --cluster 1x4", {"--expert-parallel 2", "multiple of tensor 4"});
  refused("--expert-parallel 3 --cluster 1x3", {"--expert-parallel 3", "8 sequences of a step"});
  refused("--data-parallel 3 --cluster 1x4", {"data 3", "does not divide", "4 devices"});
  refused("--data-parallel 3 --cluster 1x3", {"8 microbatches cannot be shared equally by 3"});
  refused("--shard-states gradients", {"--shard-states gradients", "--data-parallel N"});
  refused("--data-parallel 2 --cluster 1x2 --shard-states zero", {"zero", "optimizer"});
  refused("--data-parallel 2 --cluster 1x2 --layout tcs", {"must name tensor (t)"});
  refused("--data-parallel 2 --cluster 1x2 --overlap-grad-reduce yes", {"--overlap-grad-reduce 'yes' must be on or off"});
}
#endif

}  // namespace train_mesh_test
