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

std::string meaning_of(const JobField& field, std::string_view standard) {
  std::string text = field.meaning;
  if (const std::size_t at = text.find("{}"); at != std::string::npos)
    text.replace(at, 2, field.standard.empty() || field.searched == standard ? standard : field.standard);
  return text;
}

namespace {

/// A field as a flag that sets its text. @param standard  the command's default
CLI::Option* add_job_flag(CLI::App& app, JobTexts& job, const JobField& field, std::string_view standard = {}) {
  const std::string flag = concat("--", field.name);
  const std::string text = meaning_of(field, standard);
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

void tell_planned_costs(CLI::App& app) {
  app.get_option("--cost")->description("kernels (default) or roofline, with parameters as simulate takes them");
}

const std::string memory_default = fmt::format("{} where --microbatch is auto, 1 where it is a number", usable_memory_share);

}  // namespace

void add_field(CLI::App& app, std::string_view name, std::string& value, std::string_view group) {
  const JobField& field = job_field(name);
  add_text(app, concat("--", name), value, meaning_of(field), std::string{field.type},
           std::string{group.empty() ? field.group : group});
}

CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& text) {
  CLI::App* command = parent.add_subcommand(name, text);
  command->group("Commands");
  return command;
}

void add_usable_memory(CLI::App& app, double& fraction, const std::string& default_text) {
  const JobField& field = job_field("usable-memory");
  app.add_option("--usable-memory", fraction, meaning_of(field, default_text))
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

void add_context_exchange_flag(CLI::App& app, MeshRequest& request) {
  add_field(app, "context-exchange", request.context_exchange);
}

void add_state_flags(CLI::App& app, MeshRequest& request) {
  add_field(app, "shard-states", request.shard_states);
  add_field(app, "reshard", request.reshard);
  add_field(app, "overlap-grad-reduce", request.overlap_gradients);
  add_field(app, "overlap-param-gather", request.overlap_gathers);
  const JobField& bucket = job_field("bucket");
  add_count<0>(app, "--bucket", request.bucket, meaning_of(bucket), std::string{bucket.type}, std::string{bucket.group});
}

void add_problem_flags(CLI::App& app, JobTexts& job, const std::string& microbatch_default,
                       const std::string& recompute_default) {
  for (const JobField& field : job_fields()) {
    if (field.is(of_noise) || field.is(of_run)) continue;
    add_job_flag(app, job, field,
                 field.name == "microbatch"  ? microbatch_default
                 : field.name == "recompute" ? recompute_default
                                             : memory_default);
  }
}

void add_planned_flags(CLI::App& app, JobTexts& job) {
  for (const JobField& field : job_fields()) {
    if (field.is(of_noise) || field.is(of_run) || field.name == "microbatches") continue;
    add_job_flag(app, job, field, field.searched.empty() ? memory_default : field.searched);
  }
  tell_planned_costs(app);
}

void add_bound_flags(CLI::App& app, JobTexts& job) {
  for (const JobField& field : job_fields()) {
    if (!field.is(of_noise) && !field.is(of_plan)) add_job_flag(app, job, field, memory_default);
  }
  tell_planned_costs(app);
}

void add_flags_of(CLI::App& app, JobTexts& job, FieldTraits trait) {
  for (const JobField& field : job_fields()) {
    if (field.is(trait)) add_job_flag(app, job, field);
  }
}

void add_option_flag(CLI::App& app, JobQuestion& job, const std::string& whose) {
  app.add_option("--option", job.options, "An option of " + whose + " (tawpipe list schedules), or KEY=auto; may be repeated")
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
