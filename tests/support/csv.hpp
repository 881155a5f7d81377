// Reads the comma-separated tables below tests/data.
// Not: quoting; no field of theirs has a comma.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace support {

inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream{text};
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/// The rows of a file, each by column name.
inline std::vector<std::map<std::string, std::string>> read_csv(const std::string& path) {
  std::ifstream file{path};
  REQUIRE_MESSAGE(file.is_open(), "cannot open " << path);
  std::vector<std::map<std::string, std::string>> rows;
  std::vector<std::string> columns;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const auto fields = split(line, ',');
    if (columns.empty()) {
      columns = fields;
      continue;
    }
    std::map<std::string, std::string> row;
    for (std::size_t i = 0; i < columns.size(); ++i) row[columns[i]] = i < fields.size() ? fields[i] : "";
    rows.push_back(row);
  }
  return rows;
}

}  // namespace support
