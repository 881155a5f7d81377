// The flags of the commands that measure predictions.
#include "instruments.hpp"

#include <memory>
#include <string>

#include "commands/instruments.hpp"
#include "flags.hpp"

namespace tawpipe::sim {

namespace {

CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& text) {
  CLI::App* command = parent.add_subcommand(name, text);
  command->group("Commands");
  return command;
}

Command add_reproduce_tawpipe(CLI::App& reproduce) {
  const auto request = std::make_shared<ReproduceRequest>();
  CLI::App* app = add_command(reproduce, "tawpipe", "The TawPipe paper's tables, arXiv 2511.09741");
  app->add_option("--data", request->data, "Other published cells, as CSV (docs/accuracy.md)")
      ->type_name("FILE|-")
      ->group("Input");
  add_json_flag(*app, request->json, "every cell");
  finish(*app, "Example:\n  tawpipe reproduce tawpipe --json cells.json");
  return {app, [request] { return run_reproduce_tawpipe(*request); }};
}

}  // namespace

std::vector<Command> add_instruments(CLI::App& app) {
  std::vector<Command> commands;
  CLI::App* reproduce = add_command(app, "reproduce", "Predict what others measured, and show the error of every figure");
  reproduce->require_subcommand(1);
  finish(*reproduce, "Example:\n  tawpipe reproduce tawpipe");
  commands.push_back(add_reproduce_tawpipe(*reproduce));
  return commands;
}

}  // namespace tawpipe::sim
