// What a pipeline on a layout takes and needs, about, without building its schedule on it: the
// outline of the schedule, with the times of the layout's stages and messages.
// Not: bounds, which drop candidates (search/lower_bound.hpp); prices only order them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "tawpipe/schedules/registry.hpp"
#include "tawpipe/search/detail/outline.hpp"
#include "tawpipe/search/detail/pipeline_costs.hpp"
#include "tawpipe/search/detail/stage_pieces.hpp"
#include "tawpipe/search/plan_result.hpp"
#include "tawpipe/search/plan_space.hpp"

namespace tawpipe::inline v0::detail {

/// An iteration's time, and the memory of the fullest rank.
struct PipelinePrice {
  double picoseconds = 0;
  double busiest = 0;  ///< of the rank that computes, or copies out, longest, a microbatch, in picoseconds
  double bytes = 0;
  std::int64_t steps = 0;  ///< that were looked at
};

/// What prices have in common, found once, by any thread; and the prices. For requests that only differ in
/// what they look at, or in what lies in host memory.
class PipelineCache {
  friend class PipelinePrices;

  using PiecesKey =
      std::tuple<int, int, int, bool, ContextExchange, int, int, Recompute, std::int64_t, int, std::vector<std::int32_t>>;
  using OutlineKey = std::tuple<std::string, ScheduleOptions, int, std::int64_t>;
  /// A mesh and its order, what is around a pipeline, and the outline.
  using PriceKey =
      std::tuple<PiecesKey, Mesh::Sizes, std::vector<MeshAxis>, StateSharding, std::array<bool, 2>, bool, OutlineKey>;

  /// What is found, or why it cannot be.
  template <class Found>
  struct Known {
    std::optional<Found> found = {};
    std::string refusal = {};
  };

  std::mutex mutex_;
  std::map<OutlineKey, Known<Outline>> outlines_;
  std::map<PiecesKey, StagePieces> pieces_;
  std::map<std::tuple<PiecesKey, bool, int>, std::vector<StageWork>> cuts_;
  std::map<PriceKey, PipelinePrice> prices_;
  std::optional<Workload> workload_;
};

/// Prices of the candidates of a request.
class PipelinePrices {
  using PiecesKey = PipelineCache::PiecesKey;

 public:
  PipelinePrices(const PlanRequest& request, const Registry& registry, CollectiveTimes& known, PipelineCache& cache)
      : request_{request}, registry_{registry}, known_{known}, cache_{cache} {
    const Cluster& cluster = request.problem.cluster;
    uniform_ = cluster.kinds().size() == 1 && cluster.fabric().links.empty();
    for (const DeviceSpec& device : cluster.kinds().front().devices) uniform_ = uniform_ && device == cluster.device(Rank{0});
  }

  /// Whether an outline tells all of it: stages stay where they are, their layers are alike in what is
  /// computed again and what lies in host memory; all nodes are equal. More ranks than layers have no
  /// price.
  bool has(const PlanLayout& layout, const ScheduleChoice& choice) const {
    const Transformer& model = *request_.problem.model;
    if (!uniform_ || layout.mesh.pipeline == 1 || layout.mesh.pipeline > model.layers || layout.recompute_layers > 0)
      return false;
    if (model.recompute_layers > 0 || offload_of(request_, layout).layers > 0) return false;
    if (sharding_of(request_, layout) > StateSharding::optimizer) return false;
    const auto order = choice.options.find("order");
    return registry_.info(choice.schedule).family == ScheduleFamily::pipeline &&
           (order == choice.options.end() || order->second == "paper");
  }

  /// Of an iteration with that many microbatches in each replica.
  /// @param layout  as the choice's schedule runs it (layout_for())
  /// @throws InputError  if the schedule cannot run it
  PipelinePrice price(const PlanLayout& layout, const ScheduleChoice& choice, std::int64_t microbatches) {
    const Offload offload = offload_of(request_, layout);
    return find(cache_.prices_,
                {key_of(layout),
                 layout.mesh.sizes(),
                 layout.mesh.order,
                 sharding_of(request_, layout),
                 {offload.activations, offload.optimizer},
                 layout.balanced_stages,
                 {choice.schedule, choice.options, layout.mesh.pipeline, microbatches}},
                [&] { return find_price(layout, choice, microbatches); });
  }

