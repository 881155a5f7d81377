// How long messages, sums, gathers, updates and copies around a pipeline's computations take.
// Not: the computations (stage_pieces.hpp), nor when each of them is (pipeline_price.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "tawpipe/schedule/buckets.hpp"
#include "tawpipe/search/detail/outline.hpp"
#include "tawpipe/search/detail/stage_pieces.hpp"
#include "tawpipe/search/plan_space.hpp"

namespace tawpipe::inline v0::detail {

inline StateSharding sharding_of(const PlanRequest& request, const PlanLayout& layout) {
  return layout.sharding.value_or(request.problem.sharding);
}
inline Offload offload_of(const PlanRequest& request, const PlanLayout& layout) {
  return layout.offload.value_or(request.problem.offload);
}

/// Picoseconds of what is around the computations of an outline.
struct PipelineCosts {
  std::vector<double> messages = {};  ///< [Outline::messages]
  // [stage]
  std::vector<double> sums = {};
  std::vector<double> gathers = {};
  std::vector<double> updates = {};
  std::vector<double> copies = {};  ///< of the sum over two ranks that hold it
  std::vector<double> saved = {};   ///< copied out after a forward; empty: stays
  bool early_sums = false;
  bool early_gathers = false;
  double last_bucket = 1;  ///< of the first stage's parameters
};

/// @param stages  [stage of the outline]  @param work  over all devices
inline PipelineCosts pipeline_costs(const PlanRequest& request, const PlanLayout& layout, const Workload& work,
                                    const Outline& outline, const std::vector<StagePiece>& stages, CollectiveTimes& known) {
  const Problem& problem = request.problem;
  const ParameterBytes& sizes = problem.parameter_bytes;
  const Mesh& mesh = layout.mesh;
  const bool shards = sharding_of(request, layout) == StateSharding::optimizer;
  const Offload offload = offload_of(request, layout);
  PipelineCosts costs{.early_sums = problem.overlap_gradients, .early_gathers = problem.overlap_gathers && shards};
  Schedule::Parts parts;
  parts.ranks = problem.cluster.ranks();
  parts.mesh = mesh;
  const auto whole = [](double bytes) { return Bytes{static_cast<std::int64_t>(bytes)}; };
  const auto real = [&](Rank logical) { return mesh.rank({.pipeline = number(logical)}); };
  for (const Outline::Message& message : outline.messages) {
    parts.tasks.push_back({.op = Op::pass,
                           .payload = Payload::activations,
                           .rank = real(message.from),
                           .peer = real(message.to),
                           .bytes = whole(stages[index(message.stage)].boundary)});
  }
  const std::vector<Rank> dense = mesh.group({}, {MeshAxis::context, MeshAxis::expert, MeshAxis::data});
  const std::vector<Rank> experts = mesh.group({}, {MeshAxis::data});
  std::vector<Rank> members{dense};
  members.insert(members.end(), experts.begin(), experts.end());
  members.push_back(real(Rank{0}));
  members.push_back(real(Rank{outline.ranks - 1}));
  const auto end_of = [](std::size_t count) { return static_cast<std::uint32_t>(count); };
  parts.groups = Rows<Rank>{{0, end_of(dense.size()), end_of(dense.size() + experts.size()), end_of(members.size())}, members};
  const std::size_t first = parts.tasks.size();
  const auto holders = [&](int of) { return static_cast<double>(of == 0 ? dense.size() : experts.size()); };
  for (const StagePiece& stage : stages) {
    double touched = 0;
    for (int of = 0; of < 2; ++of) {
      const double count = of == 0 ? stage.dense : stage.experts;
      touched += count / (shards ? holders(of) : 1);
      const auto add = [&](Op op, Payload payload, GroupId group, double bytes) {
        parts.tasks.push_back({.op = op, .payload = payload, .rank = members[0], .group = group, .bytes = whole(bytes)});
      };
      const double gradients = count * static_cast<double>(sizes.gradient);
      add(shards ? Op::reduce_scatter : Op::all_reduce, Payload::gradients, GroupId{of}, gradients);
      add(Op::all_gather, Payload::weights, GroupId{of}, count * static_cast<double>(sizes.weight));
      add(Op::all_reduce, Payload::gradients, GroupId{2}, gradients);
    }
    const auto each = static_cast<double>(sizes.weight + sizes.gradient + sizes.optimizer);
    parts.tasks.push_back({.op = Op::update, .rank = Rank{0}, .stage = none<StageId>, .bytes = whole(touched * each)});
    const auto copy = [&](double bytes) {
      parts.tasks.push_back({.op = Op::copy_to_host, .payload = Payload::activations, .rank = Rank{0}, .bytes = whole(bytes)});
    };
    if (offload.optimizer) copy(touched * static_cast<double>(sizes.optimizer));
    if (offload.activations) copy(stage.saved);
  }
  const Schedule schedule{work, std::move(parts)};
  const std::size_t tasks = (schedule.tasks().size() - first) / stages.size();  // of a stage
  const auto add_times = [&](auto&& time) {
    for (std::size_t m = 0; m < first; ++m) costs.messages.push_back(time(m));
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const std::size_t at = first + tasks * s;
      const auto of_class = [&](std::size_t which) {  // of both classes of parameters
        double sum = 0;
        for (int of = 0; of < 2; ++of) {
          const bool any = (of == 0 ? stages[s].dense : stages[s].experts) > 0;
          if (any && (which == 2 || holders(of) > 1)) sum += time(at + 3U * static_cast<std::size_t>(of) + which);
        }
        return sum;
      };
      costs.sums.push_back(of_class(0));
      costs.gathers.push_back(shards ? of_class(1) : 0);
      costs.copies.push_back(outline.copies ? of_class(2) : 0);
      costs.updates.push_back(time(at + 6));
      if (offload.optimizer) {  // a piece comes while another leaves; the first and the last by themselves
        const double states = time(at + 7);
        costs.updates.back() = std::max(costs.updates.back(), states) + 2 * states / state_pieces;
      }
      if (offload.activations) costs.saved.push_back(time(at + tasks - 1));
    }
  };
  std::visit(
      [&](const auto& cost) {
        LeastTimes times{schedule, problem.cluster, cost, &known};
        add_times([&](std::size_t task) { return static_cast<double>(times.times_of(id<TaskId>(task)).second); });
      },
      problem.cost);
  const double all = stages[0].dense + stages[0].experts;
  const auto bucket = static_cast<double>(bucket_size(problem.bucket, mesh.batch_parts()));
  costs.last_bucket = bucket > 0 && all > 0 ? std::min(1.0, bucket / all) : 1;
  return costs;
}

}  // namespace tawpipe::inline v0::detail
