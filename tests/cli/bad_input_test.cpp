// What the command refuses: one line that names the fault and what would be right, exit code 2, no
// crash, soon.
// Not: files that cannot be written (files_test.cpp).
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/command.hpp"

using support::check_refused;
using support::Folder;
using support::run;
using support::words;

namespace {

const std::string data = TAWPIPE_TEST_DATA;

/// `tawpipe simulate --schedule tawpipe` on a problem that is right, with the given flags in place
/// of its own.
support::Result with(const std::vector<std::pair<std::string, std::string>>& replaced) {
  std::vector<std::pair<std::string, std::string>> flags{{"--schedule", "tawpipe"},
                                                         {"--cluster", "3x2"},
                                                         {"--model", "llama-12x512"},
                                                         {"--sequence", "512"},
                                                         {"--global-batch", "12"}};
  for (const auto& [flag, value] : replaced) {
    std::erase_if(flags, [&, name = flag](const auto& one) { return one.first == name; });
    if (value != "(left out)") flags.emplace_back(flag, value);
  }
  std::vector<std::string> arguments{"simulate"};
  for (const auto& [flag, value] : flags) {
    arguments.push_back(flag);
    arguments.push_back(value);
  }
  return run(arguments, {.memory_limit = true});
}

}  // namespace

TEST_CASE("states that no devices can share out are refused") {
  check_refused(with({{"--shard-states", "parameters"}}),
                {"--shard-states parameters shares states out over data- and context-parallel devices", "--data-parallel"});
  CHECK(with({{"--shard-states", "optimizer"}}).code == 0);  // the default
  CHECK(with({{"--cost", "kernels:host-collective=0"}}).code == 0);
}

TEST_CASE("sizes that would take minutes or gigabytes are refused with the number and the limit") {
  check_refused(with({{"--cluster", "3x8"}, {"--model", "llama-2-7b"}, {"--global-batch", "1000000"}}),
                {"an iteration of 1000000 microbatches has about 48000000 tasks, and at most 16777216 are simulated"});
  check_refused(run("simulate --schedule 1f1b --cluster 16384x8 --model llama-3-405b --sequence 8192 --global-batch 8388608 "
                    "--tensor-parallel 8 --data-parallel 1024"),
                {"an iteration of 8192 microbatches a replica has about", "tasks, and at most 16777216 are simulated"});
  check_refused(
      run("simulate --schedule tawpipe --cluster 3x2 --model llama-12x512 --sequence 512 --global-batch 12 --limit 64KiB"),
      {"tasks, and at most 256 are simulated"});
  check_refused(run("simulate --schedule tawpipe --cluster 3x2 --model llama-12x512 --sequence 512 --global-batch 12 "
                    "--spread 10000000"),
                {"--spread 10000000 repeats", "choose fewer runs, or a higher --limit"});
  check_refused(with({{"--limit", "much"}}), {"--limit: 'much' is not a size"});
  check_refused(run("train --model llama-2-70b --data " + data + "/models/gpt2.json --sequence 32 --global-batch 1 --steps 1"),
                {"training llama-2-70b in float32 takes", "of this host"});
}
TEST_CASE("the problem that the others spoil is right") { CHECK(with({}).code == 0); }

