#include "tawpipe/verify/mend.hpp"

#include <doctest/doctest.h>

#include "tawpipe/report/comm_program_json.hpp"

using namespace tawpipe;

namespace {

ProgramOrder order(const char* ranks, const char* semantics = "{}") {
  return ProgramOrder{parse_comm_program(
      concat(R"({"comms": {"world": [0, 1], "two": [0, 1]}, "ranks": )", ranks, R"(, "semantics": )", semantics, "}"))};
}

}  // namespace

TEST_CASE("an order that ends needs no mend") {
  const ProgramOrder fine = order(R"([{"ops": []}, {"ops": []}])");
  CHECK(!mend(fine, prove(fine.program())));
}

TEST_CASE("two sends that meet are swapped on one rank") {
  const ProgramOrder both = order(R"([
    {"ops": [{"id": "s", "op": "send", "peer": 1, "comm": "world", "stream": "n"},
             {"id": "r", "op": "recv", "peer": 1, "comm": "world", "stream": "n"}]},
    {"ops": [{"id": "s", "op": "send", "peer": 0, "comm": "world", "stream": "n"},
             {"id": "r", "op": "recv", "peer": 0, "comm": "world", "stream": "n"}]}])");
  const auto found = mend(both, prove(both.program()));
  REQUIRE(found);
  CHECK(found->text == "swap s and r of rank 0");
  CHECK(found->order.program().ranks[0][0].id == "r");
}

TEST_CASE("a send that waits for its computation stays behind it") {
  const ProgramOrder both = order(R"([
    {"ops": [{"id": "c", "op": "compute", "stream": "k"},
             {"id": "s", "op": "send", "peer": 1, "comm": "world", "stream": "n", "waits_for": ["c"]}]},
    {"ops": [{"id": "r", "op": "recv", "peer": 0, "comm": "world", "stream": "n"}]}])");
  CHECK(!both.edited({OrderEdit::Kind::swap, 0, 0, 1}));
}

TEST_CASE("crossed data of one group is put in order") {
  const ProgramOrder crossed = order(R"([
    {"ops": [{"id": "a", "op": "send", "peer": 1, "comm": "world", "stream": "n", "group": "g", "data": "A"},
             {"id": "b", "op": "send", "peer": 1, "comm": "world", "stream": "n", "group": "g", "data": "B"}]},
    {"ops": [{"id": "y", "op": "recv", "peer": 0, "comm": "world", "stream": "n", "group": "g", "data": "B"},
             {"id": "x", "op": "recv", "peer": 0, "comm": "world", "stream": "n", "group": "g", "data": "A"}]}])");
  const auto found = mend(crossed, prove(crossed.program()));
  REQUIRE(found);
  CHECK(prove(found->order.program()).is_right());
}

TEST_CASE("a call without a counterpart is left out") {
  const ProgramOrder more = order(R"([
    {"ops": [{"id": "s", "op": "send", "peer": 1, "comm": "world", "stream": "n"}]}, {"ops": []}])");
  const auto found = mend(more, prove(more.program()));
  REQUIRE(found);
  CHECK(found->text == "leave out s of rank 0, or add its counterpart");
}

TEST_CASE("scarce slots are mended by events") {
  const ProgramOrder crossed = order(R"([
    {"ops": [{"id": "a", "op": "all_reduce", "comm": "world", "stream": "x"},
             {"id": "b", "op": "all_reduce", "comm": "two", "stream": "y"}]},
    {"ops": [{"id": "b", "op": "all_reduce", "comm": "two", "stream": "y"},
             {"id": "a", "op": "all_reduce", "comm": "world", "stream": "x"}]}])",
                                     R"({"slots": 1})");
  const auto found = mend(crossed, prove(crossed.program()));
  REQUIRE(found);
  CHECK(found->order.program().ranks[1][1].waits_for.size() == 1);
}
