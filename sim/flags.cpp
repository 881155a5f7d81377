// Declares the shared flags to CLI11.
#include "flags.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

namespace tawpipe::sim {

void add_text(CLI::App& app, const std::string& name, std::string& value, const std::string& text, const std::string& type,
              const std::string& group) {
  app.add_option(name, value, text)->type_name(type)->group(group);
}

namespace {

/// Text with a command's default in place of "{}".
std::string with_default(std::string text, std::string_view standard) {
  if (const std::size_t at = text.find("{}"); at != std::string::npos) text.replace(at, 2, standard);
  return text;
}

/// A field as a flag that sets its text. @param standard  in place of "{}" in its meaning
CLI::Option* add_job_flag(CLI::App& app, JobTexts& job, const JobField& field, std::string_view standard = {}) {
  const std::string flag = concat("--", field.name);
  const std::string text = with_default(field.meaning, standard);
  if (field.kind == FieldKind::flag) {
    return app
        .add_flag_function(
            flag, [&](std::int64_t count) { job.set(field.name, count > 0 ? "on" : "off"); }, text)
        ->group(std::string{field.group});
  }
  return app
      .add_option_function<std::string>(
          flag, [&](const std::string& given) { job.set(field.name, given); }, text)
      ->type_name(std::string{field.type})
      ->group(std::string{field.group})
      ->check(check_by([&](const std::string& given, std::string_view what) {
        check_number(field, field.kind == FieldKind::tokens ? plain_tokens(given) : given, what);
      }));
}

const std::string memory_default = fmt::format("{} where --microbatch is auto, 1 where it is a number", usable_memory_share);

}  // namespace

void add_field(CLI::App& app, std::string_view name, std::string& value, std::string_view group) {
  const JobField& field = job_field(name);
  add_text(app, concat("--", name), value, field.meaning, std::string{field.type},
           std::string{group.empty() ? field.group : group});
}

CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& text) {
  CLI::App* command = parent.add_subcommand(name, text);
  command->group("Commands");
  return command;
}

void add_usable_memory(CLI::App& app, double& fraction, const std::string& default_text) {
  const JobField& field = job_field("usable-memory");
  app.add_option("--usable-memory", fraction, with_default(field.meaning, default_text))
      ->type_name(std::string{field.type})
      ->group(std::string{field.group})
      ->check(check_by(parse_fraction));
}

void add_json_flag(CLI::App& app, std::string& json, const std::string& what) {
  add_text(app, "--json", json, "Write " + what + " as JSON to a file, or - for standard output", "FILE|-", "Output");
}

void add_report_flag(CLI::App& app, std::string& report, const std::string& what) {
  add_text(app, "--report", report, "Write a page that shows " + what + ", to open in a browser", "FILE.html", "Output");
}

void add_chart_flag(CLI::App& app, std::string& chart, const std::string& what) {
  add_text(app, "--chart", chart, "Draw " + what + ", as SVG or PNG", "FILE.svg|.png", "Output");
}

void add_axis_flags(CLI::App& app, MeshRequest& request) {
  add_field(app, "tensor-parallel", request.mesh.tensor);
  add_field(app, "context-parallel", request.mesh.context);
  add_field(app, "expert-parallel", request.expert_parallel);
  add_field(app, "data-parallel", request.mesh.data);
  add_field(app, "layout", request.layout);
}

void add_sequence_parallel_flag(CLI::App& app, MeshRequest& request) {
  add_field(app, "sequence-parallel", request.sequence_parallel);
}

void add_offload_flag(CLI::App& app, std::string& offload, const std::string& group) {
  add_field(app, "offload", offload, group);
}

void add_inter_node_flag(CLI::App& app, std::string& speed, const std::string& group) {
  add_field(app, "inter-node", speed, group);
}

void add_state_flags(CLI::App& app, MeshRequest& request) {
  add_field(app, "shard-states", request.shard_states);
  add_field(app, "reshard", request.reshard);
  add_field(app, "overlap-grad-reduce", request.overlap_gradients);
  add_field(app, "overlap-param-gather", request.overlap_gathers);
  const JobField& bucket = job_field("bucket");
  add_count<0>(app, "--bucket", request.bucket, bucket.meaning, std::string{bucket.type}, std::string{bucket.group});
}

