// Tests of report/kineto_run.hpp: made traces replay themselves exactly; what waits for what; what
// does not match is refused.
// Not: a real PyTorch's (tests/torch).
#include "tawpipe/report/kineto_run.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/clusters.hpp"
#include "support/kineto_files.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/replay/what_if.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace tawpipe::literals;
using doctest::Approx;
using support::KinetoFile;
using tawpipe::ask;
using tawpipe::Duration;
using tawpipe::InputError;
using tawpipe::KinetoRunReader;
using tawpipe::TracedRun;
using tawpipe::TraceKind;
using tawpipe::WhatIf;

namespace {

TracedRun read_run(const std::vector<std::string>& texts, bool partial = false) {
  KinetoRunReader reader{partial};
  for (std::size_t i = 0; i < texts.size(); ++i) reader.add(texts[i], tawpipe::concat("rank", i, ".json"));
  return reader.take();
}

double microseconds(const TracedRun& run, const WhatIf& question = {}) { return to_seconds(ask(run, question).total) * 1e6; }

WhatIf scaled(TraceKind kind, double factor) { return {.name = {}, .scales = {{.kind = kind, .factor = factor}}}; }

const std::string pair = "[0, 1]";

}  // namespace

TEST_CASE("traces of a pipeline replay to the picosecond, and answer as the simulator does") {
  const tawpipe::FixedCost cost{.forward = 400_us, .backward_input = 300_us, .backward_weight = 500_us, .transfer = 20_us};
  const tawpipe::Schedule schedule = tawpipe::schedules::one_f_one_b(tawpipe::Workload::abstract(4, 8), 4);
  const tawpipe::Timeline timeline = simulate(schedule, support::cluster(4), cost);
  const TracedRun run = read_run(support::kineto_traces(schedule, timeline));
  CHECK(run.notes.empty());
  // From 5 us before the first computation, when it is launched; rounded times of the text.
  CHECK(microseconds(run) == Approx(to_seconds(timeline.makespan()) * 1e6 + 5).epsilon(1e-9));
  CHECK(run.traced().value() == ask(run, {}).total.value());
  // Without the host, forwards twice as fast are the pipeline that has such forwards.
  tawpipe::FixedCost faster = cost;
  faster.forward = 200_us;
  const WhatIf question{.name = {},
                        .scales = {{.kind = TraceKind::host, .factor = 0}, {.op = tawpipe::Op::forward, .factor = 0.5}}};
  CHECK(microseconds(run, question) ==
        Approx(to_seconds(simulate(schedule, support::cluster(4), faster).makespan()) * 1e6).epsilon(1e-6));
}

TEST_CASE("a kernel waits for its launch, its stream and the collective before it; the host for the device") {
  // Launches take 10 us each; the first kernel is slow, so the second waits for it and the last for
  // the host.
  std::vector<std::string> texts;
  for (int rank = 0; rank < 2; ++rank) {
    KinetoFile file{rank, 2};
    const double slow = rank == 0 ? 0 : 50;  // rank 1 computes 50 us longer
    file.launch(0, 10, "gemm_a", 7, 12, 100 + slow);
    file.launch(10, 10, "ncclDevKernel_AllReduce", 20, 112 + slow, rank == 0 ? 80 : 30,
                KinetoFile::collective("allreduce", "0", pair, 2));
    file.launch(20, 10, "gemm_b", 7, 194, 40);  // 2 us after the collective's end
    file.call("cudaDeviceSynchronize", 30, 210, file.next());
    file.launch(250, 10, "softmax", 7, 265, 10);
    texts.push_back(file.text());
  }
  const TracedRun run = read_run(texts);
  CHECK(run.notes.empty());
  CHECK(microseconds(run) == Approx(275));
  // The collective itself takes 30 us: 50 of rank 0's 80 are its wait for rank 1.
  CHECK(microseconds(run, scaled(TraceKind::communication, 0)) == Approx(275 - 30));
  // Half as long: 75 us in place of 150 on rank 1, 20 in place of 40.
  CHECK(microseconds(run, scaled(TraceKind::matmul, 0.5)) == Approx(275 - 75 - 20));
  std::vector<char> second{0, 1};
  CHECK(microseconds(run, {.name = {}, .typical = WhatIf::Typical::peers, .ranks = second}) == Approx(275 - 50));
  CHECK(tawpipe::worst_ranks(run, 1) == second);
  // Without the host only data is waited for: 150 + 30 + 40 + 10.
  CHECK(microseconds(run, scaled(TraceKind::host, 0)) == Approx(150 + 30 + 40 + 10));
}

