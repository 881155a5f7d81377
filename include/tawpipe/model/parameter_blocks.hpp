// Ranges of a model's parameters, and those of each part of the model, in a common numbering.
// Not: the tensors in them (model/parameters.hpp) nor where a rank keeps them (schedule/task.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/model/stage_work.hpp"

namespace tawpipe::inline v0 {

/// Parameters `begin` .. `end` - 1 in a model's numbering.
struct ParameterRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - begin; }
  auto operator<=>(const ParameterRange&) const = default;
};

/// The number of parameters in ranges that do not overlap.
inline std::int64_t parameters_in(std::span<const ParameterRange> ranges) {
  std::int64_t count = 0;
  for (const ParameterRange& range : ranges) count += range.count();
  return count;
}

/// Appends a range: nothing if it is empty, merged with the last if it continues that. A list built
/// this way has as few ranges as its order allows.
inline void append(std::vector<ParameterRange>& ranges, const ParameterRange& range) {
  if (range.count() == 0) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

/// A model's parameters as opaque blocks, in this order: embedding, each layer, final norm, output
/// matrix. A block may be empty; its contents are known to the model's author and to the code that
/// computes its stages.
class ParameterBlocks {
 public:
  /// The number of parameters in each block.
  struct Sizes {
    std::int64_t embedding = 0;
    std::int32_t layers = 0;  ///< number of layers
    std::int64_t layer = 0;   ///< of each
    std::int64_t final_norm = 0;
    std::int64_t output = 0;
    bool tied = false;  ///< the embedding also serves as output matrix; `output` does not count
  };

  ParameterBlocks() = default;
  explicit ParameterBlocks(const Sizes& sizes) : sizes_{sizes} {}

  ParameterRange embedding() const { return {0, sizes_.embedding}; }
  /// `count` layers from `first` on.
  ParameterRange layers(std::int32_t first, std::int32_t count) const {
    const std::int64_t begin = sizes_.embedding + first * sizes_.layer;
    return {begin, begin + count * sizes_.layer};
  }
  ParameterRange final_norm() const {
    const std::int64_t begin = layers(0, sizes_.layers).end;
    return {begin, begin + sizes_.final_norm};
  }
  /// The output matrix: the embedding where the model is tied.
  ParameterRange output() const {
    if (sizes_.tied) return embedding();
    const std::int64_t begin = final_norm().end;
    return {begin, begin + sizes_.output};
  }
  /// The parameters of all blocks.
  std::int64_t count() const { return final_norm().end + (sizes_.tied ? 0 : sizes_.output); }

  /// The parameters of a stage's layers; empty if it has none.
  std::vector<ParameterRange> layers_of(const StageWork& stage) const {
    if (stage.layers == 0) return {};
    return {layers(stage.first_layer, stage.layers)};
  }
  /// Embedding, layers, final norm and output matrix of a stage, those that it has, in this order,
  /// which is also that of a buffer with them. A tied matrix occurs once.
  std::vector<ParameterRange> all_of(const StageWork& stage) const {
    std::vector<ParameterRange> ranges;
    if (stage.embedding) ranges.push_back(embedding());
    for (const ParameterRange& range : layers_of(stage)) ranges.push_back(range);
    if (!stage.head) return ranges;
    ranges.push_back(final_norm());
    if (!sizes_.tied || !stage.embedding) ranges.push_back(output());
    return ranges;
  }

 private:
  Sizes sizes_;
};

}  // namespace tawpipe
