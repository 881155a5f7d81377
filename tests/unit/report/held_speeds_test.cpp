// Tests of report/held_speeds.hpp: what bench_gpu_beside printed, read.
// Not: what the speeds do (unit/cost/held_sms_test.cpp).
#include "tawpipe/report/held_speeds.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text_file.hpp"

using namespace tawpipe;

namespace {

const std::string printed =
    "{\"device\": \"NVIDIA H200\", \"memory_bytes\": 150754820096, \"multiprocessors\": 132, \"shape\": \"llama-2-7b, 8192\"}\n"
    "{\"ctas\": 32, \"priority\": \"high\", \"speed\": 0.75, \"forward_seconds\": 1e-3, \"backward_seconds\": 2e-3}\n"
    "{\"ctas\": 8, \"priority\": \"high\", \"speed\": 1.002, \"ctas_begun\": 8}\n"
    "{\"ctas\": 8, \"priority\": \"low\", \"speed\": 0.96}\n";

std::string error_of(const std::string& text, std::string_view priority = "high") {
  try {
    parse_held_speeds(text, "beside.json", priority);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the program's lines are read by priority, in the order of CTAs, none faster than alone") {
  const HeldSpeeds high = parse_held_speeds(printed, "beside.json", "high");
  CHECK(high.sms == 132);
  CHECK(high.speeds == std::vector<HeldSpeed>{{8, 1}, {32, 0.75}});
  CHECK(parse_held_speeds(printed, "beside.json", "low").speeds == std::vector<HeldSpeed>{{8, 0.96}});
}

TEST_CASE("the H200's are read") {
  const std::string path = TAWPIPE_TEST_DATA "/../../bench/results/h200/beside.jsonl";
  const HeldSpeeds low = parse_held_speeds(read_text_file(path, "the speeds", 1), path, "low");
  CHECK(low.sms == 132);
  CHECK(low.speeds == std::vector<HeldSpeed>{{8, 0.9396}, {16, 0.9063}, {32, 0.8347}, {96, 0.3419}});
}

TEST_CASE("what is wrong is named, with its place") {
  CHECK(
      error_of("{\"ctas\": 8, \"priority\": \"high\", \"speed\": 0}\n").find("beside.json: [0].speed: expected a number above") ==
      0);
  CHECK(error_of("{\"ctas\": 8, \"priority\": \"middle\", \"speed\": 1}\n").find("[0].priority: expected \"high\" or \"low\"") !=
        std::string::npos);
  CHECK(error_of("{\"ctas\": 0, \"priority\": \"high\", \"speed\": 1}\n").find("[0].ctas: expected a whole number") !=
        std::string::npos);
  CHECK(error_of("{\"multiprocessors\": 132}\n").find("at high priority; give what bench_gpu_beside printed") !=
        std::string::npos);
  const std::string twice = "{\"ctas\": 8, \"priority\": \"low\", \"speed\": 1}\n";
  CHECK(error_of(twice + twice, "low").find("8 CTAs at low priority are measured twice") != std::string::npos);
  CHECK(error_of("{\n\"part\": \"why\"}").find("expected a list") != std::string::npos);
  CHECK(error_of("no JSON").find("not JSON") != std::string::npos);
}
