#include "tawpipe/verify/prove.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tawpipe/core/error.hpp"

using namespace tawpipe;

namespace {

/// A call on communicator 0 and stream 0.
CommCall call(CommOp op, std::string id, int peer = -1) {
  CommCall one;
  one.id = std::move(id);
  one.op = op;
  one.peer = peer;
  one.communicator = is_local(op) ? -1 : 0;
  one.stream = 0;
  return one;
}
CommCall send(int peer, std::string id = "send") { return call(CommOp::send, std::move(id), peer); }
CommCall receive(int peer, std::string id = "recv") { return call(CommOp::receive, std::move(id), peer); }

CommProgram program(std::vector<std::vector<CommCall>> ranks) {
  CommProgram made;
  made.streams = {"nccl", "other"};
  made.communicators = {{"world", {}}, {"second", {}}};
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (auto& communicator : made.communicators) communicator.ranks.push_back(static_cast<int>(r));
  }
  made.ranks = std::move(ranks);
  return made;
}

std::string circle(const CommProgram& program) {
  std::string text;
  for (const auto& calls : prove(program).circle) text += (text.empty() ? "" : " -> ") + unit_text(program, calls);
  return text;
}

}  // namespace

TEST_CASE("two ranks that both send first wait for each other") {
  const CommProgram both = program({{send(1), receive(1)}, {send(0), receive(0)}});
  CHECK(!prove(both).ends);
  CHECK(circle(both) == "0:send -> 1:recv -> 1:send -> 0:recv");
  CHECK(prove(program({{send(1), receive(1)}, {receive(0), send(0)}})).ends);
}

TEST_CASE("calls of a group go on independently of each other") {
  CommProgram grouped = program({{send(1), receive(1)}, {send(0), receive(0)}});
  for (auto& calls : grouped.ranks) calls[0].group = calls[1].group = 0;
  CHECK(prove(grouped).ends);
}

TEST_CASE("a host that is held launches nothing more") {
  CommProgram held = program({{send(1, "a"), send(1, "b")}, {receive(0, "x"), receive(0, "y")}});
  held.ranks[0][0].communicator = 1;
  held.ranks[1][1].communicator = 1;
  for (auto& calls : held.ranks) calls[1].stream = 1;
  CHECK(prove(held).ends);  // each communicator on a separate stream
  held.ranks[0][0].blocks_host = true;
  held.ranks[1][0].blocks_host = true;
  CHECK(!prove(held).ends);
}

TEST_CASE("a call that nobody answers is missing, not in a circle") {
  const CommProgram one = program({{send(1), send(1, "more")}, {receive(0)}});
  const HangVerdict verdict = prove(one);
  CHECK(!verdict.ends);
  CHECK(verdict.circle.empty());
  CHECK(verdict.missing == std::vector<CallRef>{{0, 1}});
}

TEST_CASE("collectives meet by their number, and must be alike") {
  CommProgram sums = program({{call(CommOp::all_reduce, "r")}, {call(CommOp::all_reduce, "r")}});
  CHECK(prove(sums).ends);
  sums.ranks[1][0].bytes = 8;
  CHECK(!prove(sums).ends);
  CHECK(prove(sums).differing.size() == 1);
  sums.ranks[1].clear();
  CHECK(prove(sums).missing == std::vector<CallRef>{{0, 0}});
}

TEST_CASE("data that meets the wrong receive is told") {
  CommProgram crossed = program({{send(1, "a"), send(1, "b")}, {receive(0, "x"), receive(0, "y")}});
  crossed.ranks[0][0].data = crossed.ranks[1][1].data = "first";
  crossed.ranks[0][1].data = crossed.ranks[1][0].data = "second";
  const HangVerdict verdict = prove(crossed);
  CHECK(verdict.ends);
  CHECK(!verdict.is_right());
  CHECK(verdict.crossed.size() == 2);
}

TEST_CASE("collectives that carry other data are told") {
  CommProgram gathers = program({{call(CommOp::all_gather, "a")}, {call(CommOp::all_gather, "b")}});
  gathers.ranks[0][0].data = "expert 0";
  CHECK(prove(gathers).is_right());
  gathers.ranks[1][0].data = "expert 1";
  const HangVerdict verdict = prove(gathers);
  CHECK(verdict.ends);
  CHECK(verdict.crossed == std::vector<std::pair<CallRef, CallRef>>{{{0, 0}, {1, 0}}});
}

TEST_CASE("an all_to_all has a size for each pair") {
  CommProgram uneven = program({{call(CommOp::all_to_all, "a")}, {call(CommOp::all_to_all, "b")}});
  uneven.ranks[0][0].bytes_to = {1, 2};
  uneven.ranks[0][0].bytes_from = {1, 30};
  uneven.ranks[1][0].bytes_to = {30, 4};
  CHECK(prove(uneven).is_right());
  uneven.ranks[1][0].bytes_from = {3, 4};
  CHECK(prove(uneven).differing.size() == 1);
  uneven.ranks[1][0].bytes_from = {2};
  CHECK_THROWS_WITH_AS(prove(uneven), doctest::Contains("one for each of its communicator's 2"), InputError);
}

TEST_CASE("with one slot the order in which a device starts its calls decides") {
  CommProgram crossed = program({{call(CommOp::all_reduce, "a"), call(CommOp::all_reduce, "b")},
                                 {call(CommOp::all_reduce, "b"), call(CommOp::all_reduce, "a")}});
  crossed.ranks[0][1].communicator = crossed.ranks[1][0].communicator = 1;
  crossed.ranks[0][1].stream = crossed.ranks[1][0].stream = 1;
  CHECK(prove(crossed).ends);
  crossed.slots = 1;
  CHECK(!prove(crossed).ends);
  crossed.slots = 2;
  CHECK(prove(crossed).ends);
}

TEST_CASE("a first use waits for the other host") {
  CommCall first = send(1);
  CommProgram cold = program({{first, receive(1)}, {receive(0), send(0)}});
  cold.ranks[0][0].group = cold.ranks[0][1].group = 0;
  CHECK(prove(cold).ends);
  cold.cold = true;  // rank 0 makes both connections at once, rank 1 the second when it has received
  CHECK(!prove(cold).ends);
  CHECK(circle(cold) == "0:send + 0:recv -> 1:recv");
}

TEST_CASE("a call that names what is not there is refused") {
  CHECK_THROWS_AS(prove(program({{send(2)}, {}})), InputError);
  CommProgram early = program({{send(1)}, {receive(0)}});
  early.ranks[0][0].waits_for = {0};
  CHECK_THROWS_AS(prove(early), InputError);
  early = program({{send(1)}, {receive(0)}});
  early.ranks[0][0].communicator = 7;
  CHECK_THROWS_AS(prove(early), InputError);
}
