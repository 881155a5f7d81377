// What code refuses its input with.
#pragma once

#include <concepts>
#include <string>

#include "tawpipe/core/error.hpp"

namespace support {

/// The message of the InputError that `run` throws; "" if it throws none.
template <std::invocable Run>
std::string refusal(const Run& run) {
  try {
    run();
  } catch (const tawpipe::InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace support
