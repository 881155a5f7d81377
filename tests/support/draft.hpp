// A schedule taken apart, so that tests can change what builders never get wrong.
// Not: the changes themselves (properties/mutation_test.cpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::test {

/// The parts of a schedule in a form that can be changed.
struct Draft {
  Workload workload;
  Schedule::Parts parts;
  std::vector<std::vector<TaskId>> dependencies;
  std::vector<std::vector<TaskId>> program;
  std::vector<std::vector<Use>> uses;
  std::vector<TaskId> origin;  ///< [task] its id before any change

  explicit Draft(const Schedule& schedule) : workload{schedule.workload()}, parts{schedule.parts()} {
    const auto unpack = [](const auto& rows, auto& out) {
      for (std::size_t i = 0; i < rows.size(); ++i) out.emplace_back(rows[i].begin(), rows[i].end());
    };
    unpack(parts.dependencies, dependencies);
    unpack(parts.program, program);
    unpack(parts.uses, uses);
    for (std::size_t t = 0; t < parts.tasks.size(); ++t) origin.push_back(id<TaskId>(t));
  }

  Schedule make() const {
    Schedule::Parts made = parts;
    const auto pack = [](const auto& rows, auto& out) {
      std::vector<std::uint32_t> begin{0};
      std::decay_t<decltype(rows[0])> items;
      for (const auto& row : rows) {
        items.insert(items.end(), row.begin(), row.end());
        begin.push_back(static_cast<std::uint32_t>(items.size()));
      }
      out = {std::move(begin), std::move(items)};
    };
    pack(dependencies, made.dependencies);
    pack(program, made.program);
    pack(uses, made.uses);
    return Schedule{workload, std::move(made)};
  }

  Task& task(TaskId t) { return parts.tasks[index(t)]; }
  std::vector<TaskId>& lane(Rank rank, int lane) {
    return program[index(rank) * parts.lanes.size() + static_cast<std::size_t>(lane)];
  }
  std::vector<std::pair<Rank, int>> ends(TaskId t) const {
    std::vector<std::pair<Rank, int>> found;
    const Task& task = parts.tasks[index(t)];
    if (is_collective(task.op)) {
      for (const Rank rank : parts.groups[index(task.group)]) found.emplace_back(rank, number(task.lane));
      return found;
    }
    found.emplace_back(task.rank, number(task.lane));
    if (is_point_to_point(task.op)) found.emplace_back(task.peer, number(task.peer_lane));
    return found;
  }
  template <class Keep>
  std::vector<TaskId> select(Keep&& keep) const {
    std::vector<TaskId> found;
    for (std::size_t t = 0; t < parts.tasks.size(); ++t) {
      if (keep(id<TaskId>(t), parts.tasks[t])) found.push_back(id<TaskId>(t));
    }
    return found;
  }
  /// A task's group becomes these ranks; its uses stay.
  void regroup(TaskId moved, const std::vector<Rank>& members) {
    for (const auto& [rank, number] : ends(moved)) {
      auto& own = lane(rank, number);
      own.erase(std::find(own.begin(), own.end(), moved));
    }
    std::vector<std::uint32_t> begin{0};
    std::vector<Rank> items;
    const auto& groups = parts.groups;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      items.insert(items.end(), groups[g].begin(), groups[g].end());
      begin.push_back(static_cast<std::uint32_t>(items.size()));
    }
    items.insert(items.end(), members.begin(), members.end());
    begin.push_back(static_cast<std::uint32_t>(items.size()));
    task(moved).group = id<GroupId>(groups.size());
    task(moved).rank = members[0];
    parts.groups = {begin, items};
    for (const Rank member : members) {
      auto& own = lane(member, number(task(moved).lane));
      own.insert(std::lower_bound(own.begin(), own.end(), moved), moved);
    }
  }
  /// Takes a task away everywhere. What waited for it waits for nothing in its place.
  void remove(TaskId gone) {
    const auto renumber = [&](std::vector<std::vector<TaskId>>& rows) {
      for (auto& row : rows) {
        row.erase(std::remove(row.begin(), row.end(), gone), row.end());
        for (TaskId& t : row) t = t > gone ? id<TaskId>(index(t) - 1) : t;
      }
    };
    renumber(dependencies);
    renumber(program);
    const auto at = static_cast<std::ptrdiff_t>(index(gone));
    parts.tasks.erase(parts.tasks.begin() + at);
    dependencies.erase(dependencies.begin() + at);
    uses.erase(uses.begin() + at);
    origin.erase(origin.begin() + at);
  }
};

}  // namespace tawpipe::test
