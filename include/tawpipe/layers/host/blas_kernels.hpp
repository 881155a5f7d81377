// Which kernels the BLAS library multiplies with, and which would suit the processor better.
// Not: the products themselves (layers/host/blas.hpp) nor a change of them: OpenBLAS chooses as it is loaded.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

// OpenBLAS's own functions, absent from other libraries: weak, so that both link.
extern "C" {
char* openblas_get_corename(void) __attribute__((weak));
char* openblas_get_config(void) __attribute__((weak));
}

namespace tawpipe::inline v0::layers::host {

/// The library that multiplies, and the processor whose kernels it took.
struct BlasKernels {
  std::string library = "another BLAS than OpenBLAS";  ///< "OpenBLAS 0.3.21"
  std::string processor = {};                          ///< "Haswell", "SkylakeX"; empty: not known
  bool choosable = false;                              ///< whether OPENBLAS_CORETYPE chooses others
};

/// Those of this process.
inline BlasKernels blas_kernels() {
  BlasKernels kernels;
  if (openblas_get_config == nullptr || openblas_get_corename == nullptr) return kernels;
  const std::string_view config = openblas_get_config();  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  kernels.library = config.substr(0, config.find(' ', config.find(' ') + 1));
  kernels.processor = openblas_get_corename();
  kernels.choosable = config.find(" DYNAMIC_ARCH") != std::string_view::npos;
  return kernels;
}

/// The vector instructions of a processor that OpenBLAS has kernels for.
struct VectorInstructions {
  bool avx2 = false;    ///< with fused multiplication and addition
  bool avx512 = false;  ///< F, BW, DQ and VL, as Skylake-X has
};

/// By CPUID, and what the operating system saves of them.
inline VectorInstructions vector_instructions() {
#if defined(__x86_64__)
  return {.avx2 = __builtin_cpu_supports("avx2") > 0 && __builtin_cpu_supports("fma") > 0,
          .avx512 = __builtin_cpu_supports("avx512f") > 0 && __builtin_cpu_supports("avx512bw") > 0 &&
                    __builtin_cpu_supports("avx512dq") > 0 && __builtin_cpu_supports("avx512vl") > 0};
#else
  return {};
#endif
}

/// The value of OPENBLAS_CORETYPE with which OpenBLAS would multiply with wider vectors than with
/// the kernels for `processor`; empty: these are as wide as the processor allows. OpenBLAS takes a
/// processor that is newer than itself for one of 2004, whose kernels reach a quarter of the speed.
/// Source: OpenBLAS, driver/others/dynamic.c (names; get_coretype's last resort, Prescott).
inline std::string_view wider_kernels(std::string_view processor, VectorInstructions has) {
  constexpr std::string_view of_512_bits[] = {"SkylakeX", "Cooperlake", "SapphireRapids", "Sapphirerapids"};
  constexpr std::string_view of_256_bits[] = {"Haswell", "Zen"};
  const auto is_among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), processor) != std::end(names);
  };
  if (is_among(of_512_bits)) return {};
  if (has.avx512) return "SkylakeX";
  return has.avx2 && !is_among(of_256_bits) ? "Haswell" : std::string_view{};
}

}  // namespace tawpipe::layers::host
