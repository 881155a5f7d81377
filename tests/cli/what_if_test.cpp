// `tawpipe what-if`: traces of both kinds replayed by the command, questions to them, invalid
// files.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command.hpp"
#include "support/kineto_files.hpp"
#include "support/straggler_trace.hpp"

using nlohmann::json;
using support::check_refused;
using support::run;
using support::StragglerRun;

namespace {

/// A straggler trace of two replicas of four stages, stage 2 of the first 1.5 times slower.
struct SlowStage {
  double with = 0;
  double without = 0;
  std::string text =
      StragglerRun::header() + StragglerRun{.slow_replica = 0, .slow_stage = 2, .slowdown = 1.5}.step(3, 1000, with);

  SlowStage() { StragglerRun{}.step(3, 1000, without); }
};

double step_of(const json& answers, std::size_t answer) { return answers.at("answers").at(answer).at("step_s").get<double>(); }

}  // namespace

TEST_CASE("a straggler trace says what its slow rank costs") {
  const SlowStage slow;
  const support::Folder folder;
  const std::string trace = folder.write("trace.csv", slow.text);
  const auto found = run("what-if " + trace + " --without-straggler 16 --without-straggler worst:1% --json -");
  CAPTURE(found.err);
  REQUIRE(found.code == 0);
  const json answer = json::parse(found.out);
  CHECK(answer.at("ranks") == 8);
  CHECK(answer.at("steps") == 1);
  CHECK(answer.at("traced_step_s").get<double>() == doctest::Approx(slow.with));
  CHECK(std::abs(answer.at("replay_error").get<double>()) < 1e-6);
  CHECK(step_of(answer, 0) == doctest::Approx(slow.without));
  CHECK(step_of(answer, 1) == doctest::Approx(slow.without));
  CHECK(answer.at("answers").at(0).at("question") == "rank 16 (dp 0, stage 2) is as fast as the peers");
  const auto together = run("what-if " + trace + " --without-straggler worst:1 --scale compute=0.5 --together --json -");
  REQUIRE(together.code == 0);
  CHECK(json::parse(together.out).at("answers").size() == 1);
  CHECK(step_of(json::parse(together.out), 0) < 0.6 * slow.without);
}

TEST_CASE("without questions what costs most comes first, with a page and a picture") {
  const SlowStage slow;
  const support::Folder folder;
  const std::string trace = folder.write("trace.csv", slow.text);
  const std::string page = folder / "page.html";
  const std::string picture = folder / "picture.svg";
  const auto found = run("what-if " + trace + " --report " + page + " --gantt " + picture);
  CAPTURE(found.err);
  REQUIRE(found.code == 0);
  for (const char* part : {"+0.00 %", "computation takes half as long", "rank 16 (dp 0, stage 2) is as fast as the peers",
                           "the last stage takes what stages take on average", "the host takes no time"}) {
    CAPTURE(part);
    CHECK(found.out.find(part) != std::string::npos);
  }
  CHECK(support::read_file(page).find("\"command\":\"what-if\"") != std::string::npos);
  CHECK(support::read_file(picture).find("<svg") != std::string::npos);
}

TEST_CASE("times of a straggler trace predict another schedule") {
  double step = 0;
  const support::Folder folder;
  const std::string trace = folder.write("trace.csv", StragglerRun::header() + StragglerRun{}.step(3, 1000, step));
  const std::string cost = folder / "cost.json";
  const std::string setup = " --cluster 4x1 --model llama-8x512 --sequence 128";
  const auto found = run("what-if " + trace + setup + " --out " + cost);
  CAPTURE(found.err);
  REQUIRE(found.code == 0);
  CHECK(found.out.find("--cost measured:" + cost) != std::string::npos);
  const json seconds = json::parse(support::read_file(cost)).at("seconds");
  CHECK(seconds.at("forward").at("layer").get<double>() == doctest::Approx(0.020));   // 40 ms of two layers
  CHECK(seconds.at("backward").at("layer").get<double>() == doctest::Approx(0.040));  // 80 ms
  const auto predicted =
      run("simulate --schedule 1f1b --cluster 4x1 --model llama-8x512 --sequence 128 --global-batch 6 --json - "
          "--cost measured:" +
          cost);
  CAPTURE(predicted.err);
  REQUIRE(predicted.code == 0);
  // The trace's step but its reduce-scatter and clipping.
  const double expected = step - StragglerRun::scatter - StragglerRun::clip;
  CHECK(json::parse(predicted.out).at("makespan_s").get<double>() == doctest::Approx(expected).epsilon(0.01));
  check_refused(run("what-if " + trace + " --cluster 4x1 --out " + cost), {"--model"});
  check_refused(run("what-if " + trace + " --model llama-8x512 --out " + cost), {"--cluster"});
  check_refused(run("what-if " + trace + " --cluster 4x1 --model llama-7x512 --sequence 128 --out " + cost),
                {"7 layers", "4 stages"});
  check_refused(run("what-if /dev/zero"), {"/dev/zero", "begins with 64 KiB of zeros"});
}

TEST_CASE("traces of PyTorch's profiler are asked by kinds and by names") {
  const support::Folder folder;
  std::string traces;
  for (int rank = 0; rank < 2; ++rank) {
    support::KinetoFile file{rank, 2};
    file.launch(0, 5, "ampere_bf16_gemm", 7, 10, rank == 0 ? 100 : 160);
    file.launch(5, 5, "layer_norm_kernel", 7, rank == 0 ? 110 : 170, 40);
    traces += " " + folder.write("rank" + std::to_string(rank) + ".json", file.text());
  }
  const auto found =
      run("what-if" + traces + " --scale matmul=0.5 --scale /layer_norm/=0 --no-gaps --without-straggler 1 --json -");
  CAPTURE(found.err);
  REQUIRE(found.code == 0);
  const json answer = json::parse(found.out);
  CHECK(answer.at("replayed_step_s").get<double>() == doctest::Approx(210e-6));
  CHECK(step_of(answer, 0) == doctest::Approx(150e-6));  // of the straggler first
  CHECK(step_of(answer, 1) == doctest::Approx(130e-6));
  CHECK(step_of(answer, 2) == doctest::Approx(170e-6));
  CHECK(step_of(answer, 3) == doctest::Approx(200e-6));
  check_refused(run("what-if" + traces + " --scale gemm=0.5"), {"'gemm'", "matmul"});
  check_refused(run("what-if" + traces + " --scale matmul"), {"matmul=0.5"});
  check_refused(run("what-if" + traces + " --scale /(/=1"), {"regular expression"});
  check_refused(run("what-if" + traces + " --scale /nothing/=1"), {"no operation"});
  check_refused(run("what-if" + traces + " --scale attention=0.5"), {"no such work; they have compute, forward, matmul, host"});
  check_refused(run("what-if" + traces + " --without-straggler 7"), {"no such rank"});
  check_refused(run("what-if" + traces + " --without-straggler stage:0"), {"do not say"});
  check_refused(run("what-if" + traces + " --without-straggler worst:0"), {"worst:1%"});
  check_refused(run("what-if" + traces + " --out x.json"), {"--cluster"});
  check_refused(run("what-if " + folder / "rank0.json"), {"rank 1 of 2", "--partial"});
  check_refused(run("what-if " + folder.write("trace.parquet", "PAR1x")), {"Parquet", "to_csv"});
  check_refused(run("what-if " + folder.write("cut.json", "{\"traceEvents\": [{\"ph\": \"X\"")), {"cut.json"});
  check_refused(run("what-if " + folder.write("empty", "")), {"empty"});
}
