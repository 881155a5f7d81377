// Parsing of the command line beyond CLI11.
#include "arguments.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "output_file.hpp"
#include "tawpipe/answers/read_text.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/search/job_fields.hpp"

namespace tawpipe::sim {

namespace {

/// A line `key = value` of a configuration file.
struct ConfigLine {
  std::string section;  ///< of its command; "" for all
  std::string key;
  std::vector<std::string> values;
  std::size_t number = 0;  ///< from 1
};

/// Reads the part of TOML that flags need: comments, [command], and key = value, with a word, a
/// number, a quoted text, or a list of these on one line. Anything else is refused, and so is a
/// duplicate key.
class ConfigReader {
 public:
  explicit ConfigReader(const std::string& path) : path_{path}, text_{answers::read_text(path, "configuration file", 1)} {}

  std::vector<ConfigLine> read() {
    for (const std::string_view line : split(text_, '\n')) {
      ++number_;
      rest_ = trimmed(line);
      if (ends()) continue;
      rest_.front() == '[' ? read_section() : read_value();
    }
    return std::move(lines_);
  }

 private:
  [[noreturn]] void fail(std::string_view why) const { throw InputError(one_line(concat(path_, ", line ", number_, ": ", why))); }
  /// Only a comment is left.
  bool ends() const { return rest_.empty() || rest_.front() == '#'; }
  void skip(std::size_t count) {
    rest_.remove_prefix(count);
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t"), rest_.size()));
  }
  /// Takes the characters up to one of `ends`.
  std::string take_until(std::string_view ends) {
    const std::string taken{rest_.substr(0, rest_.find_first_of(ends))};
    skip(taken.size());
    return taken;
  }

  void read_section() {
    skip(1);
    section_ = take_until("[]#\" \t");
    if (section_.empty() || !rest_.starts_with("]")) fail("a section is the name of a command, such as [simulate]");
    skip(1);
    if (!ends()) fail("nothing may follow a section");
  }

  void read_value() {
    ConfigLine line{section_, take_until("= \t#\"'["), {}, number_};
    if (line.key.empty() || !rest_.starts_with("=")) fail("a line is a flag and its value, such as sequence = 4096");
    skip(1);
    for (const ConfigLine& earlier : lines_) {
      if (earlier.key == line.key && earlier.section == section_) {
        fail(concat(quote(line.key), " is given twice, first in line ", earlier.number));
      }
    }
    if (rest_.starts_with("[")) {
      skip(1);
      while (!rest_.starts_with("]")) {
        line.values.push_back(read_one(line.key));
        if (rest_.starts_with(","))
          skip(1);
        else if (!rest_.starts_with("]"))
          fail("a list does not end: write [\"one\", \"two\"] on one line");
      }
      skip(1);
    } else {
      line.values.push_back(read_one(line.key));
    }
    if (!ends()) fail(concat("nothing may follow the value of ", quote(line.key), "; put a text with spaces in quotes"));
    lines_.push_back(std::move(line));
  }

  std::string read_one(const std::string& key) {
    if (ends()) fail(concat("the value of ", quote(key), " is missing"));
    const char mark = rest_.front();
    if (mark != '"' && mark != '\'') {
      std::string word = take_until(", \t#\"'[]");
      if (word.empty()) fail(concat("the value of ", quote(key), " is missing"));
      return word;
    }
    rest_.remove_prefix(1);
    std::string text;
    for (; !rest_.starts_with(mark); rest_.remove_prefix(1)) {
      if (mark == '"' && rest_.starts_with('\\')) {
        rest_.remove_prefix(1);
        if (!rest_.starts_with('"') && !rest_.starts_with('\\')) fail("the only escapes are \\\" and \\\\");
      }
      if (rest_.empty()) fail(concat("the text of ", quote(key), " does not end"));
      text += rest_.front();
    }
    skip(1);
    return text;
  }

