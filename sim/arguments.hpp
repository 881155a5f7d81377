// The command line beyond what CLI11 does: configuration files, faults told in one sentence, flags that go together.
// Not: the flags themselves (flags.hpp).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tawpipe::sim {

/// The command of that name below `app`; null where there is none.
const CLI::App* find_command(const CLI::App& app, const std::string& name);

/// The flags that a --config FILE holds, put before those of the command line, which replace them (--option adds).
/// @throws InputError  naming the file and the key that is wrong
std::vector<std::string> with_config(const CLI::App& root, std::vector<std::string> arguments);

/// One sentence about a command line that CLI11 refused: the nearest command or flag.
std::string explain(const CLI::App& root, const std::vector<std::string>& arguments, const CLI::ParseError& error);

/// The message, and which --help says more.
std::string with_hint(const std::string& message, const CLI::App& root, const std::vector<std::string>& arguments);

/// @throws InputError  if a flag of the command that was parsed has an empty value, as `--json "$UNSET"` gives
void refuse_empty(const CLI::App& root);

/// @throws InputError  if one of `others` is given beside `flag`, which makes it meaningless
void refuse_beside(const CLI::App& command, const std::string& flag, const std::vector<std::string>& others);
/// The same of all the command's flags `but` some.
void refuse_all_beside(const CLI::App& command, const std::string& flag, const std::vector<std::string>& but);

}  // namespace tawpipe::sim
