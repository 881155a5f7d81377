// The commands that execute schedules: train, check-numerics.
// Not: their implementation (commands/).
#pragma once

#include <string>

#include "commands/numerics.hpp"
#include "commands/train.hpp"

namespace CLI {
class App;
}

namespace tawpipe::sim {

/// Declares the commands' flags, and runs the one that was given.
class ExecutionCommands {
 public:
  void add_to(CLI::App& app);
  bool parsed() const;
  int run() const;

 private:
  void add_check_numerics(CLI::App& app);
  void add_train(CLI::App& app);

  CLI::App* check_numerics_ = nullptr;
  CLI::App* train_ = nullptr;
  NumericsRequest numerics_;
  TrainRequest training_;
};

}  // namespace tawpipe::sim
