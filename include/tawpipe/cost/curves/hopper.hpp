// H100, H200 and GH200, measured.
// Not: H100 with PCI Express.
#pragma once

#include "tawpipe/cost/device_curves.hpp"

namespace tawpipe::inline v0::curves {

/// Products: for single kernels SimuMax takes 0.70 of the 16-bit peak for an H100 SXM
/// (configs/system/h100_nvlink.json, commit 160921ca, a population average), and the largest shapes
/// reach 794.5 of 989 TFLOPS in 16 bits and 1402.6 of 1979 in 8 (stas00/ml-engineering, maximum
/// achievable matmul FLOPS), which would give 0.62 for 8 bits. Long training under the power limit
/// reaches less: both are fitted to a row each (sim/papers/truth_fit.hpp). Products of 8 bits with a
/// scale for each row: what 6768 tokens/s in place of 7689.5 leave them (Llama 3 8B on 8 H100,
/// torchao, torchao/float8/README.md, PyTorch 2.7), casts and gathers apart. Attention: Shah et al.
/// 2024, FlashAttention-3, arXiv:2407.08608, figures 5 and 6 (H100 SXM, causal, heads of 128):
/// forward 579, 602 and 616 TFLOPS at 4,096, 8,192 and 16,384 tokens; backward about 0.7 of that.
/// For heads of 64, 128 and 256 at 16,384 tokens 473, 616 and 642, cuDNN's 388, 539 and 509; by the
/// curve 489, 554 and 552. PyTorch's own kernel is FlashAttention-2: 335 TFLOPS there and backward
/// 310 to 322, and as PyTorch builds it forward 336 in place of 370 without a mask
/// (pytorch/benchmark#2443), backward 246 in place of 310 where the grid fills the device to 97 %
/// (pytorch/pytorch#128888). How tiles fill the multiprocessors is assumed. Memory: BabelStream, 2.90
/// (copies) to 2.97 (triads) of 3.35 TB/s (Azure/AI-benchmarking-guide,
/// Azure_Results/ND_H100_v5_results.md). Gaps and the host's times: assumed. A kernel's launch
/// costs 1.3 us with CUDA graphs (Hazy Research, Look Ma, No Bubbles, 2025); PyTorch's Linear takes
/// its host 13.5 us on a DGX H100, and on GB200 37 us, Transformer Engine's 100 us
/// (NVIDIA/TransformerEngine#2053), and a layer has about ten operations; a kernel of an expert is
/// taken as PyTorch's Linear. Without these: sim/papers/truth_fit.hpp.
inline constexpr DeviceCurves hopper{
    .generation = "H100",
    .multiprocessors = 132,
    .products = 0.655,
    .products_fp8 = 0.59,
    .fp8_rows = 0.87,
    .weight_gradient = 0.96,
    .inner_ramp = 128,
    .attention = 0.79,
    .attention_backward = 0.57,
    .attention_head = 32,
    .attention_fill = 1.0,
    .attention_backward_fill = 0.3,
    .pytorch_attention = 0.42 / 0.79 * 336 / 370,
    .pytorch_attention_backward = 0.38 / 0.57 * 246 / 310 / 0.97,
    .memory = 0.89,
    .kernel_gap = 2e-6,
    .host_layer = 0.3e-3,
    .host_backward = 0.3e-3,
    .host_kernel = 13.5e-6,
    .source = "stas00/ml-engineering MAMF; SimuMax h100_nvlink.json; FlashAttention-3, arXiv:2407.08608; Azure ND H100 v5",
};

}  // namespace tawpipe::curves
