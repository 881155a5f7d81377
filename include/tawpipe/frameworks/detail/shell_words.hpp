// The words of a shell script: quotes, continuations, comments, and the variables in them.
// Not: its commands (frameworks/shell_script.hpp), nor what conditions say
// (shell_conditions.hpp).
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/detail/shell_arithmetic.hpp"
#include "tawpipe/frameworks/detail/shell_reader.hpp"

namespace tawpipe::inline v0::detail {

/// Reads words, with the variables that are set so far.
class ShellWords : protected ShellReader {
 protected:
  using ShellReader::ShellReader;

  /// One word, or several if an unquoted variable expands to several; of a test exactly one.
  ShellText read_word() {
    ShellText words;
    ShellWord word{.text = {}, .line = line_};
    bool any = in_test_;
    while (at_ < text_.size() && !at_any(separators)) {
      const char c = peek();
      if (c == '\\') {
        if (continues()) break;
        next();
        if (at_ < text_.size()) word.text += next();
      } else if (c == '\'') {
        const int line = line_;
        next();
        while (at_ < text_.size() && peek() != '\'') take(word);
        if (at_ >= text_.size()) fail(line, "a quote ' has no end");
        next();
      } else if (c == '"') {
        read_quoted(words, word);
      } else if (c == '$' || c == '`') {
        any = read_expansion(words, word, false) || any;
        continue;
      } else {
        take(word);
      }
      any = true;
    }
    if (any) words.push_back(std::move(word));
    return words;
  }

  /// `$1`, `$@` and `$#` from here on.
  void set_arguments(const ShellText& words) {
    for (std::size_t i = 1; i <= most_arguments; ++i) {
      if (i <= words.size()) {
        variables_[std::to_string(i)] = {words[i - 1]};
      } else {
        variables_.erase(std::to_string(i));
      }
    }
    variables_["@"] = variables_["*"] = words;
    variables_["#"] = {{std::to_string(words.size()), 0}};
  }

  /// `shift` or `shift N`.
  void shift_arguments(const ShellText& words) {
    const auto count = words.size() > 1 ? to_number<std::int32_t>(words[1].text) : 1;
    ShellText left = variables_["@"];
    if (!count || *count < 0) return;
    left.erase(left.begin(), left.begin() + std::min<std::ptrdiff_t>(*count, std::ssize(left)));
    set_arguments(left);
  }

  /// From `(` to the `)` that closes it. @return what is between them
  std::string_view read_parentheses(int line, std::string_view what) {
    const std::size_t begin = at_ + 1;
    int open = 0;
    do {
      if (at_ >= text_.size()) fail(line, concat(what, " has no end"));
      const char c = next();
      open += c == '(' ? 1 : c == ')' ? -1 : 0;
    } while (open > 0);
    return text_.substr(begin, at_ - begin - 1);
  }

  /// Its value; variables that it sets are unknown from then on.
  std::optional<std::int64_t> arithmetic(std::string_view text, int line) {
    const std::vector<std::string> assigned = assigned_in_arithmetic(text);
    for (const std::string& name : assigned) forget(name, concat("set by arithmetic in line ", line), line);
    if (!assigned.empty()) return std::nullopt;
    const auto number = [&](std::string_view name) -> std::optional<std::int64_t> {
      const auto found = variables_.find(std::string{name});
      if (found == variables_.end() || found->second.size() != 1) return std::nullopt;
      used_.insert(found->first);
      const auto value = to_number<std::int32_t>(resolved(found->second[0]).text);
      return value ? std::optional<std::int64_t>{*value} : std::nullopt;
    };
    return ShellArithmetic{text, number}.value();
  }

 private:
  /// The first variable of an expression that nothing sets; none if there is another reason for it to
  /// be unknown.
  std::string unset_in(std::string_view expression) const {
    std::string first;
    for (std::size_t i = 0; i < expression.size();) {
      std::size_t end = i;
      while (end < expression.size() && is_shell_name(expression[end])) ++end;
      const std::string name{expression.substr(i, end - i)};
      const bool argument = i > 0 && expression[i - 1] == '$';
      i = std::max(end, i + 1);
      if (!is_name(name) && !(argument && !name.empty())) continue;
      const auto found = variables_.find(name);
      if (found != variables_.end() && found->second.size() == 1 && to_number<std::int32_t>(resolved(found->second[0]).text))
        continue;
      const bool unset = found == variables_.end() || (found->second.size() == 1 && resolved(found->second[0]).unset);
      if (!unset) return {};
      const std::string named = found == variables_.end() ? name : resolved(found->second[0]).unknown.substr(1);
      if (first.empty()) first = named;
    }
    return first;
  }

  static constexpr std::size_t most_arguments = 99;
  static constexpr std::string_view separators = " \t\r\n;&|()<>";
  void take(ShellWord& word) {
    const char c = next();
    if (c != line_mark) word.text += c;
  }

  void read_quoted(ShellText& words, ShellWord& word) {
    const int line = line_;
    next();
    while (at_ < text_.size() && peek() != '"') {
      if (peek() == '\\' && at_ + 1 < text_.size()) {
        const bool ends_line = continues();
        next();
        if (ends_line && peek() == '\r') next();
        const char c = next();
        word.text += !ends_line ? std::string(1, c) : in_text_ ? "\n" : from_line(line_);
      } else if (peek() == '$' || peek() == '`') {
        read_expansion(words, word, true);
      } else {
        take(word);
      }
    }
    if (at_ >= text_.size()) fail(line, "a quote \" has no end");
    next();
  }

