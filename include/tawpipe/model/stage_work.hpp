// The work of a model's stage for one microbatch: parameters, activations, operations.
// Not: how they follow from a model (model/transformer_work.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tawpipe/core/units.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/kernel.hpp"

namespace tawpipe::inline v0 {

/// A fraction of one device's whole share of the model; only fixed costs use it.
struct Share {
  std::int64_t numerator = 1;
  std::int64_t denominator = 1;
};

/// The kind of each layer, as an index.
using LayerPattern = std::vector<std::uint8_t>;

/// The sizes and operations of one stage for one microbatch. Sizes are bytes on one device.
struct StageWork {
  std::int32_t first_layer = 0;
  std::int32_t layers = 0;
  std::int32_t recomputed = 0;  ///< the number of its layers that are recomputed, the first ones
  LayerPattern kinds = {};      ///< of its layers (LayerStack::pattern); empty: all are LayerStack::layer
  /// what the model does before its first layer: of a decoder, the embedding
  bool first_edge = false;
  /// what it does after its last layer, with the loss: of a decoder, final norm and output matrix
  bool last_edge = false;
  Share share = {};  ///< of a device's whole share, for fixed costs
  /// of a pass's operations, where this is a step of it; for costs that only know the whole
  double fraction = 1;
  double collectives = 0;   ///< that the host launches in the pass
  std::int32_t pieces = 1;  ///< equal parts of its products, cut by tokens; a step runs one

  std::int64_t parameters = 0;         ///< of the layers
  std::int64_t expert_parameters = 0;  ///< of these, those of experts that ranks may have whole
  std::int64_t edge_parameters = 0;    ///< of the edges that this stage has

  Bytes saved = {};  ///< activations kept from forward to backward
  /// in addition to `saved`, kept from a backward_input to its backward_weight
  Bytes stash = {};
  Bytes boundary = {};           ///< activation sent to the next stage
  Bytes forward_workspace = {};  ///< held only while the forward runs
  /// held only while the backward runs (of a decoder recomputed activations, logits)
  Bytes backward_workspace = {};
  /// of `backward_workspace`, what a backward_input that runs by itself has in the stash instead
  Bytes stashed_workspace = {};

  Flops forward = {};
  Flops recompute = {};  ///< forward work done again before the backward
  Flops backward_input = {};
  Flops backward_weight = {};
  Bytes forward_traffic = {};  ///< device-memory bytes of tokens in all but matrix products
  Bytes backward_traffic = {};
  std::vector<Kernel> kernels = {};  ///< the kernels of all of that; empty: unknown

  std::int32_t layers_of(std::uint8_t kind) const {
    return static_cast<std::int32_t>(kinds.empty() ? (kind == 0 ? layers : 0) : std::count(kinds.begin(), kinds.end(), kind));
  }
  /// Kernels of its layers that the host launches again in a backward, of those of a forward.
  double part_launched_again() const {
    double forwards = 0;
    double again = 0;
    for (const Kernel& kernel : kernels) {
      const double count = kernel.of_edge ? 0 : static_cast<double>(kernel.count) * kernel.launches;
      if (kernel.pass == KernelPass::forward) forwards += count;
      if (kernel.pass == KernelPass::recompute) again += count;
    }
    return forwards > 0 ? std::min(1.0, again / forwards) : 0;
  }
  /// Sets both traffics to those of its kernels that move tokens.
  void take_traffic() {
    double forwards = 0;
    double backwards = 0;
    for (const Kernel& kernel : kernels) {
      if (kernel.kind != Kernel::Kind::traffic || kernel.of_weights) continue;
      (kernel.pass == KernelPass::forward ? forwards : backwards) += kernel.count * kernel.bytes;
    }
    forward_traffic = Bytes{static_cast<std::int64_t>(forwards + 0.5)};
    backward_traffic = Bytes{static_cast<std::int64_t>(backwards + 0.5)};
  }
  /// Of those, the ones that are recomputed.
  std::int32_t recomputed_of(std::uint8_t kind) const {
    if (kinds.empty()) return kind == 0 ? recomputed : 0;
    return static_cast<std::int32_t>(std::count(kinds.begin(), kinds.begin() + recomputed, kind));
  }
  /// What a device needs to run any pass of the stage.
  Bytes workspace() const { return std::max(forward_workspace, backward_workspace); }
  /// Held only while a backward_input runs by itself; a backward_weight has none.
  Bytes input_workspace() const { return backward_workspace - stashed_workspace; }
};

/// Bytes a parameter takes. Source of the defaults (16-bit training with Adam: 2 + 2 + 12):
/// Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 3.1.
struct ParameterBytes {
  std::int64_t weight = 2;
  std::int64_t gradient = 2;
  std::int64_t optimizer = 12;  ///< fp32 master copy, momentum, variance

  bool operator==(const ParameterBytes&) const = default;
};

/// Bytes that training in `dtype` keeps for a parameter: gradients are summed at least in float32,
/// since sums over microbatches and ranks lose small ones in 16 bits; 16-bit weights have a copy in
/// float32.
constexpr ParameterBytes trained_bytes(Dtype dtype) {
  const std::int64_t width = size_bytes(dtype);
  return {.weight = width, .gradient = width < 4 ? 4 : width, .optimizer = width < 4 ? 12 : 2 * width};
}

}  // namespace tawpipe
