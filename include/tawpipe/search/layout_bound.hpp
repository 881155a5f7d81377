// The best time of a layout with any schedule: the work of all its ranks shared evenly, and the
// chain of one microbatch.
// Not: the lower bounds of one schedule (search/lower_bound.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/search/layout_times.hpp"
#include "tawpipe/search/lower_bound.hpp"
#include "tawpipe/search/plan_space.hpp"
#include "tawpipe/search/sharing.hpp"

namespace tawpipe::inline v0 {

/// Bounds of a request's layouts. Times of the whole model are computed once for each way of
/// sharing it.
///
/// Of a replica's M microbatches each rank of a schedule computes parts: no iteration is shorter
/// than M times a microbatch's forward and backward over the replica's ranks, with more work on
/// faster ones; and each parameter is updated once. Replicas have equal parts of the batch, so the
/// slowest counts. Nor is it shorter than one microbatch's forward and gradients of inputs, which
/// depend on each other layer by layer. The embedding is left out, and so are waits between ranks that share a layer: the
/// distribution of a stage's time over its steps depends on how the model is split.
class LayoutBounds {
 public:
  /// @param known  times from other searches, to which those found are added; must outlive it; null: none
  explicit LayoutBounds(const PlanRequest& request, LayoutTimes* known = nullptr)
      : request_{request}, times_{known == nullptr ? own_.known_ : known->known_} {
    const Problem& problem = request.problem;
    const ParameterBytes& bytes = problem.parameter_bytes;
    const int ranks = problem.cluster.ranks();
    for (int rank = 0; rank < ranks; ++rank) {
      usable_ +=
          static_cast<double>(usable_part(problem.cluster.device(Rank{rank}).memory, problem.usable_memory).value()) / ranks;
    }
    const double parameters = static_cast<double>(problem.model->parameters()) / ranks;
    resident_ = parameters * static_cast<double>(bytes.weight + bytes.gradient);
    states_ = resident_ + parameters * static_cast<double>(bytes.optimizer);
    weights_ = parameters * static_cast<double>(bytes.weight);
  }

  LayoutBounds(const LayoutBounds&) = delete;
  LayoutBounds& operator=(const LayoutBounds&) = delete;

  /// Finds at once what the bounds of these layouts need. @param parallel  as for plan()
  template <class Parallel>
  void prepare(std::span<const PlanLayout> layouts, Parallel&& parallel) {
    struct Open {
      const PlanLayout* layout;
      Rank rank;
      Times* times;
    };
    std::vector<Open> open;
    for (const PlanLayout& layout : layouts) {
      for (const Replica& replica : replicas(layout.mesh)) {
        for (const auto& [rank, count] : replica) {
          const auto [at, added] = times_.try_emplace(key(layout, rank));
          if (added) open.push_back({&layout, rank, &at->second});
        }
      }
    }
    parallel(open.size(), [&](std::size_t i) { *open[i].times = find_times(*open[i].layout, open[i].rank); });
  }

  /// A lower bound on any schedule's iteration on this layout.
  Duration min_time(const PlanLayout& layout) {
    const auto microbatches =
        static_cast<double>(request_.problem.global_batch / layout.microbatch_size / layout.mesh.batch_parts());
    double time = 0;
    for (const Replica& replica : replicas(layout.mesh)) {
      double rate = 0;  // microbatches a picosecond
      double chain = std::numeric_limits<double>::max();
      double update = std::numeric_limits<double>::max();
      for (const auto& [rank, count] : replica) {
        const Times& times = times_of(layout, rank);
        rate += count / (times.forward + times.backward);
        chain = std::min(chain, times.forward + std::min(times.backward, times.input));
        update = std::min(update, times.update);
      }
      time = std::max({time, microbatches / rate + update, chain});
    }
    return Duration{static_cast<std::int64_t>(std::min(time * (1 - 1e-6), 9e18))};  // rounding of steps to picoseconds
  }

