// Which commands of a shell script run, as far as the script says: the branches of its conditions.
// Not: reading its text (shell_script.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/setting.hpp"

namespace tawpipe::inline v0::detail {

/// A word of a script, with its variables expanded.
struct ShellWord {
  std::string text;
  int line = 0;
  std::string unknown = {};  ///< "$NAME", if a part of it is unknown
  /// All that is unknown in it are variables that nothing sets, which a shell takes as empty.
  bool unset = false;
};

/// How conditions are decided that only a run could tell: tests as if variables that nothing sets were
/// empty, other commands as if they succeeded, loops not entered. Those in `flipped` the other way
/// round.
struct ShellChoices {
  struct Choice {
    int line = 0;
    bool by_unset = false;   ///< a test of variables that nothing sets, and of nothing else unknown
    std::string named = {};  ///< the first of them: "$NAME"
  };
  std::set<std::size_t> flipped = {};
  std::vector<Choice> made = {};  ///< in order

  bool decide(bool usual, Choice choice) {
    made.push_back(std::move(choice));
    return usual != flipped.contains(made.size() - 1);
  }
};

/// What joins a command to the next: nothing, `&&`, `||`, a pipe or subshell, or the end of a
/// clause of `case`, `;;` or one that goes on with the next, `;&`.
enum class ShellJoin : unsigned char { none, and_then, or_else, other, clause, falls };

/// What holds, or nothing where only a run can tell.
using Known = std::optional<bool>;
inline Known negated(Known value) { return value ? Known{!*value} : value; }
inline Known both(Known a, Known b) {
  if (a == false || b == false) return false;
  return a && b ? Known{true} : std::nullopt;
}
inline Known either(Known a, Known b) { return negated(both(negated(a), negated(b))); }

/// Whether a value matches the pattern of a `case` or `[[ = ]]`; `*` and plain words only.
inline Known matches_pattern(std::string_view value, std::string_view pattern) {
  if (pattern == "*") return true;
  if (pattern.find_first_of("*?[") != std::string_view::npos) return std::nullopt;
  return value == pattern;
}

/// What stands in a test: `a = b`, `-z a`, `a -gt 1`, joined by `&&`, `||`, `!` and parentheses.
class ShellTest {
 public:
  explicit ShellTest(std::vector<ShellWord> words) : words_{std::move(words)} {}
  Known value() {
    const Known all = any(0);
    return at_ == words_.size() && !words_.empty() ? all : std::nullopt;
  }

 private:
  bool take(std::string_view word) {
    if (at_ == words_.size() || words_[at_].text != word) return false;
    ++at_;
    return true;
  }
  Known any(int depth) {
    Known value = all(depth);
    while (take("||")) value = either(value, all(depth));
    return value;
  }
  Known all(int depth) {
    Known value = one(depth);
    while (take("&&")) value = both(value, one(depth));
    return value;
  }
  Known one(int depth) {
    if (depth > 20) return std::nullopt;
    if (at_ + 1 < words_.size() && take("!")) return negated(one(depth + 1));
    if (take("(")) {
      const Known inner = any(depth + 1);
      return take(")") ? inner : std::nullopt;
    }
    const std::size_t begin = at_;
    bool known = true;
    for (; at_ < words_.size() && !among(words_[at_].text, "&& || )"); ++at_) known = known && words_[at_].unknown.empty();
    return known ? holds(begin, at_ - begin) : std::nullopt;
  }
  Known holds(std::size_t begin, std::size_t size) const {
    if (size == 0 || size > 3) return std::nullopt;
    const std::string& first = words_[begin].text;
    if (size == 1) return !first.empty();
    const std::string& second = words_[begin + 1].text;
    if (size == 2) return first == "-z" ? Known{second.empty()} : first == "-n" ? Known{!second.empty()} : std::nullopt;
    const std::string& third = words_[begin + 2].text;
    if (second == "=" || second == "==") return matches_pattern(first, third);
    if (second == "!=") return negated(matches_pattern(first, third));
    const auto left = to_number<std::int64_t>(first);
    const auto right = to_number<std::int64_t>(third);
    if (!left || !right) return std::nullopt;
    if (second == "-eq") return *left == *right;
    if (second == "-ne") return *left != *right;
    if (second == "-gt") return *left > *right;
    if (second == "-ge") return *left >= *right;
    if (second == "-lt") return *left < *right;
    if (second == "-le") return *left <= *right;
    return std::nullopt;
  }

