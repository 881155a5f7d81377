// The schedule's JSON is strict: errors name the place, and no input crashes the reader.
// Not: what is read (schedule_json_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/schedule_text.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/verify/check_structure.hpp"

using support::schedule_error;
using support::task_error;
using namespace tawpipe;

TEST_CASE("errors name the path") {
  CHECK(schedule_error("").starts_with("s.json: not JSON: line 1, column 1"));
  CHECK(schedule_error("{\"tasks\": []} x").starts_with("s.json: not JSON: line 1, column 15"));
  CHECK(schedule_error("[]") == "s.json: expected an object {...}, not a list");
  CHECK(schedule_error("{}") == "s.json: 'tasks' is missing");
  CHECK(schedule_error(R"({"task": []})").starts_with("s.json: unknown key 'task'; did you mean 'tasks'?"));
  CHECK(schedule_error(R"({"tasks": 3})") == "s.json: tasks: expected a list [...], not 3");
  CHECK(schedule_error(R"({"tasks": [], "tasks": []})") == "s.json: the key 'tasks' stands twice in one object");
  CHECK(schedule_error(R"({"tawpipe_schedule": 3, "tasks": []})") ==
        "s.json: tawpipe_schedule: expected a whole number from 1 to 2, not 3");
  CHECK(schedule_error(R"({"ranks": 4, "layout": {"tensor": 3}, "tasks": []})") ==
        "s.json: layout: tensor 3 x context 1 x data 1 = 3 does not divide the cluster's 4 devices");
  CHECK(schedule_error(R"({"ranks": 4, "layout": {"order": "tsd"}, "tasks": []})")
            .starts_with("s.json: layout: layout 'tsd' must name"));
  CHECK(task_error("7") == "s.json: tasks[0]: expected an object {...}, not 7");
  CHECK(task_error("{}") == "s.json: tasks[0]: 'op' is missing");
  CHECK(task_error(R"({"op": "forwards", "rank": 0})")
            .starts_with("s.json: tasks[0].op: unknown op 'forwards'; did you mean 'forward'?"));
  CHECK(task_error(support::forward_task + R"(, {"op": "forward"})") == "s.json: tasks[1]: 'rank' is missing");
  CHECK(task_error(support::forward_task + R"(, {"op": "forward", "rank": "0"})") ==
        "s.json: tasks[1].rank: expected a whole number from 0 to 1048575, not \"0\"");
  CHECK(task_error(R"({"op": "forward", "rank": 1.0})") ==
        "s.json: tasks[0].rank: expected a whole number from 0 to 1048575, not 1.0");
  CHECK(task_error(R"({"op": "forward", "rank": 0, "colour": 1})").starts_with("s.json: tasks[0]: unknown key 'colour'"));
  CHECK(task_error(R"({"op": "forward", "rank": 0, "peer": 0})") == "s.json: tasks[0]: a forward has no 'peer'");
  CHECK(task_error(R"({"op": "forward", "rank": 0, "repeat": 2})") == "s.json: tasks[0]: a forward has no 'repeat'");
  CHECK(task_error(R"({"op": "broadcast", "group": [0], "repeat": 0})") ==
        "s.json: tasks[0].repeat: expected a whole number from 1 to 4095, not 0");
  CHECK(task_error(R"({"op": "broadcast", "group": [0], "bytes": 4000000000000000000})") ==
        "s.json: tasks[0]: a message has at most 1125899906842624 bytes");
  CHECK(task_error(R"({"op": "pass", "rank": 0})") == "s.json: tasks[0]: 'peer' is missing");
  CHECK(task_error(R"({"op": "broadcast", "rank": 0})") == "s.json: tasks[0]: 'group' is missing");
  CHECK(task_error(R"({"op": "broadcast", "group": []})") == "s.json: tasks[0].group: a group has at least one rank");
  CHECK(task_error(R"({"op": "broadcast", "group": 0})") == "s.json: tasks[0].group: there is no group 0; there are none");
  CHECK(task_error(R"({"op": "forward", "rank": 0, "after": [0, 1]})") ==
        "s.json: tasks[0].after[1]: there is no task 1; they are 0 to 0");
  CHECK(task_error(R"({"op": "forward", "rank": 0, "after": "x"})") == "s.json: tasks[0].after: there is no task named 'x'");
  CHECK(task_error(R"({"op": "idle", "rank": 0, "name": "x"}, {"op": "idle", "rank": 0, "name": "x"})") ==
        "s.json: tasks[1].name: 'x' is the name of number 0 already");
  CHECK(task_error(R"({"op": "forward", "rank": 0, "bytes": -1})") ==
        "s.json: tasks[0].bytes: expected a whole number from 0 to 4000000000000000000, not -1");
  CHECK(task_error(R"({"op": "forward", "rank": 0, "bytes": "5 miles"})").starts_with("s.json: tasks[0].bytes: '5 miles'"));
  CHECK(task_error(R"({"op": "forward", "rank": 0, "uses": [{"read": 0}]})") ==
        "s.json: tasks[0].uses[0].read: there is no buffer 0; there are none");
  CHECK(task_error(R"({"op": "forward", "rank": 0, "uses": [{}]})") ==
        "s.json: tasks[0].uses[0]: expected one access with its buffer, such as {\"read\": 0}");
  CHECK(task_error(R"({"op": "forward", "rank": 0, "lane": "send"})").starts_with("s.json: tasks[0].lane: unknown lane 'send'"));
}

