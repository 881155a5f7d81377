// Python's words for numbers that JSON does not have, made texts of JSON.
// Not: the reading of JSON (json/json_reader.hpp).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::detail {

/// The text with Python's words for numbers that JSON does not have, outside of texts, in quotes.
inline std::string with_quoted_words(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool inside = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!inside) {
      for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
        if (!text.substr(at).starts_with(word)) continue;
        out += concat('"', word, '"');
        at += word.size();
        break;
      }
      if (at >= text.size()) break;
    }
    if (inside && text[at] == '\\' && at + 1 < text.size()) {
      out += text[at++];
    } else if (text[at] == '"') {
      inside = !inside;
    }
    out += text[at];
  }
  return out;
}

}  // namespace tawpipe::detail
