// Tests of schedule/parameter_map.hpp: values of ranges against one value a parameter.
// Not: what the values mean (verify/detail/contents_walk.hpp).
#include "tawpipe/schedule/parameter_map.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <optional>
#include <random>

using tawpipe::ParameterMap;
using tawpipe::ParameterRange;

TEST_CASE("ranges are set, changed and removed in part, and equal neighbours are one") {
  ParameterMap<int> map;
  CHECK(map.empty());
  map.set({0, 10}, 1);
  map.set({10, 20}, 1);
  REQUIRE(map.pieces().size() == 1);
  CHECK(map.pieces()[0].range == ParameterRange{0, 20});
  map.change({5, 25}, [](const ParameterRange&, const int* old) { return std::optional{old == nullptr ? 7 : *old + 1}; });
  REQUIRE(map.pieces().size() == 3);
  CHECK(map.pieces()[1].range == ParameterRange{5, 20});
  CHECK(map.pieces()[1].value == 2);
  CHECK(map.pieces()[2].value == 7);
  map.change({0, 25}, [](const ParameterRange&, const int*) { return std::optional<int>{}; });
  CHECK(map.empty());
  map.set({3, 3}, 1);
  CHECK(map.empty());
}

TEST_CASE("random changes agree with one value a parameter") {
  std::mt19937 random{3};
  constexpr std::int64_t count = 40;
  ParameterMap<int> map;
  std::array<int, count> plain{};  // 0: none
  for (int round = 0; round < 2000; ++round) {
    const auto begin = static_cast<std::int64_t>(random() % count);
    const std::int64_t end = begin + static_cast<std::int64_t>(random() % static_cast<unsigned>(count - begin + 1));
    const int value = static_cast<int>(random() % 3);
    map.change({begin, end}, [&](const ParameterRange&, const int* old) {
      return value == 0 ? std::optional<int>{} : std::optional{value + (old == nullptr ? 0 : 1)};
    });
    for (std::int64_t p = begin; p < end; ++p) {
      int& one = plain[static_cast<std::size_t>(p)];
      one = value == 0 ? 0 : value + (one == 0 ? 0 : 1);
    }
    std::int64_t reached = 0;
    map.visit({0, count}, [&](const ParameterRange& part, const int* held) {
      CHECK(part.begin == reached);
      reached = part.end;
      for (std::int64_t p = part.begin; p < part.end; ++p) {
        REQUIRE(plain[static_cast<std::size_t>(p)] == (held == nullptr ? 0 : *held));
      }
    });
    CHECK(reached == count);
    for (std::size_t i = 1; i < map.pieces().size(); ++i) {
      const auto& before = map.pieces()[i - 1];
      const auto& after = map.pieces()[i];
      CHECK((before.range.end < after.range.begin || before.value != after.value));
    }
  }
}
