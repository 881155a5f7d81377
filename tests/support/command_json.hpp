// What the command prints with --json, as a value.
// Not: running it (command.hpp).
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "support/command.hpp"

namespace support {

inline nlohmann::json parsed(const Result& result) {
  CAPTURE(result.err);
  REQUIRE(nlohmann::json::accept(result.out));
  return nlohmann::json::parse(result.out);
}

/// What compare found, best first.
inline std::vector<nlohmann::json> results(const Result& result) { return parsed(result).at("results"); }

}  // namespace support
