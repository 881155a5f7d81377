// The flags of the commands that measure predictions.
#include "instruments.hpp"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "arguments.hpp"
#include "commands/instruments.hpp"
#include "commands/measure.hpp"
#include "commands/plan.hpp"
#include "commands/what_if.hpp"
#include "flags.hpp"
#include "tawpipe/search/sweep_axis.hpp"

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
  add_usable_memory(*app, request->usable_memory, fmt::format("{}", usable_memory_share));
  add_json_flag(*app, request->json, "every cell");
  add_chart_flag(*app, request->chart, "predicted throughput over measured");
  finish(*app, "Example:\n  tawpipe reproduce tawpipe --json cells.json");
  return {app, [request] { return run_reproduce_tawpipe(*request); }};
}

void add_left_out(CLI::App& app, ReproduceRequest& request) {
  app.add_flag("--leave-out", request.left_out, "Also with each fitted figure left out, as it would be without its fit")
      ->group("Output");
}

Command add_reproduce_vtrain(CLI::App& reproduce) {
  const auto request = std::make_shared<ReproduceRequest>();
  CLI::App* app = add_command(reproduce, "vtrain", "Iterations of Megatron-LM on A100, as vTrain published them");
  app->add_option("--data", request->data, "The measurements, as CSV in vTrain's columns")->type_name("FILE|-")->group("Input");
  add_json_flag(*app, request->json, "every row");
  add_chart_flag(*app, request->chart, "predicted times over measured");
  add_left_out(*app, *request);
  finish(*app, "Example:\n  tawpipe reproduce vtrain --data single_node.csv");
  return {app, [request] { return run_reproduce_vtrain(*request); }};
}

std::string parameters_text() {
  std::string text;
  for (const AxisInfo& info : sweep_parameters)
    text += concat("\n  ", info.name, std::string(20 - info.name.size(), ' '), info.meaning);
  return text + "\n  option.KEY          an option of the schedules that have it";
}

Command add_sweep(CLI::App& parent) {
  const auto request = std::make_shared<SweepRequest>();
  request->schedules = {"tawpipe", "weipipe", "fsdp", "1f1b"};
  CLI::App* app = add_command(parent, "sweep", "Predict over ranges of parameters; where one schedule overtakes another");
  app->add_option("--vary", request->vary,
                  "A parameter and its values, PARAMETER=A,B,C or PARAMETER=FROM:TO:log|linear:N; may be repeated.\nParameters:" +
                      parameters_text())
      ->type_name("PARAMETER=VALUES")
      ->group("Sweep")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app->add_option("--schedules", request->schedules,
                  "Which, comma-separated, each with options if wanted (default tawpipe,weipipe,fsdp,1f1b)")
      ->type_name("NAMES")
      ->group("Schedule")
      ->delimiter(',');
  add_option_flag(*app, request->base, "every schedule that has it");
  add_problem_flags(*app, request->base, "auto");
  add_noise_flags(*app, request->base);
  add_count(*app, "--threads", request->threads, "How many (default all cores); the output is the same", "N", "Other");
  app->add_option("--csv", request->csv, "Write a line for each point and schedule")->type_name("FILE|-")->group("Output");
  add_json_flag(*app, request->base.json, "points and crossovers");
  add_chart_flag(*app, request->chart, "throughput over the range");
  add_report_flag(*app, request->base.report, "the values over the range as charts");
  add_config_flag(*app);
  finish(*app,
         "Example:\n"
         "  tawpipe sweep --vary inter-node=1Gbps:100Gbps:log:16 --schedules tawpipe,fsdp:prefetch=1 \\\n"
         "    --cluster a800x24-10gbe --model llama-48x4096 --sequence 16384 --global-batch 1536 --microbatch 4");
  return {app, [request] { return run_sweep(*request); }};
}

