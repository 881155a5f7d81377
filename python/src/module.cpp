// tawpipe._core: the library's calls and errors for Python. What Python's users see is
// python/tawpipe/__init__.py.
// Not: its values (values.cpp).
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands/entries.hpp"
#include "commands/exchange.hpp"
#include "commands/list.hpp"
#include "commands/validate_order.hpp"
#include "convert.hpp"
#include "request.hpp"
#include "tawpipe/answers/bound_answer.hpp"
#include "tawpipe/answers/interval.hpp"
#include "tawpipe/answers/plan_answer.hpp"
#include "tawpipe/answers/run_answer.hpp"
#include "tawpipe/core/version.hpp"
#include "tawpipe/frameworks/setting.hpp"
#include "tawpipe/report/chrome_trace.hpp"
#include "tawpipe/report/comparison.hpp"
#include "tawpipe/report/flight_recorder.hpp"
#include "tawpipe/report/flight_report.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/report/summary_json.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/verify/diagnose.hpp"
#include "values.hpp"

namespace tawpipe::python {

namespace {

using namespace nb::literals;

template <class Enum>
std::vector<std::string> names_of(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(name(static_cast<Enum>(i)));
  return names;
}

/// A prediction with the other keys of the command's JSON.
struct Simulated : Prediction {
  nlohmann::ordered_json more;

