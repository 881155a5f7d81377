// A stranger's program: a header of the library, and each third party through the target that brings it.
// Not: an example (examples/).
#include <tawpipe/core/units.hpp>
#include <tawpipe/core/version.hpp>

#ifdef HOST_LAYERS
#include <tawpipe/layers/host/blas.hpp>
#endif
#ifdef CUDA
#include <tawpipe/execute/cuda/cuda_api.hpp>
#include <tawpipe/execute/cuda/nccl_api.hpp>
#endif
#ifdef CUDA_LAYERS
#include <cudnn.h>
#include <tawpipe/layers/cuda/launch.hpp>
#endif

#ifndef BASE_ONLY
#include <fmt/format.h>
#include <boost/graph/graph_traits.hpp>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#endif

int main() {
  using namespace tawpipe::literals;
  if (25_GB / 25_GBps != 1_s) return 1;
#ifndef BASE_ONLY
  pugi::xml_document document;
  if (fmt::format("{}", tawpipe::version).empty() || !document.load_string("<a/>")) return 1;
#endif
#ifdef HOST_LAYERS
  const double three = 3;
  double nine = 0;
  using tawpipe::layers::host::Operand;
  tawpipe::layers::host::multiply(Operand::plain, Operand::plain, 1, 1, 1, 1.0, &three, 1, &three, 1, 0.0, &nine, 1);
  if (nine != 9) return 1;
#endif
#ifdef CUDA
  if (tawpipe::cuda::new_communicator_id().empty()) return 1;
  try {
    const tawpipe::cuda::CudaDevice device{0};  // where there is none: an error with words
  } catch (const tawpipe::cuda::CudaError& error) {
    if (error.status() == cudaSuccess) return 1;
  }
#endif
#ifdef CUDA_LAYERS
  if (cudnnGetVersion() == 0) return 1;
#endif
  return 0;
}
