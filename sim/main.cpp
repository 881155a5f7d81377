// The command `tawpipe`: its commands and their flags, and its exit codes.
#include <malloc.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.hpp"
#if TAWPIPE_COMMAND_EXECUTES
#include "choose_kernels.hpp"
#endif
#include "commands/advice.hpp"
#include "commands/chakra.hpp"
#include "commands/completion.hpp"
#include "commands/exchange.hpp"
#include "commands/explain.hpp"
#include "commands/graph.hpp"
#include "commands/instruments.hpp"
#include "commands/validate_order.hpp"
#include "complain.hpp"
#include "execution_flags.hpp"
#include "flags.hpp"
#include "instruments.hpp"
#include "report_file.hpp"
#include "request.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/version.hpp"
#include "terminal_text.hpp"

namespace {

/// `help COMMAND` is `COMMAND --help`.
std::vector<std::string> without_help_word(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
  return arguments;
}

/// @throws tawpipe::InputError  for flags without effect
void check_simulate_flags(const CLI::App& simulate) {
  tawpipe::sim::refuse_all_beside(simulate, "--graph", {"--json", "--times"});
  tawpipe::sim::refuse_beside(
      simulate, "--spread",
      {"--schedule-file", "--fold", "--timeline", "--trace", "--report", "--gantt", "--train-tokens", "--step-time"});
  tawpipe::sim::refuse_beside(simulate, "--step-time", {"--schedule-file"});
  if (simulate.count("--price") > 0 && simulate.count("--train-tokens") == 0)
    throw tawpipe::InputError("--price is of a whole run; give --train-tokens too, such as 15T");
  if (simulate.count("--times") > 0 && simulate.count("--graph") == 0) {
    throw tawpipe::InputError("--times needs --graph; --timeline writes when each task of a schedule runs");
  }
}
/// @throws tawpipe::InputError  for flags without effect
void check_export_flags(const CLI::App& exporting, const std::string& format) {
  const std::vector<std::string> of_csv{"--communication", "--reduce-grad", "--waits", "--older"};
  tawpipe::sim::refuse_beside(exporting, "--graph", {"--schedule-file", "--format", "--out", "--max-tasks"});
  tawpipe::sim::refuse_beside(exporting, "--graph", of_csv);
  tawpipe::sim::refuse_beside(exporting, "--chakra", {"--format", "--out", "--max-tasks", "--graph"});
  tawpipe::sim::refuse_beside(exporting, "--chakra", of_csv);
  for (const auto& flag : of_csv) {
    if (exporting.count(flag) > 0 && format != "pytorch-csv") throw tawpipe::InputError(flag + " needs --format pytorch-csv");
  }
  if (exporting.count("--max-tasks") > 0 && format != "dot") throw tawpipe::InputError("--max-tasks needs --format dot");
}

int run(int argc, char** argv) {
  using namespace tawpipe::sim;
  CLI::App app{"Predicts how fast a model trains on a cluster under each schedule, and what limits it.", "tawpipe"};
  app.get_formatter()->column_width(34);
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", std::string{"tawpipe "} + tawpipe::version, "Show the version")->group("Other");
  finish(
      app,
      "'tawpipe help COMMAND' shows a command's flags and an example.\n"
      "Exit codes: 0 fine; 1 findings (an invalid schedule, out of memory); 2 bad usage or input; 3 a device or run failed.\n\n"
      "Example:\n"
      "  tawpipe compare --cluster a800x24-10gbe --model llama-48x1024 --sequence 16384 --global-batch 1536");

  Request request;
  std::vector<std::string> schedules;
  bool baselines = false;
  CLI::App* compare = add_command(app, "compare", "Predict several schedules and rank them, best first");
  compare
      ->add_option("--schedules", schedules,
                   "Which, comma-separated, each with options if wanted: tawpipe,1f1b:overlap=on; or all\n"
                   "(default tawpipe,weipipe,fsdp,1f1b,gpipe; with --expert-parallel, where weights stay,\n"
                   "1f1b,gpipe,interleaved-1f1b,zb-h1,zb-v)")
      ->type_name("NAMES")
      ->group("Schedule")
      ->delimiter(',');
  add_option_flag(*compare, request, "every schedule that has it");
  compare
      ->add_flag("--baselines", baselines,
                 "Each with full recomputation and its standard options, or as tawpipe reproduce tawpipe runs it, in place "
                 "of its best")
      ->group("Schedule");
  add_problem_flags(*compare, request, "auto", "auto");
  add_json_flag(*compare, request.json, "the results, best first,");
  add_report_flag(*compare, request.report, "the results and all timelines on one clock");
  add_config_flag(*compare);
  finish(
      *compare,
      "Examples:\n"
      "  tawpipe compare --cluster dgx-h100*4 --model llama-3-8b --sequence 8192 --global-batch 512\n"
      "  tawpipe compare --cluster 3x8 --model llama-2-7b --sequence 4096 --global-batch 96 --schedules tawpipe,1f1b:overlap=on");

  GraphRequest plain;
  CLI::App* simulate = add_command(app, "simulate", "Predict one schedule: time, bubble, memory, traffic");
  add_schedule_flags(*simulate, request);
  add_text(*simulate, "--graph", plain.file, "A plain graph of tasks instead (tg1 or JSON, docs/task_graphs.md)", "FILE|-",
           "Schedule");
  add_problem_flags(*simulate, request, "1");
  add_flags_of(*simulate, request, tawpipe::of_noise);
  add_flags_of(*simulate, request, tawpipe::of_run);
  add_text(*simulate, "--fold", request.fold,
           "Simulate devices that do the same once: auto (default: where that is exact), on or off\n"
           "(docs/mesh.md)",
           "auto|on|off", "Layout");
  add_text(*simulate, "--step-time", request.step_time,
           "A step of this run as measured: which speed of --cost kernels explains it, for its other layouts\n"
           "(docs/calibration.md)",
           "TIME", "Times");
  int runs = 0;
  add_count(*simulate, "--spread", runs,
            "Repeat under that many seeds of noise (jitter 0.01 if none is given) and print the spread", "N", "Noise");
  add_json_flag(*simulate, request.json, "the summary");
  add_text(*simulate, "--times", plain.times, "With --graph: write id, start and end of each task in seconds", "FILE|-",
           "Output");
  add_text(*simulate, "--timeline", request.timeline, "Write each task's start and end as CSV", "FILE|-", "Output");
  add_report_flag(*simulate, request.report, "the timeline, memory, links and cluster");
  add_text(*simulate, "--gantt", request.gantt, "Draw the timeline as papers do, a row of cells for each rank, as SVG or PNG",
           "FILE.svg|.png", "Output");
  add_text(*simulate, "--trace", request.trace, "Write a trace for chrome://tracing or Perfetto", "FILE|-", "Output");
  add_config_flag(*simulate);
  finish(*simulate,
         "Examples:\n"
         "  tawpipe simulate --schedule tawpipe --cluster a800x24-10gbe --model llama-48x1024 --sequence 16384 \\\n"
         "    --global-batch 1536 --microbatch auto --trace trace.json\n"
         "  tawpipe simulate --schedule 1f1b --cluster 1x8 --microbatches 24 \\\n"
         "    --cost fixed:forward=9ms,backward_input=9ms,backward_weight=9ms,transfer=1ms");

  CLI::App* validate = add_command(app, "validate", "Prove a schedule free of deadlocks, races and missing work");
  add_schedule_flags(*validate, request);
  add_problem_flags(*validate, request, "1");
  OrderRequest order;
  add_text(*validate, "--semantics", order.semantics,
           "--schedule-file x.csv: what carries sends and receives: nccl (default), gloo or mpi (docs/hangs.md)", "NAME",
           "Order");
  add_text(*validate, "--communicators", order.communicators, "How many they use: one (default, as PyTorch), direction or pair",
           "NAME", "Order");
  add_text(*validate, "--mend", order.mend, "Write the fixed order", "FILE|-", "Output");
  add_json_flag(*validate, request.json, "the findings");
  add_config_flag(*validate);
  finish(*validate,
         "Examples:\n"
         "  tawpipe validate --schedule tawpipe --cluster 3x8 --model llama-2-7b --sequence 4096 --global-batch 96\n"
         "  tawpipe validate --schedule-file pipeline.csv --mend mended.csv");

  std::string what;
  std::string json;
  CLI::App* list = add_command(app, "list", "What schedules, clusters and models there are");
  list->add_option("schedules|clusters|devices|models", what, "Which list")->type_name("")->required()->group("What");
  add_json_flag(*list, json, "the list");
  finish(*list, "Example:\n  tawpipe list schedules");

  std::string explained;
  CLI::App* explain_schedule = add_command(app, "explain", "What a schedule does, with a picture");
  explain_schedule->add_option("schedule", explained, "Its name (tawpipe list schedules)")
      ->type_name("")
      ->required()
      ->group("What");
  finish(*explain_schedule, "Example:\n  tawpipe explain zb-v");

  std::string shell;
  CLI::App* completion = add_command(app, "completion", "A script that lets a shell complete commands, flags and names");
  completion->add_option("bash|zsh|fish", shell, "Which shell")->type_name("")->required()->group("What");
  finish(*completion, "Example:\n  source <(tawpipe completion bash)");

  std::string cluster;
  std::string device;
  std::string inter_node;
  CLI::App* topology = add_command(app, "topology", "Show a cluster, or import a machine's description");
  topology->require_subcommand(1);
  finish(*topology, "Example:\n  tawpipe topology show dgx-a100*2");
  CLI::App* show = add_command(*topology, "show", "Nodes, devices and the links between them");
  show->add_option("cluster", cluster, "As --cluster takes it: a name, NAME*NODES, NxM, 8+8+4 or a file")
      ->type_name("")
      ->required()
      ->group("What");
  add_field(*show, "device", device, "What");
  add_field(*show, "inter-node", inter_node, "What");
  add_json_flag(*show, json, "the cluster");
  finish(*show, "Example:\n  tawpipe topology show dgx-a100*2 --json cluster.json");
  ImportRequest importing;
  CLI::App* import = add_command(
      *topology, "import", "Read nvidia-smi topo -m, rocm-smi --showtopo, NCCL's topology XML or log, Slurm's switches, JSON");
  import->add_option("file", importing.file, "The file")->type_name("")->required()->group("What");
  add_count(*import, "--nodes", importing.nodes, "How many such nodes (default 1)", "N", "What");
  add_field(*import, "device", importing.device, "What");
  add_count(*import, "--nvlinks", importing.nvlinks, "NVLinks of each GPU to NVSwitches, where NCCL's XML has none", "N", "What");
  add_text(*import, "--cluster", importing.cluster, "The nodes below Slurm's switches, as --cluster of simulate", "CLUSTER",
           "What");
  add_text(*import, "--uplink", importing.uplink, "Of each of Slurm's switches (default: all that its nodes send)", "SPEED",
           "What");
  add_json_flag(*import, importing.json, "the cluster");
  finish(*import,
         "Examples:\n"
         "  nvidia-smi topo -m > node.txt\n"
         "  tawpipe topology import node.txt --nodes 4 --json cluster.json\n"
         "  tawpipe topology import partial.xml --nvlinks 18 --json node.json\n"
         "  tawpipe topology import topology.conf --cluster dgx-h100 --uplink 400GBps --json cluster.json");

  ExportRequest how;
  std::string graph_out;
  std::string chakra_out;
  CLI::App* exporting = add_command(app, "export", "Write a schedule for other tools, or for another day");
  add_schedule_flags(*exporting, request);
  add_problem_flags(*exporting, request, "1");
  add_text(*exporting, "--format", how.format, "json (default), pytorch-csv or dot", "FORMAT", "Output");
  add_text(*exporting, "--out", how.out, "Where (default standard output)", "FILE|-", "Output");
  exporting->add_flag("--communication", how.communication, "pytorch-csv: with SEND and RECV")->group("Output");
  exporting->add_flag("--reduce-grad", how.reduce_gradients, "pytorch-csv: with REDUCE_GRAD")->group("Output");
  exporting->add_flag("--waits", how.waits, "pytorch-csv: with WAIT_SEND and WAIT_REDUCE_GRAD, for PyTorch 2.15 and later")
      ->group("Output");
  exporting->add_flag("--older", how.op_first, "pytorch-csv: as its first releases wrote it, F0_s1")->group("Output");
  add_count(*exporting, "--max-tasks", how.max_tasks, "dot: the most tasks that are drawn (default 500)", "N", "Output");
  add_text(*exporting, "--graph", graph_out, "Write a plain graph of tasks instead; JSON if the name ends in .json", "FILE|-",
           "Output");
  add_text(*exporting, "--chakra", chakra_out,
           "Write Chakra execution traces instead, NAME.0.et and so on, with what ASTRA-sim needs to run them", "NAME", "Output");
  add_config_flag(*exporting);
  finish(*exporting,
         "Examples:\n"
         "  tawpipe export --schedule zb-v --cluster 1x4 --microbatches 8 --format pytorch-csv --out zb-v.csv \\\n"
         "    --cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s\n"
         "  tawpipe export --schedule tawpipe --cluster 3x2 --microbatches 6 --graph graph.tg \\\n"
         "    --cost fixed:forward=2s,backward_input=2s,backward_weight=2s,transfer=0s");

  const std::vector<Command> instruments = add_instruments(app);
#if TAWPIPE_COMMAND_EXECUTES
  ExecutionCommands execution;
  execution.add_to(app);
#endif

  std::vector<std::string> given{argv + 1, argv + argc};
  if (!given.empty() && given.front() == "__complete") {
    for (const auto& text : completions(app, {given.begin() + 1, given.end()})) write_output("-", text + "\n");
    return ok;
  }
  command_line = "tawpipe";
  for (const std::string& word : given) command_line += " " + shell_word(word);
  given = without_help_word(std::move(given));
  try {
    std::vector<std::string> arguments = with_config(app, with_own_flags(app, given));
    request.arguments = arguments;
    std::reverse(arguments.begin(), arguments.end());  // in the order that CLI11 expects
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw tawpipe::InputError(with_hint(explain(app, given, error), app, given));
    std::ostringstream text;  // --help, --version
    app.exit(error, text);
    const int width = terminal_width();
    write_output("-", help_text(text.str(), width > 0 ? width : 120));
    return ok;
  }
  try {
    refuse_empty(app);
    for (const CLI::App* command : {simulate, validate, exporting}) {
      refuse_beside(*command, "--schedule-file", {"--schedule", "--option"});
      if (command->count("--comm-groups") > 0 && command->count("--schedule-file") == 0) {
        throw tawpipe::InputError("--comm-groups needs a Chakra trace, --schedule-file NAME.0.et");
      }
    }
    check_simulate_flags(*simulate);
    check_export_flags(*exporting, how.format);
    for (const Command& command : instruments) {
      if (command.app->parsed()) return command.run();
    }
    if (list->parsed()) {
      const std::vector<std::string> lists{"schedules", "clusters", "devices", "models"};
      if (std::find(lists.begin(), lists.end(), what) == lists.end()) {
        throw tawpipe::InputError(tawpipe::unknown_name("list", what, lists));
      }
      return run_list(what, json);
    }
    if (explain_schedule->parsed()) return run_explain(explained);
    if (completion->parsed()) return run_completion(shell);
    if (simulate->parsed()) {
      if (runs > 0) return run_spread(request, runs);
      plain.json = request.json;
      return plain.file.empty() ? run_simulate(request) : run_graph_simulate(plain);
    }
#if TAWPIPE_COMMAND_EXECUTES
    if (execution.parsed()) return execution.run();
#endif
    if (compare->parsed()) return run_compare(request, schedules, baselines);
    if (validate->parsed()) return run_validate(request, order);
    if (show->parsed()) return run_topology_show(cluster, device, inter_node, json);
    if (import->parsed()) return run_topology_import(importing);
    if (!chakra_out.empty()) return run_chakra_export(request, chakra_out);
    return graph_out.empty() ? run_export(request, how) : run_graph_export(request, graph_out);
  } catch (const tawpipe::InputError& error) {
    const std::string message = error.what();
    if (message.starts_with("--")) throw tawpipe::InputError(with_hint(message, app, given));  // a flag is missing or wrong
    throw;
  }
}

/// Keeps freed memory for the next array. Returned to the system at once, as the C library does with
/// large arrays, each of its pages is cleared again: a tenth of the time of a large prediction.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

}  // namespace

int main(int argc, char** argv) {
#if TAWPIPE_COMMAND_EXECUTES
  tawpipe::sim::choose_kernels(argv);
#endif
  keep_freed_memory();
  try {
    return run(argc, argv);
  } catch (const tawpipe::sim::SaidError&) {
    return tawpipe::sim::bad_input;
  } catch (const tawpipe::DeviceError& error) {
    tawpipe::sim::complain(error.what());
    return tawpipe::sim::failure;
  } catch (const tawpipe::ScheduleError& error) {
    tawpipe::sim::complain(error.what());
    return tawpipe::sim::findings;
  } catch (const tawpipe::Error& error) {
    tawpipe::sim::complain(error.what());
    return tawpipe::sim::bad_input;
  } catch (const std::bad_alloc&) {
    tawpipe::sim::complain(
        "not enough memory on this machine for a schedule of this size; choose a larger microbatch or a smaller cluster");
    return tawpipe::sim::bad_input;
  } catch (const std::exception& error) {
    tawpipe::sim::complain(error.what());
    return tawpipe::sim::failure;
  }
}
