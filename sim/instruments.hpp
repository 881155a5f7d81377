// The commands that measure predictions rather than make one: reproduce, plan, sweep, calibrate and
// others.
// Not: the other commands (main.cpp).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

namespace tawpipe::sim {

/// A command of the command line, and its action.
struct Command {
  CLI::App* app;
  std::function<int()> run;
};

/// Adds the commands to `app`. They may be run once, while `app` lives.
std::vector<Command> add_instruments(CLI::App& app);
/// Those of them that predict many problems (search_flags.cpp).
std::vector<Command> add_searches(CLI::App& app);

}  // namespace tawpipe::sim
