// The terminal that the commands print to.
// Not: the text itself.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "../terminal_text.hpp"
#include "tawpipe/report/table.hpp"

namespace tawpipe::sim {

/// Colours, glyphs and width supported by standard output.
inline TableStyle terminal_style() {
  TableStyle style;
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  style.colors = terminal && std::getenv("NO_COLOR") == nullptr;
  std::string_view locale;
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const char* value = std::getenv(variable); value != nullptr && *value != '\0') {
      locale = value;
      break;
    }
  }
  if (terminal && (locale == "C" || locale == "POSIX")) style.glyphs = Glyphs::ascii;
  style.max_width = terminal_width();
  return style;
}

inline bool progress_is_shown() { return isatty(STDERR_FILENO) == 1; }

}  // namespace tawpipe::sim
