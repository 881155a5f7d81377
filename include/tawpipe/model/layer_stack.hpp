// A model as schedules see it: layers of a few kinds, the part before the first and the part after the last.
// Not: an architecture (model/transformer.hpp), nor its cut into stages (model/workload.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

/// What computations copy where ranks gather their weights and scatter the gradients.
enum class ShardCopies : std::uint8_t {
  none,
  flat_parameter,  ///< PyTorch's first FSDP: gradients into the one of a unit's flat parameter
  each_parameter,  ///< FSDP2: weights into each parameter, gradients into what is scattered
};

/// A kind of layers.
struct LayerWork {
  StageWork layer = {};         ///< one of them
  StageWork kept_layer = {};    ///< one of which nothing is recomputed
  ParameterRange experts = {};  ///< as LayerStack::experts
};

/// The sizes and operations of a model for one microbatch, part by part. The author of a model
/// defines the parts; layer_stack() in model/transformer_work.hpp makes those of a LLaMA decoder; a
/// program can fill in its own:
///
///     const LayerStack perceptrons{.name = "perceptrons", .layers = 4, .dtype = Dtype::f64,
///                                  .layer = {.parameters = 128, .saved = 384_B, .boundary = 384_B, .forward = Flops{1536}}};
///
/// Of `first_edge`, `layer` and `last_edge` the sizes, operations and `parameters` count; layer
/// numbers do not.
struct LayerStack {
  std::string name = {};
  std::int32_t layers = 0;
  Dtype dtype = Dtype::bf16;  ///< of weights and activations
  /// the first edge's parameters also serve the last edge, as a tied embedding does
  bool tied = false;
  StageWork first_edge = {};  ///< work of the first stage before its layers
  StageWork layer = {};       ///< one layer; its `boundary` is what stages pass on
  /// this many layers of a stage are `layer`, the others kept_layer; 0: all
  std::int32_t recompute_layers = 0;
  StageWork kept_layer = {};           ///< one layer of which nothing is recomputed
  std::vector<LayerWork> others = {};  ///< kinds 1, 2 and so on of layers; kind 0 is `layer`
  LayerPattern pattern = {};           ///< the kind of each layer; empty: all are `layer`
  /// work of the last stage after its layers, with the loss; `parameters` without tied ones
  StageWork last_edge = {};
  ParameterNames names = {};  ///< of its parameters, in findings, errors and files
  /// `first_edge.stash` takes no memory in a stage with a layer
  bool lookup_waits_in_layer = false;
  bool edges_count_as_layers = false;  ///< when it is cut into stages, each edge counts as a layer
  ShardCopies shard_copies = ShardCopies::none;
  /// of a layer's parameters, those of experts that ranks may have whole (Mesh::whole_experts)
  ParameterRange experts = {};
  ParameterRange last_edge_experts = {};  ///< the same of the last edge, whose layers predict further tokens
  /// of each weight of a layer where ranks gather it; 0: as elsewhere
  std::int64_t gathered_bytes = 0;
  /// of a layer's keys, as large as its values: sent by context parallelism
  Bytes keys = {};
  std::int32_t token_ids = 0;  ///< ids of tokens are below this; 0: any
  /// fraction of the matrix peak that its products reach; 0: unknown
  double utilization = 0;
  std::string utilization_source = {};  ///< where that was measured
  /// The decoder that layer_stack() made it of; none: a model of another kind.
  std::optional<Transformer> decoder = {};
  /// Of a model of another kind, named sizes from its author, such as {"width", 4096}: they serve the
  /// author.
  std::vector<std::pair<std::string, std::int64_t>> sizes = {};

  static constexpr std::int32_t max_layers = Transformer::max_layers;

  std::int64_t layer_parameters() const { return layer.parameters; }
  /// All parameters; tied ones count once.
  std::int64_t parameters() const {
    std::int64_t sum = first_edge.parameters + last_edge.parameters + (pattern.empty() ? layers * layer.parameters : 0);
    for (const std::uint8_t kind : pattern) sum += layer_of(kind).parameters;
    return sum;
  }
  ParameterBlocks blocks() const {
    ParameterBlocks::Sizes counts{.first_edge = first_edge.parameters,
                                  .layers = layers,
                                  .layer = {layer.parameters, experts},
                                  .last_edge = last_edge.parameters,
                                  .last_edge_experts = last_edge_experts,
                                  .tied = tied,
                                  .pattern = pattern};
    for (const LayerWork& kind : others) counts.others.push_back({kind.layer.parameters, kind.experts});
    return ParameterBlocks{std::move(counts), names};
  }
  /// A layer of a kind. @pre kind <= others.size()
  const StageWork& layer_of(std::uint8_t kind, bool kept = false) const {
    if (kind == 0) return kept ? kept_layer : layer;
    return kept ? others[kind - 1U].kept_layer : others[kind - 1U].layer;
  }
  /// The first layer of a kind; if there is none, the first layer.
  std::int32_t first_of(std::uint8_t kind) const {
    const auto at = std::find(pattern.begin(), pattern.end(), kind) - pattern.begin();
    return std::cmp_equal(at, pattern.size()) ? 0 : static_cast<std::int32_t>(at);
  }
  /// Calls `visit(what, work)` for each part of a stack, which may change it.
  template <class Stack, class Visit>
  static void for_each_part(Stack& of, Visit&& visit) {
    visit("first edge", of.first_edge);
    visit("layer", of.layer);
    visit("kept_layer", of.kept_layer);
    for (auto& kind : of.others) {
      visit("other layer", kind.layer);
      visit("kept other layer", kind.kept_layer);
    }
    visit("last edge", of.last_edge);
  }
  /// Whether layers have experts that ranks may have whole.
  bool has_experts() const {
    return experts.count() > 0 ||
           std::any_of(others.begin(), others.end(), [](const auto& kind) { return kind.experts.count() > 0; });
  }
  /// One of `sizes`; 0 if that name is missing.
  std::int64_t size(std::string_view key) const {
    const auto found = std::find_if(sizes.begin(), sizes.end(), [&](const auto& entry) { return entry.first == key; });
    return found == sizes.end() ? 0 : found->second;
  }

