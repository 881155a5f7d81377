// A table of text in aligned columns, for terminals and log files.
// Not: the choice of colours or Unicode (the caller knows its terminal), nor Markdown or CSV.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/report/formatters.hpp"

namespace tawpipe::inline v0 {

enum class Align : std::uint8_t { left, right };

/// The emphasis of a row when colours are on.
enum class Emphasis : std::uint8_t { none, bold, dim };

struct TableColumn {
  std::string header;
  Align align = Align::left;
};

struct TableStyle {
  bool colors = false;  ///< bold headers and rows, dim rules, by ANSI sequences
  Glyphs glyphs = Glyphs::unicode;
  int max_width = 0;  ///< columns of the terminal: no line is longer. 0: no limit
};

/// Rows of text under headers. Numbers are right-aligned, names left-aligned. Control characters in
/// a cell become "?".
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
  /// Adds a separator line after the rows so far.
  Table& rule() {
    rows_.push_back({{}, Emphasis::dim, true});
    return *this;
  }

  std::size_t columns() const { return columns_.size(); }
  bool empty() const { return rows_.empty(); }

  /// The lines, each with its line end and without trailing spaces. If they would be wider than
  /// style.max_width, the last column of text is wrapped, in place if 30 columns are left for it
  /// and otherwise below its row; if that is not enough, the columns that do not fit follow below,
  /// next to a repeated first column. Complexity: O(characters).
  std::string str(const TableStyle& style = {}) const {
    if (columns_.empty()) return "";
    std::vector<int> widths = natural_widths();
    const auto all = [](const std::vector<int>& some) { return std::accumulate(some.begin(), some.end(), -gap, add_gap); };
    const bool narrow = style.max_width > 0 && all(widths) > style.max_width;
    const bool wraps = narrow && columns_.size() > 1 && columns_.back().align == Align::left;
    const int room = style.max_width - (all(widths) - widths.back());
    const bool under = wraps && room < min_room;
    if (wraps && !under) widths.back() = room;
    if (narrow) {
      for (int& width : widths) width = std::min(width, style.max_width);
    }
    const std::size_t across = columns_.size() - (under ? 1 : 0);
    std::string out;
    for (std::size_t next = 0; next < across;) {
      const std::size_t begin = next;
      Block block{{}, false};
      int width = -gap;
      const auto take = [&](std::size_t column) {
        block.columns.push_back(column);
        width += gap + widths[column];
      };
      if (begin > 0 && widths[0] + gap + widths[begin] <= style.max_width) take(0);
      while (next < across && (!narrow || next == begin || width + gap + widths[next] <= style.max_width)) take(next++);
      block.ends_with_text = under && next == across;
      if (!out.empty()) out += '\n';
      add_block(out, block, widths, style);
    }
    return out;
  }

 private:
  static constexpr int gap = 2;
  /// minimum width in which sentences are wrapped next to other columns
  static constexpr int min_room = 30;
  static int add_gap(int sum, int width) { return sum + gap + width; }

  struct Row {
    std::vector<std::string> cells;
    Emphasis emphasis;
    bool is_rule;
  };
  /// Columns next to each other.
  struct Block {
    std::vector<std::size_t> columns;
    bool ends_with_text;  ///< the table's last column is printed below each row
  };

  /// [column] width of the widest cell
  std::vector<int> natural_widths() const {
    std::vector<int> widths;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      int width = display_width(columns_[c].header);
      for (const auto& row : rows_) width = std::max(width, row.is_rule ? 0 : display_width(row.cells[c]));
      widths.push_back(width);
    }
    return widths;
  }

  void add_block(std::string& out, const Block& block, const std::vector<int>& widths, const TableStyle& style) const {
    std::vector<std::string> headers;
    for (const auto& column : columns_) headers.push_back(column.header);
    add_row(out, block, {headers, Emphasis::bold, false}, widths, style);
    const Row rule{{}, Emphasis::dim, true};
    add_row(out, block, rule, widths, style);
    for (const Row& row : rows_) add_row(out, block, row, widths, style);
  }

  void add_row(std::string& out, const Block& block, const Row& row, const std::vector<int>& widths,
               const TableStyle& style) const {
    if (row.is_rule) return add_line(out, rule_of(block, widths, style), row.emphasis, style);
    const std::size_t last = columns_.size() - 1;
    const bool wrapped_here =
        !block.ends_with_text && block.columns.back() == last && last > 0 && columns_[last].align == Align::left;
    std::vector<std::string> parts{""};
    if (wrapped_here) parts = wrapped(row.cells[last], widths[last]);
    if (parts.empty()) parts = {""};
    std::vector<std::string> cells = row.cells;
    for (std::string& part : parts) {
      if (wrapped_here) cells[last] = std::move(part);
      add_line(out, line_of(block, cells, widths, style), row.emphasis, style);
      for (std::string& cell : cells) cell.clear();
    }
    if (!block.ends_with_text) return;
    for (const std::string& part : wrapped(row.cells[last], style.max_width - gap)) {
      add_line(out, std::string(gap, ' ') + part, row.emphasis, style);
    }
  }

  std::string line_of(const Block& block, const std::vector<std::string>& cells, const std::vector<int>& widths,
                      const TableStyle& style) const {
    std::string line;
    for (const std::size_t c : block.columns) {
      const std::string cell = truncated(cells[c], widths[c], style.glyphs);
      const std::string padding(static_cast<std::size_t>(widths[c] - display_width(cell)), ' ');
      if (c != block.columns.front()) line.append(gap, ' ');
      line += columns_[c].align == Align::right ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  }

  static std::string rule_of(const Block& block, const std::vector<int>& widths, const TableStyle& style) {
    std::string line;
    for (const std::size_t c : block.columns) {
      if (c != block.columns.front()) line.append(gap, ' ');
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
