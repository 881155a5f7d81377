// The settings of a TOML text, each prefixed by its section: "training.seq_len".
// Not: all of TOML: dates are texts, and inline tables and arrays of tables are refused.
#pragma once

#include <cctype>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/frameworks/setting.hpp"

namespace tawpipe::inline v0 {

namespace detail {

class TomlReader {
 public:
  TomlReader(std::string_view text, std::string_view source) : text_{without_byte_order_mark(text)} { found_.source = source; }

  SettingsText read() {
    std::string section;
    for (skip(); at_ < text_.size(); skip()) {
      const int line = line_;
      if (peek() == '[') {
        ++at_;
        if (peek() == '[') fail("an array of tables [[...]] is not read");
        section = key();
        expect(']');
      } else {
        std::string name = key();
        if (!section.empty()) name = concat(section, ".", name);
        expect('=');
        spaces();
        found_.settings.push_back({std::move(name), value(), line, {}});
        const auto [before, added] = lines_.emplace(found_.settings.back().name, line);
        if (!added) fail(concat(before->first, " stands in line ", before->second, " already"));
      }
      spaces();
      if (at_ < text_.size() && peek() != '\n' && peek() != '#')
        fail(concat("expected the end of the line, not ", quote(std::string(1, peek()))));
    }
    return std::move(found_);
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  [[noreturn]] void fail(std::string_view why) const { found_.fail(line_, why); }
  void spaces() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\r') ++at_;
  }
  /// Spaces, lines and comments.
  void skip() {
    for (; at_ < text_.size(); ++at_) {
      if (peek() == '#') {
        while (at_ < text_.size() && peek() != '\n') ++at_;
      }
      if (peek() == '\n') {
        ++line_;
      } else if (std::isspace(static_cast<unsigned char>(peek())) == 0) {
        return;
      }
    }
  }
  void expect(char c) {
    spaces();
    if (peek() != c)
      fail(concat("expected ", quote(std::string(1, c)),
                  at_ < text_.size() && peek() != '\n' ? concat(", not ", quote(std::string(1, peek()))) : std::string{}));
    ++at_;
  }

  /// "name", "a.b", quoted parts too.
  std::string key() {
    std::string name;
    for (;;) {
      spaces();
      const std::size_t before = name.size();
      if (peek() == '"' || peek() == '\'') {
        name += text();
      } else {
        while (std::isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '_' || peek() == '-') name += text_[at_++];
      }
      if (name.size() == before) fail("expected a name, such as seq_len");
      spaces();
      if (peek() != '.') return name;
      name += text_[at_++];
    }
  }

  /// @param depth  of nested lists
  std::vector<std::string> value(int depth = 0) {
    if (depth > 16) fail("lists stand more than 16 deep in each other");
    if (peek() == '{') fail("an inline table {...} is not read");
    if (peek() != '[') return {single()};
    std::vector<std::string> items;
    const int line = line_;
    ++at_;
    for (skip(); peek() != ']'; skip()) {
      if (at_ >= text_.size()) found_.fail(line, "the list [ has no end");
      if (peek() == '[' || peek() == '{') {
        for (std::string& inner : value(depth + 1)) items.push_back(std::move(inner));
      } else {
        items.push_back(single());
      }
      skip();
      if (peek() == ',') {
        ++at_;
      } else if (peek() != ']' && at_ < text_.size()) {
        fail("expected ',' or ']' in a list");
      }
    }
    ++at_;
    return items;
  }

  std::string single() {
    if (peek() == '"' || peek() == '\'') return text();
    std::string word;
    while (at_ < text_.size() && std::string_view{",]}#\n\r"}.find(peek()) == std::string_view::npos) word += text_[at_++];
    word = trimmed(word);
    if (word.empty()) fail("a value is missing");
    const bool number = word.find_first_not_of("0123456789_+-") == std::string::npos;
    if (number) std::erase(word, '_');
    if (number && word.front() == '+') word.erase(0, 1);
    return word;
  }

  std::string text() {
    const char quote = peek();
    const int line = line_;
    const bool several = peek(1) == quote && peek(2) == quote;
    at_ += several ? 3 : 1;
    if (several && peek() == '\n') {
      ++at_;
      ++line_;
    }
    std::string found;
    for (;; ++at_) {
      const char c = peek();
      if (at_ >= text_.size() || (c == '\n' && !several)) found_.fail(line, "a quote has no end");
      if (c == quote && (!several || (peek(1) == quote && peek(2) == quote))) break;
      if (c == '\n') ++line_;
      if (c != '\\' || quote == '\'') {
        found += c;
        continue;
      }
      ++at_;
      switch (peek()) {
        case 'n':
          found += '\n';
          break;
        case 't':
          found += '\t';
          break;
        case '"':
        case '\\':
          found += peek();
          break;
        default:
          found += '\\';  // kept as is: a path or a pattern, which no layout setting has
          found += peek();
      }
    }
    at_ += several ? 3 : 1;
    return found;
  }

  std::string_view text_;
  SettingsText found_;
  std::map<std::string, int> lines_;  ///< of each setting
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace detail

/// @throws InputError  naming the line that is not TOML, or not supported
inline SettingsText toml_settings(std::string_view text, std::string_view source) {
  return detail::TomlReader{text, source}.read();
}

/// Settings as TOML, a section for each name's first part. @pre settings of one section are
/// adjacent
inline std::string toml_text(const std::vector<WrittenSetting>& settings) {
  std::string text;
  std::string_view section;
  for (const WrittenSetting& setting : settings) {
    const std::size_t dot = setting.name.rfind('.');
    if (setting.name.substr(0, dot) != section) {
      section = setting.name.substr(0, dot);
      text += concat(text.empty() ? "" : "\n", "[", section, "]\n");
    }
    const std::string_view mark = setting.is_text ? "\"" : "";
    std::string value = concat(mark, setting.value, mark);
    if (setting.is_list) {
      std::vector<std::string> quoted;
      for (const std::string_view each : split(setting.value, ' ')) quoted.push_back(concat(mark, each, mark));
      value = concat("[", join(quoted, ", "), "]");
    }
    text += concat(setting.name.substr(dot + 1), " = ", value, "\n");
  }
  return text;
}

}  // namespace tawpipe
