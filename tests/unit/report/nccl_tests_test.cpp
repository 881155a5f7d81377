// Tests of report/nccl_tests.hpp and report/nccl_tests_file.hpp.
// Not: the command (tests/cli/instruments_test.cpp).
#include "tawpipe/report/nccl_tests_file.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "tawpipe/core/text.hpp"
#include "tawpipe/core/text_file.hpp"

using tawpipe::fit_link;
using tawpipe::InputError;
using tawpipe::NcclTestsRun;
using tawpipe::read_nccl_tests;

namespace {

/// As all_reduce_perf prints it, for 4 ranks on `hosts` hosts: 8.4 us to start, 6 hops of `hop` us,
/// 1.5 * bytes at 100 GB/s.
std::string all_reduce_output(int hosts, double hop) {
  std::string text =
      "# nThread 1 nGpus 4 minBytes 1024 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: "
      "1 graph: 0\n"
      "#\n# Using devices\n";
  for (int rank = 0; rank < 4; ++rank) {
    text += fmt::format("#  Rank {:2} Group  0 Pid  1234 on    node{} device {:2} [0x07] NVIDIA A100-SXM4-80GB\n", rank,
                        rank * hosts / 4, rank);
  }
  text +=
      "#\n#                                                              out-of-place                       in-place\n"
      "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n";
  for (double bytes = 1024; bytes <= 1073741824; bytes *= 4) {
    const double time = 8.4 + 6 * hop + 1.5 * bytes / 100e3;
    text +=
        fmt::format("{:12.0f} {:12.0f}     float     sum      -1 {:8.2f}  1.00    1.50      0 {:8.2f}   1.00    1.50      0\n",
                    bytes, bytes / 4, time, time);
  }
  return text + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 45.1\n#\n";
}

}  // namespace

TEST_CASE("ranks, hosts, sizes and times are read") {
  const NcclTestsRun run = read_nccl_tests(all_reduce_output(2, 3.4), "all_reduce.txt");
  CHECK(run.program == "all_reduce");
  CHECK(run.ranks == 4);
  CHECK(run.hosts == 2);
  CHECK(run.points.size() == 11);  // 1 KiB * 4^0 .. 4^10
  CHECK(run.points[0].bytes == 1024);
  CHECK(read_nccl_tests("# Collective test starting: broadcast_perf\n" + all_reduce_output(1, 1), "x").program == "broadcast");
}

TEST_CASE("the link that made the times is found again") {
  const auto link = fit_link(read_nccl_tests(all_reduce_output(1, 3.4), "all_reduce.txt"));
  CHECK(link.bytes_per_second == doctest::Approx(100e9).epsilon(0.01));
  CHECK(link.latency_s == doctest::Approx(3.4e-6).epsilon(0.01));
  CHECK(link.error < 0.01);
}

TEST_CASE("what is not an output of nccl-tests is refused") {
  CHECK_THROWS_WITH_AS(read_nccl_tests("hello\n", "a.txt"), doctest::Contains("is not an output of nccl-tests"), InputError);
  CHECK_THROWS_WITH_AS(read_nccl_tests(all_reduce_output(1, 1), "a.txt"), doctest::Contains("which program"), InputError);
  NcclTestsRun flat{.program = "sendrecv", .ranks = 2, .hosts = 1, .points = {{1e6, 100}, {1e6, 100}}};
  CHECK_THROWS_AS(fit_link(flat), InputError);
  flat.points = {{1e6, 100}, {2e6, 50}};
  CHECK_THROWS_AS(fit_link(flat), InputError);
}

