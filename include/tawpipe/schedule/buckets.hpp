// The parameters of a stage in buckets of whole layers, whose messages overlap its computations.
// Not: the messages (schedule/detail/state_messages.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tawpipe/model/parameter_blocks.hpp"

namespace tawpipe::inline v0 {

/// Buckets of the size that Megatron-LM takes if none is given.
inline constexpr std::int64_t automatic_bucket = -1;

/// Parameters of a rank in a bucket: as given, or Megatron-LM's default for that many replicas.
/// Source: Megatron-LM, core/distributed/distributed_data_parallel.py: bucket_size.
constexpr std::int64_t bucket_size(std::int64_t given, int replicas) {
  return given == automatic_bucket ? std::max<std::int64_t>(40'000'000, std::int64_t{1'000'000} * replicas) : given;
}

/// Parameters that travel together.
struct LayerBucket {
  /// the first of the stage's layers in it; their number: it has what follows them
  std::int32_t layer = 0;
  std::vector<ParameterRange> ranges = {};
  std::int64_t edge_parameters = 0;  ///< of these, those of the model's edges
};

/// A stage's parameters in buckets, in the order in which a backward completes them: the last
/// layers first, with what follows them unless that fills a bucket; the first edge in the last
/// bucket, by itself where the layers before it fill theirs. A bucket is full when it has `least`
/// parameters, and ends with a layer: a larger layer is one bucket, where Megatron-LM goes on in the
/// middle of one.
/// @return fewer than two: nothing to cut
inline std::vector<LayerBucket> buckets_of(const ParameterBlocks& blocks, const StageWork& stage, std::int64_t least) {
  std::vector<LayerBucket> buckets;
  const std::int64_t layer = blocks.layers(std::max(0, stage.first_layer + stage.layers - 1), 1).count();
  const auto add_edge = [](LayerBucket& bucket, const ParameterRange& edge) {
    append(bucket.ranges, edge);
    bucket.edge_parameters += edge.count();
  };
  if (least < 1 || layer < 1) return buckets;
  const auto each =
      static_cast<std::int32_t>(std::min<std::int64_t>((least + layer - 1) / layer, std::int64_t{stage.layers} + 1));
  const bool own_edge = stage.last_edge && blocks.last_edge().count() >= least;
  if (own_edge) add_edge(buckets.emplace_back(LayerBucket{.layer = stage.layers}), blocks.last_edge());
  for (std::int32_t end = stage.layers; end > 0; end -= each) {
    const std::int32_t first = std::max(0, end - each);
    LayerBucket& bucket = buckets.emplace_back(LayerBucket{.layer = first});
    if (stage.first_edge && end < each) add_edge(bucket, blocks.first_edge());
    append(bucket.ranges, blocks.layers(stage.first_layer + first, end - first));
    if (end == stage.layers && stage.last_edge && !own_edge) add_edge(bucket, blocks.last_edge());
  }
  const bool edge_left = stage.first_edge && stage.layers % each == 0 && blocks.first_edge().count() > 0;
  if (edge_left) add_edge(buckets.emplace_back(), blocks.first_edge());
  return buckets;
}

}  // namespace tawpipe
