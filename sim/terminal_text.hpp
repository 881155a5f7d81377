// Fits text to a terminal: no line is wider, and help keeps its columns.
// Not: tables (report/table.hpp fits them itself).
#pragma once

#include <string>
#include <string_view>

namespace tawpipe::sim {

/// Columns of the terminal on standard output, or of COLUMNS in the environment; 0 if there is
/// neither.
int terminal_width();

/// The text with lines of at most `width` columns. Sentences are broken at spaces, under their
/// first word; commands (lines that begin with `tawpipe`) are broken with a backslash, so that a
/// shell still accepts them. 0: unchanged.
std::string fit(std::string_view text, int width);

/// Formats CLI11's --help: one blank line between its parts, and flags' descriptions rewrapped
/// between column 34 and `width`.
std::string help_text(std::string_view text, int width);

/// Writes to standard output, fitted to the terminal if it is one.
void print(std::string_view text);

}  // namespace tawpipe::sim
