// The words of a shell script's commands, with the variables and arrays that the script sets.
// Not: running it: nothing is executed, and values that only a run could determine are unknown.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/detail/shell_words.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Reads a script from beginning to end, and keeps the words of each command.
class ShellScript : private ShellWords {
 public:
  /// @param flipped  choices that are made the other way round
  ShellScript(std::string_view text, std::string_view source, const ScriptInputs& inputs = {}, std::set<std::size_t> flipped = {})
      : ShellWords{text, source} {
    choices_.flipped = std::move(flipped);
    for (const auto& [name, value] : inputs.environment) variables_[name] = {{value, 0}};
    ShellText arguments;
    for (const std::string& argument : inputs.arguments) arguments.push_back({argument, 0});
    set_arguments(arguments);
    read_commands();
  }
  /// Reads what no command of the script starts: functions, and documents that are written to files.
  void read_rest() {
    std::vector<Part> rest = std::exchange(later_, {});
    for (const auto& [name, body] : functions_) {
      if (!called_.contains(name)) rest.push_back(body);
    }
    for (const Part& part : rest) read_text(part.text, part.line, true);
  }

  const std::vector<ShellText>& commands() const { return commands_; }
  const std::vector<ShellChoices::Choice>& choices() const { return choices_.made; }
  /// The words of the arrays and texts with flags that no other uses, in order.
  ShellText values() const {
    ShellText all;
    std::set<std::string> passed = used_;
    for (const std::string& name : order_) {
      const auto found = variables_.find(name);
      if (found == variables_.end() || !passed.insert(name).second) continue;
      if (std::none_of(found->second.begin(), found->second.end(), [](const auto& word) { return word.text.starts_with("--"); }))
        continue;
      for (const ShellWord& word : found->second) all.push_back(resolved(word));
    }
    return all;
  }

 private:
  static constexpr std::string_view keywords = "if then elif else fi case esac for while until do done { } time exec";
  static constexpr std::string_view declaring = "export local declare readonly typeset";

  void read_commands() {
    while (at_ < text_.size()) read_command();
  }

  void read_command() {
    ShellText words;
    bool assigned = false;
    const std::size_t before = undo_.size();
    std::vector<Change> own;  // `TP=2 program`: for that program only
    const int line = line_;
    for (;;) {
      skip(in_test_);
      if (at_ >= text_.size()) break;
      const bool empty = words.empty();
      if (in_test_) {
        read_test(words);
      } else if (peek() == '(' && peek(1) == '(' && (empty || among(words.back().text, "! for"))) {
        read_arithmetic(words);
      } else if (at_any("\n;&|()")) {
        break;
      } else if ((empty || among(words.front().text, declaring)) && read_assignment()) {
        assigned = true;
      } else if (is_redirection()) {
        read_redirection();
      } else {
        if (assigned && empty) own = undo_to(before);
        for (ShellWord& word : read_word()) words.push_back(std::move(word));
        if (!words.empty()) take_word(words, empty);
        if (words.size() == 2 && words[0].text == "function") return read_function(words[1].text, line);
      }
    }
    if (std::exchange(in_test_, false)) fail(line, "[[ has no end");
    if (words.size() == 1 && is_name(words[0].text) && peek() == '(') return read_function(words[0].text, line);
    const ShellText plain = resolved(words);
    const Known runs = conditions_.run();
    take_effects(plain, line);
    if (!plain.empty() && runs != false && !read_call(plain, runs) && !read_inner(words, own, runs)) commands_.push_back(plain);
    if (!document_.text.empty()) read_document(plain, runs);
    const ShellJoin join = read_join();
    ShellText assumed = resolved(words, false);
    for (ShellWord& word : assumed) word.unknown.clear();
    conditions_.end_command(plain.empty() ? line : plain.front().line, plain, assumed, assigned, join, choices_);
    if (join == ShellJoin::clause || join == ShellJoin::falls) read_patterns(join == ShellJoin::falls);
    if (subshells_.empty()) undo_.clear();
  }

  /// A keyword, or the `[[` of a test. @param first  whether it is the command's first word
  void take_word(ShellText& words, bool first) {
    const std::string word = words.back().text;
    if (word == "[[" && (words.size() == 1 || words[words.size() - 2].text == "!")) in_test_ = true;
    if (!first || words.size() != 1 || !among(word, keywords)) return;
    if (word == "case") {
      read_case();
    } else if (word != "exec" && word != "time") {
      conditions_.take_keyword(word);
    }
    if (word != "for") words.clear();
  }

