// The fractions of its data sheet that a device reaches, by kind and shape of kernel: the figures
// of one generation.
// Not: the generations (cost/curves/), nor the times that follow (cost/kernel_cost.hpp).
#pragma once

#include <span>
#include <string_view>

namespace tawpipe::inline v0 {

/// One generation of devices. Fractions are of the peaks and the bandwidth in DeviceSpec.
struct DeviceCurves {
  std::string_view generation;
  int multiprocessors = 108;

  // Matrix products: tiles of 256 x 128 results in whole waves over the multiprocessors.
  double products = 0.8;      ///< sustained in full waves with a long inner dimension, 16 bits
  double products_fp8 = 0.7;  ///< of the 8-bit peak
  double products_fp4 = 0.6;  ///< of the 4-bit peak
  double fp8_rows = 1;        ///< factor of products_fp8 where each row has a scale
  /// Factors where rows of an operand are not whole 16 bytes (no multiple of 8 numbers of 16 bits),
  /// of an even and of an odd number of them.
  double even_rows = 1;
  double odd_rows = 1;
  double weight_gradient = 1;  ///< factor where results are added to a float32 gradient
  double inner_ramp = 96;      ///< inner dimension, in 16 bits, equivalent to a tile's start and end

  // Fused attention: 256 rows of a head are a tile.
  /// forward, of the 16-bit peak, in the limit of large heads and many tiles
  double attention = 0.8;
  double attention_backward = 0.65;
  double attention_head = 32;   ///< size of a head at half of that
  double attention_fill = 1.6;  ///< tiles for each multiprocessor at half of that, forward
  double attention_backward_fill = 0.3;
  double pytorch_attention = 1;           ///< factor of attention where PyTorch's own kernel runs it
  double pytorch_attention_backward = 1;  ///< and of attention_backward

  double memory = 0.85;      ///< of the bandwidth, by memory-bound kernels
  double kernel_gap = 2e-6;  ///< s from a kernel's end to the next one's start
  /// the same in a CUDA graph, on an H100 (Hazy Research, Look Ma, No Bubbles, 2025)
  double graph_gap = 1.3e-6;
  /// Seconds that the host takes to launch a layer's forward (and what is recomputed), and its
  /// backward, which autograd runs; a pass is not faster.
  double host_layer = 0;
  double host_backward = 0;
  /// s that the host takes to launch one kernel, where it cannot run ahead of the device (Kernel::singles)
  double host_kernel = 0;
  double host_collective = 0;  ///< and for each collective of a pass that ranks share

  // Collectives inside a node, against NCCL's own table (cost/nccl_table.hpp).
  double collective_bandwidth = 1;
  double collective_latency = 1;

  double speed = 1;  ///< of all computations and messages, over what they take by the other figures

  std::string_view source;  ///< of the figures
  bool operator==(const DeviceCurves&) const = default;
};

/// A figure of the curves by its name on the command line.
struct CurveField {
  std::string_view name;
  double DeviceCurves::*member;
  double most;  ///< its maximum
  std::string_view meaning;
};

inline std::span<const CurveField> curve_fields() {
  static constexpr CurveField fields[] = {
      {"products", &DeviceCurves::products, 1, "of the 16-bit peak, sustained by large matrix products"},
      {"products-fp8", &DeviceCurves::products_fp8, 1, "of the 8-bit peak"},
      {"products-fp4", &DeviceCurves::products_fp4, 1, "of the 4-bit peak"},
      {"fp8-rows", &DeviceCurves::fp8_rows, 1, "times products-fp8, where each row has a scale"},
      {"even-rows", &DeviceCurves::even_rows, 1, "times products, where an operand's rows are an even number, none of 8"},
      {"odd-rows", &DeviceCurves::odd_rows, 1, "times products, where they are an odd number"},
      {"weight-gradient", &DeviceCurves::weight_gradient, 1, "times that, for gradients of weights"},
      {"inner-ramp", &DeviceCurves::inner_ramp, 1e6, "inner dimension that a tile's start and end cost"},
      {"attention", &DeviceCurves::attention, 1, "of the 16-bit peak, fused attention's forward at its best"},
      {"attention-backward", &DeviceCurves::attention_backward, 1, "of the 16-bit peak, its backward"},
      {"attention-head", &DeviceCurves::attention_head, 1e6, "size of a head at half of that"},
      {"attention-fill", &DeviceCurves::attention_fill, 1e3, "tiles for each multiprocessor at half of that, forward"},
      {"attention-backward-fill", &DeviceCurves::attention_backward_fill, 1e3, "and backward"},
      {"pytorch-attention", &DeviceCurves::pytorch_attention, 1, "times attention, where PyTorch's own kernel runs it"},
      {"pytorch-attention-backward", &DeviceCurves::pytorch_attention_backward, 1, "times attention-backward there"},
      {"memory", &DeviceCurves::memory, 1, "of the memory bandwidth, by memory-bound kernels"},
      {"collective-bandwidth", &DeviceCurves::collective_bandwidth, 2, "of what NCCL's table expects of one inside a node"},
      {"collective-latency", &DeviceCurves::collective_latency, 100, "times what NCCL's table expects of it"},
      {"kernel-gap", &DeviceCurves::kernel_gap, 1, "seconds from a kernel to the next"},
      {"graph-gap", &DeviceCurves::graph_gap, 1, "seconds from a kernel of a CUDA graph to the next"},
      {"host-layer", &DeviceCurves::host_layer, 1, "seconds that the host takes to launch a layer's forward"},
      {"host-backward", &DeviceCurves::host_backward, 1, "seconds that the host takes to launch a layer's backward"},
      {"host-kernel", &DeviceCurves::host_kernel, 1, "seconds that the host takes to launch a kernel of one expert"},
      {"host-collective", &DeviceCurves::host_collective, 1, "seconds that the host takes to launch a collective of a layer"},
      {"speed", &DeviceCurves::speed, 10, "times as fast as all that says, by a measured step (simulate --step-time)"},
  };
  return fields;
}

}  // namespace tawpipe
