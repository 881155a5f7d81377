// The flags that commands share, and the layout of their help.
// Not: the meaning of the flags (request.hpp) nor the flags of each command (main.cpp,
// instruments.cpp, search_flags.cpp).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "mesh_request.hpp"
#include "request.hpp"
#include "tawpipe/core/parse_number.hpp"

namespace tawpipe::sim {

/// A check of CLI11: the parser's message for a value that it rejects.
template <class Parse>
CLI::Validator check_by(Parse parse) {
  const auto fault = [parse](const std::string& text) {
    try {
      parse(text, "the value");
      return std::string{};
    } catch (const InputError& error) {
      return std::string{error.what()};
    }
  };
  return CLI::Validator{fault, ""};
}

template <int least = 1, class Number>
void add_count(CLI::App& app, const std::string& name, Number& value, const std::string& text, const std::string& type,
               const std::string& group) {
  app.add_option(name, value, text)
      ->type_name(type)
      ->group(group)
      ->check(check_by([](std::string_view given, std::string_view what) { parse_whole(given, what, Number{least}); }));
}

/// The same for tokens, "8k" too: in units of 1,024 (k) and 1,048,576 (M), as sequences and batches are told.
template <class Number>
void add_tokens(CLI::App& app, const std::string& name, Number& value, const std::string& text, const std::string& group) {
  add_count(app, name, value, text + ", such as 8192 or 8k", "TOKENS", group);
  app.get_option(name)->transform(CLI::Validator{[](std::string& given) {
                                                   given = plain_tokens(given);
                                                   return std::string{};
                                                 },
                                                 ""});
}

void add_text(CLI::App& app, const std::string& name, std::string& value, const std::string& text, const std::string& type,
              const std::string& group);
/// The meaning of a field with a command's default, or the field's own, in place of "{}".
std::string meaning_of(const JobField& field, std::string_view standard = {});
/// A field of a job (search/job_fields.hpp) as a flag of a command that keeps it in `value`.
/// @param group  in place of the field's
void add_field(CLI::App& app, std::string_view name, std::string& value, std::string_view group = {});
template <class Number>
void add_field(CLI::App& app, std::string_view name, Number& value) {
  const JobField& field = job_field(name);
  add_count(app, concat("--", name), value, meaning_of(field), std::string{field.type}, std::string{field.group});
}
/// A command in the list of `parent`'s help. @param text  what it does, in a line
CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& text);
/// The fraction of a device's memory that may be needed.
void add_usable_memory(CLI::App& app, double& fraction, const std::string& default_text);
void add_json_flag(CLI::App& app, std::string& json, const std::string& what);
/// --chart, a picture. @param what  the contents
void add_chart_flag(CLI::App& app, std::string& chart, const std::string& what);
/// --report, one page for a browser. @param what  its contents
void add_report_flag(CLI::App& app, std::string& report, const std::string& what);
// Those of the command train: the same as a job's fields.
/// --offload, what lies in host memory.
void add_offload_flag(CLI::App& app, std::string& offload, const std::string& group);
/// --inter-node, in place of what --cluster says.
void add_inter_node_flag(CLI::App& app, std::string& speed, const std::string& group);
/// The axes of the mesh around a schedule, and their order.
void add_axis_flags(CLI::App& app, MeshRequest& request);
/// --sequence-parallel, how tensor-parallel ranks share norms.
void add_sequence_parallel_flag(CLI::App& app, MeshRequest& request);
void add_context_exchange_flag(CLI::App& app, MeshRequest& request);
/// What the ranks that hold the same parameters share, and when it travels.
void add_state_flags(CLI::App& app, MeshRequest& request);
/// The flags for what is to be trained and where: the fields of a job but noise and a whole run.
void add_problem_flags(CLI::App& app, JobTexts& job, const std::string& microbatch_default,
                       const std::string& recompute_default = "full");
/// The same for `plan`, which searches what is not given.
void add_planned_flags(CLI::App& app, JobTexts& job);
/// The same for `bound`: those on which a bound depends.
void add_bound_flags(CLI::App& app, JobTexts& job);
/// The flags of noise, or of a whole training run.
void add_flags_of(CLI::App& app, JobTexts& job, FieldTraits trait);
void add_option_flag(CLI::App& app, JobQuestion& job, const std::string& whose);
void add_schedule_flags(CLI::App& app, Request& request);
void add_config_flag(CLI::App& app);
/// --help last of its group, repeated flags replace, and an example at the end.
void finish(CLI::App& app, const std::string& example);

}  // namespace tawpipe::sim
