// Colours of operations, payloads and memory in pages and pictures: Okabe and Ito's, which
// colour-blind readers can distinguish.
// Not: those of trace viewers and of Graphviz (schedule/op_traits.hpp).
#pragma once

#include <array>
#include <string_view>

#include "tawpipe/schedule/content.hpp"
#include "tawpipe/schedule/op_traits.hpp"
#include "tawpipe/schedule/task.hpp"

namespace tawpipe::inline v0 {

/// The colour of a computation; "" for a communication, which has its payload's.
/// Source: Okabe and Ito, Color Universal Design, 2008.
constexpr std::string_view op_color(Op op) {
  switch (op) {
    case Op::forward:
      return "#56b4e9";  // sky blue
    case Op::backward:
    case Op::backward_input:
      return "#009e73";  // bluish green
    case Op::backward_weight:
      return "#f0e442";  // yellow
    case Op::update:
      return "#8a8f98";
    case Op::idle:
      return "#d5d8dd";
    case Op::pass:
    case Op::exchange:
    case Op::broadcast:
    case Op::reduce:
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::all_reduce:
    case Op::all_to_all:
    case Op::copy_to_host:
    case Op::copy_from_host:
      return "";
  }
  return "";
}

/// The colour of a communication, by its payload.
constexpr std::string_view payload_color(Payload payload) {
  switch (traits(payload).numbers) {
    case Numbers::weights:
      return "#e69f00";  // orange
    case Numbers::gradients:
      return payload == Payload::gradients ? "#d55e00" : "#b04a00";  // vermilion
    case Numbers::activations:
      return payload == Payload::activations ? "#0072b2" : "#cc79a7";  // blue, reddish purple
    case Numbers::states:
      return "#6a5acd";
    case Numbers::none:
    case Numbers::single:
      return "#999999";
  }
  return "#999999";
}

/// [kind] The colours of buffers by content.
inline constexpr std::array<std::string_view, buffer_kinds> memory_colors{"#e69f00", "#d55e00", "#8a8f98",
                                                                          "#56b4e9", "#f0e442", "#cc79a7"};

/// The colours of a chart's lines, in order; the lines also differ in markers.
inline constexpr std::array<std::string_view, 8> series_colors{"#0072b2", "#e69f00", "#009e73", "#d55e00",
                                                               "#cc79a7", "#56b4e9", "#8a8f98", "#b59f00"};

}  // namespace tawpipe
