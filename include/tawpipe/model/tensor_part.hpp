// A tensor-parallel rank's part of a dense decoder, which is a decoder itself: a part of the heads, of
// the MLP's width and of the vocabulary.
// Not: where its parameters are in the whole model (model/tensor_slices.hpp), nor what ranks exchange
// (model/transformer_body.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/tensor_slices.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

/// @param flag  that divides its work
/// @throws InputError  naming what ranks that share a stage do not compute
inline void check_dense_part(const Transformer& model, std::string_view flag) {
  if (model.is_routed() || model.is_latent() || model.has_kinds() || model.has_biases() || model.qk_norm != QkNorm::none) {
    throw InputError(concat("model ", quote(model.name), ": stages are shared by ranks for dense decoders without experts, ",
                            "latent attention, several kinds of layers, biases and norms of queries and keys; leave out ", flag));
  }
}

/// One of `parts` equal parts of a dense decoder: its heads, its MLP and its vocabulary are divided,
/// the residual stream and the norms are whole. Where a size cannot be divided equally, the last part
/// is padded; its weights are zero, as are then their gradients.
/// Source: Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053, section 3, which pads the vocabulary.
/// @throws InputError  naming the size of which the last part would have none, or what the model has
/// besides.
inline Transformer tensor_part(const Transformer& model, int parts) {
  if (parts == 1) return model;
  const auto part_of = [&](std::string_view what, int size) {
    const int part = (size + parts - 1) / parts;
    if (part * (parts - 1) < size) return part;
    throw InputError(concat("model ", quote(model.name), ": tensor parallelism among ", parts, " ranks leaves the last none of ",
                            "its ", size, " ", what, "; choose fewer"));
  };
  check_dense_part(model, "--tensor-parallel");
  Transformer part = model;
  part.head_dim = static_cast<int>(model.head_size());
  part.kv_heads = part_of("key and value heads", model.kv_heads);
  part.heads = part.kv_heads * (model.heads / model.kv_heads);
  part.intermediate = part_of("numbers of the MLP's width", model.intermediate);
  part.vocab = part_of("entries of the vocabulary", model.vocab);
  return part;
}

/// The tensors of such parts.
/// @throws InputError  as tensor_part()
inline TensorSlices tensor_slices(const Transformer& model, int parts) {
  if (parts == 1) return {};
  const ParameterOrder part{tensor_part(model, parts)};
  const std::vector<ParameterTensor> whole = ParameterOrder{model}.tensors();
  const std::vector<ParameterTensor> own = part.tensors();
  std::vector<TensorSlice> slices;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const bool rows = whole[i].shape.front() != own[i].shape.front();
    const bool columns = whole[i].shape.back() != own[i].shape.back();
    slices.push_back({.whole = whole[i].range,
                      .part = own[i].range,
                      .cut = rows      ? TensorSlice::Cut::rows
                             : columns ? TensorSlice::Cut::columns
                                       : TensorSlice::Cut::none,
                      .row = own[i].shape.back(),
                      .whole_row = whole[i].shape.back()});
  }
  return {part, parts, std::move(slices)};
}

/// The tensors of parts that have some of the experts of each layer each, whole, and all else.
/// @throws InputError  if the parts cannot have equally many
inline TensorSlices expert_slices(const Transformer& model, int parts) {
  if (parts == 1) return {};
  if (model.experts % parts != 0) {
    throw InputError(concat("model ", quote(model.name), ": its ", model.experts, " experts are no multiple of ", parts,
                            " ranks; choose a divisor"));
  }
  std::vector<TensorSlice> slices;
  std::int64_t at = 0;  // in the part
  const auto add = [&](const ParameterRange& whole, std::int64_t own) {
    slices.push_back({.whole = whole,
                      .part = {at, at + own},
                      .cut = own < whole.count() ? TensorSlice::Cut::rows : TensorSlice::Cut::none,
                      .row = own,
                      .whole_row = whole.count()});
    at += own;
  };
  std::int64_t experts = 0;  // of those of a layer, so far
  for (const ParameterTensor& tensor : ParameterOrder{model}.tensors()) {
    if (tensor.name.find("feed_forward.experts.") != std::string::npos) {
      experts += tensor.range.count();
      continue;
    }
    if (experts > 0) add({tensor.range.begin - experts, tensor.range.begin}, experts / parts);
    experts = 0;
    add(tensor.range, tensor.range.count());
  }
  const ParameterBlocks blocks{{.first_edge = model.embedding_parameters(),
                                .layers = model.layers,
                                .layer = {model.layer_parameters() - model.layer_expert_parameters() / parts * (parts - 1), {}},
                                .last_edge = model.head_parameters(),
                                .tied = model.tied}};
  return {blocks, parts, std::move(slices)};
}

}  // namespace tawpipe
