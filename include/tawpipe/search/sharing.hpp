// How the ranks of a mesh share the layers of a problem's model, and which of them run in pairs.
// Not: what each then does (model/transformer_body.hpp).
#pragma once

#include "tawpipe/model/operator_sharing.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/schedules/registry.hpp"
#include "tawpipe/search/problem.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Whether any `inner` ranks that follow each other along an axis lie in one node.
/// @param at  a place's number on it, to change
template <class At>
bool lie_in_one_node(const Cluster& cluster, const Mesh& mesh, int inner, At&& at) {
  for (int r = 0; r < mesh.ranks(); ++r) {
    MeshPlace place = mesh.place(Rank{r});
    at(place, inner);
    if (!cluster.same_node(mesh.rank(place), Rank{r})) return false;
  }
  return true;
}

}  // namespace detail

/// Neighbours that exchange all-to-all where context-parallel ranks exchange in two levels on a
/// mesh: as given, or the most that lie in one node and have whole heads each.
/// @pre mesh is over the cluster's ranks; problem has a model. Complexity: O(ranks x context)
inline int context_inner_of(const Problem& problem, const Mesh& mesh) {
  if (problem.context_inner > 0) return problem.context_inner;
  const auto first = [](MeshPlace& place, int inner) { place.context -= place.context % inner; };
  for (int inner = mesh.context; inner > 1; --inner) {
    const bool whole = problem.model->divides_heads(mesh.tensor * inner);
    if (mesh.context % inner == 0 && whole && detail::lie_in_one_node(problem.cluster, mesh, inner, first)) return inner;
  }
  return 1;
}

/// Sharing::neighbours: where tokens are sent by DeepEP, the most ranks that follow each other among
/// those with whole experts, tensor fastest, then context, and lie in one node; else 1.
/// @pre mesh is over the cluster's ranks. Complexity: O(ranks x divisors of those that share)
inline int expert_neighbours_of(const Problem& problem, const Mesh& mesh) {
  if (!mesh.whole_experts || problem.expert_dispatch != ExpertDispatch::deepep) return 1;
  const auto first = [&](MeshPlace& place, int inner) {
    int number = place.tensor + mesh.tensor * (place.context + mesh.context * place.expert);
    number -= number % inner;
    place.tensor = number % mesh.tensor;
    place.context = number / mesh.tensor % mesh.context;
    place.expert = number / mesh.tensor / mesh.context;
  };
  for (int inner = mesh.shared(); inner > 1; --inner) {
    if (mesh.shared() % inner == 0 && detail::lie_in_one_node(problem.cluster, mesh, inner, first)) return inner;
  }
  return 1;
}

/// How the ranks of a mesh share a layer.
/// @pre mesh is over the cluster's ranks
inline Sharing sharing_of(const Problem& problem, const Mesh& mesh, bool sends_activations) {
  return {.tensor = mesh.tensor,
          .context = mesh.context,
          .expert = mesh.expert,
          .whole_experts = mesh.whole_experts,
          .dispatch = problem.expert_dispatch,
          .neighbours = expert_neighbours_of(problem, mesh),
          .expert_overlap = problem.expert_overlap,
          .sequence_parallel = problem.sequence_parallel,
          .exchange = problem.context_exchange,
          .inner = problem.context_exchange == ContextExchange::two_level ? context_inner_of(problem, mesh) : 1,
          .overlap = problem.tensor_overlap,
          .sends_activations = sends_activations};
}

namespace detail {

/// Whether a schedule on a mesh runs a forward and a backward of different microbatches as one block.
/// @throws InputError  where it should and cannot
inline bool pairs_of(const Problem& problem, const Mesh& mesh, const ScheduleInfo& schedule) {
  if (problem.expert_overlap == ExpertOverlap::off || !mesh.whole_experts || mesh.shared() == 1) return false;
  if (schedule.pairs) return true;
  throw InputError(concat(schedule.name, " runs no forward together with another microbatch's backward, under which all-to-alls ",
                          "of experts could run; choose interleaved-1f1b (ddp without a pipeline), dualpipe or dualpipe-v"));
}

/// Why the ranks of a mesh cannot share a model's layers with that exchange, as a sentence; empty: they can.
inline std::string why_not_shared(const Problem& problem, const Mesh& mesh, ContextExchange exchange) {
  if (!problem.model->has_kinds()) return {};
  Sharing sharing = sharing_of(problem, mesh, false);
  sharing.exchange = exchange;
  return why_not_shared(*problem.model, sharing);
}

/// Whether context-parallel ranks of a mesh can exchange keys and values so: all-to-all needs whole
/// heads on each that takes part, and two levels divide the ranks; rings have no window.
inline bool can_exchange(const Problem& problem, const Mesh& mesh, ContextExchange exchange) {
  if (problem.model->window > 0 && passes_blocks(exchange)) return false;
  if (!why_not_shared(problem, mesh, exchange).empty()) return false;
  if (exchange != ContextExchange::all_to_all && exchange != ContextExchange::two_level) return true;
  const int inner = exchange == ContextExchange::all_to_all ? mesh.context : context_inner_of(problem, mesh);
  return mesh.context % inner == 0 && problem.model->divides_heads(mesh.tensor * inner);
}

}  // namespace detail

}  // namespace tawpipe