  /// @param error  of its time; none: it is not known
  Simulated(Prediction prediction, const Problem& problem, const std::optional<double>& bound,
            const answers::JobQuestion& request, const std::optional<RunsWithError>& error)
      : Prediction{std::move(prediction)} {
    answers::add_cost(more, problem);
    if (answers::wants_run(request)) more["run"] = answers::run_json(answers::answer_run(request, problem, summary));
    answers::add_gap(more, summary.makespan, bound);
    if (error) answers::add_interval(more, summary.makespan, *error);
    if (!request.step_time.empty()) answers::add_measured_step(more, answers::measured_step(request, problem, summary.makespan));
  }
  nlohmann::ordered_json json() const {
    nlohmann::ordered_json all = to_json(summary);
    all.update(more);
    return all;
  }
};

Simulated simulate(const answers::JobQuestion& request) {
  const SignalsEndComputations watched{false};
  Problem problem = answers::resolve(request, false);
  problem.schedules = {answers::named_schedule(request)};
  Prediction found = sim::predict(problem);
  const auto error = answers::error_of_problem(problem, found.summary, problem.schedules.front(), problem.recompute);
  return {std::move(found), problem, answers::bound_of(problem), request, error};
}

Simulated simulate_given(const answers::JobQuestion& request, const Schedule& schedule) {
  sim::require_runnable(schedule);
  sim::ScheduleFile file{
      .path = "the schedule", .schedule = schedule, .rows = std::nullopt, .calls = std::nullopt, .trace = std::nullopt};
  const SignalsEndComputations watched{false};
  sim::FileProblem given = sim::load_schedule_file(request, std::move(file));
  return {predict(given.problem, std::move(given.schedule)), given.problem, std::nullopt, request, std::nullopt};
}

/// What compare() found: summaries, best first, and the command's text.
struct Comparison {
  std::string problem;
  std::string table;
  std::vector<nlohmann::ordered_json> results;  ///< best first, with the keys of the command's JSON
  std::vector<std::string> labels;
};

Comparison compare(const answers::JobQuestion& request, const std::vector<std::string>& schedules, bool baselines) {
  const SignalsEndComputations watched{false};
  std::vector<ScheduleChoice> all = sim::compared_entries(request, schedules, !baselines);
  Problem problem = answers::resolve(request, true, nullptr, baselines ? "full" : "auto");
  problem.fold = Fold::automatic;
  std::vector<Chosen> results;
  const std::vector<Problem> problems = sim::compared_problems(problem, all, baselines);
  for (std::size_t i = 0; i < all.size(); ++i) results.push_back(sim::choose(problems[i], all[i]));
  Comparison found{.problem = answers::describe(problem),
                   .table = comparison_table(results, problem.recomputes.size() > 1),
                   .results = {},
                   .labels = {}};
  const std::optional<double> bound = answers::bound_of(problem);
  for (const std::size_t i : comparison_order(results)) {
    found.results.push_back(answers::compared_json(problem, results[i], bound));
    found.labels.push_back(answers::entry_label(results[i].choice));
  }
  return found;
}

/// The answer's JSON, as the command writes it, its text, and why there is no plan. Ctrl-C ends the search with the best so
/// far.
nb::tuple planned(const answers::PlanQuestion& given) {
  std::string json;
  std::string text;
  std::string complaint;
  try {
    const nb::gil_scoped_release released;
    const SignalsEndComputations watched{true};
    const answers::PlanAnswer found = answers::answer(
        given, [&](const PlanProgress&, const answers::Planned&, std::string_view) { return !watched(); });
    json = to_json(found).dump(2) + "\n";
    text = to_text(found, {});
    complaint = found.complaint();
  } catch (const Stopped&) {  // before there was anything to search
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw nb::python_error();
  }
  return nb::make_tuple(json, text, complaint);
}

nb::tuple bounded(const answers::PlanQuestion& given) {
  answers::BoundAnswer found;
  {
    const nb::gil_scoped_release released;
    found = answers::answer_bound(given, {});
  }
  return nb::make_tuple(to_python(found.json), found.text, found.complaint);
}

OrderReport prove_order(const std::string& path, const std::string& semantics, const std::string& communicators) {
  const sim::ScheduleFile file = sim::read_schedule_file(path);
  if (!sim::has_order(file)) {
    throw InputError(concat(one_line(path), " is a whole schedule, not an order of calls; use Schedule.validate"));
  }
  return sim::prove_order(file, {.semantics = semantics, .communicators = communicators, .mend = {}}, true);
}

std::pair<FlightDiagnosis, std::size_t> diagnosed(const std::vector<std::string>& paths) {
  FlightRecorderReader reader;
  const auto files = dump_files(paths);
  for (const auto& [rank, path] : files) reader.add(rank, answers::read_text(path, "dump"), one_line(path));
  return {diagnose(reader.take()), files.size()};
}

void bind_plan(nb::module_& module) {
  nb::class_<answers::PlanQuestion>(module, "PlanQuestion")
      .def(nb::init<>())
      .def_rw("job", &answers::PlanQuestion::job)
      .def_rw("pipeline_parallel", &answers::PlanQuestion::pipeline)
      .def_rw("tokens", &answers::PlanQuestion::tokens)
      .def_rw("schedules", &answers::PlanQuestion::schedules)
      .def_rw("top", &answers::PlanQuestion::top)
      .def_rw("budget", &answers::PlanQuestion::budget)
      .def_rw("seconds", &answers::PlanQuestion::seconds)
      .def_rw("threads", &answers::PlanQuestion::threads)
      .def_rw("devices", &answers::PlanQuestion::devices)
      .def_rw("what_if", &answers::PlanQuestion::what_if)
      .def_rw("today", &answers::PlanQuestion::today)
      .def_rw("args", &answers::PlanQuestion::args)
      .def_rw("env", &answers::PlanQuestion::env)
      .def_rw("strict", &answers::PlanQuestion::strict)
      .def_rw("vocab_size", &answers::PlanQuestion::vocab_size)
      .def_rw("step_time", &answers::PlanQuestion::step_time)
      .def_rw("emit", &answers::PlanQuestion::emit);
  module.def("plan", &planned, "question"_a);
  module.def("bound", &bounded, "question"_a);
}

void bind_answers(nb::module_& module) {
  nb::class_<Simulated>(module, "Prediction", "A schedule with the timeline predicted for it.")
      .def_prop_ro(
          "schedule", [](const Simulated& prediction) -> const Schedule& { return prediction.schedule; },
          nb::rv_policy::reference_internal, "Where devices that do the same were simulated once (fold), the kept ones only.")
      .def_prop_ro(
          "timeline", [](const Simulated& prediction) -> const Timeline& { return prediction.timeline; },
          nb::rv_policy::reference_internal)
      .def_prop_ro(
          "fits", [](const Simulated& prediction) { return prediction.fits(); }, "Whether every device's memory is enough.")
      .def_prop_ro("makespan_s", [](const Simulated& prediction) { return to_seconds(prediction.summary.makespan); })
      .def(
          "to_dict", [](const Simulated& prediction) { return to_python(prediction.json()); },
          "The keys of `tawpipe simulate --json` (docs/output.md).")
      .def(
          "chrome_trace", [](const Simulated& prediction) { return chrome_trace(prediction.schedule, prediction.timeline); },
          nb::call_guard<nb::gil_scoped_release>(), "The timeline as a trace for Perfetto.");
  nb::class_<Comparison>(module, "ComparisonResult")
      .def_ro("problem", &Comparison::problem)
      .def_ro("table", &Comparison::table)
      .def_ro("labels", &Comparison::labels)
      .def("results", [](const Comparison& comparison) {
        nb::list all;
        for (const nlohmann::ordered_json& one : comparison.results) all.append(to_python(one));
        return all;
      });

  module.def("simulate", &simulate, "request"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def("simulate_given", &simulate_given, "request"_a, "schedule"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def("compare", &compare, "request"_a, "schedules"_a, "baselines"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "prove_order",
      [](const std::string& path, const std::string& semantics, const std::string& communicators) {
        OrderReport report;
        {
          const nb::gil_scoped_release released;
          report = prove_order(path, semantics, communicators);
        }
        return nb::make_tuple(to_python(report.json), report.text, report.mended);
      },
      "path"_a, "semantics"_a, "communicators"_a);
  module.def(
      "diagnose",
      [](const std::vector<std::string>& paths) {
        std::pair<FlightDiagnosis, std::size_t> found;
        {
          const nb::gil_scoped_release released;
          found = diagnosed(paths);
        }
        return nb::make_tuple(to_python(to_json(found.first, found.second)), diagnosis_text(found.first, found.second));
      },
      "paths"_a);
  module.def(
      "read_schedule",
      [](const std::string& path) { return parse_schedule_json(answers::read_text(path, "schedule file"), one_line(path)); },
      "path"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "list", [](const std::string& what) { return to_python(sim::list_json(what)); }, "what"_a);
}

/// What Python catches; `input` is a ValueError too, as Python has it for arguments.
struct Exceptions {
  PyObject* error;
  PyObject* input;
  PyObject* schedule;
};

/// The arguments of the module's calls.
std::vector<std::string> arguments;

/// The command's words for an argument in Python's: "--global-batch is missing" is "global_batch is
/// missing". Quoted texts and other flags stay as they are.
std::string in_python_words(std::string_view text) {
  std::string words;
  for (std::size_t i = 0; i < text.size();) {
    const bool flag = text.substr(i, 2) == "--" && !words.ends_with('\'');
    const std::size_t end = flag ? std::min(text.find_first_not_of("-abcdefghijklmnopqrstuvwxyz", i), text.size()) : i + 1;
    const std::string_view word = text.substr(i, end - i);
    std::string name{word.substr(flag ? 2 : 0)};
    std::replace(name.begin(), name.end(), '-', '_');
    words += flag && std::find(arguments.begin(), arguments.end(), name) != arguments.end() ? name : word;
    i = end;
  }
  return words;
}

void bind_errors(nb::module_& module) {
  static Exceptions types{};
  types.error = PyErr_NewExceptionWithDoc("tawpipe.Error", "Base of all errors of tawpipe.", PyExc_Exception, nullptr);
  const nb::tuple bases = nb::make_tuple(nb::handle(types.error), nb::handle(PyExc_ValueError));
  types.input =
      PyErr_NewExceptionWithDoc("tawpipe.InputError", "A file, name or size that cannot be used as given.", bases.ptr(), nullptr);
  types.schedule =
      PyErr_NewExceptionWithDoc("tawpipe.ScheduleError", "A schedule that cannot be built, or cannot run.", bases.ptr(), nullptr);
  module.attr("Error") = nb::handle(types.error);
  module.attr("InputError") = nb::handle(types.input);
  module.attr("ScheduleError") = nb::handle(types.schedule);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const SettingError& error) {  // a file's own words
      PyErr_SetString(types.input, error.what());
    } catch (const InputError& error) {
      PyErr_SetString(types.input, in_python_words(error.what()).c_str());
    } catch (const ScheduleError& error) {
      PyErr_SetString(types.schedule, in_python_words(error.what()).c_str());
    } catch (const Error& error) {
      PyErr_SetString(types.error, in_python_words(error.what()).c_str());
    }
  });
}

}  // namespace

NB_MODULE(_core, module) {
  module.attr("version") = version;
  module.def(
      "name_arguments", [](std::vector<std::string> names) { arguments = std::move(names); }, "names"_a);
  module.attr("OPS") = nb::cast(names_of<Op>(ops));
  module.attr("PAYLOADS") = nb::cast(names_of<Payload>(payloads));
  module.attr("BUFFER_KINDS") = nb::cast(names_of<BufferKind>(buffer_kinds));
  bind_errors(module);
  bind_problem(module);
  bind_plan(module);
  bind_schedule(module);
  bind_answers(module);
}

}  // namespace tawpipe::python
