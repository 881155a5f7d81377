// CBLAS for programs that start where there is none: OpenBLAS is loaded at the first call. The wheel's command is linked with it.
// Not: products of its own.
#include <cblas.h>
#include <dlfcn.h>

#include "tawpipe/core/error.hpp"
#include "tawpipe/layers/host/blas.hpp"
#include "tawpipe/layers/host/blas_kernels.hpp"

namespace {

/// nullptr: this machine has none.
void* library() {
  static void* const loaded = [] {
    void* found = nullptr;
    // Debian's name of every build, and Fedora's of the one with threads.
    for (const char* const name : {"libopenblas.so.0", "libopenblasp.so.0"}) {
      if (found == nullptr) found = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    return found;
  }();
  return loaded;
}

/// The library's function of the type of one that is declared; nullptr without the library.
template <class Function>
Function* find(Function*, const char* name) {
  return library() == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(library(), name));
}

template <class Function>
Function* need(Function* declared, const char* name) {
  Function* const found = find(declared, name);
  if (found == nullptr) {
    throw tawpipe::DeviceError(
        "matrix products on processors need OpenBLAS (libopenblas.so.0), which this machine does not have; on Debian: "
        "apt-get install libopenblas0-pthread");
  }
  return found;
}

}  // namespace

extern "C" {

void cblas_sgemm(OPENBLAS_CONST enum CBLAS_ORDER order, OPENBLAS_CONST enum CBLAS_TRANSPOSE a_as,
                 OPENBLAS_CONST enum CBLAS_TRANSPOSE b_as, OPENBLAS_CONST blasint m, OPENBLAS_CONST blasint n,
                 OPENBLAS_CONST blasint k, OPENBLAS_CONST float alpha, OPENBLAS_CONST float* a, OPENBLAS_CONST blasint lda,
                 OPENBLAS_CONST float* b, OPENBLAS_CONST blasint ldb, OPENBLAS_CONST float beta, float* c,
                 OPENBLAS_CONST blasint ldc) {
  static const auto loaded = need(&cblas_sgemm, "cblas_sgemm");
  loaded(order, a_as, b_as, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void cblas_dgemm(OPENBLAS_CONST enum CBLAS_ORDER order, OPENBLAS_CONST enum CBLAS_TRANSPOSE a_as,
                 OPENBLAS_CONST enum CBLAS_TRANSPOSE b_as, OPENBLAS_CONST blasint m, OPENBLAS_CONST blasint n,
                 OPENBLAS_CONST blasint k, OPENBLAS_CONST double alpha, OPENBLAS_CONST double* a, OPENBLAS_CONST blasint lda,
                 OPENBLAS_CONST double* b, OPENBLAS_CONST blasint ldb, OPENBLAS_CONST double beta, double* c,
                 OPENBLAS_CONST blasint ldc) {
  static const auto loaded = need(&cblas_dgemm, "cblas_dgemm");
  loaded(order, a_as, b_as, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

/// The first call of who multiplies, so that a missing library is said before any work.
void openblas_set_num_threads(int count) { need(&openblas_set_num_threads, "openblas_set_num_threads")(count); }

int openblas_get_parallel() {
  const auto loaded = find(&openblas_get_parallel, "openblas_get_parallel");
  return loaded == nullptr ? 0 : loaded();
}

char* openblas_get_config() {
  static char none[] = "none";
  const auto loaded = find(&openblas_get_config, "openblas_get_config");
  return loaded == nullptr ? none : loaded();
}

char* openblas_get_corename() {
  static char none[] = "";
  const auto loaded = find(&openblas_get_corename, "openblas_get_corename");
  return loaded == nullptr ? none : loaded();
}

}  // extern "C"
