// Where the copies of a logical schedule's ranks, buffers and tasks are in the composed one.
// Not: what the copies do (schedule/compose.hpp).
#pragma once

#include <cstddef>
#include <vector>

#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// Copies are numbered tensor fastest, then context, then data; along each axis either all are kept
/// or the first ones.
class ComposedCopies {
 public:
  /// @param kept  tensor, context and data: how many of each are written
  ComposedCopies(const Schedule& logical, const Mesh& mesh, const Mesh& kept)
      : mesh_{mesh}, kept_{kept}, tasks_(logical.tasks().size() * static_cast<std::size_t>(count()), none<TaskId>) {}

  int count() const { return kept_.tensor * kept_.context * kept_.data; }
  int tensor(int copy) const { return copy % kept_.tensor; }
  int data(int copy) const { return copy / kept_.shared(); }
  Rank real(Rank logical, int copy) const {
    return mesh_.rank({tensor(copy), copy / kept_.tensor % kept_.context, number(logical), data(copy)});
  }
  BufferId buffer(BufferId logical, int copy) const { return id<BufferId>(place(index(logical), copy)); }
  TaskId& task(TaskId logical, int copy) { return tasks_[place(index(logical), copy)]; }
  TaskId task(TaskId logical, int copy) const { return tasks_[place(index(logical), copy)]; }
  /// Frees its memory.
  void forget() { tasks_ = std::vector<TaskId>{}; }

  /// The ranks that hold the same parameters.
  int holders() const { return mesh_.data * mesh_.context; }
  /// The index of a copy among them: context fastest.
  std::size_t holder(int copy) const {
    return static_cast<std::size_t>(copy / kept_.tensor % kept_.context + mesh_.context * data(copy));
  }
  /// The ranks that hold a logical rank's parameters, for each tensor-parallel one that is kept:
  /// `visit(members, copies)`.
  template <class Visit>
  void for_each_holders(Rank logical, Visit&& visit) const {
    for (int t = 0; t < kept_.tensor; ++t) {
      const auto members = mesh_.group({.tensor = t, .pipeline = number(logical)}, {MeshAxis::context, MeshAxis::data});
      std::vector<int> copies;
      for (int copy = t; copy < count(); copy += kept_.tensor) copies.push_back(copy);
      visit(members, copies);
    }
  }

 private:
  std::size_t place(std::size_t logical, int copy) const {
    return logical * static_cast<std::size_t>(count()) + static_cast<std::size_t>(copy);
  }

  Mesh mesh_;
  Mesh kept_;
  std::vector<TaskId> tasks_;  ///< [logical task, copy]
};

}  // namespace tawpipe::detail
