// Tests of report/kineto_run.hpp: a host that waits is told from one that works, and what it does
// has a name.
// Not: the device's dependencies (kineto_run_test.cpp).
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/kineto_files.hpp"
#include "tawpipe/replay/what_if.hpp"
#include "tawpipe/report/kineto_run.hpp"

using doctest::Approx;
using support::KinetoFile;
using tawpipe::ask;
using tawpipe::TracedRun;
using tawpipe::TraceKind;
using tawpipe::WhatIf;

namespace {

const std::string both_ranks = "[0, 1]";
constexpr double loads = 50'000;  ///< microseconds that the slow rank's loader takes, each step
constexpr int slow = 1;
constexpr int steps = 3;

/// Two ranks, three steps each: load, a product of 2 ms, an all-reduce. Rank 1's loader is slow. The
/// ranks then wait for the all-reduce without a call of CUDA's, as by a blocking wait.
/// @param name  the loader's annotation; "": it has none
TracedRun run_of_loaders(const std::string& category, const std::string& name) {
  tawpipe::KinetoRunReader reader;
  for (int rank = 0; rank < 2; ++rank) {
    KinetoFile file{rank, 2};
    double at = 0;
    for (int step = 0; step < steps; ++step) {
      const double own = rank == slow ? loads : 100;
      if (!name.empty()) file.event(category, name, 100, 1, at + 1, own - 2, "");
      const double launch = at + own;
      file.launch(launch, 5, "gemm", 7, launch + 10, 2000);
      const double arrives = launch + 2010;
      const double ends = at + loads + 2010 + 500;  // when both have arrived, and 500 us
      file.launch(launch + 6, 5, "ncclDevKernel_AllReduce", 20, arrives, ends - arrives,
                  KinetoFile::collective("allreduce", "0", both_ranks, 2, 1000, step));
      at = ends + 20;  // the host goes on
    }
    reader.add(file.text(), tawpipe::concat("rank", rank, ".json"));
  }
  return reader.take();
}

double step_of(const TracedRun& run, const WhatIf& question = {}) { return to_seconds(ask(run, question).total) * 1e6 / steps; }

}  // namespace

TEST_CASE("the rank with the slow loader is found, and what it costs") {
  for (const bool named : {true, false}) {
    CAPTURE(named);
    const TracedRun run =
        run_of_loaders("user_annotation", named ? "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" : "");
    CHECK(step_of(run) == Approx(loads + 2530).epsilon(0.01));
    std::vector<char> expected{0, 1};
    CHECK(tawpipe::worst_ranks(run, 1) == expected);
    const std::vector<double> excess = tawpipe::excess_of_ranks(run);
    CHECK(excess[1] > excess[0]);
    // As fast as rank 0, whose loader takes 0.1 ms: a step of 2.6 ms.
    CHECK(step_of(run, {.name = {}, .typical = WhatIf::Typical::peers, .ranks = expected}) < 4000);
    // Rank 0 made fast changes nothing: it waited.
    CHECK(step_of(run, {.name = {}, .typical = WhatIf::Typical::peers, .ranks = {1, 0}}) > loads);
  }
}

TEST_CASE("causes have names and costs, and are asked for by them") {
  struct Named {
    const char* category;
    const char* event;
    const char* cause;
  };
  for (const Named& one :
       {Named{"user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data loader"},
        Named{"python_function", "Python GC", "garbage collector"},
        Named{"python_function", "train.py(12): augment", "Python: train.py(12): augment"}}) {
    const TracedRun run = run_of_loaders(one.category, one.event);
    const auto causes = tawpipe::host_causes(run);
    REQUIRE(causes.size() == 1);
    const auto& name = run.names[static_cast<std::size_t>(causes[0].name)];
    CHECK(name == one.cause);
    // The trace of a function of Python that ran before the first launch is no part of the step.
    const int counted = name.starts_with("Python") ? steps - 1 : steps;
    CHECK(causes[0].seconds[1] == Approx(counted * loads * 1e-6).epsilon(0.01));
    CHECK(causes[0].seconds[0] < 0.001);
    std::vector<char> chosen(run.names.size(), 0);
    chosen[static_cast<std::size_t>(causes[0].name)] = 1;
    CHECK(step_of(run, {.name = {}, .scales = {{.names = chosen, .factor = 0}}}) < 4000 + (steps - counted) * loads / steps);
  }
}

TEST_CASE("without a GPU the loader is found, too") {
  tawpipe::KinetoRunReader reader;
  for (int rank = 0; rank < 2; ++rank) {
    KinetoFile file{rank, 2};
    double at = 0;
    for (int step = 0; step < steps; ++step) {
      const double own = rank == slow ? loads : 100;
      file.event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 100, 1, at, own, "");
      file.event("cpu_op", "aten::stack", 100, 1, at + 10, own / 2, "");
      file.event("cpu_op", "aten::mm", 100, 1, at + own, 2000, "");
      const double ends = at + loads + 2000 + 500;
      file.event("user_annotation", "gloo:all_reduce", 100, 2, at + own + 2000, ends - (at + own + 2000), "");
      at = ends;
    }
    reader.add(file.text(), tawpipe::concat("rank", rank, ".json"));
  }
  const TracedRun run = reader.take();
  std::vector<char> expected{0, 1};
  CHECK(step_of(run) == Approx(loads + 2500).epsilon(0.01));
  CHECK(tawpipe::worst_ranks(run, 1) == expected);
  CHECK(step_of(run, {.name = {}, .typical = WhatIf::Typical::peers, .ranks = expected}) < 4000);
  REQUIRE(tawpipe::host_causes(run).size() == 1);
  CHECK(run.names[static_cast<std::size_t>(tawpipe::host_causes(run)[0].name)] == "data loader");
}

TEST_CASE("without a GPU a thread that wakes late from a long communication waited for it") {
  tawpipe::KinetoRunReader reader;
  for (int rank = 0; rank < 2; ++rank) {
    KinetoFile file{rank, 2};
    const double own = rank == slow ? 600'000 : 10'000;
    const double ends = 601'000;  // both wake 2 ms after it
    file.event("cpu_op", "aten::mm", 100, 1, 0, own, "");
    file.event("user_annotation", "gloo:all_reduce", 100, 2, own, ends - own, "");
    file.event("cpu_op", "aten::add_", 100, 1, ends + 2000, 1000, "");
    reader.add(file.text(), tawpipe::concat("rank", rank, ".json"));
  }
  const TracedRun run = reader.take();
  const std::vector<double> excess = tawpipe::excess_of_ranks(run);
  CHECK(excess[slow] == Approx(0.295).epsilon(0.01));
  CHECK(excess[1 - slow] == Approx(-0.295).epsilon(0.01));
}
