// A device mesh with named axes: the coordinates of each rank, which ranks share an axis, and what
// lies in one node.
// Not: what the ranks of an axis do together (schedule/compose.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0 {

/// The ways in which ranks share a training job.
enum class MeshAxis : std::uint8_t {
  tensor,    ///< ranks that split every matrix product
  context,   ///< ranks that split the sequence
  expert,    ///< ranks that split a microbatch's sequences and, with the others, the experts
  pipeline,  ///< the schedule's own ranks
  data,      ///< replicas, each with a part of the batch
};
inline constexpr int mesh_axes = 5;

/// The axis's name, "tensor".
constexpr std::string_view name(MeshAxis axis) {
  constexpr std::string_view names[mesh_axes] = {"tensor", "context", "expert", "pipeline", "data"};
  return names[static_cast<int>(axis)];
}

/// Axes nearest first as text: one letter each, t, c, e, s (the schedule's own ranks) and d;
/// "tcsd".
inline std::string mesh_order_text(const std::vector<MeshAxis>& order) {
  std::string text;
  for (const MeshAxis axis : order) text += "tcesd"[static_cast<int>(axis)];
  return text;
}

/// Axes from letters (tcsd, or p for s) or from names, nearest first: "tp-cp-dp-pp",
/// "tensor,context,pipeline,data".
/// @throws InputError  for any other letter or name.
inline std::vector<MeshAxis> parse_mesh_order(std::string_view text) {
  const auto fail = [&]() -> MeshAxis {
    throw InputError(concat("layout ", quote(text),
                            " must name tensor (t), context (c), schedule (s) and data (d) once each, nearest first, such as ",
                            "tcsd or tp-cp-pp-dp"));
  };
  std::vector<MeshAxis> order;
  if (text.find_first_of("-,") == std::string_view::npos) {
    for (const char letter : text) {
      const auto at = std::string_view{"tcesd"}.find(letter == 'p' ? 's' : letter);
      order.push_back(at == std::string_view::npos ? fail() : static_cast<MeshAxis>(at));
    }
    return order;
  }
  constexpr std::string_view short_names[mesh_axes] = {"tp", "cp", "ep", "pp", "dp"};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of("-,", begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    int axis = 0;
    while (axis < mesh_axes && word != short_names[axis] && word != name(static_cast<MeshAxis>(axis))) ++axis;
    order.push_back(axis == mesh_axes ? fail() : static_cast<MeshAxis>(axis));
    begin = end + 1;
  }
  return order;
}

/// Coordinates on a mesh.
struct MeshPlace {
  int tensor = 0;
  int context = 0;
  int pipeline = 0;  ///< rank in the schedule
  int data = 0;
  int expert = 0;

  int& operator[](MeshAxis axis) { return this->*member(axis); }
  int operator[](MeshAxis axis) const { return this->*member(axis); }
  bool operator==(const MeshPlace&) const = default;

 private:
  static int MeshPlace::*member(MeshAxis axis) {
    constexpr int MeshPlace::*members[mesh_axes] = {&MeshPlace::tensor, &MeshPlace::context, &MeshPlace::expert,
                                                    &MeshPlace::pipeline, &MeshPlace::data};
    return members[static_cast<int>(axis)];
  }
};

/// The sizes of the axes and the order in which they lie on the ranks, one to one.
///
/// Example: `const Mesh mesh = Mesh{.tensor = 8, .data = 4}.over(256);  // pipeline 8`
struct Mesh {
  int tensor = 1;
  int context = 1;
  int data = 1;
  int expert = 1;
  int pipeline = 0;  ///< 0: what the other axes leave of the ranks (over())
  /// Nearest first: the first axis's ranks lie next to each other. An axis of one rank need not be
  /// named.
  std::vector<MeshAxis> order = {MeshAxis::tensor, MeshAxis::context, MeshAxis::pipeline, MeshAxis::data};
  /// Each rank that shares a layer has whole experts of its own, which the ranks' tokens travel to;
  /// false: tensor-parallel ranks split the width of all experts.
  bool whole_experts = false;

  /// [axis] its size
  using Sizes = std::array<int, mesh_axes>;
  static Mesh of(const Sizes& sizes, std::vector<MeshAxis> order) {
    return {.tensor = sizes[0],
            .context = sizes[1],
            .data = sizes[4],
            .expert = sizes[2],
            .pipeline = sizes[3],
            .order = std::move(order)};
  }
  Sizes sizes() const { return {tensor, context, expert, pipeline, data}; }
  int size(MeshAxis axis) const { return sizes()[static_cast<std::size_t>(axis)]; }
  /// The ranks that share one rank of the schedule.
  int shared() const { return tensor * context * expert; }
  /// The ranks among which the tokens of a microbatch are divided.
  int token_ranks() const { return context * expert; }
  /// The ranks that have sequences of their own, for each rank of the schedule and of the others.
  int batch_parts() const { return data * expert; }
  /// The number of parts of the experts' parameters.
  int expert_parts() const { return whole_experts ? shared() : tensor; }
  /// Which part of the parameters that ranks divide one has: of experts, with whole ones on each rank, and of
  /// all else of matrices.
  int parameter_part(const MeshPlace& place) const {
    return whole_experts ? place.tensor + tensor * (place.context + context * place.expert) : place.tensor;
  }
  /// The ranks that do the work of one rank of the schedule.
  int copies() const { return shared() * data; }
  /// Whether it has only the schedule's own ranks.
  bool is_plain() const { return copies() == 1; }
  bool operator==(const Mesh&) const = default;

