// Tests of verify/detail/partial_sums.hpp: sets of parameters, and sums that arrive in pieces.
// Not: the schedules in which they occur (properties/mutation_test.cpp).
#include "tawpipe/verify/detail/partial_sums.hpp"

#include <doctest/doctest.h>

#include <cstdint>

using tawpipe::BufferId;
using tawpipe::detail::Held;
using tawpipe::detail::Holds;
using tawpipe::detail::ParameterSets;
using tawpipe::detail::PartialSums;

TEST_CASE("sets are equal however their ranges are written, and 0 holds every other") {
  ParameterSets sets;
  const auto low = sets.find({{0, 5}});
  const auto high = sets.find({{5, 12}});
  const auto all = sets.find({{0, 12}});
  CHECK(sets.find({{7, 12}, {5, 7}}) == high);
  CHECK(sets.unite(low, high) == all);
  CHECK(sets.count(high) == 7);
  CHECK(sets.contains(all, low));
  CHECK_FALSE(sets.contains(low, all));
  CHECK(sets.contains(0, all));
  CHECK_FALSE(sets.contains(all, 0));
  CHECK(sets.contains(0, 0));
  CHECK_FALSE(sets.overlap(low, high));
  CHECK(sets.overlap(low, sets.find({{4, 6}})));
  CHECK(sets.overlap(0, low));
  CHECK(sets.unite(low, 0) == 0);
}

TEST_CASE("a sum counts once all its pieces are there, beside pieces of other sums; a doubled piece never does") {
  ParameterSets sets;
  const auto low = sets.find({{0, 5}});
  const auto high = sets.find({{5, 12}});
  const auto all = sets.find({{0, 12}});
  const auto is_all = [&](std::int32_t part) { return part == all; };
  const auto piece = [](std::uint64_t sum, std::int32_t part) {
    Held content;
    content.holds = Holds::gradient;
    content.sum = sum;
    content.part = part;
    return content;
  };
  PartialSums sums;
  const BufferId buffer{3};
  CHECK_FALSE(sums.add(buffer, piece(17, low), sets, is_all));
  CHECK_FALSE(sums.add(buffer, piece(23, high), sets, is_all));  // another sum's
  CHECK(sums.contains(buffer));
  CHECK(sums.add(buffer, piece(17, high), sets, is_all));
  CHECK(sums.contains(buffer));
  CHECK(sums.add(buffer, piece(23, low), sets, is_all));
  CHECK_FALSE(sums.contains(buffer));

  CHECK_FALSE(sums.add(buffer, piece(17, low), sets, is_all));
  CHECK_FALSE(sums.add(buffer, piece(17, low), sets, is_all));
  CHECK(sums.add(buffer, piece(17, high), sets, is_all));
  CHECK(sums.contains(buffer));  // the doubled piece is left
  sums.forget(buffer);
  CHECK_FALSE(sums.contains(buffer));
}
