// A schedule with its times as Chakra execution traces, a list of nodes for each rank.
// Not: the traces' bytes (chakra_file.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/report/chakra_trace.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace tawpipe::inline v0 {

/// Features of a schedule that the traces cannot express; counts of tasks.
struct ChakraLosses {
  std::int64_t reduces = 0;     ///< the format has reductions to one rank; ASTRA-sim refuses them
  std::int64_t broadcasts = 0;  ///< ASTRA-sim replays their duration instead of simulating them
  std::int64_t repeated = 0;    ///< several messages in a row, written as one of their total size
  std::int64_t pair_sizes = 0;  ///< all_to_all with a size for each pair, written as even blocks
  /// waits for a task of other ranks only: each becomes a message of one byte
  std::int64_t far_waits = 0;
};

namespace detail {

/// The process groups by group and lane, in the order of their first use: collectives of two lanes
/// are unordered.
inline std::map<std::pair<GroupId, LaneId>, std::int32_t> chakra_process_groups(const Schedule& schedule) {
  std::map<std::pair<GroupId, LaneId>, std::int32_t> numbers;
  for (const Task& task : schedule.tasks()) {
    if (is_collective(task.op)) numbers.try_emplace({task.group, task.lane}, static_cast<std::int32_t>(numbers.size()) + 1);
  }
  return numbers;
}

}  // namespace detail

/// The process groups as ASTRA-sim reads them: {"1": [0, 1, 2]}.
inline std::string chakra_groups_json(const Schedule& schedule) {
  const auto numbers = detail::chakra_process_groups(schedule);
  std::vector<GroupId> groups(numbers.size());
  for (const auto& [key, number] : numbers) groups[static_cast<std::size_t>(number) - 1] = key.first;
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    auto& members = json[std::to_string(g + 1)] = nlohmann::ordered_json::array();
    for (const Rank member : schedule.group(groups[g])) members.push_back(number(member));
  }
  return json.dump() + "\n";
}

namespace detail {

/// The collective's code in Chakra.
constexpr ChakraCollective chakra_collective(Op op) {
  switch (traits(op).pattern) {
    case Pattern::chain_from_root:
      return ChakraCollective::broadcast;
    case Pattern::chain_to_root:
      return ChakraCollective::reduce;
    case Pattern::ring_gather:
      return ChakraCollective::all_gather;
    case Pattern::ring_scatter:
      return ChakraCollective::reduce_scatter;
    case Pattern::all_pairs:
      return ChakraCollective::all_to_all;
    case Pattern::none:
    case Pattern::one_way:
    case Pattern::both_ways:
    case Pattern::ring_sum:
    case Pattern::to_host:
    case Pattern::from_host:
      break;
  }
  return ChakraCollective::all_reduce;
}

/// Writes the nodes of one schedule, rank by rank.
class ChakraExporter {
 public:
  ChakraExporter(const Schedule& schedule, const Timeline& timeline)
      : schedule_{schedule},
        timeline_{timeline},
        process_groups_{chakra_process_groups(schedule)},
        tags_(schedule.tasks().size()),
        here_(schedule.tasks().size(), -1) {
    std::map<std::pair<Rank, Rank>, std::int32_t> sent;
    for (std::size_t t = 0; t < tags_.size(); ++t) {
      const Task& task = schedule.tasks()[t];
      if (!is_point_to_point(task.op)) continue;
      tags_[t].first = sent[{task.rank, task.peer}]++;
      if (goes_both_ways(task.op)) tags_[t].second = sent[{task.peer, task.rank}]++;
    }
    find_far_waits(sent);
  }

