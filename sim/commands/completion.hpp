// `tawpipe completion SHELL`: scripts with which shells query the command for completions, and the
// answers.
// Not: the flags themselves.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tawpipe::sim {

/// Prints the script for bash, zsh or fish. @throws InputError  for any other shell
int run_completion(const std::string& shell);

/// Completions of the last word: commands, flags, or a flag's values. Empty for a file name.
/// @param words  those after `tawpipe`; the last one is being typed
std::vector<std::string> completions(const CLI::App& root, const std::vector<std::string>& words);

}  // namespace tawpipe::sim
