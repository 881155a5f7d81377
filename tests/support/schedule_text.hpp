// Texts of schedules, and what their reader says of wrong ones.
// Not: what is right (unit/report/schedule_json_test.cpp).
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tawpipe/report/schedule_json.hpp"

namespace support {

/// What the reader says of a text; "no error" if it takes it.
inline std::string schedule_error(const std::string& text) {
  try {
    tawpipe::parse_schedule_json(text, "s.json");
  } catch (const tawpipe::InputError& error) {
    return error.what();
  }
  return "no error";
}

/// The error of a file with these tasks.
inline std::string task_error(const std::string& tasks) { return schedule_error("{\"tasks\": [" + tasks + "]}"); }

inline const std::string forward_task = R"({"op": "forward", "rank": 0, "stage": 0, "microbatch": 0})";

inline std::string schedule_file(const std::string& name) {
  std::ifstream in{TAWPIPE_TEST_DATA "/interchange/" + name};
  REQUIRE_MESSAGE(in.is_open(), name);
  return {std::istreambuf_iterator<char>{in}, {}};
}

}  // namespace support
