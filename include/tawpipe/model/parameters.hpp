// The tensors of a LLaMA decoder in the numbering of its parameters.
// Not: the numbering of other models (model/parameter_blocks.hpp) nor values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

/// One named tensor of a model.
struct ParameterTensor {
  std::string name;                 ///< e.g. "decoders.3.attention.wq.weight"
  std::vector<std::int64_t> shape;  ///< [out, in] for a matrix, [hidden] for a norm
  ParameterRange range;

  /// AdamW's weight decay applies to matrices, not to norms.
  bool decays() const { return shape.size() > 1; }
};

/// The order of a LLaMA decoder's parameters: embedding [vocab, hidden]; each layer's query [Q, H],
/// key [K, H], value [K, H], output [H, Q], gate [I, H], down [H, I], up [I, H], attention norm
/// [H], feed-forward norm [H]; final norm [H]; output matrix [vocab, hidden] unless it is the
/// embedding's. With experts, in place of gate, down and up: router [E, H], the three of each
/// expert, those of the shared expert. With latent attention: queries down and up, keys and values
/// down and up, output, and before the other norms those of the short vectors. After all matrices
/// biases in their order, the shared expert's gate [1, H], and norms of queries and of keys, where
/// the model has them. Matrices are row-major [out, in]: y = x W^T.
/// Source of names and order: the reference decoder of arXiv:2511.09741 (wq wk wv wo w1 w2 w3).
class ParameterOrder : public ParameterBlocks {
 public:
  explicit ParameterOrder(const Transformer& model)
      : ParameterBlocks{{.first_edge = model.embedding_parameters(),
                         .layers = model.layers,
                         .layer = {model.layer_parameters(), {}},
                         .last_edge = model.head_parameters(),
                         .tied = model.tied,
                         .others = {{model.dense_layers > 0 ? model.of_dense_layers().layer_parameters() : 0, {}}},
                         .pattern = model.dense_layers > 0 ? model.decoder().pattern : LayerPattern{}}},
        model_{model} {}

  ParameterRange embedding() const { return first_edge(); }
  ParameterRange final_norm() const { return {last_edge().begin, last_edge().begin + model_.hidden}; }
  /// The output matrix: the embedding where the model is tied.
  ParameterRange output() const { return model_.tied ? first_edge() : ParameterRange{final_norm().end, last_edge().end}; }

  /// All tensors in order. Complexity: O(layers), with experts O(layers E).
  std::vector<ParameterTensor> tensors() const {
    const std::int64_t hidden = model_.hidden;
    std::vector<ParameterTensor> tensors;
    std::int64_t at = 0;
    const auto add = [&](std::string name, std::vector<std::int64_t> shape) {
      std::int64_t size = 1;
      for (const std::int64_t axis : shape) size *= axis;
      tensors.push_back({std::move(name), std::move(shape), {at, at + size}});
      at += size;
    };
    add("embedding.weight", {model_.vocab, hidden});
    for (int i = 0; i < model_.layers; ++i) {
      const std::string layer = concat("decoders.", i, ".");
      if (model_.is_latent()) {
        const bool short_queries = model_.query_rank > 0;
        if (short_queries) add(layer + "attention.wq_a.weight", {model_.query_rank, hidden});
        add(layer + (short_queries ? "attention.wq_b.weight" : "attention.wq.weight"),
            {model_.query_width(), model_.query_input()});
        add(layer + "attention.wkv_a.weight", {model_.key_value_rank + model_.rope_width, hidden});
        add(layer + "attention.wkv_b.weight", {model_.unturned_width() + model_.value_width(), model_.key_value_rank});
      } else {
        add(layer + "attention.wq.weight", {model_.query_width(), hidden});
        add(layer + "attention.wk.weight", {model_.key_width(), hidden});
        add(layer + "attention.wv.weight", {model_.key_width(), hidden});
      }
      add(layer + "attention.wo.weight", {hidden, model_.value_width()});
      const auto add_mlp = [&](const std::string& mlp, std::int64_t width) {
        add(mlp + "w1.weight", {width, hidden});
        add(mlp + "w2.weight", {hidden, width});
        if (model_.gated) add(mlp + "w3.weight", {width, hidden});
      };
      if (!model_.is_routed() || i < model_.dense_layers) {
        add_mlp(layer + "feed_forward.", model_.is_routed() ? model_.dense_width : model_.intermediate);
      } else {
        add(layer + "feed_forward.gate.weight", {model_.experts, hidden});
        for (int e = 0; e < model_.experts; ++e) add_mlp(concat(layer, "feed_forward.experts.", e, "."), model_.intermediate);
        if (model_.shared_width > 0) add_mlp(layer + "feed_forward.shared_experts.", model_.shared_width);
      }
      if (model_.qkv_bias) {
        add(layer + "attention.wq.bias", {model_.query_width()});
        add(layer + "attention.wk.bias", {model_.key_width()});
        add(layer + "attention.wv.bias", {model_.key_width()});
      }
      if (model_.output_bias) add(layer + "attention.wo.bias", {hidden});
      if (model_.mlp_bias) {
        add(layer + "feed_forward.w1.bias", {model_.intermediate});
        add(layer + "feed_forward.w2.bias", {hidden});
        if (model_.gated) add(layer + "feed_forward.w3.bias", {model_.intermediate});
      }
      if (model_.shared_gate && i >= model_.dense_layers) add(layer + "feed_forward.shared_gate.weight", {1, hidden});
      if (model_.qk_norm != QkNorm::none) {
        const bool of_head = model_.qk_norm == QkNorm::head;
        add(layer + "attention.q_norm.weight", {of_head ? model_.head_size() : model_.query_width()});
        add(layer + "attention.k_norm.weight", {of_head ? model_.head_size() : model_.key_width()});
      }
      if (model_.query_rank > 0) add(layer + "attention.q_norm.weight", {model_.query_rank});
      if (model_.is_latent()) add(layer + "attention.kv_norm.weight", {model_.key_value_rank});
      add(layer + "attention_norm.weight", {hidden});
      add(layer + "ffn_norm.weight", {hidden});
    }
    add("norm.weight", {hidden});
    if (!model_.tied) add("output.weight", {model_.vocab, hidden});
    return tensors;
  }

 private:
  Transformer model_;
};

}  // namespace tawpipe
