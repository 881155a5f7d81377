// The files that the command writes, whole or not at all, and the file that it takes flags from.
// Not: their formats (unit/timeline, unit/report).
#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/command.hpp"

using nlohmann::json;
using support::check_refused;
using support::Folder;
using support::read_file;
using support::run;
namespace fs = std::filesystem;

namespace {

const std::string problem = " --cluster 3x2 --model llama-12x512 --sequence 512 --global-batch 12";
const std::string simulate = "simulate --schedule tawpipe" + problem;

}  // namespace

TEST_CASE("a timeline is CSV, a trace and a summary are JSON, and each is written whole") {
  const Folder folder;
  const auto result =
      run(simulate + " --timeline " + folder / "t.csv" + " --trace " + folder / "t.json" + " --json " + folder / "s.json");
  CHECK(result.code == 0);
  CHECK(result.out.find("step time") != std::string::npos);
  const std::string csv = read_file(folder / "t.csv");
  CHECK(csv.starts_with("task,op,payload,rank,peer,group,lane,stage,microbatch,bytes,start_s,end_s\n"));
  const json summary = json::parse(read_file(folder / "s.json"));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == summary.at("tasks").get<std::int64_t>() + 1);
  CHECK(json::parse(read_file(folder / "t.json")).at("traceEvents").size() > 100);
  CHECK(std::distance(fs::directory_iterator{folder / ""}, {}) == 3);  // nothing else
}

TEST_CASE("one output may be standard output, and then it stands there alone") {
  CHECK(run(simulate + " --timeline -").out.starts_with("task,op,"));
  CHECK(json::accept(run(simulate + " --trace -").out));
  CHECK(json::accept(run(simulate + " --json -").out));
  check_refused(run(simulate + " --json - --trace -"), {"--json and --trace would both write to '-'"});
  const Folder folder;
  check_refused(run(simulate + " --json " + folder / "x" + " --timeline " + folder / "x"), {"--json and --timeline"});
  CHECK(folder.is_empty());
}

TEST_CASE("what cannot be written is refused before the work, and nothing is left behind") {
  const Folder folder;
  check_refused(run(simulate + " --json " + folder / "no/x.json"), {"cannot write", "no/x.json", "No such file or directory"});
  check_refused(run(simulate + " --timeline " + folder / "no/x.csv"), {"cannot write", "no/x.csv"});
  check_refused(run(simulate + " --json " + folder / ""), {"cannot write", "Is a directory"});
  check_refused(run(simulate + " --timeline " + folder / "good.csv" + " --json " + folder / "no/x.json"), {"no/x.json"});
  check_refused(run("compare" + problem + " --json " + folder / "no/x.json"), {"cannot write"});
  check_refused(run("list models --json " + folder / "no/x.json"), {"cannot write"});
  check_refused(run("validate --schedule tawpipe" + problem + " --json " + folder / "no/x.json"), {"cannot write"});
  CHECK(folder.is_empty());
}

TEST_CASE("a signal leaves nothing behind either") {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    CAPTURE(signal);
    const Folder folder;
    std::vector<std::string> arguments = support::words(
        "sweep --vary microbatches=1:100000:linear:1000 --cluster 3x8 --schedules weipipe --cost "
        "fixed:forward=1ms,backward_input=1ms,backward_weight=1ms,transfer=0s --threads 1 "
        "--csv " +
        folder / "x.csv");
    arguments.insert(arguments.begin(), TAWPIPE_COMMAND);
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::signal(signal, SIG_DFL);  // a shell starts what runs in the background with some of them ignored
      execv(TAWPIPE_COMMAND, argv.data());
      _exit(127);
    }
    int status = 0;
    bool ended = false;
    while (!fs::exists(folder / "x.csv.part") && !ended) ended = waitpid(child, &status, WNOHANG) == child;
    REQUIRE(!ended);
    kill(child, signal);
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    CHECK(folder.is_empty());
  }
}

