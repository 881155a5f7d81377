// Preloaded into the command, plays an OpenBLAS that does not know its processor unless OPENBLAS_CORETYPE names one.
// Not: kernels.
#include <cstdlib>

extern "C" char* openblas_get_corename() {
  static char prescott[] = "Prescott";
  char* const named = std::getenv("OPENBLAS_CORETYPE");
  return named != nullptr ? named : prescott;
}