  /// The same with full recomputation of the least part of all layers with which can_hold() is true;
  /// none if that is all of them. @pre can_hold() is false, with nothing computed again
  std::optional<Duration> min_time_of_part(PlanLayout layout) {
    layout.recompute = Recompute::full;
    int least = 1;
    for (int most = request_.problem.model->layers; least < most;) {
      layout.recompute_layers = (least + most) / 2;
      const bool holds = min_states(layout) + times_of(layout, first_of(layout.mesh)).kept / layout.mesh.pipeline <= usable_;
      holds ? most = layout.recompute_layers : least = layout.recompute_layers + 1;
    }
    if (least >= request_.problem.model->layers) return std::nullopt;
    layout.recompute_layers = least;
    return min_time(layout);
  }

  /// Whether a replica's devices together can hold the minimum for any schedule: the model's states
  /// once over all replicas, and, for one microbatch, the activations that all layers keep when the
  /// last one's forward ends; without what lies in host memory.
  bool can_hold(const PlanLayout& layout) { return min_memory(layout) <= usable_; }
  /// That minimum in bytes of a device, mean.
  double min_memory(const PlanLayout& layout) {
    return min_states(layout) + (offload_of(layout).activations ? 0 : saved(layout) / layout.mesh.pipeline);
  }
  /// The additional time of layers whose ranks share them and wait for each other: an estimate.
  double usual_wait(const PlanLayout& layout) {
    const Times& times = times_of(layout, first_of(layout.mesh));
    return times.shared / (times.forward + times.backward);
  }
  /// The memory of a device under usual schedules relative to the usable part: weights and
  /// gradients sharded over the schedule's ranks and those that share them, the optimizer's states
  /// by all, and one microbatch of all layers, or as many microbatches as there are stages of its
  /// own. An estimate for ordering layouts.
  double usual_share(const PlanLayout& layout) {
    const ParameterBytes& bytes = request_.problem.parameter_bytes;
    const auto each = static_cast<double>(bytes.weight + bytes.gradient);
    const double experts = each * static_cast<double>(request_.problem.model->expert_parameters());
    const double others = each * static_cast<double>(request_.problem.model->parameters()) - experts;
    const int ranks = request_.problem.cluster.ranks();
    const Mesh& mesh = layout.mesh;
    const double kept = others / (mesh.tensor * mesh.pipeline) + experts / (mesh.expert_parts() * mesh.pipeline);
    return (states_ - (others + experts) / ranks + kept + saved(layout)) / usable_;
  }

 private:
  using Times = LayoutTimes::Times;

  Offload offload_of(const PlanLayout& layout) const { return layout.offload.value_or(request_.problem.offload); }
  double min_states(const PlanLayout& layout) const {
    const Offload offload = offload_of(layout);
    return (offload.optimizer ? resident_ : states_) - (offload.weights ? weights_ : 0);
  }
  double saved(const PlanLayout& layout) { return times_of(layout, first_of(layout.mesh)).saved; }

  /// One member of each class of a replica's ranks, and how many are of the class.
  using Replica = std::vector<std::pair<Rank, int>>;
  /// One of each kind of replica.
  const std::vector<Replica>& replicas(const Mesh& mesh) {
    if (known_mesh_ && *known_mesh_ == mesh) return known_replicas_;
    const Cluster& cluster = request_.problem.cluster;
    // If all nodes are equal and share nothing, ranks at the same index in their nodes are equal.
    const bool alike = cluster.kinds().size() == 1 && cluster.fabric().links.empty();
    detail::RankClasses classes{cluster, mesh};
    std::map<int, Rank> members;  // [class] its first
    std::set<std::map<int, int>> seen;
    known_replicas_.clear();
    for (int data = 0; data < mesh.data; ++data) {
      std::map<int, int> counts;  // [class]
      for (int pipeline = 0; pipeline < mesh.pipeline; ++pipeline) {
        const Rank rank = mesh.rank({.pipeline = pipeline, .data = data});
        const int number = alike ? cluster.local_index(rank) : classes.of(rank);
        members.try_emplace(number, rank);
        ++counts[number];
      }
      if (!seen.insert(counts).second) continue;
      Replica& replica = known_replicas_.emplace_back();
      for (const auto& [number, count] : counts) replica.emplace_back(members.at(number), count);
    }
    known_mesh_ = mesh;
    return known_replicas_;
  }
  Rank first_of(const Mesh& mesh) { return replicas(mesh).front().front().first; }

