// Parts of a program's log: numbers after a name, JSON that it printed over several lines, the middle of
// measured times; without a terminal's colours and a launcher's labels.
// Not: what a program prints (megatron_log.hpp, torchtitan_log.hpp, deepspeed_log.hpp, trainer_log.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::detail {

/// The text without escape sequences that set colours: "\033[31m".
inline std::string without_colors(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\033' || at + 1 == text.size() || text[at + 1] != '[') {
      plain += text[at];
      continue;
    }
    const std::size_t end = text.find_first_not_of("0123456789;", at + 2);
    at = end == std::string_view::npos ? text.size() : end;
  }
  return plain;
}

/// The number after the first `name` of a line, thousands in groups or not: "tps: 10,050".
inline std::optional<double> number_after(std::string_view line, std::string_view name) {
  const std::size_t found = line.find(name);
  if (found == std::string_view::npos) return std::nullopt;
  std::string digits;
  for (const char c : trimmed(line.substr(found + name.size()))) {
    if (c == ',') continue;
    if (std::string_view{"0123456789.eE+-"}.find(c) == std::string_view::npos) break;
    digits += c;
  }
  while (!digits.empty() && digits.back() == '.') digits.pop_back();  // the end of a sentence
  return to_number<double>(digits);
}
/// The same as a whole number; 0 where there is none.
inline std::int64_t count_after(std::string_view line, std::string_view name) {
  const double number = number_after(line, name).value_or(0);
  return number >= 0 && number < 1e15 ? static_cast<std::int64_t>(number) : 0;
}

/// What torchrun or srun puts before a line: "[rank0]:", "3:"; "" if nothing.
inline std::string_view label_of(std::string_view line) {
  if (line.starts_with('[')) {
    const std::size_t end = line.find("]:");
    const bool short_name = end != std::string_view::npos && line.substr(0, end).find(' ') == std::string_view::npos;
    return short_name ? line.substr(0, end + 2) : std::string_view{};
  }
  const std::size_t digits = line.find_first_not_of("0123456789 ");
  const bool numbered = digits != std::string_view::npos && digits > 0 && line[digits] == ':' && line[digits - 1] != ' ';
  return numbered && digits + 1 < line.size() && line[digits + 1] == ' ' ? line.substr(0, digits + 1) : std::string_view{};
}

/// An object of JSON in a log, and the line in which it begins.
struct LoggedObject {
  std::string text;
  int line = 0;
};

/// The object after the first `marker` that one follows, on one line or on several: of those what a launcher
/// puts before them is cut off, and lines of other processes are left out.
/// @return  none if there is none, or if the log ends in it
inline std::optional<LoggedObject> logged_object(std::string_view log, std::string_view marker) {
  LoggedObject found;
  int line = 0;
  int open = 0;
  std::string_view label;
  bool quoted = false;
  /// Whether the object ends in the text.
  const auto add = [&](std::string_view text) {
    for (std::size_t at = 0; at < text.size(); ++at) {
      found.text += text[at];
      if (quoted) {
        if (text[at] == '\\' && at + 1 < text.size()) {
          found.text += text[++at];
        } else {
          quoted = text[at] != '"';
        }
        continue;
      }
      quoted = text[at] == '"';
      open += text[at] == '{' || text[at] == '[' ? 1 : text[at] == '}' || text[at] == ']' ? -1 : 0;
      if (open == 0) return true;
    }
    quoted = false;  // a text does not go on in the next line
    found.text += '\n';
    return false;
  };
  for (const std::string_view each : split(log, '\n')) {
    ++line;
    if (open == 0) {
      const std::size_t at = each.find(marker);
      if (at == std::string_view::npos) continue;
      const std::string_view rest = trimmed(each.substr(at + marker.size()));
      if (!rest.starts_with('{')) continue;
      label = label_of(each);
      found.line = line;
      if (add(rest)) return found;
      continue;
    }
    if (label_of(each) != label) continue;
    const std::string_view all = trimmed(each);
    const std::size_t name = all.find('"');
    const std::size_t space = all.rfind(' ');
    const std::size_t begin = name != std::string_view::npos ? name : space == std::string_view::npos ? 0 : space + 1;
    std::string_view rest = all.substr(begin);
    if (begin == 0 && rest.starts_with(label)) rest.remove_prefix(label.size());
    if (add(rest)) return found;
  }
  return std::nullopt;
}

/// The middle one, of an even number the upper; 0 of none.
inline double middle_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// A dict as Python prints it, as JSON: True, None, texts in single quotes.
inline std::string json_of_python(std::string_view text) {
  std::string json;
  char quote_of = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quote_of != 0) {
      if (c == '\\' && at + 1 < text.size() && text[at + 1] == '\'') continue;
      json += c == quote_of ? '"' : c;
      if (c == quote_of) quote_of = 0;
      continue;
    }
    if (c == '\'' || c == '"') {
      quote_of = c;
      json += '"';
      continue;
    }
    bool word = false;
    for (const auto& [python, other] : {std::pair<std::string_view, std::string_view>{"True", "true"},
                                        {"False", "false"},
                                        {"None", "null"},
                                        {"inf", "1e300"}}) {
      if (!text.substr(at).starts_with(python)) continue;
      json += other;
      at += python.size() - 1;
      word = true;
      break;
    }
    if (!word) json += c;
  }
  return json;
}

}  // namespace tawpipe::v0::detail