void add_problem_flags(CLI::App& app, JobTexts& job, const std::string& microbatch_default,
                       const std::string& recompute_default) {
  for (const JobField& field : job_fields()) {
    if (field.group == "Noise") continue;
    add_job_flag(app, job, field,
                 field.name == "microbatch"  ? microbatch_default
                 : field.name == "recompute" ? recompute_default
                                             : memory_default);
  }
}

void add_planned_flags(CLI::App& app, JobTexts& job) {
  for (const JobField& field : job_fields()) {
    if (field.group == "Noise" || field.name == "microbatches") continue;
    CLI::Option* const option = add_job_flag(app, job, field, memory_default);
    if (!field.searched.empty()) option->description(std::string{field.searched});
  }
}

void add_bound_flags(CLI::App& app, JobTexts& job) {
  for (const JobField& field : job_fields()) {
    if (field.group != "Noise" && field.bounds) add_job_flag(app, job, field, memory_default);
  }
  app.get_option("--cost")->description(std::string{job_field("cost").searched});
}

void add_noise_flags(CLI::App& app, JobTexts& job) {
  for (const JobField& field : job_fields()) {
    if (field.group == "Noise") add_job_flag(app, job, field);
  }
}

void add_run_flags(CLI::App& app, RunFlags& run) {
  const auto add = [&](const std::string& name, std::string& value, const std::string& text, const std::string& type) {
    add_text(app, name, value, text, type, "Training run");
  };
  add("--train-tokens", run.tokens, "Of a whole run, such as 15T: its days, device-hours, price, energy, and what failures take",
      "TOKENS");
  add("--price", run.price, "Of a device's hour, with a currency's letters or without: 2.5USD", "PRICE");
  add("--power", run.power, "Of a device, such as 700W (default the most that its data sheet says)", "POWER");
  add("--pue", run.pue, "Power of the site over that of its computers (default 1.54)", "FACTOR");
  add("--mtbf", run.mtbf, "Mean time between failures of one device that stop the run, such as 50000h (default Llama 3's)",
      "TIME");
  add("--restart-time", run.restart_time, "From a failure until training goes on, with other nodes (default 10min)", "TIME");
  add("--repair-time", run.repair_time, "Until a failed node is back (default 1d)", "TIME");
  add("--spare-nodes", run.spare_nodes,
      "That wait for others to fail, and are paid for (default as many as needed, from elsewhere)", "N");
  add("--checkpoint", run.checkpoint,
      "Who writes it: async, the hosts while training goes on, after a copy to their memory (default), or sync", "WAY");
  add("--checkpoint-bandwidth", run.checkpoint_bandwidth,
      "What the storage takes of all nodes together (default 1GB/s of each node)", "RATE");
}

void add_option_flag(CLI::App& app, Request& request, const std::string& whose) {
  app.add_option("--option", request.options, "An option of " + whose + " (tawpipe list schedules), or KEY=auto; may be repeated")
      ->type_name("KEY=VALUE")
      ->group("Schedule")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_schedule_flags(CLI::App& app, Request& request) {
  add_text(app, "--schedule", request.schedule, "Which schedule (tawpipe list schedules)", "NAME", "Schedule");
  add_text(app, "--schedule-file", request.schedule_file,
           "A schedule from a file: JSON, PyTorch's pipeline CSV, or NAME.0.et of a Chakra trace\n(docs/interchange.md)",
           "FILE|-", "Schedule");
  add_text(app, "--comm-groups", request.comm_groups, "The process groups of a Chakra trace (default NAME.json, where it is)",
           "FILE", "Schedule");
  add_option_flag(app, request, "the schedule");
}

void add_config_flag(CLI::App& app) {
  const std::string text = "Read flags from a file of lines such as sequence = 4096 (TOML; a section [" + app.get_name() +
                           "]\nholds for this command only). The command line wins";
  app.add_option("--config", text)->type_name("FILE")->group("Other");
}

void finish(CLI::App& app, const std::string& example) {
  app.set_help_flag("-h,--help", "Show this help");
  app.get_help_ptr()->group("Other");
  app.footer(example);
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 1 && option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw) {
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
}

}  // namespace tawpipe::sim
