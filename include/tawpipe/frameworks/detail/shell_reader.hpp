// A cursor in a shell script, and the variables that it has set so far.
// Not: its words (shell_words.hpp).
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/detail/shell_arithmetic.hpp"
#include "tawpipe/frameworks/detail/shell_conditions.hpp"
#include "tawpipe/frameworks/setting.hpp"

namespace tawpipe::inline v0::detail {

using ShellText = std::vector<ShellWord>;

/// Reads a text, or another inside it. What only a run could tell stays in a word as a mark, a
/// number between two control characters, and so does the line from which what follows is: neither
/// is split at spaces, and a text may be read as a script again.
class ShellReader {
 protected:
  ShellReader(std::string_view text, std::string_view source) : text_{without_byte_order_mark(text)}, source_{source} {}

  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool at_any(std::string_view characters) const {
    return at_ < text_.size() && characters.find(text_[at_]) != std::string_view::npos;
  }
  char next() {
    const char c = text_[at_++];
    if (c == '\n') ++line_;
    if (c != line_mark) return c;
    if (const auto mark = number_of_mark(text_, at_ - 1)) {
      line_ = static_cast<int>(mark->first);
      at_ = mark->second + 1;
    }
    return c;
  }
  [[noreturn]] void fail(int line, std::string_view why) const {
    throw SettingError(one_line(concat(source_, ", line ", line, ": ", why)));
  }
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  static bool is_name(std::string_view text) {
    return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
           std::all_of(text.begin(), text.end(), is_shell_name);
  }
  bool continues(std::size_t ahead = 0) const {
    return peek(ahead) == '\\' && (peek(ahead + 1) == '\n' || (peek(ahead + 1) == '\r' && peek(ahead + 2) == '\n'));
  }

  /// Spaces, continued lines and comments; with `newlines` also newlines.
  void skip(bool newlines) {
    for (; at_ < text_.size(); next()) {
      if (continues()) {
        while (peek() != '\n') ++at_;
      } else if (peek() == '#') {
        while (peek() != '\n' && at_ + 1 < text_.size()) ++at_;
        if (peek() == '\n' && !newlines) return;
      } else if (!is_space(peek()) && peek() != line_mark && !(newlines && peek() == '\n')) {
        return;
      }
    }
  }

  static void split_lines(const ShellWord& word, ShellText& words) {
    int line = word.line;
    ShellWord part;
    const auto end = [&] {
      if (!part.text.empty()) words.push_back(std::exchange(part, {}));
    };
    for (std::size_t i = 0; i < word.text.size(); ++i) {
      const char c = word.text[i];
      if (const auto mark = c == line_mark ? number_of_mark(word.text, i) : std::nullopt) {
        line = static_cast<int>(mark->first);
        i = mark->second;
      } else if (c == '\n' || is_space(c)) {
        end();
        if (c == '\n') ++line;
      } else {
        if (part.text.empty()) part.line = line;
        part.text += c;
      }
    }
    end();
  }

  /// The word as it is written, and what is unknown in it; or without that.
  ShellWord resolved(const ShellWord& word, bool written = true) const {
    ShellWord whole{.text = {}, .line = word.line};
    for (std::size_t i = 0; i < word.text.size(); ++i) {
      const char c = word.text[i];
      const auto mark = c == unknown_mark || c == line_mark ? number_of_mark(word.text, i) : std::nullopt;
      if (!mark) {
        whole.text += c;
        continue;
      }
      i = mark->second;
      if (c == line_mark || mark->first >= unknown_.size()) continue;
      const Unknown& part = unknown_[mark->first];
      if (written) whole.text += part.written;
      whole.unset = (whole.unknown.empty() || whole.unset) && part.unset;
      if (whole.unknown.empty()) whole.unknown = part.named;
    }
    return whole;
  }
  ShellText resolved(const ShellText& words, bool written = true) const {
    ShellText all;
    for (const ShellWord& word : words) all.push_back(resolved(word, written));
    return all;
  }
  std::string from_line(int line) const { return concat(line_mark, line, mark_end); }

