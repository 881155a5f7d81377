// The options next to those of a schedule.
// Not: all combinations of what `auto` tries (plan_space.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedules/registry.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

/// `choice` with one option changed: a whole number by one, doubled or halved; others to each value
/// that `auto` tries.
/// @param built  the schedule of `choice`, whose options() give the current values
inline std::vector<ScheduleChoice> nearby_choices(const ScheduleChoice& choice, const Schedule& built, const Registry& registry) {
  std::vector<ScheduleChoice> all;
  const auto add = [&](const std::string& key, std::string value) {
    all.push_back(choice);
    all.back().automatic = false;
    all.back().options[key] = std::move(value);
  };
  for (const OptionInfo& option : registry.info(choice.schedule).options) {
    const auto now =
        std::find_if(built.options().begin(), built.options().end(), [&](const auto& one) { return one.first == option.name; });
    if (now == built.options().end()) continue;
    if (const auto number = to_number<std::int64_t>(now->second)) {
      std::vector<std::int64_t> near{*number - 1, *number + 1, *number / 2, *number * 2};
      std::sort(near.begin(), near.end());
      near.erase(std::unique(near.begin(), near.end()), near.end());
      for (const std::int64_t value : near) {
        if (value >= 0 && value != *number) add(option.name, concat(value));
      }
      continue;
    }
    for (const std::string& value : option.tried) {
      if (value != now->second) add(option.name, value);
    }
  }
  return all;
}

}  // namespace tawpipe