TEST_CASE("waits between streams are taken as noted, whenever they were over") {
  KinetoFile file{0, 1};
  const int first = file.launch(0, 5, "copy_kernel", 9, 6, 20);
  const int recorded = file.next();
  file.call("cudaEventRecord", 6, 1, recorded);
  const int waited = file.next();
  file.event("cuda_sync", "Stream Wait Event", 0, 7, 8, 1,
             tawpipe::concat("\"cuda_sync_kind\": \"Stream Wait Event\", \"stream\": 7, \"correlation\": ", waited,
                             ", \"wait_on_stream\": 9, \"wait_on_cuda_event_record_corr_id\": ", recorded));
  file.launch(100, 5, "gemm", 7, 106, 50);  // long after
  CHECK(first == 1);
  const TracedRun run = read_run({file.text()});
  CHECK(microseconds(run) == Approx(156));
  CHECK(microseconds(run, scaled(TraceKind::host, 0)) == Approx(70));  // 20, then 50
}

TEST_CASE("messages of a group of many are between the two that they note") {
  std::vector<std::string> texts;
  for (int rank = 0; rank < 3; ++rank) {
    KinetoFile file{rank, 3};
    const auto message = [&](double at, double length, bool sends, int peer) {
      file.launch(at - 5, 4, "ncclDevKernel_SendRecv", 20, at, length,
                  KinetoFile::collective(sends ? "send" : "recv", "0", "[0, 1, 2]", 3, 1000, 7 * rank) +
                      tawpipe::concat(", \"", sends ? "Dst" : "Src", " Rank\": ", peer));
    };
    // 0 -> 1 from 100 on and 1 -> 2 from 200 on, 20 us each; receivers wait from the start.
    if (rank == 0) file.launch(0, 4, "gemm", 7, 5, 95);
    if (rank > 0) message(10, rank == 1 ? 110 : 210, false, rank - 1);
    if (rank == 1) file.launch(115, 4, "gemm", 7, 122, 78);
    if (rank < 2) message(rank == 0 ? 100 : 200, 20, true, rank + 1);
    texts.push_back(file.text());
  }
  const TracedRun run = read_run(texts);
  CHECK(run.notes.empty());
  CHECK(run.steps[0].meetings.size() == 2);
  CHECK(microseconds(run) == Approx(220));
  // Then the launch of rank 1's computation is the last that it waits for: 119 + 2 + 78.
  CHECK(microseconds(run, scaled(TraceKind::communication, 0)) == Approx(199));
}

TEST_CASE("clocks that are not aligned are aligned by the ends of collectives") {
  std::vector<std::string> texts;
  for (int rank = 0; rank < 2; ++rank) {
    KinetoFile file{rank, 2};
    const double late = rank == 0 ? 0 : 5000;  // rank 1's clock, in microseconds
    for (int i = 0; i < 3; ++i) {
      const double at = late + 200 * i;
      file.launch(at, 5, "gemm", 7, at + 10, rank == 0 ? 60 : 90);
      file.launch(at + 5, 5, "ncclDevKernel_AllReduce", 20, at + (rank == 0 ? 70 : 100), rank == 0 ? 60 : 30,
                  KinetoFile::collective("allreduce", "0", pair, 2, 1000, i));
    }
    texts.push_back(file.text());
  }
  const TracedRun run = read_run(texts);
  REQUIRE(run.notes.size() == 1);
  CHECK(run.notes[0] == "The clock of rank 1 was moved by -5000 us, so that its communications end with those of the others.");
  CHECK(microseconds(run) == Approx(530));
  // A trace whose times count from another moment needs no such note.
  KinetoFile early{0, 1};
  early.launch(0, 5, "gemm", 7, 10, 60);
  CHECK(read_run({early.text(5)}).notes.empty());
}