/// Flags of one problem whose values are searched if not given.
void leave_open(CLI::App& app, Request& request) {
  request.recompute = request.layout = "any";
  request.mesh = {.tensor = 0, .context = 0, .data = 0};
  app.remove_option(app.get_option("--microbatches"));
  const auto text = [&](const std::string& flag, const std::string& meaning) { app.get_option(flag)->description(meaning); };
  text("--microbatch", "Sequences of one microbatch (default: any power of two that divides a replica's part of the batch)");
  text("--recompute", "Activations computed again in the backward: none, selective[:PART,...] or full[:N] (default any)");
  text("--tensor-parallel", "Devices that split each matrix product (default any)");
  text("--context-parallel", "Devices that split each sequence (default any)");
  text("--data-parallel", "Replicas of the schedule, each with its part of the batch (default any)");
  text("--layout",
       "Which devices lie next to each other, nearest first: tensor, context, schedule, data\n"
       "(default any of tcsd and tcds)");
  text("--cost", "kernels (default) or roofline, with parameters as simulate takes them");
  text("--shard-states",
       "What data- and context-parallel devices share out: none, optimizer (ZeRO-1), gradients too (ZeRO-2) or\n"
       "parameters too (FSDP) (default any but none)");
  text("--offload",
       "What lies in host memory between its uses: off, activations, optimizer or activations+optimizer\n(default any)");
  text("--layers-per-stage", "Layers of each stage, as simulate takes them (default even or auto)");
  text("--overlap-grad-reduce",
       "Gradients are summed over data- and context-parallel devices while backwards go on: on (default) or off");
  text("--overlap-param-gather", "New weights are gathered while the next iteration's forwards begin: on (default) or off");
}

Command add_plan(CLI::App& parent) {
  const auto flags = std::make_shared<PlanFlags>();
  Request& request = flags->base;
  CLI::App* app = add_command(parent, "plan", "How to train: the fastest layout, schedule and options, with a proof");
  app->add_option("--schedules", flags->schedules,
                  "Which may be chosen, comma-separated, each with options if wanted (default: all but zb-auto,\n"
                  "with the options that matter; docs/plan.md)")
      ->type_name("NAMES")
      ->group("Schedule")
      ->delimiter(',');
  add_option_flag(*app, request, "every schedule that has it");
  add_problem_flags(*app, request, "any");
  app->get_option("--products")
      ->description(
          "Format of the layers' matrix products: 16bit (default), fp8, fp8-rows, fp8-block, mxfp8 or nvfp4; of\n"
          "several, comma-separated, the fastest")
      ->type_name("FORMATS");
  leave_open(*app, request);
  const auto no_offload = std::make_shared<bool>(false);
  app->add_flag("--no-offload", *no_offload, "Nothing lies in host memory: --offload off")
      ->group("Problem")
      ->excludes("--offload");
  add_count(*app, "--tokens", flags->tokens, "Tokens of one iteration, in place of --global-batch", "TOKENS", "Problem");
  add_count(*app, "--pipeline-parallel", flags->pipeline, "The schedule's own devices, those of a replica (default any)", "N",
            "Layout");
  app->add_option("--devices", flags->devices, "The best for each number of devices, by doubling: how many are worth it")
      ->type_name("FROM..TO")
      ->group("Problem");
  app->add_option("--today", flags->today,
                  "What is run today, the plan to beat: a script with Megatron-LM's flags, a torchtitan TOML or a DeepSpeed\n"
                  "JSON. It says the problem where no flag does (docs/plan.md)")
      ->type_name("FILE|-")
      ->group("Problem");
  app->add_option("--price", flags->price, "Of a device's hour, for the price of a billion tokens")
      ->type_name("PRICE")
      ->group("Problem")
      ->check(CLI::PositiveNumber);
  add_count(*app, "--top", flags->top, "How many plans are shown (default 5)", "N", "Output");
  app->add_option("--emit", flags->emit,
                  "Print the best plan that a framework can run as its settings: megatron, torchtitan or deepspeed")
      ->type_name("FRAMEWORK")
      ->group("Output");
  add_count(*app, "--budget", flags->budget, "Tasks that may be looked at: more takes longer and proves more", "TASKS", "Other");
  add_count(*app, "--threads", flags->threads, "How many (default all cores); the output is the same", "N", "Other");
  add_json_flag(*app, request.json, "the plans, best first,");
  add_report_flag(*app, request.report, "the plans, their timelines and what was searched");
  add_config_flag(*app);
  finish(*app,
         "Ctrl-C shows the best so far.\n\n"
         "Examples:\n"
         "  tawpipe plan --cluster dgx-h100*4 --model llama-2-70b --sequence 32768 --global-batch 32\n"
         "  tawpipe plan --cluster dgx-h100*4 --today train.sh\n"
         "  tawpipe plan --cluster dgx-h100*4 --model llama-3-70b --sequence 8192 --global-batch 128 --emit torchtitan\n"
         "  tawpipe plan --cluster dgx-h100 --devices 8..64 --price 2.5 --model llama-3-8b --sequence 8192 --tokens 4194304");
  return {app, [flags, app, no_offload] {
            for (const char* flag : {"--sequence-parallel", "--context-exchange", "--shard-states", "--reshard",
                                     "--overlap-grad-reduce", "--overlap-param-gather", "--tp-comm-overlap", "--gradient-dtype",
                                     "--moment-dtype", "--master-dtype", "--offload", "--layers-per-stage"}) {
              if (app->count(flag) > 0) flags->given.emplace_back(flag);
            }
            if (*no_offload) flags->given.emplace_back("--offload");
            return run_plan(*flags);
          }};
}