  const Times& times_of(const PlanLayout& layout, Rank rank) {
    const auto [at, added] = times_.try_emplace(key(layout, rank));
    if (added) at->second = find_times(layout, rank);
    return at->second;
  }
  LayoutTimes::Key key(const PlanLayout& layout, Rank rank) const {
    return {layout.mesh.tensor,        layout.mesh.context, layout.mesh.expert,
            layout.mesh.whole_experts, exchange_of(layout), inner_of(layout),
            neighbours_of(layout),     layout.recompute,    layout.recompute_layers,
            layout.microbatch_size,    layout.loss_chunk,   detail::RankClasses{request_.problem.cluster, layout.mesh}.key(rank)};
  }
  Times find_times(const PlanLayout& layout, Rank rank) const {
    return std::visit([&](const auto& cost) { return find_times(layout, rank, cost); }, request_.problem.cost);
  }

  ContextExchange exchange_of(const PlanLayout& layout) const {
    return layout.exchange.value_or(request_.problem.context_exchange);
  }
  int inner_of(const PlanLayout& layout) const {
    return exchange_of(layout) == ContextExchange::two_level ? context_inner_of(request_.problem, layout.mesh) : 1;
  }

  int neighbours_of(const PlanLayout& layout) const { return expert_neighbours_of(request_.problem, layout.mesh); }

  template <CostModel Cost>
  Times find_times(const PlanLayout& layout, Rank rank, const Cost& cost) const {
    // At least so many layers are computed again, and at most all.
    const int again = layout.recompute_layers > 0 ? layout.recompute_layers : request_.problem.model->recompute_layers;
    const WholeModel model = whole_model(layout, rank, again);
    Times times;
    if constexpr (std::is_same_v<Cost, KernelCost>) {
      // Where layers differ, the host catches up in some with what it falls behind in others.
      KernelCost timed = cost;
      timed.host_ahead = model.is_mixed;
      times = find_times(timed, model);
    } else {
      times = find_times(cost, model);
    }
    times.kept = model.saved();
    times.saved = again > 0 ? whole_model(layout, rank, 0).saved() : times.kept;
    return times;
  }

  /// The passes of all layers and the head on one of the ranks that share them, and an update of its
  /// part. A stage takes as long as its parts, however the model is split.
  struct WholeModel {
    Schedule parts;             ///< of each, forward, backward and backward_input; then the update
    std::vector<double> count;  ///< [stage of `parts`] in the model: the sum of all is the model
    bool is_mixed = false;      ///< not all layers are alike

