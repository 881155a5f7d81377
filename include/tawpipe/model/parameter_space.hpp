// The parameters of each stage of a workload, in a common numbering.
// Not: the blocks of a whole model (model/parameter_blocks.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/model/workload.hpp"

namespace tawpipe::inline v0 {

/// The parameters of stages as ordered ranges that do not touch. Without a model they are numbered
/// stage by stage.
class ParameterSpace {
 public:
  ParameterSpace() = default;
  ParameterSpace(const Workload& workload, std::span<const StageWork> stages);

  /// The parameters of the whole model.
  std::int64_t count() const { return count_; }
  /// The parameters of the stage's layers.
  const std::vector<ParameterRange>& layers_of(int stage) const { return layers_[static_cast<std::size_t>(stage)]; }
  /// Those of its layers and of the edges that it has, if any.
  const std::vector<ParameterRange>& all_of(int stage) const { return all_[static_cast<std::size_t>(stage)]; }
  /// The parameters of both edges.
  const std::vector<ParameterRange>& edge() const { return edge_; }

 private:
  static std::vector<ParameterRange> joined(const std::vector<ParameterRange>& ranges);

  std::int64_t count_ = 0;
  std::vector<std::vector<ParameterRange>> layers_;  ///< [stage]
  std::vector<std::vector<ParameterRange>> all_;     ///< [stage]
  std::vector<ParameterRange> edge_;
};

}  // namespace tawpipe

#if TAWPIPE_BODIES
namespace tawpipe::inline v0 {

TAWPIPE_INLINE ParameterSpace::ParameterSpace(const Workload& workload, std::span<const StageWork> stages) {
  std::optional<ParameterBlocks> blocks;
  if (!workload.is_abstract()) blocks.emplace(workload.model().blocks());
  for (const StageWork& stage : stages) {
    const std::int64_t begin = count_;
    count_ += stage.parameters;
    const std::vector<ParameterRange> own{{begin, count_}};
    layers_.push_back(joined(blocks ? blocks->layers_of(stage) : own));
    all_.push_back(joined(blocks ? blocks->all_of(stage) : own));
  }
  if (!blocks) return;
  count_ = blocks->count();
  append(edge_, blocks->first_edge());
  append(edge_, blocks->last_edge());
}

TAWPIPE_INLINE std::vector<ParameterRange> ParameterSpace::joined(const std::vector<ParameterRange>& ranges) {
  std::vector<ParameterRange> joined;
  for (const ParameterRange& range : ranges) append(joined, range);
  return joined;
}

}  // namespace tawpipe
#endif