  /// What ends a command.
  ShellJoin read_join() {
    if (at_ >= text_.size()) return ShellJoin::none;
    const char c = next();
    if (c == ';' && conditions_.in_case() && at_any(";&")) {
      bool falls = false;
      while (at_any(";&")) falls = next() == '&' || falls;
      return falls ? ShellJoin::falls : ShellJoin::clause;
    }
    const bool twice = peek() == c;
    if (twice && (c == '&' || c == '|')) next();
    if (c == '&') return twice ? ShellJoin::and_then : ShellJoin::none;
    if (c == '|') return twice ? ShellJoin::or_else : ShellJoin::other;
    if (c == '(') subshells_.push_back(undo_.size());
    if (c == ')' && !subshells_.empty()) {  // what it sets ends with it
      undo_to(subshells_.back());
      subshells_.pop_back();
    }
    return c == '(' || c == ')' ? ShellJoin::other : ShellJoin::none;
  }

  /// Inside `[[ ... ]]`, where && and < are words.
  void read_test(ShellText& words) {
    if (!at_any(";&|()<>")) {
      for (ShellWord& word : read_word()) words.push_back(std::move(word));
      in_test_ = words.back().text != "]]";
      return;
    }
    std::string sign(1, next());
    if ((sign == "&" || sign == "|") && peek() == sign[0]) sign += next();
    words.push_back({sign, line_});
  }

  /// `((...))` as a word and its value, if it is known.
  void read_arithmetic(ShellText& words) {
    const int line = line_;
    std::string_view inner = read_parentheses(line, "((");
    words.push_back({"((", line});
    if (!inner.ends_with(")")) return;
    inner = inner.substr(1, inner.size() - 2);
    if (const auto value = arithmetic(inner, line)) words.push_back({*value != 0 ? "1" : "0", line});
  }

  /// @param written  with what is unknown in it, as it is written
  ShellWord read_single(bool written = true) {
    in_test_ = true;
    const ShellText word = read_word();
    in_test_ = false;
    return resolved(word.front(), written);
  }
  void read_case() {
    skip(false);
    const int line = line_;
    ShellWord value = read_single(false);
    value.line = line;
    skip(true);
    read_word();  // in
    conditions_.begin_case(std::move(value));
    read_patterns(false);
  }
  /// `a | b)`, unless the case ends.
  void read_patterns(bool falls) {
    skip(true);
    if (text_.substr(at_, 4) == "esac" && !is_shell_name(peek(4))) return;
    if (peek() == '(') next();
    ShellText patterns;
    for (;;) {
      skip(true);
      patterns.push_back(read_single());
      skip(true);
      if (peek() != '|') break;
      next();
    }
    if (peek() == ')') next();
    conditions_.begin_clause(patterns, falls, choices_);
  }

  /// Variables that a command sets.
  void take_effects(const ShellText& words, int line) {
    if (words.empty()) return;
    const std::string& command = words.front().text;
    if (command == "shift" && conditions_.run() != false) return shift_arguments(words);
    const bool prints = command == "printf" && words.size() > 2 && words[1].text == "-v";
    if (!prints && !among(command, "for select read readarray mapfile getopts let unset")) return;
    for (std::size_t i = prints ? 2 : 1; i < words.size(); ++i) {
      const std::string& name = words[i].text;
      const std::string why = concat("set by ", command, " in line ", line);
      if (command == "let") {
        for (const std::string& each : assigned_in_arithmetic(name)) forget(each, why, line);
      } else if (command == "unset") {
        if (is_name(name)) assign(name, {}, false, line);
      } else {
        forget(name, why, line);
      }
      if (prints || command == "for" || command == "select") return;
    }
  }

  // ---- functions, arguments and documents ----------------------------------------------------------

  /// `NAME() {` or `function NAME {`: its body is kept, and read where it is called.
  void read_function(const std::string& name, int line) {
    if (peek() == '(') read_parentheses(line, "(");
    skip(true);
    const int first = line_;
    const std::size_t begin = at_;
    const ShellConditions outer = std::exchange(conditions_, ShellConditions{false});
    do {
      read_command();
    } while (at_ < text_.size() && !conditions_.empty());
    conditions_ = outer;
    if (conditions_.run() == false) return;
    functions_[name] = {std::string{text_.substr(begin, at_ - begin)}, first};
  }
  /// @return whether it is the call of a function
  bool read_call(const ShellText& words, Known runs) {
    const auto found = functions_.find(words.front().text);
    if (found == functions_.end() || depth_ == max_depth) return false;
    const ShellText before = variables_["@"];
    set_arguments({words.begin() + 1, words.end()});
    const Part body = found->second;
    called_.insert(found->first);
    read_text(body.text, body.line, runs);
    set_arguments(before);
    return true;
  }
  /// `sbatch <<END`: a script; of other commands, such as `cat`, one if there is no other.
  void read_document(const ShellText& words, Known runs) {
    const Part document = std::exchange(document_, {});
    if (runs == false || depth_ == max_depth) return;
    if (!words.empty() && words.front().text == "read" && is_name(words.back().text)) {
      ShellText lines;
      split_lines({document.text, document.line}, lines);
      return assign(words.back().text, std::move(lines), false, document.line);
    }
    const auto starts = [](const ShellWord& word) {
      return among(word.text.substr(word.text.rfind('/') + 1), "sbatch srun salloc qsub bsub sh bash ssh kubectl");
    };
    if (std::any_of(words.begin(), words.end(), starts)) return read_text(document.text, document.line, runs);
    later_.push_back(document);
  }
  /// The commands of a text of the script itself, in which all that is set stays set.
  void read_text(std::string_view text, int line, Known runs) {
    const ShellConditions outer = std::exchange(conditions_, ShellConditions{runs});
    const std::vector<std::size_t> subshells = std::exchange(subshells_, {undo_.size()});
    inside(text, line, [&] { read_commands(); });
    conditions_ = outer;
    subshells_ = subshells;
  }

