// The command `tawpipe`: its flags, and its exit codes. The only file that sees CLI11.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "request.hpp"
#include "tawpipe/core/version.hpp"

namespace {

using tawpipe::sim::Request;

/// A subcommand's flags and what runs it.
struct Command {
  CLI::App* app = nullptr;
  int (*run)(const Request&) = nullptr;
};

void add_output_flags(CLI::App& app, Request& request) {
  app.add_option("--json", request.json, "Write the result as JSON to a file, or - for standard output")->type_name("FILE|-");
}

/// The flags that say what is to be trained and where.
void add_problem_flags(CLI::App& app, Request& request, const std::string& microbatch_default) {
  app.add_option("--cluster", request.cluster, "A name (list clusters), a file, NxM (N nodes of M devices), 8+8+4, or NAME*NODES")
      ->type_name("CLUSTER");
  app.add_option("--model", request.model, "A name (list models), llama-LxH, or a Hugging Face config.json")->type_name("MODEL");
  app.add_option("--option", request.options, "An option of the schedule (list schedules); may be repeated")
      ->type_name("KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--sequence", request.sequence, "Tokens of one sequence")->type_name("TOKENS");
  app.add_option("--microbatch", request.microbatch,
                 "Sequences of one microbatch, or auto: the fastest that fits (default " + microbatch_default + ")")
      ->type_name("N|auto");
  app.add_option("--global-batch", request.global_batch, "Sequences of one iteration, over all devices")->type_name("N");
  app.add_option("--microbatches", request.microbatches, "Microbatches of one iteration, in place of --global-batch")
      ->type_name("N");
  app.add_option("--tensor-parallel", request.layout.tensor, "Devices that split each matrix product")->type_name("N");
  app.add_option("--context-parallel", request.layout.context, "Devices that split each sequence")->type_name("N");
  app.add_option("--data-parallel", request.layout.data, "Replicas of the schedule, each with its part of the batch")
      ->type_name("N");
  app.add_option("--layout", request.layout.order,
                 "Which devices lie side by side, nearest first: tensor, context, schedule, data (default tcsd)")
      ->type_name("ORDER");
  app.add_option("--recompute", request.recompute,
                 "Activations computed again in the backward: none, selective or full (default)")
      ->type_name("POLICY");
  app.add_option("--cost", request.cost,
                 "roofline[:utilization=0.45,memory-utilization=0.8,overhead=8.4us,all-reduce=ring|tree] or\n"
                 "fixed:forward=18522us,backward_input=18086us,backward_weight=9337us,transfer=601us (times of one stage and\n"
                 "microbatch; needs no model)")
      ->type_name("COST");
}

void add_schedule_flag(CLI::App& app, Request& request) {
  app.add_option("--schedule", request.schedule, "Which schedule (list schedules)")->type_name("NAME");
}

/// A later flag replaces an earlier one, so that the command line has the last word over --config.
void let_last_win(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 1 && option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw) {
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
}

/// The flags that a --config FILE holds, put before those of the command line.
/// @throws tawpipe::InputError  naming the file and the key that is wrong
std::vector<std::string> with_config(const CLI::App& root, std::vector<std::string> arguments) {
  std::string file;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--config" && i + 1 < arguments.size()) {
      file = arguments[i + 1];
      arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 2);
      break;
    }
    if (arguments[i].rfind("--config=", 0) == 0) {
      file = arguments[i].substr(9);
      arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
  }
  if (file.empty() || arguments.empty()) return arguments;
  const CLI::App* command = nullptr;
  for (const CLI::App* candidate : root.get_subcommands({})) {
    if (candidate->get_name() == arguments.front()) command = candidate;
  }
  if (command == nullptr) return arguments;
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML{}.from_file(file);
  } catch (const CLI::Error&) {
    throw tawpipe::InputError(tawpipe::concat("the configuration file ", tawpipe::quote(file), " cannot be read"));
  }
  std::vector<std::string> merged{arguments.front()};
  for (const auto& item : items) {
    if (item.name == "++" || item.name == "--") continue;                                // the marks of a section's begin and end
    if (!item.parents.empty() && item.parents.front() != command->get_name()) continue;  // another command's section
    if (command->get_option_no_throw("--" + item.name) == nullptr) {
      throw tawpipe::InputError(tawpipe::concat(file, ": ", command->get_name(), " has no flag ", tawpipe::quote(item.name),
                                                "; see tawpipe ", command->get_name(), " --help"));
    }
    for (const auto& value : item.inputs) merged.push_back("--" + item.name + "=" + value);
  }
  merged.insert(merged.end(), arguments.begin() + 1, arguments.end());
  return merged;
}

