// Settings of another framework, by name: a table maps each to a member, and is used to read and
// write them.
// Not: the texts that contain them (shell_script.hpp, toml_settings.hpp, json_settings.hpp) nor
// what they mean for a plan.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

/// A text that cannot be read as settings. Its message has the text's own words.
class SettingError : public InputError {
 public:
  using InputError::InputError;
};

/// What a script is started with.
struct ScriptInputs {
  std::vector<std::string> arguments = {};
  std::vector<std::pair<std::string, std::string>> environment = {};
};

/// One setting in a text: `--micro-batch-size 4` in line 12.
struct Setting {
  std::string name;
  std::vector<std::string> values;  ///< without quotes
  int line = 0;
  std::string unknown = {};  ///< "$NAME" if a value has a variable that the text does not set
  int unknown_line = 0;      ///< of that value; 0: of the setting
  bool renamed = false;      ///< the text has its old name
};

/// A text's settings, and its name in messages.
struct SettingsText {
  std::string source;
  std::vector<Setting> settings;
  std::int64_t processes = 0;  ///< that its command starts on all nodes; 0: not said
  int launch_line = 0;         ///< of that command
  std::string_view launched_by = "--nnodes x --nproc_per_node";
  std::vector<std::string> notes = {};   ///< what was assumed, with its line
  std::vector<std::string> errors = {};  ///< what else is wrong with it
  bool strict = false;                   ///< an unknown name is an error

  /// @throws SettingError  naming the line
  [[noreturn]] void fail(int line, std::string_view why) const {
    throw SettingError(one_line(concat(source, ", line ", line, ": ", why)));
  }
};

/// A setting in a table: a member of `Settings`, whose default is the framework's own.
template <class Settings>
struct SettingField {
  std::string_view name;
  /// On a command line a bool is set by its name, without a value; elsewhere it is true or false.
  std::variant<int Settings::*, std::int64_t Settings::*, bool Settings::*, std::string Settings::*> member;
  std::vector<std::string_view> words = {};  ///< the values that a text may have; none: any
  /// a text of several values, kept with spaces between them
  bool list = false;
};

/// A setting that affects the layout, but that a plan does not have.
struct ForeignSetting {
  std::string_view name;
  std::string_view harmless;  ///< the values that change nothing, separated by spaces
  std::string_view why;
  bool refused = true;  ///< or read, with a note
};

/// The table of a framework's settings, for reading and writing; a name not in it is unknown.
template <class Settings>
struct SettingsTable {
  std::string_view kind;  ///< of a setting, for messages: "Megatron-LM flag"
  bool flags = false;     ///< a bool is set by its name only
  std::vector<SettingField<Settings>> fields;
  std::vector<ForeignSetting> foreign;
  /// names that do not affect the layout, separated by spaces; "job.*" for a whole section
  std::string_view skipped;
  /// those of them that take no value
  std::string_view skipped_switches = {};
  /// an old name, and the current one
  std::vector<std::pair<std::string_view, std::string_view>> renamed = {};
};

/// Settings as read: their values, and the line of each.
template <class Settings>
struct ReadSettings {
  Settings values;
  SettingsText text;
  std::vector<std::string> notes;  ///< what was read but is not modelled

  /// The last setting of that name; null if there is none.
  const Setting* find(std::string_view name) const {
    for (auto at = text.settings.rbegin(); at != text.settings.rend(); ++at) {
      if (at->name == name) return &*at;
    }
    return nullptr;
  }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// @throws SettingError  with the line of the setting of that name, or without one if the text has
  /// none
  [[noreturn]] void fail(std::string_view name, std::string_view why) const {
    if (const Setting* at = find(name)) text.fail(at->line, concat(name, ": ", why));
    throw SettingError(one_line(concat(text.source, ": ", name, ": ", why)));
  }
  void note(std::string_view name, std::string_view why) {
    const Setting* at = find(name);
    notes.push_back(one_line(concat(text.source, at != nullptr ? concat(", line ", at->line) : "", ": ", name, ": ", why)));
  }
};