TEST_CASE("a cluster file that is missing") {
  check_refused(with({{"--cluster", "nothing.json"}}), {"'nothing.json' cannot be read"});
}
TEST_CASE("a cluster file that is broken JSON") {
  check_refused(with({{"--cluster", data + "/cli/broken.cluster.json"}}), {"broken.cluster.json", "not JSON", "line 3"});
}
TEST_CASE("a cluster file that is broken XML") {
  check_refused(with({{"--cluster", data + "/cli/broken.nccl.xml"}}), {"broken.nccl.xml", "not XML"});
}
TEST_CASE("a cluster file with a negative bandwidth") {
  check_refused(with({{"--cluster", data + "/cli/negative_bandwidth.cluster.json"}}),
                {"negative_bandwidth.cluster.json", "inter_node", "'-10Gbps' is not a bandwidth"});
}
TEST_CASE("a cluster of no node, of no device, of half a size") {
  check_refused(with({{"--cluster", "0x8"}}), {"0 nodes is impossible"});
  check_refused(with({{"--cluster", "3x0"}}), {"0 devices is impossible"});
  check_refused(with({{"--cluster", "3x"}}), {"'3x' is not a cluster size", "3x8"});
  check_refused(with({{"--cluster", "dgx-h100*0"}}), {"whole number above zero"});
}
TEST_CASE("an unknown cluster, with the nearest") {
  check_refused(with({{"--cluster", "nosuch"}}), {"unknown cluster 'nosuch'; known: a800x24-10gbe, dgx-a100"});
  check_refused(with({{"--cluster", "dgxh100"}}), {"did you mean 'dgx-h100'?"});
}
TEST_CASE("an unknown schedule, with the nearest") {
  check_refused(with({{"--schedule", "tawpip"}}), {"unknown schedule 'tawpip'; did you mean 'tawpipe'?"});
  check_refused(run("compare --schedules tawpipe,1f1 --cluster 3x2"), {"did you mean '1f1b'?"});
}
TEST_CASE("an unknown model, with the nearest") {
  check_refused(with({{"--model", "llma-2-7b"}}), {"unknown model 'llma-2-7b'; did you mean 'llama-2-7b'?"});
  check_refused(with({{"--model", "nothing.json"}}), {"cannot read 'nothing.json'"});
}
TEST_CASE("an option that the schedule does not have, or a value that it does not take") {
  check_refused(with({{"--option", "ordr=paper"}}), {"unknown option of tawpipe 'ordr'; did you mean 'order'?"});
  check_refused(with({{"--option", "order=papr"}}), {"order=papr", "eager, paper"});
  check_refused(with({{"--option", "order"}}), {"'order' is not of the form key=value"});
  check_refused(with({{"--option", "buffers=0"}}), {"buffers=0"});
  check_refused(run("compare --cluster 3x2 --option ordr=paper"), {"'ordr'"});
}
TEST_CASE("a microbatch that does not divide the batch, with those that do") {
  check_refused(with({{"--microbatch", "7"}, {"--global-batch", "1536"}}), {"the nearest that do are 6 and 8"});
  check_refused(with({{"--microbatch", "0"}}), {"--microbatch 0"});
  check_refused(with({{"--microbatch", "many"}}), {"--microbatch many", "auto"});
}
TEST_CASE("a flag that is left out") {
  for (const std::string flag : {"--schedule", "--cluster", "--model", "--sequence", "--global-batch"}) {
    check_refused(with({{flag, "(left out)"}}), {flag + " is missing", "see tawpipe simulate --help"});
  }
}
TEST_CASE("counts that are none, negative, fractions, huge or text") {
  for (const std::string flag : {"--sequence", "--global-batch", "--microbatches"}) {
    for (const std::string value : {"0", "-5", "1e18", "4096.5", "text", "", "99999999999999999999"}) {
      CAPTURE(flag);
      CAPTURE(value);
      check_refused(with({{flag, value}}),
                    {flag + ": the value must be a whole number from 1 to ", "see tawpipe simulate --help"});
    }
  }
  check_refused(with({{"--sequence", "1000000000000000000"}}), {"too large", "16777216 tokens"});
  check_refused(with({{"--global-batch", "1000000000000000000"}}), {"too large"});
  check_refused(with({{"--global-batch", "(left out)"}, {"--microbatches", "1000000000000"}, {"--microbatch", "10000000"}}),
                {"too many"});
  check_refused(with({{"--microbatches", "6"}}), {"--global-batch and --microbatches"});
}
TEST_CASE("a part of the memory that is none, more than all, a percentage or text") {
  for (const std::string value : {"0", "-0.5", "1.01", "85", "85%", "text", "", "nan"}) {
    CAPTURE(value);
    check_refused(with({{"--usable-memory", value}}),
                  {"--usable-memory: the value must be a fraction above 0 and at most 1, such as 0.45, not '" + value + "'"});
  }
}
TEST_CASE("seeds that are negative, fractions or text") {
  for (const std::string value : {"-1", "1.5", "text", "99999999999999999999"}) {
    CAPTURE(value);
    check_refused(with({{"--seed", value}}),
                  {"--seed: the value must be a whole number from 0 to ", "see tawpipe simulate --help"});
  }
  CHECK(with({{"--seed", "0"}}).code == 0);
  check_refused(with({{"--jitter", "much"}}), {"--jitter: the value must be a number, not 'much'"});
}
TEST_CASE("a value that is empty, as an unset variable gives it") {
  for (const std::string flag : {"--cluster", "--schedule", "--json", "--trace", "--cost", "--recompute", "--fold"}) {
    CAPTURE(flag);
    check_refused(with({{flag, ""}}), {flag + " is given without a value"});
  }
  check_refused(run(std::vector<std::string>{"list", ""}), {"without a value"});
}
TEST_CASE("flags that would change nothing") {
  check_refused(with({{"--schedule-file", "s.json"}}), {"--schedule has no effect with --schedule-file"});
  check_refused(with({{"--schedule", "(left out)"}, {"--schedule-file", "s.json"}, {"--option", "order=paper"}}),
                {"--option has"});
  check_refused(with({{"--graph", "g.tg"}}), {"--schedule has no effect with --graph"});
  check_refused(run("simulate --graph g.tg --trace t.json"), {"--trace has no effect with --graph"});
  check_refused(with({{"--times", "t.txt"}}), {"--times needs --graph", "--timeline"});
  for (const std::string flag : {"--fold", "--timeline", "--trace"}) {
    check_refused(with({{"--spread", "3"}, {flag, "auto"}}), {flag + " has no effect with --spread"});
  }
  const std::string exporting = "export --schedule 1f1b --cluster 1x2 --microbatches 4 --cost fixed:forward=1s ";
  check_refused(run(exporting + "--communication"), {"--communication needs --format pytorch-csv"});
  check_refused(run(exporting + "--max-tasks 5"), {"--max-tasks needs --format dot"});
  check_refused(run(exporting + "--graph g.tg --out x"), {"--out has no effect with --graph"});
}
TEST_CASE("times that are none, negative, without a unit or beyond 100 %") {
  check_refused(with({{"--cost", "fixed:"}}), {"--cost fixed needs times"});
  check_refused(with({{"--cost", "fixed:forward=-1s"}}), {"'-1s' is not a duration"});
  check_refused(with({{"--cost", "fixed:forward=1"}}), {"'1' is not a duration", "601us"});
  check_refused(with({{"--cost", "fixed:forwad=1s"}}), {"did you mean 'forward'?"});
  check_refused(with({{"--cost", "fixed:forward"}}), {"'forward' is not of the form key=value"});
  check_refused(with({{"--cost", "roofline:utilization=2"}}), {"--cost: utilization must be a fraction", "not '2'"});
  check_refused(with({{"--cost", "roofline:all-reduce=star"}}), {"ring or tree"});
  check_refused(with({{"--cost", "rooflin"}}), {"did you mean 'roofline'?"});
  check_refused(with({{"--cost", "fixed:forward=9000000000s"}}), {"--cost: forward=9000000000s", "106 days"});
}
TEST_CASE("a cost of given times that leaves some out") {
  check_refused(with({{"--cost", "fixed:forward=1s"}}),
                {"--cost fixed needs times of backward_input, backward_weight, transfer too"});
}
TEST_CASE("a sweep over an option that no schedule has, or over points of which none is possible") {
  const std::string sweep = "sweep --cluster 3x2 --model llama-12x512 --sequence 512 --global-batch 12 ";
  check_refused(run(sweep + "--schedules tawpipe --vary option.foo=3"), {"--vary: unknown option of these schedules 'foo'"});
  check_refused(run("sweep --cluster 3x1 --model llama-12x512 --global-batch 12 --schedules chimera --vary sequence=256,512"),
                {"no point of the sweep is possible; the first: chimera", "even number of ranks"});
}
TEST_CASE("files that no reader takes for something else") {
  const Folder folder;
  const auto schedule = [&](const std::string& text) {
    return run(
        "validate --cluster 1x1 --cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s --schedule-file " +
            folder.write("s.json", text),
        {.memory_limit = true});
  };
  check_refused(schedule(R"({"tasks": []})"), {"s.json has no tasks"});
  check_refused(schedule(R"({"name": "\u001b[31mred", "tasks": [{"op": "forward", "rank": 0}]})"),
                {"s.json: name: expected a name without control characters"});
  check_refused(schedule(R"({"tasks": [{"op": "forward", "rank": 0, "rank": 0}]})"), {"tasks[0]: the key 'rank' stands twice"});
  // more parameters together than fit, though each stage's do
  check_refused(schedule(R"({"stages": [{"parameters": 900000000000000}, {"parameters": 900000000000000}], "tasks": []})"),
                {"the stages have more than 1000000000000000 parameters together"});
  const auto cluster = [&](const std::string& text) {
    return run("topology show " + folder.write("c.json", text), {.memory_limit = true});
  };
  check_refused(cluster(R"({"device": "A100-80G", "devices_per_node": 1, "memory": )" + std::string(300'000, '[')),
                {"c.json: lists and objects stand more than 16 deep"});
  check_refused(cluster(R"({"node_types": [{"name": "t", "vertices": [{"name": "g", "kind": "device", "device": "A100-80G"},
      {"name": "n", "kind": "adapter", "bandwidth": "1GB/s"}], "edges": [{"between": ["g", "n"], "kind": "pcie",
      "bandwidth": "1GB/s"}]}], "nodes": 2048, "fabric": {"nodes_per_leaf": 1, "spines": 2048, "uplink": {"bandwidth": "1GB/s"}}})"),
                {"c.json: a leaf-spine network with 2048 ends and 4194304 links is too large"});
  check_refused(
      cluster(R"({"device": "A100-80G", "devices_per_node": 2, "intra_node": {"bandwidth": "1GB/s", "latency": "1e4s"}})"),
      {"c.json: intra_node.latency: a latency is at most 1000 s"});
  check_refused(run("calibrate --cluster 1x8 --kineto " +
                    folder.write("k.json", R"({"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":1e999,"dur":1}]})")),
                {"k.json: not JSON: line 1, column "});
  check_refused(run("calibrate --cluster 1x8 --kineto " +
                    folder.write("k.json", R"({"traceEvents":[{"ph":"X","tid":)" + std::string(5'000'000, '['))),
                {"k.json: lists and objects stand more than 32 deep"});
}
TEST_CASE("times that do not fit say so") {
  const Folder folder;
  const std::string cluster = folder.write("lat.json", R"({"device": "A100-80G", "devices_per_node": 2,
      "intra_node": {"bandwidth": "1000GB/s", "latency_ps": 1000000000000000}})");
  check_refused(
      run("simulate --schedule 1f1b --model llama-1000x64 --sequence 16 --global-batch 1 --tensor-parallel 2 --cluster " +
          cluster),
      {"106 days"});
}
TEST_CASE("an unknown way to recompute") { check_refused(with({{"--recompute", "ful"}}), {"did you mean 'full'?"}); }

