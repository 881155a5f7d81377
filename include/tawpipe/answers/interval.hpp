// The interval in which a predicted step time is expected, as text and JSON.
// Not: the errors it follows from (search/expected_error.hpp).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/answers/job_question.hpp"
#include "tawpipe/frameworks/runs_in.hpp"
#include "tawpipe/search/fwd.hpp"

namespace tawpipe::inline v0::answers {

/// "27.1 to 31.0 s": where 80 % of measured times are expected.
std::string interval_text(Duration time, const ExpectedError& error);
/// "27 public runs ... took 3% less to 8% more than predicted, 80 % of them".
std::string error_text(const ExpectedError& error);
/// Adds interval_s, runs_in and what the interval follows from (docs/output.md).
void add_interval(nlohmann::ordered_json& json, Duration time, const RunsWithError& found);

/// The frameworks' names, "Megatron-LM or torchtitan".
std::string titles(const std::vector<Framework>& all, std::string_view between);

/// The error of a problem with one schedule, and the frameworks that run it; none without a model or with
/// fixed times, which are what they are.
std::optional<RunsWithError> error_of_problem(const Problem& problem, const Summary& summary, const ScheduleChoice& choice,
                                              Recompute recompute);

/// One of the `results` of compare. @param problem  that of all of them
nlohmann::ordered_json compared_json(const Problem& problem, const Chosen& one, const std::optional<double>& bound);

/// "28.9 s a step (80 %: 27.1 to 31.0 s), in Megatron-LM"; without an error the time alone.
std::string step_text(Duration time, const std::optional<RunsWithError>& error);
/// "yes", "no" or "80 %": how probable it is that something fits.
std::string probability_text(double probability);
/// The fullest device's memory as tools print it, and how probable it is that it fits. @pre summary.beside
std::string device_memory_text(const Summary& summary);
/// A step of `problem` as measured: --step-time, and the --cost that explains it.
struct MeasuredStep {
  Duration measured;
  double speed;      ///< DeviceCurves::speed
  std::string cost;  ///< "kernels:speed=0.921"
};
/// @throws InputError  as speed_of_step(), and for a time that is none
MeasuredStep measured_step(const JobQuestion& request, const Problem& problem, Duration predicted);
/// @param error  of the prediction; none: it is not known
std::string measured_step_text(const MeasuredStep& step, Duration predicted, const std::optional<RunsWithError>& error);
void add_measured_step(nlohmann::ordered_json& json, const MeasuredStep& step);
/// What limits a step and what to try, a sentence.
std::string advice_text(const Summary& summary);

}  // namespace tawpipe::answers
