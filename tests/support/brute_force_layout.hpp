// How a schedule cuts and copies its model, read off its buffers and messages.
// Not: what its buffers hold (brute_force_contents.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace support {

/// Which copy of which rank of the logical schedule a rank is.
struct CopyMap {
  int tensor = 1;
  int context = 1;
  std::vector<tawpipe::MeshPlace> places;  ///< [rank]

  CopyMap(const tawpipe::Mesh& layout, int ranks) : tensor{layout.tensor}, context{layout.context} {
    const tawpipe::Mesh map = layout.over(ranks);
    for (int r = 0; r < ranks; ++r) places.push_back(map.place(tawpipe::Rank{r}));
  }
  const tawpipe::MeshPlace& of(tawpipe::Rank rank) const { return places[tawpipe::index(rank)]; }
};

/// Who has which weights, and the pieces in which collectives move them: a rank's share where one
/// ring spans all ranks; else a rail, a group whose messages carry a part of the stage.
class BruteLayout {
 public:
  static constexpr std::int64_t slack = 16;  ///< bytes lost where sizes are rounded

  BruteLayout(const tawpipe::Schedule& schedule, const CopyMap& map) : schedule_{schedule}, map_{map} {
    read_states();
    find_pieces();
  }

  int stages = 0;
  int embedding = 0;
  int head = 0;
  bool sharded = false;      ///< weights of no stage are shards of the whole model
  bool edge_copies = false;  ///< weights of no stage are copies of embedding and head
  bool tied = false;         ///< and embedding and head lie in two stages
  bool lent = false;         ///< the head uses the embedding's own weights
  bool on_one_rank = false;  ///< some rank has its own weights of both
  bool has_activations = false;
  std::map<std::vector<int>, int> rails;  ///< logical ranks -> piece
  bool striped = false;                   ///< point-to-point messages carry pieces of stages
  int pieces = 1;
  std::vector<std::set<int>> holds;  ///< [logical rank] pieces of its node's copy
  std::vector<std::set<int>> keeps;  ///< [logical rank] pieces of the one copy that all share

  const tawpipe::StageWork& stage(int s) const { return schedule_.stages()[static_cast<std::size_t>(s)]; }
  /// What a stage reads from its own weights.
  std::int64_t parameters(int s) const { return stage(s).parameters + (edge_copies ? 0 : stage(s).edge_parameters); }

