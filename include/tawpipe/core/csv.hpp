// A table of comma-separated values with a line of column names.
// Not: quoting (no cell of ours needs it) nor timelines (timeline/timeline_csv.hpp).
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

/// Rows of text under named columns. Empty lines and lines that start with '#' are left out; cells lose surrounding spaces.
class CsvTable {
 public:
  /// @param what  the file's name, for messages
  /// @param key  a column it must have: the first line that has it names the columns, what stands above is left out
  /// @throws InputError  if no line has the key, or a row has another number of cells.
  CsvTable(std::string what, std::string_view text, std::string_view key) : what_{std::move(what)} {
    int number = 0;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = trimmed(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      ++number;
      std::vector<std::string> cells = split(line);
      if (names_.empty()) {
        if (std::find(cells.begin(), cells.end(), key) != cells.end()) names_ = std::move(cells);
        continue;
      }
      if (line.empty() || line.front() == '#') continue;
      if (cells.size() != names_.size()) {
        throw InputError(concat(what_, ", line ", number, ": ", cells.size(), " cells under ", names_.size(), " columns"));
      }
      rows_.push_back(std::move(cells));
      lines_.push_back(number);
    }
    if (names_.empty()) throw InputError(concat(what_, ": no line names a column ", quote(key)));
  }

  std::size_t rows() const { return rows_.size(); }
  const std::vector<std::string>& columns() const { return names_; }

  /// The column's place. @throws InputError  naming the nearest if there is none.
  std::size_t column(std::string_view name) const {
    for (std::size_t c = 0; c < names_.size(); ++c) {
      if (names_[c] == name) return c;
    }
    throw InputError(concat(what_, ": ", unknown_name("column", name, names_)));
  }
  const std::string& text(std::size_t row, std::size_t column) const { return rows_[row][column]; }

  /// A cell as a number; 0 where it is empty. @throws InputError  naming line and column if it is none.
  double number(std::size_t row, std::size_t column) const {
    const std::string& cell = rows_[row][column];
    if (cell.empty()) return 0;
    double value = 0;
    const auto [rest, status] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (status == std::errc{} && rest == cell.data() + cell.size()) return value;
    throw InputError(
        concat(what_, ", line ", lines_[row], ", column ", quote(names_[column]), ": ", quote(cell), " is not a number"));
  }

 private:
  static std::string_view trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
  }
  static std::vector<std::string> split(std::string_view line) {
    std::vector<std::string> cells;
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t end = std::min(line.find(',', begin), line.size());
      cells.emplace_back(trimmed(line.substr(begin, end - begin)));
      begin = end + 1;
    }
    return cells;
  }

  std::string what_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<int> lines_;
};

}  // namespace tawpipe
