// The settings of a YAML text, each prefixed by the mappings around it: "model.num_layers".
// Not: their meaning. A list of mappings is one value each; merge keys (<<) are refused.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/frameworks/setting.hpp"

namespace tawpipe::inline v0 {

/// Settings that are null are left out; those of true and false in any of YAML's words are "true" and
/// "false". References such as ${model.seq_length} and ${TP:4} are followed.
/// @param environment  of variables that references name
/// @throws InputError  naming the line that is not YAML, or not read: a second document, a name twice,
/// more than 32 mappings in each other, more than 1 MiB, or aliases that repeat more than 20,000 values
TAWPIPE_INLINE SettingsText yaml_settings(std::string_view text, std::string_view source,
                                          const std::vector<std::pair<std::string, std::string>>& environment = {});

/// Whether a text is YAML, by its path, or, if that has no ending, by its first line: `name:`.
inline bool is_yaml(std::string_view text, std::string_view path) {
  if (path.ends_with(".yaml") || path.ends_with(".yml")) return true;
  const std::string_view file = path.substr(path.rfind('/') + 1);
  if (file.find('.') != std::string_view::npos) return false;
  for (const std::string_view each : split(without_byte_order_mark(text), '\n')) {
    const std::string_view line = trimmed(each);
    if (line.empty() || line[0] == '#' || line == "---") continue;
    const std::string_view name = line.substr(0, line.find(':'));
    const bool is_name = name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == name.npos;
    return is_name && name.size() < line.size() && (name.size() + 1 == line.size() || line[name.size() + 1] == ' ');
  }
  return false;
}

/// Settings as YAML, a mapping for each part of a name. @pre settings of one mapping are adjacent
inline std::string yaml_text(const std::vector<WrittenSetting>& settings, const std::vector<std::string>& comments = {}) {
  std::string text;
  for (const std::string& comment : comments) text += concat("# ", comment, "\n");
  std::vector<std::string_view> open;
  for (const WrittenSetting& setting : settings) {
    const std::vector<std::string_view> parts = split(setting.name, '.');
    std::size_t same = 0;
    while (same < open.size() && same + 1 < parts.size() && open[same] == parts[same]) ++same;
    open.resize(same);
    for (; open.size() + 1 < parts.size(); open.push_back(parts[open.size()]))
      text += concat(std::string(2 * open.size(), ' '), parts[open.size()], ":\n");
    const std::string_view mark =
        setting.is_text && setting.value.find_first_of(":#{}[]&*!|>'%@`,? ") != std::string::npos ? "\"" : "";
    std::string value = concat(mark, setting.value, mark);
    if (setting.is_list) {
      std::string words;
      for (const std::string_view word : split(setting.value, ' ')) words += concat(words.empty() ? "" : ", ", word);
      value = concat("[", words, "]");
    }
    text += concat(std::string(2 * open.size(), ' '), parts.back(), ": ", value, "\n");
  }
  return text;
}

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <map>
#include <optional>

#include "tawpipe/frameworks/detail/yaml_references.hpp"

namespace tawpipe::inline v0 {

namespace detail {

class YamlSettings {
 public:
  YamlSettings(std::string_view text, std::string_view source) : text_{without_byte_order_mark(text)} { found_.source = source; }

  SettingsText read() {
    constexpr std::size_t most = std::size_t{1} << 20;
    if (text_.size() > most)
      throw SettingError(one_line(concat(found_.source, " is larger than 1 MiB, the most that is read of a YAML")));
    const std::vector<YAML::Node> documents = load();
    if (documents.size() > 1) found_.fail(documents[1].Mark().line + 1, "a second document begins; give one file for each");
    if (documents.empty() || !documents[0].IsMap())
      throw SettingError(one_line(concat(found_.source, " is no mapping of names to values, as YAML of settings is")));
    mapping(documents[0], {}, 0);
    return std::move(found_);
  }

 private:
  std::vector<YAML::Node> load() {
    try {
      return YAML::LoadAll(std::string{text_});
    } catch (const YAML::Exception& error) {
      const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
      const std::vector<std::string_view> lines = split(text_, '\n');
      const std::string_view wrong =
          static_cast<std::size_t>(line) <= lines.size() ? lines[static_cast<std::size_t>(line) - 1] : "";
      const std::string_view indent = wrong.substr(0, std::min(wrong.find_first_not_of(" \t"), wrong.size()));
      if (indent.find('\t') != std::string_view::npos) found_.fail(line, "a tab indents the line; YAML takes spaces only");
      found_.fail(line, concat("not YAML: ", error.msg));
    }
  }
  void charge(int line) {
    constexpr int most = 20'000;
    if (++values_ > most) found_.fail(line, concat("aliases or lists make more than ", most, " values"));
  }
  void mapping(const YAML::Node& node, const std::string& before, int depth) {
    const int begin = node.Mark().line + 1;
    if (depth >= 32) found_.fail(begin, "mappings stand more than 32 deep in each other");
    std::map<std::string, int> lines;
    for (const auto& pair : node) {
      const int line = pair.first.Mark().line + 1;
      charge(line);
      if (!pair.first.IsScalar()) found_.fail(line, "a name is a list or a mapping; write a word");
      const std::string key = pair.first.Scalar();
      if (key == "<<") found_.fail(line, "merge keys (<<) are not read; write out what they bring");
      const auto [at, added] = lines.emplace(key, line);
      if (!added) found_.fail(line, concat(quote(key.substr(0, 60)), " stands in line ", at->second, " already"));
      const std::string name = before.empty() ? key : concat(before, ".", key);
      if (pair.second.IsMap()) {
        mapping(pair.second, name, depth + 1);
      } else if (!pair.second.IsNull()) {
        Setting setting{.name = name, .values = {}, .line = line};
        value(pair.second, setting.values, depth, line);
        found_.settings.push_back(std::move(setting));
      }
    }
  }
  void value(const YAML::Node& node, std::vector<std::string>& values, int depth, int line) {
    charge(line);
    if (depth >= 32) found_.fail(line, "lists stand more than 32 deep in each other");
    if (node.IsSequence()) {
      for (const YAML::Node& item : node) value(item, values, depth + 1, line);
    } else {
      values.push_back(node.IsMap() ? "{...}" : node.IsScalar() ? word(node) : "null");
    }
  }
  static std::string word(const YAML::Node& node) {
    const std::string& text = node.Scalar();
    return node.Tag() == "?" ? plain_yaml_word(text) : text;
  }

  std::string_view text_;
  SettingsText found_;
  int values_ = 0;
};

}  // namespace detail

TAWPIPE_INLINE SettingsText yaml_settings(std::string_view text, std::string_view source,
                                          const std::vector<std::pair<std::string, std::string>>& environment) {
  SettingsText found = detail::YamlSettings{text, source}.read();
  detail::YamlReferences{found, environment}.follow();
  return found;
}

}  // namespace tawpipe
#endif
