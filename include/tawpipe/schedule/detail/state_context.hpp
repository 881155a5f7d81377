// What sums and gathers of model states share while they are added to a composition.
// Not: the messages (detail/state_sums.hpp, detail/state_gathers.hpp).
#pragma once

#include <cstddef>
#include <vector>

#include "tawpipe/schedule/detail/composed_copies.hpp"
#include "tawpipe/schedule/detail/state_buckets.hpp"
#include "tawpipe/schedule/detail/state_records.hpp"
#include "tawpipe/schedule/detail/state_sizes.hpp"
#include "tawpipe/schedule/detail/update_shards.hpp"
#include "tawpipe/schedule/early_messages.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

namespace tawpipe::inline v0::detail {

/// The composition, what its ranks keep, and the buffers of what they do not.
class StateContext {
 public:
  /// @param set_pieces  [logical set] the builder's sets, filled before the first message
  StateContext(const Schedule& of, ScheduleBuilder& to, const ComposedCopies& all, const std::vector<PiecesId>& set_pieces,
               const StateTravel& travel, const EarlyMessages& early)
      : logical{of},
        builder{to},
        copies{all},
        pieces{set_pieces},
        sizes{logical, builder.workload(), copies},
        buckets{logical, early, travel},
        shards{logical, builder, copies, sizes, travel.sharding, buckets},
        whole(logical.buffers().size()) {}
  StateContext(const StateContext&) = delete;
  StateContext& operator=(const StateContext&) = delete;

  static BufferId at(BufferId first, int copy) { return id<BufferId>(index(first) + static_cast<std::size_t>(copy)); }
  BufferId used(TaskId update, ContentKind kind) const { return buffer_of(logical, update, kind); }
  const std::vector<LayerBucket>& buckets_of(BufferId buffer) const {
    return buckets.of(logical.buffer(buffer).content.parameters());
  }
  /// A buffer of each copy with the whole content of a logical one.
  BufferId add_whole(BufferId buffer) {
    const Content& content = logical.buffer(buffer).content;
    const Content all{content.kind(), content.stage(), pieces[index(content.parameters())]};
    Bytes bytes;
    for (const ParameterClass of : copies.classes()) bytes += sizes.whole(content, nullptr, of);
    const BufferId first = id<BufferId>(builder.buffers().size());
    for (int copy = 0; copy < copies.count(); ++copy) {
      builder.transient(number(copies.real(logical.buffer(buffer).rank, copy)), all, bytes);
    }
    return first;
  }

  const Schedule& logical;
  ScheduleBuilder& builder;
  const ComposedCopies& copies;
  const std::vector<PiecesId>& pieces;  ///< [logical set]
  StateSizes sizes;
  StateBuckets buckets;
  UpdateShards shards;
  std::vector<WholeState> whole;  ///< [logical buffer]
};

}  // namespace tawpipe::detail
