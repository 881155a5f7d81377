// Orders proven and dumps explained by the command: verdicts, exit codes, files.
// Not: the verdicts of all cases (oracle/hangs_test).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/command.hpp"
#include "support/command_json.hpp"

namespace hangs_test {

using support::check_refused;
using support::Folder;
using support::parsed;
using support::read_file;
using support::run;

namespace {

const std::string data = TAWPIPE_TEST_DATA "/hangs/";

}  // namespace

TEST_CASE("validate proves an order without a model, a cluster or a cost, and mends it") {
  const Folder folder;
  const auto hangs = run("validate --schedule-file " + data + "pt_zbv_p4_m8_swap_turn.csv --json - --mend " + folder / "m.csv");
  CHECK(hangs.code == 1);
  const auto verdict = parsed(hangs);
  CHECK(verdict.at("verdict") == "deadlock");
  CHECK(verdict.at("cycle").size() == 4);
  CHECK(verdict.at("mend") == "swap 7RECV_F0 and 0SEND_F5 of rank 0");
  CHECK(read_file(folder / "m.csv") == read_file(data + "pt_zbv_p4_m8.csv"));
  const auto mended = run("validate --schedule-file " + folder / "m.csv");
  CHECK(mended.code == 0);
  CHECK(mended.out.find("ends in every timing") != std::string::npos);
}

TEST_CASE("calls of any framework are told from schedules") {
  const auto crossed = run("validate --schedule-file " + data + "two_comms_crossed.json");
  CHECK(crossed.code == 1);
  CHECK(crossed.out.find("rank 0             0:all_reduce.tp") != std::string::npos);
  check_refused(
      run("simulate --cluster 1x2 --microbatches 2 --cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s"
          " --schedule-file " +
          data + "two_comms_crossed.json"),
      {"holds the calls of ranks, which is not a schedule"});
}

TEST_CASE("an order that sums gradients too early, or carries other data, is not passed") {
  check_refused(run("validate --schedule-file " + data + "pp2_reduce_early.csv"),
                {"line 1, cell 9: '0B1': the stage's REDUCE_GRAD comes before it"});
  check_refused(run("validate --schedule-file " + data + "pp2_reshard_early.csv"),
                {"cell 10: '0B1': the stage is not unsharded here"});
  const auto other = run("validate --schedule-file " + data + "deepspeed4966_experts_differ.json");
  CHECK(other.code == 1);
  CHECK(other.out.find("0:all_gather.z meets 1:all_gather.z, which carries other data") != std::string::npos);
  const auto uneven = run("validate --schedule-file " + data + "moe_dispatch_pair_differs.json");
  CHECK(uneven.code == 1);
  CHECK(uneven.out.find("dispatch all_to_all, bytes to each rank 0, 4096, 1024, from each 0, 512, 2048") != std::string::npos);
}

TEST_CASE("under Gloo the swapped order ends") {
  CHECK(run("validate --schedule-file " + data + "pt_zbv_p4_m8_swap_turn.csv --semantics gloo").code == 0);
  check_refused(run("validate --schedule-file " + data + "pt_zbv_p4_m8.csv --semantics glo"), {"did you mean 'gloo'"});
}

TEST_CASE("doctor names the culprits of a job that stands still") {
  const auto found = run("doctor " + data + "fr_kind_differs_4 --json -");
  CHECK(found.code == 1);
  const auto json = parsed(found);
  CHECK(json.at("verdict") == "mismatch");
  REQUIRE(json.at("culprits").size() == 1);
  CHECK(json.at("culprits")[0].at("rank") == 2);
  CHECK(json.at("culprits")[0].at("call") == "collective 6");
  CHECK(run("doctor " + data + "fr_pipeline_running_4").code == 0);
  const auto stuck = run("doctor " + data + "fr_nccl_all_started_4");
  CHECK(stuck.code == 1);
  CHECK(stuck.out.find("stuck: the order of calls is right") != std::string::npos);
  const auto absent = run("doctor " + data + "fr_dump_absent_all_ended_4");
  CHECK(absent.code == 1);
  CHECK(absent.out.find("rank 2: has no dump") != std::string::npos);
  const Folder folder;
  check_refused(run("doctor " + folder.write("trace", "{}")), {"does not end in its rank"});
  check_refused(run("doctor " + folder.write("trace_0", "{}")), {"expected a dump of PyTorch's flight recorder"});
  check_refused(run("doctor " + folder.write("evil_1",
                                             "\x80\x02"
                                             "cos\nsystem\nX\x04")),
                {"nothing of it was executed"});
}

}  // namespace hangs_test