TEST_CASE("a full disk is an error, never a success") {
  // By a link: the device itself must survive whatever the command does with a name.
  const Folder folder;
  fs::create_symlink("/dev/full", folder / "full");
  for (const std::string flag : {"--json", "--timeline", "--trace"}) {
    CAPTURE(flag);
    check_refused(run(simulate + " " + flag + " " + folder / "full"), {"cannot write", "No space left on device"});
  }
  for (const std::string& line : {simulate, simulate + " --json -", std::string{"list models"}, std::string{"--help"}}) {
    CAPTURE(line);
    support::check_complaint(run(line, {.standard_output = "/dev/full"}), 2, {"cannot write standard output: No space left"});
  }
}

TEST_CASE("a device, a pipe or a link is written to, not replaced") {
  const Folder folder;
  fs::create_symlink("/dev/null", folder / "null");
  CHECK(run(simulate + " --json " + folder / "null").code == 0);
  CHECK(fs::is_symlink(folder / "null"));
  CHECK(fs::is_character_file("/dev/null"));
  folder.write("real.json", "old");
  fs::create_symlink(folder / "real.json", folder / "link.json");
  CHECK(run(simulate + " --json " + folder / "link.json").code == 0);
  CHECK(fs::is_symlink(folder / "link.json"));
  CHECK(json::accept(read_file(folder / "real.json")));
}

TEST_CASE("a reader that goes away ends the command without noise") {
  const Folder folder;
  const std::string errors = folder / "errors";
  const std::string command = TAWPIPE_COMMAND " " + simulate + " --global-batch 1200 --timeline - 2>" + errors;
  const std::string line = "{ " + command + "; echo $? >" + folder / "code" + "; } | head -1 >" + folder / "first";
  CHECK(std::system(line.c_str()) == 0);
  CHECK(read_file(folder / "first").starts_with("task,op,"));
  const std::string code = read_file(folder / "code");
  CHECK((code == "141\n" || code == "2\n"));  // ended by SIGPIPE; or told so, where the test's parent ignores that
  CHECK((code == "141\n" ? read_file(errors).empty() : read_file(errors).ends_with("Broken pipe\n")));
}

TEST_CASE("files as Windows writes them are read: a byte order mark, and its line ends") {
  const Folder folder;
  const auto as_windows = [&](const std::string& name) {
    std::string text = "\xef\xbb\xbf";
    for (const char letter : read_file(folder / name)) text += letter == '\n' ? std::string{"\r\n"} : std::string{letter};
    return folder.write("w_" + name, text);
  };
  REQUIRE(run(simulate + " --timeline " + folder / "t.csv").code == 0);
  CHECK(run("compare-timelines " + as_windows("t.csv") + " " + folder / "t.csv").code == 0);
  const std::string pipeline =
      "export --schedule 1f1b --cluster 1x2 --microbatches 4 --cost "
      "fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s ";
  REQUIRE(run(pipeline + "--out " + folder / "s.json").code == 0);
  REQUIRE(run(pipeline + "--format pytorch-csv --out " + folder / "s.csv").code == 0);
  for (const std::string name : {"s.json", "s.csv"}) {
    CAPTURE(name);
    CHECK(run("validate --cluster 1x2 --cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s --schedule-file " +
              as_windows(name))
              .code == 0);
  }
  REQUIRE(run(pipeline + "--graph " + folder / "g.tg").code == 0);
  REQUIRE(run(pipeline + "--graph " + folder / "g.json").code == 0);
  for (const std::string name : {"g.tg", "g.json"}) {
    CAPTURE(name);
    CHECK(run("simulate --graph " + as_windows(name)).code == 0);
  }
}