  /// The work of `count` layers from `first` on, with or without the edges before and after. The
  /// first recompute_layers of these layers are recomputed.
  /// @pre 0 <= first, 0 <= count, first + count <= layers
  StageWork stage(std::int32_t first, std::int32_t count, bool with_first, bool with_last) const;
  /// @pre also 0 <= recomputed <= count
  StageWork stage(std::int32_t first, std::int32_t count, bool with_first, bool with_last, std::int32_t recomputed) const;

  /// The same for a microbatch of that many times the sequences: sizes, operations, and kernels'
  /// batches and bytes are multiplied; parameters are not.
  /// @pre sequences >= 1  @throws InputError  as check(), or if a size gets too large.
  LayerStack times(std::int64_t sequences) const;

  /// Whether each part with operations has its kernels.
  bool has_kernels() const;

  /// @throws InputError  if there is no layer or too many, if a size is below zero or beyond 64
  /// bits over all layers, if experts are beyond a layer, or if layers send nothing to the next.
  void check() const;

 private:
  static constexpr std::int64_t max_size = std::numeric_limits<std::int64_t>::max() / max_layers / 8;

  static void add(StageWork& work, const StageWork& part, std::int32_t count, Bytes stash);
  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(concat("model ", quote(name.empty() ? "(unnamed)" : name), ": ", why));
  }
};

}  // namespace tawpipe

