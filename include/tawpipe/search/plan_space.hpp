// The search space of a plan: meshes over the cluster's devices, microbatch sizes, recomputation,
// schedules with their options.
// Not: the search for the best (search/plan.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/schedules/registry.hpp"
#include "tawpipe/search/problem.hpp"
#include "tawpipe/search/sharing.hpp"

namespace tawpipe::inline v0 {

/// A layout of the work, for any schedule.
struct PlanLayout {
  Mesh mesh;  ///< over all devices
  Recompute recompute = Recompute::full;
  std::int64_t microbatch_size = 1;
  /// between context-parallel ranks; none: as the problem has it
  std::optional<ContextExchange> exchange = {};
  /// of each stage, where recomputation is full; 0: as the model has it
  int recompute_layers = 0;
  // Around a pipeline; none: as the problem has it.
  std::optional<StateSharding> sharding = {};
  std::optional<Offload> offload = {};
  bool balanced_stages = false;  ///< cut by what embedding and head take (StageCut::balanced)
  int loss_chunk = 0;            ///< entries of the vocabulary at a time; 0: as the model has it

  bool operator==(const PlanLayout&) const = default;
  /// Whether what is around it is not as the problem has it.
  bool is_variant() const { return sharding || offload || balanced_stages || loss_chunk > 0; }
};

/// What is to be trained and where, and the parts of the answer that are given. The others are
/// searched.
struct PlanRequest {
  /// its mesh, recomputation, sizes and schedules are results: not read
  Problem problem;
  Mesh::Sizes axes = {};  ///< [axis] the size that it must have; 0: any
  /// the parts of the experts that ranks have whole (Mesh::expert_parts()); 1: tensor-parallel ranks
  /// split all; 0: any
  int expert_parts = 0;
  std::vector<std::vector<MeshAxis>> orders = {{MeshAxis::tensor, MeshAxis::context, MeshAxis::pipeline, MeshAxis::data},
                                               {MeshAxis::tensor, MeshAxis::context, MeshAxis::data, MeshAxis::pipeline}};
  /// empty: those of planned_sizes(), and around the best others
  std::vector<std::int64_t> microbatch_sizes = {};
  std::vector<Recompute> recompute = {Recompute::none, Recompute::selective, Recompute::full};
  /// Where nothing computed again does not fit, full recomputation of the least part of each
  /// stage's layers with which it does is a candidate too.
  bool partial_recompute = false;
  /// of context-parallel ranks; empty: as the problem has it
  std::vector<ContextExchange> exchanges = {};
  std::vector<ScheduleChoice> schedules = {};  ///< empty: planned_schedules()
  // Tried around each pipeline that is the best so far; empty and false: as the problem has it
  // alone. Stages that cannot have equally many layers are balanced in any case, if
  // `balanced_stages`.
  std::vector<StateSharding> sharding = {};  ///< over data- and context-parallel devices
  std::vector<Offload> offload = {};
  bool balanced_stages = false;
  /// tried, like `offload`, where a candidate is fast and needs a little too much memory
  int loss_chunk = 0;
  /// tasks that may be looked at: of bounds once, of simulations eight times
  std::int64_t budget = 41'000'000;
  /// by the clock, beside `budget`: after so long the best so far is the answer, or soon after the first;
  /// 0: no limit
  double seconds = 0;
  /// only plans that take less are looked for; none: any
  std::optional<Duration> faster_than = {};
  /// layouts of few tasks are looked at first, not those that look fastest
  bool cheapest_first = false;
  /// Additional conditions on the answer, such as that a framework can run it (frameworks/); none:
  /// any.
  bool (*runs)(const PlanRequest&, const PlanLayout&, const ScheduleChoice&) = nullptr;
  bool allows(const PlanLayout& layout, const ScheduleChoice& choice) const {
    return runs == nullptr || runs(*this, layout, choice);
  }
};

namespace detail {

/// The divisors of `number`, ascending.
inline std::vector<int> divisors(int number) {
  std::vector<int> found;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) found.push_back(d);
  }
  return found;
}

