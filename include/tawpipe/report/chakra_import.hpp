// A Chakra trace as a schedule with known times, and as the calls of its ranks, whose order can be
// checked for hangs.
// Not: the trace's bytes (chakra_file.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/report/chakra_trace.hpp"
#include "tawpipe/report/detail/chakra_graph.hpp"
#include "tawpipe/report/detail/chakra_tasks.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/verify/comm_program.hpp"

namespace tawpipe::inline v0 {

/// A schedule made from a trace.
struct ImportedTrace {
  Schedule schedule;
  /// [task] of computations; below 0: the trace gives operations, and the cost model the time
  std::vector<Duration> times;
};

/// The process groups of a trace from ASTRA-sim's file: {"1": [0, 1, 2]}. @throws InputError
/// naming the place
inline std::map<std::string, std::vector<std::int32_t>> parse_chakra_groups(std::string_view text, std::string_view source) {
  const JsonDocument json{text, source};
  std::map<std::string, std::vector<std::int32_t>> groups;
  for (const auto& [name, ranks] : json.root().members()) {
    std::vector<std::int32_t>& members = groups[name];
    for (const JsonValue rank : ranks) members.push_back(rank.whole<std::int32_t>(0, (1 << 20) - 1));
    if (members.empty()) ranks.fail("expected at least one rank");
  }
  return groups;
}

namespace detail {

/// Orders the tasks and gives them lanes.
class ChakraImporter {
 public:
  explicit ChakraImporter(const ChakraTrace& trace) : all_{trace}, graph_{all_.graph()}, tasks_{all_.tasks()} {}

  ImportedTrace build() {
    std::vector<std::vector<std::int32_t>> waits(tasks_.size());
    std::vector<std::pair<std::uint64_t, std::int32_t>> keys;
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      std::uint64_t first = all_.node(tasks_[t].ends[0]).id;
      for (const End& end : tasks_[t].ends) {
        first = std::min(first, all_.node(end).id);
        for (const std::int32_t earlier : all_.step(end).waits) waits[t].push_back(all_.task_of(end.rank, earlier));
      }
      std::sort(waits[t].begin(), waits[t].end());
      waits[t].erase(std::unique(waits[t].begin(), waits[t].end()), waits[t].end());
      keys.emplace_back(tasks_[t].is_wait ? 0 : first, tasks_[t].ends[0].rank);
    }
    const std::vector<std::int32_t> order = topological_order(waits, keys);
    if (order.size() < tasks_.size()) throw standstill(cycle_of(waits, order));
    return in_order(order, waits);
  }

 private:
  using Joined = ChakraTasks::Joined;
  using End = ChakraTasks::End;

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  ScheduleError standstill(const std::vector<std::int32_t>& cycle) const {
    std::string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(cycle.size(), 6); ++i) {
      const End end = tasks_[at(cycle[i])].ends[0];
      text += concat(i == 0 ? "" : ", ", "rank ", end.rank, " node ", all_.node(end).id);
    }
    return ScheduleError(concat("the trace cannot end: each of these waits for the next, the last for the first: ", text,
                                cycle.size() > 6 ? ", ..." : "", "; tawpipe validate says more"));
  }

  /// The lane of a task without one: computations on the first; each process group and each pair of
  /// ranks on a lane of its own where they share a rank, so only the trace's own waits delay them.
  class Lanes {
   public:
    explicit Lanes(std::size_t ranks) : taken_(ranks) {}

    int of(const std::string& channel, const std::vector<std::int32_t>& ranks) {
      const auto [found, added] = known_.try_emplace(channel, 0);
      if (!added) return found->second;
      for (int lane = 0;; ++lane) {
        const auto is_taken = [&](std::int32_t rank) {
          const auto& taken = taken_[static_cast<std::size_t>(rank)];
          return static_cast<std::size_t>(lane) < taken.size() && taken[static_cast<std::size_t>(lane)] != 0;
        };
        if (std::any_of(ranks.begin(), ranks.end(), is_taken)) continue;
        for (const std::int32_t rank : ranks) {
          auto& taken = taken_[static_cast<std::size_t>(rank)];
          taken.resize(std::max(taken.size(), static_cast<std::size_t>(lane) + 1));
          taken[static_cast<std::size_t>(lane)] = 1;
        }
        return found->second = lane;
      }
    }

   private:
    std::vector<std::vector<char>> taken_;  ///< [rank][lane]
    std::map<std::string, int> known_;
  };

  std::string lane_name(const Joined& joined, Lanes& lanes) const {
    const Task& task = joined.task;
    if (is_compute(task.op)) return task.op == Op::idle ? "host" : "compute";
    if (is_host_copy(task.op)) return "memory";
    std::vector<std::int32_t> ranks{number(task.rank), number(task.peer)};
    std::string channel = concat(ranks[0], ">", ranks[1]);
    if (is_collective(task.op)) {
      const ChakraProcessGroup& group = graph_.groups()[at(all_.step(joined.ends[0]).group)];
      ranks = group.ranks;
      channel = group.name;
    }
    return concat("communication ", lanes.of(channel, ranks) + 1);
  }