 private:
  PipelinePrice find_price(const PlanLayout& layout, const ScheduleChoice& choice, std::int64_t microbatches) {
    const Outline& outline = outline_of(layout, choice, microbatches);
    if (outline.copies && layout.mesh.whole_experts)
      throw InputError(concat("schedule ", choice.schedule, " sums experts of two ranks, which expert parallelism does not"));
    const StagePieces& pieces = pieces_of(layout);
    std::vector<StagePiece> stages;
    for (const StageWork& stage : cut_of(layout, pieces, static_cast<int>(outline.stages.size())))
      stages.push_back(pieces.stage(stage));
    const PipelineCosts costs = pipeline_costs(request_, layout, workload_for_costs(), outline, stages, known_);
    double whole = path(outline, stages, costs);
    double busy = busiest(outline, [&](const Outline::Step& step) {
      return stages[static_cast<std::size_t>(step.stage)].times[StagePiece::of(step.op)];
    });
    if (!costs.saved.empty()) {
      const double copies = busiest(outline, [&](const Outline::Step& step) {
        return step.op == Op::forward ? costs.saved[static_cast<std::size_t>(step.stage)] : 0;
      });
      whole = std::max(whole, copies);
      busy = std::max(busy, copies);
    }
    return {whole, busy / static_cast<double>(microbatches), memory(layout, outline, stages),
            static_cast<std::int64_t>(outline.steps.size())};
  }

  /// Where the same is found for several, by its key; made outside the lock.
  template <class Map, class Make>
  const typename Map::mapped_type& find(Map& known, typename Map::key_type key, Make&& make) {
    {
      const std::lock_guard lock{cache_.mutex_};
      if (const auto at = known.find(key); at != known.end()) return at->second;
    }
    typename Map::mapped_type made = make();
    const std::lock_guard lock{cache_.mutex_};
    return known.try_emplace(std::move(key), std::move(made)).first->second;
  }

  Problem problem_of(const PlanLayout& layout, std::int64_t microbatches) const {
    Problem problem = v0::problem_of(request_, layout, {});
    problem.global_batch = layout.microbatch_size * layout.mesh.batch_parts() * microbatches;
    return problem;
  }
  Workload workload_of(const Problem& problem) const {
    return problem.workload(problem.microbatch_sizes.front(), problem.mesh.data);
  }

  const Outline& outline_of(const PlanLayout& layout, const ScheduleChoice& choice, std::int64_t microbatches) {
    const auto& known = find(cache_.outlines_, {choice.schedule, choice.options, layout.mesh.pipeline, microbatches}, [&] {
      Problem problem = problem_of(layout, microbatches);
      problem.recompute = Recompute::full;  // there is all that may be kept, and stashed
      const ScheduleRequest asked{.workload = workload_of(problem),
                                  .nodes = DeviceGroups::even(layout.mesh.pipeline, 1),
                                  .options = choice.options,
                                  .device_memory = problem.cluster.device(Rank{0}).memory};
      PipelineCache::Known<Outline> made;
      try {
        made.found.emplace(registry_.build(choice.schedule, asked));
      } catch (const InputError& error) {
        made.refusal = error.what();
      }
      return made;
    });
    if (!known.found) throw InputError(known.refusal);
    return *known.found;
  }

  PiecesKey key_of(const PlanLayout& layout) const {
    const Problem& problem = request_.problem;
    const ContextExchange exchange = layout.exchange.value_or(problem.context_exchange);
    return {layout.mesh.tensor,
            layout.mesh.context,
            layout.mesh.expert,
            layout.mesh.whole_experts,
            exchange,
            exchange == ContextExchange::two_level ? context_inner_of(problem, layout.mesh) : 1,
            expert_neighbours_of(problem, layout.mesh),
            layout.recompute,
            layout.microbatch_size,
            layout.loss_chunk,
            RankClasses{problem.cluster, layout.mesh}.key(Rank{0})};
  }
  const StagePieces& pieces_of(const PlanLayout& layout) {
    return find(cache_.pieces_, key_of(layout), [&] {
      const Problem problem = problem_of(layout, 1);
      return stage_pieces(problem, workload_of(problem));
    });
  }

