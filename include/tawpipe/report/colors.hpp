// Colours of memory and of lines in pages and charts: Okabe and Ito's, which colour-blind readers
// can distinguish.
// Not: those of operations and payloads (schedule/op_traits.hpp).
#pragma once

#include <array>
#include <string_view>

#include "tawpipe/schedule/task.hpp"

namespace tawpipe::inline v0 {

/// [kind] The colours of buffers by content.
inline constexpr std::array<std::string_view, buffer_kinds> memory_colors{"#e69f00", "#d55e00", "#8a8f98",
                                                                          "#56b4e9", "#f0e442", "#cc79a7"};

/// The colours of a chart's lines, in order; the lines also differ in markers.
inline constexpr std::array<std::string_view, 8> series_colors{"#0072b2", "#e69f00", "#009e73", "#d55e00",
                                                               "#cc79a7", "#56b4e9", "#8a8f98", "#b59f00"};

}  // namespace tawpipe
