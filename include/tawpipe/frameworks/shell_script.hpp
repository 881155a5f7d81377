// The words of a shell script's commands: quotes, continuations, comments, variables and arrays
// that the script sets.
// Not: running it: nothing is executed, and values that only a run could determine are unknown.
#pragma once

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/units.hpp"
#include "tawpipe/frameworks/detail/shell_conditions.hpp"
#include "tawpipe/frameworks/setting.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Reads a script from beginning to end, and keeps the words of each command.
class ShellScript {
 public:
  ShellScript(std::string_view text, std::string_view source) : text_{without_byte_order_mark(text)}, source_{source} {
    while (at_ < text_.size()) read_command();
  }

  const std::vector<std::vector<ShellWord>>& commands() const { return commands_; }
  /// The words of each array and text that is set, in order.
  const std::vector<std::vector<ShellWord>>& values() const { return values_; }

 private:
  struct Variable {
    std::vector<ShellWord> words;
  };

  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  char next() {
    const char c = text_[at_++];
    if (c == '\n') ++line_;
    return c;
  }
  [[noreturn]] void fail(int line, std::string_view why) const {
    throw SettingError(one_line(concat(source_, ", line ", line, ": ", why)));
  }
  static bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

  /// Spaces, continued lines and comments; with `newlines` also newlines.
  void skip(bool newlines) {
    for (; at_ < text_.size(); next()) {
      if (peek() == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
        while (peek() != '\n') ++at_;
      } else if (peek() == '#') {
        while (peek() != '\n' && at_ + 1 < text_.size()) ++at_;
        if (peek() == '\n' && !newlines) return;
      } else if (!is_space(peek()) && !(newlines && peek() == '\n')) {
        return;
      }
    }
  }

  void read_command() {
    std::vector<ShellWord> words;
    bool assigned = false;
    for (;;) {
      skip(false);
      if (at_ >= text_.size() || std::string_view{"\n;&|()"}.find(peek()) != std::string_view::npos) break;
      const bool may_assign = words.empty() || words.front().text == "export" || words.front().text == "local" ||
                              words.front().text == "declare" || words.front().text == "readonly";
      if (may_assign && read_assignment()) {
        assigned = true;
        continue;
      }
      if (is_redirection()) {
        read_redirection();
        continue;
      }
      for (ShellWord& word : read_word()) words.push_back(std::move(word));
      if (words.size() != 1 || !among(words.front().text, keywords)) continue;
      conditions_.take_keyword(words.front().text);
      if (words.front().text != "case" && words.front().text != "for") words.clear();
    }
    const bool runs = conditions_.run() != false;
    conditions_.end_command(words, assigned, read_join());
    if (!words.empty() && runs) commands_.push_back(std::move(words));
  }

  /// What ends a command: `&&`, `||`, or one character.
  ShellJoin read_join() {
    if (at_ >= text_.size()) return ShellJoin::none;
    const char c = next();
    const bool twice = peek() == c;
    if (twice && (c == '&' || c == '|')) next();
    if (c == '&') return twice ? ShellJoin::and_then : ShellJoin::none;
    if (c == '|') return twice ? ShellJoin::or_else : ShellJoin::other;
    return c == '(' || c == ')' ? ShellJoin::other : ShellJoin::none;
  }

  /// `>`, `<` or `2>`.
  bool is_redirection() const {
    std::size_t ahead = 0;
    while (std::isdigit(static_cast<unsigned char>(peek(ahead))) != 0) ++ahead;
    return peek(ahead) == '<' || peek(ahead) == '>';
  }
  void read_redirection() {
    while (peek() != '<' && peek() != '>') next();
    const bool document = peek() == '<' && peek(1) == '<' && peek(2) != '<';
    while (peek() == '<' || peek() == '>' || peek() == '&' || peek() == '-') next();
    skip(false);
    const std::vector<ShellWord> words = read_word();
    if (!document || words.empty()) return;
    while (peek() != '\n' && at_ < text_.size()) next();  // to the line that ends the document
    while (at_ < text_.size()) {
      next();
      const std::size_t begin = at_;
      while (peek() != '\n' && at_ < text_.size()) ++at_;
      if (trimmed(text_.substr(begin, at_ - begin)) == words.front().text) return;
    }
  }

