// Which frameworks run a layout, and whose measured errors its prediction so has.
// Not: their settings (frameworks.hpp), nor the errors (search/expected_error.hpp).
#pragma once

#include <algorithm>
#include <vector>

#include "tawpipe/frameworks/frameworks.hpp"
#include "tawpipe/search/expected_error.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// A job as a framework has it: its own kernels, data parallelism of an axis, states shared out as it does,
/// FSDP in groups of a node as FSDP in groups. What it costs to run it so is not in the prediction.
inline FrameworkJob as_framework_runs(Framework framework, FrameworkJob job) {
  if (job.choice.schedule == "zero2") {
    job.mesh.pipeline *= job.mesh.data;
    job.mesh.data = 1;
  }
  if (job.is_one_of({"ddp", "zero1"}) && job.mesh.pipeline > 1) {
    if (job.choice.schedule == "zero1") job.sharding = StateSharding::optimizer;
    job.mesh.data *= job.mesh.pipeline;
    job.mesh.pipeline = 1;
    job.choice = {"ddp"};
  }
  if (job.choice.schedule == "hsdp" && framework != Framework::deepspeed) job.choice = {"fsdp", {{"prefetch", "1"}}};
  const bool fsdp = job.choice.schedule == "fsdp";
  for (const char* option : {"collectives", "p2p"}) job.choice.options.erase(option);
  if (fsdp) job.choice.options["prefetch"] = "1";
  if (job.choice.schedule == "1f1b") job.choice.options["overlap"] = "off";
  if (framework == Framework::torchtitan) {
    job.code = LayerCode::torchtitan;
    job.sharding = job.splits_batch() ? StateSharding::none : StateSharding::parameters;
    job.gradient_bytes = 4;
  } else {
    const bool unfused = fsdp || is_megatron_fsdp_of_experts(job);
    job.code = framework == Framework::megatron && !unfused ? LayerCode::megatron : LayerCode::megatron_unfused;
    if (framework == Framework::deepspeed) job.sequence_parallel = job.overlap_gathers = false;
  }
  return job;
}

inline std::vector<Framework> runs_as_predicted(const FrameworkJob& job) {
  std::vector<Framework> all;
  for (int i = 0; i < frameworks; ++i) {
    if (cannot_run(static_cast<Framework>(i), job).empty()) all.push_back(static_cast<Framework>(i));
  }
  return all;
}

}  // namespace detail

/// The frameworks that run a layout with a schedule as it was predicted, with its kernels and switches.
/// @pre problem has a model
inline std::vector<Framework> runs_as_predicted(const Problem& problem, const PlanLayout& layout, const ScheduleChoice& choice) {
  return detail::runs_as_predicted(job_of(problem, layout, choice));
}

/// Whose public runs a prediction is compared with: of what the model's code is, if a framework runs the
/// layout as predicted.
inline Software software_of(const Problem& problem, const std::vector<Framework>& as_predicted) {
  const LayerCode code = problem.model ? problem.model->code : LayerCode::megatron;
  if (code == LayerCode::composer) return Software::composer;
  if (code == LayerCode::tawpipe) return Software::unknown;
  const auto runs_it = [&](Framework one) {
    return std::find(as_predicted.begin(), as_predicted.end(), one) != as_predicted.end();
  };
  if (code == LayerCode::torchtitan || code == LayerCode::torchtitan_eager)
    return runs_it(Framework::torchtitan) ? Software::torchtitan : Software::unknown;
  return runs_it(Framework::megatron) ? Software::megatron : Software::unknown;
}

/// The error of a prediction, and where it runs.
struct RunsWithError {
  ExpectedError error;
  /// Frameworks that have this layout with this schedule, those too whose own kernels and switches take
  /// another time; none: only this library runs it, or a program of one's own.
  std::vector<Framework> runs;
  std::vector<Framework> as_predicted;  ///< of these runs_as_predicted()
};
/// @pre problem has a model
inline RunsWithError runs_with_error(const Problem& problem, const PlanLayout& layout, const ScheduleChoice& choice) {
  const FrameworkJob job = job_of(problem, layout, choice);
  RunsWithError found{.error = {}, .runs = {}, .as_predicted = detail::runs_as_predicted(job)};
  found.error = expected_error(problem, software_of(problem, found.as_predicted));
  for (int i = 0; i < frameworks; ++i) {
    const auto framework = static_cast<Framework>(i);
    const bool exact = std::find(found.as_predicted.begin(), found.as_predicted.end(), framework) != found.as_predicted.end();
    if (exact || cannot_run(framework, detail::as_framework_runs(framework, job)).empty()) found.runs.push_back(framework);
  }
  return found;
}
/// The same of a problem's own mesh. @pre problem has a model
inline RunsWithError runs_with_error(const Problem& problem, const ScheduleChoice& choice, Recompute recompute,
                                     std::int64_t microbatch_size) {
  return runs_with_error(
      problem, {.mesh = problem.mesh.over(problem.cluster.ranks()), .recompute = recompute, .microbatch_size = microbatch_size},
      choice);
}

}  // namespace tawpipe
