// simulate --fold: the same answer from fewer devices, what it refuses, and a large cluster.
// Not: random problems (properties/fold_test.cpp).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/command.hpp"

using nlohmann::json;
using support::run;

namespace {

const std::string composed =
    "simulate --schedule tawpipe --cluster 4x8 --model llama-12x512 --sequence 512 --microbatches 32 --tensor-parallel 2 "
    "--data-parallel 4";

json answer(const std::string& arguments) {
  const support::Result result = run(arguments + " --json -");
  CAPTURE(result.err);
  REQUIRE(json::accept(result.out));
  return json::parse(result.out);
}

}  // namespace

TEST_CASE("--fold on, off and auto give one answer, and say what was simulated for it") {
  json off = answer(composed + " --fold off");
  json on = answer(composed + " --fold on");
  json automatic = answer(composed);
  CHECK(automatic == on);
  CHECK(on["folding"]["folded"] == true);
  CHECK(on["folding"]["factor"] == 8);
  CHECK(on["folding"]["ranks_simulated"] == 4);
  CHECK(on["folding"]["tasks_simulated"] < on["tasks"]);
  CHECK(!off.contains("folding"));
  on.erase("folding");
  CHECK(on.dump() == off.dump());
  CHECK(run(composed).out.find("4 of 32 devices, each for 8 that do the same") != std::string::npos);
}

TEST_CASE("where folding is not exact, auto simulates in full and on is an error that says why") {
  const std::string uneven =
      "simulate --schedule 1f1b --cluster 4+2+2 --model llama-12x512 --sequence 512 --microbatches 32 --data-parallel 2";
  const json full = answer(uneven);
  CHECK(full["folding"]["folded"] == false);
  CHECK(full["folding"]["refusal"].get<std::string>().find("rank") != std::string::npos);
  for (const std::string& arguments : {uneven, composed + " --jitter 0.1", composed + " --timeline -",
                                       std::string{"simulate --schedule 1f1b --cluster 1x4 --microbatches 8 --cost "
                                                   "fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s"}}) {
    CAPTURE(arguments);
    const support::Result refused = run(arguments + " --fold on");
    CHECK(refused.code == 2);
    CHECK(refused.out.empty());
    CHECK(refused.err.find("fold on") != std::string::npos);
  }
  CHECK(run(composed + " --fold maybe").err.find("must be auto, on or off") != std::string::npos);
}

TEST_CASE("16,384 devices and ten million tasks are answered by 16 devices") {
  const json huge = answer(
      "simulate --schedule tawpipe --cluster 256x64 --model llama-32x8192 --sequence 4096 --microbatches 40960 "
      "--tensor-parallel 8 --data-parallel 128 --cost roofline");  // NCCL's collectives fold by tensor only here
  CHECK(huge["ranks"] == 16384);
  CHECK(huge["tasks"] > 10000000);
  CHECK(huge["folding"]["ranks_simulated"] == 16);
  CHECK(huge["folding"]["factor"] == 1024);
  CHECK(huge["peak_memory_bytes"].size() == 16384);
}
