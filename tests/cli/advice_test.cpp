// What the commands advise where nothing fits: the command that they print fits.
// Not: the search for that layout (unit/search/what_fits_test.cpp).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/command_json.hpp"

using support::parsed;
using support::run;

namespace {

/// The arguments of the command on the last line of a complaint.
std::string advised(const support::Result& result) {
  CHECK(result.code == 1);
  CAPTURE(result.err);
  const std::size_t at = result.err.find("\n  tawpipe ");
  REQUIRE(at != std::string::npos);
  std::string line = result.err.substr(at + 11);
  line.erase(line.find('\n'));
  std::erase(line, '\'');  // run() takes words as they are
  return line;
}

}  // namespace

TEST_CASE("the command that compare prints carries each flag, and fits") {
  const std::string given =
      "compare --cluster dgx-h100*4 --model llama-3-70b --sequence 32768 --global-batch 32 --gemm-format fp8 --schedules 1f1b "
      "--microbatch 1 --gradient-dtype float32 --loss-dtype model --option overlap=off --usable-memory=0.9";
  const support::Result result = run(given);
  const std::string command = advised(result);
  CHECK(result.err.find("1f1b:overlap=off fits with --tensor-parallel") != std::string::npos);
  CHECK(command.starts_with(given));
  CHECK(run(command).code == 0);
}

TEST_CASE("a flag that is advised replaces the one given, also in a configuration file") {
  const support::Folder folder;
  const std::string config = folder.write("job.toml", "model = \"llama-3-8b\"\nmicrobatch = 4\nrecompute = \"none\"\n");
  const std::string problem = " --cluster dgx-h100*2 --sequence 8192 --global-batch 64 --config " + config;
  const std::string simulate = advised(run("simulate --schedule gpipe --usable-memory 0.85" + problem));
  CHECK(simulate.starts_with("simulate --model=llama-3-8b"));
  CHECK(simulate.find("--recompute=none") == std::string::npos);
  CHECK(simulate.find("--recompute full") != std::string::npos);
  CHECK(run(simulate).code == 0);
  const support::Result compared = run("compare --schedules gpipe --json -" + problem);
  CHECK(run(advised(compared)).code == 0);
  CHECK(parsed(compared).at("fits").at("recompute") == "full");
}

TEST_CASE("a schedule that the advised layout cannot run is left out of the command") {
  const support::Result result =
      run("compare --cluster dgx-h100*4 --model llama-3-70b --sequence 32768 --global-batch 32 --schedules "
          "interleaved-1f1b:chunks=4,1f1b --recompute none --microbatch 1");
  CHECK(run(advised(result)).code == 0);
}
