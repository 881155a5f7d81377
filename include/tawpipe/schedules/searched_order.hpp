// Pipelines whose order is searched instead of taken from their paper: the options, and the problem
// given to the search.
// Not: the search (order_search.hpp) nor a particular pipeline (zero_bubble_v.hpp, v_schedules.hpp,
// zero_bubble.hpp, ...).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedules/zero_bubble_options.hpp"

namespace tawpipe::inline v0::schedules {

/// The limit on saved activations of each rank; none: as much as the paper's order holds.
struct OrderLimit {
  std::optional<MemoryLimit> limit{};

  static std::string values() { return "own|" + MemoryLimit::values(); }
  static std::string expected() { return "own, " + MemoryLimit::expected(); }
  std::string text() const { return limit ? limit->text() : "own"; }
  static std::optional<OrderLimit> parse(std::string_view text) {
    if (text == "own") return OrderLimit{};
    const auto limit = MemoryLimit::parse(text);
    return limit ? std::optional{OrderLimit{limit}} : std::nullopt;
  }
};

/// For pipelines from a paper that the search may improve; with a number of chunks a rank where
/// that can be chosen.
template <bool has_chunks>
struct SearchOptions {
  int chunks = 2;
  OrderSource order = OrderSource::paper;
  OrderLimit limit{};
  ZeroBubbleTimes times{};
  int moves = static_cast<int>(standard_moves);