  /// The commands in the text of `eval TEXT` or `sh -c TEXT`.
  /// @param own  variables for that command only
  /// @return whether it is one
  bool read_inner(const ShellText& words, std::vector<Change>& own, Known runs) {
    const bool evaluates = words.front().text == "eval";
    std::string text;
    int line = words.front().line;
    if (evaluates) {
      for (std::size_t i = 1; i < words.size(); ++i) text += concat(" ", from_line(words[i].line), words[i].text);
    } else if (const ShellWord* script = script_of(words)) {
      text = script->text;
      line = script->line;
    } else {
      return false;
    }
    if (depth_ == max_depth) return false;
    const std::size_t before = undo_.size();
    for (auto change = own.rbegin(); change != own.rend(); ++change) undo_.push_back(exchanged(std::move(*change)));
    read_text(text, line, runs);
    if (!evaluates) undo_to(before);
    return true;
  }
  static const ShellWord* script_of(const ShellText& words) {
    for (std::size_t i = 0; i + 2 < words.size(); ++i) {
      const std::string& program = words[i].text;
      if (!among(program.substr(program.rfind('/') + 1), "sh bash")) continue;
      for (std::size_t option = i + 1; option + 1 < words.size() && words[option].text.starts_with('-'); ++option) {
        if (!words[option].text.starts_with("--") && words[option].text.ends_with('c')) return &words[option + 1];
      }
    }
    return nullptr;
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
    const bool quoted = at_any("'\"\\");
    const ShellText words = read_word();
    if (!document || words.empty()) return;
    while (peek() != '\n' && at_ < text_.size()) next();
    if (at_ < text_.size()) next();
    document_ = {"", line_};
    while (at_ < text_.size()) {
      const std::size_t begin = at_;
      while (peek() != '\n' && at_ < text_.size()) ++at_;
      const std::string_view line = text_.substr(begin, at_ - begin);
      if (trimmed(line) == words.front().text) break;
      document_.text += concat(line, "\n");
      if (at_ < text_.size()) next();
    }
    if (quoted) return;
    for (std::size_t at = 0; (at = document_.text.find("\\$", at)) != std::string::npos; ++at) document_.text.erase(at, 1);
  }

  /// NAME=value, NAME+=value, NAME=(words), NAME[i]=value.
  /// @return false, and nothing read, if it is not an assignment
  bool read_assignment() {
    std::size_t end = at_;
    while (end < text_.size() && is_shell_name(text_[end])) ++end;
    const std::string name{text_.substr(at_, end - at_)};
    if (!is_name(name)) return false;
    const bool element = end < text_.size() && text_[end] == '[';
    if (element) end = text_.find_first_of("]\n", end) + 1;
    const bool appended = end > 0 && text_.substr(end, 2) == "+=";
    if (end == 0 || (!appended && text_.substr(end, 1) != "=")) return false;
    at_ = end + (appended ? 2 : 1);
    ShellText words;
    const int line = line_;
    if (peek() == '(') {
      next();
      for (skip(true); at_ < text_.size() && peek() != ')'; skip(true)) {
        if (at_any(";&|(<>")) fail(line_, concat("unexpected ", quote(std::string(1, peek()))));
        for (ShellWord& word : read_word()) words.push_back(std::move(word));
      }
      if (at_ >= text_.size()) fail(line, concat("the array ", name, "=( has no end"));
      next();
    } else if (at_ < text_.size() && !at_any(" \t\r\n;&|")) {
      in_text_ = true;  // kept with its line breaks, at which a later unquoted use splits
      for (const ShellWord& word : read_word()) split_lines(word, words);
      in_text_ = false;
    }
    if (element) {
      forget(name, concat("an element of which is set in line ", line), line);
    } else {
      assign(name, std::move(words), appended, line);
    }
    return true;
  }

  /// A part of the text that is read at another place.
  struct Part {
    std::string text;
    int line = 0;
  };

  std::vector<std::size_t> subshells_;  ///< the changes before each
  std::vector<ShellText> commands_;
  ShellChoices choices_;
  std::map<std::string, Part> functions_;
  std::set<std::string> called_;
  Part document_;            ///< of the command that is being read
  std::vector<Part> later_;  ///< documents of commands that may not run them
};

}  // namespace detail

}  // namespace tawpipe
