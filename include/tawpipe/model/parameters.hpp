// One numbering of all parameters of a model, and which tensor each belongs to.
// Not: where a rank keeps them (schedule/task.hpp) nor their values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

/// Parameters `begin` .. `end` - 1 of a model's numbering.
struct ParameterRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - begin; }
  auto operator<=>(const ParameterRange&) const = default;
};

/// How many parameters ranges that do not overlap hold together.
inline std::int64_t parameters_in(std::span<const ParameterRange> ranges) {
  std::int64_t count = 0;
  for (const ParameterRange& range : ranges) count += range.count();
  return count;
}

/// Adds a range behind others: nothing if it is empty, joined with the last where it goes on from there. A list built so has as
/// few ranges as its order allows.
inline void append(std::vector<ParameterRange>& ranges, const ParameterRange& range) {
  if (range.count() == 0) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

/// One named tensor of a model.
struct ParameterTensor {
  std::string name;                 ///< e.g. "decoders.3.attention.wq.weight"
  std::vector<std::int64_t> shape;  ///< [out, in] of a matrix, [hidden] of a norm
  ParameterRange range;

  /// Matrices decay under AdamW, norms do not.
  bool decays() const { return shape.size() > 1; }
};

/// The order of a LLaMA decoder's parameters: embedding [vocab, hidden]; each layer's query [Q, H], key [K, H], value [K, H],
/// output [H, Q], gate [I, H], down [H, I], up [I, H], attention norm [H], feed-forward norm [H]; final norm [H]; output
/// matrix [vocab, hidden] unless it is the embedding's. Matrices are row-major [out, in]: y = x W^T.
/// Source of names and order: the reference decoder of arXiv:2511.09741 (wq wk wv wo w1 w2 w3).
class ParameterOrder {
 public:
  explicit ParameterOrder(const Transformer& model) : model_{model} {}

  ParameterRange embedding() const { return {0, model_.embedding_parameters()}; }
  /// `count` layers from `first` on.
  ParameterRange layers(std::int32_t first, std::int32_t count) const {
    const std::int64_t begin = model_.embedding_parameters() + first * model_.layer_parameters();
    return {begin, begin + count * model_.layer_parameters()};
  }
  ParameterRange final_norm() const {
    const std::int64_t begin = layers(0, model_.layers).end;
    return {begin, begin + model_.hidden};
  }
  /// The output matrix: the embedding where the model is tied.
  ParameterRange output() const {
    if (model_.tied) return embedding();
    const std::int64_t begin = final_norm().end;
    return {begin, begin + model_.embedding_parameters()};
  }
  std::int64_t count() const { return model_.parameters(); }

  /// What the decoder layers of a stage have; empty where it has no layer.
  std::vector<ParameterRange> layers_of(const StageWork& stage) const {
    if (stage.layers == 0) return {};
    return {layers(stage.first_layer, stage.layers)};
  }
  /// Embedding, layers, final norm and output matrix of a stage, as far as it has them, in this order:
  /// that of a buffer which holds them. A tied matrix stands once.
  std::vector<ParameterRange> all_of(const StageWork& stage) const {
    std::vector<ParameterRange> ranges;
    if (stage.embedding) ranges.push_back(embedding());
    for (const ParameterRange& range : layers_of(stage)) ranges.push_back(range);
    if (!stage.head) return ranges;
    ranges.push_back(final_norm());
    if (!model_.tied || !stage.embedding) ranges.push_back(output());
    return ranges;
  }

  /// All tensors in order. Complexity: O(layers).
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
      add(layer + "attention.wq.weight", {model_.query_width(), hidden});
      add(layer + "attention.wk.weight", {model_.key_width(), hidden});
      add(layer + "attention.wv.weight", {model_.key_width(), hidden});
      add(layer + "attention.wo.weight", {hidden, model_.query_width()});
      add(layer + "feed_forward.w1.weight", {model_.intermediate, hidden});
      add(layer + "feed_forward.w2.weight", {hidden, model_.intermediate});
      add(layer + "feed_forward.w3.weight", {model_.intermediate, hidden});
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
