#include "tawpipe/report/comm_program_json.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/text.hpp"

using namespace tawpipe;
using support::has;

namespace {

std::string fault(const std::string& text) {
  try {
    parse_comm_program(text, "calls.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

constexpr const char* good = R"({"comms": {"world": [0, 1]}, "ranks": [
  {"ops": [{"id": "s", "op": "send", "peer": 1, "comm": "world", "stream": "n", "bytes": 8, "tag": 3, "data": "x"},
           {"id": "w", "op": "wait", "waits_for": ["s"], "blocks_host": true}]},
  {"ops": [{"id": "r", "op": "recv", "peer": 0, "comm": "world", "stream": "n", "group": "g", "bytes": 8, "tag": 3}]}],
  "semantics": {"cold": true, "slots": 2}})";

}  // namespace

TEST_CASE("a program of calls is read and written without loss") {
  const CommProgram program = parse_comm_program(good);
  CHECK(program.calls() == 3);
  CHECK(program.cold);
  CHECK(program.slots == 2);
  CHECK(program.ranks[0][0].tag == 3);
  CHECK(program.ranks[0][1].waits_for == std::vector<std::int32_t>{0});
  CHECK(program.ranks[1][0].group == 0);
  const std::string text = write_comm_program(program);
  CHECK(write_comm_program(parse_comm_program(text)) == text);
}

TEST_CASE("programs of calls are told from schedules") {
  CHECK(is_comm_program(good));
  CHECK(!is_comm_program(R"({"format": "tawpipe-schedule", "note": "comms"})"));
}

TEST_CASE("errors name the path and what would be right") {
  CHECK(has(fault("{}"), "calls.json: 'ranks' is missing"));
  CHECK(has(fault(R"({"comms": {}, "ranks": []})"), "at least one rank"));
  CHECK(has(fault(R"({"comms": {"w": [0, 0]}, "ranks": [{"ops": []}]})"), "comms.w[1]: rank 0 stands twice"));
  CHECK(has(fault(R"({"comms": {}, "ranks": [{"ops": [{"id": "a", "op": "snd"}]}]})"), "did you mean 'send'"));
  CHECK(has(fault(R"({"comms": {}, "ranks": [{"ops": [{"id": "a", "op": "barrier", "comm": "w"}]}]})"), "no communicator 'w'"));
  CHECK(has(fault(R"({"comms": {}, "ranks": [{"ops": [{"id": "a", "op": "wait", "waits_for": ["b"]}]}]})"),
            "no call 'b' stands before this one"));
  const auto sizes = [](const char* op) {
    return fault(concat(R"({"comms": {"w": [0]}, "ranks": [{"ops": [{"id": "a", "comm": "w", )", op, "}]}]}"));
  };
  CHECK(has(sizes(R"("op": "all_gather", "bytes_to": [1])"), "only an all_to_all has a size for each rank"));
  CHECK(has(sizes(R"("op": "all_to_all", "bytes_to": [1], "bytes": 1)"), "leave out one"));
  CHECK(has(sizes(R"("op": "all_to_all", "bytes_from": [1, 2])"), "a size for each of the communicator's 1 ranks"));
}