  /// `$NAME`, `${NAME...}`, `$((...))`, `$(...)`: expands into the word, or, if it gives several
  /// words, ends it and begins others.
  /// @return whether there is anything
  bool read_expansion(ShellText& words, ShellWord& word, bool quoted) {
    const int line = line_;
    const auto leave = [&](const std::string& written) {
      word.text += unknown(written, written);
      return true;
    };
    if (next() == '`') {
      while (at_ < text_.size() && next() != '`') continue;
      return leave("`...`");
    }
    if (peek() == '(') {
      const std::string_view inner = read_parentheses(line, "$(");
      if (inner.starts_with("(") && inner.ends_with(")")) {
        if (const auto value = arithmetic(inner.substr(1, inner.size() - 2), line)) {
          word.text += std::to_string(*value);
          return true;
        }
        const std::string written = concat("$(", one_line(std::string{inner.substr(0, 30)}), ")");
        if (const std::string named = unset_in(inner); !named.empty()) {
          word.text += unknown(written, concat("$", named), true);
          return true;
        }
      }
      return leave(concat("$(", one_line(std::string{inner.substr(0, 30)}), ")"));
    }
    std::string name;
    std::string_view rest;
    if (peek() == '{') {
      next();
      const std::size_t begin = at_;
      int open = 1;
      while (at_ < text_.size() && open > 0) {
        const char c = next();
        open += c == '{' ? 1 : c == '}' ? -1 : 0;
      }
      if (open > 0) fail(line, "${ has no end");
      rest = text_.substr(begin, at_ - begin - 1);
      std::size_t end = 0;
      while (end < rest.size() && is_shell_name(rest[end])) ++end;
      name = rest.substr(0, end);
      rest.remove_prefix(end);
      if (name.empty()) return leave(concat("${", one_line(std::string{rest}), "}"));
    } else {
      while (is_shell_name(peek()) && !(name.size() == 1 && std::isdigit(static_cast<unsigned char>(name[0])) != 0))
        name += next();
      if (name.empty() && at_any("@*#?$!-")) name = next();
      if (name.empty()) {
        word.text += '$';
        return true;
      }
    }
    const std::string written =
        rest.empty() ? concat("$", name) : concat("${", name, one_line(std::string{rest.substr(0, 30)}), "}");
    const bool element = rest.starts_with("[@]") || rest.starts_with("[*]");
    const bool list = element || (rest.empty() && (name == "@" || name == "*"));
    if (element) rest.remove_prefix(3);
    const bool several = !in_text_ && !in_test_ && (list || !quoted);
    const std::optional<ShellText> value = value_of(name, rest, several && !quoted, line);
    if (!value) {
      const bool named = is_name(name) || std::isdigit(static_cast<unsigned char>(name[0])) != 0;
      const bool plain = rest.empty() && named && variables_.find(name) == variables_.end();
      word.text += unknown(written, written, plain);
      return true;
    }
    for (std::size_t i = 0; i < value->size(); ++i) {
      const ShellWord& part = (*value)[i];
      if (i > 0 && several) words.push_back(std::exchange(word, {}));
      if (i > 0 && !several) word.text += ' ';
      if (several && word.text.empty()) word.line = part.line > 0 ? part.line : line;
      charge(part.text.size() + 12, line);
      if (!several && part.line != line && part.line > 0) word.text += from_line(part.line);
      word.text += part.text;
    }
    if (!several && !value->empty() && value->back().line != line && value->back().line > 0) word.text += from_line(line_);
    return !value->empty() || quoted;
  }

  /// What `${NAME...}` is, with what stands after the name; nothing if only a run could tell.
  /// @param splits  whether it is split at spaces
  std::optional<ShellText> value_of(const std::string& name, std::string_view rest, bool splits, int line) {
    const auto found = variables_.find(name);
    const bool is_set = found != variables_.end();
    if (is_set) used_.insert(name);
    const bool colon = rest.size() > 1 && rest[0] == ':';
    const bool empty = is_set && std::all_of(found->second.begin(), found->second.end(),
                                             [&](const ShellWord& word) { return resolved(word).text.empty(); });
    const bool present = is_set && !(colon && empty);
    const char what = rest.empty() ? '?' : rest[colon ? 1 : 0];
    ShellText value;
    if (present && (what == '?' || what == '-' || what == '=')) {
      for (const ShellWord& each : found->second) {
        if (splits) {
          split_lines(each, value);
        } else {
          value.push_back(each);
        }
      }
      return value;
    }
    if (depth_ == max_depth || (what != '-' && what != '=' && (what != '+' || !is_set))) return std::nullopt;
    if (what == '+' && !present) return value;
    inside(rest.substr(colon ? 2 : 1), line, [&] {
      while (at_ < text_.size()) {
        if (at_any(separators) || continues()) {
          next();
        } else {
          for (ShellWord& each : read_word()) value.push_back(std::move(each));
        }
      }
    });
    if (what == '=') assign(name, value, false, line);
    return value;
  }
};

}  // namespace tawpipe::v0::detail