  std::vector<ShellWord> words_;
  std::size_t at_ = 0;
};

inline bool is_shell_test(std::string_view command) { return among(command, "[ [[ test (("); }

/// Whether a command that is a test succeeds: `[ a = b ]`, `[[ a != b ]]`, `test -z a`, `true`;
/// `((` with its value, if it is known. Nothing if only a run can tell.
inline Known shell_test(std::vector<ShellWord> words) {
  bool negative = false;
  for (; words.size() > 1 && words.front().text == "!"; words.erase(words.begin())) negative = !negative;
  if (words.empty() || !words.front().unknown.empty()) return std::nullopt;
  const std::string command = words.front().text;
  const auto value = [&]() -> Known {
    if (words.size() == 1 && (command == "true" || command == "false")) return command == "true";
    if (!is_shell_test(command)) return std::nullopt;
    if (command == "[" || command == "[[") {
      if (words.back().text != (command == "[" ? "]" : "]]")) return std::nullopt;
      words.pop_back();
    }
    words.erase(words.begin());
    if (command == "((") return words.empty() ? std::nullopt : Known{words.front().text != "0"};
    return ShellTest{std::move(words)}.value();
  };
  const Known found = value();
  return negative ? negated(found) : found;
}

/// The conditions around a command. A loop that is entered is one that only a run could tell.
class ShellConditions {
 public:
  ShellConditions() = default;
  /// @param runs  of all that follows
  explicit ShellConditions(Known runs) : outer_{runs} {}
  bool empty() const { return blocks_.empty(); }

  /// Whether the commands here run; nothing if only a run can tell.
  Known run() const {
    Known runs = outer_;
    for (const Block& block : blocks_) runs = both(runs, block.runs);
    if (tests_.join == ShellJoin::and_then) return both(runs, tests_.value);
    if (tests_.join == ShellJoin::or_else) return both(runs, negated(tests_.value));
    return runs;
  }

  /// `word` begins a command; not `case`, which is begin_case().
  void take_keyword(std::string_view word) {
    if (word == "if") blocks_.push_back({.condition = true});
    if (word == "while" || word == "until") blocks_.push_back({.condition = true, .is_loop = true, .until = word == "until"});
    if (word == "for") blocks_.push_back({.runs = std::nullopt});
    if (word == "{") blocks_.push_back({});
    tests_ = {};
    if (blocks_.empty()) return;
    Block& block = blocks_.back();
    if (word == "then" && block.condition) {
      block.condition = false;
      block.runs = both(block.left, block.tested);
      block.left = both(block.left, negated(block.tested));
    } else if (word == "do" && block.is_loop) {
      block.condition = false;
      block.runs = (block.until ? negated(block.tested) : block.tested) == false ? Known{false} : std::nullopt;
    } else if (word == "elif") {
      block.condition = true;
      block.tested = {};
      block.runs = block.left;
    } else if (word == "else") {
      block.runs = block.left;
    } else if (word == "fi" || word == "esac" || word == "done" || word == "}") {
      blocks_.pop_back();
    }
  }

  /// @param value  of `case VALUE in`, with what is unknown left out
  void begin_case(ShellWord value) {
    blocks_.push_back({.is_case = true, .value = std::move(value)});
    tests_ = {};
  }
  bool in_case() const { return !blocks_.empty() && blocks_.back().is_case; }
  /// A clause of the case with these patterns.
  /// @param falls  whether the clause before goes on with this one
  void begin_clause(const std::vector<ShellWord>& patterns, bool falls, ShellChoices& choices) {
    if (!in_case()) return;
    Block& block = blocks_.back();
    const ShellWord& value = block.value;
    Known matches = false;
    for (const ShellWord& pattern : patterns) {
      matches = either(matches, pattern.unknown.empty() ? matches_pattern(value.text, pattern.text) : std::nullopt);
    }
    if (!value.unknown.empty() && block.left != false && both(run_around(), block.left) != false)
      matches = choices.decide(matches.value_or(false), {value.line, value.unset, value.unknown});
    if (falls) matches = std::nullopt;
    block.runs = both(block.left, matches);
    block.left = both(block.left, negated(matches));
    if (falls) block.runs = block.left = std::nullopt;
    tests_ = {};
  }

