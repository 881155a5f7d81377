// What each command answers: JSON with its documented keys, the main comparison, closed forms.
// Not: what it refuses (bad_input_test.cpp), nor the files it writes (files_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/command_json.hpp"
#include "tawpipe/core/text.hpp"

using nlohmann::json;
using support::parsed;
using support::run;

namespace {

const std::string small = " --cluster 3x2 --model llama-12x512 --sequence 512 --global-batch 12";

std::vector<json> results(const support::Result& result) { return parsed(result).at("results"); }

void check_summary(const json& summary, int ranks) {
  for (const char* key : {"schedule", "cluster", "recompute"}) CHECK(summary.at(key).is_string());
  CHECK((summary.at("model").is_string() || summary.at("model").is_null()));
  CHECK(summary.at("options").is_object());
  for (const char* key : {"nodes", "ranks", "tasks", "stages", "microbatches", "microbatch_size", "makespan_ps"}) {
    CHECK(summary.at(key).is_number_integer());
  }
  for (const char* key : {"makespan_s", "tokens_per_device_per_second", "mfu", "bubble_ratio", "span_bubble_rate"}) {
    CHECK(summary.at(key).is_number());
  }
  CHECK(summary.at("ranks") == ranks);
  REQUIRE(summary.at("peak_memory_bytes").is_array());
  CHECK(summary.at("peak_memory_bytes").size() == static_cast<std::size_t>(ranks));
  for (const auto& bytes : summary.at("peak_memory_bytes")) CHECK(bytes.is_number_integer());
  CHECK(summary.at("out_of_memory").is_boolean());
  for (const char* key : {"inter_node_bytes", "intra_node_bytes", "max_node_egress_bytes"}) {
    CHECK(summary.at("traffic").at(key).is_number_integer());
  }
  for (const char* key : {"busy_s", "exposed_s"}) CHECK(summary.at("communication").at(key).is_number());
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& info : parsed(run("list schedules --json -"))) all.push_back(info.at("name"));
    return all;
  }();
  return names;
}

}  // namespace

TEST_CASE("simulate answers with every documented key") {
  const auto result = run("simulate --schedule tawpipe --json -" + small);
  CHECK(result.code == 0);
  CHECK(result.err.empty());
  const json summary = parsed(result);
  check_summary(summary, 6);
  CHECK(summary.at("schedule") == "tawpipe");
  CHECK(summary.at("cluster") == "3x2");
  CHECK(summary.at("model") == "llama-12x512");
  CHECK(summary.at("cost").is_string());
  CHECK(summary.at("out_of_memory") == false);
  CHECK(summary.at("makespan_s").get<double>() > 0);
}

TEST_CASE("compare answers with results, best first") {
  const auto result = run("compare --json -" + small);
  CHECK(result.code == 0);
  const json all = parsed(result);
  CHECK(all.at("cluster") == "3x2");
  CHECK(all.at("model") == "llama-12x512");
  REQUIRE(all.at("results").size() == 5);
  double last = 0;
  for (const auto& summary : all.at("results")) {
    check_summary(summary, 6);
    CHECK(summary.at("makespan_s").get<double>() >= last);
    last = summary.at("makespan_s");
    const double bound = summary.at("bound_s");
    CHECK(bound == parsed(run("bound --json -" + small)).at("bound_s").get<double>());
    CHECK(summary.at("gap").get<double>() == doctest::Approx(last / bound - 1));
  }
}

TEST_CASE("model states are shared out as asked, and the schedule is valid") {
  const std::string job =
      " --schedule 1f1b --cluster 1x4 --model llama-8x512 --sequence 512 --global-batch 8 --microbatch 1 --data-parallel 2";
  for (const char* states : {"none", "optimizer", "gradients", "parameters"}) {
    CAPTURE(states);
    for (const char* reshard : {"step", "microbatch"}) {
      const std::string flags = job + " --shard-states " + states + " --reshard " + reshard;
      CHECK(parsed(run("validate --json -" + flags)).at("valid") == true);
    }
  }
  const auto refused = run("simulate" + job + " --shard-states weights");
  CHECK(refused.code == 2);
  CHECK(refused.err.find("none, optimizer, gradients, parameters") != std::string::npos);
}

TEST_CASE("validate, list and topology answer in JSON") {
  const json findings = parsed(run("validate --schedule tawpipe --json -" + small));
  CHECK(findings.at("valid") == true);
  CHECK(findings.at("findings").is_array());
  for (const char* what : {"schedules", "clusters", "models"}) {
    const json list = parsed(run("list " + std::string{what} + " --json -"));
    REQUIRE(list.size() >= 5);
    CHECK(list[0].at("name").is_string());
    CHECK(list[0].at("source").is_string());
  }
  const json cluster = parsed(run("topology show 3x2 --json -"));
  CHECK(cluster.at("nodes").size() == 3);
  const json node = parsed(run("topology import " TAWPIPE_TEST_DATA "/topology/pcie_4gpu_2nic.smi.txt --nodes 4 --json -"));
  CHECK(node.at("nodes").size() == 4);
}

