// Sums in any order have the same bits.
#include "tawpipe/simulate/wide_sum.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "support/random.hpp"

using tawpipe::WideSum;

TEST_CASE("the order of the terms does not matter, and a term k times is k times the term") {
  support::Random random{7};
  int plain_differs = 0;
  for (int round = 0; round < 1000; ++round) {
    std::vector<double> terms;
    for (int i = 0; i < 12; ++i) terms.push_back(random.real(0, 1) * (random.between(0, 1) == 0 ? 1 : 1e6));
    double plain = 0;
    WideSum sum;
    for (const double term : terms) {
      plain += term;
      sum.add(term);
    }
    std::sort(terms.begin(), terms.end());
    double plain_sorted = 0;
    WideSum sorted;
    for (const double term : terms) {
      plain_sorted += term;
      sorted.add(term);
    }
    CHECK(sum.value() == sorted.value());
    CHECK(sum.left_of(1e8) == sorted.left_of(1e8));
    plain_differs += plain != plain_sorted ? 1 : 0;
  }
  CHECK(plain_differs > 100);  // the test would see it
  WideSum seven;
  for (int i = 0; i < 7; ++i) seven.add(0.1);
  CHECK(seven.value() == 7 * 0.1);
}

TEST_CASE("what is left of a whole has the digits that the sum alone would lose") {
  WideSum sum;
  sum.add(1);
  sum.add(0x1p-60);
  CHECK(sum.value() == 1);
  CHECK(sum.left_of(1) == -0x1p-60);
}
