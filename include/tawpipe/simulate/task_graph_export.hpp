// A schedule on a cluster as a plain task graph, as far as such a graph can represent it.
// Not: the graph's text (task_graph_text.hpp) nor the schedule's own simulation (simulate.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/collective_cost.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/schedule/check_devices.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/simulate/task_graph.hpp"

namespace tawpipe::inline v0 {

/// A plain graph made from a schedule.
struct ExportedTaskGraph {
  TaskGraph graph;
  std::vector<std::int32_t> last;  ///< [schedule's task] the graph's task with which it ends
};

namespace detail {

template <CostModel Cost>
class TaskGraphExport {
 public:
  TaskGraphExport(const Schedule& schedule, const Cluster& cluster, const Cost& cost)
      : schedule_{schedule}, cluster_{cluster}, cost_{cost} {}

  ExportedTaskGraph run() {
    set_size();
    // Each task's predecessors are its successors in the graph with all edges reversed.
    EngineGraph reversed;
    reversed.tasks.resize(schedule_.tasks().size());
    reversed.connect([&](auto&& visit) { for_each_edge(schedule_, [&](std::size_t from, std::size_t to) { visit(to, from); }); });
    for (std::size_t t = 0; t < schedule_.tasks().size(); ++t) {
      after_.clear();
      for (auto i = reversed.successor_begin[t]; i < reversed.successor_begin[t + 1]; ++i) {
        after_.push_back(out_.last[static_cast<std::size_t>(reversed.successors[i])]);
      }
      std::sort(after_.begin(), after_.end());
      after_.erase(std::unique(after_.begin(), after_.end()), after_.end());
      add(id<TaskId>(t));
      out_.last.push_back(static_cast<std::int32_t>(out_.graph.tasks()) - 1);
    }
    set_speeds();
    return std::move(out_);
  }

 private:
  /// The values that all messages of one kind, inside or between nodes, must share.
  struct Kind {
    std::string_view name;
    bool timed = false;  ///< latency is set
    Duration latency{};
    BytesPerSecond bandwidth{};
    std::map<std::int32_t, LinkId> out{};  ///< by device or node
    std::map<std::int32_t, LinkId> in{};
  };

  static InputError impossible(std::string_view why) {
    return InputError(concat("this cannot be said as a plain task graph: ", why));
  }

  void set_size() {
    if (paths_by_size(cost_)) throw impossible("the links of its collectives depend on their size");
    TaskGraphPlatform& platform = out_.graph.platform;
    platform.nodes = cluster_.nodes();
    platform.devices_per_node = cluster_.devices_in(NodeId{0});
    for (int node = 0; node < cluster_.nodes(); ++node) {
      if (cluster_.devices_in(NodeId{node}) != platform.devices_per_node)
        throw impossible("its nodes have unequal numbers of devices");
    }
    check_devices(schedule_, cluster_);
  }

  void set_speeds() {
    TaskGraphPlatform& platform = out_.graph.platform;
    // If nothing is sent, any speed will do.
    const auto or_any = [](BytesPerSecond found) { return found > BytesPerSecond{} ? found : BytesPerSecond{1e9}; };
    platform.intra_bandwidth = or_any(inside_.bandwidth);
    platform.intra_latency_s = to_seconds(inside_.latency);
    platform.inter_bandwidth = or_any(between_.bandwidth);
    platform.inter_latency_s = to_seconds(between_.latency);
  }

  void add(TaskId id) {
    const Task& task = schedule_.task(id);
    if (is_compute(task.op)) {
      out_.graph.compute(number(task.rank), to_seconds(cost_.compute_time(schedule_, id, cluster_)), after_);
      return;
    }
    if (is_host_copy(task.op)) throw impossible("it copies to or from host memory, to which a task graph has no links");
    const Path whole = cost_.path(schedule_, task, cluster_);
    const double bytes = whole.fraction * static_cast<double>(task.bytes.total().value());
    Algorithm algorithm = Algorithm::ring;
    if constexpr (requires { cost_.all_reduce; }) algorithm = cost_.all_reduce;
    const CollectiveShape shape = communication_shape(schedule_, task, algorithm, cluster_);
    std::vector<std::int32_t> parts;
    for (std::size_t e = 0; e < shape.edges.size(); ++e) {
      const auto [from, to] = shape.edges[e];
      if (from == to) continue;
      const double moved = prepare(from, to) ? bytes * shape.share(e) : 0;
      parts.push_back(static_cast<std::int32_t>(out_.graph.tasks()));
      out_.graph.message(number(from), number(to), moved, after_);
    }
    // One task that ends when all parts have ended: successors need not name each of them.
    if (parts.size() != 1) out_.graph.compute(number(task.rank), 0, parts.empty() ? after_ : parts);
  }

