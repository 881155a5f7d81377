// A tensor-parallel rank's part of a decoder, which is a decoder itself: a part of the heads, of the
// MLP's width and of the vocabulary.
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
inline void check_shared_part(const Transformer& model, std::string_view flag) {
  if (model.is_latent() || model.has_kinds() || model.has_biases() || model.qk_norm != QkNorm::none) {
    throw InputError(concat("model ", quote(model.name), ": stages are shared by ranks for decoders without ",
                            "latent attention, several kinds of layers, biases and norms of queries and keys; leave out ", flag));
  }
}

/// One of `parts` equal parts of a decoder: its heads, its MLP, the width of its experts and its vocabulary
/// are divided, the residual stream, norms and routers are whole. Where a size cannot be divided equally, the
/// last part is padded; its weights are zero, as are then their gradients.
/// Source: Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053, section 3, which pads the vocabulary.
/// @param whole_experts  ranks have whole experts, which are then not divided
/// @throws InputError  naming the size of which the last part would have none, or what the model has
/// besides.
inline Transformer tensor_part(const Transformer& model, int parts, bool whole_experts = false) {
  if (parts == 1) return model;
  const auto part_of = [&](std::string_view what, int size) {
    const int part = (size + parts - 1) / parts;
    if (part * (parts - 1) < size) return part;
    throw InputError(concat("model ", quote(model.name), ": tensor parallelism among ", parts, " ranks leaves the last none of ",
                            "its ", size, " ", what, "; choose fewer"));
  };
  check_shared_part(model, "--tensor-parallel");
  Transformer part = model;
  part.head_dim = static_cast<int>(model.head_size());
  part.kv_heads = part_of("key and value heads", model.kv_heads);
  part.heads = part.kv_heads * (model.heads / model.kv_heads);
  if (!model.is_routed() || !whole_experts)
    part.intermediate =
        part_of(model.is_routed() ? "numbers of an expert's width" : "numbers of the MLP's width", model.intermediate);
  if (model.shared_width > 0) part.shared_width = part_of("numbers of the shared expert's width", model.shared_width);
  part.vocab = part_of("entries of the vocabulary", model.vocab);
  return part;
}

namespace detail {

/// @param whole  a tensor of a model. @param own  of one of `parts` of it
inline TensorSlice slice_of(const ParameterTensor& whole, const ParameterTensor& own, int parts) {
  const bool rows = whole.shape.front() != own.shape.front();
  const bool columns = whole.shape.back() != own.shape.back();
  return {.whole = whole.range,
          .part = own.range,
          .cut = rows      ? TensorSlice::Cut::rows
                 : columns ? TensorSlice::Cut::columns
                           : TensorSlice::Cut::none,
          .parts = parts,
          .row = own.shape.back(),
          .whole_row = whole.shape.back()};
}

}  // namespace detail

/// The tensors of such parts.
/// @throws InputError  as tensor_part()
inline TensorSlices tensor_slices(const Transformer& model, int parts) {
  if (parts == 1) return {};
  const ParameterOrder part{tensor_part(model, parts)};
  const std::vector<ParameterTensor> whole = ParameterOrder{model}.tensors();
  const std::vector<ParameterTensor> own = part.tensors();
  std::vector<TensorSlice> slices;
  for (std::size_t i = 0; i < whole.size(); ++i) slices.push_back(detail::slice_of(whole[i], own[i], parts));
  return {part, parts, std::move(slices)};
}

/// The tensors of parts that have some of the experts of each layer each, whole, and a tensor-parallel rank's
/// part of all else.
/// @param parts  a multiple of `tensor`, whose ranks lie next to each other
/// @throws InputError  as tensor_part(), or if the parts cannot have equally many
inline TensorSlices expert_slices(const Transformer& model, int parts, int tensor = 1) {
  if (parts == 1) return {};
  if (model.experts % parts != 0) {
    throw InputError(concat("model ", quote(model.name), ": its ", model.experts, " experts are no multiple of ", parts,
                            " ranks; choose a divisor"));
  }
  const Transformer part = tensor_part(model, tensor, true);
  const ParameterOrder part_order{part};
  const std::vector<ParameterTensor> whole = ParameterOrder{model}.tensors();
  const std::vector<ParameterTensor> own = part_order.tensors();
  std::vector<TensorSlice> slices;
  std::int64_t at = 0;  // in the part
  const auto add = [&](TensorSlice slice) {
    const std::int64_t count = slice.part.count();
    slice.part = {at, at + count};
    slices.push_back(slice);
    at += count;
  };
  std::int64_t experts = 0;  // of those of a layer, so far
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const ParameterRange& range = whole[i].range;
    if (whole[i].name.find("feed_forward.experts.") != std::string::npos) {
      experts += range.count();
      continue;
    }
    if (experts > 0) {
      add({.whole = {range.begin - experts, range.begin},
           .part = {0, experts / parts},
           .cut = TensorSlice::Cut::rows,
           .parts = parts,
           .row = experts / parts,
           .whole_row = experts});
    }
    experts = 0;
    add(detail::slice_of(whole[i], own[i], tensor));
  }
  const ParameterBlocks blocks{{.first_edge = part.embedding_parameters(),
                                .layers = part.layers,
                                .layer = {part.layer_parameters() - part.layer_expert_parameters() / parts * (parts - 1), {}},
                                .last_edge = part.head_parameters(),
                                .tied = part.tied}};
  return {blocks, parts, std::move(slices)};
}

}  // namespace tawpipe
