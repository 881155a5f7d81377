// H100, H200 and GH200, measured.
// Not: H100 with PCI Express.
#pragma once

#include "tawpipe/cost/device_curves.hpp"

namespace tawpipe::inline v0::curves {

/// Products: for single kernels SimuMax takes 0.70 of the 16-bit peak for an H100 SXM
/// (configs/system/h100_nvlink.json, commit 160921ca, a population average), and the largest shapes
/// reach 794.5 of 989 TFLOPS in 16 bits and 1402.6 of 1979 in 8 (stas00/ml-engineering, maximum
/// achievable matmul FLOPS), which would give 0.62 for 8 bits. Long training under the power limit
/// reaches less: both are fitted to a row each (sim/papers/truth_fit.hpp). Attention: Shah et al.
/// 2024, FlashAttention-3, arXiv:2407.08608, figures 5 and 6 (H100 SXM, causal, heads of 128):
/// forward 579, 602 and 616 TFLOPS at 4,096, 8,192 and 16,384 tokens; backward about 0.7 of that.
/// Memory: copies and triads of large buffers reach about 3.0 of 3.35 TB/s.
inline constexpr DeviceCurves hopper{
    .generation = "H100",
    .multiprocessors = 132,
    .products = 0.655,
    .products_fp8 = 0.59,
    .weight_gradient = 0.96,
    .inner_ramp = 128,
    .attention = 0.79,
    .attention_backward = 0.57,
    .attention_head = 32,
    .attention_fill = 1.0,
    .attention_backward_fill = 0.3,
    .memory = 0.89,
    .kernel_gap = 2e-6,
    .host_layer = 0.3e-3,
    .host_backward = 0.3e-3,
    .source = "stas00/ml-engineering MAMF; SimuMax h100_nvlink.json; FlashAttention-3, arXiv:2407.08608",
};

}  // namespace tawpipe::curves
