// The memory of one layer and of a stage's stash, as numbers.
// Not: how it follows from operators (model/operator_work.hpp).
#pragma once

#include <cstdint>

#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/operator_work.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace support {

struct LayerBytes {
  std::int64_t saved = 0;
  std::int64_t forward_workspace = 0;
  std::int64_t backward_workspace = 0;
};

inline LayerBytes numbers(const tawpipe::StageWork& work) {
  return {work.saved.value(), work.forward_workspace.value(), work.backward_workspace.value()};
}

/// Of a layer of the model's first kind.
inline LayerBytes layer_bytes(const tawpipe::Transformer& model, const tawpipe::Batch& batch, tawpipe::Recompute recompute) {
  return numbers(tawpipe::layer_work(model.layer_kind(), model, batch, recompute));
}

/// What a backward_input of so many layers, with or without the edges, leaves for its backward_weight.
inline std::int64_t stash_bytes(tawpipe::Transformer model, const tawpipe::Batch& batch, tawpipe::Recompute recompute, int layers,
                                bool embedding, bool head = false) {
  model.layers = model.dense_layers + layers + 1;
  return tawpipe::layer_stack(model, batch, recompute).stage(model.dense_layers, layers, embedding, head).stash.value();
}

}  // namespace support
