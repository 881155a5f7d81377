// The flags of the training command in a shell script, or of a file of flags.
// Not: the script's words (shell_script.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
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

/// The flags of one reading of a script.
template <class Settings>
class ScriptFlags {
 public:
  ScriptFlags(const SettingsTable<Settings>& table, std::string_view text, std::string_view source, const ScriptInputs& inputs,
              std::set<std::size_t> flipped)
      : table_{table}, script_{text, source, inputs, std::move(flipped)} {
    found_.source = source;
  }

  const std::vector<ShellChoices::Choice>& choices() const { return script_.choices(); }

  SettingsText read() {
    if (!find_command()) {
      script_.read_rest();
      find_command();
    }
    if (words_.empty() && open_) may_hold(*open_);
    if (!commands_) words_ = script_.values();
    for (const ShellWord& word : words_) take(word);
    if (found_.settings.empty()) {
      throw SettingError(
          one_line(concat(found_.source, ": no command with ", table_.kind, "s, such as ", table_.fields.front().name)));
    }
    if (!left_out_.empty())
      found_.notes.push_back(
          one_line(concat(found_.source, ": not set, and taken as empty: ", join(left_out_, ", "), " (--env)")));
    return std::move(found_);
  }

 private:
  [[noreturn]] void may_hold(const ShellWord& word) const {
    found_.fail(word.line, concat(word.unknown,
                                  " is not set in this file and may hold flags; write them out, set it before, or "
                                  "give it by --env"));
  }
  const SettingField<Settings>* field_of(std::string_view name) const {
    const auto found =
        std::find_if(table_.fields.begin(), table_.fields.end(), [&](const auto& field) { return field.name == name; });
    return found == table_.fields.end() ? nullptr : &*found;
  }
  bool has_known(const ShellText& words) const {
    return std::any_of(words.begin(), words.end(), [&](const ShellWord& word) {
      return field_of(std::string_view{word.text}.substr(0, word.text.find('='))) != nullptr;
    });
  }

  /// @return whether there is one with flags
  bool find_command() {
    int line = 0;
    words_.clear();
    for (const ShellText& command : script_.commands()) {
      const std::string& name = command.front().text;
      if (among(name, "declare echo exit export for local printf readonly select set shift source typeset . :") ||
          is_shell_test(name))
        continue;
      commands_ = true;
      const bool bare = name.starts_with("--");  // a file of flags, one a line
      auto begin = command.begin();
      for (auto at = begin; at != command.end(); ++at) {
        if (at->text.ends_with(".py")) begin = at + 1;
      }
      if (!bare && !has_known(command)) {
        const auto unknown = std::find_if(begin, command.end(), [](const auto& word) { return !word.unknown.empty(); });
        if (begin != command.begin() && unknown != command.end() && !open_) open_ = *unknown;
        continue;
      }
      if (line > 0 && !bare) {
        found_.fail(command.front().line,
                    concat("a second command with ", table_.kind, "s, after the one in line ", line, "; give a file with one"));
      }
      if (!bare) {
        line = found_.launch_line = command.front().line;
        found_.processes = processes_of(command);
      }
      words_.insert(words_.end(), begin, command.end());
    }
    return !words_.empty();
  }

  /// Whether one more word belongs to the setting.
  bool takes_more(const Setting& setting) const {
    if (const auto* field = field_of(setting.name))
      return !std::holds_alternative<bool Settings::*>(field->member) && (field->list || setting.values.empty());
    return !among(setting.name, table_.skipped_switches) && (!among(setting.name, table_.skipped) || setting.values.empty());
  }
  void take(const ShellWord& word) {
    if (word.text.starts_with("--") && word.text.size() > 2) {
      const std::size_t equals = std::min(word.text.find('='), word.text.size());
      found_.settings.push_back({word.text.substr(0, equals), {}, word.line, {}});
      if (equals == word.text.size()) return;
      found_.settings.back().values.push_back(word.text.substr(equals + 1));
      found_.settings.back().unknown = word.unknown;
      return;
    }
    Setting* const last = found_.settings.empty() ? nullptr : &found_.settings.back();
    const bool more = last != nullptr && takes_more(*last);
    if (!more && word.unset && word.text == word.unknown) {  // a shell leaves it out
      if (std::find(left_out_.begin(), left_out_.end(), word.unknown) == left_out_.end()) left_out_.push_back(word.unknown);
      return;
    }
    const bool full = last == nullptr || (!more && field_of(last->name) == nullptr);
    if (!word.unknown.empty() && (full || word.unknown.ends_with("[@]}"))) may_hold(word);
    if (last == nullptr) return;
    last->values.push_back(word.text);
    if (!last->unknown.empty() || word.unknown.empty()) return;
    last->unknown = word.unknown;
    last->unknown_line = word.line;
  }