  static std::vector<Field<SearchOptions>> fields() {
    std::vector<Field<SearchOptions>> fields;
    if constexpr (has_chunks) {
      fields.push_back(option_field<&SearchOptions::chunks>("chunks", {.low = 1},
                                                            "pieces of the model on each device, looped over the devices"));
    }
    fields.push_back(option_field<&SearchOptions::order>("order", "as the paper draws it, or the best that a search finds"));
    fields.push_back(option_field<&SearchOptions::limit>(
        "memory-limit", "of a searched order, saved activations a device: the paper's own, of N microbatches, or a size"));
    fields.push_back(option_field<&SearchOptions::times>(
        "times", "times to search with, of a device's share: forward, backward_input, backward_weight, transfer"));
    fields.push_back(search_moves<&SearchOptions::moves>());
    return fields;
  }
};

using SearchedOptions = SearchOptions<false>;

using SearchedChunkOptions = SearchOptions<true>;

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tawpipe/schedules/order_search.hpp"
#include "tawpipe/schedules/pipeline.hpp"

namespace tawpipe::inline v0::schedules {

namespace detail {

/// The times of the stage's computations, in the unit of `times`; without times, in proportion to
/// their operations, in millions.
inline void set_times(OrderStage& stage, const Workload& workload, const StageWork& work, const ZeroBubbleTimes& times) {
  if (times.are_given()) {
    stage.forward = times.forward;
    stage.backward_input = times.backward_input;
    stage.backward_weight = times.backward_weight;
  } else if (!workload.is_abstract()) {
    const auto mega = [](Flops flops) { return static_cast<std::int64_t>(flops.value() * 1e-6) + 1; };
    stage.forward = mega(work.forward);
    stage.backward_input = mega(work.recompute + work.backward_input);
    stage.backward_weight = mega(work.backward_weight);
  }
}

/// The ordering problem for stages placed this way, without limits. Times of a device's share are
/// those of each of its stages in a unit smaller by the number of its stages.
inline OrderProblem order_problem(const Workload& workload, const std::vector<int>& rank_of_stage, int ranks, const Share& kept,
                                  const ZeroBubbleTimes& times) {
  const std::vector<StageWork> works = workload.split(static_cast<int>(rank_of_stage.size()));
  const std::int64_t hop = times.transfer * static_cast<std::int64_t>(works.size()) / ranks;
  OrderProblem problem;
  problem.microbatches = static_cast<std::int32_t>(workload.microbatches());
  problem.limits.assign(static_cast<std::size_t>(ranks), 0);
  for (std::size_t s = 0; s < works.size(); ++s) {
    OrderStage stage{.device = rank_of_stage[s]};
    set_times(stage, workload, works[s], times);
    if (s + 1 < works.size() && rank_of_stage[s + 1] != stage.device) stage.hop = hop;
    stage.saved = std::max<std::int64_t>(works[s].saved.value(), 1);  // a stage without a layer saves nothing
    stage.kept = stage.saved * kept.numerator / kept.denominator;
    stage.stash = works[s].stash.value();
    problem.stages.push_back(stage);
  }
  return problem;
}

/// The most that backward_input of one stage stashes on each device.
inline std::vector<std::int64_t> stash_on_devices(const OrderProblem& problem) {
  std::vector<std::int64_t> most(problem.limits.size());
  for (const OrderStage& stage : problem.stages) {
    auto& stash = most[static_cast<std::size_t>(stage.device)];
    stash = std::max(stash, stage.stash);
  }
  return most;
}

/// The memory that one microbatch saves on each device.
inline std::vector<std::int64_t> saved_on_devices(const OrderProblem& problem) {
  std::vector<std::int64_t> saved(problem.limits.size());
  for (const OrderStage& stage : problem.stages) saved[static_cast<std::size_t>(stage.device)] += stage.saved;
  return saved;
}

/// A number of activations limits what forwards save, as in papers; a size limits everything held.
/// @throws InputError  if a device's limit is below one microbatch's activations.
inline void set_limits(OrderProblem& problem, const MemoryLimit& limit) {
  if (limit.activations > 0) {
    for (OrderStage& stage : problem.stages) stage.stash = 0;
  }
  const auto ranks = static_cast<std::int64_t>(problem.limits.size());
  const std::int64_t activations = std::min<std::int64_t>(limit.activations * (limit.a_rank ? ranks : 1), problem.microbatches);
  const std::vector<std::int64_t> saved = saved_on_devices(problem);
  const std::vector<std::int64_t> stash = stash_on_devices(problem);
  for (std::size_t d = 0; d < saved.size(); ++d) {
    problem.limits[d] = activations > 0 ? saved[d] * activations : limit.bytes.value();
    if (problem.limits[d] < saved[d] + stash[d]) {
      throw InputError("the memory limit of a zero-bubble pipeline must hold at least one microbatch's activations");
    }
  }
}

/// The memory that each device holds permanently: weights, gradients and optimizer states of its
/// stages.
inline std::vector<std::int64_t> states_on_devices(const Workload& workload, const OrderProblem& problem) {
  const ParameterBytes& bytes = workload.parameter_bytes();
  const std::vector<StageWork> works = workload.split(static_cast<int>(problem.stages.size()));
  std::vector<std::int64_t> states(problem.limits.size());
  for (std::size_t s = 0; s < works.size(); ++s) {
    states[static_cast<std::size_t>(problem.stages[s].device)] +=
        (works[s].parameters + works[s].edge_parameters) * (bytes.weight + bytes.gradient + bytes.optimizer);
  }
  return states;
}

/// Every device may hold as much as the order holds on the device where it holds most, in
/// proportion to the memory that a microbatch saves and stashes there; but no more, with its
/// states, than the fullest device with the order.
inline void set_limits(OrderProblem& problem, const std::vector<std::vector<Action>>& order,
                       const std::vector<std::int64_t>& states) {
  const OrderWords words = words_of(problem, order);
  const std::vector<std::int64_t> stash = stash_on_devices(problem);
  std::vector<std::int64_t> saved = saved_on_devices(problem);  // and stashed
  double most = 1;
  std::int64_t fullest = 0;
  for (std::size_t d = 0; d < words.size(); ++d) {
    saved[d] += stash[d];
    problem.limits[d] = peak_held(problem, words[d]);
    fullest = std::max(fullest, states[d] + problem.limits[d]);
    if (saved[d] > 0) most = std::max(most, static_cast<double>(problem.limits[d]) / static_cast<double>(saved[d]));
  }
  for (std::size_t d = 0; d < words.size(); ++d) {
    const std::int64_t room = std::min<std::int64_t>(std::llround(most * static_cast<double>(saved[d])), fullest - states[d]);
    problem.limits[d] = std::max({problem.limits[d], room, saved[d]});
  }
}

/// The pipeline of a paper's program, or of one searched from it. @throws InputError  for options
/// that only a search takes.
template <bool has_chunks>
Schedule paper_or_searched(const std::string& name, const Workload& workload, PipelineProgram program,
                           const SearchOptions<has_chunks>& options) {
  if (options.order == OrderSource::paper) {
    if (options.limit.limit || options.times.are_given() || options.moves != standard_moves) {
      throw InputError(concat("memory-limit, times and moves of ", name, " are for order=searched"));
    }
  } else {
    OrderProblem problem =
        order_problem(workload, program.rank_of_stage, static_cast<int>(program.actions.size()), program.kept, options.times);
    if (options.limit.limit) {
      set_limits(problem, *options.limit.limit);
    } else {
      set_limits(problem, program.actions, states_on_devices(workload, problem));
    }
    program.actions = search_order(problem, options.moves, {program.actions}).actions;
  }
  return pipeline(name, workload, std::move(program), {}, option_texts(options));
}

}  // namespace detail

}  // namespace tawpipe::schedules
#endif
