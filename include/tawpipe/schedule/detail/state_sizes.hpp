// Bytes of weights, gradients and optimizer states on one of a composition's tensor-parallel ranks.
// Not: which of them travel (detail/state_messages.hpp).
#pragma once

#include <cstdint>
#include <span>

#include "tawpipe/schedule/buckets.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

class StateSizes {
 public:
  /// @param tensor  ranks that share each parameter's matrix; the last part is padded
  StateSizes(const Schedule& logical, const Workload& workload, int tensor)
      : logical_{logical}, workload_{workload}, tensor_{tensor} {}

  /// Bytes of a parameter's weight, gradient and states together.
  std::int64_t each() const {
    const ParameterBytes& sizes = workload_.parameter_bytes();
    return sizes.weight + sizes.gradient + sizes.optimizer;
  }
  /// Of that many logical parameters.
  Bytes of_all(std::int64_t parameters) const { return Bytes{up(parameters * each())}; }
  Bytes of(std::int64_t parameters, ContentKind kind) const {
    const ParameterBytes& sizes = workload_.parameter_bytes();
    const std::int64_t size = kind == ContentKind::weights     ? sizes.weight
                              : kind == ContentKind::gradients ? sizes.gradient
                                                               : sizes.optimizer;
    return Bytes{up(parameters * size)};
  }
  /// Of a logical buffer's whole content, or of a bucket of it, as it is gathered or before it is
  /// summed.
  Bytes whole(const Content& content, const LayerBucket* bucket = nullptr) const {
    const std::int32_t stage = number(content.stage());
    const std::int64_t count = parameters_in(bucket != nullptr ? std::span<const ParameterRange>{bucket->ranges}
                                                               : logical_.pieces(content.parameters()));
    if (content.kind() != ContentKind::weights || stage < 0) return of(count, content.kind());
    StageWork part = logical_.stages()[static_cast<std::size_t>(stage)];
    if (bucket != nullptr) part.edge_parameters = bucket->edge_parameters;
    return Bytes{up(workload_.gathered_bytes(part, count).value())};
  }

 private:
  std::int64_t up(std::int64_t whole) const { return (whole + tensor_ - 1) / tensor_; }

  const Schedule& logical_;
  const Workload& workload_;
  int tensor_;
};

}  // namespace tawpipe::detail
