// How the command line is read beyond what CLI11 does.
#include "arguments.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::sim {

namespace {

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* candidate : app.get_subcommands({})) {
    if (candidate->get_name() == name) return candidate;
  }
  return nullptr;
}

/// Takes each --config FILE out of the arguments. @throws InputError  if there are two
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

/// The command that the arguments name, as deep as they do, and how it is called: "tawpipe topology show".
std::pair<const CLI::App*, std::string> named_command(const CLI::App& root, const std::vector<std::string>& arguments) {
  std::pair<const CLI::App*, std::string> named{&root, "tawpipe"};
  for (const auto& argument : arguments) {
    const CLI::App* deeper = find_command(*named.first, argument);
    if (deeper == nullptr) break;
    named = {deeper, named.second + " " + argument};
  }
  return named;
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
  const std::string close = nearest(flag, flags);
  return concat("unknown flag ", quote(flag), close.empty() ? "" : concat("; did you mean ", quote(close), "?"));
}

}  // namespace

std::vector<std::string> with_config(const CLI::App& root, std::vector<std::string> arguments) {
  const std::string file = take_config(arguments);
  if (file.empty() || arguments.empty()) return arguments;
  const CLI::App* command = find_command(root, arguments.front());
  if (command == nullptr) return arguments;
  if (command->get_option_no_throw("--config") == nullptr) throw InputError(concat(command->get_name(), " takes no --config"));
  std::vector<CLI::ConfigItem> items;
  try {
    std::ifstream in{file};
    std::error_code none;
    if (!in || std::filesystem::is_directory(file, none)) {
      throw InputError(concat("the configuration file ", quote(file), " cannot be read"));
    }
    items = CLI::ConfigTOML{}.from_config(in);
  } catch (const CLI::Error& error) {
    throw InputError(concat("the configuration file ", quote(file), " cannot be used: ", error.what()));
  }
  std::vector<std::string> merged{arguments.front()};
  for (const auto& item : items) {
    if (!item.parents.empty() && find_command(root, item.parents.front()) == nullptr) {
      throw InputError(
          concat(file, ": there is no command ", quote(one_line(item.parents.front())), " that the section could be for"));
    }
    if (item.name == "++" || item.name == "--") continue;                                // the marks of a section's begin and end
    if (!item.parents.empty() && item.parents.front() != command->get_name()) continue;  // another command's section
    const std::string flag = "--" + item.name;
    if (command->get_option_no_throw(flag) == nullptr || flag == "--config" || flag == "--help") {
      throw InputError(concat(file, ": ", command->get_name(), " has no flag ", quote(one_line(item.name)), "; see tawpipe ",
                              command->get_name(), " --help"));
    }
    if (is_given(arguments, flag) && flag != "--option") continue;
    for (const auto& value : item.inputs) merged.push_back(flag + "=" + value);
  }
  merged.insert(merged.end(), arguments.begin() + 1, arguments.end());
  return merged;
}

std::string explain(const CLI::App& root, const std::vector<std::string>& arguments, const CLI::ParseError& error) {
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
      throw InputError(concat(other, " has no effect beside ", flag, "; leave one of the two out"));
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