  /// The mesh on that many ranks: `pipeline` is what the others leave.
  /// An expert axis that the order does not name lies after the context axis.
  /// @throws InputError  if the ranks cannot be divided that way, there is an expert axis without
  /// whole experts, or the order lacks an axis or has one twice.
  Mesh over(int ranks) const {
    if (tensor < 1 || context < 1 || data < 1 || expert < 1)
      throw InputError("tensor, context, expert and data parallelism must be 1 or more");
    if (expert > 1 && !whole_experts) throw InputError("an expert axis needs whole experts on each rank");
    std::int64_t product = 1;  // saturates: each factor is below 2^31
    for (const int size : {tensor, context, expert, data}) product = product > ranks ? product : product * size;
    if (product > ranks || ranks % product != 0) {
      throw InputError(concat("tensor ", tensor, " x context ", context, expert > 1 ? concat(" x expert ", expert) : "",
                              " x data ", data, " = ", std::int64_t{tensor} * context * expert * data,
                              " does not divide the cluster's ", ranks, " devices"));
    }
    Mesh mesh = *this;
    mesh.pipeline = ranks / static_cast<int>(product);
    if (expert > 1 && std::find(order.begin(), order.end(), MeshAxis::expert) == order.end()) {
      const auto after = std::find(mesh.order.begin(), mesh.order.end(), MeshAxis::context);
      mesh.order.insert(after == mesh.order.end() ? after : after + 1, MeshAxis::expert);
    }
    for (int a = 0; a < mesh_axes; ++a) {
      const auto axis = static_cast<MeshAxis>(a);
      const auto times = std::count(mesh.order.begin(), mesh.order.end(), axis);
      if (times == 1 || (times == 0 && axis == MeshAxis::expert)) continue;
      throw InputError(concat("layout ", quote(mesh_order_text(order)),
                              " must name tensor (t), context (c), schedule (s) and data (d) once each, nearest first, such as "
                              "tcsd or tp-cp-pp-dp"));
    }
    return mesh;
  }

  /// All its ranks. @pre over()
  int ranks() const { return copies() * pipeline; }
  /// The rank at given coordinates. @pre over()
  Rank rank(const MeshPlace& place) const {
    int rank = 0;
    int stride = 1;
    for (const MeshAxis axis : order) {
      rank += place[axis] * stride;
      stride *= size(axis);
    }
    return Rank{rank};
  }
  /// The coordinates of a rank. @pre over()
  MeshPlace place(Rank rank) const {
    MeshPlace place;
    int left = number(rank);
    for (const MeshAxis axis : order) {
      place[axis] = left % size(axis);
      left /= size(axis);
    }
    return place;
  }
  /// The ranks that differ from `at` in these axes only, the first axis fastest. @pre over()
  std::vector<Rank> group(MeshPlace at, std::initializer_list<MeshAxis> axes) const {
    for (const MeshAxis axis : axes) at[axis] = 0;
    std::vector<MeshPlace> places{at};
    for (const MeshAxis axis : axes) {
      const std::size_t before = places.size();
      for (int i = 1; i < size(axis); ++i) {
        for (std::size_t p = 0; p < before; ++p) {
          places.push_back(places[p]);
          places.back()[axis] = i;
        }
      }
    }
    std::vector<Rank> ranks;
    for (const MeshPlace& place : places) ranks.push_back(rank(place));
    return ranks;
  }

  /// The cluster's nodes as one replica's schedule sees them: its ranks by the node of their first
  /// real rank. Where a node's ranks are not consecutive, all count as one node. @param nodes  of
  /// all ranks. @pre over()
  DeviceGroups pipeline_nodes(const DeviceGroups& nodes) const {
    std::vector<std::int32_t> sizes;
    std::vector<int> seen;
    for (int p = 0; p < pipeline; ++p) {
      const int node = nodes.group_of(number(rank({.pipeline = p})));
      if (seen.empty() || seen.back() != node) {
        if (std::find(seen.begin(), seen.end(), node) != seen.end()) return DeviceGroups::even(pipeline, 1);
        seen.push_back(node);
        sizes.push_back(0);
      }
      ++sizes.back();
    }
    return DeviceGroups{sizes};
  }
};

}  // namespace tawpipe
