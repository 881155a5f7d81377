// How well published measurements are reproduced: the errors that the documentation promises.
// Not: the reading of published cells (unit/plan).
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command.hpp"

using nlohmann::json;
using support::run;

namespace {

const std::string names =
    "table,schedule,hidden,sequence,throughput_tokens_per_gpu_s,peak_memory_gb,nccl_time_share,nccl_time_s\n";

json reproduced(const std::string& file) {
  const auto result = run("reproduce tawpipe --json - --data " + file);
  REQUIRE(result.code == 0);
  return json::parse(result.out);
}

}  // namespace

TEST_CASE("the paper's largest model is reproduced: throughput, order, memory, out of memory") {
  const support::Folder folder;
  const std::string file = folder.write("cells.csv", names +
                                                         "main,1f1b,4096,16384,1114.2,62.3,,\n"
                                                         "main,zb-1,4096,16384,,,,\n"
                                                         "main,fsdp,4096,16384,956.1,52.0,,\n"
                                                         "main,weipipe,4096,16384,1232.4,57.8,,\n"
                                                         "main,tawpipe,4096,16384,1377.6,56.7,,\n");
  const json answer = reproduced(file);
  CHECK(answer.at("order_right") == true);
  CHECK(answer.at("mean_error").get<double>() < 0.06);
  for (const auto& cell : answer.at("cells")) {
    CAPTURE(cell.dump());
    CHECK(cell.at("predicted_out_of_memory") == cell.at("measured_out_of_memory"));
    if (!cell.contains("error_tokens")) continue;
    CHECK(std::abs(cell.at("error_tokens").get<double>()) < 0.1);
    // Of 1F1B's fullest rank, the first, a quarter is not explained (docs/accuracy_paper.md).
    CHECK(std::abs(cell.at("error_memory_gib").get<double>()) < (cell.at("schedule") == "1f1b" ? 0.26 : 0.06));
  }
}

TEST_CASE("the order of the schedules is the measured one at 4,096 tokens, each within 10 %, FSDP within 20 %") {
  const support::Folder folder;
  const std::string file = folder.write("cells.csv", names +
                                                         "main,1f1b,1024,4096,7212,,,\n"
                                                         "main,fsdp,1024,4096,10559,,,\n"
                                                         "main,weipipe,1024,4096,12055,,,\n"
                                                         "main,tawpipe,1024,4096,13629,,,\n");
  const json answer = reproduced(file);
  CHECK(answer.at("order_right") == true);
  CHECK(answer.at("usable_memory") == 0.85);
  for (const auto& cell : answer.at("cells")) {
    CAPTURE(cell.dump());
    CHECK(std::abs(cell.at("error_tokens").get<double>()) < (cell.at("schedule") == "fsdp" ? 0.2 : 0.1));
  }
}

TEST_CASE("the ablations lose what the paper's lose, within 3 points") {
  const support::Folder folder;
  std::string rows;
  SUBCASE("hidden 1024") {
    rows =
        "ablation,tawpipe,1024,16384,8914,,,\n"
        "ablation,tawpipe-without-groups,1024,16384,8590,,,\n"
        "ablation,tawpipe-without-overlap,1024,16384,8220,,,\n";
  }
  SUBCASE("hidden 2048") {
    rows =
        "ablation,tawpipe,2048,16384,4180,,,\n"
        "ablation,tawpipe-without-groups,2048,16384,3910,,,\n"
        "ablation,tawpipe-without-overlap,2048,16384,3470,,,\n";
  }
  SUBCASE("hidden 4096") {
    rows =
        "ablation,tawpipe,4096,16384,1377.6,,,\n"
        "ablation,tawpipe-without-groups,4096,16384,1260,,,\n"
        "ablation,tawpipe-without-overlap,4096,16384,1140,,,\n";
  }
  const std::string file = folder.write("cells.csv", names + rows);
  const json answer = reproduced(file);
  std::map<std::string, std::pair<double, double>> tokens;
  for (const auto& cell : answer.at("cells")) {
    tokens[cell.at("schedule")] = {cell.at("measured_tokens"), cell.at("predicted_tokens")};
  }
  const auto whole = tokens.at("tawpipe");
  for (const char* name : {"tawpipe-without-groups", "tawpipe-without-overlap"}) {
    const auto [measured, predicted] = tokens.at(name);
    CHECK(std::abs(measured / whole.first - predicted / whole.second) < 0.03);
  }
  const auto text = run("reproduce tawpipe --data " + file);
  CHECK(text.out.find("tawpipe-without-groups") != std::string::npos);
}

