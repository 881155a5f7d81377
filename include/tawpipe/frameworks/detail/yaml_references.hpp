// References in values of a YAML: ${model.seq_length} and ${.seq_length} to other settings, $TP and
// ${TP:4} to variables.
// Not: YAML itself (frameworks/yaml_settings.hpp), nor resolvers that compute, such as ${multiply:...}.
#pragma once

#include <cctype>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/setting.hpp"

namespace tawpipe::inline v0::detail {

/// A word that is not quoted: YAML's words for true and false as these, numbers without `_`.
inline std::string plain_yaml_word(const std::string& text) {
  if (among(text, "true True TRUE yes Yes YES on On ON")) return "true";
  if (among(text, "false False FALSE no No NO off Off OFF")) return "false";
  const bool number = !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) != 0 &&
                      text.find_first_not_of("0123456789_") == std::string::npos;
  std::string plain = text;
  if (number) std::erase(plain, '_');
  return plain;
}

class YamlReferences {
 public:
  YamlReferences(SettingsText& text, const std::vector<std::pair<std::string, std::string>>& environment)
      : text_{text}, environment_{environment} {}

  /// Settings that turn out to be null are left out.
  void follow() {
    for (Setting& setting : text_.settings) {
      for (std::string& value : setting.values) {
        if (value.find('$') != std::string::npos) value = plain_yaml_word(resolved(setting, value, 0));
      }
    }
    std::erase_if(text_.settings, [](const Setting& setting) { return setting.values == std::vector<std::string>{"null"}; });
  }

 private:
  /// The value with its references replaced; the first that nothing says becomes Setting::unknown.
  std::string resolved(Setting& setting, std::string_view value, int depth) const {
    std::string text;
    for (std::size_t at = 0; at < value.size();) {
      const std::size_t begin = value.find('$', at);
      text += value.substr(at, begin - at);
      if (begin == std::string_view::npos) break;
      const bool braces = begin + 1 < value.size() && value[begin + 1] == '{';
      std::size_t end = begin + 1;
      if (braces) {
        int open = 0;
        do {
          open += value[end] == '{' ? 1 : value[end] == '}' ? -1 : 0;
          ++end;
        } while (open > 0 && end < value.size());
      } else {
        while (end < value.size() && (std::isalnum(static_cast<unsigned char>(value[end])) != 0 || value[end] == '_')) ++end;
      }
      const std::string_view whole = value.substr(begin, end - begin);
      const std::string_view inner =
          braces ? whole.substr(2, whole.size() - std::min<std::size_t>(whole.size(), 3)) : whole.substr(1);
      const std::optional<std::string> found = depth < 8 && !inner.empty() ? said(setting, inner, depth) : std::nullopt;
      if (!found && setting.unknown.empty()) setting.unknown = one_line(std::string{whole.substr(0, 60)});
      text += found ? *found : std::string{whole};
      at = end;
    }
    return text;
  }
  std::optional<std::string> said(Setting& setting, std::string_view inner, int depth) const {
    constexpr std::string_view environment = "oc.env:";
    const bool resolver = inner.starts_with(environment);
    if (resolver) inner.remove_prefix(environment.size());
    const std::size_t colon = inner.find(resolver ? ',' : ':');
    const std::string_view name = inner.substr(0, colon);
    if (name.find('.') != std::string_view::npos) return setting_named(setting, name, depth);
    for (const auto& [variable, value] : environment_) {
      if (variable == name) return value;
    }
    if (colon == std::string_view::npos) return std::nullopt;
    std::string_view standard = inner.substr(colon + 1);
    if (standard.starts_with('-')) standard.remove_prefix(1);
    if (name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != std::string_view::npos)
      return std::nullopt;  // a resolver
    return resolved(setting, trimmed(standard), depth + 1);
  }
  std::optional<std::string> setting_named(Setting& setting, std::string_view name, int depth) const {
    const std::string before = setting.name.substr(0, setting.name.rfind('.'));
    const std::string full = name.starts_with('.') ? concat(before, name) : std::string{name};
    for (const Setting& other : text_.settings) {
      if (other.name == full && other.values.size() == 1) return resolved(setting, other.values.front(), depth + 1);
    }
    return std::nullopt;
  }

  SettingsText& text_;
  const std::vector<std::pair<std::string, std::string>>& environment_;
};

}  // namespace tawpipe::v0::detail
