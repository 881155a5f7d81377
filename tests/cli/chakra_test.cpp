// Chakra traces by the command: out, in, proven; and what is wrong with the files.
// Not: what nodes become (chakra/import_test), nor bytes (chakra/file_test).
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command.hpp"
#include "support/command_json.hpp"

namespace chakra_test {

using support::check_refused;
using support::Folder;
using support::parsed;
using support::read_file;
using support::Result;
using support::run;

namespace {

/// Whether the command was built with protobuf.
bool has_module() { return std::filesystem::exists(std::filesystem::path{TAWPIPE_COMMAND}.parent_path() / "tawpipe-chakra.so"); }

const std::string problem = " --cluster 2x2 --model llama-2-7b --sequence 4096 --global-batch 8";

}  // namespace

TEST_CASE("a schedule goes out as Chakra traces and comes in with the same makespan") {
  if (!has_module()) return;
  for (const std::string how : {"tawpipe", "1f1b", "fsdp", "weipipe", "1f1b --tensor-parallel 2"}) {
    CAPTURE(how);
    const Folder folder;
    const Result out = run("export --schedule " + how + problem + " --chakra " + folder / "t");
    REQUIRE_MESSAGE(out.code == 0, out.err);
    CHECK(out.out.find("t.0.et to ") != std::string::npos);
    CHECK(read_file(folder / "t.network.yml").find("npus_count: [ 2, 2 ]") != std::string::npos);
    CHECK(nlohmann::json::parse(read_file(folder / "t.system.json")).at("all-reduce-implementation").size() == 2);
    CHECK(nlohmann::json::parse(read_file(folder / "t.json")).is_object());
    const auto direct = parsed(run("simulate --schedule " + how + problem + " --json -"));
    const auto back = parsed(run("simulate --cluster 2x2 --json - --schedule-file " + folder / "t.0.et"));
    CHECK(back.at("makespan_s") == direct.at("makespan_s"));
    const auto verdict = run("validate --json - --schedule-file " + folder / "t.3.et");
    CHECK(verdict.code == 0);
    CHECK(parsed(verdict).at("verdict") == "ends");
    CHECK(run("export --format json --schedule-file " + folder / "t.1.et").out.find("\"tasks\"") != std::string::npos);
    // The trace that comes in goes out as the same bytes.
    REQUIRE(run("export --cluster 2x2 --schedule-file " + folder / "t.0.et" + " --chakra " + folder / "u").code == 0);
    CHECK(read_file(folder / "u.json") == read_file(folder / "t.json"));
  }
}

TEST_CASE("what is wrong with the files of a trace is said in one line") {
  if (!has_module()) {
    check_refused(run("validate --schedule-file t.0.et"), {"Chakra"});
    return;
  }
  const Folder folder;
  REQUIRE(run("export --schedule 1f1b" + problem + " --chakra " + folder / "t").code == 0);
  const std::string validate = "validate --schedule-file " + folder / "t.0.et";
  const std::string second = read_file(folder / "t.2.et");
  folder.write("t.2.et", second.substr(0, second.size() - 3));
  check_refused(run(validate), {"t.2.et: node ", "it should be "});
  folder.write("t.2.et", "{\"tasks\": []}");
  check_refused(run(validate), {"t.2.et: its head, at byte 0"});
  std::filesystem::remove(folder / "t.2.et");
  check_refused(run(validate), {"t.2.et is missing: the trace has files of 3 ranks, the last of rank 3"});
  folder.write("t.2.et", second);
  CHECK(run(validate).code == 0);
  folder.write("g.json", "[1]");
  check_refused(run(validate + " --comm-groups " + folder / "g.json"), {"g.json"});
  check_refused(run("validate --schedule-file " + folder / "none.0.et"), {"none.0.et", "No such file"});
  check_refused(run("simulate --schedule 1f1b --comm-groups x.json" + problem), {"--comm-groups"});
  check_refused(run("export --schedule 1f1b" + problem + " --format dot --chakra " + folder / "v"), {"--chakra"});
  check_refused(run("simulate --cluster 1x2 --schedule-file " + folder / "t.0.et"), {"a schedule of 4 ranks"});
}

}  // namespace chakra_test