  std::string path_;
  std::string text_;
  std::string_view rest_;
  std::string section_;
  std::size_t number_ = 0;
  std::vector<ConfigLine> lines_;
};

/// Removes each --config FILE from the arguments. @throws InputError  if there are two
std::string take_config(std::vector<std::string>& arguments) {
  std::string file;
  for (std::size_t i = 0; i < arguments.size();) {
    const auto at = arguments.begin() + static_cast<std::ptrdiff_t>(i);
    std::string found;
    if (*at == "--config" && i + 1 < arguments.size()) {
      found = at[1];
      arguments.erase(at, at + 2);
    } else if (at->starts_with("--config=")) {
      found = at->substr(9);
      arguments.erase(at);
    } else {
      ++i;
      continue;
    }
    if (!file.empty()) throw InputError("--config is given twice; one file holds all flags");
    if (found.empty()) throw InputError("--config needs the name of a file");
    file = found;
  }
  return file;
}

bool is_given(const std::vector<std::string>& arguments, const std::string& flag) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const std::string& argument) { return argument == flag || argument.starts_with(flag + "="); });
}

/// The command that the arguments name, down to the deepest level, and its name: "tawpipe topology
/// show".
std::pair<const CLI::App*, std::string> named_command(const CLI::App& root, const std::vector<std::string>& arguments) {
  std::pair<const CLI::App*, std::string> named{&root, "tawpipe"};
  for (const auto& argument : arguments) {
    const CLI::App* deeper = find_command(*named.first, argument);
    if (deeper == nullptr) break;
    named = {deeper, named.second + " " + argument};
  }
  return named;
}

struct OtherName {
  std::string_view theirs;
  std::string_view ours;
};
/// Other tools' names for flags that are no fields of a job, and mean exactly the same: accepted.
constexpr OtherName same_flags[] = {{"--pp", "--pipeline-parallel"}, {"--pipeline-model-parallel-size", "--pipeline-parallel"}};
/// Names for what our flags say in another way: suggested.
constexpr OtherName like_flags[] = {{"--context-length", "--sequence"},
                                    {"--batch-size", "--global-batch"},
                                    {"--gpus", "--cluster"},
                                    {"--nodes", "--cluster"},
                                    {"--gpu", "--device"},
                                    {"--fp8", "--gemm-format"},
                                    {"--zero", "--shard-states"}};

/// A flag by the name that the command has for it; others as they are.
std::string own_flag(const CLI::App& command, const std::string& flag) {
  if (command.get_option_no_throw(flag) != nullptr) return flag;
  if (const JobField* const field = find_job_field(flag.substr(std::min<std::size_t>(2, flag.size())))) {
    std::string own = concat("--", field->name);
    if (command.get_option_no_throw(own) != nullptr) return own;
  }
  for (const OtherName& other : same_flags) {
    if (other.theirs == flag && command.get_option_no_throw(std::string{other.ours}) != nullptr) return std::string{other.ours};
  }
  return flag;
}

/// The flag that other tools name so, if the command has it; otherwise the nearest by its letters.
std::string flag_of_meaning(const std::string& flag, const std::vector<std::string>& flags) {
  for (const OtherName& other : like_flags) {
    if (other.theirs == flag && std::find(flags.begin(), flags.end(), other.ours) != flags.end()) return std::string{other.ours};
  }
  return nearest(flag, flags);
}

std::string unknown_argument(const CLI::App& command, const std::string& argument) {
  std::vector<std::string> names;
  for (const CLI::App* sub : command.get_subcommands({})) names.push_back(sub->get_name());
  if (!argument.starts_with("-")) {
    return names.empty() ? concat(quote(argument), " was not expected") : unknown_name("command", argument, names);
  }
  const std::string flag = argument.substr(0, argument.find('='));
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const auto& name : option->get_lnames()) flags.push_back("--" + name);
  }
  if (const std::string_view why = out_of_scope(flag.substr(std::min<std::size_t>(2, flag.size()))); !why.empty())
    return concat("unknown flag ", quote(flag), ": ", why);
  const std::string close = flag_of_meaning(flag, flags);
  return concat("unknown flag ", quote(flag), close.empty() ? "" : concat("; did you mean ", quote(close), "?"));
}

}  // namespace

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* candidate : app.get_subcommands({})) {
    if (candidate->get_name() == name) return candidate;
  }
  return nullptr;
}

