// The bytes a schedule sends: between nodes, inside them, by kind of link and by payload.
// Not: when they are sent (timeline) nor how fast (cost/).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/cost/collective_cost.hpp"
#include "tawpipe/schedule/fold.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

/// Bytes sent in one iteration, by all ranks together.
struct Traffic {
  /// over edges between two nodes, each counted once
  std::int64_t inter_node_bytes = 0;
  std::int64_t intra_node_bytes = 0;  ///< over edges inside a node
  /// [0 to host memory, 1 from it]
  std::array<std::int64_t, 2> host_bytes{};
  /// [node] sent to other nodes
  std::vector<std::int64_t> node_egress_bytes;
  /// [node] received from other nodes
  std::vector<std::int64_t> node_ingress_bytes;
  std::vector<std::int64_t> rank_sent_bytes;  ///< [rank]
  /// [class] summed over the links crossed
  std::array<std::int64_t, link_classes> link_bytes{};
  /// [payload][0 inside nodes, 1 between], between ranks
  std::array<std::array<std::int64_t, 2>, payloads> payload_bytes{};
  std::array<std::int64_t, ops> tasks{};  ///< [op] number of tasks

  std::int64_t max_node_egress_bytes() const {
    return node_egress_bytes.empty() ? 0 : *std::max_element(node_egress_bytes.begin(), node_egress_bytes.end());
  }
};

/// The traffic of `schedule` on `cluster`, exact up to rounding each edge's part of a collective to
/// a whole byte.
/// Complexity: O(tasks + edges of the distinct communications) lookups.
TAWPIPE_INLINE Traffic traffic(const Schedule& schedule, const Cluster& cluster, Algorithm all_reduce = Algorithm::ring);

/// The traffic of the whole schedule of a folded one.
TAWPIPE_INLINE Traffic traffic(const FoldedSchedule& folded, const Cluster& cluster, Algorithm all_reduce = Algorithm::ring);

/// Bytes that leave each node and bytes sent inside it over time, for a picture: the iteration cut
/// into `parts` equal parts. A communication's bytes are spread evenly over its time.
/// @return [2 * node + inside][part] bytes, inside 0 or 1. @pre parts > 0
TAWPIPE_INLINE std::vector<std::vector<double>> node_traffic_over_time(const Schedule& schedule, const Cluster& cluster,
                                                                       const Timeline& timeline, std::size_t parts);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <map>
#include <tuple>

#include "tawpipe/core/hash_index.hpp"
#include "tawpipe/schedule/sent_payload.hpp"