  /// Records and checks the platform's values for messages on this route. @return whether their
  /// bytes count
  bool prepare(Rank from, Rank to) {
    const auto [known, added] = loaded_.try_emplace({from, to}, false);
    if (!added) return known->second;
    const bool inside = cluster_.same_node(from, to);
    Kind& kind = inside ? inside_ : between_;
    const Path path = cost_.path(schedule_, {.op = Op::pass, .rank = from, .peer = to}, cluster_);
    if (kind.timed && kind.latency != path.latency) throw impossible(concat("messages ", kind.name, " have several latencies"));
    kind.timed = true;
    kind.latency = path.latency;
    if (path.loads.empty()) return false;
    const Route route = cluster_.route(from, to);  // the loads stand in any order
    const auto once = [&](const LinkLoad& load) {
      return load.weight == 1 && std::find(route.links.begin(), route.links.end(), load.link) != route.links.end();
    };
    if (route.links.size() != 2 || path.loads.size() != 2 || !once(path.loads[0]) || !once(path.loads[1])) {
      throw impossible(concat("messages ", kind.name, " cross other links than one out and one in"));
    }
    for (const LinkLoad& load : path.loads) {
      const BytesPerSecond bandwidth = cluster_.link(load.link).bandwidth;
      if (kind.bandwidth != BytesPerSecond{} && kind.bandwidth != bandwidth) {
        throw impossible(concat("messages ", kind.name, " have several bandwidths"));
      }
      kind.bandwidth = bandwidth;
    }
    const auto place = [&](Rank rank) { return inside ? number(rank) : number(cluster_.node_of(rank)); };
    require_own(kind, kind.out, place(from), route.links[0]);
    require_own(kind, kind.in, place(to), route.links[1]);
    return known->second = true;
  }

  void require_own(const Kind& kind, std::map<std::int32_t, LinkId>& links, std::int32_t place, LinkId link) {
    const auto [known, added] = links.try_emplace(place, link);
    if (known->second != link) throw impossible(concat("messages ", kind.name, " have several links to choose from"));
    if (added && !used_.try_emplace(link, place).second)
      throw impossible(concat("messages ", kind.name, " share links of others"));
  }

  const Schedule& schedule_;
  const Cluster& cluster_;
  const Cost& cost_;
  ExportedTaskGraph out_;
  std::vector<std::int32_t> after_;
  Kind inside_{"inside a node"};
  Kind between_{"between nodes"};
  std::map<std::pair<Rank, Rank>, bool> loaded_;
  std::map<LinkId, std::int32_t> used_;
};

}  // namespace detail

/// The schedule on the cluster as a plain task graph: computations with their times; a pass as a
/// message; an exchange as two, and a collective as one message along each edge of its ring, tree
/// or chain, all after the same predecessors, and a computation of no length on its first rank that
/// ends it.
///
/// Lost: the edges of a collective share links each for itself here, and as one flow in the
/// simulator; a collective waits for one message's latency, not for all its steps; a message of a
/// model without links has no bytes, only its latency. The purpose of tasks (ops, stages, buffers)
/// is not in the graph. So the times equal the simulator's only for schedules that send nothing but
/// passes.
///
/// @throws InputError  if communications hold SMs (HeldSms), if the nodes are unequal, or messages
/// of a kind do not have one latency, one bandwidth, and one link out and one in for each device
/// (inside nodes) or node (between them), as the platform of a plain graph requires.
/// Complexity: O(tasks + edges), with a look-up for each message.
template <CostModel Cost>
ExportedTaskGraph export_task_graph(const Schedule& schedule, const Cluster& cluster, const Cost& cost) {
  if (held_sms_of(cost) != nullptr) {
    throw InputError("a plain task graph cannot express SMs that communications hold; export it without them");
  }
  return detail::TaskGraphExport<Cost>{schedule, cluster, cost}.run();
}

}  // namespace tawpipe
