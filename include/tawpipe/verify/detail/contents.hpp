// What a buffer holds while a schedule is run on symbols: weights, sums of gradients, activations, by their labels.
// Not: the walk over the tasks (verify/check_contents.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/splitmix64.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

enum class Holds : std::uint8_t { nothing, any, weights, gradient, forward_output, backward_output, stash };

/// What an activation still lacks after the computation that made it, of its own tensor- and context-parallel ranks.
enum Lacks : std::uint8_t {
  lacks_nothing = 0,
  lacks_sum = 1,            ///< over the tensor-parallel ranks
  lacks_keys = 2,           ///< and values, gathered from the context-parallel ranks
  lacks_key_gradients = 4,  ///< scattered to them
};

/// The symbol in a buffer.
struct Held {
  Holds holds = Holds::nothing;
  bool updated = false;            ///< weights: after their update
  bool saved = false;              ///< activations: a backward_input has read them as its forward's
  bool used = false;               ///< activations: any backward has
  bool finished = false;           ///< activations: its backward_weight has
  std::uint8_t backward = 0;       ///< a forward's: bits of Lacks that its backward has exchanged through them
  std::uint8_t lacks = 0;          ///< activations: bits of Lacks
  bool scattered = false;          ///< gradient: summed in one piece only, by a reduce-scatter in place
  std::int32_t stage = -1;         ///< of weights (-1: a shard or copy of no one stage) and activations
  std::int32_t microbatch = -1;    ///< of activations
  std::int32_t tensor = 0;         ///< weights and activations: of which tensor-parallel rank
  std::int32_t context = 0;        ///< activations: of which context-parallel rank
  std::int32_t pieces = 0;         ///< weights: which owners' pieces, an index into PieceSets
  std::int32_t part = 0;           ///< the parameters it has of a stage cut into pieces (ParameterSets); 0: not cut
  std::int32_t contributions = 0;  ///< gradient: how many microbatches' of stages, for messages
  std::uint64_t sum = 0;           ///< gradient: sum of contribution_of(stage, microbatch)
  std::uint64_t edge_sum = 0;      ///< gradient: the same of embedding and head
  std::int64_t over_copies = 0;    ///< gradient: bytes of the sum over replicas and context-parallel ranks
  std::int64_t bytes = 0;          ///< what a message must have to carry all of it; 0: unknown

  /// "the weights of stage 3", as messages name what a buffer holds.
  std::string words() const {
    const std::string of_stage =
        stage >= 0 ? concat(" of stage ", stage) : std::string{holds == Holds::weights ? " of no one stage" : ""};
    const std::string of_both = concat(of_stage, ", microbatch ", microbatch);
    switch (holds) {
      case Holds::nothing:
        return "nothing";
      case Holds::any:
        return "nothing of this iteration";
      case Holds::weights:
        return concat(updated ? "updated weights" : "weights", of_stage);
      case Holds::gradient:
        return concat("a gradient of ", contributions, " contributions");
      case Holds::forward_output:
        return concat("the forward's result", of_both);
      case Holds::backward_output:
        return concat("the backward's result", of_both);
      case Holds::stash:
        return concat("what a backward_input left", of_both);
    }
    return {};  // unreachable: every enumerator returns above
  }
};

/// A random number for one microbatch's gradient of one stage. A sum of them modulo 2^64 tells which were added, however
/// the sum was formed and in O(1) an addition: one missing, doubled or foreign leaves the right sum with probability 2^-64.
constexpr std::uint64_t contribution_of(std::int64_t stage, std::int64_t microbatch) {
  return splitmix64(
      splitmix64(static_cast<std::uint64_t>(stage) * 0xd1342543de82ef95U + static_cast<std::uint64_t>(microbatch) + 1));
}
inline constexpr std::int64_t embedding_stage = -2;  ///< contribution_of's stage for the embedding's gradient
inline constexpr std::int64_t head_stage = -3;       ///< and for the head's

