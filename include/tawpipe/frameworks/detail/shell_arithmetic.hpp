// Whole-number arithmetic of `$((...))` and `((...))`.
// Not: assignments in it, whose names are only listed.
#pragma once

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"

namespace tawpipe::inline v0::detail {

inline bool is_shell_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Evaluates a text with + - * / % < > <= >= == != && || ! ?: and parentheses.
/// @tparam Lookup  the number of a variable's name, or nothing
template <class Lookup>
class ShellArithmetic {
 public:
  static constexpr std::size_t max_size = 200;  ///< of the text, and so the depth of parentheses

  ShellArithmetic(std::string_view text, Lookup lookup) : rest_{text}, lookup_{std::move(lookup)} {}

  /// Nothing if a name is unknown, a number too large, or the text is more than that.
  std::optional<std::int64_t> value() {
    if (rest_.size() > max_size) return std::nullopt;
    const auto all = choice();
    return trimmed(rest_).empty() ? all : std::nullopt;
  }

 private:
  using Number = std::optional<std::int64_t>;

  bool take(std::string_view sign) {
    rest_ = trimmed(rest_);
    if (!rest_.starts_with(sign)) return false;
    rest_.remove_prefix(sign.size());
    return true;
  }

  /// `a ? b : c`, or what binds more.
  Number choice() {
    const Number condition = binary(0);
    if (!take("?")) return condition;
    const Number yes = choice();
    if (!take(":")) return std::nullopt;
    const Number no = choice();
    return !condition ? std::nullopt : *condition != 0 ? yes : no;
  }

  /// Operators that bind equally, from the loosest; of those that begin alike, the longer first.
  Number binary(std::size_t level) {
    static constexpr std::string_view levels[] = {"||", "&&", "== !=", "<= >= < >", "+ -", "* / %"};
    if (level == std::size(levels)) return unary();
    Number left = binary(level + 1);
    for (;;) {
      std::string_view found;
      for (const std::string_view sign : split(levels[level], ' ')) {
        if (found.empty() && take(sign)) found = sign;
      }
      if (found.empty()) return left;
      const Number right = binary(level + 1);
      left = left && right ? of(*left, found, *right) : std::nullopt;
    }
  }

  static Number of(std::int64_t a, std::string_view sign, std::int64_t b) {
    if (sign == "||") return a != 0 || b != 0 ? 1 : 0;
    if (sign == "&&") return a != 0 && b != 0 ? 1 : 0;
    if (sign == "==") return a == b ? 1 : 0;
    if (sign == "!=") return a != b ? 1 : 0;
    if (sign == "<=") return a <= b ? 1 : 0;
    if (sign == ">=") return a >= b ? 1 : 0;
    if (sign == "<") return a < b ? 1 : 0;
    if (sign == ">") return a > b ? 1 : 0;
    if (sign == "+") return saturating_add(a, b);
    if (sign == "-") return saturating_subtract(a, b);
    constexpr std::int64_t most = std::int64_t{1} << 30;
    const auto is_large = [](std::int64_t value) { return value > most || value < -most; };
    if (is_large(a) || is_large(b) || (sign != "*" && b == 0)) return std::nullopt;
    return sign == "*" ? a * b : sign == "/" ? a / b : a % b;
  }

  Number unary() {
    if (take("!")) {
      const Number value = unary();
      return value ? Number{*value == 0 ? 1 : 0} : std::nullopt;
    }
    if (take("-")) {
      const Number value = unary();
      return value ? Number{saturating_subtract(std::int64_t{0}, *value)} : std::nullopt;
    }
    if (take("(")) {
      const Number inner = choice();
      return take(")") ? inner : std::nullopt;
    }
    const bool braces = take("${");
    const bool variable = braces || take("$");
    rest_ = trimmed(rest_);
    std::size_t end = 0;
    while (end < rest_.size() && is_shell_name(rest_[end])) ++end;
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end);
    if (word.empty() || (braces && !take("}"))) return std::nullopt;
    if (!variable && std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
      const auto number = to_number<std::int32_t>(word);
      return number ? Number{*number} : std::nullopt;
    }
    return lookup_(word);
  }

  std::string_view rest_;
  Lookup lookup_;
};

/// The names that arithmetic sets: `N = 2`, `N += 1`, `N++`, `--N`.
inline std::vector<std::string> assigned_in_arithmetic(std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_shell_name(text[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && is_shell_name(text[end])) ++end;
    const std::string_view before = trimmed(text.substr(0, at));
    const std::string_view after = trimmed(text.substr(end, 8));
    const bool operates = after.size() > 1 && std::string_view{"+-*/%"}.find(after[0]) != std::string_view::npos;
    const bool sets = (after.starts_with('=') && !after.starts_with("==")) || (operates && after[1] == '=') ||
                      after.starts_with("++") || after.starts_with("--") || before.ends_with("++") || before.ends_with("--");
    if (sets && std::isdigit(static_cast<unsigned char>(text[at])) == 0) names.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return names;
}

}  // namespace tawpipe::v0::detail
