// Ranges of a model's parameters, and those of each part of the model, in a common numbering and by
// name.
// Not: the tensors in them (model/parameters.hpp) nor where a rank keeps them (schedule/task.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
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

/// Where ranks share parameters out, each part begins at a multiple of so many numbers: 16 bytes of
/// the narrowest, which kernels load at once.
/// Source: PyTorch, distributed/fsdp/_flat_param.py, _get_aligned_numel.
inline constexpr std::int64_t parameter_pack = 8;

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

/// A named run of parameters.
struct ParameterBlock {
  std::string name;
  std::int64_t count = 0;

  bool operator==(const ParameterBlock&) const = default;
};

/// The names of a model's parameters, in the order of their numbering. An edge without blocks is a
/// single one, named for what it is.
struct ParameterNames {
  std::vector<ParameterBlock> first_edge = {};
  std::string layer = "layer";  ///< layer i is "layer.i"
  std::vector<ParameterBlock> last_edge = {};

  bool operator==(const ParameterNames&) const = default;
};

/// A model's parameters as opaque, named blocks, in this order: its first edge (before the layers),
/// each layer, its last edge (after them). A block may be empty; its contents are known to the
/// model's author and to the code that computes its stages.
class ParameterBlocks {
 public:
  /// Those of a kind of layers.
  struct Layer {
    std::int64_t count = 0;       ///< of one layer
    ParameterRange experts = {};  ///< of these, those of its experts
  };
  /// The number of parameters in each part.
  struct Sizes {
    std::int64_t first_edge = 0;
    std::int32_t layers = 0;  ///< number of layers
    Layer layer = {};         ///< kind 0
    std::int64_t last_edge = 0;
    ParameterRange last_edge_experts = {};  ///< of these, those of experts
    bool tied = false;                      ///< the first edge's parameters also serve the last edge
    std::vector<Layer> others = {};         ///< kinds 1, 2 and so on
    LayerPattern pattern = {};              ///< the kind of each layer; empty: all are `layer`
  };

  ParameterBlocks() = default;
  explicit ParameterBlocks(Sizes sizes, ParameterNames names = {}) : sizes_{std::move(sizes)}, names_{std::move(names)} {
    std::int64_t at = sizes_.first_edge;
    for (std::int32_t layer = 0; !sizes_.pattern.empty() && layer <= sizes_.layers; ++layer) {
      begins_.push_back(at);
      if (layer < sizes_.layers) at += kind_of(layer).count;
    }
  }

  ParameterRange first_edge() const { return {0, sizes_.first_edge}; }
  /// `count` layers from `first` on.
  ParameterRange layers(std::int32_t first, std::int32_t count) const { return {layer_begin(first), layer_begin(first + count)}; }
  /// The last edge's own: where it is tied, it also uses the first edge's.
  ParameterRange last_edge() const {
    const std::int64_t begin = layers(0, sizes_.layers).end;
    return {begin, begin + sizes_.last_edge};
  }
  /// The parameters of all blocks.
  std::int64_t count() const { return last_edge().end; }
  /// Whether a stage computes with the first edge's parameters.
  bool uses_first_edge(const StageWork& stage) const { return stage.first_edge || (stage.last_edge && sizes_.tied); }

  /// The parameters of a stage's layers; empty if it has none.
  std::vector<ParameterRange> layers_of(const StageWork& stage) const {
    if (stage.layers == 0) return {};
    return {layers(stage.first_layer, stage.layers)};
  }
  /// The first edge, layers and last edge that a stage has, in this order, as in a buffer of them;
  /// after these, what it uses of another stage's edge.
  std::vector<ParameterRange> all_of(const StageWork& stage) const {
    std::vector<ParameterRange> ranges;
    if (stage.first_edge) ranges.push_back(first_edge());
    for (const ParameterRange& range : layers_of(stage)) ranges.push_back(range);
    if (stage.last_edge) ranges.push_back(last_edge());
    if (!stage.first_edge && uses_first_edge(stage)) ranges.push_back(first_edge());
    return ranges;
  }

  /// Of ranges, in their order, the parameters of experts; or all others. Complexity: O(layers).
  std::vector<ParameterRange> part_of(std::span<const ParameterRange> ranges, bool experts) const;

