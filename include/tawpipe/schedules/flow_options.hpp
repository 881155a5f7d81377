// Options that several families of schedules have: the order of a weight pipeline, overlap.
// Not: any one schedule's options.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedules/option_field.hpp"

namespace tawpipe::inline v0::schedules {

/// The order in which a weight pipeline runs.
enum class Order : std::uint8_t {
  eager,  ///< each task as soon as its inputs are there
  paper,  ///< in lock-step turns, as drawn in the paper
};
constexpr std::array<std::string_view, 2> option_names(Order) { return {"eager", "paper"}; }

namespace detail {

/// The field of an `overlap` option that only affects the time of the compute lane.
template <auto overlap>
auto overlap_field() {
  return option_field<overlap>("overlap", "off: communication takes the compute lane's time");
}

/// The `order` field of a weight pipeline whose paper draws turns.
template <auto order>
auto turns_field() {
  return option_field<order>("order", "each task when its inputs are there, or lock-step turns",
                             "eager (paper with fixed times)");
}
/// Fixed times are for checking closed forms, which hold for the drawn turns.
inline Order turns(const std::optional<Order>& order, const Workload& workload) {
  return order.value_or(workload.is_abstract() ? Order::paper : Order::eager);
}

}  // namespace detail

}  // namespace tawpipe::schedules
