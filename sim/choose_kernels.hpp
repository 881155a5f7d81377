// The kernels of GEMMs on processors: starts the command once more where OpenBLAS took slower ones than suit the processor.
// Not: other libraries' choices, nor a choice of the user's own (OPENBLAS_CORETYPE).
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "tawpipe/core/text.hpp"
#include "tawpipe/layers/host/blas_kernels.hpp"

namespace tawpipe::sim {

/// "OpenBLAS 0.3.21, kernels for Haswell".
inline std::string kernels_text(const layers::host::BlasKernels& kernels) {
  return kernels.processor.empty() ? kernels.library : concat(kernels.library, ", kernels for ", kernels.processor);
}

/// OpenBLAS chooses as it is loaded, before the first line of this program: only a new start with
/// OPENBLAS_CORETYPE changes what it took. To be called before anything is read or written, with
/// main()'s arguments; returns where there is nothing to choose.
inline void choose_kernels(char** arguments) {
  constexpr const char* variable = "OPENBLAS_CORETYPE";
  const char* const command = arguments[1];
  const bool multiplies =
      command != nullptr && (std::string_view{command} == "train" || std::string_view{command} == "check-numerics");
  if (!multiplies || std::getenv(variable) != nullptr) return;
  using namespace layers::host;
  const BlasKernels kernels = blas_kernels();
  const std::string_view wider = wider_kernels(kernels.processor, vector_instructions());
  if (!kernels.choosable || wider.empty()) return;
  ::setenv(variable, std::string{wider}.c_str(), 1);
  ::execv("/proc/self/exe", arguments);  // returns only where that cannot be started: slower kernels compute the same
}

}  // namespace tawpipe::sim
