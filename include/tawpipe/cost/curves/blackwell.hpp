// B200 and GB200, measured on B200; B300 and GB300, which differ little.
// Not: the RTX cards of that generation.
#pragma once

#include "tawpipe/cost/device_curves.hpp"

namespace tawpipe::inline v0::curves {

/// Products and attention: SimuMax's tables on a B200 SXM (configs/system/b200_bf16_ceperm.json,
/// commit e691807a): of 2250 TFLOPS 0.39 to 0.66, and the large products of Llama 70B and 405B,
/// which run at the power limit, 0.47 to 0.51, 0.45 into float32 gradients: 0.508 gives the time of
/// all 90 shapes of these models together. Training reaches 0.936 (H100) and 0.932 (A100) of the
/// rate of kernels run by themselves (sim/papers/truth_fit.hpp), so 0.934 of 0.508 is taken.
/// Attention of heads of 128 at 4,096 tokens with 8, 16, 32, 64 and 128 heads 0.155, 0.289, 0.365,
/// 0.436 and 0.49 forward (causal at half), 0.329, 0.378, 0.398, 0.365 and 0.416 backward. 8 and 4
/// bits: no public table of shapes; 8 bits are fitted to a row (sim/papers/truth_fit.hpp), and 4
/// bits to another. Heads of sizes other than 128 are not in it: half at 64 is assumed, which with
/// 0.81 is its 0.54. Memory: the same file, 0.666 of 8 TB/s. Collectives: its networks, measured on
/// 8 GPUs: all-gather and reduce-scatter 0.674 and 0.673 of 900 GB/s, 0.84 of the 720 of NCCL's
/// table, after 23.1 + 7 * 9.2 and 25.6 + 7 * 8.0 us, 2.7 and 2.5 times NCCL's 32.2. Gaps and the
/// host's times are assumed as on H100.
inline constexpr DeviceCurves blackwell{
    .generation = "B200",
    .multiprocessors = 148,
    .products = 0.475,
    .products_fp8 = 0.585,
    .products_fp4 = 0.41,
    .weight_gradient = 0.93,
    .inner_ramp = 128,
    .attention = 0.81,
    .attention_backward = 0.63,
    .attention_head = 64,
    .attention_fill = 1.6,
    .attention_backward_fill = 0.3,
    .memory = 0.666,
    .kernel_gap = 2e-6,
    .host_layer = 0.3e-3,
    .host_backward = 0.3e-3,
    .host_kernel = 13.5e-6,
    .collective_bandwidth = 0.84,
    .collective_latency = 2.6,
    .source = "SimuMax b200_bf16_ceperm.json",
};

/// B300 and GB300: B200's, but 8-bit products, which are fitted to a row (sim/papers/truth_fit.hpp).
/// What differs on the data sheets, and by power, is in known_devices().
inline constexpr DeviceCurves blackwell_ultra = [] {
  DeviceCurves curves = blackwell;
  curves.generation = "B300";
  curves.products_fp8 = 0.675;
  return curves;
}();

}  // namespace tawpipe::curves