TEST_CASE("no command, an unknown one, an unknown flag") {
  check_refused(run(""), {"a command is missing", "see tawpipe --help"});
  check_refused(run("simulat"), {"unknown command 'simulat'; did you mean 'simulate'?", "see tawpipe --help"});
  check_refused(run("topology shwo"), {"did you mean 'show'?", "see tawpipe topology --help"});
  check_refused(run("topology"), {"show, import"});
  check_refused(run("--nonsense"), {"unknown flag '--nonsense'", "see tawpipe --help"});
  check_refused(run("simulate --shedule tawpipe"), {"unknown flag '--shedule'; did you mean '--schedule'?"});
  check_refused(run("compare --cluster"), {"--cluster", "see tawpipe compare --help"});
  check_refused(run("compare extra"), {"'extra' was not expected"});
  check_refused(run("list shedules"), {"did you mean 'schedules'?"});
  check_refused(run("list"), {"schedules|clusters|devices|models", "see tawpipe list --help"});
  check_refused(run("topology import nothing.txt --nodes 0"), {"--nodes: ", "from 1 to", "not '0'"});
  check_refused(run("topology import nothing.txt"), {"'nothing.txt' cannot be read"});
}

TEST_CASE("names with newlines and other control characters stay on one line") {
  check_refused(with({{"--cluster", "a\nb\x1b[31m"}}), {"'a?b?[31m'"});
  check_refused(with({{"--model", "a\nb"}}), {"a?b"});
  check_refused(with({{"--schedule", "a\nb"}}), {"a?b"});
}

TEST_CASE("a billion sequences are too many tasks, and that is said at once") {
  for (const std::string schedule : {"tawpipe", "weipipe", "fsdp", "1f1b", "gpipe"}) {
    CAPTURE(schedule);
    const auto result = with({{"--schedule", schedule}, {"--global-batch", "1000000000"}});
    check_refused(result, {"an iteration of 1000000000 microbatches has about 12000000000 tasks", "larger microbatch"});
    CHECK(result.processor_seconds < 5);
  }
}

TEST_CASE("a cluster of a million devices works, or is refused") {
  const std::string problem = " --cluster 125000x8 --model llama-12x512 --sequence 512 --global-batch 8 --cost roofline";
  CHECK(run("simulate --schedule tawpipe" + problem, {.memory_limit = true}).code == 0);
  check_refused(run("simulate --schedule weipipe" + problem, {.memory_limit = true}), {"too large for weipipe"});
  check_refused(run("topology show 1000x1001"), {"at most 1000000 devices"});
}
