// What of an iteration is launched as CUDA graphs.
// Not: the times (cost/kernel_cost.hpp).
#pragma once

#include <cstdint>
#include <string_view>

#include "tawpipe/core/parse_name.hpp"

namespace tawpipe::inline v0 {

/// Kernels of a graph follow each other sooner, and the host launches all of them at once.
enum class CudaGraphs : std::uint8_t {
  none,
  layers,    ///< a graph for each layer's forward and one for its backward
  iteration  ///< one for all forwards and backwards of an iteration, collectives among them
};
inline constexpr int cuda_graph_scopes = 3;

/// Its name on the command line, "layers".
constexpr std::string_view name(CudaGraphs graphs) {
  constexpr std::string_view names[cuda_graph_scopes] = {"none", "layers", "iteration"};
  return names[static_cast<int>(graphs)];
}
/// Parses such a name. @throws InputError  naming the nearest and all known names.
inline CudaGraphs parse_cuda_graphs(std::string_view text) {
  return detail::parse_name<CudaGraphs, cuda_graph_scopes>("scope of CUDA graphs", text);
}

}  // namespace tawpipe
