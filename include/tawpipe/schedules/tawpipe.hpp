// TawPipe: device-bound shards, broadcast inside a group, one point-to-point copy to each other
// group.
// Not: the ring of WeiPipe (schedules/weipipe.hpp).
#pragma once

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/tawpipe_options.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0::schedules {

/// TawPipe: each shard has a fixed owner, assigned so that every rank owns one (as far as
/// possible); a shard reaches each group once, by one point-to-point copy to a staging rank, and is
/// broadcast inside the group; gradients are reduced in the group and sent to the owner.
///
/// Striped, a shard and its gradient are sent between two groups in one piece for each member, over
/// all adapters concurrently.
///
/// Microbatch u * ranks + r runs on rank r in round u; a last round may be short. With speeds a
/// rank runs several microbatches of a round, applying each shard to all of them in one step
/// (MicrobatchShares).
/// @param nodes  the groups, unless an option says otherwise
/// @throws InputError  if an option is out of range.
/// Source: arXiv:2511.09741, sections on device-bound storage, the group-based weight pipeline
/// scheduler and communication-computation overlap.
TAWPIPE_INLINE Schedule tawpipe(const Workload& workload, const DeviceGroups& nodes, const TawpipeOptions& options = {});

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include "tawpipe/schedules/detail/tawpipe_builder.hpp"

namespace tawpipe::inline v0::schedules {

TAWPIPE_INLINE Schedule tawpipe(const Workload& workload, const DeviceGroups& nodes, const TawpipeOptions& options) {
  check_options("tawpipe", options);
  const DeviceGroups groups = options.groups.of(nodes);
  TawpipeOptions chosen = options;
  chosen.shards = options.shards.resolved(workload, groups.ranks());
  if (!chosen.stripe) chosen.stripe = options.own_adapters && options.overlap && options.cache.is_off();
  if (chosen.speeds.known) chosen.speeds = options.device_speeds;
  check_tasks("shards", chosen.shards.count, 2.0 * chosen.shards.count * static_cast<double>(workload.microbatches()), workload,
              groups.ranks());
  return detail::TawpipeBuilder{workload, groups, chosen}.build();
}

}  // namespace tawpipe::schedules
#endif