  /// Its blocks in words: "layer.3", "embedding to layer.2", "part of layer.0".
  /// @pre 0 <= range.begin < range.end <= count()
  std::string name(const ParameterRange& range) const;

 private:
  struct Named {
    std::string name;
    ParameterRange range;
  };
  /// The block that a parameter is in.
  Named block_at(std::int64_t parameter) const;
  static Named block_in(const std::vector<ParameterBlock>& blocks, const ParameterRange& edge, std::int64_t parameter,
                        std::string_view otherwise);

  std::int64_t layer_begin(std::int32_t layer) const {
    return begins_.empty() ? sizes_.first_edge + layer * sizes_.layer.count : begins_[static_cast<std::size_t>(layer)];
  }
  const Layer& kind_of(std::int32_t layer) const {
    const std::uint8_t kind = sizes_.pattern.empty() ? std::uint8_t{0} : sizes_.pattern[static_cast<std::size_t>(layer)];
    return kind == 0 ? sizes_.layer : sizes_.others[kind - 1U];
  }
  /// The layer that a parameter is in. @pre it is of a layer
  std::int32_t layer_of(std::int64_t parameter) const {
    if (begins_.empty()) return static_cast<std::int32_t>((parameter - sizes_.first_edge) / sizes_.layer.count);
    return static_cast<std::int32_t>(std::upper_bound(begins_.begin(), begins_.end(), parameter) - begins_.begin() - 1);
  }

  Sizes sizes_;
  std::vector<std::int64_t> begins_ = {};  ///< [layer] where it begins, and the end; empty: layers are equal
  ParameterNames names_;
};

inline std::string ParameterBlocks::name(const ParameterRange& range) const {
  const Named first = block_at(range.begin);
  const Named last = block_at(range.end - 1);
  const bool begins = first.range.begin == range.begin;
  const bool ends = last.range.end == range.end;
  if (first.range == last.range) return concat(begins && ends ? "" : "part of ", first.name);
  return concat(begins ? "" : "part of ", first.name, " to ", ends ? "" : "part of ", last.name);
}

inline std::vector<ParameterRange> ParameterBlocks::part_of(std::span<const ParameterRange> ranges, bool experts) const {
  std::vector<ParameterRange> part;
  for (const ParameterRange& range : ranges) {
    std::int64_t at = range.begin;
    const auto to = [&](std::int64_t end, bool take) {
      end = std::min(end, range.end);
      if (at < end && take) append(part, {at, end});
      at = std::max(at, end);
    };
    to(sizes_.first_edge, !experts);
    const std::int64_t last = last_edge().begin;
    while (at < range.end && at < last) {
      const std::int32_t layer = layer_of(at);
      const std::int64_t begin = layer_begin(layer);
      to(begin + kind_of(layer).experts.begin, !experts);
      to(begin + kind_of(layer).experts.end, experts);
      to(begin + kind_of(layer).count, !experts);
    }
    to(last + sizes_.last_edge_experts.begin, !experts);
    to(last + sizes_.last_edge_experts.end, experts);
    to(range.end, !experts);
  }
  return part;
}

inline ParameterBlocks::Named ParameterBlocks::block_at(std::int64_t parameter) const {
  if (parameter < first_edge().end) return block_in(names_.first_edge, first_edge(), parameter, "first edge");
  if (parameter >= last_edge().begin) return block_in(names_.last_edge, last_edge(), parameter, "last edge");
  const std::int32_t layer = layer_of(parameter);
  return {concat(names_.layer, ".", layer), layers(layer, 1)};
}

inline ParameterBlocks::Named ParameterBlocks::block_in(const std::vector<ParameterBlock>& blocks, const ParameterRange& edge,
                                                        std::int64_t parameter, std::string_view otherwise) {
  std::int64_t begin = edge.begin;
  for (const ParameterBlock& block : blocks) {
    if (parameter < begin + block.count) return {block.name, {begin, begin + block.count}};
    begin += block.count;
  }
  return {std::string{otherwise}, {begin, edge.end}};
}

}  // namespace tawpipe
