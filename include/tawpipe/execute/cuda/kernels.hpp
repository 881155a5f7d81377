// The kernels that executors need in addition to layers, callable from plain C++; target
// tawpipe::cuda has them compiled.
// Not: device code (src/execute/cuda/kernels.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "tawpipe/backend/device_compute.hpp"
#include "tawpipe/model/dtype.hpp"

namespace tawpipe::inline v0::cuda::kernels {

/// Doubles that `add_squares` needs as scratch memory.
inline constexpr int square_partials = 512;

/// to[i] += from[i]; f32, f64, bf16, f16. Pointers are aligned to their numbers.
void add(std::byte* to, const std::byte* from, std::int64_t count, Dtype type, cudaStream_t stream);

/// *sum += the sum of the squares, in an order that depends only on `count`. @param partials
/// [square_partials]
void add_squares(float* sum, const std::byte* from, std::int64_t count, Dtype type, double* partials, cudaStream_t stream);

/// *scale = min(1, clip / sqrt(*square)), with clip = scalars->gradient_clip; 1 if clip is 0. A
/// norm that is infinite or not a number gives a scale that is not above 0: with which an optimizer
/// can skip the step.
void clip_scale(float* scale, const float* square, const StepScalars* scalars, cudaStream_t stream);

}  // namespace tawpipe::cuda::kernels
