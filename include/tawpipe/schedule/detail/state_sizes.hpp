// Bytes of weights, gradients and optimizer states on one rank of a composition.
// Not: which of them travel (detail/state_messages.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/schedule/buckets.hpp"
#include "tawpipe/schedule/detail/composed_copies.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

class StateSizes {
 public:
  /// @param copies  say among how many ranks a parameter of a class is divided; the last part is
  /// padded
  StateSizes(const Schedule& logical, const Workload& workload, const ComposedCopies& copies)
      : logical_{logical}, workload_{workload}, copies_{copies} {
    if (copies.classes().size() > 1) blocks_ = workload.model().blocks();
  }

  /// Of ranges, those of a class; all of them where there is only one.
  std::vector<ParameterRange> part_of(std::span<const ParameterRange> ranges, ParameterClass of) const {
    if (copies_.classes().size() == 1) return {ranges.begin(), ranges.end()};
    return blocks_.part_of(ranges, of == ParameterClass::experts);
  }

  /// Bytes of a parameter's weight, gradient and states together.
  std::int64_t each() const {
    const ParameterBytes& sizes = workload_.parameter_bytes();
    return sizes.weight + sizes.gradient + sizes.optimizer;
  }
  /// Of that many logical parameters of a class.
  Bytes of_all(std::int64_t parameters, ParameterClass of) const { return Bytes{up(parameters * each(), of)}; }
  Bytes of(std::int64_t parameters, ContentKind kind, ParameterClass of_class = ParameterClass::dense) const {
    const ParameterBytes& sizes = workload_.parameter_bytes();
    const std::int64_t size = kind == ContentKind::weights     ? sizes.weight
                              : kind == ContentKind::gradients ? sizes.gradient
                                                               : sizes.optimizer;
    return Bytes{up(parameters * size, of_class)};
  }
  /// A rank's part of `bytes` of a set of parameters.
  Bytes part(Bytes bytes, std::span<const ParameterRange> ranges) const {
    if (copies_.classes().size() == 1 || ranges.empty()) return Bytes{up(bytes.value(), ParameterClass::dense)};
    const std::int64_t each = bytes.value() / parameters_in(ranges);
    Bytes sum;
    for (const ParameterClass of : copies_.classes()) sum += Bytes{up(each * parameters_in(part_of(ranges, of)), of)};
    return sum;
  }
  /// Of a logical buffer's whole content of a class, or of a bucket of it, as it is gathered or
  /// before it is summed.
  Bytes whole(const Content& content, const LayerBucket* bucket = nullptr,
              ParameterClass of_class = ParameterClass::dense) const {
    const std::int32_t stage = number(content.stage());
    const std::int64_t count = parameters_in(part_of(
        bucket != nullptr ? std::span<const ParameterRange>{bucket->ranges} : logical_.pieces(content.parameters()), of_class));
    if (content.kind() != ContentKind::weights || stage < 0) return of(count, content.kind(), of_class);
    StageWork part = logical_.stages()[static_cast<std::size_t>(stage)];
    if (bucket != nullptr) part.edge_parameters = bucket->edge_parameters;
    if (of_class == ParameterClass::experts) part.edge_parameters = 0;
    return Bytes{up(workload_.gathered_bytes(part, count).value(), of_class)};
  }

 private:
  std::int64_t up(std::int64_t whole, ParameterClass of) const {
    const int parts = copies_.parts(of);
    return (whole + parts - 1) / parts;
  }

  const Schedule& logical_;
  const Workload& workload_;
  const ComposedCopies& copies_;
  ParameterBlocks blocks_;
};

}  // namespace tawpipe::detail