TEST_CASE("a file without the paper's columns is refused") {
  const support::Folder folder;
  support::check_refused(run("reproduce tawpipe --data " + folder.write("a.csv", "x,y\n1,2\n")), {"a.csv", "schedule"});
  support::check_refused(run("reproduce tawpipe --data " + folder / "absent.csv"), {"absent.csv", "cannot be read"});
  support::check_refused(run("reproduce"), {"a command is missing", "tawpipe"});
}

namespace {

const std::string truth_names =
    "source,row,hardware,gpus,model,params_b,layers,hidden,heads,kv_heads,ffn,vocab,experts,sequence,global_batch,micro_batch,tp,"
    "sp,"
    "cp,pp,vp,zero,precision,recompute,schedule,overlap_flags,step_time_s,tflops_per_gpu,peak_memory_gib,note\n";
const std::string small_row =
    "lab,gpt/tp2,A100 80GB,8,gpt,1.3,24,2048,16,16,8192,51200,,2048,32,2,2,1,1,2,1,none,BF16,full,1F1B,,1.1,,20,\"tensor, "
    "pipeline\"\n";

}  // namespace

TEST_CASE("a row's columns say what its source runs: its vocabulary, a tied output, losses for metrics") {
  const support::Folder folder;
  const std::string pipeline = ",,1024,64,1,1,1,1,8,1,none,,,";
  const auto rows = [&](const std::string& source, const std::string& name) {
    return source + ",1f1b,A100 80GB,8," + name + ",6.2,30,4096,32,32,16384," + pipeline + "1F1B,,2,,,\n" + source +
           ",zb,A100 80GB,8," + name + ",6.2,30,4096,32,32,16384," + pipeline + "ZB-2p,,2,,,\n" + source + ",fsdp,A100 80GB,8," +
           name + ",0.125,12,768,12,12,3072,50368,,2048,64,8,1,1,1,1,1,FSDP,BF16,none,none,,1,,,\n";
  };
  const std::string file =
      folder.write("runs.csv", truth_names + rows("lab", "gpt") + rows("zero_bubble", "gpt") + rows("mosaic", "mpt"));
  const json answer = json::parse(run("reproduce --json - " + file).out);
  const auto seconds = [&](int source, int row) {
    return answer.at("sources").at(source).at("predictions").at(row).at("predicted_s").get<double>();
  };
  CHECK(seconds(1, 0) < seconds(0, 0));         // 32,000 entries in place of 51,200
  CHECK(seconds(0, 1) < 0.93 * seconds(0, 0));  // ZB-2p, whose first rank does not wait for the last
  CHECK(seconds(2, 2) > 1.05 * seconds(0, 2));  // the logits are read again
}

TEST_CASE("allocated and reserved memory are scored apart, and verdicts of what ran and what ran out") {
  const support::Folder folder;
  const auto row = [](const std::string& name, const std::string& layers, const std::string& time, const std::string& memory,
                      const std::string& note, const std::string& kind) {
    return "lab," + name + ",A100 80GB,8,gpt,," + layers + ",2048,16,16,8192,51200,,2048,32,2,2,1,1,2,1,none,BF16,none,1F1B,," +
           time + ",," + memory + ",\"" + note + "\"," + kind + "\n";
  };
  const std::string names = truth_names.substr(0, truth_names.size() - 1) + ",memory_kind\n";
  const std::string file = folder.write(
      "runs.csv", names + row("a", "24", "1", "10", "max_reserved 12.5 GiB", "") + row("b", "24", "1", "12.5", "", "reserved") +
                      row("c", "960", "", "", "", "out of memory") + row("d", "24", "", "", "", "out of memory"));
  const json lab = json::parse(run("reproduce --json - " + file).out).at("sources")[0];
  CHECK(lab.at("memory_rows") == 1);
  CHECK(lab.at("reserved_rows") == 2);
  CHECK(lab.at("verdicts") == 4);
  CHECK(lab.at("false_out_of_memory") == 0);
  CHECK(lab.at("false_fits") == 1);  // d, which is a
  const json& first = lab.at("predictions")[0];
  CHECK(first.at("measured_reserved_gib") == 12.5);
  const auto figure = [&](const char* name) { return first.at(name).get<double>(); };
  CHECK(figure("predicted_buffers_gib") < figure("predicted_allocated_gib"));
  CHECK(figure("predicted_allocated_gib") < figure("predicted_reserved_gib"));
  CHECK(figure("predicted_reserved_gib") < figure("predicted_device_gib"));
  CHECK(lab.at("predictions")[2].at("fits").get<double>() < 0.01);
  support::check_refused(run("reproduce " + folder.write("b.csv", names + row("a", "24", "1", "10", "", "used"))),
                         {"memory_kind", "used", "reserved"});
}

