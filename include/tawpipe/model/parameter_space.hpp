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
  /// The parameters of the stage's decoder layers.
  const std::vector<ParameterRange>& layers_of(int stage) const { return layers_[static_cast<std::size_t>(stage)]; }
  /// Those of its layers and of its embedding, final norm and output matrix, if any.
  const std::vector<ParameterRange>& all_of(int stage) const { return all_[static_cast<std::size_t>(stage)]; }
  /// The parameters of embedding, final norm and output matrix.
  const std::vector<ParameterRange>& edge() const { return edge_; }

 private:
  static std::vector<ParameterRange> joined(const std::vector<ParameterRange>& ranges);

  std::optional<ParameterBlocks> order_;
  std::int64_t count_ = 0;
  std::vector<std::vector<ParameterRange>> layers_;  ///< [stage]
  std::vector<std::vector<ParameterRange>> all_;     ///< [stage]
  std::vector<ParameterRange> edge_;
};

}  // namespace tawpipe

#if TAWPIPE_BODIES
namespace tawpipe::inline v0 {

TAWPIPE_INLINE ParameterSpace::ParameterSpace(const Workload& workload, std::span<const StageWork> stages) {
  if (!workload.is_abstract()) order_.emplace(workload.model().blocks());
  for (const StageWork& stage : stages) {
    const std::int64_t begin = count_;
    count_ += stage.parameters;
    const std::vector<ParameterRange> own{{begin, count_}};
    layers_.push_back(joined(order_ ? order_->layers_of(stage) : own));
    all_.push_back(joined(order_ ? order_->all_of(stage) : own));
  }
  if (!order_) return;
  count_ = order_->count();
  append(edge_, order_->embedding());
  append(edge_, order_->final_norm());
  if (order_->output() != order_->embedding()) append(edge_, order_->output());
}

TAWPIPE_INLINE std::vector<ParameterRange> ParameterSpace::joined(const std::vector<ParameterRange>& ranges) {
  std::vector<ParameterRange> joined;
  for (const ParameterRange& range : ranges) append(joined, range);
  return joined;
}

}  // namespace tawpipe
#endif
