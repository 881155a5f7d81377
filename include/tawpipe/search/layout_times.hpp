// What searches of one problem know of its layouts, found once for all of them.
// Not: the bounds (search/layout_bound.hpp) and prices (search/detail/pipeline_price.hpp) that follow.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "tawpipe/search/detail/pipeline_price.hpp"
#include "tawpipe/search/detail/rank_classes.hpp"

namespace tawpipe::inline v0 {

namespace detail {
class PlanRounds;
}  // namespace detail

/// Times of a model's layers by how a layout's ranks share them, of collectives, and prices of pipelines.
/// Searches may share these, if their problems only differ in what they look at, or in what lies in host
/// memory.
class LayoutTimes {
  friend class LayoutBounds;
  friend class detail::PlanRounds;

  /// Picoseconds of the whole model and one microbatch on one rank of those that share it; of the
  /// update of its part.
  struct Times {
    double forward = 0;
    double backward = 0;
    double input = 0;   ///< of the backward, the gradients of inputs
    double shared = 0;  ///< forward and backward including waits between ranks that share layers
    double update = 0;
    /// bytes that it keeps for the microbatch, if all layers may be computed again
    double saved = 0;
    double kept = 0;  ///< if those that may not be are not
  };

  /// What the times follow from.
  using Key =
      std::tuple<int, int, int, bool, ContextExchange, int, int, Recompute, int, std::int64_t, int, std::vector<std::int32_t>>;

  std::map<Key, Times> known_;
  detail::CollectiveTimes collectives_;
  detail::PipelineCache pipelines_;
};

}  // namespace tawpipe
