// A100 and A800, measured.
// Not: A100 with PCI Express, whose limit of 300 W lowers the clock further.
#pragma once

#include "tawpipe/cost/device_curves.hpp"

namespace tawpipe::inline v0::curves {

/// Products: SimuMax's table of 170 shapes on an A100 PCIe (configs/system/a100_pcie.json, commit
/// 3005b17c): 0.755 of the peak in full waves, 0.94 of that into float32, and the waves of 256 x
/// 128 tiles on 108 multiprocessors in its small shapes (n = 576, 1024, 2048, 4096: 0.50, 0.46,
/// 0.61, 0.72 measured; 0.51, 0.46, 0.61, 0.73 by the curve). By themselves, kernels on an SXM card
/// reach 1.072 times those of a PCIe card (271.2 and 252.9 TFLOPS, stas00/ml-engineering, maximum
/// achievable matmul FLOPS): 0.81, which training does not reach (sim/papers/truth_fit.hpp).
/// Rows that are not whole 16 bytes: EleutherAI/cookbook's sweeps on an A100 of 8192 x V x 14336
/// (sizing/results/transformer_data/vocab_v_sweep.out, vocab_h_sweep.out): 255 TFLOPS with V of
/// 51,200, 139 with even and 74 with odd V, 257, 173 and 72 by the other size; of the latter two
/// the mean times.
/// Attention: Dao 2023, FlashAttention-2, arXiv:2307.08691, figures 4 to 6 (A100, causal): forward
/// up to about 200, backward up to about 170 TFLOPS for heads of 128; SimuMax's table of them at
/// 4,096 tokens with 4, 8, 16, 32 and 64 heads: forward 0.257, 0.391, 0.495, 0.563 and 0.594
/// (causal at half; by the curve 0.318, 0.425, 0.511, 0.568 and 0.602), backward 0.337, 0.381,
/// 0.443, 0.486 and 0.503 (0.351, 0.421, 0.469, 0.497 and 0.512). Heads of 64 reach 179.5 TFLOPS
/// forward (Azure/AI-benchmarking-guide, Azure_Results/ND_A100_v4_results.md), about 160 by the
/// curve. Memory: BabelStream, in the same results: copies 1.61, triads 1.70, reads (dot) 1.75 of
/// 2.04 TB/s; 0.86 is that of reads. Gaps: assumed (sim/papers/truth_fit.hpp). Collectives: the
/// all-reduces of 1 to 256 MB on 2, 4 and 8 A100 of a node that vTrain measured (trace/a100 of its
/// repository): 12 % off with these two figures, 28 % without. The host's times are fitted
/// (sim/papers/truth_fit.hpp).
inline constexpr DeviceCurves ampere{
    .generation = "A100",
    .multiprocessors = 108,
    .products = 0.755,
    .even_rows = 0.60,
    .odd_rows = 0.285,
    .weight_gradient = 0.94,
    .inner_ramp = 96,
    .attention = 0.80,
    .attention_backward = 0.66,
    .attention_head = 32,
    .attention_fill = 0.6,
    .attention_backward_fill = 0.3,
    .memory = 0.86,
    .kernel_gap = 2e-6,
    .host_layer = 1.7e-3,
    .host_backward = 0.2e-3,
    .host_kernel = 13.5e-6,
    .host_collective = 0.4e-3,
    .collective_bandwidth = 0.9,
    .collective_latency = 1.9,
    .source = "SimuMax a100_pcie.json; FlashAttention-2, arXiv:2307.08691; Azure ND A100 v4",
};

}  // namespace tawpipe::curves
