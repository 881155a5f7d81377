// What every activation pipeline must do, on sizes drawn at random and on all small ones: run, be
// valid, and be complete.
// Not: how long it takes (unit/schedules/).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/pipelines.hpp"
#include "support/random.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe::literals;
using tawpipe::DeviceGroups;
using tawpipe::Op;
using tawpipe::Schedule;
using tawpipe::ScheduleOptions;
using tawpipe::Workload;

namespace {

/// Searches that are short enough for many sizes.
const ScheduleOptions searched{{"order", "searched"}, {"moves", "24"}};

struct Entry {
  const char* name;
  bool even = false;        ///< needs an even number of ranks
  int chunks = 1;           ///< stages a rank
  const char* option = "";  ///< that takes a number of chunks
  bool is_searched = false;
};

constexpr Entry entries[] = {{"gpipe"},
                             {"1f1b"},
                             {"interleaved-1f1b", false, 1, "chunks"},
                             {"looped-bfs", false, 1, "chunks"},
                             {"interleaved-zb", false, 1, "chunks"},
                             {"zb-h1"},
                             {"zb-h2"},
                             {"zb-auto"},
                             {"zb-v", false, 2},
                             {"v-half", false, 2},
                             {"v-min", false, 2},
                             {"dualpipe", true},
                             {"dualpipe-v", false, 2},
                             {"chimera", true},
                             {"interleaved-zb", false, 1, "chunks", true},
                             {"zb-auto", false, 1, "", true},
                             {"zb-v", false, 2, "", true},
                             {"v-half", false, 2, "", true},
                             {"v-min", false, 2, "", true}};

Schedule build(const Entry& entry, const Workload& workload, int ranks, int chunks, ScheduleOptions options = {}) {
  if (*entry.option != 0) options[entry.option] = std::to_string(chunks);
  if (entry.is_searched) options.insert(searched.begin(), searched.end());
  return tawpipe::build_schedule(entry.name, {workload, DeviceGroups::even(ranks, 1), std::move(options)});
}

/// Each microbatch meets each stage once forward and once backward, whole or in two halves in
/// order.
void check_complete(const Schedule& schedule, int stages) {
  const auto microbatches = static_cast<std::size_t>(schedule.workload().microbatches());
  REQUIRE(schedule.stages().size() == static_cast<std::size_t>(stages));
  std::vector<std::string> met(microbatches * schedule.stages().size());
  for (const auto& task : schedule.tasks()) {
    if (!tawpipe::is_work(task.op) || task.op == Op::update) continue;
    auto& word = met[static_cast<std::size_t>(task.microbatch) * schedule.stages().size() + index(task.stage)];
    word += "FBIW"[static_cast<std::size_t>(task.op)];
  }
  for (const auto& word : met) CHECK((word == "FB" || word == "FIW"));
}

void check_valid(const Schedule& schedule) {
  const auto findings = tawpipe::validate(schedule);
  CHECK(findings.ok());
  for (const auto& finding : findings.findings()) {
    if (finding.severity == tawpipe::Severity::error) FAIL_CHECK(finding.message);
  }
}

}  // namespace

TEST_CASE("every pipeline is complete, valid and runs, for 1 to 16 ranks and few or many microbatches") {
  for (const Entry& entry : entries) {
    for (int p = 1; p <= 16; ++p) {
      if (entry.even && p % 2 != 0) continue;
      for (const int m : {1, p - 1, p, p + 1, 2 * p + 3}) {
        if (m < 1) continue;
        const int chunks = *entry.option != 0 ? 1 + p % 3 : entry.chunks;
        CAPTURE(entry.name);
        CAPTURE(p);
        CAPTURE(m);
        const Schedule schedule = build(entry, Workload::abstract(p, m), p, chunks);
        check_complete(schedule, p * chunks);
        const tawpipe::FixedCost cost{30_s, 40_s, 20_s, 1_s};
        const auto run = support::run_pipeline(schedule, cost);
        // all work and the last microbatch's way through all stages take their time; chunks' times
        // round down
        CHECK(run.makespan.value() + 3 * m * chunks >= support::whole(cost).value() * (entry.even ? (m + 1) / 2 : m));
        CHECK(run.makespan <= support::whole(cost) * (2 * m + 4 * p));
      }
    }
  }
}

TEST_CASE("every pipeline passes all checks on models with tied and untied embeddings, sizes drawn at random") {
  support::Random random{20240611};
  for (const Entry& entry : entries) {
    for (int draw = 0; draw < 12; ++draw) {
      const int p = random.between(1, 8);
      if (entry.even && p % 2 != 0) continue;
      const int m = random.between(1, 3 * p);
      const int chunks = *entry.option != 0 ? random.between(1, 4) : entry.chunks;
      CAPTURE(entry.name);
      CAPTURE(p);
      CAPTURE(m);
      CAPTURE(chunks);
      const Schedule schedule = build(entry, support::transformer(13, m, draw % 2 == 0), p, chunks);
      check_complete(schedule, p * chunks);
      check_valid(schedule);
    }
  }
}

TEST_CASE("the automatic schedule stays below its limit in bytes, whatever backward_weight keeps") {
  support::Random random{7};
  for (int draw = 0; draw < 30; ++draw) {
    const int p = random.between(2, 8);
    const int m = random.between(1, 4 * p);
    const int limit = random.between(1, 2 * p);
    const char* const kept = draw % 3 == 0 ? "1" : draw % 3 == 1 ? "0.35" : "0";
    CAPTURE(p);
    CAPTURE(m);
    CAPTURE(limit);
    CAPTURE(kept);
    const Schedule schedule = build({"zb-auto"}, Workload::abstract(p, m), p, 1,
                                    {{"memory-limit", std::to_string(limit)}, {"kept", kept}, {"times", "31:29:18:1"}});
    check_valid(schedule);
    // what is saved, without the messages' buffers: those are written or read by transfers
    std::vector<bool> message(schedule.buffers().size());
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      if (schedule.tasks()[t].op != Op::pass) continue;
      for (const auto& use : schedule.uses(tawpipe::id<tawpipe::TaskId>(t))) message[index(use.buffer)] = true;
    }
    auto parts = schedule.parts();
    for (std::size_t b = 0; b < message.size(); ++b) {
      if (message[b] || parts.buffers[b].persistent) parts.buffers[b].bytes = tawpipe::Bytes{0};
    }
    const Schedule bare{schedule.workload(), std::move(parts)};
    const auto timeline = tawpipe::simulate(bare, support::cluster(p), tawpipe::FixedCost{31_s, 29_s, 18_s, 1_s});
    for (const auto& peak : tawpipe::peak_memory(bare, timeline)) CHECK(peak.total <= 1_MB * limit);
  }
}

TEST_CASE("pipelines fed from both ends refuse an odd number of ranks") {
  for (const Entry& entry : entries) {
    if (entry.even) CHECK_THROWS_AS(build(entry, Workload::abstract(3, 4), 3, 1), tawpipe::InputError);
  }
}