/// Sets of owners, each stored once. 0 is the empty set.
class PieceSets {
 public:
  std::int32_t only(Rank owner) { return find({number(owner)}); }
  std::int32_t unite(std::int32_t a, std::int32_t b) {
    if (a == b || b == 0) return a;
    if (a == 0) return b;
    const auto [at, added] = unions_.try_emplace(std::minmax(a, b), 0);
    if (added) {
      std::vector<std::int32_t> both;
      const auto& x = sets_[static_cast<std::size_t>(a)];
      const auto& y = sets_[static_cast<std::size_t>(b)];
      std::set_union(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both));
      at->second = find(std::move(both));
    }
    return at->second;
  }
  const std::vector<std::int32_t>& members(std::int32_t set) const { return sets_[static_cast<std::size_t>(set)]; }
  std::int64_t size(std::int32_t set) const { return static_cast<std::int64_t>(sets_[static_cast<std::size_t>(set)].size()); }

 private:
  std::int32_t find(std::vector<std::int32_t> members) {
    const auto [at, added] = ids_.try_emplace(members, static_cast<std::int32_t>(sets_.size()));
    if (added) sets_.push_back(std::move(members));
    return at->second;
  }

  std::vector<std::vector<std::int32_t>> sets_{{}};
  std::map<std::vector<std::int32_t>, std::int32_t> ids_{{{}, 0}};
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> unions_;
};

/// Bytes and parameters that tensor parallelism may lose or add where it cuts something: one parameter of layers, embedding,
/// norm and head each.
inline constexpr std::int64_t rounded_parameters = 4;

/// How a schedule stores its model, read off the persistent weights: by stage, as shards of everything (weights of no stage,
/// stages without weights of their own), or by stage with a copy of embedding and head on every rank.
struct ModelLayout {
  bool sharded = false;                     ///< weights of no stage are shards of all stages that have none of their own
  bool edge_copies = false;                 ///< weights of no stage are copies of embedding, final norm and head
  std::vector<char> owned;                  ///< [stage] has weights of its own
  std::int64_t shards = 0;                  ///< weights of no stage
  std::int64_t shards_needed = 1;           ///< pieces that make a whole where sharded
  std::vector<std::int64_t> pieces_needed;  ///< [stage] pieces that make a whole where owned
  std::int64_t weight = 2;                  ///< bytes a parameter
  std::int64_t gradient = 2;                ///< bytes a parameter
  std::int32_t embedding = 0;               ///< the stage that looks up the embedding
  std::int32_t head = 0;                    ///< the stage that holds the head
  bool tied = false;                        ///< the head uses the embedding's matrix, and lies in another stage
  std::int64_t borrowed = 0;                ///< its parameters, then
  bool lent = false;                        ///< the head has no copy of it and reads the embedding's
  int tensor = 1;                           ///< ranks that share a logical rank's computations by matrix
  int context = 1;                          ///< and by tokens
  std::vector<LayoutPlace> places;          ///< [rank]

  explicit ModelLayout(const Schedule& schedule) {
    weight = schedule.workload().parameter_bytes().weight;
    gradient = schedule.workload().parameter_bytes().gradient;
    const Layout& copies = schedule.parts().layout;
    tensor = copies.tensor;
    context = copies.context;
    const RankMap map{copies, schedule.ranks()};
    for (int r = 0; r < schedule.ranks(); ++r) places.push_back(map.place(Rank{r}));
    const auto stages = schedule.stages();
    owned.assign(stages.size(), 0);
    pieces_needed.assign(stages.size(), 1);
    std::vector<std::int64_t> largest(stages.size(), 0);
    std::vector<std::int64_t> together(stages.size(), 0);
    std::int64_t largest_shard = 0;
    for (const Buffer& buffer : schedule.buffers()) {
      if (!buffer.persistent || buffer.kind() != BufferKind::weights) continue;
      if (buffer.stage() == none<StageId>) {
        ++shards;
        largest_shard = std::max(largest_shard, buffer.bytes.value());
      } else {
        owned[index(buffer.stage())] = 1;
        together[index(buffer.stage())] += buffer.bytes.value();
        largest[index(buffer.stage())] = std::max(largest[index(buffer.stage())], buffer.bytes.value());
      }
    }
    std::int64_t all = part(schedule.workload().edge_parameters());
    for (std::size_t s = 0; s < stages.size(); ++s) {
      sharded = sharded || (shards > 0 && owned[s] == 0 && stages[s].parameters > 0);
      if (stages[s].embedding) embedding = static_cast<std::int32_t>(s);
      if (stages[s].head) head = static_cast<std::int32_t>(s);
      all += stages[s].parameters;
    }
    edge_copies = shards > 0 && !sharded;
    shards_needed = pieces(all * weight, largest_shard);
    const Workload& workload = schedule.workload();
    tied = !workload.is_abstract() && workload.model().tied && embedding != head;
    if (tied) borrowed = part(workload.model().embedding_parameters());
    // With a copy of its own the head would hold no less than the embedding.
    const auto first = static_cast<std::size_t>(embedding);
    const auto last = static_cast<std::size_t>(head);
    const bool bare = tied && owned[first] != 0 && stages[first].parameters == 0 && stages[last].parameters == 0;
    lent = bare && together[last] < together[first];
    for (std::size_t s = 0; s < stages.size(); ++s) {
      std::int64_t whole = stage_parameters(stages[s]) * weight;
      if (lent && static_cast<std::int32_t>(s) == head) whole = own_parameters(stages[s]) * weight;
      pieces_needed[s] = pieces(whole, largest[s]);
    }
  }

