// Tests of schedule/op_traits.hpp: every op and payload has a whole row, and rows fit together.
// Not: what tasks do (properties/).
#include "tawpipe/schedule/op_traits.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace tawpipe;

TEST_CASE("each op is a computation, a host copy, or a message with two ends or a group") {
  for (int i = 0; i < ops; ++i) {
    const auto op = static_cast<Op>(i);
    CAPTURE(name(op));
    CHECK(is_compute(op) + is_host_copy(op) + is_point_to_point(op) + is_collective(op) == 1);
    CHECK(is_local(op) == (is_compute(op) || is_host_copy(op)));
    CHECK((!is_work(op) || is_compute(op)));
    CHECK((!is_rooted(op) || is_collective(op)));
  }
  CHECK(is_work(Op::update));
  CHECK_FALSE(is_work(Op::idle));
  CHECK(is_compute(Op::idle));
  CHECK(is_point_to_point(Op::exchange));
  CHECK(is_collective(Op::broadcast));
  CHECK(is_rooted(Op::reduce));
  CHECK_FALSE(is_rooted(Op::all_reduce));
}

TEST_CASE("a communication travels, gives on some end and takes on some end; a computation does none of it") {
  for (int i = 0; i < ops; ++i) {
    const OpTraits& row = traits(static_cast<Op>(i));
    CAPTURE(row.name);
    const bool gives = row.first.gives != Part::nothing || row.other.gives != Part::nothing;
    const bool takes = row.first.takes != Part::nothing || row.other.takes != Part::nothing;
    const bool travels = row.ends != Ends::rank;
    CHECK((row.pattern != Pattern::none) == travels);
    CHECK(gives == travels);
    CHECK(takes == travels);
    CHECK((row.payload != Payload::nothing) == travels);
    if (travels) CHECK_FALSE((row.passes.any() || row.work));
    if (row.sums) CHECK(travels);
  }
}

TEST_CASE("an end that gives may read, one that takes may write, and what it must do it may do") {
  for (int i = 0; i < ops; ++i) {
    const OpTraits& row = traits(static_cast<Op>(i));
    CAPTURE(row.name);
    for (const EndTraits& end : {row.first, row.other}) {
      const unsigned reads = detail::has_read | detail::has_read_write;
      const unsigned writes = detail::has_write | detail::has_read_write | detail::has_accumulate;
      CHECK((end.allowed & end.sends) == end.sends);
      CHECK((end.allowed & end.receives) == end.receives);
      CHECK((end.sends & ~reads) == 0);
      CHECK((end.receives & ~writes) == 0);
      if (end.gives != Part::nothing) CHECK((end.allowed & reads) != 0);
      CHECK((end.takes != Part::nothing) == ((end.allowed & writes) != 0));
    }
  }
}

TEST_CASE("a computation does the passes that it is named for") {
  CHECK(traits(Op::forward).passes.forward);
  CHECK_FALSE(traits(Op::forward).passes.backward());
  CHECK(traits(Op::backward).passes.backward_input);
  CHECK(traits(Op::backward).passes.backward_weight);
  CHECK_FALSE(traits(Op::backward_input).passes.backward_weight);
  CHECK_FALSE(traits(Op::backward_weight).passes.backward_input);
  CHECK(traits(Op::idle).passes.forward);  // is as long as one
  CHECK_FALSE(traits(Op::update).passes.any());
}

TEST_CASE("parts of members, ways of a pair, and a stage's work are those of the rows") {
  for (int i = 0; i < ops; ++i) {
    const auto op = static_cast<Op>(i);
    CAPTURE(name(op));
    CHECK(gathers(op) == (op == Op::all_gather));
    CHECK(scatters(op) == (op == Op::reduce_scatter));
    CHECK(has_own_parts(op) == (gathers(op) || scatters(op)));
    CHECK((!has_own_parts(op) || is_collective(op)));
    CHECK(goes_both_ways(op) == (op == Op::exchange));
    CHECK(leaves_gradients(op) == (op == Op::backward || op == Op::backward_weight));
    CHECK(is_stage_work(op) == (is_work(op) && op != Op::update));
  }
}

TEST_CASE("names are the enumerators' own and differ, and so do colours") {
  std::set<std::string_view> names;
  std::set<std::string_view> trace_colors;
  std::set<std::string_view> picture_colors;
  for (int i = 0; i < ops; ++i) {
    const OpTraits& row = traits(static_cast<Op>(i));
    names.insert(row.name);
    trace_colors.insert(row.colors.trace);
    picture_colors.insert(row.colors.picture);
    CHECK(row.colors.page.empty() == !is_compute(static_cast<Op>(i)));
  }
  CHECK(names.size() == ops);
  CHECK(trace_colors.size() == ops);
  CHECK(picture_colors.size() == ops);
  CHECK(name(Op::forward) == "forward");
  CHECK(name(Op::backward_weight) == "backward_weight");
  CHECK(name(Op::all_reduce) == "all_reduce");
  names.clear();
  for (int i = 0; i < payloads; ++i) {
    names.insert(name(static_cast<Payload>(i)));
    CHECK_FALSE(traits(static_cast<Payload>(i)).page_color.empty());
  }
  CHECK(names.size() == payloads);
  CHECK(name(Payload::nothing) == "nothing");
  CHECK(name(Payload::edge_gradients) == "edge_gradients");
}

TEST_CASE("a payload's numbers are of parameters, of tokens or single") {
  CHECK(is_of_tokens(Payload::activations));
  CHECK(is_of_tokens(Payload::activation_gradients));
  CHECK_FALSE(is_of_tokens(Payload::edge_gradients));
  CHECK(traits(Payload::edge_gradients).numbers == Numbers::gradients);
  CHECK(traits(Payload::scalar).numbers == Numbers::single);
}
