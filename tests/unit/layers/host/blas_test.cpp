// Products of every orientation, and from several threads at once.
// Not: their speed (bench/layers.cpp).
#include "tawpipe/layers/host/blas.hpp"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

using tawpipe::layers::host::multiply;
using tawpipe::layers::host::Operand;

namespace {

/// [rows, columns] of small integers, so that every product is exact.
template <class T>
std::vector<T> matrix(int rows, int columns, int seed) {
  std::vector<T> matrix;
  for (int i = 0; i < rows * columns; ++i) matrix.push_back(static_cast<T>((i * 7 + seed) % 13 - 6));
  return matrix;
}

template <class T>
void check_orientations() {
  constexpr int m = 3, n = 5, k = 4;
  for (const Operand a_as : {Operand::plain, Operand::transposed}) {
    for (const Operand b_as : {Operand::plain, Operand::transposed}) {
      const auto a = matrix<T>(m, k, 1);
      const auto b = matrix<T>(k, n, 2);
      const bool a_turned = a_as == Operand::transposed;
      const bool b_turned = b_as == Operand::transposed;
      auto c = matrix<T>(m, n, 3);
      auto expected = c;
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          T sum = 0;
          for (int l = 0; l < k; ++l) {
            sum += a[static_cast<std::size_t>(a_turned ? l * m + i : i * k + l)] *
                   b[static_cast<std::size_t>(b_turned ? j * k + l : l * n + j)];
          }
          T& at = expected[static_cast<std::size_t>(i * n + j)];
          at = 2 * sum + 3 * at;
        }
      }
      multiply<T>(a_as, b_as, m, n, k, 2, a.data(), a_turned ? m : k, b.data(), b_turned ? k : n, 3, c.data(), n);
      CHECK(c == expected);
    }
  }
}

}  // namespace

TEST_CASE("C = alpha op(A) op(B) + beta C in all four orientations") {
  check_orientations<float>();
  check_orientations<double>();
}

TEST_CASE("threads that multiply at the same time do not disturb each other") {
  tawpipe::layers::host::use_one_thread_for_products();
  constexpr int n = 96;
  const auto a = matrix<double>(n, n, 1);
  const auto product = [&] {
    std::vector<double> c(n * n);
    multiply<double>(Operand::plain, Operand::transposed, n, n, n, 1, a.data(), n, a.data(), n, 0, c.data(), n);
    return c;
  };
  const auto expected = product();
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) count += product() == expected ? 0 : 1;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}
