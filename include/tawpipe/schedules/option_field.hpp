// Options as a table of fields, one for each schedule: texts are read, checked, listed and recorded
// by it.
// Not: the options of a particular schedule, which are declared before its builder.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"

namespace tawpipe::inline v0 {

/// Options as a user writes them: `{"order", "paper"}`.
using ScheduleOptions = std::map<std::string, std::string>;

/// An option as lists of schedules show it.
struct OptionInfo {
  std::string name;
  std::string values;
  std::string standard;  ///< its default value
  std::string meaning;
  std::vector<std::string> tried{};  ///< the choices of `auto`; empty: only the standard
  /// "auto" is one of its values, which the schedule itself interprets
  bool own_auto = false;
};

/// The whole numbers that an option takes.
struct WholeRange {
  int low = 0;
  int high = std::numeric_limits<int>::max();
  std::string_view reason{};  ///< the reason for the maximum

  /// The end of an error message, after "the value must be".
  std::string expected() const {
    if (high == std::numeric_limits<int>::max()) return concat("a whole number, ", low, " or more");
    return concat("a whole number from ", low, " to ", high, reason.empty() ? "" : ": ", reason);
  }
  std::optional<int> parse(std::string_view text) const {
    const auto value = to_number<int>(text);
    return value && *value >= low && *value <= high ? value : std::nullopt;
  }
};

/// How an option's value is written. A type of your own has these four as members (`text()` without
/// an argument); an enumeration only needs `option_names(E)`, an array of its values' names in
/// their order.
template <class T>
struct OptionText {
  /// The valid values as shown in lists: "on|off".
  static std::string values() { return T::values(); }
  /// The end of an error message, after "the value must be".
  static std::string expected() { return T::expected(); }
  static std::string text(const T& value) { return value.text(); }
  /// Nothing if the text is not a value.
  static std::optional<T> parse(std::string_view text) { return T::parse(text); }
};

/// OptionText of a value that is one of a few names. `Names::names` are in the order of lists,
/// `Names::value(i)` is the i-th.
template <class T, class Names>
struct OptionNames {
  static std::string values() { return joined("|"); }
  static std::string expected() { return "one of " + joined(", "); }
  static std::string text(const T& value) {
    std::size_t i = 0;
    while (Names::value(i) != value) ++i;
    return std::string{Names::names[i]};
  }
  static std::optional<T> parse(std::string_view text) {
    for (std::size_t i = 0; i < Names::names.size(); ++i) {
      if (Names::names[i] == text) return Names::value(i);
    }
    return std::nullopt;
  }