TEST_CASE("ids are compared with how much there is") {
  const std::string rest = R"(, "tasks": [)" + support::forward_task + "]}";
  CHECK(schedule_error(R"({"ranks": 0)" + rest) == "s.json: ranks: expected a whole number from 1 to 1048576, not 0");
  CHECK(schedule_error(R"({"ranks": 99999999999)" + rest).starts_with("s.json: ranks: expected a whole number"));
  CHECK(schedule_error(R"({"ranks": 1, "tasks": [{"op": "idle", "rank": 1}]})") ==
        "s.json: tasks[0].rank: there is no rank 1; they are 0 to 0");
  CHECK(schedule_error(R"({"stages": 2, "tasks": [{"op": "idle", "rank": 0, "stage": 2}]})") ==
        "s.json: tasks[0].stage: there is no stage 2; they are 0 to 1");
  CHECK(schedule_error(R"({"workload": {"microbatches": 2}, "tasks": [{"op": "idle", "rank": 0, "microbatch": 2}]})") ==
        "s.json: tasks[0].microbatch: there is no microbatch 2; they are 0 to 1");
  CHECK(schedule_error(R"({"lanes": [])" + rest) == "s.json: lanes: expected 1 to 255 names");
  CHECK(schedule_error(R"({"lanes": ["a", "a"])" + rest) == "s.json: lanes[1]: 'a' stands twice");
  CHECK(schedule_error(R"({"ranks": 1048576, "lanes": ["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q"])" +
                       rest) == "s.json: 1048576 ranks with 17 lanes each are too many");
  CHECK(schedule_error(R"({"groups": [[0], [0, 5]], "ranks": 2)" + rest) ==
        "s.json: groups[1][1]: there is no rank 5; they are 0 to 1");
  CHECK(schedule_error(R"({"buffers": [{"rank": 0, "kind": "weight", "bytes": 1}])" + rest)
            .starts_with("s.json: buffers[0].kind: unknown kind 'weight'; did you mean 'weights'?"));
  CHECK(schedule_error(R"({"buffers": [{"rank": 0, "kind": "saved", "bytes": 1, "pieces": []}])" + rest) ==
        "s.json: buffers[0]: a buffer of kind 'saved' has no 'pieces'");
  CHECK(schedule_error(R"({"buffers": [{"rank": 0, "kind": "weights", "bytes": 1, "microbatch": 0}])" + rest) ==
        "s.json: buffers[0]: a buffer of kind 'weights' has no 'microbatch'");
  CHECK(schedule_error(R"({"buffers": [{"rank": 0, "kind": "weights"}])" + rest) == "s.json: buffers[0]: 'bytes' is missing");
  CHECK(schedule_error(R"({"program": [])" + rest) ==
        "s.json: program: expected a list for each of the 1 ranks, not a list of 0");
  CHECK(schedule_error(R"({"program": [[[0]]])" + rest) ==
        "s.json: program[0]: expected a list for each of the 2 lanes, not a list of 1");
  CHECK(schedule_error(R"({"program": [[[1], []]])" + rest) == "s.json: program[0][0][0]: there is no task 1; they are 0 to 0");
  CHECK(schedule_error(R"({"options": {"a": 1})" + rest) == "s.json: options.a: expected a text in quotes, not 1");
  CHECK(schedule_error(R"({"stages": "all")" + rest) == "s.json: stages: expected a list of stages, their number, or \"units\"");
  CHECK(schedule_error(R"({"stages": [{"share": [1]}])" + rest) ==
        "s.json: stages[0].share: expected two numbers, such as [1, 2] for one half, not a list of 1");
  CHECK(schedule_error(R"({"stages": [{"forward": -1}])" + rest) ==
        "s.json: stages[0].forward: expected a number, 0 or more, not -1");
  CHECK(schedule_error(R"({"workload": {}, "tasks": []})") == "s.json: workload: 'microbatches' is missing");
  CHECK(schedule_error(R"({"workload": {"model": "llama", "batch": {"sequence": 1, "global_batch": 1}}, "tasks": []})")
            .starts_with("s.json: workload.model: "));
  CHECK(schedule_error(R"({"workload": {"model": "llama-8x1024", "batch": {"sequence": 1, "global_batch": 0}}, "tasks": []})") ==
        "s.json: workload.batch.global_batch: expected a whole number from 1 to 1099511627776, not 0");
}

