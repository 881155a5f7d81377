// The command line beyond CLI11: configuration files, one-sentence errors, combinations of flags.
// Not: the flags themselves (flags.hpp).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tawpipe::sim {

/// The command of that name below `app`; null if there is none.
const CLI::App* find_command(const CLI::App& app, const std::string& name);

/// Flags of a command by its names for them where other tools have another: --tp, --seq-length.
std::vector<std::string> with_own_flags(const CLI::App& root, std::vector<std::string> arguments);

/// Puts the flags of a --config FILE before those of the command line, which override them
/// (--option adds).
/// @throws InputError  naming the file and the key that is wrong
std::vector<std::string> with_config(const CLI::App& root, std::vector<std::string> arguments);

/// One sentence about a command line that CLI11 rejected: the nearest command or flag.
std::string explain(const CLI::App& root, const std::vector<std::string>& arguments, const CLI::ParseError& error);

/// The message, and the --help to consult.
std::string with_hint(const std::string& message, const CLI::App& root, const std::vector<std::string>& arguments);

/// @throws InputError  if a flag of the command that was parsed has an empty value, as with
/// `--json "$UNSET"`
void refuse_empty(const CLI::App& root);

/// @throws InputError  if one of `others` is given in addition to `flag`, which makes it
/// meaningless
void refuse_beside(const CLI::App& command, const std::string& flag, const std::vector<std::string>& others);
/// The same for all the command's flags except `but`.
void refuse_all_beside(const CLI::App& command, const std::string& flag, const std::vector<std::string>& but);

}  // namespace tawpipe::sim