namespace detail {

/// "$1": an argument of a script.
inline bool is_argument(std::string_view variable) {
  return variable.size() > 1 && variable[0] == '$' && variable[1] >= '0' && variable[1] <= '9';
}

inline bool among(std::string_view word, std::string_view words) {
  for (const std::string_view each : split(words, ' ')) {
    if (each == word && !each.empty()) return true;
    if (each.ends_with('*') && word.starts_with(each.substr(0, each.size() - 1))) return true;
  }
  return false;
}

template <class Settings>
class SettingsReader {
 public:
  SettingsReader(const SettingsTable<Settings>& table, SettingsText text) : table_{table}, read_{{}, std::move(text), {}} {
    read_.notes = read_.text.notes;
    errors_ = read_.text.errors;
  }

  ReadSettings<Settings> read() {
    for (Setting& setting : read_.text.settings) {
      take_new_name(setting);
      try {
        take(setting);
      } catch (const SettingError& error) {
        errors_.emplace_back(error.what());
      }
    }
    constexpr std::size_t shown = 20;
    if (errors_.size() > shown) {
      errors_.resize(shown);
      errors_.emplace_back("and more");
    }
    if (!errors_.empty()) {
      errors_.insert(errors_.end(), read_.text.notes.begin(), read_.text.notes.end());
      throw SettingError(join(errors_, "; "));
    }
    if (!unknown_.empty()) {
      const bool one = unknown_.size() == 1;
      read_.notes.push_back(
          one_line(concat(read_.text.source, ": ", one ? "an unknown " : "unknown ", table_.kind, one ? "" : "s",
                          ", left out: ", join(unknown_, ", "), " (--strict refuses ", one ? "it" : "them", ")")));
    }
    return std::move(read_);
  }

 private:
  void take_new_name(Setting& setting) {
    for (const auto& [old, now] : table_.renamed) {
      if (old != setting.name) continue;
      setting.name = now;
      setting.renamed = true;
      read_.note(now, concat("read from its old name, ", old));
    }
  }
  void take(const Setting& setting) {
    for (const SettingField<Settings>& field : table_.fields) {
      if (field.name != setting.name) continue;
      check_known(setting);
      std::visit([&](auto member) { set(setting, field, read_.values.*member); }, field.member);
      return;
    }
    for (const ForeignSetting& foreign : table_.foreign) {
      if (foreign.name != setting.name) continue;
      check_known(setting);
      const std::string value = join(setting.values, ",");
      if (among(value.empty() ? "[]" : value, foreign.harmless) && !(table_.flags && value.empty())) return;
      if (foreign.refused) fail(setting, foreign.why);
      read_.note(setting.name, foreign.why);
      return;
    }
    if (among(setting.name, table_.skipped) || among(setting.name, table_.skipped_switches)) return;
    const std::string named = setting.name.substr(0, 60);
    std::vector<std::string> known;
    for (const auto& field : table_.fields) known.emplace_back(field.name);
    for (const auto& foreign : table_.foreign) known.emplace_back(foreign.name);
    for (const std::string_view names : {table_.skipped, table_.skipped_switches}) {
      for (const std::string_view name : split(names, ' ')) known.emplace_back(name);
    }
    const std::string close = nearest(named, known);
    const bool switched = among(close, table_.skipped) || among(close, table_.skipped_switches);
    if (!read_.text.strict) {
      const bool asks = !close.empty() && !switched;
      unknown_.push_back(concat(named, " in line ", setting.line, asks ? concat(", near ", close) : ""));
      return;
    }
    read_.text.fail(setting.line, concat("unknown ", table_.kind, " ", quote(named),
                                         close.empty() ? std::string{} : concat("; did you mean ", quote(close), "?")));
  }

