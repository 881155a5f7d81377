// What TawPipe can be told.
// Not: the schedule itself (schedule/schedules/tawpipe.hpp).
#pragma once

#include <string>
#include <vector>

#include "tawpipe/core/units.hpp"
#include "tawpipe/schedule/schedules/common.hpp"
#include "tawpipe/schedule/schedules/node_cache.hpp"

namespace tawpipe::inline v0::schedules {

/// When a group fetches its next shard. Without prefetching it does so after its computation; gradients travel beside it.
enum class Prefetch {
  off,
  backward,  ///< ahead for backward steps alone, as PyTorch's FSDP is set by default (BACKWARD_PRE, no forward prefetch)
  on,        ///< during the step before, always
};

inline std::string text(Prefetch prefetch) {
  return prefetch == Prefetch::on ? "on" : prefetch == Prefetch::backward ? "backward" : "off";
}

struct TawpipeOptions {
  Order order = Order::eager;
  bool overlap = true;  ///< off: in a group, communication and computation take turns
  Prefetch prefetch = Prefetch::on;
  int buffers = 2;               ///< shards a device can hold beside its own: one computed with, the others on their way
  int shards = 0;                ///< pieces the model is cut into; 0: one a rank, or one a layer where there are fewer layers
  bool stripe = false;           ///< shards cross between groups in pieces, one over each device's adapter; not with a cache
  std::vector<double> speeds{};  ///< of each group or rank: the faster, the more microbatches in a round; empty: one each
  NodeCache cache{};             ///< shards of other groups that a group keeps once it has fetched them
  Bytes device_memory{};         ///< of the smallest device; only NodeCache::Limit::fit asks
};

}  // namespace tawpipe::schedules
