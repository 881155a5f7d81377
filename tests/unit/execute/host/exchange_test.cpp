// An all-to-all of as many rows as its ends say.
// Not: other collectives of shared stages (numerics/tensor_test.cpp, numerics/context_test.cpp).
#include "tawpipe/execute/host/exchange.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace exchange_test {

using namespace tawpipe;

/// Rows of two numbers, two groups on each of two members.
struct End {
  std::vector<std::int32_t> rows;
  std::vector<double> from;
  std::vector<std::int32_t> arrived = std::vector<std::int32_t>(4, -1);
  std::vector<double> to = std::vector<double>(16, -1);

  ExchangeArgs args() {
    ExchangeArgs one{.from = reinterpret_cast<std::byte*>(from.data()), .to = reinterpret_cast<std::byte*>(to.data())};
    one.rows = rows.data();
    one.arrived = arrived.data();
    one.row = 2;
    one.groups = 2;
    return one;
  }
};

TEST_CASE("rows go to the groups of each member, which learn how many came, and come back in their order") {
  // Member 0 sends its group 1 one row, and member 1's groups one and two; member 1 sends member 0's groups two and none.
  End first{.rows = {0, 1, 1, 2}, .from = {1, 2, 3, 4, 5, 6, 7, 8}};
  End second{.rows = {2, 0, 0, 0}, .from = {11, 12, 13, 14}};
  std::vector<ExchangeArgs> ends{first.args(), second.args()};
  // Three rows of two numbers, and two: only those to others count.
  CHECK(host::exchange_rows<double>(ends) == std::vector<std::int64_t>{6, 4});
  CHECK(first.arrived == std::vector<std::int32_t>{0, 1, 2, 0});
  CHECK(second.arrived == std::vector<std::int32_t>{1, 2, 0, 0});
  CHECK(std::vector<double>(first.to.begin(), first.to.begin() + 6) == std::vector<double>{1, 2, 11, 12, 13, 14});
  CHECK(std::vector<double>(second.to.begin(), second.to.begin() + 6) == std::vector<double>{3, 4, 5, 6, 7, 8});
  CHECK(first.to[6] == -1);
  CHECK(second.to[6] == -1);

  End first_back{.rows = first.arrived, .from = first.to};
  End second_back{.rows = second.arrived, .from = second.to};
  ends = {first_back.args(), second_back.args()};
  CHECK(host::exchange_rows<double>(ends) == std::vector<std::int64_t>{4, 6});
  CHECK(first_back.arrived == first.rows);
  CHECK(second_back.arrived == second.rows);
  CHECK(std::vector<double>(first_back.to.begin(), first_back.to.begin() + 8) == first.from);
  CHECK(std::vector<double>(second_back.to.begin(), second_back.to.begin() + 4) == second.from);
}

}  // namespace exchange_test
