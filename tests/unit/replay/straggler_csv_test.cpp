// Tests of replay/straggler_csv.hpp and what_if.hpp: a run with a slow rank replays itself, and
// without it is the run that has none.
#include "tawpipe/replay/straggler_csv.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/straggler_trace.hpp"
#include "tawpipe/replay/what_if.hpp"

using doctest::Approx;
using support::StragglerRun;
using tawpipe::ask;
using tawpipe::InputError;
using tawpipe::Rank;
using tawpipe::read_straggler_csv;
using tawpipe::TracedRun;
using tawpipe::TraceKind;
using tawpipe::WhatIf;

namespace {

/// Ranks are numbered by dp_rank, then stage.
constexpr std::size_t slow = 2;

StragglerRun slow_run() { return {.slow_replica = 0, .slow_stage = 2, .slowdown = 1.5}; }

std::vector<char> only(std::size_t rank, std::size_t ranks) {
  std::vector<char> chosen(ranks, 0);
  chosen[rank] = 1;
  return chosen;
}

}  // namespace

TEST_CASE("a straggler trace replays itself, step by step") {
  double first = 0;
  double second = 0;
  const std::string text =
      StragglerRun::header() + slow_run().step(7, 1700000000.25, first) + StragglerRun{}.step(9, 1700000100, second);
  const TracedRun run = read_straggler_csv(text);
  REQUIRE(run.steps.size() == 2);
  CHECK(run.ranks.size() == 8);
  CHECK(run.ranks[slow].label == "rank 16 (dp 0, stage 2)");
  CHECK(run.steps[0].name == "7");
  const auto answer = ask(run, {.name = "as traced"});
  // Times of 1.7e9 s have a grain of 0.24 us.
  CHECK(to_seconds(answer.steps[0]) == Approx(first).epsilon(1e-4));
  CHECK(to_seconds(answer.steps[1]) == Approx(second).epsilon(1e-4));
  CHECK(to_seconds(run.steps[0].traced) == Approx(first).epsilon(1e-4));
  CHECK(first > 1.1 * second);
  // Nothing was late, so without delays it takes as long.
  const auto no_gaps = ask(run, {.name = "", .scales = {{.kind = TraceKind::host, .factor = 0}}});
  CHECK(to_seconds(no_gaps.total) == Approx(first + second).epsilon(1e-3));
}

TEST_CASE("without the straggler a run takes as long as the simulated run that has none") {
  double with = 0;
  double without = 0;
  const std::string text = StragglerRun::header() + slow_run().step(1, 100, with);
  StragglerRun{}.step(1, 100, without);
  const TracedRun run = read_straggler_csv(text);
  CHECK(to_seconds(ask(run, {.name = ""}).total) == Approx(with).epsilon(1e-6));
  const auto fixed = ask(run, {.name = "", .typical = WhatIf::Typical::peers, .ranks = only(slow, 8)});
  CHECK(to_seconds(fixed.total) == Approx(without).epsilon(1e-6));
  CHECK(tawpipe::worst_ranks(run, 1) == only(slow, 8));
  // The slow rank computes 6 x 120 ms half as long again: 360 ms more than its peers.
  CHECK(tawpipe::excess_of_ranks(run)[slow] == Approx(0.360).epsilon(1e-6));
  // Spread evenly over 8 ranks, its time stays in the mean: 1 + 0.5 / 8 of every computation.
  const auto even = ask(run, {.name = "", .typical = WhatIf::Typical::shared});
  CHECK(even.total < ask(run, {.name = ""}).total);
  CHECK(even.total > fixed.total);
}

TEST_CASE("computations of other speeds, and communication that takes no time") {
  double end = 0;
  const std::string text = StragglerRun::header() + StragglerRun{}.step(1, 0, end);
  const TracedRun run = read_straggler_csv(text);
  StragglerRun twice;
  twice.cost.forward = tawpipe::Duration{20'000'000'000};
  double expected = 0;
  twice.step(1, 0, expected);
  const auto faster = ask(run, {.name = "", .scales = {{.op = tawpipe::Op::forward, .factor = 0.5}}});
  CHECK(to_seconds(faster.total) == Approx(expected).epsilon(1e-6));
  StragglerRun free;
  free.cost.transfer = {};
  free.step(1, 0, expected);
  const auto silent = ask(run, {.name = "", .scales = {{.kind = TraceKind::communication, .factor = 0}}});
  CHECK(to_seconds(silent.total) == Approx(expected - StragglerRun::scatter - StragglerRun::clip).epsilon(1e-6));
}

TEST_CASE("what is no straggler trace is refused in one line that says what would be right") {
  double end = 0;
  const std::string rows = StragglerRun{}.step(1, 0, end);
  const auto refused = [](const std::string& text, const char* part) {
    std::string message;
    try {
      read_straggler_csv(text, "t.csv");
    } catch (const InputError& error) {
      message = error.what();
    }
    CAPTURE(message);
    CHECK(message.find("t.csv") == 0);
    CHECK(message.find(part) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  };
  refused("", "empty");
  refused("a,b\n1,2\n", "no column 'dp_rank'");
  refused(StragglerRun::header(), "no operation");
  refused(StragglerRun::header() + rows.substr(0, rows.size() - 20), "cut off");
  refused(StragglerRun::header() + "0,0,0,1,forward-compute,x,1,0,0,0,0\n", "'x' is not a number");
  refused(StragglerRun::header() + "0,0,0,1,forward-compute,1,-1,0,0,0,0\n", "negative");
  refused(StragglerRun::header() + rows + "0,0,77,1,forward-compute,1,1,0,0,0,0\n", "ranks 0 and 77 both hold stage 0");
  refused(StragglerRun::header() + rows + "3,0,77,1,forward-compute,1,1,0,0,0,0\n", "stage 0 of dp_rank 2 has no operation");
  refused(StragglerRun::header() + rows + "0,0,0,2,forward-compute,1,1,0,0,0,0\n",
          "step 2: stage 1 of dp_rank 0 computes nothing");
  std::string fewer = rows;
  const auto lost = fewer.find("forward-recv");
  const auto begin = fewer.rfind('\n', lost) + 1;
  fewer.erase(begin, fewer.find('\n', lost) + 1 - begin);
  refused(StragglerRun::header() + fewer, "receives 5 times");
  std::string missing = rows;
  const auto clip = missing.find("optimizer-clip-main-grad");
  missing.replace(clip, 24, "optimizer");
  refused(StragglerRun::header() + missing, "optimizer-clip-main-grad");
}