TEST_CASE("each command has a text for people") {
  for (const std::string line : {"list schedules", "list clusters", "list models", "topology show dgx-a100*2", "--version",
                                 "--help", "compare --help", "simulate --help", "validate --help", "list --help",
                                 "topology --help", "topology show --help", "topology import --help", "graph --help"}) {
    CAPTURE(line);
    const auto result = run(line);
    CHECK(result.code == 0);
    CHECK(result.err.empty());
    CHECK(result.out.size() > 5);
    if (line.ends_with("--help")) CHECK(result.out.find("\nExample") != std::string::npos);
  }
  for (const std::string line : {"simulate --schedule tawpipe", "compare", "validate --schedule tawpipe"}) {
    CAPTURE(line);
    const auto result = run(line + small);
    CHECK(result.code == 0);
    CHECK(result.out.find("3x2: 3 nodes, 6 devices") != std::string::npos);
  }
}

TEST_CASE("on the paper's cluster the usual baselines stand in the measured order, and tawpipe leads with each at its best") {
  for (const std::string sequence : {"4096", "8192", "16384"}) {
    CAPTURE(sequence);
    const std::string line = "compare --cluster a800x24-10gbe --model llama-48x1024 --sequence " + sequence +
                             " --global-batch 1536 --schedules tawpipe,weipipe,fsdp,1f1b --json -";
    const auto result = run(line + " --baselines");
    CHECK(result.code == 0);
    std::vector<std::string> order;
    for (const auto& summary : results(result)) order.push_back(summary.at("schedule"));
    CHECK(order == std::vector<std::string>{"tawpipe", "weipipe", "fsdp", "1f1b"});
    const json best = results(run(line));
    CHECK(best.at(0).at("schedule") == "tawpipe");
    // No schedule is slower than as a baseline.
    for (const auto& one : best) {
      for (const auto& baseline : results(result)) {
        if (one.at("schedule") != baseline.at("schedule")) continue;
        CHECK(one.at("makespan_s").get<double>() <= baseline.at("makespan_s").get<double>() * 1.0001);
      }
    }
  }
}

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

TEST_CASE("validate refuses what one iteration alone cannot show") {
  const std::string line = "validate --schedule 1f1b --data-parallel 2" + small;
  CHECK(run(line).code == 0);
  support::check_refused(run(line + " --overlap-param-gather on"), {"one iteration by itself", "leave it off"});
}

TEST_CASE("fixed times give the closed forms") {
  const json turns = parsed(
      run("simulate --schedule tawpipe --cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s --cluster 3x2 "
          "--microbatches 6 --option order=paper --json -"));
  CHECK(turns.at("makespan_s") == 21.0);
  CHECK(turns.at("bubble_ratio").get<double>() == doctest::Approx(1.0 / 7).epsilon(1e-12));
  CHECK(turns.at("model").is_null());

  // Qi et al. 2024, arXiv:2401.10241, table 5: 8 devices, 24 microbatches.
  const json pipeline = parsed(
      run("simulate --schedule 1f1b --cost fixed:forward=18522us,backward_input=18086us,backward_weight=9337us,transfer=601us "
          "--cluster 1x8 --microbatches 24 --json -"));
  CHECK(std::round(pipeline.at("span_bubble_rate").get<double>() * 1e4) == 2431);
}

TEST_CASE("options may be repeated; compare takes them by schedule") {
  const json summary = parsed(run("simulate --schedule tawpipe --option order=paper --option buffers=3 --json -" + small));
  CHECK(summary.at("options").at("order") == "paper");
  CHECK(summary.at("options").at("buffers") == "3");

  const json all = parsed(run("compare --schedules 1f1b,1f1b:overlap=on,tawpipe:order=paper:buffers=1 --json -" + small));
  REQUIRE(all.at("results").size() == 3);
  int overlapping = 0;
  for (const auto& one : all.at("results")) {
    if (one.at("schedule") == "1f1b" && one.at("options").at("overlap") == "on") ++overlapping;
    if (one.at("schedule") == "tawpipe") CHECK(one.at("options").at("buffers") == "1");
  }
  CHECK(overlapping == 1);

  for (const auto& one : results(run("compare --schedules 1f1b,fsdp --baselines --json -" + small))) {
    if (one.at("schedule") == "1f1b") CHECK(one.at("options").at("overlap") == "off");
    if (one.at("schedule") == "fsdp") CHECK(one.at("options").at("prefetch") == "0");
    CHECK(one.at("recompute") == "full");
  }
}

