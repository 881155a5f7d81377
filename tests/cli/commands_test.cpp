// What each command answers: JSON with its documented keys, the main comparison, closed forms.
// Not: what flags change (problem_flags_test.cpp), what it refuses (bad_input_test.cpp), nor the files
// it writes (files_test.cpp).
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
using support::results;
using support::run;

namespace {

const std::string small = " --cluster 3x2 --model llama-12x512 --sequence 512 --global-batch 12";

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
  for (const std::string line : {"list schedules", "list clusters", "list devices", "list models", "topology show dgx-a100*2",
                                 "--version", "--help", "compare --help", "simulate --help", "validate --help", "list --help",
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

TEST_CASE("baselines at the paper's largest size stand in its order under both costs, as reproduce runs them") {
  const std::string line =
      "compare --baselines --cluster a800x24-10gbe --model llama-48x4096 --sequence 16384 --global-batch 1536 "
      "--schedules tawpipe,weipipe,fsdp,1f1b --json - --cost ";
  for (const std::string cost : {"kernels", "roofline"}) {
    CAPTURE(cost);
    std::vector<std::string> order;
    for (const auto& summary : results(run(line + cost))) order.push_back(summary.at("schedule"));
    CHECK(order == std::vector<std::string>{"tawpipe", "weipipe", "1f1b", "fsdp"});
  }
  const json cells = parsed(run("reproduce tawpipe --json -")).at("cells");
  for (const std::string loss : {"float32", "model"}) {  // the paper's 1F1B has its cross entropy in float32
    for (const auto& summary : results(run(line + "roofline:utilization=0.55 --loss-dtype " + loss))) {
      if ((summary.at("schedule") == "1f1b") != (loss == "float32")) continue;
      for (const auto& cell : cells) {
        if (cell.at("table") != "main" || cell.at("hidden") != 4096 || cell.at("schedule") != summary.at("schedule")) continue;
        CHECK(cell.at("predicted_tokens") == summary.at("tokens_per_device_per_second"));
        CHECK(cell.at("microbatch") == summary.at("microbatch_size"));
      }
    }
  }
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

  const json all = parsed(run("compare --schedules 1f1b,1f1b:overlap=off,tawpipe:order=paper:buffers=1 --json -" + small));
  REQUIRE(all.at("results").size() == 3);
  int apart = 0;
  for (const auto& one : all.at("results")) {
    if (one.at("schedule") == "1f1b" && one.at("options").at("overlap") == "off") ++apart;
    if (one.at("schedule") == "tawpipe") CHECK(one.at("options").at("buffers") == "1");
  }
  CHECK(apart == 1);

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
  const std::string text = run("simulate --schedule fsdp --recompute auto" + small).out;
  CHECK(text.find("\nrecomputation         none\n") != std::string::npos);
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
