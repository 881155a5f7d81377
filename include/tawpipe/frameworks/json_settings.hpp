// The settings of a JSON text, each prefixed by the objects around it: "zero_optimization.stage".
// Not: their meaning, nor lists of objects, which are one value.
#pragma once

#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/frameworks/setting.hpp"
#include "tawpipe/json/json_reader.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Walks through a text that is known to be JSON.
class JsonSettings {
 public:
  JsonSettings(std::string_view text, std::string_view source) : text_{without_byte_order_mark(text)} {
    const JsonDocument document{text, source};
    document.root().members();  // an object
    found_.source = source;
  }
  SettingsText read() {
    object({});
    return std::move(found_);
  }

 private:
  char peek() {
    for (; std::isspace(static_cast<unsigned char>(text_[at_])) != 0; ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
    return text_[at_];
  }
  void object(const std::string& before) {
    peek();
    ++at_;
    while (peek() != '}') {
      const int line = line_;
      const std::string name = concat(before, before.empty() ? "" : ".", text());
      peek();
      ++at_;  // the colon
      if (peek() == '{') {
        object(name);
      } else {
        Setting setting{.name = name, .values = {}, .line = line};
        value(setting.values);
        found_.settings.push_back(std::move(setting));
      }
      if (peek() == ',') ++at_;
    }
    ++at_;
  }
  void value(std::vector<std::string>& values) {
    if (peek() == '"') return values.push_back(text());
    if (peek() == '{') {  // in a list
      int open = 0;
      do {
        if (peek() == '"') {
          text();
          continue;
        }
        open += text_[at_] == '{' ? 1 : text_[at_] == '}' ? -1 : 0;
        ++at_;
      } while (open > 0);
      return values.push_back("{...}");
    }
    if (peek() == '[') {
      ++at_;
      while (peek() != ']') {
        value(values);
        if (peek() == ',') ++at_;
      }
      ++at_;
      return;
    }
    const std::size_t begin = at_;
    while (std::string_view{",]} \t\r\n"}.find(text_[at_]) == std::string_view::npos) ++at_;
    values.emplace_back(text_.substr(begin, at_ - begin));
  }
  std::string text() {
    peek();
    const std::size_t begin = ++at_;
    while (text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    return std::string{text_.substr(begin, at_++ - begin)};
  }

  std::string_view text_;
  SettingsText found_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace detail

/// @throws InputError  for text that is not JSON, or not an object
inline SettingsText json_settings(std::string_view text, std::string_view source) {
  return detail::JsonSettings{text, source}.read();
}

/// Settings as JSON, an object for each name's first part. @pre settings of one object are adjacent
/// @param comments  as the list "_comment", if there are any: JSON has no comments, and DeepSpeed
/// ignores a name that it does not know
inline std::string json_text(const std::vector<WrittenSetting>& settings, const std::vector<std::string>& comments) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!comments.empty()) json["_comment"] = comments;
  for (const WrittenSetting& setting : settings) {
    nlohmann::ordered_json* at = &json;
    for (const std::string_view part : split(setting.name, '.')) at = &(*at)[std::string{part}];
    *at = setting.is_text ? nlohmann::ordered_json(setting.value) : nlohmann::ordered_json::parse(setting.value);
  }
  return json.dump(2) + "\n";
}

}  // namespace tawpipe