  /// What a forward of the stage reads from its own weights (edge copies apart).
  std::int64_t stage_parameters(const StageWork& stage) const {
    return stage.parameters + (edge_copies ? 0 : stage.edge_parameters);
  }
  /// The same where a tied output matrix is the embedding's alone.
  std::int64_t own_parameters(const StageWork& stage) const {
    const bool borrows = stage.head && !stage.embedding && !edge_copies;
    return stage_parameters(stage) - (borrows ? std::min(borrowed, stage_parameters(stage)) : 0);
  }
  /// How many pieces make up a whole.
  std::int64_t pieces(std::int64_t whole, std::int64_t piece) const {
    return piece <= 0 ? 1 : std::max<std::int64_t>(1, (whole - rounding() + piece - 1) / piece);
  }

  const LayoutPlace& place(Rank rank) const { return places[index(rank)]; }
  /// One tensor-parallel rank's part of some parameters.
  std::int64_t part(std::int64_t parameters) const { return (parameters + tensor - 1) / tensor; }
  /// Parameters by which sizes may differ that should be equal.
  std::int64_t lost() const { return tensor > 1 ? rounded_parameters : 0; }
  /// The same in bytes.
  std::int64_t rounding() const { return lost() * std::max(weight, gradient); }
  /// Whether what a computation of the stage makes is exchanged behind it, among the ranks of its logical rank.
  bool exchanged(const Schedule& schedule, StageId stage) const {
    return tensor * context > 1 && !schedule.workload().is_abstract() && schedule.stage(stage).layers > 0;
  }
  /// Whether all ranks of the group are copies of one logical rank.
  bool one_logical_rank(std::span<const Rank> members) const {
    for (const Rank rank : members) {
      if (place(rank).logical != place(members[0]).logical) return false;
    }
    return true;
  }
  /// contribution_of() one tensor-parallel rank's part of the stage (or embedding_stage, head_stage), from the tokens of one
  /// context-parallel rank.
  std::uint64_t contribution(std::int64_t stage, std::int64_t microbatch, int of_tensor, int of_context) const {
    return contribution_of(stage * tensor + of_tensor, microbatch * context + of_context);
  }
  /// The gradient that a backward leaves in `buffer`.
  Held gradient_left(const Schedule& schedule, const Task& task, const Buffer& buffer) const {
    const StageWork& work = schedule.stage(task.stage);
    const bool copy = edge_copies && buffer.kind() == BufferKind::gradients && buffer.stage() == none<StageId>;
    Held content;
    const LayoutPlace& here = place(task.rank);
    const auto sum = [&](std::int64_t stage) { return contribution(stage, task.microbatch, here.tensor, here.context); };
    content.holds = Holds::gradient;
    content.bytes = copy ? buffer.bytes.value() : stage_parameters(work) * this->gradient;
    if (!copy) {
      content.contributions = 1;
      if (work.parameters > 0) content.sum = sum(number(task.stage));
    }
    if (work.edge_parameters > 0 && (copy || !edge_copies)) {
      if (work.embedding) content.edge_sum += sum(embedding_stage);
      if (work.head) content.edge_sum += sum(head_stage);
    }
    return content;
  }
};

}  // namespace tawpipe::detail