TEST_CASE("a row says the network of its nodes") {
  const support::Folder folder;
  std::string rows;
  for (const char* network : {"", "8 x 200 Gb/s RoCE a node", "4 x 100 Gb/s RoCE a node", "RoCE between nodes"})
    rows += std::string{"lab,gpt,A100,16,gpt,1.3,24,2048,16,16,8192,51200,,2048,32,2,1,1,1,1,1,1,BF16,none,none,,1,,,,"} +
            network + "\n";
  const std::string names = truth_names.substr(0, truth_names.size() - 1) + ",interconnect\n";
  const json answer = json::parse(run("reproduce --json - " + folder.write("runs.csv", names + rows)).out);
  std::vector<double> seconds;
  for (const json& one : answer.at("sources")[0].at("predictions")) seconds.push_back(one.at("predicted_s").get<double>());
  REQUIRE(seconds.size() == 4);
  CHECK(seconds[1] == seconds[0]);
  CHECK(seconds[2] > seconds[0]);
  CHECK(seconds[3] == seconds[0]);
  const std::string other = truth_names.substr(0, truth_names.size() - 1) + ",network\n";
  const std::string row = "lab,gpt,A100,16,gpt,1.3,24,2048,16,16,8192,51200,,2048,32,2,1,1,1,1,1,1,BF16,none,none,,1,,,,";
  const json said =
      json::parse(run("reproduce --json - " + folder.write("said.csv", other + row + "4x100 RoCE\n" + row + "1600 RoCE\n")).out);
  CHECK(said.at("sources")[0].at("predictions")[0].at("predicted_s") == seconds[2]);
  CHECK(said.at("sources")[0].at("predictions")[1].at("predicted_s") == seconds[0]);
  support::check_refused(run("reproduce " + folder.write("bad.csv", other + row + "fast\n")),
                         {"network", "fast", "8x400 InfiniBand"});
}

TEST_CASE("a row's flags say what is captured in CUDA graphs") {
  const support::Folder folder;
  std::string rows;
  for (const char* flags :
       {"", "full_cuda_graph=0;mcore_cuda_graph=1", "cuda_graph_impl=local;cuda_graph_scope=full",
        "full_cuda_graph=1;mcore_cuda_graph=1", "cuda_graph_impl=local;cuda_graph_scope=full_iteration",
        "cuda_graph_impl=none;cuda_graph_scope=full_iteration", "cuda_graph_impl=transformer_engine;cuda_graph_scope=attn"})
    rows +=
        std::string{"lab,gpt,H100,8,gpt,1.3,24,2048,16,16,8192,51200,,2048,32,2,1,1,1,1,1,1,BF16,none,none,"} + flags + ",1,,,\n";
  const json answer = json::parse(run("reproduce --json - " + folder.write("runs.csv", truth_names + rows)).out);
  std::vector<double> seconds;
  for (const json& one : answer.at("sources")[0].at("predictions")) seconds.push_back(one.at("predicted_s").get<double>());
  REQUIRE(seconds.size() == 7);
  CHECK(seconds[1] < seconds[0]);
  CHECK(seconds[2] == seconds[1]);
  CHECK(seconds[3] < seconds[1]);
  CHECK(seconds[4] == seconds[3]);
  CHECK(seconds[5] == seconds[0]);
  CHECK(seconds[6] == seconds[0]);
}

