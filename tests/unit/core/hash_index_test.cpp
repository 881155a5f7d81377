// The index of items by what they are, against a map.
#include "tawpipe/core/hash_index.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "tawpipe/core/splitmix64.hpp"

TEST_CASE("equal items have one number, others the next") {
  // a hash of 3 bits makes most items collide
  for (const std::uint64_t bits : {3U, 64U}) {
    tawpipe::HashIndex index;
    std::vector<std::uint64_t> items;
    std::map<std::uint64_t, std::int32_t> known;
    for (std::uint64_t i = 0; i < 3000; ++i) {
      const std::uint64_t item = tawpipe::splitmix64(i) % 1000;
      const std::int32_t expected = known.try_emplace(item, static_cast<std::int32_t>(known.size())).first->second;
      const std::int32_t found = index.find_or_add(
          bits == 3 ? item & 7 : item, [&](std::int32_t number) { return items[static_cast<std::size_t>(number)] == item; },
          [&] { items.push_back(item); });
      CHECK(found == expected);
    }
    CHECK(items.size() == known.size());
  }
}
