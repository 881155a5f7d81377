// Reads the output of nccl-tests (all_reduce_perf etc.), and fits latency and bandwidth to it.
// Not: the cluster that uses the figures (topology/cluster_file.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/link_speeds.hpp"

namespace tawpipe::inline v0 {

/// One line of results: a size and the time that one call took.
struct NcclTestsPoint {
  double bytes = 0;
  double microseconds = 0;
};

/// A run of one of nccl-tests' programs.
struct NcclTestsRun {
  std::string program;  ///< all_reduce, broadcast, reduce, sendrecv, all_gather or reduce_scatter
  int ranks = 0;
  int hosts = 0;
  std::vector<NcclTestsPoint> points;
};

namespace detail {

inline const std::vector<std::string>& nccl_tests_programs() {
  static const std::vector<std::string> programs{"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "sendrecv"};
  return programs;
}

/// The program that a text names, such as "all_reduce_perf" or, in a file's name, "all_reduce"; ""
/// if none.
inline std::string named_program(std::string_view text) {
  for (const auto& program : nccl_tests_programs()) {
    if (text.find(program + "_perf") != std::string_view::npos) return program;
  }
  for (const auto& program : nccl_tests_programs()) {
    if (text.find(program) != std::string_view::npos) return program;
  }
  return "";
}

}  // namespace detail

/// Reads the standard output of one program of nccl-tests: its lines "#  Rank ..." give ranks and
/// hosts, its rows the out-of-place time of each size. The program is named by the output
/// ("# Collective test starting: all_reduce_perf", since 2.17) or by `file`.
/// @throws InputError  naming `file` if it is not such an output, or the program is unknown.
/// Source: NVIDIA nccl-tests, src/common.cu (the header and the format of rows),
/// doc/PERFORMANCE.md.
inline NcclTestsRun read_nccl_tests(std::string_view text, const std::string& file) {
  NcclTestsRun run;
  std::set<std::string> hosts;
  std::istringstream lines{std::string{text}};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words{line};
    std::string first;
    words >> first;
    if (first == "#") {
      if (line.find("_perf") != std::string::npos && run.program.empty()) run.program = detail::named_program(line);
      std::string second;
      words >> second;
      if (second != "Rank") continue;
      ++run.ranks;
      for (std::string word; words >> word;) {
        if (word == "on" && words >> word) hosts.insert(word);
      }
      continue;
    }
    // size, count, type, redop, root, time (us), ...; broadcast and older versions leave redop or
    // root out
    std::vector<std::string> cells{first};
    for (std::string word; words >> word;) cells.push_back(word);
    // Out of place and in place end a row with four figures each: time, algbw, busbw, errors.
    if (cells.size() < 10) continue;
    const double bytes = to_number<double>(cells[0]).value_or(0);
    const double time = to_number<double>(cells[cells.size() - 8]).value_or(0);
    if (bytes > 0 && time > 0) run.points.push_back({bytes, time});
  }
  run.hosts = static_cast<int>(hosts.size());
  if (run.program.empty()) run.program = detail::named_program(file);
  if (run.points.size() < 2 || run.ranks < 2) {
    throw InputError(concat(quote(file), " is not an output of nccl-tests on 2 ranks or more: it has ", run.ranks,
                            " lines '#  Rank' and ", run.points.size(), " rows of results"));
  }
  if (run.program.empty()) {
    throw InputError(concat(quote(file), " does not say which program wrote it; put its name into the file's, such as ",
                            "all_reduce_node.txt (one of ", join(detail::nccl_tests_programs(), ", "), ")"));
  }
  return run;
}

/// The link that limits a run, as fitted.
struct FittedLink {
  double latency_s = 0;         ///< for each hop, in addition to the overhead of starting
  double bytes_per_second = 0;  ///< in one direction
  double error = 0;             ///< mean relative error of the times given by the two figures
};

/// Fits time = overhead + steps * latency + fraction * bytes / bandwidth by least squares of the
/// relative errors, with the steps and the fraction of the buffer over each link of a ring
/// (cost/collective_cost.hpp): all-reduce 2(n-1) and 2(n-1)/n, all-gather and reduce-scatter n-1
/// and (n-1)/n, broadcast and reduce n-1 and 1, sendrecv 1 and 1.
/// @param overhead_s  of starting an operation, in the cost model
inline FittedLink fit_link(const NcclTestsRun& run, double overhead_s = to_seconds(nccl_latency::start)) {
  const double n = run.ranks;
  const bool rooted = run.program == "broadcast" || run.program == "reduce";
  const double passes = run.program == "all_reduce" ? 2 : 1;
  const double steps = run.program == "sendrecv" ? 1 : passes * (n - 1);
  const double fraction = run.program == "sendrecv" || rooted ? 1 : passes * (n - 1) / n;
  // Relative errors: each row is divided by its time. Normal equations of a + b x with weights 1 /
  // t^2.
  double w = 0;
  double wx = 0;
  double wxx = 0;
  double wy = 0;
  double wxy = 0;
  for (const auto& point : run.points) {
    const double x = fraction * point.bytes;
    const double y = point.microseconds * 1e-6;
    const double weight = 1 / (y * y);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wy += weight * y;
    wxy += weight * x * y;
  }
  const double determinant = w * wxx - wx * wx;
  if (!(determinant > 0))
    throw InputError("nccl-tests with one size only cannot tell latency from bandwidth; give -b 8 -e 1G -f 2");
  const double slope = (w * wxy - wx * wy) / determinant;
  const double start = (wy - slope * wx) / w;
  if (!(slope > 0)) throw InputError("the times of nccl-tests do not grow with the size; run it up to 1 GB (-e 1G)");
  FittedLink link{std::max(0.0, (start - overhead_s) / steps), 1 / slope, 0};
  for (const auto& point : run.points) {
    const double predicted = overhead_s + steps * link.latency_s + fraction * point.bytes * slope;
    link.error += std::abs(predicted / (point.microseconds * 1e-6) - 1) / static_cast<double>(run.points.size());
  }
  return link;
}

}  // namespace tawpipe