#if TAWPIPE_BODIES
namespace tawpipe::inline v0 {

TAWPIPE_INLINE StageWork LayerStack::stage(std::int32_t first, std::int32_t count, bool with_first, bool with_last) const {
  return stage(first, count, with_first, with_last, recompute_layers > 0 ? std::min(count, recompute_layers) : count);
}

TAWPIPE_INLINE StageWork LayerStack::stage(std::int32_t first, std::int32_t count, bool with_first, bool with_last,
                                           std::int32_t recomputed) const {
  StageWork work;
  work.recomputed = recomputed;
  work.first_layer = first;
  work.layers = count;
  work.first_edge = with_first;
  work.last_edge = with_last;
  work.boundary = layer.boundary;
  if (with_first || (with_last && tied)) work.edge_parameters += first_edge.parameters;
  if (with_last) work.edge_parameters += last_edge.parameters;
  if (with_last) work.expert_parameters += last_edge_experts.count();
  if (!pattern.empty()) work.kinds.assign(pattern.begin() + first, pattern.begin() + first + count);
  std::vector<char> done(others.size() + 1, 0);
  for (std::int32_t i = 0; i < count; ++i) {  // a kind at a time, in the order in which they begin
    const std::uint8_t kind = work.kinds.empty() ? std::uint8_t{0} : work.kinds[static_cast<std::size_t>(i)];
    if (std::exchange(done[kind], 1) != 0) continue;
    const std::int32_t all = work.layers_of(kind);
    const auto from = work.kinds.begin();
    const std::int32_t again =
        work.kinds.empty() ? recomputed : static_cast<std::int32_t>(std::count(from, from + recomputed, kind));
    work.parameters += all * layer_of(kind).parameters;
    work.expert_parameters += all * (kind == 0 ? experts : others[kind - 1U].experts).count();
    if (again > 0) add(work, layer_of(kind), again, layer_of(kind).stash);
    if (all > again) add(work, layer_of(kind, true), all - again, layer_of(kind, true).stash);
    if (work.kinds.empty()) break;
  }
  if (with_first) add(work, first_edge, 1, count > 0 && lookup_waits_in_layer ? Bytes{} : first_edge.stash);
  if (with_last) add(work, last_edge, 1, last_edge.stash);
  return work;
}

TAWPIPE_INLINE LayerStack LayerStack::times(std::int64_t sequences) const {
  check();
  LayerStack more = *this;
  const auto multiply = [&](Bytes& size) {
    if (size.value() > max_size / sequences)
      fail(concat("for ", sequences, " sequences a size of ", size.value(), " bytes exceeds ", max_size));
    size = size * sequences;
  };
  multiply(more.keys);
  for_each_part(more, [&](const char*, StageWork& part) {
    for (Bytes* size : {&part.saved, &part.stash, &part.boundary, &part.forward_workspace, &part.backward_workspace,
                        &part.stashed_workspace, &part.forward_traffic, &part.backward_traffic}) {
      multiply(*size);
    }
    for (Flops* work : {&part.forward, &part.recompute, &part.backward_input, &part.backward_weight})
      *work = *work * static_cast<double>(sequences);
    for (Kernel& kernel : part.kernels) {
      kernel.batch *= sequences;
      kernel.bytes *= static_cast<double>(sequences);
    }
  });
  return more;
}

TAWPIPE_INLINE bool LayerStack::has_kernels() const {
  bool known = true;
  for_each_part(*this, [&](const char*, const StageWork& part) {
    known = known &&
            (!part.kernels.empty() || (part.forward + part.recompute + part.backward_input + part.backward_weight).value() == 0);
  });
  return known;
}

TAWPIPE_INLINE void LayerStack::check() const {
  if (layers < 1 || layers > max_layers) fail(concat("the number of layers must be 1 to ", max_layers, ", not ", layers));
  if (!pattern.empty() && std::cmp_not_equal(pattern.size(), layers))
    fail(concat("its pattern has the kinds of ", pattern.size(), " layers, and it has ", layers));
  for (const std::uint8_t kind : pattern) {
    if (kind > others.size()) fail(concat("a layer is of kind ", int{kind}, "; the last kind is ", others.size()));
  }
  for_each_part(*this, [&](const char* what, const StageWork& part) {
    for (const std::int64_t size :
         {part.parameters, part.saved.value(), part.stash.value(), part.boundary.value(), part.forward_workspace.value(),
          part.backward_workspace.value(), part.stashed_workspace.value(), part.forward_traffic.value(),
          part.backward_traffic.value()}) {
      if (size < 0 || size > max_size) fail(concat("a size of its ", what, " must be 0 to ", max_size, ", not ", size));
    }
    if (part.stashed_workspace > part.backward_workspace)
      fail(concat("of a workspace of its ", what, " of ", part.backward_workspace.value(), " bytes the stash has ",
                  part.stashed_workspace.value()));
    for (const Flops work : {part.forward, part.recompute, part.backward_input, part.backward_weight}) {
      if (!(work.value() >= 0 && work.value() <= std::numeric_limits<double>::max()))
        fail(concat("the operations of its ", what, " are not a number of 0 or more"));
    }
  });
  const auto check_names = [&](const char* what, const std::vector<ParameterBlock>& blocks, std::int64_t all) {
    std::int64_t left = all;
    for (const ParameterBlock& block : blocks) left = block.count < 0 || block.count > left ? -1 : left - block.count;
    if (!blocks.empty() && left != 0)
      fail(concat("the named blocks of its ", what, " must have its ", all, " parameters together"));
  };
  check_names("first edge", names.first_edge, first_edge.parameters);
  check_names("last edge", names.last_edge, last_edge.parameters);
  const auto check_experts = [&](const ParameterRange& of, std::int64_t parameters) {
    if (of.begin < 0 || of.begin > of.end || of.end > parameters)
      fail(concat("the parameters of its experts, ", of.begin, " to ", of.end, ", are not among a layer's ", parameters));
  };
  check_experts(experts, layer.parameters);
  check_experts(last_edge_experts, last_edge.parameters);
  for (const LayerWork& kind : others) check_experts(kind.experts, kind.layer.parameters);
  if (!(utilization >= 0 && utilization <= 1)) {
    fail(concat("a utilization of ", utilization, " is impossible; it must lie within 0 (unknown) and 1"));
  }
}

TAWPIPE_INLINE void LayerStack::add(StageWork& work, const StageWork& part, std::int32_t count, Bytes stash) {
  for (Kernel kernel : part.kernels) {
    kernel.count *= count;
    work.kernels.push_back(kernel);
  }
  work.forward += part.forward * count;
  work.recompute += part.recompute * count;
  work.backward_input += part.backward_input * count;
  work.backward_weight += part.backward_weight * count;
  work.saved += part.saved * count;
  work.stash += stash * count;
  work.forward_traffic += part.forward_traffic * count;
  work.backward_traffic += part.backward_traffic * count;
  const Bytes of_input = std::max(work.input_workspace(), part.input_workspace());
  work.forward_workspace = std::max(work.forward_workspace, part.forward_workspace);  // one layer runs at a time
  work.backward_workspace = std::max(work.backward_workspace, part.backward_workspace);
  work.stashed_workspace = work.backward_workspace - of_input;
}

}  // namespace tawpipe
#endif
