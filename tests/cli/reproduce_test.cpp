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
    CHECK(std::abs(cell.at("error_memory_gib").get<double>()) < 0.15);
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
