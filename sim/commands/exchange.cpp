// `tawpipe export`, and --schedule-file: schedules as JSON, as PyTorch's CSV, and as graphs for
// Graphviz.
#include "exchange.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "../output_file.hpp"
#include "chakra.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/report/chakra_import.hpp"
#include "tawpipe/report/comm_program_json.hpp"
#include "tawpipe/report/dot.hpp"
#include "tawpipe/report/pytorch_pipeline.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/verify/check_order.hpp"
#include "tawpipe/verify/check_structure.hpp"

namespace tawpipe::sim {

namespace {

void require_schedule(const ScheduleFile& file) {
  if (!file.calls) return;
  throw InputError(
      concat(one_line(file.path), " holds the calls of ranks, which is not a schedule; tawpipe validate proves them"));
}

Schedule requested_schedule(const Request& request) {
  if (!request.schedule_file.empty()) {
    ScheduleFile file = read_schedule_file(request.schedule_file, request.comm_groups);
    require_schedule(file);
    if (file.trace) return import_chakra(*file.trace).schedule;
    // JSON is whole; rows become a schedule of equal stages if no cluster and no model is given.
    if (file.schedule) return std::move(*file.schedule);
    if (!request.has("cluster") && !request.has("model")) {
      return pytorch_pipeline(*file.rows, std::nullopt, {}, one_line(file.path));
    }
    return load_schedule_file(request, std::move(file)).schedule;
  }
  const ScheduleChoice choice = named_schedule(request, " or --schedule-file");
  Problem problem = resolve(request, false);
  problem.schedules = {choice};
  return predict(problem).schedule;
}

}  // namespace

int run_export(const Request& request, const ExportRequest& how) {
  const std::vector<std::string> formats{"json", "pytorch-csv", "dot"};
  if (std::find(formats.begin(), formats.end(), how.format) == formats.end()) {
    throw InputError(concat("--format: ", unknown_name("format", how.format, formats)));
  }
  OutputFile file{how.out};
  const Schedule schedule = requested_schedule(request);
  if (how.format != "json") require_runnable(schedule);
  if (how.format == "json") {
    write_schedule_json(schedule, [&](std::string_view text) { file(text); });
  } else if (how.format == "dot") {
    file(schedule_dot(schedule, {.max_tasks = static_cast<std::size_t>(std::max<std::int64_t>(how.max_tasks, 0))}));
  } else {
    const PytorchOptions options{.communication = how.communication,
                                 .reduce_gradients = how.reduce_gradients,
                                 .waits = how.waits,
                                 .grammar = how.op_first ? PytorchGrammar::op_first : PytorchGrammar::stage_first};
    file(write_pytorch_csv(pytorch_schedule(schedule, options)));
  }
  file.finish();
  return ok;
}

std::int64_t ScheduleFile::microbatches() const {
  if (schedule) return schedule->workload().microbatches();
  std::int64_t count = 0;
  for (const auto& cells : rows->ranks) {
    for (const auto& cell : cells) {
      for (const auto& action : cell.actions) count = std::max<std::int64_t>(count, action.microbatch + 1);
    }
  }
  return count;
}

ScheduleFile read_schedule_file(const std::string& path, const std::string& groups) {
  ScheduleFile file{.path = path, .schedule = std::nullopt, .rows = std::nullopt, .calls = std::nullopt, .trace = std::nullopt};
  if (is_chakra_path(path)) {
    file.trace = read_chakra(path, groups);
    return file;
  }
  if (!groups.empty()) throw InputError("--comm-groups needs a Chakra trace, --schedule-file NAME.0.et");
  const std::string text = read_text(path, "schedule file");
  const std::string source = path == "-" ? std::string{"standard input"} : one_line(path);
  const auto begin = text.find_first_not_of(" \t\r\n");
  const bool json = begin != std::string::npos && text[begin] == '{';
  if (json && is_comm_program(text)) {
    file.calls = parse_comm_program(text, source);
  } else if (json) {
    file.schedule = parse_schedule_json(text, source);
  } else {
    file.rows = parse_pytorch_csv(text, source);
  }
  return file;
}

Schedule make_schedule(ScheduleFile file, const Problem& problem, bool times_are_known) {
  const std::string source = file.path == "-" ? std::string{"standard input"} : one_line(file.path);
  const auto check_ranks = [&](int ranks) {
    if (ranks <= problem.cluster.ranks()) return;
    throw InputError(concat(source, " is a schedule of ", ranks, " ranks, and cluster ", quote(problem.cluster.name()), " has ",
                            problem.cluster.ranks(), " devices"));
  };
  if (!problem.mesh.is_plain()) {
    throw InputError(concat(source, " is a whole schedule; leave out tensor, context and data parallelism"));
  }
  if (file.schedule) {
    if (file.schedule->tasks().empty()) throw InputError(concat(source, " has no tasks; a schedule has at least one"));
    check_ranks(file.schedule->ranks());
    if (!times_are_known && file.schedule->workload().is_abstract() && !std::holds_alternative<FixedCost>(problem.cost)) {
      throw InputError(concat(source, " holds no model to compute times from; give it one (workload), or use --cost fixed:…"));
    }
    return std::move(*file.schedule);
  }
  check_ranks(static_cast<int>(file.rows->ranks.size()));
  std::optional<Workload> workload;
  if (problem.model) workload = problem.workload(problem.candidate_sizes().front());
  // PyTorch's runtime posts sends and receives concurrently with the computations.
  return pytorch_pipeline(*file.rows, workload, {.overlap = true}, source);
}

namespace {

/// @throws InputError  for a flag that says something else than the file's own work, on which all
/// times and memory depend
void check_known_work(const JobQuestion& given, const Workload& known, const std::string& source) {
  const auto agree = [&](const char* flag, bool differs, const auto& said) {
    if (differs) throw InputError(concat(flag, " is not what ", source, " says, ", said, "; leave out ", flag));
  };
  const Batch& batch = known.batch();
  const std::optional<Transformer>& own = known.model().decoder;
  if (given.has("model")) {
    const Transformer asked = resolve_model(given.text("model"));
    agree("--model", !own || !detail::same_sizes(asked, *own) || !detail::same_details(asked, *own), known.model().name);
  }
  const auto agree_number = [&](const char* field, std::int64_t said) {
    const std::int64_t asked = given.count(field);
    agree(concat("--", field).c_str(), asked > 0 && asked != said, said);
  };
  agree_number("sequence", batch.sequence);
  agree_number("global-batch", batch.global_batch);
  agree_number("microbatches", known.microbatches());
  agree_number("microbatch", batch.microbatch_size);
  const std::string recompute = given.text("recompute");
  agree("--recompute", recompute != "" && recompute != "auto" && parse_recompute_text(recompute).policy != known.recompute(),
        name(known.recompute()));
  const std::string_view products = name(own ? own->products : ProductFormat::bits16);
  agree("--gemm-format", given.has("gemm-format") && given.text("gemm-format") != products, products);
  if (given.text("offload") != "off") throw InputError("--offload has no effect with --schedule-file; leave one of the two out");
}

}  // namespace

FileProblem load_schedule_file(const Request& given) {
  return load_schedule_file(given, read_schedule_file(given.schedule_file, given.comm_groups));
}

FileProblem load_schedule_file(const JobQuestion& given, ScheduleFile file) {
  require_schedule(file);
  JobQuestion request = given;
  std::vector<Duration> times;
  if (file.trace) {
    ImportedTrace trace = import_chakra(*file.trace);
    file.trace.reset();
    file.schedule = std::move(trace.schedule);
    times = std::move(trace.times);
    request.times_are_known = true;
  }
  if (const Workload* const known = file.workload(); known != nullptr && !known->is_abstract())
    check_known_work(given, *known, one_line(file.path));
  const bool batch_is_given = request.has("global-batch") || request.has("microbatches");
  if (file.workload() == nullptr && !batch_is_given) request.set("microbatches", concat(file.microbatches()));
  Problem problem = resolve(request, false, file.workload());
  Schedule schedule = make_schedule(std::move(file), problem, !times.empty());
  return {std::move(problem), std::move(schedule), std::move(times)};
}

void require_runnable(const Schedule& schedule) {
  Diagnostics found{1};
  check_structure(schedule, found);
  if (found.ok()) check_cycles(schedule, found);
  if (found.ok()) return;
  const Finding& first = found.findings().front();
  throw ScheduleError(
      concat("the schedule cannot run: ", first.code, ": ", first.message, "; tawpipe validate shows all findings"));
}

}  // namespace tawpipe::sim
