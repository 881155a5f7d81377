// Values of enumerations by their names.
// Not: files, whose errors name a place (json/json_reader.hpp, timeline/timeline_csv.hpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::detail {

/// The value of `count`, from 0, whose name() is `text`. @param what  is named, "format of products"
/// @throws InputError  naming the nearest and all known names.
template <class Enum, int count>
Enum parse_name(std::string_view what, std::string_view text) {
  std::vector<std::string> known;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<Enum>(i);
    if (name(value) == text) return value;
    known.emplace_back(name(value));
  }
  throw InputError(unknown_name(what, text, known));
}

}  // namespace tawpipe::v0::detail
