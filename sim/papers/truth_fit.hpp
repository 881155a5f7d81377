// The figures that were fitted to published runs or assumed, each with the rows it was fitted to
// and its value without the fit.
// Not: the figures that were measured on kernels (cost/curves/).
#pragma once

#include <span>
#include <string_view>

namespace tawpipe::sim {

/// A figure of one generation's curves.
struct FittedFigure {
  std::string_view generation;
  std::string_view field;  ///< of curve_fields()
  double unfitted;         ///< its value by only the public measurements of kernels
  std::string_view rows;   ///< that it was fitted to, or that there are none
  std::string_view why;    ///< the reason for the unfitted value
};

/// In place of a field: all of them, which are A100's without the fit.
inline constexpr std::string_view every_curve = "curves";

inline std::span<const FittedFigure> fitted_figures() {
  static constexpr std::string_view vtrain_rows =
      "vTrain: 31 of 807 rows, every 37th of one node and every 6th of several, with the two other times of the host";
  static constexpr std::string_view assumed = "no row: assumed";
  static constexpr std::string_view graphs = "a launch with CUDA graphs on H100, by Hazy Research";
  static constexpr FittedFigure figures[] = {
      {"B200", "products", 0.508, "no row of its own: 0.934 of the kernels', as H100's and A100's fits are 0.936 and 0.932",
       "SimuMax's 90 shapes by themselves"},
      {"B200", "products-fp8", 0.47, "mlperf: Llama 3.1 8B, 8 B200, FP8, University-of-Florida/hpg.dgxb200x8.n1",
       "as far below 16 bits as on H100 (70.9 to 80.3 %)"},
      {"B200", "products-fp4", 0.38, "mlperf: Llama 3.1 8B, 16 B200, NVFP4, Nebius/nebius_b200_n2",
       "as far below 8 bits as those are below 16"},
      {"B300", "products-fp8", 0.607, "megatron_bridge: Llama 3.1 405B, 256 GB300, FP8, release 25.11",
       "B200's at GB300's power"},
      {"H100", "products", 0.70, "dgxc_benchmarking: Llama 3.1 405B, 512 H100, BF16, release 25.05",
       "what SimuMax takes for an H100, a population average"},
      {"H100", "products-fp8", 0.62, "mlperf: Llama 3.1 405B, 512 H100, FP8, NVIDIA/eos-dfw_n64_ngc25.01_nemo",
       "as far below 16 bits as in the largest measured shapes"},
      {"H100", "fp8-rows", 1, "no row here: torchao's Llama 3 8B, 8 H100, rowwise against tensorwise",
       "as with one scale a tensor"},
      {"A100", "products", 0.81,
       "korthikanti_table5: Megatron 22B, its two rows, before biases and dropout were counted (with these they would say 0.79); "
       "it is what a PCIe card's kernels reach",
       "a PCIe card's 0.755 times what an SXM card reaches beyond it by itself, 1.072"},
      {"A100", "host-layer", 1e-6, vtrain_rows, "no public figure of a launch by PyTorch of 2022"},
      {"A100", "host-backward", 1e-6, vtrain_rows, "no public figure of a launch by PyTorch of 2022"},
      {"A100", "host-collective", 1e-6, vtrain_rows, "no public figure of a launch by PyTorch of 2022"},
      {"A100", "memory", 0.83, assumed, "BabelStream's triad in place of its reads"},
      {"A100", "kernel-gap", 1.3e-6, assumed, graphs},
      {"H100", "kernel-gap", 1.3e-6, assumed, graphs},
      {"B200", "kernel-gap", 1.3e-6, assumed, graphs},
      {"H100", "host-layer", 1e-6, assumed, "no public figure of a layer's launch"},
      {"H100", "host-backward", 1e-6, assumed, "no public figure of a layer's launch"},
      {"B200", "host-layer", 1e-6, assumed, "no public figure of a layer's launch"},
      {"B200", "host-backward", 1e-6, assumed, "no public figure of a layer's launch"},
      {"H100", "attention-fill", 0.3, assumed, "FlashAttention-3 at 8,192 tokens, 602 TFLOPS"},
      {"H100", every_curve, 0, "what its kernels took", "A100's curves, as of a device that has none of its own"},
      {"B200", every_curve, 0, "what its kernels took", "A100's curves, as of a device that has none of its own"},
  };
  return figures;
}

/// Whether curves of that generation have the figure: B300's are B200's unless they have one of their own.
inline bool has_figure(std::string_view generation, const FittedFigure& figure) {
  if (generation == figure.generation) return true;
  if (generation != "B300" || figure.generation != "B200") return false;
  for (const FittedFigure& own : fitted_figures()) {
    if (own.generation == generation && own.field == figure.field) return false;
  }
  return true;
}

}  // namespace tawpipe::sim