/// Sizes that an axis may have, among the divisors of the devices: `tensor` as allowed by heads and
/// inside the smallest node, `context` with at least 1,024 tokens of a sequence a device, experts as
/// their number allows, replicas as the batch does.
inline std::vector<int> axis_sizes(const PlanRequest& request, MeshAxis axis) {
  const int given = request.axes[static_cast<std::size_t>(axis)];
  if (given > 0) return {given};
  const Problem& problem = request.problem;
  const Transformer& model = *problem.model;
  const DeviceGroups nodes = problem.cluster.groups_by_node();
  int node = problem.cluster.ranks();
  for (int n = 0; n < nodes.count(); ++n) node = std::min(node, nodes.size(n));
  std::vector<int> sizes = divisors(problem.cluster.ranks());
  std::erase_if(sizes, [&](int size) {
    switch (axis) {
      case MeshAxis::tensor:
        return size > node || model.heads % size != 0;
      case MeshAxis::context:
        return size > 1 && (problem.sequence % size != 0 || problem.sequence / size < 1024);
      case MeshAxis::expert:
        return size > 1 && (!model.is_routed() || model.experts % size != 0 || problem.global_batch % size != 0);
      case MeshAxis::data:
        return problem.global_batch % size != 0;
      case MeshAxis::pipeline:
        return false;
    }
    return false;
  });
  return sizes;
}

/// Whether an order of axes places ranks as an earlier one does: axes of one rank do not count.
inline std::vector<MeshAxis> places_of(const Mesh& mesh) {
  std::vector<MeshAxis> order;
  for (const MeshAxis axis : mesh.order) {
    if (mesh.size(axis) > 1) order.push_back(axis);
  }
  return order;
}

/// Whether the ranks of a mesh can divide the experts so, as the request asks.
inline bool can_have_experts(const PlanRequest& request, const Mesh& mesh) {
  const Transformer& model = *request.problem.model;
  if (request.expert_parts > 0 && request.expert_parts != (mesh.whole_experts ? mesh.expert_parts() : 1)) return false;
  if (!mesh.whole_experts) return mesh.expert == 1;
  const bool own_tokens = mesh.tensor == 1 || request.problem.sequence_parallel;
  return model.is_routed() && mesh.shared() > 1 && model.experts % mesh.shared() == 0 && own_tokens;
}

/// The meshes over all devices. An axis added to MeshAxis is searched according to axis_sizes().
inline std::vector<Mesh> planned_meshes(const PlanRequest& request) {
  const int ranks = request.problem.cluster.ranks();
  std::vector<Mesh::Sizes> found{Mesh{.pipeline = 1}.sizes()};
  for (int a = 0; a < mesh_axes; ++a) {
    if (static_cast<MeshAxis>(a) == MeshAxis::pipeline) continue;  // the remainder of the others
    std::vector<Mesh::Sizes> next;
    for (const auto& sizes : found) {
      std::int64_t product = 1;
      for (const int size : sizes) product *= size;
      for (const int size : axis_sizes(request, static_cast<MeshAxis>(a))) {
        if (ranks % (product * size) != 0) continue;
        next.push_back(sizes);
        next.back()[static_cast<std::size_t>(a)] = size;
      }
    }
    found = std::move(next);
  }
  const int pipeline = request.axes[static_cast<std::size_t>(MeshAxis::pipeline)];
  std::vector<Mesh> meshes;
  for (const auto& sizes : found) {
    std::vector<std::vector<MeshAxis>> seen;
    for (const std::vector<MeshAxis>& order : request.orders) {
      Mesh mesh = Mesh::of(sizes, order);
      mesh.whole_experts = mesh.expert > 1;
      mesh = mesh.over(ranks);
      if (pipeline > 0 && mesh.pipeline != pipeline) continue;
      const std::vector<MeshAxis> places = places_of(mesh);
      if (std::find(seen.begin(), seen.end(), places) != seen.end()) continue;
      seen.push_back(places);
      for (const bool whole : {false, true}) {
        mesh.whole_experts = whole;
        if (can_have_experts(request, mesh)) meshes.push_back(mesh);
      }
    }
  }
  return meshes;
}

}  // namespace detail

/// The variants of `choice` (Registry::variants), without those equal to another on this cluster:
/// nothing to send between nodes if there is only one, no speeds to follow if all devices are
/// equal; and without more buffers where shards are striped or kept.
/// @throws InputError  for an unknown schedule, option or value.
inline std::vector<ScheduleChoice> variants_of(const Registry& registry, const ScheduleChoice& choice, const Cluster& cluster) {
  const bool one_node = cluster.nodes() == 1;
  const bool stripes = !one_node && detail::have_own_adapters(cluster);
  bool alike = true;
  for (int r = 1; r < cluster.ranks(); ++r) {
    alike = alike && cluster.device(Rank{r}).peak.value() == cluster.device(Rank{0}).peak.value();
  }
  std::vector<ScheduleChoice> found;
  for (ScheduleOptions& options : registry.variants(choice.schedule, choice.options, choice.automatic)) {
    const auto chosen = [&](const char* key, std::string_view value) {
      const auto at = options.find(key);
      return at != options.end() && at->second == value && !choice.options.contains(key);
    };
    if (one_node && (chosen("collectives", "two-level") || chosen("node-cache", "auto"))) continue;
    if (chosen("stripe", "auto") && (!stripes || (options.contains("node-cache") && options.at("node-cache") != "0"))) continue;
    if (alike && chosen("speeds", "auto")) continue;
    // A third buffer is for a shard that crosses one adapter in each step.
    if (chosen("buffers", "3") && (chosen("stripe", "auto") || chosen("node-cache", "auto"))) continue;
    found.push_back({choice.schedule, std::move(options)});
  }
  return found;
}

