// Tensor, context and data parallelism around a schedule: how many ranks share a logical one, and where each stands.
// Not: the schedule that they run (schedule/compose.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0 {

/// How many real devices stand behind a logical one, and how many copies of the schedule run side by side.
struct Layout {
  int tensor = 1;   ///< ranks that split every matrix product (with sequence parallelism: activations too)
  int context = 1;  ///< ranks that split the sequence
  int data = 1;     ///< replicas, each with its part of the batch
  /// Which of the three and of the schedule's own ranks lie next to each other, nearest first: a permutation of "tcsd".
  std::string order = "tcsd";

  /// The schedule's own ranks alone.
  bool is_plain() const { return tensor == 1 && context == 1 && data == 1; }
  int per_logical_rank() const { return tensor * context; }
  bool operator==(const Layout&) const = default;
};

/// Where a real rank stands in the layout.
struct LayoutPlace {
  int tensor = 0;
  int context = 0;
  int logical = 0;  ///< rank of the schedule
  int data = 0;
};

/// The explicit map between real ranks and places.
class RankMap {
 public:
  /// @throws InputError  if `ranks` cannot be cut so, or the order is no permutation of "tcsd".
  RankMap(const Layout& layout, int ranks) : layout_{layout} {
    if (layout.tensor < 1 || layout.context < 1 || layout.data < 1) {
      throw InputError("tensor, context and data parallelism must be 1 or more");
    }
    const std::int64_t product = std::int64_t{layout.tensor} * layout.context * layout.data;
    if (product > ranks || ranks % product != 0) {
      throw InputError(concat("tensor ", layout.tensor, " x context ", layout.context, " x data ", layout.data, " = ", product,
                              " does not divide the cluster's ", ranks, " devices"));
    }
    std::string sorted = layout.order;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != "cdst") {
      throw InputError(
          concat("layout ", quote(layout.order),
                 " must name tensor (t), context (c), schedule (s) and data (d) once each, nearest first, such as tcsd"));
    }
    logical_ = ranks / static_cast<int>(product);
  }

  int logical_ranks() const { return logical_; }

  Rank rank(const LayoutPlace& place) const {
    int rank = 0;
    int stride = 1;
    for (const char letter : layout_.order) {
      rank += place.*axis(letter) * stride;
      stride *= size(letter);
    }
    return Rank{rank};
  }
  LayoutPlace place(Rank rank) const {
    LayoutPlace place;
    int left = number(rank);
    for (const char letter : layout_.order) {
      place.*axis(letter) = left % size(letter);
      left /= size(letter);
    }
    return place;
  }

  /// The nodes as one replica's schedule sees them: logical ranks whose first real rank is in one node.
  /// @throws InputError  if a logical rank's real ranks lie in different nodes, or a node's logical ranks are not consecutive.
  DeviceGroups logical_nodes(const DeviceGroups& nodes) const {
    std::vector<std::int32_t> sizes;
    std::vector<int> seen;
    for (int p = 0; p < logical_; ++p) {
      const int node = nodes.group_of(number(rank({0, 0, p, 0})));
      for (int copy = 0; copy < layout_.context * layout_.data; ++copy) {  // context groups may span nodes: theirs is a ring
        const int c = copy % layout_.context;
        const int d = copy / layout_.context;
        const int first = nodes.group_of(number(rank({0, c, p, d})));
        for (int t = 1; t < layout_.tensor; ++t) {
          if (nodes.group_of(number(rank({t, c, p, d}))) != first) {
            throw InputError(concat("layout ", layout_.order, ": the ", layout_.tensor, " tensor-parallel ranks of logical rank ",
                                    p, " lie in different nodes; put t first, with at most a node's devices"));
          }
        }
      }
      if (seen.empty() || seen.back() != node) {
        if (std::find(seen.begin(), seen.end(), node) != seen.end()) return DeviceGroups::even(logical_, 1);
        seen.push_back(node);
        sizes.push_back(0);
      }
      ++sizes.back();
    }
    return DeviceGroups{sizes};
  }

 private:
  int size(char letter) const {
    return letter == 't' ? layout_.tensor : letter == 'c' ? layout_.context : letter == 's' ? logical_ : layout_.data;
  }
  static int LayoutPlace::*axis(char axis) {
    return axis == 't'   ? &LayoutPlace::tensor
           : axis == 'c' ? &LayoutPlace::context
           : axis == 's' ? &LayoutPlace::logical
                         : &LayoutPlace::data;
  }

  Layout layout_;
  int logical_ = 1;
};

}  // namespace tawpipe