    double saved() const {
      double all = 0;
      for (std::size_t s = 0; s < count.size(); ++s) all += count[s] * static_cast<double>(parts.stages()[s].saved.value());
      return all;
    }
  };
  /// A part of the model, and how many of it there are; less than none to make up for parts that overlap.
  struct Part {
    StageWork stage;
    double count;
  };
  /// Every layer with the next one, and the last one with the head, less those counted twice so: steps go on from
  /// one layer into the next. Equal ones count together.
  static std::vector<Part> parts_of(const StageWork& whole, const Workload& work) {
    std::map<std::array<int, 4>, std::size_t> known;  // kinds of two layers, or one, and how many are computed again
    std::vector<Part> parts;
    const auto kind = [&](int layer) {
      return whole.kinds.empty() ? 0 : static_cast<int>(whole.kinds[static_cast<std::size_t>(layer)]);
    };
    const auto add = [&](int first, int layers, bool head, double count) {
      const int again = std::clamp(whole.recomputed - first, 0, layers);
      const auto [at, added] =
          known.try_emplace({kind(first), layers == 2 ? kind(first + 1) : -1, again, head ? 1 : 0}, parts.size());
      if (added) parts.push_back({work.part(whole, first, first + layers, false, head), 0});
      parts[at->second].count += count;
    };
    const int last = whole.layers - 1;
    for (int layer = 0; layer < last; ++layer) add(layer, 2, false, 1);
    for (int layer = 1; layer <= last; ++layer) add(layer, 1, false, -1);
    add(last, 1, true, 1);
    return parts;
  }
  WholeModel whole_model(const PlanLayout& layout, Rank rank, int recompute_layers) const {
    const Problem& problem = request_.problem;
    const Batch batch{problem.sequence, layout.microbatch_size * layout.mesh.expert, problem.global_batch};
    Transformer model = *problem.model;
    if (layout.loss_chunk > 0) model.loss_chunk = layout.loss_chunk;
    model.recompute_layers = recompute_layers;
    Workload work{model, batch, layout.recompute};
    work.parameter_bytes(problem.parameter_bytes);
    const StageWork whole = work.stage(0, model.layers, false, true);
    Schedule::Parts parts;
    parts.ranks = problem.cluster.ranks();
    parts.mesh = layout.mesh;
    std::vector<double> count;
    for (const Part& part : parts_of(whole, work)) {
      parts.stages.push_back(part.stage);
      count.push_back(part.count);
    }
    if (layout.mesh.shared() > 1) {
      Sharing sharing = sharing_of(problem, layout.mesh, false);
      sharing.exchange = exchange_of(layout);
      sharing.inner = inner_of(layout);
      sharing.overlap = false;
      sharing.copies = false;
      parts.bodies = share_stages(model, batch, layout.recompute, parts.stages, sharing);
      for (std::size_t s = 0; s < parts.stages.size(); ++s) parts.stages[s] = parts.bodies[s].work;
    }
    for (std::size_t s = 0; s < parts.stages.size(); ++s) {
      for (const Op op : passes) parts.tasks.push_back({.op = op, .rank = rank, .stage = id<StageId>(s), .microbatch = 0});
    }
    const ParameterBytes& bytes = problem.parameter_bytes;
    const std::int64_t states = model.parameters() * (bytes.weight + bytes.gradient + bytes.optimizer);
    parts.tasks.push_back({.op = Op::update, .rank = rank, .stage = StageId{0}, .bytes = Bytes{states / parts.ranks}});
    const bool mixed = !whole.kinds.empty() || (whole.recomputed > 0 && whole.recomputed < whole.layers);
    return {Schedule{std::move(work), std::move(parts)}, std::move(count), mixed};
  }
  static constexpr std::array passes{Op::forward, Op::backward, Op::backward_input};

  template <CostModel Cost>
  Times find_times(const Cost& cost, const WholeModel& model) const {
    detail::LeastTimes<Cost> times{model.parts, request_.problem.cluster, cost};
    Times all;
    double* const of_pass[] = {&all.forward, &all.backward, &all.input};
    for (std::size_t s = 0; s < model.count.size(); ++s) {
      for (std::size_t pass = 0; pass < passes.size(); ++pass) {
        const auto [work, with_waits] = times.body_times_of(id<TaskId>(passes.size() * s + pass));
        *of_pass[pass] += model.count[s] * static_cast<double>(work);
        if (passes[pass] != Op::backward_input) all.shared += model.count[s] * static_cast<double>(with_waits);
      }
    }
    all.update = static_cast<double>(times.of(id<TaskId>(passes.size() * model.count.size())));
    return all;
  }

  const PlanRequest& request_;
  double usable_ = 0;  ///< bytes of a device, mean
  // Bytes of the model's states, for each device.
  double resident_ = 0;  ///< weights and gradients
  double states_ = 0;
  double weights_ = 0;
  std::optional<Mesh> known_mesh_;
  std::vector<Replica> known_replicas_;  ///< for known_mesh_
  LayoutTimes own_;
  std::map<LayoutTimes::Key, Times>& times_;
};

}  // namespace tawpipe
