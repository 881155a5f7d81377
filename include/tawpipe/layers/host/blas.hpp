// The only interface to CBLAS: matrix products of float and double, one thread each.
// Not: anything other than matrix products (layers/host/kernels.hpp).
#pragma once

#include <cblas.h>

#include <cstdint>
#include <mutex>

// OpenBLAS's own functions, absent from other libraries: weak, so that both link.
extern "C" {
void openblas_set_num_threads(int count) __attribute__((weak));
int openblas_get_parallel(void) __attribute__((weak));
}

namespace tawpipe::inline v0::layers::host {

/// A product may read its operand as stored in memory, or transposed.
enum class Operand : bool { plain, transposed };

namespace detail {

inline void gemm(CBLAS_TRANSPOSE a_as, CBLAS_TRANSPOSE b_as, int m, int n, int k, float alpha, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, a_as, b_as, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
inline void gemm(CBLAS_TRANSPOSE a_as, CBLAS_TRANSPOSE b_as, int m, int n, int k, double alpha, const double* a, int lda,
                 const double* b, int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, a_as, b_as, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

/// Several ranks are threads of one program and multiply at once. OpenBLAS's builds without threads
/// keep their buffers in common, unguarded, and would give wrong numbers: with them, one product
/// runs at a time.
inline bool products_take_turns() {
  static const bool turns = openblas_get_parallel != nullptr && openblas_get_parallel() == 0;
  return turns;
}
inline std::mutex products_mutex;

}  // namespace detail

/// Each rank already has a thread, so a product uses no others. Set for the whole program; the
/// result of every product is then the same for any number of cores.
inline void use_one_thread_for_products() {
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
}

/// C = alpha op(A) op(B) + beta C. All row-major: op(A) is [m, k], op(B) [k, n], C [m, n]; `lda`,
/// `ldb`, `ldc` are the distances in numbers from one row in memory to the next. With beta 0, C is
/// not read.
/// @pre m, n, k > 0; sizes fit 32 bits, which Transformer's and Batch's limits ensure
/// Thread-safe.
template <class T>
void multiply(Operand a_as, Operand b_as, std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* a, std::int64_t lda,
              const T* b, std::int64_t ldb, T beta, T* c, std::int64_t ldc) {
  const auto turn = detail::products_take_turns() ? std::unique_lock{detail::products_mutex} : std::unique_lock<std::mutex>{};
  detail::gemm(a_as == Operand::plain ? CblasNoTrans : CblasTrans, b_as == Operand::plain ? CblasNoTrans : CblasTrans,
               static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha, a, static_cast<int>(lda), b,
               static_cast<int>(ldb), beta, c, static_cast<int>(ldc));
}

/// y = x W^T + beta y: x [tokens, in], W [out, in], y [tokens, out].
template <class T>
void project(const T* x, const T* weight, T* y, std::int64_t tokens, std::int64_t in, std::int64_t out, T beta = 0) {
  multiply<T>(Operand::plain, Operand::transposed, tokens, out, in, 1, x, in, weight, in, beta, y, out);
}
/// dx = dy W + beta dx.
template <class T>
void project_back(const T* dy, const T* weight, T* dx, std::int64_t tokens, std::int64_t in, std::int64_t out, T beta = 0) {
  multiply<T>(Operand::plain, Operand::plain, tokens, in, out, 1, dy, out, weight, in, beta, dx, in);
}
/// dW += dy^T x.
template <class T>
void add_weight_gradient(const T* dy, const T* x, T* gradient, std::int64_t tokens, std::int64_t in, std::int64_t out) {
  multiply<T>(Operand::transposed, Operand::plain, out, in, tokens, 1, dy, out, x, in, 1, gradient, in);
}

}  // namespace tawpipe::layers::host
