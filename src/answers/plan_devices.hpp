// The best plan for each number of devices.
// Not: what another cluster of any kind would buy (answers/plan_what_if.hpp).
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "tawpipe/answers/plan_answer.hpp"

namespace tawpipe::inline v0::answers {

/// The question of each number of devices, by doubling. @throws InputError  if PlanQuestion::devices is none, or of what
/// is wrong with any of them
std::vector<PlanQuestion> questions_of_devices(const PlanQuestion& question);

/// The searches, and the plans of all of them that no other beats in devices, time and memory.
nlohmann::ordered_json devices_json(const std::vector<Planned>& all);

}  // namespace tawpipe::answers
