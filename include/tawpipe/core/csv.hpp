// Comma-separated values: a text read line by line, and a table with named columns.
// Not: cells that span several lines, nor what the cells mean (timeline_csv.hpp, pytorch_csv.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

/// The lines of a text one after another, with their cells and their position for messages. A byte
/// order mark and carriage returns, as Windows writes them, are skipped. A cell that begins with
/// '"' ends with one, may hold commas, and doubles each quotation mark inside.
class CsvReader {
 public:
  /// @param source  the file's name, for messages
  CsvReader(std::string_view text, std::string_view source) : rest_{without_byte_order_mark(text)}, source_{source} {}

  /// Goes to the next line; false after the last. @throws InputError  for a quoted cell that does
  /// not end.
  bool next() {
    if (rest_.empty()) return false;
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    line_ = rest_.substr(0, end);
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++number_;
    if (line_.find('"') == std::string_view::npos) {
      cells_ = split(line_, ',');
    } else {
      split_quoted();
    }
    return true;
  }
  std::string_view line() const { return line_; }
  /// The line's number, from 1.
  std::size_t number() const { return number_; }
  const std::vector<std::string_view>& cells() const { return cells_; }

  /// An error in this line.
  InputError fail(std::string_view why) const {
    return InputError(one_line(concat(source_, ", line ", std::max<std::size_t>(number_, 1), ": ", why)));
  }
  /// An error in one of its cells, with the column's name if there is one.
  InputError fail(std::size_t column, std::string_view why, std::string_view name = {}) const {
    const std::string named = name.empty() ? "" : concat(" (", name, ")");
    return InputError(one_line(concat(source_, ", line ", number_, ", column ", column + 1, named, ": ", why)));
  }
  /// A cell as messages show it.
  static std::string shown(std::string_view cell) { return quote(concat(cell.substr(0, 60), cell.size() > 60 ? "..." : "")); }

 private:
  void split_quoted() {
    unquoted_.clear();
    for (std::size_t at = 0; at <= line_.size(); ++at) {
      std::string& cell = unquoted_.emplace_back();
      if (at == line_.size() || line_[at] != '"') {
        const std::size_t end = std::min(line_.find(',', at), line_.size());
        cell = line_.substr(at, end - at);
        at = end;
        continue;
      }
      for (++at; at < line_.size() && (line_[at] != '"' || line_.substr(at, 2) == "\"\""); ++at) {
        if (line_[at] == '"') ++at;
        cell += line_[at];
      }
      if (at == line_.size()) throw fail(unquoted_.size() - 1, "the quoted cell does not end on its line");
      if (++at < line_.size() && line_[at] != ',') throw fail(unquoted_.size() - 1, "a comma must follow the quoted cell");
    }
    cells_.assign(unquoted_.begin(), unquoted_.end());
  }

  std::string_view rest_;
  std::string source_;
  std::string_view line_;
  std::vector<std::string_view> cells_;
  std::vector<std::string> unquoted_;
  std::size_t number_ = 0;
};

/// Rows of text under named columns. Empty lines and lines that start with '#' are left out; spaces
/// around cells are removed.
class CsvTable {
 public:
  /// @param what  the file's name, for messages
  /// @param key  a column it must have: the first line that has it names the columns, lines above
  /// it are skipped
  /// @throws InputError  if no line has the key, or a row has a different number of cells.
  CsvTable(std::string what, std::string_view text, std::string_view key) : what_{std::move(what)} {
    for (CsvReader reader{text, what_}; reader.next();) {
      const std::string_view line = trimmed(reader.line());
      std::vector<std::string> cells;
      for (const std::string_view cell : reader.cells()) cells.emplace_back(trimmed(cell));
      if (names_.empty()) {
        if (std::find(cells.begin(), cells.end(), key) != cells.end()) names_ = std::move(cells);
        continue;
      }
      if (line.empty() || line.front() == '#') continue;
      if (cells.size() != names_.size()) throw reader.fail(concat(cells.size(), " cells under ", names_.size(), " columns"));
      rows_.push_back(std::move(cells));
      lines_.push_back(reader.number());
    }
    if (names_.empty()) throw InputError(one_line(concat(what_, ": no line names a column ", quote(key))));
  }

  std::size_t rows() const { return rows_.size(); }
  const std::vector<std::string>& columns() const { return names_; }

  /// The column's index. @throws InputError  naming the nearest if there is none.
  std::size_t column(std::string_view name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) throw InputError(one_line(concat(what_, ": ", unknown_name("column", name, names_))));
    return static_cast<std::size_t>(found - names_.begin());
  }
  const std::string& text(std::size_t row, std::size_t column) const { return rows_[row][column]; }

  /// A cell as a number; 0 where it is empty. @throws InputError  naming line and column if it is
  /// not a number.
  double number(std::size_t row, std::size_t column) const {
    const std::string& cell = rows_[row][column];
    if (cell.empty()) return 0;
    if (const auto value = to_number<double>(cell)) return *value;
    throw fail(row, column, concat(CsvReader::shown(cell), " is not a number"));
  }
  /// An error in a cell.
  InputError fail(std::size_t row, std::size_t column, std::string_view why) const {
    return InputError(one_line(concat(what_, ", line ", lines_[row], ", column ", quote(names_[column]), ": ", why)));
  }

 private:
  std::string what_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> lines_;
};

}  // namespace tawpipe
