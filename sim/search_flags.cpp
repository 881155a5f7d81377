// The flags of the commands that predict many problems: plan, bound, sweep, improve, sensitivity.
// Not: what they search (commands/).
#include <memory>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "commands/instruments.hpp"
#include "commands/plan.hpp"
#include "flags.hpp"
#include "instruments.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/search/sweep_axis.hpp"

namespace tawpipe::sim {

namespace {

std::string parameters_text() {
  std::string text;
  for (const AxisInfo& info : sweep_parameters)
    text += concat("\n  ", info.name, std::string(20 - info.name.size(), ' '), info.meaning);
  return text +
         "\n  option.KEY          an option of the schedules that have it\n"
         "and each flag of a problem by its name, such as sequence or expert-dispatch (values with commas between ;)";
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
  add_flags_of(*app, request->base, of_noise);
  add_count(*app, "--threads", request->threads, "How many (default all cores); the output is the same", "N", "Other");
  add_text(*app, "--csv", request->csv, "Write a line for each point and schedule", "FILE|-", "Output");
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

Command add_plan(CLI::App& parent) {
  const auto flags = std::make_shared<PlanFlags>();
  JobQuestion& job = flags->job;
  CLI::App* app = add_command(parent, "plan", "How to train: the fastest layout, schedule and options, with a proof");
  app->add_option("--schedules", flags->schedules,
                  "Which may be chosen, comma-separated, each with options if wanted (default: all but zb-auto,\n"
                  "with the options that matter; docs/search_space.md)")
      ->type_name("NAMES")
      ->group("Schedule")
      ->delimiter(',');
  add_option_flag(*app, job, "every schedule that has it");
  add_planned_flags(*app, job);
  app->get_option("--gemm-format")->type_name("FORMATS");
  app->add_flag_callback(
         "--no-offload", [&job] { job.set("offload", "off"); }, "Nothing lies in host memory: --offload off")
      ->group("Problem")
      ->excludes("--offload");
  add_tokens(*app, "--tokens", flags->tokens, "Tokens of one iteration, in place of --global-batch", "Problem");
  add_count(*app, "--pipeline-parallel", flags->pipeline, "The schedule's own devices, those of a replica (default any)", "N",
            "Layout");
  add_text(*app, "--devices", flags->devices, "The best for each number of devices, by doubling: how many are worth it",
           "FROM..TO", "Problem");
  app->add_option(
         "--what-if", flags->what_if,
         "A change of the cluster, searched again: nodes=8, network=800Gbps, device=B200 or cluster=hgx-b200x4, several\n"
         "of them with commas between, with price=5.5USD of its device's hour; catalogue: what is usually asked. May be\n"
         "repeated (docs/plan.md)")
      ->type_name("CHANGE")
      ->group("Problem")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_text(
      *app, "--today", flags->today,
      "What is run today, the plan to beat: a script with Megatron-LM's flags, a log that begins with its\n"
      "arguments, a torchtitan TOML, a DeepSpeed JSON or a YAML. It says the problem where no flag does (docs/frameworks.md)",
      "FILE|-", "Problem");
  app->add_option("--args", flags->args, "The arguments of the script of --today: $1, $2, ...")
      ->type_name("WORD ...")
      ->group("Problem")
      ->needs("--today");
  app->add_option("--env", flags->env, "A variable that the script of --today takes from its environment; may be repeated")
      ->type_name("NAME=VALUE")
      ->group("Problem")
      ->needs("--today")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app->add_flag("--strict", flags->strict, "Names in the file of --today that are not known are errors")
      ->group("Problem")
      ->needs("--today");
  add_count(*app, "--vocab-size", flags->vocab_size, "Tokens of the vocabulary, where the file of --today names a tokenizer only",
            "N", "Problem");
  app->get_option("--vocab-size")->needs("--today");
  add_text(*app, "--step-time", flags->step_time,
           "A step of what --today runs, as measured, such as 9.1s: what plans take follows from it (a log says its own)", "TIME",
           "Problem");
  app->get_option("--step-time")->needs("--today");
  add_flags_of(*app, job, of_run);
  add_count(*app, "--top", flags->top, "How many plans are shown (default 5)", "N", "Output");
  add_text(*app, "--emit", flags->emit,
           "Print the best plan that a framework can run as its settings: megatron, torchtitan or deepspeed", "FRAMEWORK",
           "Output");
  add_count(*app, "--budget", flags->budget, "Tasks that may be looked at: more takes longer and proves more", "TASKS", "Other");
  add_count(*app, "--seconds", flags->seconds, "The same by the clock (default none); the answer says where it ended the search",
            "SECONDS", "Other");
  add_count(*app, "--threads", flags->threads, "How many (default all cores); the output is the same", "N", "Other");
  add_json_flag(*app, flags->json, "the plans, best first,");
  add_report_flag(*app, flags->report, "the plans, their timelines and what was searched");
  add_config_flag(*app);
  finish(*app,
         "Ctrl-C shows the best so far.\n\n"
         "Examples:\n"
         "  tawpipe plan --cluster dgx-h100*4 --model llama-2-70b --sequence 32768 --global-batch 32\n"
         "  tawpipe plan --cluster dgx-h100*4 --today train.sh\n"
         "  tawpipe plan --cluster dgx-h100*4 --model llama-3-70b --sequence 8192 --global-batch 128 --emit torchtitan\n"
         "  tawpipe plan --cluster dgx-h100 --devices 8..64 --price 2.5 --model llama-3-8b --sequence 8192 --tokens 4194304\n"
         "  tawpipe plan --cluster dgx-h100*4 --model llama-3-8b --sequence 8192 --global-batch 128 --train-tokens 15T\n"
         "  tawpipe plan --cluster dgx-h100x4 --price 2.5 --what-if catalogue --what-if device=B200,price=5 \\\n"
         "    --model llama-3-8b --sequence 8192 --global-batch 128");
  return {app, [flags] { return run_plan(*flags); }};
}

Command add_bound(CLI::App& parent) {
  const auto flags = std::make_shared<PlanFlags>();
  CLI::App* app = add_command(parent, "bound", "How fast any schedule of any kind can be, and why");
  add_bound_flags(*app, flags->job);
  add_tokens(*app, "--tokens", flags->tokens, "Tokens of one iteration, in place of --global-batch", "Problem");
  add_json_flag(*app, flags->json, "the bound with what it follows from");
  add_config_flag(*app);
  finish(*app, "Example:\n  tawpipe bound --cluster a800x24-10gbe --model llama-48x1024 --sequence 16384 --global-batch 1536");
  return {app, [flags] { return run_bound(*flags); }};
}

Command add_sensitivity(CLI::App& parent) {
  const auto request = std::make_shared<Request>();
  CLI::App* app = add_command(parent, "sensitivity", "What a tenth more of each speed buys");
  add_text(*app, "--schedule", request->schedule, "Which schedule (tawpipe list schedules)", "NAME", "Schedule");
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
  add_text(*app, "--schedule", request->base.schedule, "Where to start (default: the best of those that compare shows)", "NAME",
           "Schedule");
  add_option_flag(*app, request->base, "the schedule");
  add_problem_flags(*app, request->base, "auto", "auto");
  add_text(*app, "--out", request->out, "Write the schedule, for --schedule-file of simulate, validate and export", "FILE|-",
           "Output");
  add_count(*app, "--budget", request->budget, "Tasks that are timed (default 50000000: about half a minute)", "TASKS", "Search");
  add_json_flag(*app, request->base.json, "the changes and what each brought");
  add_config_flag(*app);
  finish(*app,
         "Example:\n"
         "  tawpipe improve --cluster a800x24-10gbe --model llama-48x1024 --sequence 4096 --global-batch 1536 \\\n"
         "    --schedule tawpipe --budget 5000000 --out improved.json");
  return {app, [request] { return run_improve(*request); }};
}

}  // namespace

std::vector<Command> add_searches(CLI::App& app) {
  return {add_plan(app), add_bound(app), add_sweep(app), add_improve(app), add_sensitivity(app)};
}

}  // namespace tawpipe::sim
