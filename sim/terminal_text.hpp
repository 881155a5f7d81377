// Text for the terminal that reads it: no line is wider, and help is set in its columns.
// Not: tables (report/table.hpp fits them itself).
#pragma once

#include <string>
#include <string_view>

namespace tawpipe::sim {

/// Columns of the terminal that standard output is, or what COLUMNS in the environment says; 0 where there is neither.
int terminal_width();

/// The text with lines of at most `width` columns. Sentences are broken at spaces, under their first word; commands (lines that
/// begin with `tawpipe`) are broken with a backslash, so that a shell still takes them. 0: as it is.
std::string fit(std::string_view text, int width);

/// What CLI11 writes for --help: one blank line between its parts, and flags' descriptions set anew between column 34 and
/// `width`.
std::string help_text(std::string_view text, int width);

/// Writes to standard output, fitted to the terminal if it is one.
void print(std::string_view text);

}  // namespace tawpipe::sim
