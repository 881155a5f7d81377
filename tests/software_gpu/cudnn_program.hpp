// What a graph of cuDNN's operations computes, in the order in which it can be computed, and how
// that is done on the host.
// Not: the descriptors that it was made of (cudnn_descriptor.hpp) nor their checks
// (cudnn_checks.cpp).
#pragma once

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "numbers.hpp"

namespace software_cudnn {

using Shape = std::array<std::int64_t, 4>;  ///< outermost first; tensors of fewer axes have ones before them

struct Tensor {
  std::int64_t id = 0;
  software_gpu::Type type{};
  Shape dims{};
  Shape strides{};  ///< numbers
  std::int64_t alignment = 1;
  bool passing = false;   ///< virtual: it has no memory
  bool by_value = false;  ///< a number that lies on the host at the call

  bool operator==(const Tensor&) const = default;

  std::int64_t count() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  std::int64_t bytes() const;  ///< from the first to the last number
};

struct Step {
  enum class Kind { pointwise, matmul, reduction, reshape };
  Kind kind{};
  std::vector<std::int64_t> from;  ///< ids: pointwise x, b, t; matmul a, b; else x
  std::int64_t to = 0;
  cudnnPointwiseMode_t mode{};
  std::size_t axis = 0;  ///< of GEN_INDEX
  cudnnReduceTensorOp_t reduce{};
};

struct Program {
  std::map<std::int64_t, Tensor> tensors;
  std::vector<Step> steps;  ///< each after those whose results it reads

  std::int64_t workspace = 0;  ///< bytes that it wants, and overwrites

  /// Computes it on the memory of all tensors that are not virtual; those are kept in their own
  /// memory, rounded to their type. Overwrites the workspace before each step, so that what else
  /// lies there is lost.
  void run(std::map<std::int64_t, std::byte*> memory, void* at_workspace) const;
};

}  // namespace software_cudnn
