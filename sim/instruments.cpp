// The flags of the commands that compare with what was measured.
// Not: those that search (search_flags.cpp).
#include "instruments.hpp"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "arguments.hpp"
#include "commands/instruments.hpp"
#include "commands/measure.hpp"
#include "commands/what_if.hpp"
#include "flags.hpp"
#include "serve/server.hpp"

namespace tawpipe::sim {

namespace {

Command add_reproduce_tawpipe(CLI::App& reproduce) {
  const auto request = std::make_shared<ReproduceRequest>();
  CLI::App* app = add_command(reproduce, "tawpipe", "The TawPipe paper's tables, arXiv 2511.09741");
  add_text(*app, "--data", request->data, "Other published cells, as CSV (docs/accuracy_paper.md)", "FILE|-", "Input");
  add_usable_memory(*app, request->usable_memory, fmt::format("{}", usable_memory_share));
  add_json_flag(*app, request->json, "every cell");
  add_chart_flag(*app, request->chart, "predicted throughput over measured");
  finish(*app, "Example:\n  tawpipe reproduce tawpipe --json cells.json");
  return {app, [request] { return run_reproduce_tawpipe(*request); }};
}

void add_left_out(CLI::App& app, ReproduceRequest& request) {
  app.add_flag("--leave-out", request.left_out, "Also with each fitted or assumed figure left out, as it would be without")
      ->group("Output");
}

Command add_reproduce_vtrain(CLI::App& reproduce) {
  const auto request = std::make_shared<ReproduceRequest>();
  CLI::App* app = add_command(reproduce, "vtrain", "Iterations of Megatron-LM on A100, as vTrain published them");
  add_text(*app, "--data", request->data, "The measurements, as CSV in vTrain's columns", "FILE|-", "Input");
  add_json_flag(*app, request->json, "every row");
  add_chart_flag(*app, request->chart, "predicted times over measured");
  add_left_out(*app, *request);
  finish(*app, "Example:\n  tawpipe reproduce vtrain --data single_node.csv");
  return {app, [request] { return run_reproduce_vtrain(*request); }};
}

Command add_measure(CLI::App& parent) {
  const auto request = std::make_shared<MeasureRequest>();
  CLI::App* app = add_command(parent, "measure", "Figures of a GPU's curves, by kernels that are run on it");
  app->add_option("--gpu", request->gpu, "Which one, as CUDA numbers them (default 0)")
      ->type_name("N")
      ->check(CLI::Range(0, 1023));
  app->add_option("--device", request->device, "Whose data sheet the shares are of (default: by the name of its driver)")
      ->type_name("NAME");
  app->add_option("--largest", request->largest, "Rows of the largest GEMMs, a multiple of 64 (default 8192)")
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

/// What was measured, for the files of its times.
void add_setup_flags(CLI::App& app, MeasuredSetup& setup, const std::string& group) {
  add_text(app, "--model", setup.model, "That was measured, as --model of simulate", "MODEL", group);
  add_tokens(app, "--sequence", setup.sequence, "Tokens of one of its sequences", group);
  add_count(app, "--microbatch", setup.microbatch, "Sequences of one of its microbatches (default 1)", "N", group);
  add_text(app, "--recompute", setup.recompute, "What it computed again: none, selective or full (default none)", "POLICY",
           group);
}

Command add_calibrate(CLI::App& parent) {
  const auto request = std::make_shared<CalibrateRequest>();
  CLI::App* app =
      add_command(parent, "calibrate", "Links from nccl-tests, or all times from measured timelines or PyTorch's traces");
  app->add_option("files", request->files,
                  "Outputs of nccl-tests, as text or JSON: all_gather_perf, reduce_scatter_perf, all_reduce_perf,\n"
                  "alltoall_perf, broadcast_perf, reduce_perf, sendrecv_perf")
      ->type_name("")
      ->group("Links");
  app->add_flag("--ring", request->ring, "all_reduce_perf ran with NCCL_ALGO=Ring: no tree, no sums in NVSwitches")
      ->group("Links");
  add_count(*app, "--adapters", request->adapters, "Network adapters of a node (default as NCCL's log says, or one a GPU)", "N",
            "Links");
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
  add_setup_flags(*app, request->setup, traces);
  add_text(*app, "--cluster", request->cluster, "That they ran on (as --cluster of simulate)", "CLUSTER", "Timelines and traces");
  add_field(*app, "device", request->device, "Timelines and traces");
  add_field(*app, "inter-node", request->inter_node, "Timelines and traces");
  add_text(*app, "--out", request->out, "Write the measured times, for --cost measured:FILE", "FILE|-", "Timelines and traces");
  finish(*app,
         "Examples:\n"
         "  all_gather_perf -b 8 -e 1G -f 2 -g 8 > node.txt\n"
         "  tawpipe calibrate node.txt --json links.json\n"
         "  tawpipe calibrate --timeline t.csv --schedule-file s.json --cluster 2x2 --out cost.json\n"
         "  tawpipe calibrate --kineto rank0.pt.trace.json --layer LlamaDecoderLayer --cluster dgx-h100*2 --model llama-3-8b \\\n"
         "    --sequence 8192 --out cost.json");
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
      ->check(check_by(parse_positive));
  app->add_flag("--no-gaps", request->no_gaps, "The host takes no time: nothing waits but for data")->group("Questions");
  app->add_flag("--together", request->together, "All that is asked at once, not one by one")->group("Questions");
  add_text(*app, "--out", request->out, "Write measured times, for simulate, compare, ... --cost measured:FILE", "FILE|-",
           "Output");
  constexpr const char* of_out = "For --out";
  add_setup_flags(*app, request->setup, of_out);
  add_text(*app, "--cluster", request->cluster, "That the traces were taken on", "CLUSTER", of_out);
  add_field(*app, "device", request->device, of_out);
  add_field(*app, "inter-node", request->inter_node, of_out);
  add_text(*app, "--layer", request->layer, "What a profiler's traces call a layer (default layer)", "NAME", of_out);
  add_json_flag(*app, request->json, "replay, answers and ranks");
  add_report_flag(*app, request->report, "the step as traced and under each question");
  add_text(*app, "--gantt", request->gantt, "Draw the first step as traced", "FILE.svg|.png", "Output");
  finish(*app,
         "Without questions: what costs most.\n\n"
         "Examples:\n"
         "  tawpipe what-if rank0.json rank1.json\n"
         "  tawpipe what-if trace.csv --without-straggler worst:1% --no-gaps --together\n"
         "  tawpipe what-if rank0.json rank1.json --scale attention=0.5 --scale '/layer_norm/=0' --report answers.html");
  return {app, [request] { return run_what_if(*request); }};
}

Command add_serve(CLI::App& parent) {
  const auto request = std::make_shared<ServeRequest>();
  CLI::App* app = add_command(parent, "serve", "The pages of plan and compare in a browser, on this machine only");
  const auto add = [&](const char* flag, int& value, const char* text, const char* type, int least, int most) {
    app->add_option(flag, value, text)->type_name(type)->group("Server")->check(CLI::Range(least, most));
  };
  add("--port", request->port, "Of 127.0.0.1 (default 8471); 0: any that is free", "N", 0, 65535);
  add("--time-limit", request->time_limit, "Seconds of one answer (default 120); plan then shows the best so far", "SECONDS", 1,
      86400);
  add("--jobs", request->jobs, "Answers that are computed at once (default 2)", "N", 1, 64);
  finish(*app,
         "Ctrl-C ends it.\n\n"
         "Examples:\n"
         "  tawpipe serve\n"
         "  tawpipe serve --port 9000 --time-limit 600");
  return {app, [request] { return run_serve(*request); }};
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
  reproduce
      ->add_flag("--experts", truth->experts,
                 "Also predict mixtures of experts, of which no figure was fitted to any (docs/accuracy_experts.md)")
      ->group("Input");
  finish(*reproduce, "Examples:\n  tawpipe reproduce mlperf.csv torchtitan.csv --json truth.json\n  tawpipe reproduce tawpipe");
  commands.push_back(add_reproduce_tawpipe(*reproduce));
  commands.push_back(add_reproduce_vtrain(*reproduce));
  commands.push_back({reproduce, [truth] {
                        if (truth->files.empty()) {
                          throw InputError("a command is missing; give tables of measured runs, or tawpipe or vtrain");
                        }
                        return run_reproduce_truth(*truth);
                      }});
  for (Command& command : add_searches(app)) commands.push_back(std::move(command));
  commands.push_back(add_calibrate(app));
  commands.push_back(add_measure(app));
  commands.push_back(add_compare_timelines(app));
  commands.push_back(add_doctor(app));
  commands.push_back(add_what_if(app));
  commands.push_back(add_serve(app));
  return commands;
}

}  // namespace tawpipe::sim
