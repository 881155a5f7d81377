// What every buffer of a schedule holds, spelled out: whose gradients, which shards, whose
// activations, in plain sets; and the task that runs.
// Not: what tasks do to them (brute_force_contents.hpp).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "support/brute_force_layout.hpp"
#include "support/graph_order.hpp"
#include "tawpipe/schedule/parameter_map.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace support {

/// The updates of a buffer of weights: several, if each has a piece of their states.
struct UpdateSeries {
  int updates = 0;
  std::int64_t bytes = 0;  ///< that they touch
  std::int64_t done = 0;
  std::int64_t padding = 0;  ///< of all shards of what they are a shard of
};

/// [buffer] those of weights
inline std::vector<UpdateSeries> update_series(const tawpipe::Schedule& schedule) {
  std::vector<UpdateSeries> series(schedule.buffers().size());
  for (std::size_t i = 0; i < schedule.tasks().size(); ++i) {
    if (schedule.tasks()[i].op != tawpipe::Op::update) continue;
    for (const tawpipe::Use& use : schedule.uses(tawpipe::id<tawpipe::TaskId>(i))) {
      const bool weights = schedule.buffer(use.buffer).kind() == tawpipe::BufferKind::weights;
      if (use.access == tawpipe::Access::read || !weights) continue;
      UpdateSeries& one = series[static_cast<std::size_t>(use.buffer)];
      ++one.updates;
      one.bytes += schedule.tasks()[i].bytes.value();
    }
  }
  std::map<tawpipe::StageId, tawpipe::ParameterMap<char>> padding;
  for (const tawpipe::Buffer& buffer : schedule.buffers()) {
    if (buffer.content.kind() != tawpipe::ContentKind::optimizer_state || buffer.content.is_slot()) continue;
    for (const tawpipe::ParameterRange& range : schedule.pieces(buffer.content.parameters())) {
      if (schedule.is_padding(range)) padding[buffer.stage()].set(range, 1);
    }
  }
  for (std::size_t b = 0; b < series.size(); ++b) {
    for (const auto& piece : padding[schedule.buffers()[b].stage()].pieces()) series[b].padding += piece.range.count();
  }
  return series;
}

/// Sets of labels.
///
/// A gradient is a count for each (parameters, microbatch, piece, tensor rank, context rank).
/// Pieces are what collectives leave with one rank: a rank's share where one ring spans all ranks;
/// else a rail, a group whose messages carry a part of the stage; or the parts into which a stage
/// is cut for its point-to-point messages. Weights are the persistent buffers from which they came,
/// by such parts. Activations are (direction, stage, microbatch, context rank) and which tensor-
/// and context-parallel ranks' parts they contain.
class BruteState {
 protected:
  using Access = tawpipe::Access;
  using Buffer = tawpipe::Buffer;
  using BufferKind = tawpipe::BufferKind;
  using Op = tawpipe::Op;
  using Payload = tawpipe::Payload;
  using Use = tawpipe::Use;
  static constexpr int embedding_gradient = -2;
  static constexpr int head_gradient = -3;
  static constexpr std::int64_t slack = BruteLayout::slack;

  struct Summand {
    int parameters;  ///< a stage's layers, or embedding_gradient, head_gradient
    int microbatch;
    int piece;
    int tensor;
    int context;
    auto operator<=>(const Summand&) const = default;
  };
  struct Origin {
    std::size_t buffer;
    int stage;  ///< whose weights; -1: of no one stage
    bool updated;
    int piece = 0;  ///< where stages are cut for point-to-point messages
    auto operator<=>(const Origin&) const = default;
  };
  struct Activation {
    bool forward;
    int stage;
    int microbatch;
    int context;
    auto operator<=>(const Activation&) const = default;
  };
  struct Content {
    bool written = false;
    std::map<Summand, int> gradient;
    std::map<Origin, std::int64_t> weights;  ///< bytes of each
    std::set<Activation> activations;
    std::map<std::size_t, bool> states;  ///< of the optimizer: of which buffer, whether updated
  };

  BruteState(const tawpipe::Schedule& schedule, const CopyMap& map) : schedule_{schedule}, map_{map}, layout_{schedule, map} {
    for (std::size_t b = 0; b < schedule.buffers().size(); ++b) contents_.push_back(at_start(b));
  }

  Content at_start(std::size_t b) const {
    const Buffer& buffer = schedule_.buffers()[b];
    Content content;
    content.written = buffer.kind() == BufferKind::workspace || (buffer.persistent && buffer.kind() != BufferKind::transfer);
    if (buffer.persistent && buffer.kind() == BufferKind::weights) {
      const int pieces = layout_.striped && number(buffer.stage()) >= 0 ? layout_.pieces : 1;
      for (int p = 0; p < pieces; ++p) content.weights[{b, number(buffer.stage()), false, p}] = buffer.bytes.value() / pieces;
    }
    if (buffer.persistent && buffer.kind() == BufferKind::optimizer) content.states[b] = false;
    return content;
  }

  void report(const std::string& what) {
    if (found_.size() < 10) found_.push_back(describe(schedule_, task_) + " " + what);
  }
  const tawpipe::Task& task() const { return schedule_.tasks()[task_]; }
  Payload payload() const { return task().payload; }
  std::span<const Use> uses() const { return schedule_.uses(tawpipe::id<tawpipe::TaskId>(task_)); }
  const Buffer& buffer(const Use& use) const { return schedule_.buffer(use.buffer); }
  Content& at(const Use& use) { return contents_[index(use.buffer)]; }
  static bool takes(Access access) { return access == Access::read || access == Access::read_write; }
  static bool is_gradient(const Buffer& buffer) {
    return buffer.kind() == BufferKind::gradients || buffer.kind() == BufferKind::transfer;
  }
  /// What of a content the task takes from a rank.
  Content part_of(Content content, tawpipe::Rank rank) const {
    if (!layout_.striped || task().split == tawpipe::none<tawpipe::SplitId>) return content;
    std::erase_if(content.weights, [&](const auto& entry) { return !layout_.carries(task(), rank, entry.first.piece); });
    std::erase_if(content.gradient, [&](const auto& entry) { return !layout_.carries(task(), rank, entry.first.piece); });
    return content;
  }
  static void add(std::map<Summand, int>& to, const std::map<Summand, int>& from) {
    for (const auto& [summand, count] : from) to[summand] += count;
  }

  const tawpipe::Schedule& schedule_;
  const CopyMap& map_;
  BruteLayout layout_;
  std::size_t task_ = 0;  ///< that runs
  std::vector<Content> contents_;
  std::vector<std::string> found_;
};

}  // namespace support
