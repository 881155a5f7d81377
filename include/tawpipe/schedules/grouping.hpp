// The groups of a schedule: the nodes, all ranks as one, or a number of equal groups.
// Not: the groups themselves (topology/device_group.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tawpipe/schedules/option_field.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0::schedules {

struct Grouping {
  int count = 0;  ///< number of equal groups; 0: the nodes

  static std::string values() { return "nodes|flat|N"; }
  static std::string expected() { return "nodes, flat (one group of all) or a number of equal groups, 1 or more"; }
  std::string text() const { return count == 0 ? "nodes" : std::to_string(count); }
  static std::optional<Grouping> parse(std::string_view text) {
    if (text == "nodes") return Grouping{};
    if (text == "flat") return Grouping{1};
    const std::optional<int> count = WholeRange{.low = 1}.parse(text);
    return count ? std::optional{Grouping{*count}} : std::nullopt;
  }

  /// What gives these groups again: their number where they are equal, else the nodes.
  static Grouping that_gives(const DeviceGroups& groups) {
    return {groups == DeviceGroups::even(groups.ranks(), groups.count()) ? groups.count() : 0};
  }

  /// @throws InputError  if there are more groups than ranks.
  DeviceGroups of(const DeviceGroups& nodes) const { return count == 0 ? nodes : DeviceGroups::even(nodes.ranks(), count); }
};

}  // namespace tawpipe::schedules