  const SettingsTable<Settings>& table_;
  ShellScript script_;
  SettingsText found_;
  ShellText words_;
  std::optional<ShellWord> open_;  ///< of a program whose words are not known
  bool commands_ = false;
  std::vector<std::string> left_out_;
};

/// The settings that change something: "--num-layers 24", each with what is unknown in it.
template <class Settings>
std::vector<std::string> settings_that_count(const SettingsTable<Settings>& table, const SettingsText& text) {
  std::vector<std::string> all;
  for (const Setting& setting : text.settings) {
    const auto named = [&](const auto& one) { return one.name == setting.name; };
    const auto renamed = [&](const auto& one) { return one.first == setting.name; };
    if (std::any_of(table.fields.begin(), table.fields.end(), named) ||
        std::any_of(table.foreign.begin(), table.foreign.end(), named) ||
        std::any_of(table.renamed.begin(), table.renamed.end(), renamed))
      all.push_back(concat(setting.name, setting.values.empty() ? "" : " ", join(setting.values, " ")));
  }
  return all;
}

}  // namespace detail

/// The flags of the one command that has any of the table's, or, if the script has no command, of its
/// arrays and texts. A condition that only a run could tell is decided as ShellChoices says; where the
/// other way would change flags that count, variables that nothing sets are a note, others an error.
/// @throws InputError  naming the line: no such command or several, an unterminated quote, a
/// variable that may hold flags, a condition
template <class Settings>
SettingsText shell_settings(const SettingsTable<Settings>& table, std::string_view text, std::string_view source,
                            const ScriptInputs& inputs = {}) {
  detail::ScriptFlags<Settings> usual{table, text, source, inputs, {}};
  SettingsText found = usual.read();
  constexpr std::size_t most_choices = 64;
  const std::vector<std::string> flags = detail::settings_that_count(table, found);
  for (std::size_t i = 0; i < std::min(usual.choices().size(), most_choices); ++i) {
    const detail::ShellChoices::Choice& choice = usual.choices()[i];
    std::vector<std::string> others;
    try {
      others = detail::settings_that_count(table, detail::ScriptFlags<Settings>{table, text, source, inputs, {i}}.read());
    } catch (const SettingError&) {
      continue;  // that way leads nowhere
    }
    std::vector<std::string> differ;
    const auto add = [&](const std::vector<std::string>& from, const std::vector<std::string>& without) {
      for (const std::string& one : from) {
        const std::string name = one.substr(0, one.find(' '));
        if (std::find(without.begin(), without.end(), one) == without.end() &&
            std::find(differ.begin(), differ.end(), name) == differ.end())
          differ.push_back(name);
      }
    };
    add(flags, others);
    add(others, flags);
    if (differ.empty()) continue;
    if (!choice.by_unset) {
      found.errors.push_back(
          one_line(concat(source, ", line ", choice.line, ": only a run could tell whether this holds, and it decides ",
                          join(differ, ", "), "; give a file with one of its branches")));
      continue;
    }
    found.notes.push_back(
        one_line(concat(source, ", line ", choice.line, ": ", choice.named, " is not set, and taken as empty; it decides ",
                        join(differ, ", "), " (", detail::is_argument(choice.named) ? "--args" : "--env", ")")));
  }
  return found;
}

}  // namespace tawpipe