TEST_CASE("every option is chosen where it says auto, and by compare where nothing is said") {
  const json known = parsed(run("list schedules --json -"));
  for (const auto& schedule : known) {
    if (schedule.at("name") == "zb-auto" || schedule.at("name") == "chimera") continue;
    std::string line = "simulate --json - --schedule " + schedule.at("name").get<std::string>() + small + " --recompute auto";
    for (const auto& option : schedule.at("options")) {
      CHECK(option.at("tried").is_array());
      line += " --option " + option.at("name").get<std::string>() + "=auto";
    }
    CAPTURE(line);
    const auto result = run(line);
    CHECK(result.code == 0);
    check_summary(parsed(result), 6);
  }
  // What compare chose is what simulate finds with it.
  const json best = results(run("compare --schedules fsdp --json -" + small)).at(0);
  std::string line = "simulate --schedule fsdp --json -" + small + " --recompute " + best.at("recompute").get<std::string>() +
                     " --microbatch " + std::to_string(best.at("microbatch_size").get<int>());
  for (const auto& [key, value] : best.at("options").items()) line += " --option " + key + "=" + value.get<std::string>();
  CHECK(parsed(run(line)).at("makespan_ps") == best.at("makespan_ps"));
  support::check_refused(run("simulate --schedule 1f1b --option overlap=automatic" + small), {"overlap=automatic", "on, off"});
}

TEST_CASE("TawPipe's automatic options follow the cluster: speeds of its devices, adapters of their own") {
  const std::string batch = " --model llama-12x512 --sequence 512 --global-batch 32";
  const std::string line =
      "simulate --schedule tawpipe --option speeds=auto --option stripe=auto --json -" + batch + " --cluster ";
  const auto options = [&](const std::string& cluster) { return parsed(run(line + cluster)).at("options"); };
  const json mixed = options(TAWPIPE_TEST_DATA "/topology/mixed.cluster.json");  // an H100 node and an A100 node
  CHECK(mixed.at("speeds") == "3+1");
  CHECK(mixed.at("stripe") == "on");
  const json shared = options("a800x24-10gbe");  // one adapter a node
  CHECK(shared.at("speeds") == "equal");
  CHECK(shared.at("stripe") == "off");
  CHECK(options("dgx-h100*2").at("stripe") == "on");
  CHECK(options("dgx-h100*2 --option overlap=off").at("stripe") == "off");
  CHECK(options("dgx-h100*2 --option node-cache=2").at("stripe") == "off");
}

TEST_CASE("the same question has the same answer, byte for byte") {
  for (const std::string& line : {"compare --json -" + small, "simulate --schedule tawpipe --timeline -" + small,
                                  "simulate --schedule fsdp --json -" + small}) {
    CAPTURE(line);
    const auto once = run(line);
    CHECK(once.code == 0);
    CHECK(once.out.size() > 100);
    CHECK(once.out == run(line).out);
  }
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
  CHECK(time(" --products fp8") < plain);
  CHECK(time(" --products fp8-rows --layer-code torchtitan") > time(" --products fp8"));
  CHECK(time(" --attention unfused") > plain);
  CHECK(time(" --layer-code torchtitan-eager") > time(" --layer-code torchtitan"));
  const std::string narrow = " --products fp8 --layer-code torchtitan";
  CHECK(time(narrow + " --gathered-weights products") < time(narrow));
  CHECK(time(narrow + " --gathered-weights model") == time(narrow));
  support::check_refused(run(problem + " --gathered-weights products"), {"gathered in 8 bits", "fp8"});
  support::check_refused(run(problem + narrow + " --gathered-weights fp8"), {"--gathered-weights", "products", "model"});
  // 4 bytes less for each parameter, which one device owns.
  CHECK(memory("") - memory(" --moment-dtype bfloat16") == doctest::Approx(4 * 3'212'749'824.0).epsilon(1e-3));
  CHECK(memory("") - memory(" --master-dtype float16") == doctest::Approx(2 * 3'212'749'824.0).epsilon(1e-3));
  CHECK(memory("") - memory(" --master-dtype none") == doctest::Approx(4 * 3'212'749'824.0).epsilon(1e-3));
  CHECK(memory(" --loss-dtype model") < memory(""));
  CHECK(time(" --loss-dtype model") < plain);
  CHECK(time(" --loss-dtype float32") == plain);
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
  support::check_refused(run(problem + " --products nvfp4"), {"H100-80G", "nvfp4", "peak_fp4"});
  support::check_refused(run(problem + " --products fp8 --cost roofline"), {"fp8", "--cost kernels"});
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

TEST_CASE("300 layers on 7 devices are cut evenly") {
  const auto result =
      run("compare --schedules tawpipe,weipipe,fsdp,1f1b,gpipe --json - --cluster 1x7 --model llama-300x1024 "
          "--sequence 512 --global-batch 14 --microbatch 1");
  CHECK(result.code == 0);
  for (const auto& summary : results(result)) check_summary(summary, 7);
}

TEST_CASE("one device is a cluster for every schedule") {
  for (const auto& name : schedule_names()) {
    CAPTURE(name);
    const auto result =
        run("simulate --cluster 1x1 --model llama-12x512 --sequence 512 --global-batch 4 --json - --schedule " + name);
    if (result.code == 2) {  // some need several devices, and must say so
      support::check_refused(result, {"needs an even number of ranks"});
      continue;
    }
    CHECK(result.code == 0);
    check_summary(parsed(result), 1);
  }
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