TEST_CASE("hostile texts are refused, and do not crash") {
  CHECK(schedule_error("{\"name\": [[[3]]], \"tasks\": []}") == "s.json: name: expected a text in quotes, not a list");
  std::string deep = "{\"tasks\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  CHECK(schedule_error(deep) == "s.json: lists and objects stand more than 16 deep in each other");
  std::string keys = "{";
  for (int i = 0; i < 300; ++i) keys += "\"k" + std::to_string(i) + "\": 0,";
  CHECK(
      schedule_error(keys + "\"tasks\": []}") ==
      "s.json: unknown key 'k0'; known: tawpipe_schedule, name, options, workload, ranks, lanes, stages, layout, bodies, groups, "
      "padding, pieces, splits, pair_sizes, buffers, tasks, buckets, program");
  CHECK(schedule_error("{\"" + std::string(10'000, 'k') + "\": 0}").size() < 300);
  CHECK(schedule_error("{\"name\": \"" + std::string(10'000, 'k') + "\n\"}").size() < 400);
  // A group of many ranks, used by many tasks, has more ends than fit.
  std::string group = "[0";
  for (int i = 1; i < 2000; ++i) group += "," + std::to_string(i);
  std::string tasks = R"({"op": "all_reduce", "group": 0})";
  for (int i = 0; i < 12; ++i) tasks += "," + tasks;
  const std::string many = "{\"groups\": [" + group + "]], \"tasks\": [" + tasks + "]}";
  CHECK(schedule_error(many) == "no error");
}

TEST_CASE("every cut of a file and many mutations of it are read or refused in one line") {
  const std::string small = support::schedule_file("by_hand.json");
  for (std::size_t length = 0; length < small.size(); ++length) {
    const std::string message = schedule_error(small.substr(0, length));
    if (message.find('\n') != std::string::npos || message.size() > 500) FAIL_CHECK(message);
  }
  const Schedule schedule = build_schedule("tawpipe", {Workload::abstract(2, 2), DeviceGroups::even(2, 1), {}});
  const std::string written = schedule_json(schedule);
  const std::vector<std::string> words{"-1", "0",   "7",         "99999999999999999999", "1e400", "null", "true", "\"x\"", "[]",
                                       "{}", "1.5", "4294967296"};
  std::mt19937 random{11};
  int read = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = round % 2 == 0 ? small : written;
    const std::size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text[at] = static_cast<char>(random() % 256);
        break;
      case 1:
        text.erase(at, random() % 40 + 1);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), random() % 60));
        break;
      default: {  // another value in place of a number
        const auto digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const auto end = text.find_first_not_of("0123456789", digit);
        text.replace(digit, end - digit, words[random() % words.size()]);
      }
    }
    try {
      const Schedule mutated = parse_schedule_json(text, "s.json");
      ++read;
      Diagnostics found;
      check_structure(mutated, found);
      CHECK_FALSE(found.has("V101"));
      CHECK_FALSE(found.has("V102"));  // every id is in range
      const std::string again = schedule_json(mutated);
      CHECK(schedule_json(parse_schedule_json(again)) == again);
    } catch (const InputError& error) {
      const std::string message = error.what();
      if (message.find('\n') != std::string::npos || message.size() > 500) FAIL_CHECK(message);
    }
  }
  CHECK(read > 100);
}

TEST_CASE("what does not fit together is not written") {
  const Schedule good = parse_schedule_json("{\"tasks\": [" + support::forward_task + "]}");
  const auto refused = [&](auto change) {
    Schedule::Parts parts = good.parts();
    change(parts);
    CHECK_THROWS_AS(schedule_json(Schedule{good.workload(), std::move(parts)}), ScheduleError);
  };
  refused([](Schedule::Parts& parts) { parts.tasks[0].rank = Rank{7}; });
  refused([](Schedule::Parts& parts) { parts.tasks[0].op = Op::broadcast; });
  refused([](Schedule::Parts& parts) { parts.tasks[0].lane = LaneId{2}; });
  refused([](Schedule::Parts& parts) { parts.tasks[0].stage = StageId{1}; });
  refused([](Schedule::Parts& parts) { parts.tasks[0].bytes = Bytes{-1}; });
  refused([](Schedule::Parts& parts) { parts.ranks = 0; });
  refused([](Schedule::Parts& parts) { parts.lanes.clear(); });
  refused([](Schedule::Parts& parts) { parts.program = {}; });
  refused([](Schedule::Parts& parts) { parts.dependencies = {{0, 1}, {TaskId{9}}}; });
  refused([](Schedule::Parts& parts) { parts.uses = {{0, 1}, {Use{BufferId{0}, Access::read}}}; });
  refused([](Schedule::Parts& parts) { parts.groups = {{0, 2}, {Rank{0}}}; });
  refused([](Schedule::Parts& parts) { parts.buffers.push_back({.rank = Rank{3}, .content = {}, .bytes = {}}); });
  refused([](Schedule::Parts& parts) {
    parts.buffers.push_back({.rank = Rank{0}, .content = {ContentKind::weights, none<StageId>, PiecesId{0}}, .bytes = {}});
  });
  refused([](Schedule::Parts& parts) { parts.tasks[0].split = SplitId{0}; });
  refused([](Schedule::Parts& parts) { parts.splits = {{0, 1}, {PiecesId{0}}}; });
  refused([](Schedule::Parts& parts) { parts.stages[0].forward = Flops{-1.0}; });
}