  ImportedTrace in_order(const std::vector<std::int32_t>& order, const std::vector<std::vector<std::int32_t>>& waits) {
    std::int64_t microbatches = 1;
    std::string first_lane = "compute";
    for (const Joined& joined : tasks_) {
      microbatches = std::max<std::int64_t>(microbatches, joined.task.microbatch + 1);
      if (!joined.is_wait && is_compute(joined.task.op) && joined.task.op != Op::idle && !joined.lanes[0].empty())
        first_lane = joined.lanes[0];
    }
    const int ranks = static_cast<int>(graph_.ranks());
    ScheduleBuilder builder{"chakra", Workload::abstract(ranks, microbatches), ranks, {first_lane}};
    std::vector<StageWork> stages(at(std::max(all_.stages(), 1)));
    std::map<std::pair<std::int64_t, std::int64_t>, StageId> of_work;  // operations without a duration: a stage for each amount
    for (Joined& joined : tasks_) {
      if (joined.is_wait || !is_compute(joined.task.op) || joined.time.value() >= 0) continue;
      const ChakraNode& from = all_.node(joined.ends[0]);
      const std::pair work{from.number(ChakraKey::num_ops).value_or(0), from.number(ChakraKey::tensor_size).value_or(0)};
      const auto [found, added] = of_work.try_emplace(work, StageId{static_cast<std::int32_t>(stages.size())});
      joined.task.stage = found->second;
      if (!added) continue;
      stages.emplace_back();
      stages.back().forward = Flops{static_cast<double>(work.first)};
      stages.back().forward_traffic = Bytes{work.second};
    }
    builder.stages(std::move(stages));
    Lanes lanes{graph_.ranks()};
    std::vector<std::vector<TaskId>> stands_for(tasks_.size());  // itself; for a wait, the node waited for
    std::vector<Duration> times;
    for (const std::int32_t t : order) {
      Joined& joined = tasks_[at(t)];
      Task& task = joined.task;
      std::vector<TaskId> after;
      for (const std::int32_t earlier : waits[at(t)]) {
        after.insert(after.end(), stands_for[at(earlier)].begin(), stands_for[at(earlier)].end());
      }
      if (joined.is_wait) {
        std::sort(after.begin(), after.end());
        after.erase(std::unique(after.begin(), after.end()), after.end());
        stands_for[at(t)] = std::move(after);
        continue;
      }
      if (traits(task.op).passes.any() && task.stage == none<StageId>) {
        task.stage = StageId{0};
      }
      if (is_collective(task.op)) {
        std::vector<Rank> members;
        for (const std::int32_t rank : graph_.groups()[at(all_.step(joined.ends[0]).group)].ranks)
          members.emplace_back(Rank{rank});
        task.group = builder.group(members);
      }
      task.lane = builder.lane(joined.lanes[0].empty() ? lane_name(joined, lanes) : joined.lanes[0]);
      task.peer_lane = joined.lanes[1].empty() ? task.lane : builder.lane(joined.lanes[1]);
      stands_for[at(t)] = {builder.add(task, {}, after)};
      times.push_back(joined.time);
    }
    return {builder.build(), std::move(times)};
  }

  ChakraTasks all_;
  const ChakraGraph& graph_;
  std::vector<Joined>& tasks_;
};

}  // namespace detail

/// The trace as a schedule: sends and receives joined into passes, the collectives of all ranks
/// into one task. Tasks wait for the dependencies in the trace, and for the previous one on their
/// lane: a device computes one after another, in an order that the waits allow, and each process
/// group and each pair of ranks communicates one after another. Traces written by tawpipe are
/// restored: ops, stages, microbatches, lanes, sizes and times, but no buffers.
/// @throws InputError  naming file and node of an error or of a missing counterpart; ScheduleError
/// for a trace that cannot end.
/// Complexity: O(n log n) in nodes and waits.
inline ImportedTrace import_chakra(const ChakraTrace& trace) { return detail::ChakraImporter{trace}.build(); }

/// The trace as calls whose order can be checked (verify/prove.hpp). They are on no stream: a call
/// waits for the dependencies in the trace.
/// @throws InputError  naming file and node of an error in one rank's file.
inline CommProgram chakra_calls(const ChakraTrace& trace) {
  const detail::ChakraGraph graph{trace};
  CommProgram program;
  program.name = "chakra";
  program.ranks.resize(graph.ranks());
  for (const auto& group : graph.groups()) program.communicators.push_back({group.name, group.ranks});
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> pairs;
  for (std::size_t r = 0; r < graph.ranks(); ++r) {
    for (const detail::ChakraStep& step : graph.steps(r)) {
      CommCall call;
      call.id = one_line(concat(step.node->id, step.node->name.empty() ? "" : " ", step.node->name));
      call.waits_for = step.waits;
      call.bytes = step.node->number(ChakraKey::comm_size).value_or(0);
      call.tag = step.tag;
      call.communicator = step.group;
      if (step.from >= 0) {
        const auto [low, high] = std::minmax(step.from, step.to);
        const auto [found, added] = pairs.try_emplace({low, high}, static_cast<std::int32_t>(program.communicators.size()));
        if (added) program.communicators.push_back({concat(low, "-", high), {low, high}});
        call.communicator = found->second;
        call.op = step.type == ChakraType::send ? CommOp::send : CommOp::receive;
        call.peer = step.type == ChakraType::send ? step.to : step.from;
      } else if (step.group >= 0) {
        constexpr CommOp kinds[] = {CommOp::all_reduce,     CommOp::reduce,    CommOp::all_gather, CommOp::all_gather,
                                    CommOp::broadcast,      CommOp::broadcast, CommOp::all_to_all, CommOp::reduce_scatter,
                                    CommOp::reduce_scatter, CommOp::barrier};
        call.op = kinds[static_cast<std::size_t>(*step.node->number(ChakraKey::comm_type))];
      }
      program.ranks[r].push_back(std::move(call));
    }
  }
  return program;
}

}  // namespace tawpipe