Command add_bound(CLI::App& parent) {
  const auto flags = std::make_shared<PlanFlags>();
  CLI::App* app = add_command(parent, "bound", "How fast any schedule of any kind can be, and why");
  add_problem_flags(*app, flags->base, "any");
  for (const char* flag : {"--microbatch", "--microbatches", "--recompute", "--tensor-parallel", "--context-parallel",
                           "--data-parallel", "--layout", "--sequence-parallel", "--context-exchange", "--shard-states",
                           "--reshard", "--overlap-grad-reduce", "--overlap-param-gather", "--tp-comm-overlap", "--hold-sms"}) {
    app->remove_option(app->get_option(flag));
  }
  app->get_option("--cost")->description("kernels (default) or roofline, with parameters as simulate takes them");
  add_count(*app, "--tokens", flags->tokens, "Tokens of one iteration, in place of --global-batch", "TOKENS", "Problem");
  add_json_flag(*app, flags->base.json, "the bound with what it follows from");
  add_config_flag(*app);
  finish(*app, "Example:\n  tawpipe bound --cluster a800x24-10gbe --model llama-48x1024 --sequence 16384 --global-batch 1536");
  return {app, [flags] { return run_bound(*flags); }};
}

Command add_sensitivity(CLI::App& parent) {
  const auto request = std::make_shared<Request>();
  CLI::App* app = add_command(parent, "sensitivity", "What a tenth more of each speed buys");
  app->add_option("--schedule", request->schedule, "Which schedule (tawpipe list schedules)")
      ->type_name("NAME")
      ->group("Schedule");
  add_option_flag(*app, *request, "the schedule");
  add_problem_flags(*app, *request, "1");
  add_json_flag(*app, request->json, "the gains");
  add_config_flag(*app);
  finish(*app,
         "Example:\n"
         "  tawpipe sensitivity --schedule tawpipe --cluster a800x24-10gbe --model llama-48x4096 --sequence 16384 \\\n"
         "    --global-batch 1536 --microbatch 4");
  return {app, [request] { return run_sensitivity(*request); }};
}

Command add_improve(CLI::App& parent) {
  const auto request = std::make_shared<ImproveRequest>();
  CLI::App* app = add_command(parent, "improve", "A faster task graph than any schedule's, by local search");
  app->add_option("--schedule", request->base.schedule, "Where to start (default: the best of those that compare shows)")
      ->type_name("NAME")
      ->group("Schedule");
  add_option_flag(*app, request->base, "the schedule");
  add_problem_flags(*app, request->base, "auto", "auto");
  app->add_option("--out", request->out, "Write the schedule, for --schedule-file of simulate, validate and export")
      ->type_name("FILE|-")
      ->group("Output");
  add_count(*app, "--budget", request->budget, "Tasks that are timed (default 50000000: about half a minute)", "TASKS", "Search");
  add_json_flag(*app, request->base.json, "the changes and what each brought");
  add_config_flag(*app);
  finish(*app,
         "Example:\n"
         "  tawpipe improve --cluster a800x24-10gbe --model llama-48x1024 --sequence 4096 --global-batch 1536 \\\n"
         "    --schedule tawpipe --budget 5000000 --out improved.json");
  return {app, [request] { return run_improve(*request); }};
}

Command add_measure(CLI::App& parent) {
  const auto request = std::make_shared<MeasureRequest>();
  CLI::App* app = add_command(parent, "measure", "Figures of a GPU's curves, by kernels that are run on it");
  app->add_option("--gpu", request->gpu, "Which one, as CUDA numbers them (default 0)")
      ->type_name("N")
      ->check(CLI::Range(0, 1023));
  app->add_option("--device", request->device, "Whose data sheet the shares are of (default: by the name of its driver)")
      ->type_name("NAME");
  app->add_option("--largest", request->largest, "Rows of the largest products, a multiple of 64 (default 8192)")
      ->type_name("N")
      ->check(CLI::Range(64, 65536));
  app->add_option("--out,--json", request->out, "Write what was measured and found as JSON, for --cost kernels:file=FILE")
      ->type_name("FILE|-");
  finish(*app,
         "Examples:\n"
         "  tawpipe measure --out gpu.json\n"
         "  tawpipe compare --cost kernels:file=gpu.json --cluster 'dgx-h100*2' --model llama-3-8b \\\n"
         "    --sequence 8192 --global-batch 128");
  return {app, [request] { return run_measure(*request); }};
}

