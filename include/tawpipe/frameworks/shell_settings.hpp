// The flags of the training command in a shell script, or of a file of flags.
// Not: the script's words (shell_script.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/frameworks/setting.hpp"
#include "tawpipe/frameworks/shell_script.hpp"

namespace tawpipe::inline v0 {

/// The flags of the one command that has any of `known`, or, if no command has any, of the script's
/// arrays and texts.
/// @throws InputError  naming the line: no such command or several, an unterminated quote, a
/// variable that may hold flags
template <class Settings>
SettingsText shell_settings(const SettingsTable<Settings>& table, std::string_view text, std::string_view source) {
  const detail::ShellScript script{text, source};
  const auto has_known = [&](const std::vector<detail::ShellWord>& words) {
    return std::any_of(words.begin(), words.end(), [&](const detail::ShellWord& word) {
      const std::string_view name = std::string_view{word.text}.substr(0, word.text.find('='));
      return std::any_of(table.fields.begin(), table.fields.end(), [&](const auto& field) { return field.name == name; });
    });
  };
  SettingsText found{.source = std::string{source}, .settings = {}};
  std::vector<detail::ShellWord> words;
  int line = 0;
  for (const std::vector<detail::ShellWord>& command : script.commands()) {
    const bool bare = command.front().text.starts_with("--");  // a file of flags, one a line
    if (!bare && !has_known(command)) continue;
    if (line > 0 && !bare) {
      found.fail(command.front().line,
                 concat("a second command with ", table.kind, "s, after the one in line ", line, "; give a file with one"));
    }
    if (!bare) line = command.front().line;
    auto begin = command.begin();
    for (auto at = begin; at != command.end(); ++at) {
      if (at->text.ends_with(".py")) begin = at + 1;
    }
    words.insert(words.end(), begin, command.end());
  }
  if (words.empty()) {
    for (const auto& value : script.values()) words.insert(words.end(), value.begin(), value.end());
  }
  for (const detail::ShellWord& word : words) {
    if (word.text.starts_with("--") && word.text.size() > 2) {
      const std::size_t equals = std::min(word.text.find('='), word.text.size());
      found.settings.push_back({word.text.substr(0, equals), {}, word.line, {}});
      if (equals == word.text.size()) continue;
      found.settings.back().values.push_back(word.text.substr(equals + 1));
      found.settings.back().unknown = word.unknown;
    } else if (!found.settings.empty()) {
      Setting& last = found.settings.back();
      const bool skipped = detail::among(last.name, table.skipped);
      if (!word.unknown.empty() && (word.unknown.ends_with("[@]}") || (skipped && !last.values.empty()))) {
        found.fail(word.line,
                   concat(word.unknown, " is not set in this file and may hold flags; write them out, or set it before"));
      }
      last.values.push_back(word.text);
      if (last.unknown.empty()) last.unknown = word.unknown;
    } else if (!word.unknown.empty()) {
      found.fail(word.line,
                 concat(word.unknown, " is not set in this file and may hold flags; write them out, or set it before"));
    }
  }
  if (found.settings.empty()) {
    throw SettingError(one_line(concat(source, ": no command with ", table.kind, "s, such as ", table.fields.front().name)));
  }
  return found;
}

}  // namespace tawpipe