  template <class Visit>
  ChakraLosses write(Visit&& visit) {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) write_rank(Rank{rank}, visit);
    ChakraLosses losses;
    for (const Task& task : schedule_.tasks()) {
      if (is_collective(task.op)) {
        losses.reduces += traits(task.op).pattern == Pattern::chain_to_root ? 1 : 0;
        losses.broadcasts += traits(task.op).pattern == Pattern::chain_from_root ? 1 : 0;
        losses.pair_sizes += is_all_pairs(task.op) && task.split != none<SplitId> ? 1 : 0;
      }
      losses.repeated += !is_compute(task.op) && task.bytes.repeat() > 1 ? 1 : 0;
    }
    losses.far_waits = static_cast<std::int64_t>(far_.size());
    return losses;
  }

 private:
  static bool has_two_nodes(const Task& task) { return goes_both_ways(task.op); }
  static std::uint64_t node_id(TaskId task) { return 2 * static_cast<std::uint64_t>(index(task)); }

  /// A wait for a task in which no rank of the waiting task takes part.
  struct FarWait {
    TaskId earlier;
    TaskId later;
    std::int32_t tag;
  };

  /// The tasks of a rank, by id.
  std::vector<TaskId> tasks_of(Rank rank) const {
    std::vector<TaskId> tasks;
    for (std::size_t lane = 0; lane < schedule_.lanes().size(); ++lane) {
      const auto row = schedule_.program(rank, static_cast<int>(lane));
      tasks.insert(tasks.end(), row.begin(), row.end());
    }
    std::sort(tasks.begin(), tasks.end());
    return tasks;
  }