Command add_calibrate(CLI::App& parent) {
  const auto request = std::make_shared<CalibrateRequest>();
  CLI::App* app =
      add_command(parent, "calibrate", "Links from nccl-tests, or all times from measured timelines or PyTorch's traces");
  app->add_option("files", request->files, "Outputs of all_reduce_perf, broadcast_perf, reduce_perf, sendrecv_perf, ...")
      ->type_name("")
      ->group("Links");
  add_json_flag(*app, request->json, "a fragment of a cluster file");
  const auto files = [&](const std::string& name, const char* group, std::vector<std::string>& values, const std::string& text) {
    app->add_option(name, values, text)->type_name("FILE|-")->group(group)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  files("--timeline", "Timelines", request->timelines, "What tawpipe train --timeline wrote; may be repeated");
  files("--schedule-file", "Timelines", request->schedules, "What tawpipe train --schedule-out wrote; one for each timeline");
  constexpr const char* traces = "Traces of PyTorch's profiler";
  files("--kineto", traces, request->kineto, "What torch.profiler's export_chrome_trace wrote on a rank; may be repeated");
  const auto part = [&](const std::string& name, std::string& value, const std::string& what) {
    app->add_option(name, value, concat("What record_function(), or a module's class, calls ", what, " (default ", value, ")"))
        ->type_name("NAME")
        ->group(traces);
  };
  part("--layer", request->names.layer, "a layer");
  part("--embedding", request->names.embedding, "the embedding");
  part("--head", request->names.head, "the head");
  app->add_option("--cluster", request->cluster, "That they ran on (as --cluster of simulate)")
      ->type_name("CLUSTER")
      ->group("Timelines and traces");
  add_device_flag(*app, request->device, "Timelines and traces");
  app->add_option("--out", request->out, "Write the measured times, for --cost measured:FILE")
      ->type_name("FILE|-")
      ->group("Timelines and traces");
  finish(*app,
         "Examples:\n"
         "  broadcast_perf -b 8 -e 1G -f 2 -g 8 > node.txt\n"
         "  tawpipe calibrate node.txt --json links.json\n"
         "  tawpipe calibrate --timeline t.csv --schedule-file s.json --cluster 2x2 --out cost.json\n"
         "  tawpipe calibrate --kineto rank0.pt.trace.json --layer LlamaDecoderLayer --cluster dgx-h100*2 --out cost.json");
  return {app, [request] { return run_calibrate(*request); }};
}

Command add_compare_timelines(CLI::App& parent) {
  const auto request = std::make_shared<CompareTimelinesRequest>();
  CLI::App* app = add_command(parent, "compare-timelines", "How far a predicted timeline is from a measured one");
  app->add_option("predicted", request->predicted, "CSV that simulate --timeline wrote")
      ->type_name("")
      ->required()
      ->group("Input");
  app->add_option("measured", request->measured, "CSV that train --timeline wrote, of the same schedule")
      ->type_name("")
      ->required()
      ->group("Input");
  add_json_flag(*app, request->json, "the differences");
  finish(*app, "Example:\n  tawpipe compare-timelines predicted.csv measured.csv");
  return {app, [request] { return run_compare_timelines(*request); }};
}

Command add_doctor(CLI::App& parent) {
  const auto request = std::make_shared<DoctorRequest>();
  CLI::App* app = add_command(parent, "doctor", "What keeps a PyTorch job from going on, from its flight recorder's dumps");
  app->add_option("dumps", request->dumps, "The ranks' dumps (JSON or pickle), or their folder; a name ends in its rank")
      ->type_name("")
      ->required()
      ->group("Input");
  add_json_flag(*app, request->json, "verdict, culprits and waits");
  add_report_flag(*app, request->report, "who waits for whom");
  finish(*app,
         "Examples:\n"
         "  tawpipe doctor /tmp/nccl_trace_rank_*\n"
         "  tawpipe doctor dumps/ --json verdict.json");
  return {app, [request] { return run_doctor(*request); }};
}

Command add_what_if(CLI::App& parent) {
  const auto request = std::make_shared<WhatIfRequest>();
  CLI::App* app =
      add_command(parent, "what-if", "How long traced steps would take without stragglers, gaps, or with other speeds");
  app->add_option("traces", request->traces,
                  "Traces of PyTorch's profiler, one a rank, or one straggler trace as CSV (docs/what_if.md)")
      ->type_name("")
      ->required()
      ->group("Input");
  app->add_flag("--partial", request->partial, "Go on though traces of ranks are missing")->group("Input");
  const auto all = CLI::MultiOptionPolicy::TakeAll;
  app->add_option("--without-straggler", request->stragglers,
                  "As fast as its peers: a rank, stage:K, stage:last, dp:K, worst:N, worst:P% or all; may be repeated")
      ->type_name("WHO")
      ->group("Questions")
      ->multi_option_policy(all);
  app->add_option("--scale", request->scales,
                  "Times of a kind multiplied: compute, forward, backward, update, matmul, attention, communication, copy,\n"
                  "host or names that match /EXPRESSION/, as matmul=0.5; may be repeated")
      ->type_name("KIND=FACTOR")
      ->group("Questions")
      ->multi_option_policy(all);
  app->add_option("--scale-bandwidth", request->bandwidth, "Communication as many times as fast")
      ->type_name("FACTOR")
      ->group("Questions")
      ->check(CLI::PositiveNumber);
  app->add_flag("--no-gaps", request->no_gaps, "The host takes no time: nothing waits but for data")->group("Questions");
  app->add_flag("--together", request->together, "All that is asked at once, not one by one")->group("Questions");
  app->add_option("--out", request->out, "Write measured times, for simulate, compare, ... --cost measured:FILE")
      ->type_name("FILE|-")
      ->group("Output");
  add_count(*app, "--layers", request->layers, "Of the model, for --out from a straggler trace", "N", "Output");
  app->add_option("--cluster", request->cluster, "That the traces were taken on, for --out from a profiler's")
      ->type_name("CLUSTER")
      ->group("Output");
  add_device_flag(*app, request->device, "Output");
  add_json_flag(*app, request->json, "replay, answers and ranks");
  add_report_flag(*app, request->report, "the step as traced and under each question");
  app->add_option("--gantt", request->gantt, "Draw the first step as traced")->type_name("FILE.svg|.png")->group("Output");
  finish(*app,
         "Without questions: what costs most.\n\n"
         "Examples:\n"
         "  tawpipe what-if rank0.json rank1.json\n"
         "  tawpipe what-if trace.csv --without-straggler worst:1% --no-gaps --together\n"
         "  tawpipe what-if rank0.json rank1.json --scale attention=0.5 --scale '/layer_norm/=0' --report answers.html");
  return {app, [request] { return run_what_if(*request); }};
}

}  // namespace

