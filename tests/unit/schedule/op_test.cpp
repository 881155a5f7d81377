// Tests of schedule/op.hpp: names and kinds.
// Not: what tasks do (properties/).
#include "tawpipe/schedule/op.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

using tawpipe::Op;
using tawpipe::Payload;

TEST_CASE("each op is computation or communication, and a communication has two ends or a group") {
  for (int i = 0; i < tawpipe::ops; ++i) {
    const auto op = static_cast<Op>(i);
    CAPTURE(name(op));
    CHECK(is_compute(op) + is_point_to_point(op) + is_collective(op) == 1);
    CHECK((!is_work(op) || is_compute(op)));
  }
  CHECK(is_work(Op::update));
  CHECK_FALSE(is_work(Op::idle));
  CHECK(is_compute(Op::idle));
  CHECK(is_point_to_point(Op::exchange));
  CHECK(is_collective(Op::broadcast));
}

TEST_CASE("names are the enumerators' own and differ") {
  std::set<std::string> names;
  for (int i = 0; i < tawpipe::ops; ++i) names.emplace(name(static_cast<Op>(i)));
  CHECK(names.size() == tawpipe::ops);
  CHECK(name(Op::forward) == "forward");
  CHECK(name(Op::backward_weight) == "backward_weight");
  CHECK(name(Op::idle) == "idle");
  CHECK(name(Op::pass) == "pass");
  CHECK(name(Op::all_reduce) == "all_reduce");
  names.clear();
  for (int i = 0; i < tawpipe::payloads; ++i) names.emplace(name(static_cast<Payload>(i)));
  CHECK(names.size() == tawpipe::payloads);
  CHECK(name(Payload::nothing) == "nothing");
  CHECK(name(Payload::edge_gradients) == "edge_gradients");
}
