// The contents of a buffer while a schedule is followed: values of its parameters, or the origin of
// its activations.
// Not: the walk over the tasks (contents_walk.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tawpipe/core/splitmix64.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/model/parameter_space.hpp"
#include "tawpipe/schedule/parameter_map.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// The value of a parameter in a buffer of weights or gradients.
struct ParameterValue {
  std::uint64_t sum = 0;           ///< gradients: of the contributions' random numbers
  std::int32_t contributions = 0;  ///< gradients: how many there are, for messages
  std::int32_t part = 0;           ///< weights: WholeModel::weights_part()
  bool updated = false;            ///< weights: after their update
  bool kept = false;               ///< weights: in their owner since the iteration began
  /// weights: what their owner kept has been read, so that an iteration must leave it updated
  bool needed = false;

  bool operator==(const ParameterValue&) const = default;
};
using ParameterValues = ParameterMap<ParameterValue>;

/// The kinds of activations that a computation produces.
enum class Made : std::uint8_t { nothing, unknown, forward_output, backward_output, saved, stash };

/// The contents of a buffer of activations.
struct Activation {
  Made made = Made::nothing;
  bool read = false;        ///< a task has read it
  bool used = false;        ///< a backward has read it
  bool finished = false;    ///< its backward_weight has read it
  std::int32_t stage = -1;  ///< of the computation that produced it
  std::int32_t microbatch = -1;
  std::int32_t tensor = 0;   ///< the tensor-parallel rank
  std::int32_t context = 0;  ///< and the part of the tokens
  std::int64_t bytes = 0;    ///< the size of a message that carries all of it; 0: unknown

  /// "the forward's result of stage 3, microbatch 1", as used in messages.
  std::string words() const {
    const std::string of_both = concat(" of stage ", stage, ", microbatch ", microbatch);
    switch (made) {
      case Made::nothing:
        return "nothing";
      case Made::unknown:
        return "nothing of this iteration";
      case Made::forward_output:
        return "the forward's result" + of_both;
      case Made::backward_output:
        return "the backward's result" + of_both;
      case Made::saved:
        return "what a forward saved" + of_both;
      case Made::stash:
        return "what a backward_input left" + of_both;
    }
    return {};  // unreachable: every enumerator returns above
  }
};

/// Facts about a schedule's parameters and ranks as a whole.
class WholeModel {
 public:
  explicit WholeModel(const Schedule& schedule)
      : tensor{schedule.parts().mesh.tensor},
        context{schedule.parts().mesh.token_ranks()},
        expert_parts{schedule.parts().mesh.whole_experts ? schedule.parts().mesh.shared() : 0} {
    if (expert_parts > 0) blocks_ = schedule.workload().model().blocks();
    const Mesh mesh = schedule.parts().mesh.over(schedule.ranks());
    of_context_ = mesh.context;
    for (int r = 0; r < schedule.ranks(); ++r) places_.push_back(mesh.place(Rank{r}));
    std::vector<StageWork> stages{schedule.stages().begin(), schedule.stages().end()};
    // Sets name whole matrices, of which a tensor-parallel rank has a part.
    for (StageWork& stage : stages) stage.parameters *= schedule.workload().is_abstract() ? tensor : 1;
    const ParameterSpace space{schedule.workload(), stages};
    for (int s = 0; s < static_cast<int>(stages.size()); ++s) {
      std::vector<ParameterRange> needs = space.layers_of(s);
      ParameterMap<char> layers;
      for (const ParameterRange& range : needs) layers.set(range, 1);
      for (const ParameterRange& range : space.all_of(s)) {
        layers.visit(range, [&](const ParameterRange& part, const char* known) {
          if (known == nullptr) needs.push_back(part);
        });
      }
      needs_.push_back(std::move(needs));
    }
    for (const Buffer& buffer : schedule.buffers()) {
      has_weights = has_weights || buffer.content.kind() == ContentKind::weights;
      has_activations = has_activations || buffer.kind() == BufferKind::activations;
    }
  }

  int tensor;                ///< ranks that share a logical rank's computations by matrix
  int context;               ///< and by tokens: context- and expert-parallel ranks
  int expert_parts;          ///< of the parameters of whole experts; 0: there are none
  bool has_weights = false;  ///< some buffer holds them; otherwise they are not followed
  bool has_activations = false;

  const MeshPlace& place(Rank rank) const { return places_[index(rank)]; }
  /// Which part of the tokens it has.
  int token_part(const MeshPlace& place) const { return place.context + of_context_ * place.expert; }
  /// Which part of the experts.
  int expert_part(const MeshPlace& place) const { return place.tensor + tensor * token_part(place); }
  /// A number of the part that it has of the weights of whole experts, or of others.
  std::int32_t weights_part(const MeshPlace& place, bool experts) const {
    return experts ? tensor + expert_part(place) : place.tensor;
  }
  /// Of ranges, those of whole experts; or the others.
  std::vector<ParameterRange> part_of(const ParameterRange& range, bool experts) const {
    if (expert_parts == 0) return experts ? std::vector<ParameterRange>{} : std::vector{range};
    return blocks_.part_of(std::span{&range, 1}, experts);
  }
  /// The parameters that a stage computes with, as ranges, each of which must be contiguous.
  const std::vector<ParameterRange>& needs(StageId stage) const { return needs_[index(stage)]; }
  /// The first stage that computes with a parameter; -1 if there is none.
  std::int32_t stage_of(std::int64_t parameter) const {
    for (std::size_t s = 0; s < needs_.size(); ++s) {
      for (const ParameterRange& range : needs_[s]) {
        if (range.begin <= parameter && parameter < range.end) return static_cast<std::int32_t>(s);
      }
    }
    return -1;
  }
  /// A random number for the gradient that one microbatch gives a stage's part of one
  /// tensor-parallel rank, from the tokens of one context-parallel rank. A sum of them modulo 2^64
  /// identifies the set of terms, in any order of additions and in O(1) for each addition: with a
  /// term missing, duplicated or foreign it is still right only with probability 2^-64.
  std::uint64_t contribution(std::int64_t stage, std::int64_t microbatch, int of_tensor, int of_context) const {
    const auto row = static_cast<std::uint64_t>(stage * tensor + of_tensor);
    const auto column = static_cast<std::uint64_t>(microbatch * context + of_context);
    return splitmix64(splitmix64(row * 0xd1342543de82ef95U + column + 1));
  }
  /// The same of one part of the experts, from all tokens of a microbatch.
  std::uint64_t contribution_of_experts(std::int64_t stage, std::int64_t microbatch, int part) const {
    return splitmix64(~contribution(stage, microbatch, 0, 0) + static_cast<std::uint64_t>(part));
  }

 private:
  int of_context_ = 1;
  ParameterBlocks blocks_;
  std::vector<MeshPlace> places_;                   ///< [rank]
  std::vector<std::vector<ParameterRange>> needs_;  ///< [stage]
};

}  // namespace tawpipe::detail