  /// NAME=value, NAME+=value, NAME=(words). @return false, and nothing read, if it is not an
  /// assignment
  bool read_assignment() {
    std::size_t end = at_;
    while (end < text_.size() && is_name(text_[end])) ++end;
    const std::string name{text_.substr(at_, end - at_)};
    const bool appended = text_.substr(end, 2) == "+=";
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0 || (!appended && text_.substr(end, 1) != "=")) {
      return false;
    }
    at_ = end + (appended ? 2 : 1);
    std::vector<ShellWord> words;
    const int line = line_;
    if (peek() == '(') {
      next();
      for (skip(true); at_ < text_.size() && peek() != ')'; skip(true)) {
        if (std::string_view{";&|(<>"}.find(peek()) != std::string_view::npos)
          fail(line_, concat("unexpected ", quote(std::string(1, peek()))));
        for (ShellWord& word : read_word()) words.push_back(std::move(word));
      }
      if (at_ >= text_.size()) fail(line, concat("the array ", name, "=( has no end"));
      next();
    } else if (std::string_view{" \t\r\n;&|"}.find(peek()) == std::string_view::npos && at_ < text_.size()) {
      in_text_ = true;  // kept with its line breaks, at which a later unquoted use splits
      for (const ShellWord& word : read_word()) split_lines(word, words);
      in_text_ = false;
    }
    const std::optional<bool> runs = conditions_.run();
    if (runs == false) return true;
    if (!runs) words = {{concat("$", name), line, concat("$", name, ", set under a condition in line ", line, ",")}};
    Variable& variable = variables_[name];
    if (!appended) variable.words.clear();
    values_.push_back(words);
    for (ShellWord& word : words) variable.words.push_back(std::move(word));
    return true;
  }

  static void split_lines(const ShellWord& word, std::vector<ShellWord>& words) {
    int line = word.line;
    std::string part;
    const auto end = [&] {
      if (!part.empty()) words.push_back({std::exchange(part, {}), line, word.unknown});
    };
    for (const char c : word.text) {
      if (c != '\n' && !is_space(c)) {
        part += c;
        continue;
      }
      end();
      if (c == '\n') ++line;
    }
    end();
  }

  /// One word, or several if an unquoted variable expands to several.
  std::vector<ShellWord> read_word() {
    std::vector<ShellWord> words;
    ShellWord word{.text = {}, .line = line_};
    bool any = false;
    while (at_ < text_.size()) {
      const char c = peek();
      if (is_space(c) || std::string_view{"\n;&|()<>"}.find(c) != std::string_view::npos) break;
      if (c == '\\') {
        if (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n')) break;
        next();
        if (at_ < text_.size()) word.text += next();
        any = true;
      } else if (c == '\'') {
        const int line = line_;
        next();
        while (at_ < text_.size() && peek() != '\'') word.text += next();
        if (at_ >= text_.size()) fail(line, "a quote ' has no end");
        next();
        any = true;
      } else if (c == '"') {
        read_quoted(words, word);
        any = true;
      } else if (c == '$' || c == '`') {
        any = read_expansion(words, word, false) || any;
      } else {
        word.text += next();
        any = true;
      }
    }
    if (any) words.push_back(std::move(word));
    return words;
  }

  void read_quoted(std::vector<ShellWord>& words, ShellWord& word) {
    const int line = line_;
    next();
    while (at_ < text_.size() && peek() != '"') {
      if (peek() == '\\' && at_ + 1 < text_.size()) {
        next();
        const char c = next();
        word.text += c == '\n' ? (in_text_ ? "\n" : "") : std::string(1, c);
      } else if (peek() == '$' || peek() == '`') {
        read_expansion(words, word, true);
      } else {
        word.text += next();
      }
    }
    if (at_ >= text_.size()) fail(line, "a quote \" has no end");
    next();
  }

  /// `$NAME`, `${NAME...}`, `$((...))`, `$(...)`: expands into the word, or, if it gives several
  /// words, ends it and begins others.
  /// @return whether there is anything
  bool read_expansion(std::vector<ShellWord>& words, ShellWord& word, bool quoted) {
    const int line = line_;
    const auto unknown = [&](std::string text) {
      word.text += text;
      if (word.unknown.empty()) word.unknown = std::move(text);
      return true;
    };
    if (next() == '`') {
      while (at_ < text_.size() && next() != '`') continue;
      return unknown("`...`");
    }
    if (peek() == '(') {
      const std::size_t begin = at_ + 1;
      int open = 0;
      do {
        if (at_ >= text_.size()) fail(line, "$( has no end");
        const char c = next();
        open += c == '(' ? 1 : c == ')' ? -1 : 0;
      } while (open > 0);
      const std::string_view inner = text_.substr(begin, at_ - begin - 1);
      if (inner.starts_with("(") && inner.ends_with(")") && inner.size() < 200) {
        std::string_view sum = inner.substr(1, inner.size() - 2);
        const std::optional<std::int64_t> value = terms(sum);
        if (value && trimmed(sum).empty()) {
          word.text += std::to_string(*value);
          return true;
        }
      }
      return unknown(concat("$(", one_line(std::string{inner.substr(0, 30)}), ")"));
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
      while (end < rest.size() && is_name(rest[end])) ++end;
      name = rest.substr(0, end);
      rest.remove_prefix(end);
      if (name.empty()) return unknown(concat("${", one_line(std::string{rest}), "}"));
    } else {
      while (is_name(peek()) && !(name.size() == 1 && std::isdigit(static_cast<unsigned char>(name[0])) != 0)) name += next();
      if (name.empty() && std::string_view{"@*#?$!-"}.find(peek()) != std::string_view::npos && peek() != '\0') name = next();
      if (name.empty()) {
        word.text += '$';
        return true;
      }
    }
    bool several = !quoted && !in_text_;
    const std::string written =
        rest.empty() ? concat("$", name) : concat("${", name, one_line(std::string{rest.substr(0, 30)}), "}");
    if (rest == "[@]" || rest == "[*]") {
      several = !in_text_;
      rest = {};
    }
    const auto found = variables_.find(name);
    std::vector<ShellWord> value;
    const auto take = [&](const ShellWord& each) {
      if (several && !quoted && each.unknown.empty()) return split_lines(each, value);
      value.push_back(each);
    };
    if (found != variables_.end() &&
        (rest.empty() || rest.starts_with(":-") || rest.starts_with("-") || rest.starts_with(":="))) {
      for (const ShellWord& each : found->second.words) take(each);
    } else if (rest.starts_with(":-") || rest.starts_with(":=") || rest.starts_with("-")) {
      split_lines({std::string{rest.substr(rest[0] == ':' ? 2 : 1)}, line, {}}, value);
      for (ShellWord& each : value) {
        if (each.text.size() > 1 && (each.text.front() == '"' || each.text.front() == '\''))
          each.text = each.text.substr(1, each.text.size() - 2);
        if (each.text.find('$') != std::string::npos) each.unknown = each.text;
      }
    } else {
      return unknown(written);
    }
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (i > 0 && several) words.push_back(std::exchange(word, {}));
      if (i > 0 && !several) word.text += ' ';
      if (several && word.text.empty()) word.line = value[i].line;
      filled_in_ += value[i].text.size() + 1;
      if (filled_in_ > max_filled_in) fail(line, "variables make too much text of each other");
      word.text += value[i].text;
      if (word.unknown.empty()) word.unknown = value[i].unknown;
    }
    return !value.empty() || quoted;
  }

  // Whole-number arithmetic of $((...)); nothing if a name is unknown.
  std::optional<std::int64_t> terms(std::string_view& text) const {
    std::optional<std::int64_t> sum = factors(text);
    for (text = trimmed(text); sum && (text.starts_with('+') || text.starts_with('-')); text = trimmed(text)) {
      const bool minus = text[0] == '-';
      text.remove_prefix(1);
      const auto term = factors(text);
      if (!term) return std::nullopt;
      sum = minus ? saturating_subtract(*sum, *term) : saturating_add(*sum, *term);
    }
    return sum;
  }
  std::optional<std::int64_t> factors(std::string_view& text) const {
    std::optional<std::int64_t> product = factor(text);
    for (text = trimmed(text); product && (text.starts_with('*') || text.starts_with('/')); text = trimmed(text)) {
      const bool divides = text[0] == '/';
      text.remove_prefix(1);
      const auto other = factor(text);
      constexpr std::int64_t most = std::int64_t{1} << 30;
      const auto is_large = [](std::int64_t value) { return value > most || value < -most; };
      if (!other || (divides && *other == 0) || is_large(*other) || is_large(*product)) return std::nullopt;
      product = divides ? *product / *other : *product * *other;
    }
    return product;
  }
  std::optional<std::int64_t> factor(std::string_view& text) const {
    text = trimmed(text);
    if (text.starts_with('(')) {
      text.remove_prefix(1);
      const auto inner = terms(text);
      text = trimmed(text);
      if (!inner || !text.starts_with(')')) return std::nullopt;
      text.remove_prefix(1);
      return inner;
    }
    if (text.starts_with("${")) text.remove_prefix(2);
    if (text.starts_with('$')) text.remove_prefix(1);
    std::size_t end = 0;
    while (end < text.size() && is_name(text[end])) ++end;
    const std::string name{text.substr(0, end)};
    text.remove_prefix(end);
    if (text.starts_with('}')) text.remove_prefix(1);
    if (const auto number = to_number<std::int32_t>(name)) return *number;
    const auto found = variables_.find(name);
    if (found == variables_.end() || found->second.words.size() != 1 || !found->second.words[0].unknown.empty())
      return std::nullopt;
    const auto number = to_number<std::int32_t>(found->second.words[0].text);
    return number ? std::optional<std::int64_t>{*number} : std::nullopt;
  }

  std::string_view text_;
  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  static constexpr std::string_view keywords = "if then elif else fi case esac for while until do done { } time exec";
  ShellConditions conditions_;
  static constexpr std::size_t max_filled_in = 1 << 22;
  std::size_t filled_in_ = 0;  ///< bytes expanded from variables
  bool in_text_ = false;       ///< in the value of NAME=...: one text, with its lines
  std::map<std::string, Variable> variables_;
  std::vector<std::vector<ShellWord>> commands_;
  std::vector<std::vector<ShellWord>> values_;
};

}  // namespace detail

}  // namespace tawpipe