TEST_CASE("a table of measured runs: every row predicted or refused with its reason, and the figures of each source") {
  const support::Folder folder;
  const std::string file = folder.write(
      "runs.csv",
      truth_names + small_row +
          "lab,gpt/tp4,A100 80GB,8,gpt,1.3,24,2048,16,16,8192,51200,,2048,32,2,4,1,1,2,1,none,BF16,full,1F1B,,1.3,,15,\n"
          "lab,gpt/tp2#again,A100 80GB,8,gpt,1.3,24,2048,16,16,8192,51200,,2048,32,2,2,,1,2,1,,BF16,,1F1B,,1.2,,20,\n"
          "other,gpt,A100 80GB,8,gpt,1.3,24,2048,16,16,8192,51200,,2048,32,2,1,1,1,1,1,none,BF16,full,none,,1.2,,,\n"
          "lab,moe,H100,8,moe,,24,2048,16,16,8192,51200,8,2048,32,2,1,1,1,1,1,FSDP,BF16,none,none,,1,,,\n"
          "other,llama,H100,8,llama,8.03,32,4096,32,8,14336,128256,,8192,16,1,1,1,1,1,1,FSDP,FP8,full,none,,2,,,\n");
  const auto result = run("reproduce --leave-out --json - " + file);
  REQUIRE(result.code == 0);
  const json answer = json::parse(result.out);
  REQUIRE(answer.at("sources").size() == 2);
  const json& lab = answer.at("sources")[0];
  CHECK(lab.at("source") == "lab");
  CHECK(lab.at("rows") == 4);
  CHECK(lab.at("expressible") == 3);
  CHECK(lab.at("pairs") == 2);  // gpt/tp4 with either run of gpt/tp2, which are one layout measured twice
  CHECK(lab.at("jobs") == 1);
  CHECK(lab.at("jobs_right").get<int>() <= 1);
  CHECK(lab.at("memory_rows") == 3);
  CHECK(lab.at("false_out_of_memory") == 0);
  CHECK(std::abs(lab.at("bias").get<double>()) <= lab.at("mean_error").get<double>());
  CHECK(lab.at("median_error").get<double>() <= lab.at("max_error").get<double>());
  CHECK(lab.at("rank_correlation").get<double>() <= 1);
  CHECK(lab.at("rows_of_64_devices") == 0);
  CHECK_FALSE(lab.contains("devices"));  // all of its predicted rows are on one
  const json& devices = answer.at("sources")[1].at("devices");
  REQUIRE(devices.size() == 2);
  CHECK(devices[0].at("device") == "A100-80G");
  CHECK(devices[1].at("device") == "H100-80G");
  CHECK(devices[1].at("expressible") == 1);
  const json& all = answer.at("all");
  CHECK(all.at("rows") == 6);
  CHECK(all.at("expressible") == 5);
  CHECK(all.at("pairs") == 2);
  const json& predictions = lab.at("predictions");
  CHECK(predictions[0].at("row") == "gpt/tp2");
  CHECK(predictions[0].at("measured_s") == 1.1);
  CHECK(predictions[0].at("predicted_s").get<double>() > 0);
  CHECK(predictions[3].at("why_not").get<std::string>().find("mixture of experts") != std::string::npos);
  CHECK_FALSE(answer.at("left_out").empty());
  const auto text = run("reproduce " + file);
  CHECK(text.out.find("mixture of experts") != std::string::npos);
  CHECK(text.out.find("  H100-80G ") != std::string::npos);
}

