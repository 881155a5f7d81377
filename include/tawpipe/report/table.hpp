// A table of text in aligned columns, for terminals and log files.
// Not: the decision whether colours or Unicode are wanted (the caller knows its terminal), nor Markdown or CSV.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/report/formatters.hpp"

namespace tawpipe::inline v0 {

enum class Align : std::uint8_t { left, right };

/// How a row stands out where colours are on.
enum class Emphasis : std::uint8_t { none, bold, dim };

struct TableColumn {
  std::string header;
  Align align = Align::left;
};

struct TableStyle {
  bool colors = false;  ///< bold headers and rows, dim rules, by ANSI sequences
  Glyphs glyphs = Glyphs::unicode;
  int max_width = 0;  ///< columns of the terminal; the last column of the table is cut to fit. 0: no limit
};

/// Rows of text under headers. Numbers go right, names left. Control characters in a cell become "?".
///
/// Example:
/// ```cpp
/// tawpipe::Table table{{{"schedule"}, {"time", tawpipe::Align::right}}};
/// table.row({"tawpipe", "1.25 s"}).row({"gpipe", "980 ms"});
/// const std::string text = table.str();
/// // schedule    time
/// // ────────  ──────
/// // tawpipe   1.25 s
/// // gpipe     980 ms
/// ```
class Table {
 public:
  explicit Table(std::vector<TableColumn> columns) : columns_{std::move(columns)} {
    for (auto& column : columns_) column.header = detail::printable(column.header);
  }

  /// Adds a row; missing cells are empty, cells without a column are dropped.
  Table& row(std::vector<std::string> cells, Emphasis emphasis = Emphasis::none) {
    cells.resize(columns_.size());
    for (auto& cell : cells) cell = detail::printable(cell);
    rows_.push_back({std::move(cells), emphasis, false});
    return *this;
  }
  /// Adds a line between the rows above and those below.
  Table& rule() {
    rows_.push_back({{}, Emphasis::dim, true});
    return *this;
  }

  std::size_t columns() const { return columns_.size(); }
  bool empty() const { return rows_.empty(); }

  /// The lines, each with its line end and without trailing spaces. Complexity: O(characters).
  std::string str(const TableStyle& style = {}) const {
    if (columns_.empty()) return "";
    const auto widths = fitted_widths(style);
    std::vector<std::string> headers;
    for (const auto& column : columns_) headers.push_back(column.header);
    std::string out;
    add_line(out, line_of(headers, widths, style), Emphasis::bold, style);
    add_line(out, rule_of(widths, style), Emphasis::dim, style);
    for (const auto& row : rows_) {
      add_line(out, row.is_rule ? rule_of(widths, style) : line_of(row.cells, widths, style), row.emphasis, style);
    }
    return out;
  }

 private:
  static constexpr int gap = 2;

  struct Row {
    std::vector<std::string> cells;
    Emphasis emphasis;
    bool is_rule;
  };

  /// [column] the widest cell; the last at most what max_width leaves, but at least 1.
  std::vector<int> fitted_widths(const TableStyle& style) const {
    std::vector<int> widths;
    int before_last = 0;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      int width = display_width(columns_[c].header);
      for (const auto& row : rows_) width = std::max(width, row.is_rule ? 0 : display_width(row.cells[c]));
      if (c + 1 < columns_.size()) before_last += width + gap;
      widths.push_back(width);
    }
    if (style.max_width > 0) widths.back() = std::min(widths.back(), std::max(style.max_width - before_last, 1));
    return widths;
  }

  std::string line_of(const std::vector<std::string>& cells, const std::vector<int>& widths, const TableStyle& style) const {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string cell = truncated(cells[c], widths[c], style.glyphs);
      const std::string padding(static_cast<std::size_t>(widths[c] - display_width(cell)), ' ');
      if (c > 0) line.append(gap, ' ');
      line += columns_[c].align == Align::right ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  }

  static std::string rule_of(const std::vector<int>& widths, const TableStyle& style) {
    std::string line;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      if (c > 0) line.append(gap, ' ');
      for (int i = 0; i < widths[c]; ++i) line += style.glyphs == Glyphs::unicode ? "─" : "-";
    }
    return line;
  }

  static void add_line(std::string& out, std::string_view line, Emphasis emphasis, const TableStyle& style) {
    const bool marked = style.colors && emphasis != Emphasis::none;
    if (marked) out += emphasis == Emphasis::bold ? "\x1b[1m" : "\x1b[2m";
    out += line;
    if (marked) out += "\x1b[0m";
    out += '\n';
  }

  std::vector<TableColumn> columns_;
  std::vector<Row> rows_;
};

}  // namespace tawpipe