namespace tawpipe::inline v0 {

namespace detail {

inline std::int64_t whole_bytes(double bytes) {
  return bytes < 9.2e18 ? static_cast<std::int64_t>(bytes) : beyond_64_bits(std::int64_t{});
}

/// Adds up traffic. `images(task, visit)` calls visit(schedule, image) for each communication that
/// a task represents, and `multiplicity(task)` is the number of tasks it represents.
template <class Images, class Multiplicity>
Traffic traffic_of(const Schedule& schedule, const Cluster& cluster, Algorithm all_reduce, Images&& images,
                   Multiplicity&& multiplicity) {
  Traffic total;
  total.node_egress_bytes.assign(static_cast<std::size_t>(cluster.nodes()), 0);
  total.node_ingress_bytes = total.node_egress_bytes;
  total.rank_sent_bytes.assign(static_cast<std::size_t>(cluster.ranks()), 0);
  // Bytes of equal tasks are summed first, then spread over their edges once.
  struct Equal {
    const Task* first;
    std::int64_t number;
  };
  const auto key = [](const Task& task) {
    return std::make_tuple(task.op, task.payload, task.rank, task.route(), task.bytes.total());
  };
  std::vector<Equal> counts;
  HashIndex known;
  for (const Task& task : schedule.tasks()) {
    total.tasks[static_cast<std::size_t>(task.op)] += static_cast<std::int64_t>(multiplicity(task));
    if (is_compute(task.op)) continue;
    std::uint64_t hash = static_cast<std::uint64_t>(task.route()) * 0xd1342543de82ef95U;
    hash ^= static_cast<std::uint64_t>(task.bytes.total().value()) << 20;
    hash ^= hash >> 32;
    hash += static_cast<std::uint64_t>(task.op) << 40 | static_cast<std::uint64_t>(task.payload) << 32;
    const std::int32_t at = known.find_or_add(
        hash + static_cast<std::uint32_t>(task.rank),
        [&](std::int32_t one) { return key(*counts[static_cast<std::size_t>(one)].first) == key(task); },
        [&] {
          counts.push_back({&task, 0});
        });
    ++counts[static_cast<std::size_t>(at)].number;
  }
  for (const Equal& equal : counts) {
    const Task& task = *equal.first;
    const std::int64_t count = equal.number;
    const auto bytes = static_cast<double>(task.bytes.total().value());
    images(task, [&](const Schedule& with_groups, const Task& image) {
      const CollectiveShape shape = communication_shape(with_groups, image, all_reduce, cluster);
      for (std::size_t e = 0; e < shape.edges.size(); ++e) {
        const auto [from, to] = shape.edges[e];
        const double part = shape.fraction * shape.share(e) * bytes + 0.5;
        const std::int64_t each = checked_multiply(whole_bytes(part), count);
        const auto add = [each](std::int64_t& sum) { sum = checked_add(sum, each); };
        for (const LinkId link : cluster.route(from, to).links) {
          add(total.link_bytes[static_cast<std::size_t>(cluster.link(link).kind)]);
        }
        if (is_host_copy(image.op)) {
          add(total.host_bytes[from == host_memory ? 1 : 0]);
          continue;
        }
        const bool leaves = !cluster.same_node(from, to);
        add(leaves ? total.inter_node_bytes : total.intra_node_bytes);
        add(total.payload_bytes[static_cast<std::size_t>(sent_payload(image, from))][leaves ? 1 : 0]);
        add(total.rank_sent_bytes[index(from)]);
        if (leaves) {
          add(total.node_egress_bytes[index(cluster.node_of(from))]);
          add(total.node_ingress_bytes[index(cluster.node_of(to))]);
        }
      }
    });
  }
  return total;
}

}  // namespace detail

TAWPIPE_INLINE Traffic traffic(const Schedule& schedule, const Cluster& cluster, Algorithm all_reduce) {
  return detail::traffic_of(
      schedule, cluster, all_reduce, [&](const Task& task, auto&& visit) { visit(schedule, task); },
      [](const Task&) { return 1; });
}

TAWPIPE_INLINE Traffic traffic(const FoldedSchedule& folded, const Cluster& cluster, Algorithm all_reduce) {
  return detail::traffic_of(
      folded.schedule, cluster, all_reduce,
      [&](const Task& task, auto&& visit) {
        for (Task image : folded.images(folded.kind_of_any_size(task))) {
          image.payload = task.payload;  // those of a kind differ in it
          visit(folded.census, image);
        }
      },
      [&](const Task& task) { return folded.multiplicity(task); });
}

TAWPIPE_INLINE std::vector<std::vector<double>> node_traffic_over_time(const Schedule& schedule, const Cluster& cluster,
                                                                       const Timeline& timeline, std::size_t parts) {
  std::vector<std::vector<double>> all(2 * static_cast<std::size_t>(cluster.nodes()), std::vector<double>(parts, 0));
  const double length = static_cast<double>(std::max<std::int64_t>(timeline.makespan().value(), 1)) / static_cast<double>(parts);
  using Key = std::tuple<Op, Rank, std::int64_t>;
  std::map<Key, std::map<std::size_t, double>> moving;  // row of `all`, fraction of the message; computed once for each kind
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.task(id<TaskId>(t));
    if (is_local(task.op)) continue;
    const auto [found, added] = moving.try_emplace({task.op, task.rank, task.route()});
    if (added) {
      const CollectiveShape shape = communication_shape(schedule, task, Algorithm::ring, cluster);
      for (std::size_t e = 0; e < shape.edges.size(); ++e) {
        const auto [from, to] = shape.edges[e];
        const std::size_t inside = cluster.same_node(from, to) ? 1 : 0;
        found->second[2 * index(cluster.node_of(from)) + inside] += shape.fraction * shape.share(e);
      }
    }
    const double start = std::max(0.0, static_cast<double>(timeline.start[t].picoseconds()));
    const double end = std::max(static_cast<double>(timeline.end[t].picoseconds()), start + 1);
    for (const auto& [row, fraction] : found->second) {
      const double rate = fraction * static_cast<double>(task.bytes.total().value()) / (end - start);
      for (auto part = static_cast<std::size_t>(start / length); part < parts && static_cast<double>(part) * length < end;
           ++part) {
        const double from = std::max(start, static_cast<double>(part) * length);
        all[row][part] += rate * std::max(0.0, std::min(end, static_cast<double>(part + 1) * length) - from);
      }
    }
  }
  return all;
}

}  // namespace tawpipe
#endif