  bool one_logical_rank(std::span<const tawpipe::Rank> members) const {
    return std::all_of(members.begin(), members.end(),
                       [&](auto rank) { return map_.of(rank).pipeline == map_.of(members[0]).pipeline; });
  }
  /// The logical ranks of a group whose messages carry a part of the stage; empty for others.
  std::vector<int> rail_of(const tawpipe::Task& task) const {
    const bool shared = task.op == Op::all_gather || task.op == Op::reduce_scatter || task.op == Op::all_reduce;
    if (!shared || number(task.stage) < 0) return {};
    if (task.payload != Payload::weights && task.payload != Payload::gradients) return {};
    const auto members = schedule_.group(task.group);
    const auto& sizes = schedule_.workload().parameter_bytes();
    const std::int64_t whole =
        parameters(number(task.stage)) * (task.payload == Payload::weights ? sizes.weight : sizes.gradient);
    if (task.bytes.value() + slack >= whole || (members.size() > 1 && one_logical_rank(members))) return {};
    std::vector<int> ranks;
    for (const auto rank : members) ranks.push_back(map_.of(rank).pipeline);
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  /// Whether a task carries a piece of its stage; of a collective, the piece that it takes from a
  /// member or leaves there.
  bool carries(const tawpipe::Task& task, tawpipe::Rank member, int piece) const {
    if (!striped || task.split == tawpipe::none<tawpipe::SplitId> || number(task.stage) < 0) return true;
    const auto split = schedule_.split(task.split);
    std::size_t at = 0;
    if (split.size() > 1) {
      const auto members = schedule_.group(task.group);
      at = static_cast<std::size_t>(std::find(members.begin(), members.end(), member) - members.begin());
    }
    // The parameter in the middle of the piece. Without a model stages are numbered one after
    // another.
    const tawpipe::Workload& workload = schedule_.workload();
    std::int64_t begin = 0;
    std::int64_t count = stage(number(task.stage)).parameters * map_.tensor;
    for (int s = 0; s < number(task.stage); ++s) begin += stage(s).parameters * map_.tensor;
    if (!workload.is_abstract()) {
      const auto layers = workload.model().blocks().layers_of(stage(number(task.stage)));
      begin = layers.empty() ? 0 : layers[0].begin;
      count = layers.empty() ? 0 : layers[0].count();
    }
    const std::int64_t middle = begin + count * (2 * piece + 1) / (2 * pieces);
    for (const auto& range : schedule_.pieces(split[at])) {
      if (range.begin <= middle && middle < range.end) return true;
    }
    return false;
  }

  /// Whether it has its own weights.
  bool owned(int s) const { return owned_[static_cast<std::size_t>(s)] != 0; }

  /// Of one copy of the schedule.
  std::size_t all_shards() const {
    std::size_t count = 0;
    for (const Buffer& buffer : schedule_.buffers()) {
      const tawpipe::MeshPlace& place = map_.of(buffer.rank);
      const bool here = place.tensor == 0 && place.context == 0 && place.data == 0;
      if (here && buffer.persistent && buffer.kind() == BufferKind::weights && number(buffer.stage()) < 0) ++count;
    }
    return count;
  }

 private:
  using Buffer = tawpipe::Buffer;
  using BufferKind = tawpipe::BufferKind;
  using Op = tawpipe::Op;
  using Payload = tawpipe::Payload;

  void read_states() {
    stages = static_cast<int>(schedule_.stages().size());
    owned_.resize(static_cast<std::size_t>(stages), 0);
    bool of_no_stage = false;
    for (const Buffer& buffer : schedule_.buffers()) {
      has_activations = has_activations || buffer.kind() == BufferKind::activations;
      if (!buffer.persistent || buffer.kind() != BufferKind::weights) continue;
      if (number(buffer.stage()) < 0) {
        of_no_stage = true;
      } else {
        owned_[index(buffer.stage())] = 1;
      }
    }
    for (int s = 0; s < stages; ++s) {
      if (stage(s).parameters > 0 && owned_[static_cast<std::size_t>(s)] == 0) sharded = true;
      if (stage(s).first_edge) embedding = s;
      if (stage(s).last_edge) head = s;
    }
    edge_copies = of_no_stage && !sharded;
    tied = !schedule_.workload().is_abstract() && schedule_.workload().model().tied && embedding != head;
    lent = tied && owned_[static_cast<std::size_t>(head)] == 0 && owned_[static_cast<std::size_t>(embedding)] != 0;
    std::set<tawpipe::Rank> with_embedding;
    for (const int end : {embedding, head}) {
      for (const Buffer& buffer : schedule_.buffers()) {
        if (!buffer.persistent || buffer.kind() != BufferKind::weights || number(buffer.stage()) != end) continue;
        if (end == head && with_embedding.contains(buffer.rank)) on_one_rank = true;
        if (end == embedding) with_embedding.insert(buffer.rank);
      }
    }
  }

  void find_pieces() {
    std::size_t logical = 0;
    for (const auto& place : map_.places) logical = std::max(logical, static_cast<std::size_t>(place.pipeline) + 1);
    std::vector<std::set<int>> kept(logical);
    for (const auto& task : schedule_.tasks()) {
      const std::vector<int> rail = rail_of(task);
      if (!rail.empty()) rails.try_emplace(rail, static_cast<int>(rails.size()));
    }
    holds.resize(logical);
    for (std::size_t r = 0; r < logical; ++r) {
      if (rails.empty()) holds[r].insert(static_cast<int>(r));
      for (const auto& [rail, piece] : rails) {
        if (std::find(rail.begin(), rail.end(), static_cast<int>(r)) != rail.end()) holds[r].insert(piece);
      }
    }
    pieces = static_cast<int>(rails.empty() ? logical : rails.size());
    bool cut = false;
    for (std::size_t s = 0; s < schedule_.parts().splits.size(); ++s) cut = cut || schedule_.parts().splits[s].size() > 1;
    for (const auto& task : schedule_.tasks()) {
      striped = striped || (cut && task.op == Op::pass && task.split != tawpipe::none<tawpipe::SplitId>);
    }
    if (striped) pieces = 1;
    for (std::size_t s = 0; striped && s < schedule_.parts().splits.size(); ++s) {
      pieces = std::lcm(pieces, static_cast<int>(schedule_.split(tawpipe::id<tawpipe::SplitId>(s)).size()));
    }
    for (std::size_t t = 0; t < schedule_.tasks().size(); ++t) {
      const auto& task = schedule_.tasks()[t];
      const std::vector<int> rail = rail_of(task);
      if (rail.empty() || task.payload != Payload::gradients) continue;
      for (const tawpipe::Use& use : schedule_.uses(tawpipe::id<tawpipe::TaskId>(t))) {
        const auto rank = static_cast<std::size_t>(map_.of(schedule_.buffer(use.buffer).rank).pipeline);
        if (use.access != tawpipe::Access::read) kept[rank].insert(rails.at(rail));
      }
    }
    keeps = rails.empty() ? holds : kept;
  }

  const tawpipe::Schedule& schedule_;
  const CopyMap& map_;
  std::vector<char> owned_;  ///< [stage]
};

}  // namespace support
