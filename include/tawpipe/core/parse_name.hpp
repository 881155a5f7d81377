// Values of enumerations by their names.
// Not: files, whose errors name a place (json/json_reader.hpp, timeline/timeline_csv.hpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::detail {

/// The names of `count` values, from 0.
template <class Enum, int count>
std::vector<std::string> names_of() {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(name(static_cast<Enum>(i)));
  return names;
}

/// The value of `count`, from 0, whose name() is `text`. @param what  is named, "format of products"
/// @throws InputError  naming the nearest and all known names.
template <class Enum, int count>
Enum parse_name(std::string_view what, std::string_view text) {
  for (int i = 0; i < count; ++i) {
    if (name(static_cast<Enum>(i)) == text) return static_cast<Enum>(i);
  }
  throw InputError(unknown_name(what, text, names_of<Enum, count>()));
}

}  // namespace tawpipe::v0::detail