  /// @param sent  messages from a rank to another so far
  void find_far_waits(std::map<std::pair<Rank, Rank>, std::int32_t>& sent) {
    const auto& rows = schedule_.parts().dependencies;
    std::vector<char> said(rows.items().size(), 0);
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      const std::vector<TaskId> tasks = tasks_of(Rank{rank});
      for (const TaskId task : tasks) here_[index(task)] = rank;
      for (const TaskId task : tasks) {
        const auto earlier = schedule_.dependencies(task);
        for (std::size_t d = 0; d < earlier.size(); ++d) {
          if (here_[index(earlier[d])] == rank) said[rows.begins()[index(task)] + d] = 1;
        }
      }
    }
    std::fill(here_.begin(), here_.end(), -1);
    for (std::size_t t = 0; t < schedule_.tasks().size(); ++t) {
      const TaskId later = id<TaskId>(t);
      const auto earlier = schedule_.dependencies(later);
      for (std::size_t d = 0; d < earlier.size(); ++d) {
        if (said[rows.begins()[t] + d] != 0) continue;
        const auto number = static_cast<std::int32_t>(far_.size());
        far_.push_back({earlier[d], later, sent[{schedule_.task(earlier[d]).rank, schedule_.task(later).rank}]++});
        far_from_[earlier[d]].push_back(number);
        far_to_[later].push_back(number);
      }
    }
  }

  /// One end of the message that expresses a wait.
  ChakraNode far_node(std::int32_t number, bool sends) const {
    const FarWait& wait = far_[static_cast<std::size_t>(number)];
    ChakraNode node;
    node.id = 2 * static_cast<std::uint64_t>(schedule_.tasks().size()) + static_cast<std::uint64_t>(number);
    node.name = "wait";
    node.set(ChakraKey::is_cpu_op, 0);
    node.set(ChakraKey::comm_size, 1);
    node.set(ChakraKey::op, std::string{chakra_wait});
    message(node, schedule_.task(wait.earlier).rank, schedule_.task(wait.later).rank, wait.tag, sends);
    return node;
  }

  /// Adds the nodes of a task on this rank.
  void wait_for(std::vector<std::uint64_t>& ids, TaskId earlier) const {
    ids.push_back(node_id(earlier));
    if (has_two_nodes(schedule_.task(earlier))) ids.push_back(node_id(earlier) + 1);
  }

  template <class Visit>
  void write_rank(Rank rank, Visit&& visit) {
    const std::vector<TaskId> tasks = tasks_of(rank);
    for (const TaskId task : tasks) here_[index(task)] = number(rank);
    std::vector<TaskId> last(schedule_.lanes().size(), none<TaskId>);
    for (const TaskId id : tasks) {
      const Task& task = schedule_.task(id);
      ChakraNode node;
      node.id = node_id(id);
      node.name = title(task);
      TaskId& before = last[static_cast<std::size_t>(task.lane_on(rank))];
      if (before != none<TaskId>) wait_for(node.control_deps, before);
      node.data_deps = node.control_deps;
      for (const TaskId earlier : schedule_.dependencies(id)) {
        if (here_[index(earlier)] == number(rank) && earlier != before) wait_for(node.data_deps, earlier);
      }
      before = id;
      if (const auto found = far_to_.find(id); rank == task.rank && found != far_to_.end()) {
        for (const std::int32_t one : found->second) {
          const ChakraNode receive = far_node(one, false);
          node.data_deps.push_back(receive.id);
          visit(rank, receive);
        }
      }
      describe(node, id, rank);
      write_task(node, id, rank, visit);
      if (const auto found = far_from_.find(id); rank == task.rank && found != far_from_.end()) {
        for (const std::int32_t one : found->second) {
          ChakraNode send = far_node(one, true);
          wait_for(send.data_deps, id);
          visit(rank, std::as_const(send));
        }
      }
    }
  }

  template <class Visit>
  void write_task(ChakraNode& node, TaskId id, Rank rank, Visit&& visit) const {
    const Task& task = schedule_.task(id);
    if (has_two_nodes(task)) {
      ChakraNode receive = node;
      ++receive.id;
      message(node, rank, other(task, rank), tag(id, rank), true);
      message(receive, other(task, rank), rank, tag(id, other(task, rank)), false);
      visit(rank, std::as_const(node));
      visit(rank, std::as_const(receive));
      return;
    }
    if (is_point_to_point(task.op)) message(node, task.rank, task.peer, tags_[index(id)].first, rank == task.rank);
    visit(rank, std::as_const(node));
  }

  static Rank other(const Task& task, Rank rank) { return rank == task.rank ? task.peer : task.rank; }
  std::int32_t tag(TaskId id, Rank sender) const {
    return sender == schedule_.task(id).rank ? tags_[index(id)].first : tags_[index(id)].second;
  }

  static std::string title(const Task& task) {
    std::string text{name(task.op)};
    if (!is_compute(task.op)) text += concat(" ", name(task.payload));
    if (task.stage != none<StageId>) text += concat(" stage ", number(task.stage));
    if (task.microbatch >= 0) text += concat(" microbatch ", task.microbatch);
    return text;
  }

  static void message(ChakraNode& node, Rank from, Rank to, std::int32_t tag, bool sends) {
    node.type = static_cast<std::int32_t>(sends ? ChakraType::send : ChakraType::receive);
    node.set(ChakraKey::comm_src, number(from));
    node.set(ChakraKey::comm_dst, number(to));
    node.set(ChakraKey::comm_tag, tag);
  }

  /// Everything except the ends of a message.
  void describe(ChakraNode& node, TaskId id, Rank rank) const {
    constexpr std::int64_t in_us = 1'000'000;
    const Task& task = schedule_.task(id);
    const std::int64_t start = timeline_.start_of(id).picoseconds();
    const std::int64_t took = (timeline_.end_of(id) - timeline_.start_of(id)).value();
    node.start_us = static_cast<std::uint64_t>(start / in_us);
    node.duration_us = static_cast<std::uint64_t>((took + in_us / 2) / in_us);
    node.set(ChakraKey::is_cpu_op, 0);
    const std::int64_t bytes = task.bytes.total().value();
    if (is_compute(task.op)) {
      node.type = static_cast<std::int32_t>(ChakraType::compute);
      work(node, task, bytes);
      node.set(ChakraKey::picoseconds, took);
    } else if (is_host_copy(task.op)) {
      node.type = static_cast<std::int32_t>(traits(task.op).pattern == Pattern::to_host ? ChakraType::store : ChakraType::load);
      node.set(ChakraKey::tensor_size, bytes);
    } else if (is_collective(task.op)) {
      const auto members = static_cast<std::int64_t>(schedule_.group(task.group).size());
      const std::int64_t parts = gathers(task.op) ? members : 1;  // here the size is that of a member's part
      node.type = static_cast<std::int32_t>(ChakraType::collective);
      node.set(ChakraKey::comm_type, static_cast<std::int64_t>(chakra_collective(task.op)));
      node.set(ChakraKey::comm_size, std::max<std::int64_t>((bytes + parts - 1) / parts, 1));
      node.set(ChakraKey::pg_name, std::to_string(process_groups_.at({task.group, task.lane})));
    } else {
      node.set(ChakraKey::comm_size, std::max<std::int64_t>(bytes, 1));  // ASTRA-sim has no empty messages
    }
    node.set(ChakraKey::task, number(id));
    node.set(ChakraKey::op, std::string{name(task.op)});
    node.set(ChakraKey::lane, schedule_.lanes()[static_cast<std::size_t>(task.lane_on(rank))]);
    if (!is_compute(task.op)) {
      node.set(ChakraKey::payload, std::string{name(task.payload)});
      node.set(ChakraKey::root, number(task.rank));
    }
    node.set(ChakraKey::bytes, task.bytes.value());
    if (task.bytes.repeat() != 1) node.set(ChakraKey::repeat, task.bytes.repeat());
    if (task.stage != none<StageId>) node.set(ChakraKey::stage, number(task.stage));
    if (task.microbatch >= 0) node.set(ChakraKey::microbatch, task.microbatch);
    if (task.step >= 0) node.set(ChakraKey::step, task.step);
  }

  /// Operations and bytes of memory, for simulators that time computations themselves.
  void work(ChakraNode& node, const Task& task, std::int64_t bytes) const {
    const Passes passes = traits(task.op).passes;
    if (!passes.any()) {
      if (bytes > 0) node.set(ChakraKey::num_ops, 0);
      if (bytes > 0) node.set(ChakraKey::tensor_size, 2 * bytes);  // an update reads and writes its states
      return;
    }
    const StageWork& stage = schedule_.work(task);
    Flops flops;
    std::int64_t traffic = 0;
    if (passes.forward) flops = flops + stage.forward;
    if (passes.backward_input) flops = flops + stage.recompute + stage.backward_input;
    if (passes.backward_weight) flops = flops + stage.backward_weight;
    if (passes.forward) traffic += stage.forward_traffic.value();
    if (passes.backward_input) traffic += stage.backward_traffic.value();
    if (flops.value() <= 0 && traffic <= 0) return;
    node.set(ChakraKey::num_ops, static_cast<std::int64_t>(std::min(flops.value(), 9e18)));
    node.set(ChakraKey::tensor_size, std::max<std::int64_t>(traffic, 1));  // ASTRA-sim drops nodes of zero bytes
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  std::map<std::pair<GroupId, LaneId>, std::int32_t> process_groups_;
  std::vector<std::pair<std::int32_t, std::int32_t>> tags_;  ///< [task] from rank to peer, and back
  /// [task] the last rank on which it was seen
  std::vector<std::int32_t> here_;
  std::vector<FarWait> far_;
  std::map<TaskId, std::vector<std::int32_t>> far_from_;  ///< by the task waited for
  std::map<TaskId, std::vector<std::int32_t>> far_to_;    ///< by the task that waits
};

}  // namespace detail

/// Calls `visit(rank, node)` for each node, rank by rank, those of a rank in an order in which they
/// can run. A task on several ranks is a node on each. Nodes wait for the task's dependencies on
/// that rank, and for the previous task on its lane; only the latter is also a control dependency.
/// Durations are those of `timeline`.
/// @pre not has_bodies(schedule); the timeline belongs to the schedule
/// Complexity: O(ends and dependencies of tasks).
template <class Visit>
ChakraLosses export_chakra(const Schedule& schedule, const Timeline& timeline, Visit&& visit) {
  return detail::ChakraExporter{schedule, timeline}.write(visit);
}

}  // namespace tawpipe