std::vector<std::string> with_own_flags(const CLI::App& root, std::vector<std::string> arguments) {
  const CLI::App* const command = arguments.empty() ? nullptr : find_command(root, arguments.front());
  if (command == nullptr) return arguments;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i - 1] == "--args" || !arguments[i].starts_with("--")) continue;  // another program's
    const std::size_t end = std::min(arguments[i].find('='), arguments[i].size());
    arguments[i].replace(0, end, own_flag(*command, arguments[i].substr(0, end)));
  }
  return arguments;
}

std::vector<std::string> with_config(const CLI::App& root, std::vector<std::string> arguments) {
  const std::string file = take_config(arguments);
  if (file.empty() || arguments.empty()) return arguments;
  const CLI::App* command = find_command(root, arguments.front());
  if (command == nullptr) return arguments;
  if (command->get_option_no_throw("--config") == nullptr) throw InputError(concat(command->get_name(), " takes no --config"));
  std::vector<std::string> merged{arguments.front()};
  for (const ConfigLine& line : ConfigReader{file}.read()) {
    const std::string place = concat(one_line(file), ", line ", line.number);
    if (!line.section.empty() && find_command(root, line.section) == nullptr) {
      throw InputError(
          concat(place, ": there is no command ", quote(line.section.substr(0, 40)), " that the section could be for"));
    }
    if (!line.section.empty() && line.section != command->get_name()) continue;  // another command's section
    const std::string flag = own_flag(*command, "--" + line.key);
    if (command->get_option_no_throw(flag) == nullptr || flag == "--config" || flag == "--help") {
      throw InputError(concat(place, ": ", command->get_name(), " has no flag ", quote(line.key), "; see tawpipe ",
                              command->get_name(), " --help"));
    }
    if (is_given(arguments, flag) && flag != "--option") continue;
    for (const auto& value : line.values) merged.push_back(flag + "=" + value);
  }
  merged.insert(merged.end(), arguments.begin() + 1, arguments.end());
  return merged;
}

std::string explain(const CLI::App& root, const std::vector<std::string>& arguments, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) return error.what();
  const auto [command, path] = named_command(root, arguments);
  const auto depth = static_cast<std::size_t>(std::count(path.begin(), path.end(), ' '));
  const auto commands = command->get_subcommands({});
  if (!commands.empty() && depth < arguments.size()) return unknown_argument(*command, arguments[depth]);
  if (!commands.empty()) {
    std::vector<std::string> names;
    for (const CLI::App* sub : commands) names.push_back(sub->get_name());
    return "a command is missing: " + join(names, ", ");
  }
  const auto extras = root.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !extras.empty()) {
    return unknown_argument(*command, extras.front());
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) return concat(error.what(), "; it takes a number");
  return error.what();
}

std::string with_hint(const std::string& message, const CLI::App& root, const std::vector<std::string>& arguments) {
  return message + (message.ends_with('?') ? " See " : "; see ") + named_command(root, arguments).second + " --help";
}

void refuse_empty(const CLI::App& root) {
  for (const CLI::App* command : root.get_subcommands()) {
    for (const CLI::Option* option : command->get_options()) {
      if (option->count() == 0 || option->get_expected_min() == 0) continue;
      const auto& values = option->results();
      if (std::find(values.begin(), values.end(), "") == values.end()) continue;
      throw InputError(concat(option->get_name(), " is given without a value; give one, or leave it out"));
    }
    refuse_empty(*command);
  }
}

void refuse_beside(const CLI::App& command, const std::string& flag, const std::vector<std::string>& others) {
  if (command.count(flag) == 0) return;
  for (const auto& other : others) {
    if (command.count(other) > 0) {
      throw InputError(concat(other, " has no effect with ", flag, "; leave one of the two out"));
    }
  }
}

void refuse_all_beside(const CLI::App& command, const std::string& flag, const std::vector<std::string>& but) {
  std::vector<std::string> others;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (name != flag && std::find(but.begin(), but.end(), name) == but.end()) others.push_back(name);
  }
  refuse_beside(command, flag, others);
}

}  // namespace tawpipe::sim
