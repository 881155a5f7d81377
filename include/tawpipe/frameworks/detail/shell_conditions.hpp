// Which commands of a shell script run, as far as the script says: the branches of its conditions.
// Not: reading its text (shell_script.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::detail {

/// A word of a script, with its variables expanded.
struct ShellWord {
  std::string text;
  int line = 0;
  std::string unknown = {};  ///< "$NAME", if a part of it is unknown
};

/// What joins a command to the next: nothing, `&&`, `||`, or a pipe or subshell.
enum class ShellJoin : unsigned char { none, and_then, or_else, other };

/// Whether a test holds: `[ a = b ]`, `[[ a != b ]]`, `[ -z a ]`, `[ a -gt 1 ]`, `true`. Nothing if
/// only a run can tell.
inline std::optional<bool> shell_test(const std::vector<ShellWord>& words) {
  std::vector<std::string_view> text;
  for (const ShellWord& word : words) {
    if (!word.unknown.empty()) return std::nullopt;
    text.push_back(word.text);
  }
  bool negated = false;
  const auto take_not = [&] {
    for (; text.size() > 1 && text.front() == "!"; text.erase(text.begin())) negated = !negated;
  };
  take_not();
  if (text.size() == 1 && (text[0] == "true" || text[0] == "false")) return (text[0] == "true") != negated;
  const bool brackets =
      text.size() > 2 && ((text.front() == "[" && text.back() == "]") || (text.front() == "[[" && text.back() == "]]"));
  if (!brackets) return std::nullopt;
  text.pop_back();
  text.erase(text.begin());
  take_not();
  const auto holds = [&]() -> std::optional<bool> {
    if (text.size() == 1) return !text[0].empty();
    if (text.size() == 2 && text[0] == "-z") return text[1].empty();
    if (text.size() == 2 && text[0] == "-n") return !text[1].empty();
    if (text.size() != 3) return std::nullopt;
    const std::string_view op = text[1];
    if (op == "=" || op == "==" || op == "!=") {
      if (text[2].find_first_of("*?[") != std::string_view::npos) return std::nullopt;  // a pattern
      return (text[0] == text[2]) == (op != "!=");
    }
    const auto left = to_number<std::int64_t>(text[0]);
    const auto right = to_number<std::int64_t>(text[2]);
    if (!left || !right) return std::nullopt;
    if (op == "-eq") return *left == *right;
    if (op == "-ne") return *left != *right;
    if (op == "-gt") return *left > *right;
    if (op == "-ge") return *left >= *right;
    if (op == "-lt") return *left < *right;
    if (op == "-le") return *left <= *right;
    return std::nullopt;
  };
  const std::optional<bool> value = holds();
  return value ? std::optional<bool>{*value != negated} : std::nullopt;
}

/// The conditions around a command. Loops, functions and `case` are conditions that only a run
/// could tell.
class ShellConditions {
 public:
  /// Whether the commands here run; nothing if only a run can tell.
  std::optional<bool> run() const {
    std::optional<bool> runs = true;
    for (const Block& block : blocks_) runs = both(runs, block.runs);
    if (tests_.join == ShellJoin::and_then) return both(runs, tests_.value);
    if (tests_.join == ShellJoin::or_else) return both(runs, negated(tests_.value));
    return runs;
  }

  /// `word` begins a command.
  void take_keyword(std::string_view word) {
    if (word == "if") blocks_.push_back({.condition = true});
    if (word == "case" || word == "for" || word == "while" || word == "until" || word == "{") {
      blocks_.push_back({.runs = std::nullopt});
    }
    if (blocks_.empty()) return;
    Block& block = blocks_.back();
    if (word == "then" && block.condition) {
      block.condition = false;
      block.runs = both(block.left, tests_.value);
      block.left = both(block.left, negated(tests_.value));
    } else if (word == "elif") {
      block.condition = true;
      block.runs = block.left;
    } else if (word == "else") {
      block.runs = block.left;
    } else if (word == "fi" || word == "esac" || word == "done" || word == "}") {
      blocks_.pop_back();
    }
    tests_ = {};
  }

  /// A command has ended, and `join` follows.
  /// @param assigned  whether it sets variables, as commands without words do
  void end_command(const std::vector<ShellWord>& words, bool assigned, ShellJoin join) {
    if (words.empty() && !assigned && join == ShellJoin::none) return;  // an empty line
    const bool is_test = !words.empty() && (words.front().text == "[" || words.front().text == "[[");
    const bool in_condition = !blocks_.empty() && blocks_.back().condition;
    std::optional<bool> value = words.empty() && assigned ? true : shell_test(words);
    if (tests_.join == ShellJoin::and_then) value = both(tests_.value, value);
    if (tests_.join == ShellJoin::or_else) value = negated(both(negated(tests_.value), negated(value)));
    if (tests_.join == ShellJoin::other || join == ShellJoin::other) value = std::nullopt;
    // `mkdir -p data && RANKS=8`: outside a condition, a command that is not a test is assumed to
    // succeed.
    if (!in_condition && !is_test && join != ShellJoin::or_else) value = true;
    tests_ = {value, join};
    if (!in_condition && join == ShellJoin::none) tests_ = {};
  }

 private:
  struct Block {
    std::optional<bool> runs = true;  ///< whether the branch runs
    std::optional<bool> left = true;  ///< whether no branch before it runs
    bool condition = false;           ///< between `if` or `elif` and `then`
  };
  struct Tests {
    std::optional<bool> value = {};
    ShellJoin join = ShellJoin::none;
  };

  static std::optional<bool> negated(std::optional<bool> value) { return value ? std::optional<bool>{!*value} : value; }
  static std::optional<bool> both(std::optional<bool> a, std::optional<bool> b) {
    if (a == false || b == false) return false;
    return a && b ? std::optional<bool>{true} : std::nullopt;
  }

  std::vector<Block> blocks_;
  Tests tests_;  ///< of the list of commands so far
};

}  // namespace tawpipe::inline v0::detail
