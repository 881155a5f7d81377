// The option fields that strategies of sharded data parallelism have in common.
// Not: the strategies that use them (data_parallel.hpp, fully_sharded.hpp, hybrid_sharded.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "tawpipe/model/layer_stack.hpp"
#include "tawpipe/schedules/flow_options.hpp"
#include "tawpipe/schedules/option_field.hpp"

namespace tawpipe::inline v0::schedules::detail {

struct FlatOrTwoLevel {
  static constexpr std::array<std::string_view, 2> names{"flat", "two-level"};
  static constexpr bool value(std::size_t i) { return i == 1; }
};

template <auto two_level>
auto collectives_field() {
  return auto_tries(option_field<two_level, OptionNames<bool, FlatOrTwoLevel>>(
                        "collectives", "one ring over all devices, or between nodes and inside them in turn"),
                    "flat|two-level");
}
template <auto prefetch>
auto prefetch_field() {
  return auto_tries(option_field<prefetch>("prefetch", {.high = LayerStack::max_layers, .reason = "no model has more layers"},
                                           "layers gathered ahead of the one computed; 0 gathers when needed"),
                    "1");
}
template <auto reshard>
auto reshard_field() {
  return auto_tries(option_field<reshard>("reshard", "off: keep a layer from its forward to its backward"), "on|off");
}

}  // namespace tawpipe::schedules::detail
