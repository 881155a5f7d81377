// The flags of the training command in a shell script, or of a file of flags.
// Not: the script's words (shell_script.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/frameworks/setting.hpp"
#include "tawpipe/frameworks/shell_script.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The processes that torchrun starts, if --nnodes and --nproc_per_node are known numbers; or 0.
inline std::int64_t processes_of(const ShellText& command) {
  const auto value = [&](std::string_view flag) -> std::int64_t {
    for (std::size_t i = 0; i < command.size(); ++i) {
      if (command[i].text.ends_with(".py")) break;
      std::string name = command[i].text.substr(0, command[i].text.find('='));
      std::replace(name.begin(), name.end(), '_', '-');
      if (name != flag) continue;
      const bool joined = command[i].text.size() > name.size();
      if (!joined && i + 1 == command.size()) return 0;
      const ShellWord& word = joined ? command[i] : command[i + 1];
      const auto number = to_number<std::int32_t>(std::string_view{word.text}.substr(joined ? name.size() + 1 : 0));
      return number && word.unknown.empty() && *number > 0 ? *number : 0;
    }
    return 0;
  };
  return value("--nnodes") * value("--nproc-per-node");
}

}  // namespace detail

/// The flags of the one command that has any of `known`, or, if the script has no command, of its
/// arrays and texts.
/// @throws InputError  naming the line: no such command or several, an unterminated quote, a
/// variable that may hold flags
template <class Settings>
SettingsText shell_settings(const SettingsTable<Settings>& table, std::string_view text, std::string_view source) {
  const detail::ShellScript script{text, source};
  const auto has_known = [&](const detail::ShellText& words) {
    return std::any_of(words.begin(), words.end(), [&](const detail::ShellWord& word) {
      const std::string_view name = std::string_view{word.text}.substr(0, word.text.find('='));
      return std::any_of(table.fields.begin(), table.fields.end(), [&](const auto& field) { return field.name == name; });
    });
  };
  SettingsText found{.source = std::string{source}, .settings = {}};
  const auto may_hold = [&](const detail::ShellWord& word) {
    found.fail(word.line, concat(word.unknown, " is not set in this file and may hold flags; write them out, or set it before"));
  };
  detail::ShellText words;
  const detail::ShellWord* open = nullptr;  // a program's words that are not known
  bool commands = false;
  int line = 0;
  for (const detail::ShellText& command : script.commands()) {
    const std::string& name = command.front().text;
    if (detail::among(name, "declare echo export for local printf readonly select set source typeset . :")) continue;
    commands = true;
    const bool bare = name.starts_with("--");  // a file of flags, one a line
    auto begin = command.begin();
    for (auto at = begin; at != command.end(); ++at) {
      if (at->text.ends_with(".py")) begin = at + 1;
    }
    if (!bare && !has_known(command)) {
      const auto unknown = std::find_if(begin, command.end(), [](const auto& word) { return !word.unknown.empty(); });
      if (begin != command.begin() && unknown != command.end() && open == nullptr) open = &*unknown;
      continue;
    }
    if (line > 0 && !bare) {
      found.fail(command.front().line,
                 concat("a second command with ", table.kind, "s, after the one in line ", line, "; give a file with one"));
    }
    if (!bare) {
      line = found.launch_line = command.front().line;
      found.processes = detail::processes_of(command);
    }
    words.insert(words.end(), begin, command.end());
  }
  if (words.empty() && open != nullptr) may_hold(*open);
  if (!commands) words = script.values();
  for (const detail::ShellWord& word : words) {
    if (word.text.starts_with("--") && word.text.size() > 2) {
      const std::size_t equals = std::min(word.text.find('='), word.text.size());
      found.settings.push_back({word.text.substr(0, equals), {}, word.line, {}});
      if (equals == word.text.size()) continue;
      found.settings.back().values.push_back(word.text.substr(equals + 1));
      found.settings.back().unknown = word.unknown;
    } else if (!found.settings.empty()) {
      Setting& last = found.settings.back();
      const bool full =
          detail::among(last.name, table.skipped_switches) || (detail::among(last.name, table.skipped) && !last.values.empty());
      if (!word.unknown.empty() && (full || word.unknown.ends_with("[@]}"))) may_hold(word);
      last.values.push_back(word.text);
      if (!last.unknown.empty() || word.unknown.empty()) continue;
      last.unknown = word.unknown;
      last.unknown_line = word.line;
    } else if (!word.unknown.empty()) {
      may_hold(word);
    }
  }
  if (found.settings.empty()) {
    throw SettingError(one_line(concat(source, ": no command with ", table.kind, "s, such as ", table.fields.front().name)));
  }
  return found;
}

}  // namespace tawpipe