namespace {

NcclTestsRun recorded(const std::string& name) {
  const std::string path = std::string{TAWPIPE_TEST_DATA} + "/nccl_tests/" + name;
  return read_nccl_tests(tawpipe::read_text_file(path, "output", 1), name);
}

/// The text with `label` before each line.
std::string labelled(const std::string& text, const std::string& label) {
  std::string all;
  for (const std::string_view line : tawpipe::split(text, '\n')) all += label + std::string{line} + "\n";
  return all;
}

/// As -J writes it for one process of 8 H100 on each of `hosts` hosts.
std::string json_output(const std::string& program, int hosts, const std::string& environment) {
  std::string devices;
  for (int host = 0; host < hosts; ++host) {
    devices += fmt::format(
        R"({}{{"rank":{},"group":0,"pid":7,"hostname":"h{}","device":0,"device_hex":"0000:07:00","device_info":"NVIDIA H100 80GB HBM3"}})",
        host > 0 ? "," : "", 8 * host, host);
  }
  std::string results;
  for (double bytes = 1048576; bytes < 1e10; bytes *= 4) {
    const double time = 30 + bytes / 400e3;
    results += fmt::format(
        R"({}{{"size":{:.0f},"count":4,"type":"float","redop":"sum","root":"    -1","out_of_place":{{"time":{},"alg_bw":1,"bus_bw":1,"nwrong":0}},"in_place":{{"time":1,"alg_bw":1,"bus_bw":1,"nwrong":null}},"actual_iterations":20,"experiment_name":""}})",
        results.empty() ? "" : ",", bytes, time);
  }
  return fmt::format(
      R"({{"version":1,"start_time":"2026-01-01 00:00:00","args":["./build/{}","-g","8","-J","a.json"],"env":["HOME=/root"{}],"nccl_version":22809,"config":{{"nthreads":1,"ngpus":8,"devices":[{}]}},"results":[{}],"out_of_bounds":{{"count":0,"okay":"true"}},"average_bus_bandwidth":{{"bandwidth":1,"okay":"unchecked"}},"errors":[]}})",
      program, environment, devices, results);
}

}  // namespace

TEST_CASE("bandwidth between hosts is divided by a host's adapters") {
  const auto link = fit_link(recorded("all_gather_two_hosts_8_nics.txt"));
  CHECK(link.adapters == 8);
  CHECK(link.adapters_assumed);
  CHECK(link.bytes_per_second == doctest::Approx(44e9).epsilon(0.01));
  NcclTestsRun known = recorded("all_gather_two_hosts_8_nics.txt");
  known.adapters = 4;
  CHECK(fit_link(known).bytes_per_second == doctest::Approx(88e9).epsilon(0.01));
  CHECK_FALSE(fit_link(known).adapters_assumed);
}

TEST_CASE("one slow adapter is not divided among the GPUs") {
  NcclTestsRun run{.program = "all_gather", .ranks = 16, .hosts = 2, .points = {}};
  for (const double bytes : {1e6, 1e8, 1e9}) run.points.push_back({bytes, 100 + 15.0 / 16 * bytes / 1.177e3});
  CHECK(fit_link(run).adapters == 1);
  CHECK(fit_link(run).bytes_per_second == doctest::Approx(1.177e9).epsilon(0.01));
}

TEST_CASE("NCCL's log in the output names adapters and the algorithm") {
  const std::string log =
      "h1:7:8 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n"
      "h1:7:8 [0] NCCL INFO NCCL_ALGO set by environment to Ring\n";
  const NcclTestsRun run = read_nccl_tests(log + all_reduce_output(2, 3.4), "all_reduce.txt");
  CHECK(run.adapters == 3);
  CHECK(run.ring);
  CHECK(fit_link(run).bytes_per_second == doctest::Approx(100e9 / 3).epsilon(0.01));
}

TEST_CASE("sums in NVSwitches and trees are taken for no link") {
  CHECK_THROWS_WITH_AS(fit_link(recorded("all_reduce_nvls_h100.txt")), doctest::Contains("the NVSwitch summed (NVLS)"),
                       InputError);
  CHECK_THROWS_WITH_AS(fit_link(recorded("all_reduce_nvls_h100.txt")), doctest::Contains("478 GB/s is more than the 371 GB/s"),
                       InputError);
  CHECK_THROWS_WITH_AS(fit_link(read_nccl_tests(all_reduce_output(2, 3.4), "all_reduce.txt")),
                       doctest::Contains("NCCL_ALGO=Ring"), InputError);
  NcclTestsRun ring = read_nccl_tests(all_reduce_output(2, 3.4), "all_reduce.txt");
  ring.ring = true;
  CHECK(fit_link(ring).bytes_per_second == doctest::Approx(50e9).epsilon(0.01));
}