int run(int argc, char** argv) {
  using namespace tawpipe::sim;
  CLI::App app{
      "Predicts how fast a model trains on a cluster under each schedule, and what limits it.\n\n"
      "  tawpipe compare --cluster a800x24-10gbe --model llama-48x1024 --sequence 16384 --global-batch 1536\n",
      "tawpipe"};
  app.set_version_flag("--version", std::string{"tawpipe "} + tawpipe::version);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(
      "Exit codes: 0 fine; 1 findings (an invalid schedule, out of memory); 2 bad usage or input; 3 a device or run failed.\n"
      "Every command but list and topology takes --config FILE with its flags as key=value lines.");

  Request request;
  std::string what;
  std::string json;
  CLI::App* list = app.add_subcommand("list", "What schedules, clusters and models there are");
  list->add_option("what", what, "schedules, clusters or models")
      ->required()
      ->check(CLI::IsMember({"schedules", "clusters", "models"}));
  list->add_option("--json", json, "Write it as JSON to a file, or - for standard output")->type_name("FILE|-");

  CLI::App* simulate = app.add_subcommand("simulate", "Predict one schedule: time, bubble, memory, traffic");
  add_schedule_flag(*simulate, request);
  add_problem_flags(*simulate, request, "1");
  add_output_flags(*simulate, request);
  simulate->add_option("--timeline", request.timeline, "Write each task's start and end as CSV")->type_name("FILE");
  simulate->add_option("--trace", request.trace, "Write a trace for chrome://tracing or Perfetto")->type_name("FILE");

  std::vector<std::string> schedules{"tawpipe", "weipipe", "fsdp", "1f1b", "gpipe"};
  bool overlapped = false;
  CLI::App* compare = app.add_subcommand("compare", "Predict several schedules and rank them");
  compare
      ->add_option("--schedules", schedules,
                   "Which, comma-separated, each with options if wanted: tawpipe,1f1b:overlap=on; or all\n"
                   "(default tawpipe,weipipe,fsdp,1f1b,gpipe)")
      ->type_name("NAMES")
      ->delimiter(',');
  compare->add_flag("--overlapped", overlapped, "Let the rivals' communication overlap computation too");
  add_problem_flags(*compare, request, "auto");
  add_output_flags(*compare, request);

  CLI::App* validate = app.add_subcommand("validate", "Prove a schedule free of deadlocks, races and missing work");
  add_schedule_flag(*validate, request);
  add_problem_flags(*validate, request, "1");
  add_output_flags(*validate, request);

  std::string cluster;
  std::string file;
  int nodes = 0;
  CLI::App* topology = app.add_subcommand("topology", "Show a cluster, or import a machine's description");
  topology->require_subcommand(1);
  CLI::App* show = topology->add_subcommand("show", "Nodes, devices and the links between them");
  show->add_option("cluster", cluster, "As --cluster takes it")->required();
  show->add_option("--json", json, "Write the cluster as JSON to a file, or - for standard output")->type_name("FILE|-");
  CLI::App* import = topology->add_subcommand("import", "Read nvidia-smi topo -m, NCCL's topology XML, or cluster JSON");
  import->add_option("file", file, "The file")->required();
  import->add_option("--nodes", nodes, "How many such nodes")->check(CLI::Range(1, 1'000'000));
  import->add_option("--json", json, "Write the cluster as JSON to a file, or - for standard output")->type_name("FILE|-");

  for (CLI::App* command : {simulate, compare, validate}) {
    command->add_option("--config", "Read flags from a file of key=value lines (TOML); the command line wins")->type_name("FILE");
    let_last_win(*command);
  }

  try {
    std::vector<std::string> arguments = with_config(app, {argv + 1, argv + argc});
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    throw tawpipe::InputError(error.what());
  }
  if (list->parsed()) return run_list(what, json);
  if (simulate->parsed()) return run_simulate(request);
  if (compare->parsed()) return run_compare(request, schedules, overlapped);
  if (validate->parsed()) return run_validate(request);
  if (show->parsed()) return run_topology_show(cluster, json);
  return run_topology_import(file, nodes, json);
}

/// One line, whatever the message was.
void complain(const std::string& message) { std::fprintf(stderr, "tawpipe: %s\n", tawpipe::one_line(message).c_str()); }

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const tawpipe::DeviceError& error) {
    complain(error.what());
    return tawpipe::sim::failure;
  } catch (const tawpipe::ScheduleError& error) {
    complain(error.what());
    return tawpipe::sim::findings;
  } catch (const tawpipe::Error& error) {
    complain(error.what());
    return tawpipe::sim::bad_input;
  } catch (const std::bad_alloc&) {
    complain("not enough memory on this machine for a schedule of this size; choose a larger microbatch or a smaller cluster");
    return tawpipe::sim::failure;
  } catch (const std::exception& error) {
    complain(error.what());
    return tawpipe::sim::failure;
  }
}