  std::string unknown(std::string written, std::string named, bool unset = false) {
    unknown_.push_back({std::move(written), std::move(named), unset});
    return concat(unknown_mark, unknown_.size() - 1, mark_end);
  }
  ShellText unknown_value(const std::string& name, std::string_view why, int line) {
    return {{unknown(concat("$", name), concat("$", name, ", ", why, ",")), line}};
  }

  /// A variable is set, if commands run here.
  void assign(const std::string& name, ShellText words, bool appended, int line) {
    const Known runs = conditions_.run();
    if (runs == false) return;
    if (!runs) words = unknown_value(name, concat("set under a condition in line ", line), line);
    const auto found = variables_.find(name);
    const bool extends = appended && found != variables_.end();
    if (extends) {
      for (const ShellWord& word : found->second) charge(word.text.size() + 1, line);
      words.insert(words.begin(), found->second.begin(), found->second.end());
    }
    if (found == variables_.end()) order_.push_back(name);
    undo_.push_back(exchanged({name, std::move(words)}));
  }
  /// A variable has a value from then on that only a run could tell.
  void forget(const std::string& name, std::string_view why, int line) {
    if (is_name(name)) assign(name, unknown_value(name, why, line), false, line);
  }

  struct Change {
    std::string name;
    std::optional<ShellText> words;
  };
  /// Sets the variable. @return what it was
  Change exchanged(Change change) {
    const auto found = variables_.find(change.name);
    Change before{change.name, found == variables_.end() ? std::optional<ShellText>{} : std::move(found->second)};
    if (change.words) {
      variables_[change.name] = *std::move(change.words);
    } else if (found != variables_.end()) {
      variables_.erase(found);
    }
    return before;
  }
  /// Takes back all changes but the first. @return them, the last first
  std::vector<Change> undo_to(std::size_t first) {
    std::vector<Change> undone;
    for (; undo_.size() > first; undo_.pop_back()) undone.push_back(exchanged(std::move(undo_.back())));
    return undone;
  }

  void charge(std::size_t bytes, int line) {
    filled_in_ += bytes;
    if (filled_in_ > max_filled_in) fail(line, "variables make too much text of each other");
  }

  /// Reads another text in place of this one, in which the lines count from `line`.
  template <class Read>
  void inside(std::string_view text, int line, Read&& read) {
    charge(text.size(), line);
    const auto outer = std::tuple{text_, at_, line_};
    text_ = text;
    at_ = 0;
    line_ = line;
    ++depth_;
    read();
    --depth_;
    std::tie(text_, at_, line_) = outer;
  }

  static constexpr char line_mark = '\x03';
  static constexpr int max_depth = 12;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;         ///< of texts in each other
  bool in_text_ = false;  ///< in the value of NAME=...: one text, with its lines
  bool in_test_ = false;  ///< in `[[`: nothing is split, and nothing is left out
  ShellConditions conditions_;
  std::vector<Change> undo_;  ///< of the command, and of the subshells around it
  std::map<std::string, ShellText> variables_;
  std::vector<std::string> order_;  ///< of the variables
  std::set<std::string> used_;      ///< variables that are used

 private:
  static constexpr char unknown_mark = '\x01';
  static constexpr char mark_end = '\x02';

  /// The number of the mark that begins there, and where it ends.
  static std::optional<std::pair<std::size_t, std::size_t>> number_of_mark(std::string_view text, std::size_t at) {
    const std::size_t size = text.substr(at, 12).find(mark_end);
    if (size == std::string_view::npos) return std::nullopt;
    const auto number = to_number<std::int32_t>(text.substr(at + 1, size - 1));
    if (!number || *number < 0) return std::nullopt;
    return std::pair{static_cast<std::size_t>(*number), at + size};
  }

  std::string source_;
  static constexpr std::size_t max_filled_in = 1 << 22;
  std::size_t filled_in_ = 0;  ///< bytes expanded from variables
  struct Unknown {
    std::string written;
    std::string named;
    bool unset = false;
  };
  std::vector<Unknown> unknown_;
};

}  // namespace tawpipe::v0::detail