TEST_CASE("labels of launchers are cut off") {
  for (const NcclTestsRun& run :
       {recorded("srun_labels.txt"), read_nccl_tests(labelled(all_reduce_output(1, 1), "[1,0]<stdout>:"), "all_reduce"),
        read_nccl_tests(labelled(all_reduce_output(1, 1), "[1,0]<stdout>: "), "all_reduce")}) {
    CHECK(run.hosts == 1);
    CHECK(run.points.size() >= 11);
  }
  CHECK(fit_link(recorded("srun_labels.txt")).bytes_per_second == doctest::Approx(362e9).epsilon(0.01));
}

TEST_CASE("alltoall crosses adapters with what its rank's peers elsewhere get") {
  const NcclTestsRun run = recorded("alltoall_two_hosts.txt");
  CHECK(run.points.size() == 14);  // the last row's root and time are run together
  // 8 ranks send half of 45.8 GB/s each to the other host, through 8 adapters.
  CHECK(fit_link(run).bytes_per_second == doctest::Approx(22.9e9).epsilon(0.01));
}

TEST_CASE("what -J writes is read, of processes that list one of their GPUs") {
  const NcclTestsRun run = read_nccl_tests(json_output("all_gather_perf", 1, ""), "a.json");
  CHECK(run.program == "all_gather");
  CHECK(run.ranks == 8);
  CHECK(run.hosts == 1);
  CHECK(run.gpu == "NVIDIA H100 80GB HBM3");
  CHECK(fit_link(run).bytes_per_second == doctest::Approx(350e9).epsilon(0.01));
  CHECK_THROWS_AS(fit_link(read_nccl_tests(json_output("all_reduce_perf", 2, ""), "a.json")), InputError);
  CHECK(fit_link(read_nccl_tests(json_output("all_reduce_perf", 2, R"(,"NCCL_ALGO=Ring")"), "a.json")).adapters == 8);
}

TEST_CASE("rows of other versions and flags") {
  const std::string ranks = "#  Rank  0 Pid 1 on h device 0 [0x07] A\n#  Rank  1 Pid 1 on h device 1 [0x08] A\n";
  const auto first = [&](const std::string& rows) {
    return read_nccl_tests(ranks + rows, "reduce_scatter.txt").points.at(0).microseconds;
  };
  CHECK(first("# size count type time algbw busbw error time algbw busbw error\n"
              "1024 256 float 11.5 1 1 0e+00 12.5 1 1 0e+00\n2048 512 float 13 1 1 0e+00 14 1 1 0e+00\n") == 11.5);
  CHECK(first("# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw #wrong i_min i_max "
              "i_p99 "
              "i_cv% timestamp\n"
              "1024 256 float sum -1 11.5 1 1 0 1 1 1 1 12.5 1 1 0 1 1 1 1 2026-01-01 00:00:00\n"
              "2048 512 float sum -1 13 1 1 0 1 1 1 1 14 1 1 0 1 1 1 1 2026-01-01 00:00:00\n") == 11.5);
  CHECK(first("1024 256 float sum -1 11.5 1 1 0\n2048 512 float sum -1 13 1 1 0\n") == 11.5);  // in place only
}

TEST_CASE("what is of no single link is refused by its name") {
  const std::string run = all_reduce_output(1, 1);
  const auto refusal = [](const std::string& text) {
    try {
      read_nccl_tests(text, "x.txt");
    } catch (const InputError& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  for (const char* program : {"gather", "scatter", "hypercube", "alltoallv"}) {
    CHECK(refusal("# Collective test starting: " + std::string{program} + "_perf\n" + run)
              .find(std::string{"is of "} + program + "_perf") != std::string::npos);
  }
  CHECK(refusal("# Collective test starting: all_reduce_perf\n" + run + run).find("more than one run") != std::string::npos);
  CHECK(refusal("# all_reduce_perf\n# all_gather_perf\n" + run).find("more than one run") != std::string::npos);
  CHECK(refusal("# all_reduce_perf\n" + run + "# Out of bounds values : 3 FAILED\n").find("says FAILED") != std::string::npos);
  CHECK(refusal("# all_reduce_perf\n#  Rank  9 Group  0 Pid 1 on h device 0 [0] A\n" + run).find("5 of 10 ranks") !=
        std::string::npos);
}
