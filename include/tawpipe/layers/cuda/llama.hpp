// A LLaMA decoder on an NVIDIA GPU, with the executors' interface.
// Not: its computations (decoder.hpp, cuda_math.hpp) nor the update of its weights (adamw.hpp).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

#include "tawpipe/backend/device_compute.hpp"
#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/layers/checked_llama.hpp"
#include "tawpipe/layers/cuda/cuda_math.hpp"
#include "tawpipe/layers/cuda/decoder.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// Computes stages of a LLaMA decoder on the device that is current at construction. T: Bfloat16,
/// Half or float, for weights and activations; G: float or T, for the gradients of weights. Sums
/// are float32 everywhere, as are norms, softmax and the loss.
///
/// Models DeviceLayer. Every call enqueues its work in the stream of use_stream() and returns;
/// nothing waits or allocates, except that the first product of each shape queries cuBLASLt's
/// heuristic, so let one microbatch run before capturing a graph. With fused attention the last
/// bits of gradients vary between runs (fused_attention.hpp); all else is reproducible. The kernels
/// come from launch.cuh: link one .cu file that includes it.
template <class T, class G = float>
class Llama {
 public:
  using Gradient = G;

  /// @param choices  shared by all layers of a program, which it must outlive: the algorithms of
  /// their products are found by trial, here, which takes memory temporarily and may give other
  /// bits in another run; null: cuBLASLt's heuristic chooses
  /// @throws InputError  as Decoder and CudaMath. @throws DeviceError  if the device, a library or
  /// memory is unavailable.
  Llama(Transformer model, const Batch& batch, Recompute recompute, const DecoderConstants& constants = {},
        ProductChoices* choices = nullptr)
      : decoder_{model, batch, recompute, constants,
                 CudaMath<T, G>{checked_dense_llama(model, batch, constants, dtype_of<T>), batch, constants, choices}} {}

  void use_stream(cudaStream_t stream) { decoder_.math().use_stream(stream); }
  /// For float16: *scale in device memory (LossScale::scale()) multiplies gradients from now on;
  /// null: 1.
  void use_loss_scale(const float* scale) { decoder_.use_loss_scale(scale); }

  void forward(const ForwardArgs& args) { decoder_.forward(args); }
  void backward(const BackwardArgs& args) { decoder_.backward(args); }
  void backward_input(const BackwardArgs& args) { decoder_.backward_input(args); }
  void backward_weight(const BackwardArgs& args) { decoder_.backward_weight(args); }

  /// Whether cuDNN computes attention; otherwise a plain kernel does, far slower
  /// (attention_notice()).
  bool has_fused_attention() { return decoder_.math().has_fused_attention(); }
  /// The device memory that it owns, in addition to its caller's.
  std::int64_t own_bytes() { return decoder_.math().own_bytes(); }

 private:
  Decoder<CudaMath<T, G>> decoder_;
};

static_assert(DeviceLayer<Llama<Bfloat16>, cudaStream_t> && DeviceLayer<Llama<Half, Half>, cudaStream_t> &&
              DeviceLayer<Llama<float>, cudaStream_t>);

}  // namespace tawpipe::layers::cuda
