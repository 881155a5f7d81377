// What `tawpipe list` lists, as JSON. Not: its tables.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tawpipe::sim {

/// An array of objects, one for each of the "schedules", "clusters", "devices" or "models" with a name.
nlohmann::ordered_json list_json(const std::string& what);

}  // namespace tawpipe::sim
