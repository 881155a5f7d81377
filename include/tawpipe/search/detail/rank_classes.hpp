// Ranks whose communications take the same time, and the times of large collectives by their
// members' places.
// Not: the bounds that need them (search/lower_bound.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/schedule/task.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0::detail {

/// Kinds and places of ranks, and where a node ends, as a key for a table. @param self  marked in
/// it
inline void add_members(std::vector<std::int32_t>& key, std::span<const Rank> members, Rank self, const Cluster& cluster) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    const bool same_node = i > 0 && cluster.same_node(members[i - 1], members[i]);
    key.push_back(cluster.kind_index(cluster.node_of(members[i])) * 4 + (same_node ? 1 : 0) + (members[i] == self ? 2 : 0));
    key.push_back(cluster.local_index(members[i]));
  }
  key.push_back(-1);
}

/// Ranks whose groups along a mesh's axes have the same devices and links: their communications and
/// computations take the same time. If links between nodes are shared (Cluster::fabric()) all ranks
/// differ.
class RankClasses {
 public:
  RankClasses(const Cluster& cluster, const Mesh& mesh) : cluster_{cluster}, mesh_{mesh} {}

  int of(Rank rank) {
    if (class_of_.empty()) class_of_.assign(static_cast<std::size_t>(cluster_.ranks()), -1);
    int& found = class_of_[index(rank)];
    if (found < 0) found = classes_.try_emplace(key(rank), static_cast<int>(classes_.size())).first->second;
    return found;
  }

  /// Kinds and places of the members of its groups, and where a node ends.
  std::vector<std::int32_t> key(Rank rank) const {
    std::vector<std::int32_t> key;
    if (!cluster_.fabric().links.empty()) key.push_back(number(rank));
    add(key, mesh_.group(mesh_.place(rank), {MeshAxis::tensor}), rank);
    add(key, mesh_.group(mesh_.place(rank), {MeshAxis::context}), rank);
    if (mesh_.whole_experts)
      add(key, mesh_.group(mesh_.place(rank), {MeshAxis::tensor, MeshAxis::context, MeshAxis::expert}), rank);
    return key;
  }

 private:
  void add(std::vector<std::int32_t>& key, const std::vector<Rank>& members, Rank self) const {
    add_members(key, members, self, cluster_);
  }

  const Cluster& cluster_;
  const Mesh& mesh_;
  std::vector<int> class_of_;  ///< [rank]; -1: not yet known
  std::map<std::vector<std::int32_t>, int> classes_;
};

/// Times of large collectives, by their members' devices and links: computed by a cost model once
/// for all schedules of a search. May be shared between threads.
class CollectiveTimes {
 public:
  /// @param key  kinds and places of the members, and where a node ends
  template <class Find>
  std::int64_t find(Op op, std::vector<std::int32_t> key, const Messages& bytes, Find&& find) {
    const std::tuple<Op, std::vector<std::int32_t>, std::int64_t, std::int32_t> whole{op, std::move(key), bytes.value(),
                                                                                      bytes.repeat()};
    {
      const std::lock_guard lock{mutex_};
      if (const auto at = times_.find(whole); at != times_.end()) return at->second;
    }
    const std::int64_t time = find();
    const std::lock_guard lock{mutex_};
    times_.emplace(whole, time);
    return time;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<Op, std::vector<std::int32_t>, std::int64_t, std::int32_t>, std::int64_t> times_;
};

}  // namespace tawpipe::inline v0::detail
