// `tawpipe completion SHELL`: scripts by which shells ask the command what may come next, and the answers.
// Not: the flags themselves.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tawpipe::sim {

/// Prints the script for bash, zsh or fish. @throws InputError  for another shell
int run_completion(const std::string& shell);

/// What the last word may become: commands, flags, or a flag's values. Empty where a file's name stands.
/// @param words  those after `tawpipe`; the last one is being typed
std::vector<std::string> completions(const CLI::App& root, const std::vector<std::string>& words);

}  // namespace tawpipe::sim