 private:
  static std::string joined(std::string_view separator) {
    return join(std::vector<std::string>(Names::names.begin(), Names::names.end()), separator);
  }
};

namespace detail {

struct OnOff {
  static constexpr std::array<std::string_view, 2> names{"on", "off"};
  static constexpr bool value(std::size_t i) { return i == 0; }
};

template <class E>
struct EnumNames {
  static constexpr auto names = option_names(E{});
  static constexpr E value(std::size_t i) { return static_cast<E>(i); }
};

template <class T>
struct MemberOf;
template <class Class, class T>
struct MemberOf<T Class::*> {
  using Options = Class;
  using Value = T;
};

}  // namespace detail

template <>
struct OptionText<bool> : OptionNames<bool, detail::OnOff> {};

template <class E>
requires std::is_enum_v<E>
struct OptionText<E> : OptionNames<E, detail::EnumNames<E>> {
};

template <>
struct OptionText<Bytes> {
  static std::string values() { return "SIZE"; }
  static std::string expected() { return "a size such as 4GiB"; }
  /// The shortest text that gives the exact value.
  static std::string text(Bytes value) {
    std::string shortest = concat(value.value(), "B");
    std::int64_t size = 1;
    for (const char* unit : {"KB", "MB", "GB", "TB"}) {
      size *= 1000;
      if (value.value() % size == 0) shortest = shorter(shortest, concat(value.value() / size, unit));
    }
    size = 1;
    for (const char* unit : {"KiB", "MiB", "GiB", "TiB"}) {
      size *= 1024;
      if (value.value() % size == 0) shortest = shorter(shortest, concat(value.value() / size, unit));
    }
    return shortest;
  }
  static std::optional<Bytes> parse(std::string_view text) {
    try {
      return parse_bytes(text);
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

 private:
  static std::string shorter(const std::string& one, const std::string& other) { return other.size() < one.size() ? other : one; }
};

/// If no value is given, the schedule chooses: by the workload, or by other options.
template <class T>
struct OptionText<std::optional<T>> {
  static std::string values() { return OptionText<T>::values(); }
  static std::string expected() { return OptionText<T>::expected(); }
  static std::string text(const std::optional<T>& value) { return value ? OptionText<T>::text(*value) : std::string{}; }
  static std::optional<std::optional<T>> parse(std::string_view text) {
    const std::optional<T> value = OptionText<T>::parse(text);
    return value ? std::optional<std::optional<T>>{value} : std::nullopt;
  }
};

/// One option: its name, its values, its meaning, and its member of the options' struct.
template <class Options>
struct Field {
  std::string_view name;
  std::string_view meaning;
  std::string values;
  std::string expected;
  /// the default as a phrase; empty: the text of the struct's initial value
  std::string_view standard;
  WholeRange range{};
  /// Whether the text is a valid value; if so, the member is set to it.
  bool (*read)(std::string_view text, const WholeRange& range, Options& options);
  std::string (*text)(const Options& options);
  /// "2|3": the values that `auto` chooses from, the one with the least memory first
  std::string_view tried{};
};

/// The field with the values that `auto` chooses from: others cannot be faster, or only use more
/// memory. "2|3"
template <class Options>
Field<Options> auto_tries(Field<Options> field, std::string_view values) {
  field.tried = values;
  return field;
}

/// The field of a member whose values have the text form `Text`.
template <auto member, class Text = OptionText<typename detail::MemberOf<decltype(member)>::Value>>
auto option_field(std::string_view name, std::string_view meaning, std::string_view standard = {}) {
  using Options = typename detail::MemberOf<decltype(member)>::Options;
  return Field<Options>{.name = name,
                        .meaning = meaning,
                        .values = Text::values(),
                        .expected = Text::expected(),
                        .standard = standard,
                        .read =
                            [](std::string_view text, const WholeRange&, Options& options) {
                              auto value = Text::parse(text);
                              if (value) options.*member = *std::move(value);
                              return value.has_value();
                            },
                        .text = [](const Options& options) { return Text::text(options.*member); }};
}

/// The field of a member that is a whole number, or unset where the schedule chooses.
template <auto member>
requires std::constructible_from < typename detail::MemberOf<decltype(member)>::Value,
int >
    auto option_field(std::string_view name, const WholeRange& range, std::string_view meaning, std::string_view standard = {}) {
  using Options = typename detail::MemberOf<decltype(member)>::Options;
  return Field<Options>{.name = name,
                        .meaning = meaning,
                        .values = "N",
                        .expected = range.expected(),
                        .standard = standard,
                        .range = range,
                        .read =
                            [](std::string_view text, const WholeRange& within, Options& options) {
                              const std::optional<int> value = within.parse(text);
                              if (value) options.*member = *value;
                              return value.has_value();
                            },
                        .text =
                            [](const Options& options) {
                              const std::optional<int> value = options.*member;
                              return value ? std::to_string(*value) : std::string{};
                            }};
}

/// A struct of options with its table, `static std::vector<Field<Options>> fields()`.
template <class Options>
concept ScheduleOptionTable = std::default_initializable<Options> && requires {
  { Options::fields() } -> std::same_as<std::vector<Field<Options>>>;
};

/// Every option as text, in the table's order: as recorded by a schedule.
template <ScheduleOptionTable Options>
std::vector<std::pair<std::string, std::string>> option_texts(const Options& options) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& field : Options::fields()) texts.emplace_back(field.name, field.text(options));
  return texts;
}

/// The options as a list shows them.
template <ScheduleOptionTable Options>
std::vector<OptionInfo> option_infos() {
  std::vector<OptionInfo> infos;
  for (const auto& field : Options::fields()) {
    Options scratch;
    std::vector<std::string> tried;
    for (const std::string_view value : split(field.tried, '|')) {
      if (!value.empty()) tried.emplace_back(value);
    }
    infos.push_back({std::string{field.name}, field.values,
                     field.standard.empty() ? field.text(Options{}) : std::string{field.standard}, std::string{field.meaning},
                     std::move(tried), field.read("auto", field.range, scratch)});
  }
  return infos;
}

namespace detail {

template <class Options>
void read_option(std::string_view schedule, const Field<Options>& field, std::string_view text, Options& options) {
  if (field.read(text, field.range, options) || text == "auto") return;
  throw InputError(concat("option ", field.name, "=", text, " of ", schedule, ": the value must be ", field.expected));
}

}  // namespace detail

/// The options given by the texts; those missing, or left to `auto`, keep their initial values.
/// @param schedule  for errors
/// @throws InputError  for an unknown option or an invalid value.
template <ScheduleOptionTable Options>
Options read_options(std::string_view schedule, const ScheduleOptions& texts) {
  Options options;
  const auto fields = Options::fields();
  for (const auto& [key, value] : texts) {
    std::vector<std::string> known;
    bool found = false;
    for (const auto& field : fields) {
      known.emplace_back(field.name);
      if (field.name != key) continue;
      detail::read_option(schedule, field, value, options);
      found = true;
    }
    if (found) continue;
    throw InputError(known.empty() ? concat(schedule, " has no options, and so no ", quote(key))
                                   : unknown_name(concat("option of ", schedule), key, known));
  }
  return options;
}

/// Checks options that were not read from texts against the same table.
/// @throws InputError  for an invalid value.
template <ScheduleOptionTable Options>
void check_options(std::string_view schedule, const Options& options) {
  Options read;
  for (const auto& field : Options::fields()) {
    const std::string text = field.text(options);
    if (!text.empty()) detail::read_option(schedule, field, text, read);
  }
}

/// For schedules without options.
struct NoOptions {
  static std::vector<Field<NoOptions>> fields() { return {}; }
};

}  // namespace tawpipe