TEST_CASE("steps are those of the profiler's schedule, without one the optimizer's") {
  const auto steps = [](const std::vector<std::vector<std::string>>& annotations) {
    std::vector<std::string> texts;
    for (std::size_t rank = 0; rank < annotations.size(); ++rank) {
      KinetoFile file{static_cast<int>(rank), static_cast<int>(annotations.size())};
      file.launch(0, 5, "gemm", 7, 10, 60);
      for (const std::string& one : annotations[rank]) file.event("user_annotation", one, 100, 1, 0, 5, "");
      texts.push_back(file.text());
    }
    return read_run(texts).iterations();
  };
  const std::string adamw = "Optimizer.step#AdamW.step";
  CHECK(steps({{}}) == 1);
  CHECK(steps({{adamw, adamw}}) == 2);
  CHECK(steps({{adamw, "Optimizer.step#Muon.step", adamw, "Optimizer.step#Muon.step"}}) == 2);
  CHECK(steps({{adamw, adamw, adamw, adamw}, {adamw, adamw}, {}}) == 2);
  CHECK(steps({{"ProfilerStep#3", adamw, adamw}}) == 1);
}

TEST_CASE("traces that do not belong together are refused in one line") {
  const auto refused = [](const std::vector<std::string>& texts, const std::string& part) {
    std::string message;
    try {
      read_run(texts);
    } catch (const InputError& error) {
      message = error.what();
    }
    CAPTURE(message);
    CHECK(message.find(part) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  };
  const auto file = [](int rank, const std::vector<std::string>& collectives, const std::string& step = {}) {
    KinetoFile one{rank, 2};
    if (!step.empty()) one.event("user_annotation", step, 100, 1, 0, 1000, "");
    one.launch(0, 5, "gemm", 7, 10, 60);
    double at = 100;
    for (const std::string& name : collectives) {
      one.launch(at, 5, "ncclDevKernel", 20, at + 10, 60, KinetoFile::collective(name, "0", pair, 2));
      at += 100;
    }
    return one.text();
  };
  refused({}, "no trace; give one of each rank");
  refused({file(1, {})}, "no trace of rank 0 of 2");
  refused({file(0, {}), file(0, {})}, "rank0.json and rank1.json are both of rank 0");
  refused({file(0, {}, "ProfilerStep#3"), file(1, {}, "ProfilerStep#4")},
          "different steps: rank0.json has ProfilerStep#3 and 0 more");
  refused({file(0, {"allreduce"}), file(1, {"allgather"})}, "do not match");
  refused({file(0, {}).substr(0, 300)}, "rank0.json");
  refused({"{\"traceEvents\": []}"}, "without operators");
  refused({"\x1f\x8b garbage"}, "gunzip");
  // A group that names a rank twice is none, and so is met by nobody.
  KinetoFile twice{0, 2};
  twice.launch(0, 5, "ncclDevKernel", 20, 10, 60, KinetoFile::collective("allreduce", "0", "[0, 0]", 2));
  CHECK(read_run({twice.text()}, true).steps[0].meetings.empty());
  const TracedRun partial = read_run({file(1, {"allreduce"})}, true);
  REQUIRE(partial.notes.size() == 1);
  CHECK(partial.notes[0].find("Of 2 ranks 1 were traced") == 0);
}
