// Tests of report/nccl_tests.hpp.
// Not: the command (tests/cli/instruments_test.cpp).
#include "tawpipe/report/nccl_tests.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

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
