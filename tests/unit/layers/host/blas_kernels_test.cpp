// blas_kernels.hpp: which kernels OpenBLAS took, and which suit a processor that it does not know. Not: their speed.
#include "tawpipe/layers/host/blas_kernels.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "tawpipe/layers/host/blas.hpp"

using namespace tawpipe::layers::host;

TEST_CASE("a processor that OpenBLAS does not know gets the kernels with its widest vectors") {
  const VectorInstructions none{};
  const VectorInstructions avx2{.avx2 = true};
  const VectorInstructions avx512{.avx2 = true, .avx512 = true};
  for (const std::string_view old : {"Prescott", "Core2", "Nehalem", "Sandybridge", "Barcelona", "Excavator", "Unknown"}) {
    CHECK(wider_kernels(old, none).empty());
    CHECK(wider_kernels(old, avx2) == "Haswell");
    CHECK(wider_kernels(old, avx512) == "SkylakeX");
  }
}

TEST_CASE("what OpenBLAS chose stays where no wider vectors are left") {
  const VectorInstructions avx2{.avx2 = true};
  const VectorInstructions avx512{.avx2 = true, .avx512 = true};
  for (const std::string_view chosen : {"Haswell", "Zen"}) {
    CHECK(wider_kernels(chosen, avx2).empty());
    CHECK(wider_kernels(chosen, avx512) == "SkylakeX");  // Zen 4 and 5 with an OpenBLAS before 0.3.22
  }
  for (const std::string_view chosen : {"SkylakeX", "Cooperlake", "SapphireRapids"}) {
    CHECK(wider_kernels(chosen, avx512).empty());
    CHECK(wider_kernels(chosen, {}).empty());
  }
}

TEST_CASE("the kernels of this process have a name where the library is OpenBLAS") {
  const BlasKernels kernels = blas_kernels();
  CHECK(!kernels.library.empty());
  if (openblas_get_parallel != nullptr) {
    CHECK(kernels.library.starts_with("OpenBLAS "));
    CHECK(!kernels.processor.empty());
  } else {
    CHECK(!kernels.choosable);
  }
}
