// The number types of each kind of memory on a device: weights and activations in the model's
// dtype, states in f32.
// Not: their sizes in a schedule (model/workload.hpp), from which they follow.
#pragma once

#include <cstdint>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedule/op_traits.hpp"

namespace tawpipe::inline v0::cuda {

/// The number types of a training. Optimizer states are f32.
struct NumberTypes {
  Dtype weight = Dtype::f32;    ///< also for activations and their gradients
  Dtype gradient = Dtype::f32;  ///< for gradients of parameters
  bool master = false;          ///< the optimizer keeps the weights in f32 as its first state

  /// The type that a communication carries; a sum of squares is f32.
  Dtype of(Payload payload) const {
    switch (traits(payload).numbers) {
      case Numbers::none:
      case Numbers::single:
      case Numbers::states:
        return Dtype::f32;
      case Numbers::gradients:
        return gradient;
      case Numbers::weights:
      case Numbers::activations:
        return weight;
    }
    return weight;  // unreachable: every enumerator returns above
  }
};

/// @throws InputError  if the workload has sizes that match no types of a device; names the
/// possible ones.
inline NumberTypes number_types(const Workload& work) {
  const Dtype type = work.model().dtype;
  const ParameterBytes& bytes = work.parameter_bytes();
  if (type != Dtype::f32 && type != Dtype::bf16 && type != Dtype::f16) {
    throw InputError(concat("a device trains in float32, bfloat16 or float16, not in ", name(type)));
  }
  const std::int64_t size = size_bytes(type);
  const bool gradient = bytes.gradient == 4 || bytes.gradient == size;
  const bool states = bytes.optimizer == 8 || bytes.optimizer == 12;
  if (bytes.weight != size || !gradient || !states) {
    throw InputError(concat("the schedule has ", bytes.weight, " + ", bytes.gradient, " + ", bytes.optimizer,
                            " bytes a parameter; in ", name(type), " weights take ", size, ", gradients ", size,
                            size == 4 ? "" : " or 4", ", and optimizer states 8, or 12 with a copy of the weights in float32"));
  }
  return {.weight = type, .gradient = bytes.gradient == 4 ? Dtype::f32 : type, .master = bytes.optimizer == 12};
}

/// @throws InputError  if a layer computes gradients of parameters in other numbers
/// (Layer::Gradient, where it has any): it would write beyond their memory.
template <class Layer>
void check_gradients(const NumberTypes& types) {
  if constexpr (requires { typename Layer::Gradient; }) {
    constexpr std::int64_t size = sizeof(typename Layer::Gradient);
    if (size == size_bytes(types.gradient)) return;
    throw InputError(concat("the schedule has gradients of ", size_bytes(types.gradient),
                            " bytes and the layer computes them in ", size,
                            size == 4 ? "; set Workload::parameter_bytes(trained_bytes(dtype)) before it is built"
                                      : "; take a layer whose gradients are float32"));
  }
}

}  // namespace tawpipe::cuda
