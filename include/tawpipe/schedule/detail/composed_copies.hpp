// Where the copies of a logical schedule's ranks, buffers and tasks are in the composed one.
// Not: what the copies do (schedule/compose.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// Parameters of a layer by who has them: each tensor-parallel rank a part of all matrices, or, with
/// Mesh::whole_experts, each rank that shares a layer some of its experts.
enum class ParameterClass : std::uint8_t { dense, experts };

/// Copies are numbered tensor fastest, then context, expert and data; along each axis either all are
/// kept or the first ones.
class ComposedCopies {
 public:
  /// @param kept  of each axis: how many are written
  ComposedCopies(const Schedule& logical, const Mesh& mesh, const Mesh& kept)
      : mesh_{mesh}, kept_{kept}, tasks_(logical.tasks().size() * static_cast<std::size_t>(count()), none<TaskId>) {}

  int count() const { return kept_.copies(); }
  int tensor(int copy) const { return copy % kept_.tensor; }
  int context(int copy) const { return copy / kept_.tensor % kept_.context; }
  int expert(int copy) const { return copy / (kept_.tensor * kept_.context) % kept_.expert; }
  int data(int copy) const { return copy / kept_.shared(); }
  Rank real(Rank logical, int copy) const {
    return mesh_.rank({tensor(copy), context(copy), number(logical), data(copy), expert(copy)});
  }
  /// Which part of the parameters of a class it has, among the copies that are kept.
  int part(int copy, ParameterClass of) const { return of == ParameterClass::dense ? tensor(copy) : copy % kept_.shared(); }
  BufferId buffer(BufferId logical, int copy) const { return id<BufferId>(place(index(logical), copy)); }
  TaskId& task(TaskId logical, int copy) { return tasks_[place(index(logical), copy)]; }
  TaskId task(TaskId logical, int copy) const { return tasks_[place(index(logical), copy)]; }
  /// Frees its memory.
  void forget() { tasks_ = std::vector<TaskId>{}; }

  /// The classes of parameters that different ranks have.
  std::span<const ParameterClass> classes() const {
    static constexpr ParameterClass all[] = {ParameterClass::dense, ParameterClass::experts};
    return std::span{all}.first(mesh_.whole_experts ? 2 : 1);
  }
  /// The number of parts of the parameters of a class.
  int parts(ParameterClass of) const { return of == ParameterClass::dense ? mesh_.tensor : mesh_.expert_parts(); }
  /// The ranks that hold the same parameters of a class.
  int holders(ParameterClass of = ParameterClass::dense) const {
    return of == ParameterClass::dense ? mesh_.data * mesh_.token_ranks() : mesh_.data;
  }
  /// The index of a copy among them: context fastest, then expert.
  std::size_t holder(int copy, ParameterClass of) const {
    if (of == ParameterClass::experts) return static_cast<std::size_t>(data(copy));
    return static_cast<std::size_t>(context(copy) + mesh_.context * (expert(copy) + mesh_.expert * data(copy)));
  }
  /// The ranks that hold a logical rank's parameters of a class, for each part of them that is kept:
  /// `visit(members, copies)`.
  template <class Visit>
  void for_each_holders(Rank logical, ParameterClass of, Visit&& visit) const {
    const int parts = of == ParameterClass::dense ? kept_.tensor : kept_.shared();
    for (int part = 0; part < parts; ++part) {
      const MeshPlace place = mesh_.place(real(logical, part));
      const auto members = of == ParameterClass::dense ? mesh_.group(place, {MeshAxis::context, MeshAxis::expert, MeshAxis::data})
                                                       : mesh_.group(place, {MeshAxis::data});
      std::vector<int> copies;
      for (int copy = part; copy < count(); copy += parts) copies.push_back(copy);
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
