# Says whether there is a BLAS with cblas.h, for layers/host/; sets TAWPIPE_HAS_BLAS.
# Not: a choice among several (CMake's BLA_VENDOR makes it).
include(CheckCXXSourceCompiles)
set(TAWPIPE_HAS_BLAS OFF)
find_package(BLAS QUIET)
if(BLAS_FOUND)
  set(CMAKE_REQUIRED_LIBRARIES BLAS::BLAS)
  check_cxx_source_compiles("#include <cblas.h>
    int main() { double x = 1; cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 1, 1, 1, x, &x, 1, &x, 1, x, &x, 1); }"
    TAWPIPE_CBLAS_LINKS)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(TAWPIPE_CBLAS_LINKS)
    set(TAWPIPE_HAS_BLAS ON)
    list(GET BLAS_LIBRARIES 0 tawpipe_blas_library)
    message(STATUS "tawpipe: CBLAS found (${tawpipe_blas_library})")
  else()
    set(tawpipe_blas_reason "BLAS found, but no cblas.h with it")
  endif()
else()
  set(tawpipe_blas_reason "no BLAS")
endif()
if(NOT TAWPIPE_HAS_BLAS)
  message(STATUS "tawpipe: ${tawpipe_blas_reason}; tawpipe::host_layers is left out (on Debian: libopenblas-pthread-dev)")
endif()