  /// A command has ended, and `join` follows.
  /// @param line  in which it begins
  /// @param assumed  its words without what is unknown in them
  /// @param assigned  whether it sets variables, as commands without words do
  void end_command(int line, const std::vector<ShellWord>& words, const std::vector<ShellWord>& assumed, bool assigned,
                   ShellJoin join, ShellChoices& choices) {
    if (join == ShellJoin::clause || join == ShellJoin::falls) join = ShellJoin::none;
    const bool in_condition = !blocks_.empty() && blocks_.back().condition;
    const bool empty_line = words.empty() && !assigned && join == ShellJoin::none && tests_.join != ShellJoin::other;
    if (empty_line) return;
    Known value = words.empty() && assigned ? true : shell_test(words);
    // `mkdir -p data && RANKS=8`: what makes something is assumed to succeed.
    const bool makes = !words.empty() && among(words.front().text, makers);
    if (makes && !in_condition && join != ShellJoin::or_else) value = true;
    const bool asked = in_condition || join == ShellJoin::and_then || join == ShellJoin::or_else;
    if (!value && asked && run() != false) value = decided(line, words, assumed, choices);
    if (tests_.join == ShellJoin::and_then) value = both(tests_.value, value);
    if (tests_.join == ShellJoin::or_else) value = either(tests_.value, value);
    if (join == ShellJoin::other) value = std::nullopt;
    tests_ = {value, join};
    if (join != ShellJoin::none) return;
    if (in_condition) blocks_.back().tested = value;
    tests_ = {};
  }

 private:
  struct Block {
    Known runs = true;       ///< whether the branch runs
    Known left = true;       ///< whether no branch before it runs
    bool condition = false;  ///< between `if` or `elif` and `then`
    Known tested = {};       ///< what the last command there said
    bool is_loop = false;    ///< while or until
    bool until = false;
    bool is_case = false;
    ShellWord value = {};  ///< of a case
  };
  struct Tests {
    Known value = {};
    ShellJoin join = ShellJoin::none;
  };
  static constexpr std::string_view makers =
      ". : cd chmod conda cp declare echo eval export ln local mkdir module mv pip popd printf pushd readonly rm set shopt "
      "sleep source touch typeset ulimit umask unset wait";

  /// What a command says that only a run could tell.
  static bool decided(int line, const std::vector<ShellWord>& words, const std::vector<ShellWord>& assumed,
                      ShellChoices& choices) {
    if (words.empty()) return choices.decide(true, {line});
    const auto unknown = [](const ShellWord& word) { return !word.unknown.empty(); };
    const auto found = std::find_if(words.begin(), words.end(), unknown);
    const bool unset = found != words.end() &&
                       std::all_of(words.begin(), words.end(), [&](const auto& word) { return !unknown(word) || word.unset; });
    const std::size_t negations = static_cast<std::size_t>(
        std::find_if(words.begin(), words.end(), [](const auto& word) { return word.text != "!"; }) - words.begin());
    const bool test = negations < words.size() && is_shell_test(words[negations].text);
    const Known value = test ? shell_test(assumed) : std::nullopt;
    const bool usual = value.value_or(test == (negations % 2 == 1));
    return choices.decide(usual, {line, unset, found == words.end() ? std::string{} : found->unknown});
  }
  /// Whether what is around the innermost block runs.
  Known run_around() const {
    Known runs = outer_;
    for (std::size_t i = 0; i + 1 < blocks_.size(); ++i) runs = both(runs, blocks_[i].runs);
    return runs;
  }

  Known outer_ = true;
  std::vector<Block> blocks_;
  Tests tests_;  ///< of the list of commands so far
};

}  // namespace tawpipe::v0::detail
