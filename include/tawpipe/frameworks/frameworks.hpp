// Other frameworks by name: reading their settings, writing a plan as settings, and finding
// the plans that they can run.
// Not: their settings (megatron.hpp, torchtitan.hpp, deepspeed.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/parse_name.hpp"
#include "tawpipe/frameworks/deepspeed.hpp"
#include "tawpipe/frameworks/megatron.hpp"
#include "tawpipe/frameworks/torchtitan.hpp"

namespace tawpipe::inline v0 {

enum class Framework : std::uint8_t { megatron, torchtitan, deepspeed };
inline constexpr int frameworks = 3;

/// "megatron", "torchtitan" or "deepspeed".
constexpr std::string_view name(Framework framework) {
  constexpr std::string_view names[frameworks] = {"megatron", "torchtitan", "deepspeed"};
  return names[static_cast<int>(framework)];
}
/// The name that its users know: "Megatron-LM".
constexpr std::string_view title(Framework framework) {
  constexpr std::string_view names[frameworks] = {"Megatron-LM", "torchtitan", "DeepSpeed"};
  return names[static_cast<int>(framework)];
}

/// A framework by name. @throws InputError  naming the nearest and all known names
inline Framework parse_framework(std::string_view text) { return detail::parse_name<Framework, frameworks>("framework", text); }

/// The framework of a text of settings: JSON is DeepSpeed's, TOML (a section, or a file name ending
/// in .toml) or a script that starts it torchtitan's, another script Megatron-LM's; a log is the program's that
/// printed it.
/// @throws InputError  for the name of a Python file, or of a YAML, which yaml_job() reads
inline Framework framework_of(std::string_view text, std::string_view path) {
  if (path.ends_with(".json")) return Framework::deepspeed;
  if (path.ends_with(".toml")) return Framework::torchtitan;
  if (path.ends_with(".sh")) return is_torchtitan_script(text) ? Framework::torchtitan : Framework::megatron;
  if (path.ends_with(".yaml") || path.ends_with(".yml"))
    throw InputError(one_line(concat(path, " is a YAML, which yaml_job() reads")));
  if (path.ends_with(".py")) {
    throw InputError(one_line(concat(path,
                                     " is in Python, which is not read; a script with Megatron-LM's flags, torchtitan's TOML, "
                                     "DeepSpeed's JSON and YAML of several programs are")));
  }
  if (is_megatron_log(text)) return Framework::megatron;
  if (is_torchtitan_log(text)) return Framework::torchtitan;
  if (is_deepspeed_log(text)) return Framework::deepspeed;
  text = without_byte_order_mark(text);
  for (const std::string_view each : split(text, '\n')) {
    const std::string_view line = trimmed(each);
    if (line.empty() || line[0] == '#') continue;
    return line[0] == '{'                                  ? Framework::deepspeed
           : line[0] == '[' && line.find(']') != line.npos ? Framework::torchtitan
           : is_torchtitan_script(text)                    ? Framework::torchtitan
                                                           : Framework::megatron;
  }
  return Framework::megatron;
}

/// The job that a framework's settings describe, on that many devices.
/// @throws InputError  naming the setting, its line and what would be right
inline FrameworkJob read_job(Framework framework, std::string_view text, std::string_view source, int devices,
                             const GivenJob& given = {}) {
  switch (framework) {
    case Framework::megatron:
      return megatron_job(text, source, devices, given);
    case Framework::torchtitan:
      return torchtitan_job(text, source, devices, given);
    case Framework::deepspeed:
      return deepspeed_job(text, source, devices, given);
  }
  return {};  // unreachable
}

/// The reasons why the framework cannot run the job, a sentence each; none if it can.
inline std::vector<std::string> cannot_run(Framework framework, const FrameworkJob& job) {
  switch (framework) {
    case Framework::megatron:
      return megatron_cannot(job);
    case Framework::torchtitan:
      return torchtitan_cannot(job);
    case Framework::deepspeed:
      return deepspeed_cannot(job);
  }
  return {};  // unreachable
}

/// The job as the framework's settings, after comments of a line each. @pre cannot_run() is empty,
/// and the job has a model
inline std::string write_job(Framework framework, const FrameworkJob& job, const std::vector<std::string>& comments = {}) {
  switch (framework) {
    case Framework::megatron:
      return megatron_text(job, comments);
    case Framework::torchtitan:
      return torchtitan_text(job, comments);
    case Framework::deepspeed:
      return deepspeed_text(job, comments);
  }
  return {};  // unreachable
}

/// The job's settings in the framework's terms, without those that have their default. @pre the job
/// has a model
inline std::vector<WrittenSetting> settings_of(Framework framework, const FrameworkJob& job) {
  switch (framework) {
    case Framework::megatron:
      return written_settings(megatron_table(), megatron_flags(job));
    case Framework::torchtitan:
      return written_settings(torchtitan_table(), torchtitan_settings(job));
    case Framework::deepspeed:
      return deepspeed_written(job);
  }
  return {};  // unreachable
}

/// The settings that turn `old` into `now`, in a user's terms: "--micro-batch-size 2", "without
/// --sequence-parallel", "parallelism.tp = 2".
inline std::vector<std::string> changed_settings(const std::vector<WrittenSetting>& old, const std::vector<WrittenSetting>& now) {
  const auto find = [](const std::vector<WrittenSetting>& all, std::string_view name) {
    return std::find_if(all.begin(), all.end(), [&](const WrittenSetting& one) { return one.name == name; });
  };
  std::vector<std::string> changes;
  for (const WrittenSetting& setting : now) {
    const auto at = find(old, setting.name);
    if (at != old.end() && at->value == setting.value) continue;
    const bool flag = setting.name.starts_with("--");
    const bool alone = flag && setting.value == "true" && !setting.is_text;
    changes.push_back(alone ? std::string{setting.name} : concat(setting.name, flag ? " " : " = ", setting.value));
  }
  for (const WrittenSetting& setting : old) {
    if (find(now, setting.name) == now.end()) changes.push_back(concat("without ", setting.name));
  }
  return changes;
}
/// The same of two jobs. @pre both have a model
inline std::vector<std::string> changed_settings(Framework framework, const FrameworkJob& before, const FrameworkJob& after) {
  return changed_settings(settings_of(framework, before), settings_of(framework, after));
}

/// The schedules that a framework has, for a plan to try.
inline std::vector<ScheduleChoice> framework_schedules(Framework framework) {
  std::vector<ScheduleChoice> choices{{"ddp"}};
  for (const char* reshard : {"on", "off"}) {
    if (framework == Framework::deepspeed && reshard == std::string_view{"off"}) continue;
    choices.push_back({"fsdp", {{"prefetch", "1"}, {"reshard", reshard}}});
  }
  if (framework != Framework::torchtitan) choices.push_back({"zero2"});
  if (framework == Framework::deepspeed) return choices;
  const auto looped = [&](const char* schedule) {
    for (const char* chunks : {"2", "3", "4", "5", "6", "8", "10", "12"}) choices.push_back({schedule, {{"chunks", chunks}}});
  };
  choices.push_back({"1f1b", {{"overlap", "off"}}});
  looped("interleaved-1f1b");
  if (framework == Framework::megatron) return choices;
  choices.push_back({"gpipe", {{"overlap", "off"}}});
  looped("looped-bfs");
  looped("interleaved-zb");
  choices.push_back({"zb-v"});
  choices.push_back({"dualpipe-v"});
  return choices;
}

/// Whether the framework can run a plan of that request: for PlanRequest::runs.
template <Framework framework>
bool framework_runs(const PlanRequest& request, const PlanLayout& layout, const ScheduleChoice& choice) {
  return cannot_run(framework, job_of(request.problem, layout, choice)).empty();
}

/// The parts of a layer that the framework's selective recomputation runs again where none are
/// named; none: the same as tawpipe's own choice.
inline RecomputeParts unnamed_parts(Framework framework) { return {.core_attn = framework == Framework::megatron}; }

/// The request for the best plan among those that the framework can run, with the framework's
/// schedules and its selective recomputation.
inline PlanRequest for_framework(Framework framework, PlanRequest request) {
  request.schedules = framework_schedules(framework);
  if (request.problem.model && !request.problem.model->recompute_parts.any())
    request.problem.model->recompute_parts = unnamed_parts(framework);
  request.runs = framework == Framework::megatron     ? &framework_runs<Framework::megatron>
                 : framework == Framework::torchtitan ? &framework_runs<Framework::torchtitan>
                                                      : &framework_runs<Framework::deepspeed>;
  return request;
}

/// The problem with a framework's switches at their best: what it always does, and every overlap
/// that it can turn on.
inline Problem with_best_switches(Framework framework, Problem problem) {
  const bool zero = framework == Framework::deepspeed;
  problem.sequence_parallel = !zero;
  problem.overlap_gradients = true;
  problem.overlap_gathers = !zero;
  if (framework == Framework::torchtitan) problem.sharding = StateSharding::parameters;
  problem.tensor_overlap = !problem.model || problem.model->overlaps_collectives();
  if (framework != Framework::megatron) set_graphs(problem.cost, CudaGraphs::none);
  if (!zero) problem.parameter_bytes.gradient = problem.master_copies ? 4 : problem.parameter_bytes.weight;
  return problem;
}

}  // namespace tawpipe