std::vector<Command> add_instruments(CLI::App& app) {
  std::vector<Command> commands;
  CLI::App* reproduce = add_command(app, "reproduce", "Predict what others measured, and show the error of every figure");
  reproduce->require_subcommand(0, 1);
  const auto truth = std::make_shared<ReproduceRequest>();
  reproduce->add_option("files", truth->files, "Tables of measured training runs, as CSV (docs/accuracy.md)")
      ->type_name("FILE")
      ->group("Input");
  add_json_flag(*reproduce, truth->json, "every row");
  add_chart_flag(*reproduce, truth->chart, "predicted times over measured");
  add_left_out(*reproduce, *truth);
  finish(*reproduce, "Examples:\n  tawpipe reproduce mlperf.csv torchtitan.csv --json truth.json\n  tawpipe reproduce tawpipe");
  commands.push_back(add_reproduce_tawpipe(*reproduce));
  commands.push_back(add_reproduce_vtrain(*reproduce));
  commands.push_back({reproduce, [truth] {
                        if (truth->files.empty()) {
                          throw InputError("a command is missing; give tables of measured runs, or tawpipe or vtrain");
                        }
                        return run_reproduce_truth(*truth);
                      }});
  commands.push_back(add_plan(app));
  commands.push_back(add_bound(app));
  commands.push_back(add_sweep(app));
  commands.push_back(add_improve(app));
  commands.push_back(add_sensitivity(app));
  commands.push_back(add_calibrate(app));
  commands.push_back(add_measure(app));
  commands.push_back(add_compare_timelines(app));
  commands.push_back(add_doctor(app));
  commands.push_back(add_what_if(app));
  return commands;
}

}  // namespace tawpipe::sim