  [[noreturn]] void fail(const Setting& setting, std::string_view why) const {
    read_.text.fail(setting.line, concat(setting.name, ": ", why));
  }
  void check_known(const Setting& setting) const {
    if (setting.unknown.empty()) return;
    read_.text.fail(
        setting.unknown_line > 0 ? setting.unknown_line : setting.line,
        concat(setting.name, ": ", setting.unknown, " is not set in this file; write its value, set it before, or give it by ",
               is_argument(setting.unknown) ? "--args" : "--env"));
  }
  const std::string& only_value(const Setting& setting, std::string_view expected) const {
    if (setting.values.size() == 1) return setting.values.front();
    fail(setting,
         concat("expected ", expected,
                setting.values.empty() ? ", not nothing" : concat(", not ", quote(join(setting.values, " ").substr(0, 60)))));
  }

  template <class Number>
  void set(const Setting& setting, const SettingField<Settings>&, Number& value) {
    constexpr std::string_view expected = "a whole number";
    const std::string& text = only_value(setting, expected);
    const auto number = to_number<Number>(text);
    if (!number) fail(setting, concat("expected ", expected, ", not ", quote(text.substr(0, 60))));
    value = *number;
  }
  void set(const Setting& setting, const SettingField<Settings>&, bool& value) {
    if (table_.flags) {
      if (!setting.values.empty())
        fail(setting, concat("takes no value, but has ", quote(join(setting.values, " ").substr(0, 60))));
      value = true;
      return;
    }
    const std::string& text = only_value(setting, "true or false");
    if (text != "true" && text != "false") fail(setting, concat("expected true or false, not ", quote(text.substr(0, 60))));
    value = text == "true";
  }
  void set(const Setting& setting, const SettingField<Settings>& field, std::string& value) {
    const std::vector<std::string> known{field.words.begin(), field.words.end()};
    if (field.list) {
      for (const std::string& word : setting.values) {
        if (!known.empty() && std::find(known.begin(), known.end(), word) == known.end())
          fail(setting, unknown_name("value", word.substr(0, 60), known));
      }
      value = join(setting.values, " ");
      return;
    }
    const std::string& text = only_value(setting, known.empty() ? "a text" : concat("one of ", join(known, ", ")));
    if (!known.empty() && std::find(known.begin(), known.end(), text) == known.end()) {
      fail(setting, unknown_name("value", text.substr(0, 60), known));
    }
    value = text;
  }

  const SettingsTable<Settings>& table_;
  ReadSettings<Settings> read_;
  std::vector<std::string> errors_;
  std::vector<std::string> unknown_;
};

inline std::string value_text(bool value) { return value ? "true" : "false"; }
inline std::string value_text(const std::string& value) { return value; }
template <class Number>
std::string value_text(Number value) {
  return std::to_string(value);
}

}  // namespace detail

/// The values of a text's settings. Unknown names are left out, with a note.
/// @throws InputError  with each setting that is wrong: its name and line, what is wrong
/// and, for an unknown one where the text is strict, the nearest name
template <class Settings>
ReadSettings<Settings> read_settings(const SettingsTable<Settings>& table, SettingsText text) {
  return detail::SettingsReader<Settings>{table, std::move(text)}.read();
}

/// A setting to be written.
struct WrittenSetting {
  std::string_view name;
  std::string value;
  bool is_text = false;
  bool is_list = false;  ///< of texts, with spaces between them
};

/// The settings that differ from the framework's defaults, in the table's order.
template <class Settings>
std::vector<WrittenSetting> written_settings(const SettingsTable<Settings>& table, const Settings& settings) {
  std::vector<WrittenSetting> written;
  const Settings defaults;
  for (const SettingField<Settings>& field : table.fields) {
    std::visit(
        [&](auto member) {
          const auto& value = settings.*member;
          if (value == defaults.*member) return;
          constexpr bool text = std::is_same_v<std::decay_t<decltype(value)>, std::string>;
          written.push_back({field.name, detail::value_text(value), text, field.list});
        },
        field.member);
  }
  return written;
}

}  // namespace tawpipe
