// The operations of a decoder whose stages ranks share, by name.
// Not: their order (layers/tensor_passes.hpp) nor what they compute (layers/host/tensor_llama.hpp).
#pragma once

#include <cstdint>

namespace tawpipe::inline v0::layers {

/// What an operation is (StepOperation::code).
enum class TensorCode : std::uint8_t {
  // collectives of tensor-parallel ranks
  message,
  embedding_sum,
  attention_gather,
  attention_sum,
  ffn_gather,
  ffn_sum,
  head_gather,
  head_sum,
  loss_sum,
  ffn_gradient,
  attention_gradient,
  embedding_gradient,
  // collectives of context-parallel ranks
  keys_gather,
  keys_sum,
  keys_pass,
  queries_swap,
  results_swap,
  // collectives of ranks with whole experts
  dispatch,
  combine,
  results_gradient,
  copies_gradient,
  // computations
  look_up,
  take,
  attention_norm,
  attention_input,
  attention,
  attention_send,
  attention_block,
  attention_receive,
  attention_output,
  middle,
  ffn_norm,
  ffn_input,
  ffn_function,
  route,
  experts,
  ffn_output,
  mix,
  output,
  head_norm,
  logits,
  loss,
  pass_on,
  loss_gradient,
  head_weight,
  head_norm_gradient,
  head_norm_weight,
  mix_gradient,
  experts_function,
  experts_gradient,
  experts_weight,
  ffn_backward,
  experts_input,
  ffn_weight,
  ffn_norm_gradient,
  attention_backward,
  attention_block_gradient,
  attention_input_gradient,
  attention_weight,
  attention_norm_gradient,
  norm_weights,
  look_up_gradient,
  give,
};

}  // namespace tawpipe::layers