/// The schedules of a registry for a plan to try, with all tried values of their options.
inline std::vector<ScheduleChoice> planned_schedules(const Registry& registry) {
  std::vector<ScheduleChoice> choices;
  for (const ScheduleInfo& info : registry.schedules()) {
    if (info.planned) choices.push_back({.schedule = info.name, .automatic = true});
  }
  return choices;
}

namespace detail {

/// Whether the stages of all pipelines on a mesh are balanced: they cannot have equally many layers.
inline bool must_balance(const PlanRequest& request, const Mesh& mesh) {
  return request.balanced_stages && request.problem.model->layers % mesh.pipeline != 0;
}

/// A layout as schedules of a family run it.
inline PlanLayout layout_for(ScheduleFamily family, const PlanRequest& request, PlanLayout layout) {
  if (family == ScheduleFamily::pipeline && must_balance(request, layout.mesh)) layout.balanced_stages = true;
  return layout;
}

/// What else may be around a pipeline on a layout, with what is around it already: how states are
/// shared out, how stages are cut, a loss in chunks; or something in host memory. And with what is
/// around any layout, other recomputation.
inline std::vector<PlanLayout> planned_variants(const PlanRequest& request, const PlanLayout& layout, ScheduleFamily family) {
  std::vector<PlanLayout> found;
  for (const Recompute recompute : request.recompute) {
    if (!layout.is_variant() || recompute == layout.recompute) continue;
    found.push_back(layout);
    found.back().recompute = recompute;
    found.back().recompute_layers = 0;
  }
  if (layout.mesh.pipeline == 1 || family != ScheduleFamily::pipeline) return found;
  std::vector<std::optional<StateSharding>> sharding{std::nullopt};
  for (const StateSharding states : request.sharding) {
    const bool possible = layout.mesh.data * layout.mesh.token_ranks() > 1;
    if (states != request.problem.sharding && possible) sharding.push_back(states);
  }
  std::vector<int> chunks{0};
  if (request.problem.model->loss_chunk == 0 && request.loss_chunk > 0) chunks.push_back(request.loss_chunk);
  const auto add = [&](PlanLayout one) {
    if (one != layout) found.push_back(std::move(one));
  };
  for (const std::optional<StateSharding>& states : sharding) {
    for (const bool balanced : {false, true}) {
      if (balanced && (!request.balanced_stages || must_balance(request, layout.mesh))) continue;
      for (const int chunk : chunks) {
        PlanLayout one = layout;
        one.sharding = states;
        one.balanced_stages = balanced;
        one.loss_chunk = chunk;
        add(std::move(one));
      }
    }
  }
  for (const Offload& what : request.offload) {
    PlanLayout one = layout;
    one.offload = what == request.problem.offload ? std::nullopt : std::optional{what};
    add(std::move(one));
  }
  return found;
}

}  // namespace detail

