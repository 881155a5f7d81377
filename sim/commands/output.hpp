// The terminal that the commands print to.
// Not: the text itself.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "../terminal_text.hpp"
#include "tawpipe/report/progress.hpp"
#include "tawpipe/report/table.hpp"

namespace tawpipe::sim {

/// The glyphs that a terminal can show by its locale.
inline Glyphs locale_glyphs() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view locale{value};
    return locale == "C" || locale == "POSIX" ? Glyphs::ascii : Glyphs::unicode;
  }
  return Glyphs::unicode;
}

/// Colours, glyphs and width supported by standard output.
inline TableStyle terminal_style() {
  TableStyle style;
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  style.colors = terminal && std::getenv("NO_COLOR") == nullptr;
  if (terminal) style.glyphs = locale_glyphs();
  style.max_width = terminal_width();
  return style;
}

/// Whether standard output was a terminal that has been closed.
inline bool standard_output_hung_up() {
  errno = 0;
  return isatty(STDOUT_FILENO) == 0 && errno == EIO;
}

inline bool progress_is_shown() { return isatty(STDERR_FILENO) == 1; }
/// A line of progress on standard error; where that is no terminal, one every ten seconds.
inline ProgressOptions progress_line(std::string label, std::int64_t total) {
  const bool shown = progress_is_shown();
  return {.label = shown ? std::move(label) : "tawpipe: " + label,
          .total = total,
          .enabled = shown,
          .seconds_a_line = 10,
          .glyphs = locale_glyphs()};
}

}  // namespace tawpipe::sim