  const std::vector<StageWork>& cut_of(const PlanLayout& layout, const StagePieces& pieces, int stages) {
    const auto key = std::tuple{layout.balanced_stages ? key_of(layout) : PiecesKey{}, layout.balanced_stages, stages};
    return find(cache_.cuts_, key, [&] {
      const Problem problem = problem_of(layout, 1);
      Workload work = workload_of(problem);
      if (layout.balanced_stages) {
        const auto time = [](const StagePiece& piece) { return piece.times[0] + piece.times[1]; };
        const double layer = std::max(1.0, time(pieces.layers[0]));
        StageCut cut{.balanced = true, .embedding = time(pieces.before) / layer, .head = time(pieces.behind) / layer};
        for (const std::uint8_t kind : work.model().pattern) cut.each.push_back(time(pieces.layers[kind]) / layer);
        work.cut_by(std::move(cut));
      }
      std::vector<StageWork> cut = work.split(stages);
      for (StageWork& stage : cut) stage.kernels.clear();
      return cut;
    });
  }

  const Workload& workload_for_costs() {
    const std::lock_guard lock{cache_.mutex_};
    if (!cache_.workload_) {
      Problem problem = request_.problem;
      problem.mesh = Mesh{}.over(problem.cluster.ranks());
      cache_.workload_ = problem.workload(1);
    }
    return *cache_.workload_;
  }