namespace detail {

/// Ways to need less memory at little cost in time, the cheapest first: fewer layers beside the
/// head, a loss in chunks, something in host memory.
inline std::vector<PlanLayout> memory_savers(const PlanRequest& request, const PlanLayout& layout, ScheduleFamily family) {
  std::vector<PlanLayout> found;
  if (layout.is_variant() || request.problem.offload.any()) return found;
  std::vector<std::optional<Offload>> offloads{std::nullopt};
  offloads.insert(offloads.end(), request.offload.begin(), request.offload.end());
  const bool balances = request.balanced_stages && layout.mesh.pipeline > 1 && family == ScheduleFamily::pipeline &&
                        !must_balance(request, layout.mesh);
  const bool chunks = request.problem.model->loss_chunk == 0 && request.loss_chunk > 0;
  for (const std::optional<Offload>& offload : offloads) {
    const auto add = [&](bool balanced, bool chunk) {
      PlanLayout one = layout;
      one.offload = offload;
      one.balanced_stages = balanced && balances;
      one.loss_chunk = chunk && chunks ? request.loss_chunk : 0;
      const bool known = std::find(found.begin(), found.end(), one) != found.end();
      if (one.is_variant() && !known) found.push_back(std::move(one));
    };
    add(false, false);
    if (!offload) add(true, false);
    if (!offload) add(false, true);
    add(true, true);
  }
  return found;
}

/// Whether the request leaves open to compute a part of the layers again. With activations in the
/// host the time may fall with the number of layers, since less is copied: then it does not.
inline bool may_recompute_part(const PlanRequest& request) {
  const auto allows = [&](Recompute policy) {
    return std::find(request.recompute.begin(), request.recompute.end(), policy) != request.recompute.end();
  };
  return request.partial_recompute && !request.problem.offload.activations && allows(Recompute::none) && allows(Recompute::full);
}

/// The layout with full recomputation of `layers` layers of each stage; 0: of all.
inline PlanLayout recomputing(PlanLayout layout, int layers) {
  layout.recompute = Recompute::full;
  layout.recompute_layers = layers;
  return layout;
}

/// How context-parallel ranks may exchange keys and values on a mesh; none where they cannot as the
/// problem has it.
inline std::vector<std::optional<ContextExchange>> planned_exchanges(const PlanRequest& request, const Mesh& mesh) {
  std::vector<std::optional<ContextExchange>> found;
  if (mesh.context == 1) {
    if (why_not_shared(request.problem, mesh, request.problem.context_exchange).empty()) found.emplace_back();
    return found;
  }
  for (const ContextExchange exchange : request.exchanges) {
    if (can_exchange(request.problem, mesh, exchange)) found.emplace_back(exchange);
  }
  if (request.exchanges.empty() && can_exchange(request.problem, mesh, request.problem.context_exchange)) found.emplace_back();
  return found;
}

/// Microbatch sizes to begin with: from each power of two up to the next one that divides a
/// replica's part of the batch, the power itself if it does, else the largest.
inline std::vector<std::int64_t> planned_sizes(std::int64_t of_replica, std::int64_t most) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t low = 1; low <= std::min(of_replica, most); low *= 2) {
    std::int64_t size = of_replica % low == 0 ? low : std::min(2 * low - 1, most);
    while (size > low && of_replica % size != 0) --size;
    if (of_replica % size == 0) sizes.push_back(size);
  }
  return sizes;
}

/// Other sizes between half of a layout's microbatch and its double.
inline std::vector<PlanLayout> other_sizes(const PlanRequest& request, const PlanLayout& layout) {
  std::vector<PlanLayout> found;
  if (!request.microbatch_sizes.empty()) return found;
  const std::int64_t of_replica = request.problem.global_batch / layout.mesh.batch_parts();
  const std::int64_t possible = request.problem.most_sequences() / layout.mesh.expert;
  const std::int64_t most = std::min(possible, 2 * layout.microbatch_size - 1);
  for (std::int64_t size = layout.microbatch_size / 2 + 1; size <= most; ++size) {
    if (size == layout.microbatch_size || of_replica % size != 0) continue;
    found.push_back(layout);
    found.back().microbatch_size = size;
  }
  return found;
}

}  // namespace detail

/// The layouts to choose from. @pre request.problem has a model
/// @throws InputError  if a given exchange of context-parallel ranks leaves none.
inline std::vector<PlanLayout> planned_layouts(const PlanRequest& request) {
  std::vector<PlanLayout> layouts;
  std::optional<Mesh> refused;
  for (const Mesh& mesh : detail::planned_meshes(request)) {
    if (request.problem.global_batch % mesh.batch_parts() != 0) continue;
    const std::int64_t of_replica = request.problem.global_batch / mesh.batch_parts();
    const std::int64_t most = std::max<std::int64_t>(1, request.problem.most_sequences() / mesh.expert);
    const auto exchanges = detail::planned_exchanges(request, mesh);
    const bool given = !request.microbatch_sizes.empty();
    for (const std::int64_t size : given ? request.microbatch_sizes : detail::planned_sizes(of_replica, most)) {
      if (of_replica % size != 0) continue;
      if (exchanges.empty() && !refused) refused = mesh;
      for (const Recompute recompute : request.recompute) {
        for (const auto& exchange : exchanges) layouts.push_back({mesh, recompute, size, exchange});
      }
    }
  }
  if (layouts.empty() && refused) {
    const Problem& problem = request.problem;
    const std::string why = detail::why_not_shared(problem, *refused, problem.context_exchange);
    if (!why.empty()) throw InputError(why);
    if (problem.model->window > 0 && passes_blocks(problem.context_exchange)) refuse_ring_of_window(problem.context_exchange);
    throw InputError(concat("context exchange ", name(problem.context_exchange), " gives ranks whole heads, and ",
                            problem.model->heads, " heads and ", problem.model->kv_heads,
                            " key-value heads are not divisible so on any layout that is asked for; use all-gather or ring"));
  }
  return layouts;
}

}  // namespace tawpipe