TEST_CASE("what a row says of sequence parallelism, PyTorch and post-validation changes its prediction") {
  const support::Folder folder;
  const auto row = [](const std::string& id, const std::string& sp, const std::string& zero, const std::string& recompute,
                      const std::string& schedule) {
    return "lab," + id + ",A100 80GB,8,gpt,1.3,24,2048,16,16,8192,51200,,2048,32,2,2," + sp + ",1,4,1," + zero + ",BF16," +
           recompute + "," + schedule + ",,1.1,,,\n";
  };
  const std::string file = folder.write(
      "runs.csv", truth_names + row("split", "1", "none", "none", "1F1B") + row("whole", "0", "none", "none", "1F1B") +
                      row("megatron", "1", "FSDP", "selective", "1F1B") + row("torchtitan", "1", "FSDP2", "selective", "1F1B") +
                      row("zb", "1", "none", "none", "ZB-2p") + row("zb_sync", "1", "none", "none", "ZB-2p"));
  const auto result = run("reproduce --json - " + file);
  REQUIRE(result.code == 0);
  std::map<std::string, double> predicted;
  const json answer = json::parse(result.out);
  for (const json& each : answer.at("sources")[0].at("predictions")) predicted[each.at("row")] = each.at("predicted_s");
  CHECK(predicted.at("whole") != predicted.at("split"));
  CHECK(predicted.at("torchtitan") > predicted.at("megatron"));  // products again, and a loss in float32
  CHECK(predicted.at("zb") <= predicted.at("zb_sync"));
}

TEST_CASE("rows of PyTorch differ by torch.compile and the scales of 8 bits; the scope of no CUDA graph is no difference") {
  const support::Folder folder;
  const auto row = [](const std::string& id, const std::string& precision, const std::string& flags, const std::string& time) {
    return "lab," + id + ",H100 96GB HBM2e 500W,8,llama,8.03,32,4096,32,8,14336,128256,,8192,16,1,2,,1,1,1,FSDP2," + precision +
           ",full,none," + flags + "," + time + ",,,\n";
  };
  const std::string file = folder.write(
      "runs.csv",
      truth_names + row("eager", "BF16", "torch_compile=0", "3.1") + row("compiled", "BF16", "torch_compile=1", "3.0") +
          row("tensor", "FP8 tensorwise", "torch_compile=1", "2.0") + row("rows", "FP8 rowwise", "torch_compile=1", "2.5") +
          row("graph", "NVFP4", "cuda_graph_impl=none;cuda_graph_scope=", "2.0") +
          row("scope", "NVFP4", "cuda_graph_impl=none;cuda_graph_scope=full_iteration", "2.1"));
  const auto result = run("reproduce --json - " + file);
  REQUIRE(result.code == 0);
  std::map<std::string, double> predicted;
  const json answer = json::parse(result.out);
  for (const json& each : answer.at("sources")[0].at("predictions")) predicted[each.at("row")] = each.at("predicted_s");
  CHECK(predicted.at("eager") > 1.05 * predicted.at("compiled"));
  CHECK(predicted.at("rows") > predicted.at("tensor"));
  CHECK(predicted.at("rows") < predicted.at("compiled"));
  CHECK(answer.at("sources")[0].at("pairs") == 1);  // eager and compiled
}

TEST_CASE("a bad table of measured runs is refused with its line and column") {
  const support::Folder folder;
  const auto refused = [&](const std::string& rows, const std::vector<std::string>& words) {
    support::check_refused(run("reproduce " + folder.write("bad.csv", rows)), words);
  };
  refused("a,b\n1,2\n", {"bad.csv", "step_time_s"});
  refused(truth_names, {"no rows"});
  std::string row = small_row;
  refused(truth_names + row.replace(row.find(",8,gpt"), 6, ",x,gpt"), {"line 2", "gpus", "'x' is not a number"});
  row = small_row;
  refused(truth_names + row.replace(row.find(",8,gpt"), 6, ",6,gpt"), {"line 2", "gpus", "does not divide the 6 GPUs"});
  row = small_row;  // 2^32 ranks
  refused(truth_names + row.replace(row.find(",2,1,1,2,1,none"), 15, ",65536,1,32768,2,1,none"), {"line 2", "4294967296"});
  row = small_row;
  refused(truth_names + row.replace(row.find(",2,1,1,2,1,none"), 15, ",2,1,1,2,536870912,none"),
          {"line 2", "vp", "whole number from 1 to 1000000"});
  row = small_row;
  refused(truth_names + row.replace(row.find(",1.1,"), 5, ",-1,"), {"line 2", "step_time_s", "negative"});
  row = small_row;
  refused(truth_names + row.replace(row.find("\"tensor"), 7, "\"\"tensor"), {"line 2", "column 30"});
  refused(truth_names + "lab,x\n", {"line 2", "2 cells under 30 columns"});
}