  /// The most of a lane's computations. @param of  a step's time
  template <class Of>
  static double busiest(const Outline& outline, Of&& of) {
    std::vector<double> busy(static_cast<std::size_t>(outline.ranks * outline.lanes), 0);
    for (const Outline::Step& step : outline.steps) {
      if (step.message < 0) busy[static_cast<std::size_t>(step.lane)] += of(step);
    }
    return *std::max_element(busy.begin(), busy.end());
  }
  /// The longest path, as min_need() finds it in the schedule itself.
  double path(const Outline& outline, const std::vector<StagePiece>& stages, const PipelineCosts& costs) const {
    std::vector<double> lanes(static_cast<std::size_t>(outline.ranks * outline.lanes), 0);
    std::vector<double> end(outline.steps.size(), 0);
    std::vector<double> ready(end.size(), 0);  // of first computations: their weights are there
    const auto rank_of = [](const Outline::Held& held) { return static_cast<std::size_t>(held.rank); };
    const auto stage_of = [](const Outline::Held& held) { return static_cast<std::size_t>(held.stage); };
    std::vector<double> data(static_cast<std::size_t>(outline.ranks), 0);  // the lane of sums and gathers
    if (costs.early_gathers) {
      std::vector<const Outline::Held*> first;
      for (const Outline::Held& held : outline.held) first.push_back(&held);
      std::stable_sort(first.begin(), first.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
      for (const Outline::Held* held : first) {
        const double gather = costs.gathers[stage_of(*held)];
        ready[static_cast<std::size_t>(held->first)] = data[rank_of(*held)] + gather * (held->stage == 0 ? costs.last_bucket : 1);
        data[rank_of(*held)] += gather;
      }
    }
    std::uint32_t begin = 0;
    for (std::size_t s = 0; s < end.size(); ++s) {
      const Outline::Step& step = outline.steps[s];
      double& lane = lanes[static_cast<std::size_t>(step.lane)];
      double& peer = lanes[static_cast<std::size_t>(step.peer_lane)];
      double start = std::max({lane, peer, ready[s]});
      for (; begin < step.after; ++begin) start = std::max(start, end[static_cast<std::size_t>(outline.after[begin])]);
      const bool sends = step.message >= 0;
      end[s] = start + (sends ? costs.messages[static_cast<std::size_t>(step.message)]
                              : stages[static_cast<std::size_t>(step.stage)].times[StagePiece::of(step.op)]);
      lane = peer = end[s];
    }
    return after_sums(outline, stages, costs, lanes, end, std::move(data));
  }
  /// When all is updated.
  double after_sums(const Outline& outline, const std::vector<StagePiece>& stages, const PipelineCosts& costs,
                    const std::vector<double>& lanes, const std::vector<double>& end, std::vector<double> data) const {
    double last = 0;
    std::vector<double> computed(static_cast<std::size_t>(outline.ranks), 0);
    for (std::size_t r = 0; r < computed.size(); ++r) computed[r] = lanes[r * static_cast<std::size_t>(outline.lanes)];
    const auto sum = [&](const Outline::Held& held, double from) {
      const auto stage = static_cast<std::size_t>(held.stage);
      double& lane = data[static_cast<std::size_t>(held.rank)];
      const double whole = costs.sums[stage] + costs.copies[stage];
      if (costs.early_sums && held.stage == 0 && costs.last_bucket < 1) {
        const double early = 1 - costs.last_bucket;
        lane = std::max(lane, from - early * stages[stage].times[1]) + early * whole;
        lane = std::max(lane, from) + costs.last_bucket * whole;
      } else {
        lane = std::max(lane, from) + whole;
      }
    };
    if (costs.early_sums) {
      for (const Outline::Held& held : outline.held) sum(held, end[static_cast<std::size_t>(held.last)]);
    }
    for (const Outline::Held& held : outline.held) {
      const auto rank = static_cast<std::size_t>(held.rank);
      const auto stage = static_cast<std::size_t>(held.stage);
      if (!costs.early_sums) sum(held, lanes[rank * static_cast<std::size_t>(outline.lanes)]);
      computed[rank] = std::max(computed[rank], data[rank]) + costs.updates[stage];
      if (!costs.early_gathers && costs.gathers[stage] > 0)
        data[rank] = std::max(data[rank], computed[rank]) + costs.gathers[stage];
      last = std::max({last, computed[rank], data[rank]});
    }
    return last;
  }

  /// States, the most that is kept at once, and the workspace, of the fullest rank.
  double memory(const PlanLayout& layout, const Outline& outline, const std::vector<StagePiece>& stages) const {
    const ParameterBytes& sizes = request_.problem.parameter_bytes;
    const bool shards = sharding_of(request_, layout) == StateSharding::optimizer;
    const Offload offload = offload_of(request_, layout);
    const bool own = outline.splits_backward && std::any_of(stages.begin(), stages.end(), [](const StagePiece& stage) {
                       return stage.stashes_workspace;
                     });  // each computation has a workspace of its own
    std::vector<double> states(static_cast<std::size_t>(outline.ranks), 0);
    for (const Outline::Held& held : outline.held) {
      const StagePiece& stage = stages[static_cast<std::size_t>(held.stage)];
      const double dense = stage.dense / (shards ? layout.mesh.data * layout.mesh.token_ranks() : 1);
      const double experts = stage.experts / (shards ? layout.mesh.data : 1);
      states[static_cast<std::size_t>(held.rank)] +=
          (stage.dense + stage.experts) * static_cast<double>(sizes.weight + sizes.gradient) +
          (offload.optimizer ? 4.0 / state_pieces : 1) * (dense + experts) * static_cast<double>(sizes.optimizer);
    }
    std::vector<std::vector<double>> change(states.size());
    for (std::size_t rank = 0; rank < states.size(); ++rank)
      change[rank].assign(static_cast<std::size_t>(outline.computations[rank]) + 1, 0);
    const auto add = [&](std::int32_t rank, std::int32_t first, std::int32_t last, double bytes) {
      change[static_cast<std::size_t>(rank)][static_cast<std::size_t>(first)] += bytes;
      change[static_cast<std::size_t>(rank)][static_cast<std::size_t>(last) + 1] -= bytes;
    };
    for (const Outline::Kept& one : outline.kept) {
      const StagePiece& stage = stages[static_cast<std::size_t>(one.stage)];
      const double whole = one.kind == ContentKind::saved   ? stage.saved
                           : one.kind == ContentKind::stash ? stage.stash
                                                            : stage.boundary;
      const bool leaves = offload.activations && one.kind == ContentKind::saved && one.last > one.first + 3;
      if (leaves) {  // on its way out during the next computation, and back in during the one before its use
        add(one.rank, one.first, one.first + 1, one.part * whole);
        add(one.rank, one.last - 1, one.last, one.part * whole);
      } else {
        add(one.rank, one.first, one.last, one.part * whole);
      }
    }
    std::vector<std::int32_t> passed(states.size(), 0);
    std::vector<double> workspace(states.size(), 0);
    for (const Outline::Step& step : outline.steps) {
      if (step.message >= 0) continue;
      const auto rank = static_cast<std::size_t>(step.lane / outline.lanes);
      const double bytes = stages[static_cast<std::size_t>(step.stage)].workspaces[StagePiece::of(step.op)];
      workspace[rank] = std::max(workspace[rank], bytes);
      if (own) add(static_cast<std::int32_t>(rank), passed[rank], passed[rank], bytes);
      ++passed[rank];
    }
    double fullest = 0;
    for (std::size_t rank = 0; rank < states.size(); ++rank) {
      double now = states[rank] + (own ? 0 : workspace[rank]);
      for (const double bytes : change[rank]) fullest = std::max(fullest, now += bytes);
    }
    return fullest;
  }

  const PlanRequest& request_;
  const Registry& registry_;
  CollectiveTimes& known_;
  PipelineCache& cache_;
  bool uniform_ = false;
};

}  // namespace tawpipe::inline v0::detail