TEST_CASE("flags may come from a file; the command line has the last word") {
  const Folder folder;
  const std::string config = folder.write("run.toml",
                                          "# a comment\n"
                                          "cluster = \"3x2\"\n"
                                          "model = \"llama-12x512\"\n"
                                          "sequence = 512\n"
                                          "global-batch = 12\n"
                                          "[simulate]\n"
                                          "schedule = \"tawpipe\"\n"
                                          "option = [\"order=paper\", \"buffers=3\"]\n"
                                          "[compare]\n"
                                          "schedules = [\"fsdp\", \"1f1b\"]\n"
                                          "baselines = true\n");
  const json one = json::parse(run("simulate --json - --config " + config).out);
  CHECK(one.at("options").at("order") == "paper");
  CHECK(one.at("options").at("buffers") == "3");
  CHECK(one.at("sequence") == 512);

  const json other = json::parse(run("simulate --config=" + config + " --sequence 256 --option buffers=1 --json -").out);
  CHECK(other.at("sequence") == 256);
  CHECK(other.at("options").at("order") == "paper");
  CHECK(other.at("options").at("buffers") == "1");

  const json all = json::parse(run("compare --json - --config " + config).out);
  REQUIRE(all.at("results").size() == 2);
  for (const auto& summary : all.at("results")) {
    if (summary.at("schedule") == "1f1b") CHECK(summary.at("options").at("overlap") == "off");
  }
  const json gpipe = json::parse(run("compare --schedules gpipe --json - --config " + config).out);
  REQUIRE(gpipe.at("results").size() == 1);
  CHECK(gpipe.at("results")[0].at("schedule") == "gpipe");
}

TEST_CASE("a wrong configuration file is named, with its key") {
  const Folder folder;
  check_refused(run("compare --config " + folder / "none.toml"), {"none.toml", "cannot be read"});
  check_refused(run("compare --config " + folder / ""), {"cannot be read"});
  check_refused(run("compare --config " + folder.write("a.toml", "sequnce = 4096\n")),
                {"a.toml, line 1: compare has no flag 'sequnce'", "tawpipe compare --help"});
  check_refused(run("compare --config " + folder.write("b.toml", "[comprae]\nsequence = 4096\n")), {"b.toml", "'comprae'"});
  check_refused(run("compare --config " + folder.write("c.toml", "sequence = many\n")), {"--sequence", "'many'"});
  check_refused(run("compare --config " + folder.write("d.toml", std::string("\0\xff[[garbage = = =\n", 18))), {"d.toml"});
  check_refused(run("compare --config " + folder / "a.toml" + " --config " + folder / "b.toml"), {"--config is given twice"});
  const auto refused = [&](const std::string& text, const std::string& why) {
    check_refused(run("simulate --config " + folder.write("e.toml", text) + " --schedule 1f1b"), {"e.toml, line 2: ", why});
  };
  refused("# one\n[[simulate]]\n", "a section is the name of a command");
  refused("sequence = 1\nsequence = 2\n", "'sequence' is given twice, first in line 1");
  refused("sequence = 1\ncluster = \n", "the value of 'cluster' is missing");
  refused("sequence = 1\ncluster = \"3x8\n", "the text of 'cluster' does not end");
  refused("sequence = 1\ncluster = 3x8 4x8\n", "nothing may follow the value");
  refused("sequence = 1\noption = [\"a=b\"\n", "a list does not end");
  refused("sequence = 1\noption = [[\"a=b\"]]\n", "the value of 'option' is missing");
  check_refused(run("simulate --config " + folder.write("h.toml", "[" + std::string(40'000, '.') + "]\nx = 1\n")),
                {"h.toml, line 2: there is no command '......"});
  check_refused(run("simulate --config " + folder.write("f.toml", std::string(2 << 20, ' '))), {"f.toml' is larger than 1 MiB"});
  CHECK(run("compare --help --config " + folder.write("g.toml", "\xef\xbb\xbfsequence = 1\n")).code == 0);
  check_refused(run("list models --config " + folder / "a.toml"), {"list takes no --config"});
}
